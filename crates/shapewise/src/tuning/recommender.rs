//! Recommendations of all backends, kept under the whole question.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::constraints::{TuningConstraints, TuningError};
use super::feedback::{Feedback, TuningMetrics};
use super::strategy::{BackendTuningStrategy, TuningRecommendation};
use crate::device::BackendKind;
use crate::ops::Workload;
use crate::sensors::SystemState;
use crate::{Error, Result};

/// Recommendations that are kept at most; beyond, all are forgotten at once.
const MOST: usize = 4096;
/// Loads count in steps of this many parts of one, so that a machine that hardly changes asks the same question.
const STEPS: f64 = 32.0;

/// Backend, workload, constraints and the parts of the state that a recommendation depends on.
type Key = (BackendKind, Workload, Vec<u64>);

/// How often a kept recommendation answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CacheCounts {
    /// Questions that were answered from what was kept.
    pub hits: u64,
    /// Questions that a strategy answered.
    pub misses: u64,
}

impl std::ops::AddAssign for CacheCounts {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
    }
}

/// The strategies of some devices, and what they said.
#[derive(Default)]
pub struct Recommender {
    strategies: Vec<Box<dyn BackendTuningStrategy>>,
    kept: FxHashMap<Key, TuningRecommendation>,
    counts: CacheCounts,
}

impl Recommender {
    /// Without strategies.
    pub fn new() -> Self {
        Self::default()
    }

    /// With some strategies.
    pub fn of(strategies: Vec<Box<dyn BackendTuningStrategy>>) -> Self {
        Self { strategies, ..Self::default() }
    }

    /// Adds a backend's strategy.
    pub fn add(&mut self, strategy: impl BackendTuningStrategy + 'static) {
        self.strategies.push(Box::new(strategy));
    }

    /// What a backend's strategy recommends, kept if it was asked the same before.
    pub fn recommend(
        &mut self,
        backend: BackendKind,
        workload: &Workload,
        state: &SystemState,
        constraints: &TuningConstraints,
    ) -> Result<&TuningRecommendation, TuningError> {
        let state = rounded(state);
        let mut words = constraints.words();
        words.extend(state_words(&state, constraints));
        let key = (backend, workload.clone(), words);
        if self.kept.contains_key(&key) {
            self.counts.hits += 1;
            return Ok(&self.kept[&key]);
        }
        self.counts.misses += 1;
        let found = self.strategy(backend)?.tune_for_workload(workload, &state, constraints)?;
        if self.kept.len() >= MOST {
            self.kept.clear();
        }
        Ok(self.kept.entry(key).or_insert(found))
    }

    /// Tells a backend's strategy what a run took; what was recommended for that operation is asked anew.
    pub fn update_from_feedback(&mut self, backend: BackendKind, feedback: &Feedback) -> Result<()> {
        self.strategy(backend)?.update_from_feedback(feedback)?;
        let operation = feedback.workload.kind();
        self.kept.retain(|(b, workload, _), _| *b != backend || workload.kind() != operation);
        Ok(())
    }

    /// What a backend's strategy counted.
    pub fn metrics(&self, backend: BackendKind) -> Option<TuningMetrics> {
        self.strategies.iter().find(|s| s.backend() == backend).map(|s| s.metrics())
    }

    /// The same of every strategy.
    pub fn all_metrics(&self) -> impl Iterator<Item = (BackendKind, TuningMetrics)> {
        self.strategies.iter().map(|s| (s.backend(), s.metrics()))
    }

    /// How often what was kept answered.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    fn strategy(&mut self, backend: BackendKind) -> Result<&mut Box<dyn BackendTuningStrategy>> {
        let found = self.strategies.iter_mut().find(|s| s.backend() == backend);
        found.ok_or_else(|| Error::Unsupported {
            what: format!("tuning on {backend}"),
            reason: "no strategy for it was added".into(),
        })
    }
}

/// The state with its loads in steps: what is asked is then exactly what is kept.
fn rounded(state: &SystemState) -> SystemState {
    let step = |load: Option<f64>| load.map(|x| (x * STEPS).round() / STEPS);
    SystemState { load: step(state.load), own_load: step(state.own_load), ..state.clone() }
}

/// What recommendations depend on: heat and power, which never stand still, only where a constraint asks for them.
fn state_words(state: &SystemState, constraints: &TuningConstraints) -> Vec<u64> {
    let number = |x: Option<f64>| x.map_or([0, 0], |x| [1, x.to_bits()]);
    let truth = |x: Option<bool>| x.map_or(0, |x| 1 + u64::from(x));
    let temperature = state.temperature.filter(|_| constraints.temperature.is_some());
    let power = state.power.filter(|_| constraints.power.is_some());
    let numbers = [state.load, state.own_load, temperature, power, state.power_limit];
    let mut words: Vec<u64> = numbers.into_iter().flat_map(number).collect();
    words.extend([
        truth(state.throttled),
        truth(state.on_battery),
        state.power_mode.map_or(0, |m| 1 + m as u64),
    ]);
    words
}

#[cfg(test)]
mod tests {
    use super::super::CpuStrategy;
    use super::super::testing::{device, matmul, relu};
    use super::*;

    fn recommender() -> Recommender {
        let mut all = Recommender::new();
        all.add(CpuStrategy::new(device()));
        all
    }

    #[test]
    fn only_the_very_same_question_is_a_hit() {
        let mut all = recommender();
        let (state, none) = (SystemState::default(), TuningConstraints::default());
        let few = TuningConstraints { threads: Some(2), ..none.clone() };
        let cpu = BackendKind::Cpu;
        let first = all.recommend(cpu, &matmul(256, 256, 256), &state, &none).unwrap().clone();
        assert_eq!(all.counts(), CacheCounts { hits: 0, misses: 1 });
        assert_eq!(*all.recommend(cpu, &matmul(256, 256, 256), &state, &none).unwrap(), first);
        assert_eq!(all.counts(), CacheCounts { hits: 1, misses: 1 });
        let constrained = all.recommend(cpu, &matmul(256, 256, 256), &state, &few).unwrap();
        assert!(constrained.best.parameters.threads() <= 2);
        all.recommend(cpu, &matmul(256, 256, 257), &state, &none).unwrap();
        let hot = SystemState { throttled: Some(true), ..Default::default() };
        all.recommend(cpu, &matmul(256, 256, 256), &hot, &none).unwrap();
        assert_eq!(all.counts(), CacheCounts { hits: 1, misses: 4 });
        let nearly = SystemState { load: Some(0.5), ..Default::default() };
        all.recommend(cpu, &relu(&[9], None), &nearly, &none).unwrap();
        all.recommend(cpu, &relu(&[9], None), &SystemState { load: Some(0.501), ..nearly }, &none).unwrap();
        assert_eq!(all.counts(), CacheCounts { hits: 2, misses: 5 });
    }

    #[test]
    fn feedback_reaches_the_next_answer() {
        let mut all = recommender();
        let (state, none, cpu) = (SystemState::default(), TuningConstraints::default(), BackendKind::Cpu);
        let workload = matmul(512, 512, 512);
        let before = all.recommend(cpu, &workload, &state, &none).unwrap().best.clone();
        let feedback = Feedback {
            workload: workload.clone(),
            parameters: before.parameters.clone(),
            outcome: Ok(10.0),
            default_seconds: None,
            joules: None,
        };
        all.update_from_feedback(cpu, &feedback).unwrap();
        let after = all.recommend(cpu, &workload, &state, &none).unwrap().best.clone();
        assert_ne!(after.parameters, before.parameters);
        assert_eq!(all.counts(), CacheCounts { hits: 0, misses: 2 });
        assert_eq!(all.metrics(cpu).unwrap().reports, 1);
        assert_eq!(all.metrics(BackendKind::Metal), None);
        let error = all.recommend(BackendKind::Metal, &workload, &state, &none).unwrap_err();
        assert!(error.to_string().contains("no strategy"), "{error}");
    }
}
