//! The model of one operation on one device: roofline, learned residual, neighbours and intervals together.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::example::check;
use super::interval::{AdaptiveLevel, Scores};
use super::repeated::{Own, Repeated};
use super::transfer::{Near, Neighbours, Reach, Residual};
use super::weights::ResourceWeights;
use super::{
    Basis, DecisionTree, Example, Features, GradientBoosting, Model, ModelError, NeuralNetwork, Prediction,
    RandomForest, RidgeRegression, SupportVectorRegression,
};
use crate::backends::cpu::simd::math::{exp_each, log_each};

/// Shapes below which nothing is learned but what neighbours tell: its folds need a few shapes each.
const LEARNABLE: usize = 15;
/// Parts that validation leaves out in turn.
const FOLDS: usize = 5;
/// Without evidence: ln of how far times stay behind the roofline at the middle and at the 95th percentile, over all
/// operations of the measured suite (`docs/modelling.md`).
const BEHIND: f32 = 1.10;
const FAR_BEHIND: f32 = 4.10;
/// Logarithms beyond this have no exponential.
const LARGEST_LOG: f32 = 80.0;

/// What is asked about one candidate; all queries of a batch are of one workload.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// What is known about it.
    pub features: Features,
    /// Seconds by the roofline.
    pub baseline: f64,
}

/// Which model learns the residual.
#[derive(Clone, Default)]
pub enum ModelChoice {
    /// Boosted symmetric trees: the default, made to predict whole batches quickly.
    #[default]
    GradientBoosting,
    /// A straight line.
    RidgeRegression,
    /// One tree.
    DecisionTree,
    /// The mean of many trees.
    RandomForest,
    /// A smooth function with a tube of errors that do not count.
    SupportVectorRegression,
    /// One hidden layer.
    NeuralNetwork,
    /// A user's own.
    Custom(Arc<dyn Fn() -> Box<dyn Model> + Send + Sync>),
}

impl ModelChoice {
    fn make(&self) -> Box<dyn Model> {
        match self {
            Self::GradientBoosting => Box::new(GradientBoosting::default()),
            Self::RidgeRegression => Box::new(RidgeRegression::default()),
            Self::DecisionTree => Box::new(DecisionTree::default()),
            Self::RandomForest => Box::new(RandomForest::default()),
            Self::SupportVectorRegression => Box::new(SupportVectorRegression::default()),
            Self::NeuralNetwork => Box::new(NeuralNetwork::default()),
            Self::Custom(make) => make(),
        }
    }
}

/// How to train.
#[derive(Clone)]
pub struct Training {
    /// What learns the residual.
    pub model: ModelChoice,
    /// Share of times that shall lie in their intervals.
    pub coverage: f32,
}

impl Default for Training {
    fn default() -> Self {
        Self { model: ModelChoice::default(), coverage: 0.9 }
    }
}

/// Errors on shapes that were left out in training.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// Mean of |predicted / measured − 1|.
    pub mean_error: f32,
    /// Median of the same.
    pub median_error: f32,
    /// Mean speed of the predicted best candidate relative to the measured best.
    pub speed: f32,
}

/// Everything learned about one operation on one device; immutable but for the level of its intervals.
pub struct OperationModel {
    learned: Option<Learned>,
    neighbours: Neighbours,
    reach: Reach,
    scores: Scores,
    /// How far measurements are from what the others of the same candidate tell.
    repeated: Scores,
    spreads: Spreads,
    level: AdaptiveLevel,
    /// What is taken off the logarithm of predictions for shapes never seen, so that their relative errors are least.
    shift: f32,
    /// Least and greatest log residual that was measured: nothing is predicted beyond.
    bounds: (f32, f32),
    validation: Option<Validation>,
    examples: usize,
    shapes: usize,
    name: &'static str,
}

/// Weighted resources and the model of what they leave.
struct Learned {
    weights: ResourceWeights,
    model: Box<dyn Model>,
}

impl Learned {
    fn fit(examples: &[Example], choice: &ModelChoice) -> Result<Self, ModelError> {
        let weights = ResourceWeights::fit(examples);
        let features: Vec<Features> = examples.iter().map(|e| e.features).collect();
        let mut logs = vec![0.0; examples.len()];
        weights.add_logs(&features, &mut logs);
        let baselines = logs.iter().map(|&log| f64::from(log).exp());
        let against: Vec<Example> =
            examples.iter().zip(baselines).map(|(e, baseline)| Example { baseline, ..*e }).collect();
        let mut model = choice.make();
        model.fit(&against)?;
        Ok(Self { weights, model })
    }

    /// ln(seconds) of candidates.
    fn predict(&self, batch: &[Features], out: &mut [f32]) {
        self.model.predict(batch, out);
        self.weights.add_logs(batch, out);
    }
}

impl OperationModel {
    /// A model without evidence: the roofline with a wide interval.
    pub fn untrained() -> Self {
        Self {
            learned: None,
            neighbours: Neighbours::default(),
            reach: Reach { scale: 1.0, own: 0.5 },
            scores: Scores::default(),
            repeated: Scores::default(),
            spreads: Spreads::default(),
            level: AdaptiveLevel::new(0.9),
            shift: 0.0,
            bounds: (f32::NEG_INFINITY, f32::INFINITY),
            validation: None,
            examples: 0,
            shapes: 0,
            name: "roofline",
        }
    }

    /// Learns from all examples: a fit of the model for each fold and one more, so not for the caller's thread.
    pub fn train(examples: &[Example], settings: &Training) -> Result<Self, ModelError> {
        check(examples)?;
        let folds = Folds::new(examples);
        let mut out = Self {
            level: AdaptiveLevel::new(settings.coverage),
            examples: examples.len(),
            shapes: folds.shapes,
            ..Self::untrained()
        };
        let residuals = examples.iter().map(Example::residual);
        let repeated = Repeated::of(examples);
        out.repeated = repeated.scores();
        out.bounds = residuals.fold((f32::INFINITY, f32::NEG_INFINITY), |b, r| (b.0.min(r), b.1.max(r)));
        if folds.shapes < LEARNABLE {
            for example in examples {
                let residual = example.residual() - BEHIND;
                out.add(example, residual, &repeated);
            }
            return Ok(out);
        }
        let unseen = folds.predict(examples, &settings.model)?;
        let learned = Learned::fit(examples, &settings.model)?;
        for (example, unseen) in examples.iter().zip(&unseen) {
            out.add(example, example.seconds.ln() as f32 - unseen, &repeated);
        }
        out.name = learned.model.name();
        out.learned = Some(learned);
        out.calibrate(examples, &unseen);
        Ok(out)
    }

    /// Keeps what an example told, beside what it left against a model that never saw its shape.
    fn add(&mut self, example: &Example, unseen: f32, repeated: &Repeated) {
        let own = repeated.own(example.shape, example.features.variant()).unwrap_or_default();
        let residual = Residual { unseen, weight: example.weight, own };
        self.neighbours.add(example.shape, &example.features, residual);
    }

    /// Chooses the neighbours' reach and takes the scores of the intervals, both on shapes left out.
    fn calibrate(&mut self, examples: &[Example], unseen: &[f32]) {
        let near: Vec<_> = examples.iter().map(|e| self.neighbours.near(e.shape, &e.features)).collect();
        let errors = |reach: Reach| -> Vec<f32> {
            // Rows of one shape mostly stand together.
            let mut latest = None;
            let of = |((e, u), near): ((&Example, &f32), &Near)| {
                let told = match &mut latest {
                    Some((shape, told)) if *shape == e.shape => told,
                    other => &mut other.insert((e.shape, self.neighbours.told(&near.weighed(reach.scale)))).1,
                };
                e.seconds.ln() as f32 - u - told.transfer(e.features.variant(), reach.own).0
            };
            examples.iter().zip(unseen).zip(&near).map(of).collect()
        };
        let total = |errors: &[f32]| errors.iter().map(|e| e.abs()).sum::<f32>();
        let scales = [0.5f32, 1.0, 2.0];
        let reaches =
            scales.iter().flat_map(|&scale| [0.3f32, 1.0, 3.0, 1e6].map(|own| Reach { scale, own }));
        let tried = reaches.map(|reach| (reach, errors(reach)));
        let Some((reach, mut errors)) = tried.min_by(|a, b| total(&a.1).total_cmp(&total(&b.1))) else {
            return;
        };
        self.reach = reach;
        self.shift = least_relative(&errors);
        for error in &mut errors {
            *error += self.shift;
        }
        self.spreads = Spreads::new(examples, &errors);
        let score = |(e, error): (&Example, &f32)| {
            let predicted = e.seconds * f64::from(-error).exp();
            (predicted, error.abs() / self.spreads.of(&e.features))
        };
        // Rough times scatter more than what intervals are asked to hold.
        let exact = examples.iter().zip(&errors).filter(|(e, _)| e.weight >= 1.0);
        self.scores = Scores::new(exact.map(score));
        self.validation = Some(Validation::new(examples, &errors));
    }

    /// Predicts the candidates of the workload with this hash.
    pub fn predict(&self, shape: u64, queries: &[Query], out: &mut Vec<Prediction>) {
        out.clear();
        let Some(first) = queries.first() else { return };
        let near = (!self.neighbours.is_empty()).then(|| {
            let near = self.neighbours.near(shape, &first.features);
            let told = self.neighbours.told(&near.weighed(self.reach.scale));
            (near, told)
        });
        let mut baselines: Vec<f32> = queries.iter().map(|q| q.baseline as f32).collect();
        log_each(&mut baselines);
        let mut logs = match &self.learned {
            Some(learned) => {
                let features: Vec<Features> = queries.iter().map(|q| q.features).collect();
                let mut logs = vec![0.0; queries.len()];
                learned.predict(&features, &mut logs);
                logs
            }
            None => baselines.iter().map(|baseline| baseline + BEHIND).collect(),
        };
        let usual = if self.learned.is_some() { Basis::Learned } else { Basis::Roofline };
        let mut bases = vec![(usual, None); queries.len()];
        for (i, query) in queries.iter().enumerate() {
            if let Some((near, told)) = &near {
                let variant = query.features.variant();
                if let Some(own) = self.neighbours.exact(near, variant) {
                    logs[i] = own.log;
                    bases[i] = (Basis::Measured, Some(own));
                } else {
                    let (shift, weight) = told.transfer(variant, self.reach.own);
                    logs[i] += shift - self.shift;
                    if weight > self.reach.own {
                        bases[i].0 = Basis::Transfer;
                    }
                }
            }
            let log = baselines[i] + (logs[i] - baselines[i]).clamp(self.bounds.0, self.bounds.1);
            logs[i] = log.clamp(-LARGEST_LOG, LARGEST_LOG);
        }
        self.finish(queries, &mut logs, &bases, out);
    }

    /// Seconds and intervals from logarithms.
    fn finish(
        &self,
        queries: &[Query],
        logs: &mut [f32],
        bases: &[(Basis, Option<Own>)],
        out: &mut Vec<Prediction>,
    ) {
        let level = self.level.get();
        exp_each(logs);
        let mut reaches: Vec<f32> = Vec::with_capacity(queries.len());
        let mut of = (u32::MAX, 0.0);
        for ((query, &seconds), &(basis, own)) in queries.iter().zip(&*logs).zip(bases) {
            // Points of one kernel stand together.
            let kernel = query.features.kernel();
            if of.0 != kernel {
                of = (kernel, self.spreads.of(&query.features));
            }
            let seconds = f64::from(seconds);
            let repeated = own.and_then(|own| Some(self.repeated.quantile(seconds, level)? * own.apart));
            let quantile = repeated.or_else(|| self.scores.quantile(seconds, level).map(|q| q * of.1));
            // Contradictory times may be as far apart again.
            let unknown = own.map_or(0.0, |own| 2.0 * own.apart).max(FAR_BEHIND - BEHIND);
            reaches.push(quantile.unwrap_or(unknown).min(LARGEST_LOG));
            // An interval that no score stands behind has no calibrated share.
            let confidence = quantile.map_or(0.0, |_| f64::from(self.level.target()));
            out.push(Prediction { seconds, low: seconds, high: seconds, confidence, basis });
        }
        exp_each(&mut reaches);
        for (prediction, reach) in out.iter_mut().zip(reaches) {
            prediction.low /= f64::from(reach);
            prediction.high *= f64::from(reach);
        }
    }

    /// Tells whether a measured time fell into its interval: later intervals adapt.
    pub fn observe(&self, prediction: &Prediction, seconds: f64) {
        if seconds.is_finite() && seconds > 0.0 {
            self.level.observe((prediction.low..=prediction.high).contains(&seconds));
        }
    }

    /// Errors on shapes that were left out; `None` before there are enough shapes.
    pub fn validation(&self) -> Option<Validation> {
        self.validation
    }

    /// Number of examples and of different shapes among them.
    pub fn evidence(&self) -> (usize, usize) {
        (self.examples, self.shapes)
    }

    /// Name of the model that learned the residual.
    pub fn model(&self) -> &'static str {
        self.name
    }
}

/// What to take off predictions, given ln(measured / predicted), for the least mean of |predicted / measured − 1|: a time predicted
/// at twice the truth counts twice as much as one at half of it, so the middle of the logarithms is too high.
fn least_relative(errors: &[f32]) -> f32 {
    const STEPS: u8 = 20;
    let total = |shift: &f32| errors.iter().map(|e| ((-e - shift).exp() - 1.0).abs()).sum::<f32>();
    let shifts = (0..=STEPS).map(|i| 0.01 * f32::from(i));
    shifts.min_by(|a, b| total(a).total_cmp(&total(b))).unwrap_or(0.0)
}

/// Shapes dealt into parts.
struct Folds {
    of: Vec<usize>,
    shapes: usize,
}

impl Folds {
    fn new(examples: &[Example]) -> Self {
        let mut shapes: Vec<u64> = examples.iter().map(|e| e.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let fold = |e: &Example| shapes.partition_point(|&s| s < e.shape) % FOLDS;
        Self { of: examples.iter().map(fold).collect(), shapes: shapes.len() }
    }

    /// ln(seconds) of every example by a model that never saw its shape.
    fn predict(&self, examples: &[Example], choice: &ModelChoice) -> Result<Vec<f32>, ModelError> {
        let mut out = vec![0.0; examples.len()];
        for fold in 0..FOLDS {
            let (inside, outside): (Vec<usize>, Vec<usize>) =
                (0..examples.len()).partition(|&i| self.of[i] == fold);
            let rest: Vec<Example> = outside.iter().map(|&i| examples[i]).collect();
            let learned = Learned::fit(&rest, choice)?;
            let features: Vec<Features> = inside.iter().map(|&i| examples[i].features).collect();
            let mut logs = vec![0.0; inside.len()];
            learned.predict(&features, &mut logs);
            inside.iter().zip(logs).for_each(|(&i, log)| out[i] = log);
        }
        Ok(out)
    }
}

/// The usual size of errors for each kernel, so that one that is hard to predict does not widen all intervals.
#[derive(Clone, Debug)]
struct Spreads {
    all: f32,
    kernels: Vec<(u32, f32)>,
}

impl Default for Spreads {
    fn default() -> Self {
        Self { all: 1.0, kernels: Vec::new() }
    }
}

impl Spreads {
    /// Errors of all kernels count as this many of each one's own.
    const SHARED: f32 = 20.0;

    fn new(examples: &[Example], errors: &[f32]) -> Self {
        let all = errors.iter().map(|e| e.abs()).sum::<f32>() / errors.len() as f32;
        let all = all.max(f32::EPSILON);
        let mut sums = BTreeMap::<u32, (f32, f32)>::new();
        for (example, error) in examples.iter().zip(errors) {
            let sum = sums.entry(example.features.kernel()).or_default();
            sum.0 += error.abs();
            sum.1 += 1.0;
        }
        let mean = |(sum, count): (f32, f32)| (sum + Self::SHARED * all) / (count + Self::SHARED);
        Self { all, kernels: sums.into_iter().map(|(kernel, sum)| (kernel, mean(sum))).collect() }
    }

    fn of(&self, features: &Features) -> f32 {
        match self.kernels.binary_search_by_key(&features.kernel(), |k| k.0) {
            Ok(at) => self.kernels[at].1,
            Err(_) => self.all,
        }
    }
}

impl Validation {
    fn new(examples: &[Example], errors: &[f32]) -> Self {
        let mut relative: Vec<f32> = errors.iter().map(|e| ((-e).exp() - 1.0).abs()).collect();
        let mean_error = relative.iter().sum::<f32>() / relative.len() as f32;
        relative.sort_by(f32::total_cmp);
        // Per shape: the least measured time, and the measured time of the least predicted one.
        let mut shapes = BTreeMap::<u64, (f64, f64, f64)>::new();
        for (example, error) in examples.iter().zip(errors) {
            let predicted = example.seconds * f64::from(-error).exp();
            let shape = shapes.entry(example.shape).or_insert((f64::INFINITY, f64::INFINITY, 0.0));
            shape.0 = shape.0.min(example.seconds);
            if predicted < shape.1 {
                (shape.1, shape.2) = (predicted, example.seconds);
            }
        }
        let speed = shapes.values().map(|s| s.0 / s.2).sum::<f64>() / shapes.len() as f64;
        Self { mean_error, median_error: relative[relative.len() / 2], speed: speed as f32 }
    }
}

#[cfg(test)]
mod tests;
