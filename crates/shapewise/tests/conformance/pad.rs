//! Borders of every kind.

use proptest::prelude::*;
use shapewise::DType;
use shapewise::ops::OperationKind;
use shapewise::ops::pad::Border;

use crate::common::compare::Tolerance;
use crate::common::data::Grade;
use crate::common::operand::{Arrangement, Operand, arrangement};
use crate::runner::{Suite, each};

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    /// Size, and elements before and after.
    axes: Vec<(usize, usize, usize)>,
    border: Border,
    grade: Grade,
    input: Arrangement,
    output: Arrangement,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let width = prop_oneof![4 => Just(0usize), 5 => 1usize..5, 1 => 5usize..20];
    let size = prop_oneof![1 => Just(0usize), 4 => Just(1), 30 => 2usize..9, 6 => 9usize..40];
    let axes = prop::collection::vec((size, width.clone(), width), 0..=4)
        .prop_filter("small enough", |axes| {
            axes.iter().map(|a| a.0 + a.1 + a.2).product::<usize>() <= 20_000
        });
    let borders =
        vec![Border::Constant(0.0), Border::Constant(-3.5), Border::Edge, Border::Reflect, Border::Wrap];
    (
        prop::sample::select(&DType::ALL[..]),
        axes,
        prop::sample::select(borders),
        prop::sample::select(&Grade::ALL[..]),
        arrangement(),
        arrangement(),
        any::<u64>(),
    )
        .prop_map(|(dtype, axes, border, grade, input, output, seed)| {
            // Nothing can be mirrored or repeated.
            let none = axes.iter().any(|a| a.0 == 0);
            let border = if none { Border::Constant(1.0) } else { border };
            Case { dtype, axes, border, grade, input, output: output.writable(), seed }
        })
}

#[test]
fn pad() {
    let mut suite = Suite::new(OperationKind::Pad);
    each(300, cases(), |case| {
        let shape: Vec<usize> = case.axes.iter().map(|a| a.0).collect();
        let padded: Vec<usize> = case.axes.iter().map(|a| a.0 + a.1 + a.2).collect();
        let widths: Vec<(usize, usize)> = case.axes.iter().map(|a| (a.1, a.2)).collect();
        let input = Operand::new(case.dtype, &shape, &case.input, case.grade, case.seed);
        suite.check(
            || vec![Operand::new(case.dtype, &padded, &case.output, Grade::Whole, 1)],
            |rt, out| rt.pad_into(input.view(), &widths, case.border, out[0].view_mut()),
            |_, _| Tolerance::default(),
        )
    });
    suite.finish();
}
