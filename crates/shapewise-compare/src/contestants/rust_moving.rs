//! Transpositions, look-ups and sorts by ndarray, candle and the standard library.

use super::rust_pointwise::{candle_tensor, read_candle};
use super::{Entrants, returns, writes};
use crate::problem::{Problem, input};
use crate::workload::Task;
use anyhow::Result;
use candle_core::{Device, Tensor};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis};

/// Everyone who can move this data.
pub fn enter(problem: &Problem) -> Result<Entrants<'_>> {
    match problem.task {
        Task::Transpose { n } => transpose(problem, n),
        Task::Gather { rows, cols, picks } => gather(problem, rows, cols, picks),
        Task::Sort { .. } => Ok(sort(problem)),
        Task::TopK { k, .. } => Ok(topk(problem, k)),
        _ => Ok(vec![]),
    }
}

fn transpose(problem: &Problem, n: usize) -> Result<Entrants<'_>> {
    let x = &problem.inputs[input::X];
    let view = ArrayView2::from_shape((n, n), &x[..])?;
    let tensor = candle_tensor(x, &[n, n])?;
    let assign = move |out: &mut [f32]| {
        let mut out = ArrayViewMut2::from_shape((n, n), out).expect("an answer of n × n");
        out.assign(&view.t());
    };
    Ok(vec![writes("ndarray", assign), returns("candle", move || tensor.t()?.contiguous(), read_candle)])
}

fn gather(problem: &Problem, rows: usize, cols: usize, picks: usize) -> Result<Entrants<'_>> {
    let x = &problem.inputs[input::X];
    let list = problem.picks();
    let places: Vec<usize> = list.iter().map(|&i| i as usize).collect();
    let view = ArrayView2::from_shape((rows, cols), &x[..])?;
    let tensor = candle_tensor(x, &[rows, cols])?;
    let index = Tensor::from_vec(list, picks, &Device::Cpu)?;
    Ok(vec![
        returns(
            "ndarray",
            move || view.select(Axis(0), &places),
            |a: Array2<f32>| a.into_raw_vec_and_offset().0,
        ),
        returns("candle", move || tensor.index_select(&index, 0), read_candle),
    ])
}

fn sort(problem: &Problem) -> Entrants<'_> {
    let x = &problem.inputs[input::X];
    let call = move |out: &mut [f32]| {
        out.copy_from_slice(x);
        out.sort_unstable_by(f32::total_cmp);
    };
    vec![writes("std", call)]
}

fn topk(problem: &Problem, k: usize) -> Entrants<'_> {
    let x = &problem.inputs[input::X];
    let call = move |out: &mut [f32]| {
        let falling = |a: &f32, b: &f32| b.total_cmp(a);
        let mut all = x.to_vec();
        all.select_nth_unstable_by(k - 1, falling);
        out.copy_from_slice(&all[..k]);
        out.sort_unstable_by(falling);
    };
    vec![writes("std", call)]
}
