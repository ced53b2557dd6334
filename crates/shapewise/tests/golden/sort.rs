//! Sort, argsort and top-k.

use shapewise::ops::OperationKind;
use shapewise::ops::sort::Order;

use crate::compare::Tolerance;

#[test]
fn sorts() {
    crate::run(
        OperationKind::Sort,
        |rt, case| {
            let (x, axis) = (&case.inputs[0], case.integer("axis") as isize);
            let order = if case.flag("descending") { Order::Descending } else { Order::Ascending };
            let both = |(values, indices)| vec![values, indices];
            Ok(match case.text("kind") {
                "sort" => vec![rt.sort(x, axis, order)?],
                "argsort" => vec![rt.argsort(x, axis, order)?],
                "both" => both(rt.sort_with_indices(x, axis, order)?),
                "topk" => both(rt.topk(x, case.integer("k") as usize, axis, order)?),
                other => panic!("unknown sort `{other}`"),
            })
        },
        |_, _, _| Tolerance::default(),
    );
}
