//! BSR: the rows of a block together with the rows of the dense operand that it covers.
#![allow(unsafe_code)]

use std::ops::Range;

use super::Number;
use super::cpu_problem::{Bias, Problem};
use crate::backends::cpu::real::{RealTask, Vectors};

/// Some rows of blocks.
pub(super) struct Part<'a, T> {
    pub problem: &'a Problem<'a, T>,
    pub lines: Range<usize>,
}

impl<T: Number> RealTask<T> for Part<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let p = self.problem;
        let [r, _] = p.block();
        for line in self.lines {
            let blocks = p.offsets[line] as usize..p.offsets[line + 1] as usize;
            for inner in 0..r {
                let row = line * r + inner;
                // SAFETY: columns stay below n, rows of x exist by the promise on indices, and no other task writes this row.
                unsafe {
                    if p.x_step[0] == 1 && p.n == 1 {
                        *p.y_row(row, 0) = along(s, p, inner, blocks.clone()) + p.bias_at(row, 0);
                        continue;
                    }
                    let mut column = 0;
                    while column + 4 * S::LANES <= p.n {
                        across::<T, S, 4>(s, p, row, inner, column, blocks.clone());
                        column += 4 * S::LANES;
                    }
                    while column + S::LANES <= p.n {
                        across::<T, S, 1>(s, p, row, inner, column, blocks.clone());
                        column += S::LANES;
                    }
                    if column < p.n {
                        rest(s, p, row, inner, column, blocks.clone());
                    }
                }
            }
        }
    }
}

/// A row of blocks times a vector: registers along the row of each block.
///
/// # Safety
/// The blocks exist and lie inside `x`, whose elements are neighbours.
#[inline(always)]
unsafe fn along<T: Number, S: Vectors<T>>(s: S, p: &Problem<'_, T>, inner: usize, blocks: Range<usize>) -> T {
    let [r, c] = p.block();
    let mut lanes = s.splat(T::ZERO);
    // SAFETY: the caller's promise.
    unsafe {
        for block in blocks {
            let values = p.values.as_ptr().add((block * r + inner) * c);
            let x = p.x.add(*p.indices.get_unchecked(block) as usize * c);
            let mut at = 0;
            while at + S::LANES <= c {
                lanes = s.mul_add(s.load(values.add(at)), s.load(x.add(at)), lanes);
                at += S::LANES;
            }
            if at < c {
                let left = c - at;
                lanes = s.mul_add(s.load_first(values.add(at), left), s.load_first(x.add(at), left), lanes);
            }
        }
    }
    s.reduce_add(lanes)
}

/// `R` registers of neighbouring columns of a row.
///
/// # Safety
/// The blocks exist and lie inside `x`, the columns inside the output.
#[inline(always)]
unsafe fn across<T: Number, S: Vectors<T>, const R: usize>(
    s: S,
    p: &Problem<'_, T>,
    row: usize,
    inner: usize,
    column: usize,
    blocks: Range<usize>,
) {
    let [r, c] = p.block();
    let mut sums = [s.splat(T::ZERO); R];
    // SAFETY: the caller's promise.
    unsafe {
        for block in blocks {
            let values = p.values.as_ptr().add((block * r + inner) * c);
            let first = *p.indices.get_unchecked(block) as usize * c;
            for at in 0..c {
                let (value, x) = (s.splat(*values.add(at)), p.x_row(first + at, column));
                let mut k = 0;
                while k < R {
                    sums[k] = s.mul_add(value, s.load(x.add(k * S::LANES)), sums[k]);
                    k += 1;
                }
            }
        }
        let (y, bias, kind) = (p.y_row(row, column), p.bias_row(row, column), p.bias_kind());
        let mut k = 0;
        while k < R {
            let sum = match kind {
                Bias::None => sums[k],
                Bias::PerRow => s.add(sums[k], s.splat(*bias)),
                Bias::Each => s.add(sums[k], s.load(bias.add(k * S::LANES))),
            };
            s.store(y.add(k * S::LANES), sum);
            k += 1;
        }
    }
}

/// The columns after the last whole register.
///
/// # Safety
/// As [`across`]; fewer than a register are left.
#[inline(always)]
unsafe fn rest<T: Number, S: Vectors<T>>(
    s: S,
    p: &Problem<'_, T>,
    row: usize,
    inner: usize,
    column: usize,
    blocks: Range<usize>,
) {
    let [r, c] = p.block();
    let left = p.n - column;
    let mut sum = s.splat(T::ZERO);
    // SAFETY: the caller's promise.
    unsafe {
        for block in blocks {
            let values = p.values.as_ptr().add((block * r + inner) * c);
            let first = *p.indices.get_unchecked(block) as usize * c;
            for at in 0..c {
                let x = s.load_first(p.x_row(first + at, column), left);
                sum = s.mul_add(s.splat(*values.add(at)), x, sum);
            }
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
