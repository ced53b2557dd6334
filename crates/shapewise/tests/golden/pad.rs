//! Borders of every kind.

use shapewise::ops::OperationKind;
use shapewise::ops::pad::Border;

use crate::compare::Tolerance;
use crate::read::sizes;

#[test]
fn borders() {
    crate::run(
        OperationKind::Pad,
        |rt, case| {
            let border = match case.text("mode") {
                "constant" => Border::Constant(case.attributes["value"].as_f64().unwrap()),
                "edge" => Border::Edge,
                "reflect" => Border::Reflect,
                "wrap" => Border::Wrap,
                other => panic!("unknown border `{other}`"),
            };
            let widths: Vec<(usize, usize)> = case.attributes["widths"]
                .as_array()
                .unwrap()
                .iter()
                .map(|pair| {
                    let pair = sizes(pair);
                    (pair[0], pair[1])
                })
                .collect();
            Ok(vec![rt.pad(&case.inputs[0], &widths, border)?])
        },
        |_, _, _| Tolerance::default(),
    );
}
