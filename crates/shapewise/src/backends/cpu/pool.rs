//! Memory of the CPU device: aligned buffers that are kept and given out again.
//!
//! Buffers come in size classes, four per doubling, so that a request is rounded up by a quarter at most and
//! tensors of nearly the same size share. Each class has its own small lock, taken once by `take` and once
//! when the buffer comes back; the counters live under the same lock and cost nothing extra.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

mod placement;
mod system;

pub use placement::MemoryPlan;
use placement::Placement;

/// Every buffer starts at a multiple of this: a cache line, and the widest vector register.
pub const ALIGNMENT: usize = 64;
/// Classes per doubling of the size.
const STEPS: usize = 4;
/// The largest request: an eighth of the address space, so that rounding up can never overflow.
const LARGEST: usize = usize::MAX >> 3;
const CLASSES: usize = class_of(LARGEST) + 1;

/// Why a buffer could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The pool's limit would be exceeded even with nothing kept for later.
    #[error(
        "{requested} bytes exceed the memory limit of {limit} bytes ({in_use} are in use); raise the limit or free tensors"
    )]
    LimitExceeded {
        /// Bytes asked for, rounded up to their size class.
        requested: usize,
        /// The limit of the pool.
        limit: usize,
        /// Bytes given out when the request came.
        in_use: usize,
    },
    /// The system refused.
    #[error("the system has no {requested} bytes of memory left")]
    OutOfMemory {
        /// Bytes asked for.
        requested: usize,
    },
}

/// What a pool has done and holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Buffers that had to come from the system.
    pub allocations: u64,
    /// Buffers that were given out again.
    pub reuses: u64,
    /// Bytes given out now, by size class.
    pub bytes_in_use: usize,
    /// Bytes kept for the next request.
    pub bytes_kept: usize,
}

/// A pool of aligned buffers; clones share it.
#[derive(Clone)]
pub struct MemoryPool {
    inner: Arc<Inner>,
}

struct Inner {
    classes: Box<[Mutex<Class>]>,
    limit: Option<usize>,
    /// Bytes that came from the system and have not gone back.
    held: AtomicUsize,
    /// Where buffers that come from the system from now on lie.
    placement: Mutex<Placement>,
}

/// The buffers of one size.
#[derive(Default)]
struct Class {
    free: Vec<Buffer>,
    in_use: usize,
    allocations: u64,
    reuses: u64,
}

/// The start of a buffer that nobody else has; its size follows from its class.
struct Buffer(NonNull<u8>);

// SAFETY: a `Buffer` is the only owner of its memory, which is not tied to a thread.
unsafe impl Send for Buffer {}

impl MemoryPool {
    /// A pool that holds at most `limit` bytes of system memory, or as much as there is.
    pub fn new(limit: Option<usize>) -> Self {
        let classes = (0..CLASSES).map(|_| Mutex::default()).collect();
        Self {
            inner: Arc::new(Inner { classes, limit, held: AtomicUsize::new(0), placement: Mutex::default() }),
        }
    }

    /// The pool that tensors made without a runtime come from.
    pub fn global() -> &'static Self {
        static GLOBAL: LazyLock<MemoryPool> = LazyLock::new(MemoryPool::default);
        &GLOBAL
    }

    /// A buffer of this many bytes, starting at a multiple of 64 bytes. New ones are zero, reused ones hold old data.
    pub fn take(&self, bytes: usize) -> Result<PooledBytes, MemoryError> {
        if bytes == 0 {
            let start = NonNull::<Aligned>::dangling().cast();
            return Ok(PooledBytes { start, len: 0, class: 0, pool: None });
        }
        if bytes > LARGEST {
            return Err(MemoryError::OutOfMemory { requested: bytes });
        }
        let class = class_of(bytes);
        let mut slot = self.inner.class(class);
        let start = if let Some(Buffer(start)) = slot.free.pop() {
            slot.reuses += 1;
            slot.in_use += 1;
            start
        } else {
            drop(slot);
            let Buffer(start) = self.inner.allocate(class)?;
            let mut slot = self.inner.class(class);
            slot.allocations += 1;
            slot.in_use += 1;
            start
        };
        Ok(PooledBytes { start, len: bytes, class, pool: Some(Arc::clone(&self.inner)) })
    }

    /// Places large buffers from now on on a machine with these nodes of memory; those that are kept go back to the system, those
    /// in use stay where they are. The error says why it cannot be.
    pub fn place(&self, plan: MemoryPlan, nodes: &[usize]) -> Result<(), String> {
        let placement = Placement::new(plan, nodes)?;
        system::possible(&placement)?;
        *self.inner.placement.lock().unwrap_or_else(PoisonError::into_inner) = placement;
        self.trim();
        Ok(())
    }

    /// Where large buffers lie.
    pub fn plan(&self) -> MemoryPlan {
        self.inner.placement().plan
    }

    /// Gives the kept buffers back to the system.
    pub fn trim(&self) {
        self.inner.trim();
    }

    /// Counters and sizes; exact when no other thread uses the pool.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats::default();
        for class in 0..CLASSES {
            let slot = self.inner.class(class);
            stats.allocations += slot.allocations;
            stats.reuses += slot.reuses;
            stats.bytes_in_use += slot.in_use * size_of_class(class);
            stats.bytes_kept += slot.free.len() * size_of_class(class);
        }
        stats
    }

    /// The most system memory the pool may hold.
    pub fn limit(&self) -> Option<usize> {
        self.inner.limit
    }
}

impl Default for MemoryPool {
    fn default() -> Self {
        Self::new(None)
    }
}

impl std::fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryPool").field("limit", &self.inner.limit).field("stats", &self.stats()).finish()
    }
}

impl Inner {
    fn class(&self, class: usize) -> MutexGuard<'_, Class> {
        self.classes[class].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn placement(&self) -> Placement {
        *self.placement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new buffer from the system; what is kept makes room for it where the limit or the system demands it.
    fn allocate(&self, class: usize) -> Result<Buffer, MemoryError> {
        let size = size_of_class(class);
        if !self.reserve(size) {
            self.trim();
            if !self.reserve(size) {
                return Err(MemoryError::LimitExceeded {
                    requested: size,
                    limit: self.limit.unwrap_or(usize::MAX),
                    in_use: self.held.load(Ordering::Relaxed),
                });
            }
        }
        let placement = self.placement();
        let buffer = system::allocate(size, &placement).or_else(|| {
            self.trim();
            system::allocate(size, &placement)
        });
        buffer.map(Buffer).ok_or_else(|| {
            self.held.fetch_sub(size, Ordering::Relaxed);
            MemoryError::OutOfMemory { requested: size }
        })
    }

    /// Counts these bytes as held, if the limit allows.
    fn reserve(&self, size: usize) -> bool {
        let limit = self.limit.unwrap_or(usize::MAX);
        let fits = |held: usize| held.checked_add(size).filter(|&sum| sum <= limit);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn trim(&self) {
        for class in 0..CLASSES {
            let free = std::mem::take(&mut self.class(class).free);
            for Buffer(start) in free {
                // SAFETY: the buffer was allocated with the size of its class and nobody else has it.
                unsafe { system::free(start, size_of_class(class)) };
                self.held.fetch_sub(size_of_class(class), Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.trim();
    }
}

/// A buffer on loan from a [`MemoryPool`]; goes back when dropped.
pub struct PooledBytes {
    start: NonNull<u8>,
    len: usize,
    class: usize,
    /// None for the empty buffer, which has no memory.
    pool: Option<Arc<Inner>>,
}

// SAFETY: the bytes belong to this value alone, as those of a `Vec<u8>` would.
unsafe impl Send for PooledBytes {}
// SAFETY: a shared reference only allows reading the bytes.
unsafe impl Sync for PooledBytes {}

impl PooledBytes {
    /// The first byte, at a multiple of 64 bytes.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The first byte, for writing.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Deref for PooledBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is valid for `len` bytes, which were zero when allocated and are initialised ever since.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for PooledBytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the bytes belong to this value alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for PooledBytes {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            let mut slot = pool.class(self.class);
            slot.in_use -= 1;
            slot.free.push(Buffer(self.start));
        }
    }
}

impl std::fmt::Debug for PooledBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PooledBytes")
            .field("start", &self.start)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Gives the address of the empty buffer the alignment that all have.
#[repr(align(64))]
struct Aligned;
const _: () = assert!(align_of::<Aligned>() == ALIGNMENT);

/// The smallest class that holds this many bytes, which are at least one and at most `LARGEST`.
const fn class_of(bytes: usize) -> usize {
    let last = (bytes - 1) / ALIGNMENT;
    if last < STEPS {
        return last;
    }
    // `last` has a leading one and two bits that number the step within its doubling.
    let shift = last.ilog2() - STEPS.ilog2();
    (shift as usize + 1) * STEPS + (last >> shift) - STEPS
}

/// The bytes of every buffer of a class.
const fn size_of_class(class: usize) -> usize {
    if class < STEPS {
        return (class + 1) * ALIGNMENT;
    }
    let shift = class / STEPS - 1;
    ((class % STEPS + STEPS + 1) << shift) * ALIGNMENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_asked_for() {
        let mut before = 0;
        for class in 0..CLASSES {
            let size = size_of_class(class);
            assert!(size > before && size.is_multiple_of(ALIGNMENT));
            assert_eq!(class_of(size), class);
            assert_eq!(class_of(before + 1), class);
            assert!(size <= before + before.div_ceil(4).max(ALIGNMENT));
            before = size;
        }
        assert!(before >= LARGEST);
    }

    #[test]
    fn buffers_are_aligned_zeroed_and_used_again() {
        for bytes in [1, 63, 64, 65, 1000, 100_000, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 5_000_000] {
            let pool = MemoryPool::default();
            let mut buffer = pool.take(bytes).unwrap();
            assert_eq!(buffer.len(), bytes);
            assert_eq!(buffer.as_ptr().addr() % ALIGNMENT, 0);
            assert!(buffer.first() == Some(&0) && buffer.last() == Some(&0));
            let start = buffer.as_mut_ptr();
            buffer[bytes - 1] = 7;
            drop(buffer);
            let again = pool.take(bytes).unwrap();
            assert_eq!(again.as_ptr(), start.cast_const());
            assert_eq!(again[bytes - 1], 7);
            pool.trim();
            assert_eq!(again[bytes - 1], 7, "buffers in use stay");
            drop(again);
            assert_eq!(pool.stats().bytes_in_use, 0);
        }
    }

    #[test]
    fn the_steady_state_allocates_nothing() {
        let pool = MemoryPool::default();
        let work = || {
            let a = pool.take(1000).unwrap();
            let b = pool.take(1000).unwrap();
            let c = pool.take(3_000_000).unwrap();
            (a.len() + b.len(), c.len())
        };
        work();
        let first = pool.stats();
        assert_eq!((first.allocations, first.reuses, first.bytes_in_use), (3, 0, 0));
        for _ in 0..10 {
            work();
        }
        let later = pool.stats();
        assert_eq!((later.allocations, later.reuses), (3, 30));
        assert_eq!(later.bytes_kept, first.bytes_kept);
        pool.trim();
        assert_eq!(pool.stats().bytes_kept, 0);
        work();
        assert_eq!(pool.stats().allocations, 6);
    }

    #[test]
    fn nothing_costs_nothing() {
        let pool = MemoryPool::new(Some(0));
        let mut empty = pool.take(0).unwrap();
        assert_eq!(empty.as_ptr().addr() % ALIGNMENT, 0);
        assert!(empty.is_empty() && empty.iter_mut().next().is_none());
        drop(empty);
        assert_eq!(pool.stats(), MemoryStats::default());
    }

    #[test]
    fn the_limit_holds_and_what_is_kept_makes_room() {
        let pool = MemoryPool::new(Some(4096));
        assert_eq!(pool.limit(), Some(4096));
        drop(pool.take(2048).unwrap());
        let all = pool.take(4096).unwrap();
        assert_eq!((pool.stats().bytes_in_use, pool.stats().bytes_kept), (4096, 0));
        let error = pool.take(1).unwrap_err();
        assert_eq!(error, MemoryError::LimitExceeded { requested: 64, limit: 4096, in_use: 4096 });
        drop(all);
        assert!(pool.take(4097).is_err());
        assert!(pool.take(4096).is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter stops where the system refuses")]
    fn impossible_sizes_are_errors() {
        let pool = MemoryPool::default();
        for bytes in [usize::MAX, isize::MAX as usize, LARGEST + 1, LARGEST] {
            assert!(matches!(pool.take(bytes), Err(MemoryError::OutOfMemory { .. })), "{bytes}");
        }
        assert_eq!(pool.stats(), MemoryStats::default());
        assert!(pool.take(100).is_ok(), "the failures are not counted as held");
    }

    #[test]
    fn buffers_outlive_their_pool_and_cross_threads() {
        let pool = MemoryPool::default();
        let mut buffer = pool.take(500).unwrap();
        drop(pool);
        let buffer = std::thread::spawn(move || {
            buffer.fill(9);
            buffer
        });
        assert!(buffer.join().unwrap().iter().all(|&byte| byte == 9));
    }

    #[test]
    fn threads_never_share_a_buffer() {
        let pool = MemoryPool::default();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let pool = pool.clone();
                scope.spawn(move || {
                    for round in 0..if cfg!(miri) { 10 } else { 2000 } {
                        let mut buffers = [64, 200, 64].map(|bytes| pool.take(bytes).unwrap());
                        for buffer in &mut buffers {
                            buffer.fill(thread);
                        }
                        assert!(buffers.iter().all(|buffer| buffer.iter().all(|&byte| byte == thread)));
                        if round % 100 == 0 {
                            pool.trim();
                        }
                    }
                });
            }
        });
        assert_eq!(pool.stats().bytes_in_use, 0);
    }
}
