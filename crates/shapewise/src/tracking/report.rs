//! What happened so far, by kernel and by operation, judged in hindsight.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::Track;
use crate::device::BackendKind;
use crate::measure::Summary;
use crate::ops::{OperationKind, Workload};

/// A choice within this share of the measured best counts as the best: less than timings repeat to.
const SAME: f64 = 0.02;

/// What one kernel did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelStatistics {
    /// Its name.
    pub kernel: String,
    /// Calls it computed in this process.
    pub executions: u64,
    /// Calls it failed.
    pub failures: u64,
    /// Workloads it was picked for.
    pub selections: u64,
    /// Share of all picks that fell on it, among kernels of its operation.
    pub selection_frequency: f64,
    /// Microseconds over the workloads that it was timed on.
    pub time_us: Option<Summary>,
    /// Milliseconds since 1970.
    pub last_used: Option<i64>,
}

/// How good the choices were, against the best that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// The operation.
    pub operation: OperationKind,
    /// The backend of the kernels that ran.
    pub backend: BackendKind,
    /// Workloads of which two candidates or more were timed: only those can be judged.
    pub judged: usize,
    /// Workloads of which too little is known.
    pub unjudged: usize,
    /// Time lost against the measured best, geometric mean over the workloads; `None` when none is judged.
    pub regret: Option<f64>,
    /// The same for the worst hundredth.
    pub regret_p99: Option<f64>,
    /// Share of the workloads whose choice was within two per cent of the measured best.
    pub best_share: Option<f64>,
    /// How often a workload's kernel was replaced.
    pub switches: u64,
}

/// What happened to one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkloadStatistics {
    /// The workload in words.
    pub workload: String,
    /// The kernel that runs now.
    pub kernel: String,
    /// Its parameters, in words.
    pub parameters: String,
    /// How often another one took its place.
    pub switches: u64,
    /// Calls in this process.
    pub executions: u64,
    /// Candidates that were timed.
    pub timed: usize,
    /// Time lost against the best of them; `None` where fewer than two were timed.
    pub regret: Option<f64>,
}

/// One workload as far as it is reported.
pub(crate) struct Observed {
    pub workload: Arc<Workload>,
    pub operation: OperationKind,
    pub backend: BackendKind,
    pub current: (String, String),
    pub switches: u64,
    pub tracks: Vec<Track>,
}

impl Observed {
    /// Time of the choice over the best time, less one.
    fn regret(&self) -> Option<f64> {
        let measured = |t: &Track| t.measured().map(|m| m.seconds);
        let times: Vec<f64> = self.tracks.iter().filter_map(measured).collect();
        if times.len() < 2 {
            return None;
        }
        let is_current = |t: &&Track| t.kernel == self.current.0 && t.parameters == self.current.1;
        let own = self.tracks.iter().find(is_current).and_then(measured)?;
        Some(own / times.iter().copied().fold(f64::INFINITY, f64::min) - 1.0)
    }
}

/// What happened to each workload.
pub(crate) fn workloads(observed: &[Observed]) -> Vec<WorkloadStatistics> {
    let tell = |one: &Observed| WorkloadStatistics {
        workload: one.workload.to_string(),
        kernel: one.current.0.clone(),
        parameters: one.current.1.clone(),
        switches: one.switches,
        executions: one.tracks.iter().map(|t| t.executions).sum(),
        timed: one.tracks.iter().filter(|t| t.measured().is_some()).count(),
        regret: one.regret(),
    };
    observed.iter().map(tell).collect()
}

/// Regret by operation and backend.
pub(crate) fn accuracy(observed: &[Observed]) -> Vec<Accuracy> {
    let mut groups: BTreeMap<(OperationKind, String), Vec<&Observed>> = BTreeMap::new();
    for one in observed {
        groups.entry((one.operation, one.backend.to_string())).or_default().push(one);
    }
    let judge = |((operation, _), group): ((OperationKind, String), Vec<&Observed>)| {
        let mut regrets: Vec<f64> = group.iter().filter_map(|o| o.regret()).collect();
        regrets.sort_by(f64::total_cmp);
        let judged = regrets.len();
        let mean = regrets.iter().map(|r| r.ln_1p()).sum::<f64>() / judged as f64;
        let best = regrets.iter().filter(|r| **r <= SAME).count();
        let some = |value: f64| (judged > 0).then_some(value);
        Accuracy {
            operation,
            backend: group[0].backend,
            judged,
            unjudged: group.len() - judged,
            regret: some(mean.exp_m1()),
            regret_p99: regrets.get((judged * 99).div_ceil(100).saturating_sub(1)).copied(),
            best_share: some(best as f64 / judged as f64),
            switches: group.iter().map(|o| o.switches).sum(),
        }
    };
    groups.into_iter().map(judge).collect()
}

/// What each kernel did.
pub(crate) fn kernels(observed: &[Observed]) -> Vec<KernelStatistics> {
    let mut picks: BTreeMap<OperationKind, u64> = BTreeMap::new();
    let mut groups: BTreeMap<(OperationKind, &str), Vec<&Track>> = BTreeMap::new();
    for one in observed {
        for track in &one.tracks {
            *picks.entry(one.operation).or_default() += track.selections;
            groups.entry((one.operation, &track.kernel)).or_default().push(track);
        }
    }
    let sum = |((operation, kernel), tracks): ((OperationKind, &str), Vec<&Track>)| {
        let times: Vec<f64> = tracks.iter().filter_map(|t| t.measured()).map(|m| m.seconds * 1e6).collect();
        let selections: u64 = tracks.iter().map(|t| t.selections).sum();
        KernelStatistics {
            kernel: kernel.to_owned(),
            executions: tracks.iter().map(|t| t.executions).sum(),
            failures: tracks.iter().map(|t| t.failures).sum(),
            selections,
            selection_frequency: selections as f64 / picks[&operation].max(1) as f64,
            time_us: Summary::of(&times),
            last_used: tracks.iter().filter_map(|t| t.last_used).max(),
        }
    };
    groups.into_iter().map(sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::softmax::SoftmaxAttributes;
    use crate::ops::{Operation, TensorDesc};
    use crate::tensor::{DType, Shape};
    use crate::tracking::{History, Timings};

    fn observed(times: &[(&str, f64)], current: &str) -> Observed {
        let history = History::default();
        for &(kernel, seconds) in times {
            let timings = Timings { seconds, samples: 5, spread: Some(0.01), at: 1 };
            history.add(kernel, "", &timings);
        }
        history.select(current, "");
        let x = TensorDesc::contiguous(DType::F32, Shape::new(&[3]).unwrap());
        let softmax = Operation::Softmax(SoftmaxAttributes::default());
        Observed {
            workload: Arc::new(Workload::new(softmax, &[x], &[x])),
            operation: OperationKind::Matmul,
            backend: BackendKind::Cpu,
            current: history.current().unwrap(),
            switches: history.switches(),
            tracks: history.tracks(),
        }
    }

    #[test]
    fn regret_is_against_the_measured_best() {
        let all = [
            observed(&[("a", 1.0), ("b", 2.0)], "a"),
            observed(&[("a", 1.21), ("b", 1.0)], "a"),
            observed(&[("a", 1.0)], "a"),
        ];
        let found = accuracy(&all);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].judged, found[0].unjudged), (2, 1));
        assert!((found[0].regret.unwrap() - 0.1).abs() < 1e-9);
        assert!((found[0].regret_p99.unwrap() - 0.21).abs() < 1e-9);
        assert_eq!(found[0].best_share, Some(0.5));
    }

    #[test]
    fn a_workload_tells_what_runs_and_what_that_loses() {
        let found = workloads(&[observed(&[("a", 1.5), ("b", 1.0)], "a"), observed(&[("a", 1.0)], "a")]);
        assert_eq!((&*found[0].kernel, found[0].timed, found[0].regret), ("a", 2, Some(0.5)));
        assert_eq!((found[1].switches, found[1].timed, found[1].regret), (0, 1, None));
    }

    #[test]
    fn without_a_second_candidate_nothing_is_called_right() {
        let found = accuracy(&[observed(&[("a", 1.0)], "a")]);
        assert_eq!((found[0].regret, found[0].best_share), (None, None));
    }

    #[test]
    fn picks_and_times_are_summed_by_kernel() {
        let all = [observed(&[("a", 1.0), ("b", 2.0)], "a"), observed(&[("a", 3.0)], "b")];
        let found = kernels(&all);
        assert_eq!(found.iter().map(|k| &*k.kernel).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((found[0].selections, found[0].selection_frequency), (1, 0.5));
        assert_eq!(found[0].time_us.unwrap().samples, 2);
    }
}
