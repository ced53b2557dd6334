//! Ways to give the pieces of a loop to threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::threads::share;

/// How pieces are given to threads; the numbers of [`Knob::Schedule`](crate::ops::Knob::Schedule).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Each thread has its share of neighbours: nothing is handed over, and all wait for the slowest.
    Static = 0,
    /// Whoever is free takes the next piece.
    Dynamic = 1,
    /// Whoever is free takes a part of what is left: many pieces at first, one at the end.
    Guided = 2,
    /// Each thread has its share, near its own memory; who is done takes half of what another has left.
    #[default]
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
        Schedule::Stealing => pool.run(threads, pieces, piece),
        Schedule::Dynamic => pool.run_in_turn(threads, pieces, piece),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn numbers_name_schedules() {
        for schedule in Schedule::ALL {
            assert_eq!(Schedule::from_number(Some(schedule as u32)), schedule);
        }
        assert_eq!([Schedule::from_number(None), Schedule::from_number(Some(9))], [Schedule::Stealing; 2]);
    }
}
