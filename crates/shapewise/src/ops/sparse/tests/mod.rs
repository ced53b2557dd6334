//! Formats, algebra and products against dense matrices, and every error that construction can give.

mod errors;
mod solving;

use super::*;
use crate::Runtime;
use crate::ops::testing::{agree, runtime};
use crate::tensor::{DType, Tensor};
use proptest::prelude::*;

pub(super) const FORMATS: [SparseFormat; 6] = [
    SparseFormat::Csr,
    SparseFormat::Coo,
    SparseFormat::Csc,
    SparseFormat::Ell,
    SparseFormat::Bsr { rows: 1, columns: 1 },
    SparseFormat::Bsr { rows: 2, columns: 3 },
];

/// A matrix from entries as they come.
pub(super) fn coo(shape: [usize; 2], entries: &[(usize, usize, f64)]) -> SparseMatrix {
    let n = [entries.len()];
    let values = Tensor::from_vec(entries.iter().map(|e| e.2).collect(), &n).unwrap();
    let rows = Tensor::from_vec(entries.iter().map(|e| e.0 as i64).collect(), &n).unwrap();
    let columns = Tensor::from_vec(entries.iter().map(|e| e.1 as i64).collect(), &n).unwrap();
    SparseMatrix::coo(&values, &rows, &columns, shape).unwrap()
}

/// Random places and small whole numbers, so that sums are exact; duplicates and rows without entries happen.
fn any_matrix(rows: usize, columns: usize) -> impl Strategy<Value = SparseMatrix> {
    let entry = (0..rows.max(1), 0..columns.max(1), -4i32..5);
    prop::collection::vec(entry, 0..60).prop_map(move |mut entries| {
        if rows == 0 || columns == 0 {
            entries.clear();
        }
        let entries: Vec<_> = entries.into_iter().map(|(r, c, v)| (r, c, f64::from(v))).collect();
        coo([rows, columns], &entries)
    })
}

fn dense(a: &SparseMatrix) -> Vec<f64> {
    a.to_dense().unwrap().to_vec::<f64>().unwrap()
}

fn vector(rt: &Runtime, a: &SparseMatrix, x: &[f64]) -> Vec<f64> {
    let x = Tensor::from_slice(x, &[x.len()]).unwrap();
    rt.sparse_matmul(a, &x).unwrap().to_vec::<f64>().unwrap()
}

/// The formats that fit the shape.
fn formats(shape: [usize; 2]) -> impl Iterator<Item = SparseFormat> {
    FORMATS.into_iter().filter(move |f| match f {
        SparseFormat::Bsr { rows, columns } => {
            shape[0].is_multiple_of(*rows as usize) && shape[1].is_multiple_of(*columns as usize)
        }
        _ => true,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]

    #[test]
    fn formats_go_round(a in (0usize..13, 0usize..13).prop_flat_map(|(m, n)| any_matrix(m, n))) {
        let wanted = dense(&a);
        for from in formats(a.shape()) {
            let first = a.to_format(from).unwrap();
            prop_assert_eq!(first.format(), from);
            prop_assert_eq!(&dense(&first), &wanted, "{}", from);
            for to in formats(a.shape()) {
                let second = first.to_format(to).unwrap();
                prop_assert_eq!(&dense(&second), &wanted, "{} to {}", from, to);
            }
            let turned = first.transpose().unwrap();
            prop_assert_eq!(turned.shape(), [a.shape()[1], a.shape()[0]]);
            prop_assert_eq!(dense(&turned), a.to_dense().unwrap().transpose().to_vec::<f64>().unwrap(), "{}", from);
            prop_assert_eq!(&dense(&turned.transpose().unwrap()), &wanted);
        }
    }

    #[test]
    fn products_associate_and_distribute(
        (a, b, c, x) in (1usize..12, 1usize..12, 1usize..12).prop_flat_map(|(m, k, n)| (
            any_matrix(m, k), any_matrix(k, n), any_matrix(k, n), prop::collection::vec(-3i32..4, n)))
    ) {
        let rt = runtime();
        let x: Vec<f64> = x.into_iter().map(f64::from).collect();
        let bx = vector(&rt, &b, &x);
        let product = rt.sparse_product(&a, &b).unwrap();
        prop_assert_eq!(vector(&rt, &product, &x), vector(&rt, &a, &bx));
        // (A B)ᵀ = Bᵀ Aᵀ
        let turned = rt.sparse_product(&b.transpose().unwrap(), &a.transpose().unwrap()).unwrap();
        prop_assert_eq!(dense(&turned.transpose().unwrap()), dense(&product));
        // (B + C) x = B x + C x
        let sum = vector(&rt, &b.add(&c).unwrap(), &x);
        let parts: Vec<f64> = bx.iter().zip(vector(&rt, &c, &x)).map(|(p, q)| p + q).collect();
        prop_assert_eq!(sum, parts);
        let each: Vec<f64> = dense(&b).iter().zip(dense(&c)).map(|(p, q)| p * q).collect();
        prop_assert_eq!(dense(&b.multiply(&c).unwrap()), each);
        let pairs = || dense(&b).into_iter().zip(dense(&c));
        let by = |f: fn(f64, f64) -> f64| -> Vec<f64> { pairs().map(|(p, q)| f(p, q)).collect() };
        prop_assert_eq!(dense(&b.subtract(&c).unwrap()), by(|p, q| p - q));
        prop_assert_eq!(dense(&b.maximum(&c).unwrap()), by(f64::max));
        prop_assert_eq!(dense(&b.minimum(&c).unwrap()), by(f64::min));
        // Everything that is not zero has an entry, and nothing else is touched.
        let moved: Vec<f64> = dense(&b).iter().map(|&p| if p == 0.0 { 0.0 } else { p.abs() + 3.0 }).collect();
        let entries = |x: f64| if x == 0.0 { 0.0 } else { x.abs() + 3.0 };
        prop_assert_eq!(dense(&b.map(entries).unwrap()), moved);
        let twice: Vec<f64> = dense(&b).iter().map(|p| 2.0 * p).collect();
        prop_assert_eq!(dense(&b.scale(2.0).unwrap()), twice);
    }

    #[test]
    fn every_format_multiplies_like_the_dense_matrix(
        (a, n, x) in (0usize..9, 0usize..9, 1usize..20).prop_flat_map(|(m, k, n)| (
            any_matrix(2 * m, 3 * k), Just(n), prop::collection::vec(-3i32..4, 3 * k * n)))
    ) {
        let rt = runtime();
        let [m, k] = a.shape();
        let x = Tensor::from_vec(x.into_iter().map(f64::from).collect(), &[k, n]).unwrap();
        let bias = Tensor::from_vec((0..m).map(|i| i as f64).collect(), &[m, 1]).unwrap();
        let wanted = rt.add(&rt.matmul(&a.to_dense().unwrap(), &x).unwrap(), &bias).unwrap();
        let wanted = wanted.to_vec::<f64>().unwrap();
        for format in formats(a.shape()) {
            let a = a.to_format(format).unwrap();
            let y = rt.sparse_linear(&a, &x, &bias).unwrap();
            prop_assert_eq!(&y.to_vec::<f64>().unwrap(), &wanted, "{}", format);
            let batch = rt.sparse_matmul_batch(&a, x.transpose().view()).unwrap();
            let plain = rt.sparse_matmul(&a, &x).unwrap();
            prop_assert_eq!(batch.transpose().to_vec::<f64>().unwrap(), plain.to_vec::<f64>().unwrap(), "{}", format);
        }
    }
}

#[test]
fn every_kernel_agrees_with_the_reference() {
    let rt = runtime();
    let mut ran = 0;
    let skewed: Vec<_> =
        (0..600).map(|i| (if i % 3 == 0 { 7 } else { i % 40 }, i * 7 % 60, i as f64)).collect();
    for entries in [skewed, (0..200).map(|i| (i % 40, i % 60, 1.0)).collect(), Vec::new()] {
        let a = coo([40, 60], &entries);
        for format in formats(a.shape()) {
            for n in [1, 2, 19, 64] {
                let a = a.to_format(format).unwrap();
                for dtype in [DType::F64, DType::F32] {
                    let a = if dtype == DType::F64 { a.clone() } else { single(&a) };
                    let x = Tensor::zeros(&[60, n], dtype).unwrap();
                    let bias = Tensor::zeros(&[n], dtype).unwrap();
                    for workload in rt.workloads(|rt| rt.sparse_linear(&a, &x, &bias)).unwrap() {
                        ran += agree(&rt, &workload);
                    }
                    let x = Tensor::zeros(&[n, 60], dtype).unwrap();
                    for workload in rt.workloads(|rt| rt.sparse_matmul_batch(&a, &x)).unwrap() {
                        ran += agree(&rt, &workload);
                    }
                }
            }
        }
    }
    assert!(ran > 300, "only {ran} combinations ran");
}

/// The same matrix in f32.
fn single(a: &SparseMatrix) -> SparseMatrix {
    let numbers: Vec<f32> = dense(a).iter().map(|&x| x as f32).collect();
    let whole = Tensor::from_vec(numbers, &a.shape()).unwrap();
    SparseMatrix::from_dense(&whole).unwrap().to_format(a.format()).unwrap()
}

#[test]
fn places_that_are_not_used_do_not_spread_infinities() {
    let rt = runtime();
    let a = coo([3, 3], &[(0, 1, 1.0), (0, 2, 1.0), (2, 1, 2.0)]);
    for format in formats([3, 3]) {
        let y = vector(&rt, &a.to_format(format).unwrap(), &[f64::INFINITY, 1.0, 2.0]);
        assert_eq!(y, [3.0, 0.0, 2.0], "{format}");
    }
}

#[test]
fn extremes_and_functions_of_numbers_that_are_none() {
    let of = |x: [f32; 4]| SparseMatrix::from_dense(&Tensor::from_vec(x.to_vec(), &[2, 2]).unwrap()).unwrap();
    let (a, b) = (of([f32::NAN, -2.0, 0.0, 5.0]), of([1.0, 0.0, f32::NAN, f32::INFINITY]));
    for (found, wanted) in [(a.maximum(&b), [0.0, f32::INFINITY]), (a.minimum(&b), [-2.0, 5.0])] {
        let found = found.unwrap().to_dense().unwrap().to_vec::<f32>().unwrap();
        assert!(found[0].is_nan() && found[2].is_nan());
        assert_eq!([found[1], found[3]], wanted);
    }
    // Padding of ELL is no entry, so it is not mapped.
    let ell = of([1.0, 2.0, 0.0, 3.0]).to_format(SparseFormat::Ell).unwrap().map(|x| x + 1.0).unwrap();
    assert_eq!(ell.to_dense().unwrap().to_vec::<f32>().unwrap(), [2.0, 3.0, 0.0, 4.0]);
    assert_eq!(ell.format(), SparseFormat::Ell);
}

#[test]
fn entries_that_are_zero_are_kept() {
    let a = coo([2, 2], &[(0, 0, 0.0), (1, 1, 2.0), (1, 1, -2.0)]);
    assert_eq!(a.nonzeros(), 2);
    for format in [SparseFormat::Csr, SparseFormat::Csc, SparseFormat::Ell] {
        assert_eq!(a.to_format(format).unwrap().nonzeros(), 2);
    }
    assert_eq!(SparseMatrix::from_dense(&a.to_dense().unwrap()).unwrap().nonzeros(), 0);
}

#[test]
fn transposes_of_compressed_formats_share_memory() {
    let a = coo([2, 3], &[(0, 2, 1.0), (1, 0, 2.0)]).to_format(SparseFormat::Csr).unwrap();
    let turned = a.transpose().unwrap();
    assert_eq!(turned.format(), SparseFormat::Csc);
    let address = |a: &SparseMatrix| a.values().as_slice::<f64>().unwrap().as_ptr();
    assert_eq!(address(&a), address(&turned));
}

#[test]
fn large_products_run_on_all_threads() {
    let rt = runtime();
    let n = 400;
    let entries: Vec<_> = (0..n * 12).map(|i| (i % n, (i * 37 + i / n) % n, 1.0)).collect();
    let a = coo([n, n], &entries);
    let product = rt.sparse_product(&a, &a).unwrap();
    let wanted = rt.matmul(&a.to_dense().unwrap(), &a.to_dense().unwrap()).unwrap();
    assert_eq!(dense(&product), wanted.to_vec::<f64>().unwrap());
}
