//! Every type, granularity and edge against the reference.

use super::*;
use crate::backends::webgpu::testing::{agree, agree_on, every_knob_counts, limits};
use crate::ops::conv::ConvOptions;
use crate::ops::quantize::{IntegerOptions, QuantType, Quantization};
use crate::ops::testing::runtime;
use crate::ops::{Knob, OperationKind, Workload};
use crate::tensor::{DType, Tensor};
use crate::{Result, Runtime};

const STORED: [QuantType; 5] = [QuantType::I8, QuantType::U8, QuantType::I16, QuantType::I4, QuantType::U4];

/// The workloads of one kind that a call consists of.
fn workloads<T>(kind: OperationKind, call: impl FnOnce(&Runtime) -> Result<T>) -> Vec<Workload> {
    let all = runtime().workloads(call).unwrap();
    all.into_iter().filter(|workload| workload.kind() == kind).collect()
}

fn conversions<T>(call: impl FnOnce(&Runtime) -> Result<T>) -> Vec<Workload> {
    workloads(OperationKind::Quantize, call)
}

/// Descriptions for a tensor of 3×5×14.
fn descriptions(kind: QuantType) -> Vec<Quantization> {
    let scales: Vec<f32> = (1..15u8).map(|i| f32::from(i) * 0.07).collect();
    let blocks = |n: usize| Tensor::full(0.3f32, &[3, 5, n]).unwrap();
    vec![
        Quantization::per_tensor(kind, 0.3, 3).unwrap(),
        Quantization::per_channel(kind, 1, &scales[..5], &[0, 1, 2, 3, 4]).unwrap(),
        Quantization::per_channel(kind, 2, &scales, &[]).unwrap(),
        Quantization::per_block(kind, 4, &blocks(4), None).unwrap(),
    ]
}

#[test]
fn conversions_of_every_type() {
    let x = Tensor::full(1.0f32, &[3, 5, 14]).unwrap();
    let mut ran = 0;
    for kind in STORED {
        for how in descriptions(kind) {
            for workload in conversions(|rt| rt.dequantize(&rt.quantize(&x, &how)?, &how)) {
                ran += agree(WEBGPU_KERNELS, &workload).min(9);
            }
        }
    }
    assert!(ran >= 2 * STORED.len() * 4, "{ran}");
}

#[test]
fn requantisation_and_short_floats() {
    let x = Tensor::full(1.0f32, &[3, 5, 14]).unwrap();
    for (from, to) in [(QuantType::I8, QuantType::U4), (QuantType::I4, QuantType::U8)] {
        for (from, to) in descriptions(from).iter().zip(&descriptions(to)) {
            let all = conversions(|rt| rt.requantize(&rt.quantize(&x, from)?, from, to));
            assert!(agree(WEBGPU_KERNELS, &all[1]) > 0);
        }
    }
    let how = Quantization::per_tensor(QuantType::I8, 0.3, 3).unwrap();
    for dtype in [DType::F16, DType::BF16] {
        // An odd number of elements: the last word is half empty.
        let (mut real, q) = (Tensor::zeros(&[77], dtype).unwrap(), Tensor::zeros(&[77], DType::I8).unwrap());
        let all = conversions(|rt| rt.quantize(&real, &how));
        assert!(agree(WEBGPU_KERNELS, &all[0]) > 0);
        let all = conversions(|rt| rt.dequantize_into(&q, &how, &mut real));
        assert!(agree(WEBGPU_KERNELS, &all[0]) > 0);
    }
    let sums = Tensor::zeros(&[9], DType::I32).unwrap();
    let how = Quantization::per_tensor(QuantType::I32, 1e-3, 0).unwrap();
    assert!(agree(WEBGPU_KERNELS, &conversions(|rt| rt.dequantize(&sums, &how))[0]) > 0);
}

#[test]
fn runs_of_one_scale_in_words_and_vectors() {
    let x = Tensor::full(1.0f32, &[2, 3, 32]).unwrap();
    let blocks = |n: usize| Tensor::full(0.3f32, &[2, 3, n]).unwrap();
    let mut ran = 0;
    for kind in STORED {
        for how in [
            Quantization::per_tensor(kind, 0.3, 3).unwrap(),
            Quantization::per_channel(kind, 1, &[0.1, 0.2, 0.3], &[1, 2, 3]).unwrap(),
            Quantization::per_block(kind, 16, &blocks(2), None).unwrap(),
            // The last block of a row is shorter.
            Quantization::per_block(kind, 24, &blocks(2), None).unwrap(),
        ] {
            for workload in conversions(|rt| rt.dequantize(&rt.quantize(&x, &how)?, &how)) {
                assert!(runs::Runs.supports(&workload, limits()).is_ok(), "{workload}");
                ran += agree(&[&runs::Runs], &workload).min(9);
            }
        }
    }
    assert!(ran >= 2 * STORED.len() * 4, "{ran}");
    let how = Quantization::per_tensor(QuantType::I8, 0.3, 3).unwrap();
    for dtype in [DType::F16, DType::BF16] {
        let real = Tensor::zeros(&[64], dtype).unwrap();
        assert!(agree(&[&runs::Runs], &conversions(|rt| rt.quantize(&real, &how))[0]) > 0);
    }
    let workload = &conversions(|rt| rt.quantize(&x, &how))[0];
    every_knob_counts(&runs::Runs, workload, &[Knob::Vector, Knob::WorkgroupX]);
    every_knob_counts(&linear::Words, workload, &[Knob::Unroll, Knob::WorkgroupX]);
    // Neighbours along the last axis have a scale each.
    let last = Quantization::per_channel(QuantType::I8, 2, &[0.1; 32], &[]).unwrap();
    let workload = &conversions(|rt| rt.quantize(&x, &last))[0];
    let reasons = runs::Runs.supports(workload, limits()).unwrap_err().to_string();
    assert!(reasons.contains("fill a word"), "{reasons}");
}

#[test]
fn divisions_are_rounded_as_the_cpu_rounds_them() {
    let x = Tensor::full(1.0f32, &[4002]).unwrap();
    for scale in [0.1f32, 0.3, 1.0 / 3.0, 7e-39, 1e38, 0.007_812_5, 3.0] {
        let how = Quantization::per_tensor(QuantType::I16, scale, -7).unwrap();
        let workload = &conversions(|rt| rt.quantize(&x, &how))[0];
        let fill = |operand: usize, values: &mut [f32]| {
            if operand == 1 {
                values[0] = scale;
                return;
            }
            for (i, value) in values.iter_mut().enumerate() {
                // Halves and what lies beside them, then any bits at all.
                let half = (i as f32 - 1000.5) * scale;
                *value = match i % 4 {
                    0 => half,
                    1 => f32::from_bits(half.to_bits().wrapping_add(1)),
                    2 => f32::from_bits(half.to_bits().wrapping_sub(1)),
                    _ => f32::from_bits((i as u32).wrapping_mul(2_654_435_761)),
                };
            }
        };
        assert!(agree_on(WEBGPU_KERNELS, workload, &fill) > 0, "{scale}");
    }
}

/// The only integer product of a call agrees.
fn product_agrees<T>(call: impl FnOnce(&Runtime) -> Result<T>) {
    let all = workloads(OperationKind::IntegerMatmul, call);
    assert!(!all.is_empty());
    for workload in &all {
        assert!(agree(WEBGPU_INTEGER_KERNELS, workload) >= 2, "{workload}");
    }
}

#[test]
fn integer_products_of_every_type() {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype).unwrap();
    let one = Tensor::scalar(3u8);
    for (ta, tb) in
        [(DType::I8, DType::I8), (DType::U8, DType::I8), (DType::I8, DType::U8), (DType::U8, DType::U8)]
    {
        let none = IntegerOptions::new();
        for (m, n, k) in [(9, 21, 13), (1, 33, 50), (5, 3, 0)] {
            let (a, b) = (zeros(&[m, k], ta), zeros(&[k, n], tb));
            product_agrees(|rt| rt.matmul_integer(&a, &b, &none));
            let each = Tensor::from_vec(vec![2u8; n], &[n]).unwrap();
            let options = none.a_zero_point(&one).b_zero_point(&each);
            product_agrees(|rt| rt.matmul_integer(&a, &b, &options));
        }
    }
    let (a, b) = (zeros(&[2, 3, 5, 7], DType::U8), zeros(&[3, 6, 7], DType::I8));
    product_agrees(|rt| rt.matmul_integer(&a, &b.transpose(), &IntegerOptions::new()));
    let packed = zeros(&[7, 4], DType::U8);
    for kind in [QuantType::I4, QuantType::U4] {
        let options = IntegerOptions::new().b_packed(kind).b_zero_point(&one);
        product_agrees(|rt| rt.matmul_integer(&a, &packed, &options));
    }
}

#[test]
fn requantised_products_and_convolutions() {
    let (a, b) = (Tensor::zeros(&[5, 7], DType::U8).unwrap(), Tensor::zeros(&[7, 9], DType::I8).unwrap());
    let of = |kind, zero| Quantization::per_tensor(kind, 0.2, zero).unwrap();
    let columns = Quantization::per_channel(QuantType::I8, 1, &[0.1; 9], &[1; 9]).unwrap();
    for y in [of(QuantType::I8, -3), of(QuantType::U8, 100)] {
        product_agrees(|rt| rt.qmatmul(&a, &of(QuantType::U8, 9), &b, &columns, &y));
        let (x, w) = (
            Tensor::zeros(&[1, 2, 5, 5], DType::U8).unwrap(),
            Tensor::zeros(&[3, 2, 3, 3], DType::I8).unwrap(),
        );
        let bias = Tensor::zeros(&[3], DType::I32).unwrap();
        let options = ConvOptions::new().bias(&bias);
        product_agrees(|rt| rt.qconv2d(&x, &of(QuantType::U8, 9), &w, &of(QuantType::I8, 0), &y, &options));
    }
}

#[test]
fn products_with_weights_of_every_kind() {
    for (kind, bytes) in [(QuantType::I8, 70), (QuantType::U8, 70), (QuantType::I4, 35), (QuantType::U4, 35)]
    {
        let q = Tensor::zeros(&[11, bytes], kind.dtype()).unwrap();
        let blocks = |size: usize| {
            let scales = Tensor::full(0.3f32, &[11, 70usize.div_ceil(size)]).unwrap();
            Quantization::per_block(kind, size, &scales, None).unwrap()
        };
        let channels = Quantization::per_channel(kind, 0, &[0.1; 11], &[1; 11]).unwrap();
        for how in [Quantization::per_tensor(kind, 0.5, 0).unwrap(), channels, blocks(32), blocks(6)] {
            for (m, dtype) in [(1, DType::F32), (6, DType::F32), (3, DType::BF16)] {
                let x = Tensor::zeros(&[m, 70], dtype).unwrap();
                let call = |rt: &Runtime| rt.matmul_quantized(&x, &rt.pack_quantized(&q, &how)?);
                for workload in workloads(OperationKind::QuantizedMatmul, call) {
                    assert!(agree(WEBGPU_WEIGHT_KERNELS, &workload) >= 2, "{workload}");
                }
            }
        }
    }
}
