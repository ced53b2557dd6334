//! What happened with recommendations: it changes later ones, and the metrics count it.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::modelling::{Basis, Prediction};
use crate::ops::{OperationKind, Parameters, Workload, WorkloadKey};
use crate::tensor::DType;
use crate::{Error, Result};

/// What one run of a recommendation took.
#[derive(Clone, Debug)]
pub struct Feedback {
    /// The workload that ran.
    pub workload: Workload,
    /// The parameters it ran with.
    pub parameters: Parameters,
    /// Seconds of one call, or why it failed.
    pub outcome: Result<f64, String>,
    /// Seconds of one call with default parameters, if somebody measured them.
    pub default_seconds: Option<f64>,
    /// Joules of one call, if somebody measured them.
    pub joules: Option<f64>,
}

/// Counted from what happened; all zero before anything did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TuningMetrics {
    /// Recommendations that were given.
    pub optimisations: u64,
    /// Runs that were reported.
    pub reports: u64,
    /// The share of reported runs that did not fail.
    pub success_rate: f64,
    /// Runs whose time had been predicted.
    pub predictions: u64,
    /// The smaller of predicted and measured time ÷ the larger one, geometric mean.
    pub prediction_accuracy: f64,
    /// Default time ÷ measured time, geometric mean of the runs whose default time is known.
    pub speed_up: f64,
    /// Joules of all runs that measured them.
    pub joules: f64,
    /// Seconds that giving recommendations took, all together.
    pub overhead_seconds: f64,
}

/// A mean and a variance that grow with each number.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Running {
    fn add(&mut self, x: f64) {
        self.count += 1.0;
        let off = x - self.mean;
        self.mean += off / self.count;
        self.squares += off * (x - self.mean);
    }

    fn deviation(&self) -> Option<f64> {
        (self.count >= 2.0).then(|| (self.squares / (self.count - 1.0)).sqrt())
    }
}

/// What is known about one point on one workload.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    /// Logarithm of seconds.
    seconds: Running,
    /// Watts.
    watts: Running,
    failures: u32,
}

/// Everything reported so far.
#[derive(Debug, Default)]
pub(super) struct Book {
    tracks: FxHashMap<(WorkloadKey, Parameters), Track>,
    /// Logarithm of measured ÷ modelled time, by operation.
    residuals: FxHashMap<OperationKind, Running>,
    /// What ran at all: where code is compiled for its parameters it is compiled now.
    ran: FxHashSet<(OperationKind, DType, Parameters)>,
    optimisations: u64,
    overhead: Duration,
    reports: u64,
    failures: u64,
    accuracy: Running,
    speed_up: Running,
    joules: f64,
}

impl Book {
    /// A recommendation was given and took this long.
    pub fn tuned(&mut self, took: Duration) {
        self.optimisations += 1;
        self.overhead += took;
    }

    /// A run was reported; `modelled` is what the model alone says, `predicted` what was told.
    pub fn report(
        &mut self,
        feedback: &Feedback,
        modelled: Option<f64>,
        predicted: Option<f64>,
    ) -> Result<()> {
        let times = feedback.outcome.iter().chain(&feedback.default_seconds).chain(&feedback.joules);
        if let Some(wrong) = times.copied().find(|t| !(t.is_finite() && *t > 0.0)) {
            let reason = format!("{wrong} cannot have been measured; times and energies are above zero");
            return Err(Error::InvalidArgument { operation: "feedback", reason });
        }
        let key = (feedback.workload.key(), feedback.parameters.clone());
        let track = self.tracks.entry(key).or_default();
        self.reports += 1;
        let Ok(seconds) = feedback.outcome else {
            track.failures += 1;
            self.failures += 1;
            return Ok(());
        };
        track.seconds.add(seconds.ln());
        let dtype = feedback.workload.outputs().first().map_or(DType::F32, |o| o.dtype);
        self.ran.insert((feedback.workload.kind(), dtype, feedback.parameters.clone()));
        if let Some(joules) = feedback.joules {
            track.watts.add(joules / seconds);
            self.joules += joules;
        }
        if let Some(modelled) = modelled {
            self.residuals.entry(feedback.workload.kind()).or_default().add((seconds / modelled).ln());
        }
        if let Some(predicted) = predicted {
            self.accuracy.add(-(seconds / predicted).ln().abs());
        }
        if let Some(default) = feedback.default_seconds {
            self.speed_up.add((default / seconds).ln());
        }
        Ok(())
    }

    /// Why a point must not be proposed again.
    pub fn failed(&self, workload: WorkloadKey, parameters: &Parameters) -> bool {
        // A point that has failed may be a bad one or a bad moment; once it failed more often than it ran it is out.
        self.track(workload, parameters).is_some_and(|t| f64::from(t.failures) > t.seconds.count)
    }

    /// Whether a point has run on any workload of an operation and type.
    pub fn ran(&self, operation: OperationKind, dtype: DType, parameters: &Parameters) -> bool {
        !self.ran.is_empty() && self.ran.contains(&(operation, dtype, parameters.clone()))
    }

    /// Watts that a point drew on a workload.
    pub fn watts(&self, workload: WorkloadKey, parameters: &Parameters) -> Option<f64> {
        self.track(workload, parameters).filter(|t| t.watts.count > 0.0).map(|t| t.watts.mean)
    }

    /// Seconds of a point: what was measured of it, else the model's corrected by what was measured of its operation.
    ///
    /// The correction is the mean of the logarithms of measured ÷ modelled, drawn to none as if one more run had been as
    /// modelled.
    pub fn predict(
        &self,
        workload: WorkloadKey,
        operation: OperationKind,
        parameters: &Parameters,
        modelled: Option<f64>,
    ) -> Option<Prediction> {
        if let Some(track) = self.track(workload, parameters).filter(|t| t.seconds.count > 0.0) {
            let reach = track.seconds.deviation().map(|d| 2.0 * d / track.seconds.count.sqrt());
            return within(track.seconds.mean.exp(), reach, Basis::Measured);
        }
        let seconds = modelled.filter(|s| s.is_finite() && *s > 0.0)?;
        let Some(residual) = self.residuals.get(&operation) else {
            return within(seconds, None, Basis::Roofline);
        };
        let shift = residual.mean * residual.count / (residual.count + 1.0);
        within(seconds * shift.exp(), residual.deviation().map(|d| 2.0 * d), Basis::Transfer)
    }

    fn track(&self, workload: WorkloadKey, parameters: &Parameters) -> Option<&Track> {
        // Before any report there is nothing to look up, and a copy of the parameters to save.
        if self.tracks.is_empty() {
            return None;
        }
        self.tracks.get(&(workload, parameters.clone()))
    }

    pub fn metrics(&self) -> TuningMetrics {
        let ratio = |running: &Running| if running.count > 0.0 { running.mean.exp() } else { 0.0 };
        let successes = self.reports - self.failures;
        TuningMetrics {
            optimisations: self.optimisations,
            reports: self.reports,
            success_rate: if self.reports > 0 { successes as f64 / self.reports as f64 } else { 0.0 },
            predictions: self.accuracy.count as u64,
            prediction_accuracy: ratio(&self.accuracy),
            speed_up: ratio(&self.speed_up),
            joules: self.joules,
            overhead_seconds: self.overhead.as_secs_f64(),
        }
    }
}

/// An interval of this reach in logarithms: two standard deviations hold 95 of 100 times. Without a reach it is half to
/// double the time, which claims nothing.
fn within(seconds: f64, reach: Option<f64>, basis: Basis) -> Option<Prediction> {
    let (factor, confidence) = reach.map_or((2.0, 0.0), |reach| (reach.exp(), 0.95));
    let prediction = Prediction { seconds, low: seconds / factor, high: seconds * factor, confidence, basis };
    let whole =
        [prediction.seconds, prediction.low, prediction.high].iter().all(|t| t.is_finite() && *t > 0.0);
    whole.then_some(prediction)
}

#[cfg(test)]
mod tests {
    use super::super::testing::matmul;
    use super::*;
    use crate::ops::Knob;

    fn run(outcome: Result<f64, String>) -> Feedback {
        let parameters = Parameters::new().with(Knob::Threads, 2);
        Feedback {
            workload: matmul(8, 8, 8),
            parameters,
            outcome,
            default_seconds: Some(2.0),
            joules: Some(3.0),
        }
    }

    #[test]
    fn nothing_done_is_zero_everywhere() {
        assert_eq!(Book::default().metrics(), TuningMetrics::default());
    }

    #[test]
    fn metrics_count_what_happened() {
        let mut book = Book::default();
        book.tuned(Duration::from_secs(1));
        book.report(&run(Ok(1.0)), Some(0.5), Some(0.5)).unwrap();
        book.report(&run(Err("no memory".into())), None, None).unwrap();
        let metrics = book.metrics();
        assert_eq!((metrics.optimisations, metrics.reports, metrics.predictions), (1, 2, 1));
        assert_eq!((metrics.success_rate, metrics.joules, metrics.overhead_seconds), (0.5, 3.0, 1.0));
        assert!((metrics.prediction_accuracy - 0.5).abs() < 1e-12);
        assert!((metrics.speed_up - 2.0).abs() < 1e-12);
    }

    #[test]
    fn what_was_measured_counts_more_than_the_model() {
        let (mut book, feedback) = (Book::default(), run(Ok(4.0)));
        let (key, kind) = (feedback.workload.key(), feedback.workload.kind());
        let ask = |book: &Book, p: &Parameters| book.predict(key, kind, p, Some(1.0)).unwrap();
        let other = Parameters::new();
        assert_eq!(ask(&book, &feedback.parameters).basis, Basis::Roofline);
        book.report(&feedback, Some(1.0), None).unwrap();
        let measured = ask(&book, &feedback.parameters);
        assert_eq!((measured.basis, measured.confidence), (Basis::Measured, 0.0));
        assert!((measured.seconds - 4.0).abs() < 1e-12);
        let moved = ask(&book, &other);
        assert_eq!(moved.basis, Basis::Transfer);
        assert!((moved.seconds - 2.0).abs() < 1e-12, "half of the way in logarithms: {}", moved.seconds);
        assert_eq!(book.watts(key, &feedback.parameters), Some(0.75));
        assert_eq!(book.watts(key, &other), None);
        book.report(&feedback, Some(1.0), None).unwrap();
        assert_eq!(ask(&book, &feedback.parameters).confidence, 0.95);
    }

    #[test]
    fn what_fails_more_often_than_it_runs_is_out() {
        let mut book = Book::default();
        let feedback = run(Err("hangs".into()));
        let key = feedback.workload.key();
        assert!(!book.failed(key, &feedback.parameters));
        book.report(&feedback, None, None).unwrap();
        assert!(book.failed(key, &feedback.parameters));
        book.report(&run(Ok(1.0)), None, None).unwrap();
        assert!(!book.failed(key, &feedback.parameters));
    }

    #[test]
    fn impossible_numbers_are_refused_and_change_nothing() {
        let mut book = Book::default();
        for wrong in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
            assert!(book.report(&run(Ok(wrong)), None, None).is_err());
            let default = Feedback { default_seconds: Some(wrong), ..run(Ok(1.0)) };
            assert!(book.report(&default, None, None).is_err());
        }
        assert_eq!(book.metrics(), TuningMetrics::default());
    }
}
