//! Rows of memory picked by index: each is moved whole, and rows that come later are asked for ahead of time.
#![allow(unsafe_code)]

use super::cpu_plan::{Indices, Plan};
use crate::backends::cpu::real::prefetch;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, Operation, OperationKind, ParameterSpace,
    Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Bytes that are asked for ahead: the memory of about as many rows as a core can wait for.
const AHEAD: usize = 2048;
/// Lines of a row that are asked for; the hardware brings the rest of a long row by itself.
const LINES: usize = 4;

/// Rows on one instruction set.
pub(super) struct Rows {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

const RUN: Constraint = Constraint::Shape("neighbours that move with one index", |w| {
    let plan = plan(w, true);
    plan.run > plan.size
});

pub(super) static AVX2_ROWS: Rows = Rows {
    name: "cpu::gather::avx2_rows",
    isa: Isa::Avx2,
    constraints: &[
        Constraint::Isa(Isa::Avx2),
        RUN,
        Constraint::Shape("rows of whole registers", |w| plan(w, true).run.is_multiple_of(32)),
    ],
};
pub(super) static PORTABLE_ROWS: Rows =
    Rows { name: "cpu::gather::portable_rows", isa: Isa::Portable, constraints: &[RUN] };

/// The plan of a gather's workload.
pub(super) fn plan(workload: &Workload, runs: bool) -> Plan {
    let along = matches!(workload.operation(), Operation::Gather(a) if a.along);
    Plan::new(&workload.inputs()[0], &workload.inputs()[1], &workload.outputs()[0], along, runs)
}

/// Bytes across the borders of the caches when `bytes` are picked, each piece bringing whole lines.
pub(super) fn traffic(plan: &Plan, workload: &Workload, stream: bool, device: &DeviceInfo) -> Traffic {
    let bytes = plan.bytes() as f64;
    let lines = (plan.run as f64 / 64.0 + 0.5).ceil() * 64.0 / plan.run as f64;
    let set = workload.bytes() as f64;
    let write = if stream {
        Traffic { l1: bytes, l2: bytes, l3: bytes, memory: bytes }
    } else {
        Traffic::pass(2.0 * bytes, set, &device.caches)
    };
    Traffic::pass(bytes * lines, set, &device.caches) + write
}

impl Kernel for Rows {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Gather
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_rows.rs", "cpu_plan.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = ParameterSpace::threads(device.threads);
        let plan = plan(workload, true);
        let aligned =
            workload.outputs()[0].aligned && plan.outer.iter().chain([&plan.list]).all(|a| a.near % 32 == 0);
        let streams = self.isa == Isa::Avx2 && aligned && plan.run >= 64;
        if streams { space.streamed(workload, device) } else { space }
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = plan(workload, true);
        let stream = parameters.get(Knob::Stream) == Some(1);
        let rows = plan.positions() * plan.list.size;
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        // Index, addresses and requests of a row, and a move for each register of it.
        let moves = rows as f64 * (12.0 + plan.run as f64 / 32.0);
        let tasks = plan.positions() * plan.pieces(parameters.threads());
        Cost::new(moves, unit, traffic(&plan, workload, stream, device)).split(parameters.threads(), tasks)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let plan = plan(call.workload, true);
        if !self.isa.is_available() || self.isa == Isa::Avx2 && !plan.run.is_multiple_of(32) {
            return Err(KernelError("rows of whole registers and their instructions are needed".into()));
        }
        let rows = Picked {
            plan: &plan,
            x: call.inputs[0].address(),
            y: call.outputs[0].address(),
            index: call.inputs[1].address(),
            stream: call.parameters.get(Knob::Stream) == Some(1),
        };
        let pieces = plan.pieces(call.parameters.threads());
        call.cpu().threads().run(call.parameters.threads(), plan.positions() * pieces, &|task| {
            let (position, piece) = (task / pieces, task % pieces);
            let cut = |piece: usize| plan.list.size * piece / pieces;
            // SAFETY: indices were checked, other offsets lie inside the shapes, and each row is written by one task.
            unsafe {
                match self.isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => rows.registers(position, cut(piece), cut(piece + 1)),
                    _ => rows.plain(position, cut(piece), cut(piece + 1)),
                }
            }
        });
        Ok(())
    }
}

struct Picked<'a> {
    plan: &'a Plan,
    x: *const u8,
    y: *mut u8,
    index: *const u8,
    stream: bool,
}

// SAFETY: the memory outlives the call, inputs are only read, and tasks write disjoint rows of the output.
unsafe impl Sync for Picked<'_> {}

impl Picked<'_> {
    /// Calls `row(from, to)` for each index of a piece; rows that come later are asked for.
    ///
    /// # Safety
    /// The indices were checked and the piece lies inside the list.
    #[inline(always)]
    unsafe fn each(&self, position: usize, start: usize, end: usize, row: impl Fn(*const u8, *mut u8)) {
        let plan = self.plan;
        let (far, index, near) = plan.offsets(position);
        let indices = Indices { at: self.index, dtype: plan.index, n: plan.n };
        let (x, y) = (self.x.wrapping_offset(far), self.y.wrapping_offset(near));
        let ahead = (AHEAD / plan.run).clamp(1, 16);
        let lines = plan.run.div_ceil(64).min(LINES);
        // SAFETY: the caller's promise.
        let place =
            |j: usize| unsafe { indices.get(index + j as isize * plan.list.index) } as isize * plan.step;
        for j in start..end {
            if j + ahead < end {
                let later = x.wrapping_offset(place(j + ahead));
                (0..lines).for_each(|line| prefetch(later.wrapping_add(64 * line)));
            }
            row(x.wrapping_offset(place(j)), y.wrapping_offset(j as isize * plan.list.near));
        }
    }

    /// # Safety
    /// As [`Picked::each`], and every row is valid.
    unsafe fn plain(&self, position: usize, start: usize, end: usize) {
        let run = self.plan.run;
        // SAFETY: the caller's promise.
        unsafe { self.each(position, start, end, |from, to| std::ptr::copy_nonoverlapping(from, to, run)) }
    }

    /// # Safety
    /// As [`Picked::plain`]; rows are whole registers, aligned to one if they are streamed, and the CPU has AVX2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    unsafe fn registers(&self, position: usize, start: usize, end: usize) {
        use std::arch::x86_64::{
            __m256i, _mm_sfence, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256,
        };
        let registers = self.plan.run / 32;
        let moved = |from: *const u8, to: *mut u8| {
            let (from, to) = (from.cast::<__m256i>(), to.cast::<__m256i>());
            // SAFETY: the row has so many registers.
            unsafe {
                if self.stream {
                    (0..registers)
                        .for_each(|i| _mm256_stream_si256(to.add(i), _mm256_loadu_si256(from.add(i))));
                } else {
                    (0..registers)
                        .for_each(|i| _mm256_storeu_si256(to.add(i), _mm256_loadu_si256(from.add(i))));
                }
            }
        };
        // SAFETY: the caller's promise.
        unsafe { self.each(position, start, end, moved) };
        _mm_sfence();
    }
}
