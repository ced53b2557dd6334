//! Products of matrices, and attention.

use pyo3::prelude::*;
use shapewise::ops::attention::AttentionOptions;
use shapewise::ops::matmul::Fused;

use crate::arguments::activation;
use crate::array::Input;
use crate::runtime::PyRuntime;

#[pymethods]
impl PyRuntime {
    /// The matrix product by numpy's rules, with an optional bias and activation in the same pass.
    ///
    /// >>> a = np.arange(4, dtype="float32").reshape(2, 2)
    /// >>> sw.matmul(a, a.T).tolist()
    /// [[1.0, 3.0], [3.0, 13.0]]
    #[pyo3(signature = (a, b, *, bias = None, activation = None))]
    fn matmul<'py>(
        &self,
        py: Python<'py>,
        a: Input<'py>,
        b: Input<'py>,
        bias: Option<Input<'py>>,
        activation: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (a, b) = (a.view()?, b.view()?);
        if bias.is_none() && activation.is_none() {
            // Moving arguments was a sixth of what a call on small arrays costs: these are not made for nothing.
            return self.run(py, |rt| rt.matmul(a, b));
        }
        let mut fused = Fused::new().activation(self::activation(activation)?);
        if let Some(bias) = &bias {
            fused = fused.bias(bias.view()?);
        }
        self.run(py, |rt| rt.matmul_fused(a, b, fused))
    }

    /// Scaled dot-product attention of `[batch, heads, positions, dim]`; key and value heads may be fewer.
    ///
    /// `mask`: truth values (true: look), or floats that are added to the scores.
    #[pyo3(signature = (q, k, v, mask = None, causal = false, scale = None))]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn attention<'py>(
        &self,
        py: Python<'py>,
        q: Input<'py>,
        k: Input<'py>,
        v: Input<'py>,
        mask: Option<Input<'py>>,
        causal: bool,
        scale: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut options = AttentionOptions::new();
        if let Some(mask) = &mask {
            options = options.mask(mask.view()?);
        }
        if causal {
            options = options.causal();
        }
        if let Some(scale) = scale {
            options = options.scale(scale);
        }
        let (q, k, v) = (q.view()?, k.view()?, v.view()?);
        self.run(py, |rt| rt.attention(q, k, v, &options))
    }
}
