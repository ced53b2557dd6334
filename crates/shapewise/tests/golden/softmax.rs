//! Softmax and log-softmax.

use shapewise::DType;
use shapewise::ops::OperationKind;

use crate::compare::{Tolerance, precision};

#[test]
fn softmax() {
    crate::run(
        OperationKind::Softmax,
        |rt, case| {
            let (x, axis) = (&case.inputs[0], case.integer("axis") as isize);
            Ok(vec![if case.flag("log") { rt.log_softmax(x, axis)? } else { rt.softmax(x, axis)? }])
        },
        |case, dtype, largest| tolerance(case.flag("log"), dtype, largest),
    );
}

/// A few roundings; weights below the smallest normal number may be 0.
fn tolerance(log: bool, dtype: DType, largest: f64) -> Tolerance {
    let short = dtype.size() == 2;
    let epsilon = precision(if short { DType::F32 } else { dtype }).0;
    let absolute = if log { 4.0 * epsilon * largest } else { f64::from(f32::MIN_POSITIVE) };
    Tolerance { ulps: if short { 1.0 } else { 8.0 }, absolute }
}
