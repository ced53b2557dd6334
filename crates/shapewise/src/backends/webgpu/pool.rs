//! Device memory by size class: reused, counted, limited, collected, compacted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use super::context::Context;
use super::error::{Result, WebGpuError};
use super::profiler::{MemoryEvent, Profiler};

/// What a buffer may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Usage {
    /// Data that kernels read and write, and that can be copied.
    Storage,
    /// Small parameters that kernels read.
    Uniform,
}

impl Usage {
    fn flags(self) -> wgpu::BufferUsages {
        let copied = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        copied | if self == Self::Storage { wgpu::BufferUsages::STORAGE } else { wgpu::BufferUsages::UNIFORM }
    }
}

/// Bytes of the smallest class: the alignment of bindings that every WebGPU device accepts.
const SMALLEST: u64 = 256;
/// A kept buffer up to this many times as large as needed is taken rather than a new one made; compaction undoes it.
const ROOMY: u64 = 2;

/// Bytes of the class that holds `bytes`: four classes for each power of two, so at most a fifth is unused.
fn class_of(bytes: u64) -> u64 {
    let bytes = bytes.max(SMALLEST);
    let step = (bytes.next_power_of_two() / 8).max(SMALLEST);
    bytes.next_multiple_of(step)
}

/// Sizes and counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Buffers in use.
    pub buffers: u64,
    /// Bytes that their owners asked for.
    pub allocated: u64,
    /// Bytes of device memory held, for buffers in use and kept ones.
    pub reserved: u64,
    /// Bytes kept for reuse.
    pub kept: u64,
    /// The most bytes held at any time.
    pub peak: u64,
    /// Buffers made by the device.
    pub made: u64,
    /// Buffers that were reused instead.
    pub reused: u64,
}

impl PoolStats {
    /// The share of held memory that nobody asked for: rounding, roomy reuse and what is kept.
    pub fn fragmentation(&self) -> f64 {
        if self.reserved == 0 { 0.0 } else { 1.0 - self.allocated as f64 / self.reserved as f64 }
    }
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Live buffers that were moved to a tighter place.
    pub moved: u64,
    /// Bytes copied for that.
    pub copied: u64,
    /// The pool before.
    pub before: PoolStats,
    /// The pool after.
    pub after: PoolStats,
}

/// Memory on the device, owned: the last clone gives it back to its pool.
#[derive(Clone)]
pub struct Buffer(Arc<Cell>);

struct Cell {
    id: u64,
    len: u64,
    usage: Usage,
    /// Compaction exchanges it.
    raw: Mutex<wgpu::Buffer>,
    pool: Arc<Pool>,
}

impl Buffer {
    /// Bytes that were asked for.
    pub fn len(&self) -> u64 {
        self.0.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// What it may be used for.
    pub fn usage(&self) -> Usage {
        self.0.usage
    }

    /// Bytes of device memory behind it.
    pub fn reserved(&self) -> u64 {
        self.raw().size()
    }

    /// The same number for clones of a buffer, another one for every other buffer of the process.
    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    /// The buffer of wgpu as it is now; commands on it must be submitted before compaction can exchange it.
    pub(super) fn raw(&self) -> wgpu::Buffer {
        lock(&self.0.raw).clone()
    }

    /// Whether it belongs to this pool.
    pub(super) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.0.pool, pool)
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes, {:?})", self.0.len, self.0.usage)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        let raw = lock(&self.raw).clone();
        self.pool.give_back(self.id, self.len, self.usage, raw);
    }
}

#[derive(Default)]
struct Inner {
    /// Buffers kept for reuse, by usage and size.
    kept: BTreeMap<(Usage, u64), Vec<wgpu::Buffer>>,
    live: BTreeMap<u64, Weak<Cell>>,
    stats: PoolStats,
}

/// All memory of one device.
pub struct Pool {
    context: Arc<Context>,
    profiler: Arc<Profiler>,
    limit: Option<u64>,
    largest: u64,
    inner: Mutex<Inner>,
    /// Read while commands are encoded and submitted, written while live buffers move.
    moving: RwLock<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// `largest` bounds one buffer, `limit` all of them.
    pub fn new(
        context: Arc<Context>,
        profiler: Arc<Profiler>,
        limit: Option<u64>,
        largest: u64,
    ) -> Arc<Self> {
        // Copies move whole words.
        let largest = largest / 4 * 4;
        let (inner, moving) = (Mutex::default(), RwLock::default());
        Arc::new(Self { context, profiler, limit, largest, inner, moving })
    }

    /// Holds live buffers where they are.
    pub fn hold(&self) -> impl Drop + '_ {
        self.moving.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer that holds whatever was there last.
    pub fn allocate(self: &Arc<Self>, len: u64, usage: Usage) -> Result<Buffer> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        self.context.check()?;
        if len > self.largest {
            return Err(WebGpuError::BufferTooLarge { bytes: len, limit: self.largest });
        }
        let class = class_of(len).min(self.largest).max(SMALLEST);
        let raw = match self.take_kept(class, usage) {
            Some(raw) => raw,
            None => self.make_or_collect(class, usage)?,
        };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let cell = Arc::new(Cell { id, len, usage, raw: Mutex::new(raw), pool: Arc::clone(self) });
        let mut inner = lock(&self.inner);
        inner.live.insert(id, Arc::downgrade(&cell));
        inner.stats.buffers += 1;
        inner.stats.allocated += len;
        let stats = inner.stats;
        drop(inner);
        self.profiler.memory(MemoryEvent::Allocate, len, &stats);
        Ok(Buffer(cell))
    }

    fn take_kept(&self, class: u64, usage: Usage) -> Option<wgpu::Buffer> {
        let mut inner = lock(&self.inner);
        let (&key, list) = inner.kept.range_mut((usage, class)..=(usage, class * ROOMY)).next()?;
        let raw = list.pop();
        if list.is_empty() {
            inner.kept.remove(&key);
        }
        inner.stats.kept -= key.1;
        inner.stats.reused += 1;
        raw
    }

    /// Makes a buffer; if there is no room, once more after everything kept was given back.
    fn make_or_collect(&self, class: u64, usage: Usage) -> Result<wgpu::Buffer> {
        match self.make(class, usage) {
            Err(WebGpuError::OutOfMemory { .. }) => {
                self.collect();
                self.make(class, usage)
            }
            done => done,
        }
    }

    fn make(&self, class: u64, usage: Usage) -> Result<wgpu::Buffer> {
        let reserved = {
            let mut inner = lock(&self.inner);
            let reserved = inner.stats.reserved;
            if self.limit.is_some_and(|limit| reserved + class > limit) {
                return Err(WebGpuError::OutOfMemory { requested: class, reserved, limit: self.limit });
            }
            // Counted before it is made, so that two threads cannot pass the limit together.
            inner.stats.reserved += class;
            reserved
        };
        let made = self.context.scoped("a buffer", || {
            self.context.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("shapewise"),
                size: class,
                usage: usage.flags(),
                mapped_at_creation: false,
            })
        });
        let mut inner = lock(&self.inner);
        if made.is_ok() {
            inner.stats.made += 1;
            inner.stats.peak = inner.stats.peak.max(inner.stats.reserved);
        } else {
            inner.stats.reserved -= class;
        }
        made.map_err(|error| match error {
            WebGpuError::OutOfMemory { .. } => {
                WebGpuError::OutOfMemory { requested: class, reserved, limit: self.limit }
            }
            other => other,
        })
    }

    fn give_back(&self, id: u64, len: u64, usage: Usage, raw: wgpu::Buffer) {
        let mut inner = lock(&self.inner);
        inner.live.remove(&id);
        inner.stats.buffers -= 1;
        inner.stats.allocated -= len;
        let size = raw.size();
        if self.context.is_lost() {
            inner.stats.reserved -= size;
        } else {
            // The queue runs in order, so work still under way is done before the next owner's.
            inner.stats.kept += size;
            inner.kept.entry((usage, size)).or_default().push(raw);
        }
        let stats = inner.stats;
        drop(inner);
        self.profiler.memory(MemoryEvent::Free, len, &stats);
    }

    /// Sizes and counters.
    pub fn stats(&self) -> PoolStats {
        lock(&self.inner).stats
    }

    /// Gives all kept buffers back to the device; returns their bytes.
    pub fn collect(&self) -> u64 {
        let kept = {
            let mut inner = lock(&self.inner);
            let kept = std::mem::take(&mut inner.kept);
            let bytes = std::mem::take(&mut inner.stats.kept);
            inner.stats.reserved -= bytes;
            drop(inner);
            drop(kept);
            bytes
        };
        // The driver frees memory of finished work only when it is asked.
        self.context.poll();
        kept
    }

    /// Moves every live buffer that has more room than its class to a tighter one, and gives the rest back.
    pub fn compact(&self) -> Result<Compaction> {
        self.compact_into(|class, usage| self.make(class, usage))
    }

    /// The same with places from `make`. After an error every buffer holds what it held, moved or not.
    fn compact_into(&self, mut make: impl FnMut(u64, Usage) -> Result<wgpu::Buffer>) -> Result<Compaction> {
        self.context.check()?;
        let _alone = self.moving.write().unwrap_or_else(PoisonError::into_inner);
        let started = self.profiler.begin();
        let before = self.stats();
        let live: Vec<_> = lock(&self.inner).live.values().filter_map(Weak::upgrade).collect();
        let mut done = Compaction { moved: 0, copied: 0, before, after: before };
        let (mut moves, mut failed) = (Vec::new(), None);
        for cell in live {
            let class = class_of(cell.len);
            if lock(&cell.raw).size() <= class {
                continue;
            }
            let tight = match make(class, cell.usage) {
                // Those that wait to be moved leave room behind.
                Err(WebGpuError::OutOfMemory { .. }) if !moves.is_empty() => self
                    .exchange(std::mem::take(&mut moves), &mut done)
                    .and_then(|()| make(class, cell.usage)),
                tried => tried,
            };
            match tight {
                Ok(tight) => moves.push((cell, tight)),
                // Without room for the copy the buffer stays where it is.
                Err(WebGpuError::OutOfMemory { .. }) => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let last = self.exchange(moves, &mut done);
        self.collect();
        done.after = self.stats();
        self.profiler.copied(MemoryEvent::Compact, done.copied, started);
        failed.map_or(last, Err).map(|()| done)
    }

    /// Copies buffers to their new places, which become theirs when the copy is done and are given back if it fails.
    fn exchange(&self, moves: Vec<(Arc<Cell>, wgpu::Buffer)>, done: &mut Compaction) -> Result<()> {
        if moves.is_empty() {
            return Ok(());
        }
        let bytes = |cell: &Cell| cell.len.next_multiple_of(4);
        let copied = self
            .context
            .scoped("a compaction", || {
                let mut encoder =
                    self.context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                for (cell, tight) in &moves {
                    encoder.copy_buffer_to_buffer(&lock(&cell.raw), 0, tight, 0, bytes(cell));
                }
                self.context.queue.submit([encoder.finish()])
            })
            // Whatever uses the buffers next comes after this in the queue; waiting only lets the driver free the old ones now.
            .and_then(|_| if cfg!(target_family = "wasm") { Ok(()) } else { self.context.wait(None, None) });
        for (cell, tight) in moves {
            let left = if copied.is_ok() {
                done.moved += 1;
                done.copied += bytes(&cell);
                std::mem::replace(&mut *lock(&cell.raw), tight)
            } else {
                tight
            };
            lock(&self.inner).stats.reserved -= left.size();
        }
        copied
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::webgpu::testing::open;

    #[test]
    fn a_compaction_that_fails_midway_loses_nothing() {
        let Some(device) = open() else { return };
        let contents: Vec<Vec<u8>> =
            (0..3u8).map(|i| vec![i + 1; 70_000 + 30_000 * usize::from(i)]).collect();
        drop(contents.iter().map(|bytes| device.allocate(bytes.len() as u64 * 3 / 2)).collect::<Vec<_>>());
        let live: Vec<_> = contents.iter().map(|bytes| device.upload(bytes).unwrap()).collect();
        let before = device.memory();
        let mut made = 0;
        let failed = device.pool().compact_into(|class, usage| {
            made += 1;
            if made == 3 {
                return Err(WebGpuError::Refused { what: "a buffer".into(), reason: "of a test".into() });
            }
            device.pool().make(class, usage)
        });
        assert!(matches!(failed, Err(WebGpuError::Refused { .. })), "{failed:?}");
        for (buffer, bytes) in live.iter().zip(&contents) {
            assert!(device.download::<u8>(buffer).unwrap() == *bytes, "{buffer:?}");
        }
        let held: u64 = live.iter().map(Buffer::reserved).sum();
        assert_eq!((device.memory().reserved, device.memory().allocated), (held, before.allocated));
        assert_eq!(device.compact().unwrap().moved, 1, "what was left is moved the next time");
    }

    #[test]
    fn where_memory_is_short_a_compaction_goes_on_in_the_room_it_made() {
        let Some(device) = open() else { return };
        drop([600_000, 600_000].map(|bytes| device.allocate(bytes).unwrap()));
        let live = [1u8, 2].map(|byte| device.upload(&vec![byte; 400_000]).unwrap());
        let pool = device.pool();
        let room = pool.stats().reserved + class_of(400_000);
        let done = pool
            .compact_into(|class, usage| {
                let reserved = pool.stats().reserved;
                if reserved + class > room {
                    return Err(WebGpuError::OutOfMemory { requested: class, reserved, limit: Some(room) });
                }
                pool.make(class, usage)
            })
            .unwrap();
        assert_eq!((done.moved, done.copied), (2, 800_000));
        for (buffer, byte) in live.iter().zip([1, 2]) {
            assert!(device.download::<u8>(buffer).unwrap().iter().all(|&b| b == byte));
        }
    }

    #[test]
    fn classes_waste_at_most_a_fifth() {
        assert_eq!([0, 1, 256, 257, 1 << 20].map(class_of), [256, 256, 256, 512, 1 << 20]);
        for bytes in (1025..1 << 16).step_by(7).chain([(1 << 30) + 1, (3 << 30) - 5]) {
            let class = class_of(bytes);
            assert!(class >= bytes && class.is_multiple_of(SMALLEST), "{bytes}: {class}");
            assert!((class - bytes) as f64 <= 0.25 * bytes as f64, "{bytes}: {class}");
            assert_eq!(class_of(class), class);
        }
    }

    #[test]
    fn fragmentation_is_what_nobody_asked_for() {
        let stats = PoolStats { allocated: 300, reserved: 400, ..PoolStats::default() };
        assert_eq!(stats.fragmentation(), 0.25);
        assert_eq!(PoolStats::default().fragmentation(), 0.0);
    }
}
