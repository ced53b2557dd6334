//! Tiles: the sums of products of a few rows and a few vectors of columns, in registers.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::cpu_micro::{Access, FAR_AHEAD, Left, Many, Right, Target, tile_of};
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

/// Steps of the right operand that wide tiles ask for before they are needed: it comes from the second-level cache, a line for each of
/// its vectors in every step (a loop of assembler on one Cascade Lake core: 1.05 to 1.1 times as fast with 2 to 12).
const RIGHT_AHEAD: isize = 4;

/// Steps up to which the right operand stays in the first-level cache, and the result is what is waited for: then tiles ask for nothing
/// else and go step by step (in a laboratory on one Cascade Lake core 0.9 of the time at 64×64×65536).
const NEAR_STEPS: usize = 64;

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
        let at_once = const { steps_at_once::<T, S, A>(R * V) };
        let every = if A::ON_THE_WAY { k / turns / at_once * at_once } else { k };
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
    if const { asks_ahead::<T, S, Many<A>>(V) || steps_at_once::<T, S, Many<A>>(R * V) > 1 } && k > NEAR_STEPS
    {
        let access = PhantomData::<Many<A>>;
        s.apart(Tiles::<T, _, MASKED, R, V> { grid, k, left, right, c, rs, columns, write, copied, access });
    } else {
        let access = PhantomData::<A>;
        s.apart(Tiles::<T, _, MASKED, R, V> { grid, k, left, right, c, rs, columns, write, copied, access });
    }
}

/// Computes tiles of whole vectors that are only written, melted into the caller.
///
/// # Safety
/// Operands and target are valid for all rows and steps of the grid.
#[inline(always)]
pub(super) unsafe fn plain_tiles<T: Float, S: Lanes<T>, A: Access, const R: usize, const V: usize>(
    s: S,
    grid: Grid,
    k: usize,
    left: Left<T>,
    right: Right<T>,
    c: *mut T,
    rs: isize,
) {
    let (columns, write, copied, access) = (V * S::LANES, Write::Store, Copied::NONE, PhantomData);
    Tiles::<T, A, false, R, V> { grid, k, left, right, c, rs, columns, write, copied, access }.run(s);
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

/// Steps that a tile goes through between two looks at whether it is done: what that costs takes slots of the multipliers, and the
/// end of a loop that is short is foreseen.
const fn steps_at_once<T: Float, S: Lanes<T>, A: Access>(sums: usize) -> usize {
    if A::MANY_STEPS && A::PANELS && S::LANES * size_of::<T>() == 64 && sums >= 20 { 4 } else { 1 }
}

/// Whether tiles ask for the right operand in advance.
const fn asks_ahead<T: Float, S: Lanes<T>, A: Access>(vectors: usize) -> bool {
    A::MANY_STEPS && A::RIGHT_AHEAD && vectors > tile_of::<T, S>().1
}

/// The operands of a tile on their way through the steps.
struct Steps<T, const R: usize> {
    /// Every eighth row has a pointer: stepping from row to row would be a chain as long as the sums.
    a: [*const T; 2],
    rows: [isize; 8],
    cs: isize,
    b: *const T,
    b_rs: isize,
    /// From a step to the one that is asked for.
    ahead: isize,
    columns: usize,
}

impl<T: Float, const R: usize> Steps<T, R> {
    /// Adds the products of the next step, number `turn` of those at once.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // iterators that own arrays have destructors, which may not be inlined
    unsafe fn next<S: Lanes<T>, A: Access, const MASKED: bool, const V: usize>(
        &mut self,
        s: S,
        sums: &mut [[S::V; V]; R],
        turn: usize,
    ) {
        let in_line = const { LINE / size_of::<T>() };
        let mut y = [s.splat(T::ZERO); V];
        for (j, y) in y.iter_mut().enumerate() {
            let at = self.b.wrapping_add(j * S::LANES);
            let lanes = self.columns.saturating_sub(j * S::LANES).min(S::LANES);
            // SAFETY: the caller's columns.
            *y = unsafe { if MASKED { s.load_first(at, lanes) } else { s.load(at) } };
        }
        let wide = const { asks_ahead::<T, S, A>(V) };
        let ahead = self.b.wrapping_offset(self.ahead);
        for i in 0..R {
            let row = if A::PACKED_LEFT {
                self.a[0].wrapping_add(i)
            } else {
                self.a[i / 8].wrapping_offset(self.rows[i % 8])
            };
            // SAFETY: the caller's rows and steps.
            let x = s.splat(unsafe { *row });
            for j in 0..V {
                sums[i][j] = s.mul_add(x, y[j], sums[i][j]);
            }
            if wide && i < V {
                // One at a time: lines that are asked for all at once wait for each other.
                prefetch(ahead.wrapping_add(i * S::LANES));
            }
        }
        if wide {
            for j in R..V {
                prefetch(ahead.wrapping_add(j * S::LANES));
            }
        }
        if A::PACKED_LEFT && (turn == 0 || turn * R / in_line < (turn + 1) * R / in_line) {
            // Panels follow one another, so this reaches into the next one in time.
            prefetch(self.a[0].wrapping_offset(AHEAD * R as isize));
        }
        if A::FAR_RIGHT {
            let far = self.b.wrapping_offset(self.b_rs.wrapping_mul(FAR_AHEAD as isize));
            for line in 0..const { (V * S::LANES * size_of::<T>()).div_ceil(LINE) } {
                prefetch(far.wrapping_byte_add(LINE * line));
            }
        }
        self.a = [self.a[0].wrapping_offset(self.cs), self.a[1].wrapping_offset(self.cs)];
        if !A::PACKED_LEFT {
            // Else the compiler finds a pointer for every row, more than there are registers.
            self.a = [settled(self.a[0]), settled(self.a[1])];
        }
        self.b = self.b.wrapping_offset(self.b_rs);
    }
}

/// The sums of products of `R` rows and `V` vectors of columns, of which `columns` exist if `MASKED`.
#[inline(always)]
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
    let a = [left.a, settled(left.a.wrapping_offset(left.rs.wrapping_mul(8)))];
    let ahead = right.rs.wrapping_mul(RIGHT_AHEAD);
    let mut steps = Steps { a, rows, cs, b: right.b, b_rs: right.rs, ahead, columns };
    let mut sums = [[s.splat(T::ZERO); V]; R];
    let at_once = const { steps_at_once::<T, S, A>(R * V) };
    for turn in 0..aside.turns {
        if A::ON_THE_WAY {
            // SAFETY: the caller's promise.
            unsafe { aside.turn::<S, V>(s, turn) };
        }
        let last = turn + 1 == aside.turns;
        let now = if last { k - turn * aside.every } else { aside.every };
        // SAFETY: the caller's rows, steps and columns.
        unsafe {
            if at_once == 4 {
                for _ in 0..now / 4 {
                    steps.next::<S, A, MASKED, V>(s, &mut sums, 0);
                    steps.next::<S, A, MASKED, V>(s, &mut sums, 1);
                    steps.next::<S, A, MASKED, V>(s, &mut sums, 2);
                    steps.next::<S, A, MASKED, V>(s, &mut sums, 3);
                }
            }
            for _ in 0..if at_once == 1 { now } else { now % at_once } {
                steps.next::<S, A, MASKED, V>(s, &mut sums, 0);
            }
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
