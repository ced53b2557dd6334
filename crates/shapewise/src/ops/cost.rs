//! What a kernel executes, in countable things.

use serde::{Deserialize, Serialize};

use super::{TensorDesc, Workload};
use crate::backends::cpu::simd::Isa;
use crate::device::{Caches, DeviceInfo, Level};
use crate::tensor::DType;

/// The arithmetic unit whose measured peak bounds a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ComputeUnit {
    /// Type of the numbers computed with.
    pub dtype: DType,
    /// Instruction set; `None` is scalar code.
    pub isa: Option<Isa>,
}

/// Bytes that cross each border of the memory hierarchy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Between registers and the first-level cache.
    pub l1: f64,
    /// Between the first and the second level.
    pub l2: f64,
    /// Between the second and the third level.
    pub l3: f64,
    /// Between the last level and memory.
    pub memory: f64,
}

impl Traffic {
    /// `bytes` moved once by a pass over a working set: they come from the smallest level that holds the set.
    pub fn pass(bytes: f64, working_set: f64, caches: &Caches) -> Self {
        let beyond = |level: Option<usize>| level.is_some_and(|size| working_set > size as f64);
        let l2 = if beyond(caches.l1d) { bytes } else { 0.0 };
        let l3 = if beyond(caches.l2) { bytes } else { 0.0 };
        let memory = if beyond(caches.l3.or(caches.l2)) { bytes } else { 0.0 };
        Self { l1: bytes, l2, l3, memory }
    }

    /// `bytes` written past the caches. Memory's rate is that of a copy, half of whose bytes are written through the caches: where a
    /// copy past them was measured to be slower or faster, each of these bytes counts for more or less than one.
    pub fn past_caches(bytes: f64, threads: usize, device: &DeviceInfo) -> Self {
        let rates = device.peaks.as_ref().and_then(|peaks| {
            peaks.bandwidth(Level::Memory, threads).zip(peaks.streaming(Level::Memory, threads))
        });
        let each = rates.map_or(1.0, |(copy, stream)| (2.0 * copy / stream - 1.0).max(0.0));
        // Between the caches they are counted as others are, so that what was measured alone decides.
        Self { l1: bytes, l2: bytes, l3: bytes, memory: bytes * each }
    }
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            l1: self.l1 + other.l1,
            l2: self.l2 + other.l2,
            l3: self.l3 + other.l3,
            memory: self.memory + other.memory,
        }
    }
}

/// What a kernel really executes for a workload at given parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Arithmetic operations, padding and recomputation included.
    pub operations: f64,
    /// The unit that executes them.
    pub unit: ComputeUnit,
    /// Bytes moved at each level, packing and repeated reads included.
    pub traffic: Traffic,
    /// Threads that share the work.
    pub threads: usize,
    /// Share of the work on the busiest thread times the threads: 1 is a perfect split.
    pub imbalance: f64,
    /// Times that work is handed to the other threads.
    pub forks: u32,
    /// Bytes of scratch memory.
    pub scratch: usize,
    /// Seconds on another device by its own measured peaks, launches and the copies to it and back included.
    pub elsewhere: f64,
}

impl Cost {
    /// One thread, no scratch.
    pub fn new(operations: f64, unit: ComputeUnit, traffic: Traffic) -> Self {
        Self { operations, unit, traffic, threads: 1, imbalance: 1.0, forks: 0, scratch: 0, elsewhere: 0.0 }
    }

    /// With what it takes to widen every 16-bit input once and to narrow such outputs, where no instruction does it.
    ///
    /// Counted from `simd::halves`, where a number takes 15 instructions to widen and 20 to narrow, and from the crate
    /// `half`, which shifts a `bf16` and looks out for NaN.
    #[must_use]
    pub(crate) fn converting(self, workload: &Workload) -> Self {
        if self.unit.isa != Some(Isa::Portable) {
            return self;
        }
        let count = |operands: &[TensorDesc], f16: f64, bf16: f64| -> f64 {
            let one = |operand: &TensorDesc| match operand.dtype {
                DType::F16 => f16 * operand.len() as f64,
                DType::BF16 => bf16 * operand.len() as f64,
                _ => 0.0,
            };
            operands.iter().map(one).sum()
        };
        let more = count(workload.inputs(), 15.0, 3.0) + count(workload.outputs(), 20.0, 8.0);
        Self { operations: self.operations + more, ..self }
    }

    /// Split evenly in `tasks` pieces over `threads` threads with one hand-over.
    #[must_use]
    pub fn split(self, threads: usize, tasks: usize) -> Self {
        let threads = threads.min(tasks).max(1);
        let busiest = tasks.max(1).div_ceil(threads) as f64 / tasks.max(1) as f64;
        Self { threads, imbalance: busiest * threads as f64, forks: u32::from(threads > 1), ..self }
    }

    /// The same where all threads do a share of the work together before they take tasks of the rest.
    #[must_use]
    pub fn split_after(self, together: f64, threads: usize, tasks: usize) -> Self {
        let apart = self.split(threads, tasks);
        if together <= 0.0 {
            return apart;
        }
        // Without a task of its own a thread waits for the others.
        let rest = apart.imbalance * threads as f64 / apart.threads as f64;
        Self {
            threads,
            imbalance: together + (1.0 - together) * rest,
            forks: u32::from(threads > 1),
            ..apart
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::cpu::CpuBackend;
    use crate::device::{Backend, BandwidthPeak, Peaks};
    use crate::ops::Operation;
    use crate::tensor::Shape;

    #[test]
    fn a_pass_touches_the_levels_it_overflows() {
        let caches = Caches { l1d: Some(32 << 10), l2: Some(512 << 10), l3: Some(32 << 20) };
        let small = Traffic::pass(1e4, 1e4, &caches);
        assert_eq!((small.l2, small.l3, small.memory), (0.0, 0.0, 0.0));
        let big = Traffic::pass(1e8, 1e8, &caches);
        assert_eq!((big.l1, big.l2, big.l3, big.memory), (1e8, 1e8, 1e8, 1e8));
    }

    #[test]
    fn bytes_past_the_caches_count_as_they_were_measured() {
        let mut device = CpuBackend.find().remove(0);
        let mut memory = |copy: f64, stream: f64| {
            let peak = BandwidthPeak { level: Level::Memory, threads: 1, read: copy, copy, stream };
            device.peaks = Some(Peaks { bandwidth: vec![peak], ..Peaks::default() });
            Traffic::past_caches(1e8, 1, &device).memory
        };
        // Read and written halves of a copy take as long; past the caches the written one takes a quarter of that, or a quarter more.
        assert_eq!([memory(10e9, 16e9), memory(9e9, 8e9)], [0.25e8, 1.25e8]);
        device.peaks = None;
        assert_eq!(Traffic::past_caches(1e8, 1, &device).memory, 1e8);
    }

    #[test]
    fn halves_cost_more_without_instructions_for_them() {
        let half = TensorDesc::contiguous(DType::F16, Shape::new(&[10]).unwrap());
        let workload = Workload::new(Operation::Copy, &[half], &[half]);
        let of = |isa| {
            let unit = ComputeUnit { dtype: DType::F32, isa: Some(isa) };
            Cost::new(1.0, unit, Traffic::default()).converting(&workload).operations
        };
        assert_eq!([of(Isa::Portable), of(Isa::Avx2)], [351.0, 1.0]);
    }

    #[test]
    fn splits_know_the_busiest_thread() {
        let unit = ComputeUnit { dtype: DType::F32, isa: None };
        let cost = Cost::new(9.0, unit, Traffic::default()).split(2, 3);
        assert_eq!((cost.threads, cost.forks), (2, 1));
        assert!((cost.imbalance - 4.0 / 3.0).abs() < 1e-12);
        assert_eq!(Cost::new(9.0, unit, Traffic::default()).split(4, 1).threads, 1);
    }
}
