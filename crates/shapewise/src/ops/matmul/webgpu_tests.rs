//! Every kernel at every point against the reference.

use proptest::prelude::*;

use super::*;
use crate::backends::webgpu::testing::{agree, agree_on};
use crate::ops::TensorDesc;
use crate::tensor::{Layout, Shape};

fn matrix(dtype: DType, shape: &[usize]) -> TensorDesc {
    TensorDesc::contiguous(dtype, Shape::new(shape).unwrap())
}

fn workload(dtype: DType, m: usize, k: usize, n: usize, attributes: MatmulAttributes) -> Workload {
    let mut inputs = vec![matrix(dtype, &[m, k]), matrix(dtype, &[k, n])];
    if attributes.bias {
        inputs.push(matrix(dtype, &[n]));
    }
    Workload::new(Operation::Matmul(attributes), &inputs, &[matrix(dtype, &[m, n])])
}

fn strided(shape: &[usize], strides: &[isize]) -> TensorDesc {
    let layout = Layout::new(shape, strides, 0, 1 << 30).unwrap();
    TensorDesc { dtype: DType::F32, aligned: true, shape: layout.shape, strides: layout.strides }
}

const PLAIN: MatmulAttributes = MatmulAttributes { bias: false, activation: Activation::None };

#[test]
fn shapes_of_every_kind() {
    let shapes = [
        (1, 1, 1),
        (3, 5, 7),
        (1, 64, 33),
        (16, 16, 16),
        (17, 70, 1),
        (33, 3, 65),
        (0, 4, 4),
        (4, 0, 5),
        (64, 128, 64),
        // Eight columns a load, and fewer of them than a workgroup takes.
        (1, 200, 72),
        (6, 64, 8),
    ];
    for (m, k, n) in shapes {
        assert!(agree(WEBGPU_KERNELS, &workload(DType::F32, m, k, n, PLAIN)) > 0, "{m} {k} {n}");
    }
}

#[test]
fn large_and_longer_than_a_loop_may_be() {
    assert!(agree(WEBGPU_KERNELS, &workload(DType::F32, 130, 257, 140, PLAIN)) > 0);
    let long = workload(DType::F32, 2, 70_000, 3, PLAIN);
    let limits = crate::backends::webgpu::testing::limits();
    assert!(naive::NAIVE.supports(&long, limits).unwrap_err().to_string().contains("65000"));
    assert!(agree(WEBGPU_KERNELS, &long) > 0);
}

#[test]
fn bias_and_every_activation() {
    let slope = Activation::LeakyRelu { slope: 0.25 };
    for activation in
        [Activation::Relu, slope, Activation::Gelu, Activation::Silu, Activation::Tanh, Activation::Sigmoid]
    {
        let attributes = MatmulAttributes { bias: true, activation };
        assert!(agree(WEBGPU_KERNELS, &workload(DType::F32, 9, 68, 20, attributes)) > 0);
    }
}

#[test]
fn half_precision() {
    let attributes = MatmulAttributes { bias: true, activation: Activation::Relu };
    assert!(agree(WEBGPU_KERNELS, &workload(DType::F16, 9, 68, 20, attributes)) > 0);
    assert!(agree(WEBGPU_KERNELS, &workload(DType::F16, 5, 7, 3, PLAIN)) > 0);
}

#[test]
fn transposed_and_strided() {
    let c = matrix(DType::F32, &[12, 20]);
    let turned = [strided(&[12, 64], &[1, 12]), strided(&[64, 20], &[1, 64])];
    assert!(agree(WEBGPU_KERNELS, &Workload::new(Operation::Matmul(PLAIN), &turned, &[c])) > 0);
    let gaps = [strided(&[12, 64], &[70, 1]), strided(&[64, 20], &[50, 2])];
    let columns = strided(&[12, 20], &[1, 13]);
    assert!(agree(WEBGPU_KERNELS, &Workload::new(Operation::Matmul(PLAIN), &gaps, &[columns])) > 0);
}

#[test]
fn batches_and_broadcasts() {
    let c = matrix(DType::F32, &[3, 2, 6, 8]);
    let b = strided(&[3, 2, 64, 8], &[0, 512, 8, 1]);
    let a = matrix(DType::F32, &[3, 2, 6, 64]);
    assert!(agree(WEBGPU_KERNELS, &Workload::new(Operation::Matmul(PLAIN), &[a, b], &[c])) > 0);
    let shared = strided(&[3, 2, 64, 8], &[0, 0, 8, 1]);
    assert!(agree(WEBGPU_KERNELS, &Workload::new(Operation::Matmul(PLAIN), &[a, shared], &[c])) > 0);
}

#[test]
fn not_a_number_and_infinity_come_through() {
    let w = workload(DType::F32, 9, 64, 8, PLAIN);
    let spoil = |operand: usize, x: &mut [f32]| {
        x[3] = if operand == 0 { f32::NAN } else { f32::INFINITY };
    };
    assert!(agree_on(WEBGPU_KERNELS, &w, &spoil) > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_shape(m in 1usize..40, k in 1usize..90, n in 1usize..40, bias: bool) {
        let attributes = MatmulAttributes { bias, activation: Activation::None };
        prop_assert!(agree(WEBGPU_KERNELS, &workload(DType::F32, m, k, n, attributes)) > 0);
    }
}
