//! Window after window of any type under any layout, with the places of maxima, on all threads.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::PoolKind;
use super::problem::{Five, Problem, Span, offset};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters, Traffic,
    Variant, Workload,
};
use crate::tensor::{DType, Element};

/// Takes everything.
pub(super) struct Plain;

pub(super) static PLAIN: Plain = Plain;

impl Kernel for Plain {
    fn name(&self) -> &'static str {
        "cpu::pool::plain"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Pool
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_plain.rs", "problem.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let p = Problem::of(workload);
        let dtype = workload.inputs()[0].dtype;
        let elements = p.results() as f64 * p.window_elements() as f64;
        let unit = ComputeUnit { dtype: if dtype == DType::F64 { dtype } else { DType::F32 }, isa: None };
        let traffic = Traffic::pass(elements * dtype.size() as f64, workload.bytes() as f64, &device.caches);
        // A comparison, a selection and the step to the next element.
        Cost::new(3.0 * elements, unit, traffic).split(parameters.threads(), rows(&p).max(1))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.inputs()[0].dtype {
            DType::F32 => launch::<f32>(call),
            DType::F64 => launch::<f64>(call),
            DType::F16 => launch::<f16>(call),
            DType::BF16 => launch::<bf16>(call),
            DType::I8 => launch::<i8>(call),
            DType::U8 => launch::<u8>(call),
            DType::I32 => launch::<i32>(call),
            DType::U32 => launch::<u32>(call),
            DType::I64 => launch::<i64>(call),
            other => return Err(KernelError(format!("pooling is not defined for {other}").into())),
        }
        Ok(())
    }
}

/// An element that can be compared and, if it is a float, summed.
trait Pooled: Element + PartialOrd {
    /// Whether it is no number.
    fn is_nan(self) -> bool;
    /// As f64; the 16-bit floats' sums are exact enough in it too.
    fn wide(self) -> f64;
    /// Rounded from f64.
    fn narrow(wide: f64) -> Self;
}

macro_rules! pooled {
    ($($t:ty: $nan:expr, $wide:expr, $narrow:expr;)*) => {$(
        impl Pooled for $t {
            #[inline]
            fn is_nan(self) -> bool {
                $nan(self)
            }
            #[inline]
            fn wide(self) -> f64 {
                $wide(self)
            }
            #[inline]
            fn narrow(wide: f64) -> Self {
                $narrow(wide)
            }
        }
    )*};
}
pooled! {
    f32: f32::is_nan, f64::from, |x| x as f32;
    f64: f64::is_nan, f64::from, |x| x;
    f16: f16::is_nan, f16::to_f64, f16::from_f64;
    bf16: bf16::is_nan, bf16::to_f64, bf16::from_f64;
    i8: |_| false, f64::from, |x| x as i8;
    u8: |_| false, f64::from, |x| x as u8;
    i32: |_| false, f64::from, |x| x as i32;
    u32: |_| false, f64::from, |x| x as u32;
    i64: |_| false, |x| x as f64, |x| x as i64;
}

/// Rows of results.
fn rows(p: &Problem) -> usize {
    p.output[..4].iter().product()
}

/// Operands that tasks share.
struct Memory<T> {
    x: *const T,
    y: *mut T,
    at: *mut i64,
}

// SAFETY: the input is only read, and every task writes rows of its own.
unsafe impl<T: Sync> Sync for Memory<T> {}

fn launch<T: Pooled>(call: &Call<'_>) {
    let p = Problem::of(call.workload);
    if p.results() == 0 {
        return;
    }
    let at = call.outputs.get(1).map_or(std::ptr::null_mut(), crate::backends::cpu::Operand::ptr_mut);
    let memory = Memory { x: call.inputs[0].ptr::<T>(), y: call.outputs[0].ptr_mut::<T>(), at };
    let rows = rows(&p);
    let threads = call.parameters.threads();
    let tasks = if threads == 1 { 1 } else { (4 * threads).min(rows) };
    call.cpu().threads().run(threads, tasks, &|task| {
        for row in rows * task / tasks..rows * (task + 1) / tasks {
            let h = row % p.output[3];
            let d = row / p.output[3] % p.output[2];
            let c = row / (p.output[3] * p.output[2]) % p.output[1];
            let n = row / (p.output[3] * p.output[2] * p.output[1]);
            let spans = [p.span(0, d), p.span(1, h)];
            for w in 0..p.output[4] {
                // SAFETY: the place is one of the results, and this task alone writes its row.
                unsafe { window(&p, &memory, [n, c, d, h, w], spans) };
            }
        }
    });
}

/// # Safety
/// The place is one of the results.
#[inline]
unsafe fn window<T: Pooled>(p: &Problem, memory: &Memory<T>, place: Five<usize>, outer: [Span; 2]) {
    let [depths, heights] = outer;
    let widths = p.span(2, place[4]);
    let base = memory.x.wrapping_offset(offset(&p.x, [place[0], place[1], 0, 0, 0]));
    let (mut best, mut found, mut sum): (Option<T>, usize, f64) = (None, 0, 0.0);
    for i in 0..depths.count {
        let d = depths.first + i * depths.step;
        for j in 0..heights.count {
            let h = heights.first + j * heights.step;
            let row = base.wrapping_offset(d as isize * p.x[2] + h as isize * p.x[3]);
            for k in 0..widths.count {
                let w = widths.first + k * widths.step;
                // SAFETY: spans lie inside the input.
                let x = unsafe { *row.wrapping_offset(w as isize * p.x[4]) };
                if p.kind != PoolKind::Max {
                    sum += x.wide();
                } else if best.is_none_or(|b| x > b || x.is_nan()) {
                    // As in torch: the first of equal ones, the last NaN.
                    best = Some(x);
                    found = (d * p.input[3] + h) * p.input[4] + w;
                }
            }
        }
    }
    let divisor = depths.divisor * heights.divisor * widths.divisor;
    let result = best.unwrap_or_else(|| T::narrow(sum / divisor as f64));
    // SAFETY: the caller's promise.
    unsafe {
        memory.y.wrapping_offset(offset(&p.y, place)).write(result);
        if p.indices {
            memory.at.wrapping_offset(offset(&p.at, place)).write(found as i64);
        }
    }
}
