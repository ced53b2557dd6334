//! How well times are predicted on shapes that were left out in training.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use shapewise::modelling::{Example, OperationModel, Prediction, Query, Training};
use shapewise::ops::OperationKind;

use super::oracle::{Measured, Oracle, Problem, decile};

/// Parts that are left out in turn.
const FOLDS: usize = 5;

/// Figures of one operation, or of all.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Workloads.
    pub shapes: usize,
    /// Speed of the predicted best relative to the measured best: mean, tenth percentile, least.
    pub cold_start: [f64; 3],
    /// Mean of |predicted / measured − 1| on shapes that were measured before, in earlier passes.
    pub error_seen: f64,
    /// The same on shapes that were left out.
    pub error_unseen: f64,
    /// Mean Spearman correlation of predicted and measured times within a shape.
    pub rank_correlation: f64,
    /// Share of measured times inside their intervals, on shapes that were left out.
    pub coverage: f64,
    /// Median half-width of the intervals there.
    pub half_width: f64,
    /// The same share on shapes that were measured before, in earlier passes.
    pub coverage_seen: f64,
    /// Median half-width of the intervals there.
    pub half_width_seen: f64,
    /// The same error by the roofline alone.
    pub error_roofline: f64,
    /// Speed of the best by one pass alone relative to the best by the other passes: mean, tenth percentile, least. What measuring every
    /// candidate would reach, and so about the most that a prediction can.
    pub measured_once: [f64; 3],
    /// Mean of |one pass / the other passes − 1|.
    pub error_once: f64,
    /// Shapes with the slowest choices, in words.
    pub worst: Vec<String>,
}

/// What is collected before it is summed up.
#[derive(Default)]
struct Tally {
    speeds: Vec<(f64, String)>,
    ranks: Vec<f64>,
    seen: Vec<f64>,
    unseen: Vec<f64>,
    roofline: Vec<f64>,
    covered: Vec<f64>,
    widths: Vec<f64>,
    covered_seen: Vec<f64>,
    widths_seen: Vec<f64>,
    once: Vec<f64>,
    once_errors: Vec<f64>,
}

/// Figures for each operation and for all together.
pub fn validate(oracle: &Oracle, training: &Training) -> Result<BTreeMap<String, Figures>> {
    let mut out = BTreeMap::new();
    let mut all = Tally::default();
    for &kind in OperationKind::ALL {
        let mut problems: Vec<&Problem> = oracle.problems.iter().filter(|p| p.kind() == kind).collect();
        if problems.len() < FOLDS {
            continue;
        }
        problems.sort_by_key(|p| p.shape);
        let mut tally = Tally::default();
        for fold in 0..FOLDS {
            let (held, kept): (Vec<_>, Vec<_>) =
                problems.iter().enumerate().partition(|(i, _)| i % FOLDS == fold);
            let examples: Vec<Example> = kept.iter().flat_map(|(_, p)| p.examples()).collect();
            let model = OperationModel::train(&examples, training)?;
            for (_, problem) in &held {
                tally.unseen(problem, &model);
            }
        }
        let before: Vec<Example> = problems.iter().flat_map(|p| earlier(p)).collect();
        let model = OperationModel::train(&before, training)?;
        for problem in &problems {
            tally.seen(problem, &model);
            tally.once(problem);
        }
        out.insert(kind.to_string(), tally.figures());
        all.extend(tally);
    }
    out.insert("all".into(), all.figures());
    Ok(out)
}

/// Every pass but the last of each candidate, as an example of its own; one that was given up has its first calls only.
fn earlier(problem: &Problem) -> impl Iterator<Item = Example> + '_ {
    problem.candidates.iter().zip(problem.examples()).flat_map(|(c, e)| {
        let passes = &c.times.passes;
        let times = passes[..passes.len().saturating_sub(1).max(1)].iter();
        times.filter_map(move |pass| Some(Example { seconds: decile(pass.iter().copied())?, ..e }))
    })
}

/// The time by the last pass of several.
fn last(candidate: &Measured) -> Option<f64> {
    let passes = &candidate.times.passes;
    passes.last().filter(|_| passes.len() > 1).and_then(|pass| decile(pass.iter().copied()))
}

fn predict(problem: &Problem, model: &OperationModel) -> Vec<Prediction> {
    let query = |c: &Measured| Query { features: c.features, baseline: c.baseline };
    let queries: Vec<Query> = problem.candidates.iter().map(query).collect();
    let mut out = Vec::new();
    model.predict(problem.shape, &queries, &mut out);
    out
}

impl Tally {
    fn unseen(&mut self, problem: &Problem, model: &OperationModel) {
        let predictions = predict(problem, model);
        let pairs = || problem.candidates.iter().zip(&predictions);
        let chosen = pairs().min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
        if let Some((c, _)) = chosen {
            let best = problem.candidates.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds));
            let name = |c: &Measured| format!("{} {}", c.times.kernel, c.times.parameters);
            let text = format!("{}: {} not {}", problem.workload, name(c), best.map_or(String::new(), name));
            self.speeds.push((problem.best / c.seconds, text));
        }
        let measured: Vec<f64> = problem.candidates.iter().map(|c| c.seconds).collect();
        let predicted: Vec<f64> = predictions.iter().map(|p| p.seconds).collect();
        self.ranks.extend(spearman(&measured, &predicted));
        for (c, p) in pairs().filter(|(c, _)| !c.times.given_up) {
            self.unseen.push((p.seconds / c.seconds - 1.0).abs());
            self.roofline.push((c.baseline / c.seconds - 1.0).abs());
            self.covered.push(covers(p, c.seconds));
            self.widths.push(p.half_width());
        }
    }

    fn seen(&mut self, problem: &Problem, model: &OperationModel) {
        for (c, p) in
            problem.candidates.iter().zip(predict(problem, model)).filter(|(c, _)| !c.times.given_up)
        {
            let Some(truth) = last(c) else { continue };
            self.seen.push((p.seconds / truth - 1.0).abs());
            self.covered_seen.push(covers(&p, truth));
            self.widths_seen.push(p.half_width());
        }
    }

    /// Judges each pass by the others.
    fn once(&mut self, problem: &Problem) {
        let passes = problem.candidates.iter().map(|c| c.times.passes.len()).max().unwrap_or(0);
        for pass in 0..passes {
            let both = |c: &Measured| {
                let others = c.times.passes.iter().enumerate().filter(|(i, _)| *i != pass);
                let others = decile(others.flat_map(|(_, samples)| samples.iter().copied()))?;
                Some((decile(c.times.passes.get(pass)?.iter().copied())?, others))
            };
            let close = problem.candidates.iter().filter(|c| !c.times.given_up);
            let times: Vec<(f64, f64)> = close.filter_map(both).collect();
            let best = times.iter().map(|t| t.1).fold(f64::INFINITY, f64::min);
            let chosen = times.iter().min_by(|a, b| a.0.total_cmp(&b.0));
            self.once.extend(chosen.map(|c| best / c.1));
            self.once_errors.extend(times.iter().map(|(once, others)| (once / others - 1.0).abs()));
        }
    }

    fn extend(&mut self, other: Self) {
        self.speeds.extend(other.speeds);
        self.ranks.extend(other.ranks);
        self.seen.extend(other.seen);
        self.unseen.extend(other.unseen);
        self.roofline.extend(other.roofline);
        self.covered.extend(other.covered);
        self.widths.extend(other.widths);
        self.covered_seen.extend(other.covered_seen);
        self.widths_seen.extend(other.widths_seen);
        self.once.extend(other.once);
        self.once_errors.extend(other.once_errors);
    }

    fn figures(&self) -> Figures {
        let mut speeds = self.speeds.clone();
        speeds.sort_by(|a, b| a.0.total_cmp(&b.0));
        let speed: Vec<f64> = speeds.iter().map(|s| s.0).collect();
        let summary = |values: &[f64], share: f64| {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            sorted.get(((sorted.len().max(1) - 1) as f64 * share) as usize).copied().unwrap_or(f64::NAN)
        };
        Figures {
            shapes: speeds.len(),
            cold_start: [mean(&speed), summary(&speed, 0.1), summary(&speed, 0.0)],
            error_seen: mean(&self.seen),
            error_unseen: mean(&self.unseen),
            rank_correlation: mean(&self.ranks),
            coverage: mean(&self.covered),
            half_width: summary(&self.widths, 0.5),
            coverage_seen: mean(&self.covered_seen),
            half_width_seen: summary(&self.widths_seen, 0.5),
            error_roofline: mean(&self.roofline),
            measured_once: [mean(&self.once), summary(&self.once, 0.1), summary(&self.once, 0.0)],
            error_once: mean(&self.once_errors),
            worst: speeds.iter().take(3).map(|(speed, text)| format!("{speed:.2} {text}")).collect(),
        }
    }
}

/// One where the time is inside the interval, else zero.
fn covers(prediction: &Prediction, seconds: f64) -> f64 {
    f64::from(u8::from((prediction.low..=prediction.high).contains(&seconds)))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Correlation of the ranks; `None` with fewer than three values.
fn spearman(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() < 3 {
        return None;
    }
    let ranks = |values: &[f64]| {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&i, &j| values[i].total_cmp(&values[j]));
        let mut ranks = vec![0.0; values.len()];
        order.iter().enumerate().for_each(|(rank, &i)| ranks[i] = rank as f64);
        ranks
    };
    let n = a.len() as f64;
    let squares: f64 = ranks(a).iter().zip(ranks(b)).map(|(x, y)| (x - y) * (x - y)).sum();
    Some(1.0 - 6.0 * squares / (n * (n * n - 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlation_of_ranks() {
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 90.0]), Some(1.0));
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[9.0, 2.0, 1.0]), Some(-1.0));
        assert_eq!(spearman(&[1.0, 2.0], &[1.0, 2.0]), None);
    }
}
