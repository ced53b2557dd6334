//! Models of how long a kernel takes.

mod prediction;
mod roofline;

pub use prediction::{Basis, Prediction};
pub use roofline::predict;
