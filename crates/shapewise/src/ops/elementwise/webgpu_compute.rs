//! A program as a WGSL function of one element of each input.

use std::fmt::Write;

use half::f16;

use crate::backends::webgpu::wgsl::{FUNCTIONS, real};
use crate::ops::Workload;
use crate::ops::elementwise::{Function, Program, Source, Step};
use crate::tensor::DType;

/// Functions of this operation alone.
const MORE: &str = include_str!("webgpu_functions.wgsl");

/// The type that elements are computed in.
fn computed(dtype: DType) -> &'static str {
    match dtype {
        DType::I8 | DType::I32 => "i32",
        DType::U8 | DType::U32 => "u32",
        DType::Bool => "bool",
        _ => "f32",
    }
}

/// The function `compute`, with what it calls.
pub(super) fn function(program: &Program, workload: &Workload) -> String {
    let inputs: Vec<DType> = workload.inputs().iter().map(|o| o.dtype).collect();
    let types = program.step_types(&inputs).unwrap_or_default();
    let arguments: Vec<_> =
        inputs.iter().enumerate().map(|(i, &t)| format!("x{i}_: {}", computed(t))).collect();
    let output = computed(workload.outputs()[0].dtype);
    let mut text = format!("{FUNCTIONS}{MORE}fn compute({}) -> {output} {{\n", arguments.join(", "));
    for (i, step) in program.steps().iter().enumerate() {
        let sources = &step.arguments[..step.function.arguments()];
        // The last argument's type is that of the numbers: a condition comes first.
        let dtype = sources.iter().rev().find_map(|&source| match source {
            Source::Input(i) => Some(inputs[i as usize]),
            Source::Step(i) => Some(types[i as usize]),
            Source::Constant(_) => None,
        });
        let value = expression(program, *step, dtype.unwrap_or(DType::F32));
        let _ = writeln!(text, "let t{i} = {value};");
    }
    let _ = writeln!(text, "return t{};\n}}", program.steps().len() - 1);
    text
}

fn constant(x: f64, dtype: DType) -> String {
    match dtype {
        DType::F16 => real(f16::from_f64(x).to_f64()),
        DType::I8 => format!("i32({})", x as i8),
        DType::I32 => format!("i32({})", x as i32),
        DType::U8 => format!("{}u", x as u8),
        DType::U32 => format!("{}u", x as u32),
        DType::Bool => (x != 0.0).to_string(),
        _ => real(x),
    }
}

/// One step on arguments of a type.
fn expression(program: &Program, step: Step, dtype: DType) -> String {
    let of = |source: Source, dtype: DType| match source {
        Source::Input(i) => format!("x{i}_"),
        Source::Step(i) => format!("t{i}"),
        Source::Constant(i) => constant(program.constant(i), dtype),
    };
    let [a, b, c] = step.arguments.map(|source| of(source, dtype));
    match step.function {
        Function::Where => format!("select({c}, {b}, {})", of(step.arguments[0], DType::Bool)),
        Function::Cast(to) => cast(&a, dtype, to),
        function if dtype.is_float() => of_reals(function, &a, &b, &c),
        function if dtype == DType::Bool => of_truths(function, &a, &b),
        function => of_integers(function, dtype, &a, &b, &c),
    }
}

fn comparison(function: Function) -> Option<&'static str> {
    Some(match function {
        Function::Equal => "==",
        Function::NotEqual => "!=",
        Function::Less => "<",
        Function::LessEqual => "<=",
        Function::Greater => ">",
        Function::GreaterEqual => ">=",
        _ => return None,
    })
}

/// Drivers differ on whether NaN is unlike itself; none says that it is equal.
fn not_equal(a: &str, b: &str) -> String {
    format!("(!({a} == {b}))")
}

fn of_reals(function: Function, a: &str, b: &str, c: &str) -> String {
    if let Some(sign) = comparison(function) {
        return if function == Function::NotEqual { not_equal(a, b) } else { format!("({a} {sign} {b})") };
    }
    match function {
        Function::Add => format!("({a} + {b})"),
        Function::Sub => format!("({a} - {b})"),
        Function::Mul => format!("({a} * {b})"),
        Function::Div => format!("({a} / {b})"),
        Function::Min => format!("smaller({a}, {b})"),
        Function::Max => format!("larger({a}, {b})"),
        Function::Pow => format!("power({a}, {b})"),
        Function::Neg => format!("(-({a}))"),
        Function::Rsqrt => format!("(1.0 / sqrt({a}))"),
        Function::Tanh => format!("hyperbolic_tangent({a})"),
        Function::Sigmoid => format!("(1.0 / (1.0 + exp(-({a}))))"),
        Function::Relu => format!("larger({a}, 0.0)"),
        Function::LeakyRelu => format!("select({a} * {b}, {a}, {a} > 0.0)"),
        Function::Clamp => format!("smaller(larger({a}, {b}), {c})"),
        Function::Abs => format!("abs({a})"),
        Function::Exp => format!("exp({a})"),
        Function::Log => format!("logarithm({a})"),
        Function::Sqrt => format!("sqrt({a})"),
        Function::Sin => format!("sine({a})"),
        Function::Cos => format!("sine_and({a}, 1.0)"),
        other => format!("{}({a})", other.name()),
    }
}

fn of_truths(function: Function, a: &str, b: &str) -> String {
    match comparison(function) {
        Some(sign) => format!("(u32({a}) {sign} u32({b}))"),
        None if function == Function::Min => format!("({a} && {b})"),
        None => format!("({a} || {b})"),
    }
}

fn of_integers(function: Function, dtype: DType, a: &str, b: &str, c: &str) -> String {
    if let Some(sign) = comparison(function) {
        return format!("({a} {sign} {b})");
    }
    let signed = computed(dtype) == "i32";
    let value = match function {
        Function::Add => format!("({a} + {b})"),
        Function::Sub => format!("({a} - {b})"),
        Function::Mul => format!("({a} * {b})"),
        Function::Div if signed => format!("divided({a}, {b})"),
        Function::Div => format!("divided_unsigned({a}, {b})"),
        Function::Min => format!("min({a}, {b})"),
        Function::Max => format!("max({a}, {b})"),
        Function::Neg => format!("(0 - {a})"),
        Function::Abs => format!("abs({a})"),
        Function::Clamp => format!("min(max({a}, {b}), {c})"),
        _ if signed => format!("max({a}, 0)"),
        _ => a.into(),
    };
    narrow(&value, dtype)
}

/// Keeps the bits of the type's width, as arithmetic of that width does.
fn narrow(value: &str, dtype: DType) -> String {
    match dtype {
        DType::I8 | DType::U8 => format!("extractBits({value}, 0u, 8u)"),
        _ => value.into(),
    }
}

fn cast(a: &str, from: DType, to: DType) -> String {
    let (held, wanted) = (computed(from), computed(to));
    match to {
        DType::F16 => format!("f32(f16({}))", if held == "f32" { a.into() } else { format!("f32({a})") }),
        DType::F32 => format!("f32({a})"),
        DType::Bool => match held {
            "bool" => a.into(),
            "f32" => not_equal(a, "0.0"),
            _ => format!("({a} != {held}(0))"),
        },
        _ if held == "f32" => {
            let (low, high) = match to {
                DType::I8 => ("-128", "127"),
                DType::U8 => ("0", "255"),
                DType::U32 => return format!("to_u32({a})"),
                _ => return format!("to_i32({a})"),
            };
            format!("{wanted}(clamp(to_i32({a}), {low}, {high}))")
        }
        _ => narrow(&format!("{wanted}({a})"), to),
    }
}
