//! Copies, permutations and concatenations.

use shapewise::TensorView;
use shapewise::ops::OperationKind;

use crate::compare::Tolerance;
use crate::read::sizes;

#[test]
fn copies() {
    crate::run(
        OperationKind::Copy,
        |rt, case| {
            let parts: Vec<TensorView<'_>> = case.inputs.iter().map(Into::into).collect();
            Ok(match case.text("kind") {
                "copy" => vec![rt.copy(parts[0])?],
                "permute" => vec![rt.permute(parts[0], &sizes(&case.attributes["order"]))?],
                "concat" => vec![rt.concat(&parts, case.integer("axis") as isize)?],
                "split" => {
                    let sizes = sizes(&case.attributes["sizes"]);
                    rt.split(parts[0], &sizes, case.integer("axis") as isize)?
                }
                other => panic!("unknown copy `{other}`"),
            })
        },
        |_, _, _| Tolerance::default(),
    );
}
