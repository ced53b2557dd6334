//! Reductions.

use proptest::prelude::*;
use shapewise::DType;
use shapewise::ops::OperationKind;
use shapewise::ops::reduce::{NormOrder, Over, ReduceKind, Scan, ScanKind};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::Grade;
use crate::common::numbers::Numbers;
use crate::common::operand::{Arrangement, Operand, arrangement};
#[cfg(feature = "webgpu")]
use crate::runner::each_again;
use crate::runner::{Suite, each};
#[cfg(feature = "webgpu")]
use crate::webgpu;

/// One reduction of made-up numbers.
#[derive(Clone, Debug)]
struct Case {
    kind: ReduceKind,
    dtype: DType,
    shape: Vec<usize>,
    /// Which axes are reduced (the cumulative sum runs along the first of them).
    mask: [bool; 5],
    keepdims: bool,
    grade: Grade,
    input: Arrangement,
    output: Arrangement,
    seed: u64,
}

fn kinds() -> impl Strategy<Value = ReduceKind> {
    let order = prop_oneof![
        Just(NormOrder::Zero),
        Just(NormOrder::One),
        Just(NormOrder::Two),
        Just(NormOrder::Infinity),
        Just(NormOrder::NegativeInfinity),
        Just(NormOrder::p(3.0).unwrap()),
        Just(NormOrder::p(0.5).unwrap()),
    ];
    prop_oneof![
        Just(ReduceKind::Sum),
        Just(ReduceKind::Mean),
        Just(ReduceKind::Prod),
        Just(ReduceKind::Max),
        Just(ReduceKind::Min),
        Just(ReduceKind::ArgMax),
        Just(ReduceKind::ArgMin),
        Just(ReduceKind::Any),
        Just(ReduceKind::All),
        (0u32..3).prop_map(|correction| ReduceKind::Variance { correction }),
        order.prop_map(ReduceKind::Norm),
        (0usize..4, any::<bool>()).prop_map(|(kind, exclusive)| {
            let kind = [ScanKind::Sum, ScanKind::Prod, ScanKind::Max, ScanKind::Min][kind];
            ReduceKind::Cumulative(Scan { kind, exclusive })
        }),
    ]
}

/// Shapes of up to five axes, with long rows, long columns, odd sizes, ones and zeros among them.
fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1 => Just(0usize), 4 => Just(1), 30 => 2usize..9, 6 => 9usize..40];
    prop_oneof![
        4 => prop::collection::vec(size, 0..=5)
            .prop_filter("small enough", |s| s.iter().product::<usize>() <= 20_000),
        2 => (1usize..6, 30usize..700).prop_map(|(a, b)| vec![a, b]),
        2 => (30usize..700, 1usize..20).prop_map(|(a, b)| vec![a, b]),
        1 => (60_000usize..90_000).prop_map(|n| vec![n]),
        1 => (200usize..400, 200usize..300).prop_map(|(a, b)| vec![a, b]),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    (
        kinds(),
        prop::sample::select(&DType::ALL[..]),
        shapes(),
        any::<[bool; 5]>(),
        any::<bool>(),
        prop::sample::select(&Grade::ALL[..]),
        arrangement(),
        arrangement(),
        any::<u64>(),
    )
        .prop_map(|(kind, dtype, shape, mask, keepdims, grade, input, output, seed)| Case {
            kind,
            dtype,
            shape,
            mask,
            keepdims,
            grade,
            input,
            output: output.writable(),
            seed,
        })
}

impl Case {
    fn axes(&self) -> Vec<isize> {
        (0..self.shape.len()).filter(|&i| self.mask[i]).map(|i| i as isize).collect()
    }

    /// Elements that go into one result.
    fn depth(&self) -> usize {
        (0..self.shape.len()).filter(|&i| self.mask[i]).map(|i| self.shape[i]).product()
    }

    fn output_shape(&self) -> Vec<usize> {
        let size = |(i, &n): (usize, &usize)| match (self.mask[i], self.keepdims) {
            (false, _) => Some(n),
            (true, keep) => keep.then_some(1),
        };
        self.shape.iter().enumerate().filter_map(size).collect()
    }

    /// Whether the reduction is defined and its answer does not depend on the order of rounding.
    fn is_sound(&self) -> bool {
        let empty = self.depth() == 0 && !self.output_shape().contains(&0);
        let float = !(self.dtype.is_integer() || self.dtype == DType::Bool);
        // Huge floats overflow in one order of summation and not in another.
        let order_matters = float
            && self.grade == Grade::Huge
            && !matches!(
                self.kind,
                ReduceKind::Max
                    | ReduceKind::Min
                    | ReduceKind::ArgMax
                    | ReduceKind::ArgMin
                    | ReduceKind::Any
                    | ReduceKind::All
            );
        // Products with infinite parts have no agreed answer.
        let product =
            matches!(self.kind, ReduceKind::Prod | ReduceKind::Cumulative(Scan { kind: ScanKind::Prod, .. }));
        let undefined = product && self.dtype.is_complex() && self.grade == Grade::Special;
        !undefined
            && self.kind.output(self.dtype).is_some()
            && (!empty || self.kind.accepts_empty())
            && !order_matters
    }
}

#[test]
fn reductions() {
    let mut suite = Suite::new(OperationKind::Reduce);
    each(400, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_reductions() {
    let Some(mut suite) = webgpu::suite(OperationKind::Reduce, 2, webgpu::POWERS) else { return };
    each_again(50, cases(), |case| {
        let (dtype, grade) = (webgpu::shorter(case.dtype), webgpu::normal(case.grade));
        check(&mut suite, &Case { dtype, grade, ..case })
    });
    // The others are choosy; the unit tests bring what they take.
    suite.finish_where(|name| name.ends_with("::each"));
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    if !case.is_sound() {
        return Ok(());
    }
    let input = Operand::new(case.dtype, &case.shape, &case.input, case.grade, case.seed);
    let dtype = case.kind.output(case.dtype).expect("sound");
    if let ReduceKind::Cumulative(scan) = case.kind {
        let Some(&axis) = case.axes().first() else { return Ok(()) };
        let tolerance = tolerance(case, dtype, &input.numbers(), case.shape[axis as usize]);
        return suite.check(
            || vec![Operand::new(dtype, &case.shape, &case.output, Grade::Whole, 1)],
            |rt, out| rt.scan_into(scan, input.view(), axis, out[0].view_mut()),
            |_, _| tolerance,
        );
    }
    let mut over = Over::from(&case.axes()[..]);
    if case.keepdims {
        over = over.keepdims();
    }
    let tolerance = tolerance(case, dtype, &input.numbers(), case.depth());
    suite.check(
        || vec![Operand::new(dtype, &case.output_shape(), &case.output, Grade::Whole, 1)],
        |rt, out| rt.reduce_into(case.kind, input.view(), over, out[0].view_mut()),
        |_, _| tolerance,
    )
}

/// How far a kernel may be from the reference, which sums in twice the precision of f64.
///
/// A sum of n terms in blocks or pairs errs by about √n roundings of its partial sums, which are at most n times the
/// largest term; 16-bit types are summed in f32.
fn tolerance(case: &Case, output: DType, input: &Numbers, depth: usize) -> Tolerance {
    let values: Vec<f64> = match input {
        Numbers::Real(values) | Numbers::Complex(values) => values.clone(),
        Numbers::Integer(values) => values.iter().map(|&x| x as f64).collect(),
    };
    let epsilon = precision(if case.dtype.size() == 2 { DType::F32 } else { output }).0;
    let largest = values.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()));
    let n = depth.max(1) as f64;
    let roundings = 4.0 + 2.0 * n.sqrt();
    let kind = match case.kind {
        ReduceKind::Cumulative(scan) => match scan.kind {
            ScanKind::Sum => ReduceKind::Sum,
            ScanKind::Prod => ReduceKind::Prod,
            ScanKind::Max | ScanKind::Min => ReduceKind::Max,
        },
        other => other,
    };
    let absolute = match kind {
        ReduceKind::Sum => epsilon * roundings * n * largest,
        ReduceKind::Mean => epsilon * roundings * largest,
        // The parts of a complex product cancel; each is exact only relative to the whole number.
        ReduceKind::Prod if case.dtype.is_complex() => epsilon * (2.0 + n) * 2.0 * (1.5 * largest).powf(n),
        ReduceKind::Variance { .. } => epsilon * roundings * 4.0 * largest * largest,
        _ => 0.0,
    };
    let ulps = match kind {
        ReduceKind::Max | ReduceKind::Min => 0.0,
        ReduceKind::Prod => 2.0 + n,
        ReduceKind::Norm(_) => roundings,
        _ => 2.0,
    };
    Tolerance { ulps, absolute }
}
