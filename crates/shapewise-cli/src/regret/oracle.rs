//! Every candidate of every workload measured: what a choice could have been at best.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use shapewise::Runtime;
use shapewise::device::Peaks;
use shapewise::measure::{SurveyOptions, Surveyed, survey, survey_some};
use shapewise::modelling::{Example, Features, Terms, WorkloadFeatures};
use shapewise::ops::{OperationKind, Workload};
use shapewise::selection::{Candidate, Candidates, Limits};

/// One candidate's times, as written to the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Kernel name.
    pub kernel: String,
    /// Its parameters, in words.
    pub parameters: String,
    /// Seconds of a call in each sample of each pass.
    pub passes: Vec<Vec<f64>>,
    /// Whether it was far behind after its first calls and not timed further.
    pub given_up: bool,
}

impl From<Surveyed> for Times {
    fn from(s: Surveyed) -> Self {
        Self {
            kernel: s.candidate.kernel.name().to_owned(),
            parameters: s.candidate.parameters.to_string(),
            passes: vec![s.samples],
            given_up: s.given_up,
        }
    }
}

impl Times {
    fn is(&self, candidate: &Candidate) -> bool {
        candidate.is(&self.kernel, &self.parameters)
    }

    /// The samples of all passes.
    pub fn samples(&self) -> impl Iterator<Item = f64> + '_ {
        self.passes.iter().flatten().copied()
    }

    /// The lower decile of the samples: what else the machine does only ever makes a call slower.
    pub fn seconds(&self) -> Option<f64> {
        decile(self.samples())
    }

    /// Whether the two fastest passes found the same: one alone may be the only one in which the machine was at its full speed.
    fn is_confirmed(&self) -> bool {
        let mut found: Vec<f64> = self.passes.iter().filter_map(|p| decile(p.iter().copied())).collect();
        found.sort_by(f64::total_cmp);
        found.get(1).is_some_and(|second| *second <= found[0] * (1.0 + AGREE))
    }
}

/// The lower decile; `None` without samples.
pub fn decile(samples: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = samples.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 10).copied()
}

/// Samples of a candidate in one pass.
const SAMPLES: usize = 15;
/// Times that the whole suite is gone through, so that a busy minute does not meet all samples of a workload.
const PASSES: usize = 3;
/// Times that a workload is measured at most if its passes do not agree: for seconds at a time a virtual machine may run at half its speed.
const MOST_PASSES: usize = 9;
/// How far apart the two fastest passes may be.
const AGREE: f64 = 0.03;
/// Share of a workload's candidates whose passes agree when it has been measured often enough: a few always scatter.
const CONFIRMED: f64 = 0.8;

/// One workload's times, as written to the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    workload: String,
    candidates: Vec<Times>,
}

impl Entry {
    /// Adds another pass over the candidates that were not far behind; one that was this time adds nothing.
    fn measure_again(
        &mut self,
        runtime: &Runtime,
        workload: &Workload,
        options: &SurveyOptions,
    ) -> Result<()> {
        let close = |c: &Candidate| self.candidates.iter().any(|t| t.is(c) && !t.given_up);
        let surveyed = survey_some(runtime, workload, options, close)?;
        for more in surveyed.into_iter().filter(|s| !s.given_up) {
            if let Some(times) = self.candidates.iter_mut().find(|t| t.is(&more.candidate)) {
                times.passes.push(more.samples);
            }
        }
        Ok(())
    }

    /// Whether another pass is unlikely to find other times.
    fn is_settled(&self) -> bool {
        let close = self.candidates.iter().filter(|t| !t.given_up);
        let (all, confirmed) = close.fold((0u32, 0u32), |(all, confirmed), times| {
            (all + 1, confirmed + u32::from(times.is_confirmed()))
        });
        f64::from(confirmed) >= CONFIRMED * f64::from(all)
    }
}

#[derive(Serialize, Deserialize)]
struct File {
    device: String,
    threads: usize,
    peaks: Peaks,
    entries: Vec<Entry>,
}

/// A candidate with its times and what models see of it.
pub struct Measured {
    /// Its times.
    pub times: Times,
    /// Seconds of a call; of the first calls if it was given up.
    pub seconds: f64,
    /// What models see.
    pub features: Features,
    /// Seconds by the roofline.
    pub baseline: f64,
}

/// A workload with every candidate that was measured.
pub struct Problem {
    /// The workload.
    pub workload: Workload,
    /// Its hash, the same in every process.
    pub shape: u64,
    /// What calls choose from, in the order of the lists.
    pub candidates: Vec<Measured>,
    /// The least time of every kernel that could run, those too that gave way to wider registers.
    pub best: f64,
}

impl Problem {
    /// The operation.
    pub fn kind(&self) -> OperationKind {
        self.workload.kind()
    }

    /// The candidates as examples to learn from.
    pub fn examples(&self) -> impl Iterator<Item = Example> + '_ {
        self.candidates.iter().map(|c| Example {
            features: c.features,
            baseline: c.baseline,
            seconds: c.seconds,
            shape: self.shape,
            // A rough time says how far behind, not exactly where.
            weight: if c.times.given_up { 0.3 } else { 1.0 },
        })
    }
}

/// The suite measured.
pub struct Oracle {
    /// Every workload.
    pub problems: Vec<Problem>,
}

impl Oracle {
    /// Reads the file if it is there; otherwise measures the suite and writes it.
    pub fn load_or_measure(runtime: &Runtime, suite: &[Workload], file: Option<&Path>) -> Result<Self> {
        let peaks = runtime.device_info().peaks.as_ref();
        let peaks = peaks.context("the roofline needs measured peaks; leave out --no-calibration")?;
        let stored = match file {
            Some(path) if path.exists() => read(path, runtime)?,
            _ => {
                let stored = measure(runtime, suite, peaks)?;
                if let Some(path) = file {
                    let text = serde_json::to_vec(&stored)?;
                    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
                }
                stored
            }
        };
        let mut by_name: HashMap<String, Vec<Times>> =
            stored.entries.into_iter().map(|e| (e.workload, e.candidates)).collect();
        // The file's own peaks: those its times were measured under.
        let join = |workload: &Workload| {
            let times = by_name.remove(&workload.to_string()).unwrap_or_default();
            problem(runtime, workload, times, &stored.peaks)
        };
        let problems: Vec<Problem> = suite.iter().map(join).filter(|p| !p.candidates.is_empty()).collect();
        ensure!(
            2 * problems.len() > suite.len(),
            "the file has {} of the suite's {} workloads; measure anew into another file",
            problems.len(),
            suite.len()
        );
        Ok(Self { problems })
    }
}

fn read(path: &Path, runtime: &Runtime) -> Result<File> {
    let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let file: File =
        serde_json::from_slice(&text).with_context(|| format!("{} is not an oracle", path.display()))?;
    let info = runtime.device_info();
    ensure!(
        file.device == info.name && file.threads == info.threads,
        "{} was measured on {} with {} threads, here is {} with {}",
        path.display(),
        file.device,
        file.threads,
        info.name,
        info.threads
    );
    Ok(file)
}

fn measure(runtime: &Runtime, suite: &[Workload], peaks: &Peaks) -> Result<File> {
    let mut entries: Vec<Entry> = Vec::with_capacity(suite.len());
    // Short samples: many of them fall between whatever else the machine does.
    let options = SurveyOptions {
        samples: SAMPLES,
        sample_time: Duration::from_micros(250),
        time: Duration::from_millis(50),
        ..SurveyOptions::default()
    };
    for pass in 0..MOST_PASSES {
        for (i, workload) in suite.iter().enumerate() {
            // Progress is a courtesy: a closed stderr must not stop the measurement.
            let _ = write!(std::io::stderr(), "\rpass {}: {} of {}  ", pass + 1, i + 1, suite.len());
            match entries.get_mut(i) {
                Some(entry) if pass >= PASSES && entry.is_settled() => {}
                Some(entry) => entry.measure_again(runtime, workload, &options)?,
                None => {
                    let surveyed = survey(runtime, workload, &options)?;
                    let candidates = surveyed.into_iter().map(Times::from).collect();
                    entries.push(Entry { workload: workload.to_string(), candidates });
                }
            }
        }
    }
    let _ = writeln!(std::io::stderr());
    let info = runtime.device_info();
    Ok(File { device: info.name.clone(), threads: info.threads, peaks: peaks.clone(), entries })
}

/// Joins stored times with the candidates as they are now; kernels that changed since are left out.
fn problem(runtime: &Runtime, workload: &Workload, times: Vec<Times>, peaks: &Peaks) -> Problem {
    let all = Candidates::gather(runtime.kernels(), workload, runtime.device_info(), &Limits::default());
    let shared = WorkloadFeatures::new(workload);
    let mut times: HashMap<(String, String), Times> =
        times.into_iter().map(|t| ((t.kernel.clone(), t.parameters.clone()), t)).collect();
    let mut candidates = Vec::new();
    for candidate in all.accepted {
        let key = (candidate.kernel.name().to_owned(), candidate.parameters.to_string());
        let (Some(times), Some(terms)) = (times.remove(&key), Terms::of(&candidate.cost, peaks)) else {
            continue;
        };
        let Some(seconds) = times.seconds() else { continue };
        let features = shared.candidate(&key.0, &candidate.parameters, &candidate.cost, &terms);
        let baseline = terms.seconds();
        candidates.push(Measured { times, seconds, features, baseline });
    }
    let best = candidates.iter().map(|c| c.seconds).fold(f64::INFINITY, f64::min);
    if let Ok(considered) = runtime.selector().candidates(workload) {
        candidates.retain(|c| considered.iter().any(|k| k.is(&c.times.kernel, &c.times.parameters)));
    }
    Problem { workload: workload.clone(), shape: workload.key().bits() as u64, candidates, best }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(passes: &[f64], given_up: bool) -> Times {
        let passes = passes.iter().map(|&s| vec![1.5 * s, s, 1.1 * s]).collect();
        Times { kernel: "kernel".into(), parameters: "threads=1".into(), passes, given_up }
    }

    #[test]
    fn the_two_fastest_passes_confirm_each_other() {
        assert!(!times(&[], false).is_confirmed() && !times(&[1.0], false).is_confirmed());
        assert!(times(&[1.0, 1.02], false).is_confirmed());
        // A slow pass between them says nothing, one fast pass alone too little.
        assert!(times(&[1.02, 2.0, 1.0], false).is_confirmed());
        assert!(!times(&[1.05, 1.04, 1.0], false).is_confirmed());
    }

    #[test]
    fn a_workload_is_settled_when_nearly_all_that_count_are_confirmed() {
        let entry = |agree: usize, differ: usize, behind: usize| {
            let kinds =
                [(agree, [1.0, 1.0], false), (differ, [1.0, 1.5], false), (behind, [9.0, 15.0], true)];
            let many = |(n, passes, given_up): (usize, [f64; 2], bool)| vec![times(&passes, given_up); n];
            Entry { workload: "w".into(), candidates: kinds.into_iter().flat_map(many).collect() }
        };
        assert!(entry(4, 1, 0).is_settled() && !entry(3, 1, 0).is_settled());
        assert!(entry(1, 0, 5).is_settled() && entry(0, 0, 2).is_settled());
    }

    #[test]
    fn seconds_are_the_lower_decile_of_all_passes() {
        assert_eq!(times(&[], false).seconds(), None);
        assert_eq!(times(&[2.0, 1.0], false).seconds(), Some(1.0));
        assert_eq!(decile((1..=21).map(f64::from)), Some(3.0));
    }
}
