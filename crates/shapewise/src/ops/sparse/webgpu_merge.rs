//! Equal shares of the entries whatever the rows look like: rows inside a share are finished at once, the others' parts are
//! put together afterwards.

use super::{Geometry, checks, format};
use crate::backends::webgpu::wgsl::{GROUP, dispatch, fits, line_of_groups};
use crate::backends::webgpu::{Place, Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::sparse::SparseFormat;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// `webgpu::sparse::merge`
pub(super) struct Merge;

/// The row of an entry, by halving: the last one that starts at it or before and is not empty.
const ROW_OF: &str = "
fn row_of(entry: u32) -> u32 {
    var low = 0u;
    var high = s.rows;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (offsets[middle + 1u] <= entry) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}
";

/// A share: what belongs to a row that began before goes to `heads`, what belongs to one that goes on to `tails`.
const SHARES: &str = "
let index = line * WX + lane;
let share = index / s.n;
let j = index % s.n;
if (share >= s.shares) { return; }
let first = share * s.length;
let last = min(first + s.length, s.entries);
var head = 0.0;
var tail = 0.0;
var e = first;
while (e < last) {
    let row = row_of(e);
    let end = min(offsets[row + 1u], last);
    var sum = 0.0;
    for (; e < end; e++) { sum += values[e] * x[indices[e] * s.x_row + j * s.x_column]; }
    let began = offsets[row] >= first;
    let ended = offsets[row + 1u] <= last;
    if (began && ended) { finish(row, j, sum); } else if (began) { tail = sum; } else { head = sum; }
}
heads[index] = head;
tails[index] = tail;
";

/// Rows of several shares, and rows without entries.
const ROWS: &str = "
let index = line * WX + lane;
let row = index / s.n;
let j = index % s.n;
if (row >= s.rows) { return; }
let begin = offsets[row];
let end = offsets[row + 1u];
if (begin == end) { finish(row, j, 0.0); return; }
let first = begin / s.length;
let last = (end - 1u) / s.length;
if (first == last) { return; }
var sum = select(tails[first * s.n + j], heads[first * s.n + j], begin < first * s.length);
for (var share = first + 1u; share <= last; share++) { sum += heads[share * s.n + j]; }
finish(row, j, sum);
";

fn length(parameters: &Parameters) -> usize {
    parameters.get(Knob::BlockK).unwrap_or(128) as usize
}

/// Invocations of a workgroup.
fn width(parameters: &Parameters) -> u32 {
    parameters.get(Knob::WorkgroupX).unwrap_or(64)
}

impl WebGpuKernel for Merge {
    fn name(&self) -> &'static str {
        "webgpu::sparse::merge"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Sparse
    }

    fn variant(&self) -> Variant {
        Variant::Parallel
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_merge.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let g = Geometry::of(workload);
        if g.format != SparseFormat::Csr {
            return Err(Refusals::one(format(workload)));
        }
        let scratch = 4 * g.entries.div_ceil(32) as u64 * g.n as u64;
        let buffers = 7 + usize::from(g.bias);
        checks(workload, limits)
            .bindings(buffers)
            .needs(scratch <= limits.storage_binding, "parts of rows that fit one buffer")
            .turns(g.longest() / 32 + 64)
            .done()
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
            .axis(Knob::BlockK, &[128, 32])
            .axis(Knob::WorkgroupX, &[64, 8, 256])
            .constrained(|p| fits(limits, [width(p), 1, 1], 0))
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let g = Geometry::of(workload);
        let cost = g.cost(workload);
        let shares = (g.entries.div_ceil(length(parameters)) * g.n) as f64;
        WebGpuCost { operations: cost.operations + shares, bytes: cost.bytes + 16.0 * shares }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let g = Geometry::of(workload);
        if g.rows * g.n == 0 {
            return Plan::default();
        }
        let length = length(parameters);
        let shares = g.entries.div_ceil(length);
        let numbers = g.numbers(workload).with("length", length).with("shares", shares);
        let x = width(parameters);
        let shader = |what: &str| {
            g.shader(&format!("{}: {what}", self.name()), x, &numbers).with(format!("const WX = {x}u;"))
        };
        let first = shader("shares").write("heads", "f32").write("tails", "f32").with(ROW_OF);
        let second = shader("rows").read("heads", "f32").read("tails", "f32");
        let mut places = g.places();
        places.extend([Place::Scratch(0), Place::Scratch(1)]);
        let groups = |count: usize| line_of_groups((count * g.n).div_ceil(x as usize));
        let parts = (4 * shares * g.n).max(4) as u64;
        Plan {
            shaders: vec![first.main(format!("{GROUP}{SHARES}")), second.main(format!("{GROUP}{ROWS}"))],
            scratch: vec![parts, parts],
            dispatches: vec![
                dispatch(0, &places, &numbers, groups(shares.max(1))),
                dispatch(1, &places, &numbers, groups(g.rows)),
            ],
        }
    }
}
