//! Several workloads tuned under one budget, the most valuable first. Each search starts where the strategies of its
//! device say, in the state that the sensors tell, and what it measures goes back to them.

mod job;
mod report;
mod start;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::constraints::TuningConstraints;
use super::feedback::Feedback;
use super::recommender::{CacheCounts, Recommender};
use super::search::{Found, Point, Sampled, SearchSettings, SoFar, Stop, Trial, median, search};
use super::workbench::Workbench;
use crate::device::BackendKind;
use crate::sensors::{Machine, Monitor, SystemState};
use job::Job;

pub use report::{
    Ranked, Start, StrategyCounts, TunedWorkload, TuningBudget, TuningProgress, TuningReport, TuningTask,
};

/// Points of one turn: a workload goes on only while no other one is worth more.
const TURN: usize = 8;
/// Entries of a leaderboard.
const LEADERS: usize = 10;
/// Between two readings of the sensors, which take a fraction of a millisecond on a thread of their own.
const EVERY: Duration = Duration::from_millis(500);

/// Tunes workloads on one or several workbenches.
pub struct Coordinator<'a> {
    benches: Vec<&'a dyn Workbench>,
    /// What each bench's strategies say and have learned.
    recommenders: RefCell<Vec<Recommender>>,
    monitor: Option<Monitor>,
    /// How each search goes; its trials and time are the budget's.
    pub settings: SearchSettings,
    /// What candidates must keep to.
    pub constraints: TuningConstraints,
}

impl<'a> Coordinator<'a> {
    /// With the usual settings and no constraints.
    pub fn new(bench: &'a dyn Workbench) -> Self {
        let empty = Self {
            benches: Vec::new(),
            recommenders: RefCell::default(),
            monitor: None,
            settings: SearchSettings::default(),
            constraints: TuningConstraints::default(),
        };
        empty.and(bench)
    }

    /// The same on one more device, under the same budget.
    #[must_use]
    pub fn and(mut self, bench: &'a dyn Workbench) -> Self {
        self.benches.push(bench);
        self.recommenders.get_mut().push(Recommender::of(bench.strategies()));
        self
    }

    /// Takes the machine's state from this monitor; without one a campaign reads the sensors of this machine.
    #[must_use]
    pub fn watching(mut self, monitor: Monitor) -> Self {
        self.monitor = Some(monitor);
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
        let own = if self.monitor.is_none() { watch() } else { None };
        let monitor = self.monitor.as_ref().or(own.as_ref());
        let state = || monitor.map_or_else(SystemState::default, |monitor| (*monitor.state()).clone());
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
            let turn = self.turn(job, &settings, &state(), &mut |job, so_far| {
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
        self.report(jobs, trials, started, cancelled, state())
    }

    fn report(
        &self,
        jobs: Vec<Job>,
        trials: usize,
        started: Instant,
        cancelled: bool,
        state: SystemState,
    ) -> TuningReport {
        let name = |bench: usize| self.benches[bench].info().name.clone();
        let workloads = jobs.into_iter().map(|job| {
            let device = name(job.bench);
            job.result(device, &state)
        });
        let workloads = workloads.collect();
        let recommenders = self.recommenders.borrow();
        let mut strategies = Vec::new();
        let mut cache = CacheCounts::default();
        for (bench, recommender) in recommenders.iter().enumerate() {
            cache += recommender.counts();
            let counts = recommender.all_metrics().map(|(backend, metrics)| StrategyCounts {
                device: name(bench),
                backend,
                metrics,
            });
            strategies.extend(counts);
        }
        let seconds = started.elapsed().as_secs_f64();
        TuningReport { workloads, trials, seconds, cancelled, strategies, cache, state }
    }

    fn job(&self, bench: usize, place: usize, task: &TuningTask) -> Job {
        let at = self.benches[bench];
        let limits = self.constraints.on(at.info());
        let asked = (&task.workload, task.weight, task.calls);
        Job::new((bench, place), asked, at.candidates(&task.workload), limits)
    }

    /// Marks where the strategies say to start.
    fn recommend(&self, job: &mut Job, state: &SystemState) {
        let mut backends: Vec<BackendKind> = Vec::new();
        for (point, candidate) in job.points.iter_mut().zip(&job.candidates) {
            point.start = false;
            let backend = candidate.kernel.backend();
            if point.refused.is_none() && !backends.contains(&backend) {
                backends.push(backend);
            }
        }
        job.declined.clear();
        let recommender = &mut self.recommenders.borrow_mut()[job.bench];
        for backend in backends {
            match recommender.recommend(backend, &job.workload, state, &job.limits) {
                Ok(told) => {
                    let Some(point) = start::nearest(told, &job.candidates, &job.points) else { continue };
                    job.points[point].start = true;
                    let start = start::start(told, &job.candidates[point]);
                    let same = |s: &Start| s.kernel == start.kernel && s.parameters == start.parameters;
                    if !job.starts.iter().any(same) {
                        job.starts.push(start);
                    }
                }
                Err(error) => job.declined.push((backend, error.to_string())),
            }
        }
    }

    /// Searches on; returns the points measured.
    fn turn(
        &self,
        job: &mut Job,
        settings: &SearchSettings,
        state: &SystemState,
        listen: &mut dyn FnMut(&Job, SoFar) -> bool,
    ) -> usize {
        if let Err(error) = job.limits.admit_state(state) {
            job.error = Some(error.to_string());
            return 0;
        }
        self.recommend(job, state);
        let prices: Vec<f64> = (0..job.points.len()).map(|point| job.price(point)).collect();
        let points = priced(&job.points, &prices);
        let candidates = std::mem::take(&mut job.candidates);
        let workload = job.workload.clone();
        let bench = self.benches[job.bench];
        let found = bench.trial(&workload, &candidates).map(|trial| {
            let mut trial = Priced { trial, prices: &prices };
            search(&points, settings, &mut trial, &mut |so_far| listen(job, so_far))
        });
        let mut found = match found {
            Ok(found) => found,
            Err(error) => {
                job.error = Some(error.to_string());
                job.candidates = candidates;
                return 0;
            }
        };
        for sampled in &mut found.sampled {
            let price = prices[sampled.point];
            sampled.seconds /= price;
            sampled.samples.iter_mut().for_each(|sample| *sample /= price);
        }
        job.candidates = candidates;
        let measured = self.keep(job, &found);
        bench.settle(&workload);
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

    /// Notes what a turn measured, here, in the bench's memory and with the strategies; returns the number of new points.
    fn keep(&self, job: &mut Job, found: &Found) -> usize {
        let bench = self.benches[job.bench];
        let mut new = 0;
        for sampled in &found.sampled {
            let point = sampled.point;
            new += usize::from(job.points[point].known.is_none());
            let before = job.points[point].known.map_or(0, |known| known.1);
            job.points[point].known = Some((sampled.seconds, before + sampled.samples.len() as u32));
            let samples = steady(sampled);
            let longest = samples.iter().fold(0.0f64, |most, &s| most.max(s)) / sampled.seconds;
            job.longest[point] = Some(job.longest[point].unwrap_or(1.0).max(longest));
            bench.keep(&job.workload, &job.candidates[point], &samples);
        }
        for sampled in &found.sampled {
            self.tell(job, sampled.point, Ok(sampled.seconds));
        }
        for (point, reason) in &found.refused {
            if job.points[*point].refused.is_none() {
                bench.refuse(&job.workload, &job.candidates[*point], reason);
                job.points[*point].refused = Some(reason.clone());
                self.tell(job, *point, Err(reason.clone()));
            }
        }
        job.trials += new;
        new
    }

    /// Tells a strategy what a point of the kernel that it recommended took; how it compares with the default only of the
    /// point that it recommended, because the others are the search's.
    fn tell(&self, job: &Job, point: usize, outcome: Result<f64, String>) {
        let candidate = &job.candidates[point];
        let (backend, name) = (candidate.kernel.backend(), candidate.kernel.name());
        // Times of another kernel than the strategy reckons with would only mislead it.
        let told = |s: &Start| s.backend == backend && s.recommended_kernel.unwrap_or(&s.kernel) == name;
        if !job.starts.iter().any(told) {
            return;
        }
        let default_seconds = if job.points[point].start { job.seconds(0) } else { None };
        let (workload, parameters) = (job.workload.clone(), candidate.parameters.clone());
        let feedback = Feedback { workload, parameters, outcome, default_seconds, joules: None };
        let recommender = &mut self.recommenders.borrow_mut()[job.bench];
        if let Err(error) = recommender.update_from_feedback(backend, &feedback) {
            tracing::debug!(%error, "a strategy did not take what was measured");
        }
    }
}

/// A monitor of this machine; `None` where no thread can be started for it.
fn watch() -> Option<Monitor> {
    let started = Monitor::start(Machine::new(), EVERY);
    started.inspect_err(|error| tracing::warn!(%error, "the sensors are not read while tuning")).ok()
}

/// Times as the power mode counts them.
struct Priced<'a> {
    trial: Box<dyn Trial + 'a>,
    prices: &'a [f64],
}

impl Trial for Priced<'_> {
    fn sample(&mut self, point: usize) -> Result<f64, String> {
        self.trial.sample(point).map(|seconds| seconds * self.prices[point])
    }
}

fn priced(points: &[Point], prices: &[f64]) -> Vec<Point> {
    let each = points.iter().zip(prices).map(|(point, &price)| Point {
        predicted: point.predicted.map(|seconds| seconds * price),
        known: point.known.map(|(seconds, samples)| (seconds * price, samples)),
        ..point.clone()
    });
    each.collect()
}

/// The samples as they compare with those of other candidates, scattered as they were.
fn steady(sampled: &Sampled) -> Vec<f64> {
    let middle = median(&sampled.samples).unwrap_or(sampled.seconds);
    sampled.samples.iter().map(|sample| sample * sampled.seconds / middle).collect()
}
