//! Models of how long a kernel takes.

mod roofline;

pub use roofline::predict;
