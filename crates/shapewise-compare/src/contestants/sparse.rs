//! Sparse products: Shapewise, sprs and faer as their users call them, and MKL's inspector and executor.
#![allow(unsafe_code)]

use super::ours::owned;
use super::{Entrants, OURS, c_blas, writes};
use crate::problem::{Problem, input};
use crate::workload::Task;
use anyhow::{Context, Result};
use faer::sparse::linalg::matmul::sparse_dense_matmul;
use faer::sparse::{SparseRowMat, SymbolicSparseRowMat};
use faer::{Accum, MatMut, MatRef, Par};
use libloading::os::unix::Library;
use ndarray::{ArrayView2, ArrayViewMut2};
use shapewise::ops::sparse::SparseMatrix;
use shapewise::{DType, Runtime, Tensor};
use std::ffi::{c_int, c_void};

/// Where each row starts, for an integer type of a peer's choice.
fn offsets<I: TryFrom<usize>>(n: usize, per_row: usize) -> Vec<I> {
    (0..=n).filter_map(|i| I::try_from(i * per_row).ok()).collect()
}

/// Shapewise's call.
pub fn ours<'a>(problem: &Problem, runtime: &'a Runtime) -> Result<Entrants<'a>> {
    let Task::Sparse { n, per_row, cols } = problem.task else { return Ok(vec![]) };
    let values = Tensor::from_slice(&problem.inputs[input::VALUES], &[n * per_row])?;
    let columns = Tensor::from_vec(problem.columns(), &[n * per_row])?;
    let starts = Tensor::from_vec(offsets::<i64>(n, per_row), &[n + 1])?;
    let a = SparseMatrix::csr(&values, &columns, &starts, [n, n])?;
    let shape: &[usize] = if cols == 1 { &[n] } else { &[n, cols] };
    let x = Tensor::from_slice(&problem.inputs[input::X], shape)?;
    let out = Tensor::zeros(shape, DType::F32)?;
    Ok(vec![owned(OURS, out, move |out| runtime.sparse_matmul_into(&a, &x, out))])
}

/// The peers.
pub fn enter(problem: &Problem, threads: usize) -> Result<Entrants<'_>> {
    let Task::Sparse { n, per_row, cols } = problem.task else { return Ok(vec![]) };
    let (x, values) = (&problem.inputs[input::X], &problem.inputs[input::VALUES]);
    let columns = problem.columns();
    let mut all = Vec::new();
    let symbolic = SymbolicSparseRowMat::new_checked(n, n, offsets::<u32>(n, per_row), None, columns.clone());
    let a = SparseRowMat::<u32, f32>::new(symbolic, values.to_vec());
    let par = if threads == 1 { Par::Seq } else { Par::rayon(threads) };
    all.push(writes("faer", move |out| {
        let out = MatMut::from_row_major_slice_mut(out, n, cols);
        let x = MatRef::from_row_major_slice(&x[..], n, cols);
        sparse_dense_matmul(out, Accum::Replace, a.as_ref(), x, 1.0f32, par);
    }));
    if threads == 1 {
        let a = sprs::CsMatI::<f32, u32>::new(
            (n, n),
            offsets::<u32>(n, per_row),
            columns.clone(),
            values.to_vec(),
        );
        all.push(writes("sprs", move |out| {
            out.fill(0.0);
            if cols == 1 {
                sprs::prod::mul_acc_mat_vec_csr(a.view(), &x[..], out);
            } else {
                let x = ArrayView2::from_shape((n, cols), &x[..]).expect("an operand of n × cols");
                let out = ArrayViewMut2::from_shape((n, cols), out).expect("an answer of n × cols");
                sprs::prod::csr_mulacc_dense_rowmaj(a.view(), x, out);
            }
        }));
    }
    // A library that is not there says so elsewhere.
    if let Some(library) = c_blas::mkl(threads) {
        let columns: Vec<c_int> = columns.iter().map(|&c| c as c_int).collect();
        let mkl = Mkl::new(library, offsets(n, per_row), columns, values, cols)?;
        all.push(writes("mkl-c", move |out| mkl.multiply(x, out)));
    }
    Ok(all)
}

/// Type, triangle and diagonal of a matrix; only the first counts for a general one (20).
#[repr(C)]
#[derive(Clone, Copy)]
struct Description([c_int; 3]);

const GENERAL: Description = Description([20, 0, 0]);
const PLAIN: c_int = 10;
const ROW_MAJOR: c_int = 101;
/// Calls that the inspector may expect.
const MANY: c_int = 1000;

type Create = unsafe extern "C" fn(
    *mut *mut c_void,
    c_int,
    c_int,
    c_int,
    *const c_int,
    *const c_int,
    *const c_int,
    *const f32,
) -> c_int;
type Vector = unsafe extern "C" fn(c_int, f32, *mut c_void, Description, *const f32, f32, *mut f32) -> c_int;
type Matrix = unsafe extern "C" fn(
    c_int,
    f32,
    *mut c_void,
    Description,
    c_int,
    *const f32,
    c_int,
    c_int,
    f32,
    *mut f32,
    c_int,
) -> c_int;

/// A matrix that MKL has looked at.
struct Mkl<'a> {
    handle: *mut c_void,
    cols: usize,
    rows: usize,
    vector: Vector,
    matrix: Matrix,
    /// What the handle points into.
    _parts: (Vec<c_int>, Vec<c_int>, &'a [f32]),
}

impl<'a> Mkl<'a> {
    fn new(
        library: &Library,
        offsets: Vec<c_int>,
        columns: Vec<c_int>,
        values: &'a [f32],
        cols: usize,
    ) -> Result<Self> {
        type VectorHint = unsafe extern "C" fn(*mut c_void, c_int, Description, c_int) -> c_int;
        type MatrixHint = unsafe extern "C" fn(*mut c_void, c_int, Description, c_int, c_int, c_int) -> c_int;
        type Optimise = unsafe extern "C" fn(*mut c_void) -> c_int;
        let rows = offsets.len() - 1;
        let (n, mut handle) = (rows as c_int, std::ptr::null_mut());
        let create: Create = c_blas::symbol(library, &["mkl_sparse_s_create_csr"])?;
        let starts = offsets.as_ptr();
        // SAFETY: the parts are those of a CSR matrix of n rows and live as long as the handle.
        let status = unsafe {
            create(&raw mut handle, 0, n, n, starts, starts.add(1), columns.as_ptr(), values.as_ptr())
        };
        (status == 0).then_some(()).with_context(|| format!("mkl_sparse_s_create_csr gives {status}"))?;
        // SAFETY: the handle was just made; hints and optimisation follow their documented interfaces.
        unsafe {
            if cols == 1 {
                let hint: VectorHint = c_blas::symbol(library, &["mkl_sparse_set_mv_hint"])?;
                hint(handle, PLAIN, GENERAL, MANY);
            } else {
                let hint: MatrixHint = c_blas::symbol(library, &["mkl_sparse_set_mm_hint"])?;
                hint(handle, PLAIN, GENERAL, ROW_MAJOR, cols as c_int, MANY);
            }
            let optimise: Optimise = c_blas::symbol(library, &["mkl_sparse_optimize"])?;
            optimise(handle);
        }
        let vector = c_blas::symbol(library, &["mkl_sparse_s_mv"])?;
        let matrix = c_blas::symbol(library, &["mkl_sparse_s_mm"])?;
        Ok(Self { handle, cols, rows, vector, matrix, _parts: (offsets, columns, values) })
    }

    fn multiply(&self, x: &[f32], out: &mut [f32]) {
        assert!(x.len() == self.rows * self.cols && out.len() == x.len());
        let (x, y, cols) = (x.as_ptr(), out.as_mut_ptr(), self.cols as c_int);
        // SAFETY: operand and answer have as many rows as the square matrix; nothing is aliased.
        let status = unsafe {
            if cols == 1 {
                (self.vector)(PLAIN, 1.0, self.handle, GENERAL, x, 0.0, y)
            } else {
                (self.matrix)(PLAIN, 1.0, self.handle, GENERAL, ROW_MAJOR, x, cols, cols, 0.0, y, cols)
            }
        };
        assert_eq!(status, 0, "MKL's sparse product");
    }
}
