//! The calls: `rt.layer_norm(&x, 1, &options)`, `rt.batch_norm(&x, &mean, &variance, &options)` …

use super::{NormAttributes, NormKind};
use crate::error::{Error, Result};
use crate::ops::reduce::{expect, resolve};
use crate::ops::walk::{Axis, AxisList, layout, tidy};
use crate::ops::{Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Tensor, TensorView, TensorViewMut};

/// Scale, bias and the small number of a normalisation.
///
/// ```
/// use shapewise::ops::norm::NormOptions;
/// use shapewise::{Runtime, Tensor};
/// let rt = Runtime::builder().without_calibration().build()?;
/// let x = Tensor::from_vec(vec![1.0f32, 3.0, 2.0, 2.0], &[2, 2])?;
/// let scale = Tensor::full(2.0f32, &[2])?;
/// let y = rt.layer_norm(&x, 1, &NormOptions::new().scale(&scale).eps(0.0001))?;
/// assert!((y.to_vec::<f32>()?[1] - 2.0).abs() < 1e-3);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NormOptions<'a> {
    scale: Option<TensorView<'a>>,
    bias: Option<TensorView<'a>>,
    eps: f64,
    channel_axis: isize,
}

impl Default for NormOptions<'_> {
    fn default() -> Self {
        Self { scale: None, bias: None, eps: 1e-5, channel_axis: 1 }
    }
}

impl<'a> NormOptions<'a> {
    /// No scale, no bias, 10⁻⁵ added to the variance, channels on axis 1.
    pub fn new() -> Self {
        Self::default()
    }

    /// Multiplies the result: one number per channel, or one per normalised element.
    #[must_use]
    pub fn scale(mut self, scale: impl Into<TensorView<'a>>) -> Self {
        self.scale = Some(scale.into());
        self
    }

    /// Added to the result: one number per channel, or one per normalised element.
    #[must_use]
    pub fn bias(mut self, bias: impl Into<TensorView<'a>>) -> Self {
        self.bias = Some(bias.into());
        self
    }

    /// Added to the variance; not negative.
    #[must_use]
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    /// The axis of the channels in batch and group norm; −1 where they come last.
    #[must_use]
    pub fn channel_axis(mut self, axis: isize) -> Self {
        self.channel_axis = axis;
        self
    }

    fn attributes(&self, kind: NormKind, axis: usize) -> Result<NormAttributes> {
        if !self.eps.is_finite() || self.eps < 0.0 {
            return Err(Error::InvalidArgument {
                operation: kind.name(),
                reason: format!("eps is {}; give a finite number that is not negative", self.eps),
            });
        }
        Ok(NormAttributes::new(kind, axis as u8, self.scale.is_some(), self.bias.is_some(), self.eps))
    }
}

/// What batch norm in training gives.
#[derive(Debug)]
pub struct BatchStatistics {
    /// The normalised input.
    pub output: Tensor,
    /// The mean of each channel: f64 for f64 inputs, otherwise f32.
    pub mean: Tensor,
    /// The variance of each channel, divided by the number of elements; type as the mean.
    pub variance: Tensor,
    /// Elements in each channel.
    pub count: usize,
}

impl BatchStatistics {
    /// Moves running statistics towards these: `(1 − momentum) · running + momentum · batch`, the variance as the
    /// unbiased estimate (divided by `count − 1`).
    pub fn update_running(&self, mean: &mut Tensor, variance: &mut Tensor, momentum: f64) -> Result<()> {
        let operation = "batch_norm_training";
        if !(0.0..=1.0).contains(&momentum) {
            let reason = format!("the momentum is {momentum}; give a number from 0 to 1");
            return Err(Error::InvalidArgument { operation, reason });
        }
        for running in [&*mean, &*variance] {
            if running.shape() != self.mean.shape() {
                let reason =
                    format!("running statistics {:?} for {:?} channels", running.shape(), self.mean.shape());
                return Err(Error::ShapeMismatch { operation, reason });
            }
            if running.dtype() != self.mean.dtype() {
                return Err(Error::DTypeMismatch {
                    operation,
                    left: running.dtype(),
                    right: self.mean.dtype(),
                });
            }
        }
        let unbiased = self.count as f64 / self.count.saturating_sub(1).max(1) as f64;
        blend(mean, &self.mean, momentum, 1.0)?;
        blend(variance, &self.variance, momentum, unbiased)
    }
}

fn blend(running: &mut Tensor, batch: &Tensor, momentum: f64, factor: f64) -> Result<()> {
    if batch.dtype() == DType::F64 {
        let batch = batch.as_slice::<f64>()?;
        for (r, &b) in running.as_mut_slice::<f64>()?.iter_mut().zip(batch) {
            *r = (1.0 - momentum) * *r + momentum * factor * b;
        }
    } else {
        let batch = batch.as_slice::<f32>()?;
        for (r, &b) in running.as_mut_slice::<f32>()?.iter_mut().zip(batch) {
            *r = ((1.0 - momentum) * f64::from(*r) + momentum * factor * f64::from(b)) as f32;
        }
    }
    Ok(())
}

impl Runtime {
    /// Batch norm with given mean and variance per channel (inference).
    pub fn batch_norm<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        mean: impl Into<TensorView<'a>>,
        variance: impl Into<TensorView<'a>>,
        options: &NormOptions<'a>,
    ) -> Result<Tensor> {
        let (x, kind) = (x.into(), NormKind::BatchInference);
        let mut out = self.output_like(kind, &x)?;
        self.channel_norm(kind, &x, options, &[mean.into(), variance.into()], out.view_mut()?, [])?;
        Ok(out)
    }

    /// As [`batch_norm`](Runtime::batch_norm), written into `out`.
    pub fn batch_norm_into<'b>(
        &self,
        x: impl Into<TensorView<'b>>,
        mean: impl Into<TensorView<'b>>,
        variance: impl Into<TensorView<'b>>,
        options: &NormOptions<'b>,
        out: impl Output<'b>,
    ) -> Result<()> {
        let kind = NormKind::BatchInference;
        let statistics = [mean.into(), variance.into()];
        self.channel_norm(kind, &x.into(), options, &statistics, out.into_view_mut()?, [])
    }

    /// Batch norm with the mean and variance of this batch, which come with the result (training).
    pub fn batch_norm_training<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        options: &NormOptions<'a>,
    ) -> Result<BatchStatistics> {
        let (x, kind) = (x.into(), NormKind::BatchTraining);
        let channels = x.shape()[resolve(options.channel_axis, x.rank())?];
        let mut output = self.output_like(kind, &x)?;
        let count = x.len().checked_div(channels).unwrap_or(0);
        if count == 0 && channels > 0 {
            let reason =
                format!("no elements in each of the {channels} channels, so there are no statistics");
            return Err(Error::InvalidArgument { operation: kind.name(), reason });
        }
        let of = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let shape = Shape::filled(channels, 1);
        let (mut mean, mut variance) = (self.allocate(&shape, of)?, self.allocate(&shape, of)?);
        let statistics = [mean.view_mut()?, variance.view_mut()?];
        self.channel_norm(kind, &x, options, &[], output.view_mut()?, statistics)?;
        Ok(BatchStatistics { output, mean, variance, count })
    }

    /// Normalises each sample over groups of neighbouring channels.
    pub fn group_norm<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        groups: usize,
        options: &NormOptions<'a>,
    ) -> Result<Tensor> {
        let x = x.into();
        let mut out = self.output_like(NormKind::Group { groups: 1 }, &x)?;
        self.group_norm_into(x, groups, options, &mut out)?;
        Ok(out)
    }

    /// As [`group_norm`](Runtime::group_norm), written into `out`.
    pub fn group_norm_into<'b>(
        &self,
        x: impl Into<TensorView<'b>>,
        groups: usize,
        options: &NormOptions<'b>,
        out: impl Output<'b>,
    ) -> Result<()> {
        let x = x.into();
        let kind = NormKind::Group { groups: groups as u32 };
        let channels = x.shape()[resolve(options.channel_axis, x.rank())?];
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(Error::InvalidArgument {
                operation: kind.name(),
                reason: format!("{channels} channels do not fall into {groups} equal groups"),
            });
        }
        self.channel_norm(kind, &x, options, &[], out.into_view_mut()?, [])
    }

    /// Normalises over the last `axes` axes.
    pub fn layer_norm<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axes: usize,
        options: &NormOptions<'a>,
    ) -> Result<Tensor> {
        let x = x.into();
        let mut out = self.output_like(NormKind::Layer, &x)?;
        self.last_axes_norm(NormKind::Layer, &x, axes, options, out.view_mut()?)?;
        Ok(out)
    }

    /// As [`layer_norm`](Runtime::layer_norm), written into `out`.
    pub fn layer_norm_into<'b>(
        &self,
        x: impl Into<TensorView<'b>>,
        axes: usize,
        options: &NormOptions<'b>,
        out: impl Output<'b>,
    ) -> Result<()> {
        self.last_axes_norm(NormKind::Layer, &x.into(), axes, options, out.into_view_mut()?)
    }

    /// Divides by the root of the mean square over the last `axes` axes.
    pub fn rms_norm<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axes: usize,
        options: &NormOptions<'a>,
    ) -> Result<Tensor> {
        let x = x.into();
        let mut out = self.output_like(NormKind::Rms, &x)?;
        self.last_axes_norm(NormKind::Rms, &x, axes, options, out.view_mut()?)?;
        Ok(out)
    }

    /// As [`rms_norm`](Runtime::rms_norm), written into `out`.
    pub fn rms_norm_into<'b>(
        &self,
        x: impl Into<TensorView<'b>>,
        axes: usize,
        options: &NormOptions<'b>,
        out: impl Output<'b>,
    ) -> Result<()> {
        self.last_axes_norm(NormKind::Rms, &x.into(), axes, options, out.into_view_mut()?)
    }

    fn output_like(&self, kind: NormKind, x: &TensorView<'_>) -> Result<Tensor> {
        check_type(kind, x.dtype())?;
        self.allocate(&x.layout().shape, x.dtype())
    }

    fn last_axes_norm<'b>(
        &self,
        kind: NormKind,
        x: &TensorView<'b>,
        axes: usize,
        options: &NormOptions<'b>,
        out: TensorViewMut<'b>,
    ) -> Result<()> {
        check_type(kind, x.dtype())?;
        expect(kind.name(), &out, &x.layout().shape, x.dtype())?;
        if axes == 0 || axes > x.rank() {
            let reason = format!("cannot normalise over the last {axes} of {} axes", x.rank());
            return Err(Error::InvalidArgument { operation: kind.name(), reason });
        }
        let first = x.rank() - axes;
        let normalised = Shape::new(&x.shape()[first..])?;
        let all = axes_of(x, &out);
        let mut plan = tidy(&all[..first], false);
        let kept = plan.len();
        plan.extend(tidy(&all[first..], true));
        if plan.len() == kept {
            plan.push(Axis { size: 1, input: 1, output: 1 });
        }
        let mut request = Request::new(Operation::Norm(options.attributes(kind, kept)?));
        request.input(&x.with_layout(input_layout(&plan, x))?);
        for weight in [options.scale, options.bias].into_iter().flatten() {
            request.input(&flat(kind, &weight, &normalised)?);
        }
        let to = output_layout(&plan, &out);
        request.output(out.with_layout(to)?);
        self.execute(&request)
    }

    fn channel_norm<'b, const N: usize>(
        &self,
        kind: NormKind,
        x: &TensorView<'b>,
        options: &NormOptions<'b>,
        statistics: &[TensorView<'b>],
        out: TensorViewMut<'b>,
        batch: [TensorViewMut<'b>; N],
    ) -> Result<()> {
        check_type(kind, x.dtype())?;
        expect(kind.name(), &out, &x.layout().shape, x.dtype())?;
        let axis = resolve(options.channel_axis, x.rank())?;
        let channels = Shape::filled(x.shape()[axis], 1);
        let plan = channel_plan(kind, &axes_of(x, &out), axis);
        let mut request = Request::new(Operation::Norm(options.attributes(kind, plan.1)?));
        request.input(&x.with_layout(input_layout(&plan.0, x))?);
        for weight in [options.scale, options.bias].into_iter().flatten() {
            request.input(&flat(kind, &weight, &channels)?);
        }
        for view in statistics {
            request.input(&flat(kind, view, &channels)?);
        }
        let to = output_layout(&plan.0, &out);
        request.output(out.with_layout(to)?);
        for view in batch {
            request.output(view);
        }
        self.execute(&request)
    }
}

/// The axes in canonical order, and where the channels are: samples before, the rest after.
fn channel_plan(kind: NormKind, all: &[Axis], axis: usize) -> (AxisList, usize) {
    let channel = all[axis];
    let others = || all.iter().enumerate().filter(|&(i, _)| i != axis);
    let (before, after): (AxisList, AxisList) = if matches!(kind, NormKind::Group { .. }) {
        // The first other axis counts the samples.
        (others().take(1).map(|(_, a)| *a).collect(), others().skip(1).map(|(_, a)| *a).collect())
    } else {
        let far = |a: &Axis| a.input.unsigned_abs() > channel.input.unsigned_abs();
        (
            others().filter(|(_, a)| far(a)).map(|(_, a)| *a).collect(),
            others().filter(|(_, a)| !far(a)).map(|(_, a)| *a).collect(),
        )
    };
    let mut plan = tidy(&before, false);
    let at = plan.len();
    plan.push(channel);
    plan.extend(tidy(&after, false));
    (plan, at)
}

fn axes_of(x: &TensorView<'_>, out: &TensorViewMut<'_>) -> AxisList {
    (0..x.rank())
        .map(|i| Axis { size: x.shape()[i], input: x.strides()[i], output: out.strides()[i] })
        .collect()
}

fn input_layout(plan: &AxisList, x: &TensorView<'_>) -> Layout {
    layout(plan.iter().map(|a| (a.size, a.input)), x.layout().offset)
}

fn output_layout(plan: &AxisList, out: &TensorViewMut<'_>) -> Layout {
    layout(plan.iter().map(|a| (a.size, a.output)), out.layout().offset)
}

/// A weight as one contiguous axis.
fn flat<'a>(kind: NormKind, weight: &TensorView<'a>, shape: &Shape) -> Result<TensorView<'a>> {
    let operation = kind.name();
    check_type(kind, weight.dtype())?;
    if *weight.shape() != **shape {
        let reason =
            format!("scale, bias, mean and variance have shape {shape} here, not {:?}", weight.shape());
        return Err(Error::ShapeMismatch { operation, reason });
    }
    if !weight.layout().is_contiguous() {
        return Err(Error::NotContiguous);
    }
    let flat =
        Layout { offset: weight.layout().offset, ..Layout::contiguous(Shape::filled(weight.len(), 1)) };
    weight.with_layout(flat)
}

fn check_type(kind: NormKind, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    let hint = "cast to a float type first".into();
    Err(Error::UnsupportedDType { operation: kind.name(), dtype, hint })
}
