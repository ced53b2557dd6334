//! Runs a call on every kernel at every point of its parameter space and compares with the reference.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
#[cfg(feature = "webgpu")]
use proptest::test_runner::{RngAlgorithm, TestRng};
use shapewise::ops::{OperationKind, Refusal};
use shapewise::selection::{Decision, Policy, Situation};
use shapewise::{DType, Error, Runtime};

use crate::common::compare::{Tolerance, differs};
use crate::common::numbers::Numbers;
use crate::common::operand::Operand;

/// Threads of the runtime: more than one, and few enough for any machine.
const THREADS: usize = 2;
/// Workloads that each kernel must at least have computed.
const LEAST: usize = 5;

/// Picks the point of the parameter space that the suite is at.
struct AtPoint {
    point: Arc<AtomicUsize>,
    points: Arc<AtomicUsize>,
}

impl Policy for AtPoint {
    fn name(&self) -> &'static str {
        "conformance"
    }

    fn decide(&self, situation: &Situation<'_>) -> Decision {
        let candidates = situation.candidates;
        self.points.store(candidates.len(), Ordering::Relaxed);
        let index = self.point.load(Ordering::Relaxed) % candidates.len();
        Decision { index, reason: "its turn".into() }
    }
}

/// What happened to a kernel so far.
#[derive(Default)]
struct Tally {
    computed: usize,
    /// Refusals for another reason than what this machine or this build lacks.
    refused: usize,
    lacking: usize,
}

/// The suite for one operation.
pub struct Suite {
    operation: OperationKind,
    runtime: Runtime,
    point: Arc<AtomicUsize>,
    points: Arc<AtomicUsize>,
    tally: BTreeMap<String, Tally>,
    /// Kernels under test.
    kernels: Vec<String>,
    /// Workloads that each of them must at least have computed.
    least: usize,
    /// One point for each workload, the next one for the next, instead of every point for all.
    turns: Option<usize>,
    /// What is allowed beyond the tolerance of an operation.
    more: Tolerance,
}

impl Suite {
    /// The CPU's kernels.
    pub fn new(operation: OperationKind) -> Self {
        let (point, points) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let policy = AtPoint { point: Arc::clone(&point), points: Arc::clone(&points) };
        let runtime =
            Runtime::builder().threads(THREADS).without_calibration().policy(policy).build().unwrap();
        let (_, others) = operation.kernels().split_last().expect("a reference");
        let kernels = others.iter().map(|kernel| kernel.name().to_owned()).collect();
        let (tally, more) = (BTreeMap::new(), Tolerance::default());
        Self { operation, runtime, point, points, tally, kernels, least: LEAST, turns: None, more }
    }

    /// The WGSL kernels of a device, registered with the runtime; each must compute `least` workloads.
    #[cfg(feature = "webgpu")]
    pub fn on(
        operation: OperationKind,
        device: &Arc<shapewise::backends::webgpu::WebGpuDevice>,
        least: usize,
        more: Tolerance,
    ) -> Self {
        let mut suite = Self { least, turns: Some(0), more, ..Self::new(operation) };
        let kernels = operation.webgpu_kernels().iter().copied();
        suite.kernels.clear();
        for kernel in shapewise::backends::webgpu::kernels_on(device, kernels).unwrap() {
            suite.kernels.push(kernel.name().to_owned());
            suite.runtime.kernels().register(kernel).unwrap();
        }
        suite
    }

    /// Computes one call on every kernel. `call` writes its outputs, which are made anew by `outputs` each time.
    ///
    /// `tolerance(output, index)` says how far a number may be from the reference's.
    pub fn check(
        &mut self,
        outputs: impl Fn() -> Vec<Operand>,
        call: impl Fn(&Runtime, &mut [Operand]) -> shapewise::Result<()>,
        tolerance: impl Fn(usize, usize) -> Tolerance,
    ) -> Result<(), TestCaseError> {
        self.check_each(outputs, call, |_, output, at| tolerance(output, at))
    }

    /// The same where every kernel has an error of its own: `tolerance(kernel, output, index)`.
    pub fn check_each(
        &mut self,
        outputs: impl Fn() -> Vec<Operand>,
        call: impl Fn(&Runtime, &mut [Operand]) -> shapewise::Result<()>,
        tolerance: impl Fn(&str, usize, usize) -> Tolerance,
    ) -> Result<(), TestCaseError> {
        let reference = self.operation.kernels().last().expect("a reference");
        self.point.store(0, Ordering::Relaxed);
        let mut wanted = outputs();
        let before: Vec<_> = wanted.iter().map(Operand::surroundings).collect();
        let forced = self.runtime.with_kernel(reference.name()).unwrap();
        call(&forced, &mut wanted)
            .map_err(|e| TestCaseError::fail(format!("{} must take everything: {e}", reference.name())))?;
        let answers: Vec<_> = wanted.iter().map(|o| (o.view().dtype(), o.numbers())).collect();
        self.tally.entry(reference.name().into()).or_default().computed += 1;
        let more = self.more;
        for name in self.kernels.clone() {
            let tolerance = |output: usize, at: usize| {
                let Tolerance { ulps, absolute } = tolerance(&name, output, at);
                Tolerance { ulps: ulps + more.ulps, absolute: absolute + more.absolute }
            };
            let mut point = self.turns.unwrap_or(0);
            loop {
                self.point.store(point, Ordering::Relaxed);
                let mut found = outputs();
                let forced = self.runtime.with_kernel(&name).unwrap();
                let outcome = call(&forced, &mut found);
                if !self.accepted(&name, outcome)? {
                    break;
                }
                compare(&name, point, &found, &answers, &before, &tolerance)?;
                point += 1;
                if self.turns.is_some() || point >= self.points.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        self.turns = self.turns.map(|turn| turn + 1);
        Ok(())
    }

    /// Whether the kernel computed something; a failure is the test's.
    fn accepted(&mut self, name: &str, outcome: shapewise::Result<()>) -> Result<bool, TestCaseError> {
        let tally = self.tally.entry(name.into()).or_default();
        match outcome {
            Ok(()) => {
                tally.computed += 1;
                Ok(true)
            }
            Err(Error::NoKernel { refusals, .. }) => {
                let wrong = |r: &Refusal| matches!(r, Refusal::Quarantined(_));
                if let Some((_, why)) = refusals.iter().find(|(_, why)| why.iter().any(wrong)) {
                    return Err(TestCaseError::fail(format!("{name}: {why}")));
                }
                let lacks = |r: &Refusal| matches!(r, Refusal::CpuFeature(_) | Refusal::Missing(_));
                if refusals.iter().any(|(_, why)| why.iter().any(lacks)) {
                    tally.lacking += 1;
                } else {
                    tally.refused += 1;
                }
                Ok(false)
            }
            Err(error) => Err(TestCaseError::fail(format!("{name}: {error}"))),
        }
    }

    /// Every kernel that this machine can run must have computed something.
    pub fn finish(self) {
        self.finish_where(|_| true);
    }

    /// The same for kernels that satisfy a condition.
    pub fn finish_where(self, counts: impl Fn(&str) -> bool) {
        for name in self.kernels.iter().filter(|name| counts(name)) {
            let none = Tally::default();
            let tally = self.tally.get(name).unwrap_or(&none);
            assert!(
                tally.computed >= self.least || tally.lacking > 0,
                "{name} computed {} workloads and refused {}: the suite does not test it",
                tally.computed,
                tally.refused
            );
        }
    }
}

fn compare(
    name: &str,
    point: usize,
    found: &[Operand],
    wanted: &[(DType, Numbers)],
    before: &[Vec<u64>],
    tolerance: &impl Fn(usize, usize) -> Tolerance,
) -> Result<(), TestCaseError> {
    for (i, (output, (dtype, answer))) in found.iter().zip(wanted).enumerate() {
        if let Some(difference) = differs(&output.numbers(), answer, *dtype, |at| tolerance(i, at)) {
            return Err(TestCaseError::fail(format!("{name}, point {point}, output {i}: {difference}")));
        }
        if output.surroundings() != before[i] {
            return Err(TestCaseError::fail(format!("{name}, point {point}: wrote beside output {i}")));
        }
    }
    Ok(())
}

/// Runs `test` on random values; `PROPTEST_CASES` overrides the number of them.
pub fn each<S: Strategy>(
    cases: u32,
    strategy: S,
    mut test: impl FnMut(S::Value) -> Result<(), TestCaseError>,
) {
    let default = Config::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { cases };
    let config = Config { cases, failure_persistence: None, max_shrink_time: 20_000, ..default };
    run(TestRunner::new(config), strategy, &mut test);
}

/// The same values every time: what a driver takes to compile for random ones differs too much.
#[cfg(feature = "webgpu")]
pub fn each_again<S: Strategy>(
    cases: u32,
    strategy: S,
    mut test: impl FnMut(S::Value) -> Result<(), TestCaseError>,
) {
    let config = Config { cases, failure_persistence: None, max_shrink_time: 20_000, ..Config::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    run(TestRunner::new_with_rng(config, random), strategy, &mut test);
}

fn run<S: Strategy>(
    mut runner: TestRunner,
    strategy: S,
    test: &mut impl FnMut(S::Value) -> Result<(), TestCaseError>,
) {
    let test = std::cell::RefCell::new(test);
    match runner.run(&strategy, |value| (*test.borrow_mut())(value)) {
        Ok(()) => {}
        Err(TestError::Fail(why, value)) => panic!("{why}\nfor {value:#?}"),
        Err(TestError::Abort(why)) => panic!("gave up: {why}"),
    }
}
