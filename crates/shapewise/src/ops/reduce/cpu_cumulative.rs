//! Cumulative sums: row by row where the axis lies along memory, side by side where it lies across.
//!
//! Floats of up to 32 bits are summed in f64 and rounded once per element; f64 is summed as it is, so element k has a
//! relative error of at most k·u.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::attributes::ReduceKind;
use super::cpu_kernels::attributes;
use super::cpu_stored::{Sink, Source};
use super::sums::Summand;
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

/// Running sums, every type, any layout.
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
        source_hash!("cpu_cumulative.rs", "cpu_stored.rs", "sums.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn constraints(&self) -> &[Constraint] {
        &[Constraint::Shape("a cumulative sum", |w| attributes(w).kind == ReduceKind::CumulativeSum)]
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
        Cost::new((rows * axis.size) as f64, unit, traffic).split(parameters.threads(), rows.max(1))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dtype = call.workload.inputs()[0].dtype;
        let done = match dtype {
            _ if dtype.is_integer() || dtype == DType::Bool => launch::<i64>(call),
            _ if dtype.is_complex() => launch::<Complex<f64>>(call),
            _ => launch::<f64>(call),
        };
        done.ok_or_else(|| KernelError(format!("{dtype} cannot be summed").into()))
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
fn launch<T: Summand>(call: &Call<'_>) -> Option<()> {
    let (kept, axis) = axes(call.workload);
    let (input, output) = (&call.inputs[0], &call.outputs[0]);
    let walk = Walk::<T> {
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

struct Walk<'a, T: Summand> {
    kept: &'a [Axis],
    axis: Axis,
    input: Source<T>,
    output: Sink<T>,
    results: usize,
}

// SAFETY: threads write disjoint rows of the output and only read the input; both outlive the call.
unsafe impl<T: Summand> Sync for Walk<'_, T> {}

impl<T: Summand> Walk<'_, T> {
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
            _ => {
                let tasks = self.results.min(4 * threads);
                pool.run(threads, tasks, &|task| {
                    let (start, end) = (self.results * task / tasks, self.results * (task + 1) / tasks);
                    (start..end).for_each(|row| self.row(row));
                });
            }
        }
    }

    /// Sums along one row.
    fn row(&self, row: usize) {
        let input = self.input.from(offset(self.kept, row, |a| a.input));
        let to = offset(self.kept, row, |a| a.output);
        let Axis { size, input: stride, output: step } = self.axis;
        let mut buffer = [T::ZERO; BAND];
        let mut sum = T::ZERO;
        let mut from = 0;
        while from < size {
            let len = (size - from).min(BAND);
            // SAFETY: the offsets are those of indices inside the operands' shapes.
            let x = unsafe { input.from(from as isize * stride).gather(stride, len, &mut buffer) };
            for (i, &x) in x.iter().enumerate() {
                sum = sum.add(x);
                // SAFETY: as above.
                unsafe { self.output.write(to + (from + i) as isize * step, sum) };
            }
            from += len;
        }
    }

    /// Sums down `width` neighbouring columns.
    fn band(&self, from: isize, to: isize, width: usize, apart: isize) {
        let (mut buffer, mut sums) = ([T::ZERO; BAND], [T::ZERO; BAND]);
        for i in 0..self.axis.size as isize {
            // SAFETY: the offsets are those of indices inside the operands' shapes.
            let x = unsafe { self.input.from(from + i * self.axis.input).gather(1, width, &mut buffer) };
            for (k, (sum, &x)) in sums.iter_mut().zip(x).enumerate() {
                *sum = sum.add(x);
                // SAFETY: as above.
                unsafe { self.output.write(to + i * self.axis.output + k as isize * apart, *sum) };
            }
        }
    }
}
