//! Batch, layer, RMS and group norm on WebGPU: statistics by Welford's and Chan's formulas, in f32.

#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;

use super::{NormAttributes, NormKind};
use crate::backends::webgpu::axes::{self, Axis, count, merged};
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
        let over = merged(&over);
        Self { attributes, units, over, groups, each, places }
    }

    /// The weight of element `i` of `unit`, or those of the `vector` elements from there on.
    fn weight(&self, name: &str, vector: u32) -> String {
        match (self.attributes.kind, vector) {
            (NormKind::Layer | NormKind::Rms, 1) => format!("f32({name}[i])"),
            (NormKind::Layer | NormKind::Rms, _) => format!("vec4<f32>({name}[i / 4u])"),
            (NormKind::BatchInference | NormKind::BatchTraining, _) => format!("f32({name}[unit])"),
            (NormKind::Group { .. }, _) => {
                format!("f32({name}[unit % s.groups * s.each + i / s.places])")
            }
        }
    }

    /// Whether weights lie as elements do, and so are read as many at a time.
    fn weights_by_element(&self) -> bool {
        matches!(self.attributes.kind, NormKind::Layer | NormKind::Rms)
    }

    /// Whether elements that share statistics can be walked four neighbours at a time, all four with one weight or with neighbouring ones.
    fn by_four(&self) -> bool {
        let whole = |n: usize| n.is_multiple_of(4);
        let Some((last, others)) = self.over.split_last() else { return false };
        let alike = !matches!(self.attributes.kind, NormKind::Group { .. }) || whole(self.places);
        (last.input, last.output) == (1, 1)
            && whole(last.size)
            && alike
            && self.units.iter().chain(others).all(|axis| whole(axis.input) && whole(axis.output))
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
    fn shader(&self, name: &str, workload: &Workload, x: u32, vector: u32, numbers: &Numbers) -> Wgsl {
        let mut wgsl = Wgsl::new(name, [x, 1, 1]).numbers(numbers);
        let inputs = workload.inputs();
        let mut names = vec!["x"];
        names.extend(self.attributes.scale.then_some("scale"));
        names.extend(self.attributes.bias.then_some("bias"));
        if self.attributes.kind == NormKind::BatchInference {
            names.extend(["mean", "variance"]);
        }
        let held = |name: &str, dtype: DType| {
            let wide =
                matches!(name, "x" | "y") || (matches!(name, "scale" | "bias") && self.weights_by_element());
            if vector == 4 && wide { format!("vec4<{}>", element(dtype)) } else { element(dtype).into() }
        };
        for (name, desc) in names.iter().zip(inputs) {
            wgsl = wgsl.read(name, &held(name, desc.dtype));
        }
        for (name, desc) in ["y", "mean", "variance"].iter().zip(workload.outputs()) {
            wgsl = wgsl.buffer(name, &held(name, desc.dtype), Access::Write);
        }
        let functions = axes::places("unit", &self.units) + &axes::places("element", &self.over);
        wgsl.with(format!("const WX = {x}u;\n{MOMENTS}{functions}"))
    }

    /// The element at place `i` of `unit`, or the four from there on.
    fn load(vector: u32) -> &'static str {
        if vector == 4 { "vec4<f32>(x[(base + element_in(i)) / 4u])" } else { "f32(x[base + element_in(i)])" }
    }

    /// Writes them from `centre` and `factor`.
    fn write(&self, workload: &Workload, vector: u32) -> String {
        let weight = |name: &str, there: bool, sign: &str| {
            if there { format!(" {sign} {}", self.weight(name, vector)) } else { String::new() }
        };
        let (scale, bias) =
            (weight("scale", self.attributes.scale, "*"), weight("bias", self.attributes.bias, "+"));
        let (name, load) = (element(workload.outputs()[0].dtype), Self::load(vector));
        if vector == 4 {
            return format!(
                "y[(to + element_out(i)) / 4u] = vec4<{name}>(({load} - centre) * factor{scale}{bias});\n"
            );
        }
        format!("y[to + element_out(i)] = {name}(({load} - centre) * factor{scale}{bias});\n")
    }
}

const UNIT: &str = "let base = unit_in(unit); let to = unit_out(unit);\n";
const FACTOR: &str = "let factor = 1.0 / sqrt(spread + bitcast<f32>(s.eps));\n";

impl Norm {
    fn body(&self, g: &Geometry, workload: &Workload, vector: u32) -> String {
        let write = g.write(workload, vector);
        if self.who == Who::Element {
            return format!(
                "{GROUP}let index = (line * WX + lane) * {vector}u;\nif (index >= s.units * s.depth) {{ return; }}\n\
                 let unit = index / s.depth; let i = index % s.depth;\n{UNIT}\
                 let centre = f32(mean[unit]); let spread = f32(variance[unit]);\n{FACTOR}{write}"
            );
        }
        let group = self.who == Who::Workgroup;
        let (unit, first, step) =
            if group { ("line", "lane", "WX") } else { ("line * WX + lane", "0u", "1u") };
        let walk = format!("for (var i = {first} * {vector}u; i < s.depth; i += {step} * {vector}u)");
        let add = if g.attributes.kind == NormKind::Rms { "add_square" } else { "add" };
        let load = Geometry::load(vector);
        let take = if vector == 4 {
            let each = ["x", "y", "z", "w"].map(|part| format!("acc = {add}(acc, four.{part}); "));
            format!("let four = {load}; {}", each.concat())
        } else {
            format!("acc = {add}(acc, {load}); ")
        };
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
             {walk} {{ {take}}}\n{tree}\
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

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let vectors: &[u32] = if Geometry::of(workload).by_four() { &[4, 1] } else { &[1] };
        ParameterSpace::single().axis(Knob::Vector, vectors).axis(Knob::WorkgroupX, &[64, 256]).constrained(
            |p| {
                let x = p.get(Knob::WorkgroupX).unwrap_or(64);
                fits(limits, [x, 1, 1], 12 * x)
            },
        )
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
        let vector = parameters.get(Knob::Vector).unwrap_or(1);
        let wgsl = g.shader(self.name, workload, x, vector, &numbers);
        let units = count(&g.units);
        let (wgsl, groups) = match self.who {
            Who::Element => (wgsl, (units * count(&g.over)).div_ceil((x * vector) as usize)),
            Who::Invocation => (wgsl, units.div_ceil(x as usize)),
            Who::Workgroup => (wgsl.shared("part", "Acc", 12, x), units),
        };
        let shader = wgsl.main(self.body(&g, workload, vector));
        let places: Vec<_> = (0..workload.operands().len()).map(Place::Operand).collect();
        let run = dispatch(0, &places, &numbers, line_of_groups(groups));
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}
