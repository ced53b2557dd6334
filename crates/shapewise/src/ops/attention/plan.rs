//! How the tiled kernels cut an attention, derived from sizes, caches and parameters.

use super::problem::Problem;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::ops::matmul::cpu_micro::wide_shape;
use crate::ops::{Knob, ParameterSpace, Parameters};
use crate::tensor::DType;

/// Queries of a block, the favourite first: whole tiles of 4, 6 and 8 rows.
const QUERIES: [u32; 2] = [48, 96];
/// Keys of a block, the favourite first: the scores of a block stay in the second cache.
const KEYS: [u32; 2] = [512, 256];

/// Elements between the rows of scores beyond their keys: rows a power of two apart would share a set of the cache.
const APART: usize = 16;

/// Keys that are packed by one task.
const CHUNK: usize = 192;

/// Blocks, buffers and rounds of one call. Sizes of buffers are in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub isa: Isa,
    pub threads: usize,
    /// Columns of a panel.
    pub width: usize,
    /// Queries of a block.
    pub rows: usize,
    /// Keys of a block.
    pub keys: usize,
    /// From row to row of a block's scores.
    pub pitch: usize,
    /// Columns of a block's sums, padded to panels.
    pub columns: usize,
    /// Keys that are packed by one task.
    pub chunk: usize,
    /// Packed keys of one head.
    pub packed_keys: usize,
    /// Packed values of one head.
    pub packed_values: usize,
    /// Heads of keys that are packed before their queries are computed.
    pub heads: usize,
}

impl Plan {
    pub fn new(p: &Problem, isa: Isa, parameters: &Parameters, device: &DeviceInfo) -> Self {
        let size = if p.dtype == DType::F64 { 8 } else { 4 };
        let width = wide_shape(isa.register_bytes()).1 * isa.register_bytes() / size;
        let given = |knob, favourite: u32| parameters.get(knob).unwrap_or(favourite) as usize;
        let rows = given(Knob::BlockM, QUERIES[0]).min(p.queries).max(1);
        let keys = given(Knob::BlockN, KEYS[0]).min(p.keys).max(1).next_multiple_of(width);
        let columns = p.value_dim.next_multiple_of(width);
        let line = |elements: usize| elements.next_multiple_of(64);
        let packed_keys = line(p.keys.next_multiple_of(width) * p.dim);
        let packed_values = line(p.keys * columns);
        let threads = parameters.threads();
        // As many as take an eighth of the last cache, so that they stay there beside what else it holds.
        let cache = device.caches.l3.or(device.caches.l2).unwrap_or(1 << 20) / 8;
        let fit = cache / ((packed_keys + packed_values) * size).max(1);
        let heads = fit.max(1).next_multiple_of(threads).min(p.batch * p.kv_heads).max(1);
        let pitch = keys.next_multiple_of(16) + APART;
        let chunk = CHUNK.next_multiple_of(width);
        Self { isa, threads, width, rows, keys, pitch, columns, chunk, packed_keys, packed_values, heads }
    }

    /// Blocks of queries of one head.
    pub fn blocks(&self, p: &Problem) -> usize {
        p.queries.div_ceil(self.rows)
    }

    /// First query and number of queries of a block.
    pub fn block(&self, p: &Problem, i: usize) -> (usize, usize) {
        let first = i * self.rows;
        (first, self.rows.min(p.queries - first))
    }

    /// A thread's own buffers.
    pub fn own(&self, p: &Problem) -> Own {
        let line = |elements: usize| elements.next_multiple_of(64);
        let mask = if p.mask.is_some() { line(self.rows * self.pitch) } else { 0 };
        let widened =
            if p.dtype.size() == 2 { line(self.rows.max(self.chunk) * p.dim.max(p.value_dim)) } else { 0 };
        Own {
            queries: line(self.rows * p.dim) + 64,
            scores: line(self.rows * self.pitch),
            sums: line(self.rows * self.columns),
            rows: line(self.rows),
            mask,
            widened,
        }
    }
}

/// Elements of a thread's own buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub queries: usize,
    pub scores: usize,
    pub sums: usize,
    /// One number per row; there are two of these.
    pub rows: usize,
    pub mask: usize,
    /// Rows of 16-bit floats, widened.
    pub widened: usize,
}

impl Own {
    pub fn total(&self) -> usize {
        self.queries + self.scores + self.sums + 2 * self.rows + self.mask + self.widened
    }
}

/// Threads, and blocks that are not larger than needed.
pub(super) fn space(p: &Problem, device: &DeviceInfo) -> ParameterSpace {
    // The larger one only where the smaller is not enough.
    let upto = |values: [u32; 2], length: usize| -> Vec<u32> {
        let least = values[0].min(values[1]);
        values.into_iter().filter(|&v| v == least || length > least as usize).collect()
    };
    let mut threads = vec![device.threads.max(1) as u32, 1];
    threads.dedup();
    ParameterSpace::single()
        .axis(Knob::Threads, &threads)
        .axis(Knob::BlockM, &upto(QUERIES, p.queries))
        .axis(Knob::BlockN, &upto(KEYS, p.keys))
}
