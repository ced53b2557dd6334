//! The innermost product: which tiles, in which order, and how their operands are reached.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use std::marker::PhantomData;

use super::cpu_problem::Split;
use super::cpu_tile::{Copied, Grid, Spill, expect, spilled, tiles};
use crate::backends::cpu::simd::{Float, Lanes};
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

/// The same for tiles whose rows lie near while panels pass by. A step reads an element for each row and a vector for each vector
/// of columns, and Ice Lake reads no more than one register of 512 bits a cycle: ten for twenty-four products instead of fourteen.
pub(in crate::ops) const fn wide_shape(register_bytes: usize) -> (usize, usize) {
    if register_bytes == 64 { (6, 4) } else { tile_shape(register_bytes) }
}

/// [`wide_shape`] of `S`.
pub(in crate::ops) const fn wide_of<T: Float, S: Lanes<T>>() -> (usize, usize) {
    wide_shape(S::LANES * size_of::<T>())
}

/// Whether the two shapes differ.
pub(in crate::ops) const fn is_wide<T: Float, S: Lanes<T>>() -> bool {
    wide_of::<T, S>().1 != tile_of::<T, S>().1
}

/// The most rows of a tile with so many vectors below one another; none where there is no such tile.
const fn rows_below<T: Float, S: Lanes<T>>(vectors: usize) -> usize {
    let (rows, most) = tile_of::<T, S>();
    if vectors <= most { rows } else { 0 }
}

/// The same for a band.
const fn rows_of_band<T: Float, S: Lanes<T>>(vectors: usize) -> usize {
    let (rows, most) = wide_of::<T, S>();
    if vectors <= most { rows } else { 0 }
}

/// The same for a product where it lies.
const fn rows_in_place<T: Float, S: Lanes<T>>(vectors: usize) -> usize {
    tallest(S::LANES * size_of::<T>(), vectors)
}

/// The most rows of a tile with so many vectors, for products where they lie.
pub(super) const fn tallest(register_bytes: usize, vectors: usize) -> usize {
    let ((rows, most), (wide_rows, wide_most)) = (tile_shape(register_bytes), wide_shape(register_bytes));
    if vectors == 1 && register_bytes == 64 {
        // Two tiles of eight rows would each wait for their sums at the end.
        16
    } else if vectors <= most {
        rows
    } else if vectors <= wide_most {
        wide_rows
    } else {
        0
    }
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
    pub fn down(&mut self, rows: usize) {
        self.c = self.c.wrapping_offset(self.rs.wrapping_mul(rows as isize));
        self.bias = self.bias.wrapping_offset(self.bias_rs.wrapping_mul(rows as isize));
    }

    #[inline(always)]
    fn right(&mut self, columns: usize) {
        self.c = self.c.wrapping_add(columns);
        self.bias = self.bias.wrapping_offset(self.bias_cs.wrapping_mul(columns as isize));
    }
}

/// Steps on their way from a far cache that are asked for before they are needed: found by trying on Zen 3.
pub(in crate::ops) const FAR_AHEAD: usize = 32;

/// How the operands are reached.
pub(in crate::ops) trait Access {
    /// Whether the left operand is packed into panels: step by step, as many elements as a tile has rows.
    const PACKED_LEFT: bool;
    /// Whether steps of the right operand come from a far cache, one after the other.
    const FAR_RIGHT: bool = false;
    /// Whether steps of the right operand follow one another in panels.
    const PANELS: bool = false;
    /// Whether wide tiles ask for steps of the right operand from the second-level cache.
    const RIGHT_AHEAD: bool = Self::PANELS;
    /// Whether there are so many steps that this pays.
    const MANY_STEPS: bool = false;
    /// Whether tiles ask for a far result, and copy panels, on the way.
    const ON_THE_WAY: bool = false;
}

/// The left operand in panels.
pub(in crate::ops) struct Packed;
/// The left operand where it lies.
pub(in crate::ops) struct InPlace;
/// The left operand where it lies, the result far.
pub(in crate::ops) struct Copying;
/// The left operand where it lies, the right one asked for ahead because it does not fit the near caches.
pub(in crate::ops) struct Streamed;

impl Access for Packed {
    const PACKED_LEFT: bool = true;
    const PANELS: bool = true;
    const ON_THE_WAY: bool = true;
}
impl Access for Copying {
    const PACKED_LEFT: bool = false;
    const PANELS: bool = true;
    const ON_THE_WAY: bool = true;
}
impl Access for InPlace {
    const PACKED_LEFT: bool = false;
    const RIGHT_AHEAD: bool = true;
}
impl Access for Streamed {
    const PACKED_LEFT: bool = false;
    const FAR_RIGHT: bool = true;
}

/// The same for many steps.
pub(super) struct Many<A>(PhantomData<A>);

impl<A: Access> Access for Many<A> {
    const PACKED_LEFT: bool = A::PACKED_LEFT;
    const FAR_RIGHT: bool = A::FAR_RIGHT;
    const PANELS: bool = A::PANELS;
    const RIGHT_AHEAD: bool = A::RIGHT_AHEAD;
    const MANY_STEPS: bool = true;
    const ON_THE_WAY: bool = A::ON_THE_WAY;
}

/// Calls `$run::<…, rows, vectors>` for run-time numbers of rows and vectors. The conditions are constants: only tiles with at most
/// `$most(vectors)` rows are compiled.
macro_rules! dispatch {
    ($most:ident, $t:ident, $s:ident, $access:ident, $masked:tt, $rows:expr, $vectors:expr, $run:ident $arguments:tt) => {
        match $vectors {
            1 => dispatch!(@ 1, $most, $t, $s, $access, $masked, $rows, $run, $arguments,
                1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16),
            2 => dispatch!(@ 2, $most, $t, $s, $access, $masked, $rows, $run, $arguments, 1 2 3 4 5 6 7 8 9 10 11 12),
            3 => dispatch!(@ 3, $most, $t, $s, $access, $masked, $rows, $run, $arguments, 1 2 3 4 5 6 7 8 9 10 11 12),
            _ => dispatch!(@ 4, $most, $t, $s, $access, $masked, $rows, $run, $arguments, 1 2 3 4 5 6 7 8 9 10 11 12),
        }
    };
    (@ $v:literal, $most:ident, $t:ident, $s:ident, $access:ident, $masked:tt, $rows:expr, $run:ident, $arguments:tt,
        $($r:literal)*) => {
        match $rows {
            // SAFETY: the caller's promise, passed on.
            $($r if const { $r <= $most::<$t, $s>($v) } => unsafe {
                $run::<$t, $s, $access, $masked, $r, $v> $arguments;
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
    let mut spill = Spill::new();
    for (rows, count) in split.groups().into_iter().filter(|group| group.1 > 0) {
        let below = if A::PACKED_LEFT { (rows * k) as isize } else { left.rs.wrapping_mul(rows as isize) };
        let mut left_to_do = count;
        while left_to_do > 0 {
            // Tiles that are simply written stay inside the machine loop; the others come out one by one.
            let now = if simple { left_to_do } else { 1 };
            let far = !target.stream && (A::PACKED_LEFT || now > 1);
            if simple {
                let grid = Grid { count: now, below, across: 1, beside: 0, far };
                dispatch!(
                    rows_below,
                    T,
                    S,
                    A,
                    false,
                    rows,
                    vectors,
                    tiles(s, grid, k, left, right, &target, Copied::NONE)
                );
            } else {
                if far {
                    expect(target.c, target.rs, rows, target.columns);
                }
                let columns = target.columns;
                dispatch!(
                    rows_below,
                    T,
                    S,
                    A,
                    false,
                    rows,
                    vectors,
                    spilled(s, k, left, right, columns, &mut spill)
                );
                // SAFETY: the target has these rows and columns.
                unsafe { finish(s, &spill, rows, vectors, &target) };
            }
            left.a = left.a.wrapping_offset(below.wrapping_mul(now as isize));
            target.down(rows * now);
            left_to_do -= now;
        }
    }
}

/// The tiles side by side of some rows, few enough for one tile, and right panels that follow one another; the last may have fewer
/// columns than room.
///
/// # Safety
/// Operands and target are valid for so many rows, `k` steps and `target.columns`.
#[inline(always)]
pub(in crate::ops) unsafe fn band<T: Float, S: Lanes<T>, A: Access>(
    s: S,
    rows: usize,
    k: usize,
    left: Left<T>,
    right: Right<T>,
    target: Target<T>,
) {
    // SAFETY: the caller's promise, passed on.
    unsafe { band_copying::<T, S, A>(s, rows, k, left, right, target, Copied::NONE) };
}

/// The same, which copies other panels on the way, as many as the band has, if those are whole and simply written.
///
/// # Safety
/// As for [`band`], and what is copied can be read and has room.
#[inline(always)]
pub(in crate::ops) unsafe fn band_copying<T: Float, S: Lanes<T>, A: Access>(
    s: S,
    rows: usize,
    k: usize,
    left: Left<T>,
    mut right: Right<T>,
    mut target: Target<T>,
    copied: Copied<T>,
) {
    let most = const { wide_of::<T, S>().1 };
    let (width, all) = (most * S::LANES, target.columns);
    let mut spill = Spill::new();
    let mut done = 0;
    while done < all {
        let columns = width.min(all - done);
        let vectors = columns.div_ceil(S::LANES);
        target.columns = columns;
        let simple = target.simple::<S>(vectors * S::LANES);
        let across = if simple && columns == width { (all - done) / width } else { 1 };
        if simple {
            let grid = Grid { count: 1, below: 0, across, beside: k * width, far: !target.stream };
            dispatch!(
                rows_of_band,
                T,
                S,
                A,
                false,
                rows,
                vectors,
                tiles(s, grid, k, left, right, &target, copied)
            );
        } else {
            expect(target.c, target.rs, rows, columns);
            dispatch!(
                rows_of_band,
                T,
                S,
                A,
                false,
                rows,
                vectors,
                spilled(s, k, left, right, columns, &mut spill)
            );
            // SAFETY: the target has these rows and columns.
            unsafe { finish(s, &spill, rows, vectors, &target) };
        }
        right.b = right.b.wrapping_add(across * k * width);
        target.right(across * width);
        done += across * width;
    }
}

/// All tiles of all columns, the right operand where it lies: tiles side by side, then the next rows.
///
/// # Safety
/// Operands and target are valid for `m` rows, `k` steps and `target.columns`.
#[inline(always)]
pub(in crate::ops) unsafe fn rows<T: Float, S: Lanes<T>, A: Access>(
    s: S,
    m: usize,
    k: usize,
    left: Left<T>,
    right: Right<T>,
    target: Target<T>,
) {
    let most = const { wide_of::<T, S>().1 };
    let width = most * S::LANES;
    let panels = Target { columns: width, ..target };
    let whole = if panels.simple::<S>(width) { target.columns / width } else { 0 };
    if whole > 0 {
        // SAFETY: the caller's promise, for these columns.
        unsafe {
            let split = Split::at_most(m, rows_in_place::<T, S>(most));
            groups::<T, S, A, false>(s, split, k, left, right, panels, most, whole);
        }
    }
    let mut done = whole * width;
    while done < target.columns {
        let columns = width.min(target.columns - done);
        let mut rest = Target { columns, ..target };
        rest.right(done);
        let right = Right { b: right.b.wrapping_add(done), ..right };
        let vectors = columns.div_ceil(S::LANES);
        let split = Split::at_most(m, rows_in_place::<T, S>(vectors));
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
/// Operands and target are valid for the rows of the split, none of whose parts is longer than a tile of so many vectors, for `k`
/// steps and the columns of `across` tiles; of the right operand only the columns of the target are read if `MASKED`.
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
        let grid = Grid { count, below, across, beside: vectors * S::LANES, far: false };
        if count > 0 {
            dispatch!(
                rows_in_place,
                T,
                S,
                A,
                MASKED,
                rows,
                vectors,
                tiles(s, grid, k, left, right, &target, Copied::NONE)
            );
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
    let columns = target.columns;
    let vectors = columns.div_ceil(S::LANES);
    let mut spill = Spill::new();
    for i in 0..split.blocks {
        let rows = split.length(i);
        if columns == vectors * S::LANES {
            dispatch!(
                rows_in_place,
                T,
                S,
                InPlace,
                false,
                rows,
                vectors,
                spilled(s, k, left, right, columns, &mut spill)
            );
        } else {
            dispatch!(
                rows_in_place,
                T,
                S,
                InPlace,
                true,
                rows,
                vectors,
                spilled(s, k, left, right, columns, &mut spill)
            );
        }
        // SAFETY: the target has these rows and columns.
        unsafe { finish(s, &spill, rows, vectors, &target) };
        left.a = left.a.wrapping_offset(left.rs.wrapping_mul(rows as isize));
        target.down(rows);
    }
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
                let mut x = s.load(spill.at().wrapping_add((i * vectors + j) * S::LANES));
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
