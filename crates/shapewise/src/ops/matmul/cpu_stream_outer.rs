//! The walk along contiguous rows: a few rows of the matrix side by side, sums waiting in the cache.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_problem::Split;
use super::cpu_stored::{Reads, Stored, StoredTask};
use super::cpu_stream::{Matrix, Rows, Sums};
use crate::backends::cpu::real::prefetch_far;
use crate::backends::cpu::simd::Float;

/// Vectors in a tile of several rows.
pub(super) const VECTORS: usize = 2;
/// Vectors in a tile of a single row.
pub(super) const VECTORS_ONE: usize = 4;
/// The most rows whose sums are in registers at once.
pub(super) const GROUP: usize = 4;
/// Rows of the matrix read side by side: each is a stream of its own for the prefetcher, and when rows lie a
/// power of two apart, more of them would throw one another out of an 8-way cache.
pub(super) const STREAMS: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes that are asked for before they are needed where a matrix is a single stream (on one Emerald Rapids core 0.69 to 0.74 of the
/// time with eight rows; with one row it makes no difference).
const AHEAD: usize = 4 << 10;
/// Elements of the buffer for gathered tiles: streams × vectors × lanes.
const GATHERED: usize = STREAMS * VECTORS_ONE * 16;

/// Copies rows: groups of at most `most` rows, in each all steps, the rows of a group side by side.
///
/// # Safety
/// The rows can be read, and `to` has room for all of them.
pub(super) unsafe fn pack<W: Stored>(rows: &Rows<W>, most: usize, mut to: *mut W::Wide) {
    let groups = Split::at_most(rows.m, most);
    for g in 0..groups.blocks {
        let (first, size) = groups.piece(g);
        let mut from = rows.at.wrapping_offset(first as isize * rows.rs);
        for _ in 0..rows.k {
            for i in 0..size {
                // SAFETY: the element exists and has room.
                unsafe { to.add(i).write((*from.wrapping_offset(i as isize * rows.rs)).widen()) };
            }
            to = to.wrapping_add(size);
            from = from.wrapping_offset(rows.cs);
        }
    }
}

/// Sums of all columns of a matrix that can be read: `rows` was made by [`pack`], and the sums have room for whole tiles.
pub(super) struct Outer<W: Stored> {
    pub w: Matrix<W>,
    pub rows: *const W::Wide,
    pub sums: Sums<W::Wide>,
}

impl<W: Stored> StoredTask<W> for Outer<W> {
    #[inline(always)]
    fn run<S: Reads<W> + Reads<W::Wide>>(self, s: S) {
        // SAFETY: what the task is made of.
        unsafe { outer::<W, S>(s, &self.w, self.rows, &self.sums) };
    }
}

#[inline(always)]
unsafe fn outer<W: Stored, S: Reads<W>>(s: S, w: &Matrix<W>, rows: *const W::Wide, sums: &Sums<W::Wide>) {
    let mut gathered = [W::NIL; GATHERED];
    // A single tile needs no company: its sums can stay in registers all the way.
    let direct = w.cs == 1 && w.columns == sums.width;
    let streams = if direct { w.k.max(1) } else { STREAMS };
    let mut p = 0;
    loop {
        let steps = streams.min(w.k - p);
        let mut column = 0;
        while column < w.columns {
            let columns = sums.width.min(w.columns - column);
            let at = w.at.wrapping_offset(p as isize * w.rs + column as isize * w.cs);
            let tile = if w.cs == 1 && columns == sums.width {
                Tile { at, rs: w.rs, steps }
            } else {
                // SAFETY: the steps and columns exist, and the buffer has room for a whole tile.
                unsafe { gather(at, w, steps, columns, sums.width, &mut gathered) };
                Tile { at: gathered.as_ptr(), rs: sums.width as isize, steps }
            };
            let start = Start { k: w.k, p, rows, sums: sums.row(column, 0) };
            // SAFETY: the tile can be read, and has its packed rows and its sums.
            unsafe {
                if sums.rows == 1 {
                    group::<W, S, 1, VECTORS_ONE, false>(s, &tile, rows.add(p), start.sums, p == 0);
                } else {
                    groups(s, &tile, &start, sums);
                }
            }
            column += sums.width;
        }
        p += steps;
        if p >= w.k {
            break;
        }
    }
}

/// Some steps of some columns.
pub(super) struct Tile<W> {
    pub at: *const W,
    pub rs: isize,
    pub steps: usize,
}

/// Where the packed rows and the sums of a tile are.
struct Start<T> {
    k: usize,
    p: usize,
    rows: *const T,
    sums: *mut T,
}

/// Copies a tile that is not contiguous or not whole.
unsafe fn gather<W: Stored>(
    at: *const W,
    w: &Matrix<W>,
    steps: usize,
    columns: usize,
    width: usize,
    to: &mut [W; GATHERED],
) {
    for (p, to) in to.chunks_exact_mut(width).enumerate().take(steps) {
        for (j, to) in to.iter_mut().enumerate().take(columns) {
            // SAFETY: step `p` and column `j` of the tile exist.
            *to = unsafe { *at.offset(p as isize * w.rs + j as isize * w.cs) };
        }
    }
}

/// All rows, a group at a time.
#[inline(always)]
unsafe fn groups<W: Stored, S: Reads<W>>(s: S, tile: &Tile<W>, start: &Start<W::Wide>, sums: &Sums<W::Wide>) {
    let split = Split::at_most(sums.rows, GROUP);
    let (mut row, first) = (0, start.p == 0);
    for g in 0..split.blocks {
        let rows = split.length(g);
        let to = start.sums.wrapping_add(row * sums.width);
        let from = start.rows.wrapping_add(row * start.k + start.p * rows);
        // SAFETY: as the caller promises, for these rows.
        unsafe {
            match rows {
                1 => group::<W, S, 1, VECTORS, false>(s, tile, from, to, first),
                2 => group::<W, S, 2, VECTORS, false>(s, tile, from, to, first),
                3 => group::<W, S, 3, VECTORS, false>(s, tile, from, to, first),
                _ => group::<W, S, 4, VECTORS, false>(s, tile, from, to, first),
            }
        }
        row += rows;
    }
}

/// Adds the products of one group of `R` rows with a tile of `V` vectors to their sums, which begin at zero if `first`. Steps that
/// follow one another in memory are asked for ahead if `FAR`.
///
/// # Safety
/// The tile can be read; `rows` has `R` elements for each of its steps, `sums` `V` vectors for each row.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators that own arrays have destructors, which may not be inlined
pub(super) unsafe fn group<W: Stored, S: Reads<W>, const R: usize, const V: usize, const FAR: bool>(
    s: S,
    tile: &Tile<W>,
    mut rows: *const W::Wide,
    sums: *mut W::Wide,
    first: bool,
) {
    let mut x = [[s.splat(W::Wide::ZERO); V]; R];
    if !first {
        for i in 0..R {
            for j in 0..V {
                // SAFETY: the sums of the group follow one another.
                x[i][j] = unsafe { s.load(sums.add((i * V + j) * S::LANES)) };
            }
        }
    }
    let mut at = tile.at;
    for _ in 0..tile.steps {
        let mut y = [s.splat(W::Wide::ZERO); V];
        for j in 0..V {
            // SAFETY: a step of the tile has `V` vectors.
            y[j] = unsafe { s.read(at.add(j * S::LANES)) };
        }
        for i in 0..R {
            // SAFETY: a step of the packed rows has `R` elements.
            let a = s.splat(unsafe { *rows.add(i) });
            for j in 0..V {
                x[i][j] = s.mul_add(a, y[j], x[i][j]);
            }
        }
        if FAR {
            for line in 0..const { (V * S::LANES * size_of::<W>()).div_ceil(LINE) } {
                prefetch_far(at.wrapping_byte_add(AHEAD + line * LINE));
            }
        }
        at = at.wrapping_offset(tile.rs);
        rows = rows.wrapping_add(R);
    }
    for i in 0..R {
        for j in 0..V {
            // SAFETY: as above.
            unsafe { s.store(sums.add((i * V + j) * S::LANES), x[i][j]) };
        }
    }
}
