//! Attention by candle: two products and a softmax, as its models write it.

use super::rust_pointwise::{candle_tensor, read_candle};
use super::{Entrants, returns};
use crate::problem::{Problem, input};
use crate::workload::Task;
use anyhow::Result;
use candle_core::{Device, Tensor};

/// Everyone who can do this attention.
pub fn enter(problem: &Problem) -> Result<Entrants<'_>> {
    let Task::Attention { heads, length, dim, causal } = problem.task else { return Ok(vec![]) };
    let [q, k, v] = [input::X, input::KEYS, input::VALUES].map(|i| &problem.inputs[i][..]);
    let shape = [1, heads, length, dim];
    let (q, k, v) = (candle_tensor(q, &shape)?, candle_tensor(k, &shape)?, candle_tensor(v, &shape)?);
    let mask = if causal { Some(below_diagonal(length)?) } else { None };
    let scale = 1.0 / (dim as f64).sqrt();
    let call = move || {
        let mut scores = (q.matmul(&k.t()?)? * scale)?;
        if let Some(mask) = &mask {
            scores = scores.broadcast_add(mask)?;
        }
        candle_nn::ops::softmax_last_dim(&scores)?.matmul(&v)
    };
    Ok(vec![returns("candle", call, read_candle)])
}

/// Zeros up to the diagonal, −∞ above it.
fn below_diagonal(length: usize) -> Result<Tensor> {
    let value = |i: usize| if i % length <= i / length { 0.0 } else { f32::NEG_INFINITY };
    let mask: Vec<f32> = (0..length * length).map(value).collect();
    Ok(Tensor::from_vec(mask, (length, length), &Device::Cpu)?)
}
