//! Packed products against plain loops, over sizes, types and instruction sets.

use half::{bf16, f16};

use super::*;
use crate::ops::{Activation, OperationKind};
use crate::tensor::Element;

fn values(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24) - 0.5
    };
    (0..count).map(|_| next()).collect()
}

fn runtime(threads: usize) -> Runtime {
    Runtime::builder().threads(threads).without_calibration().build().unwrap()
}

/// `tolerance` is relative to the square root of the number of steps.
fn check<T: Element>(
    (m, k, n): (usize, usize, usize),
    stored: DType,
    make: fn(f64) -> T,
    wide: fn(T) -> f64,
    tolerance: f64,
) {
    let (a, b) = (values(m * k, 1), values(k * n, 2));
    let bias: Vec<f64> = values(n, 3);
    let make_all = |x: &[f64]| x.iter().map(|&x| make(x)).collect::<Vec<T>>();
    let (ta, tbias) = (make_all(&a), make_all(&bias));
    let x = Tensor::from_vec(ta.clone(), &[m, k]).unwrap();
    for transposed in [false, true] {
        let weights = if transposed {
            let data: Vec<f64> = (0..n * k).map(|at| b[at % k.max(1) * n + at / k.max(1)]).collect();
            Tensor::from_vec(make_all(&data), &[n, k]).unwrap().transpose()
        } else {
            Tensor::from_vec(make_all(&b), &[k, n]).unwrap()
        };
        for threads in [1, 2] {
            let rt = runtime(threads);
            let packed = rt.pack_rhs_as(&weights, stored).unwrap();
            assert_eq!((packed.shape(), packed.dtype(), packed.stored()), ([k, n], T::DTYPE, stored));
            let fused = Fused::new().bias(tbias.as_slice()).activation(Activation::Relu);
            for kernel in rt.kernels().kernels(OperationKind::PackedMatmul) {
                let forced = rt.with_kernel(kernel.name()).unwrap();
                let found = match forced.matmul_packed_fused(&x, &packed, fused) {
                    Ok(found) => found.to_vec::<T>().unwrap(),
                    Err(Error::NoKernel { .. }) => continue,
                    Err(other) => panic!("{}: {other}", kernel.name()),
                };
                for (at, found) in found.into_iter().enumerate() {
                    let (i, j) = (at / n, at % n);
                    let sum: f64 = (0..k).map(|p| wide(ta[i * k + p]) * wide(make(b[p * n + j]))).sum();
                    let want = (sum + wide(tbias[j])).max(0.0);
                    let close = (wide(found) - want).abs() <= tolerance * (1.0 + (k as f64).sqrt());
                    assert!(
                        close,
                        "{} {m}×{k}×{n} {stored} at {at}: {}, not {want}",
                        kernel.name(),
                        wide(found)
                    );
                }
            }
        }
    }
}

#[test]
fn packed_products_agree_over_sizes_and_types() {
    for size in
        [(1, 1, 1), (1, 40, 33), (3, 7, 16), (8, 300, 50), (13, 600, 31), (110, 20, 40), (5, 0, 3), (2, 3, 0)]
    {
        check::<f32>(size, DType::F32, |x| x as f32, f64::from, 1e-6);
        check::<f64>(size, DType::F64, |x| x, |x| x, 1e-14);
        check::<f16>(size, DType::F16, f16::from_f64, f16::to_f64, 2e-3);
        check::<bf16>(size, DType::BF16, bf16::from_f64, bf16::to_f64, 2e-2);
        // Weights rounded on request: half an ulp of the stored type for every product.
        check::<f32>(size, DType::F16, |x| x as f32, f64::from, 1e-3);
        check::<f32>(size, DType::BF16, |x| x as f32, f64::from, 1e-2);
    }
}

#[test]
fn batches_and_rows_are_taken_and_wrong_operands_refused() {
    let rt = runtime(1);
    let weights = Tensor::from_vec(values(12, 1), &[3, 4]).unwrap();
    let packed = rt.pack_rhs(&weights).unwrap();
    let x = Tensor::from_vec(values(24, 2), &[2, 4, 3]).unwrap();
    let batch = rt.matmul_packed(&x, &packed).unwrap();
    assert_eq!(batch.shape(), [2, 4, 4]);
    // Axes that do not follow one another are copied first.
    let moved = x.permute(&[1, 0, 2]).unwrap();
    let other = rt.matmul_packed(&moved, &packed).unwrap();
    assert_eq!(other.permute(&[1, 0, 2]).unwrap().to_vec::<f64>().unwrap(), batch.to_vec::<f64>().unwrap());
    let row = Tensor::from_vec(values(3, 2), &[3]).unwrap();
    assert_eq!(
        rt.matmul_packed(&row, &packed).unwrap().to_vec::<f64>().unwrap(),
        batch.to_vec::<f64>().unwrap()[..4]
    );

    assert!(matches!(rt.matmul_packed(&weights, &packed), Err(Error::ShapeMismatch { .. })));
    let narrow = Tensor::zeros(&[1, 3], DType::F32).unwrap();
    assert!(matches!(rt.matmul_packed(&narrow, &packed), Err(Error::DTypeMismatch { .. })));
    assert!(matches!(rt.pack_rhs_as(&weights, DType::BF16), Err(Error::InvalidArgument { .. })));
    assert!(matches!(rt.pack_rhs(&row), Err(Error::ShapeMismatch { .. })));
    let integers = Tensor::zeros(&[2, 2], DType::I32).unwrap();
    assert!(matches!(rt.pack_rhs(&integers), Err(Error::UnsupportedDType { .. })));
}
