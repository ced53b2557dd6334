//! Shapewise: the plain call, the call prepared once, and, for kept weights, the packed one.
//!
//! The output is given, as in a loop that reuses it. Where peers share their memory, large operands are views of the same: a copy
//! would have left the caches by its turn, in which theirs still lie. Others are tensors of its own, as a user holds them.

use super::{Contestant, Entrants, OURS};
use crate::problem::{EPSILON, Problem, input};
use crate::workload::{Conv, Over, Pointwise, Task};
use anyhow::Result;
use shapewise::ops::attention::{AttentionOptions, Causality};
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::elementwise::Program;
use shapewise::ops::matmul::Fused;
use shapewise::ops::norm::NormOptions;
use shapewise::ops::sort::Order;
use shapewise::{DType, Runtime, Tensor, TensorView, TensorViewMut};

pub const PREPARED: &str = "shapewise(prepared)";
/// The call with weights that were packed before the clock started.
pub const PACKED: &str = "shapewise(packed)";

/// Sides up to which a product is so short that preparing it shows.
const SMALL: usize = 64;

/// A contestant with a tensor of its own for the answer.
struct Owned<F> {
    name: &'static str,
    out: Tensor,
    call: F,
}

impl<F: FnMut(&mut Tensor) -> shapewise::Result<()>> Contestant for Owned<F> {
    fn name(&self) -> &str {
        self.name
    }
    fn call(&mut self, _: &mut [f32]) {
        (self.call)(&mut self.out).expect("a call that was right when it was checked");
    }
    fn answer(&mut self, out: &mut [f32]) {
        // A refusal leaves the NaN that the check put there, and shows as wrong.
        match (self.call)(&mut self.out) {
            Ok(()) => out.copy_from_slice(self.out.as_slice().expect("a contiguous tensor of f32")),
            Err(error) => eprintln!("{}: {error}", self.name),
        }
    }
}

/// A contestant that writes into a tensor of its own.
pub fn owned<'a>(
    name: &'static str,
    out: Tensor,
    call: impl FnMut(&mut Tensor) -> shapewise::Result<()> + 'a,
) -> Box<dyn Contestant + 'a> {
    Box::new(Owned { name, out, call })
}

/// A contestant that writes into the memory that its peers share.
struct Lent<F> {
    name: &'static str,
    shape: Vec<usize>,
    call: F,
}

impl<F: FnMut(TensorViewMut<'_>) -> shapewise::Result<()>> Contestant for Lent<F> {
    fn name(&self) -> &str {
        self.name
    }
    fn call(&mut self, out: &mut [f32]) {
        let out = TensorViewMut::from_slice(out, &self.shape).expect("the output has this shape");
        (self.call)(out).expect("a call that was right when it was checked");
    }
}

fn lent<'a>(
    name: &'static str,
    shape: &[usize],
    call: impl FnMut(TensorViewMut<'_>) -> shapewise::Result<()> + 'a,
) -> Entrants<'a> {
    vec![Box::new(Lent { name, shape: shape.to_vec(), call })]
}

/// Elements of an operand from which on it is a view.
const LARGE: usize = 1 << 16;

fn view<'a>(problem: &'a Problem, place: usize, shape: &[usize]) -> Result<TensorView<'a>> {
    Ok(TensorView::from_slice(&problem.inputs[place][..], shape)?)
}

fn tensor(problem: &Problem, place: usize, shape: &[usize]) -> Result<Tensor> {
    Ok(Tensor::from_slice(&problem.inputs[place], shape)?)
}

/// All ways in which Shapewise does this problem.
pub fn enter<'a>(problem: &'a Problem, runtime: &'a Runtime) -> Result<Entrants<'a>> {
    match problem.task {
        Task::Conv(sizes) => conv(problem, runtime, &sizes),
        Task::Matmul { .. } => matmul(problem, runtime),
        Task::Elementwise { op, n } => elementwise(problem, runtime, op, n),
        Task::Sum { over, rows, cols } => sum(problem, runtime, over, rows, cols),
        Task::Fft { .. } => super::fft::ours(problem, runtime),
        Task::Sparse { .. } => super::sparse::ours(problem, runtime),
        Task::IntegerMatmul { .. }
        | Task::WeightMatmul { .. }
        | Task::Quantize { .. }
        | Task::Dequantize { .. } => super::quantised::ours(problem, runtime),
        Task::Softmax { rows, cols } => {
            let x = view(problem, input::X, &[rows, cols])?;
            Ok(lent(OURS, &[rows, cols], move |out| runtime.softmax_into(&x, 1, out)))
        }
        Task::LayerNorm { rows, cols } => {
            let x = view(problem, input::X, &[rows, cols])?;
            let weights = Weights::new(problem, cols)?;
            let call = move |out: TensorViewMut<'_>| runtime.layer_norm_into(&x, 1, &weights.options(), out);
            Ok(lent(OURS, &[rows, cols], call))
        }
        Task::BatchNorm { batch, channels, plane } => {
            let shape = [batch, channels, plane];
            let x = view(problem, input::X, &shape)?;
            let weights = Weights::new(problem, channels)?;
            let mean = tensor(problem, input::MEAN, &[channels])?;
            let variance = tensor(problem, input::VARIANCE, &[channels])?;
            let call = move |out: TensorViewMut<'_>| {
                runtime.batch_norm_into(&x, &mean, &variance, &weights.options(), out)
            };
            Ok(lent(OURS, &shape, call))
        }
        Task::Attention { heads, length, dim, causal } => {
            let shape = [1, heads, length, dim];
            let q = tensor(problem, input::X, &shape)?;
            let (k, v) = (tensor(problem, input::KEYS, &shape)?, tensor(problem, input::VALUES, &shape)?);
            let causality = if causal { Causality::FromStart } else { Causality::None };
            // Options hold views of the call's own time, so they are made in it.
            let call = move |out: &mut Tensor| {
                runtime.attention_into(&q, &k, &v, &AttentionOptions::new().causality(causality), out)
            };
            Ok(vec![owned(OURS, Tensor::zeros(&shape, DType::F32)?, call)])
        }
        Task::Rnn(sizes) => super::rnn::ours(problem, runtime, &sizes),
        Task::Transpose { n } => {
            let x = tensor(problem, input::X, &[n, n])?;
            let out = Tensor::zeros(&[n, n], DType::F32)?;
            Ok(vec![owned(OURS, out, move |out| runtime.transpose_into(&x, out))])
        }
        Task::Gather { rows, cols, picks } => {
            let x = tensor(problem, input::X, &[rows, cols])?;
            let index = Tensor::from_slice(&problem.picks(), &[picks])?;
            let out = Tensor::zeros(&[picks, cols], DType::F32)?;
            Ok(vec![owned(OURS, out, move |out| runtime.index_select_into(&x, 0, &index, out))])
        }
        Task::Sort { n } => {
            let x = tensor(problem, input::X, &[n])?;
            let out = Tensor::zeros(&[n], DType::F32)?;
            Ok(vec![owned(OURS, out, move |out| runtime.sort_into(&x, 0, Order::Ascending, out))])
        }
        Task::TopK { n, k } => {
            let x = tensor(problem, input::X, &[n])?;
            let (out, mut places) = (Tensor::zeros(&[k], DType::F32)?, Tensor::zeros(&[k], DType::I64)?);
            let call =
                move |out: &mut Tensor| runtime.topk_into(&x, k, 0, Order::Descending, out, &mut places);
            Ok(vec![owned(OURS, out, call)])
        }
    }
}

/// Scale and bias of a norm.
struct Weights {
    scale: Tensor,
    bias: Tensor,
}

impl Weights {
    fn new(problem: &Problem, len: usize) -> Result<Self> {
        let (scale, bias) = (tensor(problem, input::WEIGHT, &[len])?, tensor(problem, input::BIAS, &[len])?);
        Ok(Self { scale, bias })
    }

    fn options(&self) -> NormOptions<'_> {
        NormOptions::new().scale(&self.scale).bias(&self.bias).eps(f64::from(EPSILON))
    }
}

fn conv<'a>(problem: &Problem, runtime: &'a Runtime, sizes: &Conv) -> Result<Entrants<'a>> {
    let [x, weights, out] = sizes.shapes();
    let (x, weights) = (tensor(problem, input::X, &x)?, tensor(problem, input::WEIGHT, &weights)?);
    let options = ConvOptions::new().stride(sizes.stride).padding(sizes.padding).groups(sizes.groups);
    let packed = runtime.pack_conv(&weights, &x, &options)?;
    let (own, same) = (x.clone(), options.clone());
    let call = move |out: &mut Tensor| runtime.conv2d_into(&x, &weights, &options, out);
    let kept = move |out: &mut Tensor| runtime.conv_packed_into(&own, &packed, &same, out);
    let zeros = || Tensor::zeros(&out, DType::F32);
    Ok(vec![owned(OURS, zeros()?, call), owned(PACKED, zeros()?, kept)])
}

fn matmul<'a>(problem: &'a Problem, runtime: &'a Runtime) -> Result<Entrants<'a>> {
    let Task::Matmul { batch, m, k, n, transposed } = problem.task else { return Ok(vec![]) };
    let shape = |r, c| if batch == 1 { vec![r, c] } else { vec![batch, r, c] };
    let right = if transposed { shape(n, k) } else { shape(k, n) };
    if batch * k * m.max(n) >= LARGE {
        let (a, b) = (view(problem, input::X, &shape(m, k))?, view(problem, input::Y, &right)?);
        let b = if transposed { b.transpose() } else { b };
        let packed = if batch == 1 && m <= 8 { Some(runtime.pack_rhs(&b)?) } else { None };
        let mut entrants = lent(OURS, &shape(m, n), move |out| runtime.matmul_into(&a, &b, out));
        entrants.extend(packed.into_iter().flat_map(|packed| {
            let call =
                move |out: TensorViewMut<'_>| runtime.matmul_packed_into(&a, &packed, Fused::new(), out);
            lent(PACKED, &shape(m, n), call)
        }));
        return Ok(entrants);
    }
    let a = tensor(problem, input::X, &shape(m, k))?;
    let b = tensor(problem, input::Y, &right)?;
    let b = if transposed { b.transpose() } else { b };
    let zeros = || Tensor::zeros(&shape(m, n), DType::F32);
    let mut entrants = Vec::new();
    if batch == 1 && m.max(k).max(n) <= SMALL {
        let (a, b, mut out) = (a.clone(), b.clone(), zeros()?);
        let prepared = runtime.prepare_matmul(&a, &b, &Fused::new(), &mut out)?;
        entrants.push(owned(PREPARED, out, move |out| prepared.run(&[&a, &b], out)));
    }
    entrants.insert(0, owned(OURS, zeros()?, move |out| runtime.matmul_into(&a, &b, out)));
    Ok(entrants)
}

fn elementwise<'a>(
    problem: &'a Problem,
    runtime: &'a Runtime,
    op: Pointwise,
    n: usize,
) -> Result<Entrants<'a>> {
    let (a, b) = (tensor(problem, input::X, &[n])?, tensor(problem, input::Y, &[n])?);
    let zeros = || Tensor::zeros(&[n], DType::F32);
    let program = match op {
        Pointwise::Add => Program::build(2, |x| x[0] + x[1]),
        Pointwise::Mul => Program::build(2, |x| x[0] * x[1]),
        Pointwise::Relu => Program::build(1, |x| x[0].relu()),
        Pointwise::AddRelu => Program::build(2, |x| (x[0] + x[1]).relu()),
    }?;
    let prepared = match op {
        Pointwise::Relu => runtime.prepare_elementwise(&program, &[&a], &mut zeros()?),
        _ => runtime.prepare_elementwise(&program, &[&a, &b], &mut zeros()?),
    }?;
    let (a2, b2) = (a.clone(), b.clone());
    let again = move |out: &mut Tensor| match op {
        Pointwise::Relu => prepared.run(&[&a2], out),
        _ => prepared.run(&[&a2, &b2], out),
    };
    let again = owned(PREPARED, zeros()?, again);
    if n >= LARGE {
        let (a, b) = (view(problem, input::X, &[n])?, view(problem, input::Y, &[n])?);
        let plain = move |out: TensorViewMut<'_>| match op {
            Pointwise::Add => runtime.add_into(&a, &b, out),
            Pointwise::Mul => runtime.mul_into(&a, &b, out),
            Pointwise::Relu => runtime.relu_into(&a, out),
            Pointwise::AddRelu => runtime.elementwise_into(&program, &[a, b], out),
        };
        return Ok(lent(OURS, &[n], plain).into_iter().chain([again]).collect());
    }
    let plain = move |out: &mut Tensor| match op {
        Pointwise::Add => runtime.add_into(&a, &b, out),
        Pointwise::Mul => runtime.mul_into(&a, &b, out),
        Pointwise::Relu => runtime.relu_into(&a, out),
        Pointwise::AddRelu => runtime.elementwise_into(&program, &[a.view(), b.view()], out),
    };
    Ok(vec![owned(OURS, zeros()?, plain), again])
}

fn sum<'a>(
    problem: &'a Problem,
    runtime: &'a Runtime,
    over: Over,
    rows: usize,
    cols: usize,
) -> Result<Entrants<'a>> {
    let x = view(problem, input::X, &[rows, cols])?;
    let shape: &[usize] = match over {
        Over::All => &[],
        Over::Rows => &[rows],
        Over::Columns => &[cols],
    };
    let call = move |out: TensorViewMut<'_>| match over {
        Over::All => runtime.sum_into(&x, .., out),
        Over::Rows => runtime.sum_into(&x, 1, out),
        Over::Columns => runtime.sum_into(&x, 0, out),
    };
    Ok(lent(OURS, shape, call))
}
