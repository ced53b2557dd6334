//! How a choice is made from the candidates.

use super::Candidate;
use crate::ops::{Variant, Workload};

/// Which candidate, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Index into the candidates.
    pub index: usize,
    /// The rule that decided, in words.
    pub reason: String,
}

/// A way to choose; the learned policies stand behind the same trait.
pub trait Policy: Send + Sync {
    /// Its name in explanations.
    fn name(&self) -> &'static str;

    /// Picks one of the candidates; there is at least one.
    fn decide(&self, workload: &Workload, candidates: &[Candidate]) -> Decision;
}

/// The least predicted time from each kernel's own cost and the measured peaks.
///
/// Candidates without a prediction rank behind all that have one, in the order of the lists.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScoreBased;

impl Policy for ScoreBased {
    fn name(&self) -> &'static str {
        "score"
    }

    fn decide(&self, _workload: &Workload, candidates: &[Candidate]) -> Decision {
        let time = |c: &Candidate| c.predicted.unwrap_or(f64::INFINITY);
        // `min_by` keeps the first of equals, which is the list's order.
        let best = (0..candidates.len()).min_by(|&a, &b| {
            let (a, b) = (&candidates[a], &candidates[b]);
            time(a).total_cmp(&time(b)).then_with(|| is_naive(a).cmp(&is_naive(b)))
        });
        let index = best.unwrap_or(0);
        let reason = match candidates[index].predicted {
            Some(_) => format!("least predicted time of {} candidates", candidates.len()),
            None => "first in the list: peaks are not calibrated, so nothing can be predicted".into(),
        };
        Decision { index, reason }
    }
}

fn is_naive(candidate: &Candidate) -> bool {
    candidate.kernel.variant() == Variant::Naive
}
