//! What a runtime knows: kernels, evidence, models, and what was pinned.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::{Budget, Candidate, KernelRegistry, Limits, SelectionAlgorithm};
use crate::backends::cpu::CpuDevice;
use crate::device::{Device, DeviceInfo, Fingerprint};
use crate::modelling::Training;
use crate::ops::{Kernel, OperationKind, WorkloadKey};
use crate::store::{Evidence, Pinned, Refused, Store, unix_ms};
use crate::tracking::{HALF_LIFE, History, Learner, Models, RETENTION_HALF_LIVES, Timings};

/// Workloads whose history is kept in memory; the store has them all.
const MOST_HISTORIES: usize = 1 << 16;

/// What every table of one runtime shares: kernels, evidence, models.
pub(crate) struct Knowledge {
    pub registry: KernelRegistry,
    pub device: Arc<CpuDevice>,
    pub limits: Limits,
    pub budget: Budget,
    pub store: Arc<dyn Store>,
    pub models: Arc<ArcSwap<Models>>,
    pub learner: Learner,
    pub fingerprint: Fingerprint,
    sources: Arc<Sources>,
    histories: Mutex<HashMap<WorkloadKey, Arc<History>>>,
    pinned: Mutex<HashMap<WorkloadKey, Pinned>>,
    pub frozen: bool,
    /// Whether anyone will read what is measured: a frozen runtime and one without peaks learn nothing.
    pub learns: bool,
}

/// The source of every kernel that comes with the library.
pub(crate) struct Sources(HashMap<String, u64>);

impl Sources {
    pub fn of(registry: &KernelRegistry) -> Self {
        let kernels = OperationKind::ALL.iter().flat_map(|&operation| registry.kernels(operation));
        Self(kernels.map(|kernel| (kernel.name().to_owned(), kernel.source())).collect())
    }

    /// Whether a row counts for its workload: a kernel whose code has changed starts anew. A user's kernel goes by its name,
    /// because its times count only after it was checked in this process.
    fn agree(&self, row: &Evidence) -> bool {
        !row.busy && self.0.get(&row.kernel).is_none_or(|&source| source == row.source)
    }

    /// Whether models learn from a row: only of kernels that are known to be the same still.
    pub fn teach(&self, row: &Evidence) -> bool {
        !row.busy && self.0.get(&row.kernel) == Some(&row.source)
    }
}

impl Knowledge {
    /// What the store has about this device is read when it is needed: a workload's rows when it is first asked for, all
    /// of them by the learner's thread.
    pub fn new(
        device: Arc<CpuDevice>,
        others: Vec<Arc<dyn Kernel>>,
        limits: Limits,
        exploration: f64,
        algorithm: SelectionAlgorithm,
        training: Training,
        store: Arc<dyn Store>,
    ) -> Self {
        let models: Arc<ArcSwap<Models>> = Arc::default();
        let fingerprint = Fingerprint::of(device.info());
        let frozen = algorithm == SelectionAlgorithm::Frozen;
        let learns = !frozen && device.info().peaks.is_some();
        let registry = KernelRegistry::with(others);
        let knowledge = Self {
            sources: Arc::new(Sources::of(&registry)),
            registry,
            limits,
            budget: Budget::new(if frozen { 0.0 } else { exploration }),
            learner: Learner::new(device.info().clone(), Arc::clone(&store), Arc::clone(&models), training),
            device,
            store,
            models,
            fingerprint,
            histories: Mutex::default(),
            pinned: Mutex::default(),
            frozen,
            learns,
        };
        if let Err(error) = knowledge.recall() {
            tracing::warn!(%error, "the store could not be read; this process starts without its evidence");
        }
        knowledge
    }

    fn recall(&self) -> crate::store::Result<()> {
        let oldest = unix_ms() - HALF_LIFE.as_millis() as i64 * i64::from(RETENTION_HALF_LIVES);
        self.store.prune(oldest)?;
        if self.frozen {
            let pinned = self.store.pinned(&self.fingerprint)?;
            let mut known = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
            known.extend(pinned.into_iter().map(|p| (p.workload, p)));
            return Ok(());
        }
        if !self.store.is_empty()? {
            self.learner.recall(Arc::clone(&self.sources));
        }
        Ok(())
    }

    /// What is known about a workload.
    pub fn history(&self, key: WorkloadKey) -> Arc<History> {
        let histories = || self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = histories().get(&key) {
            return Arc::clone(known);
        }
        // Read without the lock, so that nobody else waits for a file.
        let recalled = self.recalled(key);
        let mut histories = histories();
        if histories.len() >= MOST_HISTORIES {
            // Those that a table still uses stay with it; the others come back from the store.
            histories.retain(|_, history| Arc::strong_count(history) > 1);
        }
        Arc::clone(histories.entry(key).or_insert(recalled))
    }

    /// What earlier processes measured of a workload.
    fn recalled(&self, key: WorkloadKey) -> Arc<History> {
        let history = History::default();
        if self.frozen {
            return Arc::new(history);
        }
        let rows = self.store.load_workload(&self.fingerprint, key).unwrap_or_else(|error| {
            tracing::warn!(%error, "the store could not be read; a workload starts without its evidence");
            Vec::new()
        });
        let rows: Vec<_> = rows.into_iter().filter(|row| self.sources.agree(row)).collect();
        for row in &rows {
            let timings = Timings {
                seconds: row.seconds,
                samples: u64::from(row.samples),
                spread: row.spread,
                at: row.measured_at,
            };
            history.add(&row.kernel, &row.parameters, &timings);
            history.set_raced();
        }
        if let Some(row) = used_last(&rows) {
            history.resume(&row.kernel, &row.parameters);
        }
        Arc::new(history)
    }

    /// Remembers in the store that a tuner must not try a candidate again.
    pub fn refuse(&self, key: WorkloadKey, candidate: &Candidate, reason: &str) {
        let (kernel, parameters) = (candidate.kernel.name().to_owned(), candidate.parameters.to_string());
        let (source, reason) = (candidate.kernel.source(), reason.to_owned());
        let refused = Refused { workload: key, kernel, source, parameters, reason, at: unix_ms() };
        if let Err(error) = self.store.refuse(&self.fingerprint, &refused) {
            tracing::warn!(%error, "a refused candidate could not be kept and may be tried again");
        }
    }

    /// What a tuner must not try again for a workload.
    pub fn refused(&self, key: WorkloadKey) -> Vec<Refused> {
        self.store.refused(&self.fingerprint, key).unwrap_or_else(|error| {
            tracing::warn!(%error, "what was refused before could not be read and may be tried again");
            Vec::new()
        })
    }

    /// Waits until everything measured is written and learned.
    pub fn flush(&self) {
        self.learner.flush();
    }

    pub fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// The pinned decision for a workload, if there is one.
    pub fn pinned(&self, key: WorkloadKey) -> Option<Pinned> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// The pinned decision for a workload, or `wanted` if there was none; the first process to pin wins.
    pub fn pin(&self, key: WorkloadKey, wanted: &Candidate) -> Pinned {
        let mut known = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pinned) = known.get(&key) {
            return pinned.clone();
        }
        let wanted = Pinned {
            workload: key,
            kernel: wanted.kernel.name().to_owned(),
            source: wanted.kernel.source(),
            parameters: wanted.parameters.to_string(),
        };
        let pinned = self.store.pin(&self.fingerprint, &wanted).unwrap_or_else(|error| {
            tracing::warn!(%error, "a frozen choice could not be kept; it holds in this process only");
            wanted
        });
        known.insert(key, pinned.clone());
        pinned
    }
}

/// Rows this close to the newest were measured together: by a race, a tuner, or a choice that has run since.
const TOGETHER_MS: i64 = 60_000;

/// What an earlier process ran last: of what was measured last the fastest, because a race or a tuner leaves rows of losers too.
fn used_last(rows: &[Evidence]) -> Option<&Evidence> {
    let newest = rows.iter().map(|row| row.measured_at).max()?;
    let last = rows.iter().filter(|row| newest - row.measured_at <= TOGETHER_MS);
    last.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::tests::example;

    fn row(kernel: &str, seconds: f64, measured_at: i64) -> Evidence {
        Evidence { kernel: kernel.into(), seconds, measured_at, ..example(1) }
    }

    #[test]
    fn what_ran_last_is_the_winner_of_the_last_race() {
        assert!(used_last(&[]).is_none());
        let race = [row("slow", 2.0, 1_000_000), row("fast", 1.0, 1_000_010), row("slower", 3.0, 1_000_020)];
        assert_eq!(used_last(&race).unwrap().kernel, "fast");
        let later = [&race[..], &[row("slow", 2.5, 9_000_000)]].concat();
        assert_eq!(used_last(&later).unwrap().kernel, "slow", "it ran long after the race");
    }
}
