//! Every kernel against the reference, and what users rely on at the edges.

use super::*;
use crate::ops::testing::{agree, runtime};
use crate::ops::{TensorDesc, Workload};
use crate::tensor::{DType, Layout, Shape};
use proptest::prelude::*;

fn workload(log: bool, dtype: DType, shape: &[usize], order: &[usize], step: isize) -> Workload {
    let mut layout = Layout::contiguous(Shape::new(shape).unwrap()).permute(order).unwrap();
    layout.strides.iter_mut().for_each(|s| *s *= step);
    let desc = TensorDesc { dtype, aligned: true, shape: layout.shape, strides: layout.strides };
    Workload::new(Operation::Softmax(SoftmaxAttributes { log }), &[desc], &[desc])
}

#[test]
fn every_type_along_and_across_memory() {
    let rt = runtime();
    let mut ran = 0;
    for &dtype in DType::FLOATS {
        for log in [false, true] {
            for (shape, order) in [
                (&[3, 7][..], &[0, 1][..]),
                (&[9, 100], &[0, 1]),
                (&[2, 5000], &[0, 1]),
                (&[150, 70], &[1, 0]),
                (&[3, 20, 37], &[0, 2, 1]),
                (&[1, 1], &[0, 1]),
                (&[0, 3], &[0, 1]),
                (&[3, 0], &[0, 1]),
            ] {
                ran += agree(&rt, &workload(log, dtype, shape, order, 1));
            }
        }
    }
    assert!(ran > 200, "only {ran} combinations ran");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]
    #[test]
    fn random_shapes_and_strides(
        sizes in prop::collection::vec(1usize..20, 1..4),
        turn in 0usize..4,
        step in 1isize..3,
        log in any::<bool>(),
        dtype in 0usize..4,
    ) {
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.rotate_left(turn % sizes.len());
        agree(&runtime(), &workload(log, DType::FLOATS[dtype], &sizes, &order, step));
    }
}

#[test]
fn infinities_and_nan_follow_scipy() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    // Long enough that the first blocks hold nothing but −∞.
    let mut long = vec![-inf; 5000];
    long[4999] = 1.0;
    long[4998] = 1.0;
    for kernel in KERNELS {
        let rt = runtime().with_kernel(kernel.name()).unwrap();
        let softmax = |values: &[f32]| -> Option<(Vec<f32>, Vec<f32>)> {
            // Both ways, so that the kernels across memory take part.
            let x = TensorView::from_slice(values, &[1, values.len()]).unwrap();
            let twice: Vec<f32> = values.iter().flat_map(|&v| [v, v]).collect();
            let across = TensorView::from_slice(&twice, &[values.len(), 2]).unwrap();
            let (x, axis) = if kernel.name().ends_with("columns") { (across, 0) } else { (x, 1) };
            let take =
                |t: Tensor| t.to_vec::<f32>().unwrap().into_iter().step_by(2 - axis as usize).collect();
            Some((take(rt.softmax(x, axis).ok()?), take(rt.log_softmax(x, axis).ok()?)))
        };
        let Some((weights, logs)) = softmax(&[0.0, -inf, 0.0]) else { continue };
        assert_eq!(weights, [0.5, 0.0, 0.5], "{}", kernel.name());
        assert_eq!(logs[1], -inf);
        for bad in [&[-inf, -inf][..], &[inf, 1.0], &[1.0, nan, 2.0], &[nan]] {
            let (weights, logs) = softmax(bad).unwrap();
            assert!(
                weights.iter().chain(&logs).all(|y| y.is_nan()),
                "{} {bad:?}: {weights:?}",
                kernel.name()
            );
        }
        let (weights, _) = softmax(&long).unwrap();
        assert_eq!((weights[0], weights[4999]), (0.0, 0.5), "{}", kernel.name());
        let (weights, logs) = softmax(&[1e30, 0.0, -1e30]).unwrap();
        assert_eq!(weights, [1.0, 0.0, 0.0]);
        assert_eq!(logs[0], 0.0);
        let (weights, _) = softmax(&[-1000.0, -1001.0]).unwrap();
        assert!((weights[0] - 0.731_058_6).abs() < 1e-6, "{}", kernel.name());
    }
}

#[test]
fn long_rows_with_a_rising_maximum_add_up_to_one() {
    let n = if cfg!(miri) { 4100 } else { 50_257 };
    let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.001).collect();
    let exact: f64 = x.iter().map(|&v| f64::from(v - x[n - 1]).exp()).sum();
    for kernel in KERNELS {
        let rt = runtime().with_kernel(kernel.name()).unwrap();
        let Ok(y) = rt.softmax(TensorView::from_slice(&x, &[1, n]).unwrap(), 1) else { continue };
        let y = y.to_vec::<f32>().unwrap();
        let sum: f64 = y.iter().map(|&y| f64::from(y)).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{}: {sum}", kernel.name());
        assert!((f64::from(y[n - 1]) * exact - 1.0).abs() < 1e-6, "{}", kernel.name());
    }
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let rt = runtime();
    let x = Tensor::zeros(&[2, 3], DType::I32).unwrap();
    assert!(rt.softmax(&x, 0).unwrap_err().to_string().contains("cast to a float"));
    let x = Tensor::zeros(&[2, 3], DType::F32).unwrap();
    assert!(rt.softmax(&x, 2).unwrap_err().to_string().contains("axis 2 does not exist"));
    let mut out = Tensor::zeros(&[3, 2], DType::F32).unwrap();
    assert!(rt.softmax_into(&x, 0, &mut out).unwrap_err().to_string().contains("the output"));
    assert!(rt.softmax(&Tensor::scalar(1.0f32), 0).is_err());
}
