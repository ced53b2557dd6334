//! All candidates of a workload, timed side by side on the same data.

use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Recorded, Recorder, Summary};
use crate::backends::cpu::Probe;
use crate::error::Result;
use crate::ops::{Variant, Workload};
use crate::runtime::nothing_asked;
use crate::selection::{Candidate, Candidates, Considered, ExplainedRefusal, run_caught};
use crate::{Error, Runtime};

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct RaceOptions {
    /// Samples per candidate.
    pub samples: usize,
    /// Short calls are repeated until a sample lasts this long.
    pub sample_time: Duration,
    /// Candidates whose first call takes longer than this multiple of the best are not timed further.
    pub give_up: f64,
    /// The whole race ends after this long, with what was measured; a candidate that hangs is an error.
    pub timeout: Duration,
}

impl Default for RaceOptions {
    fn default() -> Self {
        Self {
            samples: 21,
            sample_time: Duration::from_millis(2),
            give_up: 20.0,
            timeout: Duration::from_mins(2),
        }
    }
}

/// What one candidate took.
#[derive(Clone, Debug, Serialize)]
pub struct Timing {
    /// Kernel name.
    pub kernel: String,
    /// Its parameters, in words.
    pub parameters: String,
    /// Predicted microseconds.
    pub predicted_us: Option<f64>,
    /// Measured microseconds; `null` when it was given up or failed.
    pub measured_us: Option<Summary>,
    /// Arithmetic operations that it executes, by its median.
    pub operations_per_second: Option<f64>,
    /// Bytes of all operands, each counted once, by its median.
    pub bytes_per_second: Option<f64>,
    /// Why there is no measurement, or why it does not count.
    pub remark: Option<String>,
}

/// The outcome for one workload.
#[derive(Clone, Debug, Serialize)]
pub struct Race {
    /// The workload in words.
    pub workload: String,
    /// The candidate that the policy would pick, as an index into `timings`.
    pub chosen: usize,
    /// Every candidate, in the order of the lists.
    pub timings: Vec<Timing>,
    /// Those that refused.
    pub refusals: Vec<ExplainedRefusal>,
}

impl Race {
    /// Checks every candidate's answer, then lets them take turns. `progress` hears how many of the turns are done.
    fn run(
        runtime: &Runtime,
        Recorded { workload, operands }: &Recorded,
        options: &RaceOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let Considered { candidates, decision, .. } = runtime.selector().consider(workload)?;
        let start = Instant::now();
        let mut runners = prepare(runtime, workload, operands.as_ref(), &candidates)?;
        let first_calls: Vec<Option<f64>> =
            runners.iter_mut().map(|r| r.sample(runtime, workload, 1)).collect();
        let best = first_calls.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        for (runner, first) in runners.iter_mut().zip(first_calls) {
            runner.plan(first, best, options);
        }
        for turn in 0..options.samples {
            progress(turn, options.samples);
            if start.elapsed() > options.timeout {
                break;
            }
            for runner in runners.iter_mut().filter(|r| r.remark.is_none()) {
                if let Some(seconds) = runner.sample(runtime, workload, runner.repeats) {
                    runner.samples.push(seconds * 1e6);
                }
            }
        }
        progress(options.samples, options.samples);
        let refusals = candidates
            .refused
            .iter()
            .map(|(kernel, why)| ExplainedRefusal {
                kernel: kernel.name().to_owned(),
                reasons: why.iter().map(ToString::to_string).collect(),
            })
            .collect();
        let timings = runners.iter().map(|runner| runner.timing(workload)).collect();
        Ok(Self { workload: workload.to_string(), chosen: decision.index, timings, refusals })
    }
}

/// Races that may run at once on one machine: two would time each other.
const AT_ONCE: usize = 1;
/// What the scheduler may add to a turn.
const GRACE: Duration = Duration::from_millis(50);
static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A place among the races that run.
struct Place;

impl Place {
    /// Waits for a place, `patience` long at most.
    fn take(patience: Duration) -> Result<Self> {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |running: &mut usize| *running >= AT_ONCE;
        let (mut running, waited) =
            ENDED.wait_timeout_while(running, patience, full).unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Error::InvalidArgument {
                operation: "benchmark",
                reason: format!("another benchmark was still running after {patience:?}; try again later"),
            });
        }
        *running += 1;
        Ok(Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

impl Runtime {
    /// Times all candidates of a workload side by side on made-up data, answers checked first. `progress` hears of each turn.
    ///
    /// One benchmark runs at a time; it ends after its timeout even if a kernel hangs.
    pub fn benchmark_kernels(
        &self,
        workload: &Workload,
        options: &RaceOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Race> {
        self.benchmark(Recorded { workload: workload.clone(), operands: None }, options, progress)
    }

    /// The same on the numbers of a call, for kernels whose time depends on them: sorts, sparse products, lookups.
    ///
    /// ```
    /// # use shapewise::{Runtime, Tensor};
    /// # use shapewise::measure::RaceOptions;
    /// # use shapewise::ops::sort::Order;
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let sorted = Tensor::from_vec((0..1000).map(|i| i as f32).collect(), &[1000])?;
    /// let options = RaceOptions { samples: 3, ..RaceOptions::default() };
    /// let race = rt.benchmark_call(|rt| rt.sort(&sorted, 0, Order::Ascending), &options, &mut |_, _| {})?;
    /// assert!(race.timings.iter().any(|t| t.measured_us.is_some()));
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn benchmark_call<T>(
        &self,
        call: impl FnOnce(&Self) -> Result<T>,
        options: &RaceOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Race> {
        let mut asked = self.listen(Recorder::with_numbers(), call)?.into_iter();
        self.benchmark(asked.next().ok_or_else(|| nothing_asked("benchmark"))?, options, progress)
    }

    fn benchmark(
        &self,
        recorded: Recorded,
        options: &RaceOptions,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Race> {
        let place = Place::take(options.timeout)?;
        let (turns, heard) = mpsc::channel();
        let (runtime, own) = (self.clone(), *options);
        let run = move || {
            // The place is given back when the race is over, even if nobody waits for it any more.
            let _place = place;
            let race = Race::run(&runtime, &recorded, &own, &mut |done, all| {
                // Nobody listens after the timeout.
                let _ = turns.send(Heard::Turn(done, all));
            });
            let _ = turns.send(Heard::Over(Box::new(race)));
        };
        let spawned = std::thread::Builder::new().name("shapewise-benchmark".into()).spawn(run);
        spawned.map_err(|error| Error::Unsupported {
            what: "a benchmark".into(),
            reason: format!("its thread could not be started: {error}"),
        })?;
        // The race begins no turn after the timeout, but ends the one it is in; that may take as long as the longest so far.
        let deadline = Instant::now() + options.timeout;
        let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
        loop {
            let grace = if longest.is_zero() { Duration::ZERO } else { 2 * longest + GRACE };
            match heard.recv_timeout((deadline + grace).saturating_duration_since(Instant::now())) {
                Ok(Heard::Turn(done, all)) => {
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                    progress(done, all);
                }
                Ok(Heard::Over(race)) => return *race,
                Err(_) => {
                    return Err(Error::KernelFailed {
                        kernel: "a candidate of the benchmark".into(),
                        reason: format!("did not return within {:?}", options.timeout),
                    });
                }
            }
        }
    }
}

enum Heard {
    Turn(usize, usize),
    Over(Box<Result<Race>>),
}

struct Runner<'a> {
    candidate: &'a Candidate,
    probe: Probe,
    repeats: usize,
    samples: Vec<f64>,
    remark: Option<String>,
}

/// A runner per candidate, its answer compared with the reference's.
fn prepare<'a>(
    runtime: &Runtime,
    workload: &Workload,
    given: Option<&Probe>,
    candidates: &'a Candidates,
) -> Result<Vec<Runner<'a>>> {
    let device = runtime.device();
    let operands = || match given {
        Some(numbers) => numbers.again(device),
        None => Probe::new(workload, device),
    };
    let judge = candidates
        .accepted
        .iter()
        .find(|c| c.kernel.variant() == Variant::Naive && c.cost.operations <= 2e9)
        .or(candidates.accepted.first())
        .ok_or_else(|| Error::NoKernel { workload: workload.to_string(), refusals: candidates.refusals() })?;
    let mut expected = operands()?;
    let judged = run_caught(&judge.kernel, &mut expected.call(workload, &judge.parameters, device));
    judged.map_err(|failure| Error::KernelFailed {
        kernel: judge.kernel.name().to_owned(),
        reason: failure.to_string(),
    })?;
    let mut runners = Vec::with_capacity(candidates.accepted.len());
    for candidate in &candidates.accepted {
        let mut probe = operands()?;
        let ran = run_caught(&candidate.kernel, &mut probe.call(workload, &candidate.parameters, device));
        let outcome = ran.map_err(|f| f.to_string()).and_then(|()| probe.same_outputs(&expected, workload));
        runners.push(Runner { candidate, probe, repeats: 1, samples: Vec::new(), remark: outcome.err() });
    }
    Ok(runners)
}

impl Runner<'_> {
    /// Seconds per call over `repeats` calls; `None` if it failed.
    fn sample(&mut self, runtime: &Runtime, workload: &Workload, repeats: usize) -> Option<f64> {
        if self.remark.is_some() {
            return None;
        }
        let device = runtime.device();
        let mut call = self.probe.call(workload, &self.candidate.parameters, device);
        device.threads().rouse(self.candidate.parameters.threads());
        let start = Instant::now();
        for _ in 0..repeats {
            if let Err(failure) = run_caught(&self.candidate.kernel, &mut call) {
                self.remark = Some(failure.to_string());
                return None;
            }
        }
        Some(start.elapsed().as_secs_f64() / repeats as f64)
    }

    fn plan(&mut self, first: Option<f64>, best: f64, options: &RaceOptions) {
        let Some(first) = first else { return };
        if first > best * options.give_up && first > options.sample_time.as_secs_f64() {
            self.remark = Some(format!("given up: its first call took {:.0} times the best", first / best));
        }
        self.repeats = (options.sample_time.as_secs_f64() / first.max(1e-8)).ceil().max(1.0) as usize;
    }

    fn timing(&self, workload: &Workload) -> Timing {
        let measured_us = Summary::of(&self.samples);
        let rate = |amount: f64| measured_us.map(|m| amount / (m.median * 1e-6));
        Timing {
            kernel: self.candidate.kernel.name().to_owned(),
            parameters: self.candidate.parameters.to_string(),
            predicted_us: self.candidate.predicted.map(|p| p.seconds * 1e6),
            measured_us,
            operations_per_second: rate(self.candidate.cost.operations),
            bytes_per_second: rate(workload.bytes() as f64),
            remark: self.remark.clone(),
        }
    }
}
