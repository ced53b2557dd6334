//! Tiles: the sums of products of a few rows and a few vectors of columns, in registers.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::cpu_micro::{Access, FAR_AHEAD, Left, Right, Target};
use crate::backends::cpu::real::{prefetch, settled, settled_offset};
use crate::backends::cpu::simd::{Apart, Float, Lanes};

/// A tile on its way through memory, where it is not simply written.
#[repr(align(64))]
pub(super) struct Spill<T>([MaybeUninit<T>; MAX_TILE]);

impl<T> Spill<T> {
    #[inline(always)]
    pub fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; MAX_TILE])
    }

    /// Where the tile begins; its rows follow one another, each of whole vectors.
    #[inline(always)]
    pub fn at(&self) -> *const T {
        self.0.as_ptr().cast()
    }
}

/// Steps of a packed left panel that are asked for before they are needed.
const AHEAD: isize = 16;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Elements of the largest tile: twelve rows of two vectors of sixteen lanes, or six of four.
const MAX_TILE: usize = 12 * 2 * 16;

/// What is done with the sums of tiles.
#[derive(Clone, Copy)]
enum Write {
    Store,
    /// Added to what is there.
    Add,
    /// Stored past the caches.
    Stream,
    /// The columns that exist are stored.
    StoreFirst,
    /// The same, added to what is there.
    AddFirst,
}

/// How many tiles a call computes.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    /// Rows of tiles.
    pub count: usize,
    /// From one to the next in the left operand.
    pub below: isize,
    /// Tiles side by side in each.
    pub across: usize,
    /// From one of these to the next in the right operand.
    pub beside: usize,
    /// Whether the result has to be asked for before it is written, if tiles do anything on the way.
    pub far: bool,
}

/// Steps of a matrix that tiles side by side copy on the way, each its vectors of every step: into panels that follow one another.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Copied<T> {
    pub from: *const T,
    /// Distance between steps.
    pub rs: isize,
    pub steps: usize,
    pub to: *mut T,
    /// Distance between panels.
    pub apart: usize,
}

impl<T> Copied<T> {
    /// No step.
    pub const NONE: Self =
        Self { from: std::ptr::null(), rs: 0, steps: 0, to: std::ptr::null_mut(), apart: 0 };
}

/// What a tile does beside its sums, a little in each of several turns: lines that are asked for all at once would wait for each other,
/// and the sums for them.
struct OnTheWay<T> {
    turns: usize,
    /// Steps of the product between turns.
    every: usize,
    copied: Copied<T>,
    /// From what is copied to what the next tile will copy.
    ahead: isize,
    /// Where the next tile goes, and its rows that are asked for.
    next: *const T,
    next_rs: isize,
    next_rows: usize,
}

impl<T: Float> OnTheWay<T> {
    /// The part of a turn; each moves on to the next one's.
    #[inline(always)]
    unsafe fn turn<S: Lanes<T>, const V: usize>(&mut self, s: S, turn: usize) {
        if turn < self.copied.steps {
            for j in 0..V {
                let at = j * S::LANES;
                let from = self.copied.from.wrapping_add(at);
                // SAFETY: the caller's matrix and panels have whole vectors of the step.
                unsafe { s.store(self.copied.to.wrapping_add(at), s.load(from)) };
                prefetch(from.wrapping_offset(self.ahead));
            }
            self.copied.from = self.copied.from.wrapping_offset(self.copied.rs);
            self.copied.to = self.copied.to.wrapping_add(V * S::LANES);
        }
        if turn < self.next_rows {
            for line in 0..const { (V * S::LANES * size_of::<T>()).div_ceil(LINE) } {
                prefetch(self.next.wrapping_byte_add(LINE * line));
            }
            self.next = self.next.wrapping_offset(self.next_rs);
        }
    }
}

/// Tiles of `R` rows and `V` vectors: their operands, and where they go.
struct Tiles<T, A, const MASKED: bool, const R: usize, const V: usize> {
    grid: Grid,
    k: usize,
    left: Left<T>,
    right: Right<T>,
    c: *mut T,
    rs: isize,
    columns: usize,
    write: Write,
    copied: Copied<T>,
    access: PhantomData<A>,
}

impl<T: Float, A: Access, const MASKED: bool, const R: usize, const V: usize> Apart<T>
    for Tiles<T, A, MASKED, R, V>
{
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Self { grid, k, mut left, right, c: mut row, rs, columns, write, copied, .. } = self;
        let next_rows = if grid.far { R } else { 0 };
        let turns = if A::ON_THE_WAY { next_rows.max(copied.steps).max(1) } else { 1 };
        let every = if A::ON_THE_WAY { k / turns } else { k };
        for _ in 0..grid.count {
            let (mut right, mut c) = (right, row);
            let below = row.wrapping_offset(rs.wrapping_mul(R as isize));
            for tile in 0..grid.across {
                let at = tile * V * S::LANES;
                let (next, ahead) = if tile + 1 < grid.across {
                    (c.wrapping_add(V * S::LANES), (V * S::LANES) as isize)
                } else {
                    (below, copied.rs.wrapping_mul(copied.steps as isize).wrapping_sub(at as isize))
                };
                let (from, to) = (copied.from.wrapping_add(at), copied.to.wrapping_add(tile * copied.apart));
                let copied = Copied { from, to, ..copied };
                let aside = OnTheWay { turns, every, copied, ahead, next, next_rs: rs, next_rows };
                // SAFETY: whoever made the tiles gave valid operands and room for whole vectors.
                unsafe {
                    let sums = multiply::<T, S, A, MASKED, R, V>(s, k, left, right, columns, aside);
                    let lanes = |j: usize| columns.saturating_sub(j * S::LANES).min(S::LANES);
                    match write {
                        Write::Store => each(sums, c, rs, S::LANES, |at, _, sum| s.store(at, sum)),
                        Write::Add => {
                            each(sums, c, rs, S::LANES, |at, _, sum| s.store(at, s.add(s.load(at), sum)));
                        }
                        Write::Stream => each(sums, c, rs, S::LANES, |at, _, sum| s.stream(at, sum)),
                        Write::StoreFirst => {
                            each(sums, c, rs, S::LANES, |at, j, sum| s.store_first(at, sum, lanes(j)));
                        }
                        Write::AddFirst => each(sums, c, rs, S::LANES, |at, j, sum| {
                            s.store_first(at, s.add(s.load_first(at, lanes(j)), sum), lanes(j));
                        }),
                    }
                }
                right.b = right.b.wrapping_add(grid.beside);
                c = c.wrapping_add(V * S::LANES);
            }
            left.a = left.a.wrapping_offset(grid.below);
            row = below;
        }
    }
}

/// Computes tiles that are simply written, by a function of their own.
#[inline(always)]
#[allow(clippy::too_many_arguments)] // operands, target and what is copied beside them
pub(super) unsafe fn tiles<
    T: Float,
    S: Lanes<T>,
    A: Access,
    const MASKED: bool,
    const R: usize,
    const V: usize,
>(
    s: S,
    grid: Grid,
    k: usize,
    left: Left<T>,
    right: Right<T>,
    target: &Target<T>,
    copied: Copied<T>,
) {
    let some = S::MASKS && target.columns < V * S::LANES;
    let write = match target {
        Target { stream: true, .. } => Write::Stream,
        Target { accumulate: true, .. } if some => Write::AddFirst,
        Target { accumulate: true, .. } => Write::Add,
        _ if some => Write::StoreFirst,
        _ => Write::Store,
    };
    let (c, rs, columns) = (target.c, target.rs, target.columns);
    let access = PhantomData;
    s.apart(Tiles::<T, A, MASKED, R, V> { grid, k, left, right, c, rs, columns, write, copied, access });
}

/// Computes the sums of one tile.
#[inline(always)]
pub(super) unsafe fn spilled<
    T: Float,
    S: Lanes<T>,
    A: Access,
    const MASKED: bool,
    const R: usize,
    const V: usize,
>(
    s: S,
    k: usize,
    left: Left<T>,
    right: Right<T>,
    columns: usize,
    spill: &mut Spill<T>,
) {
    let grid = Grid { count: 1, below: 0, across: 1, beside: 0, far: false };
    let (c, rs, write) = (spill.0.as_mut_ptr().cast(), (V * S::LANES) as isize, Write::Store);
    let (copied, access) = (Copied::NONE, PhantomData);
    s.apart(Tiles::<T, A, MASKED, R, V> { grid, k, left, right, c, rs, columns, write, copied, access });
}

/// Calls `f` with every vector of a tile, its place and its number in the row.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators that own arrays have destructors, which may not be inlined
fn each<T, V: Copy, const R: usize, const N: usize>(
    sums: [[V; N]; R],
    mut row: *mut T,
    rs: isize,
    lanes: usize,
    f: impl Fn(*mut T, usize, V),
) {
    for i in 0..R {
        for j in 0..N {
            f(row.wrapping_add(j * lanes), j, sums[i][j]);
        }
        row = row.wrapping_offset(rs);
    }
}

/// Asks for the lines of a tile that will be needed after the sums.
#[inline(always)]
pub(super) fn expect<T>(mut row: *const T, rs: isize, rows: usize, columns: usize) {
    for _ in 0..rows {
        for column in (0..columns - 1).step_by(LINE / size_of::<T>()) {
            prefetch(row.wrapping_add(column));
        }
        prefetch(row.wrapping_add(columns - 1));
        row = row.wrapping_offset(rs);
    }
}

/// The sums of products of `R` rows and `V` vectors of columns, of which `columns` exist if `MASKED`.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators that own arrays have destructors, which may not be inlined
unsafe fn multiply<T: Float, S: Lanes<T>, A: Access, const MASKED: bool, const R: usize, const V: usize>(
    s: S,
    k: usize,
    left: Left<T>,
    right: Right<T>,
    columns: usize,
    mut aside: OnTheWay<T>,
) -> [[S::V; V]; R] {
    let cs = if A::PACKED_LEFT { R as isize } else { left.cs };
    let rows = eight_rows(left.rs);
    // Every eighth row has a pointer: stepping from row to row would be a chain as long as the sums.
    let mut a = [left.a, settled(left.a.wrapping_offset(left.rs.wrapping_mul(8)))];
    let mut b = right.b;
    let mut sums = [[s.splat(T::ZERO); V]; R];
    for turn in 0..aside.turns {
        if A::ON_THE_WAY {
            // SAFETY: the caller's promise.
            unsafe { aside.turn::<S, V>(s, turn) };
        }
        let last = turn + 1 == aside.turns;
        for _ in 0..if last { k - turn * aside.every } else { aside.every } {
            let mut y = [s.splat(T::ZERO); V];
            for (j, y) in y.iter_mut().enumerate() {
                let at = b.wrapping_add(j * S::LANES);
                let lanes = columns.saturating_sub(j * S::LANES).min(S::LANES);
                // SAFETY: the caller's columns.
                *y = unsafe { if MASKED { s.load_first(at, lanes) } else { s.load(at) } };
            }
            for i in 0..R {
                let row =
                    if A::PACKED_LEFT { a[0].wrapping_add(i) } else { a[i / 8].wrapping_offset(rows[i % 8]) };
                // SAFETY: the caller's rows and steps.
                let x = s.splat(unsafe { *row });
                for j in 0..V {
                    sums[i][j] = s.mul_add(x, y[j], sums[i][j]);
                }
            }
            if A::PACKED_LEFT {
                // Panels follow one another, so this reaches into the next one in time.
                prefetch(a[0].wrapping_offset(AHEAD * R as isize));
            }
            if A::FAR_RIGHT {
                let far = b.wrapping_offset(right.rs.wrapping_mul(FAR_AHEAD as isize));
                for line in 0..const { (V * S::LANES * size_of::<T>()).div_ceil(LINE) } {
                    prefetch(far.wrapping_byte_add(LINE * line));
                }
            }
            a = [a[0].wrapping_offset(cs), a[1].wrapping_offset(cs)];
            if !A::PACKED_LEFT {
                // Else the compiler finds a pointer for every row, more than there are registers.
                a = [settled(a[0]), settled(a[1])];
            }
            b = b.wrapping_offset(right.rs);
        }
    }
    sums
}

/// Distances of eight rows: odd multiples of a row, of which addresses make the others, so that few registers are enough.
#[inline(always)]
fn eight_rows(rs: isize) -> [isize; 8] {
    let three = settled_offset(rs.wrapping_mul(3));
    let five = settled_offset(rs.wrapping_mul(5));
    let seven = settled_offset(rs.wrapping_mul(7));
    [0, rs, rs.wrapping_mul(2), three, rs.wrapping_mul(4), five, three.wrapping_mul(2), seven]
}
