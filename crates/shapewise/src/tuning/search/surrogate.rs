//! A surrogate of the times of all points: a Gaussian process over the tunables, whose mean is the kernel's own model.
//!
//! What is modelled is ln(seconds) − ln(predicted). Residuals of all points share a part, those of one kernel another, and
//! points of one kernel the more the nearer their tunables are. Half of what is shared is shared only by points of as many
//! threads: a core that another program uses makes every point slow that needs it. Scales are picked by the likelihood of what
//! was measured.

use super::Point;
use crate::ops::Knob;

/// Variance of what all points share, and of what the points of one kernel share: kernels stay behind their models by
/// factors up to about e^0.5.
const SHARED: f64 = 0.25;
/// How far influence reaches, as a share of a tunable's range.
const LENGTHS: [f64; 3] = [0.3, 0.7, 1.5];
/// Standard deviations of what the tunables do beyond the model.
const SIGNALS: [f64; 3] = [0.03, 0.1, 0.3];
/// Standard deviation of a median on a quiet machine.
const NOISE: f64 = 0.01;

/// Points as coordinates.
pub(super) struct Coordinates {
    kernels: Vec<usize>,
    threads: Vec<usize>,
    places: Vec<Vec<f64>>,
    means: Vec<f64>,
}

impl Coordinates {
    /// Each tunable's values, in order, spread from 0 to 1.
    pub fn of(points: &[Point]) -> Self {
        let mut knobs: Vec<(Knob, Vec<u32>)> = Vec::new();
        for (knob, value) in points.iter().flat_map(|p| p.parameters.iter()) {
            match knobs.iter_mut().find(|(k, _)| *k == knob) {
                Some((_, values)) => values.push(value),
                None => knobs.push((knob, vec![value])),
            }
        }
        for (_, values) in &mut knobs {
            values.sort_unstable();
            values.dedup();
        }
        let place = |point: &Point| {
            let at = |(knob, values): &(Knob, Vec<u32>)| {
                let value = point.parameters.get(*knob).unwrap_or(values[0]);
                let index = values.binary_search(&value).unwrap_or(0);
                index as f64 / (values.len() - 1).max(1) as f64
            };
            knobs.iter().filter(|(_, values)| values.len() > 1).map(at).collect()
        };
        let mean = |p: &Point| p.predicted.filter(|s| s.is_finite() && *s > 0.0).map(f64::ln);
        // Without a model of its own a point is as good as the mean of the others.
        let known: Vec<f64> = points.iter().filter_map(mean).collect();
        let typical = if known.is_empty() { 0.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        Self {
            kernels: points.iter().map(|p| p.kernel).collect(),
            threads: points.iter().map(|p| p.parameters.threads()).collect(),
            places: points.iter().map(place).collect(),
            means: points.iter().map(|p| mean(p).unwrap_or(typical)).collect(),
        }
    }

    fn covariance(&self, a: usize, b: usize, length: f64, signal: f64) -> f64 {
        let shared = if self.threads[a] == self.threads[b] { SHARED } else { 0.5 * SHARED };
        if self.kernels[a] != self.kernels[b] {
            return shared;
        }
        let apart: f64 = self.places[a].iter().zip(&self.places[b]).map(|(x, y)| (x - y).powi(2)).sum();
        2.0 * shared + signal * signal * (-0.5 * apart / (length * length)).exp()
    }
}

/// What was measured, made ready for questions.
pub(super) struct Surrogate<'a> {
    space: &'a Coordinates,
    points: Vec<usize>,
    /// The lower triangle of the Cholesky factor, row by row.
    factor: Vec<f64>,
    /// The covariance's inverse times the residuals.
    weights: Vec<f64>,
    length: f64,
    signal: f64,
}

impl<'a> Surrogate<'a> {
    /// From points and the logarithms of their seconds; `None` without any.
    pub fn fit(space: &'a Coordinates, measured: &[(usize, f64)]) -> Option<Self> {
        let mut best: Option<(f64, Self)> = None;
        for length in LENGTHS {
            for signal in SIGNALS {
                let Some((likelihood, fit)) = Self::with(space, measured, length, signal) else { continue };
                if best.as_ref().is_none_or(|(most, _)| likelihood > *most) {
                    best = Some((likelihood, fit));
                }
            }
        }
        best.map(|(_, fit)| fit)
    }

    fn with(
        space: &'a Coordinates,
        measured: &[(usize, f64)],
        length: f64,
        signal: f64,
    ) -> Option<(f64, Self)> {
        let points: Vec<usize> = measured.iter().map(|m| m.0).collect();
        let n = points.len();
        let mut factor = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..=i {
                let noise = if i == j { NOISE * NOISE } else { 0.0 };
                let whole = space.covariance(points[i], points[j], length, signal) + noise;
                let done: f64 = (0..j).map(|k| factor[i * n + k] * factor[j * n + k]).sum();
                factor[i * n + j] = if i == j {
                    let rest = whole - done;
                    if rest.is_nan() || rest <= 0.0 {
                        return None;
                    }
                    rest.sqrt()
                } else {
                    (whole - done) / factor[j * n + j]
                };
            }
        }
        let residuals: Vec<f64> = measured.iter().map(|&(p, y)| y - space.means[p]).collect();
        let mut fit = Self { space, points, factor, weights: Vec::new(), length, signal };
        let half = fit.forward(&residuals);
        let size: f64 = half.iter().map(|x| x * x).sum();
        let volume: f64 = (0..n).map(|i| fit.factor[i * n + i].ln()).sum();
        fit.weights = fit.backward(half);
        (n > 0).then_some((-0.5 * size - volume, fit))
    }

    /// Solves with the factor.
    fn forward(&self, right: &[f64]) -> Vec<f64> {
        let n = self.points.len();
        let mut x = vec![0.0; n];
        for i in 0..n {
            let done: f64 = (0..i).map(|k| self.factor[i * n + k] * x[k]).sum();
            x[i] = (right[i] - done) / self.factor[i * n + i];
        }
        x
    }

    /// Solves with the factor's transpose.
    fn backward(&self, mut x: Vec<f64>) -> Vec<f64> {
        let n = self.points.len();
        for i in (0..n).rev() {
            let done: f64 = (i + 1..n).map(|k| self.factor[k * n + i] * x[k]).sum();
            x[i] = (x[i] - done) / self.factor[i * n + i];
        }
        x
    }

    /// Mean and standard deviation of the logarithm of a point's seconds.
    pub fn predict(&self, point: usize) -> (f64, f64) {
        let (length, signal) = (self.length, self.signal);
        let near: Vec<f64> =
            self.points.iter().map(|&p| self.space.covariance(point, p, length, signal)).collect();
        let mean = self.space.means[point] + near.iter().zip(&self.weights).map(|(a, b)| a * b).sum::<f64>();
        let half = self.forward(&near);
        let own = self.space.covariance(point, point, length, signal);
        let variance = own - half.iter().map(|x| x * x).sum::<f64>();
        (mean, variance.max(0.0).sqrt())
    }

    /// How much below `best` (a logarithm of seconds) a point is expected to be, counted only where it is below.
    pub fn expected_gain(&self, point: usize, best: f64) -> f64 {
        let (mean, deviation) = self.predict(point);
        if deviation <= 0.0 {
            return (best - mean).max(0.0);
        }
        let z = (best - mean) / deviation;
        let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
        ((best - mean) * normal(z) + deviation * density).max(0.0)
    }
}

/// The share of a normal distribution below z: Zelen and Severo's polynomial, right to 1e-7.
fn normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let series = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = series.iter().rev().fold(0.0, |sum, c| (sum + c) * t);
    let above = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if z >= 0.0 { 1.0 - above } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Parameters;

    fn point(kernel: usize, block: u32, predicted: f64) -> Point {
        let parameters = Parameters::new().with(Knob::BlockK, block);
        Point { kernel, parameters, predicted: Some(predicted), known: None, refused: None, start: false }
    }

    #[test]
    fn the_normal_distribution_at_known_points() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.0, 0.158_655_3), (1.96, 0.975_002_1)] {
            assert!((normal(z) - share).abs() < 2e-7, "{z}");
        }
    }

    #[test]
    fn measured_points_are_known_and_pull_their_neighbours() {
        let points: Vec<Point> = (0..5).map(|i| point(0, i, 1.0)).chain([point(1, 0, 1.0)]).collect();
        let space = Coordinates::of(&points);
        let fit = Surrogate::fit(&space, &[(0, 0.2), (4, -0.2)]).unwrap();
        let (near, sure) = fit.predict(0);
        assert!((near - 0.2).abs() < 0.02 && sure < 0.02, "{near} {sure}");
        let means: Vec<f64> = (0..5).map(|p| fit.predict(p).0).collect();
        assert!(means.windows(2).all(|w| w[0] > w[1]), "{means:?}");
        let (other, unsure) = fit.predict(5);
        assert!(other.abs() < 0.15 && unsure > 0.3, "another kernel is hardly known: {other} {unsure}");
        assert!(fit.expected_gain(3, -0.2) < fit.expected_gain(5, -0.2));
    }

    #[test]
    fn a_kernel_that_is_slow_on_two_threads_may_be_fast_on_one() {
        let on = |kernel, threads, predicted| Point {
            kernel,
            parameters: Parameters::new().with(Knob::Threads, threads),
            predicted: Some(predicted),
            known: None,
            refused: None,
            start: false,
        };
        // Two kernels on two threads take five times what the models say, as beside another busy program.
        let points = [on(0, 2, 1.0), on(1, 2, 1.1), on(0, 1, 2.0), on(1, 1, 2.2)];
        let space = Coordinates::of(&points);
        let fit = Surrogate::fit(&space, &[(0, 5f64.ln()), (1, 5.5f64.ln())]).unwrap();
        for one in [2, 3] {
            let gain = fit.expected_gain(one, 5f64.ln());
            assert!(gain > 0.1, "{one}: {gain}");
        }
    }

    #[test]
    fn the_model_is_the_mean() {
        let points = [point(0, 0, 1.0), point(0, 1, 2.0), point(0, 2, 4.0)];
        let space = Coordinates::of(&points);
        // The first took twice what the model says: the others are expected to as well.
        let fit = Surrogate::fit(&space, &[(0, 2f64.ln())]).unwrap();
        assert!((fit.predict(2).0 - 8f64.ln()).abs() < 0.1, "{}", fit.predict(2).0.exp());
        assert!(Surrogate::fit(&space, &[]).is_none());
    }
}
