//! Every kind over every sort of axes against the reference.

use proptest::prelude::*;

use super::*;
use crate::backends::webgpu::testing::{agree, agree_on};
use crate::ops::TensorDesc;
use crate::ops::reduce::{NormOrder, Scan, ScanKind};
use crate::tensor::{DType, Layout, Shape};

fn kinds() -> Vec<ReduceKind> {
    let mut kinds = vec![
        ReduceKind::Sum,
        ReduceKind::Mean,
        ReduceKind::Prod,
        ReduceKind::Max,
        ReduceKind::Min,
        ReduceKind::ArgMax,
        ReduceKind::ArgMin,
        ReduceKind::Any,
        ReduceKind::All,
        ReduceKind::Variance { correction: 0 },
        ReduceKind::Variance { correction: 1 },
    ];
    for p in [0.0, 1.0, 2.0, 3.0, f64::INFINITY, f64::NEG_INFINITY] {
        kinds.push(ReduceKind::Norm(NormOrder::p(p).unwrap()));
    }
    for kind in [ScanKind::Sum, ScanKind::Prod, ScanKind::Max, ScanKind::Min] {
        kinds.push(ReduceKind::Cumulative(Scan::new(kind)));
        kinds.push(ReduceKind::Cumulative(Scan::new(kind).exclusive()));
    }
    kinds
}

fn workload(kind: ReduceKind, x: TensorDesc, axes: u8) -> Option<Workload> {
    let kept = &x.shape[..x.shape.len() - usize::from(axes)];
    let shape = if matches!(kind, ReduceKind::Cumulative(_)) { x.shape } else { Shape::new(kept).unwrap() };
    let y = TensorDesc::contiguous(kind.output(x.dtype)?, shape);
    Some(Workload::new(Operation::Reduce(ReduceAttributes { kind, axes }), &[x], &[y]))
}

fn contiguous(dtype: DType, shape: &[usize]) -> TensorDesc {
    TensorDesc::contiguous(dtype, Shape::new(shape).unwrap())
}

fn strided(shape: &[usize], strides: &[isize]) -> TensorDesc {
    let layout = Layout::new(shape, strides, 0, 1 << 30).unwrap();
    TensorDesc { dtype: DType::F32, aligned: true, shape: layout.shape, strides: layout.strides }
}

#[test]
fn every_kind_over_rows_and_columns() {
    for kind in kinds() {
        for x in [contiguous(DType::F32, &[5, 12]), strided(&[6, 7], &[1, 6])] {
            assert!(agree(WEBGPU_KERNELS, &workload(kind, x, 1).unwrap()) > 0, "{kind}");
        }
    }
}

#[test]
fn long_rows() {
    for kind in kinds().into_iter().filter(|k| !matches!(k, ReduceKind::Cumulative(_) | ReduceKind::Prod)) {
        for n in [1024, 4099] {
            assert!(
                agree(WEBGPU_KERNELS, &workload(kind, contiguous(DType::F32, &[2, n]), 1).unwrap()) > 0,
                "{kind}"
            );
        }
    }
    let long = workload(ReduceKind::Sum, contiguous(DType::F32, &[300_000]), 1).unwrap();
    assert!(kernels::EACH.supports(&long, crate::backends::webgpu::testing::limits()).is_err());
    assert!(agree(WEBGPU_KERNELS, &long) > 0);
}

#[test]
fn several_axes_ones_and_nothing() {
    let deep = strided(&[2, 3, 4, 5], &[200, 1, 40, 3]);
    for axes in 1..=4 {
        assert!(agree(WEBGPU_KERNELS, &workload(ReduceKind::Sum, deep, axes).unwrap()) > 0);
        assert!(agree(WEBGPU_KERNELS, &workload(ReduceKind::ArgMax, deep, axes).unwrap()) > 0);
    }
    assert!(agree(WEBGPU_KERNELS, &workload(ReduceKind::Sum, strided(&[3, 4], &[0, 0]), 1).unwrap()) > 0);
    for kind in [ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Mean, ReduceKind::All] {
        assert!(agree(WEBGPU_KERNELS, &workload(kind, contiguous(DType::F32, &[3, 0]), 1).unwrap()) > 0);
    }
    agree(WEBGPU_KERNELS, &workload(ReduceKind::Sum, contiguous(DType::F32, &[0, 3]), 1).unwrap());
    agree(WEBGPU_KERNELS, &workload(ReduceKind::Max, contiguous(DType::F32, &[1, 1]), 1).unwrap());
}

#[test]
fn other_types() {
    for dtype in [DType::I32, DType::U32, DType::F16] {
        for kind in kinds()
            .into_iter()
            .filter(|k| fold::accepts(*k, dtype) && !matches!(k, ReduceKind::Cumulative(_)))
        {
            let w = workload(kind, contiguous(dtype, &[3, 1030]), 1).unwrap();
            assert!(agree(WEBGPU_KERNELS, &w) > 0, "{kind} of {dtype}");
        }
    }
}

#[test]
fn not_a_number_infinity_and_far_numbers() {
    for kind in kinds() {
        let w = workload(kind, contiguous(DType::F32, &[4, 20]), 1).unwrap();
        let spoil = |_: usize, x: &mut [f32]| {
            (x[3], x[5], x[25], x[47]) = (f32::NAN, f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
            x[60..].fill(0.5);
        };
        assert!(agree_on(WEBGPU_KERNELS, &w, &spoil) > 0, "{kind}");
    }
    let length = workload(ReduceKind::Norm(NormOrder::Two), contiguous(DType::F32, &[3, 8]), 1).unwrap();
    let far = |_: usize, x: &mut [f32]| {
        x[..8].fill(1e30);
        x[8..16].fill(1e-30);
        x[16..].fill(3.0);
    };
    assert!(agree_on(WEBGPU_KERNELS, &length, &far) > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn any_shape(rows in 1usize..20, n in 1usize..2500, which in 0usize..11) {
        let kind = kinds()[which];
        let w = workload(kind, contiguous(DType::F32, &[rows, n]), 1).unwrap();
        prop_assert!(agree(WEBGPU_KERNELS, &w) > 0);
    }
}
