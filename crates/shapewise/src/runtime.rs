//! What a user holds: devices, kernels, and the way of one call.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::backends::cpu::{CpuBackend, CpuDevice, MemoryPool};
use crate::device::{Backend, BackendKind, Device, DeviceInfo};
use crate::error::{Error, Result};
use crate::ops::{Call, Operation, OperationKind, Request, Workload};
use crate::selection::{
    self, Candidates, Choice, Decision, DecisionTable, Explanation, KernelRegistry, Limits, Policy,
    ScoreBased,
};
use crate::store::StoreLocation;
use crate::tensor::{DType, Shape, Tensor};

/// Where operations run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// The best device that was found.
    #[default]
    Auto,
    /// The best device of one backend; an error when it has none.
    On(BackendKind),
}

/// Settings of a [`Runtime`] that differ from the defaults.
#[derive(Default)]
pub struct RuntimeBuilder {
    threads: Option<usize>,
    placement: Placement,
    store: StoreLocation,
    policy: Option<Box<dyn Policy>>,
    limits: Limits,
    uncalibrated: bool,
}

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

    /// Skips the calibration of about two seconds: choices then follow the order of the kernel lists.
    #[must_use]
    pub fn without_calibration(mut self) -> Self {
        self.uncalibrated = true;
        self
    }

    /// Finds the device, calibrates it if that was never done on this machine, and opens it.
    pub fn build(self) -> Result<Runtime> {
        if self.threads == Some(0) {
            return Err(Error::InvalidArgument {
                operation: "runtime",
                reason: "0 threads cannot compute; use 1 or more, or leave it out for all cores".into(),
            });
        }
        let backend = CpuBackend;
        if let Placement::On(kind) = self.placement
            && kind != backend.kind()
        {
            return Err(Error::Unsupported {
                what: format!("placement on {kind}"),
                reason: "no such device".into(),
            });
        }
        let mut info = backend.find().into_iter().next().ok_or_else(|| Error::Unsupported {
            what: "a runtime".into(),
            reason: "no device was found".into(),
        })?;
        info.threads = self.threads.unwrap_or(info.threads);
        let memory = MemoryPool::new(self.limits.memory);
        let mut device = CpuDevice::new(info, memory);
        if !self.uncalibrated {
            device.calibrate(self.store.calibrations().as_ref());
        }
        let device = Arc::new(device);
        let policy = self.policy.unwrap_or_else(|| Box::new(ScoreBased));
        let shared = Shared { device, registry: KernelRegistry::default(), policy, limits: self.limits };
        Ok(Runtime { shared: Arc::new(shared), table: Arc::default(), forced: None, recorder: None })
    }
}

struct Shared {
    device: Arc<CpuDevice>,
    registry: KernelRegistry,
    policy: Box<dyn Policy>,
    limits: Limits,
}

/// One call, many kernels: picks the fastest for each workload and runs it.
///
/// Cheap to clone; clones share devices, kernels and decisions.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
    table: Arc<DecisionTable>,
    forced: Option<Forced>,
    /// Set while a call is only asked what it would do.
    recorder: Option<Arc<Mutex<Vec<Workload>>>>,
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
        self.shared.device.info()
    }

    /// The device.
    pub fn device(&self) -> &CpuDevice {
        &self.shared.device
    }

    /// The kernels to choose from; users add their own here.
    pub fn kernels(&self) -> &KernelRegistry {
        &self.shared.registry
    }

    /// Number of workloads decided so far.
    pub fn decisions(&self) -> usize {
        self.table.len()
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
        let forced = Some(Forced { name: name.into(), operation: kernel.operation() });
        Ok(Self { shared: Arc::clone(&self.shared), table: Arc::default(), forced, recorder: None })
    }

    /// The workloads that a call asks for, without computing anything.
    pub fn workloads<T>(&self, call: impl FnOnce(&Self) -> Result<T>) -> Result<Vec<Workload>> {
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let recording = Self { recorder: Some(Arc::clone(&recorded)), ..self.clone() };
        call(&recording)?;
        let mut list = recorded.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *list))
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
        let workload = workloads.first().ok_or_else(|| Error::InvalidArgument {
            operation: "explain",
            reason: "the call asks for nothing to be computed; call an operation on the runtime it is given"
                .into(),
        })?;
        self.explain_workload(workload)
    }

    /// The same for a workload given as data.
    pub fn explain_workload(&self, workload: &Workload) -> Result<Explanation> {
        let (candidates, decision) = self.decide(workload)?;
        let policy = if self.forced.is_some() { "forced" } else { self.shared.policy.name() };
        Ok(Explanation::new(workload, self.device_info(), policy, &candidates, &decision))
    }

    /// Memory for a result.
    pub(crate) fn allocate(&self, shape: &Shape, dtype: DType) -> Result<Tensor> {
        Tensor::uninitialised(self.shared.device.memory(), shape, dtype)
    }

    /// Asks an operation's question: `fill` adds the operands.
    #[inline]
    pub(crate) fn ask<'a>(
        &self,
        operation: Operation,
        fill: impl FnOnce(&mut Request<'a>) -> Result<()>,
    ) -> Result<()> {
        // Requests are large; filling one where it lies is what keeps a small call short.
        let mut request = Request::new(operation);
        fill(&mut request)?;
        self.execute(&request)
    }

    /// Runs a request: a hit in the decision table launches at once.
    #[inline]
    pub fn execute(&self, request: &Request<'_>) -> Result<()> {
        if let Some(recorder) = &self.recorder {
            recorder.lock().unwrap_or_else(PoisonError::into_inner).push(request.workload());
            return Ok(());
        }
        let generation = self.shared.registry.generation();
        let launched = self.table.with(&request.words, generation, |entry| {
            self.launch(&entry.choice, &entry.workload, &request.pointers)
        });
        match launched {
            Some(Ok(())) => Ok(()),
            Some(Err(failure)) => self.recover(request, failure),
            None => self.execute_new(request),
        }
    }

    #[inline]
    fn launch(&self, choice: &Choice, workload: &Workload, pointers: &[*mut u8]) -> Result<(), Failure> {
        let mut call = Call::new(workload, &choice.parameters, pointers, &self.shared.device);
        selection::run_caught(&choice.kernel, &mut call)
            .map_err(|reason| Failure { kernel: choice.kernel.name().to_owned(), reason })
    }

    /// The choice for a workload, decided now if it was not before, and its generation.
    pub(crate) fn choice(&self, workload: &Workload) -> Result<(Arc<Choice>, u64)> {
        let generation = self.shared.registry.generation();
        if let Some(choice) = self.table.get(workload, generation) {
            return Ok((choice, generation));
        }
        // A kernel added, removed or quarantined meanwhile makes the choice stale; then it is made again, and after
        // a few times used for this call only.
        for _ in 0..3 {
            let generation = self.shared.registry.generation();
            let choice = Arc::new(self.choose(workload)?);
            if generation == self.shared.registry.generation() {
                self.table.publish(workload, generation, &choice);
                return Ok((choice, generation));
            }
        }
        Ok((Arc::new(self.choose(workload)?), generation))
    }

    /// Launches a choice made earlier; one that is stale or fails goes the way of every other call.
    #[inline]
    pub(crate) fn launch_prepared(
        &self,
        choice: &Choice,
        generation: u64,
        workload: &Workload,
        pointers: &[*mut u8],
    ) -> Result<()> {
        if generation != self.shared.registry.generation() {
            return self.execute(&Request::again(workload, pointers));
        }
        self.launch(choice, workload, pointers)
            .or_else(|failure| self.recover(&Request::again(workload, pointers), failure))
    }

    /// The slow path: a workload seen for the first time.
    #[cold]
    fn execute_new(&self, request: &Request<'_>) -> Result<()> {
        let workload = request.workload();
        let (choice, _) = self.choice(&workload)?;
        self.launch(&choice, &workload, &request.pointers).or_else(|failure| self.recover(request, failure))
    }

    /// A kernel failed: it is quarantined, and the next best one computes the answer.
    #[cold]
    fn recover(&self, request: &Request<'_>, failure: Failure) -> Result<()> {
        let Failure { kernel, reason } = failure;
        self.shared.registry.quarantine(&kernel, reason.clone());
        if self.forced.is_some() || request.words.in_place() {
            // In place, the input may be half overwritten: no other kernel could still give a right answer.
            return Err(Error::KernelFailed { kernel, reason });
        }
        self.execute_new(request)
    }

    /// Picks a kernel; a user's own is checked first and quarantined if it is wrong.
    fn choose(&self, workload: &Workload) -> Result<Choice> {
        loop {
            let (candidates, decision) = self.decide(workload)?;
            let picked = &candidates.accepted[decision.index];
            if picked.kernel.is_custom() {
                let device = &self.shared.device;
                let checked = selection::verify(
                    picked,
                    &candidates.accepted,
                    workload,
                    device,
                    self.shared.limits.check,
                );
                if let Err(reason) = checked {
                    self.shared.registry.quarantine(picked.kernel.name(), reason.clone());
                    if self.forced.is_some() {
                        return Err(Error::KernelFailed { kernel: picked.kernel.name().to_owned(), reason });
                    }
                    continue;
                }
            }
            return Ok(Choice {
                kernel: picked.kernel.clone(),
                parameters: picked.parameters.clone(),
                predicted: picked.predicted,
                reason: decision.reason,
            });
        }
    }

    pub(crate) fn decide(&self, workload: &Workload) -> Result<(Candidates, Decision)> {
        let shared = &self.shared;
        let candidates = Candidates::gather(&shared.registry, workload, shared.device.info(), &shared.limits);
        let none = |refusals| Error::NoKernel { workload: workload.to_string(), refusals };
        let decision = match &self.forced {
            Some(forced) if forced.operation == workload.kind() => {
                let points: Vec<usize> = (0..candidates.accepted.len())
                    .filter(|&i| candidates.accepted[i].kernel.name() == &*forced.name)
                    .collect();
                if points.is_empty() {
                    let refusals =
                        candidates.refusals().into_iter().filter(|(name, _)| **name == *forced.name);
                    return Err(none(refusals.collect()));
                }
                let own: Vec<_> = points.iter().map(|&i| candidates.accepted[i].clone()).collect();
                let index = points[shared.policy.decide(workload, &own).index];
                Decision { index, reason: "forced by `with_kernel`".into() }
            }
            _ if candidates.accepted.is_empty() => return Err(none(candidates.refusals())),
            _ => shared.policy.decide(workload, &candidates.accepted),
        };
        Ok((candidates, decision))
    }
}

#[derive(Clone)]
struct Forced {
    name: Arc<str>,
    operation: OperationKind,
}

struct Failure {
    kernel: String,
    reason: String,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.device_info();
        write!(f, "Runtime({} × {} threads", info.name, info.threads)?;
        match &self.forced {
            Some(forced) => write!(f, ", forced {})", forced.name),
            None => write!(f, ")"),
        }
    }
}
