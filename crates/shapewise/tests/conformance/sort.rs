//! Sort, argsort and top-k.

use proptest::prelude::*;
use shapewise::DType;
use shapewise::ops::OperationKind;
use shapewise::ops::sort::Order;

use crate::common::compare::Tolerance;
use crate::common::data::Grade;
use crate::common::operand::{Arrangement, Operand, arrangement};
use crate::runner::{Suite, each};

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    shape: Vec<usize>,
    axis: usize,
    /// How many are wanted; all where there are fewer.
    k: usize,
    what: What,
    order: Order,
    grade: Grade,
    input: Arrangement,
    values: Arrangement,
    indices: Arrangement,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Sort,
    ArgSort,
    Both,
    TopK,
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1 => Just(0usize), 4 => Just(1), 30 => 2usize..9, 6 => 9usize..40];
    prop_oneof![
        4 => prop::collection::vec(size, 1..=4)
            .prop_filter("small enough", |s| s.iter().product::<usize>() <= 5_000),
        3 => (1usize..6, 100usize..3000).prop_map(|(a, b)| vec![a, b]),
        2 => (100usize..1500, 1usize..9).prop_map(|(a, b)| vec![a, b]),
        1 => (30_000usize..60_000).prop_map(|n| vec![n]),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let types: Vec<DType> = DType::ALL.into_iter().filter(|&d| !d.is_complex() && d != DType::I16).collect();
    let what = (
        prop::sample::select(types),
        shapes(),
        0usize..5,
        prop_oneof![1 => Just(0usize), 6 => 1usize..60, 1 => 500usize..3000],
        prop::sample::select(vec![What::Sort, What::ArgSort, What::Both, What::TopK, What::TopK]),
        prop::sample::select(vec![Order::Ascending, Order::Descending]),
    );
    let how =
        (prop::sample::select(&Grade::ALL[..]), arrangement(), arrangement(), arrangement(), any::<u64>());
    (what, how).prop_map(|((dtype, shape, axis, k, what, order), (grade, input, values, indices, seed))| {
        let axis = axis % shape.len();
        let k = if matches!(what, What::TopK) { k.min(shape[axis]) } else { shape[axis] };
        let (values, indices) = (values.writable(), indices.writable());
        Case { dtype, shape, axis, k, what, order, grade, input, values, indices, seed }
    })
}

#[test]
fn sort() {
    let mut suite = Suite::new(OperationKind::Sort);
    each(250, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let input = Operand::new(case.dtype, &case.shape, &case.input, case.grade, case.seed);
    let mut shape = case.shape.clone();
    shape[case.axis] = case.k;
    let values = || Operand::new(case.dtype, &shape, &case.values, Grade::Whole, 1);
    let indices = || Operand::new(DType::I64, &shape, &case.indices, Grade::Whole, 1);
    suite.check(
        || match case.what {
            What::Sort => vec![values()],
            What::ArgSort => vec![indices()],
            What::Both | What::TopK => vec![values(), indices()],
        },
        |rt, out| {
            let (x, axis, order) = (input.view(), case.axis as isize, case.order);
            match (case.what, out) {
                (What::Sort, [y]) => rt.sort_into(x, axis, order, y.view_mut()),
                (What::ArgSort, [y]) => rt.argsort_into(x, axis, order, y.view_mut()),
                (What::Both, [y, i]) => rt.sort_with_indices_into(x, axis, order, y.view_mut(), i.view_mut()),
                (_, [y, i]) => rt.topk_into(x, case.k, axis, order, y.view_mut(), i.view_mut()),
                _ => unreachable!("one or two outputs"),
            }
        },
        |_, _| Tolerance::default(),
    )
}
