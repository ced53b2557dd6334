//! Several workloads tuned under one budget, the most valuable first.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde::Serialize;

use super::characteristics::Bound;
use super::constraints::{ConstraintKind, TuningConstraints, TuningError};
use super::search::{Found, Point, Sampled, SearchSettings, SoFar, Stop, median, search};
use super::workbench::Workbench;
use crate::ops::Workload;
use crate::selection::Candidate;

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
    /// Default time ÷ best time.
    pub gain: Option<f64>,
    /// Half the interval of the best time, as a share.
    pub interval: Option<f64>,
    /// Points measured now.
    pub trials: usize,
    /// Points there are.
    pub points: usize,
    /// The fastest that were measured, best first.
    pub leaderboard: Vec<Ranked>,
    /// Candidates that failed, were wrong or break a constraint, with the reason.
    pub refused: Vec<(String, String)>,
    /// Why the search ended; `None` when it never began.
    pub stop: Option<Stop>,
    /// Why there is no result.
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
}

impl TuningReport {
    /// Geometric mean of all gains; `None` without any.
    pub fn gain(&self) -> Option<f64> {
        let gains: Vec<f64> = self.workloads.iter().filter_map(|w| w.gain).map(f64::ln).collect();
        (!gains.is_empty()).then(|| (gains.iter().sum::<f64>() / gains.len() as f64).exp())
    }
}

/// Points of one turn: a workload goes on only while no other one is worth more.
const TURN: usize = 8;
/// Entries of a leaderboard.
const LEADERS: usize = 10;

/// Tunes workloads on one or several workbenches.
pub struct Coordinator<'a> {
    benches: Vec<&'a dyn Workbench>,
    /// How each search goes; its trials and time are the budget's.
    pub settings: SearchSettings,
    /// What candidates must keep to.
    pub constraints: TuningConstraints,
}

/// One workload on its way.
struct Job {
    place: usize,
    /// Which of the workbenches.
    bench: usize,
    name: String,
    weight: f64,
    calls: Option<f64>,
    workload: Workload,
    candidates: Vec<Candidate>,
    points: Vec<Point>,
    trials: usize,
    /// What is left to gain, as a share of its time.
    left: f64,
    interval: Option<f64>,
    stop: Option<Stop>,
    error: Option<String>,
}

impl<'a> Coordinator<'a> {
    /// With the usual settings and no constraints.
    pub fn new(bench: &'a dyn Workbench) -> Self {
        Self {
            benches: vec![bench],
            settings: SearchSettings::default(),
            constraints: TuningConstraints::default(),
        }
    }

    /// The same on one more device, under the same budget.
    #[must_use]
    pub fn and(mut self, bench: &'a dyn Workbench) -> Self {
        self.benches.push(bench);
        self
    }

    /// Tunes the tasks until the budget is used up or nothing is left to gain. `listen` hears of each trial and ends the
    /// campaign with `false`; whatever was measured is kept.
    pub fn tune(
        &self,
        tasks: &[TuningTask],
        budget: &TuningBudget,
        listen: &mut dyn FnMut(&TuningProgress<'_>) -> bool,
    ) -> TuningReport {
        let started = Instant::now();
        let each =
            (0..self.benches.len()).flat_map(|bench| tasks.iter().enumerate().map(move |task| (bench, task)));
        let mut jobs: Vec<Job> = each.map(|(bench, (place, task))| self.job(bench, place, task)).collect();
        let (mut trials, mut cancelled) = (0, false);
        while !cancelled {
            let time = budget.time.map(|time| time.saturating_sub(started.elapsed()));
            let room = budget.trials.map_or(usize::MAX, |most| most.saturating_sub(trials));
            if room == 0 || time == Some(Duration::ZERO) {
                break;
            }
            let value = |job: &Job| job.weight * job.left;
            let open = jobs.iter_mut().filter(|job| job.error.is_none() && value(job) > 0.0);
            let Some(job) = open.max_by(|a, b| value(a).total_cmp(&value(b))) else { break };
            let settings = SearchSettings { trials: TURN.min(room), time, calls: job.calls, ..self.settings };
            let turn = self.turn(job, &settings, &mut |job, so_far| {
                let heard = TuningProgress {
                    workload: &job.name,
                    task: job.place,
                    trials: trials + so_far.trials,
                    elapsed: started.elapsed().as_secs_f64(),
                    default_seconds: job.seconds(0),
                    best_seconds: so_far.best_seconds,
                };
                let goes_on = listen(&heard);
                cancelled |= !goes_on;
                goes_on
            });
            trials += turn;
        }
        let result = |job: Job| {
            let device = self.benches[job.bench].info().name.clone();
            job.result(device, &self.constraints)
        };
        let workloads = jobs.into_iter().map(result).collect();
        TuningReport { workloads, trials, seconds: started.elapsed().as_secs_f64(), cancelled }
    }

    fn job(&self, bench: usize, place: usize, task: &TuningTask) -> Job {
        let (candidates, error) = match self.benches[bench].candidates(&task.workload) {
            Ok(candidates) => (candidates, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let mut kernels: Vec<String> = Vec::new();
        let mut points = Vec::with_capacity(candidates.len());
        for candidate in &candidates {
            let name = candidate.kernel.name();
            let kernel = kernels.iter().position(|k| k == name).unwrap_or_else(|| {
                kernels.push(name.to_owned());
                kernels.len() - 1
            });
            let known = candidate.measured.map(|m| (m.seconds, m.samples as u32));
            points.push(Point {
                kernel,
                parameters: candidate.parameters.clone(),
                predicted: candidate.predicted.map(|p| p.seconds).or(candidate.roofline()),
                known,
                refused: self.not_allowed(&task.workload, candidate),
            });
        }
        let weight = if task.weight.is_finite() { task.weight.max(0.0) } else { 0.0 };
        Job {
            place,
            bench,
            name: task.workload.to_string(),
            weight,
            calls: task.calls,
            workload: task.workload.clone(),
            left: hoped(&points),
            candidates,
            points,
            trials: 0,
            interval: None,
            stop: None,
            error,
        }
    }

    /// Why a candidate must not even be tried.
    fn not_allowed(&self, workload: &Workload, candidate: &Candidate) -> Option<String> {
        let limits = &self.constraints;
        let bytes = (workload.bytes() as u64).saturating_add(candidate.cost.scratch as u64);
        if let Some(limit) = limits.memory.filter(|&limit| bytes > limit) {
            return Some(format!("needs {bytes} bytes, {limit} are allowed"));
        }
        let threads = candidate.parameters.threads();
        if let Some(limit) = limits.threads.filter(|&limit| threads > limit) {
            return Some(format!("uses {threads} threads, {limit} are allowed"));
        }
        let backend = candidate.kernel.backend();
        let listed = |list: &Vec<_>| !list.contains(&backend);
        limits.backends.as_ref().filter(|list| listed(list)).map(|_| format!("{backend} is not allowed"))
    }

    /// Searches on; returns the points measured.
    fn turn(
        &self,
        job: &mut Job,
        settings: &SearchSettings,
        listen: &mut dyn FnMut(&Job, SoFar) -> bool,
    ) -> usize {
        let candidates = std::mem::take(&mut job.candidates);
        let workload = job.workload.clone();
        let bench = self.benches[job.bench];
        let trial = bench.trial(&workload, &candidates);
        let found = trial
            .map(|mut trial| search(&job.points, settings, &mut *trial, &mut |so_far| listen(job, so_far)));
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                job.error = Some(error.to_string());
                job.candidates = candidates;
                return 0;
            }
        };
        let measured = self.keep(job, &candidates, &found);
        bench.settle(&workload);
        job.candidates = candidates;
        job.left = match found.stop {
            // A turn that found nothing worth looking for ends the workload, one that measured nothing as well.
            Stop::Settled | Stop::Exhausted => 0.0,
            _ if measured == 0 => 0.0,
            _ => found.left,
        };
        job.interval = found.interval.or(job.interval);
        job.stop = Some(found.stop);
        measured
    }

    /// Notes what a turn measured, here and in the bench's memory; returns the number of new points.
    fn keep(&self, job: &mut Job, candidates: &[Candidate], found: &Found) -> usize {
        let mut new = 0;
        for sampled in &found.sampled {
            let point = sampled.point;
            new += usize::from(job.points[point].known.is_none());
            let before = job.points[point].known.map_or(0, |known| known.1);
            job.points[point].known = Some((sampled.seconds, before + sampled.samples.len() as u32));
            self.benches[job.bench].keep(&job.workload, &candidates[point], &steady(sampled));
        }
        for (point, reason) in &found.refused {
            if job.points[*point].refused.is_none() {
                self.benches[job.bench].refuse(&job.workload, &candidates[*point], reason);
                job.points[*point].refused = Some(reason.clone());
            }
        }
        job.trials += new;
        new
    }
}

/// The samples as they compare with those of other candidates, scattered as they were.
fn steady(sampled: &Sampled) -> Vec<f64> {
    let middle = median(&sampled.samples).unwrap_or(sampled.seconds);
    sampled.samples.iter().map(|sample| sample * sampled.seconds / middle).collect()
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

impl Job {
    fn seconds(&self, point: usize) -> Option<f64> {
        self.points.get(point).filter(|p| p.refused.is_none())?.known.map(|(seconds, _)| seconds)
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

    fn result(self, device: String, constraints: &TuningConstraints) -> TunedWorkload {
        let mut order: Vec<usize> = (0..self.points.len()).filter(|&p| self.seconds(p).is_some()).collect();
        order.sort_by(|&a, &b| self.seconds(a).unwrap_or(0.0).total_cmp(&self.seconds(b).unwrap_or(0.0)));
        let mut leaderboard: Vec<Ranked> =
            order.iter().take(LEADERS).filter_map(|&p| self.ranked(p)).collect();
        let mut error = self.error.clone();
        if let Some(why) = too_slow(leaderboard.first(), &self.candidates, constraints) {
            error = Some(why.to_string());
            leaderboard.clear();
        }
        let default = if self.points.is_empty() { None } else { self.ranked(0) };
        let best = leaderboard.first().cloned();
        let gain = default.as_ref().zip(best.as_ref()).map(|(d, b)| d.seconds / b.seconds);
        let refused = self.points.iter().zip(&self.candidates).filter_map(|(point, candidate)| {
            let name = format!("{} {}", candidate.kernel.name(), candidate.parameters);
            Some((name, point.refused.clone()?))
        });
        let bound = self.candidates.first().and_then(|c| c.terms).map(|terms| Bound::of(&terms));
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
            leaderboard,
            stop: self.stop,
            error,
            workload: self.name,
        }
    }
}

/// The limit on time or rate that even the fastest does not keep.
fn too_slow(
    best: Option<&Ranked>,
    candidates: &[Candidate],
    constraints: &TuningConstraints,
) -> Option<TuningError> {
    let seconds = best?.seconds;
    let limit = constraints.latency.map(|limit| limit.as_secs_f64()).filter(|&limit| seconds > limit);
    if let Some(wanted) = limit {
        let constraint = ConstraintKind::Latency;
        return Some(TuningError::Impossible { constraint, wanted, nearest: seconds });
    }
    let rate = candidates.first()?.cost.operations / seconds;
    let wanted = constraints.throughput.filter(|&least| rate < least)?;
    Some(TuningError::Impossible { constraint: ConstraintKind::Throughput, wanted, nearest: rate })
}
