//! The vectorised kernels: along rows and along channels on each instruction set.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::PoolKind;
use super::cpu_channels::Channels;
use super::cpu_rows::{BEYOND, Rows, line};
use super::problem::{Problem, attributes};
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::{Float, Isa};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters,
    Traffic, Variant, Workload,
};
use crate::tensor::DType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    Rows,
    Channels,
}

/// One way to walk on one instruction set.
pub(super) struct Pool {
    name: &'static str,
    walk: Walk,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($rows:ident $channels:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $rows: Pool = Pool {
            name: concat!("cpu::pool::", $name, "_rows"),
            walk: Walk::Rows,
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), FLOATS, NO_INDICES, ALONG_ROWS, EVEN],
        };
        pub(super) static $channels: Pool = Pool {
            name: concat!("cpu::pool::", $name, "_channels"),
            walk: Walk::Channels,
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), FLOATS, NO_INDICES, ALONG_CHANNELS],
        };
    )*};
}
// Nothing is gained from registers of 512 bits: memory and short rows set the pace.
kernels! {
    AVX2_ROWS AVX2_CHANNELS Avx2 "avx2";
    NEON_ROWS NEON_CHANNELS Neon "neon";
    PORTABLE_ROWS PORTABLE_CHANNELS Portable "portable";
}

const FLOATS: Constraint = Constraint::DTypes(DType::FLOATS);
const NO_INDICES: Constraint = Constraint::Shape("no places of maxima", |w| !attributes(w).indices);
const EVEN: Constraint =
    Constraint::Shape("windows of one size", |w| attributes(w).kind != PoolKind::AdaptiveAverage);
const ALONG_ROWS: Constraint = Constraint::Shape("rows along memory", |w| {
    w.inputs()[0].strides[4] == 1 && w.outputs()[0].strides[4] == 1
});
const ALONG_CHANNELS: Constraint = Constraint::Shape("channels along memory", |w| {
    w.inputs()[0].strides[1] == 1 && w.outputs()[0].strides[1] == 1
});

impl Kernel for Pool {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Pool
    }

    fn source(&self) -> u64 {
        match self.walk {
            Walk::Rows => source_hash!("cpu_kernels.rs", "cpu_rows.rs", "problem.rs"),
            Walk::Channels => source_hash!("cpu_kernels.rs", "cpu_channels.rs", "problem.rs"),
        }
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let p = Problem::of(workload);
        let dtype = workload.inputs()[0].dtype;
        let unit = ComputeUnit {
            dtype: if dtype == DType::F64 { DType::F64 } else { DType::F32 },
            isa: Some(self.isa),
        };
        let lanes = (self.isa.register_bytes() / unit.dtype.size()) as f64;
        let padded = |n: usize| (n as f64 / lanes).ceil() * lanes;
        let rows = p.output[..4].iter().product::<usize>() as f64;
        // A maximum that keeps NaN takes three instructions, a sum one.
        let each = if p.kind == PoolKind::Max { 3.0 } else { 1.0 };
        let (operations, moved) = match self.walk {
            Walk::Rows => {
                let outer = (p.window[0].size * p.window[1].size) as f64;
                let passes = f64::from(32 - p.window[2].size.leading_zeros());
                let width = padded(line(&p));
                // Clearing, rows, passes along the line, and what is picked from it.
                (
                    rows * width * each * (1.0 + outer + passes) + rows * p.output[4] as f64,
                    rows * width * outer,
                )
            }
            Walk::Channels => {
                let elements = p.window_elements() as f64 * p.output[2..].iter().product::<usize>() as f64;
                let all = p.output[0] as f64 * padded(p.output[1]) * elements;
                (all * each, all)
            }
        };
        let bytes = workload.bytes() as f64;
        let traffic = Traffic {
            l1: 2.0 * moved * unit.dtype.size() as f64,
            ..Traffic::pass(bytes, bytes, &device.caches)
        };
        let tasks = tasks(&p, self.walk).max(1);
        let scratch = if self.walk == Walk::Rows { scratch(&p, parameters.threads()) } else { 0 };
        let cost = Cost::new(operations, unit, traffic).split(parameters.threads(), tasks);
        Cost { scratch: scratch * unit.dtype.size(), ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.inputs()[0].dtype {
            DType::F32 => self.launch_as::<f32>(call),
            DType::F64 => self.launch_as::<f64>(call),
            DType::F16 => self.launch_as::<f16>(call),
            DType::BF16 => self.launch_as::<bf16>(call),
            other => Err(KernelError(format!("{other} is not pooled by this kernel").into())),
        }
    }
}

/// Rows of results that are computed one by one.
fn tasks(p: &Problem, walk: Walk) -> usize {
    let channels = if walk == Walk::Rows { p.output[1] } else { 1 };
    p.output[0] * channels * p.output[2] * p.output[3]
}

/// Pieces that threads take one at a time: a few for each.
fn pieces(threads: usize, rows: usize) -> usize {
    if threads == 1 { 1 } else { (4 * threads).min(rows) }
}

/// Elements of two lines for each piece, and the columns' divisors.
fn scratch(p: &Problem, threads: usize) -> usize {
    let columns = (p.output[4] + BEYOND).next_multiple_of(64);
    columns + pieces(threads, tasks(p, Walk::Rows)) * (2 * line(p)).next_multiple_of(64)
}

/// Operands and scratch that tasks share.
struct Memory<T: Real> {
    x: *const T,
    y: *mut T,
    lines: *mut T::Wide,
    divisors: *const T::Wide,
}

// SAFETY: the input and the divisors are only read, and every piece has rows and lines of its own.
unsafe impl<T: Real> Sync for Memory<T> {}

impl Pool {
    fn launch_as<T: Real>(&self, call: &Call<'_>) -> Result<(), KernelError> {
        let p = Problem::of(call.workload);
        let (rows, threads) = (tasks(&p, self.walk), call.parameters.threads());
        if p.results() == 0 {
            return Ok(());
        }
        let device = call.cpu();
        let elements = if self.walk == Walk::Rows { scratch(&p, threads) } else { 0 };
        let mut scratch = device.scratch(elements * size_of::<T::Wide>())?;
        let divisors = scratch.as_mut_ptr().cast::<T::Wide>();
        if self.walk == Walk::Rows {
            for w in 0..p.output[4] + BEYOND {
                let divisor = if w < p.output[4] { p.span(2, w).divisor } else { 1 };
                // SAFETY: the scratch memory begins with a divisor for each column and some more.
                unsafe { divisors.add(w).write(T::Wide::from_f64(divisor as f64)) };
            }
        }
        let columns = (p.output[4] + BEYOND).next_multiple_of(64);
        let memory = Memory {
            x: call.inputs[0].ptr::<T>(),
            y: call.outputs[0].ptr_mut::<T>(),
            lines: divisors.wrapping_add(columns),
            divisors,
        };
        let pieces = pieces(threads, rows);
        device.threads().run(threads, pieces, &|piece| {
            let memory = &memory;
            let rows = rows * piece / pieces..rows * (piece + 1) / pieces;
            let (p, x, y) = (&p, memory.x, memory.y);
            match self.walk {
                Walk::Rows => {
                    let lines = memory.lines.wrapping_add(piece * (2 * line(p)).next_multiple_of(64));
                    let divisors = memory.divisors;
                    T::dispatch_narrow(self.isa, Rows { p, x, y, range: rows, lines, divisors });
                }
                Walk::Channels => T::dispatch_narrow(self.isa, Channels { p, x, y, rows }),
            }
        });
        Ok(())
    }
}
