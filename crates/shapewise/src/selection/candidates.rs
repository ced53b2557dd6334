//! Kernels that accept a workload, at each point of their parameter space, with what they would cost.

use super::{KernelHandle, KernelRegistry};
use crate::device::DeviceInfo;
use crate::modelling;
use crate::ops::{Cost, Parameters, Refusal, Refusals, Workload};

/// What a user allows a call to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory for tensors and scratch together; `None` is no limit.
    pub memory: Option<usize>,
    /// Bytes of scratch memory in one call; kernels that need more are refused.
    pub scratch: Option<usize>,
}

/// A kernel at one point of its parameter space.
#[derive(Clone)]
pub struct Candidate {
    /// The kernel.
    pub kernel: KernelHandle,
    /// Values of its tunables.
    pub parameters: Parameters,
    /// What it would execute.
    pub cost: Cost,
    /// Predicted seconds; `None` where a peak it needs was not measured.
    pub predicted: Option<f64>,
}

/// The outcome of asking every kernel.
#[derive(Clone, Default)]
pub struct Candidates {
    /// Those that accept, in the order of the lists (users' own first, reference last).
    pub accepted: Vec<Candidate>,
    /// Those that refuse, with all their reasons.
    pub refused: Vec<(KernelHandle, Refusals)>,
}

impl Candidates {
    /// Asks every kernel of the workload's operation.
    pub fn gather(
        registry: &KernelRegistry,
        workload: &Workload,
        device: &DeviceInfo,
        limits: &Limits,
    ) -> Self {
        let mut out = Self::default();
        for kernel in registry.kernels(workload.kind()) {
            if let Some(why) = registry.quarantined(kernel.name()) {
                out.refused.push((kernel, Refusals::one(Refusal::Quarantined(why))));
                continue;
            }
            if workload.in_place() && !kernel.in_place() {
                let reason = Refusal::Shape("an output apart from its inputs".into());
                out.refused.push((kernel, Refusals::one(reason)));
                continue;
            }
            if let Err(reasons) = kernel.supports(workload, device) {
                out.refused.push((kernel, reasons));
                continue;
            }
            out.add(kernel, workload, device, limits);
        }
        out
    }

    fn add(&mut self, kernel: KernelHandle, workload: &Workload, device: &DeviceInfo, limits: &Limits) {
        let before = self.accepted.len();
        let mut least = usize::MAX;
        for parameters in kernel.space(workload, device).points() {
            let cost = kernel.cost(workload, parameters, device);
            least = least.min(cost.scratch);
            if limits.scratch.is_some_and(|limit| cost.scratch > limit) {
                continue;
            }
            let predicted = device.peaks.as_ref().and_then(|peaks| modelling::predict(&cost, peaks));
            let parameters = parameters.clone();
            self.accepted.push(Candidate { kernel: kernel.clone(), parameters, cost, predicted });
        }
        if self.accepted.len() == before {
            let reason = match limits.scratch {
                Some(limit) => Refusal::Limit(format!("needs {least} bytes of scratch, {limit} are allowed")),
                None => Refusal::Shape("at least one point in its parameter space".into()),
            };
            self.refused.push((kernel, Refusals::one(reason)));
        }
    }

    /// The refusals by name.
    pub fn refusals(&self) -> Vec<(String, Refusals)> {
        self.refused.iter().map(|(kernel, why)| (kernel.name().to_owned(), why.clone())).collect()
    }
}
