//! Quantise, dequantise and requantise: an invocation writes whole words of the output.

use super::NUMBERS;
use crate::backends::webgpu::wgsl::{Checks, GROUP, Numbers, Wgsl, dispatch, fits, line_of_groups};
use crate::backends::webgpu::{Place, Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::quantize::attributes::Walk;
use crate::ops::quantize::{QuantType, QuantizeAttributes};
use crate::ops::{
    Knob, Operation, OperationKind, ParameterSpace, Parameters, Refusals, TensorDesc, Variant, Workload,
};
use crate::tensor::DType;

/// `webgpu::quantize::words`
pub(super) struct Words;

fn attributes(workload: &Workload) -> QuantizeAttributes {
    match workload.operation() {
        Operation::Quantize(attributes) => *attributes,
        other => unreachable!("the registry gives conversions only, not {other}"),
    }
}

/// Bits of a number of an operand.
fn bits(kind: Option<QuantType>, operand: &TensorDesc) -> usize {
    kind.map_or(8 * operand.dtype.size(), QuantType::bits)
}

/// The function `value_at` of one number of the input, as f32 or i32.
fn get(kind: Option<QuantType>, x: &TensorDesc) -> String {
    let bits = bits(kind, x);
    let per = 32 / bits;
    let part = |word: &str| format!("extractBits({word}, at % {per}u * {bits}u, {bits}u)");
    let (result, value) = match (kind, x.dtype) {
        (None, DType::F16) => ("f32", format!("from_half({})", part("x[at / 2u]"))),
        (None, DType::BF16) => ("f32", format!("bitcast<f32>({} << 16u)", part("x[at / 2u]"))),
        (None, _) => ("f32", "bitcast<f32>(x[at])".into()),
        (Some(QuantType::I32), _) => ("i32", "i32(x[at])".into()),
        (Some(QuantType::U8 | QuantType::U4), _) => {
            ("i32", format!("i32({})", part(&format!("x[at / {per}u]"))))
        }
        (Some(_), _) => ("i32", part(&format!("i32(x[at / {per}u])"))),
    };
    format!("fn value_at(at: u32) -> {result} {{ return {value}; }}\n")
}

/// The function `convert` from the place of a number to the bits of its result.
fn convert(workload: &Workload, attributes: &QuantizeAttributes, walk: &Walk) -> String {
    let index = match (walk.block, walk.channels) {
        (0, 1) => "0u",
        (0, _) => "at / s.inner % s.channels",
        _ => "at / s.inner * s.blocks + at % s.inner / s.block",
    };
    // Scales and zero points in the order of the operands, each one for all or one for every index.
    let mut operand = 0;
    let mut next = || {
        operand += 1;
        let one = workload.inputs()[operand].len() == 1;
        format!("x{operand}[{}]", if one { "0u" } else { "index" })
    };
    let mut side = |there: bool, zero: bool| there.then(|| (next(), if zero { next() } else { "0".into() }));
    let from = side(attributes.from.is_some(), attributes.zero_points[0]);
    let to = side(attributes.to.is_some(), attributes.zero_points[1]);
    let real = from
        .map_or("value_at(at)".into(), |(scale, zero)| format!("real_of(value_at(at) - {zero}) * {scale}"));
    let dtype = workload.outputs()[0].dtype;
    let result = match (attributes.to, to) {
        (Some(kind), Some((scale, zero))) => {
            let ((low, high), mask) = (kind.range(), (1u64 << kind.bits()) - 1);
            format!("u32(nearest(divide(real, {scale}), {zero}, {low}, {high})) & {mask}u")
        }
        _ if dtype == DType::F16 => "to_half(real)".into(),
        _ if dtype == DType::BF16 => "to_short(real)".into(),
        _ => "bitcast<u32>(real)".into(),
    };
    format!("fn convert(at: u32) -> u32 {{\nlet index = {index};\nlet real = {real};\nreturn {result};\n}}\n")
}

impl WebGpuKernel for Words {
    fn name(&self) -> &'static str {
        "webgpu::quantize::words"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Quantize
    }

    fn variant(&self) -> Variant {
        Variant::Fused
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_linear.rs", "webgpu_numbers.wgsl")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        Checks::layouts(workload, limits)
            .bindings(workload.operands().len())
            .needs(workload.operands().iter().all(TensorDesc::is_contiguous), "operands without gaps")
            .needs(fits(limits, [64, 1, 1], 0), "workgroups of 64")
            .done()
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
            .axis(Knob::WorkgroupX, &[64, 256])
            .axis(Knob::Unroll, &[1, 4])
            .constrained(|p| fits(limits, [p.get(Knob::WorkgroupX).unwrap_or(64), 1, 1], 0))
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        let attributes = attributes(workload);
        let elements = Walk::of(workload, &attributes).elements() as f64;
        // What the functions of a shader do: 33 steps of an exact division and a rounding, 4 of a scaling.
        let each = if attributes.to.is_some() { 33.0 } else { 0.0 }
            + if attributes.from.is_some() { 4.0 } else { 0.0 };
        WebGpuCost { operations: elements * each, bytes: workload.bytes() as f64 }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let (attributes, y) = (attributes(workload), &workload.outputs()[0]);
        let walk = Walk::of(workload, &attributes);
        if walk.elements() == 0 {
            return Plan::default();
        }
        let x = parameters.get(Knob::WorkgroupX).unwrap_or(64);
        let unroll = parameters.get(Knob::Unroll).unwrap_or(1);
        let width = bits(attributes.to, y);
        let per = 32 / width;
        let words = walk.elements().div_ceil(per);
        let numbers = Numbers::default()
            .with("words", words)
            .with("inner", walk.inner)
            .with("channels", walk.channels)
            .with("block", walk.block)
            .with(
                "blocks",
                walk.inner.checked_div(walk.block).map_or(0, |_| walk.inner.div_ceil(walk.block)),
            );
        let mut wgsl = Wgsl::new(self.name(), [x, 1, 1]).numbers(&numbers).read("x", "u32");
        for (i, operand) in workload.inputs().iter().enumerate().skip(1) {
            wgsl = wgsl.read(&format!("x{i}"), if operand.dtype == DType::F32 { "f32" } else { "i32" });
        }
        let shader = wgsl
            .write("y", "u32")
            .with(NUMBERS)
            .with(get(attributes.from, &workload.inputs()[0]))
            .with(convert(workload, &attributes, &walk))
            .main(format!(
                "{GROUP}for (var u = 0u; u < {unroll}u; u++) {{\nlet at = (line * {unroll}u + u) * {x}u + lane;\n\
                 if (at < s.words) {{\nvar word = 0u;\n\
                 for (var i = 0u; i < {per}u; i++) {{ word |= convert(at * {per}u + i) << (i * {width}u); }}\n\
                 y[at] = word;\n}}\n}}"
            ));
        let places: Vec<_> = (0..workload.operands().len()).map(Place::Operand).collect();
        let run = dispatch(0, &places, &numbers, line_of_groups(words.div_ceil((x * unroll) as usize)));
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}
