//! Batch, layer, RMS and group norm on WebGPU: statistics by Welford's and Chan's formulas, in f32.

#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;

use super::{NormAttributes, NormKind};
use crate::backends::webgpu::axes::{self, Axis, count};
use crate::backends::webgpu::wgsl::{
    Checks, GROUP, Numbers, Wgsl, dispatch, element, fits, line_of_groups, stride,
};
use crate::backends::webgpu::{Access, Place, Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, Operation, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};
use crate::tensor::DType;

/// Every WebGPU kernel.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] = &[&INFERENCE, &EACH, &WORKGROUP];

static INFERENCE: Norm = Norm { name: "webgpu::norm::inference", who: Who::Element };
static EACH: Norm = Norm { name: "webgpu::norm::each", who: Who::Invocation };
static WORKGROUP: Norm = Norm { name: "webgpu::norm::workgroup", who: Who::Workgroup };

/// Who normalises elements that share their statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// Each element by itself: the statistics are given.
    Element,
    Invocation,
    Workgroup,
}

struct Norm {
    name: &'static str,
    who: Who,
}

/// Statistics, and how two of them join.
const MOMENTS: &str = include_str!("webgpu_moments.wgsl");

/// Joins the statistics of the workgroup's invocations.
const TREE: &str = "
part[lane] = acc;
workgroupBarrier();
for (var half = WX / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] = join(part[lane], part[lane + half]); }
    workgroupBarrier();
}
acc = part[0];
";

/// Elements that share statistics, and which weight is theirs.
struct Geometry {
    attributes: NormAttributes,
    /// The axes that tell units apart, and those that statistics are taken over.
    units: Vec<Axis>,
    over: Vec<Axis>,
    /// Groups, channels of a group, and elements of a channel within a unit.
    groups: usize,
    each: usize,
    places: usize,
}

impl Geometry {
    fn of(workload: &Workload) -> Self {
        let attributes = match workload.operation() {
            Operation::Norm(attributes) => *attributes,
            other => unreachable!("the registry gives norms only, not {other}"),
        };
        let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
        let axes: Vec<_> = (0..x.shape.len()).map(|i| Axis::of(x, y, i)).collect();
        let at = usize::from(attributes.axis);
        let (mut groups, mut each) = (1, 1);
        let (units, over) = match attributes.kind {
            NormKind::Layer | NormKind::Rms => (axes[..at].to_vec(), axes[at..].to_vec()),
            NormKind::BatchInference | NormKind::BatchTraining => {
                (vec![axes[at]], axes.iter().enumerate().filter(|&(i, _)| i != at).map(|(_, a)| *a).collect())
            }
            NormKind::Group { groups: many } => {
                let channels = axes[at];
                groups = many as usize;
                each = channels.size / groups.max(1);
                let mut units = axes[..at].to_vec();
                units.push(Axis {
                    size: groups,
                    input: channels.input * each,
                    output: channels.output * each,
                });
                let mut over = vec![Axis { size: each, ..channels }];
                over.extend_from_slice(&axes[at + 1..]);
                (units, over)
            }
        };
        let places = count(&over) / each.max(1);
        Self { attributes, units, over, groups, each, places }
    }

    /// The number of an element's weight, from `unit` and `i`.
    fn weight(&self) -> &'static str {
        match self.attributes.kind {
            NormKind::Layer | NormKind::Rms => "i",
            NormKind::BatchInference | NormKind::BatchTraining => "unit",
            NormKind::Group { .. } => "(unit % s.groups * s.each + i / s.places)",
        }
    }

    fn numbers(&self, workload: &Workload) -> Numbers {
        let first = Numbers::default()
            .with("units", count(&self.units))
            .with("depth", count(&self.over))
            .with("groups", self.groups)
            .with("each", self.each)
            .with("places", self.places)
            .with_real("eps", self.attributes.eps() as f32);
        let numbers = axes::numbers(axes::numbers(first, "unit", &self.units), "element", &self.over);
        (1..workload.outputs().len())
            .fold(numbers, |n, i| n.with(format!("statistic{i}"), stride(&workload.outputs()[i], 0)))
    }

    /// The shader with all operands, and the functions of places.
    fn shader(&self, name: &str, workload: &Workload, x: u32, numbers: &Numbers) -> Wgsl {
        let mut wgsl = Wgsl::new(name, [x, 1, 1]).numbers(numbers);
        let inputs = workload.inputs();
        let mut names = vec!["x"];
        names.extend(self.attributes.scale.then_some("scale"));
        names.extend(self.attributes.bias.then_some("bias"));
        if self.attributes.kind == NormKind::BatchInference {
            names.extend(["mean", "variance"]);
        }
        for (name, desc) in names.iter().zip(inputs) {
            wgsl = wgsl.read(name, element(desc.dtype));
        }
        for (name, desc) in ["y", "mean", "variance"].iter().zip(workload.outputs()) {
            wgsl = wgsl.buffer(name, element(desc.dtype), Access::Write);
        }
        let functions = axes::places("unit", &self.units) + &axes::places("element", &self.over);
        wgsl.with(format!("const WX = {x}u;\n{MOMENTS}{functions}"))
    }

    /// Writes element `i` of `unit` from `centre` and `factor`.
    fn write(&self, workload: &Workload) -> String {
        let weight = self.weight();
        let scale = if self.attributes.scale { format!(" * f32(scale[{weight}])") } else { String::new() };
        let bias = if self.attributes.bias { format!(" + f32(bias[{weight}])") } else { String::new() };
        let name = element(workload.outputs()[0].dtype);
        format!(
            "y[to + element_out(i)] = {name}((f32(x[base + element_in(i)]) - centre) * factor{scale}{bias});\n"
        )
    }
}

const UNIT: &str = "let base = unit_in(unit); let to = unit_out(unit);\n";
const FACTOR: &str = "let factor = 1.0 / sqrt(spread + bitcast<f32>(s.eps));\n";

impl Norm {
    fn body(&self, g: &Geometry, workload: &Workload) -> String {
        let write = g.write(workload);
        if self.who == Who::Element {
            return format!(
                "{GROUP}let index = line * WX + lane;\nif (index >= s.units * s.depth) {{ return; }}\n\
                 let unit = index / s.depth; let i = index % s.depth;\n{UNIT}\
                 let centre = f32(mean[unit]); let spread = f32(variance[unit]);\n{FACTOR}{write}"
            );
        }
        let group = self.who == Who::Workgroup;
        let (unit, first, step) =
            if group { ("line", "lane", "WX") } else { ("line * WX + lane", "0u", "1u") };
        let walk = format!("for (var i = {first}; i < s.depth; i += {step})");
        let add = if g.attributes.kind == NormKind::Rms { "add_square" } else { "add" };
        let tree = if group { TREE } else { "" };
        let once = if group { "if (lane == 0u) " } else { "" };
        let (centre, spread) = if g.attributes.kind == NormKind::Rms {
            ("0.0", "acc.squares / f32(s.depth)")
        } else {
            ("acc.mean", "acc.squares / f32(s.depth)")
        };
        let mut statistics = String::new();
        if g.attributes.kind == NormKind::BatchTraining {
            let [mean, variance] = [1, 2].map(|i| element(workload.outputs()[i].dtype));
            statistics = format!(
                "{once}{{ mean[unit * s.statistic1] = {mean}(centre); variance[unit * s.statistic2] = {variance}(spread); }}\n"
            );
        }
        format!(
            "{GROUP}let unit = {unit};\nif (unit >= s.units) {{ return; }}\n{UNIT}var acc = start();\n\
             {walk} {{ acc = {add}(acc, f32(x[base + element_in(i)])); }}\n{tree}\
             let centre = {centre}; let spread = {spread};\n{FACTOR}{statistics}{walk} {{ {write} }}"
        )
    }
}

impl WebGpuKernel for Norm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Norm
    }

    fn variant(&self) -> Variant {
        if self.who == Who::Workgroup { Variant::Tiled } else { Variant::Naive }
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu.rs", "webgpu_moments.wgsl")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let g = Geometry::of(workload);
        let given = g.attributes.kind == NormKind::BatchInference;
        let depth = count(&g.over);
        let checks = Checks::layouts(workload, limits)
            .types(&[DType::F32, DType::F16])
            .bindings(workload.operands().len());
        let checks = match self.who {
            Who::Element => checks.needs(given, "given statistics"),
            Who::Invocation => checks.needs(!given, "statistics to be taken").turns(2 * depth),
            Who::Workgroup => checks.needs(!given, "statistics to be taken").turns(depth / 32 + 16),
        };
        checks
            .needs(fits(limits, [64, 1, 1], 64 * 12), "workgroups of 64 and 768 bytes of their memory")
            .done()
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single().axis(Knob::WorkgroupX, &[64, 256]).constrained(|p| {
            let x = p.get(Knob::WorkgroupX).unwrap_or(64);
            fits(limits, [x, 1, 1], 12 * x)
        })
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        let x = &workload.inputs()[0];
        let again = if self.who == Who::Element { 0 } else { x.bytes() };
        // Three operations for each element's part in the statistics, four to normalise it.
        WebGpuCost { operations: 7.0 * x.len() as f64, bytes: (workload.bytes() + again) as f64 }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let g = Geometry::of(workload);
        if workload.inputs()[0].is_empty() {
            return Plan::default();
        }
        let x = parameters.get(Knob::WorkgroupX).unwrap_or(64);
        let numbers = g.numbers(workload);
        let wgsl = g.shader(self.name, workload, x, &numbers);
        let units = count(&g.units);
        let (wgsl, groups) = match self.who {
            Who::Element => (wgsl, (units * count(&g.over)).div_ceil(x as usize)),
            Who::Invocation => (wgsl, units.div_ceil(x as usize)),
            Who::Workgroup => (wgsl.shared("part", "Acc", 12, x), units),
        };
        let shader = wgsl.main(self.body(&g, workload));
        let places: Vec<_> = (0..workload.operands().len()).map(Place::Operand).collect();
        let run = dispatch(0, &places, &numbers, line_of_groups(groups));
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}
