//! A row from each invocation, or from each workgroup: walked twice, or held in registers in between.

use std::fmt::Write;

use super::Geometry;
use crate::backends::webgpu::axes;
use crate::backends::webgpu::wgsl::{Checks, GROUP, Wgsl, dispatch, element, fits, line_of_groups};
use crate::backends::webgpu::{Place, Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};
use crate::tensor::DType;

/// Who makes a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Invocation,
    /// A workgroup that reads the row twice.
    Workgroup,
    /// A workgroup that holds the row in registers.
    Registers,
    /// One subgroup that holds the row in registers.
    Subgroup,
}

/// One of the kernels.
pub(super) struct Softmax {
    name: &'static str,
    who: Who,
}

pub(super) static EACH: Softmax = Softmax { name: "webgpu::softmax::each", who: Who::Invocation };
pub(super) static WORKGROUP: Softmax = Softmax { name: "webgpu::softmax::workgroup", who: Who::Workgroup };
pub(super) static REGISTERS: Softmax = Softmax { name: "webgpu::softmax::registers", who: Who::Registers };
pub(super) static SUBGROUP: Softmax = Softmax { name: "webgpu::softmax::subgroup", who: Who::Subgroup };

/// What every kernel computes with.
const ONLINE: &str = include_str!("webgpu_softmax.wgsl");

/// Elements of a row that an invocation holds at most: as many as GPUs have registers to spare.
const HELD: usize = 32;
/// The same where the loads are what takes the time, and registers are the CPU's first cache.
const HELD_BY_SUBGROUP: usize = 128;

/// Arithmetic operations for each element: two differences, two exponentials of about eight, two products, two comparisons.
const OPERATIONS: f64 = 22.0;

/// Joins what the workgroup's invocations have.
const TREE: &str = "
part[lane] = acc;
workgroupBarrier();
for (var half = WX / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] = join(part[lane], part[lane + half]); }
    workgroupBarrier();
}
let whole = settled(part[0]);
";

/// Invocations of a workgroup, and elements of a load.
#[derive(Clone, Copy)]
struct Point {
    x: u32,
    vector: u32,
}

impl Point {
    fn of(parameters: &Parameters) -> Self {
        let get = |knob, otherwise| parameters.get(knob).unwrap_or(otherwise);
        Self { x: get(Knob::WorkgroupX, 64), vector: get(Knob::Vector, 1) }
    }
}

fn lanes(limits: &WebGpuLimits) -> Option<u32> {
    limits.subgroup.filter(|(least, most)| least == most).map(|(_, most)| most)
}

impl Softmax {
    /// The entry point; `name` is the type of the output.
    fn body(&self, geometry: &Geometry, point: Point, name: &str) -> String {
        let result = if geometry.attributes.log { LOGARITHM } else { "weight(v, whole.most) / whole.sum" };
        let (first, step) = if self.who == Who::Invocation { ("0u", "1u") } else { ("lane", "WX") };
        let walk = format!("for (var i = {first}; i < s.n; i += {step})");
        let read = "f32(x[start_in + i * s.step_in])";
        match self.who {
            Who::Invocation => format!(
                "{GROUP}let row = line * WX + lane;\nif (row >= s.rows) {{ return; }}\n{ROW}var acc = start();\n\
                 {walk} {{ acc = add(acc, {read}); }}\nlet whole = settled(acc);\n{walk} {{ let v = {read}; y[start_out + i * s.step_out] = {name}({result}); }}"
            ),
            Who::Workgroup => format!(
                "{GROUP}if (line >= s.rows) {{ return; }}\nlet row = line;\n{ROW}var acc = start();\n\
                 {walk} {{ acc = add(acc, {read}); }}\n{TREE}{walk} {{ let v = {read}; y[start_out + i * s.step_out] = {name}({result}); }}"
            ),
            Who::Registers | Who::Subgroup => self.held(geometry, point, name),
        }
    }

    /// The row in registers: each element is loaded once, and its exponential is worked out once.
    fn held(&self, geometry: &Geometry, point: Point, name: &str) -> String {
        let Point { x, vector } = point;
        let count = geometry.n.div_ceil((x * vector) as usize) as u32;
        let mut text = format!(
            "{GROUP}if (line >= s.rows) {{ return; }}\nlet row = line;\n{ROW}let first_in = start_in / {vector}u; let first_out = start_out / {vector}u;\n\
             let last = lane + {}u; let there = last < s.n / {vector}u;\n",
            (count - 1) * x
        );
        let at = |j: u32| if j + 1 == count { "last".into() } else { format!("(lane + {}u)", j * x) };
        for j in 0..count - 1 {
            let _ = writeln!(text, "let v{j} = {V}(x[first_in + {} * s.step_in]);", at(j));
        }
        // Of all rows that need this many turns, only the last turn may lack elements.
        let _ = writeln!(
            text,
            "let v{} = select({V}(from_bits(0xff800000u)), {V}(x[first_in + select(0u, last, there) * s.step_in]), there);",
            count - 1
        );
        // NaN is never the largest; a row with one sums up to it all the same.
        let _ = writeln!(text, "var most_of = {V}(from_bits(0xff800000u));");
        for j in 0..count {
            let _ = writeln!(text, "most_of = select(most_of, v{j}, v{j} > most_of);");
        }
        let _ = writeln!(text, "let most = most_part(most_of);\nvar sum_of = {V}(0.0);");
        for j in 0..count - 1 {
            let _ = writeln!(text, "let e{j} = weights(v{j}, most);\nsum_of += e{j};");
        }
        let _ = writeln!(
            text,
            "let e{0} = select({V}(0.0), weights(v{0}, most), there);\nsum_of += e{0};\nvar acc = Acc(most, sum_part(sum_of));",
            count - 1
        );
        text.push_str(&self.joined(x));
        text.push_str("let share = weight(most, whole.most) / whole.sum;\n");
        for j in 0..count {
            let value = if geometry.attributes.log { LOGARITHM.into() } else { format!("e{j} * share") };
            let store = format!("let v = v{j}; y[first_out + {} * s.step_out] = {name}({value});", at(j));
            let _ = if j + 1 == count {
                writeln!(text, "if (there) {{ {store} }}")
            } else {
                writeln!(text, "{{ {store} }}")
            };
        }
        text
    }

    /// `whole` of what the invocations of a row have.
    fn joined(&self, x: u32) -> String {
        if self.who == Who::Registers {
            return TREE.into();
        }
        let mut text = String::new();
        for mask in std::iter::successors(Some(1), |m| Some(m * 2)).take_while(|&m| m < x) {
            let _ = writeln!(
                text,
                "acc = join(acc, Acc(subgroupShuffleXor(acc.most, {mask}u), subgroupShuffleXor(acc.sum, {mask}u)));"
            );
        }
        text + "let whole = settled(acc);\n"
    }
}

/// What an invocation holds at once, as shaders name it.
const V: &str = "Values";

/// `Values`, and what becomes of their parts.
fn values(vector: u32) -> &'static str {
    if vector == 4 { FOURS } else { SINGLES }
}

const SINGLES: &str = "
alias Values = f32;
fn weights(v: Values, most: f32) -> Values { return weight(v, most); }
fn most_part(v: Values) -> f32 { return v; }
fn sum_part(v: Values) -> f32 { return v; }
";

const FOURS: &str = "
alias Values = vec4<f32>;
fn weights(v: Values, most: f32) -> Values { return select(exp(v - most), Values(1.0), v == Values(most)); }
fn most_part(v: Values) -> f32 {
    let two = select(v.xy, v.zw, v.zw > v.xy);
    return select(two.x, two.y, two.y > two.x);
}
fn sum_part(v: Values) -> f32 { return (v.x + v.y) + (v.z + v.w); }
";

/// Whether rows are runs of whole fours.
fn by_four(geometry: &Geometry) -> bool {
    let whole = |n: usize| n.is_multiple_of(4);
    geometry.input == 1
        && geometry.output == 1
        && whole(geometry.n)
        && geometry.rows.iter().all(|axis| whole(axis.input) && whole(axis.output))
}

/// The logarithm of the weight of `v`.
const LOGARITHM: &str = "(v - whole.most) - log(whole.sum)";

/// Where a row starts.
const ROW: &str = "let start_in = row_in(row); let start_out = row_out(row);\n";

impl WebGpuKernel for Softmax {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Softmax
    }

    fn variant(&self) -> Variant {
        match self.who {
            Who::Invocation => Variant::Naive,
            Who::Workgroup => Variant::Tiled,
            Who::Registers => Variant::Optimised,
            Who::Subgroup => Variant::HardwareSpecific,
        }
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_kernels.rs", "webgpu_softmax.wgsl", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let n = Geometry::of(workload).n;
        let checks = Checks::layouts(workload, limits).types(&[DType::F32, DType::F16]);
        let most = limits.invocations.min(limits.workgroup[0]).min(256) as usize;
        match self.who {
            Who::Invocation => checks.turns(2 * n),
            Who::Workgroup => {
                checks.turns(n / 32 + 16).needs(fits(limits, [64, 1, 1], 512), "workgroups of 64")
            }
            Who::Registers => checks
                .needs(n <= HELD * most, "rows that fit the registers of a workgroup")
                .needs(fits(limits, [64, 1, 1], 512), "workgroups of 64"),
            Who::Subgroup => {
                checks.with_subgroups().needs(lanes(limits).is_some(), "subgroups of one size").needs(
                    n <= HELD_BY_SUBGROUP * lanes(limits).unwrap_or(1) as usize,
                    "rows that fit the registers of a subgroup",
                )
            }
        }
        .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let geometry = Geometry::of(workload);
        let n = geometry.n;
        let widths: Vec<u32> = match self.who {
            Who::Subgroup => vec![lanes(limits).unwrap_or(1)],
            Who::Registers => vec![32, 64, 128, 256],
            Who::Invocation => vec![64, 8],
            Who::Workgroup => vec![64, 256],
        };
        let space = ParameterSpace::single().axis(Knob::WorkgroupX, &widths);
        let space = match self.who {
            Who::Invocation | Who::Workgroup => space,
            _ if by_four(&geometry) => space.axis(Knob::Vector, &[4, 1]),
            _ => space.axis(Knob::Vector, &[1]),
        };
        space.constrained(|p| {
            let Point { x, .. } = Point::of(p);
            let held =
                self.who != Who::Registers || (n <= HELD * x as usize && (x == 32 || n > x as usize / 2));
            fits(limits, [x, 1, 1], 8 * x) && held
        })
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        let [x, y] = [&workload.inputs()[0], &workload.outputs()[0]];
        let reads = if matches!(self.who, Who::Invocation | Who::Workgroup) { 2 } else { 1 };
        WebGpuCost { operations: OPERATIONS * x.len() as f64, bytes: (reads * x.bytes() + y.bytes()) as f64 }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let geometry = Geometry::of(workload);
        let (rows, point) = (geometry.count(), Point::of(parameters));
        let Point { x, vector } = point;
        if rows * geometry.n == 0 {
            return Plan::default();
        }
        let name = element(workload.outputs()[0].dtype);
        let name = if vector == 4 { format!("vec4<{name}>") } else { name.into() };
        let numbers = geometry.numbers();
        let text =
            format!("const WX = {x}u;\n{ONLINE}{}{}", values(vector), axes::places("row", &geometry.rows));
        let wgsl =
            Wgsl::new(self.name, [x, 1, 1]).read("x", &name).write("y", &name).numbers(&numbers).with(text);
        let (wgsl, groups) = match self.who {
            Who::Invocation => (wgsl, rows.div_ceil(x as usize)),
            Who::Workgroup | Who::Registers => (wgsl.shared("part", "Acc", 8, x), rows),
            Who::Subgroup => (wgsl.subgroups(), rows),
        };
        let shader = wgsl.main(self.body(&geometry, point, &name));
        let run = dispatch(0, &[Place::Operand(0), Place::Operand(1)], &numbers, line_of_groups(groups));
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}
