//! Picks a candidate for each workload, races the close ones on the user's own calls, and remembers.

use std::hash::Hasher;
use std::sync::Arc;

use super::trials::{Trial, Trials};
use super::{
    Budget, Candidate, Candidates, Choice, Decision, DecisionTable, Entry, ExplainedModel, Explanation,
    Knowledge, LaunchFailure, Narrow, Policy, SelectionAlgorithm, Situation, judge, verify,
};
use crate::error::{Error, Result};
use crate::modelling::{AccuracyReport, Anomaly};
use crate::ops::{OperationKind, Request, Workload, WorkloadKey};
use crate::store::{Pinned, unix_ms};
use crate::tracking::{
    self, Accuracy, History, KernelStatistics, Measurement, Models, Observed, Timings, WorkloadStatistics,
};

/// What a frozen runtime does with its choices.
#[derive(Clone, Copy)]
enum Pinning {
    /// A call keeps what it chose.
    Keep,
    /// A question keeps nothing.
    Look,
}

/// Picks kernels by evidence: one table of decisions over the knowledge that a runtime's tables share.
pub struct AdaptiveKernelSelector {
    pub(crate) knowledge: Arc<Knowledge>,
    pub(crate) table: DecisionTable,
    algorithm: SelectionAlgorithm,
    policy: Arc<dyn Policy>,
    /// The only kernel that may be used for its operation.
    forced: Option<(String, OperationKind)>,
}

/// What was considered for a workload.
pub(crate) struct Considered {
    pub candidates: Candidates,
    pub decision: Decision,
    pub history: Arc<History>,
    /// Whose answer users' kernels are checked against.
    judge: Option<Candidate>,
}

impl AdaptiveKernelSelector {
    pub(crate) fn new(
        knowledge: Arc<Knowledge>,
        algorithm: SelectionAlgorithm,
        policy: Arc<dyn Policy>,
    ) -> Self {
        Self { knowledge, table: DecisionTable::default(), algorithm, policy, forced: None }
    }

    /// The same knowledge with one kernel forced for its operation.
    pub(crate) fn forcing(&self, kernel: &str, operation: OperationKind) -> Self {
        Self {
            knowledge: Arc::clone(&self.knowledge),
            table: DecisionTable::default(),
            algorithm: self.algorithm,
            policy: Arc::clone(&self.policy),
            forced: Some((kernel.to_owned(), operation)),
        }
    }

    /// Whether a kernel is forced.
    pub(crate) fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// The kernel that is forced.
    pub(crate) fn forced(&self) -> Option<&str> {
        self.forced.as_ref().map(|(name, _)| &**name)
    }

    /// How it chooses.
    pub fn algorithm(&self) -> SelectionAlgorithm {
        self.algorithm
    }

    /// What exploring has cost so far, and what it may cost.
    pub fn budget(&self) -> &Budget {
        &self.knowledge.budget
    }

    /// Every candidate for a workload, with what is known about its time.
    pub fn candidates(&self, workload: &Workload) -> Result<Vec<Candidate>> {
        Ok(self.consider_quickly(workload)?.candidates.accepted)
    }

    /// Whether a request would be launched at once: the very look-up that every call does.
    #[inline]
    pub fn is_decided(&self, request: &Request<'_>) -> bool {
        let generation = self.knowledge.registry.generation();
        let due = |entry: &Arc<Entry>| std::hint::black_box(!entry.workload.operands().is_empty());
        self.table.with(&request.words, request.words.finish(), generation, due).is_some()
    }

    /// What each kernel did in this process.
    pub fn statistics(&self) -> Vec<KernelStatistics> {
        tracking::kernels(&self.observed())
    }

    /// What runs for each workload of this process, how often that changed, and what it loses.
    pub fn workloads(&self) -> Vec<WorkloadStatistics> {
        tracking::workloads(&self.observed())
    }

    /// How good the choices were, in hindsight.
    pub fn accuracy(&self) -> Vec<Accuracy> {
        tracking::accuracy(&self.observed())
    }

    /// How good the predicted times of an operation were, with trend and what errors go with.
    pub fn prediction_accuracy(&self, operation: OperationKind) -> AccuracyReport {
        self.knowledge.learner.accuracy(operation)
    }

    /// The latest unusual measurements: slow outliers, throttling, memory pressure, failing kernels.
    pub fn anomalies(&self) -> Vec<Anomaly> {
        self.knowledge.learner.anomalies()
    }

    /// The models trained so far.
    pub fn models(&self) -> Arc<Models> {
        self.knowledge.models.load_full()
    }

    fn observed(&self) -> Vec<Observed> {
        let observe = |entry: Arc<Entry>| {
            let candidate = &entry.choice.candidate;
            Observed {
                workload: Arc::clone(&entry.workload),
                operation: entry.workload.kind(),
                backend: candidate.kernel.backend(),
                current: (candidate.kernel.name().to_owned(), candidate.parameters.to_string()),
                switches: entry.history.switches(),
                tracks: entry.history.tracks_with(&entry.executions()),
            }
        };
        self.table.entries().into_iter().map(observe).collect()
    }

    /// Candidates with what is known about their times, and the decision among them, with every refusal.
    pub(crate) fn consider(&self, workload: &Workload) -> Result<Considered> {
        let knowledge = &*self.knowledge;
        let key = workload.key();
        let (info, limits, history) = (knowledge.info(), &knowledge.limits, knowledge.history(key));
        let narrow = self.narrow(&history, Narrow::Refused);
        let candidates = Candidates::gather_with(&knowledge.registry, workload, info, limits, narrow);
        self.decide(workload, key, candidates, history, Pinning::Look)
    }

    /// The same without refusals, unless nobody accepts.
    fn consider_quickly(&self, workload: &Workload) -> Result<Considered> {
        let knowledge = &*self.knowledge;
        let key = workload.key();
        let (info, limits, history) = (knowledge.info(), &knowledge.limits, knowledge.history(key));
        let narrow = self.narrow(&history, Narrow::LeftOut);
        let candidates = Candidates::gather_runnable(&knowledge.registry, workload, info, limits, narrow);
        match self.decide(workload, key, candidates, history, Pinning::Keep) {
            Err(Error::NoKernel { .. }) => self.consider(workload),
            considered => considered,
        }
    }

    /// What becomes of narrow kernels: they are asked where one is forced, and where a kernel is set aside that they may stand in for.
    fn narrow(&self, history: &History, otherwise: Narrow) -> Narrow {
        if self.is_forced() || history.has_set_aside() { Narrow::Asked } else { otherwise }
    }

    fn decide(
        &self,
        workload: &Workload,
        key: WorkloadKey,
        mut candidates: Candidates,
        history: Arc<History>,
        pinning: Pinning,
    ) -> Result<Considered> {
        let knowledge = &*self.knowledge;
        candidates.set_aside(&history);
        candidates.add_tuned(&history, workload, knowledge.info(), &knowledge.limits);
        let has_custom = candidates.accepted.iter().any(|c| c.kernel.is_custom());
        let judge = if has_custom { judge(&candidates.accepted).cloned() } else { None };
        candidates.keep_backend(knowledge.limits.backend);
        self.keep_forced(workload, &mut candidates)?;
        if candidates.accepted.is_empty() {
            let refusals = candidates.refusals();
            return Err(Error::NoKernel { workload: workload.to_string(), refusals });
        }
        self.predict(workload, key, &history, &mut candidates.accepted);
        let last = history.current();
        let situation = Situation {
            workload,
            candidates: &candidates.accepted,
            last: last.as_ref().map(|(kernel, parameters)| (&**kernel, &**parameters)),
        };
        let mut decision = self.policy.decide(&situation);
        if self.forced.as_ref().is_some_and(|(_, operation)| *operation == workload.kind()) {
            decision.reason = "forced by `with_kernel`".into();
        }
        if knowledge.frozen && self.forced.is_none() {
            let pinned = match pinning {
                Pinning::Keep => Some(knowledge.pin(key, &candidates.accepted[decision.index])),
                Pinning::Look => knowledge.pinned(key),
            };
            let is = |p: &Pinned| candidates.accepted.iter().position(|c| c.is(&p.kernel, &p.parameters));
            if let Some(index) = pinned.as_ref().and_then(is) {
                decision = Decision { index, reason: "frozen: the choice that was kept".into() };
            }
        }
        Ok(Considered { candidates, decision, history, judge })
    }

    /// Gives candidates what the models, their history and the policy say about their times.
    fn predict(
        &self,
        workload: &Workload,
        key: WorkloadKey,
        history: &History,
        candidates: &mut [Candidate],
    ) {
        if self.knowledge.learns {
            self.knowledge.learner.want(workload.kind());
        }
        self.knowledge.models.load().attach(workload, key, candidates);
        // On a new workload nobody has run, and every candidate need not ask.
        let ran = !history.is_empty();
        for candidate in candidates {
            if ran && (!candidate.kernel.is_custom() || self.is_checked(candidate, history)) {
                candidate.measured = history.measured(candidate.kernel.name(), &candidate.parameters);
            }
            candidate.predicted = self.policy.believe(candidate);
        }
    }

    /// Every candidate at every point that a tuner may measure; the one that runs today is the first.
    pub(crate) fn wide(&self, workload: &Workload) -> Result<Vec<Candidate>> {
        let knowledge = &*self.knowledge;
        let Considered { mut candidates, decision, history, .. } = self.consider(workload)?;
        candidates.accepted.swap(0, decision.index);
        candidates.widen(workload, knowledge.info(), &knowledge.limits);
        let mut all = candidates.accepted;
        let key = workload.key();
        self.predict(workload, key, &history, &mut all);
        let refused = knowledge.refused(key);
        let is_refused = |c: &Candidate| {
            // One whose code has changed since is tried again.
            refused.iter().any(|r| r.source == c.kernel.source() && c.is(&r.kernel, &r.parameters))
        };
        let mut first = true;
        all.retain(|c| std::mem::take(&mut first) || !is_refused(c));
        Ok(all)
    }

    /// Takes in what a tuner measured of a candidate whose answers it has checked.
    pub(crate) fn note(&self, workload: &Workload, candidate: &Candidate, samples: &[f64]) {
        let Some(timings) = Timings::of(samples) else { return };
        let knowledge = &*self.knowledge;
        let history = knowledge.history(workload.key());
        let (name, parameters) = (candidate.kernel.name(), candidate.parameters.to_string());
        if candidate.kernel.is_custom() {
            history.set_checked(name, &parameters, knowledge.registry.birth(name));
        }
        history.add(name, &parameters, &timings);
        history.set_raced();
        if knowledge.learns {
            let (workload, candidate) = (Arc::new(workload.clone()), Arc::new(candidate.clone()));
            knowledge.learner.measured(Measurement { workload, candidate, timings });
        }
    }

    /// Whether this very kernel of the user's was checked at its parameters; its times before that do not count.
    fn is_checked(&self, candidate: &Candidate, history: &History) -> bool {
        let name = candidate.kernel.name();
        let birth = self.knowledge.registry.birth(name);
        history.is_checked(name, Some(&candidate.parameters.to_string()), birth)
    }

    /// Leaves only the points of the forced kernel, if one is forced for this operation.
    fn keep_forced(&self, workload: &Workload, candidates: &mut Candidates) -> Result<()> {
        let Some((name, operation)) = &self.forced else { return Ok(()) };
        if *operation != workload.kind() {
            return Ok(());
        }
        candidates.accepted.retain(|c| c.kernel.name() == name);
        if candidates.accepted.is_empty() {
            let refusals = candidates.refusals().into_iter().filter(|(kernel, _)| kernel == name);
            return Err(Error::NoKernel { workload: workload.to_string(), refusals: refusals.collect() });
        }
        Ok(())
    }

    /// The entry for a workload, decided now if it was not before.
    pub(crate) fn entry(&self, workload: &Workload) -> Result<Arc<Entry>> {
        let registry = &self.knowledge.registry;
        if let Some(entry) = self.table.get(workload, registry.generation()) {
            return Ok(entry);
        }
        self.open(&Arc::new(workload.clone()), false)
    }

    /// Decides a workload anew and publishes the entry; `drifted` makes even measured rivals race again.
    pub(crate) fn open(&self, workload: &Arc<Workload>, drifted: bool) -> Result<Arc<Entry>> {
        let generation = self.knowledge.registry.generation();
        let considered = self.admit(workload)?;
        let Considered { candidates, decision, history, .. } = considered;
        let accepted = &candidates.accepted;
        let mut trials = None;
        if self.knowledge.budget.explores() {
            let raced = history.raced() && !drifted;
            let ran = if drifted { history.current() } else { None };
            let incumbent = ran.and_then(|(name, at)| accepted.iter().position(|c| c.is(&name, &at)));
            // A user's kernel joins only after its check; what a decided race has measured needs no other race.
            trials = Trials::again(accepted, decision.index, incumbent, |c| {
                if c.measured.is_some() { !raced } else { !c.kernel.is_custom() }
            });
        }
        let candidate = Arc::new(accepted[decision.index].clone());
        history.select(candidate.kernel.name(), &candidate.parameters.to_string());
        let choice = Choice { candidate, reason: decision.reason };
        let every_call = self.knowledge.limits.time.is_some();
        let entry = Entry::new(Arc::clone(workload), generation, choice, trials, history, every_call);
        // A kernel added, removed or quarantined meanwhile makes the entry stale; it then serves this call only.
        if generation == self.knowledge.registry.generation() {
            self.table.publish(&entry);
        }
        Ok(entry)
    }

    /// Considers a workload with every user's kernel checked that could win.
    fn admit(&self, workload: &Workload) -> Result<Considered> {
        loop {
            let considered = self.consider_quickly(workload)?;
            let accepted = &considered.candidates.accepted;
            let birth = |c: &Candidate| self.knowledge.registry.birth(c.kernel.name());
            let known = |c: &Candidate| considered.history.is_checked(c.kernel.name(), None, birth(c));
            let picked = &accepted[considered.decision.index];
            let unchecked = (picked.kernel.is_custom() && picked.measured.is_none()).then_some(picked);
            // Its first point is timed whatever it claims to cost: claims may be wrong in both directions.
            let first = || accepted.iter().find(|c| c.kernel.is_custom() && !known(c));
            let Some(candidate) = unchecked.or_else(first) else { return Ok(considered) };
            let name = candidate.kernel.name();
            let knowledge = &*self.knowledge;
            let judge = considered.judge.as_ref();
            match verify(candidate, judge, workload, &knowledge.device, knowledge.limits.check) {
                Ok(seconds) => {
                    let timings = Timings { seconds, samples: 1, spread: None, at: unix_ms() };
                    let parameters = candidate.parameters.to_string();
                    considered.history.replace(name, &parameters, &timings);
                    considered.history.set_checked(name, &parameters, birth(candidate));
                }
                Err(reason) => {
                    knowledge.registry.quarantine(name, reason.clone());
                    if self.is_forced() {
                        return Err(Error::KernelFailed { kernel: name.to_owned(), reason });
                    }
                }
            }
        }
    }

    /// A settled choice takes another time than it did: its candidates race again, with what is known now.
    pub(crate) fn reopen(&self, entry: &Entry) {
        // Without predictions nobody could join a race.
        if !self.knowledge.budget.explores() || !self.knowledge.learns {
            return;
        }
        tracing::info!(workload = %entry.workload, "a kernel takes another time than it did; its workload is open again");
        if let Err(error) = self.open(&entry.workload, true) {
            tracing::warn!(%error, "a workload could not be decided anew");
        }
    }

    /// Lets calls run the leader of a race that waits for room in the budget as if it were settled; one takes so many seconds.
    pub(crate) fn run_leader(&self, entry: &Entry, trials: &mut Trials, seconds: f64) {
        let candidate = Arc::new(trials.leader().clone());
        let choice = Choice { candidate, reason: "leads the race on this workload's own calls".into() };
        let (workload, history) = (Arc::clone(&entry.workload), Arc::clone(&entry.history));
        let (race, every_call) = (Some(trials.hand_over()), self.knowledge.limits.time.is_some());
        let next = Entry::new(workload, entry.generation, choice, race, history, every_call);
        next.watch.time_some(seconds);
        self.table.publish(&next);
    }

    /// Ends a race: what was measured becomes evidence, and the policy decides with it.
    pub(crate) fn settle(&self, entry: &Entry, trials: &Trials) {
        let (mut candidates, mut judged) = (Vec::new(), Vec::new());
        for trial in trials.results() {
            let Trial { candidate, times, .. } = trial;
            let (Some(timings), Some(as_judged)) = (Timings::of(times), trial.judged()) else { continue };
            let parameters = candidate.parameters.to_string();
            entry.history.replace(candidate.kernel.name(), &parameters, &timings);
            let mut candidate = candidate.clone();
            candidate.measured = entry.history.measured(candidate.kernel.name(), &candidate.parameters);
            candidate.predicted = self.policy.believe(&candidate);
            self.learn(entry, &Arc::new(candidate.clone()), timings);
            judged.push(Candidate { predicted: candidate.predicted, ..as_judged });
            candidates.push(candidate);
        }
        if candidates.is_empty() {
            return;
        }
        entry.history.set_raced();
        let last = entry.history.current();
        let situation = Situation {
            workload: &entry.workload,
            candidates: &judged,
            last: last.as_ref().map(|(kernel, parameters)| (&**kernel, &**parameters)),
        };
        let decision = self.policy.decide(&situation);
        let candidate = Arc::new(candidates.swap_remove(decision.index));
        entry.history.select(candidate.kernel.name(), &candidate.parameters.to_string());
        let reason = format!("won a race on this workload's own calls; {}", decision.reason);
        let (workload, history) = (Arc::clone(&entry.workload), Arc::clone(&entry.history));
        let choice = Choice { candidate, reason };
        let every_call = self.knowledge.limits.time.is_some();
        self.table.publish(&Entry::new(workload, entry.generation, choice, None, history, every_call));
    }

    /// Notes what a settled choice takes; `anew` if what it took before no longer counts. Does not allocate.
    pub(crate) fn remember(&self, entry: &Entry, timings: Timings, anew: bool) {
        let kernel = entry.choice.candidate.kernel.name();
        if anew {
            entry.history.replace(kernel, &entry.parameters, &timings);
        } else {
            entry.history.add(kernel, &entry.parameters, &timings);
        }
        self.learn(entry, &entry.choice.candidate, timings);
    }

    /// Sends timings to the store and the models.
    fn learn(&self, entry: &Entry, candidate: &Arc<Candidate>, timings: Timings) {
        if self.knowledge.learns {
            let (workload, candidate) = (Arc::clone(&entry.workload), Arc::clone(candidate));
            self.knowledge.learner.measured(Measurement { workload, candidate, timings });
        }
    }

    /// Sets a candidate aside: everywhere if it panicked, for this workload if it only failed.
    pub(crate) fn set_aside(&self, candidate: &Candidate, history: &History, failure: &LaunchFailure) {
        let name = candidate.kernel.name();
        history.failed(name, &candidate.parameters.to_string(), &failure.to_string());
        if self.knowledge.learns {
            self.knowledge.learner.failed(name);
        }
        match failure {
            LaunchFailure::Panicked(_) => self.knowledge.registry.quarantine(name, failure.to_string()),
            LaunchFailure::Refused(reason) => {
                tracing::warn!(kernel = name, reason, "kernel set aside for one workload");
            }
        }
    }

    /// Why a workload runs the candidate it runs.
    pub(crate) fn explain(&self, workload: &Workload) -> Result<Explanation> {
        let considered = self.consider(workload)?;
        let policy = if self.is_forced() { "forced" } else { self.policy.name() };
        let entry = self.table.get(workload, self.knowledge.registry.generation());
        let model = self.models().get(workload.kind()).map(|model| ExplainedModel::of(model));
        let info = self.knowledge.info();
        Ok(Explanation::new(workload, info, policy, model, &considered, entry.as_deref()))
    }
}
