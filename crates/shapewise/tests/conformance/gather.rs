//! Elements picked and put by index.

use proptest::prelude::*;
use shapewise::ops::OperationKind;
use shapewise::ops::scatter::Combine;
use shapewise::{DType, Tensor};

use crate::common::compare::Tolerance;
use crate::common::data::{Grade, Random};
use crate::common::operand::{Arrangement, Operand, arrangement};
use crate::runner::{Suite, each};

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    /// Type of the indices.
    ids: DType,
    shape: Vec<usize>,
    axis: usize,
    /// Indices along the axis.
    count: usize,
    along: bool,
    combine: Combine,
    grade: Grade,
    far: Arrangement,
    near: Arrangement,
    index: Arrangement,
    seed: u64,
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1 => Just(0usize), 4 => Just(1), 30 => 2usize..9, 6 => 9usize..40];
    prop_oneof![
        4 => prop::collection::vec(size, 1..=4)
            .prop_filter("small enough", |s| s.iter().product::<usize>() <= 5_000),
        3 => (1usize..40, prop::sample::select(vec![8usize, 16, 31, 64])).prop_map(|(a, b)| vec![a, b]),
        1 => (1000usize..5000).prop_map(|n| vec![n]),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let combine = [Combine::Set, Combine::Add, Combine::Prod, Combine::Max, Combine::Min];
    let what = (
        prop::sample::select(&DType::ALL[..]),
        prop::sample::select(vec![DType::I32, DType::U32, DType::I64]),
        shapes(),
        0usize..5,
        prop_oneof![1 => Just(0usize), 8 => 1usize..40, 1 => 3000usize..5000],
        any::<bool>(),
        prop::sample::select(combine.to_vec()),
    );
    let how =
        (prop::sample::select(&Grade::ALL[..]), arrangement(), arrangement(), arrangement(), any::<u64>());
    (what, how).prop_map(
        |((dtype, ids, shape, axis, count, along, combine), (grade, far, near, index, seed))| {
            let axis = axis % shape.len();
            let others: usize =
                shape.iter().enumerate().filter(|&(i, _)| i != axis).map(|(_, n)| n).product();
            let count = if shape[axis] == 0 { 0 } else { count.min(20_000 / others.max(1)) };
            Case { dtype, ids, shape, axis, count, along, combine, grade, far, near, index, seed }
        },
    )
}

impl Case {
    /// The shape of what is picked or put.
    fn near_shape(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        shape[self.axis] = self.count;
        shape
    }

    /// Indices from both ends under some layout.
    fn index(&self) -> Operand {
        let shape = if self.along { self.near_shape() } else { vec![self.count] };
        let n = self.shape[self.axis].max(1);
        let mut random = Random::new(self.seed ^ 1);
        let signed = |r: &mut Random| r.below(2 * n) as i64 - n as i64;
        Operand::filled(&shape, &self.index, |span| {
            let all = match self.ids {
                DType::I32 => {
                    Tensor::from_vec((0..span).map(|_| signed(&mut random) as i32).collect(), &[span])
                }
                DType::I64 => Tensor::from_vec((0..span).map(|_| signed(&mut random)).collect(), &[span]),
                _ => Tensor::from_vec((0..span).map(|_| random.below(n) as u32).collect(), &[span]),
            };
            all.unwrap()
        })
    }
}

#[test]
fn gather() {
    let mut suite = Suite::new(OperationKind::Gather);
    each(250, cases(), |case| {
        let x = Operand::new(case.dtype, &case.shape, &case.far, case.grade, case.seed);
        let (index, axis) = (case.index(), case.axis as isize);
        suite.check(
            || vec![Operand::new(case.dtype, &case.near_shape(), &case.near.writable(), Grade::Whole, 1)],
            |rt, out| {
                let out = out[0].view_mut();
                if case.along {
                    rt.gather_into(x.view(), axis, index.view(), out)
                } else {
                    rt.index_select_into(x.view(), axis, index.view(), out)
                }
            },
            |_, _| Tolerance::default(),
        )
    });
    suite.finish();
}

#[test]
fn scatter() {
    let mut suite = Suite::new(OperationKind::Scatter);
    let taken = |case: &Case| match case.dtype {
        DType::I16 => false,
        dtype => !dtype.is_complex() || !matches!(case.combine, Combine::Max | Combine::Min),
    };
    each(250, cases().prop_filter("i16 is not combined, complex numbers have no order", taken), |case| {
        let source = Operand::new(case.dtype, &case.near_shape(), &case.near, case.grade, case.seed);
        let (index, axis) = (case.index(), case.axis as isize);
        suite.check(
            || vec![Operand::new(case.dtype, &case.shape, &case.far.writable(), Grade::Ordinary, 1)],
            |rt, out| {
                let (out, source) = (out[0].view_mut(), source.view());
                if case.along {
                    rt.scatter_in_place(out, axis, index.view(), source, case.combine)
                } else {
                    rt.index_scatter_in_place(out, axis, index.view(), source, case.combine)
                }
            },
            // The same order of the same roundings, but complex products are rounded in their parts.
            |_, _| Tolerance { ulps: if case.dtype.is_complex() { 64.0 } else { 0.0 }, absolute: 0.0 },
        )
    });
    suite.finish();
}
