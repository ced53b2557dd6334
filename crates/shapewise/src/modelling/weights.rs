//! The roofline's resources weighted per kernel: a kernel rarely overlaps them fully, nor reaches every peak.
//!
//! Seconds = overhead + Σ weight × seconds of a resource, weights not negative, by least squares of the relative error. It is fitted twice,
//! with and without a time for each row and each result, and a geometric mean of both is taken, by the errors that they leave: begun
//! loops are what a cost does not count, but where shapes are few they also fit by chance.

use std::collections::BTreeMap;

use super::features::at;
use super::{Example, Features};
use crate::backends::cpu::simd::math::log_each;

/// The resources and the overhead of a call.
const PLAIN: usize = at::TERM_COUNT + 1;
/// With rows of the first input, rows of the output and results, as shared by the threads.
const COLUMNS: usize = PLAIN + 3;
/// Units of the overhead's and of a row's weight in seconds; only the arithmetic's scale depends on them.
const MICROSECOND: f64 = 1e-6;
const NANOSECOND: f32 = 1e-9;
/// No time is below this, in seconds.
const LEAST: f32 = 1e-12;
/// Candidates whose logarithms are taken together.
const TOGETHER: usize = 64;
/// Squares of relative errors that no fit can be blamed for.
const NOISE: f64 = 0.01;
/// Sweeps of coordinate descent; ten unknowns settle long before.
const SWEEPS: usize = 200;

type Weights = [f64; COLUMNS];

/// Weights for each kernel, and for kernels never measured.
#[derive(Clone, Debug, Default)]
pub(super) struct ResourceWeights {
    all: Fits,
    kernels: Vec<(u32, Fits)>,
}

/// Weights without and with rows and results.
#[derive(Clone, Debug, Default)]
struct Fits {
    plain: Weights,
    rows: Weights,
    /// How much the latter count.
    share: f32,
}

impl ResourceWeights {
    /// Fits all examples together, then each kernel close to that as far as its examples do not say otherwise.
    pub fn fit(examples: &[Example]) -> Self {
        let mut everything = System::default();
        let mut kernels = BTreeMap::<u32, System>::new();
        for example in examples {
            everything.add(example);
            kernels.entry(example.features.kernel()).or_default().add(example);
        }
        // Before any evidence the sum of the resources' times, as if nothing overlapped.
        let prior = std::array::from_fn(|i| if i < at::TERM_COUNT { 1.0 } else { 0.0 });
        let all = everything.fits(&prior, &prior);
        let of = |system: System| system.fits(&all.plain, &all.rows);
        let kernels = kernels.into_iter().map(|(kernel, system)| (kernel, of(system))).collect();
        Self { all, kernels }
    }

    /// Adds ln(seconds) of each candidate.
    pub fn add_logs(&self, batch: &[Features], out: &mut [f32]) {
        let mut counts = Counts::default();
        let mut of = (u32::MAX, &self.all);
        let (mut plain, mut rows, mut shares) = ([0.0f32; TOGETHER], [0.0f32; TOGETHER], [0.0f32; TOGETHER]);
        for (batch, out) in batch.chunks(TOGETHER).zip(out.chunks_mut(TOGETHER)) {
            for (i, features) in batch.iter().enumerate() {
                counts.update(features);
                // Points of one kernel stand together.
                let kernel = features.kernel();
                if of.0 != kernel {
                    of = (kernel, self.fits(kernel));
                }
                let columns = columns(features, &counts);
                let seconds =
                    |weights: &Weights| columns.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>() as f32;
                plain[i] = seconds(&of.1.plain).max(LEAST);
                rows[i] = seconds(&of.1.rows).max(LEAST);
                shares[i] = of.1.share;
            }
            let count = batch.len();
            log_each(&mut plain[..count]);
            log_each(&mut rows[..count]);
            for (i, out) in out.iter_mut().enumerate() {
                *out += plain[i] + shares[i] * (rows[i] - plain[i]);
            }
        }
    }

    fn fits(&self, kernel: u32) -> &Fits {
        match self.kernels.binary_search_by_key(&kernel, |k| k.0) {
            Ok(at) => &self.kernels[at].1,
            Err(_) => &self.all,
        }
    }
}

/// Rows of the first input, rows of the output and results, which the candidates of a workload share.
#[derive(Default)]
struct Counts {
    /// The logarithms that they were counted from.
    of: [f32; 3],
    counts: [f32; 3],
}

impl Counts {
    #[inline]
    fn update(&mut self, features: &Features) {
        let f = &features.0;
        let (results, output) = (f[at::RESULTS], f[at::SIZES + 6]);
        let of = [f[at::SIZES + 1] + f[at::SIZES + 2], results - output, results];
        if self.of != of || self.counts[0] == 0.0 {
            *self = Self { of, counts: of.map(f32::exp2) };
        }
    }
}

fn columns(features: &Features, counts: &Counts) -> Weights {
    let mut out = [MICROSECOND; COLUMNS];
    out[..at::TERM_COUNT].copy_from_slice(&features.terms());
    let share = NANOSECOND / features.0[at::THREADS].max(1.0);
    for (out, count) in out[PLAIN..].iter_mut().zip(counts.counts) {
        *out = f64::from(share * count);
    }
    out
}

/// Normal equations of the relative errors.
#[derive(Default)]
struct System {
    matrix: [Weights; COLUMNS],
    right: Weights,
    examples: f64,
}

impl System {
    /// Both fits, each close to a prior. The one with rows counts the more the less error it leaves, and half if it leaves as much.
    fn fits(&self, plain: &Weights, rows: &Weights) -> Fits {
        let (plain, rows) = (self.solve(PLAIN, plain), self.solve(COLUMNS, rows));
        let errors = [&plain, &rows].map(|weights| self.error(weights) + NOISE * self.examples);
        Fits { plain, rows, share: (errors[0] / (errors[0] + errors[1])) as f32 }
    }

    /// The sum of squares of the relative errors.
    fn error(&self, weights: &Weights) -> f64 {
        let product = |row: &Weights| row.iter().zip(weights).map(|(m, w)| m * w).sum::<f64>();
        let each = self.matrix.iter().zip(&self.right).zip(weights);
        (self.examples + each.map(|((row, right), w)| w * (product(row) - 2.0 * right)).sum::<f64>()).max(0.0)
    }

    fn add(&mut self, example: &Example) {
        let mut counts = Counts::default();
        counts.update(&example.features);
        let row = columns(&example.features, &counts).map(|x| x / example.seconds);
        let weight = f64::from(example.weight);
        self.examples += weight;
        for (i, &x) in row.iter().enumerate() {
            self.right[i] += weight * x;
            for (j, &y) in row.iter().enumerate() {
                self.matrix[i][j] += weight * x * y;
            }
        }
    }

    /// Least squares of the first columns with weights of at least zero, drawn to the prior as strongly as one example of each resource.
    fn solve(&self, columns: usize, prior: &Weights) -> Weights {
        let mut found = *prior;
        for _ in 0..SWEEPS {
            for i in 0..columns {
                let diagonal = self.matrix[i][i];
                // A resource that only one kind of example uses must not swing with their noise.
                let pull = 0.02 * diagonal + f64::MIN_POSITIVE;
                let others: f64 =
                    (0..columns).filter(|&j| j != i).map(|j| self.matrix[i][j] * found[j]).sum();
                let best = (self.right[i] - others + pull * prior[i]) / (diagonal + pull);
                found[i] = if best.is_finite() { best.max(0.0) } else { prior[i] };
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modelling::FEATURES;

    /// A candidate of two threads that takes 40 ns for each of its rows beside its arithmetic.
    fn example(rows: f32, length: f32) -> Example {
        let mut all = [0.0; FEATURES];
        all[at::TERMS] = 1e-11 * rows * length;
        all[at::THREADS] = 2.0;
        all[at::SIZES] = length.log2();
        all[at::SIZES + 1] = rows.log2();
        all[at::SIZES + 6] = length.log2();
        all[at::RESULTS] = (rows * length).log2();
        let seconds = f64::from(all[at::TERMS]) + 40e-9 * f64::from(rows) / 2.0;
        Example { features: Features(all), baseline: 1e-6, seconds, shape: 0, weight: 1.0 }
    }

    fn log(weights: &ResourceWeights, features: &Features) -> f32 {
        let mut out = [0.0];
        weights.add_logs(&[*features], &mut out);
        out[0]
    }

    #[test]
    fn what_each_row_takes_is_learned_from_other_shapes() {
        let sizes = [2.0f32, 10.0, 50.0, 300.0, 2000.0];
        let all = sizes.iter().flat_map(|&rows| sizes.map(|length| example(rows, length)));
        let weights = ResourceWeights::fit(&all.collect::<Vec<_>>());
        for new in [example(100.0, 5.0), example(30.0, 1000.0), example(5000.0, 20.0)] {
            let error = f64::from(log(&weights, &new.features)) - new.seconds.ln();
            assert!(error.abs() < 0.2, "{error}");
        }
        let fits = &weights.kernels[0].1;
        let rows: f64 = fits.rows[PLAIN..PLAIN + 2].iter().sum();
        assert!((rows - 40.0).abs() < 1.0 && fits.share > 0.9, "{fits:?}");
    }

    #[test]
    fn where_rows_explain_nothing_both_fits_count_alike() {
        let one = |length: f32| {
            let example = example(1.0, length);
            Example { seconds: 3.0 * f64::from(example.features.0[at::TERMS]), ..example }
        };
        let all: Vec<Example> = [10.0, 100.0, 1e3, 1e4, 1e5].map(one).to_vec();
        let weights = ResourceWeights::fit(&all);
        assert!((0.5..0.6).contains(&weights.all.share), "{}", weights.all.share);
        let error = f64::from(log(&weights, &all[3].features)) - all[3].seconds.ln();
        assert!(error.abs() < 0.05, "{error}");
    }

    #[test]
    fn a_candidate_that_costs_nothing_has_a_time_all_the_same() {
        let nothing = Features([0.0; FEATURES]);
        assert!(log(&ResourceWeights::default(), &nothing).is_finite());
    }
}
