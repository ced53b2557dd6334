//! What can be asked for by name, and how it is called.

use shapewise::ops::attention::AttentionOptions;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::fft::FftOptions;
use shapewise::ops::norm::NormOptions;
use shapewise::ops::pad::Border;
use shapewise::ops::pool::PoolOptions;
use shapewise::ops::quantize::{Calibration, Granularity, IntegerOptions, QuantType, Quantization};
use shapewise::ops::reduce::Over;
use shapewise::ops::rnn::{Nonlinearity, RnnOptions, RnnWeights};
use shapewise::ops::sort::Order;
use shapewise::{DType, Runtime, Tensor};

/// Attributes that a user may give beside the operands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Reductions: the axis; all without one.
    pub axis: Option<isize>,
    /// Convolutions and pooling: the step of the window.
    pub stride: Option<usize>,
    /// Convolutions and pooling: padding on each side.
    pub pad: Option<usize>,
    /// Pooling: the window.
    pub window: Option<Vec<usize>>,
}

impl Attributes {
    fn over(&self) -> Over {
        self.axis.map_or(Over::from(..), Over::from)
    }

    /// The window that is slid over images: as given, or of this size, step and padding.
    fn pool(&self, size: usize, stride: usize, pad: usize) -> PoolOptions {
        let window = self.window.clone().unwrap_or_else(|| vec![size; 2]);
        let axes = window.len();
        PoolOptions::new(&window).stride(&vec![self.stride.unwrap_or(stride); axes]).padding(&vec![
            self.pad
                .unwrap_or(
                    pad
                );
            axes
        ])
    }
}

/// How an operation is called.
pub type Ask = fn(&Runtime, &[Tensor], &Attributes) -> shapewise::Result<Tensor>;

/// Operations by name, with their number of inputs.
pub const OPERATIONS: &[(&str, usize, Ask)] = &[
    ("matmul", 2, |rt, x, _| rt.matmul(&x[0], &x[1])),
    ("conv2d", 2, |rt, x, with| rt.conv2d(&x[0], &x[1], &halfway(&x[0], &x[1], with))),
    ("add", 2, |rt, x, _| rt.add(&x[0], &x[1])),
    ("sub", 2, |rt, x, _| rt.sub(&x[0], &x[1])),
    ("mul", 2, |rt, x, _| rt.mul(&x[0], &x[1])),
    ("div", 2, |rt, x, _| rt.div(&x[0], &x[1])),
    ("minimum", 2, |rt, x, _| rt.minimum(&x[0], &x[1])),
    ("maximum", 2, |rt, x, _| rt.maximum(&x[0], &x[1])),
    ("pow", 2, |rt, x, _| rt.pow(&x[0], &x[1])),
    ("neg", 1, |rt, x, _| rt.neg(&x[0])),
    ("abs", 1, |rt, x, _| rt.abs(&x[0])),
    ("exp", 1, |rt, x, _| rt.exp(&x[0])),
    ("log", 1, |rt, x, _| rt.log(&x[0])),
    ("sqrt", 1, |rt, x, _| rt.sqrt(&x[0])),
    ("rsqrt", 1, |rt, x, _| rt.rsqrt(&x[0])),
    ("sin", 1, |rt, x, _| rt.sin(&x[0])),
    ("cos", 1, |rt, x, _| rt.cos(&x[0])),
    ("tanh", 1, |rt, x, _| rt.tanh(&x[0])),
    ("sigmoid", 1, |rt, x, _| rt.sigmoid(&x[0])),
    ("relu", 1, |rt, x, _| rt.relu(&x[0])),
    ("gelu", 1, |rt, x, _| rt.gelu(&x[0])),
    ("silu", 1, |rt, x, _| rt.silu(&x[0])),
    ("sum", 1, |rt, x, with| rt.sum(&x[0], with.over())),
    ("mean", 1, |rt, x, with| rt.mean(&x[0], with.over())),
    ("prod", 1, |rt, x, with| rt.prod(&x[0], with.over())),
    ("max", 1, |rt, x, with| rt.max(&x[0], with.over())),
    ("min", 1, |rt, x, with| rt.min(&x[0], with.over())),
    ("argmax", 1, |rt, x, with| rt.argmax(&x[0], with.over())),
    ("argmin", 1, |rt, x, with| rt.argmin(&x[0], with.over())),
    ("copy", 1, |rt, x, _| rt.copy(&x[0])),
    ("transpose", 1, |rt, x, _| rt.transpose(&x[0])),
    ("cumsum", 1, |rt, x, _| rt.cumsum(&x[0], -1)),
    ("cumprod", 1, |rt, x, _| rt.cumprod(&x[0], -1)),
    ("cummax", 1, |rt, x, _| rt.cummax(&x[0], -1)),
    ("cummin", 1, |rt, x, _| rt.cummin(&x[0], -1)),
    ("pad", 1, |rt, x, _| {
        let rank = x[0].rank();
        let widths: Vec<_> = (0..rank).map(|i| if i + 2 < rank { (0, 0) } else { (1, 1) }).collect();
        rt.pad(&x[0], &widths, Border::Constant(0.0))
    }),
    ("sort", 1, |rt, x, _| rt.sort(&x[0], -1, Order::Ascending)),
    ("argsort", 1, |rt, x, _| rt.argsort(&x[0], -1, Order::Ascending)),
    ("topk", 1, |rt, x, _| {
        let tenth = x[0].shape().last().map_or(0, |n| n.div_ceil(10));
        Ok(rt.topk(&x[0], tenth, -1, Order::Descending)?.0)
    }),
    ("quantize", 1, |rt, x, _| rt.quantize(&x[0], &per_tensor(QuantType::I8)?)),
    ("dequantize", 1, |rt, x, _| rt.dequantize(&x[0], &per_tensor(QuantType::I8)?)),
    ("matmul_integer", 2, |rt, x, _| rt.matmul_integer(&x[0], &x[1], &IntegerOptions::new())),
    ("qmatmul", 2, |rt, x, _| {
        let (unsigned, signed) = (per_tensor(QuantType::U8)?, per_tensor(QuantType::I8)?);
        rt.qmatmul(&x[0], &unsigned, &x[1], &signed, &unsigned)
    }),
    ("matmul_int4", 2, |rt, x, _| quantised_weights(rt, x, QuantType::I4)),
    ("matmul_int8", 2, |rt, x, _| quantised_weights(rt, x, QuantType::I8)),
    ("embedding", 2, |rt, x, _| rt.embedding(&x[0], &x[1])),
    ("softmax", 1, |rt, x, _| rt.softmax(&x[0], -1)),
    ("log_softmax", 1, |rt, x, _| rt.log_softmax(&x[0], -1)),
    ("fft", 1, |rt, x, _| rt.fft(&x[0], &FftOptions::new())),
    ("ifft", 1, |rt, x, _| rt.ifft(&x[0], &FftOptions::new())),
    ("rfft", 1, |rt, x, _| rt.rfft(&x[0], &FftOptions::new())),
    ("irfft", 1, |rt, x, _| rt.irfft(&x[0], &FftOptions::new())),
    ("fft2", 1, |rt, x, _| rt.fft2(&x[0], &FftOptions::new())),
    ("ifft2", 1, |rt, x, _| rt.ifft2(&x[0], &FftOptions::new())),
    ("rfft2", 1, |rt, x, _| rt.rfft2(&x[0], &FftOptions::new())),
    ("irfft2", 1, |rt, x, _| rt.irfft2(&x[0], &FftOptions::new())),
    ("layer_norm", 1, |rt, x, _| rt.layer_norm(&x[0], 1, &NormOptions::new())),
    ("attention", 3, |rt, x, _| rt.attention(&x[0], &x[1], &x[2], &AttentionOptions::new())),
    ("causal_attention", 3, |rt, x, _| {
        rt.attention(&x[0], &x[1], &x[2], &AttentionOptions::new().causal_from_end())
    }),
    ("rnn", 3, |rt, x, _| {
        recurrent(x, |w| Ok(rt.rnn(&x[0], &[w], Nonlinearity::Tanh, &RnnOptions::new())?.0))
    }),
    ("gru", 3, |rt, x, _| recurrent(x, |w| Ok(rt.gru(&x[0], &[w], &RnnOptions::new())?.0))),
    ("lstm", 3, |rt, x, _| recurrent(x, |w| Ok(rt.lstm(&x[0], &[w], &RnnOptions::new())?.0))),
    ("max_pool", 1, |rt, x, with| rt.max_pool(&x[0], &with.pool(3, 2, 1))),
    ("avg_pool", 1, |rt, x, with| rt.avg_pool(&x[0], &with.pool(2, 2, 0))),
    ("rms_norm", 1, |rt, x, _| rt.rms_norm(&x[0], 1, &NormOptions::new())),
];

/// The type that an operation's operand always has.
pub fn own_type(name: &str, operand: usize) -> Option<DType> {
    match (name, operand) {
        ("embedding", 1) => Some(DType::I64),
        ("matmul_integer" | "qmatmul", 0) => Some(DType::U8),
        ("matmul_integer" | "qmatmul", 1) | ("dequantize", 0) => Some(DType::I8),
        _ => None,
    }
}

/// A scale and a zero point as good as any: times do not depend on them.
fn per_tensor(kind: QuantType) -> shapewise::Result<Quantization> {
    Quantization::per_tensor(kind, 0.1, 3)
}

/// The product with the second tensor quantised in blocks of 32.
fn quantised_weights(rt: &Runtime, x: &[Tensor], kind: QuantType) -> shapewise::Result<Tensor> {
    let how = Quantization::calibrate(&x[1], kind, Granularity::Block(32), Calibration::MinMax, true)?;
    let weights = rt.pack_quantized(&rt.quantize(&x[1], &how)?, &how)?;
    rt.matmul_quantized(&x[0], &weights)
}

/// Calls a layer with the last two tensors as weights, and biases for them.
fn recurrent(
    x: &[Tensor],
    call: impl FnOnce(RnnWeights<'_>) -> shapewise::Result<Tensor>,
) -> shapewise::Result<Tensor> {
    let bias = Tensor::zeros(&x[1].shape()[..x[1].rank().min(1)], x[1].dtype())?;
    call(RnnWeights::new(&x[1], &x[2]).bias(&bias, &bias))
}

/// Stride and padding as given, or one and half the kernel; groups as the channels of input and weights say.
fn halfway(x: &Tensor, weights: &Tensor, with: &Attributes) -> ConvOptions<'static> {
    let size = |t: &Tensor, axis: usize| t.shape().get(axis).copied().unwrap_or(1);
    let groups = size(x, 1) / size(weights, 1).max(1);
    let pad = |axis: usize| {
        let pad = with.pad.unwrap_or(size(weights, axis) / 2);
        (pad, pad)
    };
    ConvOptions::new().groups(groups).stride(with.stride.unwrap_or(1)).paddings(&[pad(2), pad(3)])
}
