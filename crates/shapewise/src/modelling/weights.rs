//! The roofline's resources weighted per kernel: a kernel rarely overlaps them fully, nor reaches every peak.
//!
//! Seconds = overhead + Σ weight × seconds of a resource, weights not negative, by least squares of the relative error.

use std::collections::BTreeMap;

use super::features::at::TERM_COUNT;
use super::{Example, Features};

/// The resources and the overhead of a call.
const COLUMNS: usize = TERM_COUNT + 1;
/// Unit of the overhead's weight in seconds; only the arithmetic's scale depends on it.
const MICROSECOND: f64 = 1e-6;
/// Sweeps of coordinate descent; seven unknowns settle long before.
const SWEEPS: usize = 200;

/// Weights for each kernel, and for kernels never measured.
#[derive(Clone, Debug, Default)]
pub(super) struct ResourceWeights {
    all: [f64; COLUMNS],
    kernels: Vec<(u32, [f64; COLUMNS])>,
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
        let mut prior = [1.0; COLUMNS];
        prior[TERM_COUNT] = 0.0;
        let all = everything.solve(&prior);
        let kernels = kernels.into_iter().map(|(kernel, system)| (kernel, system.solve(&all))).collect();
        Self { all, kernels }
    }

    /// Seconds of a candidate.
    pub fn seconds(&self, features: &Features) -> f64 {
        let weights = match self.kernels.binary_search_by_key(&features.kernel(), |k| k.0) {
            Ok(at) => &self.kernels[at].1,
            Err(_) => &self.all,
        };
        columns(features).iter().zip(weights).map(|(x, w)| x * w).sum()
    }
}

fn columns(features: &Features) -> [f64; COLUMNS] {
    let mut out = [MICROSECOND; COLUMNS];
    out[..TERM_COUNT].copy_from_slice(&features.terms());
    out
}

/// Normal equations of the relative errors.
#[derive(Default)]
struct System {
    matrix: [[f64; COLUMNS]; COLUMNS],
    right: [f64; COLUMNS],
}

impl System {
    fn add(&mut self, example: &Example) {
        let row = columns(&example.features).map(|x| x / example.seconds);
        let weight = f64::from(example.weight);
        for (i, &x) in row.iter().enumerate() {
            self.right[i] += weight * x;
            for (j, &y) in row.iter().enumerate() {
                self.matrix[i][j] += weight * x * y;
            }
        }
    }

    /// Least squares with weights of at least zero, drawn to the prior as strongly as one example of each resource.
    fn solve(&self, prior: &[f64; COLUMNS]) -> [f64; COLUMNS] {
        let mut found = *prior;
        for _ in 0..SWEEPS {
            for i in 0..COLUMNS {
                let diagonal = self.matrix[i][i];
                // A resource that only one kind of example uses must not swing with their noise.
                let pull = 0.02 * diagonal + f64::MIN_POSITIVE;
                let others: f64 =
                    (0..COLUMNS).filter(|&j| j != i).map(|j| self.matrix[i][j] * found[j]).sum();
                let best = (self.right[i] - others + pull * prior[i]) / (diagonal + pull);
                found[i] = if best.is_finite() { best.max(0.0) } else { prior[i] };
            }
        }
        found
    }
}
