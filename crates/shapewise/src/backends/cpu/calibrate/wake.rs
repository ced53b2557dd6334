//! What it costs to hand work to the other threads and get it back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::super::ThreadPool;

/// Calls per sample of the warm hand-over.
const BATCH: u32 = 50;
/// Longer than the workers look for work before they sleep.
const NAP: Duration = Duration::from_millis(1);

/// Samples of both costs, in seconds.
#[derive(Default)]
pub struct Wake {
    warm: Vec<f64>,
    parked: Vec<f64>,
}

impl Wake {
    /// Takes one sample of each.
    pub fn sample(&mut self, pool: &ThreadPool) {
        std::thread::sleep(NAP);
        let start = Instant::now();
        meet(pool);
        self.parked.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        (0..BATCH).for_each(|_| meet(pool));
        self.warm.push(start.elapsed().as_secs_f64() / f64::from(BATCH));
    }

    /// The usual cost while the workers are awake.
    pub fn hand_off(&self) -> Option<f64> {
        median(&self.warm)
    }

    /// The usual cost when they sleep.
    pub fn wake(&self) -> Option<f64> {
        median(&self.parked)
    }
}

/// A run that ends only after every thread has taken part in it.
fn meet(pool: &ThreadPool) {
    const PATIENCE: usize = 10_000;
    let threads = pool.threads();
    let inside = AtomicUsize::new(0);
    pool.run(threads, threads, &|_| {
        inside.fetch_add(1, Ordering::AcqRel);
        let mut looked = 0;
        while inside.load(Ordering::Acquire) < threads {
            looked += 1;
            if looked < PATIENCE {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    });
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_costs_are_measured() {
        let pool = ThreadPool::new(2);
        let mut wake = Wake::default();
        assert_eq!((wake.hand_off(), wake.wake()), (None, None));
        for _ in 0..3 {
            wake.sample(&pool);
        }
        assert!(wake.hand_off().unwrap() > 0.0 && wake.wake().unwrap() > 0.0);
    }

    #[test]
    fn the_median_of_some() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[]), None);
    }
}
