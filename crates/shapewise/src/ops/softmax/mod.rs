//! Softmax and log-softmax along any axis of f32, f64, f16 and bf16.
//!
//! The largest element is subtracted first, so nothing overflows. As in `scipy` and torch, a slice that holds NaN or +∞,
//! or nothing but −∞, becomes NaN; −∞ beside finite numbers gets the weight 0 (−∞ for the logarithm). Weights below the
//! smallest normal number are 0.

mod cpu_columns;
mod cpu_kernels;
mod cpu_reference;
mod cpu_rows;
#[cfg(test)]
mod tests;
#[cfg(feature = "webgpu")]
pub mod webgpu;

use std::fmt;

use super::walk::{Axis, AxisList, layout, tidy};
use super::{Kernel, Operation, Request};
use crate::error::{Error, Result};
use crate::ops::reduce::{expect, resolve};
use crate::runtime::Runtime;
use crate::tensor::{Output, Tensor, TensorView};

/// Softmax along the last axis of its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SoftmaxAttributes {
    /// The logarithm of the weights instead of the weights.
    pub log: bool,
}

impl SoftmaxAttributes {
    fn name(self) -> &'static str {
        if self.log { "log_softmax" } else { "softmax" }
    }
}

impl fmt::Display for SoftmaxAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_kernels::AVX512_ROWS,
    &cpu_kernels::AVX512_COLUMNS,
    &cpu_kernels::AVX2_ROWS,
    &cpu_kernels::AVX2_COLUMNS,
    &cpu_kernels::NEON_ROWS,
    &cpu_kernels::NEON_COLUMNS,
    &cpu_kernels::PORTABLE_ROWS,
    &cpu_kernels::PORTABLE_COLUMNS,
    &cpu_reference::REFERENCE,
];

impl Runtime {
    /// Weights that are proportional to eˣ and add up to one along the axis.
    ///
    /// ```
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let x = Tensor::from_vec(vec![0.0f32, 0.0, f32::NEG_INFINITY], &[3])?;
    /// assert_eq!(rt.softmax(&x, -1)?.to_vec::<f32>()?, [0.5, 0.5, 0.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn softmax<'a>(&self, x: impl Into<TensorView<'a>>, axis: isize) -> Result<Tensor> {
        self.any_softmax(&x.into(), axis, SoftmaxAttributes { log: false })
    }

    /// As [`softmax`](Runtime::softmax), written into `out`.
    pub fn softmax_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        out: impl Output<'a>,
    ) -> Result<()> {
        self.any_softmax_into(&x.into(), axis, out, SoftmaxAttributes { log: false })
    }

    /// The logarithms of the weights of [`softmax`](Runtime::softmax), without the rounding of going through them.
    pub fn log_softmax<'a>(&self, x: impl Into<TensorView<'a>>, axis: isize) -> Result<Tensor> {
        self.any_softmax(&x.into(), axis, SoftmaxAttributes { log: true })
    }

    /// As [`log_softmax`](Runtime::log_softmax), written into `out`.
    pub fn log_softmax_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        out: impl Output<'a>,
    ) -> Result<()> {
        self.any_softmax_into(&x.into(), axis, out, SoftmaxAttributes { log: true })
    }

    fn any_softmax(&self, x: &TensorView<'_>, axis: isize, attributes: SoftmaxAttributes) -> Result<Tensor> {
        resolve(axis, x.rank())?;
        check_type(x, attributes)?;
        let mut out = self.allocate(&x.layout().shape, x.dtype())?;
        self.any_softmax_into(x, axis, &mut out, attributes)?;
        Ok(out)
    }

    fn any_softmax_into<'a>(
        &self,
        x: &TensorView<'a>,
        axis: isize,
        out: impl Output<'a>,
        attributes: SoftmaxAttributes,
    ) -> Result<()> {
        let out = out.into_view_mut()?;
        let axis = resolve(axis, x.rank())?;
        check_type(x, attributes)?;
        expect(attributes.name(), &out, &x.layout().shape, x.dtype())?;
        // Kept axes sorted and merged, the normalised one last: equal work has an equal key.
        let of = |i: usize| Axis { size: x.shape()[i], input: x.strides()[i], output: out.strides()[i] };
        let kept: AxisList = (0..x.rank()).filter(|&i| i != axis).map(of).collect();
        let mut axes = tidy(&kept, false);
        axes.push(of(axis));
        let from = layout(axes.iter().map(|a| (a.size, a.input)), x.layout().offset);
        let to = layout(axes.iter().map(|a| (a.size, a.output)), out.layout().offset);
        let mut request = Request::new(Operation::Softmax(attributes));
        request.input(&x.with_layout(from)?);
        request.output(out.with_layout(to)?);
        self.execute(&request)
    }
}

fn check_type(x: &TensorView<'_>, attributes: SoftmaxAttributes) -> Result<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    let hint = "cast to a float type first".into();
    Err(Error::UnsupportedDType { operation: attributes.name(), dtype: x.dtype(), hint })
}
