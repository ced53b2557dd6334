//! Quantisation on views of every kind.

use shapewise::TensorView;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::quantize::{Calibration, Granularity, IntegerOptions, QuantType, Quantization};

use crate::data::Random;
use crate::{no_kernel_panics, wild};

fn kind(r: &mut Random) -> QuantType {
    QuantType::ALL[r.below(QuantType::ALL.len())]
}

fn scale(r: &mut Random) -> f32 {
    if r.below(8) == 0 { wild::number(r) as f32 } else { 0.01 + r.below(5) as f32 }
}

fn zero(r: &mut Random) -> i32 {
    if r.below(8) == 0 { [i32::MIN, i32::MAX, -129, 256][r.below(4)] } else { r.below(6) as i32 }
}

fn granularity(r: &mut Random) -> Granularity {
    match r.below(4) {
        0 => Granularity::Block([0, 1, 2, 4, 32, usize::MAX][r.below(6)]),
        1 => Granularity::Tensor,
        _ => Granularity::Channel(wild::axis(r)),
    }
}

/// A description that may or may not fit the view.
fn description(r: &mut Random, x: &TensorView<'_>) -> shapewise::Result<Quantization> {
    match granularity(r) {
        Granularity::Tensor => Quantization::per_tensor(kind(r), scale(r), zero(r)),
        Granularity::Channel(axis) => {
            let fits =
                x.shape().get(axis.rem_euclid(x.rank().max(1) as isize) as usize).copied().unwrap_or(1);
            let count = if r.below(6) == 0 { r.below(9) } else { fits.min(1 << 14) };
            let scales: Vec<f32> = (0..count).map(|_| scale(r)).collect();
            let zeros: Vec<i32> = (0..if r.below(2) == 0 { 0 } else { count }).map(|_| zero(r)).collect();
            Quantization::per_channel(kind(r), axis, &scales, &zeros)
        }
        Granularity::Block(size) => {
            let mut shape = x.shape().to_vec();
            if let Some(last) = shape.last_mut() {
                *last = last.div_ceil(size.max(1));
            }
            let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).unwrap_or(usize::MAX);
            let shape = if count > 1 << 14 { vec![2, 2] } else { shape };
            let scales = shapewise::Tensor::full(scale(r), &shape)?;
            Quantization::per_block(kind(r), size, &scales, None)
        }
    }
}

#[test]
fn conversions() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = wild::storage(r);
        let x = wild::view(r, &storage);
        let (Ok(a), Ok(b)) = (description(r, &x), description(r, &x)) else { return };
        let _ = rt.quantize(x, &a).and_then(|q| rt.dequantize(&q, &a));
        let _ = (rt.dequantize(x, &a), rt.requantize(x, &a, &b));
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.quantize_into(x, &a, view);
        }
        let _ = rt.dequantize_into(x, &a, &mut out);
    });
}

#[test]
fn calibration() {
    no_kernel_panics(2_000, |rt, r| {
        let storage = wild::storage(r);
        let x = wild::view(r, &storage);
        let method = match r.below(8) {
            0 => Calibration::Entropy,
            1 => Calibration::Mse,
            2 => Calibration::Percentile(wild::number(r) * 30.0),
            _ => Calibration::MinMax,
        };
        let found = Quantization::calibrate(x, kind(r), granularity(r), method, r.below(2) == 0);
        let _ = found.and_then(|how| rt.quantize(x, &how));
    });
}

#[test]
fn products() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r), wild::storage(r)];
        let (a, b) = (wild::view(r, &storage[0]), wild::view(r, &storage[1]));
        let zero = wild::view(r, &storage[2]);
        let mut options = IntegerOptions::new();
        if r.below(3) == 0 {
            options = options.a_zero_point(zero);
        }
        if r.below(3) == 0 {
            options = options.b_zero_point(zero);
        }
        if r.below(4) == 0 {
            options = options.b_packed(kind(r));
        }
        let _ = rt.matmul_integer(a, b, &options);
        let convolution = ConvOptions::new().stride(r.below(3)).padding(r.below(3)).groups(r.below(3));
        let _ = rt.conv_integer2d(a, b, &options, &convolution);
        let (Ok(x), Ok(y)) = (description(r, &a), description(r, &b)) else { return };
        let _ = rt.qmatmul(a, &x, b, &y, &x);
        let _ = rt.qconv2d(a, &x, b, &y, &x, &convolution);
        if let Ok(weights) = rt.pack_quantized(b, &y) {
            let _ = rt.matmul_quantized(a, &weights);
        }
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.matmul_integer_into(a, b, &options, view);
        }
    });
}
