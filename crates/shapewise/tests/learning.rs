//! Choices by evidence: races on the user's own calls, what is remembered, what is set aside, and frozen runtimes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use shapewise::device::DeviceInfo;
use shapewise::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Operation, OperationKind, Parameters, Traffic,
    Variant, Workload,
};
use shapewise::selection::{Limits, SelectionAlgorithm, Stage};
use shapewise::store::StoreLocation;
use shapewise::{DType, Runtime, RuntimeBuilder, Tensor};

/// A user's kernel that negates and takes a given time for it, whatever it declares.
struct Sleeper {
    name: &'static str,
    micros: AtomicU64,
    declared: f64,
    launches: AtomicUsize,
    fails: bool,
    factor: f32,
}

impl Sleeper {
    fn new(name: &'static str, micros: u64, declared: f64) -> Arc<Self> {
        Arc::new(Self {
            name,
            micros: AtomicU64::new(micros),
            declared,
            launches: AtomicUsize::new(0),
            fails: false,
            factor: -1.0,
        })
    }

    fn launches(&self) -> usize {
        self.launches.load(Ordering::SeqCst)
    }
}

fn is_neg(workload: &Workload) -> bool {
    matches!(workload.operation(), Operation::Elementwise(p) if p.to_string() == "neg(x0)")
}

impl Kernel for Sleeper {
    fn name(&self) -> &str {
        self.name
    }
    fn operation(&self) -> OperationKind {
        OperationKind::Elementwise
    }
    fn variant(&self) -> Variant {
        Variant::Custom
    }
    fn constraints(&self) -> &[Constraint] {
        &[Constraint::DTypes(&[DType::F32]), Constraint::Contiguous, Constraint::Shape("a negation", is_neg)]
    }
    fn cost(&self, _: &Workload, _: &Parameters, _: &DeviceInfo) -> Cost {
        let unit = ComputeUnit { dtype: DType::F32, isa: None };
        Cost::new(self.declared, unit, Traffic::default())
    }
    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let before = self.launches.fetch_add(1, Ordering::SeqCst);
        if self.fails && before >= 2 {
            return Err(KernelError("no more".into()));
        }
        std::thread::sleep(Duration::from_micros(self.micros.load(Ordering::SeqCst)));
        let x = call.input::<f32>(0)?;
        call.output::<f32>(0)?.iter_mut().zip(x).for_each(|(y, x)| *y = self.factor * x);
        Ok(())
    }
}

const FAST: &str = "cpu::elementwise::fast";
const SLOW: &str = "cpu::elementwise::slow";

/// A calibrated runtime that keeps nothing; the peaks are measured once in this process.
fn builder() -> RuntimeBuilder {
    Runtime::builder().threads(1).store(StoreLocation::Memory)
}

fn negate(rt: &Runtime, x: &Tensor, times: usize) {
    for _ in 0..times {
        assert_eq!(rt.neg(x).unwrap().as_slice::<f32>().unwrap()[1], -2.0);
    }
}

fn three() -> Tensor {
    Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3]).unwrap()
}

/// Registers two kernels, has them checked by a first call, and then leaves only them.
fn leave_only(rt: &Runtime, kernels: [&Arc<Sleeper>; 2], x: &Tensor) {
    for kernel in kernels {
        rt.kernels().register(kernel.clone()).unwrap();
    }
    negate(rt, x, 1);
    for kernel in rt.kernels().kernels(OperationKind::Elementwise) {
        if !kernel.is_custom() {
            rt.kernels().set_aside(kernel.name(), "not wanted in this test").unwrap();
        }
    }
}

#[test]
fn every_algorithm_ends_on_the_faster_kernel_whatever_was_declared() {
    for algorithm in
        [SelectionAlgorithm::ScoreBased, SelectionAlgorithm::MachineLearning, SelectionAlgorithm::Hybrid]
    {
        let rt = builder().algorithm(algorithm).exploration(1.0).build().unwrap();
        // The slow one claims to cost next to nothing, the fast one claims minutes.
        let (fast, slow) = (Sleeper::new(FAST, 1_000, 1e12), Sleeper::new(SLOW, 100_000, 1.0));
        let x = three();
        leave_only(&rt, [&slow, &fast], &x);
        negate(&rt, &x, 12);
        let why = rt.explain(|rt| rt.neg(&x)).unwrap();
        assert_eq!(why.chosen, FAST, "{algorithm:?}: {why}");
        assert!(slow.launches() <= 8, "{algorithm:?} ran the slow kernel {} times", slow.launches());
        let accuracy = rt.selector().accuracy();
        assert_eq!(accuracy.len(), 1);
    }
}

#[test]
fn a_race_on_the_users_calls_settles_and_is_told() {
    let rt = builder().exploration(1.0).build().unwrap();
    let (a, b) = (Tensor::full(1.0f32, &[48, 48]).unwrap(), Tensor::full(0.5f32, &[48, 48]).unwrap());
    for _ in 0..400 {
        assert_eq!(rt.matmul(&a, &b).unwrap().as_slice::<f32>().unwrap()[7], 24.0);
    }
    let why = rt.explain(|rt| rt.matmul(&a, &b)).unwrap();
    assert_eq!(why.stage, Stage::Settled, "{why}");
    let statistics = rt.selector().statistics();
    let calls: u64 = statistics.iter().map(|k| k.executions).sum();
    assert!((390..=400).contains(&calls), "{statistics:?}");
    let budget = rt.selector().budget();
    assert!(budget.run() > 0.0 && budget.lost() < budget.run());
    let workloads = rt.selector().workloads();
    assert_eq!((workloads.len(), &workloads[0].kernel), (1, &why.chosen));
    assert!(workloads[0].timed >= 1 && workloads[0].regret.is_none_or(|r| r >= 0.0), "{workloads:?}");
    let chosen =
        why.candidates.iter().find(|c| c.kernel == why.chosen && c.parameters == why.parameters).unwrap();
    assert!(chosen.memory >= 3 * 48 * 48 * 4 && chosen.operations_per_second.is_some_and(|r| r > 0.0));
    assert!(!why.would_change.is_empty());
}

#[test]
fn predictions_are_judged_and_what_taught_them_is_told() {
    let rt = builder().exploration(1.0).build().unwrap();
    for n in (1..=24).map(|i| 16 * i) {
        let x = Tensor::full(1.0f32, &[n, 32]).unwrap();
        // Enough for the longest race: four candidates, fifteen rounds, four calls in each, and rehearsals.
        for _ in 0..250 {
            rt.softmax(&x, 1).unwrap();
        }
    }
    rt.flush();
    let x = Tensor::full(1.0f32, &[200, 32]).unwrap();
    let why = rt.explain(|rt| rt.softmax(&x, 1)).unwrap();
    let model = why.model.as_ref().unwrap_or_else(|| panic!("nothing was learned: {why}"));
    assert!(model.shapes > 15 && model.validation.is_some_and(|v| v.mean_error > 0.0), "{model}");
    assert!(why.to_string().contains("on workloads left out it is off by"), "{why}");
}

#[test]
fn a_budget_of_zero_never_explores() {
    let rt = builder().exploration(0.0).build().unwrap();
    let a = Tensor::full(1.0f32, &[48, 48]).unwrap();
    for _ in 0..50 {
        rt.matmul(&a, &a).unwrap();
    }
    assert_eq!(rt.selector().budget().trials(), 0);
    assert!(builder().exploration(-0.1).build().is_err() && builder().exploration(f64::NAN).build().is_err());
}

#[test]
fn what_was_measured_is_there_in_the_next_runtime() {
    let folder = std::env::temp_dir().join(format!("shapewise-learning-{}", std::process::id()));
    let build = || {
        let location = StoreLocation::File(folder.join("evidence.sqlite"));
        Runtime::builder().threads(1).store(location).exploration(1.0).build().unwrap()
    };
    let a = Tensor::full(1.0f32, &[40, 40]).unwrap();
    let chosen = {
        let rt = build();
        for _ in 0..400 {
            rt.matmul(&a, &a).unwrap();
        }
        rt.flush();
        rt.explain(|rt| rt.matmul(&a, &a)).unwrap()
    };
    let samples = |why: &shapewise::selection::Explanation| -> u64 {
        why.candidates.iter().filter_map(|c| c.measured).map(|m| m.samples).sum()
    };
    // What was timed does not race again; one that never ran and may be as fast as the leader by its prediction still does, once.
    let settled_at_once = (0..4).any(|_| {
        let rt = build();
        let before = rt.explain(|rt| rt.matmul(&a, &a)).unwrap();
        assert!(samples(&chosen) > 0 && samples(&before) > 0, "{before}");
        rt.matmul(&a, &a).unwrap();
        let settled = rt.explain(|rt| rt.matmul(&a, &a)).unwrap().stage == Stage::Settled;
        for _ in 0..400 {
            rt.matmul(&a, &a).unwrap();
        }
        rt.flush();
        settled
    });
    assert!(settled_at_once, "every process ran a race of its own");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_slower_machine_opens_the_workload_again() {
    let rt = builder().exploration(1.0).build().unwrap();
    // So far apart that a busy machine does not change who is faster.
    let (fast, other) = (Sleeper::new(FAST, 2_000, 1.0), Sleeper::new(SLOW, 8_000, 2.0));
    let x = three();
    leave_only(&rt, [&fast, &other], &x);
    negate(&rt, &x, 40);
    assert_eq!(rt.explain(|rt| rt.neg(&x)).unwrap().chosen, FAST);
    fast.micros.store(30_000, Ordering::SeqCst);
    negate(&rt, &x, 60);
    let why = rt.explain(|rt| rt.neg(&x)).unwrap();
    assert_eq!(why.chosen, SLOW, "{why}");
}

#[test]
fn a_kernel_that_fails_is_out_for_that_workload_only() {
    let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
    let mut failing = Sleeper::new(FAST, 0, 1.0);
    Arc::get_mut(&mut failing).unwrap().fails = true;
    rt.kernels().register(failing.clone()).unwrap();
    let x = three();
    negate(&rt, &x, 3);
    let why = rt.explain(|rt| rt.neg(&x)).unwrap();
    assert_ne!(why.chosen, FAST);
    assert!(why.refusals.iter().any(|r| r.kernel == FAST && r.reasons[0].contains("no more")), "{why}");
    assert_eq!(rt.kernels().quarantined(FAST), None);
}

#[test]
fn a_candidate_over_the_time_limit_is_set_aside_and_the_answer_stands() {
    let limits = Limits { time: Some(Duration::from_millis(5)), ..Limits::default() };
    let rt = builder().limits(limits).exploration(0.0).build().unwrap();
    let slow = Sleeper::new(SLOW, 0, 1.0);
    rt.kernels().register(slow.clone()).unwrap();
    let x = three();
    negate(&rt, &x, 1);
    slow.micros.store(20_000, Ordering::SeqCst);
    negate(&rt, &x, 5000);
    assert!(slow.launches() < 5000);
}

#[test]
fn a_users_kernel_is_checked_anew_after_a_restart() {
    let folder = std::env::temp_dir().join(format!("shapewise-restart-{}", std::process::id()));
    let start =
        || Runtime::builder().threads(1).store(StoreLocation::Directory(folder.clone())).build().unwrap();
    let (x, rt) = (three(), start());
    rt.kernels().register(Sleeper::new(FAST, 0, 1.0)).unwrap();
    negate(&rt, &x, 100);
    assert_eq!(rt.kernels().quarantined(FAST), None);
    rt.flush();
    drop(rt);
    let rt = start();
    let wrong = Sleeper { factor: 1.0, ..Arc::into_inner(Sleeper::new(FAST, 0, 1.0)).unwrap() };
    rt.kernels().register(Arc::new(wrong)).unwrap();
    negate(&rt, &x, 100);
    assert!(rt.kernels().quarantined(FAST).is_some(), "its old times must not let it pass unchecked");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_question_to_a_frozen_runtime_keeps_nothing() {
    let folder = std::env::temp_dir().join(format!("shapewise-asked-{}", std::process::id()));
    let location = StoreLocation::Directory(folder.clone());
    let frozen = Runtime::builder()
        .threads(1)
        .without_calibration()
        .store(location.clone())
        .algorithm(SelectionAlgorithm::Frozen)
        .build()
        .unwrap();
    let here = shapewise::device::Fingerprint::of(frozen.device_info());
    let pinned = || location.open().pinned(&here).unwrap().len();
    let x = three();
    frozen.explain(|rt| rt.neg(&x)).unwrap();
    assert_eq!(pinned(), 0);
    negate(&frozen, &x, 1);
    assert_eq!(pinned(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn calls_of_a_race_are_counted_while_it_runs() {
    let rt = builder().exploration(1.0).build().unwrap();
    let (fast, slow) = (Sleeper::new(FAST, 1_000, 1.0), Sleeper::new(SLOW, 1_000, 1.0));
    let x = three();
    leave_only(&rt, [&slow, &fast], &x);
    negate(&rt, &x, 4);
    let calls: u64 = rt.selector().statistics().iter().map(|s| s.executions).sum();
    assert_eq!(calls, 5, "one before the others were set aside, four in the race");
}

#[test]
fn frozen_choices_are_the_same_over_restarts() {
    let folder = std::env::temp_dir().join(format!("shapewise-frozen-{}", std::process::id()));
    let shapes = [[8, 8], [31, 17], [64, 64], [128, 32], [200, 200]];
    let choices = || -> Vec<(String, String)> {
        let location = StoreLocation::Directory(folder.clone());
        let rt = Runtime::builder()
            .threads(2)
            .without_calibration()
            .store(location)
            .algorithm(SelectionAlgorithm::Frozen)
            .build()
            .unwrap();
        let choose = |shape: &[usize; 2]| {
            let a = Tensor::full(1.0f32, shape).unwrap();
            rt.matmul(&a, &a.transpose()).unwrap();
            let why = rt.explain(|rt| rt.matmul(&a, &a.transpose())).unwrap();
            (why.chosen, why.parameters)
        };
        shapes.iter().map(choose).collect()
    };
    let first = choices();
    for restart in 0..100 {
        assert_eq!(choices(), first, "restart {restart}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_benchmark_ends_in_time_even_if_a_kernel_hangs() {
    use shapewise::measure::RaceOptions;
    let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
    let hanging = Sleeper::new(SLOW, 3_000_000, 1.0);
    let x = three();
    let workload = rt.workloads(|rt| rt.neg(&x)).unwrap().remove(0);
    let quick = RaceOptions { samples: 3, timeout: Duration::from_millis(200), ..RaceOptions::default() };
    let mut turns = 0;
    let race = rt.benchmark_kernels(&workload, &quick, &mut |_, _| turns += 1).unwrap();
    assert!(turns > 0 && race.timings.iter().any(|t| t.measured_us.is_some()));
    let timed = race.timings.iter().find(|t| t.bytes_per_second.is_some()).unwrap();
    let median = timed.measured_us.unwrap().median;
    assert!((timed.bytes_per_second.unwrap() * median * 1e-6 - 24.0).abs() < 1e-6, "12 bytes in, 12 out");
    rt.kernels().register(hanging).unwrap();
    let error = rt.benchmark_kernels(&workload, &quick, &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("did not return within"), "{error}");
    let busy = rt.benchmark_kernels(&workload, &quick, &mut |_, _| {}).unwrap_err().to_string();
    assert!(busy.contains("another benchmark"), "{busy}");
}

/// Negates, but only sevens.
struct Picky;

impl Kernel for Picky {
    fn name(&self) -> &'static str {
        "cpu::elementwise::picky"
    }
    fn operation(&self) -> OperationKind {
        OperationKind::Elementwise
    }
    fn variant(&self) -> Variant {
        Variant::Custom
    }
    fn constraints(&self) -> &[Constraint] {
        &[Constraint::DTypes(&[DType::F32]), Constraint::Contiguous, Constraint::Shape("a negation", is_neg)]
    }
    fn cost(&self, _: &Workload, _: &Parameters, _: &DeviceInfo) -> Cost {
        Cost::new(1.0, ComputeUnit { dtype: DType::F32, isa: None }, Traffic::default())
    }
    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if call.input::<f32>(0)?.iter().any(|&x| x != 7.0) {
            return Err(KernelError("only sevens".into()));
        }
        call.output::<f32>(0)?.fill(-7.0);
        Ok(())
    }
}

#[test]
fn a_benchmark_runs_on_the_numbers_of_a_call() {
    use shapewise::measure::RaceOptions;
    let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
    rt.kernels().register(Arc::new(Picky)).unwrap();
    // A view with gaps: the numbers between are not asked for.
    let grid =
        Tensor::from_vec((0..24).map(|i| if i % 2 == 0 { 7.0f32 } else { 1.0 }).collect(), &[4, 6]).unwrap();
    let sevens = grid.view().slice(1, 0, 6, 2).unwrap();
    let row = Tensor::full(7.0f32, &[12]).unwrap();
    let quick = RaceOptions { samples: 3, ..RaceOptions::default() };
    let timed = |race: &shapewise::measure::Race| {
        let picky = race.timings.iter().find(|t| t.kernel == "cpu::elementwise::picky")?;
        Some((picky.measured_us.is_some(), picky.remark.clone()))
    };
    let race = rt.benchmark_call(|rt| rt.neg(&row), &quick, &mut |_, _| {}).unwrap();
    assert_eq!(timed(&race), Some((true, None)));
    let race = rt.benchmark_call(|rt| rt.neg(sevens), &quick, &mut |_, _| {}).unwrap();
    assert!(race.timings.iter().any(|t| t.measured_us.is_some()));
    let workload = rt.workloads(|rt| rt.neg(&row)).unwrap().remove(0);
    let race = rt.benchmark_kernels(&workload, &quick, &mut |_, _| {}).unwrap();
    assert_eq!(timed(&race), Some((false, Some("only sevens".into()))), "made-up numbers are no sevens");
    let nothing = rt.benchmark_call(|_| Ok(()), &quick, &mut |_, _| {}).unwrap_err().to_string();
    assert!(nothing.contains("asks for nothing"), "{nothing}");
}

#[test]
fn a_prepared_call_follows_the_race_of_its_workload() {
    let rt = builder().exploration(1.0).build().unwrap();
    let (fast, slow) = (Sleeper::new(FAST, 1_000, 1e12), Sleeper::new(SLOW, 20_000, 1.0));
    let x = three();
    leave_only(&rt, [&slow, &fast], &x);
    let mut y = three();
    let neg = shapewise::ops::elementwise::Program::build(1, |x| -x[0]).unwrap();
    let prepared = rt.prepare_elementwise(&neg, &[&x], &mut y).unwrap();
    for _ in 0..12 {
        prepared.run(&[&x], &mut y).unwrap();
        assert_eq!(y.as_slice::<f32>().unwrap()[2], -3.0);
    }
    assert_eq!(prepared.kernel(), FAST);
    rt.kernels().remove(FAST).unwrap();
    prepared.run(&[&x], &mut y).unwrap();
    assert_eq!(prepared.kernel(), SLOW);
}
