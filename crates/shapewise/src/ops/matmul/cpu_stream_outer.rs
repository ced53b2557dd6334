//! The walk along contiguous rows: a few rows of the matrix side by side, sums waiting in the cache.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_problem::Split;
use super::cpu_stored::{Reads, Stored, StoredTask};
use super::cpu_stream::{Matrix, Rows, Sums};
use crate::backends::cpu::real::{prefetch, prefetch_far, settled};
use crate::backends::cpu::simd::Float;

/// Vectors in a tile of several rows: a line of the matrix (eight rows by 4096² in a loop of C on one Zen 5 core: 1.8 ms with one
/// vector of 64 bytes, 1.9 with three).
pub(super) const fn vectors(rows: usize, register_bytes: usize) -> usize {
    match rows {
        0 | 1 => VECTORS_ONE,
        _ if register_bytes == LINE => 1,
        _ => 2,
    }
}
const VECTORS_ONE: usize = 4;
/// The most rows whose sums are in registers at once.
pub(super) const fn group_rows(register_bytes: usize) -> usize {
    if register_bytes == LINE { 8 } else { 4 }
}
/// Rows of the matrix read side by side: each is a stream of its own for the prefetcher, and when rows lie a
/// power of two apart, more of them would throw one another out of an 8-way cache.
pub(super) const STREAMS: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes that are asked for before they are needed where rows are streams of their own, to the first-level cache (in a loop of C on one Zen 5
/// core 0.8 of the time with eight rows, but 1.03 to 1.09 with one).
const NEXT: usize = 1 << 10;
/// The same to the second-level cache, where the next rows lie farther than that share of it (in loops of C on one Zen 4 core 8×4096² takes
/// 3.4 ms with nothing asked for, 3.7 by [`NEXT`], 2.9 by this and 2.8 with the next rows; 1×4096² 2.4, 2.9, 2.1 and 2.0).
const LATER: usize = 2 << 10;
const NEXT_ROWS: usize = 256 << 10;
/// Bytes of the matrix that all groups of rows pass by before the next ones come: a part of the first-level cache.
const NEAR: usize = 16 << 10;
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
    /// Whether the matrix is asked for as far ahead as the second-level cache allows.
    pub far: bool,
}

/// What of the matrix is asked for while steps are computed.
#[derive(Clone, Copy)]
pub(super) enum Asked<W> {
    Nothing,
    /// So many bytes after each step, to the first-level cache.
    Near(usize),
    /// The same to the second-level one.
    Far(usize),
    /// What will be read when all groups of rows have passed, from here on, so many bytes of it in each step.
    Share {
        at: *const W,
        bytes: usize,
    },
}

impl<W: Stored> StoredTask<W> for Outer<W> {
    #[inline(always)]
    fn run<S: Reads<W> + Reads<W::Wide>>(self, s: S) {
        // SAFETY: what the task is made of.
        unsafe { outer::<W, S>(s, &self.w, self.rows, &self.sums, self.far) };
    }
}

#[inline(always)]
unsafe fn outer<W: Stored, S: Reads<W>>(
    s: S,
    w: &Matrix<W>,
    rows: *const W::Wide,
    sums: &Sums<W::Wide>,
    far: bool,
) {
    let mut gathered = [W::NIL; GATHERED];
    // A single tile needs no company: its sums can stay in registers all the way.
    let direct = w.cs == 1 && w.columns == sums.width;
    let streams = if direct { w.k.max(1) } else { STREAMS };
    let whole = if w.cs == 1 { w.columns / sums.width } else { 0 };
    let near = (NEAR / (STREAMS * size_of::<W>() * sums.width)).max(1);
    let next_rows = STREAMS * w.rs.unsigned_abs() * size_of::<W>();
    let asked = match (far, sums.rows) {
        (true, _) => Asked::Far(if w.rs > 0 && next_rows <= NEXT_ROWS { next_rows } else { LATER }),
        (false, 1) => Asked::Nothing,
        (false, _) => Asked::Near(NEXT),
    };
    let mut p = 0;
    loop {
        let steps = streams.min(w.k - p);
        let mut column = 0;
        while column < w.columns {
            let at = w.at.wrapping_offset(p as isize * w.rs + column as isize * w.cs);
            let count = near.min(whole.saturating_sub(column / sums.width));
            let tiles = if count > 0 {
                Tiles { at, rs: w.rs, steps, count, apart: sums.width * sums.rows, asked }
            } else {
                let columns = sums.width.min(w.columns - column);
                // SAFETY: the steps and columns exist, and the buffer has room for a whole tile.
                unsafe { gather(at, w, steps, columns, sums.width, &mut gathered) };
                Tiles::one(gathered.as_ptr(), sums.width as isize, steps, Asked::Nothing)
            };
            let start = Start { k: w.k, p, rows, sums: sums.row(column, 0) };
            // SAFETY: the tiles can be read, and have their packed rows and their sums.
            unsafe {
                if sums.rows == 1 {
                    group::<W, S, 1, VECTORS_ONE, false>(s, &tiles, rows.add(p), start.sums, p == 0);
                } else {
                    groups(s, &tiles, &start, sums);
                }
            }
            column += tiles.count * sums.width;
        }
        p += steps;
        if p >= w.k {
            break;
        }
    }
}

/// Some steps of some columns: tiles side by side.
pub(super) struct Tiles<W> {
    at: *const W,
    rs: isize,
    steps: usize,
    count: usize,
    /// Elements from the sums of a tile to those of the next.
    apart: usize,
    asked: Asked<W>,
}

impl<W> Tiles<W> {
    /// A single one.
    #[inline(always)]
    pub fn one(at: *const W, rs: isize, steps: usize, asked: Asked<W>) -> Self {
        Self { at, rs, steps, count: 1, apart: 0, asked }
    }
}

/// Where the packed rows and the sums of tiles are.
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
unsafe fn groups<W: Stored, S: Reads<W>>(
    s: S,
    tiles: &Tiles<W>,
    start: &Start<W::Wide>,
    sums: &Sums<W::Wide>,
) {
    let most = const { group_rows(S::LANES * size_of::<W::Wide>()) };
    let split = Split::at_most(sums.rows, most);
    let first = start.p == 0;
    let mut row = 0;
    for g in 0..split.blocks {
        let rows = split.length(g);
        let to = start.sums.wrapping_add(row * sums.width);
        let from = start.rows.wrapping_add(row * start.k + start.p * rows);
        macro_rules! arms {
            ($($rows:literal)*) => {
                match rows {
                    // SAFETY: as the caller promises, for these rows.
                    $($rows if most == 8 => unsafe { group::<W, S, $rows, 1, false>(s, tiles, from, to, first) },
                    // SAFETY: the same.
                    $rows if $rows <= most => unsafe { group::<W, S, $rows, 2, false>(s, tiles, from, to, first) },)*
                    _ => unreachable!("a group of {rows} of {} rows", sums.rows),
                }
            };
        }
        arms!(1 2 3 4 5 6 7 8);
        row += rows;
    }
}

/// Adds the products of one group of `R` rows with tiles of `V` vectors to their sums, which begin at zero if `first`. Steps follow one
/// another in memory if `PANEL`.
///
/// # Safety
/// The tiles can be read; `rows` has `R` elements for each of their steps, `sums` `V` vectors for each row and tile.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators that own arrays have destructors, which may not be inlined
pub(super) unsafe fn group<W: Stored, S: Reads<W>, const R: usize, const V: usize, const PANEL: bool>(
    s: S,
    tiles: &Tiles<W>,
    rows: *const W::Wide,
    sums: *mut W::Wide,
    first: bool,
) {
    for t in 0..tiles.count {
        let sums = sums.wrapping_add(t * tiles.apart);
        let mut at = tiles.at.wrapping_add(t * V * S::LANES);
        let mut x = [[s.splat(W::Wide::ZERO); V]; R];
        if !first {
            for i in 0..R {
                for j in 0..V {
                    // SAFETY: the sums of the group follow one another.
                    x[i][j] = unsafe { s.load(sums.add((i * V + j) * S::LANES)) };
                }
            }
        }
        macro_rules! steps {
            ($($step:literal)*) => {
                $(
                    // SAFETY: the tile has this step.
                    unsafe { step::<W, S, R, V>(s, at, rows.wrapping_add($step * R), &mut x) };
                    match tiles.asked {
                        Asked::Near(bytes) => ask::<W, S, V>(at, bytes, prefetch),
                        Asked::Far(bytes) => ask::<W, S, V>(at, bytes, prefetch_far),
                        Asked::Nothing | Asked::Share { .. } => {}
                    }
                    at = at.wrapping_offset(tiles.rs);
                )*
            };
        }
        if !PANEL && tiles.steps == STREAMS {
            // Prefetchers go by instructions: each row of the matrix has its own (1×4096² on one Zen 5 core in 0.74 of the time).
            steps!(0 1 2 3 4 5 6 7);
        } else {
            let (mut later, bytes) = match tiles.asked {
                Asked::Share { at, bytes } if PANEL => (settled(at), bytes),
                _ => (at, 0),
            };
            let rows = if PANEL { settled(rows) } else { rows };
            for p in 0..tiles.steps {
                // SAFETY: as above.
                unsafe { step::<W, S, R, V>(s, at, rows.wrapping_add(p * R), &mut x) };
                for line in 0..bytes.div_ceil(LINE) {
                    prefetch_far(later.wrapping_byte_add(line * LINE));
                }
                later = later.wrapping_byte_add(bytes);
                at = at.wrapping_offset(tiles.rs);
            }
        }
        for i in 0..R {
            for j in 0..V {
                // SAFETY: as above.
                unsafe { s.store(sums.add((i * V + j) * S::LANES), x[i][j]) };
            }
        }
    }
}

/// Adds the products of one step.
///
/// # Safety
/// The step has `V` vectors, the rows `R` elements.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // as above
unsafe fn step<W: Stored, S: Reads<W>, const R: usize, const V: usize>(
    s: S,
    at: *const W,
    rows: *const W::Wide,
    x: &mut [[S::V; V]; R],
) {
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
}

/// Asks for the lines of a step that lie so many bytes after these.
#[inline(always)]
fn ask<W: Stored, S: Reads<W>, const V: usize>(at: *const W, ahead: usize, ask: impl Fn(*const W)) {
    for line in 0..const { (V * S::LANES * size_of::<W>()).div_ceil(LINE) } {
        ask(at.wrapping_byte_add(ahead + line * LINE));
    }
}
