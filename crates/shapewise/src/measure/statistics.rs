//! Order statistics of samples.

use serde::Serialize;

/// Quantiles of a set of samples, in the samples' unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Middle sample.
    pub median: f64,
    /// A tenth of the samples lie below.
    pub p10: f64,
    /// A twentieth of the samples lie above.
    pub p95: f64,
    /// Smallest sample.
    pub min: f64,
    /// Arithmetic mean: unlike the median it counts every interruption.
    pub mean: f64,
    /// Standard deviation of the samples; `None` of a single one.
    pub stddev: Option<f64>,
    /// Number of samples.
    pub samples: usize,
}

impl Summary {
    /// The quantiles; `None` without samples. Samples that are not positive numbers are left out.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|s| s.is_finite() && *s > 0.0).collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize];
        let min = *sorted.first()?;
        let n = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / n;
        let squares: f64 = sorted.iter().map(|s| (s - mean).powi(2)).sum();
        let stddev = (sorted.len() > 1).then(|| (squares / (n - 1.0)).sqrt());
        Some(Self { median: at(0.5), p10: at(0.1), p95: at(0.95), min, mean, stddev, samples: sorted.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_known_samples() {
        let samples: Vec<f64> = (1..=11).rev().map(f64::from).collect();
        let s = Summary::of(&samples).unwrap();
        assert_eq!((s.min, s.p10, s.median, s.p95, s.samples), (1.0, 2.0, 6.0, 11.0, 11));
        assert_eq!((s.mean, s.stddev), (6.0, Some(11.0f64.sqrt())));
        assert_eq!(Summary::of(&[3.0]).unwrap().stddev, None);
    }

    #[test]
    fn impossible_timings_are_left_out() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN, 0.0, -1.0]), None);
        assert_eq!(Summary::of(&[f64::INFINITY, 2.0]).unwrap().samples, 1);
    }
}
