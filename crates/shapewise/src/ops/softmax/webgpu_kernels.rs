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

/// Invocations of a workgroup.
fn width(parameters: &Parameters) -> u32 {
    parameters.get(Knob::WorkgroupX).unwrap_or(64)
}

fn lanes(limits: &WebGpuLimits) -> Option<u32> {
    limits.subgroup.filter(|(least, most)| least == most).map(|(_, most)| most)
}

impl Softmax {
    /// The entry point; `name` is the type of the output.
    fn body(&self, geometry: &Geometry, x: u32, name: &str) -> String {
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
            Who::Registers | Who::Subgroup => self.held(geometry, x, name),
        }
    }

    /// The row in registers: each element is loaded once, and its exponential is worked out once.
    fn held(&self, geometry: &Geometry, x: u32, name: &str) -> String {
        let count = geometry.n.div_ceil(x as usize);
        let log = geometry.attributes.log;
        let mut text = format!("{GROUP}if (line >= s.rows) {{ return; }}\nlet row = line;\n{ROW}");
        let there = |j: usize| format!("lane + {}u < s.n", j as u32 * x);
        for j in 0..count {
            let at = format!("min(lane + {}u, s.n - 1u)", j as u32 * x);
            let _ = writeln!(
                text,
                "let v{j} = select(from_bits(0xff800000u), f32(x[start_in + {at} * s.step_in]), {});",
                there(j)
            );
        }
        text.push_str("var most = v0;\n");
        for j in 1..count {
            let _ = writeln!(text, "most = select(most, v{j}, v{j} > most || is_nan(most));");
        }
        // NaN is never the largest; a row of nothing else sums up to it all the same.
        text.push_str("most = select(most, from_bits(0xff800000u), is_nan(most));\nvar sum = 0.0;\n");
        for j in 0..count {
            let _ = writeln!(text, "let e{j} = select(0.0, weight(v{j}, most), {});\nsum += e{j};", there(j));
        }
        text.push_str("var acc = Acc(most, sum);\n");
        if self.who == Who::Registers {
            text.push_str(TREE);
        } else {
            for mask in std::iter::successors(Some(1), |m| Some(m * 2)).take_while(|&m| m < x) {
                let _ = writeln!(
                    text,
                    "acc = join(acc, Acc(subgroupShuffleXor(acc.most, {mask}u), subgroupShuffleXor(acc.sum, {mask}u)));"
                );
            }
            text.push_str("let whole = settled(acc);\n");
        }
        text.push_str("let share = weight(most, whole.most) / whole.sum;\n");
        for j in 0..count {
            let value = if log { LOGARITHM.into() } else { format!("e{j} * share") };
            let _ = writeln!(
                text,
                "if ({}) {{ let v = v{j}; y[start_out + (lane + {}u) * s.step_out] = {name}({value}); }}",
                there(j),
                j as u32 * x
            );
        }
        text
    }
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
        let n = Geometry::of(workload).n;
        let widths: Vec<u32> = match self.who {
            Who::Subgroup => vec![lanes(limits).unwrap_or(1)],
            Who::Registers => vec![32, 64, 128, 256],
            Who::Invocation => vec![64, 8],
            Who::Workgroup => vec![64, 256],
        };
        ParameterSpace::single().axis(Knob::WorkgroupX, &widths).constrained(|p| {
            let x = width(p);
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
        let (rows, x) = (geometry.count(), width(parameters));
        if rows * geometry.n == 0 {
            return Plan::default();
        }
        let name = element(workload.outputs()[0].dtype);
        let numbers = geometry.numbers();
        let text = format!(
            "const WX = {x}u;\nfn is_nan(x: f32) -> bool {{ return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }}\n{ONLINE}{}",
            axes::places("row", &geometry.rows)
        );
        let wgsl =
            Wgsl::new(self.name, [x, 1, 1]).read("x", name).write("y", name).numbers(&numbers).with(text);
        let (wgsl, groups) = match self.who {
            Who::Invocation => (wgsl, rows.div_ceil(x as usize)),
            Who::Workgroup | Who::Registers => (wgsl.shared("part", "Acc", 8, x), rows),
            Who::Subgroup => (wgsl.subgroups(), rows),
        };
        let shader = wgsl.main(self.body(&geometry, x, name));
        let run = dispatch(0, &[Place::Operand(0), Place::Operand(1)], &numbers, line_of_groups(groups));
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}
