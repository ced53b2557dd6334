//! Convolutions by candle and rten.

use super::rust_pointwise::{candle_tensor, read_candle};
use super::{Entrants, returns};
use crate::problem::{Problem, input};
use crate::workload::Conv;
use anyhow::Result;
use rten::{BufferPool, ops};
use rten_tensor::{Tensor as RtenTensor, TensorView};

/// Everyone who can do this convolution.
pub fn enter<'a>(problem: &'a Problem, conv: &Conv) -> Result<Entrants<'a>> {
    let Conv { stride, padding, groups, .. } = *conv;
    let [x_shape, w_shape, _] = conv.shapes();
    let [x, w] = [input::X, input::WEIGHT].map(|i| &problem.inputs[i][..]);
    let (candle_x, candle_w) = (candle_tensor(x, &x_shape)?, candle_tensor(w, &w_shape)?);
    let candle = move || candle_x.conv2d(&candle_w, padding, stride, 1, groups);
    let pool = BufferPool::new();
    let rten = move || {
        let (x, w) = (TensorView::from_data(&x_shape, x), TensorView::from_data(&w_shape, w));
        let around = [padding; 4].into();
        let y: RtenTensor<f32> = ops::conv(&pool, x, w, None, around, groups, &[stride; 2], &[1; 2])
            .expect("shapes of the problem");
        y
    };
    Ok(vec![returns("candle", candle, read_candle), returns("rten", rten, RtenTensor::into_data)])
}
