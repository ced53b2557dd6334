//! Notices that a kernel no longer takes the time it took: Page-Hinkley on log residuals, confirmed by a median.

use arrayvec::ArrayVec;

/// Slow-downs below this log ratio never count: half way to the 1.3× that must be noticed.
const TOLERANCE: f32 = 0.13;
/// Nor do those below this multiple of the timings' own scatter: two speeds by turns lie, on average, about 0.56 of their
/// scatter above the faster one.
const SCATTERS: f32 = 0.6;
/// Alarm when the excess adds up to this: at 1.3× each timing adds 0.13, so about twenty of them.
const THRESHOLD: f32 = 2.6;
/// A walk of scatter σ that falls by t each step ever climbs to h with a chance of e^(−2th/σ²): half of the exponent
/// that makes it 10⁻⁷.
const CERTAINTY: f32 = 8.0;
/// One timing adds at most this, so that a single interruption of any length is no alarm.
const LARGEST_STEP: f32 = 0.3;
/// Timings whose median must agree with an alarm: interruptions that come often move a sum, but not the middle.
const CONFIRMING: usize = 21;
/// Timings that what was expected counts for against the mean of those seen since: an expectation from a few timings is
/// often a little low, which is no drift. Of 60 to 300 the last lost the fewest slow-downs on half of the measured suite.
const EXPECTATION: f32 = 300.0;

/// The excess so far and the latest residuals.
#[derive(Debug, Default)]
pub struct DriftDetector {
    slower: f32,
    faster: f32,
    /// Sum and number of all residuals.
    total: (f32, f32),
    recent: ArrayVec<f32, CONFIRMING>,
}

/// What the timings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// Nothing new.
    None,
    /// It has become slower: the workload is worth a new race.
    Slower,
    /// It has become faster: what is expected of it should follow, and the race that it won was run in a slow time, in which
    /// another may have lost by chance.
    Faster,
}

impl DriftDetector {
    /// Takes one timing against what was expected and its relative scatter; starts over after each alarm.
    pub fn observe(&mut self, seconds: f64, expected: f64, scatter: f64) -> Drift {
        let scatter = scatter as f32;
        let tolerance = TOLERANCE.max(SCATTERS * scatter);
        let threshold = THRESHOLD.max(CERTAINTY * scatter * scatter / tolerance);
        let residual = ((seconds / expected) as f32).ln();
        if !residual.is_finite() {
            return Drift::None;
        }
        self.total.0 += residual.clamp(-LARGEST_STEP, LARGEST_STEP);
        self.total.1 += 1.0;
        let residual = residual - self.total.0 / (self.total.1 + EXPECTATION);
        if self.recent.is_full() {
            self.recent.remove(0);
        }
        self.recent.push(residual);
        add(&mut self.slower, residual - tolerance, threshold);
        add(&mut self.faster, -residual - tolerance, threshold);
        // Nearly always neither is reached, and then nothing need be sorted.
        let drift = if self.slower > threshold && self.middle() > tolerance {
            Drift::Slower
        } else if self.faster > threshold && self.middle() < -tolerance {
            Drift::Faster
        } else {
            return Drift::None;
        };
        *self = Self::default();
        drift
    }

    fn middle(&self) -> f32 {
        let mut sorted = self.recent.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }
}

/// Sums stay at the threshold until the median has its say.
fn add(sum: &mut f32, step: f32, threshold: f32) {
    *sum = (*sum + step.min(LARGEST_STEP)).clamp(0.0, threshold + LARGEST_STEP);
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
        let (mut detector, mut state) = (DriftDetector::default(), 1);
        for _ in 0..100 {
            detector.observe(1e-3, 1e-3, 0.02);
        }
        let calls = (1..100).find(|_| {
            let jitter = 1.0 + 0.1 * (noise(&mut state) - 0.5);
            detector.observe(1.3e-3 * jitter, 1e-3, 0.02) == Drift::Slower
        });
        assert!(calls.is_some_and(|n| n <= 30), "{calls:?}");
    }

    #[test]
    fn jitter_and_interruptions_are_no_alarm() {
        let (mut detector, mut state) = (DriftDetector::default(), 2);
        for _ in 0..1_000_000 {
            let jitter = 1.0 + 0.2 * (noise(&mut state) - 0.5);
            let interrupted = if noise(&mut state) < 0.05 { 50.0 } else { 1.0 };
            assert_eq!(detector.observe(1e-5 * jitter * interrupted, 1e-5, 0.05), Drift::None);
        }
    }

    #[test]
    fn a_slow_down_shows_through_scatter() {
        let (mut detector, mut state) = (DriftDetector::default(), 4);
        // Uniform between 0.7 and 1.3: a standard deviation of 0.17.
        let mut timing = |factor: f64| factor * (0.7 + 0.6 * noise(&mut state));
        for _ in 0..100_000 {
            assert_eq!(detector.observe(timing(1.0), 1.0, 0.17), Drift::None);
        }
        let calls = (1..1000).find(|_| detector.observe(timing(1.3), 1.0, 0.17) == Drift::Slower);
        assert!(calls.is_some_and(|n| n <= 60), "{calls:?}");
    }

    #[test]
    fn two_speeds_by_turns_are_scatter_and_no_drift() {
        let (mut detector, mut state) = (DriftDetector::default(), 3);
        for _ in 0..100_000 {
            let seconds = if noise(&mut state) < 0.5 { 1.0 } else { 1.4 };
            assert_eq!(detector.observe(seconds, 1.0, 0.3), Drift::None);
        }
    }

    #[test]
    fn a_speed_up_is_told_apart_and_impossible_timings_are_ignored() {
        let mut detector = DriftDetector::default();
        assert!((0..30).any(|_| detector.observe(0.7, 1.0, 0.0) == Drift::Faster));
        for hostile in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            for _ in 0..100 {
                assert_eq!(detector.observe(hostile, 1.0, 0.0), Drift::None);
                assert_eq!(detector.observe(1.0, hostile, 0.0), Drift::None);
            }
        }
    }
}
