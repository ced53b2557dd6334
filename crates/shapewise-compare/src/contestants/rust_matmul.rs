//! Matrix products by the Rust peers: gemm, faer, matrixmultiply, ndarray, candle, rten-gemm.
#![allow(unsafe_code)]

use super::{Contestant, Entrants, returns, writes};
use crate::problem::{Problem, input};
use crate::workload::Task;
use anyhow::Result;
use candle_core::{Device, Tensor};
use faer::{Accum, MatMut, MatRef, Par};
use ndarray::{ArrayView2, ArrayViewMut2, linalg::general_mat_mul};
use rayon::prelude::*;
use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions, PackedBMatrix};
use rten_tensor::NdTensorView;

/// The sizes of one product, and the inputs of all products of a batch.
#[derive(Clone, Copy)]
pub(super) struct Product<'a> {
    pub batch: usize,
    pub m: usize,
    pub k: usize,
    pub n: usize,
    pub transposed: bool,
    pub a: &'a [f32],
    pub b: &'a [f32],
}

impl<'a> Product<'a> {
    /// The product of a matmul problem; `None` for other problems.
    pub fn of(problem: &'a Problem) -> Option<Self> {
        let Task::Matmul { batch, m, k, n, transposed } = problem.task else { return None };
        let (a, b) = (&problem.inputs[input::X], &problem.inputs[input::Y]);
        Some(Self { batch, m, k, n, transposed, a, b })
    }

    /// Product number `t` of the batch alone.
    pub fn one(&self, t: usize) -> Self {
        let (a, b) = (self.m * self.k, self.k * self.n);
        Self { batch: 1, a: &self.a[t * a..][..a], b: &self.b[t * b..][..b], ..*self }
    }

    /// Strides of B between its rows and between its columns.
    fn b_strides(&self) -> (isize, isize) {
        if self.transposed { (1, self.k as isize) } else { (self.n as isize, 1) }
    }
}

/// A library without a batched call: one product after another, or, with more threads, whole products dealt out to
/// the rayon pool. `one` gets the threads that it may use itself.
fn looped<'a>(
    name: &'static str,
    product: Product<'a>,
    threads: usize,
    one: impl Fn(Product<'_>, &mut [f32], usize) + Sync + 'a,
) -> Box<dyn Contestant + 'a> {
    let size = product.m * product.n;
    writes(name, move |out| {
        if product.batch == 1 {
            one(product, out, threads);
        } else if threads == 1 {
            out.chunks_mut(size).enumerate().for_each(|(t, c)| one(product.one(t), c, 1));
        } else {
            out.par_chunks_mut(size).enumerate().for_each(|(t, c)| one(product.one(t), c, 1));
        }
    })
}

/// All Rust peers that multiply matrices.
pub fn enter(problem: &Problem, threads: usize) -> Result<Entrants<'_>> {
    let Some(product) = Product::of(problem) else { return Ok(vec![]) };
    let executor = GemmExecutor::<f32, f32, f32>::new();
    let mut entrants = vec![
        looped("gemm", product, threads, by_gemm),
        looped("faer", product, threads, by_faer),
        looped("matrixmultiply", product, threads, |p, c, _| by_matrixmultiply(p, c)),
        looped("ndarray", product, threads, |p, c, _| by_ndarray(p, c)),
        by_candle(product)?,
        looped("rten-gemm", product, threads, move |p, c, _| {
            by_rten(&executor, p, GemmInputB::Unpacked(rten_b(p)), c);
        }),
    ];
    if product.batch == 1 && product.m <= 8 {
        // The weight is kept, as a layer does: rows this few are where packing it once pays.
        let executor = GemmExecutor::<f32, f32, f32>::new();
        let packed: PackedBMatrix<f32> = executor.prepack_b(rten_b(product));
        entrants.push(writes("rten-gemm(packed)", move |c| {
            by_rten(&executor, product, GemmInputB::Packed(&packed), c);
        }));
    }
    Ok(entrants)
}

fn by_gemm(p: Product<'_>, c: &mut [f32], threads: usize) {
    let par = if threads == 1 { gemm::Parallelism::None } else { gemm::Parallelism::Rayon(threads) };
    let ((rows, cols), n, k) = (p.b_strides(), p.n as isize, p.k as isize);
    assert!(c.len() == p.m * p.n && p.a.len() == p.m * p.k && p.b.len() == p.k * p.n);
    // SAFETY: the lengths were checked above and the strides stay within them; `c` is not aliased.
    unsafe {
        gemm::gemm(
            p.m,
            p.n,
            p.k,
            c.as_mut_ptr(),
            1,
            n,
            false,
            p.a.as_ptr(),
            1,
            k,
            p.b.as_ptr(),
            cols,
            rows,
            0.0,
            1.0,
            false,
            false,
            false,
            par,
        );
    }
}

fn by_faer(p: Product<'_>, c: &mut [f32], threads: usize) {
    let par = if threads == 1 { Par::Seq } else { Par::rayon(threads) };
    let a = MatRef::from_row_major_slice(p.a, p.m, p.k);
    let b = if p.transposed {
        MatRef::from_column_major_slice(p.b, p.k, p.n).as_dyn_stride()
    } else {
        MatRef::from_row_major_slice(p.b, p.k, p.n).as_dyn_stride()
    };
    let c = MatMut::from_row_major_slice_mut(c, p.m, p.n);
    faer::linalg::matmul::matmul(c, Accum::Replace, a, b, 1.0f32, par);
}

fn by_matrixmultiply(p: Product<'_>, c: &mut [f32]) {
    let ((rows, cols), n, k) = (p.b_strides(), p.n as isize, p.k as isize);
    assert!(c.len() == p.m * p.n && p.a.len() == p.m * p.k && p.b.len() == p.k * p.n);
    let (pa, pb, pc) = (p.a.as_ptr(), p.b.as_ptr(), c.as_mut_ptr());
    // SAFETY: the lengths were checked above and the strides stay within them; `c` is not aliased.
    unsafe { matrixmultiply::sgemm(p.m, p.k, p.n, 1.0, pa, k, 1, pb, rows, cols, 0.0, pc, n, 1) }
}

fn by_ndarray(p: Product<'_>, c: &mut [f32]) {
    let view = |rows, cols, data| ArrayView2::from_shape((rows, cols), data).expect("sizes of the problem");
    let mut c = ArrayViewMut2::from_shape((p.m, p.n), c).expect("sizes of the problem");
    let a = view(p.m, p.k, p.a);
    let b = if p.transposed { view(p.n, p.k, p.b).reversed_axes() } else { view(p.k, p.n, p.b) };
    general_mat_mul(1.0, &a, &b, 0.0, &mut c);
}

fn by_candle<'a>(p: Product<'a>) -> Result<Box<dyn Contestant + 'a>> {
    let shape = |r, c| if p.batch == 1 { vec![r, c] } else { vec![p.batch, r, c] };
    let tensor = |data, r, c| Tensor::from_slice(data, shape(r, c), &Device::Cpu);
    let a = tensor(p.a, p.m, p.k)?;
    let b = if p.transposed { tensor(p.b, p.n, p.k)?.t()? } else { tensor(p.b, p.k, p.n)? };
    Ok(returns("candle", move || a.matmul(&b), super::rust_pointwise::read_candle))
}

fn rten_b(p: Product<'_>) -> NdTensorView<'_, f32, 2> {
    if p.transposed {
        NdTensorView::from_data([p.n, p.k], p.b).transposed()
    } else {
        NdTensorView::from_data([p.k, p.n], p.b)
    }
}

fn by_rten(executor: &GemmExecutor, p: Product<'_>, b: GemmInputB<'_, f32>, c: &mut [f32]) {
    let a = GemmInputA::Unpacked(NdTensorView::from_data([p.m, p.k], p.a));
    executor.gemm(c, a, b, GemmOptions::default()).expect("sizes of the problem");
}
