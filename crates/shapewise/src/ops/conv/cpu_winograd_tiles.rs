//! How a convolution is cut into Winograd's tiles, and where their transforms lie.

use super::cpu_image::Frame;
use super::geometry::Geometry;
use crate::backends::cpu::simd::Isa;
use crate::ops::matmul::cpu_micro::tile_shape;
use crate::ops::matmul::cpu_problem::{Split, panel_width};

/// Output channels that are multiplied and transformed back at once: their results stay in the second cache.
const BLOCK_ROWS: usize = 48;

/// Bytes of transformed weights that are used once: half of the second cache of most machines, the rest is for panels.
const ONCE: usize = 256 << 10;

/// Elements between the planes of a tile's points beyond their size: planes start in different sets of the caches.
const APART: usize = 16;

/// How a convolution is cut into tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    /// Points of a tile.
    pub points: usize,
    /// Inputs and outputs of a tile along an axis.
    pub inputs: usize,
    pub outputs: usize,
    /// Rows of tiles, and tiles of a row.
    pub down: usize,
    pub across: usize,
    /// Tiles of a panel.
    pub width: usize,
    /// Output channels in groups that fill the registers, and blocks of those groups.
    pub groups: Split,
    pub blocks: Split,
    pub channels: usize,
}

impl Tiles {
    pub fn new<W>(g: &Geometry, isa: Isa, outputs: usize) -> Self {
        let inputs = outputs + 2;
        let (rows, _) = tile_shape(isa.register_bytes());
        let groups = Split::at_most(g.o, rows);
        Self {
            points: inputs * inputs,
            inputs,
            outputs,
            down: g.output[1].div_ceil(outputs),
            across: g.output[2].div_ceil(outputs),
            width: panel_width::<W>(isa),
            groups,
            blocks: Split::at_most(groups.blocks, (BLOCK_ROWS / rows).max(1)),
            channels: g.c,
        }
    }

    /// The convolution whose outputs are tiles and whose kernel is a tile's inputs: its frame is what tiles read.
    pub fn frame(&self, g: &Geometry) -> Frame {
        Frame::new(&Geometry {
            kernel: [1, self.inputs, self.inputs],
            output: [1, self.down, self.across],
            stride: [1, self.outputs, self.outputs],
            ..*g
        })
    }

    pub fn panels(&self) -> usize {
        (self.down * self.across).div_ceil(self.width)
    }

    /// Elements of the transformed weights of a convolution's group: blocks of output channels, in each all points.
    pub fn weights(&self) -> usize {
        self.weights_before(self.blocks.blocks)
    }

    /// Elements of the transformed weights before a block.
    pub fn weights_before(&self, block: usize) -> usize {
        (0..block).map(|block| self.points * self.weight_plane(block)).sum()
    }

    /// Elements from one point of a block's transformed weights to the next.
    pub fn weight_plane(&self, block: usize) -> usize {
        self.plane_of(self.rows(block).1)
    }

    /// Elements from one point to the next of the transformed weights of so many output channels.
    pub fn plane_of(&self, rows: usize) -> usize {
        rows * self.channels + APART
    }

    /// Where the weights of a group of output channels lie among those of the convolution's group, and how far their
    /// points are apart.
    pub fn weights_of(&self, group: usize) -> (usize, usize) {
        let (block, first) = self.place(group);
        let start = self.groups.piece(group).0;
        (self.weights_before(block) + (start - first) * self.channels, self.weight_plane(block))
    }

    /// The block of a group of output channels, and that block's first channel.
    fn place(&self, group: usize) -> (usize, usize) {
        let mut block = 0;
        while self.blocks.piece(block).0 + self.blocks.length(block) <= group {
            block += 1;
        }
        (block, self.rows(block).0)
    }

    /// Groups of output channels whose weights are transformed and used at once by one of so many threads.
    pub fn used_at_once(&self, threads: usize) -> usize {
        let each = self.points * self.plane_of(self.groups.longest()) * size_of::<f32>();
        let fair = self.groups.blocks.div_ceil(4 * threads);
        (ONCE / each).min(fair).clamp(1, self.blocks.longest().max(1))
    }

    /// Elements of a group's weights on their way.
    pub fn turned(&self) -> usize {
        self.groups.longest() * 9 * self.channels + APART
    }

    /// Elements from one point of a transformed panel to the next.
    pub fn input_plane(&self) -> usize {
        self.channels * self.width + APART
    }

    /// Elements of a transformed panel; the last vector may write beyond it.
    pub fn panel(&self) -> usize {
        self.points * self.input_plane() + APART
    }

    pub fn block_rows(&self) -> usize {
        self.blocks.longest() * self.groups.longest()
    }

    pub fn result_plane(&self) -> usize {
        self.block_rows() * self.width + APART
    }

    /// Elements of the products of a block.
    pub fn results(&self) -> usize {
        self.points * self.result_plane() + APART
    }

    /// First row and number of rows of a block.
    pub fn rows(&self, block: usize) -> (usize, usize) {
        self.rows_of(self.blocks.piece(block))
    }

    /// First row and number of rows of some groups of output channels: the first, and how many.
    pub fn rows_of(&self, (first, count): (usize, usize)) -> (usize, usize) {
        let start = self.groups.piece(first).0;
        let (last, rows) = self.groups.piece(first + count - 1);
        (start, last + rows - start)
    }

    /// The runs of tiles in one row of tiles: row, first tile, place in the panel, number.
    pub fn runs(&self, panel: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> + use<> {
        let (across, end) = (self.across, (self.down * self.across).min((panel + 1) * self.width));
        let first = panel * self.width;
        let mut at = first;
        std::iter::from_fn(move || {
            let (row, tile) = (at / across, at % across);
            let count = (across - tile).min(end.saturating_sub(at));
            let run = (row, tile, at - first, count);
            at += count;
            (count > 0).then_some(run)
        })
    }
}
