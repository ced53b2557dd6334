//! Medium products: the left operand stays where it lies, the right one is packed just before it is used.
//!
//! Every thread takes strips of columns from a common counter and packs them chunk by chunk, a few panels that fit
//! the second-level cache. While the panels of one chunk are computed with, the next chunk is packed into the other
//! of two buffers: by the tiles on their way where it is like this one, else a few steps after each panel and with the following
//! ones already asked for. Memory is waited for only once. Steps are read along the rows, because lines below one another may all fall into the same set of
//! the cache. For the same reason large results of few steps are written along their rows: a tile's rows with all panels of a
//! chunk, which then come from the second-level cache for each tile, before the next rows. Wide tiles read so little of them in
//! each step that every result is written that way.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_finish::activate_rows;
use super::cpu_micro::{self as micro, Copying, Left, Right, Target, is_wide, wide_of};
use super::cpu_pack::{PackPanels, Part};
use super::cpu_problem::{Gemm, LanesTask, Real, Shared, Split, panel_width, wide_width};
use super::cpu_tile::Copied;
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::real::prefetch;
use crate::backends::cpu::simd::{Isa, Lanes};
use crate::ops::Activation;

/// Bytes of a cache line.
const LINE: usize = 64;

/// How a product is cut up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocking {
    /// Rows of the left operand that stay in the second-level cache.
    pub mc: usize,
    /// Depth of a panel.
    pub kc: usize,
    /// Panels packed at once.
    pub chunk: usize,
    pub threads: usize,
    /// Write the result past the caches.
    pub stream: bool,
    /// Compute a few rows with all panels of a chunk before the next ones; wide tiles always are.
    pub by_rows: bool,
}

/// Rows by some columns, as one thread computes them.
struct Strip<T> {
    isa: Isa,
    part: Gemm<T>,
    depths: Split,
    /// Panels packed at once.
    chunk: usize,
    buffers: [*mut T; 2],
    stream: bool,
    by_rows: bool,
}

/// Neighbouring panels in one pass over the depth.
#[derive(Clone, Copy)]
struct Chunk {
    column: usize,
    columns: usize,
    from: usize,
    depth: usize,
}

impl<T: Real> Strip<T> {
    /// Chunk `i`: all passes over some columns, then the next columns.
    #[inline(always)]
    fn chunk(&self, i: usize, width: usize) -> Option<Chunk> {
        let column = i / self.depths.blocks * self.chunk * width;
        let (from, depth) = self.depths.piece(i % self.depths.blocks);
        let columns = (self.chunk * width).min(self.part.n.checked_sub(column).filter(|&left| left > 0)?);
        Some(Chunk { column, columns, from, depth })
    }

    /// Whether tiles copy the next chunk while this one is computed with: both have as many panels, whole and simply written.
    #[inline(always)]
    fn copies(&self, chunk: &Chunk, next: &Chunk, width: usize) -> bool {
        let g = &self.part;
        let alike = next.columns == chunk.columns && chunk.columns.is_multiple_of(width);
        alike && g.b_cs == 1 && g.epilogue.is_nothing()
    }

    /// One of several pieces of a chunk, as tiles copy it.
    #[inline(always)]
    fn copied(&self, chunk: &Chunk, width: usize, piece: usize, pieces: usize, buffer: *mut T) -> Copied<T> {
        let g = &self.part;
        let (step, steps) = Split::into(chunk.depth, pieces).piece(piece);
        let row = g.b.wrapping_offset(g.b_rs.wrapping_mul((chunk.from + step) as isize));
        Copied {
            from: row.wrapping_add(chunk.column),
            rs: g.b_rs,
            steps,
            to: buffer.wrapping_add(step * width),
            apart: width * chunk.depth,
        }
    }
}

impl<T: Real> LanesTask<T> for Strip<T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let width = const { wide_of::<T, S>().1 * S::LANES };
        let mut now = self.chunk(0, width);
        if let Some(first) = now {
            let pieces = first.columns.div_ceil(width);
            for piece in 0..pieces {
                // SAFETY: whoever made the strip gave valid operands and buffers for a chunk of the longest depth.
                unsafe { pack_piece(&self, width, &first, piece, pieces, self.buffers[0]) };
            }
        }
        let mut i = 0;
        while let Some(chunk) = now {
            let next = self.chunk(i + 1, width);
            let bands = Split::at_most(self.part.m, const { wide_of::<T, S>().0 });
            let by_rows = const { is_wide::<T, S>() } || self.by_rows;
            let pieces = if by_rows { bands.blocks } else { chunk.columns.div_ceil(width) };
            let copies = by_rows && next.is_some_and(|next| self.copies(&chunk, &next, width));
            for piece in 0..pieces {
                let (mut copied, other) = (Copied::NONE, self.buffers[(i + 1) % 2]);
                if let Some(next) = &next {
                    if copies {
                        copied = self.copied(next, width, piece, pieces, other);
                    } else {
                        // SAFETY: as above, into the buffer that is not read now.
                        unsafe { pack_piece(&self, width, next, piece, pieces, other) };
                    }
                }
                // SAFETY: the panels were packed.
                unsafe {
                    if by_rows {
                        band(s, &self, &chunk, bands.piece(piece), self.buffers[i % 2], copied);
                    } else {
                        panel(s, &self, &chunk, piece * width, self.buffers[i % 2]);
                    }
                }
            }
            now = next;
            i += 1;
        }
        if self.stream {
            s.fence();
        }
    }
}

/// Packs one of several pieces of a chunk: some steps where those are contiguous, else some panels.
///
/// # Safety
/// The strip's operands are valid, and the buffer has room for the chunk.
unsafe fn pack_piece<T: Real>(
    strip: &Strip<T>,
    width: usize,
    chunk: &Chunk,
    piece: usize,
    pieces: usize,
    buffer: *mut T,
) {
    let g = &strip.part;
    let panels = chunk.columns.div_ceil(width);
    let along_rows = g.b_cs == 1;
    let whole = (0, chunk.depth);
    let (step, steps) = if along_rows { Split::into(chunk.depth, pieces).piece(piece) } else { whole };
    let (first, count) = if along_rows { (0, panels) } else { Split::into(panels, pieces).piece(piece) };
    if count == 0 || steps == 0 {
        // There are more pieces than panels or steps.
        return;
    }
    let column = first * width;
    let at = g.b.wrapping_offset(
        g.b_cs
            .wrapping_mul((chunk.column + column) as isize)
            .wrapping_add(g.b_rs.wrapping_mul((chunk.from + step) as isize)),
    );
    let columns = (count * width).min(chunk.columns - column);
    let part = Part { at, across: g.b_cs, along: g.b_rs, width: columns, depth: steps };
    let panels = buffer.wrapping_add(column * chunk.depth + step * width);
    T::run(strip.isa, PackPanels { part, width, pitch: width, panels, apart: width * chunk.depth });
    if along_rows && piece + 1 < pieces {
        for p in step + steps..step + 2 * steps {
            let row =
                g.b.wrapping_offset(g.b_rs.wrapping_mul((chunk.from + p) as isize))
                    .wrapping_add(chunk.column);
            let mut column = 0;
            while column < chunk.columns {
                prefetch(row.wrapping_add(column));
                column += LINE / size_of::<T>();
            }
        }
    }
}

/// Multiplies some rows, first and number, with all panels of a chunk, and copies others.
#[inline(always)]
unsafe fn band<T: Real, S: Lanes<T>>(
    s: S,
    strip: &Strip<T>,
    chunk: &Chunk,
    (row, rows): (usize, usize),
    buffer: *const T,
    copied: Copied<T>,
) {
    let g = strip.part.part(row, rows, chunk.column, chunk.columns);
    let width = const { wide_of::<T, S>().1 * S::LANES };
    let last_pass = chunk.from + chunk.depth == g.k;
    let a = g.a.wrapping_offset(g.a_cs.wrapping_mul(chunk.from as isize));
    let left = Left { a, rs: g.a_rs, cs: g.a_cs };
    let right = Right { b: buffer, rs: width as isize };
    let target = Target {
        c: g.c,
        rs: g.c_rs,
        columns: chunk.columns,
        accumulate: chunk.from > 0,
        stream: strip.stream && chunk.columns.is_multiple_of(S::LANES),
        bias: g.epilogue.bias,
        bias_rs: g.epilogue.bias_rs,
        bias_cs: g.epilogue.bias_cs,
        activation: if last_pass { g.epilogue.activation } else { Activation::None },
    };
    // SAFETY: the panels were packed for this depth, and the target lies in the result.
    unsafe {
        micro::band_copying::<T, S, Copying>(s, rows, chunk.depth, left, right, target, copied);
        activate_rows(strip.isa, target.c, target.rs, rows, chunk.columns, target.activation);
    }
}

/// Multiplies all rows with the panel that starts at `column` of the chunk.
#[inline(always)]
unsafe fn panel<T: Real, S: Lanes<T>>(
    s: S,
    strip: &Strip<T>,
    chunk: &Chunk,
    column: usize,
    buffer: *const T,
) {
    let g = &strip.part;
    let (most_rows, vectors) = const { wide_of::<T, S>() };
    let width = vectors * S::LANES;
    let columns = width.min(chunk.columns - column);
    let at = chunk.column + column;
    let last_pass = chunk.from + chunk.depth == g.k;
    let left =
        Left { a: g.a.wrapping_offset(g.a_cs.wrapping_mul(chunk.from as isize)), rs: g.a_rs, cs: g.a_cs };
    let right = Right { b: buffer.wrapping_add(column * chunk.depth), rs: width as isize };
    let target = Target {
        c: g.c.wrapping_add(at),
        rs: g.c_rs,
        columns,
        accumulate: chunk.from > 0,
        stream: strip.stream && columns.is_multiple_of(S::LANES),
        bias: g.bias_at(0, at),
        bias_rs: g.epilogue.bias_rs,
        bias_cs: g.epilogue.bias_cs,
        activation: if last_pass { g.epilogue.activation } else { Activation::None },
    };
    let split = Split::at_most(g.m, most_rows);
    // SAFETY: the panel was packed for this depth, and the target lies in the result.
    unsafe {
        micro::column::<T, S, Copying>(s, split, chunk.depth, left, right, target);
        activate_rows(strip.isa, target.c, target.rs, g.m, columns, target.activation);
    }
}

/// Elements of scratch memory that [`run`] needs.
pub(super) fn scratch<T: Real>(g: &Gemm<T>, isa: Isa, blocking: &Blocking) -> usize {
    blocking.threads * 2 * buffer::<T>(g, isa, blocking)
}

/// Elements of one buffer.
fn buffer<T>(g: &Gemm<T>, isa: Isa, blocking: &Blocking) -> usize {
    let width = wide_width::<T>(isa);
    let panels = blocking.chunk.min(g.n.div_ceil(width));
    // A line more, so that no two threads write the same one.
    Split::at_most(g.k, blocking.kc).longest() * panels * width + LINE
}

/// Strips that columns are cut into at most: several for each of many threads, so that one on a slower core takes fewer of them.
fn strips(threads: usize) -> usize {
    if threads > 1 { 4 * threads } else { 1 }
}

/// The share of so many chunks that is packed before anything is computed: the first of every strip.
pub(super) fn packed_before(chunks: f64, threads: usize) -> f64 {
    (strips(threads) as f64 / chunks).min(1.0)
}

/// Blocks of rows, and strips of panels of so many columns; threads take one of each at a time.
pub(super) fn pieces<T>(g: &Gemm<T>, width: usize, wide: bool, blocking: &Blocking) -> (Split, Split) {
    let (panels, threads) = (g.n.div_ceil(width), blocking.threads);
    // Few panels do not split evenly: then the rows are split as well.
    let uneven = threads > 1 && panels < 4 * threads && !panels.is_multiple_of(threads);
    let rows = Split::into(g.m, g.m.div_ceil(blocking.mc).max(if uneven { threads } else { 1 }));
    // Neighbouring panels share lines and pages, so they stay together as long as every thread still gets its share.
    // Those of a chunk of wide tiles do too: rows are read anew for each.
    let chunk = if wide { blocking.chunk.min(panels / (threads * 2)) } else { 1 };
    (rows, Split::at_most(panels, (panels / strips(threads)).max(chunk).max(1)))
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
    let width = wide_width::<T>(isa);
    let depths = Split::at_most(g.k, blocking.kc);
    let threads = blocking.threads;
    let (rows, strips) = pieces(g, width, width != panel_width::<T>(isa), blocking);
    let (scratch, size) = (Shared(scratch), buffer::<T>(g, isa, blocking));
    let by_rows = blocking.by_rows;
    pool.run_numbered(threads, strips.blocks * rows.blocks, &|worker, i| {
        let (row, count) = rows.piece(i / strips.blocks);
        let (first, many) = strips.piece(i % strips.blocks);
        let part = g.part(row, count, first * width, (many * width).min(g.n - first * width));
        let buffers = [scratch.at(2 * worker * size), scratch.at((2 * worker + 1) * size)];
        let (chunk, stream) = (blocking.chunk, blocking.stream);
        T::run(isa, Strip { isa, part, depths, chunk, buffers, stream, by_rows });
    });
}
