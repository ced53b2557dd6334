//! The matrix product.

use shapewise::DType;
use shapewise::ops::matmul::Fused;
use shapewise::ops::{Activation, OperationKind};

use crate::compare::{Tolerance, precision};

#[test]
fn products() {
    crate::run(
        OperationKind::Matmul,
        |rt, case| {
            let (a, b) = (&case.inputs[0], &case.inputs[1]);
            let mut fused = Fused::new().activation(activation(case.text("activation")));
            if case.flag("bias") {
                fused = fused.bias(&case.inputs[2]);
            }
            Ok(vec![rt.matmul_fused(a, b, fused)?])
        },
        |case, dtype, largest| {
            if case.name.starts_with("whole numbers") {
                Tolerance::default()
            } else {
                tolerance(dtype, largest)
            }
        },
    );
}

fn activation(name: &str) -> Activation {
    match name {
        "none" => Activation::None,
        "relu" => Activation::Relu,
        "leaky_relu(0.1)" => Activation::LeakyRelu { slope: 0.1 },
        "gelu" => Activation::Gelu,
        "silu" => Activation::Silu,
        "tanh" => Activation::Tanh,
        "sigmoid" => Activation::Sigmoid,
        other => panic!("unknown activation `{other}`"),
    }
}

/// Up to 65 terms between -4 and 4 are added in f32 (16-bit types) or in their own type, and rounded once.
fn tolerance(dtype: DType, largest: f64) -> Tolerance {
    let accumulator = precision(if dtype.size() == 2 { DType::F32 } else { dtype }).0;
    Tolerance {
        ulps: if dtype.size() == 2 { 1.0 } else { 4.0 },
        absolute: 32.0 * accumulator * largest.max(1.0),
    }
}
