//! Softmax and log-softmax.

use proptest::prelude::*;
use shapewise::DType;
use shapewise::ops::OperationKind;

use crate::common::compare::{Tolerance, precision};
use crate::common::data::Grade;
use crate::common::operand::{Arrangement, Operand, arrangement};
#[cfg(feature = "webgpu")]
use crate::runner::each_again;
use crate::runner::{Suite, each};
#[cfg(feature = "webgpu")]
use crate::webgpu;

#[derive(Clone, Debug)]
struct Case {
    log: bool,
    dtype: DType,
    shape: Vec<usize>,
    axis: usize,
    grade: Grade,
    input: Arrangement,
    output: Arrangement,
    seed: u64,
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1 => Just(0usize), 4 => Just(1), 30 => 2usize..9, 6 => 9usize..40];
    prop_oneof![
        4 => prop::collection::vec(size, 1..=5)
            .prop_filter("small enough", |s| s.iter().product::<usize>() <= 10_000),
        3 => (1usize..9, 30usize..700).prop_map(|(a, b)| vec![a, b]),
        2 => (30usize..300, 1usize..70).prop_map(|(a, b)| vec![a, b]),
        1 => (10_000usize..30_000).prop_map(|n| vec![n]),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    (
        any::<bool>(),
        prop::sample::select(DType::FLOATS),
        shapes(),
        0usize..5,
        prop::sample::select(&Grade::ALL[..]),
        arrangement(),
        arrangement(),
        any::<u64>(),
    )
        .prop_map(|(log, dtype, shape, axis, grade, input, output, seed)| {
            let axis = axis % shape.len();
            Case { log, dtype, shape, axis, grade, input, output: output.writable(), seed }
        })
}

#[test]
fn softmax() {
    let mut suite = Suite::new(OperationKind::Softmax);
    each(200, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_softmax() {
    let Some(mut suite) = webgpu::suite(OperationKind::Softmax, 2, webgpu::FUNCTIONS) else { return };
    each_again(36, cases(), |case| {
        let (dtype, grade) = (webgpu::shorter(case.dtype), webgpu::normal(case.grade));
        check(&mut suite, &Case { dtype, grade, ..case })
    });
    // The others are choosy; the unit tests bring what they take.
    suite.finish_where(|name| name.ends_with("::each"));
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let input = Operand::new(case.dtype, &case.shape, &case.input, case.grade, case.seed);
    let tolerance = tolerance(case);
    suite.check(
        || vec![Operand::new(case.dtype, &case.shape, &case.output, Grade::Whole, 1)],
        |rt, out| {
            let (x, axis, out) = (input.view(), case.axis as isize, out[0].view_mut());
            if case.log { rt.log_softmax_into(x, axis, out) } else { rt.softmax_into(x, axis, out) }
        },
        |_, _| tolerance,
    )
}

/// How far a kernel may be from the reference, which computes in f64.
///
/// A weight errs by the exponential's error, the rounding of its argument (up to 8 here) and about √n roundings of the
/// sum; weights below the smallest normal number may be 0.
fn tolerance(case: &Case) -> Tolerance {
    let short = case.dtype.size() == 2;
    let epsilon = precision(if short { DType::F32 } else { case.dtype }).0;
    let n = case.shape[case.axis] as f64;
    // In f64 the reference's own plain sum errs too, and by the same amount each time where terms are equal.
    let roundings = 16.0 + if case.dtype == DType::F64 { n / 8.0 } else { 2.0 * n.sqrt() };
    let smallest = if case.dtype == DType::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
    match (case.log, short) {
        (true, _) => Tolerance { ulps: if short { 1.0 } else { 4.0 }, absolute: epsilon * roundings },
        (false, true) => Tolerance { ulps: 1.0, absolute: smallest },
        (false, false) => Tolerance { ulps: roundings, absolute: smallest },
    }
}
