//! Copying parts of a matrix into panels that the innermost loop reads in order.
//!
//! A panel is `depth` steps of `width` neighbouring elements (rows of the left operand or columns of the right
//! one), each step padded to the panel's pitch with whatever is cheapest: padding is computed with, but never stored.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_problem::LanesTask;
use crate::backends::cpu::simd::{Float, Lanes, MAX_LANES};

/// Panels that are copied together, where their steps are contiguous: lines that follow one another are fetched ahead,
/// those of one panel lie a row apart.
const SIDE_BY_SIDE: usize = 4;

/// A part of a matrix that becomes a panel.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Part<T> {
    pub at: *const T,
    /// Distance between the elements of a step.
    pub across: isize,
    /// Distance between steps.
    pub along: isize,
    pub width: usize,
    pub depth: usize,
}

/// Neighbouring panels of the same width, packed one after the other; the last may be narrower.
pub(in crate::ops) struct PackPanels<T> {
    /// All of the panels together.
    pub part: Part<T>,
    /// Elements of a step that make a panel.
    pub width: usize,
    /// Elements of a step in a panel, padding included.
    pub pitch: usize,
    pub panels: *mut T,
    /// Distance between panels.
    pub apart: usize,
}

impl<T: Float> LanesTask<T> for PackPanels<T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let mut part = self.part;
        let (mut left, mut panel) = (part.width, self.panels);
        let vectors = self.width / S::LANES;
        if part.across == 1
            && self.pitch == self.width
            && self.width == vectors * S::LANES
            && matches!(vectors, 2 | 4)
        {
            while left >= self.width {
                let count = (left / self.width).min(SIDE_BY_SIDE);
                // SAFETY: whoever made the task gave a readable part and room for all panels, and so many are left.
                unsafe {
                    if vectors == 2 {
                        copy_panels::<T, S, 2>(s, &part, panel, self.apart, count);
                    } else {
                        copy_panels::<T, S, 4>(s, &part, panel, self.apart, count);
                    }
                }
                part.at = part.at.wrapping_add(count * self.width);
                panel = panel.wrapping_add(count * self.apart);
                left -= count * self.width;
            }
        }
        while left > 0 {
            part.width = self.width.min(left);
            // SAFETY: whoever made the task gave a readable part and room for all panels.
            unsafe { pack(s, &part, panel, self.pitch) };
            part.at = part.at.wrapping_offset(part.across.wrapping_mul(self.width as isize));
            panel = panel.wrapping_add(self.apart);
            left -= part.width;
        }
    }
}

/// Copies a part into a panel of this pitch (at least its width, at most its width rounded up to vectors).
///
/// # Safety
/// The part can be read, `pitch · depth` elements can be written at `panel`.
#[inline(always)]
unsafe fn pack<T: Float, S: Lanes<T>>(s: S, part: &Part<T>, panel: *mut T, pitch: usize) {
    // SAFETY: the caller's promise, passed on.
    unsafe {
        if part.across == 1 {
            copy_steps(s, part, panel, pitch);
        } else if part.along == 1 {
            transpose_steps(s, part, panel, pitch);
        } else {
            copy_elements(part, 0, panel, pitch);
        }
    }
}

/// The steps of some panels of `V` vectors are contiguous and whole.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators that own arrays have destructors, which may not be inlined
unsafe fn copy_panels<T: Float, S: Lanes<T>, const V: usize>(
    s: S,
    part: &Part<T>,
    panels: *mut T,
    apart: usize,
    count: usize,
) {
    let width = V * S::LANES;
    for p in 0..part.depth {
        let from = part.at.wrapping_offset(p as isize * part.along);
        for panel in 0..count {
            let (from, to) =
                (from.wrapping_add(panel * width), panels.wrapping_add(panel * apart + p * width));
            let mut x = [s.splat(T::ZERO); V];
            for j in 0..V {
                // SAFETY: whole vectors are there to read.
                x[j] = unsafe { s.load(from.wrapping_add(j * S::LANES)) };
            }
            for j in 0..V {
                // SAFETY: the panel has room for them.
                unsafe { s.store(to.wrapping_add(j * S::LANES), x[j]) };
            }
        }
    }
}

/// Steps are contiguous.
#[inline(always)]
unsafe fn copy_steps<T: Float, S: Lanes<T>>(s: S, part: &Part<T>, panel: *mut T, pitch: usize) {
    for p in 0..part.depth {
        let from = part.at.wrapping_offset(p as isize * part.along);
        let mut done = 0;
        while done < pitch {
            let have = part.width.saturating_sub(done).min(S::LANES);
            // SAFETY: `have` elements are left to read.
            let x = unsafe { s.load_first(from.wrapping_add(done), have) };
            let to = p * pitch + done;
            // SAFETY: the panel goes on far enough, or has the rest of this step.
            unsafe {
                if to + S::LANES <= part.depth * pitch {
                    s.store(panel.wrapping_add(to), x);
                } else {
                    s.store_first(panel.wrapping_add(to), x, pitch - done);
                }
            }
            done += S::LANES;
        }
    }
}

/// Elements of different steps are contiguous: transposes squares of `LANES × LANES` in registers, the last with the steps that are
/// left if those are not so few that elements are copied sooner.
#[inline(always)]
unsafe fn transpose_steps<T: Float, S: Lanes<T>>(s: S, part: &Part<T>, panel: *mut T, pitch: usize) {
    let rest = part.depth % S::LANES;
    let (whole, turned) = (part.depth - rest, if rest > S::LANES / 4 { rest } else { 0 });
    let mut first = 0;
    while first < pitch {
        let lanes = S::LANES.min(pitch - first);
        // Missing rows are read from the last one: what becomes of padding is never written anywhere.
        let last = part.width.saturating_sub(first + 1).min(S::LANES - 1);
        let row = |i: usize| {
            part.at.wrapping_offset((first.min(part.width - 1) + i.min(last)) as isize * part.across)
        };
        let mut rows = [part.at; MAX_LANES];
        for (i, rows) in rows.iter_mut().enumerate() {
            *rows = row(i);
        }
        let mut p = 0;
        while p < whole {
            let mut square = [s.splat(T::ZERO); MAX_LANES];
            // SAFETY: LANES steps are left in each of the rows.
            unsafe { s.load_columns(&rows, p, &mut square) };
            let to = panel.wrapping_add(p * pitch + first);
            // The surplus of a narrow step is overwritten by the next ones, if the panel goes on that far.
            let overwrite = lanes == pitch && (p + S::LANES - 1) * pitch + S::LANES <= part.depth * pitch;
            for (q, &x) in square.iter().enumerate().take(S::LANES) {
                // SAFETY: the panel has `lanes` elements of this step, and steps to follow where more are written.
                unsafe {
                    if lanes == S::LANES || overwrite {
                        s.store(to.wrapping_add(q * pitch), x);
                    } else {
                        s.store_first(to.wrapping_add(q * pitch), x, lanes);
                    }
                }
            }
            p += S::LANES;
        }
        if turned > 0 {
            let mut square = [s.splat(T::ZERO); MAX_LANES];
            for i in 0..S::LANES {
                // SAFETY: `rest` steps are left in each of the rows.
                square[i] = unsafe { s.load_first(rows[i].wrapping_add(whole), rest) };
            }
            s.transpose(&mut square);
            let to = panel.wrapping_add(whole * pitch + first);
            for (q, &x) in square.iter().enumerate().take(rest) {
                // SAFETY: the panel has `lanes` elements of this step.
                unsafe { s.store_first(to.wrapping_add(q * pitch), x, lanes) };
            }
        }
        first += lanes;
    }
    // SAFETY: the steps that are left.
    unsafe { copy_elements(part, whole + turned, panel, pitch) };
}

/// Any strides, from step `first` on.
#[inline(always)]
unsafe fn copy_elements<T: Float>(part: &Part<T>, first: usize, panel: *mut T, pitch: usize) {
    for p in first..part.depth {
        let from = part.at.wrapping_offset(p as isize * part.along);
        let to = panel.wrapping_add(p * pitch);
        for i in 0..pitch {
            // SAFETY: element `i` of the step exists if it is below the width; the panel has the whole pitch.
            unsafe {
                let x =
                    if i < part.width { *from.wrapping_offset(i as isize * part.across) } else { T::ZERO };
                to.add(i).write(x);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::cpu::simd::Isa;
    use crate::ops::matmul::cpu_problem::Real;

    struct Pack<T>(Part<T>, *mut T, usize);

    impl<T: Float> LanesTask<T> for Pack<T> {
        #[inline(always)]
        fn run<S: Lanes<T>>(self, s: S) {
            // SAFETY: the test gives a readable part and a panel of its size.
            unsafe { pack(s, &self.0, self.1, self.2) };
        }
    }

    fn check<T: Real>(isa: Isa, width: usize, depth: usize, pitch: usize, across: isize, along: isize) {
        let size = 1 + (width.max(1) - 1) * across.unsigned_abs() + (depth.max(1) - 1) * along.unsigned_abs();
        let data: Vec<T> = (0..size).map(|i| T::from_f64(i as f64 + 1.0)).collect();
        let marker = T::from_f64(-7.0);
        let mut panel = vec![marker; pitch * depth + 1];
        T::run(isa, Pack(Part { at: data.as_ptr(), across, along, width, depth }, panel.as_mut_ptr(), pitch));
        assert_eq!(panel[pitch * depth], marker, "nothing is written past the panel");
        for p in 0..depth {
            for i in 0..pitch {
                let at = p * along as usize + i * across as usize;
                let found = panel[p * pitch + i];
                let right = if i < width { found == data[at] } else { found != marker };
                assert!(right, "{isa} {width}×{depth} step {p} element {i}: {found}");
            }
        }
    }

    #[test]
    fn panels_hold_what_the_matrix_holds() {
        for &isa in Isa::available() {
            for (width, pitch) in
                [(1, 1), (5, 5), (6, 6), (8, 8), (12, 12), (3, 16), (15, 16), (16, 16), (17, 24), (31, 32)]
            {
                for depth in [0, 1, 3, 8, 21] {
                    for (across, along) in [(1, 40), (40, 1), (3, 50), (1, 0), (0, 1)] {
                        check::<f32>(isa, width, depth, pitch, across, along);
                        check::<f64>(isa, width, depth, pitch, across, along);
                    }
                }
            }
        }
    }

    /// Whole panels are copied side by side, the rest one by one, with gaps between panels.
    fn check_neighbours<T: Real>(isa: Isa, width: usize, columns: usize) {
        let (depth, along) = (5, columns + 3);
        let data: Vec<T> = (0..depth * along).map(|i| T::from_f64(i as f64 + 1.0)).collect();
        let apart = width * depth + 2;
        let mut panels = vec![T::ZERO; columns.div_ceil(width) * apart];
        let part = Part { at: data.as_ptr(), across: 1, along: along as isize, width: columns, depth };
        T::run(isa, PackPanels { part, width, pitch: width, panels: panels.as_mut_ptr(), apart });
        for p in 0..depth {
            for j in 0..columns {
                let found = panels[j / width * apart + p * width + j % width];
                assert!(
                    found == data[p * along + j],
                    "{isa} {width} of {columns}, step {p} column {j}: {found}"
                );
            }
        }
        assert!(panels[apart - 2] == T::ZERO && panels[apart - 1] == T::ZERO, "gaps stay");
    }

    #[test]
    fn neighbouring_panels_hold_what_the_matrix_holds() {
        for &isa in Isa::available() {
            for width in [4, 8, 12, 16, 32] {
                for columns in [width, 4 * width, 4 * width + 1, 9 * width - 1] {
                    check_neighbours::<f32>(isa, width, columns);
                    check_neighbours::<f64>(isa, width, columns);
                }
            }
        }
    }
}
