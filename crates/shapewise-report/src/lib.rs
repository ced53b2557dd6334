//! Evidence as one HTML page: no server, no network, no library; it opens from a disk in ten years.
//!
//! ```
//! let page = shapewise_report::Report::default().html();
//! assert!(page.starts_with("<!doctype html>") && page.contains("not measured"));
//! ```
//!
//! [`Report`] is plain data; whoever has measured fills it. What was not measured is `None` and is shown as such.
#![deny(unsafe_code)]

mod axis;
mod choices;
mod legend;
mod machine;
mod model;
mod page;
mod prediction;
mod progress;
mod roofline;
mod shapes;
mod store;
mod summary;
mod table;
pub mod text;

pub use model::{
    Bandwidth, Candidate, Compute, Interval, Machine, Predicted, Progress, Report, Rows, Store, Workload,
};
pub use summary::{Leader, geometric_mean};
