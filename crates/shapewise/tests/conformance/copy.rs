//! Copies between layouts, concatenations and splits.

use proptest::prelude::*;
use shapewise::DType;
use shapewise::ops::OperationKind;

use crate::common::compare::Tolerance;
use crate::common::data::Grade;
use crate::common::operand::{Arrangement, Operand, arrangement};
use crate::runner::{Suite, each};

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    shape: Vec<usize>,
    grade: Grade,
    input: Arrangement,
    output: Arrangement,
    /// Whether the last two axes are exchanged on the way.
    turned: bool,
    seed: u64,
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1 => Just(0usize), 4 => Just(1), 30 => 2usize..9, 6 => 9usize..40];
    prop_oneof![
        4 => prop::collection::vec(size, 0..=5)
            .prop_filter("small enough", |s| s.iter().product::<usize>() <= 10_000),
        3 => (1usize..70, 1usize..200).prop_map(|(a, b)| vec![a, b]),
        1 => (1usize..4, 30usize..80, 30usize..80).prop_map(|(a, b, c)| vec![a, b, c]),
        1 => (10_000usize..30_000).prop_map(|n| vec![n]),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    (
        prop::sample::select(&DType::ALL[..]),
        shapes(),
        prop::sample::select(&Grade::ALL[..]),
        arrangement(),
        arrangement(),
        any::<bool>(),
        any::<u64>(),
    )
        .prop_map(|(dtype, shape, grade, input, output, turned, seed)| Case {
            dtype,
            shape,
            grade,
            input,
            output: output.writable(),
            turned,
            seed,
        })
}

#[test]
fn copy() {
    let mut suite = Suite::new(OperationKind::Copy);
    each(300, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let input = Operand::new(case.dtype, &case.shape, &case.input, case.grade, case.seed);
    let view = if case.turned { input.view().transpose() } else { input.view() };
    suite.check(
        || vec![Operand::new(case.dtype, view.shape(), &case.output, Grade::Whole, 1)],
        |rt, out| rt.copy_into(view, out[0].view_mut()),
        |_, _| Tolerance::default(),
    )
}
