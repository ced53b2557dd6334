//! Every kernel against the reference, and what users rely on at the edges.

use half::bf16;

use super::attributes::Along;
use super::cpu_integer::launch_as;
use super::cpu_integer_tile::QUADS_BY_HAND;
use super::*;
use crate::backends::cpu::Probe;
use crate::ops::conv::ConvOptions;
use crate::ops::testing::{agree, runtime};
use crate::ops::{Operation, Parameters, TensorDesc, Workload};
use crate::tensor::{DType, Shape, Tensor, TensorView};

const STORED: [QuantType; 5] = [QuantType::I8, QuantType::U8, QuantType::I16, QuantType::I4, QuantType::U4];

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 2003) as f32 * 0.01 - 10.0).collect()
}

/// The integers of a quantised tensor, one by one.
fn integers(q: &Tensor, kind: QuantType) -> Vec<i32> {
    match kind {
        QuantType::I8 => q.to_vec::<i8>().unwrap().into_iter().map(i32::from).collect(),
        QuantType::U8 => q.to_vec::<u8>().unwrap().into_iter().map(i32::from).collect(),
        QuantType::I16 => q.to_vec::<i16>().unwrap().into_iter().map(i32::from).collect(),
        QuantType::I32 => q.to_vec::<i32>().unwrap(),
        QuantType::I4 | QuantType::U4 => {
            let halves =
                q.to_vec::<u8>().unwrap().into_iter().flat_map(|b| [i32::from(b & 15), i32::from(b >> 4)]);
            let signed = kind == QuantType::I4;
            halves.map(|half| if signed && half > 7 { half - 16 } else { half }).collect()
        }
    }
}

fn workloads(call: impl FnOnce(&crate::Runtime) -> crate::Result<Tensor>) -> Vec<Workload> {
    runtime().workloads(call).unwrap()
}

#[test]
fn every_conversion_agrees_with_the_reference() {
    let rt = runtime();
    let shape = [3, 4, 70];
    let x = Tensor::from_vec(numbers(840), &shape).unwrap();
    let (mut conversions, mut ran) = (0, 0);
    for kind in STORED {
        let zero = if kind.range().0 == 0 { 5 } else { -2 };
        let (mut scales, zeros) = (vec![0.1, 0.25, 2.0], vec![zero; 3]);
        scales.resize(70, 0.5);
        let blocks = |n: usize| Tensor::full(0.3f32, &[3, 4, n]).unwrap();
        let both = [
            Quantization::per_tensor(kind, 0.3, zero).unwrap(),
            Quantization::per_tensor(kind, 0.3, 0).unwrap(),
            Quantization::per_channel(kind, 0, &scales[..3], &zeros).unwrap(),
            Quantization::per_channel(kind, 1, &scales[..4], &[]).unwrap(),
            Quantization::per_channel(kind, -1, &scales, &vec![zero; 70]).unwrap(),
            Quantization::per_channel(kind, 2, &scales, &[]).unwrap(),
            Quantization::per_block(kind, 10, &blocks(7), None).unwrap(),
            Quantization::per_block(kind, 16, &blocks(5), None).unwrap(),
        ];
        for how in both {
            let asked = workloads(|rt| {
                let q = rt.quantize(&x, &how)?;
                let y = rt.dequantize(&q, &how)?;
                let mut half = Tensor::zeros(&shape, DType::F16)?;
                rt.dequantize_into(&q, &how, &mut half)?;
                rt.quantize(&half, &how)?;
                let mut half = Tensor::zeros(&shape, DType::BF16)?;
                rt.dequantize_into(&q, &how, &mut half)?;
                rt.quantize(&half, &how)?;
                for other in STORED {
                    rt.requantize(&q, &how, &Quantization::per_tensor(other, 0.7, 1)?)?;
                }
                Ok(y)
            });
            conversions += asked.len();
            ran += asked.iter().map(|workload| agree(&rt, workload)).sum::<usize>();
        }
    }
    assert_eq!(conversions, STORED.len() * 8 * (6 + STORED.len()));
    // At least one kernel, on one and on two threads, whatever instructions there are.
    assert!(ran >= 2 * conversions, "only {ran} combinations ran");
}

#[test]
fn rounding_and_saturation_are_those_of_onnx() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let mut x =
        vec![0.5, 1.5, 2.5, -0.5, -1.5, 127.4, 127.5, -128.5, -129.0, 1e30, -1e30, inf, -inf, nan, 0.0, -0.0];
    x.extend(x.clone());
    x.extend([3.5, -3.5]);
    let mut wanted = vec![0, 2, 2, 0, -2, 127, 127, -128, -128, 127, -128, 127, -128, -128, 0, 0];
    wanted.extend(wanted.clone());
    wanted.extend([4, -4]);
    for kernel in KERNELS {
        let rt = runtime().with_kernel(kernel.name()).unwrap();
        let x = TensorView::from_slice(&x, &[34]).unwrap();
        let how = Quantization::per_tensor(QuantType::I8, 1.0, 0).unwrap();
        let Ok(q) = rt.quantize(x, &how) else { continue };
        assert_eq!(integers(&q, QuantType::I8), wanted, "{}", kernel.name());
        let how = Quantization::per_tensor(QuantType::I4, 1.0, 3).unwrap();
        let q = rt.quantize(x, &how).unwrap();
        let clamped: Vec<i32> = wanted.iter().map(|w| (w + 3).clamp(-8, 7)).collect();
        assert_eq!(integers(&q, QuantType::I4), clamped, "{}", kernel.name());
    }
}

/// Kernels that multiply with a reciprocal must see where the quotient is rounded otherwise.
#[test]
fn quotients_at_and_beside_halves_are_rounded_as_divisions() {
    for scale in [0.013f32, 1.0 / 3.0, 0.1, 1.0, 2.5e7, 1e-30] {
        let mut x = vec![f32::NAN, f32::INFINITY, -f32::INFINITY, f32::MAX, f32::MIN, 1e-45, -0.0];
        for half in (-300..300).map(|i| (i as f32 + 0.5) * scale) {
            x.extend((-2..=2).map(|by: i32| f32::from_bits(half.to_bits().wrapping_add_signed(by))));
        }
        for (kind, zero) in [(QuantType::I8, 0), (QuantType::I8, -128), (QuantType::I8, 127)]
            .into_iter()
            .chain([(QuantType::U8, 0), (QuantType::U8, 255), (QuantType::U8, 7)])
        {
            let (low, high) = kind.range();
            let wanted: Vec<i32> = x
                .iter()
                // The maximum is not NaN.
                .map(|x| (x / scale).round_ties_even().max((low - zero) as f32).min((high - zero) as f32))
                .map(|q| q as i32 + zero)
                .collect();
            let how = Quantization::per_tensor(kind, scale, zero).unwrap();
            for kernel in KERNELS {
                let rt = runtime().with_kernel(kernel.name()).unwrap();
                let Ok(q) = rt.quantize(TensorView::from_slice(&x, &[x.len()]).unwrap(), &how) else {
                    continue;
                };
                assert_eq!(integers(&q, kind), wanted, "{} {kind} {scale} {zero}", kernel.name());
            }
        }
    }
}

#[test]
fn four_bits_lie_low_half_first_and_come_back() {
    let rt = runtime();
    let x = Tensor::from_vec(vec![1.0f32, 2.0, -8.0, 7.0], &[2, 2]).unwrap();
    let how = Quantization::per_tensor(QuantType::I4, 1.0, 0).unwrap();
    let q = rt.quantize(&x, &how).unwrap();
    assert_eq!(q.to_vec::<u8>().unwrap(), [0x21, 0x78]);
    assert_eq!(rt.dequantize(&q, &how).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, -8.0, 7.0]);
    let odd = Tensor::full(1.0f32, &[2, 3]).unwrap();
    assert!(rt.quantize(&odd, &how).unwrap_err().to_string().contains("last axis must be even"));
}

#[test]
fn requantising_is_dequantising_and_quantising_again() {
    let rt = runtime();
    let x = Tensor::from_vec(numbers(400), &[4, 100]).unwrap();
    for (from, to) in STORED.into_iter().flat_map(|from| STORED.map(|to| (from, to))) {
        let a = Quantization::per_channel(from, 0, &[0.1, 0.2, 0.3, 0.4], &[1, 2, 3, 4]).unwrap();
        let b = Quantization::per_tensor(to, 0.15, 2).unwrap();
        let q = rt.quantize(&x, &a).unwrap();
        let twice = rt.quantize(&rt.dequantize(&q, &a).unwrap(), &b).unwrap();
        let once = rt.requantize(&q, &a, &b).unwrap();
        assert_eq!(integers(&once, to), integers(&twice, to), "{from} {to}");
    }
    let sums = Tensor::from_vec(vec![1_000_000i32, -70], &[2]).unwrap();
    let from = Quantization::per_tensor(QuantType::I32, 0.001, 0).unwrap();
    let to = Quantization::per_tensor(QuantType::I8, 0.01, 0).unwrap();
    assert_eq!(rt.requantize(&sums, &from, &to).unwrap().to_vec::<i8>().unwrap(), [127, -7]);
}

#[test]
fn views_are_converted_in_their_order() {
    let rt = runtime();
    let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let how = Quantization::per_channel(QuantType::U8, 0, &[1.0, 0.5], &[]).unwrap();
    let q = rt.quantize(&x.transpose(), &how).unwrap();
    assert_eq!(q.to_vec::<u8>().unwrap(), [1, 3, 4, 8]);
    let mut out = Tensor::zeros(&[2, 2], DType::U8).unwrap();
    rt.quantize_into(
        &x,
        &how,
        out.view_mut().unwrap().with_layout(x.transpose().layout().to_owned()).unwrap(),
    )
    .unwrap();
    assert_eq!(out.to_vec::<u8>().unwrap(), [1, 6, 2, 8]);
}

fn bytes(shape: &[usize], dtype: DType, step: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<u8> = (0..n).map(|i| (i * step % 256) as u8).collect();
    match dtype {
        DType::I8 => Tensor::from_vec(values.into_iter().map(|v| v as i8).collect(), shape).unwrap(),
        _ => Tensor::from_vec(values, shape).unwrap(),
    }
}

/// The product by the definition.
fn product(a: &[i32], b: &[i32], [m, n, k]: [usize; 3], zeros: [&[i32]; 2]) -> Vec<i32> {
    let zero = |side: usize, line: usize| zeros[side].get(line).or(zeros[side].last()).copied().unwrap_or(0);
    let cell = |i: usize, j: usize| {
        (0..k).map(|p| (a[i * k + p] - zero(0, i)) * (b[p * n + j] - zero(1, j))).sum::<i32>()
    };
    (0..m * n).map(|at| cell(at / n, at % n)).collect()
}

fn kind_of(dtype: DType) -> QuantType {
    if dtype == DType::I8 { QuantType::I8 } else { QuantType::U8 }
}

#[test]
fn integer_products_of_all_signs_and_extremes_are_exact_on_every_kernel() {
    let types = [DType::I8, DType::U8];
    for (m, n, k) in [(1, 1, 1), (7, 33, 5), (13, 50, 64), (100, 17, 700), (2, 100, 1031), (3, 4, 0)] {
        for (left, right) in types.into_iter().flat_map(|l| types.map(|r| (l, r))) {
            // The largest magnitudes side by side are what instructions that saturate get wrong.
            for step in [127, 255, 31] {
                let (a, b) = (bytes(&[m, k], left, step), bytes(&[k, n], right, 255));
                let (va, vb) = (integers(&a, kind_of(left)), integers(&b, kind_of(right)));
                let za = Tensor::from_vec(vec![9i8; 1], &[1]).unwrap();
                let zb = Tensor::from_vec((0..n).map(|j| (j % 100) as u8).collect(), &[n]).unwrap();
                let zeros = [vec![9], (0..n).map(|j| (j % 100) as i32).collect()];
                for kernel in INTEGER_KERNELS {
                    let rt = runtime().with_kernel(kernel.name()).unwrap();
                    let Ok(c) = rt.matmul_integer(&a, &b, &IntegerOptions::new()) else { continue };
                    let what = format!("{} {m}×{n}×{k} {left} {right}", kernel.name());
                    assert_eq!(
                        c.to_vec::<i32>().unwrap(),
                        product(&va, &vb, [m, n, k], [&[], &[]]),
                        "{what}"
                    );
                    let options = IntegerOptions::new().a_zero_point(&za).b_zero_point(&zb);
                    let c = rt.matmul_integer(&a, &b, &options).unwrap();
                    let wanted = product(&va, &vb, [m, n, k], [&zeros[0], &zeros[1]]);
                    assert_eq!(c.to_vec::<i32>().unwrap(), wanted, "{what} with zero points");
                }
            }
        }
    }
}

fn desc(dtype: DType, shape: &[usize]) -> TensorDesc {
    TensorDesc::contiguous(dtype, Shape::new(shape).unwrap())
}

/// All attributes of an integer product that kernels may meet.
fn integer_workloads(m: usize, n: usize, k: usize) -> Vec<Workload> {
    let mut all = Vec::new();
    let types = [DType::I8, DType::U8];
    for (left, right) in types.into_iter().flat_map(|l| types.map(|r| (l, r))) {
        for (i, bias) in [None, Some(Along::Rows), Some(Along::Columns)].into_iter().enumerate() {
            for packed in [None, Some(QuantType::I4), Some(QuantType::U4)] {
                for requantized in [false, true] {
                    let zero_points = [i != 1, i != 2];
                    let attributes = IntegerMatmulAttributes { zero_points, packed, bias, requantized };
                    let b = match packed {
                        None => desc(right, &[k, n]),
                        Some(_) => desc(DType::U8, &[k, n / 2]),
                    };
                    let mut inputs = vec![desc(left, &[m, k]), b];
                    inputs.extend(zero_points[0].then(|| desc(DType::I32, &[if i == 0 { 1 } else { m }])));
                    inputs.extend(zero_points[1].then(|| desc(DType::I32, &[if i == 0 { n } else { 1 }])));
                    inputs.extend(
                        bias.map(|along| desc(DType::I32, &[if along == Along::Rows { m } else { n }])),
                    );
                    if requantized {
                        inputs.push(desc(DType::F32, &[if i == 1 { m } else { 1 }]));
                        inputs.push(desc(DType::F32, &[if i == 2 { n } else { 1 }]));
                        inputs.extend([desc(DType::F32, &[1]), desc(DType::I32, &[1])]);
                    }
                    let out = if requantized { desc(right, &[m, n]) } else { desc(DType::I32, &[m, n]) };
                    all.push(Workload::new(Operation::IntegerMatmul(attributes), &inputs, &[out]));
                }
            }
        }
    }
    all
}

#[test]
fn integer_products_agree_with_the_reference_under_every_attribute() {
    let rt = runtime();
    let mut ran = 0;
    for (m, n, k) in [(5, 22, 9), (40, 64, 130), (120, 300, 33)] {
        ran += integer_workloads(m, n, k).iter().map(|workload| agree(&rt, workload)).sum::<usize>();
    }
    assert!(ran > 300, "only {ran} combinations ran");
}

#[test]
fn quads_of_bytes_are_packed_and_made_up_for() {
    let rt = runtime();
    for (m, n, k) in [(5, 22, 9), (120, 100, 35), (9, 50, 2100)] {
        for workload in integer_workloads(m, n, k) {
            let (device, none) = (rt.device(), Parameters::new());
            let mut expected = Probe::new(&workload, device).unwrap();
            INTEGER_KERNELS.last().unwrap().launch(&mut expected.call(&workload, &none, device)).unwrap();
            let mut found = Probe::new(&workload, device).unwrap();
            launch_as(&found.call(&workload, &none, device), &QUADS_BY_HAND).unwrap();
            found.same_outputs(&expected, &workload).unwrap_or_else(|why| panic!("{workload}: {why}"));
        }
    }
}

#[test]
fn vectors_batches_and_transposed_operands_multiply() {
    let rt = runtime();
    let a = bytes(&[2, 3, 20], DType::U8, 7);
    let b = bytes(&[20, 5], DType::I8, 11);
    let c = rt.matmul_integer(&a, &b, &IntegerOptions::new()).unwrap();
    assert_eq!(c.shape(), [2, 3, 5]);
    let second = rt.matmul_integer(&a.slice(0, 1, 2, 1).unwrap(), &b, &IntegerOptions::new()).unwrap();
    assert_eq!(c.to_vec::<i32>().unwrap()[15..], second.to_vec::<i32>().unwrap());
    let turned = b.transpose().to_contiguous().unwrap().transpose();
    let same = rt.matmul_integer(&a, &turned, &IntegerOptions::new()).unwrap();
    assert_eq!(c.to_vec::<i32>().unwrap(), same.to_vec::<i32>().unwrap());
    let row = bytes(&[20], DType::U8, 7);
    let y = rt.matmul_integer(&row, &b, &IntegerOptions::new()).unwrap();
    assert_eq!((y.shape(), y.to_vec::<i32>().unwrap()), (&[5][..], c.to_vec::<i32>().unwrap()[..5].to_vec()));
}

#[test]
fn products_with_weights_agree_with_the_reference() {
    let rt = runtime();
    let mut ran = 0;
    for kind in [QuantType::I8, QuantType::U8, QuantType::I4, QuantType::U4] {
        for (n, k) in [(3, 16), (70, 192), (5, 90)] {
            let bytes = if kind.is_packed() { k / 2 } else { k };
            let q = bytes_of(kind, &[n, bytes]);
            let zero = if kind.range().0 == 0 { 7 } else { -3 };
            let blocks = |size: usize| Tensor::full(0.01f32, &[n, k.div_ceil(size)]).unwrap();
            let mut all = vec![
                Quantization::per_tensor(kind, 0.1, 0).unwrap(),
                Quantization::per_tensor(kind, 0.1, zero).unwrap(),
                Quantization::per_channel(kind, 0, &vec![0.2; n], &vec![zero; n]).unwrap(),
            ];
            all.extend(
                [8, 16, 32, 64, 128]
                    .map(|size| Quantization::per_block(kind, size, &blocks(size), None).unwrap()),
            );
            for how in all {
                let weights = rt.pack_quantized(&q, &how).unwrap();
                for m in [1, 2, 3, 5, 20] {
                    for dtype in [DType::F32, DType::BF16] {
                        let x = Tensor::zeros(&[m, k], dtype).unwrap();
                        let asked = workloads(|rt| rt.matmul_quantized(&x, &weights));
                        ran += asked.iter().map(|workload| agree(&rt, workload)).sum::<usize>();
                    }
                }
            }
        }
    }
    assert!(ran > 1000, "only {ran} combinations ran");
}

fn bytes_of(kind: QuantType, shape: &[usize]) -> Tensor {
    bytes(shape, kind.dtype(), 37)
}

#[test]
fn products_with_weights_are_those_of_the_numbers_they_stand_for() {
    let rt = runtime();
    let (n, k) = (6, 100);
    let x = Tensor::from_vec(numbers(3 * k), &[3, k]).unwrap();
    for kind in [QuantType::I4, QuantType::U4, QuantType::I8, QuantType::U8] {
        let scales = Tensor::from_vec((0..n * 4).map(|i| 0.01 * (i + 1) as f32).collect(), &[n, 4]).unwrap();
        let zeros = Tensor::from_vec((0..n * 4).map(|i| i as i32 % 7).collect(), &[n, 4]).unwrap();
        let how = Quantization::per_block(kind, 32, &scales, Some(zeros.view())).unwrap();
        let q = bytes_of(kind, &[n, if kind.is_packed() { k / 2 } else { k }]);
        let plain = rt.matmul(&x, &rt.dequantize(&q, &how).unwrap().transpose()).unwrap();
        let packed = rt.pack_quantized(&q, &how).unwrap();
        assert_eq!((packed.shape(), packed.kind()), ([n, k], kind));
        let found = rt.matmul_quantized(&x, &packed).unwrap();
        for (f, w) in found.to_vec::<f32>().unwrap().into_iter().zip(plain.to_vec::<f32>().unwrap()) {
            assert!((f - w).abs() < 1e-3 * (1.0 + w.abs()), "{kind}: {f} is not {w}");
        }
        let short = rt.cast(&x, DType::BF16).unwrap();
        let found = rt.matmul_quantized(&short, &packed).unwrap();
        assert_eq!((found.dtype(), found.shape()), (DType::BF16, &[3, n][..]));
        assert!(found.to_vec::<bf16>().unwrap().iter().all(|y| y.is_finite()));
    }
}

#[test]
fn convolutions_are_sums_over_windows() {
    let rt = runtime();
    let x = bytes(&[2, 4, 6, 5], DType::U8, 13);
    let w = bytes(&[6, 2, 3, 3], DType::I8, 29);
    let bias = Tensor::from_vec((0..6).collect::<Vec<i32>>(), &[6]).unwrap();
    let zero = Tensor::from_vec(vec![5u8], &[1]).unwrap();
    let of_weights = Tensor::from_vec(vec![1i8, -2, 3, 0, 7, 9], &[6]).unwrap();
    for options in [
        ConvOptions::new().groups(2),
        ConvOptions::new().groups(2).padding(1).bias(&bias),
        ConvOptions::new().groups(2).stride(2).paddings(&[(2, 1), (0, 3)]),
        ConvOptions::new().groups(2).dilation(2).padding(2),
    ] {
        let zeros = IntegerOptions::new().a_zero_point(&zero).b_zero_point(&of_weights);
        let found = rt.conv_integer2d(&x, &w, &zeros, &options).unwrap();
        // The same in f64, where zero points are taken off before.
        let real = |t: &Tensor, zero: &Tensor| {
            let (t, zero) = (rt.cast(t, DType::F64).unwrap(), rt.cast(zero, DType::F64).unwrap());
            rt.sub(&t, &zero).unwrap()
        };
        let (xf, wf) = (real(&x, &zero), real(&w, &of_weights.reshape(&[6, 1, 1, 1]).unwrap()));
        let bias = rt.cast(&bias, DType::F64).unwrap();
        let plain = if options.bias.is_some() { options.clone().bias(&bias) } else { options.clone() };
        let wanted = rt.conv2d(&xf, &wf, &plain).unwrap();
        assert_eq!(found.shape(), wanted.shape());
        let found: Vec<f64> = found.to_vec::<i32>().unwrap().into_iter().map(f64::from).collect();
        assert_eq!(found, wanted.to_vec::<f64>().unwrap());
    }
}

#[test]
fn channels_last_convolves_the_same() {
    let rt = runtime();
    let x = bytes(&[1, 3, 5, 4], DType::I8, 13);
    let w = bytes(&[2, 3, 3, 3], DType::I8, 29);
    let x_how = Quantization::per_tensor(QuantType::I8, 0.1, 3).unwrap();
    let w_how = Quantization::per_channel(QuantType::I8, 0, &[0.02, 0.03], &[1, 2]).unwrap();
    let y_how = Quantization::per_tensor(QuantType::U8, 3.0, 100).unwrap();
    let options = ConvOptions::new().padding(1);
    let first = rt.qconv2d(&x, &x_how, &w, &w_how, &y_how, &options).unwrap();
    let last = x.permute(&[0, 2, 3, 1]).unwrap();
    let last = rt.qconv2d(&last, &x_how, &w, &w_how, &y_how, &options.channels_last()).unwrap();
    let back = last.permute(&[0, 3, 1, 2]).unwrap();
    assert_eq!(first.to_vec::<u8>().unwrap(), back.to_vec::<u8>().unwrap());
    assert!(first.to_vec::<u8>().unwrap().iter().any(|&y| y != 100));
}
