//! What a campaign is asked and what it tells.

use std::time::Duration;

use serde::Serialize;

use crate::device::BackendKind;
use crate::ops::Workload;
use crate::sensors::SystemState;
use crate::tuning::characteristics::Bound;
use crate::tuning::feedback::TuningMetrics;
use crate::tuning::recommender::CacheCounts;
use crate::tuning::search::Stop;
use crate::tuning::strategy::BackendPlan;

/// A workload and what it is worth.
#[derive(Clone, Debug)]
pub struct TuningTask {
    /// The workload.
    pub workload: Workload,
    /// The share of the program's time that it takes, or any number in proportion to it.
    pub weight: f64,
    /// Calls that will follow, if anyone knows: a trial must bring more time than it takes.
    pub calls: Option<f64>,
}

/// What a campaign may cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct TuningBudget {
    /// Time, all workloads together.
    pub time: Option<Duration>,
    /// Points measured, all workloads together.
    pub trials: Option<usize>,
}

/// What a campaign has so far.
#[derive(Clone, Debug, Serialize)]
pub struct TuningProgress<'a> {
    /// The workload at hand, in words.
    pub workload: &'a str,
    /// Its place in the list of tasks.
    pub task: usize,
    /// Points measured, all workloads together.
    pub trials: usize,
    /// Seconds since the campaign began.
    pub elapsed: f64,
    /// Seconds of the default, once they are known.
    pub default_seconds: Option<f64>,
    /// Seconds of the best so far.
    pub best_seconds: f64,
}

/// One candidate's time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// The kernel's name.
    pub kernel: String,
    /// Its parameters, in words.
    pub parameters: String,
    /// Seconds of one call.
    pub seconds: f64,
    /// Samples behind it.
    pub samples: usize,
    /// Seconds by the roofline ÷ seconds measured.
    pub roofline: Option<f64>,
}

/// Where a strategy said to start, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Start {
    /// The family of devices.
    pub backend: BackendKind,
    /// The kernel of the candidate that was tried first.
    pub kernel: String,
    /// Its parameters, in words: as recommended, and what the recommendation leaves open as the kernel's model says.
    pub parameters: String,
    /// The kernel that the strategy named; another one is tried where it is not among the candidates.
    pub recommended_kernel: Option<&'static str>,
    /// The parameters as the strategy said them.
    pub recommended: String,
    /// Seconds that the strategy expected.
    pub expected: Option<f64>,
    /// Where it expected them to lie, and the share of cases in which they do.
    pub interval: Option<(f64, f64, f64)>,
    /// What else the device does.
    pub plan: BackendPlan,
    /// The strategy's next best, in words.
    pub alternatives: Vec<String>,
    /// Why.
    pub reasons: Vec<String>,
    /// Seconds that were measured; `None` where it was not tried.
    pub seconds: Option<f64>,
}

/// What a strategy counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StrategyCounts {
    /// The device's name.
    pub device: String,
    /// The family of devices.
    pub backend: BackendKind,
    /// Counted from what happened.
    pub metrics: TuningMetrics,
}

/// What was found for one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TunedWorkload {
    /// The device's name.
    pub device: String,
    /// The workload in words.
    pub workload: String,
    /// What limits it.
    pub bound: Option<Bound>,
    /// What runs without tuning.
    pub default: Option<Ranked>,
    /// What should run; `None` when it was not reached or nothing is allowed.
    pub best: Option<Ranked>,
    /// Default time ÷ best time; below one where a constraint or the power mode asks for something slower.
    pub gain: Option<f64>,
    /// Half the interval of the best time, as a share.
    pub interval: Option<f64>,
    /// Points measured now.
    pub trials: usize,
    /// Points there are.
    pub points: usize,
    /// What the strategies recommended to start from, in the order they said it.
    pub starts: Vec<Start>,
    /// Backends whose strategy recommended nothing, and why.
    pub declined: Vec<(BackendKind, String)>,
    /// The fastest that were measured and keep to the constraints, best first.
    pub leaderboard: Vec<Ranked>,
    /// Candidates that failed, were wrong or break a constraint, with the reason.
    pub refused: Vec<(String, String)>,
    /// Why the search ended; `None` when it never began.
    pub stop: Option<Stop>,
    /// Why there is no result: what failed, or the constraint that cannot be met with the nearest that can.
    pub error: Option<String>,
}

/// The outcome of a campaign.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TuningReport {
    /// One entry for each device and task, in their order.
    pub workloads: Vec<TunedWorkload>,
    /// Points measured, all workloads together.
    pub trials: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// Whether somebody asked to stop.
    pub cancelled: bool,
    /// What each strategy counted, in all campaigns of this coordinator.
    pub strategies: Vec<StrategyCounts>,
    /// How often a kept recommendation answered, in all campaigns of this coordinator.
    pub cache: CacheCounts,
    /// The machine as the sensors told it last.
    pub state: SystemState,
}

impl TuningReport {
    /// Geometric mean of all gains; `None` without any.
    pub fn gain(&self) -> Option<f64> {
        let gains: Vec<f64> = self.workloads.iter().filter_map(|w| w.gain).map(f64::ln).collect();
        (!gains.is_empty()).then(|| (gains.iter().sum::<f64>() / gains.len() as f64).exp())
    }
}
