//! Every candidate of a workload timed in turns on the same memory: the times that choices are judged by.

use std::time::{Duration, Instant};

use crate::backends::cpu::Probe;
use crate::error::Result;
use crate::ops::Workload;
use crate::selection::{Candidate, Candidates, Limits, run_caught};
use crate::{Error, Runtime};

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct SurveyOptions {
    /// Samples per candidate.
    pub samples: usize,
    /// Short calls are repeated until a sample lasts this long.
    pub sample_time: Duration,
    /// Candidates whose first calls take longer than this multiple of the best keep their rough time.
    pub give_up: f64,
    /// A candidate whose samples have taken this long has enough with [`FEWEST_SAMPLES`] of them.
    pub time: Duration,
}

/// Samples of a candidate, however long they take.
pub const FEWEST_SAMPLES: usize = 3;

/// How often a first call of so many seconds is repeated. Long ones once, because a single call may have met a stall of the machine;
/// what takes longer than any stall not at all.
fn again(seconds: f64) -> usize {
    match seconds {
        s if s > 1.0 => 0,
        s if s > 0.02 => 1,
        _ => 4,
    }
}

impl Default for SurveyOptions {
    fn default() -> Self {
        Self { samples: 9, sample_time: Duration::from_millis(1), give_up: 5.0, time: Duration::MAX }
    }
}

/// One candidate's times.
pub struct Surveyed {
    /// The candidate.
    pub candidate: Candidate,
    /// Seconds of a call in each sample; the first calls only if it was given up, nothing if it failed.
    pub samples: Vec<f64>,
    /// Whether it was far behind after the first calls and not timed further.
    pub given_up: bool,
}

/// Times every candidate that accepts the workload; answers are not checked here.
pub fn survey(runtime: &Runtime, workload: &Workload, options: &SurveyOptions) -> Result<Vec<Surveyed>> {
    survey_some(runtime, workload, options, |_| true)
}

/// Times the candidates that are wanted.
pub fn survey_some(
    runtime: &Runtime,
    workload: &Workload,
    options: &SurveyOptions,
    wanted: impl Fn(&Candidate) -> bool,
) -> Result<Vec<Surveyed>> {
    let info = runtime.device_info();
    let mut candidates = Candidates::gather(runtime.kernels(), workload, info, &Limits::default());
    candidates.keep_backend(runtime.selector().knowledge.limits.backend);
    if candidates.accepted.is_empty() {
        return Err(Error::NoKernel { workload: workload.to_string(), refusals: candidates.refusals() });
    }
    candidates.accepted.retain(wanted);
    let mut probe = Probe::new(workload, runtime.device())?;
    let mut time = |candidate: &Candidate, repeats: usize| -> Option<f64> {
        let mut call = probe.call(workload, &candidate.parameters, runtime.device());
        runtime.device().threads().rouse(candidate.parameters.threads());
        let start = Instant::now();
        for _ in 0..repeats {
            run_caught(&candidate.kernel, &mut call).ok()?;
        }
        Some(start.elapsed().as_secs_f64() / repeats as f64)
    };
    // The first call ever pays for pages, scratch memory and sleeping threads; the least of a few more is the candidate.
    let mut first = |c: &Candidate| {
        let mut least = time(c, 1)?;
        for _ in 0..again(least) {
            least = least.min(time(c, ((2e-5 / least) as usize).clamp(1, 20))?);
        }
        Some(least)
    };
    let rough: Vec<Option<f64>> = candidates.accepted.iter().map(&mut first).collect();
    let best = rough.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    let mut out: Vec<(Surveyed, usize)> = Vec::with_capacity(rough.len());
    for (candidate, rough) in candidates.accepted.into_iter().zip(rough) {
        let given_up = rough.is_some_and(|r| r > options.give_up * best);
        let repeats = options.sample_time.as_secs_f64() / rough.unwrap_or(1.0).max(1e-8);
        let samples = if given_up { rough.into_iter().collect() } else { Vec::new() };
        let given_up = given_up || rough.is_none();
        out.push((Surveyed { candidate, samples, given_up }, repeats.ceil().max(1.0) as usize));
    }
    for _ in 0..options.samples {
        for (surveyed, repeats) in out.iter_mut().filter(|s| !s.0.given_up) {
            let spent = surveyed.samples.iter().sum::<f64>() * *repeats as f64;
            if surveyed.samples.len() >= FEWEST_SAMPLES && spent > options.time.as_secs_f64() {
                continue;
            }
            // The candidate before may have left the caches to others: one call to settle.
            let settled = if *repeats > 1 { time(&surveyed.candidate, 1) } else { Some(0.0) };
            let sample = settled.and_then(|_| time(&surveyed.candidate, *repeats));
            surveyed.samples.extend(sample);
        }
    }
    Ok(out.into_iter().map(|(surveyed, _)| surveyed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn the_wanted_are_timed_as_often_as_their_time_allows() {
        let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let a = Tensor::full(1.0f32, &[12, 12]).unwrap();
        let workload = rt.workloads(|rt| rt.matmul(&a, &a)).unwrap().remove(0);
        let all = SurveyOptions { samples: 5, give_up: f64::INFINITY, ..SurveyOptions::default() };
        let short = SurveyOptions { time: Duration::ZERO, ..all };
        for (options, samples) in [(all, 5), (short, FEWEST_SAMPLES)] {
            let every = survey(&rt, &workload, &options).unwrap();
            assert!(every.iter().all(|s| s.samples.len() == samples && !s.given_up));
            let wanted = |c: &Candidate| c.kernel.name().ends_with("_packed");
            let some = survey_some(&rt, &workload, &options, wanted).unwrap();
            let names = |list: &[Surveyed]| -> Vec<String> {
                list.iter().map(|s| s.candidate.kernel.name().to_owned()).collect()
            };
            let expected: Vec<Surveyed> = every.into_iter().filter(|s| wanted(&s.candidate)).collect();
            assert!(!some.is_empty() && names(&some) == names(&expected));
        }
    }
}
