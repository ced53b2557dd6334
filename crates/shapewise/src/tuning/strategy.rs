//! The trait of every backend's knowledge of how to tune, and what all of them do with their proposals.

use std::time::Instant;

use serde::Serialize;

use super::characteristics::{Bound, Characteristics};
use super::constraints::{Outlook, TuningConstraints, TuningError};
use super::cpu::CpuPlan;
use super::cuda::CudaPlan;
use super::feedback::{Book, Feedback, TuningMetrics};
use super::metal::MetalPlan;
use super::webgpu::WebGpuPlan;
use crate::Result;
use crate::device::BackendKind;
use crate::modelling::Prediction;
use crate::ops::{Parameters, Workload};
use crate::sensors::SystemState;

/// A backend's knowledge of how to tune: where to start, what to expect, what was learned.
pub trait BackendTuningStrategy: Send {
    /// Which family of devices.
    fn backend(&self) -> BackendKind;

    /// The parameters to start from, within the constraints.
    fn tune_for_workload(
        &mut self,
        workload: &Workload,
        state: &SystemState,
        constraints: &TuningConstraints,
    ) -> Result<TuningRecommendation, TuningError>;

    /// Seconds of one call at these parameters; `None` where nothing calibrated or measured tells.
    fn predict_performance(&self, workload: &Workload, parameters: &Parameters) -> Option<Prediction>;

    /// Takes in what a run took; later recommendations and predictions follow it.
    fn update_from_feedback(&mut self, feedback: &Feedback) -> Result<()>;

    /// Counted from what happened.
    fn metrics(&self) -> TuningMetrics;
}

/// What a backend does with the parameters beyond the kernel's own tunables.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendPlan {
    /// On the CPU.
    Cpu(CpuPlan),
    /// On an NVIDIA GPU.
    Cuda(CudaPlan),
    /// On an Apple GPU.
    Metal(MetalPlan),
    /// Through WebGPU.
    WebGpu(WebGpuPlan),
}

/// Parameters, and what is expected of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// Values of the tunables.
    pub parameters: Parameters,
    /// Seconds of one call, if anything tells.
    pub expected: Option<Prediction>,
    /// The rest of the plan.
    pub plan: BackendPlan,
}

/// Where to start with a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct TuningRecommendation {
    /// The family of devices it is for.
    pub backend: BackendKind,
    /// The kernel that the parameters belong to; `None` where the strategy knows no kernels, only what they must keep to.
    pub kernel: Option<&'static str>,
    /// What is recommended.
    pub best: Alternative,
    /// The next best, best first.
    pub alternatives: Vec<Alternative>,
    /// What limits the workload.
    pub bound: Option<Bound>,
    /// What the workload is like.
    pub characteristics: Characteristics,
    /// Why, for people.
    pub reasons: Vec<String>,
}

/// The most alternatives of a recommendation.
const MOST_ALTERNATIVES: usize = 3;

/// One point that a backend proposes.
pub(super) struct Proposal {
    pub parameters: Parameters,
    pub plan: BackendPlan,
    /// Seconds by the backend's model.
    pub seconds: Option<f64>,
    /// What the order follows: seconds, or the model's own unit where no peak is known, with the power mode's weight.
    pub order: f64,
    /// Bytes of operands and scratch.
    pub memory: u64,
    pub threads: usize,
}

/// What a backend makes of a request before anything was learned.
pub(super) struct Proposed {
    pub proposals: Vec<Proposal>,
    /// The kernel that they belong to.
    pub kernel: Option<&'static str>,
    pub bound: Option<Bound>,
    pub characteristics: Characteristics,
    pub reasons: Vec<String>,
}

/// A backend's own part of a strategy.
pub(super) trait Proposes {
    const BACKEND: BackendKind;

    fn propose(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &TuningConstraints,
    ) -> Result<Proposed, TuningError>;

    /// Seconds that the model alone expects at any parameters.
    fn modelled(&self, workload: &Workload, parameters: &Parameters) -> Option<f64>;

    fn book(&self) -> &Book;
    fn book_mut(&mut self) -> &mut Book;
}

impl<P: Proposes + Send> BackendTuningStrategy for P {
    fn backend(&self) -> BackendKind {
        P::BACKEND
    }

    fn tune_for_workload(
        &mut self,
        workload: &Workload,
        state: &SystemState,
        constraints: &TuningConstraints,
    ) -> Result<TuningRecommendation, TuningError> {
        let start = Instant::now();
        constraints.admit(P::BACKEND, state)?;
        let proposed = self.propose(workload, state, constraints)?;
        let recommendation = recommend::<P>(self.book(), workload, state, constraints, proposed)?;
        self.book_mut().tuned(start.elapsed());
        Ok(recommendation)
    }

    fn predict_performance(&self, workload: &Workload, parameters: &Parameters) -> Option<Prediction> {
        let modelled = self.modelled(workload, parameters);
        self.book().predict(workload.key(), workload.kind(), parameters, modelled)
    }

    fn update_from_feedback(&mut self, feedback: &Feedback) -> Result<()> {
        let modelled = self.modelled(&feedback.workload, &feedback.parameters);
        let told = self.predict_performance(&feedback.workload, &feedback.parameters).map(|p| p.seconds);
        self.book_mut().report(feedback, modelled, told)
    }

    fn metrics(&self) -> TuningMetrics {
        self.book().metrics()
    }
}

/// Puts what was learned and what is allowed over a backend's proposals.
fn recommend<P: Proposes>(
    book: &Book,
    workload: &Workload,
    state: &SystemState,
    constraints: &TuningConstraints,
    proposed: Proposed,
) -> Result<TuningRecommendation, TuningError> {
    let Proposed { proposals, kernel, bound, characteristics, mut reasons } = proposed;
    let key = workload.key();
    let (mut allowed, mut broken) = (Vec::with_capacity(proposals.len()), Vec::new());
    let mut failed = 0;
    for proposal in proposals {
        let Proposal { parameters, plan, seconds, order, memory, threads } = proposal;
        if book.failed(key, &parameters) {
            failed += 1;
            continue;
        }
        let expected = book.predict(key, workload.kind(), &parameters, seconds);
        let outlook = Outlook {
            memory,
            threads,
            seconds: expected.map(|p| (p.seconds, p.high)),
            watts: book.watts(key, &parameters),
            operations: characteristics.operations,
        };
        if let Some(why) = constraints.broken(&outlook, state) {
            broken.push(why);
            continue;
        }
        // The order moves as the prediction moved away from the model.
        let moved = expected.zip(seconds).map_or(1.0, |(p, seconds)| p.seconds / seconds);
        allowed.push((order * moved, Alternative { parameters, expected, plan }));
    }
    allowed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut allowed = allowed.into_iter().map(|(_, alternative)| alternative);
    let Some(best) = allowed.next() else {
        return Err(
            TuningConstraints::impossible(&broken).unwrap_or_else(|| nothing_left(P::BACKEND, failed))
        );
    };
    if failed > 0 {
        reasons.push(format!("{failed} points failed before and are left out"));
    }
    if !broken.is_empty() {
        reasons.push(format!("{} points break a constraint", broken.len()));
    }
    if let Some(expected) = &best.expected {
        reasons.push(format!("{:.3e} s are expected, from what was {}", expected.seconds, expected.basis));
    }
    let alternatives = allowed.take(MOST_ALTERNATIVES).collect();
    let backend = P::BACKEND;
    Ok(TuningRecommendation { backend, kernel, best, alternatives, bound, characteristics, reasons })
}

fn nothing_left(backend: BackendKind, failed: usize) -> TuningError {
    TuningError::Library(crate::Error::Unsupported {
        what: format!("this workload on {backend}"),
        reason: format!("all {failed} points that could be proposed have failed"),
    })
}
