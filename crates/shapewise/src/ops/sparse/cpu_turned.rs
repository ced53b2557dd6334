//! Batches of vectors, each along memory: they are put side by side, multiplied as a matrix, and taken apart again, so that
//! the sparse operand is read once.
#![allow(unsafe_code)]

use std::ops::Range;

use super::Number;
use super::cpu_problem::Problem;
use super::cpu_wide;
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::Isa;

/// Rows of the output that are computed before they are taken apart: a register's worth for each vector.
pub(super) const BLOCK: usize = 16;

/// Elements of vectors `0..n` at `range`, put side by side into `out`.
///
/// # Safety
/// `out` has room for `columns · n` elements, and no other task writes the rows of the range.
pub(super) unsafe fn collect<T: Number>(p: &Problem<'_, T>, range: Range<usize>, out: *mut T) {
    for first in range.clone().step_by(BLOCK) {
        for vector in 0..p.n {
            for row in first..(first + BLOCK).min(range.end) {
                // SAFETY: row and vector lie inside the dense operand; the caller's promise about `out`.
                unsafe { *out.add(row * p.n + vector) = *p.x_row(row, vector) };
            }
        }
    }
}

/// Some rows of the output from the collected vectors, by way of a block of scratch.
///
/// # Safety
/// `x` holds the collected vectors, `block` has room for `BLOCK · n` elements of this task's own, and no other task writes
/// the rows of the range.
pub(super) unsafe fn multiply<T: Number>(
    isa: Isa,
    p: &Problem<'_, T>,
    range: Range<usize>,
    x: *const T,
    block: *mut T,
) {
    for first in range.clone().step_by(BLOCK) {
        let last = (first + BLOCK).min(range.end);
        let step = [p.n as isize, 1];
        // The rows of the block are rows `first..` of a matrix that starts so far before it.
        let y = block.wrapping_sub(first * p.n);
        let inner = Problem { x, x_step: step, y, y_step: step, ..p.without_bias() };
        <T as Real>::dispatch(isa, cpu_wide::Rows { problem: &inner, rows: first..last });
        for vector in 0..p.n {
            for row in first..last {
                // SAFETY: row and vector lie inside the output; the block has these rows.
                unsafe {
                    *p.y_row(row, vector) = *y.wrapping_add(row * p.n + vector) + p.bias_at(row, vector);
                }
            }
        }
    }
}
