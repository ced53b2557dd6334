//! The product with a right operand that was packed beforehand.

use proptest::prelude::*;
use shapewise::backends::cpu::simd::Isa;
use shapewise::ops::matmul::Fused;
use shapewise::ops::{Activation, OperationKind};
use shapewise::{DType, Runtime};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::Grade;
use crate::common::operand::{Arrangement, Operand, arrangement};
use crate::runner::{Suite, each};

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    stored: DType,
    /// Axes of the left operand before the last.
    leading: Vec<usize>,
    k: usize,
    n: usize,
    bias: bool,
    relu: bool,
    grade: Grade,
    inputs: [Arrangement; 2],
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let types = prop_oneof![
        3 => Just((DType::F32, DType::F32)),
        1 => Just((DType::F32, DType::BF16)),
        1 => Just((DType::F32, DType::F16)),
        1 => Just((DType::F64, DType::F64)),
        1 => Just((DType::F16, DType::F16)),
        1 => Just((DType::BF16, DType::BF16)),
    ];
    let sizes = prop_oneof![
        2 => (0usize..10, 0usize..10),
        3 => (1usize..60, 1usize..60),
        1 => (90usize..600, 1usize..40),
        1 => (1usize..40, 90usize..400),
    ];
    let leading = prop_oneof![
        1 => Just(vec![]),
        4 => (0usize..20).prop_map(|m| vec![m]),
        1 => (1usize..4, 1usize..9).prop_map(|(a, b)| vec![a, b]),
    ];
    let grade = prop_oneof![3 => Just(Grade::Ordinary), 1 => Just(Grade::Whole), 1 => Just(Grade::Special)];
    (types, sizes, leading, any::<(bool, bool)>(), grade, [arrangement(), arrangement()], any::<u64>())
        .prop_map(|((dtype, stored), (k, n), leading, (bias, relu), grade, inputs, seed)| Case {
            dtype,
            stored,
            leading,
            k,
            n,
            bias,
            relu,
            grade,
            inputs,
            seed,
        })
}

#[test]
fn packed_products() {
    let mut suite = Suite::new(OperationKind::PackedMatmul);
    let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
    each(150, cases(), |case| check(&rt, &mut suite, &case));
    // Panels are made for the best instructions there are; the kernels of the others refuse them.
    suite.finish_where(|name| name.contains(Isa::best().name()) || name.ends_with("reference"));
}

fn check(rt: &Runtime, suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let shape = |last: usize| [&case.leading[..], &[last]].concat();
    let a = Operand::new(case.dtype, &shape(case.k), &case.inputs[0], case.grade, case.seed);
    let b = Operand::new(case.dtype, &[case.k, case.n], &case.inputs[1], Grade::Ordinary, case.seed ^ 1);
    let bias = Operand::new(case.dtype, &[case.n], &Arrangement::PLAIN, Grade::Ordinary, case.seed ^ 2);
    let packed = rt.pack_rhs_as(b.view(), case.stored).map_err(|e| TestCaseError::fail(e.to_string()))?;
    let mut fused = Fused::new();
    if case.bias {
        fused = fused.bias(bias.view());
    }
    if case.relu {
        fused = fused.activation(Activation::Relu);
    }
    let tolerance = tolerance(case);
    suite.check(
        || vec![Operand::new(case.dtype, &shape(case.n), &Arrangement::PLAIN, Grade::Whole, 1)],
        |rt, out| rt.matmul_packed_into(a.view(), &packed, fused, out[0].view_mut()),
        |_, _| tolerance,
    )
}

/// k terms of at most 8, in about √k roundings of their sum; 16-bit types are added in f32 and rounded once.
fn tolerance(case: &Case) -> Tolerance {
    let short = case.dtype.size() == 2;
    let epsilon = precision(if short { DType::F32 } else { case.dtype }).0;
    let k = case.k as f64;
    Tolerance {
        ulps: if short { 1.0 } else { 0.0 },
        absolute: epsilon * (4.0 + 2.0 * k.sqrt()) * (8.0 * k + 2.0),
    }
}
