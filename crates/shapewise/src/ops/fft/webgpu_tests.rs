//! Transforms of every kind and length against the reference.

use proptest::prelude::*;

use super::*;
use crate::backends::webgpu::testing::{agree, every_knob_counts};
use crate::ops::TensorDesc;
use crate::ops::fft::{FftNorm, Rigor};
use crate::tensor::{Layout, Shape};

fn workload(kind: FftKind, shape: &[usize], axes: u8, norm: FftNorm) -> Workload {
    let mut half = shape.to_vec();
    let last = half.len() - 1;
    half[last] = half[last] / 2 + 1;
    let desc = |dtype, shape: &[usize]| TensorDesc::contiguous(dtype, Shape::new(shape).unwrap());
    let (x, y) = match kind {
        FftKind::RealForward => (desc(DType::F32, shape), desc(DType::C32, &half)),
        FftKind::RealInverse => (desc(DType::C32, &half), desc(DType::F32, shape)),
        _ => (desc(DType::C32, shape), desc(DType::C32, shape)),
    };
    let attributes = FftAttributes { kind, axes, norm, rigor: Rigor::Estimate };
    Workload::new(Operation::Fft(attributes), &[x], &[y])
}

const KINDS: [FftKind; 4] = [FftKind::Forward, FftKind::Inverse, FftKind::RealForward, FftKind::RealInverse];

#[test]
fn lengths_of_every_kind() {
    for kind in KINDS {
        for n in [1, 2, 3, 4, 8, 12, 13, 16, 17, 30, 64, 97, 100, 210, 1024, 1155] {
            let w = workload(kind, &[3, n], 1, FftNorm::Backward);
            assert!(agree(WEBGPU_KERNELS, &w) > 0, "{kind:?} {n}");
        }
    }
}

#[test]
fn several_axes_norms_and_gaps() {
    for kind in KINDS {
        for norm in [FftNorm::Ortho, FftNorm::Forward] {
            assert!(agree(WEBGPU_KERNELS, &workload(kind, &[2, 6, 10], 2, norm)) > 0);
        }
        assert!(agree(WEBGPU_KERNELS, &workload(kind, &[4, 17, 9], 3, FftNorm::Backward)) > 0);
    }
    let layout = Layout::new(&[5, 12], &[2, 11], 0, 1 << 20).unwrap();
    let x = TensorDesc { dtype: DType::C32, aligned: true, shape: layout.shape, strides: layout.strides };
    let w = workload(FftKind::Forward, &[5, 12], 1, FftNorm::Backward);
    let strided = Workload::new(*w.operation(), &[x], w.outputs());
    assert!(agree(WEBGPU_KERNELS, &strided) > 0);
}

#[test]
fn every_tunable_counts() {
    let w = workload(FftKind::Forward, &[3, 64], 1, FftNorm::Backward);
    for kernel in WEBGPU_KERNELS {
        every_knob_counts(*kernel, &w, &[Knob::Radix, Knob::WorkgroupX]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_length(n in 1usize..600, rows in 1usize..4, kind in 0usize..4) {
        prop_assert!(agree(WEBGPU_KERNELS, &workload(KINDS[kind], &[rows, n], 1, FftNorm::Backward)) > 0);
    }
}
