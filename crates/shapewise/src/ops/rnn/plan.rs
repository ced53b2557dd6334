//! How the kernels cut a layer, derived from sizes, caches and parameters.

use super::Cell;
use super::problem::Problem;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::ops::matmul::cpu_micro::tile_shape;
use crate::ops::matmul::cpu_problem::Split;
use crate::ops::matmul::plan::Sizes;
use crate::ops::{Knob, Parameters};
use crate::tensor::DType;

/// Sequences whose sums are computed before their gates: whole tiles of 4, 6, 8 and 12 rows, whose sums stay in the first cache.
const ROWS: usize = 48;

/// Rows of an input projection: so many that reading the weights for them costs nothing beside the products.
const PROJECTED: usize = 512;

/// Rows of a projection that pass a panel together: their inputs stay in the second cache for all gates.
pub(super) const PASSING: usize = 96;

/// How a kernel goes about a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Input and state times packed weights in one product for each step, threads share the hidden units.
    Fused,
    /// The same with threads that share the sequences, so that none waits for another.
    Batch,
    /// Inputs of many steps in one product, states times packed weights for each step.
    Projected,
    /// Products with the rows of weights where they lie.
    Rows,
    /// Inputs of many steps in one product, states times the rows of weights where they lie.
    ProjectedRows,
}

impl Way {
    /// Whether weights of the state are packed.
    pub fn packs(self) -> bool {
        matches!(self, Self::Fused | Self::Batch | Self::Projected)
    }

    /// Whether weights of the inputs and of the state are packed.
    pub fn packed(self) -> [bool; 2] {
        [self != Self::Rows, self.packs()]
    }

    /// Whether inputs are multiplied before the steps.
    pub fn projects(self) -> bool {
        matches!(self, Self::Projected | Self::ProjectedRows)
    }
}

/// Blocks and buffers of one call. Sizes of buffers are in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub isa: Isa,
    pub way: Way,
    pub threads: usize,
    /// Hidden units of a block: columns of a panel.
    pub width: usize,
    /// Blocks of hidden units.
    pub blocks: usize,
    /// Hidden units, padded to whole blocks.
    pub padded: usize,
    /// From row to row of the states.
    pub pitch: usize,
    /// Sequences whose sums are held at once.
    pub rows: usize,
    /// The longest piece of a product.
    pub depth: usize,
    /// Packed weights of a block: of the inputs, and of the state.
    pub block: [usize; 2],
    /// Whether they were packed before the call.
    pub kept: bool,
    /// Steps whose inputs are multiplied at once.
    pub chunk: usize,
}

/// Elements of the buffers of a call, in this order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    /// Of the inputs, and of the state.
    pub packed: [usize; 2],
    pub bias: usize,
    /// One of two.
    pub state: usize,
    pub memory: usize,
    /// Products of the inputs of a chunk.
    pub projected: usize,
    /// One of as many as there are threads.
    pub sums: usize,
}

impl Plan {
    pub fn new(p: &Problem, isa: Isa, way: Way, parameters: &Parameters, device: &DeviceInfo) -> Self {
        let size = p.dtype.size();
        let panel_bytes = tile_shape(isa.register_bytes()).1 * isa.register_bytes();
        let width = panel_bytes / size;
        let blocks = p.hidden.div_ceil(width);
        let padded = blocks * width;
        let kept = p.kept.filter(|kept| kept.isa == isa && way.packed()[0]);
        let depth = match kept {
            Some(kept) => kept.depth as usize,
            None => parameters.get(Knob::BlockK).map_or_else(|| depth(isa, device), |k| k as usize),
        };
        let packs = way.packed();
        let panel = p.cell.gates() * width;
        Self {
            isa,
            way,
            threads: parameters.threads(),
            width,
            blocks,
            padded,
            // A line more: rows a power of two apart would share a set of the cache.
            pitch: padded + 64 / size,
            rows: Split::at_most(p.batch, ROWS).longest(),
            depth: depth.max(1),
            block: [(packs[0], p.input), (packs[1], p.hidden)]
                .map(|(packs, k)| if packs { panel * k } else { 0 }),
            kept: kept.is_some(),
            chunk: if way.projects() { PROJECTED.div_ceil(p.batch.max(1)).min(p.steps) } else { p.steps },
        }
    }

    /// Pieces of the products with the inputs and with the state.
    pub fn pieces(&self, p: &Problem) -> [Split; 2] {
        [p.input, p.hidden].map(|length| Split::at_most(length, self.depth))
    }

    /// Projected inputs of a step: for every block and gate as many rows as there are sequences, of a panel's width.
    pub fn step(&self, p: &Problem) -> usize {
        p.batch * p.cell.gates() * self.padded
    }

    pub fn buffers(&self, p: &Problem) -> Buffers {
        let line = |elements: usize| elements.next_multiple_of(64);
        let state = line(p.batch * self.pitch);
        Buffers {
            packed: self.block.map(|block| if self.kept { 0 } else { line(self.blocks * block) }),
            bias: line(p.cell.sums() * self.padded),
            state,
            memory: if p.cell == Cell::Lstm { state } else { 0 },
            projected: if self.way.projects() { line(self.chunk * self.step(p)) } else { 0 },
            sums: line(p.cell.sums() * self.rows * self.width),
        }
    }
}

impl Buffers {
    /// All together, for so many threads.
    pub fn total(&self, threads: usize) -> usize {
        self.packed[0]
            + self.packed[1]
            + self.bias
            + 2 * self.state
            + self.memory
            + self.projected
            + threads * self.sums
    }
}

/// Steps of a panel's piece, if nobody asks for others: it takes as much as the first cache has. Tiles read it in order, which the
/// second cache keeps up with, and shorter pieces add up sums more often: on Zen 3 half as much was a fortieth slower.
pub(super) fn depth(isa: Isa, device: &DeviceInfo) -> usize {
    let panel_bytes = tile_shape(isa.register_bytes()).1 * isa.register_bytes();
    (Sizes::of(device).l1 / panel_bytes).max(1)
}

/// Whether a layer's numbers are computed with as they are stored.
pub(super) fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}
