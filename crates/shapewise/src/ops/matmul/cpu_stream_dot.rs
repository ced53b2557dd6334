//! The walk along contiguous columns: the sums of a few columns in registers, added up at the end.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_stored::{Reads, Stored};
use super::cpu_stream::{Matrix, Rows, Sums};
use crate::backends::cpu::simd::{Float, Lanes};

/// Columns read side by side when there are several rows.
const COLUMNS: usize = 6;
/// Columns read side by side when there is one row.
const COLUMNS_ONE: usize = 8;
/// Rows whose sums are in registers at once.
const GROUP: usize = 2;
/// Vectors of a column that several rows are multiplied with before the next ones come: the block of the columns
/// and that of the rows stay in the first-level cache.
const BLOCK: usize = 32;

/// Rows and columns whose sums are in registers at once.
pub(super) fn tile(rows: usize) -> (usize, usize) {
    if rows == 1 { (1, COLUMNS_ONE) } else { (GROUP, COLUMNS) }
}

/// Elements of scratch for the sums of a few columns between blocks.
pub(super) fn partial_sums(rows: usize, lanes: usize) -> usize {
    if rows == 1 { 0 } else { rows.next_multiple_of(GROUP) * COLUMNS * lanes }
}

/// Copies the few rows: blocks of steps, in each groups of rows, in each one vector of each row in turn.
///
/// # Safety
/// The rows can be read, and `to` has room for all of them, each padded to whole vectors.
pub(super) unsafe fn pack<W: Stored>(rows: &Rows<W>, lanes: usize, mut to: *mut W::Wide) {
    let block = if rows.m == 1 { rows.k.max(1) } else { BLOCK * lanes };
    for p in (0..rows.k).step_by(block) {
        let end = (p + block).min(rows.k);
        for first in (0..rows.m).step_by(GROUP) {
            for p in (p..end).step_by(lanes) {
                for i in first..rows.m.min(first + GROUP) {
                    let from = rows.at.wrapping_offset(i as isize * rows.rs + p as isize * rows.cs);
                    let count = lanes.min(end - p);
                    // SAFETY: the elements exist and have room.
                    unsafe {
                        match count {
                            16 if rows.cs == 1 => copy::<W, 16>(from, to),
                            8 if rows.cs == 1 => copy::<W, 8>(from, to),
                            4 if rows.cs == 1 => copy::<W, 4>(from, to),
                            _ => {
                                for q in 0..count {
                                    to.add(q).write((*from.wrapping_offset(q as isize * rows.cs)).widen());
                                }
                            }
                        }
                    }
                    to = to.wrapping_add(lanes);
                }
            }
        }
    }
}

/// A vector of neighbours; of known length, so that it is one.
///
/// # Safety
/// `from` can be read and `to` written.
unsafe fn copy<W: Stored, const N: usize>(from: *const W, to: *mut W::Wide) {
    for q in 0..N {
        // SAFETY: the caller's promise.
        unsafe { to.add(q).write((*from.add(q)).widen()) };
    }
}

/// Sums of all columns of `w`.
///
/// # Safety
/// The matrix can be read and its columns are contiguous; `rows` was made by [`pack`]; the sums have room for whole
/// tiles, and `partial` has [`partial_sums`] elements.
#[inline(always)]
pub(super) unsafe fn dot<W: Stored, S: Reads<W>>(
    s: S,
    w: &Matrix<W>,
    rows: *const W::Wide,
    sums: &Sums<W::Wide>,
    partial: *mut W::Wide,
) {
    let mut column = 0;
    while column < w.columns {
        let left = w.columns - column;
        let at = w.at.wrapping_offset(column as isize * w.cs);
        let job = Job { at, cs: w.cs, k: w.k, rows, column, partial };
        // SAFETY: as many columns are left as each arm reads.
        column += unsafe {
            match (sums.rows, left) {
                (1, COLUMNS_ONE..) => single::<W, S, COLUMNS_ONE>(s, &job, sums),
                (1, 4..) => single::<W, S, 4>(s, &job, sums),
                (1, _) => single::<W, S, 1>(s, &job, sums),
                (_, COLUMNS..) => several::<W, S, COLUMNS>(s, &job, sums),
                (_, 3..) => several::<W, S, 3>(s, &job, sums),
                (_, _) => several::<W, S, 1>(s, &job, sums),
            }
        };
    }
}

/// A few columns.
struct Job<W: Stored> {
    at: *const W,
    cs: isize,
    k: usize,
    rows: *const W::Wide,
    column: usize,
    partial: *mut W::Wide,
}

/// One row times `C` columns.
#[inline(always)]
unsafe fn single<W: Stored, S: Reads<W>, const C: usize>(s: S, job: &Job<W>, sums: &Sums<W::Wide>) -> usize {
    let mut x = [[s.splat(W::Wide::ZERO); C]; 1];
    // SAFETY: the caller's promise.
    unsafe {
        x = block::<W, S, 1, C>(s, job, 0, job.k, job.rows, x);
        reduce(s, job.column, 0, &x, sums);
    }
    C
}

/// All rows times `C` columns, block by block.
#[inline(always)]
unsafe fn several<W: Stored, S: Reads<W>, const C: usize>(s: S, job: &Job<W>, sums: &Sums<W::Wide>) -> usize {
    let mut rows = job.rows;
    let mut p = 0;
    while p < job.k {
        let steps = (BLOCK * S::LANES).min(job.k - p);
        let mut row = 0;
        while row < sums.rows {
            // SAFETY: the caller's promise, for two rows or the last one.
            unsafe {
                if row + GROUP <= sums.rows {
                    pass::<W, S, GROUP, C>(s, job, p, steps, row, rows, sums);
                    rows = rows.add(GROUP * steps.next_multiple_of(S::LANES));
                } else {
                    pass::<W, S, 1, C>(s, job, p, steps, row, rows, sums);
                    rows = rows.add(steps.next_multiple_of(S::LANES));
                }
            }
            row += GROUP;
        }
        p += steps;
    }
    C
}

/// A block of a group of rows; between blocks the sums wait in `partial`.
#[inline(always)]
unsafe fn pass<W: Stored, S: Reads<W>, const R: usize, const C: usize>(
    s: S,
    job: &Job<W>,
    p: usize,
    steps: usize,
    row: usize,
    rows: *const W::Wide,
    sums: &Sums<W::Wide>,
) {
    let waiting = job.partial.wrapping_add(row * C * S::LANES);
    let mut x = [[s.splat(W::Wide::ZERO); C]; R];
    // SAFETY: the caller's promise; `partial` has room for the sums of all rows.
    unsafe {
        if p > 0 {
            for (i, x) in x.as_flattened_mut().iter_mut().enumerate() {
                *x = s.load(waiting.add(i * S::LANES));
            }
        }
        x = block::<W, S, R, C>(s, job, p, steps, rows, x);
        if p + steps < job.k {
            for (i, x) in x.as_flattened().iter().enumerate() {
                s.store(waiting.add(i * S::LANES), *x);
            }
        } else {
            reduce(s, job.column, row, &x, sums);
        }
    }
}

/// Adds the products of `steps` steps from step `p` on.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators that own arrays have destructors, which may not be inlined
unsafe fn block<W: Stored, S: Reads<W>, const R: usize, const C: usize>(
    s: S,
    job: &Job<W>,
    p: usize,
    steps: usize,
    mut rows: *const W::Wide,
    mut x: [[S::V; C]; R],
) -> [[S::V; C]; R] {
    let mut at = job.at.wrapping_add(p);
    macro_rules! step {
        ($row:expr, $column:expr) => {{
            let mut a = [s.splat(W::Wide::ZERO); R];
            for i in 0..R {
                a[i] = $row(rows.wrapping_add(i * S::LANES));
            }
            for j in 0..C {
                let y = $column(at.wrapping_offset(j as isize * job.cs));
                for i in 0..R {
                    x[i][j] = s.mul_add(a[i], y, x[i][j]);
                }
            }
        }};
    }
    for _ in 0..steps / S::LANES {
        // SAFETY: a whole vector of steps is left.
        step!(|at| unsafe { s.load(at) }, |at| unsafe { s.read(at) });
        at = at.wrapping_add(S::LANES);
        rows = rows.wrapping_add(R * S::LANES);
    }
    let rest = steps % S::LANES;
    if rest > 0 {
        // SAFETY: `rest` steps are left.
        step!(|at| unsafe { s.load_first(at, rest) }, |at| unsafe { s.read_first(at, rest) });
    }
    x
}

/// Adds up the lanes of each sum.
#[inline(always)]
unsafe fn reduce<T: Float, S: Lanes<T>, const R: usize, const C: usize>(
    s: S,
    column: usize,
    row: usize,
    x: &[[S::V; C]; R],
    sums: &Sums<T>,
) {
    for (i, x) in x.iter().enumerate() {
        for (j, &x) in x.iter().enumerate() {
            let (tile, offset) = ((column + j) / sums.width * sums.width, (column + j) % sums.width);
            // SAFETY: the sums have room for this row and column.
            unsafe { sums.row(tile, row + i).add(offset).write(s.reduce_add(x)) };
        }
    }
}
