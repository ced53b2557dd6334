//! Copies row by row: whole runs of memory where both operands have them, single elements where one does not.
#![allow(unsafe_code)]

use super::cpu_plan::{Plan, Shared};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::walk::{Axis, offset};
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace, Parameters, Variant,
    Workload,
};
use crate::tensor::DType;

/// Bytes of a run below which stores past the caches would leave most lines half written.
const STREAMED: usize = 512;
/// Bytes that a task moves at least: far more than handing it over costs.
const TASK: usize = 64 << 10;

/// Any layout; fastest where runs of memory are long.
pub(super) struct Lines;

pub(super) static LINES: Lines = Lines;

impl Kernel for Lines {
    fn name(&self) -> &'static str {
        "cpu::copy::lines"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Copy
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_lines.rs", "cpu_plan.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = ParameterSpace::threads(device.threads);
        let plan = Plan::of(workload);
        let run = plan.axes.last().filter(|a| is_run(a, plan.size)).map_or(0, |a| a.size * plan.size);
        let streams = run >= STREAMED && device.isas.contains(&Isa::Avx2);
        if streams { space.streamed(workload, device) } else { space }
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = Plan::of(workload);
        let bytes = plan.elements() * plan.size;
        let last = plan.axes.last().copied().unwrap_or(Axis { size: 1, input: 0, output: 0 });
        let run = is_run(&last, plan.size);
        // Moves of a register, or of an element with its two addresses; a row costs about sixteen more.
        let moves = if run { bytes as f64 / 32.0 } else { 3.0 * plan.elements() as f64 };
        let rows = plan.elements() / last.size.max(1);
        let apart = last.input.unsigned_abs().max(last.output.unsigned_abs());
        let spread = (apart as f64 / plan.size as f64).clamp(1.0, (64.0 / plan.size as f64).max(1.0));
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let stream = parameters.get(Knob::Stream) == Some(1);
        let cost = Cost::new(moves + 16.0 * rows as f64, unit, plan.traffic(spread, stream, device));
        cost.split(parameters.threads(), tasks(bytes, parameters.threads()))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let plan = Plan::of(call.workload);
        let Some((&last, outer)) = plan.axes.split_last() else { return Ok(()) };
        let stream = call.parameters.get(Knob::Stream) == Some(1) && Isa::Avx2.is_available();
        let all = Shared::of(call);
        let total = plan.elements();
        let tasks = tasks(total * plan.size, call.parameters.threads());
        // Tasks are ranges of elements in the output's order, cut anywhere in a row.
        call.cpu().threads().run(call.parameters.threads(), tasks, &|task| {
            let (mut at, end) = (total * task / tasks, total * (task + 1) / tasks);
            while at < end {
                let (row, column) = (at / last.size, at % last.size);
                let count = (last.size - column).min(end - at);
                let (from, to) = (offset(outer, row, |a| a.input), offset(outer, row, |a| a.output));
                let shift = column as isize;
                let place = all.at(from + shift * last.input, to + shift * last.output);
                // SAFETY: the elements are those of indices inside the operands' shapes, each written by one task.
                unsafe { move_line(place, Axis { size: count, ..last }, plan.size, stream) };
                at += count;
            }
        });
        Ok(())
    }
}

fn tasks(bytes: usize, threads: usize) -> usize {
    if threads == 1 { 1 } else { (4 * threads).min(bytes / TASK).max(1) }
}

fn is_run(axis: &Axis, size: usize) -> bool {
    let near = size as isize;
    axis.size == 1 || axis.input == near && axis.output == near
}

/// Moves one line of elements of `size` bytes, strides in bytes.
///
/// # Safety
/// Every element of the line is valid for reading and writing, and the two do not overlap.
pub(crate) unsafe fn move_line(place: Shared, axis: Axis, size: usize, stream: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        if is_run(&axis, size) {
            let bytes = axis.size * size;
            if stream && bytes >= STREAMED {
                return move_past_cache(place, bytes);
            }
            return std::ptr::copy_nonoverlapping(place.from, place.to, bytes);
        }
        match size {
            1 => move_elements::<u8>(place, axis),
            2 => move_elements::<u16>(place, axis),
            4 => move_elements::<u32>(place, axis),
            8 => move_elements::<u64>(place, axis),
            _ => move_elements::<u128>(place, axis),
        }
    }
}

/// # Safety
/// As [`move_line`].
unsafe fn move_elements<T: Copy>(place: Shared, axis: Axis) {
    let Axis { size, input, output } = axis;
    for i in 0..size as isize {
        // SAFETY: the caller's promise.
        unsafe {
            let x: T = place.from.offset(i * input).cast::<T>().read_unaligned();
            place.to.offset(i * output).cast::<T>().write_unaligned(x);
        }
    }
}

/// Moves a run of bytes with stores that leave the caches alone.
///
/// # Safety
/// As [`move_line`], and the CPU has AVX2.
#[cfg(target_arch = "x86_64")]
unsafe fn move_past_cache(place: Shared, bytes: usize) {
    /// # Safety
    /// Both are valid for `bytes`, a multiple of 128, and `to` is aligned to a register.
    #[target_feature(enable = "avx2")]
    unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
        use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
        for i in (0..bytes).step_by(128) {
            // SAFETY: i + 128 <= bytes.
            unsafe {
                let (x, y) = (from.add(i).cast::<__m256i>(), to.add(i).cast::<__m256i>());
                crate::backends::cpu::real::prefetch(from.wrapping_add(i + 1024));
                crate::backends::cpu::real::prefetch(from.wrapping_add(i + 1088));
                let (a, b, c, d) = (
                    _mm256_loadu_si256(x),
                    _mm256_loadu_si256(x.add(1)),
                    _mm256_loadu_si256(x.add(2)),
                    _mm256_loadu_si256(x.add(3)),
                );
                _mm256_stream_si256(y, a);
                _mm256_stream_si256(y.add(1), b);
                _mm256_stream_si256(y.add(2), c);
                _mm256_stream_si256(y.add(3), d);
            }
        }
        _mm_sfence();
    }
    let lead = place.to.align_offset(64).min(bytes);
    let middle = (bytes - lead) / 128 * 128;
    // SAFETY: the three parts are the caller's `bytes`, the middle one aligned.
    unsafe {
        std::ptr::copy_nonoverlapping(place.from, place.to, lead);
        stream(place.from.add(lead), place.to.add(lead), middle);
        let (done, rest) = (lead + middle, bytes - lead - middle);
        std::ptr::copy_nonoverlapping(place.from.add(done), place.to.add(done), rest);
    }
}

/// # Safety
/// As [`move_line`].
#[cfg(not(target_arch = "x86_64"))]
unsafe fn move_past_cache(place: Shared, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(place.from, place.to, bytes) }
}
