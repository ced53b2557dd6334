//! Intervals that hold as often as they say: split conformal prediction, adaptive under shift.

use std::sync::atomic::{AtomicU32, Ordering};

/// Scores that a bucket needs before it speaks for itself.
const ENOUGH: usize = 40;
/// Buckets by time, one for each factor of ten from a microsecond to a second.
const BUCKETS: usize = 7;

/// The bucket of a predicted time.
pub(super) fn bucket(seconds: f64) -> usize {
    // The borders in microseconds; counting them is much quicker than a logarithm.
    const BORDERS: [f64; BUCKETS - 1] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5];
    BORDERS.iter().filter(|&&border| seconds * 1e6 > border).count()
}

/// Sorted scores of predictions for shapes the model never saw, by bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct Scores {
    all: Vec<f32>,
    buckets: [Vec<f32>; BUCKETS],
}

impl Scores {
    /// Sorts scores (absolute errors over what was expected) into the buckets of their predicted seconds.
    pub fn new(scores: impl Iterator<Item = (f64, f32)>) -> Self {
        let mut out = Self::default();
        for (seconds, score) in scores.filter(|(_, s)| s.is_finite()) {
            out.all.push(score);
            out.buckets[bucket(seconds)].push(score);
        }
        out.all.sort_by(f32::total_cmp);
        out.buckets.iter_mut().for_each(|b| b.sort_by(f32::total_cmp));
        out
    }

    fn of(&self, seconds: f64) -> &[f32] {
        let own = &self.buckets[bucket(seconds)];
        if own.len() >= ENOUGH { own } else { &self.all }
    }

    /// The score that a share of `level` stays below; `None` with too few scores to say.
    pub fn quantile(&self, seconds: f64, level: f32) -> Option<f32> {
        let scores = self.of(seconds);
        // The finite-sample correction of split conformal prediction.
        let rank = ((scores.len() + 1) as f32 * level).ceil() as usize;
        scores.get(rank.checked_sub(1)?).copied()
    }
}

/// Adaptive conformal inference: the level rises with every miss and falls with every hit, so that misses come as often
/// as they should even when times shift.
#[derive(Debug)]
pub struct AdaptiveLevel {
    target: f32,
    level: AtomicU32,
}

impl AdaptiveLevel {
    /// How far one miss moves the level: a shift is followed within a few hundred observations.
    const STEP: f32 = 0.005;

    /// A level that starts at its target share of hits.
    pub fn new(target: f32) -> Self {
        let target = target.clamp(0.5, 0.99);
        Self { target, level: AtomicU32::new(target.to_bits()) }
    }

    /// The share of hits that is aimed at.
    pub fn target(&self) -> f32 {
        self.target
    }

    /// The level to take quantiles at.
    pub fn get(&self) -> f32 {
        f32::from_bits(self.level.load(Ordering::Relaxed))
    }

    /// Counts whether a time fell into its interval.
    pub fn observe(&self, covered: bool) {
        let step = Self::STEP * (if covered { 1.0 } else { 0.0 } - self.target);
        // Two observations at once may lose one step, which costs nothing that matters.
        let next = (self.get() - step).clamp(0.5, 0.999);
        self.level.store(next.to_bits(), Ordering::Relaxed);
    }
}

impl Clone for AdaptiveLevel {
    fn clone(&self) -> Self {
        Self { target: self.target, level: AtomicU32::new(self.level.load(Ordering::Relaxed)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_the_bucket_once_it_has_enough() {
        let small = (0..100).map(|i| (1e-5, i as f32));
        let scores = Scores::new(small.chain([(1.0, 1000.0)]));
        assert_eq!(scores.quantile(1e-5, 0.9), Some(90.0));
        assert_eq!(scores.quantile(1.0, 0.9), Some(91.0), "one score is not enough, so all of them count");
        assert_eq!(Scores::default().quantile(1.0, 0.9), None);
        assert_eq!(
            Scores::new([(1.0, 1.0); 5].into_iter()).quantile(1.0, 0.9),
            None,
            "five cannot tell a tenth"
        );
    }

    #[test]
    fn hostile_scores_are_left_out() {
        let hostile = [(1.0, f32::NAN), (f64::NAN, 1.0), (1.0, f32::INFINITY), (0.0, 3.0)];
        assert_eq!(Scores::new(hostile.into_iter()).all, [1.0, 3.0]);
    }

    #[test]
    fn misses_widen_and_hits_narrow() {
        let level = AdaptiveLevel::new(0.9);
        (0..50).for_each(|_| level.observe(false));
        assert!(level.get() > 0.98);
        (0..2000).for_each(|_| level.observe(true));
        assert!(level.get() < 0.9);
    }

    #[test]
    fn the_level_settles_where_misses_are_as_rare_as_asked() {
        // Times suddenly spread twice as wide as the scores that were kept.
        let scores = Scores::new((0..1000).map(|i| (1e-3, i as f32 / 1000.0)));
        let level = AdaptiveLevel::new(0.9);
        let mut state = 1u64;
        let mut hits = 0;
        for i in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let score = (state >> 40) as f32 / (1u64 << 24) as f32 * 1.05;
            let covered = scores.quantile(1e-3, level.get()).is_some_and(|q| score <= q);
            level.observe(covered);
            hits += usize::from(covered && i >= 10_000);
        }
        assert!((8_900..=9_100).contains(&hits), "{hits}");
    }
}
