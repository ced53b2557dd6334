//! The Python module `shapewise`: numpy arrays in and out, the library in between.

#![allow(clippy::needless_pass_by_value)] // Python hands its arguments over

mod arguments;
mod array;
mod conv;
mod elementwise;
mod error;
mod fft;
mod inquire;
mod linear;
mod moving;
mod norm;
mod quantize;
mod reduce;
mod rnn;
mod runtime;
mod sparse;

use pyo3::prelude::*;

/// The compiled half of `shapewise`; the Python half gives its names to users.
#[pymodule(gil_used = false)]
fn _shapewise(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<runtime::PyRuntime>()?;
    module.add_class::<fft::Fft>()?;
    module.add_class::<conv::PyConvWeights>()?;
    module.add_class::<quantize::PyWeights>()?;
    module.add_class::<rnn::PyPackedRnn>()?;
    module.add_class::<sparse::Sparse>()?;
    module.add_class::<sparse::Matrix>()
}
