//! How good predictions turned out to be: errors, their trend, and what they go with.

use std::collections::VecDeque;

use serde::Serialize;

use super::{FEATURES, Features, Prediction};

/// Observations that count: enough for a share of a tenth to be known to a few per cent.
const WINDOW: usize = 512;
/// Observations in each half before a trend or a correlation is spoken of.
const ENOUGH: usize = 20;

/// Where errors are going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// Too few observations to say.
    Unknown,
    /// The newer half of the errors is smaller by more than two standard errors.
    Improving,
    /// No difference beyond chance.
    Steady,
    /// The newer half is larger by more than two standard errors.
    Worsening,
}

/// A feature that errors go with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Correlation {
    /// The feature's name.
    pub feature: &'static str,
    /// Pearson correlation with the absolute log error.
    pub correlation: f32,
}

/// What is known about the accuracy of one operation's predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccuracyReport {
    /// Observations that count.
    pub observations: usize,
    /// Mean of |predicted / measured − 1|; `None` without observations.
    pub mean_error: Option<f64>,
    /// Share of measured times inside their intervals.
    pub coverage: Option<f64>,
    /// Where errors are going.
    pub trend: Trend,
    /// The features that errors go with most, strongest first; those beyond chance only.
    pub correlations: Vec<Correlation>,
}

#[derive(Clone, Copy, Debug)]
struct Observation {
    /// ln(measured / predicted).
    error: f32,
    covered: bool,
    features: Features,
}

/// Rolling record of one operation's predictions against what was measured.
#[derive(Clone, Debug, Default)]
pub struct Accuracy {
    window: VecDeque<Observation>,
}

impl Accuracy {
    /// Records one outcome; times that cannot have been measured are left out and give `false`.
    pub fn record(&mut self, prediction: &Prediction, features: &Features, seconds: f64) -> bool {
        let error = (seconds / prediction.seconds).ln();
        if !(error.is_finite() && seconds > 0.0 && prediction.seconds > 0.0 && features.is_finite()) {
            return false;
        }
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        let covered = (prediction.low..=prediction.high).contains(&seconds);
        self.window.push_back(Observation { error: error as f32, covered, features: *features });
        true
    }

    /// The latest log errors, newest last.
    pub fn errors(&self) -> impl ExactSizeIterator<Item = f32> + '_ {
        self.window.iter().map(|o| o.error)
    }

    /// What the record says.
    pub fn report(&self) -> AccuracyReport {
        let n = self.window.len();
        let mean = |sum: f64| (n > 0).then(|| sum / n as f64);
        AccuracyReport {
            observations: n,
            mean_error: mean(self.window.iter().map(|o| (f64::from(-o.error).exp() - 1.0).abs()).sum()),
            coverage: mean(self.window.iter().map(|o| f64::from(u8::from(o.covered))).sum()),
            trend: self.trend(),
            correlations: self.correlations(),
        }
    }

    fn trend(&self) -> Trend {
        let half = self.window.len() / 2;
        if half < ENOUGH {
            return Trend::Unknown;
        }
        let older = moments(self.window.iter().take(half).map(|o| o.error.abs()));
        let newer = moments(self.window.iter().skip(half).map(|o| o.error.abs()));
        let chance = (older.1 / half as f64 + newer.1 / (self.window.len() - half) as f64).sqrt();
        match newer.0 - older.0 {
            change if change > 2.0 * chance && change > 0.0 => Trend::Worsening,
            change if change < -2.0 * chance => Trend::Improving,
            _ => Trend::Steady,
        }
    }

    fn correlations(&self) -> Vec<Correlation> {
        let n = self.window.len();
        if n < 2 * ENOUGH {
            return Vec::new();
        }
        // With this many features, three standard errors keep chance to about one in ten reports.
        let chance = 3.0 / (n as f32).sqrt();
        let error = moments(self.window.iter().map(|o| o.error.abs()));
        let mut found = Vec::new();
        // The first two are identities, whose size says nothing.
        for feature in 2..FEATURES {
            let values = moments(self.window.iter().map(|o| o.features.0[feature]));
            let product = |o: &Observation| {
                (f64::from(o.features.0[feature]) - values.0) * (f64::from(o.error.abs()) - error.0)
            };
            let covariance = self.window.iter().map(product).sum::<f64>() / n as f64;
            let correlation = (covariance / (values.1 * error.1).sqrt()) as f32;
            if correlation.abs() > chance {
                found.push(Correlation { feature: Features::name(feature), correlation });
            }
        }
        found.sort_by(|a, b| b.correlation.abs().total_cmp(&a.correlation.abs()));
        found.truncate(5);
        found
    }
}

/// Mean and variance.
fn moments(values: impl Iterator<Item = f32>) -> (f64, f64) {
    let (mut n, mut mean, mut square) = (0.0, 0.0, 0.0);
    for value in values.map(f64::from) {
        n += 1.0;
        let step = value - mean;
        mean += step / n;
        square += step * (value - mean);
    }
    if n > 0.0 { (mean, square / n) } else { (0.0, 0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modelling::Basis;

    fn prediction(seconds: f64) -> Prediction {
        Prediction {
            seconds,
            low: seconds / 1.2,
            high: seconds * 1.2,
            confidence: 0.9,
            basis: Basis::Learned,
        }
    }

    fn features(size: f32) -> Features {
        let mut all = [0.0; FEATURES];
        all[23] = size;
        Features(all)
    }

    #[test]
    fn errors_coverage_and_what_they_go_with() {
        let mut accuracy = Accuracy::default();
        for i in 0..100 {
            // Errors grow with the size.
            let size = (i % 10) as f32;
            assert!(accuracy.record(&prediction(1.0), &features(size), 1.0 + f64::from(size) * 0.05));
        }
        let report = accuracy.report();
        assert_eq!(report.observations, 100);
        assert!((report.coverage.unwrap() - 0.5).abs() < 1e-9, "{report:?}");
        assert_eq!(report.trend, Trend::Steady);
        assert_eq!(report.correlations.first().unwrap().feature, "bytes of all operands");
    }

    #[test]
    fn trends_are_told_from_chance() {
        let run = |scale: fn(usize) -> f64| {
            let mut accuracy = Accuracy::default();
            let mut state = 1u64;
            for i in 0..300 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let noise = (state >> 40) as f64 / (1u64 << 24) as f64 - 0.5;
                accuracy.record(&prediction(1.0), &features(0.0), (noise * scale(i)).exp());
            }
            accuracy.report().trend
        };
        assert_eq!(run(|_| 0.2), Trend::Steady);
        assert_eq!(run(|i| 0.1 + i as f64 / 300.0), Trend::Worsening);
        assert_eq!(run(|i| 1.1 - i as f64 / 300.0), Trend::Improving);
    }

    #[test]
    fn hostile_times_are_left_out() {
        let mut accuracy = Accuracy::default();
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(!accuracy.record(&prediction(1.0), &features(0.0), seconds));
            assert!(!accuracy.record(&prediction(seconds), &features(0.0), 1.0));
        }
        assert!(!accuracy.record(&prediction(1.0), &features(f32::NAN), 1.0));
        let report = accuracy.report();
        assert_eq!((report.observations, report.mean_error, report.trend), (0, None, Trend::Unknown));
    }

    #[test]
    fn the_window_forgets() {
        let mut accuracy = Accuracy::default();
        for i in 0..2 * WINDOW {
            accuracy.record(&prediction(1.0), &features(0.0), if i < WINDOW { 9.0 } else { 1.0 });
        }
        assert_eq!(accuracy.report().observations, WINDOW);
        assert_eq!(accuracy.report().mean_error, Some(0.0));
    }
}
