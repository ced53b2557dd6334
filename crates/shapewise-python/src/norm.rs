//! Normalisations.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shapewise::ops::norm::NormOptions;

use crate::array::Input;
use crate::runtime::PyRuntime;

/// Weight, bias and eps together.
fn options<'a>(
    weight: Option<&'a Input<'_>>,
    bias: Option<&'a Input<'_>>,
    eps: f64,
) -> PyResult<NormOptions<'a>> {
    let mut options = NormOptions::new().eps(eps);
    if let Some(weight) = weight {
        options = options.scale(weight.view()?);
    }
    if let Some(bias) = bias {
        options = options.bias(bias.view()?);
    }
    Ok(options)
}

/// How many axes there are from `axis` to the last.
fn last_axes(x: &Input<'_>, axis: isize) -> PyResult<usize> {
    let rank = x.shape().len() as isize;
    let first = if axis < 0 { axis + rank } else { axis };
    if (0..rank).contains(&first) {
        return Ok((rank - first) as usize);
    }
    Err(PyValueError::new_err(format!("axis {axis} does not exist in an array of {rank} axes")))
}

#[pymethods]
impl PyRuntime {
    /// `(x - mean) / sqrt(var + eps) * weight + bias` with a mean and a variance for each channel (axis 1).
    #[pyo3(signature = (x, mean, var, weight = None, bias = None, eps = 1e-5))]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn batch_norm<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        mean: Input<'py>,
        var: Input<'py>,
        weight: Option<Input<'py>>,
        bias: Option<Input<'py>>,
        eps: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = options(weight.as_ref(), bias.as_ref(), eps)?;
        let (x, mean, var) = (x.view()?, mean.view()?, var.view()?);
        self.run(py, |rt| rt.batch_norm(x, mean, var, &options))
    }

    /// Normalises over the axes from `axis` to the last.
    #[pyo3(signature = (x, axis = -1, weight = None, bias = None, eps = 1e-5))]
    fn layer_norm<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        axis: isize,
        weight: Option<Input<'py>>,
        bias: Option<Input<'py>>,
        eps: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (axes, options) = (last_axes(&x, axis)?, options(weight.as_ref(), bias.as_ref(), eps)?);
        let x = x.view()?;
        self.run(py, |rt| rt.layer_norm(x, axes, &options))
    }

    /// Divides by the root of the mean square over the axes from `axis` to the last.
    #[pyo3(signature = (x, axis = -1, weight = None, bias = None, eps = 1e-5))]
    fn rms_norm<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        axis: isize,
        weight: Option<Input<'py>>,
        bias: Option<Input<'py>>,
        eps: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (axes, options) = (last_axes(&x, axis)?, options(weight.as_ref(), bias.as_ref(), eps)?);
        let x = x.view()?;
        self.run(py, |rt| rt.rms_norm(x, axes, &options))
    }

    /// Normalises each sample over groups of neighbouring channels (axis 1).
    #[pyo3(signature = (x, groups, weight = None, bias = None, eps = 1e-5))]
    fn group_norm<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        groups: usize,
        weight: Option<Input<'py>>,
        bias: Option<Input<'py>>,
        eps: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = options(weight.as_ref(), bias.as_ref(), eps)?;
        let x = x.view()?;
        self.run(py, |rt| rt.group_norm(x, groups, &options))
    }
}
