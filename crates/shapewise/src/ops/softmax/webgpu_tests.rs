//! Every kernel against the reference: long and short rows, columns, and rows without weights.

use proptest::prelude::*;

use super::*;
use crate::backends::webgpu::testing::{agree, agree_on};
use crate::ops::TensorDesc;
use crate::tensor::{DType, Layout, Shape};

fn workload(log: bool, x: TensorDesc) -> Workload {
    let y = TensorDesc::contiguous(x.dtype, x.shape);
    Workload::new(Operation::Softmax(SoftmaxAttributes { log }), &[x], &[y])
}

fn contiguous(dtype: DType, shape: &[usize]) -> TensorDesc {
    TensorDesc::contiguous(dtype, Shape::new(shape).unwrap())
}

#[test]
fn rows_of_every_length() {
    for log in [false, true] {
        for n in [0, 1, 2, 7, 8, 100, 1000, 1024, 1025, 5000, 40_000] {
            let w = workload(log, contiguous(DType::F32, &[3, n]));
            assert!(agree(WEBGPU_KERNELS, &w) > 0, "{n}");
        }
        assert!(agree(WEBGPU_KERNELS, &workload(log, contiguous(DType::F16, &[5, 33]))) > 0);
    }
}

#[test]
fn columns_and_gaps() {
    let layout = Layout::new(&[3, 4, 50], &[7, 400, 8], 0, 1 << 30).unwrap();
    let x = TensorDesc { dtype: DType::F32, aligned: true, shape: layout.shape, strides: layout.strides };
    for log in [false, true] {
        assert!(agree(WEBGPU_KERNELS, &workload(log, x)) > 0);
    }
}

#[test]
fn infinite_elements_and_large_differences() {
    let spoil = |_: usize, x: &mut [f32]| {
        x[..30].fill(f32::NEG_INFINITY);
        x[31] = f32::NEG_INFINITY;
        x[60] = f32::INFINITY;
        x[95] = f32::NAN;
        x[120] = 500.0;
        x[121] = -500.0;
        x[150..180].iter_mut().for_each(|x| *x += 1e4);
    };
    // Rows of 32 are whole fours.
    for (log, n) in [(false, 30), (false, 32), (true, 30), (true, 32)] {
        assert!(agree_on(WEBGPU_KERNELS, &workload(log, contiguous(DType::F32, &[6, n])), &spoil) > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_shape(rows in 1usize..20, n in 1usize..1500, log: bool) {
        prop_assert!(agree(WEBGPU_KERNELS, &workload(log, contiguous(DType::F32, &[rows, n]))) > 0);
    }
}
