//! How a choice is made from the candidates: by score, by the learned model, or by both.

use serde::{Deserialize, Serialize};

use super::Candidate;
use crate::modelling::{Basis, Prediction};
use crate::ops::{Variant, Workload};

/// Which candidate, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Index into the candidates.
    pub index: usize,
    /// The rule that decided, in words.
    pub reason: String,
}

/// What a policy is asked.
pub struct Situation<'a> {
    /// What is to be computed.
    pub workload: &'a Workload,
    /// Those that can, in the order of the lists; at least one.
    pub candidates: &'a [Candidate],
    /// The kernel and parameters that this workload really used last.
    pub last: Option<(&'a str, &'a str)>,
}

impl Situation<'_> {
    /// Bytes of all operands, at least one.
    fn bytes(&self) -> f64 {
        self.workload.bytes().max(1) as f64
    }
}

/// A way to choose; users may bring their own.
pub trait Policy: Send + Sync {
    /// Its name in explanations.
    fn name(&self) -> &'static str;

    /// The time it believes in for a candidate; the race starts from these.
    fn believe(&self, candidate: &Candidate) -> Option<Prediction> {
        measured(candidate).or(candidate.learned).or_else(|| candidate.counted())
    }

    /// Picks one of the candidates.
    fn decide(&self, situation: &Situation<'_>) -> Decision;
}

/// The ways of choosing that come with the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelectionAlgorithm {
    /// Cost over peaks, corrected by what was measured, weighted with memory and cache behaviour.
    ScoreBased,
    /// The learned model alone.
    MachineLearning,
    /// The learned model where its interval is tight, the score where it is not.
    #[default]
    Hybrid,
    /// The same choices over restarts and processes: nothing is explored or learned, and each choice is kept.
    Frozen,
}

impl SelectionAlgorithm {
    /// The policy behind the name; a frozen runtime decides what was never decided by its score.
    pub fn policy(self, weights: ScoreWeights) -> Box<dyn Policy> {
        match self {
            Self::ScoreBased | Self::Frozen => Box::new(ScoreBased { weights }),
            Self::MachineLearning => Box::new(MachineLearning),
            Self::Hybrid => Box::new(Hybrid { weights }),
        }
    }
}

/// How much each aspect counts in a score. All are on the scale of log time: 0.1 is worth ten per cent of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreWeights {
    /// Log of the expected seconds.
    pub time: f64,
    /// Log of the growth of memory by scratch: ln(1 + scratch / operands).
    pub memory: f64,
    /// Share of the traffic that goes beyond the second-level cache.
    pub cache: f64,
    /// How far what was measured replaces what was predicted, from 0 to 1.
    pub history: f64,
    /// Penalty for another kernel than the one this workload used last.
    pub switching: f64,
}

impl Default for ScoreWeights {
    /// Time as measured; memory breaks near-ties; a new kernel must win by one per cent.
    fn default() -> Self {
        Self { time: 1.0, memory: 0.01, cache: 0.0, history: 1.0, switching: 0.01 }
    }
}

impl ScoreWeights {
    /// The score of a candidate, smaller is better; infinite if nothing is known about its time.
    fn score(
        &self,
        guess: Option<Prediction>,
        candidate: &Candidate,
        operands: f64,
        last: Option<(&str, &str)>,
    ) -> f64 {
        let measured = candidate.measured.map(|m| m.seconds.ln());
        let log_time = match (guess.map(|p| p.seconds.ln()), measured) {
            (Some(predicted), Some(measured)) => predicted + self.history * (measured - predicted),
            (predicted, measured) => measured.or(predicted).unwrap_or(f64::INFINITY),
        };
        let scratch = candidate.cost.scratch;
        let memory = if scratch > 0 { (scratch as f64 / operands).ln_1p() } else { 0.0 };
        let traffic = &candidate.cost.traffic;
        let beyond = if traffic.l1 > 0.0 { (traffic.l3 / traffic.l1).min(1.0) } else { 0.0 };
        let switched = last.is_some_and(|(kernel, parameters)| !candidate.is(kernel, parameters));
        self.time * log_time
            + self.memory * memory
            + self.cache * beyond
            + self.switching * f64::from(u8::from(switched))
    }
}

/// The least score from each kernel's own cost, the measured peaks and what was measured.
///
/// Candidates about whose time nothing is known rank behind all others, in the order of the lists.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScoreBased {
    /// What counts how much.
    pub weights: ScoreWeights,
}

impl Policy for ScoreBased {
    fn name(&self) -> &'static str {
        "score"
    }

    fn believe(&self, candidate: &Candidate) -> Option<Prediction> {
        measured(candidate).or_else(|| candidate.counted())
    }

    fn decide(&self, situation: &Situation<'_>) -> Decision {
        let operands = situation.bytes();
        least(situation, "least score", |c| self.weights.score(c.counted(), c, operands, situation.last))
    }
}

/// The least time by the learned model; what was measured on this workload replaces it.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineLearning;

impl Policy for MachineLearning {
    fn name(&self) -> &'static str {
        "learned"
    }

    fn decide(&self, situation: &Situation<'_>) -> Decision {
        least(situation, "least learned time", |c| self.believe(c).map_or(f64::INFINITY, |p| p.seconds.ln()))
    }
}

/// The learned model where its interval is tight, the roofline where it is not, ranked by score.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hybrid {
    /// What counts how much.
    pub weights: ScoreWeights,
}

/// An interval is tight if it is narrower than what the roofline alone is off by, twenty times (`docs/modelling.md`), which is also
/// the interval of a model with too few shapes to be calibrated. A narrower limit lets candidates of wide intervals look fast
/// beside the others: the roofline of most kernels is a third of their time.
const TIGHT: f64 = 19.0;

impl Hybrid {
    fn guess(candidate: &Candidate) -> Option<Prediction> {
        // The half-width against its limit, without a root and a quotient for every candidate.
        let tight = candidate.learned.filter(|p| p.high <= (1.0 + TIGHT) * (1.0 + TIGHT) * p.low);
        tight.or_else(|| candidate.counted()).or(candidate.learned)
    }
}

impl Policy for Hybrid {
    fn name(&self) -> &'static str {
        "hybrid"
    }

    fn believe(&self, candidate: &Candidate) -> Option<Prediction> {
        measured(candidate).or_else(|| Self::guess(candidate))
    }

    fn decide(&self, situation: &Situation<'_>) -> Decision {
        let operands = situation.bytes();
        least(situation, "least score of learned and counted times", |c| {
            self.weights.score(Self::guess(c), c, operands, situation.last)
        })
    }
}

fn measured(candidate: &Candidate) -> Option<Prediction> {
    candidate.measured.map(|m| m.prediction())
}

/// The candidate of the least value; of equals the first in the list, a plain reference last.
fn least(situation: &Situation<'_>, rule: &str, value: impl Fn(&Candidate) -> f64) -> Decision {
    let candidates = situation.candidates;
    let values: Vec<(f64, bool)> =
        candidates.iter().map(|c| (value(c), c.kernel.variant() == Variant::Naive)).collect();
    let best = (0..values.len())
        .min_by(|&a, &b| values[a].0.total_cmp(&values[b].0).then(values[a].1.cmp(&values[b].1)));
    let index = best.unwrap_or(0);
    let reason = if values[index].0.is_finite() {
        let basis = candidates[index].predicted.map_or(Basis::Roofline, |p| p.basis);
        format!("{rule} of {} candidates ({basis})", candidates.len())
    } else {
        "first in the list: peaks are not calibrated and nothing was measured".into()
    };
    Decision { index, reason }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::candidates::tests::made_up;
    use super::*;
    use crate::modelling::Terms;
    use crate::ops::{Operation, TensorDesc, elementwise};
    use crate::tensor::{DType, Shape};
    use crate::tracking::Measured;

    pub fn workload() -> Workload {
        let desc = TensorDesc::contiguous(DType::F32, Shape::filled(1000, 1));
        let program = elementwise::Program::single(elementwise::Function::Neg, &[]);
        Workload::new(Operation::Elementwise(program), &[desc], &[desc])
    }

    fn pick(policy: &dyn Policy, candidates: &[Candidate], last: Option<(&str, &str)>) -> usize {
        policy.decide(&Situation { workload: &workload(), candidates, last }).index
    }

    fn measured(seconds: f64) -> Measured {
        Measured { seconds, samples: 9, spread: Some(0.01) }
    }

    #[test]
    fn the_three_differ_where_counting_and_learning_disagree() {
        // The roofline prefers the first, the model the second; its interval decides whether Hybrid follows it.
        let candidates = |reach: f64| {
            let mut list = [made_up(1, 2.0, reach), made_up(2, 1.0, reach)];
            for (candidate, arithmetic) in list.iter_mut().zip([0.5, 0.9]) {
                candidate.terms = Some(Terms { arithmetic, ..Terms::default() });
            }
            list
        };
        let weights = ScoreWeights::default();
        let (score, learned, hybrid) = (ScoreBased { weights }, MachineLearning, Hybrid { weights });
        let tight = candidates(1.1);
        assert_eq!(
            [pick(&score, &tight, None), pick(&learned, &tight, None), pick(&hybrid, &tight, None)],
            [0, 1, 1]
        );
        let wide = candidates(50.0);
        assert_eq!(
            [pick(&score, &wide, None), pick(&learned, &wide, None), pick(&hybrid, &wide, None)],
            [0, 1, 0]
        );
    }

    #[test]
    fn each_ends_on_what_was_measured_whatever_was_declared() {
        let mut list = [made_up(1, 1e-9, 1.1), made_up(2, 1e3, 1.1)];
        (list[0].measured, list[1].measured) = (Some(measured(0.1)), Some(measured(0.001)));
        for algorithm in
            [SelectionAlgorithm::ScoreBased, SelectionAlgorithm::MachineLearning, SelectionAlgorithm::Hybrid]
        {
            let policy = algorithm.policy(ScoreWeights::default());
            assert_eq!(pick(&*policy, &list, None), 1, "{algorithm:?}");
        }
    }

    /// What `ScoreBased` picks of two candidates with and without one weight.
    fn with_and_without(
        change: impl Fn(&mut ScoreWeights, bool),
        candidates: &[Candidate],
        last: Option<(&str, &str)>,
    ) -> [usize; 2] {
        [true, false].map(|on| {
            let mut weights =
                ScoreWeights { time: 1.0, memory: 0.0, cache: 0.0, history: 1.0, switching: 0.0 };
            change(&mut weights, on);
            pick(&ScoreBased { weights }, candidates, last)
        })
    }

    #[test]
    fn every_weight_changes_a_choice() {
        let base = || [made_up(1, 1.0, 1.1), made_up(2, 1.05, 1.1)];
        let mut hungry = base();
        hungry[0].cost.scratch = 1 << 20;
        assert_eq!(with_and_without(|w, on| w.memory = f64::from(u8::from(on)), &hungry, None), [1, 0]);
        assert_eq!(
            with_and_without(|w, on| (w.memory, w.time) = (0.005, f64::from(u8::from(on))), &hungry, None),
            [0, 1]
        );
        let mut far = base();
        (far[0].cost.traffic.l1, far[0].cost.traffic.l3) = (1e6, 1e6);
        assert_eq!(with_and_without(|w, on| w.cache = f64::from(u8::from(on)), &far, None), [1, 0]);
        let mut known = base();
        known[0].measured = Some(measured(2.0));
        assert_eq!(with_and_without(|w, on| w.history = f64::from(u8::from(on)), &known, None), [1, 0]);
        let used = base();
        let (kernel, parameters) = (used[1].kernel.name(), used[1].parameters.to_string());
        let last = Some((kernel, &*parameters));
        assert_eq!(with_and_without(|w, on| w.switching = if on { 0.1 } else { 0.0 }, &used, last), [1, 0]);
    }

    #[test]
    fn without_any_knowledge_the_list_decides() {
        let mut list = [made_up(1, 1.0, 1.1), made_up(2, 0.5, 1.1)];
        for candidate in &mut list {
            (candidate.terms, candidate.learned, candidate.predicted) = (None, None, None);
        }
        let decision =
            Hybrid::default().decide(&Situation { workload: &workload(), candidates: &list, last: None });
        assert_eq!(decision.index, 0);
        assert!(decision.reason.starts_with("first in the list"));
    }
}
