//! Softmax, layer norm and batch norm by candle and rten.

use super::rust_pointwise::{candle_tensor, read_candle};
use super::{Entrants, returns};
use crate::problem::{EPSILON, Problem, input};
use crate::workload::Task;
use anyhow::Result;
use candle_nn::{Module, ModuleT};
use rten::{BufferPool, FloatOperators, ops};
use rten_tensor::{NdTensorView, Tensor as RtenTensor, TensorView};

/// Everyone who can do this softmax or norm.
pub fn enter(problem: &Problem) -> Result<Entrants<'_>> {
    match problem.task {
        Task::Softmax { rows, cols } => softmax(problem, rows, cols),
        Task::LayerNorm { rows, cols } => layer_norm(problem, rows, cols),
        Task::BatchNorm { batch, channels, plane } => batch_norm(problem, [batch, channels, plane]),
        _ => Ok(vec![]),
    }
}

fn softmax(problem: &Problem, rows: usize, cols: usize) -> Result<Entrants<'_>> {
    let x = &problem.inputs[input::X];
    let tensor = candle_tensor(x, &[rows, cols])?;
    let rten = move || TensorView::from_data(&[rows, cols], &x[..]).softmax(1).expect("an axis of a matrix");
    Ok(vec![
        returns("candle", move || candle_nn::ops::softmax_last_dim(&tensor), read_candle),
        returns("rten", rten, RtenTensor::into_data),
    ])
}

fn layer_norm(problem: &Problem, rows: usize, cols: usize) -> Result<Entrants<'_>> {
    let [x, weight, bias] = [input::X, input::WEIGHT, input::BIAS].map(|i| &problem.inputs[i][..]);
    let tensor = candle_tensor(x, &[rows, cols])?;
    let layer = candle_nn::LayerNorm::new(
        candle_tensor(weight, &[cols])?,
        candle_tensor(bias, &[cols])?,
        f64::from(EPSILON),
    );
    let pool = BufferPool::new();
    let rten = move || {
        let vector = |data| TensorView::from_data(&[cols], data);
        let x = TensorView::from_data(&[rows, cols], x);
        ops::layer_normalization(&pool, x, vector(weight), Some(vector(bias)), -1, Some(EPSILON))
            .expect("shapes of the problem")
    };
    Ok(vec![
        returns("candle", move || layer.forward(&tensor), read_candle),
        returns("rten", rten, RtenTensor::into_data),
    ])
}

fn batch_norm(problem: &Problem, shape: [usize; 3]) -> Result<Entrants<'_>> {
    let [x, weight, bias, mean, variance] =
        [input::X, input::WEIGHT, input::BIAS, input::MEAN, input::VARIANCE].map(|i| &problem.inputs[i][..]);
    let channels = shape[1];
    let vector = |data| candle_tensor(data, &[channels]);
    let layer = candle_nn::BatchNorm::new(
        channels,
        vector(mean)?,
        vector(variance)?,
        vector(weight)?,
        vector(bias)?,
        f64::from(EPSILON),
    )?;
    let tensor = candle_tensor(x, &shape)?;
    let pool = BufferPool::new();
    let rten = move || {
        let vector = |data| NdTensorView::from_data([channels], data);
        let x = TensorView::from_data(&shape, x).as_cow();
        ops::batch_norm(&pool, x, &vector(weight), &vector(bias), &vector(mean), &vector(variance), EPSILON)
            .expect("shapes of the problem")
    };
    Ok(vec![
        returns("candle", move || layer.forward_t(&tensor, false), read_candle),
        returns("rten", rten, RtenTensor::into_data),
    ])
}
