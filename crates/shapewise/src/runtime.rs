//! What a user holds: devices, kernels, and the way of one call.

mod known;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::backends::cpu::{CpuBackend, CpuDevice, MemoryPlan, MemoryPool};
use crate::device::{Backend, BackendKind, Device, DeviceInfo};
use crate::error::{Error, Result};
use crate::measure::{Recorded, Recorder};
use crate::modelling::Training;
use crate::ops::{Asked, Call, OperationKind, Request, Workload};
use crate::selection::{
    self, AdaptiveKernelSelector, Candidate, Entry, Explanation, KernelRegistry, Knowledge, LaunchFailure,
    Limits, Policy, ScoreWeights, SelectionAlgorithm,
};
use crate::store::StoreLocation;
use crate::tensor::{DType, Shape, Tensor};
use crate::tracking::Drift;

/// Where operations run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Where each call is fastest, copies to a device and back included. GPUs join where the feature `webgpu` is on; one that
    /// is only software does not.
    #[default]
    Auto,
    /// The kernels of one backend only, on its best device; an error when it has none. Calls that it has no kernel for are
    /// errors too.
    On(BackendKind),
}

/// Settings of a [`Runtime`] that differ from the defaults.
#[derive(Default)]
pub struct RuntimeBuilder {
    threads: Option<usize>,
    placement: Placement,
    store: StoreLocation,
    algorithm: SelectionAlgorithm,
    weights: ScoreWeights,
    policy: Option<Box<dyn Policy>>,
    exploration: Option<f64>,
    training: Training,
    limits: Limits,
    memory: Option<MemoryPlan>,
    uncalibrated: bool,
}

/// Linux counts fewer processors; with twice as many threads it runs out of mappings, and the process ends.
const MOST_THREADS: usize = 8192;

/// The share of run time that exploring may cost.
const DEFAULT_EXPLORATION: f64 = 0.01;

impl RuntimeBuilder {
    /// Threads to use, the caller included; all cores by default.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Where operations run.
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Where what was measured is kept.
    #[must_use]
    pub fn store(mut self, store: StoreLocation) -> Self {
        self.store = store;
        self
    }

    /// How choices are made.
    #[must_use]
    pub fn algorithm(mut self, algorithm: SelectionAlgorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// What counts how much in a score.
    #[must_use]
    pub fn weights(mut self, weights: ScoreWeights) -> Self {
        self.weights = weights;
        self
    }

    /// The share of run time that exploring may cost: 0.01 by default, 0 never explores.
    #[must_use]
    pub fn exploration(mut self, share: f64) -> Self {
        self.exploration = Some(share);
        self
    }

    /// Which model learns, and how wide its intervals are.
    #[must_use]
    pub fn training(mut self, training: Training) -> Self {
        self.training = training;
        self
    }

    /// A way of choosing of your own, in the place of the algorithm's.
    #[must_use]
    pub fn policy(mut self, policy: impl Policy + 'static) -> Self {
        self.policy = Some(Box::new(policy));
        self
    }

    /// What calls may use.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where the pages of large buffers lie; large pages by default. What the machine cannot do is an error of `build`.
    #[must_use]
    pub fn memory(mut self, plan: MemoryPlan) -> Self {
        self.memory = Some(plan);
        self
    }

    /// Skips the calibration of about two seconds: choices then follow the order of the kernel lists.
    #[must_use]
    pub fn without_calibration(mut self) -> Self {
        self.uncalibrated = true;
        self
    }

    /// Finds the device, calibrates it if that was never done on this machine, and opens it.
    pub fn build(self) -> Result<Runtime> {
        if let Some(threads @ (0 | MOST_THREADS..)) = self.threads {
            return Err(Error::InvalidArgument {
                operation: "runtime",
                reason: format!(
                    "{threads} threads cannot compute; use 1 or more, below {MOST_THREADS}, or leave it out for all cores"
                ),
            });
        }
        if self.exploration.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err(Error::InvalidArgument {
                operation: "runtime",
                reason: "exploration is a share of run time, from 0 (never) to 1".into(),
            });
        }
        let others = crate::backends::kernels(self.placement)?;
        let mut info = CpuBackend.find().into_iter().next().ok_or_else(|| Error::Unsupported {
            what: "a runtime".into(),
            reason: "no device was found".into(),
        })?;
        info.threads = self.threads.unwrap_or(info.threads);
        let memory = MemoryPool::new(self.limits.memory);
        let mut device = CpuDevice::new(info, memory);
        self.memory.map_or(Ok(()), |plan| device.place(plan))?;
        if !self.uncalibrated {
            device.calibrate(self.store.calibrations().as_ref());
        }
        // What is timed without peaks cannot be compared with a prediction, so by default it is not kept.
        let unkept = self.uncalibrated && self.store == StoreLocation::Default;
        let store = if unkept { StoreLocation::Memory } else { self.store };
        let policy = self.policy.unwrap_or_else(|| self.algorithm.policy(self.weights));
        let backend = match self.placement {
            Placement::Auto => None,
            Placement::On(kind) => Some(kind),
        };
        let knowledge = Knowledge::new(
            Arc::new(device),
            others,
            Limits { backend: backend.or(self.limits.backend), ..self.limits },
            self.exploration.unwrap_or(DEFAULT_EXPLORATION),
            self.algorithm,
            self.training,
            store.open().into(),
        );
        let selector = AdaptiveKernelSelector::new(Arc::new(knowledge), self.algorithm, policy.into());
        Ok(Runtime { selector: Arc::new(selector), recorder: None })
    }
}

/// One call, many kernels: picks the fastest for each workload and runs it.
///
/// Cheap to clone; clones share devices, kernels and decisions.
#[derive(Clone)]
pub struct Runtime {
    selector: Arc<AdaptiveKernelSelector>,
    /// Set while a call is only asked what it would do.
    recorder: Option<Arc<Recorder>>,
}

impl Runtime {
    /// A runtime on all cores of this machine. The first one ever on a machine measures it for about two seconds.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Settings.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// What is known about the device.
    pub fn device_info(&self) -> &DeviceInfo {
        self.selector.knowledge.device.info()
    }

    /// The device.
    pub fn device(&self) -> &CpuDevice {
        &self.selector.knowledge.device
    }

    /// The kernels to choose from; users add their own here.
    pub fn kernels(&self) -> &KernelRegistry {
        &self.selector.knowledge.registry
    }

    /// Number of workloads decided so far.
    pub fn decisions(&self) -> usize {
        self.selector.table.len()
    }

    /// The same runtime with one kernel forced for its operation; calls it refuses are errors.
    pub fn with_kernel(&self, name: &str) -> Result<Self> {
        let all: Vec<_> = OperationKind::ALL.iter().flat_map(|&o| self.kernels().kernels(o)).collect();
        let Some(kernel) = all.iter().find(|k| k.name() == name) else {
            let family = name.rsplit_once("::").map_or("", |(front, _)| front);
            let names = all.iter().map(|k| k.name().to_owned());
            let mut known: Vec<String> = names.clone().filter(|k| k.starts_with(family)).collect();
            if known.is_empty() {
                known = names.collect();
            }
            return Err(Error::UnknownKernel { name: name.to_owned(), known });
        };
        let selector = self.selector.forcing(name, kernel.operation());
        Ok(Self { selector: Arc::new(selector), recorder: None })
    }

    /// The workloads that a call asks for, without computing anything.
    pub fn workloads<T>(&self, call: impl FnOnce(&Self) -> Result<T>) -> Result<Vec<Workload>> {
        let asked = self.listen(Recorder::default(), call)?;
        Ok(asked.into_iter().map(|recorded| recorded.workload).collect())
    }

    /// Runs a call on a runtime that only notes what it is asked for.
    pub(crate) fn listen<T>(
        &self,
        recorder: Recorder,
        call: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<Vec<Recorded>> {
        let recorder = Arc::new(recorder);
        call(&Self { recorder: Some(Arc::clone(&recorder)), ..self.clone() })?;
        Ok(recorder.take())
    }

    /// Why a call runs the kernel it runs: candidates, refusals and the decision, without computing anything.
    ///
    /// ```
    /// # use shapewise::{Runtime, Tensor, DType};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let (a, b) = (Tensor::zeros(&[64, 64], DType::F32)?, Tensor::zeros(&[64, 64], DType::F32)?);
    /// println!("{}", rt.explain(|rt| rt.matmul(&a, &b))?);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn explain<T>(&self, call: impl FnOnce(&Self) -> Result<T>) -> Result<Explanation> {
        let workloads = self.workloads(call)?;
        self.explain_workload(workloads.first().ok_or_else(|| nothing_asked("explain"))?)
    }

    /// The same for a workload given as data.
    pub fn explain_workload(&self, workload: &Workload) -> Result<Explanation> {
        self.selector.explain(workload)
    }

    /// What picks the kernels: its algorithm, what it has learned, and what exploring has cost.
    pub fn selector(&self) -> &AdaptiveKernelSelector {
        &self.selector
    }

    /// Waits until everything measured so far is in the store and in the models.
    pub fn flush(&self) {
        self.selector.knowledge.flush();
    }

    /// Memory for a result.
    #[inline]
    pub(crate) fn allocate(&self, shape: &Shape, dtype: DType) -> Result<Tensor> {
        Tensor::uninitialised(self.device().memory(), shape, dtype)
    }

    /// Asks an operation's question: `fill` adds the operands.
    #[inline]
    pub(crate) fn ask<'a>(
        &self,
        operation: impl Into<Asked<'a>>,
        fill: impl FnOnce(&mut Request<'a>) -> Result<()>,
    ) -> Result<()> {
        let mut request = Request::new(operation);
        fill(&mut request)?;
        self.execute(&request)
    }

    /// Runs a request: a hit in the decision table launches at once.
    #[inline]
    pub fn execute(&self, request: &Request<'_>) -> Result<()> {
        match self.execute_known(&request.words, &request.pointers) {
            Some(done) => Ok(done?),
            None => self.execute_new(request),
        }
    }

    /// Launches what an entry chose, in the form that is ready for its workload if there is one.
    #[inline]
    fn launch_choice(&self, entry: &Entry, pointers: &[*mut u8]) -> Result<(), LaunchFailure> {
        match &entry.bound {
            Some(bound) => Ok(selection::run_bound(bound, pointers)?),
            None => self.launch(&entry.choice.candidate, &entry.workload, pointers),
        }
    }

    #[inline]
    fn launch(
        &self,
        candidate: &Candidate,
        workload: &Workload,
        pointers: &[*mut u8],
    ) -> Result<(), LaunchFailure> {
        let mut call = Call::empty(workload, &candidate.parameters, &self.selector.knowledge.device);
        call.fill(pointers);
        selection::run_caught(&candidate.kernel, &mut call)
    }

    /// Launches and takes the time: a trial while a race is on, a look at the settled choice otherwise.
    fn run_watched(&self, entry: &Entry, pointers: &[*mut u8]) -> Result<()> {
        let selector = &*self.selector;
        // Only one thread at a time runs a trial; the others use the choice as it stands.
        let Some(mut trials) = entry.trials.as_ref().and_then(|trials| trials.try_lock().ok()) else {
            return self.run_timed(entry, pointers);
        };
        let budget = &selector.knowledge.budget;
        let trial = budget.affords(trials.stake());
        let candidate = if trial { trials.turn() } else { trials.leader() }.clone();
        let start = Instant::now();
        let launched = self.launch(&candidate, &entry.workload, pointers);
        let seconds = start.elapsed().as_secs_f64();
        if let Err(failure) = launched {
            drop(trials);
            return self.recover(&candidate, entry, pointers, &failure);
        }
        budget.ran(seconds * f64::from(entry.watch.period()));
        if trial {
            entry.watch.time_all();
            budget.tried(trials.record(seconds));
            if trials.finished() {
                selector.settle(entry, &trials);
            }
        } else if candidate.is_like(&entry.choice.candidate) {
            // Until there is room for a trial most calls need not look for it; they run the choice, which leads.
            entry.watch.time_some(seconds);
        } else {
            selector.run_leader(entry, &mut trials, seconds);
        }
        self.keep_within_time(entry, &candidate, seconds);
        Ok(())
    }

    /// Launches the settled choice and takes the time.
    fn run_timed(&self, entry: &Entry, pointers: &[*mut u8]) -> Result<()> {
        let candidate = &entry.choice.candidate;
        let start = Instant::now();
        if let Err(failure) = self.launch_choice(entry, pointers) {
            return self.recover(candidate, entry, pointers, &failure);
        }
        let seconds = start.elapsed().as_secs_f64();
        if entry.trials.is_some() {
            return Ok(());
        }
        let selector = &*self.selector;
        selector.knowledge.budget.ran(seconds * f64::from(entry.watch.period()));
        let noted = entry.watch.note(seconds);
        if let Some(timings) = noted.row {
            selector.remember(entry, timings, noted.drift != Drift::None);
        }
        if noted.drift != Drift::None {
            selector.reopen(entry);
        }
        self.keep_within_time(entry, candidate, seconds);
        Ok(())
    }

    /// Sets a candidate aside that took longer than the user allows.
    fn keep_within_time(&self, entry: &Entry, candidate: &Candidate, seconds: f64) {
        let selector = &*self.selector;
        let Some(limit) = selector.knowledge.limits.time.map(|limit| limit.as_secs_f64()) else { return };
        if seconds > limit && !selector.is_forced() {
            let reason = format!("took {seconds:.6} s, {limit:.6} s are allowed");
            selector.set_aside(candidate, &entry.history, &LaunchFailure::Refused(reason));
            if selector.open(&entry.workload, false).is_err() {
                // Nothing else takes the workload: slow is better than no answer.
                entry.history.forgive(candidate.kernel.name());
            }
        }
    }

    /// The entry for a workload, decided now if it was not before.
    pub(crate) fn entry(&self, workload: &Workload) -> Result<Arc<Entry>> {
        self.selector.entry(workload)
    }

    /// The slow path: a workload seen for the first time.
    #[cold]
    fn execute_new(&self, request: &Request<'_>) -> Result<()> {
        if let Some(recorder) = &self.recorder {
            return recorder.note(request, self.device());
        }
        if request.pointers.is_empty() {
            let reason = "the request has no operands; add inputs and outputs".into();
            return Err(Error::InvalidArgument { operation: "execute", reason });
        }
        let entry = self.selector.entry(&request.workload())?;
        Ok(self.run(&entry, &request.pointers)?)
    }

    /// A kernel failed: it is set aside, and the next best one computes the answer.
    #[cold]
    fn recover(
        &self,
        candidate: &Candidate,
        entry: &Entry,
        pointers: &[*mut u8],
        failure: &LaunchFailure,
    ) -> Result<()> {
        self.selector.set_aside(candidate, &entry.history, failure);
        if self.selector.is_forced() || entry.workload.in_place() {
            // In place, the input may be half overwritten: no other kernel could still give a right answer.
            let kernel = candidate.kernel.name().to_owned();
            return Err(Error::KernelFailed { kernel, reason: failure.to_string() });
        }
        let next = self.selector.open(&entry.workload, false)?;
        Ok(self.run(&next, pointers)?)
    }
}

/// A call was to be looked at that computes nothing.
pub(crate) fn nothing_asked(operation: &'static str) -> Error {
    let reason = "the call asks for nothing to be computed; call an operation on the runtime it is given";
    Error::InvalidArgument { operation, reason: reason.into() }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.device_info();
        write!(f, "Runtime({} × {} threads", info.name, info.threads)?;
        match self.selector.forced() {
            Some(name) => write!(f, ", forced {name})"),
            None => write!(f, ")"),
        }
    }
}
