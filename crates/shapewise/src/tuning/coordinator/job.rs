//! One workload on its way through a campaign.

use super::{LEADERS, Ranked, Start, TunedWorkload};
use crate::device::BackendKind;
use crate::ops::Workload;
use crate::selection::Candidate;
use crate::sensors::SystemState;
use crate::tuning::characteristics::Bound;
use crate::tuning::constraints::{Outlook, TuningConstraints, TuningError, Verdict};
use crate::tuning::search::{Point, Stop};

/// One workload on its way.
pub(super) struct Job {
    pub place: usize,
    /// Which of the workbenches.
    pub bench: usize,
    pub name: String,
    pub weight: f64,
    pub calls: Option<f64>,
    pub workload: Workload,
    pub candidates: Vec<Candidate>,
    pub points: Vec<Point>,
    /// The longest call of each point relative to its usual one, from the samples behind it.
    pub longest: Vec<Option<f64>>,
    /// What candidates must keep to here.
    pub limits: TuningConstraints,
    pub starts: Vec<Start>,
    pub declined: Vec<(BackendKind, String)>,
    pub trials: usize,
    /// What is left to gain, as a share of its time.
    pub left: f64,
    pub interval: Option<f64>,
    pub stop: Option<Stop>,
    pub error: Option<String>,
}

impl Job {
    /// Lists the candidates, and refuses those that break a constraint whatever time they take.
    pub fn new(
        (bench, place): (usize, usize),
        (workload, weight, calls): (&Workload, f64, Option<f64>),
        candidates: crate::Result<Vec<Candidate>>,
        limits: TuningConstraints,
    ) -> Self {
        let (candidates, error) = match candidates {
            Ok(candidates) => (candidates, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let mut kernels: Vec<String> = Vec::new();
        let mut points = Vec::with_capacity(candidates.len());
        let mut longest = Vec::with_capacity(candidates.len());
        for candidate in &candidates {
            let name = candidate.kernel.name();
            let kernel = kernels.iter().position(|k| k == name).unwrap_or_else(|| {
                kernels.push(name.to_owned());
                kernels.len() - 1
            });
            points.push(Point {
                kernel,
                parameters: candidate.parameters.clone(),
                predicted: candidate.predicted.map(|p| p.seconds).or(candidate.roofline()),
                known: candidate.measured.map(|m| (m.seconds, m.samples as u32)),
                refused: None,
                start: false,
            });
            // Nearly all samples of a normal spread lie within three of it.
            longest.push(candidate.measured.and_then(|m| m.spread).map(|spread| 1.0 + 3.0 * spread));
        }
        let mut job = Self {
            place,
            bench,
            name: workload.to_string(),
            weight: if weight.is_finite() { weight.max(0.0) } else { 0.0 },
            calls,
            workload: workload.clone(),
            left: 0.0,
            candidates,
            points,
            longest,
            limits,
            starts: Vec::new(),
            declined: Vec::new(),
            trials: 0,
            interval: None,
            stop: None,
            error,
        };
        job.refuse();
        job.left = hoped(&job.points);
        job
    }

    /// Refuses what must not even be tried; an error where that is everything.
    fn refuse(&mut self) {
        let allowed = |backend| self.limits.backends.as_ref().is_none_or(|list| list.contains(&backend));
        let mut broken = Vec::new();
        for place in 0..self.points.len() {
            let backend = self.candidates[place].kernel.backend();
            let verdict = self.limits.broken_before(&self.outlook(place, None));
            self.points[place].refused = match verdict {
                _ if !allowed(backend) => Some(format!("{backend} is not allowed")),
                Some(verdict) => {
                    broken.push(verdict);
                    Some(verdict.to_string())
                }
                None => None,
            };
        }
        if self.points.iter().any(|p| p.refused.is_none()) || self.error.is_some() {
            return;
        }
        let Some(backend) = self.candidates.first().map(|c| c.kernel.backend()) else { return };
        let elsewhere =
            || TuningError::Backend { backend, allowed: self.limits.backends.clone().unwrap_or_default() };
        self.error = Some(TuningConstraints::impossible(&broken).unwrap_or_else(elsewhere).to_string());
    }

    fn outlook(&self, point: usize, seconds: Option<(f64, f64)>) -> Outlook {
        let candidate = &self.candidates[point];
        Outlook {
            memory: (self.workload.bytes() as u64).saturating_add(candidate.cost.scratch as u64),
            threads: candidate.parameters.threads(),
            seconds,
            watts: None,
            // What the workload asks for is what the usual kernel executes; padding of others brings nothing.
            operations: self.candidates[0].cost.operations,
        }
    }

    /// The constraint that a measured point breaks.
    fn verdict(&self, point: usize, state: &SystemState) -> Option<Verdict> {
        let seconds = self.seconds(point)?;
        let high = self.longest[point].map(|longest| seconds * longest);
        let told = if self.limits.real_time { high } else { Some(seconds) };
        self.limits.broken(&self.outlook(point, told.map(|high| (seconds, high))), state)
    }

    pub fn seconds(&self, point: usize) -> Option<f64> {
        self.points.get(point).filter(|p| p.refused.is_none())?.known.map(|(seconds, _)| seconds)
    }

    /// What a point's time is multiplied by, so that threads cost what the power mode says.
    pub fn price(&self, point: usize) -> f64 {
        let threads = self.candidates[point].parameters.threads();
        self.limits.power_mode.map_or(1.0, |mode| mode.weight(threads))
    }

    fn ranked(&self, point: usize) -> Option<Ranked> {
        let (seconds, samples) = self.points[point].known?;
        let candidate = &self.candidates[point];
        Some(Ranked {
            kernel: candidate.kernel.name().to_owned(),
            parameters: candidate.parameters.to_string(),
            seconds,
            samples: samples as usize,
            roofline: candidate.roofline().map(|least| least / seconds),
        })
    }

    /// The result; whatever broke a constraint is refused, and where that is everything there is an error.
    pub fn result(mut self, device: String, state: &SystemState) -> TunedWorkload {
        let default = if self.points.is_empty() { None } else { self.ranked(0) };
        for start in &mut self.starts {
            let same = |c: &Candidate| c.is(&start.kernel, &start.parameters);
            let place = self.candidates.iter().position(same);
            start.seconds = place.and_then(|place| self.points[place].known).map(|known| known.0);
        }
        let mut broken = Vec::new();
        for point in 0..self.points.len() {
            if let Some(verdict) = self.verdict(point, state) {
                broken.push(verdict);
                self.points[point].refused = Some(verdict.to_string());
            }
        }
        let mut order: Vec<usize> = (0..self.points.len()).filter(|&p| self.seconds(p).is_some()).collect();
        let price = |p: usize| self.seconds(p).unwrap_or(0.0) * self.price(p);
        order.sort_by(|&a, &b| price(a).total_cmp(&price(b)));
        if order.is_empty() && self.error.is_none() {
            self.error = TuningConstraints::impossible(&broken).map(|error| error.to_string());
        }
        let hopeless = self.error.is_some();
        let leaders = order.iter().take(if hopeless { 0 } else { LEADERS });
        let leaderboard: Vec<Ranked> = leaders.filter_map(|&p| self.ranked(p)).collect();
        let best = leaderboard.first().cloned();
        let gain = default.as_ref().zip(best.as_ref()).map(|(d, b)| d.seconds / b.seconds);
        let refused = self.points.iter().zip(&self.candidates).filter_map(|(point, candidate)| {
            let name = format!("{} {}", candidate.kernel.name(), candidate.parameters);
            Some((name, point.refused.clone()?))
        });
        let bound = self.candidates.first().and_then(|c| Some(Bound::of(&c.terms?, c.cost.forks)));
        TunedWorkload {
            device,
            bound,
            default,
            best,
            gain,
            interval: self.interval,
            trials: self.trials,
            points: self.points.len(),
            refused: refused.collect(),
            starts: self.starts,
            declined: self.declined,
            leaderboard,
            stop: self.stop,
            error: self.error,
            workload: self.name,
        }
    }
}

/// The gain that the models promise before anything is measured: default ÷ best, as a share; all where nothing is known.
fn hoped(points: &[Point]) -> f64 {
    let seconds = |p: &Point| p.known.map(|k| k.0).or(p.predicted);
    let allowed = points.iter().filter(|p| p.refused.is_none());
    if allowed.clone().all(|p| p.known.is_some()) {
        return 0.0;
    }
    let Some(default) = points.first().and_then(seconds) else { return 1.0 };
    let best = allowed.filter_map(seconds).fold(f64::INFINITY, f64::min);
    // Models are never so good that nothing could be found.
    (1.0 - best / default).clamp(LEAST_HOPE, 1.0)
}

/// What is hoped for where the model sees nothing to gain: the size of a difference that models of kernels miss.
const LEAST_HOPE: f64 = 0.05;
