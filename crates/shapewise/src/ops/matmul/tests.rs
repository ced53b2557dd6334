//! Every kernel against plain loops, over odd sizes, strides, types and instruction sets.

use half::{bf16, f16};

use super::Fused;
use super::cpu_reference::apply;
use crate::error::Error;
use crate::ops::{Activation, OperationKind};
use crate::runtime::Runtime;
use crate::tensor::{DType, Element, Layout, Shape, Strides, Tensor, TensorView};

fn runtime(threads: usize) -> Runtime {
    Runtime::builder().threads(threads).without_calibration().build().unwrap()
}

/// Small numbers that differ from element to element.
fn values(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 24) - 0.5
    };
    (0..count).map(|_| next()).collect()
}

/// A matrix that lies in memory in one of several ways; the same elements in each.
fn matrix<T: Element>(
    rows: usize,
    columns: usize,
    way: usize,
    seed: u64,
    make: fn(f64) -> T,
) -> (Vec<T>, Layout) {
    let data = values(rows * columns, seed);
    let (r, c) = (rows as isize, columns as isize);
    // Offset and strides: row-major, column-major, odd pitch, gaps in rows, reversed rows.
    let (offset, rs, cs) = match way {
        0 => (0, c, 1),
        1 => (0, 1, r),
        2 => (3, c + 5, 1),
        3 => (1, 2 * c + 1, 2),
        _ => ((r - 1).max(0) * c, -c, 1),
    };
    let size = (offset + (r - 1).max(0) * rs.max(0) + (c - 1).max(0) * cs + 1).max(r * c);
    let mut memory = vec![make(0.25); size as usize];
    for i in 0..r {
        for j in 0..c {
            memory[(offset + i * rs + j * cs) as usize] = make(data[(i * c + j) as usize]);
        }
    }
    let layout = Layout {
        shape: Shape::new(&[rows, columns]).unwrap(),
        strides: Strides::new(&[rs, cs]).unwrap(),
        offset: offset as usize,
    };
    (memory, layout)
}

fn kernels(rt: &Runtime, dtype: DType) -> Vec<String> {
    let small = Tensor::zeros(&[2, 2], dtype).unwrap();
    let all = rt.kernels().kernels(OperationKind::Matmul);
    let takes = |name: &str| rt.with_kernel(name).is_ok_and(|rt| rt.matmul(&small, &small).is_ok());
    all.iter().map(|k| k.name().to_owned()).filter(|name| takes(name)).collect()
}

struct Case {
    m: usize,
    k: usize,
    n: usize,
    ways: (usize, usize),
    bias: bool,
    activation: Activation,
}

fn check<T: Element + bytemuck::AnyBitPattern>(
    rt: &Runtime,
    case: &Case,
    make: fn(f64) -> T,
    wide: fn(T) -> f64,
    tolerance: f64,
) {
    let &Case { m, k, n, ways, activation, .. } = case;
    let (a, a_layout) = matrix(m, k, ways.0, 1, make);
    let (b, b_layout) = matrix(k, n, ways.1, 2, make);
    let bias: Vec<T> = values(n, 3).into_iter().map(make).collect();
    let a = TensorView::from_slice_strided(&a, a_layout).unwrap();
    let b = TensorView::from_slice_strided(&b, b_layout).unwrap();
    let (av, bv) = (a.to_vec::<T>().unwrap(), b.to_vec::<T>().unwrap());
    let mut want = vec![0.0; m * n];
    for (at, want) in want.iter_mut().enumerate() {
        let (i, j) = (at / n, at % n);
        let sum: f64 = (0..k).map(|p| wide(av[i * k + p]) * wide(bv[p * n + j])).sum();
        *want = apply(activation, sum + if case.bias { wide(bias[j]) } else { 0.0 });
    }
    let fused = Fused::new().activation(activation);
    let fused = if case.bias { fused.bias(bias.as_slice()) } else { fused };
    for name in kernels(rt, T::DTYPE) {
        let forced = rt.with_kernel(&name).unwrap();
        let found = match forced.matmul_fused(a, b, fused) {
            Ok(found) => found.to_vec::<T>().unwrap(),
            Err(Error::NoKernel { .. }) => continue,
            Err(other) => panic!("{name}: {other}"),
        };
        for (at, (found, want)) in found.iter().zip(&want).enumerate() {
            let found = wide(*found);
            let close = (found - want).abs() <= tolerance * (1.0 + (k as f64).sqrt());
            assert!(close, "{name} {m}×{k}×{n} {ways:?} {activation} at {at}: {found}, not {want}");
        }
    }
}

const SIZES: &[(usize, usize, usize)] = &[
    (1, 1, 1),
    (1, 7, 3),
    (2, 3, 17),
    (5, 16, 16),
    (6, 9, 33),
    (7, 1, 8),
    (13, 40, 31),
    (17, 300, 24),
    (33, 65, 1),
    (64, 64, 64),
    (61, 67, 71),
    (3, 600, 5),
    (130, 20, 100),
    // A few rows beside a right operand that is read where it lies, and columns deeper than a block of steps.
    (3, 191, 304),
    (5, 1200, 9),
    // Last panels of one to four vectors, behind whole ones and alone; several passes over several chunks.
    (13, 70, 300),
    (25, 9, 90),
    (7, 33, 48),
    (19, 1100, 350),
];

#[test]
fn all_kernels_agree_over_sizes_and_layouts() {
    for threads in [1, 2] {
        let rt = runtime(threads);
        for &(m, k, n) in SIZES {
            for ways in [(0, 0), (1, 0), (0, 1), (1, 1), (2, 3), (3, 2), (4, 4)] {
                let case = Case { m, k, n, ways, bias: false, activation: Activation::None };
                check::<f32>(&rt, &case, |x| x as f32, f64::from, 1e-6);
                check::<f64>(&rt, &case, |x| x, |x| x, 1e-14);
            }
        }
    }
}

#[test]
fn bias_and_activation_are_fused() {
    let activations = [
        Activation::None,
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.125 },
        Activation::Gelu,
        Activation::Silu,
        Activation::Tanh,
        Activation::Sigmoid,
    ];
    let rt = runtime(2);
    for activation in activations {
        for (m, k, n) in [(7, 5, 19), (20, 300, 40)] {
            let case = Case { m, k, n, ways: (0, 0), bias: true, activation };
            check::<f32>(&rt, &case, |x| x as f32, f64::from, 1e-6);
            check::<f64>(&rt, &case, |x| x, |x| x, 1e-14);
            check::<f16>(&rt, &case, f16::from_f64, f16::to_f64, 2e-3);
            check::<bf16>(&rt, &case, bf16::from_f64, bf16::to_f64, 2e-2);
        }
    }
}

#[test]
fn deep_products_are_gone_through_in_blocks() {
    // More of the right operand than stays near, its rows close to one another: whole, with a pitch, reversed.
    for threads in [1, 2] {
        let rt = runtime(threads);
        for (m, k, n) in [(7, 5000, 9), (13, 1300, 40)] {
            for (ways, bias, activation) in [
                ((0, 0), false, Activation::None),
                ((0, 0), true, Activation::None),
                ((1, 2), true, Activation::Relu),
                ((2, 4), true, Activation::Gelu),
            ] {
                let case = Case { m, k, n, ways, bias, activation };
                check::<f32>(&rt, &case, |x| x as f32, f64::from, 1e-6);
                check::<f64>(&rt, &case, |x| x, |x| x, 1e-14);
            }
        }
    }
}

#[test]
fn large_results_of_few_steps_are_written_along_their_rows() {
    for threads in [1, 2] {
        let rt = runtime(threads);
        let beyond = rt.device_info().caches.l2.unwrap_or(128 << 10) / size_of::<f32>();
        for (m, k, ways, bias) in [
            (7, 5, (0, 0), false),
            (9, 1, (2, 2), false),
            (13, 64, (1, 1), false),
            (6, 33, (2, 3), false),
            (5, 3, (0, 0), true),
        ] {
            // Neither whole chunks of panels nor a whole panel at the end.
            let case = Case { m, k, n: beyond / m + 101, ways, bias, activation: Activation::None };
            check::<f32>(&rt, &case, |x| x as f32, f64::from, 1e-6);
            check::<f64>(&rt, &case, |x| x, |x| x, 1e-14);
        }
    }
}

#[test]
fn batches_broadcast_and_fold() {
    for threads in [1, 2] {
        let rt = runtime(threads);
        let (a, b) = (values(2 * 3 * 4 * 5, 1), values(3 * 5 * 6, 2));
        let left = Tensor::from_vec(a.clone(), &[2, 3, 4, 5]).unwrap();
        let right = Tensor::from_vec(b.clone(), &[3, 5, 6]).unwrap();
        for name in kernels(&rt, DType::F64) {
            let forced = rt.with_kernel(&name).unwrap();
            let c = forced.matmul(&left, &right).unwrap();
            assert_eq!(c.shape(), [2, 3, 4, 6]);
            let c = c.to_vec::<f64>().unwrap();
            for (at, c) in c.iter().enumerate() {
                let (x, i, j) = (at / 24, at / 6 % 4, at % 6);
                let want: f64 = (0..5).map(|p| a[x * 20 + i * 5 + p] * b[x % 3 * 30 + p * 6 + j]).sum();
                assert!((c - want).abs() < 1e-12, "{name} at {at}");
            }
            // A single right operand makes rows of all batches.
            let one = Tensor::from_vec(b[..30].to_vec(), &[5, 6]).unwrap();
            let c = forced.matmul(&left, &one).unwrap().to_vec::<f64>().unwrap();
            let want: f64 = (0..5).map(|p| a[23 * 5 + p] * b[p * 6 + 5]).sum();
            assert!((c[23 * 6 + 5] - want).abs() < 1e-12, "{name}");
        }
    }
}

#[test]
fn outputs_may_have_any_strides() {
    let rt = runtime(2);
    let (a, b) = (values(7 * 9, 1), values(9 * 11, 2));
    let (ta, tb) =
        (Tensor::from_vec(a.clone(), &[7, 9]).unwrap(), Tensor::from_vec(b.clone(), &[9, 11]).unwrap());
    for name in kernels(&rt, DType::F64) {
        let forced = rt.with_kernel(&name).unwrap();
        for step in [1, 2] {
            for transposed in [false, true] {
                let shape = if transposed { [11, 7 * step] } else { [7, 11 * step] };
                let mut whole = Tensor::full(-7.0, &shape).unwrap();
                let mut view = whole.view_mut().unwrap();
                let layout = view.layout().slice(1, 0, shape[1], step as isize).unwrap();
                let layout = if transposed { layout.transpose() } else { layout };
                view = view.with_layout(layout).unwrap();
                match forced.matmul_into(&ta, &tb, view) {
                    Ok(()) => {}
                    Err(Error::NoKernel { .. }) => continue,
                    Err(other) => panic!("{name}: {other}"),
                }
                let found = whole.to_vec::<f64>().unwrap();
                for i in 0..7 {
                    for j in 0..11 {
                        let want: f64 = (0..9).map(|p| a[i * 9 + p] * b[p * 11 + j]).sum();
                        let at = if transposed { j * shape[1] + i * step } else { i * shape[1] + j * step };
                        assert!((found[at] - want).abs() < 1e-12, "{name} {transposed} {step} ({i}, {j})");
                    }
                }
                assert!(
                    step == 1 || found.iter().skip(1).step_by(2).all(|&x| x == -7.0),
                    "{name} wrote into gaps"
                );
            }
        }
    }
}

#[test]
fn nan_and_infinity_spread_even_over_zeros() {
    let rt = runtime(1);
    for name in kernels(&rt, DType::F32) {
        let forced = rt.with_kernel(&name).unwrap();
        let mut a = vec![0.0f32; 20 * 20];
        a[3 * 20 + 4] = f32::INFINITY;
        a[5 * 20 + 6] = f32::NAN;
        let zeros = Tensor::zeros(&[20, 20], DType::F32).unwrap();
        let a = Tensor::from_vec(a, &[20, 20]).unwrap();
        let c = match forced.matmul(&a, &zeros) {
            Ok(c) => c.to_vec::<f32>().unwrap(),
            Err(Error::NoKernel { .. }) => continue,
            Err(other) => panic!("{name}: {other}"),
        };
        for (at, x) in c.iter().enumerate() {
            assert_eq!(x.is_nan(), matches!(at / 20, 3 | 5), "{name} at {at}");
        }
        let relu = Fused::new().activation(Activation::Relu);
        let c = forced.matmul_fused(&a, &zeros, relu).unwrap().to_vec::<f32>().unwrap();
        assert!(c[3 * 20].is_nan() && c[0] == 0.0, "{name}: relu keeps NaN");
    }
}

#[test]
fn vectors_follow_numpy() {
    let rt = runtime(1);
    let v = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3]).unwrap();
    let m = Tensor::from_vec((0..6).map(|x| x as f32).collect(), &[3, 2]).unwrap();
    assert_eq!(rt.matmul(&v, &v).unwrap().to_vec::<f32>().unwrap(), [14.0]);
    assert!(rt.matmul(&v, &v).unwrap().shape().is_empty());
    let row = rt.matmul(&v, &m).unwrap();
    assert_eq!((row.shape(), row.to_vec::<f32>().unwrap()), (&[2][..], vec![16.0, 22.0]));
    let column = rt.matmul(&m.transpose(), &v).unwrap();
    assert_eq!((column.shape(), column.to_vec::<f32>().unwrap()), (&[2][..], vec![16.0, 22.0]));
}

#[test]
fn empty_sizes_give_zeros_and_bias() {
    let rt = runtime(2);
    let (a, b) = (Tensor::zeros(&[3, 0], DType::F32).unwrap(), Tensor::zeros(&[0, 2], DType::F32).unwrap());
    assert_eq!(rt.matmul(&a, &b).unwrap().to_vec::<f32>().unwrap(), [0.0; 6]);
    let bias = [1.0f32, -2.0];
    let fused = Fused::new().bias(bias.as_slice()).activation(Activation::Relu);
    assert_eq!(
        rt.matmul_fused(&a, &b, fused).unwrap().to_vec::<f32>().unwrap(),
        [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]
    );
    let none = rt.matmul(&b, &Tensor::zeros(&[2, 5], DType::F32).unwrap()).unwrap();
    assert_eq!(none.shape(), [0, 5]);
}

#[test]
fn mismatches_are_explained() {
    let rt = runtime(1);
    let f = |shape: &[usize]| Tensor::zeros(shape, DType::F32).unwrap();
    let text = |e: crate::Result<Tensor>| e.unwrap_err().to_string();
    assert!(text(rt.matmul(&f(&[2, 3]), &f(&[4, 5]))).contains("3 columns"));
    assert!(text(rt.matmul(&f(&[2, 2, 3]), &f(&[3, 3, 5]))).contains("matmul"));
    assert!(text(rt.matmul(&f(&[]), &f(&[2]))).contains("scalar"));
    assert!(text(rt.matmul(&f(&[2, 2]), &Tensor::zeros(&[2, 2], DType::F64).unwrap())).contains("f64"));
    let integers = Tensor::zeros(&[2, 2], DType::I32).unwrap();
    assert!(text(rt.matmul(&integers, &integers)).contains("cast"));
    let bias = f(&[3]);
    assert!(text(rt.matmul_fused(&f(&[2, 2]), &f(&[2, 2]), Fused::new().bias(&bias))).contains("bias"));
    assert!(rt.matmul_into(&f(&[2, 3]), &f(&[3, 4]), &mut f(&[4, 2])).is_err());
}

#[test]
fn prepared_products_are_the_same_and_check_what_they_get() {
    let rt = runtime(1);
    let tensor = |shape: &[usize], seed| {
        let count = shape.iter().product();
        let numbers: Vec<f32> = values(count, seed).into_iter().map(|x| x as f32).collect();
        Tensor::from_slice(&numbers, shape).unwrap()
    };
    let bias = tensor(&[5], 9);
    for (left, right, result) in [
        (&[3, 4][..], &[4, 5][..], &[3, 5][..]),
        (&[4], &[4, 5], &[5]),
        (&[2, 3, 4], &[4, 5], &[2, 3, 5]),
        (&[3, 4], &[2, 4, 5], &[2, 3, 5]),
    ] {
        let (a, b) = (tensor(left, 1), tensor(right, 2));
        let mut out = Tensor::zeros(result, DType::F32).unwrap();
        let fused = Fused::new().bias(&bias).activation(Activation::Relu);
        let product = rt.prepare_matmul(&a, &b, &fused, &mut out).unwrap();
        let (c, d, other) = (tensor(left, 3), tensor(right, 4), tensor(&[5], 5));
        product.run(&[&c, &d, &other], &mut out).unwrap();
        let fused = Fused::new().bias(&other).activation(Activation::Relu);
        let expected = rt.matmul_fused(&c, &d, fused).unwrap();
        assert_eq!(out.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
        assert!(product.run(&[&c, &d], &mut out).is_err());
        assert!(product.run(&[&c, &tensor(&[4, 6], 1), &other], &mut out).is_err());
    }
    let a = tensor(&[2, 2], 1);
    let wrong = rt.prepare_matmul(&a, &a, &Fused::new(), &mut Tensor::zeros(&[3, 2], DType::F32).unwrap());
    assert!(matches!(wrong, Err(Error::ShapeMismatch { .. })));
}

#[test]
fn calls_that_are_known_do_not_let_wrong_ones_through() {
    let rt = runtime(1);
    let of = |rows: usize, columns: usize, dtype| Tensor::zeros(&[rows, columns], dtype).unwrap();
    let f32s = |rows, columns| of(rows, columns, DType::F32);
    for _ in 0..3 {
        rt.matmul_into(&f32s(4, 6), &f32s(6, 8), &mut f32s(4, 8)).unwrap();
        rt.matmul_into(&f32s(4, 8), &f32s(8, 8), &mut f32s(4, 8)).unwrap();
        let doubles = of(6, 8, DType::F64);
        assert!(rt.matmul_into(&f32s(4, 6), &f32s(8, 8), &mut f32s(4, 8)).is_err());
        assert!(rt.matmul_into(&f32s(4, 6), &f32s(6, 8), &mut f32s(8, 4)).is_err());
        assert!(rt.matmul_into(&f32s(4, 6), &f32s(6, 8), &mut of(4, 8, DType::F64)).is_err());
        assert!(rt.matmul_into(&f32s(4, 6), &doubles, &mut f32s(4, 8)).is_err());
        let bias = Tensor::zeros(&[8], DType::F32).unwrap();
        let fused = Fused::new().bias(&bias);
        rt.matmul_fused_into(&f32s(4, 6), &f32s(6, 8), fused, &mut f32s(4, 8)).unwrap();
        assert!(rt.matmul_fused_into(&f32s(4, 6), &f32s(6, 4), fused, &mut f32s(4, 4)).is_err());
    }
}

#[test]
fn rows_of_equal_products_do_not_let_wrong_ones_through() {
    let rt = runtime(1);
    let values = |n: usize| (0..n).map(|i| i as f32).collect::<Vec<_>>();
    let (a, b) =
        (Tensor::from_vec(values(6), &[2, 3]).unwrap(), Tensor::from_vec(values(6), &[3, 2]).unwrap());
    let turned = Tensor::from_vec(values(6), &[2, 3]).unwrap().transpose();
    let mut out = Tensor::zeros(&[2, 2], DType::F32).unwrap();
    for round in 0..100 {
        rt.matmul_into(&a, &b, &mut out).unwrap();
        assert_eq!(out.to_vec::<f32>().unwrap(), [10.0, 13.0, 28.0, 40.0]);
        if round % 40 < 30 {
            continue;
        }
        rt.matmul_into(&a, &turned, &mut out).unwrap();
        assert_eq!(out.to_vec::<f32>().unwrap(), [5.0, 14.0, 14.0, 50.0]);
        assert!(rt.matmul_into(&a, &a, &mut out).is_err());
        assert!(rt.matmul_into(&a, &b, &mut Tensor::zeros(&[4], DType::F32).unwrap()).is_err());
        assert!(rt.matmul_into(&a, &b, &mut Tensor::zeros(&[2, 2], DType::F64).unwrap()).is_err());
    }
}
