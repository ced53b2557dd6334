//! Sparse matrices from indices and offsets that nobody checked.

use shapewise::ops::sparse::{SolverOptions, SparseFormat, SparseMatrix};
use shapewise::tensor::Layout;
use shapewise::{Runtime, Tensor, TensorView};

use crate::data::Random;
use crate::{never_panics, no_kernel_panics, wild};

/// Mostly small, now and then what no matrix can have.
fn size(r: &mut Random) -> usize {
    match r.below(30) {
        0 => usize::MAX,
        1 => 1 << 31,
        2 => i32::MAX as usize,
        _ => r.below(9),
    }
}

/// Indices that mostly exist.
fn indices(r: &mut Random, n: usize, below: usize) -> Tensor {
    let wild = r.below(4) == 0;
    let all: Vec<i64> = (0..n)
        .map(|_| if wild && r.below(6) == 0 { r.next() as i64 } else { r.below(below.clamp(1, 99)) as i64 })
        .collect();
    match r.below(3) {
        0 => Tensor::from_vec(all, &[n]).unwrap(),
        1 => Tensor::from_vec(all.iter().map(|&i| i as i32).collect(), &[n]).unwrap(),
        _ => Tensor::from_vec(all.iter().map(|&i| i as u32).collect(), &[n]).unwrap(),
    }
}

/// Offsets that mostly rise from zero to the number of entries.
fn offsets(r: &mut Random, lines: usize, n: usize) -> Tensor {
    let lines = lines.min(50);
    let mut all: Vec<i64> = (0..lines.saturating_sub(1)).map(|_| r.below(n + 1) as i64).collect();
    if r.below(4) != 0 {
        all.sort_unstable();
    }
    all.insert(0, i64::from(r.below(20) == 0));
    if lines > 0 {
        all.push(n as i64 + i64::from(r.below(20) == 0));
    }
    let len = all.len();
    Tensor::from_vec(all, &[len]).unwrap()
}

fn values(r: &mut Random, shape: &[usize]) -> Tensor {
    let len: usize = shape.iter().product();
    let all: Vec<f64> = (0..len).map(|_| wild::number(r)).collect();
    if r.below(2) == 0 {
        Tensor::from_vec(all, shape).unwrap()
    } else {
        Tensor::from_vec(all.iter().map(|&x| x as f32).collect(), shape).unwrap()
    }
}

fn matrix(r: &mut Random) -> shapewise::Result<SparseMatrix> {
    let (shape, n) = ([size(r), size(r)], r.below(20));
    match r.below(5) {
        0 => SparseMatrix::coo(&values(r, &[n]), &indices(r, n, shape[0]), &indices(r, n, shape[1]), shape),
        1 => SparseMatrix::csr(&values(r, &[n]), &indices(r, n, shape[1]), &offsets(r, shape[0], n), shape),
        2 => SparseMatrix::csc(&values(r, &[n]), &indices(r, n, shape[0]), &offsets(r, shape[1], n), shape),
        3 => {
            let block = [r.below(4), r.below(4)];
            let sizes = [shape[0] / block[0].max(1), shape[1] / block[1].max(1)];
            let shape = [0, 1].map(|i| sizes[i].saturating_mul(block[i].max(1)));
            let values = values(r, &[n, block[0], block[1]]);
            SparseMatrix::bsr(&values, &indices(r, n, sizes[1]), &offsets(r, sizes[0], n), shape)
        }
        _ => {
            let (rows, width) = (shape[0].min(9), r.below(4));
            let columns = indices(r, rows * width, shape[1]).reshape(&[rows, width])?;
            SparseMatrix::ell(&values(r, &[rows, width]), &columns, shape)
        }
    }
}

/// A small one.
fn small(r: &mut Random) -> Option<SparseMatrix> {
    (0..20).find_map(|_| matrix(r).ok().filter(|a| a.shape().iter().all(|&n| n < 1000)))
}

fn format(r: &mut Random) -> SparseFormat {
    let block = SparseFormat::Bsr { rows: r.below(4) as u32, columns: r.below(4) as u32 };
    [SparseFormat::Coo, SparseFormat::Csr, SparseFormat::Csc, SparseFormat::Ell, block][r.below(5)]
}

#[test]
fn construction_and_algebra() {
    let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
    never_panics(6_000, |r| {
        let _ = matrix(r);
        let storage = [wild::storage(r), wild::storage(r), wild::storage(r)];
        let views: Vec<TensorView<'_>> = storage.iter().map(|s| wild::view(r, s)).collect();
        let shape = [size(r), size(r)];
        let _ = SparseMatrix::coo(views[0], views[1], views[2], shape);
        let _ = SparseMatrix::csr(views[0], views[1], views[2], shape);
        let _ = SparseMatrix::bsr(views[0], views[1], views[2], shape);
        let _ = (SparseMatrix::ell(views[0], views[1], shape), SparseMatrix::from_dense(views[0]));
        let (Some(a), Some(b)) = (small(r), small(r)) else { return };
        let _ = (a.to_format(format(r)), a.to_dense(), a.transpose(), a.scale(wild::number(r)));
        let _ = (a.add(&b), a.multiply(&b), rt.sparse_product(&a, &b));
    });
}

#[test]
fn products() {
    no_kernel_panics(3_000, |rt, r| {
        let Some(a) = small(r) else { return };
        let storage = [wild::storage(r), wild::storage(r)];
        let mut x = wild::view(r, &storage[0]);
        let bias = wild::view(r, &storage[1]);
        let own = if r.below(2) == 0 { vec![a.shape()[1]] } else { vec![a.shape()[1], r.below(9)] };
        let fitting = values(r, &own);
        if r.below(3) != 0 {
            x = fitting.view();
        }
        let _ = (rt.sparse_matmul(&a, x), rt.sparse_linear(&a, x, bias), rt.sparse_matmul_batch(&a, x));
        let mut out = wild::storage(r);
        let layout: Layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.sparse_matmul_into(&a, x, view);
        }
    });
}

#[test]
fn solvers() {
    no_kernel_panics(1_500, |rt, r| {
        let Some(a) = small(r) else { return };
        let b = values(r, &[a.shape()[0]]);
        let options =
            SolverOptions::new().iterations(r.below(30)).tolerance(wild::number(r)).restart(r.below(5));
        let _ = (rt.conjugate_gradient(&a, &b, &options), rt.bicgstab(&a, &b, &options));
        let _ = (rt.gmres(&a, &b, &options), rt.jacobi(&a, &b, &options), rt.gauss_seidel(&a, &b, &options));
    });
}
