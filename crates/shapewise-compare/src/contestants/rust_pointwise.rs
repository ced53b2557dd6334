//! Element-wise operations and sums: the plain Rust loop, ndarray, candle, rten.
//!
//! The loop and ndarray's iterators have no dispatch of their own, so they are compiled for AVX2 beside the default
//! target and the CPU decides: a peer should not lose because of our compiler flags.
#![allow(unsafe_code)]

use super::{Entrants, returns, writes};
use crate::problem::{Problem, input};
use crate::workload::{Over, Pointwise, Task};
use anyhow::Result;
use candle_core::{Device, Tensor};
use ndarray::{ArrayView1, ArrayView2, ArrayViewMut1, Axis, Zip};
use rayon::prelude::*;
use rten::{BufferPool, ops};
use rten_tensor::{Tensor as RtenTensor, TensorView};

/// Runs `work` compiled for the widest instructions that this CPU has.
#[inline]
fn widest<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: both features were detected.
            return unsafe { with_avx2(work) };
        }
    }
    work()
}

/// The entries of a candle tensor.
pub fn read_candle(tensor: candle_core::Result<Tensor>) -> Vec<f32> {
    tensor.and_then(|t| t.flatten_all()?.to_vec1()).expect("candle computed a tensor of f32")
}

/// Everyone who can do this element-wise operation or sum.
pub fn enter(problem: &Problem, threads: usize) -> Result<Entrants<'_>> {
    let x = &problem.inputs[input::X];
    match problem.task {
        Task::Elementwise { op, .. } => {
            let y = &problem.inputs[input::Y];
            match op {
                Pointwise::Add => binary(x, y, threads, |a, b| a + b, |a, b| a + b, Some(rten_add)),
                Pointwise::Mul => binary(x, y, threads, |a, b| a * b, |a, b| a * b, Some(rten_mul)),
                Pointwise::AddRelu => {
                    binary(x, y, threads, |a, b| (a + b).max(0.0), |a, b| (a + b)?.relu(), None)
                }
                Pointwise::Relu => relu(x, threads),
            }
        }
        Task::Sum { over, rows, cols } => sum(x, over, rows, cols, threads),
        _ => Ok(vec![]),
    }
}

type RtenBinary = fn(&BufferPool, TensorView<'_, f32>, TensorView<'_, f32>) -> RtenTensor<f32>;

fn rten_add(pool: &BufferPool, a: TensorView<'_, f32>, b: TensorView<'_, f32>) -> RtenTensor<f32> {
    ops::add(pool, a, b).expect("equal shapes")
}

fn rten_mul(pool: &BufferPool, a: TensorView<'_, f32>, b: TensorView<'_, f32>) -> RtenTensor<f32> {
    ops::mul(pool, a, b).expect("equal shapes")
}

fn binary<'a>(
    x: &'a [f32],
    y: &'a [f32],
    threads: usize,
    f: impl Fn(f32, f32) -> f32 + Copy + Send + Sync + 'a,
    candle: impl Fn(&Tensor, &Tensor) -> candle_core::Result<Tensor> + 'a,
    rten: Option<RtenBinary>,
) -> Result<Entrants<'a>> {
    let part = x.len().div_ceil(threads);
    let run = move |a: &[f32], b: &[f32], c: &mut [f32]| {
        widest(|| {
            for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
                *c = f(*a, *b);
            }
        });
    };
    let rust_loop = writes("rust-loop", move |out| {
        if threads == 1 {
            run(x, y, out);
        } else {
            let parts = out.par_chunks_mut(part).zip(x.par_chunks(part)).zip(y.par_chunks(part));
            parts.for_each(|((c, a), b)| run(a, b, c));
        }
    });
    let ndarray = writes("ndarray", move |out| {
        let zip = Zip::from(ArrayViewMut1::from(out)).and(ArrayView1::from(x)).and(ArrayView1::from(y));
        if threads == 1 {
            widest(|| zip.for_each(|c, a, b| *c = f(*a, *b)));
        } else {
            zip.par_for_each(|c, a, b| *c = f(*a, *b));
        }
    });
    let (a, b) = (candle_tensor(x, &[x.len()])?, candle_tensor(y, &[y.len()])?);
    let mut entrants = vec![rust_loop, ndarray, returns("candle", move || candle(&a, &b), read_candle)];
    if let Some(rten) = rten {
        let pool = BufferPool::new();
        entrants.push(returns(
            "rten",
            move || rten(&pool, TensorView::from_data(&[x.len()], x), TensorView::from_data(&[y.len()], y)),
            RtenTensor::into_data,
        ));
    }
    Ok(entrants)
}

fn relu(x: &[f32], threads: usize) -> Result<Entrants<'_>> {
    let part = x.len().div_ceil(threads);
    let run = |a: &[f32], c: &mut [f32]| widest(|| c.iter_mut().zip(a).for_each(|(c, a)| *c = a.max(0.0)));
    let rust_loop = writes("rust-loop", move |out| {
        if threads == 1 {
            run(x, out);
        } else {
            out.par_chunks_mut(part).zip(x.par_chunks(part)).for_each(|(c, a)| run(a, c));
        }
    });
    let ndarray = writes("ndarray", move |out| {
        let zip = Zip::from(ArrayViewMut1::from(out)).and(ArrayView1::from(x));
        if threads == 1 {
            widest(|| zip.for_each(|c, a| *c = a.max(0.0)));
        } else {
            zip.par_for_each(|c, a| *c = a.max(0.0));
        }
    });
    let a = candle_tensor(x, &[x.len()])?;
    Ok(vec![rust_loop, ndarray, returns("candle", move || a.relu(), read_candle)])
}

/// Thirty-two partial sums, which the compiler may keep in vectors without changing the order of any of them.
fn lane_sum(values: &[f32]) -> f32 {
    widest(|| {
        let mut lanes = [0f32; 32];
        let (whole, rest) = values.as_chunks::<32>();
        for chunk in whole {
            for (lane, value) in lanes.iter_mut().zip(chunk) {
                *lane += value;
            }
        }
        lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
    })
}

/// Adds the rows of a band of columns that starts at `first`.
fn column_sums(x: &[f32], cols: usize, first: usize, out: &mut [f32]) {
    widest(|| {
        out.fill(0.0);
        for row in x.chunks(cols) {
            out.iter_mut().zip(&row[first..]).for_each(|(o, v)| *o += v);
        }
    });
}

fn loop_sum(x: &[f32], over: Over, cols: usize, threads: usize, out: &mut [f32]) {
    let part = x.len().div_ceil(threads);
    match (over, threads) {
        (Over::All, 1) => out[0] = lane_sum(x),
        (Over::All, _) => out[0] = x.par_chunks(part).map(lane_sum).sum(),
        (Over::Rows, 1) => out.iter_mut().zip(x.chunks(cols)).for_each(|(o, row)| *o = lane_sum(row)),
        (Over::Rows, _) => {
            let rows =
                out.par_iter_mut().zip(x.par_chunks(cols)).with_min_len((x.len() / cols).div_ceil(threads));
            rows.for_each(|(o, row)| *o = lane_sum(row));
        }
        (Over::Columns, 1) => column_sums(x, cols, 0, out),
        (Over::Columns, _) => {
            let band = cols.div_ceil(threads);
            out.par_chunks_mut(band).enumerate().for_each(|(t, o)| column_sums(x, cols, t * band, o));
        }
    }
}

fn sum(x: &[f32], over: Over, rows: usize, cols: usize, threads: usize) -> Result<Entrants<'_>> {
    let mut entrants = vec![writes("rust-loop", move |out| loop_sum(x, over, cols, threads, out))];
    if threads == 1 {
        // ndarray's sums have one thread.
        let view = ArrayView2::from_shape((rows, cols), x)?;
        let call = move || match over {
            Over::All => vec![view.sum()],
            Over::Rows => view.sum_axis(Axis(1)).into_raw_vec_and_offset().0,
            Over::Columns => view.sum_axis(Axis(0)).into_raw_vec_and_offset().0,
        };
        entrants.push(returns("ndarray", move || widest(&call), |v| v));
    }
    let tensor = candle_tensor(x, &[rows, cols])?;
    let call = move || match over {
        Over::All => tensor.sum_all(),
        Over::Rows => tensor.sum(1),
        Over::Columns => tensor.sum(0),
    };
    entrants.push(returns("candle", call, read_candle));
    let axes: Option<&[i32]> = match over {
        Over::All => None,
        Over::Rows => Some(&[1]),
        Over::Columns => Some(&[0]),
    };
    let pool = BufferPool::new();
    let call = move || {
        ops::reduce_sum(&pool, TensorView::from_data(&[rows, cols], x), axes, false)
            .expect("axes of a matrix")
    };
    entrants.push(returns("rten", call, RtenTensor::into_data));
    Ok(entrants)
}

/// A candle tensor with these entries.
pub fn candle_tensor(data: &[f32], shape: &[usize]) -> Result<Tensor> {
    Ok(Tensor::from_slice(data, shape, &Device::Cpu)?)
}
