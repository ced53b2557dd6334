//! The decision table: an immutable snapshot that calls read without a lock.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustc_hash::FxBuildHasher;

use super::KernelHandle;
use crate::ops::{Parameters, Workload};

/// The picked candidate.
#[derive(Clone)]
pub struct Choice {
    /// The kernel.
    pub kernel: KernelHandle,
    /// Values of its tunables.
    pub parameters: Parameters,
    /// Predicted seconds, where it could be predicted.
    pub predicted: Option<f64>,
    /// The rule that decided.
    pub reason: String,
}

#[derive(Clone, Default)]
struct Snapshot {
    generation: u64,
    choices: HashMap<Arc<Workload>, Arc<Choice>, FxBuildHasher>,
}

/// Choices by workload.
#[derive(Default)]
pub(crate) struct DecisionTable(ArcSwap<Snapshot>);

impl DecisionTable {
    /// Calls `found` with the choice for a workload, if there is one of this generation.
    #[inline]
    pub fn with<R>(
        &self,
        workload: &Workload,
        generation: u64,
        found: impl FnOnce(&Choice) -> R,
    ) -> Option<R> {
        let snapshot = self.0.load();
        if snapshot.generation != generation {
            return None;
        }
        snapshot.choices.get(workload).map(|choice| found(choice))
    }

    /// The choice for a workload, if there is one of this generation.
    pub fn get(&self, workload: &Workload, generation: u64) -> Option<Arc<Choice>> {
        let snapshot = self.0.load();
        snapshot.choices.get(workload).filter(|_| snapshot.generation == generation).cloned()
    }

    /// Publishes a choice; choices of older generations are dropped.
    pub fn publish(&self, workload: &Workload, generation: u64, choice: &Arc<Choice>) {
        let key = Arc::new(workload.clone());
        self.0.rcu(|old| {
            let mut new = if old.generation == generation {
                Snapshot::clone(old)
            } else {
                Snapshot { generation, ..Snapshot::default() }
            };
            new.choices.insert(Arc::clone(&key), Arc::clone(choice));
            new
        });
    }

    /// Number of workloads decided.
    pub fn len(&self) -> usize {
        self.0.load().choices.len()
    }
}
