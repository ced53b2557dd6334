//! Tuning: what a workload is like, what its parameters should be on each backend, and the search for better ones.
//!
//! A [`BackendTuningStrategy`] gives the start, computed from the hardware's limits.

mod characteristics;
mod constraints;
mod coordinator;
mod cpu;
mod cuda;
mod feedback;
mod gpu;
mod guard;
mod metal;
mod occupancy;
mod recommender;
pub mod search;
mod strategy;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod webgpu;
mod workbench;

pub use crate::backends::cpu::MemoryPlan;
pub use characteristics::{AccessPattern, Bound, Characteristics};
pub use constraints::{Accuracy, ConstraintKind, OptimisationLevel, TuningConstraints, TuningError};
pub use coordinator::{
    Coordinator, Ranked, Start, StrategyCounts, TunedWorkload, TuningBudget, TuningProgress, TuningReport,
    TuningTask,
};
pub use cpu::{CpuPlan, CpuStrategy};
pub use cuda::{CudaDevice, CudaPlan, CudaStrategy, HostMemory, TensorType};
pub use feedback::{Feedback, TuningMetrics};
pub use guard::{GuardedTrial, LONGEST};
pub use metal::{MetalDevice, MetalFamily, MetalLimits, MetalPlan, MetalStrategy, StorageMode};
pub use occupancy::{Limiter, MOST_THREADS, Multiprocessor, Occupancy, WARP};
pub use recommender::{CacheCounts, Recommender};
pub use strategy::{Alternative, BackendPlan, BackendTuningStrategy, TuningRecommendation};
pub use webgpu::{GpuLimits, GpuRates, WebGpuPlan, WebGpuStrategy};
pub use workbench::{CpuTrial, Workbench};
