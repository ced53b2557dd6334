//! Where candidates are tried: the machine behind a runtime, or what was recorded of one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::cpu::CpuStrategy;
use super::search::Trial;
use super::strategy::BackendTuningStrategy;
use crate::Result;
use crate::backends::cpu::{CpuDevice, Probe};
use crate::device::DeviceInfo;
use crate::ops::{Kernel, Variant, Workload};
use crate::selection::Candidate;

/// What a campaign needs of a device.
pub trait Workbench {
    /// What is known about it.
    fn info(&self) -> &DeviceInfo;

    /// The strategies that say where to start on its backends; the CPU's where nothing else is said.
    fn strategies(&self) -> Vec<Box<dyn BackendTuningStrategy>> {
        vec![Box::new(CpuStrategy::new(self.info().clone()))]
    }

    /// Every candidate of a workload at every point worth tuning, with what was measured of it; the first is what runs
    /// today.
    fn candidates(&self, workload: &Workload) -> Result<Vec<Candidate>>;

    /// Times of the candidates, by their places in the list.
    fn trial<'a>(
        &'a self,
        workload: &'a Workload,
        candidates: &'a [Candidate],
    ) -> Result<Box<dyn Trial + 'a>>;

    /// Keeps what was measured, winner or not, so that later runs start from it.
    fn keep(&self, workload: &Workload, candidate: &Candidate, samples: &[f64]);

    /// Remembers that a candidate failed or computed something wrong.
    fn refuse(&self, workload: &Workload, candidate: &Candidate, reason: &str);

    /// Lets calls of a workload use what was kept.
    fn settle(&self, workload: &Workload);
}

/// Short calls are repeated until a sample lasts this long: a hundred times what reading the clock is uncertain by.
const SAMPLE: Duration = Duration::from_millis(1);
/// Up to this many operations the reference says what is right; above it would take seconds, and the first candidate does.
const AFFORDABLE: f64 = 2e8;

/// Candidates on made-up operands of their own, each checked before it is timed.
pub struct CpuTrial<'a> {
    workload: &'a Workload,
    candidates: &'a [Candidate],
    device: &'a CpuDevice,
    probe: Probe,
    expected: Probe,
    /// Calls of a sample, once a candidate was checked.
    repeats: Vec<Option<u32>>,
}

impl<'a> CpuTrial<'a> {
    /// Makes up operands and computes what is right.
    pub fn new(workload: &'a Workload, candidates: &'a [Candidate], device: &'a CpuDevice) -> Result<Self> {
        let mut expected = Probe::new(workload, device)?;
        let reference = candidates.iter().find(|c| c.kernel.variant() == Variant::Naive);
        let judge = reference.filter(|c| c.cost.operations <= AFFORDABLE).or(candidates.first());
        if let Some(judge) = judge {
            launch(&*judge.kernel, judge, workload, &mut expected, device, 1).map_err(|reason| {
                crate::Error::KernelFailed { kernel: judge.kernel.name().to_owned(), reason }
            })?;
        }
        let probe = Probe::new(workload, device)?;
        Ok(Self { workload, candidates, device, probe, expected, repeats: vec![None; candidates.len()] })
    }

    /// The first calls: is it right, and how often must it be repeated?
    fn check(&mut self, point: usize) -> Result<u32, String> {
        let candidate = &self.candidates[point];
        // In place, the probe's input was overwritten by the candidate before.
        if self.workload.in_place() {
            self.probe = Probe::new(self.workload, self.device).map_err(|e| e.to_string())?;
        }
        let run =
            |probe: &mut Probe| launch(&*candidate.kernel, candidate, self.workload, probe, self.device, 1);
        run(&mut self.probe)?;
        self.probe.same_outputs(&self.expected, self.workload)?;
        let warm = run(&mut self.probe)?;
        Ok((SAMPLE.as_secs_f64() / warm.max(1e-8)).ceil().clamp(1.0, 1e6) as u32)
    }
}

impl Trial for CpuTrial<'_> {
    fn sample(&mut self, point: usize) -> Result<f64, String> {
        let repeats = if let Some(repeats) = self.repeats[point] { repeats } else { self.check(point)? };
        self.repeats[point] = Some(repeats);
        let candidate = &self.candidates[point];
        let kernel = &*candidate.kernel;
        if repeats > 1 {
            // The candidate before left the caches to itself: one call to settle.
            launch(kernel, candidate, self.workload, &mut self.probe, self.device, 1)?;
        }
        launch(kernel, candidate, self.workload, &mut self.probe, self.device, repeats)
    }
}

/// Seconds of one of some calls; a panic is an error.
fn launch(
    kernel: &dyn Kernel,
    candidate: &Candidate,
    workload: &Workload,
    probe: &mut Probe,
    device: &CpuDevice,
    repeats: u32,
) -> Result<f64, String> {
    let mut call = probe.call(workload, &candidate.parameters, device);
    device.threads().rouse(candidate.parameters.threads());
    let start = Instant::now();
    for _ in 0..repeats {
        match catch_unwind(AssertUnwindSafe(|| kernel.launch(&mut call))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("panicked".into()),
        }
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(repeats))
}

#[cfg(test)]
pub(super) mod testing {
    use super::{DeviceInfo, Kernel, Workload};
    use crate::ops::{Call, ComputeUnit, Cost, KernelError, OperationKind, Parameters, Traffic};
    use crate::tensor::DType;

    /// What a made-up kernel does.
    pub type Launch = fn(&mut Call<'_>) -> Result<(), KernelError>;

    /// A kernel that does one thing, often a wrong one.
    pub struct Own(pub Launch);

    impl Kernel for Own {
        fn name(&self) -> &'static str {
            "cpu::elementwise::own"
        }

        fn operation(&self) -> OperationKind {
            OperationKind::Elementwise
        }

        fn cost(&self, _: &Workload, _: &Parameters, _: &DeviceInfo) -> Cost {
            Cost::new(1.0, ComputeUnit { dtype: DType::F32, isa: None }, Traffic::default())
        }

        fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
            (self.0)(call)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::testing::{matmul, relu};
    use super::testing::{Launch, Own};
    use super::*;
    use crate::Runtime;
    use crate::ops::KernelError;
    use crate::selection::KernelHandle;

    fn runtime() -> Runtime {
        Runtime::builder().threads(1).without_calibration().build().unwrap()
    }

    #[test]
    fn every_candidate_is_checked_and_timed() {
        let (runtime, workload) = (runtime(), matmul(33, 17, 65));
        let candidates = runtime.selector().candidates(&workload).unwrap();
        let mut trial = CpuTrial::new(&workload, &candidates, runtime.device()).unwrap();
        for (point, candidate) in candidates.iter().enumerate() {
            for _ in 0..2 {
                let seconds = trial.sample(point).unwrap();
                assert!(seconds > 0.0, "{}: {seconds}", candidate.kernel.name());
            }
        }
    }

    #[test]
    fn what_is_wrong_fails_or_panics_is_refused_with_the_reason() {
        let (runtime, workload) = (runtime(), relu(&[64], None));
        let mut candidates = runtime.selector().candidates(&workload).unwrap();
        let bad: [Launch; 3] = [
            |call| {
                call.output::<f32>(0)?.fill(7.0);
                Ok(())
            },
            |_| Err(KernelError("not today".into())),
            |_| panic!("at last"),
        ];
        let first = candidates.len();
        for launch in bad {
            let kernel = KernelHandle::Custom(Arc::new(Own(launch)));
            candidates.push(Candidate { kernel, ..candidates[0].clone() });
        }
        let mut trial = CpuTrial::new(&workload, &candidates, runtime.device()).unwrap();
        let mut why = |point| trial.sample(point).unwrap_err();
        assert!(why(first).contains("is right"), "{}", why(first));
        assert_eq!((why(first + 1), why(first + 2)), ("not today".into(), "panicked".into()));
        assert!(trial.sample(0).is_ok(), "the others are not disturbed");
    }
}
