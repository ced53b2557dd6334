//! Products with vectors: the entries of a row times picked elements, a register at a time.
#![allow(unsafe_code)]

use std::ops::Range;

use super::Number;
use super::cpu_problem::Problem;
use crate::backends::cpu::real::{RealTask, Vectors, prefetch};

/// Entries from those that are used to those that are asked for, where they come through all caches: two kilobytes of values, found by
/// trying on Ice Lake.
const AHEAD: usize = 512;
/// Where they go past the second cache: half a kilobyte of values, found by trying on Zen 3.
const AHEAD_ONCE: usize = 128;

/// Asks for the lines of the values and indices that follow those at `at`. `ONCE` keeps them out of the second cache where the CPU
/// can, so that they do not displace the dense operand there, which took twice the time on Ice Lake where the matrix fits its last
/// cache. Any address will do.
#[inline(always)]
fn prefetch_entries<T: Number, const ONCE: bool>(p: &Problem<'_, T>, at: usize) {
    let ahead = at + const { if ONCE { AHEAD_ONCE } else { AHEAD } };
    let (values, indices) = (p.values.as_ptr().wrapping_add(ahead), p.indices.as_ptr().wrapping_add(ahead));
    if ONCE {
        prefetch_once(values);
        prefetch_once(indices);
    } else {
        prefetch(values);
        prefetch(indices);
    }
}

#[inline(always)]
fn prefetch_once<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_NTA }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Some rows of one column of the output.
pub(super) struct Part<'a, T> {
    pub problem: &'a Problem<'a, T>,
    pub column: usize,
    pub rows: Range<usize>,
    /// Whether entries go past the second cache.
    pub once: bool,
}

impl<T: Number> RealTask<T> for Part<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        if self.once { self.multiply::<S, true>(s) } else { self.multiply::<S, false>(s) }
    }
}

impl<T: Number> Part<'_, T> {
    #[inline(always)]
    fn multiply<S: Vectors<T>, const ONCE: bool>(self, s: S) {
        let p = self.problem;
        let x = p.x_row(0, self.column);
        // SAFETY: rows and column lie inside the output, which no other task writes there; x is a column of neighbours.
        unsafe {
            let mut from = *p.offsets.get_unchecked(self.rows.start) as usize;
            for row in self.rows {
                let to = *p.offsets.get_unchecked(row + 1) as usize;
                let sum = dot::<T, S, ONCE>(s, p, x, from..to);
                *p.y_row(row, self.column) = sum + p.bias_at(row, self.column);
                from = to;
            }
        }
    }
}

/// Σ value · x[index] over some entries.
///
/// # Safety
/// The entries exist and their indices lie inside `x`, whose elements are neighbours.
#[inline(always)]
unsafe fn dot<T: Number, S: Vectors<T>, const ONCE: bool>(
    s: S,
    p: &Problem<'_, T>,
    x: *const T,
    entries: Range<usize>,
) -> T {
    let (values, indices) = (p.values.as_ptr(), p.indices.as_ptr());
    let Range { start: mut at, end } = entries;
    let half = const { S::LANES / 2 };
    let mut sum = T::ZERO;
    // SAFETY: the caller's promise.
    unsafe {
        if at + half <= end {
            let mut lanes = s.splat(T::ZERO);
            while at + S::LANES <= end {
                prefetch_entries::<T, ONCE>(p, at);
                lanes = s.mul_add(s.load(values.add(at)), s.pick(x, indices.add(at)), lanes);
                at += S::LANES;
            }
            if at + half <= end {
                let first = s.load_first(values.add(at), half);
                lanes = s.mul_add(first, s.pick_half(x, indices.add(at)), lanes);
                at += half;
            }
            sum = s.reduce_add(lanes);
        }
        while at < end {
            sum += *values.add(at) * *x.add(*indices.add(at) as usize);
            at += 1;
        }
    }
    sum
}

/// The end of a merge path's part: all rows before `row` and all entries before `entry` are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corner {
    pub row: usize,
    pub entry: usize,
}

impl Corner {
    /// Where the path of rows and entries merged has taken this many steps.
    pub fn at(offsets: &[u32], steps: usize) -> Self {
        let rows = offsets.len() - 1;
        let entries = offsets[rows] as usize;
        let (mut low, mut high) = (steps.saturating_sub(entries), steps.min(rows));
        while low < high {
            let middle = low.midpoint(high);
            if offsets[middle + 1] as usize + middle < steps {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Self { row: low, entry: steps - low }
    }
}

/// A part of the merge path: the rows that end in it, and what it has of the row after them.
pub(super) struct Stretch<'a, T> {
    pub problem: &'a Problem<'a, T>,
    pub column: usize,
    pub from: Corner,
    pub to: Corner,
    /// Whether entries go past the second cache.
    pub once: bool,
}

impl<T: Number> RealTask<T> for Stretch<'_, T> {
    type Output = T;

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) -> T {
        if self.once { self.multiply::<S, true>(s) } else { self.multiply::<S, false>(s) }
    }
}

impl<T: Number> Stretch<'_, T> {
    #[inline(always)]
    fn multiply<S: Vectors<T>, const ONCE: bool>(self, s: S) -> T {
        let p = self.problem;
        let x = p.x_row(0, self.column);
        let mut entry = self.from.entry;
        // SAFETY: corners lie inside the matrix; a row is written by the one task that it ends in.
        unsafe {
            for row in self.from.row..self.to.row {
                let end = *p.offsets.get_unchecked(row + 1) as usize;
                let sum = dot::<T, S, ONCE>(s, p, x, entry..end);
                *p.y_row(row, self.column) = sum + p.bias_at(row, self.column);
                entry = end;
            }
            dot::<T, S, ONCE>(s, p, x, entry..self.to.entry)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_go_through_every_row_and_entry_once() {
        for offsets in [&[0u32, 3, 3, 4, 10][..], &[0, 0, 0], &[0, 7], &[0], &[0, 0, 0, 9, 9]] {
            let (rows, entries) = (offsets.len() - 1, offsets[offsets.len() - 1] as usize);
            let mut last = Corner { row: 0, entry: 0 };
            for steps in 0..=rows + entries {
                let corner = Corner::at(offsets, steps);
                assert_eq!(corner.row + corner.entry, steps);
                assert!(corner.row >= last.row && corner.entry >= last.entry);
                // Entries lie in the row that is open.
                assert!(corner.entry >= offsets[corner.row] as usize || steps == 0, "{offsets:?} {corner:?}");
                last = corner;
            }
            assert_eq!(last, Corner { row: rows, entry: entries });
        }
    }
}
