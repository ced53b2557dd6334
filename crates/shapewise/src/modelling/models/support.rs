//! Support vector regression: a smooth function through the examples that a tube around it does not hold.

use super::encode::{Encoder, Row};
use crate::modelling::example::check;
use crate::modelling::{Example, FEATURES, Features, Model, ModelError};

/// Examples that are kept at most: the fit needs the square of their number in memory.
const MOST: usize = 1000;
/// Half the tube's width in ln(seconds): errors below 2 % are noise of the measurement.
const TUBE: f32 = 0.02;
/// Greatest pull of one example.
const PULL: f32 = 5.0;
/// Passes over the examples; the dual changes by less than the tube long before.
const PASSES: usize = 60;

/// ε-insensitive regression with a Gaussian kernel.
#[derive(Clone, Debug, Default)]
pub struct SupportVectorRegression {
    encoder: Encoder,
    supports: Vec<(Row, f32)>,
    mean: f32,
}

impl Model for SupportVectorRegression {
    fn name(&self) -> &'static str {
        "support_vector_regression"
    }

    fn fit(&mut self, examples: &[Example]) -> Result<(), ModelError> {
        check(examples)?;
        self.encoder = Encoder::new(examples);
        // Evenly over all examples where there are too many.
        let step = examples.len().div_ceil(MOST);
        let chosen: Vec<&Example> = examples.iter().step_by(step).collect();
        let rows: Vec<Row> = chosen.iter().map(|e| self.encoder.row(&e.features)).collect();
        self.mean = chosen.iter().map(|e| e.residual()).sum::<f32>() / chosen.len() as f32;
        let targets: Vec<f32> = chosen.iter().map(|e| e.residual() - self.mean).collect();
        let n = rows.len();
        let gram: Vec<f32> = (0..n * n).map(|i| closeness(&rows[i / n], &rows[i % n])).collect();
        let mut pulls = vec![0.0f32; n];
        let mut values = vec![0.0f32; n];
        for _ in 0..PASSES {
            for i in 0..n {
                let row = &gram[i * n..(i + 1) * n];
                // The best pull of this example while the others stay: a soft threshold by the tube.
                let free = targets[i] - values[i] + pulls[i] * row[i];
                let limit = PULL * chosen[i].weight.min(1.0);
                let best = (free.signum() * (free.abs() - TUBE).max(0.0) / row[i]).clamp(-limit, limit);
                let change = best - pulls[i];
                if change != 0.0 {
                    pulls[i] = best;
                    values.iter_mut().zip(row).for_each(|(v, k)| *v += change * k);
                }
            }
        }
        self.supports = rows.into_iter().zip(pulls).filter(|(_, pull)| *pull != 0.0).collect();
        Ok(())
    }

    fn predict(&self, batch: &[Features], out: &mut [f32]) {
        for (value, features) in out.iter_mut().zip(batch) {
            let row = self.encoder.row(features);
            *value =
                self.mean + self.supports.iter().map(|(at, pull)| pull * closeness(at, &row)).sum::<f32>();
        }
    }
}

/// 1 for equal rows, towards 0 with their distance; the scale is the expected square of a row's length.
fn closeness(a: &Row, b: &Row) -> f32 {
    let square: f32 = a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum();
    (-square / FEATURES as f32).exp()
}
