//! What the kernels execute, counted from how they cut an attention.

use super::cpu_decode::Cut;
use super::cpu_matmuls;
use super::plan::Plan;
use super::problem::Problem;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::ops::matmul::cpu_micro::{tile_shape, wide_shape};
use crate::ops::{ComputeUnit, Cost, Parameters, Traffic};
use crate::tensor::DType;

/// Arithmetic operations per score beyond the products: scale, maximum, difference, sum, and the power with its
/// reduction (5), its polynomial of degree 6 (12), scaling and border (3).
pub(super) const EXPONENTIAL: f64 = 24.0;

/// What the kernels compute with.
fn unit(p: &Problem, isa: Isa) -> ComputeUnit {
    ComputeUnit { dtype: if p.dtype == DType::F64 { DType::F64 } else { DType::F32 }, isa: Some(isa) }
}

/// Lanes of instructions that copy a part: a load and a store each; with transposing, shuffles and blends as well.
fn packing(elements: f64, transposed: bool) -> f64 {
    elements * if transposed { 8.0 } else { 2.0 }
}

/// Blocks of queries against blocks of keys.
pub(super) fn tiled(
    p: &Problem,
    bytes: usize,
    isa: Isa,
    parameters: &Parameters,
    device: &DeviceInfo,
) -> Cost {
    let plan = Plan::new(p, isa, parameters, device);
    let unit = unit(p, isa);
    let size = unit.dtype.size() as f64;
    let tile_rows = wide_shape(isa.register_bytes()).0 as f64;
    let (width, dims) = (plan.width as f64, (p.dim + plan.columns) as f64);
    let (mut products, mut weights, mut l1, mut l2, mut read) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for block in 0..plan.blocks(p) {
        let (first, rows) = plan.block(p, block);
        let keys = p.visible(first + rows - 1) as f64;
        let (rows, padded) = (rows as f64, (keys / width).ceil() * width);
        products += 2.0 * rows * padded * dims;
        weights += rows * keys * EXPONENTIAL;
        let tiles = (rows / tile_rows).ceil();
        // A tile reads an element per row and a vector per vector of columns in each step; scores pass four times.
        l1 += (padded / width * p.dim as f64 + plan.columns as f64 / width * keys)
            * (rows + tiles * width)
            * size
            + 4.0 * rows * keys * size;
        // Queries pass once for each panel of keys, weights once for each panel of values.
        l2 += (padded / width * p.dim as f64 + plan.columns as f64 / width * keys) * rows * size;
        read += keys * dims * size;
    }
    let heads = (p.batch * p.heads) as f64;
    let packed = (p.batch * p.kv_heads * (plan.packed_keys + plan.packed_values)) as f64 * size;
    let copies = packing(packed / 2.0 / size, p.k[3] == 1) + packing(packed / 2.0 / size, p.v[3] != 1);
    let operations = heads * (products + weights) + 2.0 * copies;
    let memory = if bytes > device.caches.l3.unwrap_or(usize::MAX) { bytes as f64 } else { 0.0 };
    let traffic = Traffic {
        l1: heads * l1 + 2.0 * packed,
        l2: heads * (l2 + read) + 2.0 * packed,
        l3: heads * read + packed,
        memory,
    };
    let all = p.batch * p.kv_heads;
    let rounds = all.div_ceil(plan.heads.max(1)).max(1);
    let tasks = plan.heads * p.group() * plan.blocks(p);
    let scratch = plan.heads * (plan.packed_keys + plan.packed_values) + plan.threads * plan.own(p).total();
    let cost = Cost::new(operations, unit, traffic).split(plan.threads, tasks.max(1));
    let forks = if cost.threads > 1 { 2 * rounds as u32 } else { 0 };
    Cost { forks, scratch: scratch * unit.dtype.size(), ..cost }
}

/// Two products for each head and the softmax between them.
pub(super) fn matmuls(
    p: &Problem,
    bytes: usize,
    isa: Isa,
    parameters: &Parameters,
    device: &DeviceInfo,
) -> Cost {
    let unit = unit(p, isa);
    let size = unit.dtype.size() as f64;
    let (rows, width) = tile_shape(isa.register_bytes());
    let (rows, width) = (rows as f64, (width * isa.register_bytes() / unit.dtype.size()) as f64);
    let heads = (p.batch * p.heads) as f64;
    // Causal or not, all scores are computed.
    let scores = p.queries as f64 * p.keys as f64;
    let pad = |n: usize| (n as f64 / width).ceil() * width / n.max(1) as f64;
    let (dim, values) = (p.dim as f64 * pad(p.keys), p.value_dim as f64 * pad(p.value_dim));
    let weights = p.pairs() * EXPONENTIAL + 2.0 * scores;
    let copied = packing(p.dim as f64 * (p.keys + p.queries) as f64, true)
        + packing(p.value_dim as f64 * p.keys as f64, p.v[3] != 1)
        + packing(scores, true);
    let operations = heads * (2.0 * scores * (dim + values) + weights + 2.0 * copied);
    let steps = scores * (dim + values) / (rows * width) * (rows + width) * size;
    let passes = 8.0 * scores * size;
    let between = Traffic::pass(heads * passes, scores * size, &device.caches);
    let operands = Traffic::pass(bytes as f64, bytes as f64, &device.caches);
    let traffic = Traffic { l1: heads * steps, ..Traffic::default() } + between + operands;
    let threads = parameters.threads();
    let scratch = cpu_matmuls::scratch_bytes(p, isa, threads, device);
    let cost = Cost::new(operations, unit, traffic).split(threads, p.queries.max(1));
    let forks = if cost.threads > 1 { 5 * (p.batch * p.heads) as u32 } else { 0 };
    Cost { forks, scratch, ..cost }
}

/// Every key and value read once for all queries that share it.
pub(super) fn decode(
    p: &Problem,
    bytes: usize,
    isa: Isa,
    parameters: &Parameters,
    device: &DeviceInfo,
) -> Cost {
    let unit = unit(p, isa);
    let lanes = (isa.register_bytes() / unit.dtype.size()) as f64;
    let padded = |n: usize| (n as f64 / lanes).ceil() * lanes;
    let pairs = p.pairs() * (p.batch * p.heads) as f64;
    // A product ends with a sum over the lanes: a shuffle and an addition for each halving, of a whole vector.
    let across = 2.0 * lanes * lanes.log2();
    let operations = pairs * (2.0 * (padded(p.dim) + padded(p.value_dim)) + across + EXPONENTIAL);
    let read = pairs * ((p.dim + p.value_dim) * p.dtype.size()) as f64;
    let all = Traffic::pass(bytes as f64, bytes as f64, &device.caches);
    let traffic = Traffic { l1: 2.0 * read, ..all };
    let cut = Cut::new(p, parameters.threads());
    let tasks = p.batch * p.kv_heads * cut.parts;
    let cost = Cost::new(operations, unit, traffic).split(parameters.threads(), tasks.max(1));
    let forks = if cost.threads > 1 { 1 + u32::from(cut.parts > 1) } else { 0 };
    Cost { forks, scratch: tasks * cut.elements() * unit.dtype.size(), ..cost }
}
