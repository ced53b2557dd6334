//! One workload measured: every candidate in turns, as rows for the store.

use std::time::Duration;

use anyhow::Result;
use shapewise::Runtime;
use shapewise::device::Fingerprint;
use shapewise::measure::{SurveyOptions, Surveyed, survey};
use shapewise::modelling::{FEATURES_VERSION, WorkloadFeatures};
use shapewise::ops::Workload;
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

    /// Times every candidate of a workload.
    ///
    /// This is the one place that measures: a search that times fewer candidates takes its place.
    pub fn measure(&mut self, workload: &Workload) -> Result<Vec<Evidence>> {
        let options = SurveyOptions { samples: SAMPLES, sample_time: SAMPLE_TIME, give_up: GIVE_UP };
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
        let shared = WorkloadFeatures::new(workload);
        Ok(surveyed.iter().filter_map(|s| self.row(workload, &shared, s, busy)).collect())
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
    use shapewise::Tensor;

    #[test]
    fn every_candidate_becomes_a_row_that_may_be_kept() {
        let runtime = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let x = Tensor::full(1.0f32, &[100]).unwrap();
        let workload = runtime.workloads(|rt| rt.relu(&x)).unwrap().remove(0);
        let rows = Meter::new(&runtime).measure(&workload).unwrap();
        assert_eq!(rows.len(), runtime.selector().candidates(&workload).unwrap().len());
        for row in &rows {
            row.validate().unwrap();
            assert_eq!(row.workload, workload.key());
            assert_eq!(row.baseline, None, "without peaks there is no roofline");
        }
    }
}
