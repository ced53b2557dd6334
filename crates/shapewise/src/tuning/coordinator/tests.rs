//! Campaigns on recorded times.

use std::cell::RefCell;
use std::collections::HashMap;

use super::*;
use crate::Result;
use crate::device::DeviceInfo;
use crate::modelling::Terms;
use crate::ops::{ComputeUnit, Cost, Knob, OperationKind, Parameters, Traffic, Workload};
use crate::selection::Candidate;
use crate::selection::KernelHandle;
use crate::sensors::{PowerMode, Trace};
use crate::tensor::DType;
use crate::tracking::Measured;
use crate::tuning::search::Trial;
use crate::tuning::testing::{device, matmul, relu};
use crate::tuning::{BackendTuningStrategy, Bound, CpuStrategy, OptimisationLevel};

/// A bench whose times are made up: a bowl over two blocks, whose depth depends on the workload.
struct Recorded {
    info: DeviceInfo,
    depth: fn(&Workload) -> f64,
    failing: Option<u32>,
    /// Whether every third call of a candidate takes a half longer.
    swings: bool,
    calls: RefCell<HashMap<String, usize>>,
    kept: RefCell<HashMap<(String, String), Vec<f64>>>,
    refused: RefCell<Vec<String>>,
    settled: RefCell<Vec<String>>,
    order: RefCell<Vec<String>>,
}

impl Recorded {
    fn new(depth: fn(&Workload) -> f64) -> Self {
        Self {
            info: device(),
            depth,
            failing: None,
            swings: false,
            calls: RefCell::default(),
            kept: RefCell::default(),
            refused: RefCell::default(),
            settled: RefCell::default(),
            order: RefCell::default(),
        }
    }

    fn seconds(&self, workload: &Workload, parameters: &Parameters) -> f64 {
        let at = |knob| f64::from(parameters.get(knob).unwrap_or(0));
        let far = (at(Knob::BlockM) - 7.0).powi(2) / 49.0 + (at(Knob::BlockN) - 6.0).powi(2) / 36.0;
        1e-3 * (1.0 + (self.depth)(workload) * far)
    }

    fn key(workload: &Workload, candidate: &Candidate) -> (String, String) {
        (workload.to_string(), candidate.parameters.to_string())
    }
}

struct Times<'a> {
    bench: &'a Recorded,
    workload: &'a Workload,
    candidates: &'a [Candidate],
}

impl Trial for Times<'_> {
    fn sample(&mut self, point: usize) -> Result<f64, String> {
        let parameters = &self.candidates[point].parameters;
        self.bench.order.borrow_mut().push(self.workload.to_string());
        if self.bench.failing.is_some_and(|block| parameters.get(Knob::BlockM) == Some(block)) {
            return Err("wrong answer".into());
        }
        let mut calls = self.bench.calls.borrow_mut();
        let count = calls.entry(parameters.to_string()).or_default();
        *count += 1;
        let late = self.bench.swings && count.is_multiple_of(3);
        Ok(self.bench.seconds(self.workload, parameters) * if late { 1.5 } else { 1.0 })
    }
}

impl Workbench for Recorded {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn candidates(&self, workload: &Workload) -> Result<Vec<Candidate>> {
        // The kernel that the strategy recommends, so that it hears of the times.
        let (state, none) = (SystemState::default(), TuningConstraints::default());
        let told = CpuStrategy::new(self.info.clone()).tune_for_workload(workload, &state, &none).unwrap();
        let kernels = workload.kind().kernels();
        let place = kernels.iter().position(|k| Some(k.name()) == told.kernel).unwrap();
        let kernel = KernelHandle::BuiltIn(kernels[place]);
        let unit = ComputeUnit { dtype: DType::F32, isa: None };
        let mut all = Vec::new();
        for m in 0..11 {
            for n in 0..11 {
                let parameters = Parameters::new().with(Knob::BlockM, m).with(Knob::BlockN, n);
                let candidate = Candidate {
                    kernel: kernel.clone(),
                    parameters: parameters.with(Knob::Threads, 1 + m % 2),
                    cost: Cost { scratch: 1000 * m as usize, ..Cost::new(1e6, unit, Traffic::default()) },
                    terms: Some(Terms { arithmetic: 5e-4, ..Terms::default() }),
                    learned: None,
                    measured: None,
                    predicted: None,
                };
                let kept = self.kept.borrow();
                let measured = kept.get(&Self::key(workload, &candidate)).map(|samples| Measured {
                    seconds: samples[0],
                    samples: samples.len() as u64,
                    spread: None,
                });
                all.push(Candidate { measured, ..candidate });
            }
        }
        Ok(all)
    }

    fn trial<'a>(
        &'a self,
        workload: &'a Workload,
        candidates: &'a [Candidate],
    ) -> Result<Box<dyn Trial + 'a>> {
        Ok(Box::new(Times { bench: self, workload, candidates }))
    }

    fn keep(&self, workload: &Workload, candidate: &Candidate, samples: &[f64]) {
        self.kept.borrow_mut().entry(Self::key(workload, candidate)).or_default().extend(samples);
    }

    fn refuse(&self, _: &Workload, candidate: &Candidate, reason: &str) {
        self.refused.borrow_mut().push(format!("{} {reason}", candidate.parameters));
    }

    fn settle(&self, workload: &Workload) {
        self.settled.borrow_mut().push(workload.to_string());
    }
}

fn tasks(list: &[(Workload, f64)]) -> Vec<TuningTask> {
    list.iter()
        .map(|(workload, weight)| TuningTask { workload: workload.clone(), weight: *weight, calls: None })
        .collect()
}

fn steep(_: &Workload) -> f64 {
    2.0
}

#[test]
fn a_workload_is_tuned_and_everything_is_kept() {
    let bench = Recorded::new(steep);
    let budget = TuningBudget { trials: Some(40), time: None };
    let report = Coordinator::new(&bench).tune(&tasks(&[(matmul(8, 8, 8), 1.0)]), &budget, &mut |_| true);
    let tuned = &report.workloads[0];
    assert_eq!((tuned.points, tuned.trials), (121, report.trials));
    assert_eq!(bench.kept.borrow().len(), report.trials, "losers too");
    assert_eq!(bench.settled.borrow().last(), Some(&tuned.workload));
    let (default, best) = (tuned.default.as_ref().unwrap(), tuned.best.as_ref().unwrap());
    assert!((default.seconds - 5e-3).abs() < 1e-9, "{default:?}");
    assert!(best.seconds < 1.02e-3, "{best:?} after {}", tuned.trials);
    assert!((tuned.gain.unwrap() - default.seconds / best.seconds).abs() < 1e-12);
    assert!((best.roofline.unwrap() - 5e-4 / best.seconds).abs() < 1e-12);
    assert_eq!(tuned.bound, Some(Bound::Compute));
    assert!(
        tuned.leaderboard.len() == 10 && tuned.leaderboard.windows(2).all(|w| w[0].seconds <= w[1].seconds)
    );
    assert!((report.gain().unwrap() - tuned.gain.unwrap()).abs() < 1e-12);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["workloads"][0]["stop"], serde_json::json!(tuned.stop));
}

#[test]
fn a_later_campaign_starts_from_what_was_kept() {
    let bench = Recorded::new(steep);
    let list = tasks(&[(matmul(8, 8, 8), 1.0)]);
    let budget = TuningBudget { trials: Some(16), time: None };
    let first = Coordinator::new(&bench).tune(&list, &budget, &mut |_| true);
    let second = Coordinator::new(&bench).tune(&list, &budget, &mut |_| true);
    let best = |report: &TuningReport| report.workloads[0].best.clone().unwrap();
    assert!(best(&second).seconds <= best(&first).seconds);
    assert_eq!(bench.kept.borrow().len(), first.trials + second.trials, "no point counts twice");
}

#[test]
fn the_most_valuable_comes_first_and_the_budget_holds() {
    // Four fifths of the time could be saved of one, hardly any of the other.
    fn depth(workload: &Workload) -> f64 {
        if workload.kind() == OperationKind::Matmul { 2.0 } else { 0.0 }
    }
    let bench = Recorded::new(depth);
    let list = tasks(&[(relu(&[8], None), 1.0), (matmul(8, 8, 8), 2.0)]);
    let budget = TuningBudget { trials: Some(20), time: None };
    let report = Coordinator::new(&bench).tune(&list, &budget, &mut |_| true);
    assert!(report.trials <= 20, "{}", report.trials);
    assert!(bench.order.borrow()[0].starts_with("matmul"));
    let [flat, steep] = &report.workloads[..] else { panic!() };
    assert!(steep.trials > flat.trials, "{} {}", steep.trials, flat.trials);
    let none = TuningBudget { trials: Some(0), time: None };
    let nothing = Coordinator::new(&Recorded::new(depth)).tune(&list, &none, &mut |_| true);
    assert_eq!((nothing.trials, nothing.workloads[0].best.clone(), nothing.gain()), (0, None, None));
}

#[test]
fn cancelling_keeps_what_was_measured() {
    let bench = Recorded::new(steep);
    let list = tasks(&[(matmul(8, 8, 8), 1.0), (matmul(9, 9, 9), 1.0)]);
    let mut heard = 0;
    let report = Coordinator::new(&bench).tune(&list, &TuningBudget::default(), &mut |progress| {
        heard += 1;
        assert!(progress.best_seconds > 0.0 && progress.task < 2);
        heard < 4
    });
    assert!(report.cancelled);
    assert_eq!(bench.kept.borrow().len(), report.trials);
    assert!(report.trials > 0 && report.workloads.iter().any(|w| w.best.is_some()));
}

#[test]
fn constraints_hold_and_impossible_ones_are_named() {
    let bench = Recorded::new(steep);
    let list = tasks(&[(matmul(8, 8, 8), 1.0)]);
    let budget = TuningBudget { trials: Some(30), time: None };
    let mut coordinator = Coordinator::new(&bench);
    coordinator.constraints =
        TuningConstraints { threads: Some(1), memory: Some(6500), ..Default::default() };
    let report = coordinator.tune(&list, &budget, &mut |_| true);
    let best = report.workloads[0].best.clone().unwrap();
    assert!(best.parameters.ends_with("threads=1"), "{best:?}");
    assert!(bench.kept.borrow().keys().all(|(_, p)| p.ends_with("threads=1")));
    assert!(report.workloads[0].refused.iter().any(|(_, why)| why.contains("threads, 1 are allowed")));
    assert!(report.workloads[0].refused.iter().any(|(_, why)| why.contains("bytes, 6500 are allowed")));
    coordinator.constraints =
        TuningConstraints { latency: Some(Duration::from_micros(900)), ..Default::default() };
    let report = coordinator.tune(&list, &budget, &mut |_| true);
    let tuned = &report.workloads[0];
    assert!(tuned.best.is_none() && tuned.leaderboard.is_empty());
    assert!(
        tuned.error.as_ref().unwrap().starts_with("latency of at most 0.0009 s cannot be met"),
        "{tuned:?}"
    );
    assert!(tuned.refused.iter().any(|(_, why)| why.contains("0.0009 s are allowed")), "{tuned:?}");
}

/// The report of a campaign with some constraints in some state.
fn constrained(constraints: TuningConstraints, state: SystemState) -> TunedWorkload {
    let bench = Recorded::new(steep);
    let monitor = Monitor::start(Trace { states: vec![state] }.replay(), EVERY).unwrap();
    let mut coordinator = Coordinator::new(&bench).watching(monitor);
    coordinator.constraints = constraints;
    let budget = TuningBudget { trials: Some(20), time: None };
    coordinator.tune(&tasks(&[(matmul(8, 8, 8), 1.0)]), &budget, &mut |_| true).workloads.remove(0)
}

#[test]
fn what_cannot_be_met_is_an_error_that_names_the_nearest() {
    let none = TuningConstraints::default;
    let state = SystemState::default;
    let error = |constraints, state| {
        let tuned = constrained(constraints, state);
        assert!(tuned.best.is_none() && tuned.leaderboard.is_empty(), "{tuned:?}");
        tuned.error.unwrap()
    };
    let bytes = matmul(8, 8, 8).bytes();
    let little = error(TuningConstraints { memory: Some(100), ..none() }, state());
    let expected =
        format!("memory of at most 100 bytes cannot be met; the nearest that can is {bytes} bytes");
    assert_eq!(little, expected);
    let nobody = error(TuningConstraints { threads: Some(0), ..none() }, state());
    assert_eq!(nobody, "threads of at most 0 threads cannot be met; the nearest that can is 1 threads");
    let elsewhere = TuningConstraints { backends: Some(vec![BackendKind::Cuda]), ..none() };
    let elsewhere = error(elsewhere, state());
    assert!(
        elsewhere.contains("cpu is not allowed") && elsewhere.ends_with("nearest that can be met is cpu")
    );
    let rate = error(TuningConstraints { throughput: Some(1e12), ..none() }, state());
    assert!(rate.starts_with("throughput of at least 1000000000000 operations/s cannot be met"), "{rate}");
    let hot = SystemState { temperature: Some(91.0), ..state() };
    let heat = error(TuningConstraints { temperature: Some(90.0), ..none() }, hot);
    assert_eq!(heat, "temperature of at most 90 °C cannot be met; the nearest that can is 91 °C");
}

#[test]
fn what_nothing_tells_is_an_error_that_says_so() {
    let unknown = |constraints| {
        let tuned = constrained(constraints, SystemState::default());
        assert!(tuned.best.is_none(), "{tuned:?}");
        tuned.error.unwrap()
    };
    let none = TuningConstraints::default;
    let power = unknown(TuningConstraints { power: Some(20.0), ..none() });
    assert!(power.starts_with("whether power of at most 20 W holds is not known"), "{power}");
    let energy = unknown(TuningConstraints { energy: Some(1.0), ..none() });
    assert!(energy.starts_with("whether energy of at most 1 J holds is not known"), "{energy}");
    let heat = unknown(TuningConstraints { temperature: Some(90.0), ..none() });
    assert!(heat.ends_with("the machine does not tell its temperature"), "{heat}");
    // Where the hardware has a limit of its own it is known that no more is drawn.
    let capped = SystemState { power_limit: Some(15.0), ..Default::default() };
    let tuned = constrained(TuningConstraints { power: Some(20.0), energy: Some(1.0), ..none() }, capped);
    assert!(tuned.error.is_none() && tuned.best.is_some(), "{tuned:?}");
}

#[test]
fn a_light_level_and_a_power_mode_change_what_is_found() {
    let found = |constraints| constrained(constraints, SystemState::default()).best.unwrap();
    let threads = |best: &Ranked| best.parameters.rsplit('=').next().unwrap().to_owned();
    let fast = found(TuningConstraints::default());
    assert_eq!(threads(&fast), "2", "{fast:?}");
    let saving = TuningConstraints { power_mode: Some(PowerMode::Saving), ..Default::default() };
    let frugal = found(saving);
    assert_eq!(threads(&frugal), "1", "a second thread must bring twice the speed: {frugal:?}");
    assert!(frugal.seconds >= fast.seconds && frugal.seconds < 5e-3, "times are not bent: {frugal:?}");
    // Half of four cores are two threads; of two cores one.
    let two = Recorded {
        info: DeviceInfo { cores: 2, physical_cores: None, threads: 2, ..device() },
        ..Recorded::new(steep)
    };
    let mut coordinator = Coordinator::new(&two);
    coordinator.constraints.level = OptimisationLevel::Light;
    let budget = TuningBudget { trials: Some(20), time: None };
    let report = coordinator.tune(&tasks(&[(matmul(8, 8, 8), 1.0)]), &budget, &mut |_| true);
    assert_eq!(threads(report.workloads[0].best.as_ref().unwrap()), "1");
    assert!(two.kept.borrow().keys().all(|(_, p)| p.ends_with("threads=1")), "not even tried");
}

#[test]
fn real_time_counts_the_longest_call() {
    let limit = |real_time| TuningConstraints {
        latency: Some(Duration::from_micros(1400)),
        real_time,
        ..Default::default()
    };
    let tune = |constraints| {
        let bench = Recorded { swings: true, ..Recorded::new(steep) };
        let mut coordinator = Coordinator::new(&bench);
        coordinator.constraints = constraints;
        let budget = TuningBudget { trials: Some(30), time: None };
        coordinator.tune(&tasks(&[(matmul(8, 8, 8), 1.0)]), &budget, &mut |_| true).workloads.remove(0)
    };
    assert!(tune(limit(false)).error.is_none(), "usual calls keep it");
    let error = tune(limit(true)).error.unwrap();
    assert!(error.starts_with("latency of at most 0.0014 s cannot be met"), "{error}");
}

#[test]
fn searches_start_where_the_strategy_says_and_it_hears_what_came_of_it() {
    let bench = Recorded::new(steep);
    let list = tasks(&[(matmul(8, 8, 8), 1.0)]);
    let budget = TuningBudget { trials: Some(12), time: None };
    let quiet = SystemState { load: Some(0.25), own_load: Some(0.25), ..Default::default() };
    let monitor = Monitor::start(Trace { states: vec![quiet.clone()] }.replay(), EVERY).unwrap();
    let coordinator = Coordinator::new(&bench).watching(monitor);
    let nothing = coordinator.tune(&list, &TuningBudget { trials: Some(0), time: None }, &mut |_| true);
    assert_eq!(nothing.strategies[0].metrics, crate::tuning::TuningMetrics::default(), "nothing was done");
    assert_eq!((nothing.cache, nothing.state), (CacheCounts::default(), quiet));
    let report = coordinator.tune(&list, &budget, &mut |_| true);
    let start = &report.workloads[0].starts[0];
    assert_eq!(start.backend, BackendKind::Cpu);
    assert!(start.seconds.is_some(), "the start is tried: {start:?}");
    assert!(!start.reasons.is_empty() && start.recommended.starts_with("threads="), "{start:?}");
    assert!(start.expected.is_some_and(|s| s > 0.0) && start.interval.is_some(), "the device is calibrated");
    let counts = report.strategies[0].metrics;
    assert!(counts.optimisations >= 1 && counts.reports >= 1, "{counts:?}");
    assert_eq!(counts.optimisations, report.cache.misses, "only what was not kept is asked");
    assert_eq!(counts.success_rate, 1.0);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["workloads"][0]["starts"][0]["kernel"], serde_json::json!(start.kernel));
    // Another campaign on what is known already asks the same question, and nothing new was heard since.
    let before = report.cache;
    let all = TuningBudget { trials: Some(200), time: None };
    let settled = coordinator.tune(&list, &all, &mut |_| true);
    let again = coordinator.tune(&list, &all, &mut |_| true);
    assert!(settled.cache.misses >= before.misses && again.cache.hits >= settled.cache.hits);
    assert_eq!(again.cache.misses, again.strategies[0].metrics.optimisations);
}

#[test]
fn a_strategy_that_can_say_nothing_is_reported_and_the_search_goes_on() {
    let tight = TuningConstraints { latency: Some(Duration::from_micros(1100)), ..Default::default() };
    let bench = Recorded { info: DeviceInfo { peaks: None, ..device() }, ..Recorded::new(steep) };
    let mut coordinator = Coordinator::new(&bench);
    coordinator.constraints = tight;
    let budget = TuningBudget { trials: Some(30), time: None };
    let report = coordinator.tune(&tasks(&[(matmul(8, 8, 8), 1.0)]), &budget, &mut |_| true);
    let tuned = &report.workloads[0];
    assert!(tuned.best.as_ref().unwrap().seconds <= 1.1e-3, "{tuned:?}");
    assert!(tuned.starts.is_empty() && tuned.declined[0].1.contains("is not known"), "{:?}", tuned.declined);
    assert_eq!(report.strategies[0].metrics.optimisations, 0);
}

#[test]
fn wrong_candidates_are_refused_and_reported() {
    let bench = Recorded { failing: Some(7), ..Recorded::new(steep) };
    let budget = TuningBudget { trials: Some(60), time: None };
    let report = Coordinator::new(&bench).tune(&tasks(&[(matmul(8, 8, 8), 1.0)]), &budget, &mut |_| true);
    let tuned = &report.workloads[0];
    assert!(!tuned.best.as_ref().unwrap().parameters.contains("blockm=7"));
    assert!(bench.refused.borrow().iter().all(|r| r.contains("blockm=7") && r.ends_with("wrong answer")));
    assert!(tuned.refused.len() == bench.refused.borrow().len() && !tuned.refused.is_empty());
}

#[test]
fn two_devices_share_a_budget() {
    let (one, mut other) = (Recorded::new(steep), Recorded::new(|_| 0.0));
    other.info.name = "another".into();
    let list = tasks(&[(matmul(8, 8, 8), 1.0)]);
    let budget = TuningBudget { trials: Some(24), time: None };
    let report = Coordinator::new(&one).and(&other).tune(&list, &budget, &mut |_| true);
    let names: Vec<&str> = report.workloads.iter().map(|w| w.device.as_str()).collect();
    assert_eq!(names, ["Example CPU", "another"]);
    assert!(report.trials <= 24 && report.workloads.iter().all(|w| w.best.is_some()));
    assert!(report.workloads[0].trials > report.workloads[1].trials, "where more can be gained");
    assert_eq!(one.kept.borrow().len() + other.kept.borrow().len(), report.trials);
}
