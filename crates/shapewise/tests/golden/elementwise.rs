//! Element-wise functions and fused chains.

use shapewise::ops::OperationKind;
use shapewise::ops::elementwise::{Expr, Program};
use shapewise::{DType, Tensor, TensorView};

use crate::compare::Tolerance;
use crate::read::Case;

#[test]
fn elementwise() {
    crate::run(
        OperationKind::Elementwise,
        |rt, case| {
            let program = program(case)?;
            let inputs: Vec<TensorView<'_>> = case.inputs.iter().map(Tensor::view).collect();
            Ok(vec![rt.elementwise(&program, &inputs)?])
        },
        |case, dtype, _| tolerance(case.text("function"), case.inputs[0].dtype(), dtype),
    );
}

/// Sums, products and comparisons are exact; functions are within a few units in the last place.
///
/// Fused chains and 16-bit types round once where numpy's double precision rounds elsewhere.
fn tolerance(function: &str, input: DType, dtype: DType) -> Tolerance {
    let short = dtype.size() == 2;
    match function {
        // Its error is relative to its argument, of which the largest that matters is 6.
        "gelu" => Tolerance {
            ulps: 2.0,
            absolute: 12.0 * crate::compare::precision(if short { DType::F32 } else { dtype }).0,
        },
        // Far below zero, e⁻ˣ overflows before the product vanishes.
        "silu" if !short => Tolerance { ulps: 4.0, absolute: f64::from(f32::MIN_POSITIVE) },
        "exp" | "log" | "rsqrt" | "sin" | "cos" | "tanh" | "sigmoid" | "silu" | "pow" => {
            Tolerance { ulps: if short { 1.0 } else { 4.0 }, absolute: 0.0 }
        }
        "leaky_relu" => Tolerance { ulps: 1.0, absolute: 0.0 },
        // The fused sum of products may cancel.
        text if text.contains('(') => {
            Tolerance { ulps: 4.0, absolute: 16.0 * crate::compare::precision(dtype).0 }
        }
        "div" | "mul" | "abs" if input.is_complex() => Tolerance { ulps: 4.0, absolute: 1e-6 },
        _ => Tolerance { ulps: 0.0, absolute: 0.0 },
    }
}

fn program(case: &Case) -> shapewise::Result<Program> {
    let constants = case.attributes["constants"].as_array();
    let (low, high) = constants.map_or((-1.0, 3.0), |c| (c[0].as_f64().unwrap(), c[1].as_f64().unwrap()));
    let to = case.attributes["to"].as_str().map(|name| name.parse().unwrap());
    Program::build(case.inputs.len(), |x| match (case.text("function"), x) {
        ("clamp", x) => x[0].clamp(low, high),
        ("cast", x) => x[0].cast(to.unwrap_or(DType::F32)),
        ("where", x) => x[0].choose(x[1], x[2]),
        (function, x @ [_]) => unary(function, x[0]),
        (function, x @ [_, _]) => binary(function, x[0], x[1]),
        (function, x) => fused(function, x[0], x[1], x[2]),
    })
}

fn unary<'b>(function: &str, x: Expr<'b>) -> Expr<'b> {
    match function {
        "neg" => -x,
        "abs" => x.abs(),
        "exp" => x.exp(),
        "log" => x.log(),
        "sqrt" => x.sqrt(),
        "rsqrt" => x.rsqrt(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tanh" => x.tanh(),
        "sigmoid" => x.sigmoid(),
        "relu" => x.relu(),
        "leaky_relu" => x.leaky_relu(0.1),
        "gelu" => x.gelu(),
        "silu" => x.silu(),
        other => panic!("unknown function `{other}`"),
    }
}

fn binary<'b>(function: &str, a: Expr<'b>, b: Expr<'b>) -> Expr<'b> {
    match function {
        "add" => a + b,
        "sub" => a - b,
        "mul" => a * b,
        "div" => a / b,
        "min" => a.min(b),
        "max" => a.max(b),
        "pow" => a.pow(b),
        "equal" => a.equal(b),
        "not_equal" => a.not_equal(b),
        "less" => a.less(b),
        "less_equal" => a.less_equal(b),
        "greater" => a.greater(b),
        "greater_equal" => a.greater_equal(b),
        other => panic!("unknown function `{other}`"),
    }
}

fn fused<'b>(function: &str, a: Expr<'b>, b: Expr<'b>, c: Expr<'b>) -> Expr<'b> {
    match function {
        "relu(a*b+c)" => (a * b + c).relu(),
        "where(a<b,a,b*2)" => a.less(b).choose(a, b * 2.0),
        "tanh(a)*sigmoid(b)-c" => a.tanh() * b.sigmoid() - c,
        "clamp(a-b,-1,3)/(abs(c)+1)" => (a - b).clamp(-1.0, 3.0) / (c.abs() + 1.0),
        "f64(a)+f64(b)*f64(c)" => a.cast(DType::F64) + b.cast(DType::F64) * c.cast(DType::F64),
        other => panic!("unknown chain `{other}`"),
    }
}
