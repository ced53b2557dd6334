//! Rows that lie along memory: rows of a window are combined element by element, then neighbours along the row by
//! doubling — windows of 2, 4, 8 … elements — so that large windows take few passes.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::PoolKind;
use super::problem::{Problem, Span, offset};
use crate::backends::cpu::real::{Real, RealTask, Vectors};
use crate::backends::cpu::simd::Float;

/// Elements that vectors may read and write beyond a row.
pub(super) const BEYOND: usize = 16;

/// Elements of a line: the padded row, and what a last window reaches beyond it.
pub(super) fn line(p: &Problem) -> usize {
    let w = &p.window[2];
    let last = p.output[4].saturating_sub(1) * w.stride as usize + w.reach();
    (p.input[4] + 2 * w.padding as usize).max(last) + BEYOND
}

/// Some planes of one image after the other: a range of the rows of results in all planes.
pub(super) struct Rows<'a, T: Real> {
    pub p: &'a Problem,
    pub x: *const T,
    pub y: *mut T,
    pub range: std::ops::Range<usize>,
    /// Two lines.
    pub lines: *mut T::Wide,
    /// The divisor of every column.
    pub divisors: *const T::Wide,
}

impl<T: Real> RealTask<T> for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        if self.p.kind == PoolKind::Max {
            self.all::<S, true>(s);
        } else {
            self.all::<S, false>(s);
        }
    }
}

impl<T: Real> Rows<'_, T> {
    #[inline(always)]
    fn all<S: Vectors<T>, const MAX: bool>(&self, s: S) {
        let p = self.p;
        let (length, nothing) = (line(p), if MAX { -T::Wide::INFINITY } else { T::Wide::ZERO });
        for row in self.range.clone() {
            let h = row % p.output[3];
            let d = row / p.output[3] % p.output[2];
            let c = row / (p.output[3] * p.output[2]) % p.output[1];
            let n = row / (p.output[3] * p.output[2] * p.output[1]);
            let (depths, heights) = (p.span(0, d), p.span(1, h));
            // SAFETY: there are two lines; spans lie inside the input, and this task alone writes the row.
            unsafe {
                for i in 0..length {
                    self.lines.add(i).write(nothing);
                }
                let plane = self.x.wrapping_offset(offset(&p.x, [n, c, 0, 0, 0]));
                self.combine_rows::<S, MAX>(s, plane, depths, heights);
                let found = self.combine_neighbours::<S, MAX>(s, length);
                let out = self.y.wrapping_offset(offset(&p.y, [n, c, d, h, 0]));
                self.write::<S, MAX>(s, found, out, depths.divisor * heights.divisor);
            }
        }
    }

    /// The rows of a window, element by element, in the first line after its padding.
    #[inline(always)]
    unsafe fn combine_rows<S: Vectors<T>, const MAX: bool>(
        &self,
        s: S,
        plane: *const T,
        depths: Span,
        heights: Span,
    ) {
        let p = self.p;
        let width = p.input[4];
        let to = self.lines.wrapping_add(p.window[2].padding as usize);
        for i in 0..depths.count * heights.count {
            let d = depths.first + i / heights.count * depths.step;
            let h = heights.first + i % heights.count * heights.step;
            let from = plane.wrapping_offset(d as isize * p.x[2] + h as isize * p.x[3]);
            let mut w = 0;
            while w < width {
                let lanes = S::LANES.min(width - w);
                // SAFETY: the input's row and the line have these elements.
                unsafe {
                    let at = to.add(w);
                    if lanes == S::LANES {
                        let x = s.read(from.add(w));
                        s.store(at, if i == 0 { x } else { pick::<T, S, MAX>(s, s.load(at), x) });
                    } else {
                        let x = s.read_first(from.add(w), lanes);
                        let x = if i == 0 { x } else { pick::<T, S, MAX>(s, s.load(at), x) };
                        s.store_first(at, x, lanes);
                    }
                }
                w += S::LANES;
            }
        }
    }

    /// Windows along the line, one from every element; gives the line that has them.
    #[inline(always)]
    unsafe fn combine_neighbours<S: Vectors<T>, const MAX: bool>(
        &self,
        s: S,
        length: usize,
    ) -> *const T::Wide {
        let w = &self.p.window[2];
        let (size, step) = (w.size as usize, w.dilation as usize);
        let (first, second) = (self.lines, self.lines.wrapping_add(length));
        let useful = length - BEYOND;
        // The line holds windows of `have` elements; the other, if `rest` is not zero, those of the last `rest` ones.
        let mut have = 1;
        if MAX {
            // Maxima may overlap: windows of twice as many, and at the end one that overlaps by what is too many.
            while have < size {
                let shift = have.min(size - have);
                // SAFETY: elements beyond the line's useful ones are not read; those before are overwritten in order.
                unsafe { join::<T, S, MAX>(s, first, first, shift * step, useful) };
                have += shift;
            }
            return first;
        }
        let mut done = 0;
        let mut left = size;
        loop {
            if left & 1 == 1 {
                // SAFETY: both lines have these elements.
                unsafe { accumulate::<T, S>(s, second, first, done * step, useful, done == 0) };
                done += have;
            }
            left >>= 1;
            if left == 0 {
                return second;
            }
            // SAFETY: as above.
            unsafe { join::<T, S, MAX>(s, first, first, have * step, useful) };
            have *= 2;
        }
    }

    /// Writes every so many elements of a line, means divided.
    #[inline(always)]
    unsafe fn write<S: Vectors<T>, const MAX: bool>(
        &self,
        s: S,
        line: *const T::Wide,
        out: *mut T,
        divisor: usize,
    ) {
        let (columns, stride) = (self.p.output[4], self.p.window[2].stride as usize);
        let mut dense = line;
        if stride > 1 {
            // In place: an element is read before its place is written.
            let to = line.cast_mut();
            // SAFETY: the line has an element for every result.
            unsafe {
                if stride == 2 {
                    for i in 0..columns {
                        to.add(i).write(*line.add(2 * i));
                    }
                } else {
                    for i in 0..columns {
                        to.add(i).write(*line.add(stride * i));
                    }
                }
            }
            dense = to;
        }
        let divisor = s.splat(T::Wide::from_f64(divisor as f64));
        let mut i = 0;
        while i < columns {
            let lanes = S::LANES.min(columns - i);
            // SAFETY: line and divisors may be read beyond their ends by a vector; the output has `lanes` elements left.
            unsafe {
                let mut x = s.load(dense.add(i));
                if !MAX {
                    x = s.div(x, s.mul(divisor, s.load(self.divisors.add(i))));
                }
                if lanes == S::LANES {
                    s.write(out.add(i), x);
                } else {
                    s.write_first(out.add(i), x, lanes);
                }
            }
            i += S::LANES;
        }
    }
}

/// The larger one (NaN wins) or the sum.
#[inline(always)]
pub(super) fn pick<T: Real, S: Vectors<T>, const MAX: bool>(s: S, a: S::V, b: S::V) -> S::V {
    if MAX { s.max_nan(a, b) } else { s.add(a, b) }
}

/// Each element of a line with the one `shift` further on; what is beyond the end counts as nothing.
#[inline(always)]
unsafe fn join<T: Real, S: Vectors<T>, const MAX: bool>(
    s: S,
    from: *const T::Wide,
    to: *mut T::Wide,
    shift: usize,
    useful: usize,
) {
    let end = useful.saturating_sub(shift);
    let mut i = 0;
    while i < end {
        let lanes = S::LANES.min(end - i);
        // SAFETY: i + shift + lanes <= useful, and vectors may read beyond that by their length.
        unsafe {
            let x = pick::<T, S, MAX>(s, s.load(from.add(i)), s.load(from.add(i + shift)));
            s.store_first(to.add(i), x, lanes);
        }
        i += S::LANES;
    }
}

/// Adds a line, from `shift` on, to another.
#[inline(always)]
unsafe fn accumulate<T: Real, S: Vectors<T>>(
    s: S,
    to: *mut T::Wide,
    from: *const T::Wide,
    shift: usize,
    useful: usize,
    first: bool,
) {
    let end = useful.saturating_sub(shift);
    let mut i = 0;
    while i < end {
        // SAFETY: vectors may read and write beyond the useful elements by their length.
        unsafe {
            let x = s.load(from.add(i + shift));
            s.store(to.add(i), if first { x } else { s.add(s.load(to.add(i)), x) });
        }
        i += S::LANES;
    }
}
