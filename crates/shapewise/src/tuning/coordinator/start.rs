//! Where a search starts: the candidate that is nearest to what a strategy recommends.

use super::Start;
use crate::selection::Candidate;
use crate::tuning::search::Point;
use crate::tuning::strategy::{Alternative, TuningRecommendation};

/// The allowed candidate of the recommended kernel (of any of the backend where it is not among them) that differs least
/// from the recommended parameters; among equals the one whose model promises most.
pub(super) fn nearest(
    told: &TuningRecommendation,
    candidates: &[Candidate],
    points: &[Point],
) -> Option<usize> {
    let ours = |&p: &usize| points[p].refused.is_none() && candidates[p].kernel.backend() == told.backend;
    let named = |p: &usize| told.kernel.is_none_or(|kernel| candidates[*p].kernel.name() == kernel);
    let all: Vec<usize> = (0..points.len()).filter(ours).collect();
    let of_kernel: Vec<usize> = all.iter().copied().filter(named).collect();
    let among = if of_kernel.is_empty() { all } else { of_kernel };
    let seconds = |p: usize| points[p].predicted.unwrap_or(f64::INFINITY);
    let order = |p: usize| (apart(&told.best, &candidates[p]), seconds(p));
    among.into_iter().min_by(|&a, &b| {
        let (a, b) = (order(a), order(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}

/// How far parameters lie apart: the factors between values, in logarithms. One that a candidate does not have counts like
/// one that is twice as large.
fn apart(told: &Alternative, candidate: &Candidate) -> f64 {
    let off = |value: u32, found: Option<u32>| {
        found.map_or(2f64.ln(), |found| (f64::from(found.max(1)) / f64::from(value.max(1))).ln().abs())
    };
    let names = told.parameters.iter().filter(|(knob, _)| !knob.is_name());
    let sizes: f64 = names.map(|(knob, value)| off(value, candidate.parameters.get(knob))).sum();
    let named = told.parameters.iter().filter(|(knob, _)| knob.is_name());
    let others = named.filter(|&(knob, value)| candidate.parameters.get(knob) != Some(value)).count();
    sizes + 2f64.ln() * others as f64
}

/// A recommendation as it is reported.
pub(super) fn start(told: &TuningRecommendation, candidate: &Candidate) -> Start {
    let expected = told.best.expected;
    Start {
        backend: told.backend,
        kernel: candidate.kernel.name().to_owned(),
        parameters: candidate.parameters.to_string(),
        recommended_kernel: told.kernel,
        recommended: told.best.parameters.to_string(),
        expected: expected.map(|p| p.seconds),
        interval: expected.map(|p| (p.low, p.high, p.confidence)),
        plan: told.best.plan.clone(),
        alternatives: told.alternatives.iter().map(|a| a.parameters.to_string()).collect(),
        reasons: told.reasons.clone(),
        seconds: None,
    }
}
