//! A small neural network: one hidden layer, trained by Adam.

use super::encode::{Encoder, Row};
use crate::modelling::example::check;
use crate::modelling::{Example, FEATURES, Features, Model, ModelError};

/// Hidden units.
const HIDDEN: usize = 24;
/// Numbers to learn: weights and bias of each unit, its weight in the output, and the output's bias.
const NUMBERS: usize = HIDDEN * (FEATURES + 2) + 1;
/// Examples that are looked at in training, repetitions counted: keeps training below a second.
const LOOKS: usize = 250_000;
/// Examples between two steps.
const BATCH: usize = 16;
/// Adam's usual settings, and a penalty on large weights.
const RATE: f32 = 3e-3;
const MOMENTS: [f32; 2] = [0.9, 0.999];
const DECAY: f32 = 1e-4;

/// A perceptron with one hidden layer.
#[derive(Clone, Debug)]
pub struct NeuralNetwork {
    encoder: Encoder,
    numbers: Vec<f32>,
    mean: f32,
}

impl Default for NeuralNetwork {
    fn default() -> Self {
        Self { encoder: Encoder::default(), numbers: vec![0.0; NUMBERS], mean: 0.0 }
    }
}

impl NeuralNetwork {
    fn hidden(&self, row: &Row) -> [f32; HIDDEN] {
        std::array::from_fn(|h| {
            let unit = &self.numbers[h * (FEATURES + 2)..(h + 1) * (FEATURES + 2)];
            let sum: f32 = unit[..FEATURES].iter().zip(row).map(|(w, x)| w * x).sum();
            (sum + unit[FEATURES]).tanh()
        })
    }

    fn output(&self, hidden: &[f32; HIDDEN]) -> f32 {
        let weights = (0..HIDDEN).map(|h| self.numbers[h * (FEATURES + 2) + FEATURES + 1]);
        hidden.iter().zip(weights).map(|(a, w)| a * w).sum::<f32>() + self.numbers[NUMBERS - 1]
    }

    /// Adds one example's slope of the squared error.
    fn slope(&self, row: &Row, target: f32, weight: f32, slopes: &mut [f32]) {
        let hidden = self.hidden(row);
        // Far outliers pull no harder than errors of a factor e.
        let error = (self.output(&hidden) - target).clamp(-1.0, 1.0) * weight;
        for (h, &a) in hidden.iter().enumerate() {
            let from = h * (FEATURES + 2);
            slopes[from + FEATURES + 1] += error * a;
            let back = error * self.numbers[from + FEATURES + 1] * (1.0 - a * a);
            slopes[from..from + FEATURES].iter_mut().zip(row).for_each(|(s, x)| *s += back * x);
            slopes[from + FEATURES] += back;
        }
        slopes[NUMBERS - 1] += error;
    }
}

impl Model for NeuralNetwork {
    fn name(&self) -> &'static str {
        "neural_network"
    }

    fn fit(&mut self, examples: &[Example]) -> Result<(), ModelError> {
        check(examples)?;
        self.encoder = Encoder::new(examples);
        self.mean = examples.iter().map(Example::residual).sum::<f32>() / examples.len() as f32;
        let rows: Vec<Row> = examples.iter().map(|e| self.encoder.row(&e.features)).collect();
        // A fixed start: the same evidence gives the same model.
        let mut state = 7u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let width = 1.0 / (FEATURES as f32).sqrt();
        self.numbers = (0..NUMBERS).map(|_| (next() as f32 / (1u64 << 30) as f32 - 1.0) * width).collect();
        let (mut first, mut second) = (vec![0.0f32; NUMBERS], vec![0.0f32; NUMBERS]);
        let steps = (LOOKS / BATCH).min(examples.len() * 400 / BATCH + 100);
        let mut slopes = vec![0.0f32; NUMBERS];
        for step in 1..=steps {
            slopes.fill(0.0);
            for _ in 0..BATCH {
                let i = next() % rows.len();
                let target = examples[i].residual() - self.mean;
                self.slope(&rows[i], target, examples[i].weight.min(1.0), &mut slopes);
            }
            let fade = MOMENTS.map(|m| 1.0 - m.powi(step as i32));
            let rate = RATE * (1.0 - step as f32 / steps as f32);
            for (((number, slope), m), v) in
                self.numbers.iter_mut().zip(&slopes).zip(&mut first).zip(&mut second)
            {
                let slope = slope / BATCH as f32;
                *m = MOMENTS[0] * *m + (1.0 - MOMENTS[0]) * slope;
                *v = MOMENTS[1] * *v + (1.0 - MOMENTS[1]) * slope * slope;
                *number -= rate * (*m / fade[0] / ((*v / fade[1]).sqrt() + 1e-8) + DECAY * *number);
            }
        }
        if self.numbers.iter().all(|x| x.is_finite()) {
            return Ok(());
        }
        Err(ModelError::Diverged("a weight is not finite".into()))
    }

    fn predict(&self, batch: &[Features], out: &mut [f32]) {
        for (value, features) in out.iter_mut().zip(batch) {
            *value = self.mean + self.output(&self.hidden(&self.encoder.row(features)));
        }
    }
}
