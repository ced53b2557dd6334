//! Quantise, dequantise and requantise runs of neighbours that share a scale: it is loaded once for all of them, and they in as few loads as there are.

use std::fmt::Write;

use super::NUMBERS;
use super::linear::{attributes, bits, checks, cost, index, numbers, result, scales, value, with_scales};
use crate::backends::webgpu::wgsl::{GROUP, Wgsl, dispatch, fits, line_of_groups};
use crate::backends::webgpu::{Place, Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::quantize::QuantizeAttributes;
use crate::ops::quantize::attributes::Walk;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// `webgpu::quantize::runs`
pub(super) struct Runs;

/// Numbers that fill whole words on both sides.
fn least(workload: &Workload, attributes: &QuantizeAttributes) -> usize {
    let [from, to] = widths(workload, attributes);
    32 / from.min(to)
}

/// Bits of a number of the input and of the output.
fn widths(workload: &Workload, attributes: &QuantizeAttributes) -> [usize; 2] {
    [bits(attributes.from, &workload.inputs()[0]), bits(attributes.to, &workload.outputs()[0])]
}

/// Whether every run of so many neighbours shares a scale.
fn shares(walk: &Walk, run: usize) -> bool {
    let whole = |n: usize| n.is_multiple_of(run);
    match (walk.block, walk.channels) {
        (0, 1) => whole(walk.elements()),
        (0, _) => whole(walk.inner),
        (block, _) => whole(block) && whole(walk.inner),
    }
}

/// Numbers that are written out in a shader at most: drivers take long over more of them.
const MOST: usize = 16;

/// The lengths of runs worth trying: vectors of words on both sides, then words.
fn lengths(workload: &Workload) -> Vec<u32> {
    let attributes = attributes(workload);
    let (walk, least) = (Walk::of(workload, &attributes), least(workload, &attributes));
    let lengths = [MOST.min(4 * least), least];
    lengths.into_iter().filter(|&run| shares(&walk, run)).map(|run| run as u32).collect()
}

/// Words that so many fill, as an array's elements of at most four: how many elements, how many words each.
fn packs(words: usize) -> (usize, usize) {
    let each = if words.is_multiple_of(4) {
        4
    } else if words.is_multiple_of(2) {
        2
    } else {
        1
    };
    (words / each, each)
}

/// The type of an array's elements of so many words.
fn pack(each: usize) -> String {
    if each == 1 { "u32".into() } else { format!("vec{each}<u32>") }
}

/// One word of a pack.
fn part(name: &str, word: usize, each: usize) -> String {
    let place = if each == 1 { String::new() } else { format!("[{}]", word % each) };
    format!("{name}{}{place}", word / each)
}

impl Runs {
    /// Converts the run that begins at element `at`.
    fn body(workload: &Workload, attributes: &QuantizeAttributes, walk: &Walk, run: usize, x: u32) -> String {
        let [from, to] = widths(workload, attributes);
        let (loads, each) = packs(run * from / 32);
        let (stores, words) = packs(run * to / 32);
        let mut text = format!(
            "{GROUP}let number = line * {x}u + lane;\nif (number >= s.runs) {{ return; }}\n\
             let at = number * {run}u;\nlet index = {};\n",
            index(walk)
        );
        let mut named = scales(workload, attributes);
        for (side, name) in named.iter_mut().zip(["from", "to"]) {
            if let Some((scale, zero)) = side {
                let _ = writeln!(text, "let {name}_scale = {scale}; let {name}_zero = {zero};");
                (*scale, *zero) = (format!("{name}_scale"), format!("{name}_zero"));
            }
        }
        for load in 0..loads {
            let _ = writeln!(text, "let in{load} = x[number * {loads}u + {load}u];");
        }
        for store in 0..stores {
            let _ = writeln!(text, "var out{store} = {}(0u);", pack(words));
        }
        for i in 0..run {
            let (word, first) = (part("in", i * from / 32, each), format!("{}u", i * from % 32));
            let value = value(attributes.from, &workload.inputs()[0], &word, &first);
            let result = result(workload, attributes, &named, &value);
            let _ = writeln!(text, "{} |= ({result}) << {}u;", part("out", i * to / 32, words), i * to % 32);
        }
        for store in 0..stores {
            let _ = writeln!(text, "y[number * {stores}u + {store}u] = out{store};");
        }
        text
    }
}

impl WebGpuKernel for Runs {
    fn name(&self) -> &'static str {
        "webgpu::quantize::runs"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Quantize
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_runs.rs", "webgpu_linear.rs", "webgpu_numbers.wgsl")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        checks(workload, limits)
            .needs(!lengths(workload).is_empty(), "as many neighbours with one scale as fill a word")
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
            .axis(Knob::Vector, &lengths(workload))
            .axis(Knob::WorkgroupX, &[64, 256])
            .constrained(|p| fits(limits, [p.get(Knob::WorkgroupX).unwrap_or(64), 1, 1], 0))
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        cost(workload)
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let attributes = attributes(workload);
        let walk = Walk::of(workload, &attributes);
        if walk.elements() == 0 {
            return Plan::default();
        }
        let x = parameters.get(Knob::WorkgroupX).unwrap_or(64);
        let run = parameters.get(Knob::Vector).map_or_else(|| least(workload, &attributes), |n| n as usize);
        let runs = walk.elements() / run;
        let numbers = numbers(&walk).with("runs", runs);
        let [from, to] = widths(workload, &attributes);
        let (_, each) = packs(run * from / 32);
        let (_, words) = packs(run * to / 32);
        let wgsl = Wgsl::new(self.name(), [x, 1, 1]).numbers(&numbers).read("x", &pack(each));
        let shader = with_scales(wgsl, workload).write("y", &pack(words)).with(NUMBERS).main(Self::body(
            workload,
            &attributes,
            &walk,
            run,
            x,
        ));
        let places: Vec<_> = (0..workload.operands().len()).map(Place::Operand).collect();
        let run = dispatch(0, &places, &numbers, line_of_groups(runs.div_ceil(x as usize)));
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}
