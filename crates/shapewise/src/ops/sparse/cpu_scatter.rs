//! CSC: each column's entries times a row of the dense operand, added to the rows of the output where they belong.
#![allow(unsafe_code)]

use std::ops::Range;

use super::Number;
use super::cpu_problem::{Bias, Problem};
use crate::backends::cpu::real::{RealTask, Vectors};

/// Some columns of the matrix, added into memory of `rows · n` elements with rows `step` apart.
pub(super) struct Columns<'a, T> {
    pub problem: &'a Problem<'a, T>,
    pub range: Range<usize>,
    pub out: *mut T,
    pub step: isize,
}

impl<T: Number> RealTask<T> for Columns<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let p = self.problem;
        for column in self.range {
            let x = p.x_row(column, 0);
            for at in p.offsets[column] as usize..p.offsets[column + 1] as usize {
                // SAFETY: the indices of a CSC matrix lie below its rows; the memory is this task's own.
                unsafe {
                    let value = *p.values.get_unchecked(at);
                    let out = self.out.offset(*p.indices.get_unchecked(at) as isize * self.step);
                    if p.n == 1 {
                        *out += value * *x;
                        continue;
                    }
                    let (value, mut j) = (s.splat(value), 0);
                    while j + S::LANES <= p.n {
                        s.store(out.add(j), s.mul_add(value, s.load(x.add(j)), s.load(out.add(j))));
                        j += S::LANES;
                    }
                    if j < p.n {
                        let left = p.n - j;
                        let sum =
                            s.mul_add(value, s.load_first(x.add(j), left), s.load_first(out.add(j), left));
                        s.store_first(out.add(j), sum, left);
                    }
                }
            }
        }
    }
}

/// Some rows of the output as the bias or zero.
///
/// # Safety
/// The rows exist, lie along memory, and no other task writes them.
pub(super) unsafe fn start<T: Number>(p: &Problem<'_, T>, rows: Range<usize>) {
    for row in rows {
        for j in 0..p.n {
            // SAFETY: the caller's promise.
            unsafe { *p.y_row(row, j) = p.bias_at(row, j) };
        }
    }
}

/// Some rows of the output from the sums of all parts and the bias.
pub(super) struct Gather<'a, T> {
    pub problem: &'a Problem<'a, T>,
    pub rows: Range<usize>,
    pub sums: *const T,
    pub parts: usize,
}

impl<T: Number> RealTask<T> for Gather<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let p = self.problem;
        let one = p.rows * p.n;
        let kind = p.bias_kind();
        if p.n == 1 {
            for row in self.rows {
                // SAFETY: as below.
                unsafe {
                    let mut sum = p.bias_at(row, 0);
                    for part in 0..self.parts {
                        sum += *self.sums.add(part * one + row);
                    }
                    *p.y_row(row, 0) = sum;
                }
            }
            return;
        }
        for row in self.rows {
            let (y, bias) = (p.y_row(row, 0), p.bias_row(row, 0));
            let mut j = 0;
            while j < p.n {
                let left = (p.n - j).min(S::LANES);
                // SAFETY: every part has rows · n sums; row and columns lie inside the output.
                unsafe {
                    let mut sum = match kind {
                        Bias::None => s.splat(T::ZERO),
                        Bias::PerRow => s.splat(*bias),
                        Bias::Each => s.load_first(bias.add(j), left),
                    };
                    for part in 0..self.parts {
                        sum = s.add(sum, s.load_first(self.sums.add(part * one + row * p.n + j), left));
                    }
                    s.store_first(y.add(j), sum, left);
                }
                j += left;
            }
        }
    }
}
