//! Elements picked and put by index.

use shapewise::ops::OperationKind;
use shapewise::ops::scatter::Combine;

use crate::compare::Tolerance;

#[test]
fn gathers() {
    crate::run(
        OperationKind::Gather,
        |rt, case| {
            let (x, index, axis) = (&case.inputs[0], &case.inputs[1], case.integer("axis") as isize);
            let along = case.flag("along");
            Ok(vec![if along { rt.gather(x, axis, index)? } else { rt.index_select(x, axis, index)? }])
        },
        |_, _, _| Tolerance::default(),
    );
}

#[test]
fn scatters() {
    crate::run(
        OperationKind::Scatter,
        |rt, case| {
            let (x, index, source) = (&case.inputs[0], &case.inputs[1], &case.inputs[2]);
            let (axis, along) = (case.integer("axis") as isize, case.flag("along"));
            let combine = match case.text("combine") {
                "set" => Combine::Set,
                "add" => Combine::Add,
                "prod" => Combine::Prod,
                "max" => Combine::Max,
                "min" => Combine::Min,
                other => panic!("unknown rule `{other}`"),
            };
            Ok(vec![if along {
                rt.scatter(x, axis, index, source, combine)?
            } else {
                rt.index_scatter(x, axis, index, source, combine)?
            }])
        },
        // numpy rounds after each step too, but complex products and 16-bit floats in other places.
        |_, _, _| Tolerance { ulps: 2.0, absolute: 1e-6 },
    );
}
