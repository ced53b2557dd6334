//! The library's errors as Python's.

use pyo3::PyErr;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use shapewise::Error;

/// The exception that a numpy user expects, with the library's message.
pub fn raise(error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::DTypeMismatch { .. } | Error::UnsupportedDType { .. } => PyTypeError::new_err(message),
        Error::Memory(_) => PyMemoryError::new_err(message),
        Error::Store(_) => PyOSError::new_err(message),
        Error::NoKernel { .. } | Error::KernelFailed { .. } | Error::Unsupported { .. } => {
            PyRuntimeError::new_err(message)
        }
        _ => PyValueError::new_err(message),
    }
}
