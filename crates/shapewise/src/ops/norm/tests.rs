//! Every kernel against the reference, and what users rely on at the edges.

use super::*;
use crate::ops::testing::{agree, runtime};
use crate::ops::{Operation, TensorDesc, Workload};
use crate::tensor::{DType, Layout, Shape, Tensor};
use proptest::prelude::*;

/// A workload on a permuted input; `axis` is the channels' or the first normalised one.
fn workload(
    kind: NormKind,
    dtype: DType,
    shape: &[usize],
    order: &[usize],
    axis: usize,
    weights: (bool, bool),
) -> Workload {
    let layout = Layout::contiguous(Shape::new(shape).unwrap()).permute(order).unwrap();
    let x = TensorDesc { dtype, aligned: true, shape: layout.shape, strides: layout.strides };
    let last = matches!(kind, NormKind::Layer | NormKind::Rms);
    let n = if last { layout.shape[axis..].iter().product() } else { layout.shape[axis] };
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let weight = |dtype| TensorDesc::contiguous(dtype, Shape::filled(n, 1));
    let mut inputs = vec![x];
    inputs.extend(weights.0.then(|| weight(dtype)));
    inputs.extend(weights.1.then(|| weight(wide)));
    let mut outputs = vec![x];
    match kind {
        // Made-up numbers may be negative, so a large eps keeps the root real.
        NormKind::BatchInference => inputs.extend([weight(wide), weight(dtype)]),
        NormKind::BatchTraining => outputs.extend([weight(wide), weight(wide)]),
        _ => {}
    }
    let attributes = NormAttributes::new(kind, axis as u8, weights.0, weights.1, 1.5);
    Workload::new(Operation::Norm(attributes), &inputs, &outputs)
}

#[test]
fn every_kind_and_type() {
    let rt = runtime();
    let mut ran = 0;
    let group = |groups| NormKind::Group { groups };
    for &dtype in DType::FLOATS {
        for weights in [(false, false), (true, true), (false, true), (true, false)] {
            for (kind, shape, order, axis) in [
                (NormKind::Layer, &[5, 33][..], &[0, 1][..], 1),
                (NormKind::Layer, &[9, 3000], &[0, 1], 1),
                (NormKind::Layer, &[7, 1], &[0, 1], 1),
                (NormKind::Rms, &[6, 129], &[0, 1], 1),
                (NormKind::Rms, &[33, 4], &[1, 0], 1),
                (NormKind::BatchInference, &[3, 5, 37], &[0, 1, 2], 1),
                (NormKind::BatchInference, &[3, 37, 5], &[0, 2, 1], 1),
                (NormKind::BatchInference, &[9, 37], &[0, 1], 1),
                (NormKind::BatchTraining, &[3, 5, 2100], &[0, 1, 2], 1),
                (NormKind::BatchTraining, &[9, 37], &[0, 1], 1),
                (NormKind::BatchTraining, &[4, 9, 3], &[0, 2, 1], 1),
                (group(2), &[3, 6, 17], &[0, 1, 2], 1),
                (group(6), &[3, 6, 17], &[0, 1, 2], 1),
                (group(1), &[2, 4, 2100], &[0, 1, 2], 1),
                (group(2), &[2, 7, 4], &[0, 2, 1], 1),
                (NormKind::Layer, &[0, 3], &[0, 1], 1),
            ] {
                ran += agree(&rt, &workload(kind, dtype, shape, order, axis, weights));
            }
        }
    }
    assert!(ran > 500, "only {ran} combinations ran");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]
    #[test]
    fn random_shapes(
        sizes in prop::collection::vec(1usize..20, 2..4),
        turn in 0usize..4,
        kind in 0usize..5,
        dtype in 0usize..4,
        weights in any::<(bool, bool)>(),
    ) {
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.rotate_left(turn % sizes.len());
        let groups = sizes[order[1]] as u32;
        let kind = [NormKind::Layer, NormKind::Rms, NormKind::BatchInference, NormKind::BatchTraining,
            NormKind::Group { groups }][kind];
        agree(&runtime(), &workload(kind, DType::FLOATS[dtype], &sizes, &order, 1, weights));
    }
}

fn close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert!((a - b).abs() <= 2e-5 * b.abs().max(1.0), "{a} is not {b}");
    }
}

#[test]
fn the_calls_compute_what_they_say() {
    let rt = runtime();
    let x: Vec<f32> = (0..2 * 4 * 3).map(|i| (i * i % 17) as f32).collect();
    let t = Tensor::from_slice(&x, &[2, 4, 3]).unwrap();
    let scale = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[4]).unwrap();
    let bias = Tensor::from_vec(vec![0.5f32, 0.0, -1.0, 2.0], &[4]).unwrap();
    let options = NormOptions::new().scale(&scale).bias(&bias);
    let trained = rt.batch_norm_training(&t, &options).unwrap();
    assert_eq!(trained.count, 6);
    let inferred = rt.batch_norm(&t, &trained.mean, &trained.variance, &options).unwrap();
    close(&trained.output.to_vec::<f32>().unwrap(), &inferred.to_vec::<f32>().unwrap());
    let of_channel: Vec<f32> = [0, 1, 2, 12, 13, 14].map(|i| x[i]).to_vec();
    let mean = of_channel.iter().sum::<f32>() / 6.0;
    close(&trained.mean.to_vec::<f32>().unwrap()[..1], &[mean]);
    // Channels last is the same computation on other strides.
    let last = t.permute(&[0, 2, 1]).unwrap();
    let other = rt.batch_norm(&last, &trained.mean, &trained.variance, &options.channel_axis(-1)).unwrap();
    close(&other.permute(&[0, 2, 1]).unwrap().to_vec::<f32>().unwrap(), &inferred.to_vec::<f32>().unwrap());
    // One group is layer norm over everything but the sample.
    let grouped = rt.group_norm(&t, 1, &NormOptions::new()).unwrap().to_vec::<f32>().unwrap();
    close(&grouped, &rt.layer_norm(&t, 2, &NormOptions::new()).unwrap().to_vec::<f32>().unwrap());
    // As many groups as channels: each channel of each sample by itself.
    let each = rt.group_norm(&t, 4, &NormOptions::new()).unwrap().to_vec::<f32>().unwrap();
    close(&each, &rt.layer_norm(&t, 1, &NormOptions::new()).unwrap().to_vec::<f32>().unwrap());
    let rms = rt.rms_norm(&t, 1, &NormOptions::new().eps(0.0)).unwrap().to_vec::<f32>().unwrap();
    let square: f32 = rms[3..6].iter().map(|y| y * y).sum();
    assert!((square - 3.0).abs() < 1e-5);
}

#[test]
fn running_statistics_move_towards_the_batch() {
    let rt = runtime();
    let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[4, 1]).unwrap();
    let batch = rt.batch_norm_training(&x, &NormOptions::new()).unwrap();
    let (mut mean, mut variance) = (Tensor::full(0.0f32, &[1]).unwrap(), Tensor::full(1.0f32, &[1]).unwrap());
    batch.update_running(&mut mean, &mut variance, 0.1).unwrap();
    close(&mean.to_vec::<f32>().unwrap(), &[0.25]);
    close(&variance.to_vec::<f32>().unwrap(), &[0.9 + 0.1 * 5.0 / 3.0]);
    assert!(batch.update_running(&mut mean, &mut variance, 2.0).is_err());
    let mut short = Tensor::full(0.0f32, &[2]).unwrap();
    assert!(batch.update_running(&mut short, &mut variance, 0.5).is_err());
}

#[test]
fn layer_norm_survives_a_large_mean() {
    let x: Vec<f32> = (0..3000).map(|i| 10_000.0 + (i % 2) as f32).collect();
    for kernel in KERNELS {
        let rt = runtime().with_kernel(kernel.name()).unwrap();
        let t = Tensor::from_slice(&x, &[1, 3000]).unwrap();
        let Ok(y) = rt.layer_norm(&t, 1, &NormOptions::new().eps(0.0)) else { continue };
        let y = y.to_vec::<f32>().unwrap();
        assert!(
            (y[0] + 1.0).abs() < 1e-2 && (y[1] - 1.0).abs() < 1e-2,
            "{}: {} {}",
            kernel.name(),
            y[0],
            y[1]
        );
    }
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let rt = runtime();
    let x = Tensor::zeros(&[2, 6, 4], DType::F32).unwrap();
    let text = |r: crate::Result<Tensor>| r.unwrap_err().to_string();
    assert!(text(rt.group_norm(&x, 4, &NormOptions::new())).contains("do not fall into 4 equal groups"));
    assert!(text(rt.group_norm(&x, 0, &NormOptions::new())).contains("0 equal groups"));
    assert!(text(rt.layer_norm(&x, 1, &NormOptions::new().eps(-1.0))).contains("eps is -1"));
    assert!(text(rt.layer_norm(&x, 1, &NormOptions::new().eps(f64::NAN))).contains("eps is NaN"));
    assert!(text(rt.layer_norm(&x, 4, &NormOptions::new())).contains("last 4 of 3 axes"));
    let short = Tensor::zeros(&[3], DType::F32).unwrap();
    assert!(text(rt.layer_norm(&x, 1, &NormOptions::new().scale(&short))).contains("have shape 4 here"));
    assert!(text(rt.batch_norm(&x, &short, &short, &NormOptions::new())).contains("have shape 6 here"));
    let ints = Tensor::zeros(&[2, 3], DType::I32).unwrap();
    assert!(text(rt.rms_norm(&ints, 1, &NormOptions::new())).contains("cast to a float"));
    assert!(text(rt.group_norm(&x, 2, &NormOptions::new().channel_axis(5))).contains("axis 5"));
    let empty = Tensor::zeros(&[0, 3], DType::F32).unwrap();
    assert!(rt.batch_norm_training(&empty, &NormOptions::new()).is_err());
    assert_eq!(rt.layer_norm(&empty, 1, &NormOptions::new()).unwrap().shape(), [0, 3]);
}
