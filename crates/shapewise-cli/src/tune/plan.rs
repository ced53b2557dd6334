//! What is measured, and in which order.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use anyhow::Result;
use shapewise::Runtime;
use shapewise::device::Fingerprint;
use shapewise::ops::{OperationKind, Workload};
use shapewise::selection::Candidate;
use shapewise::store::Store;

/// The selector never tries a candidate that it expects to take longer than this multiple of the leader.
const EXPLORED: f64 = 2.0;

/// Workloads to measure, the most valuable first.
pub struct Plan<'a> {
    /// In this order.
    pub queue: Vec<&'a Workload>,
    /// Workloads that need no measuring any more.
    pub known: usize,
}

/// Kernels with their sources and parameters that have a time.
type Times = HashSet<(String, u64, String)>;

impl<'a> Plan<'a> {
    /// Leaves out what the store has; operations take turns, and in each the workload with the most rivals comes first.
    pub fn new(cold: &Runtime, suite: &'a [Workload], store: &dyn Store) -> Result<Self> {
        let mut measured: HashMap<u128, Times> = HashMap::new();
        store.visit(Some(&Fingerprint::of(cold.device_info())), &mut |row| {
            if !row.busy {
                let times = measured.entry(row.workload.bits()).or_default();
                times.insert((row.kernel, row.source, row.parameters));
            }
        })?;
        let nothing = Times::new();
        let mut operations: BTreeMap<OperationName, Vec<(usize, &Workload)>> = BTreeMap::new();
        let mut known = 0;
        for workload in suite {
            let candidates = cold.selector().candidates(workload)?;
            let times = measured.get(&workload.key().bits()).unwrap_or(&nothing);
            if owes(&candidates, times) {
                let list = operations.entry(OperationName(workload.kind())).or_default();
                list.push((rivals(&candidates), workload));
            } else {
                known += 1;
            }
        }
        let mut lists: Vec<VecDeque<&Workload>> = Vec::new();
        for mut list in operations.into_values() {
            list.sort_by_key(|(rivals, _)| std::cmp::Reverse(*rivals));
            lists.push(list.into_iter().map(|(_, workload)| workload).collect());
        }
        let mut queue = Vec::new();
        while lists.iter().any(|list| !list.is_empty()) {
            queue.extend(lists.iter_mut().filter_map(VecDeque::pop_front));
        }
        Ok(Self { queue, known })
    }
}

/// An operation in the order of its name.
#[derive(PartialEq, Eq)]
struct OperationName(OperationKind);

impl Ord for OperationName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.name().cmp(other.0.name())
    }
}

impl PartialOrd for OperationName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Whether a candidate has no time yet, or one of another version of its code.
fn owes(candidates: &[Candidate], times: &Times) -> bool {
    let key = |c: &Candidate| (c.kernel.name().to_owned(), c.kernel.source(), c.parameters.to_string());
    candidates.iter().any(|c| !times.contains(&key(c)))
}

/// Candidates that the peaks allow at most twice the time of the least demanding one.
fn rivals(candidates: &[Candidate]) -> usize {
    let limits = || candidates.iter().filter_map(Candidate::roofline);
    let least = limits().fold(f64::INFINITY, f64::min);
    limits().filter(|limit| *limit <= EXPLORED * least).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shapewise::Tensor;
    use shapewise::store::MemoryStore;

    #[test]
    fn operations_take_turns_and_known_workloads_are_left_out() {
        let runtime = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let ask = |n: usize| {
            let x = Tensor::full(1.0f32, &[n]).unwrap();
            [
                runtime.workloads(|rt| rt.relu(&x)).unwrap().remove(0),
                runtime.workloads(|rt| rt.sum(&x, ..)).unwrap().remove(0),
            ]
        };
        let [[relu, sum], [other_relu, other_sum]] = [10, 20].map(ask);
        let suite = [relu.clone(), other_relu, sum, other_sum];
        let store = MemoryStore::new();
        let plan = Plan::new(&runtime, &suite, &store).unwrap();
        let kinds: Vec<&str> = plan.queue.iter().map(|w| w.kind().name()).collect();
        assert_eq!(kinds, ["elementwise", "reduce", "elementwise", "reduce"]);
        let mut rows = super::super::measure::Meter::new(&runtime).measure(&relu).unwrap().rows;
        // The busy machine of a test must not decide.
        for row in &mut rows {
            row.busy = false;
        }
        store.append(&rows).unwrap();
        assert_eq!(Plan::new(&runtime, &suite, &store).unwrap().known, 1);
    }
}
