//! A random forest: the mean of trees that each saw other examples and asked about other features.

use super::encode::{Encoder, Row};
use super::tree::{Ground, Nodes};
use crate::modelling::example::check;
use crate::modelling::{Example, Features, Model, ModelError};

/// Trees; more change the mean by less than the noise of the measurements.
const TREES: usize = 40;

/// The mean of many trees.
#[derive(Clone, Debug, Default)]
pub struct RandomForest {
    encoder: Encoder,
    trees: Vec<Nodes>,
}

impl Model for RandomForest {
    fn name(&self) -> &'static str {
        "random_forest"
    }

    fn fit(&mut self, examples: &[Example]) -> Result<(), ModelError> {
        check(examples)?;
        self.encoder = Encoder::new(examples);
        let rows: Vec<Row> = examples.iter().map(|e| self.encoder.row(&e.features)).collect();
        let targets: Vec<f32> = examples.iter().map(Example::residual).collect();
        let weights: Vec<f32> = examples.iter().map(|e| e.weight).collect();
        // A fixed start: the same evidence gives the same model.
        let mut state = 1u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        self.trees.clear();
        for _ in 0..TREES {
            let mut chosen: Vec<u32> =
                (0..examples.len()).map(|_| (next() % examples.len()) as u32).collect();
            let mut allowed = |_| next() % 3 == 0;
            let mut ground =
                Ground { rows: &rows, targets: &targets, weights: &weights, allowed: &mut allowed };
            self.trees.push(Nodes::grow(&mut ground, &mut chosen));
        }
        Ok(())
    }

    fn predict(&self, batch: &[Features], out: &mut [f32]) {
        for (value, features) in out.iter_mut().zip(batch) {
            let row = self.encoder.row(features);
            let sum: f32 = self.trees.iter().map(|tree| tree.value(&row)).sum();
            *value = sum / self.trees.len().max(1) as f32;
        }
    }
}
