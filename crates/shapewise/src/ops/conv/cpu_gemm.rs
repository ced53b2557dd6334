//! Convolution as a product that is never written out: panels of the right operand come straight from the frame.
//!
//! Rows are output channels, columns are outputs, steps are the weights of an output. The weights are packed once;
//! then the threads take chunks of columns, pack their panels and run matmul's tiles over them.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set
#![allow(clippy::needless_range_loop)] // vectors of a panel and their places at once

use std::ops::Range;

use arrayvec::ArrayVec;

use super::cpu_image::{Frame, SLACK, weight_rows};
use super::geometry::Geometry;
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::{Isa, Lanes};
use crate::device::DeviceInfo;
use crate::ops::Activation;
use crate::ops::matmul::cpu_finish::activate_rows;
use crate::ops::matmul::cpu_micro::{
    self as micro, Left, Packed, Right, Target, is_wide, wide_of, wide_shape,
};
use crate::ops::matmul::cpu_pack::{PackPanels, Part};
use crate::ops::matmul::cpu_problem::{LanesTask, Real as Computed, Split, panel_width, wide_width};
use crate::ops::matmul::plan::{Blocks, Sizes};

/// How a product is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Steps: input channels times taps.
    pub k: usize,
    /// Passes over the steps.
    pub depths: Split,
    /// Blocks of output channels.
    pub rows: Split,
    /// Columns of a panel.
    pub width: usize,
    /// Chunks of panels that threads take.
    pub chunks: Split,
}

impl Cut {
    /// For panels of `W` and this many threads on one image.
    pub fn new<W>(g: &Geometry, isa: Isa, threads: usize, device: &DeviceInfo, blocks: Blocks) -> Self {
        let sizes = Sizes::of(device);
        let (tile_rows, _) = wide_shape(isa.register_bytes());
        let width = wide_width::<W>(isa);
        let step = width * size_of::<W>();
        let k = g.c * g.taps();
        // A panel in half of the first cache, a block of weights and a chunk of panels in a quarter of the second each. Of wide tiles, the
        // weights are near while panels pass by: a quarter of the first cache for them, half of the second for the panels.
        let wide = width != panel_width::<W>(isa);
        let near = if wide { sizes.l1 / 4 / (tile_rows * size_of::<W>()) } else { sizes.l1 / 2 / step };
        let depths = Split::at_most(k, blocks.depth.unwrap_or(near).max(16));
        let depth = depths.longest().max(1);
        let most = blocks.rows.unwrap_or(sizes.l2 / 4 / (depth * size_of::<W>()));
        let rows = Split::at_most(g.o, most.max(2 * tile_rows));
        let panels = g.pixels().div_ceil(width);
        let own = sizes.l2 / if wide { 2 } else { 4 } / (depth * step);
        let most = blocks.columns.map_or(own, |columns| columns / width).max(1);
        // Every chunk reads all weights, so that one thread takes no more of them than it must.
        let several = if threads == 1 { 1 } else { panels.min(4 * threads) };
        let chunks = Split::into(panels, panels.div_ceil(most).max(several));
        Self { k, depths, rows, width, chunks }
    }

    /// Elements of the packed weights.
    pub fn weights(&self, g: &Geometry) -> usize {
        g.groups * g.o * self.k
    }

    /// Elements of a thread's panels.
    pub fn panels(&self) -> usize {
        self.chunks.longest() * self.width * self.depths.longest() + SLACK
    }
}

/// Packs the weights of one block of output channels of one group.
///
/// # Safety
/// `w` is the first weight, `to` has room for all packed weights, `row` for all weights of a tile's rows.
pub(super) unsafe fn pack_weights<T: Real>(
    g: &Geometry,
    cut: &Cut,
    isa: Isa,
    (group, block): (usize, usize),
    w: *const T,
    row: *mut T::Wide,
    to: *mut T::Wide,
) where
    T::Wide: Computed,
{
    let (tile_rows, _) = wide_shape(isa.register_bytes());
    let (first, count) = cut.rows.piece(block);
    let tiles = Split::at_most(count, tile_rows);
    for tile in 0..tiles.blocks {
        let (start, rows) = tiles.piece(tile);
        let start = first + start;
        let from = w.wrapping_offset(group as isize * g.w[0] + start as isize * g.w[1]);
        // SAFETY: the channels exist, and there is room for the rows of a tile.
        let (at, across) = unsafe { weight_rows(g, from, rows, row) };
        for pass in 0..cut.depths.blocks {
            let (step, depth) = cut.depths.piece(pass);
            let part = Part { at: at.wrapping_add(step), across, along: 1, width: rows, depth };
            let panels = to.wrapping_add(group * g.o * cut.k + step * g.o + start * depth);
            T::Wide::run(isa, PackPanels { part, width: rows, pitch: rows, panels, apart: 0 });
        }
    }
}

/// Where the element of every step lies in the frame, from that of the first.
pub(super) fn offsets(g: &Geometry, frame: &Frame, to: &mut [usize]) {
    let [_, kh, kw] = g.kernel;
    let taps = g.taps();
    for (step, to) in to.iter_mut().enumerate() {
        let (c, tap) = (step / taps, step % taps);
        *to = c * frame.channel() + frame.tap([tap / (kh * kw), tap / kw % kh, tap % kw]);
    }
}

/// Some panels of columns of one group, as one thread computes them.
pub(super) struct Chunk<'a, W> {
    pub isa: Isa,
    pub g: &'a Geometry,
    pub cut: &'a Cut,
    pub frame: &'a Frame,
    /// Of every step.
    pub offsets: &'a [usize],
    /// The group's first channel in the frame.
    pub image: *const W,
    /// The group's packed weights.
    pub weights: *const W,
    /// Null for none.
    pub bias: *const W,
    /// The group's first channel of the result.
    pub to: *mut W,
    /// Distance of channels of the result.
    pub apart: isize,
    pub activation: Activation,
    /// Which of the chunks.
    pub index: usize,
    /// Room for a chunk of panels.
    pub panels: *mut W,
}

/// Outputs of a panel that are neighbours in a row.
#[derive(Clone, Copy)]
struct Run {
    /// In the frame.
    from: usize,
    /// In the panel.
    to: usize,
    len: usize,
}

/// The widest panel: four vectors of sixteen lanes.
const MOST_COLUMNS: usize = 64;
const MOST_VECTORS: usize = 4;

impl<W: Computed> LanesTask<W> for Chunk<'_, W> {
    #[inline(always)]
    fn run<S: Lanes<W>>(self, s: S) {
        let (g, cut) = (self.g, self.cut);
        let (first, count) = cut.chunks.piece(self.index);
        for pass in 0..cut.depths.blocks {
            let (from, depth) = cut.depths.piece(pass);
            for panel in 0..count {
                let to = self.panels.wrapping_add(panel * depth * cut.width);
                // SAFETY: the frame has every element of the panel's runs, and slack for vectors.
                unsafe { self.pack(s, first + panel, &self.offsets[from..from + depth], to) };
            }
            for block in 0..cut.rows.blocks {
                let (row, rows) = cut.rows.piece(block);
                let split = Split::at_most(rows, const { wide_of::<W, S>().0 });
                let left = |row: usize| Left {
                    a: self.weights.wrapping_add(from * g.o + row * depth),
                    rs: 1,
                    cs: 1,
                };
                let right = |panel: usize| Right {
                    b: self.panels.wrapping_add(panel * depth * cut.width),
                    rs: cut.width as isize,
                };
                let target = |row: usize, panels: Range<usize>| {
                    self.target(row, panels, from > 0, from + depth == cut.k)
                };
                // SAFETY: weights and panels were packed for this depth, and the targets lie in the result.
                unsafe {
                    if const { is_wide::<W, S>() } {
                        for (start, rows) in (0..split.blocks).map(|i| split.piece(i)) {
                            let row = row + start;
                            let to = target(row, first..first + count);
                            micro::band::<W, S, Packed>(s, rows, depth, left(row), right(0), to);
                            activate_rows(self.isa, to.c, to.rs, rows, to.columns, to.activation);
                        }
                    } else {
                        for panel in 0..count {
                            let to = target(row, first + panel..first + panel + 1);
                            micro::column::<W, S, Packed>(s, split, depth, left(row), right(panel), to);
                            activate_rows(self.isa, to.c, to.rs, rows, to.columns, to.activation);
                        }
                    }
                }
            }
        }
    }
}

impl<W: Computed> Chunk<'_, W> {
    /// Where a row's results of some panels go.
    fn target(&self, row: usize, panels: Range<usize>, accumulate: bool, last: bool) -> Target<W> {
        let (column, end) = (panels.start * self.cut.width, panels.end * self.cut.width);
        Target {
            c: self.to.wrapping_offset(row as isize * self.apart).wrapping_add(column),
            rs: self.apart,
            columns: end.min(self.g.pixels()) - column,
            accumulate,
            stream: false,
            bias: if self.bias.is_null() { self.bias } else { self.bias.wrapping_add(row) },
            // Tiles step from the address of a bias even where there is none, and it must stay null.
            bias_rs: isize::from(!self.bias.is_null()),
            bias_cs: 0,
            activation: if last { self.activation } else { Activation::None },
        }
    }

    /// # Safety
    /// The panel's outputs exist, `offsets` are inside the frame, `to` has room for the panel and a vector more.
    #[inline(always)]
    unsafe fn pack<S: Lanes<W>>(&self, s: S, panel: usize, offsets: &[usize], to: *mut W) {
        let runs = runs(self.g, self.frame, panel * self.cut.width, self.cut.width);
        let mut to = to;
        let vectors = const { wide_of::<W, S>().1 };
        let whole = runs.iter().all(|run| run.len.is_multiple_of(S::LANES));
        if whole && runs.iter().map(|run| run.len).sum::<usize>() == vectors * S::LANES {
            // Each vector of the panel has a place of its own in the frame: no loops over runs of unknown length.
            let mut from = [self.image; MOST_VECTORS];
            for run in &runs {
                for i in (0..run.len).step_by(S::LANES) {
                    from[(run.to + i) / S::LANES] = self.image.wrapping_add(run.from + i);
                }
            }
            for &offset in offsets {
                for i in 0..vectors {
                    // SAFETY: so many vectors of the rows, and of the panel.
                    unsafe { s.store(to.add(i * S::LANES), s.load(from[i].add(offset))) };
                }
                to = to.wrapping_add(self.cut.width);
            }
            return;
        }
        for &offset in offsets {
            for run in &runs {
                let (at, to) = (self.image.wrapping_add(run.from + offset), to.wrapping_add(run.to));
                let mut i = 0;
                while i < run.len {
                    // What a vector writes too much is overwritten by the next run or step, or is after the panel.
                    // SAFETY: frames and panels have room for a vector after their last element.
                    unsafe { s.store(to.add(i), s.load(at.add(i))) };
                    i += S::LANES;
                }
            }
            to = to.wrapping_add(self.cut.width);
        }
    }
}

/// The runs of neighbours among `width` outputs from `first` on.
#[inline(always)]
fn runs(g: &Geometry, frame: &Frame, first: usize, width: usize) -> ArrayVec<Run, MOST_COLUMNS> {
    let mut runs = ArrayVec::new();
    let [_, height, columns] = g.output;
    let end = (first + width).min(g.pixels());
    let mut at = first;
    while at < end {
        let (row, x) = (at / columns, at % columns);
        let len = (columns - x).min(end - at);
        let from = frame.output([row / height, row % height, x]);
        runs.push(Run { from, to: at - first, len });
        at += len;
    }
    runs
}
