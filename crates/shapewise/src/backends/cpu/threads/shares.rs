//! Tasks that each thread begins with, and how the others take them over.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use arrayvec::ArrayVec;

/// The most threads with shares of their own: these lie on the stack.
const MOST: usize = 64;

/// What each thread of a run has left.
pub(super) struct Shares(ArrayVec<Share, MOST>);

impl Shares {
    /// No thread has anything.
    #[inline]
    pub const fn none() -> Self {
        Self(ArrayVec::new_const())
    }

    /// Gives each thread neighbours, in place; not for more threads or tasks than shares are made for.
    pub fn deal(&mut self, threads: usize, tasks: usize) -> bool {
        // Ranges are packed into words of two halves; no loop comes near that many tasks.
        let fits = threads <= MOST && u32::try_from(tasks).is_ok();
        if fits {
            self.0.extend((0..threads).map(|thread| Share::new(share(thread, threads, tasks))));
        }
        fits
    }

    /// Runs `task(thread, index)` for a thread's own share, then for halves of whoever has most left, unless all others are done.
    pub fn work(&self, thread: usize, task: &(dyn Fn(usize, usize) + Sync), alone: impl Fn() -> bool) {
        loop {
            while let Some(index) = self.0[thread].next() {
                task(thread, index);
            }
            if alone() {
                return;
            }
            let richest = self.0.iter().max_by_key(|share| share.left());
            let Some(richest) = richest.filter(|share| share.left() > 0) else { return };
            if let Some((from, to)) = richest.half() {
                // Nobody puts anything into an empty share but its owner.
                self.0[thread].0.store(pack(from, to), Ordering::Relaxed);
            }
        }
    }
}

/// The neighbours among so many tasks that a thread begins with.
pub fn share(thread: usize, threads: usize, tasks: usize) -> Range<usize> {
    let cut = |i: usize| (tasks as u128 * i as u128 / threads as u128) as usize;
    cut(thread)..cut(thread + 1)
}

/// First task and end in one word, so that owner and thief never both get one.
#[repr(align(64))]
struct Share(AtomicU64);

impl Share {
    fn new(range: Range<usize>) -> Self {
        Self(AtomicU64::new(pack(range.start as u32, range.end as u32)))
    }

    /// The owner's next task.
    fn next(&self) -> Option<usize> {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let (from, to) = unpack(word);
            (from < to).then(|| pack(from + 1, to))
        });
        taken.ok().map(|word| unpack(word).0 as usize)
    }

    /// The later half of what is left, one task at least.
    fn half(&self) -> Option<(u32, u32)> {
        let middle = |from: u32, to: u32| from + (to - from) / 2;
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let (from, to) = unpack(word);
            (from < to).then(|| pack(from, middle(from, to)))
        });
        taken.ok().map(unpack).map(|(from, to)| (middle(from, to), to))
    }

    fn left(&self) -> u32 {
        let (from, to) = unpack(self.0.load(Ordering::Relaxed));
        to.saturating_sub(from)
    }
}

fn pack(from: u32, to: u32) -> u64 {
    u64::from(from) << 32 | u64::from(to)
}

fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thief_gets_the_later_half_and_the_owner_the_rest() {
        let owner = Share::new(10..20);
        assert_eq!(owner.next(), Some(10));
        assert_eq!(owner.half(), Some((15, 20)));
        assert_eq!(owner.left(), 4);
        assert_eq!((0..5).map_while(|_| owner.next()).collect::<Vec<_>>(), [11, 12, 13, 14]);
        assert_eq!(owner.half(), None);
        let last = Share::new(3..4);
        assert_eq!((last.half(), last.next()), (Some((3, 4)), None));
    }

    #[test]
    fn shares_are_neighbours_and_leave_nothing_out() {
        for (threads, tasks) in [(1, 5), (2, 7), (3, 3), (64, 1000), (5, 2)] {
            let ends = (0..threads).map(|thread| share(thread, threads, tasks));
            let last = ends.fold(0, |end, range| {
                assert_eq!(range.start, end);
                range.end
            });
            assert_eq!(last, tasks);
        }
        assert!(!Shares::none().deal(MOST + 1, 1000) && !Shares::none().deal(2, 1 << 40));
    }
}
