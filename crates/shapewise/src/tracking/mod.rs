//! What happened: times of every candidate, what runs now, drift, and what is learned from it.

mod drift;
mod history;
mod learner;
mod models;
mod report;

pub use drift::{Drift, DriftDetector};
pub use history::{HALF_LIFE, History, Measured, RETENTION_HALF_LIVES, Timings, Track};
pub(crate) use learner::{Learner, Measurement};
pub use models::Models;
pub use report::{Accuracy, KernelStatistics, WorkloadStatistics};
pub(crate) use report::{Observed, accuracy, kernels, workloads};
