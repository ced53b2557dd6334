//! Convolutions of integers, as products of weights and columns of pixels.

use super::attributes::Along;
use super::cpu_conv_columns::{Columns, fill};
use super::integer::{IntegerOptions, Product};
use super::{Granularity, Quantization};
use crate::error::{Error, Result};
use crate::ops::Activation;
use crate::ops::conv::{ConvLayout, ConvOptions, Plan, Which};
use crate::ops::reduce::expect;
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Tensor, TensorView, TensorViewMut};

impl Runtime {
    /// The convolution of 8-bit integers less their zero points, in i32, as ONNX's `ConvInteger`. Padding counts as the
    /// input's zero point. A bias is i32.
    ///
    /// The zero point of `x` (`a` in the options) is one, that of the weights (`b`) one or one for every output channel.
    pub fn conv_integer2d<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        weights: impl Into<TensorView<'a>>,
        zero_points: &IntegerOptions<'a>,
        options: &ConvOptions<'a>,
    ) -> Result<Tensor> {
        let conv = Conv::new("conv_integer2d", x.into(), weights.into(), options)?;
        let mut out = self.allocate(&conv.plan.shape, DType::I32)?;
        self.convolve_integers(&conv, &Numbers::Plain(zero_points), out.view_mut()?)?;
        Ok(out)
    }

    /// The convolution of quantised images and weights, quantised as `y` says, as ONNX's `QLinearConv`. A bias is i32 with
    /// the scale of `x` times that of the weights.
    ///
    /// Images are quantised per tensor, weights per tensor or output channel (axis 0), the result is i8 or u8 per tensor.
    pub fn qconv2d<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        x_how: &'a Quantization,
        weights: impl Into<TensorView<'a>>,
        w_how: &'a Quantization,
        y_how: &'a Quantization,
        options: &ConvOptions<'a>,
    ) -> Result<Tensor> {
        let conv = Conv::new("qconv2d", x.into(), weights.into(), options)?;
        let mut out = self.allocate(&conv.plan.shape, y_how.kind().dtype())?;
        self.convolve_integers(&conv, &Numbers::Quantised([x_how, w_how, y_how]), out.view_mut()?)?;
        Ok(out)
    }

    /// The same into a given output, which may have any strides.
    #[allow(clippy::too_many_arguments)] // the operands of ONNX's operation
    pub fn qconv2d_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        x_how: &'a Quantization,
        weights: impl Into<TensorView<'a>>,
        w_how: &'a Quantization,
        y_how: &'a Quantization,
        options: &ConvOptions<'a>,
        out: impl Output<'a>,
    ) -> Result<()> {
        let conv = Conv::new("qconv2d", x.into(), weights.into(), options)?;
        self.convolve_integers(&conv, &Numbers::Quantised([x_how, w_how, y_how]), out.into_view_mut()?)
    }

    /// Image by image and group by group; the results of a channel lie in a row.
    fn convolve_integers(
        &self,
        conv: &Conv<'_>,
        numbers: &Numbers<'_>,
        mut out: TensorViewMut<'_>,
    ) -> Result<()> {
        let dtype = numbers.result();
        expect(conv.name, &out, &conv.plan.shape, dtype)?;
        let numbers = numbers.prepare(conv)?;
        if out.is_empty() {
            return Ok(());
        }
        if conv.layout == ConvLayout::ChannelsFirst && out.layout().is_contiguous() {
            return self.convolve_planes(conv, &numbers, out);
        }
        let shape = conv.planes()?;
        let mut planes = self.allocate(&shape, dtype)?;
        self.convolve_planes(conv, &numbers, planes.view_mut()?)?;
        let order: &[usize] =
            if conv.layout == ConvLayout::ChannelsFirst { &[0, 1, 2, 3] } else { &[0, 2, 3, 1] };
        self.copy_into(&planes.permute(order)?, out.reborrow())
    }

    fn convolve_planes(&self, conv: &Conv<'_>, numbers: &Prepared, mut out: TensorViewMut<'_>) -> Result<()> {
        let images = match conv.layout {
            ConvLayout::ChannelsFirst => conv.x,
            ConvLayout::ChannelsLast => conv.x.permute(&[0, 3, 1, 2])?,
        };
        let (mut image_copy, mut weight_copy) = (None, None);
        let images = self.in_order(images, &mut image_copy)?;
        let weights = self.in_order(conv.weights, &mut weight_copy)?;
        let shape = conv.planes()?;
        let (o, pixels) = (shape[1] / conv.plan.groups, shape[2] * shape[3]);
        let &[n, c, height, width] = images.shape() else { return Ok(()) };
        let &[_, per_group, kh, kw] = weights.shape() else { return Ok(()) };
        let k = per_group * kh * kw;
        let mut columns = self.allocate(&Shape::new(&[k, pixels])?, images.dtype())?;
        for (image, group) in (0..n).flat_map(|i| (0..conv.plan.groups).map(move |g| (i, g))) {
            let geometry = Columns {
                first: (image * c + group * per_group) * height * width,
                channels: per_group,
                input: [height, width],
                kernel: [kh, kw],
                output: [shape[2], shape[3]],
                attributes: conv.plan.attributes,
                padding: numbers.padding,
            };
            fill(bytes(&images)?, columns.bytes_mut()?, &geometry, self.device().threads());
            let at = |offset: usize, rows: usize, columns: usize| -> Result<Layout> {
                Ok(Layout { offset, ..Layout::contiguous(Shape::new(&[rows, columns])?) })
            };
            let left = weights.with_layout(at(weights.layout().offset + group * o * k, o, k)?)?;
            let offset = out.layout().offset + (image * shape[1] + group * o) * pixels;
            let target = out.reborrow().with_layout(at(offset, o, pixels)?)?;
            let part = numbers.group(group, o, conv.plan.groups)?;
            let mut product = part.product(conv.name, left, columns.view())?;
            product.bias = conv
                .bias
                .map(|bias| bias.slice(0, group * o, (group + 1) * o, 1))
                .transpose()?
                .map(|bias| (bias, Along::Rows));
            self.integer_product(&product, target)?;
        }
        Ok(())
    }
}

/// The bytes of 8-bit integers without gaps.
fn bytes<'a>(view: &TensorView<'a>) -> Result<&'a [u8]> {
    match view.dtype() {
        DType::I8 => Ok(bytemuck::cast_slice(view.as_slice::<i8>()?)),
        _ => view.as_slice::<u8>(),
    }
}

/// A convolution that was checked.
struct Conv<'a> {
    name: &'static str,
    x: TensorView<'a>,
    weights: TensorView<'a>,
    bias: Option<TensorView<'a>>,
    layout: ConvLayout,
    plan: Plan,
}

impl<'a> Conv<'a> {
    fn new(
        name: &'static str,
        x: TensorView<'a>,
        weights: TensorView<'a>,
        options: &ConvOptions<'a>,
    ) -> Result<Self> {
        for dtype in [x.dtype(), weights.dtype()] {
            if !matches!(dtype, DType::I8 | DType::U8) {
                let hint = "images and weights are i8 or u8".into();
                return Err(Error::UnsupportedDType { operation: name, dtype, hint });
            }
        }
        if let Some(bias) = options.bias.filter(|bias| bias.dtype() != DType::I32) {
            let hint = "the bias is i32".into();
            return Err(Error::UnsupportedDType { operation: name, dtype: bias.dtype(), hint });
        }
        if options.activation != Activation::None {
            let reason = "integers take no activation; clamp by the range of the result's type".into();
            return Err(Error::InvalidArgument { operation: name, reason });
        }
        let which = Which { name, axes: 2, transposed: false };
        let plan = Plan::of_any_type(which, &x, &weights, options)?;
        Ok(Self { name, x, weights, bias: options.bias, layout: options.layout, plan })
    }

    /// The shape of the result with channels first.
    fn planes(&self) -> Result<Shape> {
        let shape = &self.plan.shape;
        match self.layout {
            ConvLayout::ChannelsFirst => Ok(*shape),
            ConvLayout::ChannelsLast => Shape::new(&[shape[0], shape[3], shape[1], shape[2]]),
        }
    }
}

/// What the integers stand for.
enum Numbers<'a> {
    Plain(&'a IntegerOptions<'a>),
    Quantised([&'a Quantization; 3]),
}

impl Numbers<'_> {
    fn result(&self) -> DType {
        match self {
            Self::Plain(_) => DType::I32,
            Self::Quantised([_, _, y]) => y.kind().dtype(),
        }
    }

    /// Checked, and taken over as the quantisations of a product whose left operand is the weights.
    fn prepare(&self, conv: &Conv<'_>) -> Result<Prepared> {
        let invalid = |reason: &str| Error::InvalidArgument { operation: conv.name, reason: reason.into() };
        let outputs = conv.weights.shape()[0];
        match self {
            Self::Quantised([x, w, y]) => {
                let along = match w.granularity() {
                    Granularity::Tensor => true,
                    Granularity::Channel(axis) => axis == 0 || axis == -4,
                    Granularity::Block(_) => false,
                };
                if x.granularity() != Granularity::Tensor || !along {
                    return Err(invalid(
                        "images are quantised per tensor, weights per tensor or along axis 0",
                    ));
                }
                for (view, how) in [(&conv.x, x), (&conv.weights, w)] {
                    if how.kind().is_packed() || how.kind().dtype() != view.dtype() {
                        let hint = format!("the quantisation says {}", how.kind());
                        return Err(Error::UnsupportedDType {
                            operation: conv.name,
                            dtype: view.dtype(),
                            hint,
                        });
                    }
                }
                w.walk(conv.name, conv.weights.shape())?;
                let zero = x.zero_point().map_or(Ok(0), Tensor::item::<i32>)?;
                let quantised = Some([(*x).clone(), (*w).clone(), (*y).clone()]);
                Ok(Prepared { padding: zero as u8, quantised, x_zero: None, w_zero: None })
            }
            Self::Plain(options) => {
                let (x_zero, w_zero) = options.zero_points()?;
                if x_zero.as_ref().is_some_and(|zero| zero.len() != 1) {
                    return Err(invalid("images have one zero point"));
                }
                if w_zero.as_ref().is_some_and(|zero| zero.len() != 1 && zero.shape() != [outputs]) {
                    return Err(invalid("weights have one zero point, or one for every output channel"));
                }
                let padding = match &x_zero {
                    None => 0,
                    Some(zero) => bytes(&zero.view())?.first().copied().unwrap_or_default(),
                };
                Ok(Prepared { padding, quantised: None, x_zero, w_zero })
            }
        }
    }
}

/// The quantisations, and the byte that stands for zero in the images.
struct Prepared {
    padding: u8,
    quantised: Option<[Quantization; 3]>,
    x_zero: Option<Tensor>,
    w_zero: Option<Tensor>,
}

impl Prepared {
    /// The part for the output channels of a group.
    fn group(&self, group: usize, o: usize, groups: usize) -> Result<Self> {
        let part = |zero: &Tensor| {
            let one = zero.len() == 1 || groups == 1;
            if one { Ok(zero.clone()) } else { zero.slice(0, group * o, (group + 1) * o, 1) }
        };
        let quantised = match &self.quantised {
            None => None,
            Some([x, w, y]) => Some([x.clone(), w.of_channels(group * o, o)?, y.clone()]),
        };
        let w_zero = self.w_zero.as_ref().map(part).transpose()?;
        Ok(Self { padding: self.padding, quantised, x_zero: self.x_zero.clone(), w_zero })
    }

    fn product<'a>(
        &'a self,
        name: &'static str,
        weights: TensorView<'a>,
        columns: TensorView<'a>,
    ) -> Result<Product<'a>> {
        if let Some([x, w, y]) = &self.quantised {
            return Product::quantised(name, (weights, w), (columns, x), y);
        }
        let mut options = IntegerOptions::new();
        if let Some(zero) = &self.w_zero {
            options = options.a_zero_point(zero);
        }
        if let Some(zero) = &self.x_zero {
            options = options.b_zero_point(zero);
        }
        Product::integer(name, weights, columns, &options)
    }
}
