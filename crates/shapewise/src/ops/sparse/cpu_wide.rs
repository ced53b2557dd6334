//! Products with matrices whose rows lie along memory: the sum of a row stays in registers, and rows that come later are asked
//! for ahead of time.
#![allow(unsafe_code)]

use std::ops::Range;

use super::cpu_problem::{Bias, Problem};
use super::{Number, SparseFormat};
use crate::backends::cpu::real::{RealTask, Vectors, prefetch};

/// Entries from the one that is used to the one whose row is asked for: the memory of about as many lines as a core can wait
/// for, at four lines a row.
const AHEAD: usize = 8;

/// Some rows of the output.
pub(super) struct Rows<'a, T> {
    pub problem: &'a Problem<'a, T>,
    pub rows: Range<usize>,
}

/// The entries of a row: the first, how many, and their distance.
#[derive(Clone, Copy)]
struct Entries {
    first: usize,
    count: usize,
    step: usize,
}

impl<T: Number> RealTask<T> for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let p = self.problem;
        for row in self.rows {
            let entries = if p.format == SparseFormat::Ell {
                Entries { first: row, count: p.offsets[row] as usize, step: p.rows }
            } else {
                let first = p.offsets[row] as usize;
                Entries { first, count: p.offsets[row + 1] as usize - first, step: 1 }
            };
            let mut column = 0;
            // SAFETY: columns stay below n, rows of x exist by the promise on indices, and no other task writes this row.
            unsafe {
                while column + 8 * S::LANES <= p.n {
                    band::<T, S, 8>(s, p, row, column, entries);
                    column += 8 * S::LANES;
                }
                if column + 4 * S::LANES <= p.n {
                    band::<T, S, 4>(s, p, row, column, entries);
                    column += 4 * S::LANES;
                }
                while column + S::LANES <= p.n {
                    band::<T, S, 1>(s, p, row, column, entries);
                    column += S::LANES;
                }
                if column < p.n {
                    rest(s, p, row, column, entries);
                }
            }
        }
    }
}

/// `R` registers of neighbouring columns of a row.
///
/// # Safety
/// The columns lie inside the output, indices inside `x`.
#[inline(always)]
unsafe fn band<T: Number, S: Vectors<T>, const R: usize>(
    s: S,
    p: &Problem<'_, T>,
    row: usize,
    column: usize,
    entries: Entries,
) {
    let last = p.indices.len().saturating_sub(1);
    let mut sums = [s.splat(T::ZERO); R];
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = entries.first;
        for _ in 0..entries.count {
            let later =
                p.x_row(*p.indices.get_unchecked((at + AHEAD * entries.step).min(last)) as usize, column);
            let mut line = 0;
            while line < R * S::LANES * size_of::<T>() {
                prefetch(later.cast::<u8>().wrapping_add(line));
                line += 64;
            }
            let x = p.x_row(*p.indices.get_unchecked(at) as usize, column);
            let value = s.splat(*p.values.get_unchecked(at));
            let mut r = 0;
            while r < R {
                sums[r] = s.mul_add(value, s.load(x.add(r * S::LANES)), sums[r]);
                r += 1;
            }
            at += entries.step;
        }
        let y = p.y_row(row, column);
        let bias = p.bias_row(row, column);
        let kind = p.bias_kind();
        let mut r = 0;
        while r < R {
            let sum = match kind {
                Bias::None => sums[r],
                Bias::PerRow => s.add(sums[r], s.splat(*bias)),
                Bias::Each => s.add(sums[r], s.load(bias.add(r * S::LANES))),
            };
            s.store(y.add(r * S::LANES), sum);
            r += 1;
        }
    }
}

/// The columns after the last whole register.
///
/// # Safety
/// As [`band`]; fewer than a register are left.
#[inline(always)]
unsafe fn rest<T: Number, S: Vectors<T>>(
    s: S,
    p: &Problem<'_, T>,
    row: usize,
    column: usize,
    entries: Entries,
) {
    let left = p.n - column;
    let mut sum = s.splat(T::ZERO);
    // SAFETY: the caller's promise.
    unsafe {
        let mut at = entries.first;
        for _ in 0..entries.count {
            let x = p.x_row(*p.indices.get_unchecked(at) as usize, column);
            sum = s.mul_add(s.splat(*p.values.get_unchecked(at)), s.load_first(x, left), sum);
            at += entries.step;
        }
        let bias = p.bias_row(row, column);
        let sum = match p.bias_kind() {
            Bias::None => sum,
            Bias::PerRow => s.add(sum, s.splat(*bias)),
            Bias::Each => s.add(sum, s.load_first(bias, left)),
        };
        s.store_first(p.y_row(row, column), sum, left);
    }
}
