//! Batch, layer, rms and group norm.

use shapewise::DType;
use shapewise::ops::OperationKind;
use shapewise::ops::norm::NormOptions;

use crate::compare::{Tolerance, precision};
use crate::read::Case;

#[test]
fn norms() {
    crate::run(
        OperationKind::Norm,
        |rt, case| {
            let x = &case.inputs[0];
            let options = options(case);
            Ok(match case.text("kind") {
                "layer" => vec![rt.layer_norm(x, case.integer("axes") as usize, &options)?],
                "rms" => vec![rt.rms_norm(x, case.integer("axes") as usize, &options)?],
                "group" => vec![rt.group_norm(x, case.integer("groups") as usize, &options)?],
                "batch" => vec![rt.batch_norm(x, &case.inputs[1], &case.inputs[2], &options)?],
                "batch_training" => {
                    let all = rt.batch_norm_training(x, &options)?;
                    vec![all.output, all.mean, all.variance]
                }
                other => panic!("unknown norm `{other}`"),
            })
        },
        |_, dtype, largest| tolerance(dtype, largest),
    );
}

/// Scale and bias are the last inputs.
fn options(case: &Case) -> NormOptions<'_> {
    let mut options = NormOptions::new().eps(case.attributes["epsilon"].as_f64().unwrap());
    let first = if case.text("kind") == "batch" { 3 } else { 1 };
    if case.flag("weight") {
        options = options.scale(&case.inputs[first]);
    }
    if case.flag("bias") {
        options = options.bias(&case.inputs[first + 1]);
    }
    options
}

/// Elements equal to their mean cancel, and what is left of them is scaled by up to 1/√epsilon.
fn tolerance(dtype: DType, largest: f64) -> Tolerance {
    let short = dtype.size() == 2;
    let epsilon = precision(if short { DType::F32 } else { dtype }).0;
    Tolerance { ulps: if short { 1.0 } else { 4.0 }, absolute: 64.0 * epsilon * largest.max(1.0) }
}
