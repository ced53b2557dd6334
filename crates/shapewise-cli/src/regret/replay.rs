//! The selector played against the oracle: how soon it finds the best, and what looking for it costs.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Serialize;
use shapewise::Runtime;
use shapewise::modelling::{Example, OperationModel, Query, Terms, Training};
use shapewise::ops::OperationKind;
use shapewise::selection::{Budget, Candidate, Replayed, ScoreWeights, SelectionAlgorithm, replay};
use shapewise::tracking::{Drift, DriftDetector, Timings};

use super::oracle::{Oracle, Problem};

/// Parts that are left out of training in turn.
const FOLDS: usize = 5;
/// Calls over all workloads for the share of time spent exploring.
const CALLS: usize = 10_000;
/// Calls of each workload in the long run, after which its choice is judged: at a hundredth of the time a race may take thousands.
const LONG_RUN: usize = 10_000;
/// Within this share of the best counts as the best.
const CLOSE: f64 = 0.02;

/// What the replay found.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Time lost against the oracle in the end: geometric mean.
    pub converged_regret: f64,
    /// The same of the worst hundredth.
    pub converged_regret_p99: f64,
    /// Candidates timed until one within 2 % of the oracle was: median.
    pub tried_median: usize,
    /// The same of the worst twentieth.
    pub tried_p95: usize,
    /// Time of the first call over the default kernel's (first in the list): 99th percentile.
    pub first_call_p99: f64,
    /// Time lost to trials as a share of all time, over 10 000 calls spread over the suite.
    pub exploring_share: f64,
    /// Workloads whose race was not over at the end of those calls.
    pub unsettled: usize,
    /// Calls until a winner slowed down 1.3 times raises an alarm: median and 95th percentile.
    pub drift_calls: [usize; 2],
    /// Alarms in a million calls without a change.
    pub false_alarms: u64,
    /// The worst choices, in words.
    pub worst: Vec<String>,
}

/// A workload with candidates predicted by a model that never saw its shape.
struct Unseen<'a> {
    problem: &'a Problem,
    candidates: Vec<Candidate>,
    /// For each candidate its times, and those of its last pass.
    samples: Vec<(Vec<f64>, &'a [f64])>,
    seconds: Vec<f64>,
}

/// Small and the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

/// Plays the default policy through the suite.
pub fn play(runtime: &Runtime, oracle: &Oracle, training: &Training) -> Result<Figures> {
    let unseen = predicted_by_others(runtime, oracle, training)?;
    let policy = SelectionAlgorithm::default().policy(ScoreWeights::default());
    let mut random = Random(1);
    let mut run = |u: &Unseen<'_>, budget: &Budget, calls: usize| -> Replayed {
        let mut time = |i: usize| u.samples[i].0[random.below(u.samples[i].0.len())];
        replay(&u.problem.workload, &u.candidates, &*policy, budget, calls, &mut time)
    };
    let mut regrets = Vec::new();
    let mut tried = Vec::new();
    let mut firsts = Vec::new();
    for u in &unseen {
        let out = run(u, &Budget::new(0.01), LONG_RUN);
        let best = u.problem.best;
        regrets.push((u.seconds[out.chosen] / best - 1.0, u, out.chosen));
        let close = |&i: &usize| u.seconds[i] <= best * (1.0 + CLOSE);
        tried.push(out.tried.iter().position(close).map_or(u.candidates.len(), |at| at + 1));
        firsts.push(u.seconds[out.first] / u.seconds[0]);
    }
    let budget = Budget::new(0.01);
    let short: Vec<Replayed> = unseen.iter().map(|u| run(u, &budget, CALLS.div_ceil(unseen.len()))).collect();
    regrets.sort_by(|a, b| a.0.total_cmp(&b.0));
    tried.sort_unstable();
    firsts.sort_by(f64::total_cmp);
    let (drift_calls, false_alarms) = drift(&unseen, &mut Random(2));
    let worst = regrets.iter().rev().take(8).map(|(regret, u, chosen)| {
        let c = &u.candidates[*chosen];
        format!("{:.1} %: {} on {} {}", 100.0 * regret, u.problem.workload, c.kernel.name(), c.parameters)
    });
    Ok(Figures {
        converged_regret: mean_log(regrets.iter().map(|r| r.0)).exp_m1(),
        converged_regret_p99: at(&regrets, 0.99).0,
        tried_median: *at(&tried, 0.5),
        tried_p95: *at(&tried, 0.95),
        first_call_p99: *at(&firsts, 0.99),
        exploring_share: budget.lost() / budget.run(),
        unsettled: short.iter().filter(|r| r.settled.is_none()).count(),
        drift_calls,
        false_alarms,
        worst: worst.collect(),
    })
}

/// Every workload with predictions of a model trained on the other folds.
fn predicted_by_others<'a>(
    runtime: &Runtime,
    oracle: &'a Oracle,
    training: &Training,
) -> Result<Vec<Unseen<'a>>> {
    let mut by_operation: BTreeMap<OperationKind, Vec<&Problem>> = BTreeMap::new();
    for problem in &oracle.problems {
        by_operation.entry(problem.kind()).or_default().push(problem);
    }
    let mut out = Vec::new();
    for problems in by_operation.values() {
        for fold in 0..FOLDS {
            let left_out = |i: usize| i % FOLDS == fold;
            let others = problems.iter().enumerate().filter(|(i, _)| !left_out(*i));
            let examples: Vec<Example> = others.flat_map(|(_, p)| p.examples()).collect();
            let model = OperationModel::train(&examples, training)?;
            for (_, problem) in problems.iter().enumerate().filter(|(i, _)| left_out(*i)) {
                out.push(predict(runtime, problem, &model)?);
            }
        }
    }
    Ok(out)
}

fn predict<'a>(runtime: &Runtime, problem: &'a Problem, model: &OperationModel) -> Result<Unseen<'a>> {
    let queries: Vec<Query> =
        problem.candidates.iter().map(|c| Query { features: c.features, baseline: c.baseline }).collect();
    let mut predictions = Vec::new();
    model.predict(problem.shape, &queries, &mut predictions);
    let mut out = Unseen { problem, candidates: Vec::new(), samples: Vec::new(), seconds: Vec::new() };
    for mut candidate in runtime.selector().candidates(&problem.workload)? {
        let is = |m: &super::oracle::Measured| candidate.is(&m.times.kernel, &m.times.parameters);
        let Some(i) = problem.candidates.iter().position(is) else { continue };
        candidate.learned = Some(predictions[i]);
        candidate.terms = Some(Terms { arithmetic: problem.candidates[i].baseline, ..Terms::default() });
        out.candidates.push(candidate);
        let times = &problem.candidates[i].times;
        out.samples.push((times.samples().collect(), times.passes.last().map_or(&[], Vec::as_slice)));
        out.seconds.push(problem.candidates[i].seconds);
    }
    Ok(out)
}

/// Alarms on the winners' own recorded scatter, with and without a slow-down.
fn drift(unseen: &[Unseen<'_>], random: &mut Random) -> ([usize; 2], u64) {
    let winners: Vec<(&[f64], Timings)> = unseen
        .iter()
        .filter_map(|u| {
            let best = (0..u.seconds.len()).min_by(|&a, &b| u.seconds[a].total_cmp(&u.seconds[b]))?;
            // One pass only: between passes the machine itself may have changed, which is no false alarm.
            let pass = u.samples[best].1;
            Some((pass, Timings::of(pass)?))
        })
        .collect();
    let mut calls: Vec<usize> = Vec::new();
    let observe = |detector: &mut DriftDetector, seconds: f64, expected: &Timings| {
        detector.observe(seconds, expected.seconds, expected.spread.unwrap_or(0.0)) == Drift::Slower
    };
    for (samples, expected) in &winners {
        let mut detector = DriftDetector::default();
        let mut slowed = || 1.3 * samples[random.below(samples.len())];
        let alarm = (1..=1000).find(|_| observe(&mut detector, slowed(), expected));
        calls.push(alarm.unwrap_or(1000));
    }
    calls.sort_unstable();
    let mut alarms = 0;
    let each = 1_000_000 / winners.len().max(1);
    for (samples, expected) in &winners {
        let mut detector = DriftDetector::default();
        for _ in 0..each {
            let seconds = samples[random.below(samples.len())];
            alarms += u64::from(observe(&mut detector, seconds, expected));
        }
    }
    ([*at(&calls, 0.5), *at(&calls, 0.95)], alarms)
}

/// The entry at a share of a sorted list.
fn at<T>(sorted: &[T], share: f64) -> &T {
    &sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn mean_log(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln_1p).collect();
    logs.iter().sum::<f64>() / logs.len() as f64
}
