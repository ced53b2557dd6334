//! Deep products with a small result: every thread takes some of the steps, then the partial results are added.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_finish::apply;
use super::cpu_packed::{self, Blocking};
use super::cpu_problem::{Epilogue, Gemm, LanesTask, Real, Shared, Split};
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::simd::{Isa, Lanes};
use crate::ops::Activation;

/// Adds partial results, bias and activation into some rows of the result.
struct Sum<T> {
    part: Gemm<T>,
    /// Rows of the first partial result, contiguous, `n` apart.
    partial: *const T,
    /// Distance between partial results.
    apart: usize,
    count: usize,
}

impl<T: Real> LanesTask<T> for Sum<T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let g = &self.part;
        for i in 0..g.m {
            let mut j = 0;
            while j < g.n {
                let lanes = S::LANES.min(g.n - j);
                let from = self.partial.wrapping_add(i * g.n + j);
                // SAFETY: every partial result and the result itself have these elements, and the bias has one for
                // each column or each row.
                unsafe {
                    let mut sum = s.load_first(from, lanes);
                    for p in 1..self.count {
                        sum = s.add(sum, s.load_first(from.wrapping_add(p * self.apart), lanes));
                    }
                    let bias = g.bias_at(i, j);
                    if !bias.is_null() {
                        sum = s.add(
                            sum,
                            if g.epilogue.bias_cs == 0 { s.splat(*bias) } else { s.load_first(bias, lanes) },
                        );
                    }
                    s.store_first(g.c_at(i, j), apply(s, sum, g.epilogue.activation), lanes);
                }
                j += lanes;
            }
        }
    }
}

/// Elements of a partial result, a line apart from the next.
fn apart<T>(g: &Gemm<T>) -> usize {
    (g.m * g.n).next_multiple_of(64) + 64
}

/// Elements of scratch memory that [`run`] needs; `blocking` is that of one thread.
pub(super) fn scratch<T>(g: &Gemm<T>, isa: Isa, blocking: &Blocking, threads: usize) -> usize {
    (apart(g) + cpu_packed::scratch(g, isa, blocking)) * threads
}

/// Computes the product; the result's rows are contiguous and `k` is not zero.
///
/// # Safety
/// The operands are valid, and `scratch` has [`scratch`] elements.
pub(super) unsafe fn run<T: Real>(
    g: &Gemm<T>,
    isa: Isa,
    blocking: &Blocking,
    threads: usize,
    pool: &ThreadPool,
    scratch: *mut T,
) {
    let steps = Split::into(g.k, threads.min(g.k));
    let (apart, own) = (apart(g), cpu_packed::scratch(g, isa, blocking));
    let partial = Shared(scratch);
    let packed = Shared(scratch.wrapping_add(apart * threads));
    pool.run(threads, steps.blocks, &|i| {
        let (from, count) = steps.piece(i);
        let part = Gemm {
            k: count,
            a: g.a.wrapping_offset(from as isize * g.a_cs),
            b: g.b.wrapping_offset(from as isize * g.b_rs),
            c: partial.at(i * apart),
            c_rs: g.n as isize,
            c_cs: 1,
            epilogue: Epilogue {
                bias: std::ptr::null(),
                bias_rs: 0,
                bias_cs: 0,
                activation: Activation::None,
            },
            ..*g
        };
        // SAFETY: these steps exist, and every piece has a partial result and packing memory of its own.
        unsafe { cpu_packed::run(&part, isa, blocking, pool, packed.at(i * own)) };
    });
    let rows = Split::into(g.m, threads.min(g.m));
    pool.run(threads, rows.blocks, &|i| {
        let (row, count) = rows.piece(i);
        let part = g.part(row, count, 0, g.n);
        T::run(isa, Sum { part, partial: partial.at(row * g.n).cast_const(), apart, count: steps.blocks });
    });
}
