//! What the kernels execute.

use super::Cell;
use super::plan::{Plan, Way};
use super::problem::Problem;
use crate::device::DeviceInfo;
use crate::ops::matmul::cpu_micro::tile_shape;
use crate::ops::{ComputeUnit, Cost, Traffic};

/// Arithmetic operations of one sigmoid or tanh: the power with its reduction (5), its polynomial of degree 6 (12), scaling and
/// borders (5), the quotient (2).
const FUNCTION: f64 = 24.0;

/// Arithmetic operations of all gates.
pub(super) fn activations(p: &Problem) -> f64 {
    let each = match p.cell {
        Cell::Tanh => FUNCTION,
        Cell::Relu => 1.0,
        Cell::Gru => 3.0 * FUNCTION + 5.0,
        Cell::Lstm => 5.0 * FUNCTION + 4.0,
    };
    (p.steps * p.batch) as f64 * p.hidden as f64 * each
}

/// One way of computing a layer.
pub(super) fn layer(p: &Problem, plan: &Plan, bytes: usize, device: &DeviceInfo) -> Cost {
    let unit = ComputeUnit { dtype: p.dtype, isa: Some(plan.isa) };
    let size = p.dtype.size() as f64;
    let (steps, batch) = (p.steps as f64, p.batch as f64);
    let (gates, input, hidden) = (p.cell.gates() as f64, p.input as f64, p.hidden as f64);
    let projects = plan.way.projects();
    // Rows of products that go over the weights step by step.
    let (length, lines) = (if projects { hidden } else { input + hidden }, gates * plan.padded as f64);
    let (most_rows, _) = tile_shape(plan.isa.register_bytes());
    let lanes = (plan.isa.register_bytes() / p.dtype.size()) as f64;
    let operations = 2.0 * steps * batch * lines * length
        + if projects { 2.0 * steps * batch * gates * hidden * input } else { 0.0 }
        + if plan.way.packs() { 0.0 } else { steps * batch * lines * 2.0 * lanes * lanes.log2() }
        + activations(p);
    // Every step reads all weights anew, for all its sequences; tiles read them once more from the first cache.
    let weights = lines * length * size;
    let shared = if plan.way == Way::Batch { plan.threads as f64 } else { 1.0 };
    let each = Traffic::pass(steps * weights * shared, weights, &device.caches);
    let tiles = if plan.way.packs() {
        let rows = batch.min(most_rows as f64);
        steps * batch * lines * length * size * (1.0 / rows + 1.0 / plan.width as f64)
    } else {
        steps * weights * (batch / 2.0).ceil() * 1.5
    };
    let once = Traffic::pass(bytes as f64, bytes as f64, &device.caches);
    let packed = if plan.kept { 0.0 } else { (plan.blocks * (plan.block[0] + plan.block[1])) as f64 * size };
    let packing = Traffic::pass(2.0 * packed, 2.0 * packed, &device.caches);
    let between = if projects { 2.0 * steps * batch * gates * hidden * size } else { 0.0 };
    let chunk = plan.chunk as f64 * batch * gates * hidden * size;
    let traffic =
        Traffic { l1: tiles, ..each } + once + packing + Traffic::pass(between, chunk, &device.caches);
    let pieces = if plan.way == Way::Batch { p.batch } else { plan.blocks };
    let cost = Cost::new(operations, unit, traffic).split(plan.threads, pieces.max(1));
    // Where threads share the units they meet after every step, which takes about as long as a hand-over.
    let runs = if plan.way == Way::Batch { 1 + usize::from(!plan.kept) } else { 1 + p.steps };
    let forks = if cost.threads > 1 { u32::try_from(runs).unwrap_or(u32::MAX) } else { 0 };
    let scratch = plan.buffers(p).total(plan.threads) * p.dtype.size();
    Cost { forks, scratch, ..cost }
}
