//! An operation on shapes, as a user writes it on the command line.

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use shapewise::ops::Workload;
use shapewise::ops::attention::AttentionOptions;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::fft::FftOptions;
use shapewise::ops::norm::NormOptions;
use shapewise::ops::pad::Border;
use shapewise::ops::pool::PoolOptions;
use shapewise::ops::quantize::{IntegerOptions, QuantType, Quantization};
use shapewise::ops::reduce::Over;
use shapewise::ops::rnn::{Nonlinearity, RnnOptions, RnnWeights};
use shapewise::ops::sort::Order;
use shapewise::{DType, Runtime, Tensor};

/// Shown below the help of commands that take a question.
pub const EXAMPLES: &str = "Operations:
  matmul A B            the product of two (batches of) matrices
  conv2d X W            N×C×H×W with O×C/groups×kh×kw, padded by half the kernel
  add sub mul div minimum maximum pow A B
  neg abs exp log sqrt rsqrt sin cos tanh sigmoid relu gelu silu A
  sum mean prod max min argmax argmin A     over --axis, or everything
  softmax log_softmax layer_norm rms_norm A along the last axis
  copy transpose A      into memory of their own; the last two axes exchanged
  fft ifft rfft irfft A along the last axis; fft2 ifft2 rfft2 irfft2 A along the last two
  attention causal_attention Q K V          [batch x] heads x length x dim
  rnn gru lstm X W R    steps x batch x input, weights of input and state as in torch, with biases
  max_pool avg_pool A                       3x3 by 2 (padded by 1), 2x2 by 2
  cumsum cumprod cummax cummin A            along the last axis
  pad A                 one element of zero on each side of the last two axes
  sort argsort topk A   along the last axis; topk: the largest tenth
  quantize dequantize A to i8 and back, per tensor
  matmul_integer A B    u8 with i8; qmatmul A B requantised to u8
  matmul_int4 matmul_int8 X W                f32 with packed weights, outputs x inputs, in blocks of 32
  embedding T I         rows of a table, one for each of as many indices as I has elements
  spmv A, spmm A X      a sparse matrix with --nonzeros in each row times a vector, a matrix

Examples:
  shapewise bench matmul 512x512 512x512
  shapewise explain matmul 1x4096 4096x4096 --transpose-b
  shapewise bench conv2d 8x64x56x56 64x64x3x3
  shapewise bench sum 4096x4096 --axis 0
  shapewise bench add 1000000 1000000 --dtype f64
  shapewise bench spmv 100000x100000 --nonzeros 20";

/// Which operation, on what.
#[derive(Args)]
pub struct Question {
    /// matmul, add, relu … (listed below)
    operation: String,
    /// Shape of each input, such as 64x64; `scalar` for no axes
    #[arg(required = true, value_name = "SHAPE")]
    shapes: Vec<String>,
    /// Element type
    #[arg(long, default_value = "f32")]
    dtype: DType,
    /// matmul: the second operand's memory is transposed
    #[arg(long)]
    transpose_b: bool,
    /// Reductions: the axis, negative from the last [default: all]
    #[arg(long, allow_negative_numbers = true)]
    axis: Option<isize>,
    /// spmv, spmm: entries in each row
    #[arg(long, default_value_t = 10)]
    nonzeros: usize,
}

type Ask = fn(&Runtime, &[Tensor], Over) -> shapewise::Result<Tensor>;

/// Operations by name, with their number of inputs.
const OPERATIONS: &[(&str, usize, Ask)] = &[
    ("matmul", 2, |rt, x, _| rt.matmul(&x[0], &x[1])),
    ("conv2d", 2, |rt, x, _| rt.conv2d(&x[0], &x[1], &halfway(&x[0], &x[1]))),
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
    ("sum", 1, |rt, x, over| rt.sum(&x[0], over)),
    ("mean", 1, |rt, x, over| rt.mean(&x[0], over)),
    ("prod", 1, |rt, x, over| rt.prod(&x[0], over)),
    ("max", 1, |rt, x, over| rt.max(&x[0], over)),
    ("min", 1, |rt, x, over| rt.min(&x[0], over)),
    ("argmax", 1, |rt, x, over| rt.argmax(&x[0], over)),
    ("argmin", 1, |rt, x, over| rt.argmin(&x[0], over)),
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
    ("dequantize", 1, |rt, x, _| {
        rt.dequantize(&Tensor::zeros(x[0].shape(), DType::I8)?, &per_tensor(QuantType::I8)?)
    }),
    ("matmul_integer", 2, |rt, x, _| {
        let (a, b) = (Tensor::zeros(x[0].shape(), DType::U8)?, Tensor::zeros(x[1].shape(), DType::I8)?);
        rt.matmul_integer(&a, &b, &IntegerOptions::new())
    }),
    ("qmatmul", 2, |rt, x, _| {
        let (a, b) = (Tensor::zeros(x[0].shape(), DType::U8)?, Tensor::zeros(x[1].shape(), DType::I8)?);
        let (unsigned, signed) = (per_tensor(QuantType::U8)?, per_tensor(QuantType::I8)?);
        rt.qmatmul(&a, &unsigned, &b, &signed, &unsigned)
    }),
    ("matmul_int4", 2, |rt, x, _| quantised_weights(rt, x, QuantType::I4)),
    ("matmul_int8", 2, |rt, x, _| quantised_weights(rt, x, QuantType::I8)),
    ("embedding", 2, |rt, x, _| rt.embedding(&x[0], &Tensor::zeros(x[1].shape(), DType::I64)?)),
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
    ("max_pool", 1, |rt, x, _| {
        rt.max_pool(&x[0], &PoolOptions::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]))
    }),
    ("avg_pool", 1, |rt, x, _| rt.avg_pool(&x[0], &PoolOptions::new(&[2, 2]))),
    ("rms_norm", 1, |rt, x, _| rt.rms_norm(&x[0], 1, &NormOptions::new())),
];

/// Calls a layer with the last two tensors as weights, and biases for them.
fn recurrent(
    x: &[Tensor],
    call: impl FnOnce(RnnWeights<'_>) -> shapewise::Result<Tensor>,
) -> shapewise::Result<Tensor> {
    let bias = Tensor::zeros(&x[1].shape()[..x[1].rank().min(1)], x[1].dtype())?;
    call(RnnWeights::new(&x[1], &x[2]).bias(&bias, &bias))
}

fn per_tensor(kind: QuantType) -> shapewise::Result<Quantization> {
    Quantization::per_tensor(kind, 0.1, 3)
}

fn quantised_weights(rt: &Runtime, x: &[Tensor], kind: QuantType) -> shapewise::Result<Tensor> {
    let mut scales = x[1].shape().to_vec();
    scales.last_mut().into_iter().for_each(|n| *n = n.div_ceil(32));
    let how = Quantization::per_block(kind, 32, &Tensor::full(0.1f32, &scales)?, None)?;
    let mut bytes = x[1].shape().to_vec();
    bytes.last_mut().into_iter().for_each(|n| *n = *n * kind.bits() / 8);
    let weights = rt.pack_quantized(&Tensor::zeros(&bytes, kind.dtype())?, &how)?;
    rt.matmul_quantized(&x[0], &weights)
}

/// Padding by half the kernel; groups as the channels of input and weights say.
fn halfway(x: &Tensor, weights: &Tensor) -> ConvOptions<'static> {
    let size = |t: &Tensor, axis: usize| t.shape().get(axis).copied().unwrap_or(1);
    let groups = size(x, 1) / size(weights, 1).max(1);
    let pad = |axis: usize| (size(weights, axis) / 2, size(weights, axis) / 2);
    ConvOptions::new().groups(groups).paddings(&[pad(2), pad(3)])
}

impl Question {
    /// The workload that the operation asks for; nothing is computed.
    pub fn workload(&self, runtime: &Runtime) -> Result<Workload> {
        let shapes = self.shapes.iter().map(|text| shape(text)).collect::<Result<Vec<_>>>()?;
        if let Some(workload) =
            crate::sparse::workload(runtime, &self.operation, &shapes, self.dtype, self.nonzeros)?
        {
            return Ok(workload);
        }
        let Some((name, inputs, ask)) = OPERATIONS.iter().find(|o| o.0 == self.operation) else {
            let names: Vec<_> = OPERATIONS.iter().map(|o| o.0).chain(["spmv", "spmm"]).collect();
            bail!("`{}` is not an operation; use one of {}", self.operation, names.join(", "));
        };
        let given = self.shapes.len();
        ensure!(given == *inputs, "{name} takes {inputs} shapes, {given} were given");
        let mut tensors = Vec::new();
        for shape in &shapes {
            tensors.push(Tensor::zeros(shape, self.dtype)?);
        }
        if self.transpose_b {
            ensure!(*name == "matmul", "--transpose-b belongs to matmul");
            tensors[1] = transposed_memory(&tensors[1])?;
        }
        let over = self.axis.map_or(Over::from(..), Over::from);
        let workloads = runtime.workloads(|rt| ask(rt, &tensors, over))?;
        // Casts and copies that prepare the operands come before the operation.
        workloads.into_iter().next_back().with_context(|| format!("{name} on these shapes computes nothing"))
    }
}

/// A tensor of the same shape whose memory runs along the other axis.
fn transposed_memory(tensor: &Tensor) -> Result<Tensor> {
    let mut turned = tensor.shape().to_vec();
    let rank = turned.len();
    ensure!(rank >= 2, "--transpose-b needs a second operand of two or more axes");
    turned.swap(rank - 2, rank - 1);
    Ok(Tensor::zeros(&turned, tensor.dtype())?.transpose())
}

/// `64x64` as sizes; `scalar` has none.
fn shape(text: &str) -> Result<Vec<usize>> {
    if text == "scalar" {
        return Ok(Vec::new());
    }
    text.split(['x', '×'])
        .map(|part| part.parse().with_context(|| format!("`{text}` is not a shape; write sizes like 64x64")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read() {
        assert_eq!(shape("2x3x4").unwrap(), [2, 3, 4]);
        assert_eq!(shape("7").unwrap(), [7]);
        assert!(shape("scalar").unwrap().is_empty());
        assert!(shape("2x").is_err() && shape("-1").is_err() && shape("").is_err());
    }
}
