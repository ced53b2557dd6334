//! A row's sums from one invocation, a few columns at a time, or from one subgroup.

use std::fmt::Write;

use super::{Geometry, checks, format};
use crate::backends::webgpu::wgsl::{GROUP, dispatch, fits, line_of_groups};
use crate::backends::webgpu::{Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::sparse::SparseFormat;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// Both kernels that go row by row.
pub(super) struct Rows {
    name: &'static str,
    subgroup: bool,
}

pub(super) static ROWS: Rows = Rows { name: "webgpu::sparse::rows", subgroup: false };
pub(super) static SUBGROUP: Rows = Rows { name: "webgpu::sparse::subgroup", subgroup: true };

/// Columns at a time.
fn width(parameters: &Parameters) -> u32 {
    parameters.get(Knob::TileN).unwrap_or(1)
}

/// Invocations of a workgroup.
fn invocations(parameters: &Parameters) -> u32 {
    parameters.get(Knob::WorkgroupX).unwrap_or(64)
}

fn lanes(limits: &WebGpuLimits) -> Option<u32> {
    limits.subgroup.filter(|(least, most)| least == most).map(|(_, most)| most)
}

/// Adds the entry at `at` whose column of the matrix is `column`, to all sums.
fn add(width: u32, at: &str, column: &str) -> String {
    let mut text = format!("let v = values[{at}]; let from_x = ({column}) * s.x_row;\n");
    for c in 0..width {
        let _ = writeln!(text, "sum{c} += v * x[from_x + min(j + {c}u, s.n - 1u) * s.x_column];");
    }
    text
}

/// The entries of `row` in each format, from `first` on in steps of `step`.
fn entries(format: SparseFormat, width: u32) -> String {
    let plain = add(width, "e", "indices[e]");
    match format {
        SparseFormat::Bsr { rows, columns } => format!(
            "let inside = row % {rows}u;\nfor (var b = offsets[row / {rows}u] + first; b < offsets[row / {rows}u + 1u]; b += step) {{\n\
             for (var i = 0u; i < {columns}u; i++) {{\n{}}}\n}}\n",
            add(
                width,
                &format!("(b * {rows}u + inside) * {columns}u + i"),
                &format!("indices[b] * {columns}u + i")
            )
        ),
        SparseFormat::Ell => format!(
            "for (var place = first; place < offsets[row]; place += step) {{ let e = place * s.rows + row;\n{plain}}}\n"
        ),
        SparseFormat::Coo => format!(
            "for (var e = first_of(row) + first; e < s.entries && offsets[e] == row; e += step) {{\n{plain}}}\n"
        ),
        _ => format!("for (var e = offsets[row] + first; e < offsets[row + 1u]; e += step) {{\n{plain}}}\n"),
    }
}

/// The first entry that is not before a row, by halving.
const FIRST_OF: &str = "
fn first_of(row: u32) -> u32 {
    var low = 0u;
    var high = s.entries;
    while (low < high) {
        let middle = (low + high) / 2u;
        if (offsets[middle] < row) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}
";

impl Rows {
    fn body(&self, g: &Geometry, x: u32, width: u32) -> String {
        let sums = (0..width).map(|c| format!("var sum{c} = 0.0;\n")).collect::<Vec<_>>().concat();
        let strips = format!("let strips = (s.n + {width}u - 1u) / {width}u;\n");
        let walk = entries(g.format, width);
        if !self.subgroup {
            let writes = (0..width)
                .map(|c| format!("if (j + {c}u < s.n) {{ finish(row, j + {c}u, sum{c}); }}\n"))
                .collect::<Vec<_>>()
                .concat();
            return format!(
                "{GROUP}{strips}let index = line * {x}u + lane;\nlet row = index / strips; let j = index % strips * {width}u;\n\
                 if (row >= s.rows) {{ return; }}\nlet first = 0u; let step = 1u;\n{sums}{walk}{writes}"
            );
        }
        let mut joins = String::new();
        for mask in std::iter::successors(Some(1), |m| Some(m * 2)).take_while(|&m| m < x) {
            for c in 0..width {
                let _ = writeln!(joins, "sum{c} += subgroupShuffleXor(sum{c}, {mask}u);");
            }
        }
        let writes = (0..width)
            .map(|c| format!("if (lane == 0u && j + {c}u < s.n) {{ finish(row, j + {c}u, sum{c}); }}\n"))
            .collect::<Vec<_>>()
            .concat();
        format!(
            "{GROUP}{strips}let row = line / strips; let j = line % strips * {width}u;\n\
             if (row >= s.rows) {{ return; }}\nlet first = lane; let step = {x}u;\n{sums}{walk}{joins}{writes}"
        )
    }
}

impl WebGpuKernel for Rows {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Sparse
    }

    fn variant(&self) -> Variant {
        if self.subgroup { Variant::HardwareSpecific } else { Variant::Naive }
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_rows.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let g = Geometry::of(workload);
        if g.format == SparseFormat::Csc {
            return Err(Refusals::one(format(workload)));
        }
        let checks = checks(workload, limits);
        if !self.subgroup {
            return checks.turns(2 * g.longest() + 64).done();
        }
        let lanes = lanes(limits);
        checks
            .with_subgroups()
            .needs(lanes.is_some(), "subgroups of one size")
            .turns(2 * g.longest() / lanes.unwrap_or(1) as usize + 64)
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let widths: &[u32] = if Geometry::of(workload).n >= 4 { &[4, 1] } else { &[1] };
        let x = if self.subgroup { vec![lanes(limits).unwrap_or(1)] } else { vec![64, 8] };
        ParameterSpace::single()
            .axis(Knob::TileN, widths)
            .axis(Knob::WorkgroupX, &x)
            .constrained(|p| fits(limits, [invocations(p), 1, 1], 0))
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        Geometry::of(workload).cost(workload)
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let g = Geometry::of(workload);
        if g.rows * g.n == 0 {
            return Plan::default();
        }
        let (x, width) = (invocations(parameters), width(parameters));
        let numbers = g.numbers(workload);
        let wgsl = g.shader(self.name, x, &numbers);
        let wgsl = if g.format == SparseFormat::Coo { wgsl.with(FIRST_OF) } else { wgsl };
        let body = self.body(&g, x, width);
        let shader = if self.subgroup { wgsl.subgroups().main(body) } else { wgsl.main(body) };
        let strips = g.rows * g.n.div_ceil(width as usize);
        let groups = if self.subgroup { strips } else { strips.div_ceil(x as usize) };
        let run = dispatch(0, &g.places(), &numbers, line_of_groups(groups));
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}
