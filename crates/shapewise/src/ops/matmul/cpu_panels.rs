//! Products with a right operand in panels: all steps of a few neighbouring columns, one after the other.
//!
//! A panel is `k × width` elements, its last columns padded. Rows of the left operand are packed in groups that
//! fill the registers; a panel's block stays in the first-level cache while the groups pass by, and the whole
//! panel in the second while blocks of rows do.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_problem::Split;
use super::cpu_stored::{Reads, Stored};
use super::cpu_stream::{Out, Sums, finish};
use super::cpu_stream_outer::{Asked, Tiles, group};
use crate::backends::cpu::simd::{Float, Isa, Lanes};

/// Vectors of a panel that stay in the first-level cache while the rows pass by. Each group of rows asks for its share of the next ones, so that
/// memory never rests while groups compute: in a loop of C on one Zen 4 core 8×4096² takes 2.5 ms, 4.2 where every group asks for what
/// follows in 4 KiB, 3.4 where none asks. A single group asks for nothing: four rows take 2.0 ms, and 3.2 if they do.
const NEAR: usize = 512;
/// Vectors of sums that are kept at once.
const SUMS: usize = 192;

/// Panels that a single row passes by side by side: each is a stream of its own for the prefetcher, which stops at the end of a page
/// (in a loop of C on one Cascade Lake core 1×4096² takes 0.84 of the time with four, 0.88 with two).
pub(super) const BESIDE: usize = 4;

/// Vectors of columns in a panel.
const fn vectors(register_bytes: usize) -> usize {
    if register_bytes == 64 { 4 } else { 2 }
}

/// Columns of a panel on this instruction set.
pub(super) fn width<T>(isa: Isa) -> usize {
    vectors(isa.register_bytes()) * isa.register_bytes() / size_of::<T>()
}

/// The most rows in a group: as many sums as the registers hold beside the operands.
pub(super) const fn group_rows(register_bytes: usize) -> usize {
    match register_bytes {
        32 | 64 => 6,
        _ if cfg!(target_arch = "aarch64") => 8,
        _ => 4,
    }
}

/// Elements of scratch for the sums of some rows with one panel.
pub(super) fn sums<T>(isa: Isa) -> usize {
    SUMS * isa.register_bytes() / size_of::<T>()
}

/// The left operand, packed in groups of rows: group after group, in each all steps, its rows side by side.
#[derive(Clone, Copy)]
pub(super) struct Left<T> {
    pub at: *const T,
    pub k: usize,
    pub groups: Split,
}

impl<T: Float> Left<T> {
    /// Blocks of groups with at most [`SUMS`] vectors of sums.
    pub fn blocks<S: Lanes<T>>(&self) -> Split {
        let rows = const { SUMS / vectors(S::LANES * size_of::<T>()) };
        Split::at_most(self.groups.blocks, (rows / self.groups.longest().max(1)).max(1))
    }
}

/// Multiplies one block of rows with one panel and writes `columns` columns of results.
///
/// # Safety
/// The panel and the rows can be read, the output (of all rows) can be written, and `scratch` has [`sums`] elements.
#[inline(always)]
pub(super) unsafe fn multiply<W, C, S>(
    s: S,
    panel: *const W,
    left: &Left<W::Wide>,
    block: usize,
    out: &Out<C>,
    columns: usize,
    scratch: *mut W::Wide,
) where
    W: Stored,
    C: Stored<Wide = W::Wide>,
    S: Reads<W> + Reads<C>,
{
    let lanes = <S as Lanes<W::Wide>>::LANES;
    let most = const { vectors(<S as Lanes<W::Wide>>::LANES * size_of::<W::Wide>()) };
    // Few columns are not worth a whole panel.
    let vectors = if columns <= 2 * lanes { 2 } else { most };
    let (pitch, width) = (most * lanes, vectors * lanes);
    let (start, count) = left.blocks::<S>().piece(block);
    let first = left.groups.piece(start).0;
    let mut p = 0;
    loop {
        let at = panel.wrapping_add(p * pitch);
        let steps = (NEAR / most).min(left.k - p);
        let bytes = if count > 1 { pitch * size_of::<W>() / count } else { 0 };
        for g in start..start + count {
            let (row, size) = left.groups.piece(g);
            let later = at.wrapping_add(steps * pitch).wrapping_byte_add((g - start) * steps * bytes);
            let tile = Tiles::one(at, pitch as isize, steps, Asked::Share { at: later, bytes });
            let x = left.at.wrapping_add(row * left.k + p * size);
            // SAFETY: the group has packed rows and sums.
            unsafe {
                let sums = scratch.wrapping_add((row - first) * width);
                if most > 2 && vectors > 2 {
                    sized::<W, S, 4>(s, &tile, size, x, sums, p == 0);
                } else {
                    sized::<W, S, 2>(s, &tile, size, x, sums, p == 0);
                }
            }
        }
        p += steps;
        if p >= left.k {
            break;
        }
    }
    let last = left.groups.piece(start + count - 1);
    let sums = Sums { at: scratch, rows: last.0 + last.1 - first, width };
    // SAFETY: the sums of these rows are complete, and the output has them.
    unsafe { finish::<C, S>(s, &sums, &out.from(first, 0), columns) };
}

/// Multiplies a single row with [`BESIDE`] panels that follow one another and writes `columns` columns of results.
///
/// # Safety
/// As for [`multiply`], for all of these panels.
#[inline(always)]
pub(super) unsafe fn multiply_row<W, C, S>(
    s: S,
    panels: *const W,
    left: &Left<W::Wide>,
    out: &Out<C>,
    columns: usize,
    sums: *mut W::Wide,
) where
    W: Stored,
    C: Stored<Wide = W::Wide>,
    S: Reads<W> + Reads<C>,
{
    let most = const { vectors(<S as Lanes<W::Wide>>::LANES * size_of::<W::Wide>()) };
    // SAFETY: the caller's panels and row, and room for so many sums.
    unsafe {
        if most > 2 {
            row_beside::<W, S, 4>(s, panels, left, sums);
        } else {
            row_beside::<W, S, 2>(s, panels, left, sums);
        }
        let width = BESIDE * most * <S as Lanes<W::Wide>>::LANES;
        finish::<C, S>(s, &Sums { at: sums, rows: 1, width }, out, columns);
    }
}

/// The sums of a single row with panels of `V` vectors.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators that own arrays have destructors, which may not be inlined
unsafe fn row_beside<W: Stored, S: Reads<W>, const V: usize>(
    s: S,
    panels: *const W,
    left: &Left<W::Wide>,
    sums: *mut W::Wide,
) {
    let width = V * S::LANES;
    let mut x = [[s.splat(W::Wide::ZERO); V]; BESIDE];
    for p in 0..left.k {
        // SAFETY: the row has this step.
        let a = s.splat(unsafe { *left.at.add(p) });
        for panel in 0..BESIDE {
            for j in 0..V {
                // SAFETY: so does every panel, in whole vectors.
                let y = unsafe { s.read(panels.add((panel * left.k + p) * width + j * S::LANES)) };
                x[panel][j] = s.mul_add(a, y, x[panel][j]);
            }
        }
    }
    for panel in 0..BESIDE {
        for j in 0..V {
            // SAFETY: there is room for the sums of all panels.
            unsafe { s.store(sums.add(panel * width + j * S::LANES), x[panel][j]) };
        }
    }
}

/// One group of so many rows.
#[inline(always)]
unsafe fn sized<W: Stored, S: Reads<W>, const V: usize>(
    s: S,
    tile: &Tiles<W>,
    rows: usize,
    x: *const W::Wide,
    sums: *mut W::Wide,
    first: bool,
) {
    let most = const { group_rows(S::LANES * size_of::<W::Wide>()) };
    macro_rules! arms {
        ($($rows:literal)*) => {
            match rows {
                // SAFETY: the caller's promise, for this number of rows.
                $($rows if $rows <= most => unsafe { group::<W, S, $rows, V, true>(s, tile, x, sums, first) },)*
                _ => debug_assert!(rows == 0, "a group of {rows} rows"),
            }
        };
    }
    arms!(1 2 3 4 5 6 7 8);
}

/// A part of a matrix that is copied step by step: `across` elements side by side, in each of `k` steps.
#[derive(Clone, Copy)]
pub(super) struct Part<W> {
    pub at: *const W,
    /// Distance between the elements of a step.
    pub across: isize,
    /// Distance between steps.
    pub along: isize,
    pub size: usize,
    pub k: usize,
}

/// Copies a part: `pitch` elements for every step, zeros where the part has no more, from `W` to `P`.
///
/// # Safety
/// The part can be read, and `to` has room for `k · pitch` elements.
#[inline(always)]
pub(super) unsafe fn pack<W, P, S>(s: S, part: &Part<W>, to: *mut P, pitch: usize)
where
    W: Stored,
    P: Stored<Wide = W::Wide>,
    S: Reads<W> + Reads<P>,
{
    let lanes = <S as Lanes<W::Wide>>::LANES;
    for p in 0..part.k {
        for i in part.size..pitch {
            // SAFETY: the step has a place for it.
            unsafe { to.add(p * pitch + i).write(P::NIL) };
        }
    }
    if part.across == 1 {
        for p in 0..part.k {
            let from = part.at.wrapping_offset(p as isize * part.along);
            for i in (0..part.size).step_by(lanes) {
                let n = lanes.min(part.size - i);
                // SAFETY: `n` elements of the step are left.
                unsafe { s.write_first(to.add(p * pitch + i), read_some(s, from.wrapping_add(i), n), n) };
            }
        }
        return;
    }
    let steps = if part.along == 1 { lanes } else { 1 };
    for p in (0..part.k).step_by(steps) {
        let n = steps.min(part.k - p);
        for i in 0..part.size {
            let from = part.at.wrapping_offset(i as isize * part.across + p as isize * part.along);
            let mut some = [P::NIL; 16];
            // SAFETY: `n` contiguous steps of the row are left, and each has its place.
            unsafe {
                s.write_first(some.as_mut_ptr(), read_some(s, from, n), n);
                for (q, x) in some.iter().enumerate().take(n) {
                    to.add((p + q) * pitch + i).write(*x);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn read_some<W: Stored, S: Reads<W>>(s: S, at: *const W, n: usize) -> S::V {
    // SAFETY: the caller has so many elements there.
    unsafe { if n == S::LANES { s.read(at) } else { s.read_first(at, n) } }
}
