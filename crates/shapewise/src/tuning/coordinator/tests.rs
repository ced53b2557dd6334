//! Campaigns on recorded times.

use std::cell::RefCell;
use std::collections::HashMap;

use super::*;
use crate::Result;
use crate::device::DeviceInfo;
use crate::modelling::Terms;
use crate::ops::{ComputeUnit, Cost, Knob, OperationKind, Parameters, Traffic};
use crate::selection::KernelHandle;
use crate::tensor::DType;
use crate::tracking::Measured;
use crate::tuning::search::Trial;
use crate::tuning::testing::{device, matmul, relu};

/// A bench whose times are made up: a bowl over two blocks, whose depth depends on the workload.
struct Recorded {
    info: DeviceInfo,
    depth: fn(&Workload) -> f64,
    failing: Option<u32>,
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
        Ok(self.bench.seconds(self.workload, parameters))
    }
}

impl Workbench for Recorded {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn candidates(&self, workload: &Workload) -> Result<Vec<Candidate>> {
        let kernel = KernelHandle::BuiltIn(OperationKind::Matmul.kernels()[0]);
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
