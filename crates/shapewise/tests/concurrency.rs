//! One runtime, many callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use shapewise::device::DeviceInfo;
use shapewise::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Operation, OperationKind, Parameters, Traffic,
    Variant, Workload,
};
use shapewise::{DType, Runtime, Tensor};

fn runtime(threads: usize) -> Runtime {
    Runtime::builder().threads(threads).without_calibration().build().unwrap()
}

fn counting(n: usize) -> Tensor {
    Tensor::from_vec((0..n).map(|i| (i % 100) as f32).collect(), &[n]).unwrap()
}

/// Several operations on sizes that depend on `seed`; every number is checked.
fn work(rt: &Runtime, seed: usize) {
    let n = [3, 64, 1000, 40_000][seed % 4] + seed % 3;
    let x = counting(n);
    let twice = rt.add(&x, &x).unwrap();
    let doubled = twice.as_slice::<f32>().unwrap();
    assert!(doubled.iter().enumerate().all(|(i, &y)| y == 2.0 * (i % 100) as f32), "add of {n}");
    let total: f64 = (0..n).map(|i| (i % 100) as f64).sum();
    let sum = f64::from(rt.sum(&x, ..).unwrap().item::<f32>().unwrap());
    assert!((sum - total).abs() <= 1e-5 * total, "sum of {n}: {sum} instead of {total}");
    let m = [2, 17, 64][seed % 3];
    let ones = Tensor::full(1.0f32, &[m, m]).unwrap();
    let product = rt.matmul(&ones, &ones).unwrap();
    assert!(product.as_slice::<f32>().unwrap().iter().all(|&y| y == m as f32), "product of {m}×{m} ones");
    let weights = rt.softmax(&ones, 1).unwrap();
    let right = |y: &f32| (y * m as f32 - 1.0).abs() < 1e-5;
    assert!(weights.as_slice::<f32>().unwrap().iter().all(right), "softmax of {m}×{m} ones");
}

#[test]
fn threads_share_a_runtime() {
    let rt = runtime(2);
    std::thread::scope(|scope| {
        for caller in 0..6 {
            let rt = rt.clone();
            scope.spawn(move || (0..60).for_each(|i| work(&rt, caller * 7 + i)));
        }
    });
    assert!(rt.decisions() > 0);
}

#[test]
fn calls_inside_tasks_of_the_pool() {
    for threads in [1, 2, 4] {
        let rt = runtime(threads);
        let done = AtomicUsize::new(0);
        rt.device().threads().run(threads, 20, &|task| {
            work(&rt, task);
            // A task may even start tasks of its own.
            rt.device().threads().run(threads, 3, &|inner| {
                work(&rt, task + inner);
                done.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(done.load(Ordering::Relaxed), 60);
    }
}

#[test]
fn two_runtimes_at_once() {
    let (one, other) = (runtime(2), runtime(3));
    std::thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|i| work(&one, i)));
        scope.spawn(|| (0..50).for_each(|i| work(&other, i)));
    });
}

/// A right kernel for sums of contiguous f32 tensors.
struct Sum;

impl Kernel for Sum {
    fn name(&self) -> &'static str {
        "cpu::elementwise::coming_and_going"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Elementwise
    }

    fn variant(&self) -> Variant {
        Variant::Custom
    }

    fn constraints(&self) -> &[Constraint] {
        const SUM: Constraint = Constraint::Shape(
            "a sum",
            |w: &Workload| matches!(w.operation(), Operation::Elementwise(p) if p.to_string() == "add(x0, x1)"),
        );
        &[Constraint::DTypes(&[DType::F32]), Constraint::Contiguous, SUM]
    }

    fn cost(&self, _: &Workload, _: &Parameters, _: &DeviceInfo) -> Cost {
        Cost::new(1.0, ComputeUnit { dtype: DType::F32, isa: None }, Traffic::default())
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (a, b) = (call.input::<f32>(0)?, call.input::<f32>(1)?);
        for (i, out) in call.output::<f32>(0)?.iter_mut().enumerate() {
            *out = a[i] + b[i];
        }
        Ok(())
    }
}

#[test]
fn kernels_come_and_go_while_others_call() {
    let rt = runtime(2);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..2)
            .map(|c| {
                scope.spawn({
                    let rt = &rt;
                    move || (0..80).for_each(|i| work(rt, c + i))
                })
            })
            .collect();
        let registrar = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                rt.kernels().register(Arc::new(Sum)).unwrap();
                work(&rt, 2);
                rt.kernels().replace(Arc::new(Sum)).unwrap();
                rt.kernels().remove("cpu::elementwise::coming_and_going").unwrap();
            }
        });
        for caller in callers {
            caller.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        registrar.join().unwrap();
    });
    assert_eq!(rt.kernels().quarantined("cpu::elementwise::coming_and_going"), None);
}
