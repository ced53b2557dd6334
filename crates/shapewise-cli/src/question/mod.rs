//! An operation on shapes, as a user writes it on the command line.

mod operations;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use shapewise::ops::Workload;
use shapewise::{DType, Runtime, Tensor};

pub use operations::{Attributes, OPERATIONS};

/// Shown below the help of commands that take a question.
pub const EXAMPLES: &str = "Operations:
  matmul A B            the product of two (batches of) matrices; MxKxN for all three sizes at once
  conv2d X W            N×C×H×W with O×C/groups×kh×kw, or X --kernel OxHxW; padded by half the kernel
  add sub mul div minimum maximum pow A B
  neg abs exp log sqrt rsqrt sin cos tanh sigmoid relu gelu silu A
  sum mean prod max min argmax argmin A     over --axis, or everything
  softmax log_softmax layer_norm rms_norm A along the last axis
  copy transpose A      into memory of their own; the last two axes exchanged
  fft ifft rfft irfft A along the last axis; fft2 ifft2 rfft2 irfft2 A along the last two
  attention causal_attention Q K V          [batch x] heads x length x dim
  rnn gru lstm X W R    steps x batch x input, weights of input and state as in torch, with biases
  max_pool avg_pool A                       3x3 by 2 (padded by 1), 2x2 by 2, or --kernel --stride --pad
  cumsum cumprod cummax cummin A            along the last axis
  pad A                 one element of zero on each side of the last two axes
  sort argsort topk A   along the last axis; topk: the largest tenth
  quantize dequantize A to i8 and back, per tensor
  matmul_integer A B    u8 with i8; qmatmul A B requantised to u8
  matmul_int4 matmul_int8 X W                f32 with packed weights, outputs x inputs, in blocks of 32
  embedding T I         rows of a table, one for each of as many indices as I has elements
  spmv A, spmm A X      a sparse matrix with --nonzeros in each row times a vector, a matrix

Examples:
  shapewise bench matmul 1024x1024x1024
  shapewise explain matmul 1x4096 4096x4096 --transpose-b
  shapewise bench conv2d 8x64x56x56 --kernel 64x3x3 --stride 1 --pad 1
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
    /// conv2d: O×H×W of the weights; pooling: H×W of the window
    #[arg(long, value_name = "SIZES")]
    kernel: Option<String>,
    /// conv2d: groups of channels, with --kernel
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    groups: u32,
    #[command(flatten)]
    window: Window,
    /// spmv, spmm: entries in each row
    #[arg(long, default_value_t = 10)]
    nonzeros: usize,
}

/// Attributes that questions and runs share.
#[derive(Args)]
pub struct Window {
    /// Reductions: the axis, negative from the last [default: all]
    #[arg(long, allow_negative_numbers = true)]
    axis: Option<isize>,
    /// conv2d, pooling: the step of the window
    #[arg(long)]
    stride: Option<usize>,
    /// conv2d, pooling: padding on each side
    #[arg(long)]
    pad: Option<usize>,
}

impl Window {
    /// As attributes of an operation.
    pub fn attributes(&self) -> Attributes {
        Attributes { axis: self.axis, stride: self.stride, pad: self.pad, window: None }
    }
}

/// The operation of this name: how many inputs it takes, and how it is called.
pub fn operation(name: &str) -> Result<(usize, operations::Ask)> {
    let Some((_, inputs, ask)) = OPERATIONS.iter().find(|o| o.0 == name) else {
        let names: Vec<_> = OPERATIONS.iter().map(|o| o.0).chain(["spmv", "spmm"]).collect();
        let near = names.iter().rfind(|n| n.starts_with(name) || name.starts_with(**n));
        let hint = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
        bail!("`{name}` is not an operation{hint}; use one of {}", names.join(", "));
    };
    Ok((*inputs, *ask))
}

/// The last workload that a call asks for: casts and copies that prepare the operands come before it.
pub fn workload_of(runtime: &Runtime, name: &str, inputs: &[Tensor], with: &Attributes) -> Result<Workload> {
    let ask = operation(name)?.1;
    let workloads = runtime.workloads(|rt| ask(rt, inputs, with))?;
    workloads.into_iter().next_back().with_context(|| format!("{name} on these shapes computes nothing"))
}

impl Question {
    /// The workload that the operation asks for; nothing is computed.
    pub fn workload(&self, runtime: &Runtime) -> Result<Workload> {
        let mut shapes = self.shapes.iter().map(|text| shape(text)).collect::<Result<Vec<_>>>()?;
        if let Some(workload) =
            crate::sparse::workload(runtime, &self.operation, &shapes, self.dtype, self.nonzeros)?
        {
            return Ok(workload);
        }
        let name = &*self.operation;
        let inputs = operation(name)?.0;
        let mut with = self.window.attributes();
        self.complete(&mut shapes, &mut with)?;
        let given = shapes.len();
        ensure!(given == inputs, "{name} takes {inputs} shapes, {given} were given{}", form(name));
        let mut tensors = Vec::new();
        for (i, shape) in shapes.iter().enumerate() {
            tensors.push(Tensor::zeros(shape, operations::own_type(name, i).unwrap_or(self.dtype))?);
        }
        if self.transpose_b {
            ensure!(name == "matmul", "--transpose-b belongs to matmul");
            tensors[1] = transposed_memory(&tensors[1])?;
        }
        workload_of(runtime, name, &tensors, &with)
    }

    /// Short forms: `MxKxN` of a product, the window of a convolution or of pooling.
    fn complete(&self, shapes: &mut Vec<Vec<usize>>, with: &mut Attributes) -> Result<()> {
        let name = &*self.operation;
        if name == "matmul"
            && let [one] = &shapes[..]
            && let [m, k, n] = one[..]
        {
            *shapes = vec![vec![m, k], vec![k, n]];
        }
        let Some(text) = &self.kernel else { return Ok(()) };
        let window = shape(text)?;
        match (name, &window[..], &shapes[..]) {
            ("conv2d", &[o, h, w], [x]) => {
                let groups = self.groups as usize;
                let channels = x.get(1).copied().unwrap_or(0);
                ensure!(
                    channels.is_multiple_of(groups),
                    "{channels} channels do not divide into {groups} groups"
                );
                shapes.push(vec![o, channels / groups, h, w]);
            }
            ("conv2d", ..) => {
                bail!("--kernel of conv2d is OxHxW beside one shape, such as 8x64x56x56 --kernel 64x3x3")
            }
            ("max_pool" | "avg_pool", ..) => with.window = Some(window),
            _ => bail!("--kernel belongs to conv2d, max_pool and avg_pool; use --force to force a kernel"),
        }
        Ok(())
    }
}

/// What is to be written, where it is not clear by itself.
fn form(name: &str) -> &'static str {
    match name {
        "matmul" => "; write 64x32 32x16, or 64x32x16",
        "conv2d" => "; write 8x64x56x56 64x64x3x3, or 8x64x56x56 --kernel 64x3x3",
        _ => "",
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
pub fn shape(text: &str) -> Result<Vec<usize>> {
    if text == "scalar" {
        return Ok(Vec::new());
    }
    text.split(['x', 'X', '×', '*', ','])
        .map(|part| part.parse().with_context(|| format!("`{text}` is not a shape; write sizes like 64x64")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        question: Question,
    }

    fn ask(line: &str) -> Result<String> {
        let runtime = Runtime::builder().threads(1).without_calibration().build()?;
        let line = Line::try_parse_from(std::iter::once("ask").chain(line.split(' ')))?;
        Ok(line.question.workload(&runtime)?.to_string())
    }

    #[test]
    fn shapes_are_read() {
        assert_eq!(shape("2x3x4").unwrap(), [2, 3, 4]);
        assert_eq!(shape("2X3*4,5").unwrap(), [2, 3, 4, 5]);
        assert_eq!(shape("7").unwrap(), [7]);
        assert!(shape("scalar").unwrap().is_empty());
        assert!(shape("2x").is_err() && shape("-1").is_err() && shape("").is_err());
    }

    #[test]
    fn short_forms_mean_what_the_long_ones_mean() {
        for (short, long) in [
            ("matmul 4x5x6", "matmul 4x5 5x6"),
            ("conv2d 2x8x9x9 --kernel 16x3x3", "conv2d 2x8x9x9 16x8x3x3"),
            ("conv2d 2x8x9x9 --kernel 16x3x3 --groups 4", "conv2d 2x8x9x9 16x2x3x3"),
            ("conv2d 2x8x9x9 --kernel 16x3x3 --stride 1 --pad 1", "conv2d 2x8x9x9 16x8x3x3"),
            ("max_pool 1x2x9x9 --kernel 3x3", "max_pool 1x2x9x9"),
        ] {
            assert_eq!(ask(short).unwrap(), ask(long).unwrap(), "{short}");
        }
        assert_ne!(
            ask("conv2d 2x8x9x9 --kernel 16x3x3 --stride 2").unwrap(),
            ask("conv2d 2x8x9x9 16x8x3x3").unwrap()
        );
        assert_ne!(ask("avg_pool 1x2x9x9").unwrap(), ask("avg_pool 1x2x9x9 --kernel 3x3").unwrap());
    }

    #[test]
    fn every_operation_of_the_list_is_in_the_help() {
        for (name, ..) in OPERATIONS {
            assert!(EXAMPLES.split_whitespace().any(|word| word == *name), "{name}");
        }
    }

    #[test]
    fn mistakes_say_the_right_form() {
        for (line, message) in [
            ("matmul 4x5", "write 64x32 32x16, or 64x32x16"),
            ("conv2d 2x8x9x9 --kernel 3x3", "--kernel of conv2d is OxHxW"),
            ("conv2d 2x8x9x9 --kernel 16x3x3 --groups 3", "do not divide"),
            ("add 4 4 --kernel 3x3", "--force"),
            ("softmx 4", "is not an operation"),
            ("soft 4", "did you mean `softmax`"),
        ] {
            let error = format!("{:#}", ask(line).unwrap_err());
            assert!(error.contains(message), "{line}: {error}");
        }
    }
}
