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

pub(super) fn attributes(workload: &Workload) -> QuantizeAttributes {
    match workload.operation() {
        Operation::Quantize(attributes) => *attributes,
        other => unreachable!("the registry gives conversions only, not {other}"),
    }
}

/// Bits of a number of an operand.
pub(super) fn bits(kind: Option<QuantType>, operand: &TensorDesc) -> usize {
    kind.map_or(8 * operand.dtype.size(), QuantType::bits)
}

/// One number of the input, as f32 or i32, from the word it lies in and the place of its first bit there.
pub(super) fn value(kind: Option<QuantType>, x: &TensorDesc, word: &str, from: &str) -> String {
    let bits = bits(kind, x);
    match (kind, x.dtype) {
        (None, DType::F16) => format!("from_half(extractBits({word}, {from}, 16u))"),
        (None, DType::BF16) => format!("bitcast<f32>(extractBits({word}, {from}, 16u) << 16u)"),
        (None, _) => format!("bitcast<f32>({word})"),
        (Some(QuantType::I32), _) => format!("i32({word})"),
        (Some(QuantType::U8 | QuantType::U4), _) => format!("i32(extractBits({word}, {from}, {bits}u))"),
        (Some(_), _) => format!("extractBits(i32({word}), {from}, {bits}u)"),
    }
}

/// Scale and zero point of one side, as WGSL.
pub(super) type Scaled = Option<(String, String)>;

/// Scales and zero points of both sides in the order of the operands, each one for all or one for every `index`.
pub(super) fn scales(workload: &Workload, attributes: &QuantizeAttributes) -> [Scaled; 2] {
    let mut operand = 0;
    let mut next = || {
        operand += 1;
        let one = workload.inputs()[operand].len() == 1;
        format!("x{operand}[{}]", if one { "0u" } else { "index" })
    };
    let mut side = |there: bool, zero: bool| there.then(|| (next(), if zero { next() } else { "0".into() }));
    [
        side(attributes.from.is_some(), attributes.zero_points[0]),
        side(attributes.to.is_some(), attributes.zero_points[1]),
    ]
}

/// The scale of the element at `at`.
pub(super) fn index(walk: &Walk) -> &'static str {
    match (walk.block, walk.channels) {
        (0, 1) => "0u",
        (0, _) => "at / s.inner % s.channels",
        _ => "at / s.inner * s.blocks + at % s.inner / s.block",
    }
}

/// The bits of the result of a number.
pub(super) fn result(
    workload: &Workload,
    attributes: &QuantizeAttributes,
    [from, to]: &[Scaled; 2],
    value: &str,
) -> String {
    let real = match from {
        Some((scale, zero)) => format!("real_of({value} - {zero}) * {scale}"),
        None => value.into(),
    };
    let dtype = workload.outputs()[0].dtype;
    match (attributes.to, to) {
        (Some(kind), Some((scale, zero))) => {
            let ((low, high), mask) = (kind.range(), (1u64 << kind.bits()) - 1);
            format!("u32(nearest(divide({real}, {scale}), {zero}, {low}, {high})) & {mask}u")
        }
        _ if dtype == DType::F16 => format!("to_half({real})"),
        _ if dtype == DType::BF16 => format!("to_short({real})"),
        _ => format!("bitcast<u32>({real})"),
    }
}

/// What shaders are told of how elements find their scales.
pub(super) fn numbers(walk: &Walk) -> Numbers {
    let blocks = walk.inner.checked_div(walk.block).map_or(0, |_| walk.inner.div_ceil(walk.block));
    Numbers::default()
        .with("inner", walk.inner)
        .with("channels", walk.channels)
        .with("block", walk.block)
        .with("blocks", blocks)
}

/// A shader that binds scales and zero points after the input.
pub(super) fn with_scales(wgsl: Wgsl, workload: &Workload) -> Wgsl {
    workload.inputs().iter().enumerate().skip(1).fold(wgsl, |wgsl, (i, operand)| {
        wgsl.read(&format!("x{i}"), if operand.dtype == DType::F32 { "f32" } else { "i32" })
    })
}

/// What all conversions need of a workload.
pub(super) fn checks<'a>(workload: &'a Workload, limits: &'a WebGpuLimits) -> Checks<'a> {
    Checks::layouts(workload, limits)
        .bindings(workload.operands().len())
        .needs(workload.operands().iter().all(TensorDesc::is_contiguous), "operands without gaps")
        .needs(fits(limits, [64, 1, 1], 0), "workgroups of 64")
}

/// What the functions of a shader do: 33 steps of an exact division and a rounding, 4 of a scaling.
pub(super) fn cost(workload: &Workload) -> WebGpuCost {
    let attributes = attributes(workload);
    let elements = Walk::of(workload, &attributes).elements() as f64;
    let each =
        if attributes.to.is_some() { 33.0 } else { 0.0 } + if attributes.from.is_some() { 4.0 } else { 0.0 };
    WebGpuCost { operations: elements * each, bytes: workload.bytes() as f64 }
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
        checks(workload, limits).done()
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
            .axis(Knob::WorkgroupX, &[64, 256])
            .axis(Knob::Unroll, &[1, 4])
            .constrained(|p| fits(limits, [p.get(Knob::WorkgroupX).unwrap_or(64), 1, 1], 0))
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        cost(workload)
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
        let numbers = numbers(&walk).with("words", words);
        let own = bits(attributes.from, &workload.inputs()[0]);
        let (word, from) = (format!("x[at / {}u]", 32 / own), format!("at % {}u * {own}u", 32 / own));
        let value = value(attributes.from, &workload.inputs()[0], &word, &from);
        let result = result(workload, &attributes, &scales(workload, &attributes), &value);
        let wgsl = Wgsl::new(self.name(), [x, 1, 1]).numbers(&numbers).read("x", "u32");
        let shader = with_scales(wgsl, workload)
            .write("y", "u32")
            .with(NUMBERS)
            .with(format!(
                "fn convert(at: u32) -> u32 {{\nlet index = {};\nreturn {result};\n}}\n",
                index(&walk)
            ))
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
