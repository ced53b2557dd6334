//! Every strategy on random requests, and on feedback that contradicts it.

use std::time::Duration;

use super::testing::{device, matmul, relu, sum_of_rows, typed_matmul};
use super::*;
use crate::backends::cpu::schedule::Schedule;
use crate::device::{BackendKind, DeviceInfo};
use crate::ops::{Knob, Parameters, Workload};
use crate::sensors::{PowerMode, Sensors, SystemState};
use crate::tensor::DType;

const REQUESTS: usize = 100_000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Something in one of four requests.
    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(4) == 0).then(|| make(self))
    }

    fn share(&mut self) -> f64 {
        self.below(1001) as f64 / 1000.0
    }

    /// Sizes of every magnitude, zero and one among them.
    fn size(&mut self) -> usize {
        let magnitude = self.below(13);
        (self.below(1 << magnitude) + u64::from(self.below(8) > 0)) as usize
    }

    fn workload(&mut self) -> Workload {
        let (m, n, k) = (self.size(), self.size(), self.size());
        let dtype = self.pick(&[DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16]);
        match self.below(4) {
            0 => typed_matmul(m, n, k, dtype),
            1 => relu(&[m, n], None),
            2 => relu(&[m, n], Some(&[1, m as isize])),
            _ => sum_of_rows(m, n, self.pick(&[DType::F32, DType::F64])),
        }
    }

    fn state(&mut self) -> SystemState {
        SystemState {
            load: self.maybe(Self::share),
            own_load: self.maybe(Self::share),
            temperature: self.maybe(|r| 30.0 + 70.0 * r.share()),
            throttled: self.maybe(|r| r.below(2) == 0),
            power: self.maybe(|r| 200.0 * r.share()),
            power_limit: self.maybe(|r| 200.0 * r.share()),
            on_battery: self.maybe(|r| r.below(2) == 0),
            power_mode: self.maybe(Self::mode),
            ..Default::default()
        }
    }

    fn mode(&mut self) -> PowerMode {
        self.pick(&[PowerMode::Performance, PowerMode::Balanced, PowerMode::Saving])
    }

    fn constraints(&mut self) -> TuningConstraints {
        let all = [BackendKind::Cpu, BackendKind::Cuda, BackendKind::Metal, BackendKind::WebGpu];
        let levels = [OptimisationLevel::Light, OptimisationLevel::Balanced, OptimisationLevel::Full];
        let few = |x: &mut Self| 10f64.powf(12.0 * x.share() - 9.0);
        TuningConstraints {
            memory: self.maybe(|r| 1u64 << r.below(34)),
            latency: self.maybe(|r| Duration::from_secs_f64(few(r))),
            throughput: self.maybe(|r| 1e9 * few(r)),
            power: self.maybe(|r| 150.0 * r.share()),
            temperature: self.maybe(|r| 100.0 * r.share()),
            energy: self.maybe(few),
            real_time: self.below(2) == 0,
            threads: self.maybe(|r| r.below(12) as usize),
            backends: self.maybe(|r| vec![r.pick(&all), r.pick(&all)]),
            accuracy: self.pick(&[Accuracy::Exact, Accuracy::Reduced]),
            level: self.pick(&levels),
            power_mode: self.maybe(Self::mode),
        }
    }
}

fn strategies() -> Vec<Box<dyn BackendTuningStrategy>> {
    let cuda = CudaDevice {
        name: "gpu".into(),
        capability: (8, 6),
        multiprocessors: 46,
        memory: Some(8 << 30),
        clock: Some(1.7e9),
        bandwidth: Some(4e11),
        launch: Some(5e-6),
    };
    let metal = MetalDevice {
        name: "gpu".into(),
        family: MetalFamily::Apple8,
        cores: Some(10),
        memory: None,
        rate: Some(1.5e12),
        bandwidth: Some(9e10),
        launch: None,
    };
    vec![
        Box::new(CpuStrategy::new(device())),
        Box::new(CudaStrategy::new(cuda).unwrap()),
        Box::new(MetalStrategy::new(metal)),
        Box::new(webgpu(GpuRates { rate: Some(1e12), bandwidth: Some(1e11), launch: Some(5e-5) })),
    ]
}

const LIMITS: GpuLimits = GpuLimits {
    invocations: 256,
    workgroup: [256, 256, 64],
    workgroup_memory: 16_384,
    groups: 65_535,
    storage_binding: 128 << 20,
    buffer: 256 << 20,
    storage_bindings: 8,
    alignment: 256,
    subgroup: Some((4, 32)),
    f16: true,
    u64: false,
};

fn webgpu(rates: GpuRates) -> WebGpuStrategy {
    WebGpuStrategy::new("adapter", LIMITS, rates)
}

/// What is wrong with an answer.
fn judge(
    found: &TuningRecommendation,
    workload: &Workload,
    asked: &TuningConstraints,
    state: &SystemState,
) -> Option<String> {
    let broken = |what: &str| Some(format!("{what}: {found:?}\nfor {asked:?}"));
    let expected = found.best.expected;
    let times = expected.into_iter().chain(found.alternatives.iter().filter_map(|a| a.expected));
    for time in times {
        if ![time.seconds, time.low, time.high].iter().all(|t| t.is_finite() && *t > 0.0) {
            return broken("a time that cannot be");
        }
    }
    if asked.backends.as_ref().is_some_and(|list| !list.contains(&found.backend)) {
        return broken("backend");
    }
    if asked.memory.is_some_and(|limit| workload.bytes() as u64 > limit) {
        return broken("memory");
    }
    let threads = if found.backend == BackendKind::Cpu { found.best.parameters.threads() } else { 1 };
    if asked.threads.is_some_and(|limit| threads > limit) {
        return broken("threads");
    }
    if let Some(limit) = asked.latency {
        let counts = expected.map(|p| if asked.real_time { p.high } else { p.seconds });
        if counts.is_none_or(|seconds| seconds > limit.as_secs_f64()) {
            return broken("latency");
        }
    }
    let operations = found.characteristics.operations;
    if asked.throughput.is_some_and(|least| expected.is_none_or(|p| operations / p.seconds < least)) {
        return broken("throughput");
    }
    if asked.temperature.is_some_and(|limit| state.temperature.is_none_or(|now| now > limit)) {
        return broken("temperature");
    }
    let capped = |limit: f64| state.power_limit.is_some_and(|cap| cap <= limit);
    if asked.power.is_some_and(|limit| !capped(limit)) {
        return broken("power");
    }
    let joules = state.power_limit.zip(expected).map(|(watts, p)| watts * p.seconds);
    if asked.energy.is_some_and(|limit| joules.is_none_or(|joules| joules > limit)) {
        return broken("energy");
    }
    plan_is_possible(found).err()
}

fn plan_is_possible(found: &TuningRecommendation) -> Result<(), String> {
    let whole = match &found.best.plan {
        BackendPlan::Cpu(plan) => plan.threads >= 1 && plan.threads <= 8,
        BackendPlan::Cuda(plan) => {
            plan.occupancy.blocks > 0 && plan.grid.iter().all(|&g| g > 0) && plan.streams > 0
        }
        BackendPlan::Metal(plan) => plan.memory <= 32_768 && plan.threadgroup.iter().product::<u32>() <= 1024,
        BackendPlan::WebGpu(plan) => {
            plan.workgroup.iter().product::<u32>() <= LIMITS.invocations
                && plan.workgroup_memory <= LIMITS.workgroup_memory
                && plan.dispatch.iter().all(|&g| g > 0 && g <= LIMITS.groups)
                && plan.dispatches > 0
        }
    };
    // No block, the first schedule, results that go through the caches and nothing asked for ahead are zero.
    let may_be_zero = |knob| matches!(knob, Knob::BlockK | Knob::Schedule | Knob::Stream | Knob::Ahead);
    let values = found.best.parameters.iter().all(|(knob, v)| v > 0 || may_be_zero(knob));
    if whole && values { Ok(()) } else { Err(format!("impossible: {found:?}")) }
}

#[test]
fn random_requests_never_break_anything() {
    for mut strategy in strategies() {
        let (mut random, mut answered) = (Random(0x5EED), 0);
        // Plenty of requests ask the same few workloads under other constraints: making them up takes longer.
        let workloads: Vec<Workload> = (0..REQUESTS / 50).map(|_| random.workload()).collect();
        for i in 0..REQUESTS {
            let (workload, state) = (&workloads[i % workloads.len()], random.state());
            let constraints = if i % 2 == 0 { random.constraints() } else { TuningConstraints::default() };
            match strategy.tune_for_workload(workload, &state, &constraints) {
                Ok(found) => {
                    answered += 1;
                    assert_eq!(judge(&found, workload, &constraints, &state), None);
                }
                Err(error) => assert!(error.to_string().len() > 20, "{error}"),
            }
        }
        assert!(answered > REQUESTS / 4, "{}: {answered}", strategy.backend());
        assert_eq!(strategy.metrics().optimisations, answered as u64);
    }
}

#[test]
fn nothing_done_is_zero_in_every_metric() {
    for strategy in strategies() {
        assert_eq!(strategy.metrics(), TuningMetrics::default(), "{}", strategy.backend());
    }
}

#[test]
fn feedback_that_contradicts_changes_recommendation_and_prediction() {
    let (state, none) = (SystemState::default(), TuningConstraints::default());
    let workload = matmul(768, 768, 768);
    for mut strategy in strategies() {
        let before = strategy.tune_for_workload(&workload, &state, &none).unwrap().best;
        let told = strategy.predict_performance(&workload, &before.parameters).unwrap();
        let feedback = Feedback {
            workload: workload.clone(),
            parameters: before.parameters.clone(),
            outcome: Ok(told.seconds * 100.0),
            default_seconds: None,
            joules: None,
        };
        strategy.update_from_feedback(&feedback).unwrap();
        let after = strategy.tune_for_workload(&workload, &state, &none).unwrap().best;
        assert_ne!(after.parameters, before.parameters, "{}", strategy.backend());
        let learned = strategy.predict_performance(&workload, &before.parameters).unwrap();
        assert!((learned.seconds / told.seconds - 100.0).abs() < 1e-6, "{}", strategy.backend());
        let metrics = strategy.metrics();
        assert_eq!((metrics.reports, metrics.predictions), (1, 1));
        assert!((metrics.prediction_accuracy - 0.01).abs() < 1e-9);
    }
}

#[test]
fn what_fails_is_not_recommended_again() {
    let (state, none) = (SystemState::default(), TuningConstraints::default());
    for mut strategy in strategies() {
        let workload = matmul(300, 300, 300);
        let before = strategy.tune_for_workload(&workload, &state, &none).unwrap().best.parameters;
        let outcome = Err("out of memory".to_owned());
        let (default_seconds, joules) = (None, None);
        let feedback = Feedback {
            workload: workload.clone(),
            parameters: before.clone(),
            outcome,
            default_seconds,
            joules,
        };
        strategy.update_from_feedback(&feedback).unwrap();
        let found = strategy.tune_for_workload(&workload, &state, &none).unwrap();
        assert_ne!(found.best.parameters, before);
        assert!(found.reasons.iter().any(|why| why.contains("failed before")), "{:?}", found.reasons);
        assert_eq!(strategy.metrics().success_rate, 0.0);
    }
}

#[test]
fn an_impossible_latency_is_named_with_what_is_possible() {
    let (state, workload) = (SystemState::default(), matmul(1024, 1024, 1024));
    for mut strategy in strategies() {
        let tight = TuningConstraints { latency: Some(Duration::from_nanos(1)), ..Default::default() };
        let error = strategy.tune_for_workload(&workload, &state, &tight).unwrap_err();
        let TuningError::Impossible { constraint, nearest, .. } = error else { panic!("{error}") };
        assert_eq!(constraint, ConstraintKind::Latency);
        let met = Duration::from_secs_f64(nearest * 1.001);
        let enough = TuningConstraints { latency: Some(met), ..Default::default() };
        assert!(strategy.tune_for_workload(&workload, &state, &enough).is_ok(), "{}", strategy.backend());
    }
}

#[test]
fn measured_energy_makes_power_a_choice() {
    let mut strategy = CpuStrategy::new(device());
    let (state, workload) = (SystemState::default(), matmul(512, 512, 512));
    let limit = TuningConstraints { power: Some(20.0), ..Default::default() };
    let error = strategy.tune_for_workload(&workload, &state, &limit).unwrap_err();
    assert!(matches!(error, TuningError::Unknown { constraint: ConstraintKind::Power, .. }), "{error}");
    let none = TuningConstraints::default();
    let found = strategy.tune_for_workload(&workload, &state, &none).unwrap();
    for threads in [1, 2, 4] {
        let parameters = found.best.parameters.clone().with(Knob::Threads, threads);
        let seconds = strategy.predict_performance(&workload, &parameters).unwrap().seconds;
        let joules = Some(8.0 * f64::from(threads) * seconds);
        let (workload, outcome, default_seconds) = (workload.clone(), Ok(seconds), None);
        let feedback = Feedback { workload, parameters, outcome, default_seconds, joules };
        strategy.update_from_feedback(&feedback).unwrap();
    }
    let found = strategy.tune_for_workload(&workload, &state, &limit).unwrap();
    assert_eq!(found.best.parameters.threads(), 2, "four threads drew 32 W");
}

#[test]
fn heat_and_batteries_change_what_is_recommended() {
    let trace = crate::sensors::Trace {
        states: vec![
            SystemState::default(),
            SystemState { throttled: Some(true), ..Default::default() },
            SystemState { on_battery: Some(true), ..Default::default() },
            SystemState { power_mode: Some(PowerMode::Balanced), ..Default::default() },
        ],
    };
    let mut strategy = CpuStrategy::new(device());
    let (workload, none) = (relu(&[1 << 22], None), TuningConstraints::default());
    let mut replay = trace.replay();
    let mut ask = |_| {
        let state = replay.sample();
        strategy.tune_for_workload(&workload, &state, &none).unwrap().best.parameters.threads()
    };
    let threads: Vec<usize> = (0..4).map(&mut ask).collect();
    assert_eq!(threads, [4, 1, 1, 2]);
}

#[test]
fn recorded_states_change_schedules() {
    let node = |id: usize| crate::device::NumaNode {
        id,
        cpus: vec![4 * id, 4 * id + 1, 4 * id + 2, 4 * id + 3],
        memory: None,
    };
    let numa = DeviceInfo { numa: vec![node(0), node(1)], ..device() };
    let fast = Some(PowerMode::Performance);
    let state = |throttled, node| SystemState { throttled, node, power_mode: fast, ..Default::default() };
    let trace = crate::sensors::Trace { states: vec![state(None, Some(0)), state(Some(true), Some(1))] };
    let (even, none) = (relu(&[1 << 22], None), TuningConstraints::default());
    let schedules = |device: DeviceInfo| {
        let (mut strategy, mut replay) = (CpuStrategy::new(device), trace.clone().replay());
        let ask = |_| {
            let found = strategy.tune_for_workload(&even, &replay.sample(), &none).unwrap();
            let BackendPlan::Cpu(plan) = found.best.plan else { panic!() };
            plan.schedule
        };
        [0, 1].map(ask)
    };
    assert_eq!(schedules(device()), [Some(Schedule::Static), Some(Schedule::Guided)], "heat");
    assert_eq!(schedules(numa), [Some(Schedule::Stealing); 2], "two nodes");
}

#[test]
fn uneven_work_is_taken_piece_by_piece_unless_power_is_short() {
    let rt = crate::Runtime::builder().threads(1).without_calibration().build().unwrap();
    let dense = crate::Tensor::full(1.0f32, &[2048, 64]).unwrap();
    let matrix = crate::ops::sparse::SparseMatrix::from_dense(&dense).unwrap();
    let x = crate::Tensor::full(1.0f32, &[64]).unwrap();
    let workload = rt.workloads(|rt| rt.sparse_matmul(&matrix, &x)).unwrap().remove(0);
    let mut strategy = CpuStrategy::new(device());
    let mut reason = |mode| {
        let constraints = TuningConstraints { power_mode: Some(mode), ..Default::default() };
        let found = strategy.tune_for_workload(&workload, &SystemState::default(), &constraints).unwrap();
        found.reasons.iter().find(|why| why.contains("pieces fit Sparse")).cloned()
    };
    let schedules = [PowerMode::Performance, PowerMode::Saving].map(&mut reason);
    let expected = ["Dynamic pieces fit Sparse access here", "Guided pieces fit Sparse access here"];
    assert_eq!(schedules.map(Option::unwrap_or_default), expected);
}

#[test]
fn without_peaks_times_are_unknown_and_limits_on_them_cannot_be_promised() {
    let mut strategy = CpuStrategy::new(DeviceInfo { peaks: None, ..device() });
    let (state, workload) = (SystemState::default(), matmul(64, 64, 64));
    let limit = TuningConstraints { latency: Some(Duration::from_secs(1)), ..Default::default() };
    let error = strategy.tune_for_workload(&workload, &state, &limit).unwrap_err().to_string();
    assert!(error.contains("is not known") && error.contains("calibrate"), "{error}");
    assert_eq!(strategy.predict_performance(&workload, &Parameters::new()), None);
    assert!(webgpu(GpuRates::default()).predict_performance(&workload, &Parameters::new()).is_none());
}
