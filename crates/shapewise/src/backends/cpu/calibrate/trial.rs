//! One thing to measure: a loop that every thread repeats.

use std::time::{Duration, Instant};

use super::super::ThreadPool;

/// The least time of a sample: long against the clock and a hand-over.
const SAMPLE: Duration = Duration::from_micros(if cfg!(test) { 20 } else { 400 });
/// Runs that must all be long enough for a sample.
const TRIES: usize = 3;
/// A trial whose samples usually take this much longer than the best was disturbed.
const DISTURBED: f64 = 1.1;

/// Work that is repeated on one or more threads, with its times.
pub struct Trial<'a> {
    threads: usize,
    /// Operations or bytes of one thread in one repeat.
    amount: f64,
    work: Box<dyn Fn(usize, usize) + Sync + 'a>,
    repeats: usize,
    /// Seconds per repeat.
    samples: Vec<f64>,
}

impl<'a> Trial<'a> {
    /// `work(thread, repeats)` does `repeats` times `amount` operations or bytes.
    pub fn new(threads: usize, amount: f64, work: impl Fn(usize, usize) + Sync + 'a) -> Self {
        Self { threads, amount, work: Box::new(work), repeats: 1, samples: Vec::new() }
    }

    /// Warms up and finds how many repeats make a sample. Threads that start and interruptions must not make few repeats look long.
    pub fn prepare(&mut self, pool: &ThreadPool) {
        while (0..TRIES).any(|_| self.time_of(self.repeats, pool) < SAMPLE) && self.repeats < usize::MAX / 2 {
            self.repeats *= 2;
        }
    }

    /// Takes one sample.
    pub fn sample(&mut self, pool: &ThreadPool) {
        if self.repeats > 1 {
            // The other trials have emptied the caches, and the workers may have gone to sleep.
            self.time_of(1, pool);
        }
        let time = self.time_of(self.repeats, pool);
        self.samples.push(time.as_secs_f64() / self.repeats as f64);
    }

    /// Operations or bytes per second of all threads together, at best.
    pub fn rate(&self) -> Option<f64> {
        let best = self.samples.iter().copied().min_by(f64::total_cmp).filter(|&best| best > 0.0)?;
        Some(self.threads as f64 * self.amount / best)
    }

    /// Whether most samples were slowed down by something else.
    pub fn was_disturbed(&self) -> bool {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.first().is_some_and(|best| sorted[sorted.len() / 2] > DISTURBED * best)
    }

    fn time_of(&self, repeats: usize, pool: &ThreadPool) -> Duration {
        let start = Instant::now();
        if self.threads == 1 {
            (self.work)(0, repeats);
        } else {
            pool.run(self.threads, self.threads, &|thread| (self.work)(thread, repeats));
        }
        start.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn repeats_on_every_thread_and_takes_the_best() {
        let pool = ThreadPool::new(2);
        let repeated = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let mut trial = Trial::new(2, 10.0, |thread, repeats| {
            repeated[thread].fetch_add(repeats, Ordering::Relaxed);
            std::thread::sleep(SAMPLE);
        });
        assert_eq!(trial.rate(), None);
        trial.prepare(&pool);
        assert_eq!(trial.repeats, 1);
        trial.sample(&pool);
        assert!(trial.rate().unwrap() <= 2.0 * 10.0 / SAMPLE.as_secs_f64());
        trial.samples = vec![3.0, 2.0, 4.0];
        assert_eq!(trial.rate(), Some(10.0));
        assert!(trial.was_disturbed());
        trial.samples = vec![2.1, 2.0, 4.0];
        assert!(!trial.was_disturbed());
        drop(trial);
        assert_eq!(repeated.map(AtomicUsize::into_inner), [TRIES + 1; 2]);
    }

    #[test]
    fn a_slow_first_run_does_not_shorten_the_samples() {
        let pool = ThreadPool::new(1);
        let runs = AtomicUsize::new(0);
        let mut trial = Trial::new(1, 1.0, |_, repeats| {
            let slow = runs.fetch_add(1, Ordering::Relaxed) == 0 || repeats >= 8;
            std::thread::sleep(if slow { SAMPLE } else { Duration::ZERO });
        });
        trial.prepare(&pool);
        assert_eq!(trial.repeats, 8);
    }
}
