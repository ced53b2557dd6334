//! The decision table: an immutable snapshot that calls read without a lock.

use std::hash::Hasher;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::KernelHandle;
use crate::ops::{KeptWords, Parameters, Words, Workload};

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

/// A workload and what was picked for it.
pub(crate) struct Entry {
    key: KeptWords,
    /// What was asked for; its descriptions serve every later call.
    pub workload: Workload,
    /// What was picked.
    pub choice: Arc<Choice>,
}

/// Entries by hash, each in the first free place from its own on; at most half of the places are taken.
#[derive(Clone, Default)]
struct Snapshot {
    generation: u64,
    places: Vec<Option<Arc<Entry>>>,
    len: usize,
}

impl Snapshot {
    #[inline]
    fn find(&self, key: &Words) -> Option<&Arc<Entry>> {
        let hash = key.finish();
        // Without places there is no mask, and the first look finds nothing.
        let mask = self.places.len().wrapping_sub(1);
        let mut place = hash as usize & mask;
        while let Some(Some(entry)) = self.places.get(place) {
            if entry.key.is(key, hash) {
                return Some(entry);
            }
            place = (place + 1) & mask;
        }
        None
    }

    fn insert(&mut self, key: &Words, entry: Arc<Entry>) {
        if self.find(key).is_none() {
            self.len += 1;
        }
        if 2 * self.len > self.places.len() {
            let larger = vec![None; (4 * self.len).next_power_of_two()];
            for old in std::mem::replace(&mut self.places, larger).into_iter().flatten() {
                self.put(old);
            }
        }
        self.put(entry);
    }

    /// Takes the place of the same key, or the first free one.
    fn put(&mut self, entry: Arc<Entry>) {
        let mask = self.places.len() - 1;
        let mut place = entry.key.hash() as usize & mask;
        while self.places[place].as_ref().is_some_and(|other| other.key != entry.key) {
            place = (place + 1) & mask;
        }
        self.places[place] = Some(entry);
    }
}

/// Choices by workload.
#[derive(Default)]
pub(crate) struct DecisionTable(ArcSwap<Snapshot>);

impl DecisionTable {
    /// Calls `found` with the entry of a workload, if there is one of this generation.
    #[inline]
    pub fn with<R>(&self, key: &Words, generation: u64, found: impl FnOnce(&Entry) -> R) -> Option<R> {
        let snapshot = self.0.load();
        if snapshot.generation != generation {
            return None;
        }
        snapshot.find(key).map(|entry| found(entry))
    }

    /// The choice for a workload, if there is one of this generation.
    pub fn get(&self, workload: &Workload, generation: u64) -> Option<Arc<Choice>> {
        self.with(&Words::of(workload), generation, |entry| Arc::clone(&entry.choice))
    }

    /// Publishes a choice; choices of older generations are dropped.
    pub fn publish(&self, workload: &Workload, generation: u64, choice: &Arc<Choice>) {
        let key = Words::of(workload);
        let entry =
            Arc::new(Entry { key: key.keep(), workload: workload.clone(), choice: Arc::clone(choice) });
        self.0.rcu(|old| {
            let mut new = if old.generation == generation {
                Snapshot::clone(old)
            } else {
                Snapshot { generation, ..Snapshot::default() }
            };
            new.insert(&key, Arc::clone(&entry));
            new
        });
    }

    /// Number of workloads decided.
    pub fn len(&self) -> usize {
        self.0.load().len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::elementwise::{Function, Program};
    use crate::ops::{Operation, OperationKind, TensorDesc};
    use crate::tensor::{DType, Shape};

    fn workload(len: usize) -> Workload {
        let desc = TensorDesc::contiguous(DType::F32, Shape::filled(len, 1));
        Workload::new(Operation::Elementwise(Program::single(Function::Neg, &[])), &[desc], &[desc])
    }

    fn choice(reason: &str) -> Arc<Choice> {
        let kernel = KernelHandle::BuiltIn(OperationKind::Elementwise.kernels()[0]);
        Arc::new(Choice { kernel, parameters: Parameters::new(), predicted: None, reason: reason.into() })
    }

    #[test]
    fn every_published_choice_is_found_and_the_last_one_counts() {
        let table = DecisionTable::default();
        assert!(table.get(&workload(0), 0).is_none());
        for len in 0..100 {
            table.publish(&workload(len), 0, &choice("first"));
        }
        table.publish(&workload(7), 0, &choice("second"));
        assert_eq!(table.len(), 100);
        for len in 0..100 {
            let reason = if len == 7 { "second" } else { "first" };
            assert_eq!(table.get(&workload(len), 0).unwrap().reason, reason);
        }
        assert!(table.get(&workload(100), 0).is_none());
        table.publish(&workload(1), 1, &choice("later"));
        assert_eq!((table.len(), table.get(&workload(1), 0).is_none()), (1, true));
    }
}
