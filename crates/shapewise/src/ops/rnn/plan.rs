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

/// Rows of an input projection: so many that packing the weights for them costs a few hundredths.
const PROJECTED: usize = 512;

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
    /// Whether weights of the steps are packed.
    pub fn packs(self) -> bool {
        matches!(self, Self::Fused | Self::Batch | Self::Projected)
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
    /// Packed weights of a block.
    pub block: usize,
    /// Steps whose inputs are multiplied at once.
    pub chunk: usize,
}

/// Elements of the buffers of a call, in this order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub packed: usize,
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
        // A panel's piece takes half of the first cache.
        let most = Sizes::of(device).l1 / 2 / panel_bytes;
        let depth = parameters.get(Knob::BlockK).map_or(most, |k| k as usize).max(1);
        let steps = if way.projects() { p.hidden } else { p.input + p.hidden };
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
            depth,
            block: if way.packs() { p.cell.gates() * steps * width } else { 0 },
            chunk: if way.projects() { PROJECTED.div_ceil(p.batch.max(1)).min(p.steps) } else { p.steps },
        }
    }

    /// Pieces of the products with the inputs and with the state.
    pub fn pieces(&self, p: &Problem) -> [Split; 2] {
        [p.input, p.hidden].map(|length| Split::at_most(length, self.depth))
    }

    pub fn buffers(&self, p: &Problem) -> Buffers {
        let line = |elements: usize| elements.next_multiple_of(64);
        let state = line(p.batch * self.pitch);
        Buffers {
            packed: line(self.blocks * self.block),
            bias: line(p.cell.sums() * self.padded),
            state,
            memory: if p.cell == Cell::Lstm { state } else { 0 },
            projected: if self.way.projects() { line(self.chunk * p.batch * p.columns()) } else { 0 },
            sums: line(p.cell.sums() * self.rows * self.width),
        }
    }
}

impl Buffers {
    /// All together, for so many threads.
    pub fn total(&self, threads: usize) -> usize {
        self.packed + self.bias + 2 * self.state + self.memory + self.projected + threads * self.sums
    }
}

/// Whether a layer's numbers are computed with as they are stored.
pub(super) fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}
