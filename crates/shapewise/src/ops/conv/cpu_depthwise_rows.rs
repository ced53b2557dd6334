//! Rows of 3×3 kernels of single channels straight from the input, where all rows that they meet exist.
//!
//! What is left and right of a row is the neighbouring row: it is read and put to zero, so nothing has to be copied.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use std::ops::Range;

use super::cpu_depthwise::{Plane, ROWS, activate};
use super::geometry::Geometry;
use crate::backends::cpu::real::{Real, Vectors, prefetch};
use crate::backends::cpu::simd::{Float, Lanes, MAX_LANES};
use crate::ops::Activation;
use crate::ops::matmul::cpu_problem::Real as Computed;

/// Rows ahead that are asked for: two groups of rows, which is time enough for memory to answer (measured on Zen 3: 8 and
/// 20 rows ahead take the same time, without asking it is 1.3 times as long).
const AHEAD: usize = 2 * ROWS;

/// The rows among `rows` that [`Plane::straight`] computes with vectors of so many lanes: a whole number of groups.
pub(super) fn straight_rows(g: &Geometry, lanes: usize, rows: &Range<usize>) -> Range<usize> {
    let none = rows.start..rows.start;
    let (pitch, width) = (g.x[3], g.input[2]);
    let same = g.kernel == [1, 3, 3] && g.stride == [1; 3] && g.dilation == [1; 3] && g.input[0] == 1;
    let near = g.x[4] == 1 && pitch >= width as isize && width >= lanes;
    let padded =
        g.before[0] == 0 && g.before[2] == 1 && g.output[2] == width && (0..=2).contains(&g.before[1]);
    if !same || !near || !padded || g.input[1] < ROWS + 4 {
        return none;
    }
    // The first row of a group and the last are inside the input, with a row before and after them.
    let before = g.before[1] as usize;
    let least = 1 + before;
    let start = if rows.start >= least { rows.start } else { rows.start + ROWS };
    let end = rows.end.min(g.input[1] - 2 - (ROWS + 1) + before + ROWS);
    if start < least || start + ROWS > end {
        return none;
    }
    start..start + (end - start) / ROWS * ROWS
}

impl<T: Real> Plane<'_, T>
where
    T::Wide: Computed,
{
    /// Groups of rows that [`straight_rows`] gave.
    ///
    /// # Safety
    /// The plane and its weights can be read, its outputs written.
    #[inline(always)]
    pub(super) unsafe fn straight<S: Vectors<T>>(&self, s: S, weights: &[T::Wide], rows: Range<usize>) {
        let g = self.g;
        let n = g.output[2];
        let last = (n - 1) / S::LANES * S::LANES;
        let mut w = [s.splat(T::Wide::ZERO); 9];
        for (slot, &x) in w.iter_mut().zip(weights) {
            *slot = s.splat(x);
        }
        let (left, right) = (inside(s, 1, MAX_LANES), inside(s, 0, n - 1 - last));
        for y in rows.step_by(ROWS) {
            let from = self.x.wrapping_offset((y as isize - g.before[1]) * g.x[3] - 1);
            let to = self.y.wrapping_offset(y as isize * g.y[3]);
            let mut x = 0;
            while x < n {
                let (at, first, end) = (from.wrapping_add(x), x == 0, x == last);
                if x & S::LANES == 0 {
                    for row in 0..ROWS {
                        prefetch(at.wrapping_offset((AHEAD + row) as isize * g.x[3]));
                    }
                }
                // SAFETY: the rows exist, and so do the elements before and after each of them.
                let mut sums = unsafe {
                    match (first, end) {
                        (false, false) => self.nine::<S, false, false>(s, at, &w, left, right),
                        (true, false) => self.nine::<S, true, false>(s, at, &w, left, right),
                        (false, true) => self.nine::<S, false, true>(s, at, &w, left, right),
                        (true, true) => self.nine::<S, true, true>(s, at, &w, left, right),
                    }
                };
                if self.activation != Activation::None {
                    activate(s, &mut sums, self.activation);
                }
                for (row, &sum) in sums.iter().enumerate() {
                    // SAFETY: the rows have so many columns left.
                    unsafe { self.put(s, to.offset(row as isize * g.y[3]).add(x), sum, n - x) };
                }
                x += S::LANES;
            }
        }
    }

    /// A vector of each of some rows; elements beyond the ends of a row count as zeros.
    ///
    /// # Safety
    /// Vectors of all rows, and of the columns left and right, can be read.
    #[inline(always)]
    unsafe fn nine<S: Vectors<T>, const FIRST: bool, const LAST: bool>(
        &self,
        s: S,
        at: *const T,
        w: &[S::V; 9],
        left: S::M,
        right: S::M,
    ) -> [S::V; ROWS] {
        let zero = s.splat(T::Wide::ZERO);
        let mut sums = [s.splat(self.bias); ROWS];
        for input in 0..ROWS + 2 {
            let at = at.wrapping_offset(input as isize * self.g.x[3]);
            // SAFETY: the caller's promise.
            let (mut a, b, mut c) = unsafe { (s.read(at), s.read(at.add(1)), s.read(at.add(2))) };
            if FIRST {
                a = s.select(left, a, zero);
            }
            if LAST {
                c = s.select(right, c, zero);
            }
            for (y, sum) in sums.iter_mut().enumerate() {
                // The input's row is the first, second or third of these outputs.
                if input >= y && input < y + 3 {
                    let k = 3 * (input - y);
                    *sum = s.mul_add(w[k], a, *sum);
                    *sum = s.mul_add(w[k + 1], b, *sum);
                    *sum = s.mul_add(w[k + 2], c, *sum);
                }
            }
        }
        sums
    }
}

/// The lanes from `first` to before `end`.
#[inline(always)]
fn inside<W: Float, S: Lanes<W>>(s: S, first: usize, end: usize) -> S::M {
    let mut lanes = [W::ZERO; MAX_LANES];
    for (i, lane) in lanes.iter_mut().enumerate() {
        *lane = if i >= first && i < end { W::ONE } else { W::ZERO };
    }
    // SAFETY: the array has LANES elements or more.
    s.eq(unsafe { s.load(lanes.as_ptr()) }, s.splat(W::ONE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_neighbours_are_computed_straight() {
        let g = Geometry {
            n: 1,
            groups: 1,
            o: 1,
            c: 1,
            input: [1, 20, 16],
            kernel: [1, 3, 3],
            output: [1, 20, 16],
            stride: [1; 3],
            dilation: [1; 3],
            before: [0, 1, 1],
            x: [320, 320, 320, 16, 1],
            w: [9, 9, 9, 9, 3, 1],
            y: [320, 320, 320, 16, 1],
            bias: 0,
        };
        let rows = |g: &Geometry, rows| straight_rows(g, 8, &rows);
        // Rows 3 to 18 are met by outputs 4 to 16: none touches the first row or the last.
        assert_eq!(rows(&g, 0..20), 4..16);
        assert_eq!(rows(&g, 2..12), 2..10);
        assert!(rows(&Geometry { stride: [1, 2, 2], ..g }, 0..10).is_empty());
        assert!(rows(&Geometry { x: [320, 320, 320, 1, 20], ..g }, 0..20).is_empty());
    }
}
