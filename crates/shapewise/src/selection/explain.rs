//! Why a kernel was chosen, for people and for programs.

use std::fmt;

use serde::Serialize;

use super::{Candidates, Decision};
use crate::device::DeviceInfo;
use crate::ops::{Cost, Variant, Workload};

/// A candidate as explained.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedCandidate {
    /// Kernel name.
    pub kernel: String,
    /// What kind of implementation it is.
    pub variant: Variant,
    /// Its parameters, in words.
    pub parameters: String,
    /// Predicted microseconds; `null` where a peak was not measured.
    pub predicted_us: Option<f64>,
    /// What it would execute.
    pub cost: Cost,
}

/// A kernel that refused.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedRefusal {
    /// Kernel name.
    pub kernel: String,
    /// Every reason.
    pub reasons: Vec<String>,
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
    /// Candidates, fastest prediction first.
    pub candidates: Vec<ExplainedCandidate>,
    /// Those that refused.
    pub refusals: Vec<ExplainedRefusal>,
    /// The kernel that was chosen.
    pub chosen: String,
    /// Its parameters.
    pub parameters: String,
    /// The rule that decided.
    pub reason: String,
}

impl Explanation {
    pub(crate) fn new(
        workload: &Workload,
        device: &DeviceInfo,
        policy: &str,
        candidates: &Candidates,
        decision: &Decision,
    ) -> Self {
        let chosen = &candidates.accepted[decision.index];
        let mut explained: Vec<_> = candidates
            .accepted
            .iter()
            .map(|c| ExplainedCandidate {
                kernel: c.kernel.name().to_owned(),
                variant: c.kernel.variant(),
                parameters: c.parameters.to_string(),
                predicted_us: c.predicted.map(|s| s * 1e6),
                cost: c.cost,
            })
            .collect();
        let time = |c: &ExplainedCandidate| c.predicted_us.unwrap_or(f64::INFINITY);
        explained.sort_by(|a, b| time(a).total_cmp(&time(b)));
        let refusals = candidates
            .refused
            .iter()
            .map(|(kernel, why)| ExplainedRefusal {
                kernel: kernel.name().to_owned(),
                reasons: why.iter().map(ToString::to_string).collect(),
            })
            .collect();
        Self {
            workload: workload.to_string(),
            device: format!("{} ({} threads)", device.name, device.threads),
            policy: policy.to_owned(),
            candidates: explained,
            refusals,
            chosen: chosen.kernel.name().to_owned(),
            parameters: chosen.parameters.to_string(),
            reason: decision.reason.clone(),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n  on {}", self.workload, self.device)?;
        writeln!(f, "\ncandidates, by the policy `{}`:", self.policy)?;
        for c in &self.candidates {
            let mark = if c.kernel == self.chosen && c.parameters == self.parameters { '→' } else { ' ' };
            let time = c.predicted_us.map_or("not predicted".into(), |us| format!("{us:.2} µs"));
            writeln!(f, "{mark} {:<40} {:<28} {time:>16}", c.kernel, c.parameters)?;
        }
        if !self.refusals.is_empty() {
            writeln!(f, "\nrefused:")?;
            for r in &self.refusals {
                writeln!(f, "  {:<40} {}", r.kernel, r.reasons.join("; "))?;
            }
        }
        write!(f, "\nchosen: {} {}\nbecause: {}", self.chosen, self.parameters, self.reason)
    }
}
