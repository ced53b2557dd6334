//! Scans: row by row where the axis lies along memory, side by side where it lies across; a long row is cut into parts,
//! whose totals are found first.
//!
//! Floats of up to 32 bits are summed in f64 and rounded once per element; f64 is summed as it is, so element k has a
//! relative error of at most k·u.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use num_complex::Complex;

use super::attributes::{ReduceKind, Scan, ScanKind};
use super::cpu_kernels::attributes;
use super::cpu_reference::lowest;
use super::cpu_stored::{Compute, Sink, Source};
use crate::backends::cpu::ThreadPool;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::walk::{Axis, AxisList, offset, tidy};
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters,
    Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Columns whose sums are kept together.
const BAND: usize = 256;
/// Elements of a row from which on it is worth reading it twice to use more threads.
const PART: usize = 64 << 10;

/// Running sums, products and extremes, every type, any layout.
pub(super) struct Cumulative;

pub(super) static CUMULATIVE: Cumulative = Cumulative;

impl Kernel for Cumulative {
    fn name(&self) -> &'static str {
        "cpu::reduce::cumulative"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Reduce
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_cumulative.rs", "cpu_stored.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn constraints(&self) -> &[Constraint] {
        &[Constraint::Shape("a scan", |w| matches!(attributes(w).kind, ReduceKind::Cumulative(_)))]
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let bytes = workload.bytes() as f64;
        let (kept, axis) = axes(workload);
        let rows = kept.iter().map(|a| a.size).product::<usize>();
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let traffic = Traffic::pass(bytes, bytes, &device.caches);
        // Parts of a row are read twice.
        let (tasks, twice) = if rows < parameters.threads() && axis.size >= PART {
            (parameters.threads(), 2.0)
        } else {
            (rows.max(1), 1.0)
        };
        Cost::new(twice * (rows * axis.size) as f64, unit, traffic).split(parameters.threads(), tasks)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dtype = call.workload.inputs()[0].dtype;
        let ReduceKind::Cumulative(scan) = attributes(call.workload).kind else {
            return Err(KernelError("not a scan".into()));
        };
        let done = match dtype {
            _ if dtype.is_integer() || dtype == DType::Bool => integers(call, scan),
            _ if dtype.is_complex() => complex(call, scan),
            _ => reals(call, scan),
        };
        done.ok_or_else(|| KernelError(format!("{dtype} cannot be scanned").into()))
    }
}

fn integers(call: &Call<'_>, scan: Scan) -> Option<()> {
    let of = |highest| lowest(call.workload.outputs()[0].dtype, highest).integer();
    match scan.kind {
        ScanKind::Sum => launch(call, scan, 0, i64::wrapping_add),
        ScanKind::Prod => launch(call, scan, 1, i64::wrapping_mul),
        ScanKind::Max => launch(call, scan, of(false), i64::max),
        ScanKind::Min => launch(call, scan, of(true), i64::min),
    }
}

fn reals(call: &Call<'_>, scan: Scan) -> Option<()> {
    match scan.kind {
        ScanKind::Sum => launch(call, scan, 0.0, |a: f64, x| a + x),
        ScanKind::Prod => launch(call, scan, 1.0, |a: f64, x| a * x),
        // NaN stays: nothing is larger or smaller than it.
        ScanKind::Max => {
            launch(call, scan, f64::NEG_INFINITY, |a, x| if x > a || x.is_nan() { x } else { a })
        }
        ScanKind::Min => launch(call, scan, f64::INFINITY, |a, x| if x < a || x.is_nan() { x } else { a }),
    }
}

fn complex(call: &Call<'_>, scan: Scan) -> Option<()> {
    match scan.kind {
        ScanKind::Sum => launch(call, scan, Complex::new(0.0, 0.0), |a, x| a + x),
        ScanKind::Prod => launch(call, scan, Complex::new(1.0, 0.0), |a, x| a * x),
        ScanKind::Max | ScanKind::Min => None,
    }
}

/// The axes that are kept, and the one that is summed along.
fn axes(workload: &Workload) -> (AxisList, Axis) {
    let (input, output) = (&workload.inputs()[0], &workload.outputs()[0]);
    let mut all: AxisList = (0..input.shape.len())
        .map(|i| Axis { size: input.shape[i], input: input.strides[i], output: output.strides[i] })
        .collect();
    let last = all.pop().unwrap_or(Axis { size: 1, input: 1, output: 1 });
    (tidy(&all, false), last)
}

/// `None` where the operands' types cannot be computed with as `T`.
fn launch<T: Compute>(call: &Call<'_>, scan: Scan, start: T, step: impl Fn(T, T) -> T + Sync) -> Option<()> {
    let (kept, axis) = axes(call.workload);
    let (input, output) = (&call.inputs[0], &call.outputs[0]);
    let walk = Walk {
        start,
        step,
        exclusive: scan.exclusive,
        kept: &kept,
        axis,
        input: Source::new(input.address(), input.desc().dtype)?,
        output: Sink::new(output.address(), output.desc().dtype)?,
        results: kept.iter().map(|a| a.size).product(),
    };
    if walk.results > 0 && axis.size > 0 {
        walk.run(call.cpu().threads(), call.parameters.threads());
    }
    Some(())
}

struct Walk<'a, T, F> {
    /// The result of no elements.
    start: T,
    step: F,
    exclusive: bool,
    kept: &'a [Axis],
    axis: Axis,
    input: Source<T>,
    output: Sink<T>,
    results: usize,
}

// SAFETY: threads write disjoint rows of the output and only read the input; both outlive the call.
unsafe impl<T: Sync, F: Sync> Sync for Walk<'_, T, F> {}

impl<T: Compute, F: Fn(T, T) -> T + Sync> Walk<'_, T, F> {
    fn run(&self, pool: &ThreadPool, threads: usize) {
        match self.kept.split_last() {
            Some((inner, outer)) if inner.input == 1 && self.axis.input != 1 => {
                let bands = inner.size.div_ceil(BAND);
                pool.run(threads, self.results / inner.size * bands, &|task| {
                    let (row, band) = (task / bands, task % bands);
                    let width = BAND.min(inner.size - band * BAND);
                    let start = (band * BAND) as isize;
                    let from = offset(outer, row, |a| a.input) + start;
                    let to = offset(outer, row, |a| a.output) + start * inner.output;
                    self.band(from, to, width, inner.output);
                });
            }
            _ if self.results < threads && self.axis.size >= PART => self.parts(pool, threads),
            _ => {
                let tasks = self.results.min(4 * threads);
                pool.run(threads, tasks, &|task| {
                    let (start, end) = (self.results * task / tasks, self.results * (task + 1) / tasks);
                    (start..end).for_each(|row| self.row(row, 0..self.axis.size, self.start));
                });
            }
        }
    }

    /// Long rows: the total of every part but the last, then all parts at once, each from the totals before it.
    fn parts(&self, pool: &ThreadPool, threads: usize) {
        let part = |i: usize| self.axis.size * i / threads..self.axis.size * (i + 1) / threads;
        for row in 0..self.results {
            let totals: Vec<Mutex<T>> = (0..threads).map(|_| Mutex::new(self.start)).collect();
            let total = |i: usize| totals[i].lock().unwrap_or_else(PoisonError::into_inner);
            pool.run(threads, threads - 1, &|i| {
                let mut all = self.start;
                self.each(row, part(i), |_, x| all = (self.step)(all, x));
                *total(i) = all;
            });
            pool.run(threads, threads, &|i| {
                let before = (0..i).fold(self.start, |all, j| (self.step)(all, *total(j)));
                self.row(row, part(i), before);
            });
        }
    }

    /// Scans a part of one row, given the result of what comes before it.
    fn row(&self, row: usize, part: Range<usize>, before: T) {
        let to = offset(self.kept, row, |a| a.output);
        let mut result = before;
        self.each(row, part, |i, x| {
            let next = (self.step)(result, x);
            let shown = if self.exclusive { result } else { next };
            result = next;
            // SAFETY: the offset is that of an index inside the operand's shape.
            unsafe { self.output.write(to + i as isize * self.axis.output, shown) };
        });
    }

    /// Calls `see` with each element of a part of one row.
    #[inline(always)]
    fn each(&self, row: usize, part: Range<usize>, mut see: impl FnMut(usize, T)) {
        let input = self.input.from(offset(self.kept, row, |a| a.input));
        let stride = self.axis.input;
        let mut buffer = [T::ZERO; BAND];
        let mut from = part.start;
        while from < part.end {
            let len = (part.end - from).min(BAND);
            // SAFETY: the offsets are those of indices inside the operand's shape.
            let x = unsafe { input.from(from as isize * stride).gather(stride, len, &mut buffer) };
            x.iter().enumerate().for_each(|(i, &x)| see(from + i, x));
            from += len;
        }
    }

    /// Scans down `width` neighbouring columns.
    fn band(&self, from: isize, to: isize, width: usize, apart: isize) {
        let (mut buffer, mut results) = ([T::ZERO; BAND], [self.start; BAND]);
        for i in 0..self.axis.size as isize {
            // SAFETY: the offsets are those of indices inside the operands' shapes.
            let x = unsafe { self.input.from(from + i * self.axis.input).gather(1, width, &mut buffer) };
            for (k, (result, &x)) in results.iter_mut().zip(x).enumerate() {
                let next = (self.step)(*result, x);
                let shown = if self.exclusive { *result } else { next };
                *result = next;
                // SAFETY: as above.
                unsafe { self.output.write(to + i * self.axis.output + k as isize * apart, shown) };
            }
        }
    }
}
