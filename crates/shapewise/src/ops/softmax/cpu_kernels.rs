//! The kernels: rows and columns on each instruction set.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::SoftmaxAttributes;
use super::cpu_columns::{BAND, Band};
use super::cpu_rows::{Part, Rows, scratch_bytes};
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::Isa;
use crate::backends::cpu::simd::math::Coefficients;
use crate::device::{Device, DeviceInfo};
use crate::hash::source_hash;
use crate::ops::walk::{Axis, AxisList, offset};
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, Operation, OperationKind, ParameterSpace,
    Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Arithmetic operations per element: maximum, difference, sum and scaling, and the power with its reduction (5), its
/// polynomial of degree 6 (12), scaling and border (3).
pub(super) const OPERATIONS: f64 = 24.0;

/// Scratch of a task, in bytes, above which a thread keeps to one task, whose scratch stays in its second cache.
const LONG: usize = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Rows,
    Columns,
}

/// One way to walk on one instruction set.
pub(super) struct Softmax {
    name: &'static str,
    walk: Walk,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($rows:ident, $columns:ident, $isa:ident, $name:literal;)*) => {$(
        pub(super) static $rows: Softmax = Softmax {
            name: concat!("cpu::softmax::", $name, "_rows"),
            walk: Walk::Rows,
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), Constraint::DTypes(DType::FLOATS)],
        };
        pub(super) static $columns: Softmax = Softmax {
            name: concat!("cpu::softmax::", $name, "_columns"),
            walk: Walk::Columns,
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), Constraint::DTypes(DType::FLOATS), SIDE_BY_SIDE],
        };
    )*};
}
kernels! {
    AVX512_ROWS, AVX512_COLUMNS, Avx512, "avx512";
    AVX2_ROWS, AVX2_COLUMNS, Avx2, "avx2";
    NEON_ROWS, NEON_COLUMNS, Neon, "neon";
    PORTABLE_ROWS, PORTABLE_COLUMNS, Portable, "portable";
}

const SIDE_BY_SIDE: Constraint =
    Constraint::Shape("an axis other than the normalised one along memory", |w| {
        axes(w).0.last().is_some_and(|a| a.input == 1 && a.output == 1)
    });

pub(super) fn attributes(workload: &Workload) -> SoftmaxAttributes {
    match workload.operation() {
        Operation::Softmax(attributes) => *attributes,
        other => unreachable!("the registry gives softmax only, not {other}"),
    }
}

/// Columns of so many bytes that are read together: as many as stay in half of the second cache, but at least a few lines.
fn band(l2: Option<usize>, column: usize) -> usize {
    (l2.unwrap_or(256 << 10) / 2 / column.max(1)).clamp(32, BAND) / 32 * 32
}

/// The kept axes and the normalised one.
pub(super) fn axes(workload: &Workload) -> (AxisList, Axis) {
    let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
    let mut kept: AxisList = (0..x.shape.len())
        .map(|i| Axis { size: x.shape[i], input: x.strides[i], output: y.strides[i] })
        .collect();
    let axis = kept.pop().unwrap_or(Axis { size: 1, input: 1, output: 1 });
    (kept, axis)
}

impl Kernel for Softmax {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Softmax
    }

    fn source(&self) -> u64 {
        match self.walk {
            Walk::Rows => source_hash!("cpu_kernels.rs", "cpu_rows.rs"),
            Walk::Columns => source_hash!("cpu_kernels.rs", "cpu_columns.rs"),
        }
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = ParameterSpace::threads(device.threads);
        let dtype = workload.inputs()[0].dtype;
        let streams = self.walk == Walk::Rows && dtype.size() >= 4 && !attributes(workload).log;
        if streams { space.streamed(workload, device) } else { space }
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let (kept, axis) = axes(workload);
        let rows: usize = kept.iter().map(|a| a.size).product();
        let (x, caches) = (&workload.inputs()[0], &device.caches);
        let bytes = (x.len() * x.dtype.size()) as f64;
        let unit = ComputeUnit {
            dtype: if x.dtype == DType::F64 { DType::F64 } else { DType::F32 },
            isa: Some(self.isa),
        };
        let lanes = (self.isa.register_bytes() / unit.dtype.size()) as f64;
        let run = if self.walk == Walk::Rows { axis.size } else { kept.last().map_or(1, |a| a.size) };
        let padding = (run as f64 / lanes).ceil() * lanes / run.max(1) as f64;
        // Elements that are not side by side are moved by the line.
        let apart = if self.walk == Walk::Rows {
            axis.input.unsigned_abs().max(axis.output.unsigned_abs())
        } else {
            1
        };
        let spread = (apart as f64).clamp(1.0, 64.0 / x.dtype.size() as f64);
        let stream = parameters.get(Knob::Stream) == Some(1);
        let read = Traffic::pass(bytes * spread, 2.0 * bytes * spread, caches);
        // A store brings its line in first; past the caches it goes to memory once, whatever would have fitted.
        let write = if stream {
            Traffic { l1: bytes, l2: bytes, l3: bytes, memory: bytes }
        } else {
            Traffic::pass(2.0 * bytes * spread, 2.0 * bytes * spread, caches)
        };
        let tasks = if self.walk == Walk::Rows {
            rows
        } else {
            rows / run.max(1) * run.div_ceil(band(caches.l2, axis.size * x.dtype.size()))
        };
        // The columns take each power twice: for the sum and for the weight.
        let work = if self.walk == Walk::Rows { OPERATIONS } else { 2.0 * OPERATIONS };
        let cost = Cost::new(work * padding * x.len() as f64, unit, read + write).converting(workload);
        let scratch = if self.walk == Walk::Rows {
            axis.size.saturating_mul(2 * unit.dtype.size() * parameters.threads())
        } else {
            0
        };
        Cost { scratch, ..cost.split(parameters.threads(), tasks.max(1)) }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.inputs()[0].dtype {
            DType::F32 => self.launch_as::<f32>(call),
            DType::F64 => self.launch_as::<f64>(call),
            DType::F16 => self.launch_as::<f16>(call),
            DType::BF16 => self.launch_as::<bf16>(call),
            other => Err(KernelError(format!("softmax is not defined for {other}").into())),
        }
    }
}

impl Softmax {
    fn launch_as<T: Real>(&self, call: &Call<'_>) -> Result<(), KernelError>
    where
        T::Wide: Coefficients,
    {
        let (kept, axis) = axes(call.workload);
        let rows: usize = kept.iter().map(|a| a.size).product();
        if rows == 0 || axis.size == 0 {
            return Ok(());
        }
        let stream = call.parameters.get(Knob::Stream) == Some(1);
        let (x, y) = (call.inputs[0].ptr::<T>(), call.outputs[0].ptr_mut::<T>());
        let all = Rows { kept: &kept, axis, x, y, log: attributes(call.workload).log, stream };
        match self.walk {
            Walk::Rows => self.rows(call, all, rows),
            Walk::Columns => {
                self.columns(call, all, rows);
                Ok(())
            }
        }
    }

    fn rows<T: Real>(&self, call: &Call<'_>, all: Rows<'_, T>, rows: usize) -> Result<(), KernelError>
    where
        T::Wide: Coefficients,
    {
        let threads = call.parameters.threads().min(rows);
        let each = scratch_bytes::<T>(all.axis).next_multiple_of(64);
        // A few tasks per thread even out what else runs on the cores, as long as their scratch stays in the caches.
        let per_thread = if threads == 1 || each > LONG { 1 } else { 4 };
        let tasks = (per_thread * threads).min(rows);
        let mut scratch = call.cpu().scratch(each * tasks)?;
        let scratch = Memory(scratch.as_mut_ptr());
        call.cpu().threads().run(threads, tasks, &|task| {
            let range = rows * task / tasks..rows * (task + 1) / tasks;
            T::dispatch(self.isa, Part { rows: all, range, scratch: scratch.at(each * task) });
        });
        Ok(())
    }

    fn columns<T: Real>(&self, call: &Call<'_>, all: Rows<'_, T>, rows: usize)
    where
        T::Wide: Coefficients,
    {
        let Some((inner, outer)) = all.kept.split_last() else { return };
        let wide = band(call.cpu().info().caches.l2, all.axis.size * size_of::<T>());
        let bands = inner.size.div_ceil(wide);
        call.cpu().threads().run(call.parameters.threads(), rows / inner.size * bands, &|task| {
            let all = &all;
            let (row, from) = (task / bands, task % bands * wide);
            let x = all.x.wrapping_offset(offset(outer, row, |a| a.input)).wrapping_add(from);
            let y = all.y.wrapping_offset(offset(outer, row, |a| a.output)).wrapping_add(from);
            let width = wide.min(inner.size - from);
            T::dispatch(self.isa, Band { axis: all.axis, x, y, width, log: all.log });
        });
    }
}

/// Scratch that tasks share by parts of their own.
struct Memory(*mut u8);

impl Memory {
    fn at(&self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

// SAFETY: each task uses a part of its own.
unsafe impl Sync for Memory {}
