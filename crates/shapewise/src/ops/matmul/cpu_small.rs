//! Small products: both operands where they lie, nothing to prepare, but for a right operand that lies by columns and fits the
//! stack. Deep ones are gone through in blocks of steps.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_finish::activate_rows;
use super::cpu_micro::{self as micro, FAR_AHEAD, InPlace, Left, Right, Streamed, Target, tallest};
use super::cpu_pack::{PackPanels, Part};
use super::cpu_problem::{Gemm, LanesTask, Real, Split, wide_width};
use crate::backends::cpu::simd::{Isa, Lanes, MAX_LANES};
use crate::backends::cpu::{OnStack, ThreadPool};
use crate::ops::Activation;

/// Bytes of the right operand that are gone through at once, so that they stay near while all rows pass by.
///
/// Rows read where they lie are pages apart: beyond this the look-up of their addresses costs more than packing them
/// (measured on one Zen 3 core: 0.92 of the best kernel at 256 KiB, 0.56 at 4 MiB; the limit itself is a pick below that).
pub(super) const NEAR: usize = 128 << 10;

/// Bytes from row to row of the right operand up to which a page holds several rows.
pub(super) const CLOSE: usize = 1 << 10;

/// Rows up to which the right operand is read so few times that packing it costs more than it saves, if it comes from no further than
/// the last cache (thin products in a lab on one Zen 3 core: 0.74 to 1.05 of the time of the crate gemm).
const FEW: usize = 16;
const NOT_FAR: usize = 4 << 20;

/// Bytes of a right operand, its rows filled up to whole vectors, that is copied to the stack where its rows have gaps.
const TURNED: usize = 16 << 10;

/// Rows of a tile that keep the multipliers busy.
const LEAST_ROWS: usize = 4;

/// Bytes of a right operand in blocks that are asked for ahead at most. Rows further apart push each other out of the
/// first-level cache (measured on one Zen 3 core: 1.14 times as fast with rows of 256 bytes, 0.8 with 1 KiB).
const AHEAD: usize = 8 << 10;

/// Whether the rows of the right operand, of elements of this size, lie near enough to be read where they lie.
pub(super) fn takes<T>(g: &Gemm<T>, size: usize) -> bool {
    let right = g.n.saturating_mul(g.k).saturating_mul(size);
    right <= NEAR || apart(g, size) <= CLOSE || (g.m <= FEW && right <= NOT_FAR)
}

/// Whether the rows of the right operand have no gaps, or are few enough to be copied.
pub(super) fn reads<T>(g: &Gemm<T>, size: usize) -> bool {
    let copied = g.n.next_multiple_of(MAX_LANES).saturating_mul(g.k).saturating_mul(size);
    g.b_cs == 1 || copied <= TURNED
}

/// Calls `with` with the same product, the rows of its right operand without gaps.
///
/// # Safety
/// The operands are valid, and the kernel [`reads`] the right one.
#[inline]
unsafe fn turned<T: Real>(g: &Gemm<T>, isa: Isa, with: impl FnOnce(&Gemm<T>)) {
    let mut rows = OnStack::<TURNED>::new();
    let width = g.n.next_multiple_of(isa.register_bytes() / size_of::<T>());
    let part = Part { at: g.b, across: g.b_cs, along: g.b_rs, width: g.n, depth: g.k };
    T::run(isa, PackPanels { part, width, pitch: width, panels: rows.at(), apart: 0 });
    with(&Gemm { b: rows.at(), b_rs: width as isize, b_cs: 1, ..*g });
}

/// Blocks of steps.
pub(super) fn depths<T>(g: &Gemm<T>, size: usize) -> Split {
    if g.n.saturating_mul(g.k).saturating_mul(size) <= NEAR {
        return Split::whole(g.k);
    }
    Split::at_most(g.k, NEAR / apart(g, size).clamp(1, CLOSE))
}

fn apart<T>(g: &Gemm<T>, size: usize) -> usize {
    g.b_rs.unsigned_abs().saturating_mul(size)
}

/// The tiles of a product that is only written, in whole panels or a few whole vectors of columns, and few steps.
#[derive(Clone, Copy)]
pub(super) struct Tiling {
    pub vectors: usize,
    pub across: usize,
    pub rows: Split,
}

impl Tiling {
    /// The tiles of a product; `None` if it is another one.
    pub fn of<T: Real>(g: &Gemm<T>, isa: Isa) -> Option<Self> {
        let (bytes, width) = (isa.register_bytes(), wide_width::<T>(isa));
        let lanes = bytes / size_of::<T>();
        let whole = g.n.is_multiple_of(width) || (lanes..width).contains(&g.n) && g.n.is_multiple_of(lanes);
        if !whole || !g.epilogue.is_nothing() || depths(g, size_of::<T>()).blocks > 1 {
            return None;
        }
        let vectors = width.min(g.n) / lanes;
        let rows = Split::at_most(g.m, tallest(bytes, vectors));
        Some(Self { vectors, across: g.n / (vectors * lanes), rows })
    }
}

/// The least that can be done beside the tiles.
struct Plain<'a, T>(&'a Gemm<T>, Tiling);

impl<T: Real> LanesTask<T> for Plain<'_, T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let (g, Tiling { vectors, across, rows }) = (self.0, self.1);
        let left = Left { a: g.a, rs: g.a_rs, cs: g.a_cs };
        let right = Right { b: g.b, rs: g.b_rs };
        let target = Target {
            c: g.c,
            rs: g.c_rs,
            columns: vectors * S::LANES,
            accumulate: false,
            stream: false,
            bias: std::ptr::null(),
            bias_rs: 0,
            bias_cs: 0,
            activation: Activation::None,
        };
        // SAFETY: whoever made the product gave valid operands with contiguous rows of `b` and `c`.
        unsafe { micro::groups::<T, S, InPlace, false>(s, rows, g.k, left, right, target, vectors, across) };
    }
}

struct Whole<'a, T>(Isa, &'a Gemm<T>);

impl<T: Real> LanesTask<T> for Whole<'_, T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let g = self.1;
        let depths = depths(g, size_of::<T>());
        let ahead = depths.blocks > 1 && apart(g, size_of::<T>()) * FAR_AHEAD <= AHEAD;
        for (from, depth) in (0..depths.blocks).map(|block| depths.piece(block)) {
            let target = Target {
                c: g.c,
                rs: g.c_rs,
                columns: g.n,
                accumulate: from > 0,
                stream: false,
                bias: g.epilogue.bias,
                bias_rs: g.epilogue.bias_rs,
                bias_cs: g.epilogue.bias_cs,
                activation: if from + depth == g.k { g.epilogue.activation } else { Activation::None },
            };
            let a = g.a.wrapping_offset(g.a_cs.wrapping_mul(from as isize));
            let b = g.b.wrapping_offset(g.b_rs.wrapping_mul(from as isize));
            let left = Left { a, rs: g.a_rs, cs: g.a_cs };
            let right = Right { b, rs: g.b_rs };
            // SAFETY: whoever made the product gave valid operands with contiguous rows of `b` and `c`.
            unsafe {
                if ahead {
                    micro::rows::<T, S, Streamed>(s, g.m, depth, left, right, target);
                } else {
                    micro::rows::<T, S, InPlace>(s, g.m, depth, left, right, target);
                }
            }
        }
        // SAFETY: as above.
        unsafe { activate_rows(self.0, g.c, g.c_rs, g.m, g.n, g.epilogue.activation) };
    }
}

/// How products of one layout run on one thread.
#[derive(Clone, Copy)]
pub(super) struct Alone {
    isa: Isa,
    plain: Option<Tiling>,
}

impl Alone {
    #[inline]
    pub fn new<T: Real>(g: &Gemm<T>, isa: Isa) -> Self {
        Self { isa, plain: Tiling::of(g, isa) }
    }

    #[inline]
    fn rows<T: Real>(self, g: &Gemm<T>) {
        match self.plain {
            Some(tiling) => T::run(self.isa, Plain(g, tiling)),
            None => T::run(self.isa, Whole(self.isa, g)),
        }
    }

    /// Computes a product of that layout.
    ///
    /// # Safety
    /// The operands are valid.
    #[inline]
    pub unsafe fn run<T: Real>(self, g: &Gemm<T>) {
        if g.b_cs == 1 {
            self.rows(g);
        } else {
            // SAFETY: the caller's promise; the constraints let no other product through.
            unsafe { turned(g, self.isa, |g| self.rows(g)) };
        }
    }
}

/// Computes the product on up to `threads` threads; rows of the result are contiguous, `k` is not zero.
///
/// # Safety
/// The operands are valid.
pub(super) unsafe fn run<T: Real>(g: &Gemm<T>, isa: Isa, threads: usize, pool: &ThreadPool) {
    if threads <= 1 {
        // SAFETY: the caller's promise.
        return unsafe { Alone::new(g, isa).run(g) };
    }
    if g.b_cs != 1 {
        // SAFETY: as above.
        return unsafe { turned(g, isa, |g| run(g, isa, threads, pool)) };
    }
    let width = wide_width::<T>(isa);
    // A few rows fill a tile's registers only together.
    if g.m < LEAST_ROWS * threads && g.n >= 2 * width * threads {
        let panels = Split::into(g.n.div_ceil(width), threads);
        pool.run(threads, panels.blocks, &|i| {
            let (first, count) = panels.piece(i);
            let (first, end) = (first * width, ((first + count) * width).min(g.n));
            T::run(isa, Whole(isa, &g.part(0, g.m, first, end - first)));
        });
    } else {
        let rows = Split::into(g.m, threads);
        pool.run(threads, rows.blocks, &|i| {
            let (row, count) = rows.piece(i);
            T::run(isa, Whole(isa, &g.part(row, count, 0, g.n)));
        });
    }
}
