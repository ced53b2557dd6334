//! What can only be seen in a running process: the time of decisions, and frozen choices over restarts.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;
use shapewise::Runtime;
use shapewise::device::Fingerprint;
use shapewise::measure::{Rehearsal, Summary};
use shapewise::modelling::FEATURES_VERSION;
use shapewise::ops::{OperationKind, Workload, WorkloadKey};
use shapewise::selection::SelectionAlgorithm;
use shapewise::store::{Evidence, EvidenceId, StoreLocation, unix_ms};

use super::oracle::{Oracle, Problem};

/// Restarts of a frozen runtime.
const RESTARTS: usize = 100;
/// Workloads that are decided in each of them.
const FROZEN: usize = 40;
/// Decisions timed together: one takes about as long as reading the clock.
const BATCH: u32 = 32;

/// What running found.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Nanoseconds of a decision that is in the table: median and 99th percentile of batches of 32.
    pub hit_ns: [f64; 2],
    /// Microseconds of a decision that is not, with predictions for all candidates: median over the suite.
    pub miss_us: f64,
    /// Microseconds of the workload with the most candidates, and their number.
    pub largest_miss: (f64, usize),
    /// Whether 100 restarts of a frozen runtime chose the same.
    pub frozen_identical: bool,
}

/// Times decisions and restarts frozen runtimes.
pub fn observe(runtime: &Runtime, oracle: &Oracle, suite: &[Workload]) -> Result<Figures> {
    let runtime = &taught(runtime, oracle)?;
    let mut misses = Vec::new();
    for workload in suite {
        let candidates = runtime.selector().candidates(workload)?.len();
        let times: Vec<f64> = (0..9)
            .map(|_| {
                let start = Instant::now();
                std::hint::black_box(runtime.selector().candidates(workload).map(|c| c.len())).ok();
                start.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        misses.push((Summary::of(&times).map_or(0.0, |s| s.median), candidates));
    }
    misses.sort_by(|a, b| a.0.total_cmp(&b.0));
    let largest = misses.iter().max_by_key(|m| m.1).copied().unwrap_or((0.0, 0));
    Ok(Figures {
        hit_ns: hits(runtime, suite)?,
        miss_us: misses[misses.len() / 2].0,
        largest_miss: largest,
        frozen_identical: frozen(suite, runtime.device_info().threads)?,
    })
}

/// A runtime whose models have learned from the oracle, as those of a machine in use have.
fn taught(runtime: &Runtime, oracle: &Oracle) -> Result<Runtime> {
    let folder = std::env::temp_dir().join(format!("shapewise-taught-{}", std::process::id()));
    let location = StoreLocation::File(folder.join("evidence.sqlite"));
    let device = Fingerprint::of(runtime.device_info());
    let rows: Vec<Evidence> = oracle.problems.iter().flat_map(|p| evidence(p, &device)).collect();
    location.open().append(&rows)?;
    let taught = Runtime::builder().threads(runtime.device_info().threads).store(location).build()?;
    taught.flush();
    std::fs::remove_dir_all(&folder)?;
    Ok(taught)
}

/// A problem's times as rows. Their keys are changed, so that the shapes count as never seen.
fn evidence(problem: &Problem, device: &Fingerprint) -> impl Iterator<Item = Evidence> {
    let key = WorkloadKey::from_bits(!problem.workload.key().bits());
    problem.candidates.iter().map(move |c| Evidence {
        id: EvidenceId::new(),
        device: device.clone(),
        operation: problem.kind().name().to_owned(),
        workload: key,
        description: problem.workload.to_string(),
        kernel: c.times.kernel.clone(),
        source: source(problem.kind(), &c.times.kernel),
        parameters: c.times.parameters.clone(),
        seconds: c.seconds,
        samples: c.times.samples().count() as u32,
        spread: None,
        busy: false,
        baseline: Some(c.baseline),
        features: c.features.0.to_vec(),
        features_version: FEATURES_VERSION,
        measured_at: unix_ms(),
    })
}

/// The hash of a built-in kernel's source; rows of another one would not count.
fn source(operation: OperationKind, kernel: &str) -> u64 {
    operation.kernels().iter().find(|k| k.name() == kernel).map_or(0, |k| k.source())
}

fn hits(runtime: &Runtime, suite: &[Workload]) -> Result<[f64; 2]> {
    let mut times = Vec::new();
    // Tiny workloads only: deciding them means running them once.
    for workload in suite.iter().filter(|w| w.bytes() < 1 << 20) {
        let mut rehearsal = Rehearsal::new(runtime, workload)?;
        let request = rehearsal.request();
        runtime.execute(&request)?;
        for _ in 0..50 {
            let start = Instant::now();
            for _ in 0..BATCH {
                std::hint::black_box(runtime.selector().is_decided(std::hint::black_box(&request)));
            }
            times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH));
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    Ok([at(0.5), at(0.99)])
}

fn frozen(suite: &[Workload], threads: usize) -> Result<bool> {
    let folder = std::env::temp_dir().join(format!("shapewise-frozen-{}", std::process::id()));
    // Small ones, because each is run in every restart.
    let small: Vec<&Workload> = suite.iter().filter(|w| w.bytes() < 1 << 20).collect();
    let few: Vec<&Workload> = small.iter().step_by((small.len() / FROZEN).max(1)).copied().collect();
    let choices = || -> Result<Vec<(String, String)>> {
        let runtime = Runtime::builder()
            .threads(threads)
            .store(StoreLocation::File(folder.join("evidence.sqlite")))
            .algorithm(SelectionAlgorithm::Frozen)
            .build()?;
        let choice = |w: &&Workload| -> Result<(String, String)> {
            // A question keeps nothing: only a call pins its choice.
            let mut rehearsal = Rehearsal::new(&runtime, w)?;
            runtime.execute(&rehearsal.request())?;
            let why = runtime.explain_workload(w)?;
            Ok((why.chosen, why.parameters))
        };
        few.iter().map(choice).collect()
    };
    let first = choices()?;
    let mut identical = true;
    for _ in 0..RESTARTS {
        identical &= choices()? == first;
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(identical)
}
