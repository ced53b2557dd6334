//! Every kernel against the reference: kinds, types, layouts, threads; and what users rely on at the edges.

use super::plan::Plan;
use super::*;
use crate::Runtime;
use crate::backends::cpu::Probe;
use crate::backends::cpu::schedule::Schedule;
use crate::device::Device;
use crate::ops::walk::Axis;
use crate::ops::{Kernel, Knob, Operation, Parameters, TensorDesc, Workload};
use crate::tensor::{DType, Layout, Shape, Strides, Tensor, TensorView};
use proptest::prelude::*;

fn runtime() -> Runtime {
    Runtime::builder().threads(2).without_calibration().build().unwrap()
}

fn kinds() -> Vec<ReduceKind> {
    let norms = [0.0, 1.0, 2.0, f64::INFINITY, f64::NEG_INFINITY, 3.0];
    let mut all = vec![
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
    all.extend(norms.map(|p| ReduceKind::Norm(NormOrder::p(p).unwrap())));
    all
}

/// Runs every kernel that takes the workload, at every point of its space, and compares with the reference.
fn check(rt: &Runtime, workload: &Workload) -> usize {
    let device = rt.device();
    let (reference, others) = KERNELS.split_last().unwrap();
    let mut expected = Probe::new(workload, device).unwrap();
    let plain = crate::ops::Parameters::new();
    reference.launch(&mut expected.call(workload, &plain, device)).unwrap();
    let mut ran = 0;
    for kernel in others.iter().filter(|k| k.supports(workload, device.info()).is_ok()) {
        for parameters in kernel.space(workload, device.info()).points() {
            let mut found = Probe::new(workload, device).unwrap();
            kernel.launch(&mut found.call(workload, parameters, device)).unwrap();
            if let Err(difference) = found.same_outputs(&expected, workload) {
                panic!("{} {parameters} on {workload}: {difference}", kernel.name());
            }
            let cost = kernel.cost(workload, parameters, device.info());
            assert!(cost.operations >= 0.0 && cost.traffic.l1 >= 0.0);
            ran += 1;
        }
    }
    ran
}

/// The workload of reducing the last axes of a permuted, stepped input.
fn workload(
    kind: ReduceKind,
    dtype: DType,
    shape: &[usize],
    axes: usize,
    order: &[usize],
    step: isize,
) -> Option<Workload> {
    let whole = Layout::contiguous(Shape::new(shape).unwrap());
    let mut input = whole.permute(order).unwrap();
    input.strides.iter_mut().for_each(|s| *s *= step);
    let kept = shape.len() - axes;
    let out = Shape::new(&input.shape[..kept]).unwrap();
    let to = out.contiguous_strides();
    let axis = |i: usize| Axis {
        size: input.shape[i],
        input: input.strides[i],
        output: to.get(i).copied().unwrap_or(0),
    };
    let (a, b): (Vec<_>, Vec<_>) = ((0..kept).map(axis).collect(), (kept..shape.len()).map(axis).collect());
    let plan = Plan::new(&a, &b, kind.is_ordered());
    let desc = |dtype, layout: Layout| TensorDesc {
        dtype,
        aligned: true,
        shape: layout.shape,
        strides: layout.strides,
    };
    let attributes = ReduceAttributes { kind, axes: plan.reduced.len() as u8 };
    let output = kind.output(dtype)?;
    Some(Workload::new(
        Operation::Reduce(attributes),
        &[desc(dtype, plan.input_layout(0))],
        &[desc(output, plan.output_layout(0))],
    ))
}

#[test]
fn every_kind_and_type_in_both_directions() {
    let rt = runtime();
    let mut ran = 0;
    for kind in kinds() {
        for dtype in DType::ALL {
            for (shape, axes, order) in [
                (&[5, 37][..], 1, &[0, 1][..]),
                (&[37, 5], 1, &[1, 0]),
                (&[3, 70], 2, &[0, 1]),
                (&[4, 3, 35], 2, &[1, 0, 2]),
                (&[3, 130, 5], 1, &[0, 2, 1]),
            ] {
                let Some(w) = workload(kind, dtype, shape, axes, order, 1) else { continue };
                ran += check(&rt, &w);
            }
        }
    }
    assert!(ran > 1000, "only {ran} combinations ran");
}

#[test]
fn long_rows_and_columns_use_every_path() {
    let rt = runtime();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::C32] {
        for kind in
            [ReduceKind::Sum, ReduceKind::Max, ReduceKind::ArgMin, ReduceKind::Variance { correction: 1 }]
        {
            for (shape, axes, order) in [
                (&[30_011][..], 1, &[0][..]),
                (&[9, 5003], 1, &[0, 1]),
                (&[1031, 70], 1, &[1, 0]),
                (&[3, 5000], 1, &[1, 0]),
                (&[2, 3, 9000], 2, &[1, 0, 2]),
            ] {
                if let Some(w) = workload(kind, dtype, shape, axes, order, 1) {
                    check(&rt, &w);
                }
            }
        }
    }
}

#[test]
fn pieces_that_any_thread_may_take_cost_a_hand_over_each() {
    let (rt, kernel) = (runtime(), &super::cpu_kernels::PORTABLE_ROWS);
    let forks = |rows: usize, threads: u32, split: u32, schedule: Schedule| {
        let w = workload(ReduceKind::Sum, DType::F32, &[rows, 1216], 1, &[0, 1], 1).unwrap();
        let parameters = Parameters::new()
            .with(Knob::Threads, threads)
            .with(Knob::Split, split)
            .with(Knob::Schedule, schedule as u32);
        kernel.cost(&w, &parameters, rt.device().info()).forks
    };
    assert_eq!([1, 4, 8].map(|split| forks(67, 2, split, Schedule::Dynamic)), [1, 4, 8]);
    assert_eq!(forks(67, 2, 16, Schedule::Dynamic), 9, "17 pieces of four rows");
    assert_eq!([Schedule::Static, Schedule::Stealing].map(|schedule| forks(67, 2, 16, schedule)), [1, 1]);
    assert_eq!([forks(67, 1, 16, Schedule::Dynamic), forks(2, 2, 16, Schedule::Dynamic)], [0, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]
    #[test]
    fn random_shapes_and_strides(
        sizes in prop::collection::vec(0usize..9, 1..5),
        axes in 0usize..5,
        seed in any::<usize>(),
        step in 1isize..3,
        kind in 0usize..17,
        dtype in 0usize..12,
    ) {
        let kind = kinds()[kind];
        let axes = axes.min(sizes.len());
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        let shift = seed % sizes.len();
        order.rotate_left(shift);
        let w = workload(kind, DType::ALL[dtype], &sizes, axes, &order, step);
        if let Some(w) = w.filter(|w| !w.inputs()[0].is_empty() || kind.accepts_empty()) {
            check(&runtime(), &w);
        }
    }
}

#[test]
fn scans_match_the_reference() {
    let rt = runtime();
    let scans = [ScanKind::Sum, ScanKind::Prod, ScanKind::Max, ScanKind::Min].map(Scan::new);
    let kinds = scans.into_iter().flat_map(|s| [s, s.exclusive()]).map(ReduceKind::Cumulative);
    for (kind, dtype) in kinds.flat_map(|kind| DType::ALL.map(|dtype| (kind, dtype))) {
        let Some(result) = kind.output(dtype) else { continue };
        for (shape, axis) in [(&[7][..], 0), (&[9, 5], 1), (&[5, 300], 0), (&[2, 3, 4], 1), (&[0, 3], 0)] {
            let whole = Layout::contiguous(Shape::new(shape).unwrap());
            let mut order: Vec<usize> = (0..shape.len()).filter(|&a| a != axis).collect();
            order.push(axis);
            let from = whole.permute(&order).unwrap();
            let desc = |dtype| TensorDesc { dtype, aligned: true, shape: from.shape, strides: from.strides };
            let operation = Operation::Reduce(ReduceAttributes { kind, axes: 1 });
            let w = Workload::new(operation, &[desc(dtype)], &[desc(result)]);
            assert!(check(&rt, &w) > 0);
        }
    }
    let x = Tensor::from_vec(vec![1i8, 2, 3, 4], &[2, 2]).unwrap();
    assert_eq!(rt.cumsum(&x, 0).unwrap().to_vec::<i64>().unwrap(), [1, 2, 4, 6]);
    assert_eq!(rt.cumsum(&x, -1).unwrap().to_vec::<i64>().unwrap(), [1, 3, 3, 7]);
    assert!(rt.cumsum(&x, 2).is_err());
    let z = Tensor::zeros(&[2], DType::C64).unwrap();
    assert!(rt.cummax(&z, 0).unwrap_err().to_string().contains("no order"));
}

#[test]
fn scans_start_from_nothing_and_keep_nan() {
    let rt = runtime();
    let x = Tensor::from_vec(vec![3i8, -1, 5, 2], &[4]).unwrap();
    let before = |kind| rt.scan(Scan::new(kind).exclusive(), &x, 0).unwrap();
    assert_eq!(before(ScanKind::Max).to_vec::<i8>().unwrap(), [-128, 3, 3, 5]);
    assert_eq!(before(ScanKind::Min).to_vec::<i8>().unwrap(), [127, 3, -1, -1]);
    assert_eq!(before(ScanKind::Prod).to_vec::<i64>().unwrap(), [1, 3, -3, -15]);
    assert_eq!(rt.cumprod(&x, 0).unwrap().to_vec::<i64>().unwrap(), [3, -3, -15, -30]);
    let y = Tensor::from_vec(vec![1.0f32, f32::NAN, 7.0], &[3]).unwrap();
    let top = rt.cummax(&y, 0).unwrap().to_vec::<f32>().unwrap();
    assert!(top[0] == 1.0 && top[1].is_nan() && top[2].is_nan());
}

#[test]
fn long_rows_are_scanned_in_parts() {
    let n = 200_001;
    let x: Vec<i32> = (0..n).map(|i| i * 7919 % 1000 - 500).collect();
    let sums: Vec<i64> = x
        .iter()
        .scan(0, |sum, &x| {
            *sum += i64::from(x);
            Some(*sum)
        })
        .collect();
    let tops: Vec<i32> =
        x.iter().scan(i32::MIN, |top, &x| Some(std::mem::replace(top, x.max(*top)))).collect();
    let x = Tensor::from_vec(x, &[n as usize]).unwrap();
    for threads in [1, 2, 3] {
        let rt = Runtime::builder().threads(threads).without_calibration().build().unwrap();
        let asked = rt.workloads(|rt| rt.cumsum(&x, 0)).unwrap();
        let kernel = KERNELS.iter().find(|k| k.name() == "cpu::reduce::cumulative").unwrap();
        assert_eq!(kernel.space(&asked[0], rt.device_info()).points().last().unwrap().threads(), threads);
        let rt = rt.with_kernel(kernel.name()).unwrap();
        // Every point of the space gets its turn in the race on these calls.
        for _ in 0..4 {
            assert_eq!(rt.cumsum(&x, 0).unwrap().to_vec::<i64>().unwrap(), sums);
            let top = rt.scan(Scan::new(ScanKind::Max).exclusive(), &x, 0).unwrap();
            assert_eq!(top.to_vec::<i32>().unwrap(), tops);
        }
    }
}

/// Each kernel by name, so that the edges hold for all of them.
fn on_every_kernel(test: impl Fn(&Runtime)) {
    let rt = runtime();
    for kernel in KERNELS {
        test(&rt.with_kernel(kernel.name()).unwrap());
    }
}

#[test]
fn nan_wins_and_the_first_of_equals_counts() {
    let nan = f32::NAN;
    let x = Tensor::from_vec(vec![1.0, 3.0, 3.0, nan, nan, -7.0, -7.0, 0.0, 2.0], &[3, 3]).unwrap();
    on_every_kernel(|rt| {
        let Ok(max) = rt.max(&x, 1) else { return };
        let max = max.to_vec::<f32>().unwrap();
        assert!(max[0] == 3.0 && max[1].is_nan() && max[2] == 2.0);
        assert!(rt.min(&x, 1).unwrap().to_vec::<f32>().unwrap()[1].is_nan());
        assert_eq!(rt.argmax(&x, 1).unwrap().to_vec::<i64>().unwrap(), [1, 0, 2]);
        assert_eq!(rt.argmin(&x, 1).unwrap().to_vec::<i64>().unwrap(), [0, 0, 0]);
        assert_eq!(rt.argmax(&x, ..).unwrap().item::<i64>().unwrap(), 3);
    });
    on_every_kernel(|rt| {
        let Ok(places) = rt.argmax(&x, 0) else { return };
        assert_eq!(places.to_vec::<i64>().unwrap(), [1, 1, 0]);
    });
}

#[test]
fn infinities_and_signs() {
    let inf = f64::INFINITY;
    let x = Tensor::from_vec(vec![inf, 1.0, 2.0, inf, -inf, 0.0], &[2, 3]).unwrap();
    on_every_kernel(|rt| {
        let Ok(sum) = rt.sum(&x, 1) else { return };
        let sum = sum.to_vec::<f64>().unwrap();
        assert!(sum[0] == inf && sum[1].is_nan());
        assert_eq!(rt.max(&x, 1).unwrap().to_vec::<f64>().unwrap(), [inf, inf]);
        assert_eq!(rt.norm(&x, NormOrder::Infinity, 1).unwrap().to_vec::<f64>().unwrap(), [inf, inf]);
    });
}

#[test]
fn empty_axes_have_neutral_results_or_a_clear_error() {
    let rt = runtime();
    let x = Tensor::zeros(&[2, 0], DType::F32).unwrap();
    assert_eq!(rt.sum(&x, 1).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
    assert_eq!(rt.prod(&x, 1).unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
    assert_eq!(rt.any(&x, 1).unwrap().to_vec::<bool>().unwrap(), [false, false]);
    assert_eq!(rt.all(&x, 1).unwrap().to_vec::<bool>().unwrap(), [true, true]);
    assert!(rt.mean(&x, 1).unwrap().to_vec::<f32>().unwrap().iter().all(|m| m.is_nan()));
    assert!(rt.variance(&x, 0, 1).unwrap().to_vec::<f32>().unwrap().iter().all(|m| m.is_nan()));
    for error in [rt.max(&x, 1), rt.min(&x, ..), rt.argmax(&x, 1), rt.argmin(&x, 1)] {
        assert!(error.unwrap_err().to_string().contains("no elements along the reduced axes"));
    }
    // Nothing is asked for along the kept axes, so nothing is missing.
    assert_eq!(rt.max(&x, 0).unwrap().shape(), [0]);
    let scalar = Tensor::scalar(3.0f32);
    assert_eq!(rt.sum(&scalar, ..).unwrap().item::<f32>().unwrap(), 3.0);
}

#[test]
fn axes_are_checked_and_kept_on_demand() {
    let rt = runtime();
    let x = Tensor::full(1u8, &[2, 3, 4]).unwrap();
    assert_eq!(rt.sum(&x, [0, -1]).unwrap().to_vec::<i64>().unwrap(), [8, 8, 8]);
    assert_eq!(rt.sum(&x, Over::from([0, 2]).keepdims()).unwrap().shape(), [1, 3, 1]);
    assert!(rt.sum(&x, 3).unwrap_err().to_string().contains("axis 3 does not exist"));
    assert!(rt.sum(&x, [1, -2]).unwrap_err().to_string().contains("given twice"));
    let z = Tensor::zeros(&[2], DType::C32).unwrap();
    assert!(rt.max(&z, 0).unwrap_err().to_string().contains("no order"));
    let mut out = Tensor::zeros(&[2], DType::F64).unwrap();
    assert!(rt.sum_into(&x, [1, 2], &mut out).is_err());
    let mut out = Tensor::zeros(&[2], DType::I64).unwrap();
    rt.sum_into(&x, [1, 2], &mut out).unwrap();
    assert_eq!(out.to_vec::<i64>().unwrap(), [12, 12]);
    assert!(rt.sum_into(&x, 0, &mut out).unwrap_err().to_string().contains("the output"));
    assert!(rt.reduce(ReduceKind::Cumulative(Scan::new(ScanKind::Sum)), &x, 0).is_err());
}

#[test]
fn integers_are_exact_and_types_follow_the_documentation() {
    let rt = runtime();
    let big = Tensor::from_vec(vec![i64::MAX, i64::MAX], &[2]).unwrap();
    assert_eq!(rt.mean(&big, ..).unwrap().item::<f64>().unwrap(), i64::MAX as f64);
    assert_eq!(rt.max(&big, ..).unwrap().item::<i64>().unwrap(), i64::MAX);
    let u = Tensor::full(u32::MAX, &[3]).unwrap();
    assert_eq!(rt.sum(&u, ..).unwrap().item::<i64>().unwrap(), 3 * i64::from(u32::MAX));
    let b = Tensor::from_vec(vec![true, false, true], &[3]).unwrap();
    assert_eq!(rt.sum(&b, ..).unwrap().item::<i64>().unwrap(), 2);
    assert_eq!(rt.mean(&b, ..).unwrap().item::<f64>().unwrap(), 2.0 / 3.0);
}

/// The error bound that `cpu_fold` states, on sums whose terms cancel.
#[test]
fn sums_keep_their_error_bound_on_hard_data() {
    let rt = runtime();
    let n = if cfg!(miri) { 5000 } else { 400_000 };
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f64 / 16_777_216.0 - 0.5) * 2f64.powi((state >> 33) as i32 % 24)
    };
    let single: Vec<f32> = (0..n).map(|_| next() as f32).collect();
    let exact: f64 = single.iter().map(|&x| f64::from(x)).sum();
    let size: f64 = single.iter().map(|&x| f64::from(x.abs())).sum();
    let double: Vec<f64> =
        single.iter().map(|&x| f64::from(x) * 1e-3 + 1e9 * f64::from(x.signum())).collect();
    for shape in [[1, n], [n, 1], [n / 8, 8]] {
        for kernel in KERNELS {
            let rt = rt.with_kernel(kernel.name()).unwrap();
            let x = Tensor::from_slice(&single, &shape).unwrap();
            if let Ok(sum) = rt.sum(&x, 0).and_then(|s| rt.sum(&s, 0)) {
                let error = (f64::from(sum.item::<f32>().unwrap()) - exact).abs();
                assert!(error <= 134.0 * 2f64.powi(-24) * size, "{}: {error}", kernel.name());
            }
            if let Ok(sum) = rt.sum(&Tensor::from_slice(&double, &shape).unwrap(), ..) {
                let reference = runtime().with_kernel("cpu::reduce::reference").unwrap();
                let right = reference.sum(&Tensor::from_slice(&double, &shape).unwrap(), ..).unwrap();
                let (sum, right) = (sum.item::<f64>().unwrap(), right.item::<f64>().unwrap());
                let size: f64 = double.iter().map(|x| x.abs()).sum();
                assert!((sum - right).abs() <= 134.0 * 2f64.powi(-53) * size, "{}", kernel.name());
            }
        }
    }
}

#[test]
fn variance_survives_a_large_mean() {
    let n = 10_000;
    let x: Vec<f32> = (0..n).map(|i| 4096.0 + (i % 2) as f32).collect();
    on_every_kernel(|rt| {
        for shape in [[1, n], [n, 1]] {
            let over = isize::from(shape[0] == 1);
            let Ok(v) = rt.variance(&Tensor::from_slice(&x, &shape).unwrap(), 0, over) else { continue };
            assert!((v.item::<f32>().unwrap() - 0.25).abs() < 1e-6, "{}", v.item::<f32>().unwrap());
        }
    });
}

#[test]
fn unaligned_and_reversed_views() {
    let rt = runtime();
    let data: Vec<f32> = (0..103).map(|i| i as f32).collect();
    let view = TensorView::from_slice(&data[3..], &[100]).unwrap();
    assert_eq!(rt.sum(view, ..).unwrap().item::<f32>().unwrap(), data[3..].iter().sum::<f32>());
    let back = view.slice(0, 0, 100, -1).unwrap();
    assert_eq!(rt.argmax(back, ..).unwrap().item::<i64>().unwrap(), 0);
    assert_eq!(rt.sum(back, ..).unwrap().item::<f32>().unwrap(), data[3..].iter().sum::<f32>());
    let wide = TensorView::from_slice(&data[..1], &[1]).unwrap().broadcast_to(&[50, 1]).unwrap();
    assert_eq!(rt.sum(wide, 0).unwrap().to_vec::<f32>().unwrap(), [0.0]);
    let strides = Strides::new(&[2, 7]).unwrap();
    let layout = Layout { shape: Shape::new(&[3, 5]).unwrap(), strides, offset: 4 };
    let odd = TensorView::from_slice_strided(&data, layout).unwrap();
    assert_eq!(rt.sum(odd, 0).unwrap().to_vec::<f32>().unwrap()[1], (11 + 13 + 15) as f32);
}
