//! Ridge regression: a straight line through the residuals, short coefficients preferred.

use super::encode::{Encoder, Row};
use crate::modelling::example::check;
use crate::modelling::{Example, FEATURES, Features, Model, ModelError};

/// Linear least squares with a penalty on the coefficients.
#[derive(Clone, Debug)]
pub struct RidgeRegression {
    /// Weight of the penalty, in examples.
    penalty: f64,
    encoder: Encoder,
    coefficients: Row,
    intercept: f32,
}

impl Default for RidgeRegression {
    fn default() -> Self {
        Self::new(3.0)
    }
}

impl RidgeRegression {
    /// A model whose coefficients are drawn to zero as if by that many examples.
    pub fn new(penalty: f64) -> Self {
        Self { penalty, encoder: Encoder::default(), coefficients: [0.0; FEATURES], intercept: 0.0 }
    }
}

impl Model for RidgeRegression {
    fn name(&self) -> &'static str {
        "ridge_regression"
    }

    fn fit(&mut self, examples: &[Example]) -> Result<(), ModelError> {
        check(examples)?;
        self.encoder = Encoder::new(examples);
        let total: f64 = examples.iter().map(|e| f64::from(e.weight)).sum();
        let mean: f64 = examples.iter().map(|e| f64::from(e.weight * e.residual())).sum::<f64>() / total;
        let mut matrix = vec![[0.0f64; FEATURES]; FEATURES];
        let mut right = [0.0f64; FEATURES];
        for example in examples {
            let row = self.encoder.row(&example.features);
            let weight = f64::from(example.weight);
            let target = f64::from(example.residual()) - mean;
            for (i, &x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
                let x = weight * f64::from(x);
                right[i] += x * target;
                for (entry, &y) in matrix[i].iter_mut().zip(&row) {
                    *entry += x * f64::from(y);
                }
            }
        }
        for (i, row) in matrix.iter_mut().enumerate() {
            row[i] += self.penalty.max(1e-6);
        }
        let solution =
            cholesky(matrix, right).ok_or_else(|| ModelError::Diverged("singular matrix".into()))?;
        self.coefficients = solution.map(|x| x as f32);
        self.intercept = mean as f32;
        Ok(())
    }

    fn predict(&self, batch: &[Features], out: &mut [f32]) {
        for (value, features) in out.iter_mut().zip(batch) {
            let row = self.encoder.row(features);
            *value = self.intercept + row.iter().zip(&self.coefficients).map(|(x, c)| x * c).sum::<f32>();
        }
    }
}

/// Solves a symmetric positive system in place.
fn cholesky(mut a: Vec<[f64; FEATURES]>, mut b: [f64; FEATURES]) -> Option<[f64; FEATURES]> {
    for i in 0..FEATURES {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| a[i][k] * a[j][k]).sum();
            let rest = a[i][j] - dot;
            a[i][j] = if i == j { rest.sqrt() } else { rest / a[j][j] };
        }
        if !(a[i][i] > 0.0 && a[i][i].is_finite()) {
            return None;
        }
    }
    for i in 0..FEATURES {
        let dot: f64 = (0..i).map(|k| a[i][k] * b[k]).sum();
        b[i] = (b[i] - dot) / a[i][i];
    }
    for i in (0..FEATURES).rev() {
        let dot: f64 = (i + 1..FEATURES).map(|k| a[k][i] * b[k]).sum();
        b[i] = (b[i] - dot) / a[i][i];
    }
    Some(b)
}
