//! `shapewise regret --tuning`: what the search finds, against every point measured.

mod judge;
mod overhead;
mod shapes;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use shapewise::Runtime;
use shapewise_report::geometric_mean;
use signal_hook::consts::SIGINT;

use crate::{Ended, output};
use judge::{Judged, judge, median};
use overhead::Overhead;
use shapes::HeldOut;

/// Budget of the search for all shapes of an operation together.
const BUDGET: Duration = Duration::from_mins(1);

/// What was judged, as written to the file.
#[derive(Serialize, Deserialize)]
struct File {
    device: String,
    threads: usize,
    judged: Vec<Judged>,
}

/// The figures of one operation.
#[derive(Serialize)]
struct Figures {
    operation: &'static str,
    shapes: usize,
    /// The fewest and the most points of a space.
    points: [usize; 2],
    /// Geometric means of the best time over others' times.
    default: f64,
    start: f64,
    tuned: f64,
    /// The least of the tuned ones.
    worst: f64,
    /// Points tried until one within two percent of the best, the middle of all shapes; `None` where most searches missed.
    trials_within: Option<usize>,
    /// Points tried in all, the middle.
    trials: usize,
    /// Seconds of all searches together.
    seconds: f64,
}

#[derive(Serialize)]
struct Report<'a> {
    operations: Vec<Figures>,
    overhead: Overhead,
    workloads: &'a [Judged],
    interrupted: bool,
}

/// Judges what the file does not have yet, keeps each as it comes, and prints the figures of all.
pub fn run(runtime: &Runtime, file: Option<&Path>, count: usize, json: bool) -> Result<Ended> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&stop))?;
    signal_hook::flag::register(SIGINT, Arc::clone(&stop))?;
    ensure!(
        runtime.device_info().peaks.is_some(),
        "starting points need measured peaks; leave out --no-calibration"
    );
    let suite = shapes::held_out(runtime, count)?;
    let mut known = read(runtime, file)?;
    let workloads: Vec<_> = suite.iter().flat_map(|of| of.workloads.clone()).collect();
    let overhead = overhead::measure(runtime, &workloads)?;
    let all: usize = suite.iter().map(|of| of.workloads.len()).sum();
    let mut done = 0;
    for of in &suite {
        for workload in &of.workloads {
            done += 1;
            let name = workload.to_string();
            if stop.load(Ordering::Relaxed) || known.judged.iter().any(|j| j.workload == name) {
                continue;
            }
            // Progress is a courtesy: a closed stderr must not stop the measurement.
            let _ = writeln!(std::io::stderr(), "{done} of {all}: {name}");
            let share = BUDGET / of.workloads.len() as u32;
            known.judged.extend(judge(runtime, of.operation, workload, share)?);
            write(file, &known)?;
        }
    }
    let interrupted = stop.load(Ordering::Relaxed);
    let operations: Vec<Figures> = suite.iter().filter_map(|of| figures(of, &known.judged)).collect();
    let text = text(&operations, &known.judged) + &overhead.text();
    output::print(json, &Report { operations, overhead, workloads: &known.judged, interrupted }, &text)?;
    Ok(if interrupted { Ended::Interrupted } else { Ended::Well })
}

fn read(runtime: &Runtime, file: Option<&Path>) -> Result<File> {
    let info = runtime.device_info();
    let Some(path) = file.filter(|path| path.exists()) else {
        return Ok(File { device: info.name.clone(), threads: info.threads, judged: Vec::new() });
    };
    let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let file: File = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not a file of `regret --tuning`", path.display()))?;
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

fn write(file: Option<&Path>, known: &File) -> Result<()> {
    let Some(path) = file else { return Ok(()) };
    std::fs::write(path, serde_json::to_vec(known)?).with_context(|| format!("writing {}", path.display()))
}

/// What was judged of an operation's shapes; `None` where nothing was.
fn figures(of: &HeldOut, judged: &[Judged]) -> Option<Figures> {
    let names: Vec<String> = of.workloads.iter().map(ToString::to_string).collect();
    let ours: Vec<&Judged> = judged.iter().filter(|j| names.contains(&j.workload)).collect();
    let mean = |share: fn(&Judged) -> f64| geometric_mean(ours.iter().map(|j| share(j)));
    // A search that never came near counts as worse than any that did.
    let within: Vec<f64> = ours.iter().map(|j| j.within.map_or(f64::INFINITY, |n| n as f64)).collect();
    let trials: Vec<f64> = ours.iter().map(|j| j.order.len() as f64).collect();
    Some(Figures {
        operation: of.operation,
        shapes: ours.len(),
        points: [ours.iter().map(|j| j.points.len()).min()?, ours.iter().map(|j| j.points.len()).max()?],
        default: mean(|j| j.shares.default)?,
        start: mean(|j| j.shares.start)?,
        tuned: mean(|j| j.shares.tuned)?,
        worst: ours.iter().map(|j| j.shares.tuned).fold(f64::INFINITY, f64::min),
        trials_within: median(&within).filter(|n| n.is_finite()).map(|n| n as usize),
        trials: median(&trials)? as usize,
        seconds: ours.iter().map(|j| j.seconds).sum(),
    })
}

/// The figures beside what they must reach, and the shapes that were missed by most.
fn text(operations: &[Figures], judged: &[Judged]) -> String {
    let mut out = String::from(
        "                  points   default     start     tuned   (worst)   trials to 2 %   trials   search\n",
    );
    for f in operations {
        let [low, high] = f.points;
        let trials = f.trials_within.map_or("missed".into(), |n| n.to_string());
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<10} {:>4} {low:>3}–{high:<4} {:>8.3}  {:>8.3}  {:>8.3}  {:>8.3}  {trials:>13}  {:>7}  {:>5.1} s",
            f.operation, f.shapes, f.default, f.start, f.tuned, f.worst, f.trials, f.seconds,
        );
    }
    out.push_str("bars                                    ≥ 0.85    ≥ 0.98                      ≤ 12            ≤ 60 s\n");
    let mut worst: Vec<&Judged> = judged.iter().filter(|j| j.shares.tuned < 0.97).collect();
    worst.sort_by(|a, b| a.shares.tuned.total_cmp(&b.shares.tuned));
    for j in worst.iter().take(8) {
        let (found, best) = (&j.found, &j.best);
        let _ = writeln!(
            out,
            "    {:.3} {}: {} {} and not {} {}",
            j.shares.tuned, j.workload, found.0, found.1, best.0, best.1
        );
    }
    out
}
