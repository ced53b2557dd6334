//! One result from each invocation, from each workgroup (through its memory or its subgroups), or in two stages.

use super::fold::{Fold, accepts, fold};
use super::{Geometry, is_scan};
use crate::backends::webgpu::wgsl::{
    Checks, GROUP, MOST_TURNS, Numbers, Wgsl, dispatch, element, fits, line_of_groups, span, stride,
};
use crate::backends::webgpu::{Place, Plan, Shader, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::reduce::ReduceKind;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};
use crate::tensor::DType;

/// Who makes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Invocation,
    Workgroup,
    Subgroups,
    TwoStages,
}

/// One of the kernels.
pub(super) struct Reduce {
    name: &'static str,
    who: Who,
}

pub(super) static EACH: Reduce = Reduce { name: "webgpu::reduce::each", who: Who::Invocation };
pub(super) static WORKGROUP: Reduce = Reduce { name: "webgpu::reduce::workgroup", who: Who::Workgroup };
pub(super) static SUBGROUP: Reduce = Reduce { name: "webgpu::reduce::subgroup", who: Who::Subgroups };
pub(super) static TWO_STAGE: Reduce = Reduce { name: "webgpu::reduce::two_stage", who: Who::TwoStages };

/// Fewer elements than this are not worth a second dispatch.
const LONG: usize = 1024;

/// Pieces of a result at most: what the second stage's single workgroup adds up in no time.
const MOST_PIECES: usize = 16_384;

/// The schedule of pieces that are runs of neighbours: caches that fetch ahead like it; every so manieth element, which neighbouring
/// invocations load together, is what GPUs like.
const RUNS: u32 = 1;

/// Joins what the workgroup's invocations have, into the first one.
const TREE: &str = "
part[lane] = acc;
workgroupBarrier();
for (var half = WX / 2u; half > 0u; half /= 2u) {
    if (lane < half) { part[lane] = join(part[lane], part[lane + half]); }
    workgroupBarrier();
}
if (lane == 0u) { y[result_out(result)] = finish(part[0]); }
";

/// The numbers of a point and a workload that shaders depend on.
struct Shape<'a> {
    workload: &'a Workload,
    geometry: Geometry,
    fold: Fold,
    x: u32,
    vector: u32,
    pieces: usize,
    /// Whether a piece is a run of neighbours, not every so manieth.
    runs: bool,
    lanes: u32,
}

impl<'a> Shape<'a> {
    fn new(workload: &'a Workload, parameters: &Parameters, limits: &WebGpuLimits) -> Self {
        let geometry = Geometry::of(workload);
        let fold = fold(geometry.attributes.kind, workload.inputs()[0].dtype, geometry.depth());
        Self {
            workload,
            fold,
            x: parameters.get(Knob::WorkgroupX).unwrap_or(64),
            vector: parameters.get(Knob::Vector).unwrap_or(1),
            pieces: parameters.get(Knob::Split).unwrap_or(1) as usize,
            runs: parameters.get(Knob::Schedule) == Some(RUNS),
            lanes: lanes(limits).unwrap_or(1),
            geometry,
        }
    }

    fn numbers(&self) -> Numbers {
        self.geometry.numbers().with("pieces", self.pieces)
    }

    /// Bytes of one state.
    fn state(&self) -> u32 {
        4 * self.fold.fields.len() as u32
    }

    fn shader(&self, label: String) -> Wgsl {
        let text = format!("const WX = {}u;\n{}{}", self.x, self.geometry.places(), self.fold.text);
        Wgsl::new(label, [self.x, 1, 1]).numbers(&self.numbers()).with(text)
    }

    /// Reads the input.
    fn input(&self, wgsl: Wgsl) -> Wgsl {
        let name = element(self.workload.inputs()[0].dtype);
        if self.vector == 4 { wgsl.read("x", &format!("vec4<{name}>")) } else { wgsl.read("x", name) }
    }

    /// Adds every `step`-th element of `result` from `first` to `until` to `acc`; with vectors these are numbers of vectors.
    fn walk(&self) -> String {
        let t = if self.workload.inputs()[0].dtype == DType::F16 { "f32" } else { "" };
        if self.vector == 1 {
            return format!(
                "let base = result_in(result);\nvar acc = start();\n\
                 for (var i = first; i < until; i += step) {{ acc = add(acc, {t}(x[base + element_in(i)]), i); }}\n"
            );
        }
        let adds = ["x", "y", "z", "w"]
            .iter()
            .enumerate()
            .map(|(i, part)| format!("acc = add(acc, {t}(v.{part}), 4u * i + {i}u);\n"))
            .collect::<Vec<_>>()
            .concat();
        format!(
            "let base = result_in(result) / 4u;\nvar acc = start();\n\
             for (var i = first; i < until; i += step) {{\nlet v = x[base + i];\n{adds}}}\n"
        )
    }

    /// What a walk over all elements of a result counts to.
    fn turns(&self) -> String {
        format!("s.depth / {}u", self.vector)
    }

    /// Where the share of piece `index` starts, its step and its end.
    fn share(&self) -> String {
        let turns = self.turns();
        if self.runs {
            format!(
                "let run = ({turns} + s.pieces - 1u) / s.pieces;\nlet first = index % s.pieces * run;\n\
                 let step = 1u; let until = min(first + run, {turns});\n"
            )
        } else {
            format!("let first = index % s.pieces; let step = s.pieces; let until = {turns};\n")
        }
    }

    /// One result from each invocation; truth values four at a time, because they share a word.
    fn each(&self, label: &str) -> Shader {
        let one = format!("let first = 0u; let step = 1u; let until = {};\n{}", self.turns(), self.walk());
        self.input(self.shader(label.into())).write("y", self.fold.output).main(self.by_invocation(&one))
    }

    /// The body for one result by invocation, whose state `one` works out.
    fn by_invocation(&self, one: &str) -> String {
        let number = format!("{GROUP}let index = line * WX + lane;\n");
        if self.workload.outputs()[0].dtype != DType::Bool {
            return format!(
                "{number}if (index >= s.results) {{ return; }}\nlet result = index;\n{one}y[result_out(result)] = finish(acc);"
            );
        }
        format!(
            "{number}if (index * 4u >= s.results) {{ return; }}\nvar word = 0u;\n\
             for (var byte = 0u; byte < 4u; byte++) {{\nlet result = index * 4u + byte;\n\
             if (result < s.results) {{\n{one}word |= finish(acc) << (8u * byte);\n}}\n}}\ny[index] = word;"
        )
    }

    /// One result from each workgroup, through its memory.
    fn workgroup(&self, label: &str) -> Shader {
        let body = format!(
            "{GROUP}if (line >= s.results) {{ return; }}\nlet result = line; let first = lane; let step = WX; let until = {};\n{}{TREE}",
            self.turns(),
            self.walk()
        );
        let wgsl = self.input(self.shader(label.into())).write("y", self.fold.output);
        wgsl.shared("part", "Acc", self.state(), self.x).main(body)
    }

    /// One result from each workgroup, first within its subgroups.
    fn subgroups(&self, label: &str) -> Shader {
        let lanes = self.lanes;
        let hand = |mask: u32| {
            let fields: Vec<_> = self
                .fold
                .fields
                .iter()
                .map(|(f, _)| format!("subgroupShuffleXor(acc.{f}, {mask}u)"))
                .collect();
            format!("acc = join(acc, Acc({}));\n", fields.join(", "))
        };
        let within: String =
            std::iter::successors(Some(1), |m| Some(m * 2)).take_while(|&m| m < lanes).map(hand).collect();
        let many = self.x / lanes;
        let body = format!(
            "{GROUP}if (line >= s.results) {{ return; }}\nlet result = line; let first = lane; let step = WX; let until = {};\n{}{within}\
             if (lane_in_subgroup == 0u) {{ part[lane / {lanes}u] = acc; }}\nworkgroupBarrier();\n\
             if (lane == 0u) {{\nvar whole = part[0];\nfor (var i = 1u; i < {many}u; i++) {{ whole = join(whole, part[i]); }}\n\
             y[result_out(result)] = finish(whole);\n}}",
            self.turns(),
            self.walk()
        );
        let wgsl = self.input(self.shader(label.into())).write("y", self.fold.output);
        wgsl.subgroups().shared("part", "Acc", self.state(), many).main(body)
    }

    /// The states of pieces, and the results from them.
    fn stages(&self, label: &str) -> [Shader; 2] {
        let body = format!(
            "{GROUP}let index = line * WX + lane;\nif (index >= s.results * s.pieces) {{ return; }}\n\
             let result = index / s.pieces;\n{}{}parts[index] = acc;",
            self.share(),
            self.walk()
        );
        let first = self.input(self.shader(format!("{label}: pieces"))).write("parts", "Acc").main(body);
        let from_parts = |first: &str, step: &str| {
            format!(
                "var acc = start();\nfor (var i = {first}; i < s.pieces; i += {step}) {{ acc = join(acc, parts[result * s.pieces + i]); }}\n"
            )
        };
        let second =
            self.shader(format!("{label}: results")).read("parts", "Acc").write("y", self.fold.output);
        let second = if self.workload.outputs()[0].dtype == DType::Bool {
            second.main(self.by_invocation(&from_parts("0u", "1u")))
        } else {
            let body = format!(
                "{GROUP}if (line >= s.results) {{ return; }}\nlet result = line;\n{}{TREE}",
                from_parts("lane", "WX")
            );
            second.shared("part", "Acc", self.state(), self.x).main(body)
        };
        [first, second]
    }
}

fn lanes(limits: &WebGpuLimits) -> Option<u32> {
    limits.subgroup.filter(|(least, most)| least == most).map(|(_, most)| most)
}

/// Whether a result's elements are one run of whole fours.
fn by_four(workload: &Workload, geometry: &Geometry) -> bool {
    let x = &workload.inputs()[0];
    let whole = |n: usize| n.is_multiple_of(4);
    matches!(geometry.reduced.as_slice(), [run] if run.input == 1 && whole(run.size))
        && geometry.kept.iter().all(|axis| whole(axis.input))
        && whole(span(x))
        && (0..x.shape.len()).all(|axis| x.shape[axis] == 1 || stride(x, axis) > 0)
}

impl WebGpuKernel for Reduce {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Reduce
    }

    fn variant(&self) -> Variant {
        match self.who {
            Who::Invocation => Variant::Naive,
            Who::Workgroup => Variant::Tiled,
            Who::Subgroups => Variant::HardwareSpecific,
            Who::TwoStages => Variant::Parallel,
        }
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_kernels.rs", "webgpu_fold.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let geometry = Geometry::of(workload);
        let (input, kind) = (workload.inputs()[0].dtype, geometry.attributes.kind);
        let scan = is_scan(&geometry);
        let half = input == DType::F16;
        let truth = matches!(kind, ReduceKind::Any | ReduceKind::All);
        let in_order = !truth || workload.outputs()[0].is_contiguous();
        let checks = Checks::layouts(workload, limits)
            .needs(!scan, "one result, not one for each place")
            .needs(
                accepts(kind, input),
                "a reduction of f32 or f16, or of 32-bit integers to a sum, an extreme or a truth value",
            )
            .needs(!half || limits.f16, "a device with 16-bit floats")
            .needs(in_order, "truth values without gaps");
        let turns = geometry.depth() / 64 + 64;
        let checks = match self.who {
            Who::Invocation => checks.turns(geometry.depth() * if truth { 4 } else { 1 } + 4),
            Who::Workgroup => checks.needs(!truth, "a result of whole words").turns(turns),
            Who::Subgroups => checks
                .with_subgroups()
                .needs(lanes(limits).is_some_and(|n| n <= 64), "subgroups of one size, at most 64")
                .needs(!truth, "a result of whole words")
                .turns(turns),
            Who::TwoStages => checks
                .needs(geometry.depth() >= LONG, "at least 1024 elements for each result")
                .turns(
                    geometry.depth() / MOST_PIECES + if truth { 4 * MOST_PIECES } else { MOST_PIECES / 64 },
                )
                .needs(
                    geometry.results() * MOST_PIECES * 12 <= limits.storage_binding as usize,
                    "pieces that fit one buffer",
                ),
        };
        checks
            .needs(fits(limits, [64, 1, 1], 64 * 12), "workgroups of 64 and 768 bytes of their memory")
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let geometry = Geometry::of(workload);
        let vector: &[u32] = if by_four(workload, &geometry) { &[4, 1] } else { &[1] };
        let space = ParameterSpace::single().axis(Knob::Vector, vector);
        let space = match self.who {
            Who::TwoStages => {
                let space = space.axis(Knob::WorkgroupX, &[64]);
                let space = space.axis(Knob::Split, &[4096, 1024, MOST_PIECES as u32]);
                // Software drivers, whose subgroups are the CPU's vectors, read through its caches.
                let cached = lanes(limits).is_some_and(|n| n <= 8);
                space.axis(Knob::Schedule, if cached { &[RUNS, 0] } else { &[0, RUNS] })
            }
            _ => space.axis(Knob::WorkgroupX, &[64, 256]),
        };
        space.constrained(|p| {
            let x = p.get(Knob::WorkgroupX).unwrap_or(64);
            let share = p.get(Knob::Split).map_or(0, |pieces| geometry.depth() / pieces as usize);
            fits(limits, [x, 1, 1], 12 * x) && share <= MOST_TURNS
        })
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let pieces = parameters.get(Knob::Split).unwrap_or(0) as usize * workload.outputs()[0].len();
        let elements = workload.inputs()[0].len() + pieces;
        WebGpuCost { operations: elements as f64, bytes: (workload.bytes() + 24 * pieces) as f64 }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, limits: &WebGpuLimits) -> Plan {
        let shape = Shape::new(workload, parameters, limits);
        let results = shape.geometry.results();
        if results == 0 {
            return Plan::default();
        }
        let (x, numbers) = (shape.x as usize, shape.numbers());
        let truth = workload.outputs()[0].dtype == DType::Bool;
        let by_invocation = results.div_ceil(x * if truth { 4 } else { 1 });
        let both = [Place::Operand(0), Place::Operand(1)];
        let single = |shader: Shader, groups: usize| Plan {
            shaders: vec![shader],
            scratch: vec![],
            dispatches: vec![dispatch(0, &both, &numbers, line_of_groups(groups))],
        };
        match self.who {
            Who::Invocation => single(shape.each(self.name), by_invocation),
            Who::Workgroup => single(shape.workgroup(self.name), results),
            Who::Subgroups => single(shape.subgroups(self.name), results),
            Who::TwoStages => {
                let pieces = results * shape.pieces;
                let (parts, last) = (Place::Scratch(0), if truth { by_invocation } else { results });
                let first =
                    dispatch(0, &[Place::Operand(0), parts], &numbers, line_of_groups(pieces.div_ceil(x)));
                let second = dispatch(1, &[parts, Place::Operand(1)], &numbers, line_of_groups(last));
                Plan {
                    shaders: shape.stages(self.name).to_vec(),
                    scratch: vec![u64::from(shape.state()) * pieces as u64],
                    dispatches: vec![first, second],
                }
            }
        }
    }
}
