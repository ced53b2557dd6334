//! Every kind against the reference.

use proptest::prelude::*;

use super::*;
use crate::backends::webgpu::testing::{agree, every_knob_counts, limits};
use crate::ops::TensorDesc;
use crate::tensor::{Layout, Shape};

/// A norm of a tensor whose axes lie in memory in this order.
fn workload(
    kind: NormKind,
    dtype: DType,
    shape: &[usize],
    order: &[usize],
    weights: (bool, bool),
) -> Workload {
    let memory: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
    let inner = Layout::contiguous(Shape::new(&memory).unwrap());
    let mut strides = vec![0; shape.len()];
    for (place, &axis) in order.iter().enumerate() {
        strides[axis] = inner.strides[place];
    }
    let layout = Layout::new(shape, &strides, 0, 1 << 30).unwrap();
    let x = TensorDesc { dtype, aligned: true, shape: layout.shape, strides: layout.strides };
    let width =
        if matches!(kind, NormKind::Layer | NormKind::Rms) { shape[1..].iter().product() } else { shape[1] };
    let weight = TensorDesc::contiguous(DType::F32, Shape::new(&[width]).unwrap());
    let mut inputs = vec![x];
    inputs.extend(weights.0.then_some(weight));
    inputs.extend(weights.1.then_some(weight));
    let mut outputs = vec![TensorDesc::contiguous(dtype, layout.shape)];
    match kind {
        NormKind::BatchInference => inputs.extend([weight, weight]),
        NormKind::BatchTraining => outputs.extend([weight, weight]),
        _ => {}
    }
    Workload::new(Operation::Norm(NormAttributes::new(kind, 1, weights.0, weights.1, 1.5)), &inputs, &outputs)
}

#[test]
fn every_kind_layout_and_weight() {
    let group = |groups| NormKind::Group { groups };
    for weights in [(false, false), (true, true), (false, true)] {
        for (kind, shape, order) in [
            (NormKind::Layer, &[5, 33][..], &[0, 1][..]),
            (NormKind::Layer, &[3, 3000], &[0, 1]),
            (NormKind::Rms, &[6, 129], &[0, 1]),
            (NormKind::Rms, &[33, 4], &[1, 0]),
            (NormKind::BatchInference, &[3, 5, 37], &[0, 1, 2]),
            (NormKind::BatchInference, &[3, 37, 5], &[0, 2, 1]),
            (NormKind::BatchTraining, &[3, 5, 210], &[0, 1, 2]),
            (NormKind::BatchTraining, &[4, 9, 3], &[0, 2, 1]),
            (group(2), &[3, 6, 17], &[0, 1, 2]),
            (group(6), &[3, 6, 17], &[0, 1, 2]),
            (group(1), &[2, 4, 210], &[0, 1, 2]),
            (NormKind::Layer, &[0, 3], &[0, 1]),
            (NormKind::Layer, &[1, 1], &[0, 1]),
        ] {
            let w = workload(kind, DType::F32, shape, order, weights);
            assert!(agree(WEBGPU_KERNELS, &w) > 0, "{kind:?} {shape:?}");
        }
    }
    assert!(
        agree(WEBGPU_KERNELS, &workload(NormKind::Layer, DType::F16, &[4, 20], &[0, 1], (true, true))) > 0
    );
}

#[test]
fn four_at_a_time_where_neighbours_lie_together() {
    let group = |groups| NormKind::Group { groups };
    for weights in [(true, true), (false, false)] {
        for (kind, shape, order) in [
            (NormKind::Layer, &[5, 36][..], &[0, 1][..]),
            (NormKind::Rms, &[3, 400], &[0, 1]),
            (NormKind::BatchInference, &[3, 5, 12], &[0, 1, 2]),
            (NormKind::BatchTraining, &[3, 5, 20], &[0, 1, 2]),
            (group(2), &[3, 6, 8], &[0, 1, 2]),
        ] {
            let w = workload(kind, DType::F32, shape, order, weights);
            for kernel in WEBGPU_KERNELS.iter().filter(|k| k.supports(&w, limits()).is_ok()) {
                every_knob_counts(*kernel, &w, &[Knob::Vector, Knob::WorkgroupX]);
            }
            assert!(agree(WEBGPU_KERNELS, &w) > 0, "{kind:?} {shape:?}");
        }
    }
    // Elements of a group are neighbours, but two of the four may have different weights; transposed ones are no neighbours at all.
    for (kind, shape, order) in
        [(group(2), &[3, 8, 3][..], &[0, 1, 2][..]), (NormKind::Layer, &[8, 4], &[1, 0])]
    {
        let w = workload(kind, DType::F32, shape, order, (true, true));
        assert!(!Geometry::of(&w).by_four(), "{kind:?}");
    }
    assert!(
        agree(WEBGPU_KERNELS, &workload(NormKind::Layer, DType::F16, &[4, 24], &[0, 1], (true, false))) > 0
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_shape(a in 1usize..9, b in 1usize..20, c in 1usize..30, kind in 0usize..5, weights: (bool, bool)) {
        let groups = b as u32;
        let kind = [NormKind::Layer, NormKind::Rms, NormKind::BatchInference, NormKind::BatchTraining, NormKind::Group { groups }][kind];
        prop_assert!(agree(WEBGPU_KERNELS, &workload(kind, DType::F32, &[a, b, c], &[0, 1, 2], weights)) > 0);
    }
}
