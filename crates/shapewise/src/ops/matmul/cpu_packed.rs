//! Large products: cache blocks of both operands are packed, tiles run over them.
//!
//! The right operand is packed by all threads together, a block of `kc × nc` at a time. Then the threads take
//! blocks of `mc` rows from a common counter, each packs its own rows and multiplies them with the whole block: with one panel after
//! the other, which stays in the first-level cache while tiles pass by, or, if tiles are wide, the rows of a tile with a few panels.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_finish::activate_rows;
use super::cpu_micro::{self as micro, Left, Packed, Right, Target, is_wide, wide_of, wide_shape};
use super::cpu_pack::{PackPanels, Part};
use super::cpu_problem::{Gemm, LanesTask, Real, Shared, Split, wide_width};
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::simd::{Isa, Lanes};
use crate::ops::Activation;

/// Sizes of the cache blocks and how many threads share them.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Blocking {
    /// Rows of the left operand in a block.
    pub mc: usize,
    /// Depth of a block.
    pub kc: usize,
    /// Columns of the right operand in a block.
    pub nc: usize,
    pub threads: usize,
    /// Write the result past the caches.
    pub stream: bool,
    /// Panels that a few rows are computed with before the next ones, where tiles are wide.
    pub chunk: usize,
}

/// A block of the result in one pass over the depth, as one thread computes it.
struct Block<T> {
    isa: Isa,
    /// The product of these rows and columns, all `k` steps.
    part: Gemm<T>,
    /// First step and number of steps of this pass.
    from: usize,
    depth: usize,
    left: *mut T,
    right: *const T,
    stream: bool,
    chunk: usize,
}

impl<T: Real> LanesTask<T> for Block<T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let g = &self.part;
        let (most_rows, vectors) = const { wide_of::<T, S>() };
        let width = vectors * S::LANES;
        let split = Split::at_most(g.m, most_rows);
        pack_left(&self, split);
        let by_rows = const { is_wide::<T, S>() };
        let chunk = if by_rows { self.chunk * width } else { width };
        let mut column = 0;
        while column < g.n {
            let columns = chunk.min(g.n - column);
            // SAFETY: the panels were packed for this depth, and the target lies in the result.
            unsafe {
                if by_rows {
                    self.bands(s, split, column, columns);
                } else {
                    self.column(s, split, column, columns);
                }
            }
            column += columns;
        }
        if self.stream {
            s.fence();
        }
    }
}

impl<T: Real> Block<T> {
    /// Where all rows of some columns go.
    #[inline(always)]
    fn target<S: Lanes<T>>(&self, column: usize, columns: usize) -> Target<T> {
        let g = &self.part;
        let last_pass = self.from + self.depth == g.k;
        Target {
            c: g.c.wrapping_add(column),
            rs: g.c_rs,
            columns,
            accumulate: self.from > 0,
            stream: self.stream && columns.is_multiple_of(S::LANES),
            bias: g.bias_at(0, column),
            bias_rs: g.epilogue.bias_rs,
            bias_cs: g.epilogue.bias_cs,
            activation: if last_pass { g.epilogue.activation } else { Activation::None },
        }
    }

    /// All rows with one panel.
    #[inline(always)]
    unsafe fn column<S: Lanes<T>>(&self, s: S, split: Split, column: usize, columns: usize) {
        let width = const { wide_of::<T, S>().1 * S::LANES };
        let left = Left { a: self.left.cast_const(), rs: 1, cs: 1 };
        let right = Right { b: self.right.wrapping_add(column * self.depth), rs: width as isize };
        let target = self.target::<S>(column, columns);
        // SAFETY: the caller's promise.
        unsafe {
            micro::column::<T, S, Packed>(s, split, self.depth, left, right, target);
            activate_rows(self.isa, target.c, target.rs, self.part.m, columns, target.activation);
        }
    }

    /// A tile's rows with all panels of some columns, then the next rows.
    #[inline(always)]
    unsafe fn bands<S: Lanes<T>>(&self, s: S, split: Split, column: usize, columns: usize) {
        let width = const { wide_of::<T, S>().1 * S::LANES };
        let right = Right { b: self.right.wrapping_add(column * self.depth), rs: width as isize };
        let mut target = self.target::<S>(column, columns);
        let activation = target.activation;
        let c = target.c;
        for (row, rows) in (0..split.blocks).map(|i| split.piece(i)) {
            let left = Left { a: self.left.cast_const().wrapping_add(row * self.depth), rs: 1, cs: 1 };
            // SAFETY: the caller's promise, for these rows.
            unsafe { micro::band::<T, S, Packed>(s, rows, self.depth, left, right, target) };
            target.down(rows);
        }
        // SAFETY: as above.
        unsafe { activate_rows(self.isa, c, target.rs, self.part.m, columns, activation) };
    }
}

/// Packs the rows of a block into panels that follow one another.
fn pack_left<T: Real>(block: &Block<T>, split: Split) {
    let g = &block.part;
    let mut row = 0;
    for (rows, count) in split.groups() {
        let at = g.a.wrapping_offset(row as isize * g.a_rs + block.from as isize * g.a_cs);
        let part = Part { at, across: g.a_rs, along: g.a_cs, width: rows * count, depth: block.depth };
        let panels = block.left.wrapping_add(row * block.depth);
        T::run(block.isa, PackPanels { part, width: rows, pitch: rows, panels, apart: rows * block.depth });
        row += rows * count;
    }
}

/// Blocks of rows, in tiles: a block is whole tiles, but for the last one.
fn row_blocks<T>(g: &Gemm<T>, isa: Isa, blocking: &Blocking) -> (Split, usize) {
    let tile = wide_shape(isa.register_bytes()).0;
    (Split::at_most(g.m.div_ceil(tile), blocking.mc.div_ceil(tile)), tile)
}

/// Elements of the two buffers: right panels for all, left panels of each thread.
fn buffers<T>(g: &Gemm<T>, isa: Isa, blocking: &Blocking) -> (usize, usize) {
    let depth = Split::at_most(g.k, blocking.kc).longest();
    let columns = blocking.nc.min(g.n).next_multiple_of(wide_width::<T>(isa));
    let (blocks, tile) = row_blocks(g, isa, blocking);
    let rows = blocks.longest() * tile;
    // Rounded up and a line apart, so that no two threads write the same one.
    ((depth * columns).next_multiple_of(64) + 64, (depth * rows).next_multiple_of(64) + 64)
}

/// Elements of scratch memory that [`run`] needs.
pub(in crate::ops) fn scratch<T>(g: &Gemm<T>, isa: Isa, blocking: &Blocking) -> usize {
    let (right, left) = buffers(g, isa, blocking);
    right + left * blocking.threads
}

/// Computes the product; the result's rows are contiguous and `k` is not zero.
///
/// # Safety
/// The operands are valid, `scratch` has [`scratch`] elements, and streaming is asked for only where every row of
/// the result starts at a multiple of 64 bytes and there is a single pass over `k`.
pub(in crate::ops) unsafe fn run<T: Real>(
    g: &Gemm<T>,
    isa: Isa,
    blocking: &Blocking,
    pool: &ThreadPool,
    scratch: *mut T,
) {
    let width = wide_width::<T>(isa);
    let threads = blocking.threads;
    let depths = Split::at_most(g.k, blocking.kc);
    let (rows, tile) = row_blocks(g, isa, blocking);
    let (right_size, left_size) = buffers(g, isa, blocking);
    let (right, left) = (Shared(scratch), Shared(scratch.wrapping_add(right_size)));
    let blocks = Split::at_most(g.n.div_ceil(width), blocking.nc.div_ceil(width));
    for block in 0..blocks.blocks {
        let (column, columns) = blocks.piece(block);
        let (column, columns) = (column * width, (columns * width).min(g.n - column * width));
        for pass in 0..depths.blocks {
            let (from, depth) = depths.piece(pass);
            let strips = Split::into(columns.div_ceil(width), (threads * 4).min(columns.div_ceil(width)));
            pool.run(threads, strips.blocks, &|i| {
                let (strip, count) = strips.piece(i);
                let first = strip * width;
                let columns = (count * width).min(columns - first);
                let at = g.b.wrapping_offset((column + first) as isize * g.b_cs + from as isize * g.b_rs);
                let part = Part { at, across: g.b_cs, along: g.b_rs, width: columns, depth };
                let panels = right.at(first * depth);
                T::run(isa, PackPanels { part, width, pitch: width, panels, apart: width * depth });
            });
            pool.run_numbered(threads, rows.blocks, &|worker, i| {
                let (row, count) = rows.piece(i);
                let (row, count) = (row * tile, (count * tile).min(g.m - row * tile));
                let part = g.part(row, count, column, columns);
                let (left, right) = (left.at(worker * left_size), right.at(0).cast_const());
                let Blocking { stream, chunk, .. } = *blocking;
                T::run(isa, Block { isa, part, from, depth, left, right, stream, chunk });
            });
        }
    }
}
