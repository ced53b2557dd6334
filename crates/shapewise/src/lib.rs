//! One call, many kernels, and a choice you can ask about.
#![deny(unsafe_code)]

pub mod backends;
pub mod device;
mod error;
pub mod measure;
pub mod modelling;
pub mod ops;
mod prepared;
mod runtime;
pub mod selection;
pub mod store;
pub mod tensor;

pub use error::{Error, Result};
pub use prepared::Prepared;
pub use runtime::{Placement, Runtime, RuntimeBuilder, StoreLocation};
pub use tensor::{DType, Element, Tensor, TensorView, TensorViewMut};
