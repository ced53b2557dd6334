//! Borders row by row: the middle is moved whole, the ends are filled or picked.
#![allow(unsafe_code)]

use super::{PadAttributes, PadMode};
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, Operation, OperationKind, ParameterSpace, Parameters,
    Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Bytes that a task writes at least: far more than handing it over costs.
const TASK: usize = 32 << 10;

/// Any layout; threads share the rows.
pub(super) struct Rows;

pub(super) static ROWS: Rows = Rows;

/// The attributes of a padding's workload.
pub(super) fn attributes(workload: &Workload) -> PadAttributes {
    match workload.operation() {
        Operation::Pad(attributes) => *attributes,
        other => unreachable!("the registry gives paddings only, not {other}"),
    }
}

/// Bytes across the borders of the caches: the input once, the output with its lines read before they are written.
pub(super) fn traffic(workload: &Workload, device: &DeviceInfo) -> Traffic {
    let (input, output) = (workload.inputs()[0].bytes() as f64, workload.outputs()[0].bytes() as f64);
    Traffic::pass(input + 2.0 * output, input + output, &device.caches)
}

/// Rows of the output, and the length of one.
fn rows(workload: &Workload) -> (usize, usize) {
    let shape = &workload.outputs()[0].shape;
    let length = shape.last().copied().unwrap_or(1);
    (shape.iter().rev().skip(1).product(), length)
}

fn tasks(workload: &Workload, threads: usize) -> usize {
    let (rows, length) = rows(workload);
    let bytes = rows * length * workload.outputs()[0].dtype.size();
    if threads == 1 { 1 } else { (4 * threads).min(bytes / TASK).clamp(1, rows.max(1)) }
}

impl Kernel for Rows {
    fn name(&self) -> &'static str {
        "cpu::pad::rows"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Pad
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_rows.rs", "mod.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let (rows, length) = rows(workload);
        let size = workload.outputs()[0].dtype.size();
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        // The place of a row, and a move for each register of it.
        let moves = rows as f64 * (24.0 + (length * size) as f64 / 16.0);
        let cost = Cost::new(moves, unit, traffic(workload, device));
        cost.split(parameters.threads(), tasks(workload, parameters.threads()))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype.size() {
            1 => run::<u8>(call),
            2 => run::<u16>(call),
            4 => run::<u32>(call),
            8 => run::<u64>(call),
            _ => run::<u128>(call),
        }
        Ok(())
    }
}

fn run<T: Copy + Send + Sync>(call: &Call<'_>) {
    let workload = call.workload;
    let attributes = attributes(workload);
    let mut bits = 0u128;
    if let PadMode::Constant(value) = attributes.mode {
        // SAFETY: 16 bytes hold one element of any type.
        unsafe { Value::Real(value.value()).write((&raw mut bits).cast(), 0, workload.outputs()[0].dtype) };
    }
    // SAFETY: `T` is an unsigned number of at most 16 bytes, whose first ones hold the element.
    let fill = unsafe { (&raw const bits).cast::<T>().read() };
    let pad = Pad {
        attributes,
        fill,
        x: call.inputs[0].address().cast(),
        y: call.outputs[0].address().cast(),
        workload,
    };
    let (rows, threads) = (rows(workload).0, call.parameters.threads());
    let tasks = tasks(workload, threads);
    call.cpu().threads().run(threads, tasks, &|task| {
        for row in rows * task / tasks..rows * (task + 1) / tasks {
            // SAFETY: rows lie inside the output, and each is written by one task.
            unsafe { pad.row(row) };
        }
    });
}

struct Pad<'a, T> {
    attributes: PadAttributes,
    fill: T,
    x: *const T,
    y: *mut T,
    workload: &'a Workload,
}

// SAFETY: the memory outlives the call, the input is only read, and tasks write different rows.
unsafe impl<T: Sync> Sync for Pad<'_, T> {}

impl<T: Copy> Pad<'_, T> {
    /// # Safety
    /// The row lies inside the output and nobody else writes it.
    unsafe fn row(&self, mut row: usize) {
        let (x, y) = (&self.workload.inputs()[0], &self.workload.outputs()[0]);
        let PadAttributes { mode, before } = self.attributes;
        let rank = y.shape.len();
        let (mut from, mut to, mut constant) = (0isize, 0isize, x.is_empty());
        for i in (0..rank.saturating_sub(1)).rev() {
            let at = row % y.shape[i];
            row /= y.shape[i];
            to += at as isize * y.strides[i];
            match mode.source(at as isize - before[i] as isize, x.shape[i]) {
                Some(source) => from += source as isize * x.strides[i],
                None => constant = true,
            }
        }
        let (length, n, lead) =
            if rank == 0 { (1, 1, 0) } else { (y.shape[rank - 1], x.shape[rank - 1], before[rank - 1]) };
        let (near, far) = if rank == 0 { (1, 1) } else { (x.strides[rank - 1], y.strides[rank - 1]) };
        let (x, y) = (self.x.wrapping_offset(from), self.y.wrapping_offset(to));
        // SAFETY: places up to `length` lie inside the row, and sources inside the input.
        let put = |at: usize, value: T| unsafe { y.offset(at as isize * far).write_unaligned(value) };
        // SAFETY: as above.
        let get = |i: usize| unsafe { x.offset(i as isize * near).read_unaligned() };
        if constant {
            return (0..length).for_each(|at| put(at, self.fill));
        }
        let edge = |at: usize| mode.source(at as isize - lead as isize, n).map_or(self.fill, get);
        (0..lead).for_each(|at| put(at, edge(at)));
        if near == 1 && far == 1 {
            // SAFETY: the middle of the output's row is as long as the input's.
            unsafe {
                std::ptr::copy_nonoverlapping(x.cast::<u8>(), y.add(lead).cast::<u8>(), n * size_of::<T>());
            };
        } else {
            (0..n).for_each(|i| put(lead + i, get(i)));
        }
        (lead + n..length).for_each(|at| put(at, edge(at)));
    }
}
