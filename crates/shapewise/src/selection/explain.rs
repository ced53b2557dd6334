//! Why a kernel was chosen, for people and for programs.

use std::fmt;

use serde::Serialize;

use super::{Candidate, Considered, Entry};
use crate::device::DeviceInfo;
use crate::modelling::{Basis, Estimate, OperationModel, Prediction, Validation};
use crate::ops::{Cost, Variant, Workload};
use crate::tracking::Measured;

/// A candidate as explained.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedCandidate {
    /// Kernel name.
    pub kernel: String,
    /// What kind of implementation it is.
    pub variant: Variant,
    /// Its parameters, in words.
    pub parameters: String,
    /// Seconds with their interval, as the policy believes them; `null` where nothing is known.
    pub predicted: Option<Prediction>,
    /// Bytes of operands and scratch together.
    pub memory: usize,
    /// Arithmetic operations per second at the predicted time.
    pub operations_per_second: Option<f64>,
    /// Bytes of operands per second at the predicted time.
    pub bytes_per_second: Option<f64>,
    /// Seconds from its cost over the measured peaks.
    pub roofline: Option<f64>,
    /// What it took on this workload.
    pub measured: Option<Measured>,
    /// What it would execute.
    pub cost: Cost,
}

impl ExplainedCandidate {
    fn new(candidate: &Candidate, workload: &Workload) -> Self {
        let Candidate { kernel, parameters, predicted, measured, cost, .. } = candidate;
        let estimate = predicted.map(|time| Estimate::new(workload, cost, time));
        Self {
            kernel: kernel.name().to_owned(),
            variant: kernel.variant(),
            parameters: parameters.to_string(),
            predicted: *predicted,
            memory: workload.bytes().saturating_add(cost.scratch),
            operations_per_second: estimate.map(|e| e.operations_per_second),
            bytes_per_second: estimate.map(|e| e.bytes_per_second),
            roofline: candidate.roofline(),
            measured: *measured,
            cost: *cost,
        }
    }
}

/// What the operation's times were learned from.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedModel {
    /// What learned them.
    pub name: &'static str,
    /// Measurements.
    pub examples: usize,
    /// Different workloads among them.
    pub shapes: usize,
    /// Errors on shapes that were left out of training; `null` before there are enough shapes.
    pub validation: Option<Validation>,
}

impl ExplainedModel {
    pub(crate) fn of(model: &OperationModel) -> Self {
        let (examples, shapes) = model.evidence();
        Self { name: model.model(), examples, shapes, validation: model.validation() }
    }
}

impl fmt::Display for ExplainedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, examples, shapes, validation } = self;
        write!(f, "{name}, from {examples} measurements of {shapes} workloads")?;
        match validation {
            None => write!(f, "; too few to leave some out and see how far off it is"),
            Some(Validation { mean_error, speed, .. }) => {
                let (error, speed) = (100.0 * mean_error, 100.0 * speed);
                write!(
                    f,
                    "; on workloads left out it is off by {error:.0} % and picks kernels of {speed:.0} % of the best speed"
                )
            }
        }
    }
}

/// A kernel that refused.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedRefusal {
    /// Kernel name.
    pub kernel: String,
    /// Every reason.
    pub reasons: Vec<String>,
}

/// How far a workload's decision has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Nobody has called it yet.
    New,
    /// Candidates take turns on the user's calls.
    Racing,
    /// One candidate runs, and is watched.
    Settled,
}

/// Candidates, refusals and the decision for one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The workload in words.
    pub workload: String,
    /// The device in words.
    pub device: String,
    /// The policy that decided.
    pub policy: String,
    /// What the operation's times were learned from; `null` before anything was.
    pub model: Option<ExplainedModel>,
    /// Candidates, fastest prediction first.
    pub candidates: Vec<ExplainedCandidate>,
    /// Those that refused.
    pub refusals: Vec<ExplainedRefusal>,
    /// The chosen kernel.
    pub chosen: String,
    /// Its parameters, in words.
    pub parameters: String,
    /// The rule that decided.
    pub reason: String,
    /// How far the decision has come.
    pub stage: Stage,
    /// What would change the choice.
    pub would_change: String,
}

impl Explanation {
    pub(crate) fn new(
        workload: &Workload,
        device: &DeviceInfo,
        policy: &str,
        model: Option<ExplainedModel>,
        considered: &Considered,
        entry: Option<&Entry>,
    ) -> Self {
        let candidates = &considered.candidates;
        let decided = &candidates.accepted[considered.decision.index];
        // A published choice is what runs, or who leads its race; without one, what would be picked now.
        let now = || (decided.clone(), considered.decision.reason.clone());
        let (chosen, reason) = entry.map_or_else(now, Entry::running);
        let mut explained: Vec<_> =
            candidates.accepted.iter().map(|c| ExplainedCandidate::new(c, workload)).collect();
        let time = |c: &ExplainedCandidate| c.predicted.map_or(f64::INFINITY, |p| p.seconds);
        explained.sort_by(|a, b| time(a).total_cmp(&time(b)));
        let refusals = candidates.refused.iter().map(|(kernel, why)| ExplainedRefusal {
            kernel: kernel.name().to_owned(),
            reasons: why.iter().map(ToString::to_string).collect(),
        });
        let (chosen, parameters) = (chosen.kernel.name().to_owned(), chosen.parameters.to_string());
        Self {
            workload: workload.to_string(),
            device: format!("{} ({} threads)", device.name, device.threads),
            policy: policy.to_owned(),
            model,
            would_change: would_change(&explained, &chosen, &parameters),
            candidates: explained,
            refusals: refusals.collect(),
            chosen,
            parameters,
            reason,
            stage: match entry {
                None => Stage::New,
                Some(entry) if entry.trials.is_some() => Stage::Racing,
                Some(_) => Stage::Settled,
            },
        }
    }
}

/// The nearest rival and what it would take for it to be chosen.
fn would_change(candidates: &[ExplainedCandidate], chosen: &str, parameters: &str) -> String {
    let is_chosen = |c: &&ExplainedCandidate| c.kernel == chosen && c.parameters == parameters;
    let own = candidates.iter().find(is_chosen).and_then(|c| c.predicted);
    let rival = candidates.iter().filter(|c| !is_chosen(c)).find_map(|c| c.predicted.map(|p| (c, p)));
    match (own, rival) {
        (_, None) if candidates.len() == 1 => "nothing: no other kernel takes this workload".into(),
        (Some(own), Some((rival, time))) => {
            let name = format!("{} {}", rival.kernel, rival.parameters);
            let percent = (1.0 - own.seconds / time.seconds) * 100.0;
            let unsure = time.basis != Basis::Measured && time.low <= own.high;
            let overlap = if unsure { "; its interval overlaps, so calls may try it" } else { "" };
            if percent > 0.0 {
                format!("{} being {percent:.1} % faster than predicted{overlap}", name.trim_end())
            } else {
                format!("a race: {} is predicted as fast or faster{overlap}", name.trim_end())
            }
        }
        _ => "calibration or measurements: nothing is known about the times".into(),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n  on {}", self.workload, self.device)?;
        writeln!(f, "\ncandidates, by the policy `{}`:", self.policy)?;
        for c in &self.candidates {
            let mark = if c.kernel == self.chosen && c.parameters == self.parameters { '→' } else { ' ' };
            write!(f, "{mark} {:<40} {:<28} ", c.kernel, c.parameters)?;
            match c.predicted {
                None => writeln!(f, "{:>14}", "not predicted")?,
                Some(p) => {
                    let us = |s: f64| s * 1e6;
                    let samples = c.measured.map_or(0, |m| m.samples);
                    let (time, low, high) = (us(p.seconds), us(p.low), us(p.high));
                    write!(f, "{time:>11.2} µs  [{low:.2} … {high:.2}]  {}", p.basis)?;
                    if samples > 0 { writeln!(f, " {samples}×")? } else { writeln!(f)? }
                }
            }
        }
        if !self.refusals.is_empty() {
            writeln!(f, "\nrefused:")?;
            for r in &self.refusals {
                writeln!(f, "  {:<40} {}", r.kernel, r.reasons.join("; "))?;
            }
        }
        if let Some(model) = &self.model {
            writeln!(f, "\nlearned by: {model}")?;
        }
        let stage = match self.stage {
            Stage::New => "not called yet",
            Stage::Racing => "racing on the calls",
            Stage::Settled => "settled",
        };
        writeln!(f, "\nchosen: {} {} ({stage})\nbecause: {}", self.chosen, self.parameters, self.reason)?;
        write!(f, "what would change it: {}", self.would_change)
    }
}
