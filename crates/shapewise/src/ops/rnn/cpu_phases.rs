//! Phases of pieces that threads go through together without a hand-over between them.
//!
//! Every thread owns the same pieces in every phase, so that what a piece reads stays in its owner's caches. Who has none left takes
//! what others have not begun, and then waits until all pieces of the phase are done. Nobody waits for a thread that has not begun,
//! so a phase also ends where the system runs one thread only.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::backends::cpu::ThreadPool;
use crate::ops::matmul::cpu_problem::Split;

/// The most threads that own pieces; more of them only help.
const OWNERS: usize = 64;

/// Looks at the others before a thread offers its core to them: some microseconds.
const LOOKS: u32 = 1 << 10;

/// What one owner's pieces are counted with, over all phases.
#[repr(align(128))]
struct Claimed(AtomicUsize);

struct Phases {
    claimed: [Claimed; OWNERS],
    owners: Split,
    /// Pieces that are done, over all phases.
    done: Claimed,
    /// A piece panicked, so that its phase never ends.
    broken: AtomicBool,
}

/// Calls `work(thread, phase, piece)` for all pieces of all phases, in the order of the phases.
pub(super) fn run(
    pool: &ThreadPool,
    threads: usize,
    [phases, pieces]: [usize; 2],
    work: &(dyn Fn(usize, usize, usize) + Sync),
) {
    let threads = threads.min(pool.threads()).min(pieces).max(1);
    if threads == 1 {
        return (0..phases).for_each(|phase| (0..pieces).for_each(|piece| work(0, phase, piece)));
    }
    let shared = Phases {
        claimed: [const { Claimed(AtomicUsize::new(0)) }; OWNERS],
        owners: Split::into(pieces, threads.min(OWNERS)),
        done: Claimed(AtomicUsize::new(0)),
        broken: AtomicBool::new(false),
    };
    pool.run(threads, threads, &|thread| {
        let _alarm = Alarm(&shared.broken);
        for phase in 0..phases {
            for turn in 0..shared.owners.blocks {
                let owner = (thread + turn) % shared.owners.blocks;
                while let Some(piece) = shared.claim(owner, phase) {
                    work(thread, phase, piece);
                    shared.done.0.fetch_add(1, Ordering::Release);
                }
            }
            if !shared.wait((phase + 1) * pieces) {
                return;
            }
        }
    });
}

impl Phases {
    /// A piece of this owner that nobody has begun in this phase.
    fn claim(&self, owner: usize, phase: usize) -> Option<usize> {
        let (first, count) = self.owners.piece(owner);
        let claimed = &self.claimed[owner].0;
        let mut seen = claimed.load(Ordering::Relaxed);
        // A thread that comes late finds the counts of a later phase.
        while seen < (phase + 1) * count {
            match claimed.compare_exchange_weak(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(first + seen - phase * count),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Waits until so many pieces are done; false if they will never be.
    fn wait(&self, pieces: usize) -> bool {
        let mut looks = 0_u32;
        while self.done.0.load(Ordering::Acquire) < pieces {
            if self.broken.load(Ordering::Relaxed) {
                return false;
            }
            looks = looks.saturating_add(1);
            if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        true
    }
}

/// Tells the others of a panic, which the pool hands on to the caller.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_once_and_phases_in_order() {
        for threads in [1, 2, 3, 8] {
            let pool = ThreadPool::new(threads);
            for [phases, pieces] in [[1, 1], [7, 1], [5, 2], [40, 13], [0, 3]] {
                let counts: Vec<_> = (0..phases * pieces).map(|_| AtomicUsize::new(0)).collect();
                let finished = AtomicUsize::new(0);
                run(&pool, threads, [phases, pieces], &|_, phase, piece| {
                    assert!(finished.load(Ordering::SeqCst) >= phase * pieces);
                    counts[phase * pieces + piece].fetch_add(1, Ordering::SeqCst);
                    finished.fetch_add(1, Ordering::SeqCst);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::SeqCst) == 1));
            }
        }
    }

    #[test]
    fn one_thread_of_the_pool_is_enough() {
        let pool = ThreadPool::new(2);
        let count = AtomicUsize::new(0);
        // Inside a task the pool gives one thread only.
        pool.run(2, 2, &|_| {
            run(&pool, 2, [3, 4], &|_, _, _| {
                count.fetch_add(1, Ordering::SeqCst);
            });
        });
        assert_eq!(count.into_inner(), 24);
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let pool = ThreadPool::new(2);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&pool, 2, [4, 6], &|_, phase, piece| {
                assert!(phase != 1 || piece != 3, "the piece that fails");
            });
        }));
        assert!(outcome.is_err());
        run(&pool, 2, [2, 3], &|_, _, _| {});
    }
}
