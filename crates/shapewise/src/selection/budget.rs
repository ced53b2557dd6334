//! What exploring may cost.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// The share of run time that may be lost to exploring.
///
/// Lost is what a trial took above the candidate that would have run otherwise. The first calls of a process, when
/// next to nothing has run, may lose an advance instead.
#[derive(Debug)]
pub struct Budget {
    share: f64,
    advance: f64,
    /// Nanoseconds.
    run: AtomicU64,
    /// Nanoseconds, which rounding may bring a little below zero.
    lost: AtomicI64,
    trials: AtomicU64,
}

/// Time lost before anything ran: too short for anyone to notice.
const ADVANCE: Duration = Duration::from_millis(1);

impl Budget {
    /// A budget of this share; 0 never explores.
    pub fn new(share: f64) -> Self {
        let advance = if share > 0.0 { ADVANCE.as_secs_f64() } else { 0.0 };
        let [run, trials] = [const { AtomicU64::new(0) }; 2];
        Self { share, advance, run, lost: AtomicI64::new(0), trials }
    }

    /// Whether exploring is allowed at all.
    pub fn explores(&self) -> bool {
        self.share > 0.0
    }

    /// Whether a turn is within the budget that is expected to lose this many seconds, even if it loses twice as much; `None` is
    /// the turn of the candidate that would run anyway.
    ///
    /// A trial cannot be taken back: one that took far longer than expected is paid for by those after it, which wait, however
    /// promising, until enough has run.
    pub fn affords(&self, stake: Option<f64>) -> bool {
        let allowed = (self.share * self.run()).max(self.advance);
        self.explores() && stake.is_none_or(|seconds| self.lost() + 2.0 * seconds <= allowed)
    }

    /// Counts time that calls took.
    #[inline]
    pub fn ran(&self, seconds: f64) {
        self.run.fetch_add((seconds * 1e9) as u64, Ordering::Relaxed);
    }

    /// Counts a trial and what it lost; below zero, what it gives back of a loss before.
    pub fn tried(&self, lost: f64) {
        self.lost.fetch_add((lost * 1e9) as i64, Ordering::Relaxed);
        self.trials.fetch_add(1, Ordering::Relaxed);
    }

    /// Seconds of all calls, estimated from the timed ones.
    pub fn run(&self) -> f64 {
        self.run.load(Ordering::Relaxed) as f64 * 1e-9
    }

    /// Seconds lost to trials.
    pub fn lost(&self) -> f64 {
        self.lost.load(Ordering::Relaxed).max(0) as f64 * 1e-9
    }

    /// Number of trials.
    pub fn trials(&self) -> u64 {
        self.trials.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_what_ran_is_what_may_be_lost() {
        let budget = Budget::new(0.01);
        assert!(budget.affords(Some(0.0004)) && !budget.affords(Some(0.0006)));
        budget.ran(10.0);
        assert!(budget.affords(Some(0.04)) && !budget.affords(Some(0.06)));
        budget.tried(0.06);
        assert!(budget.affords(Some(0.01)) && !budget.affords(Some(0.03)));
        budget.tried(-0.02);
        assert!(budget.affords(Some(0.02)) && !budget.affords(Some(0.04)));
        assert_eq!((budget.trials(), budget.lost()), (2, 0.04));
    }

    #[test]
    fn after_an_expensive_trial_the_next_ones_wait() {
        let budget = Budget::new(0.01);
        budget.ran(10.0);
        budget.tried(1.0);
        assert!(budget.affords(None) && !budget.affords(Some(0.0)));
        budget.ran(100.0);
        assert!(budget.affords(Some(0.0)));
    }

    #[test]
    fn no_share_means_never() {
        let budget = Budget::new(0.0);
        budget.ran(1e6);
        assert!(!budget.explores() && !budget.affords(None));
    }
}
