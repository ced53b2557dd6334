//! Ways to give the pieces of a loop to threads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrayvec::ArrayVec;
use serde::Serialize;

use crate::backends::cpu::ThreadPool;

/// How pieces are given to threads; the numbers of [`Knob::Schedule`](crate::ops::Knob::Schedule).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Each thread has its share of neighbours: nothing is handed over, and all wait for the slowest.
    Static = 0,
    /// Whoever is free takes the next piece.
    #[default]
    Dynamic = 1,
    /// Whoever is free takes a part of what is left: many pieces at first, one at the end.
    Guided = 2,
    /// Each thread has its share, near its own memory; who is done takes half of what another has left.
    Stealing = 3,
}

impl Schedule {
    /// Every schedule, by its number.
    pub const ALL: [Self; 4] = [Self::Static, Self::Dynamic, Self::Guided, Self::Stealing];

    /// The schedule of a number; the usual one where there is none.
    pub fn from_number(number: Option<u32>) -> Self {
        number.and_then(|n| Self::ALL.get(n as usize)).copied().unwrap_or_default()
    }

    /// How often the busiest thread goes for pieces that another one may take as well, once for a share of its own.
    pub fn takes(self, threads: usize, pieces: usize) -> u32 {
        let threads = threads.max(1);
        match self {
            Self::Static | Self::Stealing => 1,
            Self::Dynamic => pieces.div_ceil(threads).max(1) as u32,
            Self::Guided => {
                let next = AtomicUsize::new(0);
                let parts = std::iter::from_fn(|| take_part(&next, threads, pieces)).count();
                parts.div_ceil(threads).max(1) as u32
            }
        }
    }
}

/// Runs every piece once, on up to `threads` threads.
pub fn run(
    pool: &ThreadPool,
    threads: usize,
    pieces: usize,
    schedule: Schedule,
    piece: &(dyn Fn(usize) + Sync),
) {
    if threads < 2 || pieces < 2 {
        return (0..pieces).for_each(piece);
    }
    match schedule {
        Schedule::Static => {
            pool.run(threads, threads, &|thread| share(thread, threads, pieces).for_each(piece));
        }
        Schedule::Guided => {
            let next = AtomicUsize::new(0);
            pool.run(threads, threads, &|_| {
                while let Some(range) = take_part(&next, threads, pieces) {
                    range.for_each(piece);
                }
            });
        }
        Schedule::Stealing => run_near(pool, threads, pieces, &|_, i| piece(i)),
        Schedule::Dynamic => pool.run(threads, pieces, piece),
    }
}

/// Runs `piece(thread, i)` once for every piece, on up to `threads` threads that each have a number. Each begins with the neighbours that it
/// had in the last such run, whose memory is still in its caches; who is done takes half of what another has left.
pub fn run_near(pool: &ThreadPool, threads: usize, pieces: usize, piece: &(dyn Fn(usize, usize) + Sync)) {
    let threads = threads.min(pieces);
    if threads < 2 {
        return (0..pieces).for_each(|i| piece(0, i));
    }
    // Ranges are packed into words of two halves; no loop comes near that many pieces.
    if threads <= MOST_SHARES && u32::try_from(pieces).is_ok() {
        let mut shares = ArrayVec::<Share, MOST_SHARES>::new();
        shares.extend((0..threads).map(|t| Share::new(share(t, threads, pieces))));
        pool.run(threads, threads, &|thread| steal(&shares, thread, piece));
    } else {
        let next = AtomicUsize::new(0);
        pool.run(threads, threads, &|thread| {
            let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&i| i < pieces);
            std::iter::from_fn(take).for_each(|i| piece(thread, i));
        });
    }
}

/// The neighbours that a thread begins with.
fn share(thread: usize, threads: usize, pieces: usize) -> std::ops::Range<usize> {
    let cut = |i: usize| (pieces as u128 * i as u128 / threads as u128) as usize;
    cut(thread)..cut(thread + 1)
}

/// The next part of what is left: half of a thread's share of it, one piece at least.
fn take_part(next: &AtomicUsize, threads: usize, pieces: usize) -> Option<std::ops::Range<usize>> {
    let mut from = next.load(Ordering::Relaxed);
    loop {
        let left = pieces.checked_sub(from).filter(|&left| left > 0)?;
        let to = from + (left / (2 * threads)).max(1);
        match next.compare_exchange_weak(from, to, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(from..to),
            Err(now) => from = now,
        }
    }
}

/// The most threads with shares of their own: these lie on the stack.
const MOST_SHARES: usize = 64;

/// What a thread has left: first piece and end in one word, so that owner and thief never both get one.
#[repr(align(64))]
struct Share(AtomicU64);

impl Share {
    fn new(range: std::ops::Range<usize>) -> Self {
        Self(AtomicU64::new(pack(range.start as u32, range.end as u32)))
    }

    /// The owner's next piece.
    fn next(&self) -> Option<usize> {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let (from, to) = unpack(word);
            (from < to).then(|| pack(from + 1, to))
        });
        taken.ok().map(|word| unpack(word).0 as usize)
    }

    /// The later half of what is left, one piece at least.
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

/// A thread's own share, then halves of whoever has most left.
fn steal(shares: &[Share], thread: usize, piece: &(dyn Fn(usize, usize) + Sync)) {
    loop {
        while let Some(i) = shares[thread].next() {
            piece(thread, i);
        }
        let Some(richest) = shares.iter().max_by_key(|share| share.left()).filter(|share| share.left() > 0)
        else {
            return;
        };
        if let Some((from, to)) = richest.half() {
            // Nobody puts anything into an empty share but its owner.
            shares[thread].0.store(pack(from, to), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_runs_once_near_a_numbered_thread() {
        for threads in [1, 2, 3, MOST_SHARES + 1] {
            let pool = ThreadPool::new(threads);
            for pieces in [0, 1, 2, 3, 7, 200] {
                let counts: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                let inside: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                run_near(&pool, threads, pieces, &|thread, i| {
                    assert_eq!(
                        inside[thread].fetch_add(1, Ordering::SeqCst),
                        0,
                        "two threads have one number"
                    );
                    counts[i].fetch_add(1, Ordering::Relaxed);
                    inside[thread].fetch_sub(1, Ordering::SeqCst);
                });
                let once = counts.iter().all(|count| count.load(Ordering::Relaxed) == 1);
                assert!(once, "{threads} threads, {pieces} pieces");
            }
        }
    }

    #[test]
    fn every_piece_runs_once_on_every_schedule() {
        for threads in [1, 2, 3, 4] {
            let pool = ThreadPool::new(threads);
            for schedule in Schedule::ALL {
                for pieces in [0, 1, 2, 3, 7, 64, 1000] {
                    let counts: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                    run(&pool, threads, pieces, schedule, &|i| {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    });
                    let once = counts.iter().all(|count| count.load(Ordering::Relaxed) == 1);
                    assert!(once, "{schedule:?}, {threads} threads, {pieces} pieces");
                }
            }
        }
    }

    #[test]
    fn guided_parts_grow_smaller() {
        let next = AtomicUsize::new(0);
        let sizes: Vec<usize> =
            std::iter::from_fn(|| take_part(&next, 2, 100).map(|range| range.len())).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 100);
        assert!(sizes[0] == 25 && sizes.windows(2).all(|w| w[0] >= w[1]), "{sizes:?}");
        assert_eq!(sizes.last(), Some(&1));
    }

    #[test]
    fn only_pieces_that_others_may_take_are_asked_for() {
        let takes = |schedule: Schedule, threads, pieces| schedule.takes(threads, pieces);
        assert_eq!(Schedule::ALL.map(|schedule| takes(schedule, 2, 32)), [1, 16, 7, 1]);
        assert_eq!(Schedule::ALL.map(|schedule| takes(schedule, 4, 4)), [1; 4]);
        assert_eq!(Schedule::ALL.map(|schedule| takes(schedule, 0, 0)), [1; 4]);
    }

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
    fn numbers_name_schedules() {
        for schedule in Schedule::ALL {
            assert_eq!(Schedule::from_number(Some(schedule as u32)), schedule);
        }
        assert_eq!([Schedule::from_number(None), Schedule::from_number(Some(9))], [Schedule::Dynamic; 2]);
    }
}
