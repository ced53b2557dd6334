//! One call, many kernels, and a choice you can ask about.
//!
//! A [`Runtime`] measures the machine once, counts what each kernel would execute for a call's shapes, runs the
//! fastest and says why.
//!
//! ```
//! use shapewise::{Runtime, Tensor};
//!
//! let rt = Runtime::builder().threads(1).without_calibration().build()?; // `Runtime::new()` measures the machine
//! let a = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
//! let c = rt.relu(&rt.matmul(&a, &a.transpose())?)?;
//! assert_eq!(c.as_slice::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
//!
//! let why = rt.explain(|rt| rt.matmul(&a, &a))?;
//! assert!(why.chosen.starts_with("cpu::matmul::"));
//! # Ok::<(), shapewise::Error>(())
//! ```
//!
//! - [`tensor`]: element types, views, conversions.
//! - [`ops`]: what can be computed; each operation's folder has its calls and all its kernels.
//! - [`selection`]: how a kernel is chosen, and kernels of your own.
//! - [`tuning`]: better parameters for this machine, within a budget.
#![deny(unsafe_code)]

pub mod backends;
pub mod device;
mod error;
mod hash;
pub mod measure;
pub mod modelling;
pub mod ops;
mod prepared;
mod runtime;
pub mod selection;
pub mod sensors;
pub mod store;
pub mod tensor;
pub mod tracking;
pub mod tuning;

pub use error::{Error, Result};
pub use prepared::Prepared;
pub use runtime::{Placement, Runtime, RuntimeBuilder};
pub use store::StoreLocation;
pub use tensor::{DType, Element, Tensor, TensorView, TensorViewMut};
