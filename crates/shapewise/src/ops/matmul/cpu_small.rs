//! Small products: both operands where they lie, nothing to prepare.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_finish::activate_rows;
use super::cpu_micro::{self as micro, Left, Right, Target, tile_of};
use super::cpu_problem::{Gemm, LanesTask, Real, Split};
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::simd::{Isa, Lanes};

struct Whole<'a, T>(Isa, &'a Gemm<T>);

impl<T: Real> LanesTask<T> for Whole<'_, T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let g = self.1;
        let split = Split::at_most(g.m, const { tile_of::<T, S>().0 });
        let target = Target {
            c: g.c,
            rs: g.c_rs,
            columns: g.n,
            accumulate: false,
            stream: false,
            bias: g.epilogue.bias,
            bias_rs: g.epilogue.bias_rs,
            bias_cs: g.epilogue.bias_cs,
            activation: g.epilogue.activation,
        };
        let left = Left { a: g.a, rs: g.a_rs, cs: g.a_cs };
        // SAFETY: whoever made the product gave valid operands with contiguous rows of `b` and `c`.
        unsafe {
            micro::rows(s, split, g.k, left, Right { b: g.b, rs: g.b_rs }, target);
            activate_rows(self.0, g.c, g.c_rs, g.m, g.n, g.epilogue.activation);
        }
    }
}

/// Computes the product on up to `threads` threads; rows of `b` and of the result are contiguous, `k` is not zero.
///
/// # Safety
/// The operands are valid.
pub(super) unsafe fn run<T: Real>(g: &Gemm<T>, isa: Isa, threads: usize, pool: &ThreadPool) {
    if threads <= 1 {
        return T::run(isa, Whole(isa, g));
    }
    let rows = Split::into(g.m, threads);
    pool.run(threads, rows.blocks, &|i| {
        let (row, count) = rows.piece(i);
        T::run(isa, Whole(isa, &g.part(row, count, 0, g.n)));
    });
}
