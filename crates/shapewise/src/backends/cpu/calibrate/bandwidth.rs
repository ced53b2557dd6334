//! Bandwidth of the caches and of memory: reading, copying, and copying past the caches.

use std::hint::black_box;
use std::ptr::NonNull;

use super::super::MemoryPool;
use super::super::pool::PooledBytes;
use super::super::real::prefetch_write;
use super::super::simd::{Isa, Lanes, Simd, SimdTask};
use super::trial::Trial;
use crate::device::{BandwidthPeak, DeviceInfo, Level};

/// Elements that one turn of the loops moves.
const BLOCK: usize = 256;
const BLOCK_BYTES: usize = BLOCK * size_of::<f32>();
/// Memory is measured over at least so many bytes, and at most so many.
const MEMORY_SET: std::ops::RangeInclusive<usize> = 64 << 20..=1 << 30;

/// Bytes that lines are asked for before they are written.
const ASKED_AHEAD: usize = 1 << 10;

/// A way to go over memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Read,
    /// Reads in four places at once: one stream does not keep the prefetchers of the outer levels busy.
    ReadApart,
    Copy,
    /// Asks for the lines that are written later, which some CPUs bring in late by themselves.
    CopyAhead,
    Stream,
}

/// Memory that the trials share; each thread has its own part.
pub struct Arena {
    bytes: PooledBytes,
    start: NonNull<f32>,
}

// SAFETY: every trial gives each thread a part of its own, and trials follow one another.
unsafe impl Sync for Arena {}

/// The trials of one level at one number of threads.
pub struct LevelTrials<'a> {
    level: Level,
    threads: usize,
    read: Trial<'a>,
    read_apart: Trial<'a>,
    copy: Trial<'a>,
    copy_ahead: Trial<'a>,
    stream: Trial<'a>,
}

/// Bytes that one of `threads` threads goes over, so that they come from this level; none where its size is unknown.
fn set_bytes(level: Level, threads: usize, info: &DeviceInfo) -> Option<usize> {
    let caches = &info.caches;
    let groups = info.l3_groups.len().max(1);
    // A set must overflow the level before by so much that little of it is left there.
    let beyond = |set: usize, smaller: Option<usize>| (set >= 2 * smaller.unwrap_or(0)).then_some(set);
    let set = match level {
        Level::L1 => Some(caches.l1d? / 2),
        Level::L2 => beyond(caches.l2? / 2, caches.l1d),
        Level::L3 => beyond(caches.l3? / 4 / threads.div_ceil(groups), caches.l2),
        Level::Memory => {
            let sharing = groups.min(threads);
            let last_level = caches.l3.or(caches.l2).unwrap_or(0).saturating_mul(sharing);
            let (least, most) = (*MEMORY_SET.start(), *MEMORY_SET.end());
            let wanted = last_level.saturating_mul(4).clamp(least, most);
            let set = wanted.min(info.memory.unwrap_or(usize::MAX) / 8);
            (set >= 2 * last_level).then_some(set / threads)
        }
    };
    // Whole blocks, half of them to copy from and half to copy to.
    set.map(|bytes| bytes / (2 * BLOCK_BYTES) * (2 * BLOCK_BYTES)).filter(|&bytes| bytes > 0)
}

/// What there is to measure: level, threads, bytes for each thread.
pub fn plan(info: &DeviceInfo) -> Vec<(Level, usize, usize)> {
    let mut plan = Vec::new();
    for level in [Level::L1, Level::L2, Level::L3, Level::Memory] {
        for threads in super::thread_counts(info.threads) {
            plan.extend(set_bytes(level, threads, info).map(|bytes| (level, threads, bytes)));
        }
    }
    plan
}

impl Arena {
    /// Memory for all trials of a plan, written once so that it is really there.
    pub fn new(plan: &[(Level, usize, usize)]) -> Option<Self> {
        let bytes = plan.iter().map(|&(_, threads, bytes)| threads * bytes).max()?;
        let mut bytes = MemoryPool::new(None).take(bytes).ok()?;
        bytes.fill(1);
        let start = NonNull::new(bytes.as_mut_ptr())?.cast();
        Some(Self { bytes, start })
    }

    /// The trials of one entry of the plan.
    pub fn trials(&self, level: Level, threads: usize, bytes: usize) -> LevelTrials<'_> {
        assert!(threads * bytes <= self.bytes.len(), "the arena is made for its plan");
        let elements = bytes / size_of::<f32>();
        let isa = Isa::best();
        let trial = |pass: Pass| {
            Trial::new(threads, bytes as f64, move |thread, repeats| {
                // Parts begin at multiples of a block, hence of a register.
                let start = self.start.as_ptr().wrapping_add(thread * elements);
                isa.run(Sweep { pass, start, elements, repeats });
            })
        };
        LevelTrials {
            level,
            threads,
            read: trial(Pass::Read),
            read_apart: trial(Pass::ReadApart),
            copy: trial(Pass::Copy),
            copy_ahead: trial(Pass::CopyAhead),
            stream: trial(Pass::Stream),
        }
    }
}

impl<'a> LevelTrials<'a> {
    /// All of them.
    pub fn all(&mut self) -> [&mut Trial<'a>; 5] {
        [&mut self.read, &mut self.read_apart, &mut self.copy, &mut self.copy_ahead, &mut self.stream]
    }

    /// The result.
    pub fn peak(&self) -> Option<BandwidthPeak> {
        let Self { level, threads, .. } = *self;
        let read = self.read.rate()?.max(self.read_apart.rate()?);
        let (copy, stream) = (self.copy.rate()?.max(self.copy_ahead.rate()?), self.stream.rate()?);
        Some(BandwidthPeak { level, threads, read, copy, stream })
    }
}

/// Goes over a part again and again; it lies within the arena and belongs to the running thread.
struct Sweep {
    pass: Pass,
    start: *mut f32,
    elements: usize,
    repeats: usize,
}

impl SimdTask for Sweep {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for _ in 0..self.repeats {
            // SAFETY: `Arena::trials` gives whole pairs of blocks inside the arena that no other thread uses.
            unsafe {
                match self.pass {
                    Pass::Read => read::<S, 1, 8>(s, self.start, self.elements),
                    Pass::ReadApart => read::<S, 4, 2>(s, self.start, self.elements),
                    Pass::Copy => copy::<S, false, false>(s, self.start, self.elements),
                    Pass::CopyAhead => copy::<S, false, true>(s, self.start, self.elements),
                    Pass::Stream => copy::<S, true, false>(s, self.start, self.elements),
                }
            }
        }
    }
}

/// Reads everything in `STREAMS` places at once, `REGISTERS` at a time; the values are combined by the cheapest
/// instruction there is.
///
/// # Safety
/// `elements` from `start` on are readable, a multiple of `BLOCK`.
#[inline(always)]
unsafe fn read<S: Lanes<f32>, const STREAMS: usize, const REGISTERS: usize>(
    s: S,
    start: *const f32,
    elements: usize,
) {
    let part = elements / STREAMS;
    let mut all = [[s.splat(0.0); REGISTERS]; STREAMS];
    let mut at = 0;
    while at < part {
        for (stream, ones) in all.iter_mut().enumerate() {
            for (register, one) in ones.iter_mut().enumerate() {
                // SAFETY: a block is a multiple of eight registers, so a part is one of `REGISTERS`.
                let next = unsafe { s.load(start.add(stream * part + at + register * S::LANES)) };
                *one = s.or(*one, next);
            }
        }
        at += REGISTERS * S::LANES;
    }
    for one in all.into_iter().flatten() {
        black_box(s.first(one));
    }
}

/// Copies the first half to the second.
///
/// # Safety
/// `elements` from `start` on are readable and writable, a multiple of two blocks, aligned to a register.
#[inline(always)]
unsafe fn copy<S: Lanes<f32>, const STREAM: bool, const AHEAD: bool>(s: S, start: *mut f32, elements: usize) {
    const STEP: usize = 4;
    let half = elements / 2;
    let mut at = 0;
    while at < half {
        for i in 0..STEP {
            // SAFETY: a block is a multiple of STEP registers, and `half` of blocks.
            unsafe {
                let from = start.add(at + i * S::LANES);
                let value = s.load(from);
                if AHEAD {
                    prefetch_write(from.wrapping_add(half).wrapping_byte_add(ASKED_AHEAD));
                }
                if STREAM {
                    s.stream(from.add(half), value);
                } else {
                    s.store(from.add(half), value);
                }
            }
        }
        at += STEP * S::LANES;
    }
    if STREAM {
        s.fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::cpu::CpuBackend;
    use crate::device::{Backend, Caches};

    fn machine(threads: usize, l3: Option<usize>) -> DeviceInfo {
        let mut info = CpuBackend.find().remove(0);
        info.threads = threads;
        info.caches = Caches { l1d: Some(32 << 10), l2: Some(512 << 10), l3 };
        info.l3_groups = vec![vec![0, 1]];
        info.memory = Some(16 << 30);
        info
    }

    #[test]
    fn sets_fit_their_level_and_overflow_the_one_before() {
        let info = machine(2, Some(32 << 20));
        assert_eq!(set_bytes(Level::L1, 1, &info), Some(16 << 10));
        assert_eq!(set_bytes(Level::L2, 2, &info), Some(256 << 10));
        assert_eq!(set_bytes(Level::L3, 2, &info), Some(4 << 20));
        assert_eq!(set_bytes(Level::Memory, 2, &info), Some(64 << 20));
        assert_eq!(set_bytes(Level::L3, 64, &info), None, "the share of a thread fits its second level");
        assert_eq!(plan(&info).len(), 8);
    }

    #[test]
    fn unknown_caches_are_left_out() {
        let mut info = machine(1, None);
        assert_eq!(set_bytes(Level::L3, 1, &info), None);
        info.caches = Caches::default();
        assert_eq!(plan(&info), [(Level::Memory, 1, 64 << 20)]);
        info.memory = Some(64 << 20);
        assert_eq!(plan(&info), [(Level::Memory, 1, 8 << 20)]);
    }

    #[test]
    fn sweeps_copy_what_they_should() {
        for &isa in Isa::available() {
            for pass in [Pass::Read, Pass::ReadApart, Pass::Copy, Pass::CopyAhead, Pass::Stream] {
                let mut bytes = MemoryPool::new(None).take(4 * BLOCK_BYTES).unwrap();
                let (from, to) = bytes.split_at_mut(2 * BLOCK_BYTES);
                for (i, byte) in from.iter_mut().enumerate() {
                    *byte = (i % 251) as u8;
                }
                to.fill(0);
                let start = bytes.as_mut_ptr().cast();
                isa.run(Sweep { pass, start, elements: 4 * BLOCK, repeats: 2 });
                let (from, to) = bytes.split_at(2 * BLOCK_BYTES);
                assert_eq!(from == to, !matches!(pass, Pass::Read | Pass::ReadApart), "{isa} {pass:?}");
            }
        }
    }
}
