//! Attention: causal and not, masks of both kinds, shared heads, any layout.

use proptest::prelude::*;
use shapewise::DType;
use shapewise::ops::OperationKind;
use shapewise::ops::attention::{AttentionOptions, Causality};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::Grade;
use crate::common::layers::ATTENTIONS;
use crate::common::operand::{Arrangement, Operand, arrangement};
use crate::runner::{Suite, each};

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    /// Batch, heads of keys, heads of queries for each of them.
    heads: [usize; 3],
    /// Queries, keys, dim, value dim.
    sizes: [usize; 4],
    causality: Causality,
    scale: Option<f64>,
    /// Boolean or not, and which axes are repeated.
    mask: Option<(bool, [bool; 4])>,
    three: bool,
    grade: Grade,
    layouts: [Arrangement; 5],
    seed: u64,
}

fn lengths() -> impl Strategy<Value = [usize; 4]> {
    let dim = || prop_oneof![1 => Just(0usize), 3 => Just(1), 20 => 2usize..20, 6 => 20usize..70];
    let length = || prop_oneof![1 => Just(0usize), 4 => Just(1), 20 => 2usize..30, 8 => 30usize..150];
    prop_oneof![
        6 => (length(), length(), dim(), dim()),
        2 => (1usize..4, 200usize..700, 1usize..70, 1usize..70),
        1 => (100usize..300, 1usize..10, 1usize..20, 1usize..20),
    ]
    .prop_map(|(m, n, d, e)| [m, n, d, e])
}

fn cases() -> impl Strategy<Value = Case> {
    let grades = [Grade::Ordinary, Grade::Ordinary, Grade::Whole, Grade::Special, Grade::Denormal];
    let causality = [Causality::None, Causality::None, Causality::FromStart, Causality::FromEnd];
    (
        (prop::sample::select(DType::FLOATS), 0usize..3, 1usize..4, 1usize..4, lengths()),
        (prop::sample::select(causality.to_vec()), prop::option::of(0.05f64..1.0), any::<bool>()),
        prop::option::of((any::<bool>(), any::<[bool; 4]>())),
        (prop::sample::select(grades.to_vec()), any::<u64>()),
        [arrangement(), arrangement(), arrangement(), arrangement(), arrangement()],
    )
        .prop_map(
            |((dtype, batch, shared, group, sizes), (causality, scale, three), mask, data, layouts)| {
                let heads = [if three { 1 } else { batch }, shared, group];
                let (grade, seed) = data;
                Case { dtype, heads, sizes, causality, scale, mask, three, grade, layouts, seed }
            },
        )
}

#[test]
fn attention() {
    let mut suite = Suite::new(OperationKind::Attention);
    each(250, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

#[test]
fn blocks_of_language_models() {
    let mut suite = Suite::new(OperationKind::Attention);
    for heads in ATTENTIONS {
        let [m, n] = heads.lengths;
        let case = Case {
            dtype: DType::F32,
            heads: [1, heads.keys, heads.queries / heads.keys],
            sizes: [m, n, heads.dim, heads.dim],
            causality: if heads.causal { Causality::FromEnd } else { Causality::None },
            scale: None,
            mask: None,
            three: false,
            grade: Grade::Ordinary,
            layouts: [Arrangement::PLAIN; 5],
            seed: 7,
        };
        if let Err(why) = check(&mut suite, &case) {
            panic!("{}: {why}", heads.name);
        }
    }
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let [batch, shared, group] = case.heads;
    let [m, n, d, e] = case.sizes;
    let shape = |heads: usize, length: usize, dim: usize| {
        let all = [batch, heads, length, dim];
        all[usize::from(case.three)..].to_vec()
    };
    let operand = |i: usize, dtype: DType, shape: &[usize], grade: Grade| {
        Operand::new(dtype, shape, &case.layouts[i], grade, case.seed.wrapping_add(i as u64))
    };
    let q = operand(0, case.dtype, &shape(shared * group, m, d), case.grade);
    let k = operand(1, case.dtype, &shape(shared, n, d), case.grade);
    let v = operand(2, case.dtype, &shape(shared, n, e), case.grade);
    let mask = case.mask.map(|(boolean, repeated)| {
        let mut sizes = [batch, shared * group, m, n];
        for (size, repeated) in sizes.iter_mut().zip(repeated) {
            *size = if repeated { 1 } else { *size };
        }
        let dtype = if boolean { DType::Bool } else { case.dtype };
        operand(3, dtype, &sizes[usize::from(case.three)..], case.grade)
    });
    let mut options = AttentionOptions::new().causality(case.causality);
    if let Some(scale) = case.scale {
        options = options.scale(scale);
    }
    if let Some(mask) = &mask {
        options = options.mask(mask.view());
    }
    let (tolerance, to) = (tolerance(case), case.layouts[4].writable());
    suite.check(
        || vec![Operand::new(case.dtype, &shape(shared * group, m, e), &to, Grade::Whole, 1)],
        |rt, out| rt.attention_into(q.view(), k.view(), v.view(), &options, out[0].view_mut()),
        |_, _| tolerance,
    )
}

/// How far a kernel may be from the reference, which computes in f64.
///
/// A score errs by √dim roundings of the largest one, a weight by as much relative to itself; a result is a mean of
/// values up to 4, so it errs by that times the values, and by √keys roundings of its own sum.
fn tolerance(case: &Case) -> Tolerance {
    let short = case.dtype.size() == 2;
    let epsilon = precision(if short { DType::F32 } else { case.dtype }).0;
    let [_, n, d, _] = case.sizes.map(|size| size.max(1) as f64);
    let largest = if case.grade == Grade::Whole { 4.0 } else { 2.0 };
    let score = case.scale.unwrap_or(1.0 / d.sqrt()) * largest * largest * d + largest;
    let absolute = epsilon * largest * (16.0 + 2.0 * score + 2.0 * n.sqrt());
    Tolerance { ulps: if short { 1.0 } else { 4.0 }, absolute }
}
