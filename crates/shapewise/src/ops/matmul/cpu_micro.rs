//! The innermost product: tiles of a few rows by a few vectors of columns, summed in registers.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::cpu_problem::Split;
use crate::backends::cpu::real::{prefetch, settled};
use crate::backends::cpu::simd::{Apart, Float, Lanes};
use crate::ops::Activation;

/// Rows and vectors per row of a tile: as many sums as the registers hold beside the operands.
pub(in crate::ops) const fn tile_shape(register_bytes: usize) -> (usize, usize) {
    if register_bytes == 64 {
        (12, 2)
    } else if register_bytes == 32 {
        (6, 2)
    } else if cfg!(target_arch = "aarch64") {
        (8, 3)
    } else {
        (4, 2)
    }
}

/// [`tile_shape`] of `S`.
pub(in crate::ops) const fn tile_of<T: Float, S: Lanes<T>>() -> (usize, usize) {
    tile_shape(S::LANES * size_of::<T>())
}

/// Rows of the left operand: row `i`, step `p` is at `i · rs + p · cs`.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Left<T> {
    pub a: *const T,
    pub rs: isize,
    pub cs: isize,
}

/// Steps of the right operand, contiguous along the columns: step `p` starts at `p · rs`.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Right<T> {
    pub b: *const T,
    pub rs: isize,
}

/// Where tiles go; their rows are contiguous.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Target<T> {
    pub c: *mut T,
    pub rs: isize,
    /// Columns that exist.
    pub columns: usize,
    /// Add to what is there instead of the bias.
    pub accumulate: bool,
    /// Write past the caches; needs whole, aligned vectors.
    pub stream: bool,
    /// The bias of the first element, null for none.
    pub bias: *const T,
    pub bias_rs: isize,
    /// Zero or one.
    pub bias_cs: isize,
    /// Applied if it is `Relu` or `LeakyRelu`; the others are left to the caller.
    pub activation: Activation,
}

impl<T: Float> Target<T> {
    /// Whether sums are only written or added, in whole vectors or by masks that cost nothing.
    #[inline(always)]
    fn simple<S: Lanes<T>>(&self, padded: usize) -> bool {
        let plain = !matches!(self.activation, Activation::Relu | Activation::LeakyRelu { .. });
        (S::MASKS || self.columns == padded) && plain && (self.accumulate || self.bias.is_null())
    }

    #[inline(always)]
    fn down(&mut self, rows: usize) {
        self.c = self.c.wrapping_offset(self.rs.wrapping_mul(rows as isize));
        self.bias = self.bias.wrapping_offset(self.bias_rs.wrapping_mul(rows as isize));
    }

    #[inline(always)]
    fn right(&mut self, columns: usize) {
        self.c = self.c.wrapping_add(columns);
        self.bias = self.bias.wrapping_offset(self.bias_cs.wrapping_mul(columns as isize));
    }
}

/// A tile on its way through memory, where it is not simply written.
#[repr(align(64))]
struct Spill<T>([MaybeUninit<T>; MAX_TILE]);

/// Steps of a packed left panel that are asked for before they are needed.
const AHEAD: isize = 16;

/// Elements of the largest tile: twelve rows of two vectors of sixteen lanes.
const MAX_TILE: usize = 12 * 2 * 16;

/// Steps on their way from a far cache that are asked for before they are needed: found by trying on Zen 3.
pub(in crate::ops) const FAR_AHEAD: usize = 32;

/// How the operands are reached.
pub(in crate::ops) trait Access {
    /// Whether the left operand is packed into panels: step by step, as many elements as a tile has rows.
    const PACKED_LEFT: bool;
    /// Whether steps of the right operand come from a far cache, one after the other.
    const FAR_RIGHT: bool = false;
}

/// The left operand in panels.
pub(in crate::ops) struct Packed;
/// The left operand where it lies.
pub(in crate::ops) struct InPlace;
/// The left operand where it lies, the right one asked for ahead because it does not fit the near caches.
pub(in crate::ops) struct Streamed;

impl Access for Packed {
    const PACKED_LEFT: bool = true;
}
impl Access for InPlace {
    const PACKED_LEFT: bool = false;
}
impl Access for Streamed {
    const PACKED_LEFT: bool = false;
    const FAR_RIGHT: bool = true;
}

/// Calls `$run::<…, rows, vectors>` for run-time numbers of rows and vectors. The conditions are constants where they can
/// be: only tiles that fit the registers are compiled.
macro_rules! dispatch {
    ($t:ident, $s:ident, $access:ident, $masked:tt, $rows:expr, $vectors:expr, $run:ident $arguments:tt) => {
        dispatch!(@ $t, $s, $access, $masked, $rows, $vectors, $run, $arguments, 1 2 3 4 5 6 7 8 9 10 11 12)
    };
    (@ $t:ident, $s:ident, $access:ident, $masked:tt, $rows:expr, $vectors:expr, $run:ident, $arguments:tt,
        $($r:literal)*) => {
        match $rows {
            // SAFETY: the caller's promise, passed on.
            $($r if const { $r <= tile_of::<$t, $s>().0 } => unsafe {
                if const { !$masked || $s::MASKS } && $vectors == 1 {
                    $run::<$t, $s, $access, $masked, $r, 1> $arguments;
                } else if const { tile_of::<$t, $s>().1 == 2 } {
                    $run::<$t, $s, $access, $masked, $r, 2> $arguments;
                } else {
                    $run::<$t, $s, $access, $masked, $r, 3> $arguments;
                }
            },)*
            _ => debug_assert!($rows == 0, "no tile has so many rows"),
        }
    };
}

/// All tiles of one right panel, padded to its full width: the rows of `split` below one another.
///
/// # Safety
/// Operands and target are valid for all rows of the split, `k` steps and `target.columns`, which fit a tile.
#[inline(always)]
pub(in crate::ops) unsafe fn column<T: Float, S: Lanes<T>, A: Access>(
    s: S,
    split: Split,
    k: usize,
    mut left: Left<T>,
    right: Right<T>,
    mut target: Target<T>,
) {
    let most_vectors = const { tile_of::<T, S>().1 };
    let vectors = if target.columns <= S::LANES { 1 } else { most_vectors };
    let simple = target.simple::<S>(vectors * S::LANES);
    let mut spill = Spill([const { MaybeUninit::uninit() }; MAX_TILE]);
    for (rows, count) in split.groups().into_iter().filter(|group| group.1 > 0) {
        let below = if A::PACKED_LEFT { (rows * k) as isize } else { left.rs.wrapping_mul(rows as isize) };
        let mut left_to_do = count;
        while left_to_do > 0 {
            // Tiles that are simply written stay inside the machine loop; the others come out one by one.
            let now = if simple { left_to_do } else { 1 };
            let far = !target.stream && (A::PACKED_LEFT || now > 1);
            if simple {
                let grid = Grid { count: now, below, across: 1, far };
                dispatch!(T, S, A, false, rows, vectors, tiles(s, grid, k, left, right, &target));
            } else {
                if far {
                    expect(target.c, target.rs, rows, target.columns);
                }
                let columns = target.columns;
                dispatch!(T, S, A, false, rows, vectors, spilled(s, k, left, right, columns, &mut spill));
                // SAFETY: the target has these rows and columns.
                unsafe { finish(s, &spill, rows, vectors, &target) };
            }
            left.a = left.a.wrapping_offset(below.wrapping_mul(now as isize));
            target.down(rows * now);
            left_to_do -= now;
        }
    }
}

/// All tiles of all columns, the right operand where it lies: tiles side by side, then the next rows.
///
/// # Safety
/// Operands and target are valid for all rows of the split, `k` steps and `target.columns`.
#[inline(always)]
pub(in crate::ops) unsafe fn rows<T: Float, S: Lanes<T>, A: Access>(
    s: S,
    split: Split,
    k: usize,
    left: Left<T>,
    right: Right<T>,
    target: Target<T>,
) {
    let width = const { tile_of::<T, S>().1 * S::LANES };
    let panels = Target { columns: width, ..target };
    let whole = if panels.simple::<S>(width) { target.columns / width } else { 0 };
    if whole > 0 {
        // SAFETY: the caller's promise, for these columns.
        unsafe {
            groups::<T, S, A, false>(s, split, k, left, right, panels, const { tile_of::<T, S>().1 }, whole);
        }
    }
    let mut done = whole * width;
    while done < target.columns {
        let columns = width.min(target.columns - done);
        let mut rest = Target { columns, ..target };
        rest.right(done);
        let right = Right { b: right.b.wrapping_add(done), ..right };
        let vectors = columns.div_ceil(S::LANES);
        // SAFETY: the caller's promise, for these columns.
        unsafe {
            if const { S::MASKS } && rest.simple::<S>(width) {
                if columns == vectors * S::LANES {
                    groups::<T, S, A, false>(s, split, k, left, right, rest, vectors, 1);
                } else {
                    groups::<T, S, A, true>(s, split, k, left, right, rest, vectors, 1);
                }
            } else {
                strip(s, split, k, left, right, rest);
            }
        }
        done += columns;
    }
}

/// Tiles that are simply written, `across` side by side, those with the same number of rows in one call.
///
/// # Safety
/// Operands and target are valid for all rows of the split, `k` steps and the columns of `across` tiles of so many vectors; of the
/// right operand only the columns of the target are read if `MASKED`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(in crate::ops) unsafe fn groups<T: Float, S: Lanes<T>, A: Access, const MASKED: bool>(
    s: S,
    split: Split,
    k: usize,
    mut left: Left<T>,
    right: Right<T>,
    mut target: Target<T>,
    vectors: usize,
    across: usize,
) {
    for (rows, count) in split.groups() {
        let below = left.rs.wrapping_mul(rows as isize);
        // Small products have their result near anyway.
        let grid = Grid { count, below, across, far: false };
        if count > 0 {
            dispatch!(T, S, A, MASKED, rows, vectors, tiles(s, grid, k, left, right, &target));
        }
        left.a = left.a.wrapping_offset(below.wrapping_mul(count as isize));
        target.down(rows * count);
    }
}

/// Tiles of one panel below one another, spilled and finished one by one.
#[inline(always)]
unsafe fn strip<T: Float, S: Lanes<T>>(
    s: S,
    split: Split,
    k: usize,
    mut left: Left<T>,
    right: Right<T>,
    mut target: Target<T>,
) {
    let (vectors, columns) = (const { tile_of::<T, S>().1 }, target.columns);
    let mut spill = Spill([const { MaybeUninit::uninit() }; MAX_TILE]);
    for i in 0..split.blocks {
        let rows = split.length(i);
        if columns == vectors * S::LANES {
            dispatch!(T, S, InPlace, false, rows, vectors, spilled(s, k, left, right, columns, &mut spill));
        } else {
            dispatch!(T, S, InPlace, true, rows, vectors, spilled(s, k, left, right, columns, &mut spill));
        }
        // SAFETY: the target has these rows and columns.
        unsafe { finish(s, &spill, rows, vectors, &target) };
        left.a = left.a.wrapping_offset(left.rs.wrapping_mul(rows as isize));
        target.down(rows);
    }
}

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
struct Grid {
    /// Rows of tiles.
    count: usize,
    /// From one to the next in the left operand.
    below: isize,
    /// Tiles side by side in each.
    across: usize,
    /// Whether the result has to be asked for before it is written.
    far: bool,
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
    access: PhantomData<A>,
}

impl<T: Float, A: Access, const MASKED: bool, const R: usize, const V: usize> Apart<T>
    for Tiles<T, A, MASKED, R, V>
{
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Self { grid, k, mut left, right, c: mut row, rs, columns, write, .. } = self;
        for _ in 0..grid.count {
            let (mut right, mut c) = (right, row);
            for _ in 0..grid.across {
                if grid.far {
                    expect(c, rs, R, columns);
                }
                // SAFETY: whoever made the tiles gave valid operands and room for whole vectors.
                unsafe {
                    let sums = multiply::<T, S, A, MASKED, R, V>(s, k, left, right, columns);
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
                right.b = right.b.wrapping_add(V * S::LANES);
                c = c.wrapping_add(V * S::LANES);
            }
            left.a = left.a.wrapping_offset(grid.below);
            row = row.wrapping_offset(rs.wrapping_mul(R as isize));
        }
    }
}

/// Computes tiles that are simply written, by a function of their own.
#[inline(always)]
unsafe fn tiles<T: Float, S: Lanes<T>, A: Access, const MASKED: bool, const R: usize, const V: usize>(
    s: S,
    grid: Grid,
    k: usize,
    left: Left<T>,
    right: Right<T>,
    target: &Target<T>,
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
    s.apart(Tiles::<T, A, MASKED, R, V> { grid, k, left, right, c, rs, columns, write, access: PhantomData });
}

/// Computes the sums of one tile.
#[inline(always)]
unsafe fn spilled<T: Float, S: Lanes<T>, A: Access, const MASKED: bool, const R: usize, const V: usize>(
    s: S,
    k: usize,
    left: Left<T>,
    right: Right<T>,
    columns: usize,
    spill: &mut Spill<T>,
) {
    let grid = Grid { count: 1, below: 0, across: 1, far: false };
    let (c, rs, write) = (spill.0.as_mut_ptr().cast(), (V * S::LANES) as isize, Write::Store);
    s.apart(Tiles::<T, A, MASKED, R, V> { grid, k, left, right, c, rs, columns, write, access: PhantomData });
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
fn expect<T>(mut row: *const T, rs: isize, rows: usize, columns: usize) {
    for _ in 0..rows {
        prefetch(row);
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
) -> [[S::V; V]; R] {
    let (rs, cs) = if A::PACKED_LEFT { (1, R as isize) } else { (left.rs, left.cs) };
    // One pointer per row and a common offset: stepping from row to row would be a chain as long as the sums.
    let mut a = [left.a; R];
    for i in 1..R {
        a[i] = settled(a[i - 1].wrapping_offset(rs));
    }
    let (mut step, mut b) = (0_isize, right.b);
    let mut sums = [[s.splat(T::ZERO); V]; R];
    for _ in 0..k {
        let mut y = [s.splat(T::ZERO); V];
        for (j, y) in y.iter_mut().enumerate() {
            let at = b.wrapping_add(j * S::LANES);
            let lanes = columns.saturating_sub(j * S::LANES).min(S::LANES);
            // SAFETY: the caller's columns.
            *y = unsafe { if MASKED { s.load_first(at, lanes) } else { s.load(at) } };
        }
        for i in 0..R {
            // SAFETY: the caller's rows and steps.
            let x = s.splat(unsafe { *a[i].offset(step) });
            for j in 0..V {
                sums[i][j] = s.mul_add(x, y[j], sums[i][j]);
            }
        }
        if A::PACKED_LEFT {
            // Panels follow one another, so this reaches into the next one in time.
            prefetch(a[0].wrapping_offset(step.wrapping_add(AHEAD * R as isize)));
        }
        if A::FAR_RIGHT {
            let far = b.wrapping_offset(right.rs.wrapping_mul(FAR_AHEAD as isize));
            for line in 0..const { (V * S::LANES * size_of::<T>()).div_ceil(64) } {
                prefetch(far.wrapping_byte_add(64 * line));
            }
        }
        step = step.wrapping_add(cs);
        b = b.wrapping_offset(right.rs);
    }
    sums
}

/// Writes a spilled tile: adds what is there or the bias, and applies the activation.
#[inline(always)]
unsafe fn finish<T: Float, S: Lanes<T>>(
    s: S,
    spill: &Spill<T>,
    rows: usize,
    vectors: usize,
    target: &Target<T>,
) {
    let zero = s.splat(T::ZERO);
    for i in 0..rows {
        for j in 0..target.columns.div_ceil(S::LANES) {
            let at = j * S::LANES;
            let lanes = S::LANES.min(target.columns - at);
            let c = target.c.wrapping_offset(target.rs.wrapping_mul(i as isize)).wrapping_add(at);
            let bias = target.bias.wrapping_offset(
                target
                    .bias_rs
                    .wrapping_mul(i as isize)
                    .wrapping_add(target.bias_cs.wrapping_mul(at as isize)),
            );
            // SAFETY: the tile was spilled whole; the target has `lanes` elements here, the bias as many or one.
            unsafe {
                let mut x = s.load(spill.0.as_ptr().cast::<T>().wrapping_add((i * vectors + j) * S::LANES));
                if target.accumulate {
                    x = s.add(x, s.load_first(c, lanes));
                } else if !target.bias.is_null() {
                    x = s
                        .add(x, if target.bias_cs == 0 { s.splat(*bias) } else { s.load_first(bias, lanes) });
                }
                x = match target.activation {
                    // The maximum gives its second operand where one is NaN.
                    Activation::Relu => s.max(zero, x),
                    Activation::LeakyRelu { slope } => {
                        let scaled = s.mul(x, s.splat(T::from_f64(f64::from(slope))));
                        s.select(s.lt(x, zero), scaled, x)
                    }
                    _ => x,
                };
                s.store_first(c, x, lanes);
            }
        }
    }
}
