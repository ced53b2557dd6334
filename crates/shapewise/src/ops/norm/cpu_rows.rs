//! Layer and RMS norm of rows that are runs of memory: one read, one write, statistics in the first cache.
#![allow(unsafe_code)]

use std::ops::Range;

use super::cpu_normalise::{Weighted, normalise};
use crate::backends::cpu::real::{Real, RealTask, Vectors};
use crate::backends::cpu::simd::Float;
use crate::ops::reduce::cpu_fold::{Add, AddSquare, BLOCK, fold_block, fold_quad};
use crate::ops::reduce::cpu_moments::{Moments, moments_by_sum, moments_of_block};
use crate::ops::walk::{Axis, offset};

/// Four rows up to this many bytes are read side by side: they stay in the first cache, and four streams of memory are
/// faster than one.
const SHORT: usize = 4096;

/// Rows to be normalised.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T: Real> {
    pub kept: &'a [Axis],
    pub size: usize,
    pub x: *const T,
    pub y: *mut T,
    pub scale: *const T::Wide,
    pub bias: *const T::Wide,
    pub eps: f64,
    pub rms: bool,
    pub stream: bool,
}

// SAFETY: threads write disjoint rows of the output and only read the inputs; all outlive the call.
unsafe impl<T: Real> Sync for Rows<'_, T> {}

/// Some of the rows.
pub(super) struct Part<'a, T: Real> {
    pub rows: Rows<'a, T>,
    pub range: Range<usize>,
}

impl<T: Real> RealTask<T> for Part<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let Range { start, end } = self.range;
        let rows = &self.rows;
        let mut rest = start;
        if rows.size * size_of::<T>() <= SHORT {
            let quarter = (end - start) / 4;
            for i in start..start + quarter {
                rows.four(s, [i, i + quarter, i + 2 * quarter, i + 3 * quarter]);
            }
            rest += 4 * quarter;
        }
        for row in rest..end {
            let (mean, variance) = rows.statistics(s, rows.input(row));
            rows.write(s, row, mean, variance);
        }
        s.fence();
    }
}

impl<T: Real> Rows<'_, T> {
    #[inline(always)]
    fn input(&self, row: usize) -> &[T] {
        let at = offset(self.kept, row, |a| a.input);
        // SAFETY: the rows' elements are valid and side by side (see `Rows`' makers).
        unsafe { std::slice::from_raw_parts(self.x.offset(at), self.size) }
    }

    #[inline(always)]
    fn four<S: Vectors<T>>(&self, s: S, rows: [usize; 4]) {
        let x = rows.map(|row| self.input(row));
        let n = self.size as f64;
        if self.rms {
            let squares = fold_quad(s, AddSquare, x);
            for (row, square) in rows.into_iter().zip(squares) {
                self.write(s, row, 0.0, square.to_f64() / n);
            }
        } else {
            let sums = fold_quad(s, Add, x);
            for k in 0..4 {
                let moments = moments_by_sum(s, x[k], sums[k].to_f64());
                self.write(s, rows[k], moments.mean, moments.squares / n);
            }
        }
    }

    /// Mean and variance; for RMS zero and the mean square.
    #[inline(always)]
    fn statistics<S: Vectors<T>>(&self, s: S, x: &[T]) -> (f64, f64) {
        let n = self.size as f64;
        if self.rms {
            let mut squares = 0.0;
            // Loops and not closures, which would be compiled without the instruction set.
            for x in x.chunks(BLOCK) {
                squares += fold_block(s, AddSquare, x).to_f64();
            }
            return (0.0, squares / n);
        }
        let mut moments = Moments::default();
        for x in x.chunks(BLOCK) {
            moments = moments.merge(moments_of_block(s, x));
        }
        (moments.mean, moments.squares / n)
    }

    #[inline(always)]
    fn write<S: Vectors<T>>(&self, s: S, row: usize, mean: f64, variance: f64) {
        let factor = T::Wide::from_f64(1.0 / (variance + self.eps).sqrt());
        let step = Weighted { mean: T::Wide::from_f64(mean), factor, scale: self.scale, bias: self.bias };
        let at = offset(self.kept, row, |a| a.output);
        // SAFETY: the row is valid in both operands, and the weights have an element for each of it.
        unsafe { normalise(s, self.input(row).as_ptr(), self.y.offset(at), self.size, &step, self.stream) };
    }
}
