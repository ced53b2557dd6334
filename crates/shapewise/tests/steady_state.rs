//! After the first calls, an operation with a given output allocates nothing: not from the system, not from the heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use shapewise::ops::Activation;
use shapewise::ops::elementwise::Program;
use shapewise::ops::matmul::Fused;
use shapewise::ops::norm::NormOptions;
use shapewise::ops::reduce::ReduceKind;
use shapewise::{DType, Result, Runtime, Tensor};

/// The system's allocator, counted.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(start, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Runs a call often and counts what it allocates once it is warm.
fn allocates_nothing(rt: &Runtime, name: &str, mut call: impl FnMut() -> Result<()>) {
    for _ in 0..4 {
        call().unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let pool = || rt.device().memory().stats().allocations;
    let (heap_before, pool_before) = (ALLOCATIONS.load(Ordering::SeqCst), pool());
    for _ in 0..50 {
        call().unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let (heap_after, pool_after) = (ALLOCATIONS.load(Ordering::SeqCst), pool());
    assert_eq!(heap_after - heap_before, 0, "{name} allocates from the heap");
    assert_eq!(pool_after - pool_before, 0, "{name} allocates from the system");
}

fn filled(shape: &[usize]) -> Tensor {
    Tensor::full(0.5f32, shape).unwrap()
}

fn elementwise(rt: &Runtime, n: usize) {
    let (a, b, mut out) = (filled(&[n]), filled(&[n]), filled(&[n]));
    allocates_nothing(rt, &format!("add {n}"), || rt.add_into(&a, &b, &mut out));
    allocates_nothing(rt, &format!("exp {n}"), || rt.exp_into(&a, &mut out));
    let fused = Program::build(3, |x| (x[0] * x[1] + x[2]).relu()).unwrap();
    allocates_nothing(rt, &format!("fused {n}"), || {
        rt.elementwise_into(&fused, &[a.view(), b.view(), a.view()], &mut out)
    });
    allocates_nothing(rt, &format!("in place {n}"), || rt.relu_in_place(&mut out));
}

fn reductions(rt: &Runtime, rows: usize, columns: usize) {
    let x = filled(&[rows, columns]);
    let (mut all, mut by_row, mut by_column) = (filled(&[]), filled(&[rows]), filled(&[columns]));
    for kind in [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Mean] {
        let name = format!("{kind} {rows}×{columns}");
        allocates_nothing(rt, &name, || rt.reduce_into(kind, &x, .., &mut all));
        allocates_nothing(rt, &name, || rt.reduce_into(kind, &x, 1, &mut by_row));
        allocates_nothing(rt, &name, || rt.reduce_into(kind, &x, 0, &mut by_column));
    }
    let mut places = Tensor::zeros(&[rows], DType::I64).unwrap();
    allocates_nothing(rt, "argmax", || rt.argmax_into(&x, 1, &mut places));
    let mut sums = filled(&[rows, columns]);
    allocates_nothing(rt, "cumsum", || rt.cumsum_into(&x, 1, &mut sums));
}

fn products(rt: &Runtime, m: usize, k: usize, n: usize) {
    let (a, b, bias, mut out) = (filled(&[m, k]), filled(&[k, n]), filled(&[n]), filled(&[m, n]));
    allocates_nothing(rt, &format!("matmul {m}×{k}×{n}"), || rt.matmul_into(&a, &b, &mut out));
    let fused = Fused::new().bias(&bias).activation(Activation::Relu);
    allocates_nothing(rt, &format!("fused matmul {m}×{k}×{n}"), || {
        rt.matmul_fused_into(&a, &b, fused, &mut out)
    });
    let packed = rt.pack_rhs(&b).unwrap();
    allocates_nothing(rt, &format!("packed matmul {m}×{k}×{n}"), || {
        rt.matmul_packed_into(&a, &packed, fused, &mut out)
    });
    let mut half = Tensor::zeros(&[m, n], DType::BF16).unwrap();
    let (a, b) = (rt.cast(&a, DType::BF16).unwrap(), rt.cast(&b, DType::BF16).unwrap());
    allocates_nothing(rt, &format!("bf16 matmul {m}×{k}×{n}"), || rt.matmul_into(&a, &b, &mut half));
}

fn normalisations(rt: &Runtime, rows: usize, columns: usize) {
    let (x, mut out) = (filled(&[rows, columns]), filled(&[rows, columns]));
    for axis in [0, 1] {
        allocates_nothing(rt, "softmax", || rt.softmax_into(&x, axis, &mut out));
        allocates_nothing(rt, "log-softmax", || rt.log_softmax_into(&x, axis, &mut out));
    }
    let (scale, mean) = (filled(&[columns]), filled(&[columns]));
    let options = NormOptions::new().scale(&scale);
    allocates_nothing(rt, "layer norm", || rt.layer_norm_into(&x, 1, &options, &mut out));
    allocates_nothing(rt, "rms norm", || rt.rms_norm_into(&x, 1, &options, &mut out));
    allocates_nothing(rt, "batch norm", || rt.batch_norm_into(&x, &mean, &scale, &options, &mut out));
    allocates_nothing(rt, "group norm", || rt.group_norm_into(&x, 1, &options, &mut out));
}

// One test, because the counter counts for the whole process.
#[test]
fn warm_calls_allocate_nothing() {
    let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
    // Starting a thread allocates: wait until both are there.
    let both = Barrier::new(2);
    rt.device().threads().run(2, 2, &|_| {
        both.wait();
    });
    for n in [7, 1000, 300_000] {
        elementwise(&rt, n);
    }
    for (rows, columns) in [(3, 5), (40, 300), (600, 500)] {
        reductions(&rt, rows, columns);
        normalisations(&rt, rows, columns);
    }
    for (m, k, n) in [(4, 4, 4), (1, 300, 200), (200, 300, 1), (130, 70, 90), (300, 300, 300), (8, 2000, 64)]
    {
        products(&rt, m, k, n);
    }
}
