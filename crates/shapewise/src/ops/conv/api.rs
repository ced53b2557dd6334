//! The calls: `rt.conv2d(&x, &w, &options)`, into a given output, along one or three axes, and transposed.

use super::options::{ConvLayout, ConvOptions, Resolved};
use super::{ConvAttributes, Kept, geometry};
use crate::error::{Error, Result};
use crate::ops::{Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Strides, Tensor, TensorView, TensorViewMut};

macro_rules! calls {
    ($($call:ident $into:ident $axes:literal $transposed:literal $what:literal;)*) => {
        impl Runtime {$(
            #[doc = $what]
            pub fn $call<'a>(
                &self,
                x: impl Into<TensorView<'a>>,
                weights: impl Into<TensorView<'a>>,
                options: &ConvOptions<'a>,
            ) -> Result<Tensor> {
                let which = Which { name: stringify!($call), axes: $axes, transposed: $transposed };
                let (x, weights) = (x.into(), weights.into());
                let plan = Plan::new(which, &x, &weights, options)?;
                let mut out = self.allocate(&plan.shape, x.dtype())?;
                self.convolve(&plan, &x, &weights, options, None, out.view_mut()?)?;
                Ok(out)
            }

            /// The same into a given output, which may have any strides.
            pub fn $into<'a>(
                &self,
                x: impl Into<TensorView<'a>>,
                weights: impl Into<TensorView<'a>>,
                options: &ConvOptions<'a>,
                out: impl Output<'a>,
            ) -> Result<()> {
                let which = Which { name: stringify!($call), axes: $axes, transposed: $transposed };
                let (x, weights) = (x.into(), weights.into());
                let plan = Plan::new(which, &x, &weights, options)?;
                self.convolve(&plan, &x, &weights, options, None, out.into_view_mut()?)
            }
        )*}
    };
}

calls! {
    conv1d conv1d_into 1 false "The convolution of N×C×W with O×C/groups×k.";
    conv2d conv2d_into 2 false "The convolution of N×C×H×W with O×C/groups×kh×kw; see [`ConvOptions`].";
    conv3d conv3d_into 3 false "The convolution of N×C×D×H×W with O×C/groups×kd×kh×kw.";
    conv_transpose1d conv_transpose1d_into 1 true "The transposed convolution of N×C×W with C×O/groups×k.";
    conv_transpose2d conv_transpose2d_into 2 true
        "The transposed convolution of N×C×H×W with C×O/groups×kh×kw: the gradient of [`conv2d`](Runtime::conv2d).";
    conv_transpose3d conv_transpose3d_into 3 true
        "The transposed convolution of N×C×D×H×W with C×O/groups×kd×kh×kw.";
}

impl Runtime {
    pub(super) fn convolve<'a>(
        &self,
        plan: &Plan,
        x: &TensorView<'a>,
        weights: &TensorView<'a>,
        options: &ConvOptions<'a>,
        kept: Option<&'a (Kept, Tensor)>,
        out: TensorViewMut<'a>,
    ) -> Result<()> {
        let name = plan.which.name;
        if out.dtype() != x.dtype() {
            return Err(Error::DTypeMismatch { operation: name, left: x.dtype(), right: out.dtype() });
        }
        if out.layout().shape != plan.shape {
            let reason = format!("the result is {}, the output {}", plan.shape, out.layout().shape);
            return Err(Error::ShapeMismatch { operation: name, reason });
        }
        let input = plan.which.image(x.layout(), options.layout)?;
        let output = plan.which.image(out.layout(), options.layout)?;
        let kernel = plan.which.weights(weights.layout(), plan.groups)?;
        let attributes = ConvAttributes { kept: kept.map(|kept| kept.0), ..plan.attributes };
        self.ask(Operation::Conv(attributes), |request: &mut Request<'a>| {
            request.input(&x.with_layout(input)?);
            request.input(&weights.with_layout(kernel)?);
            if let Some(bias) = &options.bias {
                request.input(bias);
            }
            if let Some((_, tensor)) = kept {
                request.input(&tensor.view());
            }
            request.output(out.with_layout(output)?);
            Ok(())
        })
    }
}

/// Which of the calls it is.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Which {
    pub name: &'static str,
    pub axes: usize,
    pub transposed: bool,
}

impl Which {
    fn mismatch(self, reason: String) -> Error {
        Error::ShapeMismatch { operation: self.name, reason }
    }

    /// Input or output as N×C×D×H×W.
    fn image(self, layout: &Layout, order: ConvLayout) -> Result<Layout> {
        let last = self.axes + 1;
        let channels = if order == ConvLayout::ChannelsLast { last } else { 1 };
        let spatial = (1..=last).filter(|&axis| axis != channels);
        let front = [Some(0), Some(channels)].into_iter();
        let missing = std::iter::repeat_n(None, 3 - self.axes);
        arranged(layout, front.chain(missing).chain(spatial.map(Some)))
    }

    /// Weights as G×O/G×C/G×kd×kh×kw.
    fn weights(self, layout: &Layout, groups: usize) -> Result<Layout> {
        // Plain weights are O×C/G×…, those of a transposed convolution C×O/G×….
        let (o, c) = if self.transposed { (1, 0) } else { (0, 1) };
        let missing = std::iter::repeat_n(None, 3 - self.axes);
        let front = [None, Some(o), Some(c)].into_iter();
        let mut out = arranged(layout, front.chain(missing).chain((2..self.axes + 2).map(Some)))?;
        let split = if self.transposed { 2 } else { 1 };
        out.shape[0] = groups;
        out.shape[split] /= groups;
        out.strides[0] = out.strides[split].saturating_mul(out.shape[split] as isize);
        Ok(out)
    }
}

/// These axes of a layout in this order, new ones of size one where there is none.
fn arranged(layout: &Layout, axes: impl Iterator<Item = Option<usize>>) -> Result<Layout> {
    let (mut shape, mut strides) = (Shape::new(&[])?, Strides::new(&[])?);
    for axis in axes {
        shape.append(axis.map_or(1, |a| layout.shape[a]));
        strides.append(axis.map_or(0, |a| layout.strides[a]));
    }
    Ok(Layout { shape, strides, offset: layout.offset })
}

/// A convolution that was checked.
pub(in crate::ops) struct Plan {
    which: Which,
    pub attributes: ConvAttributes,
    pub groups: usize,
    /// Of the result as the user sees it.
    pub shape: Shape,
}

impl Plan {
    /// Weights as G×O/G×C/G×kd×kh×kw.
    pub fn weights<'a>(&self, weights: &TensorView<'a>) -> Result<TensorView<'a>> {
        weights.with_layout(self.which.weights(weights.layout(), self.groups)?)
    }

    pub fn new(
        which: Which,
        x: &TensorView<'_>,
        weights: &TensorView<'_>,
        options: &ConvOptions<'_>,
    ) -> Result<Self> {
        check_types(which.name, x, weights, options)?;
        Self::of_any_type(which, x, weights, options)
    }

    /// Shapes and options alone.
    pub fn of_any_type(
        which: Which,
        x: &TensorView<'_>,
        weights: &TensorView<'_>,
        options: &ConvOptions<'_>,
    ) -> Result<Self> {
        for (what, view) in [("input", x), ("weights", weights)] {
            if view.rank() != which.axes + 2 {
                let (rank, found) = (which.axes + 2, view.layout().shape);
                return Err(which.mismatch(format!("the {what} must have {rank} axes, not {found}")));
            }
        }
        let resolved = options.resolve(which.name, which.axes)?;
        let image = which.image(x.layout(), options.layout)?;
        let (first, second) = (weights.shape()[0], weights.shape()[1]);
        let outputs = channels(which, image.shape[1], first, second, resolved.groups)?;
        check_bias(which, outputs, options)?;
        let mut kernel = [1; 3];
        kernel[3 - which.axes..].copy_from_slice(&weights.shape()[2..]);
        let input = [image.shape[2], image.shape[3], image.shape[4]];
        let (attributes, sizes) = attributes(which, input, kernel, &resolved, options)?;
        let mut shape = Shape::new(&[image.shape[0]])?;
        let spatial = &sizes[3 - which.axes..];
        let first = options.layout == ConvLayout::ChannelsFirst;
        first.then(|| shape.append(outputs));
        for &size in spatial {
            shape.append(size);
        }
        (!first).then(|| shape.append(outputs));
        shape.elements()?;
        Ok(Self { which, attributes, groups: resolved.groups, shape })
    }
}

fn check_types(
    operation: &'static str,
    x: &TensorView<'_>,
    weights: &TensorView<'_>,
    options: &ConvOptions<'_>,
) -> Result<()> {
    let dtype = x.dtype();
    if !DType::FLOATS.contains(&dtype) {
        let hint = "cast to f32, f64, f16 or bf16".into();
        return Err(Error::UnsupportedDType { operation, dtype, hint });
    }
    for other in [Some(weights), options.bias.as_ref()].into_iter().flatten() {
        if other.dtype() != dtype {
            return Err(Error::DTypeMismatch { operation, left: dtype, right: other.dtype() });
        }
    }
    Ok(())
}

/// The number of output channels, if input and weights fit the groups.
fn channels(which: Which, inputs: usize, first: usize, second: usize, groups: usize) -> Result<usize> {
    if which.transposed {
        if first != inputs || !inputs.is_multiple_of(groups) {
            return Err(which.mismatch(format!(
                "{inputs} input channels, weights for {first}, {groups} groups: both must be the same multiple of the groups"
            )));
        }
        let outputs = second.checked_mul(groups);
        return outputs
            .ok_or_else(|| which.mismatch(format!("{second} × {groups} output channels overflow")));
    }
    if second.checked_mul(groups) != Some(inputs) {
        return Err(which.mismatch(format!(
            "{inputs} input channels in {groups} groups, but the weights take {second} in each"
        )));
    }
    if !first.is_multiple_of(groups) {
        return Err(which.mismatch(format!("{first} output channels do not fall into {groups} groups")));
    }
    Ok(first)
}

fn check_bias(which: Which, outputs: usize, options: &ConvOptions<'_>) -> Result<()> {
    match &options.bias {
        Some(bias) if bias.shape() != [outputs] => Err(which.mismatch(format!(
            "the bias is {}, a vector of {outputs} output channels is needed",
            bias.layout().shape
        ))),
        _ => Ok(()),
    }
}

/// Attributes and spatial sizes of the output.
fn attributes(
    which: Which,
    input: [usize; 3],
    kernel: [usize; 3],
    resolved: &Resolved,
    options: &ConvOptions<'_>,
) -> Result<(ConvAttributes, [usize; 3])> {
    let mut attributes = ConvAttributes {
        stride: [1; 3],
        dilation: [1; 3],
        before: [0; 3],
        transposed: which.transposed,
        bias: options.bias.is_some(),
        activation: options.activation,
        kept: None,
    };
    let mut sizes = [1; 3];
    for axis in 3 - which.axes..3 {
        let (stride, dilation) = (resolved.stride[axis], resolved.dilation[axis]);
        let line = geometry::Line {
            input: input[axis],
            kernel: kernel[axis],
            stride,
            dilation,
            padding: resolved.padding.map(|p| p[axis]),
            output_padding: resolved.output_padding[axis],
            transposed: which.transposed,
        };
        let (before, output) =
            line.resolve().map_err(|reason| Error::InvalidArgument { operation: which.name, reason })?;
        let too_large =
            || Error::InvalidArgument { operation: which.name, reason: "an attribute exceeds 2³¹".into() };
        // What makes no difference is always written the same way: equal work has an equal key.
        let still = if which.transposed { input[axis] <= 1 && output == 1 } else { output == 1 };
        attributes.stride[axis] = if still { 1 } else { u32::try_from(stride).map_err(|_| too_large())? };
        attributes.dilation[axis] =
            if kernel[axis] == 1 { 1 } else { u32::try_from(dilation).map_err(|_| too_large())? };
        attributes.before[axis] = i32::try_from(before).map_err(|_| too_large())?;
        sizes[axis] = output;
    }
    Ok((attributes, sizes))
}
