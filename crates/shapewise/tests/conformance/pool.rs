//! Pooling: one to three axes, strides, padding, dilation, both layouts.

use proptest::prelude::*;
use shapewise::ops::OperationKind;
use shapewise::ops::pool::PoolOptions;
use shapewise::{DType, Runtime};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::Grade;
use crate::common::operand::{Arrangement, Operand, arrangement};
use crate::runner::{Suite, each};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Max,
    Indices,
    Average,
}

#[derive(Clone, Debug)]
struct Case {
    kind: Kind,
    dtype: DType,
    shape: Vec<usize>,
    /// Size, stride, padding and dilation along every pooled axis.
    windows: Vec<[usize; 4]>,
    ceil: bool,
    count: bool,
    channels_last: bool,
    grade: Grade,
    input: Arrangement,
    output: Arrangement,
    seed: u64,
}

fn axis() -> impl Strategy<Value = (usize, [usize; 4])> {
    let length = prop_oneof![3 => 1usize..8, 6 => 8usize..40, 1 => 40usize..90];
    (length, 1usize..8, 1usize..4, 0usize..4, 1usize..3).prop_map(|(n, size, stride, padding, dilation)| {
        let size = size.min(n);
        let dilation = if (size - 1) * dilation + 1 > n { 1 } else { dilation };
        (n, [size, stride, padding.min(size / 2), dilation])
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let kinds = [Kind::Max, Kind::Max, Kind::Average, Kind::Average, Kind::Indices];
    let types = [DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8, DType::I64];
    (
        (prop::sample::select(kinds.to_vec()), prop::sample::select(types.to_vec())),
        (0usize..3, 1usize..40, prop::collection::vec(axis(), 1..=3)),
        any::<[bool; 3]>(),
        prop::sample::select(&Grade::ALL[..5]),
        (arrangement(), arrangement(), any::<u64>()),
    )
        .prop_filter("small enough", |(_, (n, c, axes), ..)| {
            n * c * axes.iter().map(|a| a.0).product::<usize>() <= 20_000
        })
        .prop_map(|((kind, dtype), (n, c, axes), [ceil, count, channels_last], grade, layouts)| {
            let kind = if dtype.is_float() || kind == Kind::Indices { kind } else { Kind::Max };
            let mut shape: Vec<usize> = axes.iter().map(|a| a.0).collect();
            shape.insert(if channels_last { shape.len() } else { 0 }, c);
            shape.insert(0, n);
            let windows = axes.into_iter().map(|a| a.1).collect();
            let (input, output, seed) = (layouts.0, layouts.1.writable(), layouts.2);
            Case { kind, dtype, shape, windows, ceil, count, channels_last, grade, input, output, seed }
        })
}

#[test]
fn pool() {
    let mut suite = Suite::new(OperationKind::Pool);
    let plain = Runtime::builder().without_calibration().build().unwrap();
    each(250, cases(), |case| check(&mut suite, &plain, &case));
    suite.finish();
}

fn check(suite: &mut Suite, plain: &Runtime, case: &Case) -> Result<(), TestCaseError> {
    let of = |i: usize| -> Vec<usize> { case.windows.iter().map(|w| w[i]).collect() };
    let mut options = PoolOptions::new(&of(0)).stride(&of(1)).padding(&of(2)).count_include_pad(case.count);
    if case.kind != Kind::Average {
        options = options.dilation(&of(3));
    }
    if case.ceil {
        options = options.ceil();
    }
    if case.channels_last {
        options = options.channels_last();
    }
    let x = Operand::new(case.dtype, &case.shape, &case.input, case.grade, case.seed);
    let result = match case.kind {
        Kind::Average => plain.avg_pool(x.view(), &options),
        _ => plain.max_pool(x.view(), &options),
    };
    // Dilated windows may lie in padding only, which is an error.
    let Ok(result) = result else { return Ok(()) };
    let (tolerance, shape) = (tolerance(case), result.shape().to_vec());
    let operand = |dtype, layout: &Arrangement| Operand::new(dtype, &shape, layout, Grade::Whole, 1);
    suite.check(
        || match case.kind {
            Kind::Indices => {
                vec![operand(case.dtype, &Arrangement::PLAIN), operand(DType::I64, &Arrangement::PLAIN)]
            }
            _ => vec![operand(case.dtype, &case.output)],
        },
        |rt, out| match case.kind {
            Kind::Max => rt.max_pool_into(x.view(), &options, out[0].view_mut()),
            Kind::Average => rt.avg_pool_into(x.view(), &options, out[0].view_mut()),
            Kind::Indices => {
                let (y, at) = rt.max_pool_with_indices(x.view(), &options)?;
                for (to, from) in out.iter_mut().zip([y, at]) {
                    to.replace(from);
                }
                Ok(())
            }
        },
        |_, _| tolerance,
    )
}

/// Maxima are exact; a mean errs by a rounding for every element of its window, relative to the largest of them.
fn tolerance(case: &Case) -> Tolerance {
    if case.kind != Kind::Average {
        return Tolerance::default();
    }
    let short = case.dtype.size() == 2;
    let epsilon = precision(if short { DType::F32 } else { case.dtype }).0;
    let elements: usize = case.windows.iter().map(|w| w[0]).product();
    Tolerance { ulps: 1.0, absolute: epsilon * 4.0 * (2.0 + (elements as f64).sqrt()) }
}
