//! One workload measured: every candidate in turns, as rows for the store.

use std::time::Duration;

use anyhow::Result;
use shapewise::Runtime;
use shapewise::backends::cpu::Probe;
use shapewise::device::Fingerprint;
use shapewise::measure::{SurveyOptions, Surveyed, survey};
use shapewise::modelling::{FEATURES_VERSION, WorkloadFeatures};
use shapewise::ops::{Variant, Workload};
use shapewise::selection::Candidate;
use shapewise::sensors::{Machine, Sensors};
use shapewise::store::{Evidence, EvidenceId};
use shapewise::tracking::Timings;

/// Samples of a candidate: an odd number, so that the median is one of them, and enough to see scatter.
const SAMPLES: usize = 9;
/// A sample lasts this long at least: ten thousand readings of the clock.
const SAMPLE_TIME: Duration = Duration::from_micros(300);
/// Candidates this many times slower than the best at their first calls keep the time of those.
const GIVE_UP: f64 = 4.0;
/// The median stands as long as fewer than half of the samples are disturbed; above, the machine counts as busy.
const BUSY: f64 = 0.5;

/// The survey does not repeat a first call that takes longer, so an interruption there makes a candidate look hopeless.
const CALLED_ONCE: f64 = 0.02;
/// Nineteen of twenty candidates stay within this multiple of their peaks: e to the 4.10 (docs/modelling.md).
const FAR_BEHIND: f64 = 60.0;

/// Up to this many operations the reference judges the others' answers, as where the library checks users' kernels; above,
/// it would take longer than all timings.
const AFFORDABLE: f64 = 2e8;

/// What came of a workload.
pub struct Outcome {
    /// A row for each candidate whose answer is right.
    pub rows: Vec<Evidence>,
    /// The others, and what is wrong with each.
    pub wrong: Vec<String>,
}

/// Measures workloads one after the other.
pub struct Meter<'a> {
    runtime: &'a Runtime,
    device: Fingerprint,
    machine: Machine,
}

impl<'a> Meter<'a> {
    /// A meter on the device of a runtime.
    pub fn new(runtime: &'a Runtime) -> Self {
        let mut machine = Machine::new();
        machine.sample();
        Self { runtime, device: Fingerprint::of(runtime.device_info()), machine }
    }

    /// Times every candidate of a workload, then looks at one more answer of each.
    ///
    /// This is the one place that measures: a search that times fewer candidates takes its place.
    pub fn measure(&mut self, workload: &Workload) -> Result<Outcome> {
        let options = SurveyOptions {
            samples: SAMPLES,
            sample_time: SAMPLE_TIME,
            give_up: GIVE_UP,
            ..SurveyOptions::default()
        };
        self.machine.sample();
        let mut surveyed = survey(self.runtime, workload, &options)?;
        let doubtful = doubtful(&surveyed);
        if !doubtful.is_empty() {
            let mut again = survey(self.runtime, workload, &options)?;
            for i in doubtful {
                std::mem::swap(&mut surveyed[i], &mut again[i]);
            }
        }
        let state = self.machine.sample();
        let others = state.load.zip(state.own_load).map(|(all, own)| all - own);
        let busy = others.is_some_and(|share| share > BUSY);
        // One that failed has no times and so no row; nothing of it is left to check.
        surveyed.retain(|s| !s.samples.is_empty());
        let wrong = self.judge(workload, &mut surveyed)?;
        let shared = WorkloadFeatures::new(workload);
        let rows = surveyed.iter().filter_map(|s| self.row(workload, &shared, s, busy)).collect();
        Ok(Outcome { rows, wrong })
    }

    /// Takes out the candidates whose answers on made-up data are wrong, and says why.
    fn judge(&self, workload: &Workload, surveyed: &mut Vec<Surveyed>) -> Result<Vec<String>> {
        let cheap = |s: &&Surveyed| s.candidate.cost.operations <= AFFORDABLE;
        let reference = |s: &&Surveyed| s.candidate.kernel.variant() == Variant::Naive && cheap(s);
        let Some(judge) = surveyed.iter().find(reference).or(surveyed.first()) else { return Ok(Vec::new()) };
        let (name, mut wrong) = (judge.candidate.kernel.name().to_owned(), Vec::new());
        let expected = self.answer(workload, &judge.candidate)?;
        surveyed.retain(|s| {
            let candidate = &s.candidate;
            let same = self
                .answer(workload, candidate)
                .map_err(|error| error.to_string())
                .and_then(|found| found.same_outputs(&expected, workload));
            if let Err(why) = &same {
                let (kernel, parameters) = (candidate.kernel.name(), &candidate.parameters);
                wrong.push(format!("{kernel} {parameters} does not agree with {name} on {workload}: {why}"));
            }
            same.is_ok()
        });
        Ok(wrong)
    }

    /// Made-up data with what a candidate computes of it.
    fn answer(&self, workload: &Workload, candidate: &Candidate) -> Result<Probe> {
        let device = self.runtime.device();
        let mut probe = Probe::new(workload, device)?;
        candidate.kernel.launch(&mut probe.call(workload, &candidate.parameters, device))?;
        Ok(probe)
    }

    fn row(
        &self,
        workload: &Workload,
        shared: &WorkloadFeatures,
        surveyed: &Surveyed,
        busy: bool,
    ) -> Option<Evidence> {
        let candidate = &surveyed.candidate;
        let timings = Timings::of(&surveyed.samples)?;
        let kernel = candidate.kernel.name();
        let terms = candidate.terms.as_ref();
        let features = terms.map(|t| shared.candidate(kernel, &candidate.parameters, &candidate.cost, t));
        Some(Evidence {
            id: EvidenceId::new(),
            device: self.device.clone(),
            operation: workload.kind().name().to_owned(),
            workload: workload.key(),
            description: workload.to_string(),
            kernel: kernel.to_owned(),
            source: candidate.kernel.source(),
            parameters: candidate.parameters.to_string(),
            seconds: timings.seconds,
            samples: timings.samples as u32,
            spread: timings.spread,
            busy,
            baseline: candidate.roofline(),
            features: features.map_or(Vec::new(), |f| f.0.to_vec()),
            features_version: FEATURES_VERSION,
            measured_at: timings.at,
        })
    }
}

/// Candidates that were given up though the peaks rank them first, or after one call that took far longer than theirs
/// allow: an interruption looks the same.
fn doubtful(surveyed: &[Surveyed]) -> Vec<usize> {
    let limits = surveyed.iter().filter_map(|s| s.candidate.roofline());
    let least = limits.fold(f64::INFINITY, f64::min);
    let doubt = |s: &Surveyed| {
        let (Some(&seconds), Some(limit)) = (s.samples.first(), s.candidate.roofline()) else { return false };
        s.given_up && (limit <= least || seconds > CALLED_ONCE && seconds > FAR_BEHIND * limit)
    };
    (0..surveyed.len()).filter(|&i| doubt(&surveyed[i])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use shapewise::device::DeviceInfo;
    use shapewise::ops::{
        Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic,
    };
    use shapewise::{DType, Tensor};

    #[test]
    fn every_candidate_becomes_a_row_that_may_be_kept() {
        let runtime = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let x = Tensor::full(1.0f32, &[100]).unwrap();
        let workload = runtime.workloads(|rt| rt.relu(&x)).unwrap().remove(0);
        let Outcome { rows, wrong } = Meter::new(&runtime).measure(&workload).unwrap();
        let candidates = runtime.selector().candidates(&workload).unwrap();
        assert!(!candidates.is_empty());
        // Kernels that gave way to wider registers are measured too.
        for candidate in &candidates {
            let rows = rows.iter().filter(|row| candidate.is(&row.kernel, &row.parameters));
            assert_eq!(rows.count(), 1, "{}", candidate.kernel.name());
        }
        assert!(wrong.is_empty(), "{wrong:?}");
        for row in &rows {
            row.validate().unwrap();
            assert_eq!(row.workload, workload.key());
            assert_eq!(row.baseline, None, "without peaks there is no roofline");
        }
    }

    /// Does nothing at all, which is fast.
    struct Lazy;

    impl Kernel for Lazy {
        fn name(&self) -> &'static str {
            "cpu::elementwise::lazy"
        }
        fn operation(&self) -> OperationKind {
            OperationKind::Elementwise
        }
        fn constraints(&self) -> &[Constraint] {
            &[]
        }
        fn cost(&self, _: &Workload, _: &Parameters, _: &DeviceInfo) -> Cost {
            Cost::new(1.0, ComputeUnit { dtype: DType::F32, isa: None }, Traffic::default())
        }
        fn launch(&self, _: &mut Call<'_>) -> Result<(), KernelError> {
            Ok(())
        }
    }

    #[test]
    fn a_candidate_that_is_fast_and_wrong_gets_no_row() {
        let runtime = Runtime::builder().threads(1).without_calibration().build().unwrap();
        runtime.kernels().register(Arc::new(Lazy)).unwrap();
        let x = Tensor::full(1.0f32, &[100]).unwrap();
        let workload = runtime.workloads(|rt| rt.exp(&x)).unwrap().remove(0);
        let Outcome { rows, wrong } = Meter::new(&runtime).measure(&workload).unwrap();
        assert!(rows.len() > 1 && rows.iter().all(|row| !row.kernel.ends_with("lazy")));
        assert!(wrong.len() == 1 && wrong[0].contains("cpu::elementwise::reference"), "{wrong:?}");
    }
}
