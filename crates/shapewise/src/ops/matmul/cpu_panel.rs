//! Medium products: the left operand stays where it lies, right panels are packed just before they are used.
//!
//! Every thread takes strips of columns from a common counter, packs one panel after the other into a buffer that
//! fits the first-level cache, and multiplies all rows of a block with it: nothing to wait for, little to pack.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use std::sync::atomic::{AtomicUsize, Ordering};

use super::cpu_finish::activate_rows;
use super::cpu_micro::{self as micro, InPlace, Left, Right, Target, prefetch, tile_of};
use super::cpu_pack::{Part, pack};
use super::cpu_problem::{Gemm, LanesTask, Real, Shared, Split, panel_width};
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::simd::{Isa, Lanes};
use crate::ops::Activation;

/// How a product is cut up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocking {
    /// Rows of the left operand that stay in the second-level cache.
    pub mc: usize,
    /// Depth of a panel.
    pub kc: usize,
    pub threads: usize,
    /// Write the result past the caches.
    pub stream: bool,
}

/// Rows by some columns, as one thread computes them.
struct Strip<T> {
    part: Gemm<T>,
    depths: Split,
    panel: *mut T,
    stream: bool,
}

impl<T: Real> LanesTask<T> for Strip<T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let g = &self.part;
        let (most_rows, vectors) = tile_of::<T, S>();
        let width = vectors * S::LANES;
        let split = Split::at_most(g.m, most_rows);
        let mut column = 0;
        while column < g.n {
            let columns = width.min(g.n - column);
            for pass in 0..self.depths.blocks {
                let (from, depth) = self.depths.piece(pass);
                // SAFETY: whoever made the strip gave valid operands and a panel of the longest depth.
                unsafe { panel(s, &self, split, column, columns, from, depth) };
            }
            let c = g.c.wrapping_add(column);
            // SAFETY: the columns of the result that were just written.
            unsafe { activate_rows(s, c, g.c_rs, g.m, columns, g.epilogue.activation) };
            column += columns;
        }
        if self.stream {
            s.fence();
        }
    }
}

/// Packs a panel and multiplies all rows with it.
#[inline(always)]
unsafe fn panel<T: Real, S: Lanes<T>>(
    s: S,
    strip: &Strip<T>,
    split: Split,
    column: usize,
    columns: usize,
    from: usize,
    depth: usize,
) {
    let g = &strip.part;
    let at = g.b.wrapping_offset(column as isize * g.b_cs + from as isize * g.b_rs);
    let part = Part { at, across: g.b_cs, along: g.b_rs, width: columns, depth };
    let pitch = columns.next_multiple_of(S::LANES);
    // SAFETY: the columns exist and the buffer has the room.
    unsafe { pack(s, &part, strip.panel, pitch) };
    if g.b_cs == 1 {
        // The next panel lies beside this one, a line per step: it arrives while this one is computed with.
        for p in 0..depth {
            prefetch(at.wrapping_offset(p as isize * g.b_rs).wrapping_add(2 * columns - 1));
        }
    }
    let left = Left { a: g.a.wrapping_offset(from as isize * g.a_cs), rs: g.a_rs, cs: g.a_cs };
    let right = Right { b: strip.panel.cast_const(), rs: pitch as isize };
    let target = Target {
        c: g.c.wrapping_add(column),
        rs: g.c_rs,
        columns,
        accumulate: from > 0,
        stream: strip.stream && columns.is_multiple_of(S::LANES),
        bias: g.bias_at(0, column),
        bias_rs: g.epilogue.bias_rs,
        bias_cs: g.epilogue.bias_cs,
        activation: if from + depth == g.k { g.epilogue.activation } else { Activation::None },
    };
    // SAFETY: the panel was packed for this depth, and the target lies in the result.
    unsafe { micro::column::<T, S, InPlace>(s, split, depth, left, right, target) };
}

/// Elements of scratch memory that [`run`] needs.
pub(super) fn scratch<T: Real>(g: &Gemm<T>, isa: Isa, blocking: &Blocking) -> usize {
    blocking.threads * panel_size::<T>(g, isa, blocking)
}

fn panel_size<T>(g: &Gemm<T>, isa: Isa, blocking: &Blocking) -> usize {
    // A line more, so that no two threads write the same one.
    Split::at_most(g.k, blocking.kc).longest() * panel_width::<T>(isa) + 64
}

/// Computes the product; the result's rows are contiguous and `k` is not zero.
///
/// # Safety
/// The operands are valid, `scratch` has [`scratch`] elements, and streaming is asked for only where every row of
/// the result starts at a multiple of 64 bytes and there is a single pass over `k`.
pub(super) unsafe fn run<T: Real>(
    g: &Gemm<T>,
    isa: Isa,
    blocking: &Blocking,
    pool: &ThreadPool,
    scratch: *mut T,
) {
    let width = panel_width::<T>(isa);
    let depths = Split::at_most(g.k, blocking.kc);
    let panels = g.n.div_ceil(width);
    let threads = blocking.threads;
    // Few panels do not split evenly: then the rows are split as well.
    let uneven = threads > 1 && panels < 4 * threads && !panels.is_multiple_of(threads);
    let rows = Split::into(g.m, g.m.div_ceil(blocking.mc).max(if uneven { threads } else { 1 }));
    // Neighbouring panels share lines and pages, so they stay together as long as every thread still gets its share.
    let strips = Split::at_most(panels, (panels / (threads * 8)).clamp(1, 32));
    let (scratch, size) = (Shared(scratch), panel_size::<T>(g, isa, blocking));
    let next = AtomicUsize::new(0);
    pool.run(threads, threads, &|worker| {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= strips.blocks * rows.blocks {
                break;
            }
            let (row, count) = rows.piece(i / strips.blocks);
            let (first, many) = strips.piece(i % strips.blocks);
            let part = g.part(row, count, first * width, (many * width).min(g.n - first * width));
            T::run(isa, Strip { part, depths, panel: scratch.at(worker * size), stream: blocking.stream });
        }
    });
}
