//! ELL times a vector: a register of neighbouring rows at a time, place by place.
#![allow(unsafe_code)]

use std::ops::Range;

use super::Number;
use super::cpu_problem::Problem;
use crate::backends::cpu::real::{RealTask, Vectors};
use crate::backends::cpu::simd::MAX_LANES;

/// Some rows of one column of the output.
pub(super) struct Part<'a, T> {
    pub problem: &'a Problem<'a, T>,
    pub column: usize,
    pub rows: Range<usize>,
}

impl<T: Number> RealTask<T> for Part<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let p = self.problem;
        let x = p.x_row(0, self.column);
        let mut row = self.rows.start;
        while row < self.rows.end {
            let lanes = S::LANES.min(self.rows.end - row);
            let lengths = &p.offsets[row..row + lanes];
            let mut sums = [T::ZERO; MAX_LANES];
            let mut common = 0;
            // SAFETY: places below a row's length exist and their indices lie inside x.
            unsafe {
                if lanes == S::LANES {
                    common = lengths.iter().copied().min().unwrap_or(0) as usize;
                    let mut sum = s.splat(T::ZERO);
                    for place in 0..common {
                        let at = place * p.rows + row;
                        let picked = s.pick(x, p.indices.as_ptr().add(at));
                        sum = s.mul_add(s.load(p.values.as_ptr().add(at)), picked, sum);
                    }
                    s.store(sums.as_mut_ptr(), sum);
                }
                for (lane, &length) in lengths.iter().enumerate() {
                    let mut sum = sums[lane];
                    for place in common..length as usize {
                        let at = place * p.rows + row + lane;
                        let index = *p.indices.get_unchecked(at) as usize;
                        sum += *p.values.get_unchecked(at) * *x.add(index);
                    }
                    *p.y_row(row + lane, self.column) = sum + p.bias_at(row + lane, self.column);
                }
            }
            row += lanes;
        }
    }
}
