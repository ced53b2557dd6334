//! The thread that keeps what was measured: it writes evidence to the store and trains the models, off the calls' way.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use super::Timings;
use super::models::{Models, describe};
use crate::device::{DeviceInfo, Fingerprint};
use crate::modelling::{
    AccuracyReport, Anomaly, Example, FEATURES_VERSION, Features, PerformanceModeler, Training,
    WorkloadFeatures,
};
use crate::ops::{OperationKind, Workload, WorkloadKey};
use crate::selection::{Candidate, Sources};
use crate::sensors::{Machine, Sensors};
use crate::store::{Evidence, EvidenceId, Store};

/// Measurements that may wait; above, they are dropped rather than keep a call waiting.
const QUEUE: usize = 4096;
/// Rows are written together after this long at most.
const WRITE_EVERY: Duration = Duration::from_millis(500);
/// The most examples a model is trained from; the newest stay.
const MOST_EXAMPLES: usize = 8192;
/// A model is trained anew when its examples have grown by this share, and by this number at least.
const GROWTH: (f64, usize) = (0.1, 16);

/// Unusual measurements that are remembered.
const MOST_ANOMALIES: usize = 64;

/// Some timings of one candidate on one workload, on their way to the learner.
pub(crate) struct Measurement {
    pub workload: Arc<Workload>,
    pub candidate: Arc<Candidate>,
    pub timings: Timings,
}

impl Measurement {
    /// Bytes of operands and scratch.
    fn memory(&self) -> usize {
        self.workload.bytes().saturating_add(self.candidate.cost.scratch)
    }
}

enum Message {
    Measured(Measurement),
    /// What the store has is to be read.
    Recall(Arc<Sources>),
    /// An operation was asked for: its model is to be trained from what was read.
    Wanted(OperationKind),
    /// A kernel of this name failed.
    Failed(String),
    /// Answered when everything sent before is written and learned.
    Flush(SyncSender<()>),
}

/// Where measurements go.
pub(crate) struct Learner {
    start: Start,
    /// A bit for every operation that was asked for.
    wanted: AtomicU64,
    running: Mutex<Option<(SyncSender<Message>, JoinHandle<()>)>>,
}

#[derive(Clone)]
struct Start {
    device: Arc<DeviceInfo>,
    store: Arc<dyn Store>,
    models: Arc<ArcSwap<Models>>,
    examples: Arc<Mutex<HashMap<OperationKind, Vec<Example>>>>,
    modeler: Arc<Mutex<PerformanceModeler>>,
    anomalies: Arc<Mutex<VecDeque<Anomaly>>>,
    /// Opened by the thread, where it costs no call anything.
    sensors: fn() -> Box<dyn Sensors>,
    /// Set when nobody will ask the models any more; what was measured is still written.
    ending: Arc<AtomicBool>,
}

impl Learner {
    /// A learner that starts its thread with the first measurement.
    pub fn new(
        device: DeviceInfo,
        store: Arc<dyn Store>,
        models: Arc<ArcSwap<Models>>,
        training: Training,
    ) -> Self {
        let modeler = Arc::new(Mutex::new(PerformanceModeler::new(training)));
        let (device, examples, anomalies) = (Arc::new(device), Arc::default(), Arc::default());
        let (sensors, ending): (fn() -> Box<dyn Sensors>, _) = (|| Box::new(Machine::new()), Arc::default());
        let start = Start { device, store, models, examples, modeler, anomalies, sensors, ending };
        Self { start, wanted: AtomicU64::new(0), running: Mutex::new(None) }
    }

    /// Lets the thread learn from what earlier processes measured; rows count whose kernels are still the same.
    pub fn recall(&self, sources: Arc<Sources>) {
        self.send(Message::Recall(sources));
    }

    /// Says that an operation was asked for, so that its model is trained: a process pays for those it uses. Never waits.
    pub fn want(&self, operation: OperationKind) {
        let bit = 1 << operation as u32;
        if self.wanted.load(Ordering::Relaxed) & bit != 0
            || self.wanted.fetch_or(bit, Ordering::Relaxed) & bit != 0
        {
            return;
        }
        // Where no thread runs nothing was read, so there is nothing to train.
        if lock(&self.running).is_some() {
            self.send(Message::Wanted(operation));
        }
    }

    /// Hands a measurement over; never waits.
    pub fn measured(&self, measurement: Measurement) {
        self.send(Message::Measured(measurement));
    }

    /// Says that a kernel failed; never waits.
    pub fn failed(&self, kernel: &str) {
        self.send(Message::Failed(kernel.to_owned()));
    }

    /// How good an operation's predictions were.
    pub fn accuracy(&self, operation: OperationKind) -> AccuracyReport {
        lock(&self.start.modeler).accuracy(operation)
    }

    /// The latest unusual measurements, oldest first.
    pub fn anomalies(&self) -> Vec<Anomaly> {
        lock(&self.start.anomalies).iter().cloned().collect()
    }

    fn send(&self, message: Message) {
        let mut running = lock(&self.running);
        if running.is_none() {
            *running = self.start.clone().spawn();
        }
        let Some((sender, _)) = running.as_ref() else { return };
        if let Err(TrySendError::Full(_)) = sender.try_send(message) {
            tracing::debug!("a measurement was dropped: the learner is behind");
        }
    }

    /// Waits until everything sent so far is written and learned.
    pub fn flush(&self) {
        let sender = {
            let running = lock(&self.running);
            running.as_ref().map(|(sender, _)| sender.clone())
        };
        if let Some(sender) = sender {
            let (done, wait) = sync_channel(1);
            if sender.send(Message::Flush(done)).is_ok() {
                // An error means that the thread is gone, and with it everything to wait for.
                let _ = wait.recv();
            }
        }
    }
}

impl Drop for Learner {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((sender, thread)) = running {
            self.start.ending.store(true, Ordering::Relaxed);
            drop(sender);
            if thread.join().is_err() {
                tracing::warn!("the learner thread panicked; its last measurements are lost");
            }
        }
    }
}

impl Start {
    fn spawn(self) -> Option<(SyncSender<Message>, JoinHandle<()>)> {
        let (sender, receiver) = sync_channel(QUEUE);
        let name = "shapewise-learner".to_owned();
        match std::thread::Builder::new().name(name).spawn(move || self.run(&receiver)) {
            Ok(thread) => Some((sender, thread)),
            Err(error) => {
                tracing::warn!(%error, "the learner thread could not be started; nothing is learned");
                None
            }
        }
    }

    fn run(self, receiver: &Receiver<Message>) {
        let device = Fingerprint::of(&self.device);
        let mut sensors = (self.sensors)();
        let mut rows = Vec::new();
        // Bytes of the largest call since memory was looked at.
        let mut needed = 0;
        let mut trained: HashMap<OperationKind, usize> = HashMap::new();
        // Operations of the store that nobody asked for yet.
        let mut unasked: BTreeSet<OperationKind> = BTreeSet::new();
        let mut written = Instant::now();
        loop {
            // Nothing to write means nothing to wake up for.
            let message = if rows.is_empty() {
                receiver.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                receiver.recv_timeout(WRITE_EVERY)
            };
            let mut answer = None;
            let ended = matches!(message, Err(RecvTimeoutError::Disconnected));
            match message {
                Ok(Message::Measured(measurement)) => {
                    let row = evidence(&device, &measurement);
                    self.judge(&measurement, &row);
                    needed = needed.max(measurement.memory());
                    rows.push(row);
                }
                Ok(Message::Recall(sources)) => {
                    self.recall(&device, &sources);
                    unasked.extend(lock(&self.examples).keys());
                }
                Ok(Message::Wanted(operation)) => {
                    self.train(unasked.take(&operation), &mut trained);
                }
                Ok(Message::Failed(kernel)) => self.note(lock(&self.modeler).record_failure(&kernel)),
                Ok(Message::Flush(done)) => answer = Some(done),
                Err(_) => {}
            }
            if !rows.is_empty() && (answer.is_some() || ended || written.elapsed() >= WRITE_EVERY) {
                let grown = self.keep(&mut rows, &trained, &mut unasked);
                self.train(grown, &mut trained);
                self.look_at_memory(std::mem::take(&mut needed), &mut *sensors);
                written = Instant::now();
            }
            if let Some(done) = answer {
                self.train(std::mem::take(&mut unasked), &mut trained);
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
            }
            if ended {
                return;
            }
        }
    }

    /// Reads examples from the store, the newest last.
    fn recall(&self, device: &Fingerprint, sources: &Sources) {
        let mut found: Vec<(i64, OperationKind, Example)> = Vec::new();
        let read = self.store.visit(Some(device), &mut |row| {
            if let (true, Ok(operation), Some(example)) =
                (sources.teach(&row), row.operation.parse(), example(&row))
            {
                found.push((row.measured_at, operation, example));
            }
        });
        if let Err(error) = read {
            tracing::warn!(%error, "the store could not be read to its end; models learn from the rest");
        }
        found.sort_by_key(|(at, ..)| *at);
        let mut examples = lock(&self.examples);
        for (_, operation, example) in found {
            push(examples.entry(operation).or_default(), example);
        }
    }

    /// Writes the rows; returns the operations whose examples have grown enough for another training.
    fn keep(
        &self,
        rows: &mut Vec<Evidence>,
        trained: &HashMap<OperationKind, usize>,
        unasked: &mut BTreeSet<OperationKind>,
    ) -> Vec<OperationKind> {
        if let Err(error) = self.store.append(rows) {
            tracing::warn!(%error, "evidence could not be written; it counts in this process only");
        }
        let mut examples = lock(&self.examples);
        for row in rows.drain(..) {
            let (Ok(operation), Some(example)) = (row.operation.parse(), example(&row)) else { continue };
            push(examples.entry(operation).or_default(), example);
            // What was measured was asked for, even if the word of it was lost.
            unasked.remove(&operation);
        }
        let has_grown = |operation: &OperationKind, list: &[Example]| {
            let before = trained.get(operation).copied().unwrap_or(0);
            let step = GROWTH.1.max((before as f64 * GROWTH.0) as usize);
            list.len() >= before + step || list.len() < before
        };
        let asked = examples.iter().filter(|(operation, _)| !unasked.contains(operation));
        asked
            .filter(|(operation, list)| has_grown(operation, list))
            .map(|(&operation, _)| operation)
            .collect()
    }

    /// Trains models anew and publishes each as soon as it is there.
    fn train(
        &self,
        operations: impl IntoIterator<Item = OperationKind>,
        trained: &mut HashMap<OperationKind, usize>,
    ) {
        for operation in operations {
            if self.ending.load(Ordering::Relaxed) {
                return;
            }
            let examples = lock(&self.examples).get(&operation).cloned().unwrap_or_default();
            trained.insert(operation, examples.len());
            let mut modeler = lock(&self.modeler);
            if let Err(error) = modeler.train(operation, &examples) {
                tracing::warn!(%operation, %error, "no model was trained");
            }
            self.models.store(Arc::new(Models::of(&modeler)));
        }
    }

    /// Compares a measurement with what was predicted when its workload was decided.
    fn judge(&self, measurement: &Measurement, row: &Evidence) {
        let Measurement { workload, candidate, timings } = measurement;
        let (Some(prediction), Some(example)) = (candidate.learned, example(row)) else { return };
        let (kernel, shape) = (candidate.kernel.name(), example.shape);
        let found = lock(&self.modeler).record(
            workload.kind(),
            kernel,
            shape,
            &example.features,
            &prediction,
            timings.seconds,
        );
        self.note(found);
    }

    /// Says so where a call like the largest of the last ones would hardly find memory.
    fn look_at_memory(&self, needed: usize, sensors: &mut dyn Sensors) {
        let Some(available) = sensors.sample().memory_available else { return };
        let available = usize::try_from(available).unwrap_or(usize::MAX);
        self.note(lock(&self.modeler).check_memory(needed, available));
    }

    fn note(&self, found: impl IntoIterator<Item = Anomaly>) {
        let mut anomalies = lock(&self.anomalies);
        for anomaly in found {
            tracing::info!(?anomaly, "something unusual was measured");
            if anomalies.len() == MOST_ANOMALIES {
                anomalies.pop_front();
            }
            anomalies.push_back(anomaly);
        }
    }
}

/// Adds an example; of too many the oldest go, some at once.
fn push(list: &mut Vec<Example>, example: Example) {
    list.push(example);
    if list.len() > MOST_EXAMPLES {
        list.drain(..MOST_EXAMPLES / 8);
    }
}

// A panic while it was held leaves numbers, never half a structure.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A row of evidence from a measurement.
fn evidence(device: &Fingerprint, measurement: &Measurement) -> Evidence {
    let Measurement { workload, candidate, timings } = measurement;
    let features = describe(&WorkloadFeatures::new(workload), candidate);
    Evidence {
        id: EvidenceId::new(),
        device: device.clone(),
        operation: workload.kind().name().to_owned(),
        workload: workload.key(),
        description: workload.to_string(),
        kernel: candidate.kernel.name().to_owned(),
        source: candidate.kernel.source(),
        parameters: candidate.parameters.to_string(),
        seconds: timings.seconds,
        samples: u32::try_from(timings.samples).unwrap_or(u32::MAX),
        spread: timings.spread,
        busy: false,
        baseline: candidate.roofline(),
        features: features.map_or(Vec::new(), |f| f.0.to_vec()),
        features_version: FEATURES_VERSION,
        measured_at: timings.at,
    }
}

/// What a model learns from a row; `None` where it was made with other features or without a roofline.
fn example(row: &Evidence) -> Option<Example> {
    if row.features_version != FEATURES_VERSION || row.busy {
        return None;
    }
    let features = Features(row.features.as_slice().try_into().ok()?);
    let shape = shape_of(row.workload);
    let example = Example { features, baseline: row.baseline?, seconds: row.seconds, shape, weight: 1.0 };
    example.is_plausible().then_some(example)
}

/// The workload as the number that groups examples of one shape.
pub(super) fn shape_of(key: WorkloadKey) -> u64 {
    key.bits() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modelling::Severity;
    use crate::selection::made_up;
    use crate::sensors::{SystemState, Trace};
    use crate::store::MemoryStore;
    use crate::{DType, Runtime, Tensor};

    #[test]
    fn memory_that_is_short_and_failures_are_told() {
        let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let x = Tensor::zeros(&[64], DType::F32).unwrap();
        let workload = rt.workloads(|rt| rt.neg(&x)).unwrap().remove(0);
        let (device, store) = (rt.device_info().clone(), Arc::new(MemoryStore::default()));
        let mut learner = Learner::new(device, store, Arc::default(), Training::default());
        learner.start.sensors = || {
            let short = SystemState { memory_available: Some(1), ..SystemState::default() };
            Box::new(Trace { states: vec![short] }.replay())
        };
        let timings = Timings { seconds: 1e-3, samples: 1, spread: None, at: 0 };
        let (workload, candidate) = (Arc::new(workload), Arc::new(made_up(1, 1e-3, 1.1)));
        learner.measured(Measurement { workload, candidate, timings });
        learner.failed("k");
        learner.flush();
        let found = learner.anomalies();
        assert!(
            found.iter().any(|a| matches!(a, Anomaly::FailingKernel { kernel, .. } if kernel == "k")),
            "{found:?}"
        );
        let memory = found.iter().find(|a| matches!(a, Anomaly::MemoryPressure { .. }));
        assert_eq!(memory.map(Anomaly::severity), Some(Severity::Critical), "{found:?}");
    }

    #[test]
    fn a_process_trains_the_models_it_asks_for() {
        let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let x = Tensor::zeros(&[64], DType::F32).unwrap();
        let workloads = rt.workloads(|rt| rt.neg(&x).and_then(|x| rt.sum(&x, 0))).unwrap();
        let store = Arc::new(MemoryStore::default());
        let learner = || {
            let models: Arc<ArcSwap<Models>> = Arc::default();
            let (device, store) = (rt.device_info().clone(), Arc::clone(&store));
            (Learner::new(device, store, Arc::clone(&models), Training::default()), models)
        };
        let (first, _) = learner();
        for workload in workloads {
            let (workload, candidate) = (Arc::new(workload), Arc::new(made_up(1, 1e-3, 1.1)));
            let timings = Timings { seconds: 1e-3, samples: 1, spread: None, at: 0 };
            first.measured(Measurement { workload, candidate, timings });
        }
        first.flush();
        let (second, models) = learner();
        second.recall(Arc::new(Sources::of(rt.kernels())));
        second.want(OperationKind::Elementwise);
        let has = |operation| models.load().get(operation).is_some();
        let started = Instant::now();
        while !has(OperationKind::Elementwise) && started.elapsed() < Duration::from_mins(1) {
            std::thread::yield_now();
        }
        assert!(has(OperationKind::Elementwise) && !has(OperationKind::Reduce));
        second.flush();
        assert!(has(OperationKind::Reduce), "who waits for everything gets everything");
    }
}
