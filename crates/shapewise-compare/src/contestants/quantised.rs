//! Products of bytes and conversions to bytes and back: Shapewise, rten's product, and plain loops.

use super::{Contestant, Entrants, OURS, owned, writes};
use crate::problem::{Problem, QUANT_SCALE, QUANT_ZERO, WEIGHT_SCALE, input};
use crate::workload::{Task, WEIGHT_BLOCK};
use anyhow::Result;
use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::NdTensorView;
use shapewise::ops::quantize::{IntegerOptions, QuantType, Quantization};
use shapewise::{DType, Runtime, Tensor};

/// A contestant that computes into something of its own, which is shown as floats only when asked for.
struct Held<S, F, R> {
    name: &'static str,
    state: S,
    call: F,
    read: R,
}

impl<S, F: FnMut(&mut S), R: Fn(&S) -> Vec<f32>> Contestant for Held<S, F, R> {
    fn name(&self) -> &str {
        self.name
    }
    fn call(&mut self, _: &mut [f32]) {
        (self.call)(&mut self.state);
    }
    fn answer(&mut self, out: &mut [f32]) {
        (self.call)(&mut self.state);
        out.copy_from_slice(&(self.read)(&self.state));
    }
}

/// One of Shapewise's entries; a refusal leaves zeros, and shows as wrong.
fn own<'a>(
    out: Tensor,
    mut call: impl FnMut(&mut Tensor) -> shapewise::Result<()> + 'a,
) -> Box<dyn Contestant + 'a> {
    let call = move |out: &mut Tensor| call(out).unwrap_or_else(|error| eprintln!("{OURS}: {error}"));
    let read = |out: &Tensor| match out.dtype() {
        DType::I32 => out.to_vec::<i32>().into_iter().flatten().map(|v| v as f32).collect(),
        DType::I8 => out.to_vec::<i8>().into_iter().flatten().map(f32::from).collect(),
        _ => out.to_vec::<f32>().unwrap_or_default(),
    };
    Box::new(Held { name: OURS, state: out, call, read })
}

/// Shapewise's entries.
pub fn ours<'a>(problem: &Problem, runtime: &'a Runtime) -> Result<Entrants<'a>> {
    let how = Quantization::per_tensor(QuantType::I8, QUANT_SCALE, QUANT_ZERO)?;
    Ok(match problem.task {
        Task::IntegerMatmul { m, k, n } => {
            let a = Tensor::from_slice(&problem.unsigned(input::X), &[m, k])?;
            let b = Tensor::from_slice(&problem.signed(input::Y), &[k, n])?;
            let call =
                move |out: &mut Tensor| runtime.matmul_integer_into(&a, &b, &IntegerOptions::new(), out);
            vec![own(Tensor::zeros(&[m, n], DType::I32)?, call)]
        }
        Task::WeightMatmul { m, k, n } => {
            let x = Tensor::from_slice(&problem.inputs[input::X], &[m, k])?;
            let scales = Tensor::full(WEIGHT_SCALE, &[n, k / WEIGHT_BLOCK])?;
            let how = Quantization::per_block(QuantType::I4, WEIGHT_BLOCK, &scales, None)?;
            let weights =
                runtime.pack_quantized(&Tensor::from_slice(&problem.nibbles(), &[n, k / 2])?, &how)?;
            let call = move |out: &mut Tensor| runtime.matmul_quantized_into(&x, &weights, out);
            vec![own(Tensor::zeros(&[m, n], DType::F32)?, call)]
        }
        Task::Quantize { n } => {
            let x = Tensor::from_slice(&problem.inputs[input::X], &[n])?;
            let call = move |out: &mut Tensor| runtime.quantize_into(&x, &how, out);
            vec![own(Tensor::zeros(&[n], DType::I8)?, call)]
        }
        Task::Dequantize { n } => {
            let q = Tensor::from_slice(&problem.signed(input::X), &[n])?;
            let call = move |out: &mut Tensor| runtime.dequantize_into(&q, &how, out);
            vec![own(Tensor::zeros(&[n], DType::F32)?, call)]
        }
        _ => vec![],
    })
}

/// Our own product of floats with the same weights, widened: eight times as much comes from memory.
pub fn wide<'a>(problem: &Problem, runtime: &'a Runtime) -> Result<Entrants<'a>> {
    let Task::WeightMatmul { m, k, n } = problem.task else { return Ok(vec![]) };
    let x = Tensor::from_slice(&problem.inputs[input::X], &[m, k])?;
    let weights = Tensor::from_slice(&problem.widened(), &[n, k])?.transpose();
    let call = move |out: &mut Tensor| runtime.matmul_into(&x, &weights, out);
    Ok(vec![owned("our-f32", Tensor::zeros(&[m, n], DType::F32)?, call)])
}

/// The peers.
pub fn enter(problem: &Problem) -> Entrants<'_> {
    match problem.task {
        Task::IntegerMatmul { m, k, n } => {
            let (a, b) = (problem.unsigned(input::X), problem.signed(input::Y));
            let executor = GemmExecutor::<u8, i8, i32>::new();
            let call = move |sums: &mut Vec<i32>| {
                let left = GemmInputA::Unpacked(NdTensorView::from_data([m, k], &a[..]));
                let right = GemmInputB::Unpacked(NdTensorView::from_data([k, n], &b[..]));
                let done = executor.gemm(sums, left, right, GemmOptions::default());
                done.expect("sizes that fit together");
            };
            let read = |sums: &Vec<i32>| sums.iter().map(|&v| v as f32).collect();
            vec![Box::new(Held { name: "rten-gemm", state: vec![0i32; m * n], call, read })]
        }
        Task::Quantize { n } => {
            let x = &problem.inputs[input::X];
            let call = move |bytes: &mut Vec<i8>| {
                for (byte, x) in bytes.iter_mut().zip(x.iter()) {
                    let rounded = (x / QUANT_SCALE).round_ties_even() + QUANT_ZERO as f32;
                    *byte = rounded.clamp(-128.0, 127.0) as i8;
                }
            };
            let read = |bytes: &Vec<i8>| bytes.iter().map(|&byte| byte.into()).collect();
            vec![Box::new(Held { name: "rust-loop", state: vec![0i8; n], call, read })]
        }
        Task::Dequantize { .. } => {
            let q = problem.signed(input::X);
            let call = move |out: &mut [f32]| {
                for (out, &q) in out.iter_mut().zip(&q) {
                    *out = (i32::from(q) - QUANT_ZERO) as f32 * QUANT_SCALE;
                }
            };
            vec![writes("rust-loop", call)]
        }
        _ => vec![],
    }
}
