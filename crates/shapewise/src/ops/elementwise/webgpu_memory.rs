//! How element-wise shaders read and write their operands: one element or four at a time, bytes out of words.

use std::fmt::Write;

use super::is_byte;
use crate::backends::webgpu::wgsl::{Numbers, element, stride};
use crate::ops::Workload;
use crate::tensor::DType;

/// How many elements are read and written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    One,
    Four,
}

/// One operand as the shader sees it.
pub(super) struct Operand {
    pub index: usize,
    pub dtype: DType,
    /// The buffer's name.
    pub buffer: String,
    /// Whether one element serves a whole row.
    pub repeated: bool,
}

impl Operand {
    /// What the buffer is an array of.
    pub fn stored(&self, width: Width) -> String {
        match width {
            _ if is_byte(self.dtype) => "u32".into(),
            Width::Four if !self.repeated => format!("vec4<{}>", element(self.dtype)),
            _ => element(self.dtype).into(),
        }
    }

    /// The element at `at` as the type it is computed in.
    fn load(&self, at: &str) -> String {
        let buffer = &self.buffer;
        match self.dtype {
            DType::F16 => format!("f32({buffer}[{at}])"),
            dtype if is_byte(dtype) => {
                unpack(dtype, &format!("{buffer}[{at} >> 2u]"), &format!("({at} & 3u)"))
            }
            _ => format!("{buffer}[{at}]"),
        }
    }

    /// Number `part` of the four that `four` holds.
    fn part(&self, four: &str, part: usize) -> String {
        match self.dtype {
            _ if self.repeated => four.into(),
            DType::F16 => format!("f32({four}[{part}])"),
            dtype if is_byte(dtype) => unpack(dtype, four, &format!("{part}u")),
            _ => format!("{four}[{part}]"),
        }
    }
}

/// A byte of a word as the type it is computed in.
fn unpack(dtype: DType, word: &str, byte: &str) -> String {
    match dtype {
        DType::I8 => format!("extractBits(i32({word}), {byte} * 8u, 8u)"),
        DType::U8 => format!("extractBits({word}, {byte} * 8u, 8u)"),
        _ => format!("(extractBits({word}, {byte} * 8u, 8u) != 0u)"),
    }
}

/// A result as a byte of a word.
fn pack(dtype: DType, value: &str, byte: usize) -> String {
    let byte_of = match dtype {
        DType::I8 => format!("(u32({value}) & 255u)"),
        DType::U8 => format!("({value} & 255u)"),
        _ => format!("select(0u, 1u, {value})"),
    };
    format!("({byte_of} << {}u)", 8 * byte)
}

/// Inputs, then the output.
pub(super) fn operands(workload: &Workload) -> Vec<Operand> {
    let inputs = workload.inputs().len();
    let last = workload.outputs()[0].shape.len() - 1;
    workload
        .operands()
        .iter()
        .enumerate()
        .map(|(index, desc)| {
            let buffer = if index == inputs { "y".into() } else { format!("x{index}") };
            let repeated = stride(desc, last) == 0 && index != inputs;
            Operand { index, dtype: desc.dtype, buffer, repeated }
        })
        .collect()
}

/// Sizes and strides; along the last axis in fours, if that is how elements are read.
pub(super) fn numbers(workload: &Workload, operands: &[Operand], width: Width) -> Numbers {
    let y = &workload.outputs()[0];
    let last = y.shape.len() - 1;
    let fours = if width == Width::Four { 4 } else { 1 };
    let mut numbers = Numbers::default();
    for axis in 0..=last {
        numbers = numbers.with(format!("n{axis}"), y.shape[axis] / if axis == last { fours } else { 1 });
        for (operand, desc) in operands.iter().zip(workload.operands()) {
            let by = if axis == last || operand.repeated { 1 } else { fours };
            numbers = numbers.with(format!("s{}_{axis}", operand.index), stride(desc, axis) / by);
        }
    }
    numbers
}

/// The function `turn` of everything that one turn of an invocation does.
pub(super) fn functions(workload: &Workload, operands: &[Operand], width: Width) -> String {
    let body = match width {
        Width::Four => four(workload, operands),
        Width::One if is_byte(workload.outputs()[0].dtype) => one_word(workload, operands),
        Width::One => format!("{}{}", places("i", workload, operands), one(operands)),
    };
    format!("fn turn(i: u32) {{\n{body}}}\n")
}

/// Where element number `index` lies in each operand: `at0`, `at1` …
fn places(index: &str, workload: &Workload, operands: &[Operand]) -> String {
    let axes = workload.outputs()[0].shape.len();
    let mut text = String::new();
    for operand in operands {
        let _ = writeln!(text, "var at{} = 0u;", operand.index);
    }
    let _ = writeln!(text, "var rest = {index};");
    for axis in (0..axes).rev() {
        let index = if axis == 0 { "rest".into() } else { format!("rest % s.n{axis}") };
        let _ = writeln!(text, "let i{axis} = {index};");
        if axis > 0 {
            let _ = writeln!(text, "rest /= s.n{axis};");
        }
        for operand in operands {
            let _ = writeln!(text, "at{0} += i{axis} * s.s{0}_{axis};", operand.index);
        }
    }
    text
}

/// `compute` of these arguments.
fn call(arguments: impl Iterator<Item = String>) -> String {
    format!("compute({})", arguments.collect::<Vec<_>>().join(", "))
}

fn one(operands: &[Operand]) -> String {
    let (inputs, output) = operands.split_at(operands.len() - 1);
    let value = call(inputs.iter().map(|o| o.load(&format!("at{}", o.index))));
    let y = &output[0];
    format!("y[at{}] = {}({value});\n", y.index, element(y.dtype))
}

/// Four results that share a word; those beyond the last element are not computed.
fn one_word(workload: &Workload, operands: &[Operand]) -> String {
    let (inputs, output) = operands.split_at(operands.len() - 1);
    let value = call(inputs.iter().map(|o| o.load(&format!("at{}", o.index))));
    let mut text = String::from("var word = 0u;\n");
    for byte in 0..4 {
        let _ = writeln!(
            text,
            "if (i * 4u + {byte}u < s.elements) {{\n{}let value = {value};\nword |= {};\n}}",
            places(&format!("i * 4u + {byte}u"), workload, operands),
            pack(output[0].dtype, "value", byte)
        );
    }
    text.push_str("y[i] = word;\n");
    text
}

fn four(workload: &Workload, operands: &[Operand]) -> String {
    let (inputs, output) = operands.split_at(operands.len() - 1);
    let y = &output[0];
    let mut text = places("i", workload, operands);
    for o in inputs {
        let at = format!("at{}", o.index);
        let value = if o.repeated { o.load(&at) } else { format!("{}[{at}]", o.buffer) };
        let _ = writeln!(text, "let v{} = {value};", o.index);
    }
    let result = |part: usize| call(inputs.iter().map(|o| o.part(&format!("v{}", o.index), part)));
    let at = format!("at{}", y.index);
    if is_byte(y.dtype) {
        let parts: Vec<_> = (0..4).map(|part| pack(y.dtype, &result(part), part)).collect();
        let _ = writeln!(text, "y[{at}] = {};", parts.join(" | "));
    } else {
        let parts: Vec<_> = (0..4).map(|part| format!("{}({})", element(y.dtype), result(part))).collect();
        let _ = writeln!(text, "y[{at}] = vec4<{}>({});", element(y.dtype), parts.join(", "));
    }
    text
}
