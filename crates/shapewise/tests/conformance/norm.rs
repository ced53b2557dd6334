//! Batch, layer, rms and group norm.

use proptest::prelude::*;
use shapewise::ops::OperationKind;
use shapewise::ops::norm::NormOptions;
use shapewise::{DType, Runtime};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::Grade;
use crate::common::layers::NORMS;
use crate::common::operand::{Arrangement, Operand, arrangement};
#[cfg(feature = "webgpu")]
use crate::runner::each_again;
use crate::runner::{Suite, each};
#[cfg(feature = "webgpu")]
use crate::webgpu;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Batch,
    Layer { axes: usize },
    Rms { axes: usize },
    Group { groups: usize },
}

#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    dtype: DType,
    /// Of scale, bias and statistics.
    weights: DType,
    shape: Vec<usize>,
    channel_axis: usize,
    scale: bool,
    bias: bool,
    eps: f64,
    grade: Grade,
    input: Arrangement,
    output: Arrangement,
    seed: u64,
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let size = || prop_oneof![1 => Just(0usize), 4 => Just(1), 30 => 2usize..9, 6 => 9usize..40];
    prop_oneof![
        4 => prop::collection::vec(size(), 2..=5)
            .prop_filter("small enough", |s| s.iter().product::<usize>() <= 10_000),
        3 => (1usize..9, 30usize..700).prop_map(|(a, b)| vec![a, b]),
        2 => (1usize..5, 1usize..20, 10usize..300).prop_map(|(a, b, c)| vec![a, b, c]),
        2 => (30usize..300, 1usize..70).prop_map(|(a, b)| vec![a, b]),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let grades = [Grade::Ordinary, Grade::Positive, Grade::Whole, Grade::Special, Grade::Denormal];
    (
        (0usize..4, 1usize..6, prop::sample::select(DType::FLOATS), prop::sample::select(DType::FLOATS)),
        (shapes(), 0usize..5, any::<bool>(), any::<bool>(), any::<bool>()),
        (prop::sample::select(grades.to_vec()), arrangement(), arrangement(), any::<u64>()),
    )
        .prop_map(|((kind, count, dtype, weights), (shape, axis, scale, bias, wide), layouts)| {
            let (grade, input, output, seed) = layouts;
            // Channels are on axis 1, and sometimes elsewhere.
            let channel_axis = if axis < 3 { 1 } else { axis % shape.len() };
            let axes = 1 + count % shape.len();
            let groups = if shape[channel_axis].is_multiple_of(count) { count } else { 1 };
            let kind = [Kind::Batch, Kind::Layer { axes }, Kind::Rms { axes }, Kind::Group { groups }][kind];
            let (eps, output) = (if wide { 1e-3 } else { 1e-5 }, output.writable());
            Case { kind, dtype, weights, shape, channel_axis, scale, bias, eps, grade, input, output, seed }
        })
}

impl Case {
    /// Of scale, bias and statistics.
    fn weight_shape(&self) -> Vec<usize> {
        match self.kind {
            Kind::Layer { axes } | Kind::Rms { axes } => self.shape[self.shape.len() - axes..].to_vec(),
            Kind::Batch | Kind::Group { .. } => vec![self.shape[self.channel_axis]],
        }
    }

    fn weight(&self, grade: Grade, seed: u64) -> Operand {
        let plain = Arrangement::PLAIN;
        Operand::new(self.weights, &self.weight_shape(), &plain, grade, self.seed.wrapping_add(seed))
    }
}

#[test]
fn norms() {
    let mut suite = Suite::new(OperationKind::Norm);
    each(250, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

/// The norms of language models.
#[test]
fn layers_of_networks() {
    let mut suite = Suite::new(OperationKind::Norm);
    for &(name, shape, centred) in NORMS {
        let case = Case {
            kind: if centred { Kind::Layer { axes: 1 } } else { Kind::Rms { axes: 1 } },
            dtype: DType::F32,
            weights: DType::F32,
            shape: shape.to_vec(),
            channel_axis: 1,
            scale: true,
            bias: centred,
            eps: 1e-5,
            grade: Grade::Ordinary,
            input: Arrangement::PLAIN,
            output: Arrangement::PLAIN,
            seed: 7,
        };
        if let Err(why) = check(&mut suite, &case) {
            panic!("{name}: {why}");
        }
    }
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_norms() {
    let Some(mut suite) = webgpu::suite(OperationKind::Norm, 2, webgpu::FUNCTIONS) else { return };
    each_again(36, cases(), |case| {
        let (dtype, weights) = (webgpu::shorter(case.dtype), webgpu::shorter(case.weights));
        check(&mut suite, &Case { dtype, weights, grade: webgpu::normal(case.grade), ..case })
    });
    // The others are choosy; the unit tests bring what they take.
    suite.finish_where(|name| name.ends_with("::each"));
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let input = Operand::new(case.dtype, &case.shape, &case.input, case.grade, case.seed);
    let (scale, bias) = (case.weight(Grade::Ordinary, 1), case.weight(Grade::Ordinary, 2));
    let (mean, variance) = (case.weight(Grade::Ordinary, 3), case.weight(Grade::Positive, 4));
    let mut options = NormOptions::new().eps(case.eps).channel_axis(case.channel_axis as isize);
    if case.scale {
        options = options.scale(scale.view());
    }
    if case.bias {
        options = options.bias(bias.view());
    }
    let call = |rt: &Runtime, out: &mut [Operand]| {
        let (x, out) = (input.view(), out[0].view_mut());
        match case.kind {
            Kind::Batch => rt.batch_norm_into(x, mean.view(), variance.view(), &options, out),
            Kind::Layer { axes } => rt.layer_norm_into(x, axes, &options, out),
            Kind::Rms { axes } => rt.rms_norm_into(x, axes, &options, out),
            Kind::Group { groups } => rt.group_norm_into(x, groups, &options, out),
        }
    };
    let tolerance = tolerance(case);
    suite.check(
        || vec![Operand::new(case.dtype, &case.shape, &case.output, Grade::Whole, 1)],
        call,
        |_, _| tolerance,
    )?;
    training(suite, case, &input, &options)
}

/// Batch norm in training makes its own outputs: the result, the means and the variances.
fn training(
    suite: &mut Suite,
    case: &Case,
    input: &Operand,
    options: &NormOptions<'_>,
) -> Result<(), TestCaseError> {
    // Statistics of infinite numbers are infinite or not numbers, by the way they are merged.
    if case.kind != Kind::Batch || case.shape.contains(&0) || case.grade == Grade::Special {
        return Ok(());
    }
    let statistics = if case.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let channels = [case.shape[case.channel_axis]];
    let tolerance = tolerance(case);
    suite.check(
        || {
            let made =
                |dtype, shape: &[usize]| Operand::new(dtype, shape, &Arrangement::PLAIN, Grade::Whole, 1);
            vec![made(case.dtype, &case.shape), made(statistics, &channels), made(statistics, &channels)]
        },
        |rt, out| {
            let all = rt.batch_norm_training(input.view(), options)?;
            for (to, from) in out.iter_mut().zip([all.output, all.mean, all.variance]) {
                to.replace(from);
            }
            Ok(())
        },
        |_, _| tolerance,
    )
}

/// How far a kernel may be from the reference, which computes in f64.
///
/// The mean errs by about √n roundings of the largest number; where the variance is small, the difference to the mean
/// is scaled by up to 1/√eps.
fn tolerance(case: &Case) -> Tolerance {
    let short = case.dtype.size() == 2;
    let epsilon = precision(if short { DType::F32 } else { case.dtype }).0;
    let largest = if case.grade == Grade::Whole { 4.0 } else { 2.0 };
    let elements = case.shape.iter().product::<usize>().max(1) as f64;
    let roundings = 4.0 + 0.5 * elements.sqrt();
    let absolute = epsilon * roundings * largest * 4.0 / case.eps.sqrt();
    Tolerance { ulps: if short { 1.0 } else { 4.0 }, absolute }
}
