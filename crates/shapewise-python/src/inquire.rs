//! Questions about choices and devices.

use pyo3::exceptions::{PyAttributeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use serde::Serialize;
use shapewise::Runtime;
use shapewise::measure::RaceOptions;
use shapewise::modelling::Anomaly;
use shapewise::ops::Workload;
use shapewise::tracking::{Accuracy, KernelStatistics, WorkloadStatistics};

use crate::error::raise;
use crate::runtime::PyRuntime;

/// The value as Python's dictionaries and lists, by way of JSON.
fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}

/// The first workload that a call of this name asks for.
fn workload(
    py: Python<'_>,
    runtime: &Runtime,
    op: &str,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<Workload> {
    let mut raised = None;
    let recorded = runtime.workloads(|recording| {
        let called = Bound::new(py, PyRuntime { inner: recording.clone() }).and_then(|target| {
            let mut function = target.into_any();
            for name in op.split('.') {
                function = function.getattr(name).map_err(|_| unknown(op))?;
            }
            function.call(args, kwargs)
        });
        raised = called.err();
        Ok(())
    });
    if let Some(error) = raised {
        return Err(error);
    }
    recorded.map_err(raise)?.into_iter().next().ok_or_else(|| unknown(op))
}

fn unknown(op: &str) -> PyErr {
    PyAttributeError::new_err(format!(
        "{op:?} is not an operation; give the name of a function such as 'matmul', 'conv2d' or 'fft.fft'"
    ))
}

/// What a runtime tells about its choices.
#[derive(Serialize)]
struct Happened {
    kernels: Vec<KernelStatistics>,
    workloads: Vec<WorkloadStatistics>,
    accuracy: Vec<Accuracy>,
    anomalies: Vec<Anomaly>,
}

#[pymethods]
impl PyRuntime {
    /// Why a call would run the kernel it runs: candidates, refusals and the decision. Nothing is computed.
    ///
    /// >>> why = sw.explain("matmul", np.ones((64, 64), "float32"), np.ones((64, 64), "float32"))
    /// >>> why.get("chosen").startswith("cpu::matmul::")
    /// True
    #[pyo3(signature = (op, *args, **kwargs))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        op: &str,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let workload = workload(py, &self.inner, op, args, kwargs)?;
        to_python(py, &self.inner.explain_workload(&workload).map_err(raise)?)
    }

    /// Times all candidates of a call side by side, on made-up data of the same shapes; the fastest first.
    ///
    /// Each entry has `kernel`, `parameters`, `median_seconds` (None if it was given up), `predicted_seconds`,
    /// `chosen` and `remark`.
    #[pyo3(signature = (op, *args, **kwargs))]
    fn bench<'py>(
        &self,
        py: Python<'py>,
        op: &str,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let workload = workload(py, &self.inner, op, args, kwargs)?;
        let options = RaceOptions::default();
        let race = self.compute(py, |rt| rt.benchmark_kernels(&workload, &options, &mut |_, _| {}))?;
        let seconds = |timing: &shapewise::measure::Timing| timing.measured_us.map(|m| m.median * 1e-6);
        let mut order: Vec<_> = race.timings.iter().enumerate().collect();
        let key = |timing| seconds(timing).unwrap_or(f64::INFINITY);
        order.sort_by(|a, b| key(a.1).total_cmp(&key(b.1)));
        let list = PyList::empty(py);
        for (i, timing) in order {
            let entry = PyDict::new(py);
            entry.set_item("kernel", &timing.kernel)?;
            entry.set_item("parameters", &timing.parameters)?;
            entry.set_item("median_seconds", seconds(timing))?;
            entry.set_item("predicted_seconds", timing.predicted_us.map(|us| us * 1e-6))?;
            entry.set_item("chosen", i == race.chosen)?;
            entry.set_item("remark", &timing.remark)?;
            list.append(entry)?;
        }
        Ok(list)
    }

    /// What happened so far: `kernels` (calls, failures, picks, times), `workloads` (what runs for each, how often that changed, what it
    /// loses against the best that was timed), `accuracy` (regret by operation and device) and `anomalies`.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let selector = self.inner.selector();
        to_python(
            py,
            &Happened {
                kernels: selector.statistics(),
                workloads: selector.workloads(),
                accuracy: selector.accuracy(),
                anomalies: selector.anomalies(),
            },
        )
    }

    /// What was found and measured on this machine.
    fn devices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &[self.inner.device_info()])
    }
}
