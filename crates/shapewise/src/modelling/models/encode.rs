//! Features on equal scales, identities replaced by what was measured about them.

use std::collections::BTreeMap;

use crate::modelling::features::at;
use crate::modelling::{Example, FEATURES, Features};

/// A row of numbers around zero with deviation one.
pub(super) type Row = [f32; FEATURES];

/// Turns features into rows.
#[derive(Clone, Debug)]
pub(super) struct Encoder {
    identities: [Vec<(u32, f32)>; 2],
    mean: Row,
    scale: Row,
}

impl Default for Encoder {
    fn default() -> Self {
        Self { identities: Default::default(), mean: [0.0; FEATURES], scale: [1.0; FEATURES] }
    }
}

impl Encoder {
    /// Measures the features of examples.
    pub fn new(examples: &[Example]) -> Self {
        let identities = [means(examples, Features::kernel), means(examples, Features::variant)];
        let mut out = Self { identities, ..Self::default() };
        let rows: Vec<Row> = examples.iter().map(|e| out.raw(&e.features)).collect();
        let n = rows.len() as f64;
        for f in 0..FEATURES {
            let mean = rows.iter().map(|r| f64::from(r[f])).sum::<f64>() / n;
            let square = rows.iter().map(|r| (f64::from(r[f]) - mean).powi(2)).sum::<f64>() / n;
            out.mean[f] = mean as f32;
            // A feature that never varied says nothing, whatever it is later.
            out.scale[f] = if square.sqrt() > 1e-9 * mean.abs() && square > 0.0 {
                1.0 / square.sqrt() as f32
            } else {
                0.0
            };
        }
        out
    }

    fn raw(&self, features: &Features) -> Row {
        let mut row = features.0;
        // Resources' times spread over many powers of ten; their logarithms are even.
        for term in &mut row[at::TERMS..at::TERMS + at::TERM_COUNT] {
            *term = crate::modelling::features::log2(1e9 * f64::from(*term) + 1.0);
        }
        for (slot, ids) in [at::KERNEL, at::VARIANT].into_iter().zip(&self.identities) {
            let found = ids.binary_search_by_key(&(row[slot] as u32), |i| i.0);
            row[slot] = found.map_or(0.0, |i| ids[i].1);
        }
        row
    }

    /// The row of a candidate; numbers far outside what was seen stay within four deviations.
    pub fn row(&self, features: &Features) -> Row {
        let mut row = self.raw(features);
        for ((x, mean), scale) in row.iter_mut().zip(&self.mean).zip(&self.scale) {
            *x = ((*x - mean) * scale).clamp(-4.0, 4.0);
        }
        row
    }
}

/// Mean residual of each identity against that of all, drawn to it as if by two more examples.
fn means(examples: &[Example], identity: impl Fn(&Features) -> u32) -> Vec<(u32, f32)> {
    let all = examples.iter().map(Example::residual).sum::<f32>() / examples.len().max(1) as f32;
    let mut sums = BTreeMap::<u32, (f32, f32)>::new();
    for example in examples {
        let sum = sums.entry(identity(&example.features)).or_default();
        sum.0 += example.residual() - all;
        sum.1 += 1.0;
    }
    sums.into_iter().map(|(id, (sum, count))| (id, sum / (count + 2.0))).collect()
}
