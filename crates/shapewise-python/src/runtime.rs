//! `Runtime`: what every function is a method of.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shapewise::device::BackendKind;
use shapewise::selection::SelectionAlgorithm;
use shapewise::{Placement, Runtime, StoreLocation, Tensor};

use crate::array::to_numpy;
use crate::error::raise;
use crate::fft::Fft;
use crate::sparse::Sparse;

/// A device with its kernels and what was learned about them.
///
/// Every function of the module is also a method; the module's functions use one default runtime.
///
/// >>> import numpy as np, shapewise as sw
/// >>> rt = sw.Runtime(threads=1)
/// >>> rt.matmul(np.eye(2, dtype="float32"), np.ones((2, 2), "float32")).tolist()
/// [[1.0, 1.0], [1.0, 1.0]]
#[pyclass(module = "shapewise", name = "Runtime", frozen)]
pub struct PyRuntime {
    pub inner: Runtime,
}

impl PyRuntime {
    /// Computes without Python's lock and hands the result to numpy.
    pub fn run<'py>(
        &self,
        py: Python<'py>,
        call: impl FnOnce(&Runtime) -> shapewise::Result<Tensor> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        to_numpy(py, self.compute(py, call)?)
    }

    /// The same for a call with two results.
    pub fn run_two<'py>(
        &self,
        py: Python<'py>,
        call: impl FnOnce(&Runtime) -> shapewise::Result<(Tensor, Tensor)> + Send,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let (first, second) = self.compute(py, call)?;
        Ok((to_numpy(py, first)?, to_numpy(py, second)?))
    }

    /// Computes without Python's lock.
    pub fn compute<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&Runtime) -> shapewise::Result<T> + Send,
    ) -> PyResult<T> {
        let inner = &self.inner;
        py.detach(|| call(inner)).map_err(raise)
    }
}

#[pymethods]
impl PyRuntime {
    #[new]
    #[pyo3(signature = (device = "auto", threads = None, store = None, policy = "hybrid"))]
    fn new(
        py: Python<'_>,
        device: &str,
        threads: Option<usize>,
        store: Option<PathBuf>,
        policy: &str,
    ) -> PyResult<Self> {
        let mut builder = Runtime::builder().algorithm(algorithm(policy)?).placement(placement(device)?);
        if let Some(threads) = threads {
            builder = builder.threads(threads);
        }
        if let Some(store) = store {
            builder = builder.store(location(store));
        }
        let inner = py.detach(|| builder.build()).map_err(raise)?;
        Ok(Self { inner })
    }

    /// Threads that calls use, the caller's included.
    #[getter]
    fn threads(&self) -> usize {
        self.inner.device_info().threads
    }

    /// Fourier transforms with the signatures of `numpy.fft`.
    #[getter]
    fn fft(&self) -> Fft {
        Fft { runtime: Self { inner: self.inner.clone() } }
    }

    /// Sparse matrices with scipy's constructors.
    #[getter]
    fn sparse(&self) -> Sparse {
        Sparse { runtime: Self { inner: self.inner.clone() } }
    }

    /// Waits until everything measured so far is in the store and in the models.
    fn flush(&self, py: Python<'_>) {
        py.detach(|| self.inner.flush());
    }

    fn __repr__(&self) -> String {
        let info = self.inner.device_info();
        format!("<shapewise.Runtime on {} with {} threads>", info.name, info.threads)
    }
}

fn algorithm(name: &str) -> PyResult<SelectionAlgorithm> {
    match name {
        "score" => Ok(SelectionAlgorithm::ScoreBased),
        "learned" => Ok(SelectionAlgorithm::MachineLearning),
        "hybrid" => Ok(SelectionAlgorithm::Hybrid),
        "frozen" => Ok(SelectionAlgorithm::Frozen),
        _ => Err(PyValueError::new_err(format!(
            "policy is {name:?}; use 'hybrid', 'learned', 'score' or 'frozen'"
        ))),
    }
}

fn placement(device: &str) -> PyResult<Placement> {
    match device {
        "auto" => Ok(Placement::Auto),
        "cpu" => Ok(Placement::On(BackendKind::Cpu)),
        "webgpu" => Ok(Placement::On(BackendKind::WebGpu)),
        _ => Err(PyValueError::new_err(format!("device is {device:?}; use 'auto', 'cpu' or 'webgpu'"))),
    }
}

/// `"memory"`, a directory, or a file.
fn location(store: PathBuf) -> StoreLocation {
    if store.as_os_str() == "memory" {
        StoreLocation::Memory
    } else if store.is_dir() {
        StoreLocation::Directory(store)
    } else {
        StoreLocation::File(store)
    }
}
