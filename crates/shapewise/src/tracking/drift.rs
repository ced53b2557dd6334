//! Notices that a kernel no longer takes the time it took: Page-Hinkley on log residuals, one number of state.

use std::sync::atomic::{AtomicU32, Ordering};

/// Slow-downs below this log ratio never count: half way to the 1.3× that must be noticed.
const TOLERANCE: f32 = 0.13;
/// Alarm when the excess adds up to this: at 1.3× each timing adds 0.13, so about twelve of them.
const THRESHOLD: f32 = 1.6;
/// One timing adds at most this, so that a single interruption of any length is no alarm.
const LARGEST_STEP: f32 = 0.3;

/// The excess so far, updated without a lock: a lost update between threads only delays the alarm.
#[derive(Debug, Default)]
pub struct DriftDetector {
    slower: AtomicU32,
    faster: AtomicU32,
}

/// What the timings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// Nothing new.
    None,
    /// It has become slower: the workload is worth a new race.
    Slower,
    /// It has become faster: what is expected of it should follow.
    Faster,
}

impl DriftDetector {
    /// Takes one timing against what was expected; starts over after each alarm.
    #[inline]
    pub fn observe(&self, seconds: f64, expected: f64) -> Drift {
        let residual = ((seconds / expected) as f32).ln();
        if !residual.is_finite() {
            return Drift::None;
        }
        if add(&self.slower, residual - TOLERANCE) {
            return Drift::Slower;
        }
        if add(&self.faster, -residual - TOLERANCE) {
            return Drift::Faster;
        }
        Drift::None
    }
}

fn add(sum: &AtomicU32, step: f32) -> bool {
    let old = f32::from_bits(sum.load(Ordering::Relaxed));
    let new = (old + step.min(LARGEST_STEP)).max(0.0);
    let alarm = new > THRESHOLD;
    let next = if alarm { 0.0 } else { new };
    // The usual case is no excess before and none now: then the cache line stays clean.
    if old.to_bits() != next.to_bits() {
        sum.store(next.to_bits(), Ordering::Relaxed);
    }
    alarm
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator, so that the noise is the same each time.
    fn noise(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1u64 << 53) as f64
    }

    #[test]
    fn a_slow_down_of_three_tenths_is_noticed_in_time() {
        let (detector, mut state) = (DriftDetector::default(), 1);
        let calls = (1..100).find(|_| {
            let jitter = 1.0 + 0.1 * (noise(&mut state) - 0.5);
            detector.observe(1.3e-3 * jitter, 1e-3) == Drift::Slower
        });
        assert!(calls.is_some_and(|n| n <= 16), "{calls:?}");
    }

    #[test]
    fn jitter_and_lonely_interruptions_are_no_alarm() {
        let (detector, mut state) = (DriftDetector::default(), 2);
        for _ in 0..1_000_000 {
            let jitter = 1.0 + 0.2 * (noise(&mut state) - 0.5);
            let interrupted = if noise(&mut state) < 0.02 { 50.0 } else { 1.0 };
            assert_eq!(detector.observe(1e-5 * jitter * interrupted, 1e-5), Drift::None);
        }
    }

    #[test]
    fn a_speed_up_is_told_apart_and_impossible_timings_are_ignored() {
        let detector = DriftDetector::default();
        assert!((0..30).any(|_| detector.observe(0.7, 1.0) == Drift::Faster));
        for hostile in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            for _ in 0..100 {
                assert_eq!(detector.observe(hostile, 1.0), Drift::None);
                assert_eq!(detector.observe(1.0, hostile), Drift::None);
            }
        }
    }
}
