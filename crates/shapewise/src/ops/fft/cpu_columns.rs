//! Columns side by side, one in each lane: the stages between memory and scratch.
#![allow(unsafe_code)]

use super::cpu_lines::Width;
use super::cpu_rows::{Expecting, Number, Numbers, Packed, Plain, Spaced};
use super::cpu_stages::{Move, Stage, all_but_last, run};
use crate::backends::cpu::simd::Isa;

/// All stages of columns but the last; while rows are read, the next ones are asked for.
///
/// # Safety
/// As for `all_but_last`.
pub(super) unsafe fn all_but_last_of_columns<T: Number>(
    isa: Isa,
    stages: &[Stage<T>],
    from: Numbers<T>,
    scratch: [*mut T; 2],
) -> (Spaced<T>, *mut T) {
    let soon = 2 * from.stride;
    // SAFETY: the caller's promise.
    unsafe {
        if from.sign.to_bits64() == 0 {
            all_but_last(isa, stages, Expecting(Plain::of(&from), soon), scratch)
        } else {
            all_but_last(isa, stages, Expecting(from, soon), scratch)
        }
    }
}

/// The last stage of columns.
///
/// # Safety
/// As for `run`.
pub(super) unsafe fn last_of_columns<T: Number>(isa: Isa, stage: &Stage<T>, from: Spaced<T>, to: Numbers<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        if to.is_plain() {
            run::<T, true>(isa, stage, from, Plain::of(&to));
        } else {
            run::<T, true>(isa, stage, from, to);
        }
    }
}

/// Rows of scratch for so many rows of a stage.
pub(super) const fn spaced(rows: usize) -> usize {
    rows + rows / 32
}

/// Transforms LANES columns, whose rows are LANES neighbouring numbers; `x` may be `y`.
///
/// # Safety
/// The columns are valid, and the scratch has room for two times `spaced` rows.
pub(super) unsafe fn columns<T: Number>(
    width: Width,
    stages: &[Stage<T>],
    n: usize,
    x: Numbers<T>,
    y: Numbers<T>,
    scratch: *mut T,
) {
    let Width { isa, lanes, .. } = width;
    // SAFETY: the caller's promise.
    unsafe {
        let there = scratch.add(2 * lanes * spaced(n));
        match stages {
            [.., last] if stages.len() > 1 => {
                let (here, _) = all_but_last_of_columns(isa, stages, x, [scratch, there]);
                last_of_columns(isa, last, here, y);
            }
            _ => {
                T::dispatch(isa, Move { n, from: x, to: Packed(scratch) });
                let rows = packed(width, stages, n, scratch);
                T::dispatch(isa, Move { n, from: Packed(rows), to: y });
            }
        }
    }
}

/// Transforms the rows in scratch; gives the place of the result, which is there or behind it.
///
/// # Safety
/// The scratch holds n rows and has room for as many more.
pub(super) unsafe fn packed<T: Number>(
    width: Width,
    stages: &[Stage<T>],
    n: usize,
    scratch: *mut T,
) -> *mut T {
    let (mut here, mut there) = (scratch, scratch.wrapping_add(2 * width.lanes * n));
    for stage in stages {
        // SAFETY: the caller's promise.
        unsafe { run::<T, false>(width.isa, stage, Packed(here), Packed(there)) };
        (here, there) = (there, here);
    }
    here
}
