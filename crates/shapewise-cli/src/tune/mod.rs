//! `shapewise tune`: measures a suite of workloads, keeps everything, and shows what choosing gains.

mod bar;
mod board;
mod gather;
mod limits;
mod measure;
mod plan;
mod search;
mod suite;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use shapewise::device::{BackendKind, Fingerprint};
use shapewise::ops::Workload;
use shapewise::store::{Evidence, SqliteStore, Store};
use shapewise::tuning::{Coordinator, TuningBudget, TuningConstraints, TuningReport, TuningTask};
use shapewise::{Placement, Runtime, StoreLocation};
use shapewise_report::Report;
use signal_hook::consts::SIGINT;

use crate::settings::leave;
use crate::{Ended, Settings, output};
use bar::Bar;
use gather::Sources;
use limits::Limits;
use measure::{Meter, Outcome};
use plan::Plan;

/// How long to tune, and what.
#[derive(Args)]
pub struct TuneQuestion {
    /// How long to measure: seconds, or 90s, 5m
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "TIME")]
    budget: Duration,
    /// Points of the wide spaces that are tried at most [default: as many as the time allows]
    #[arg(long, value_name = "N")]
    trials: Option<usize>,
    /// Search on this backend as well, under the same budget: cpu or webgpu
    #[arg(long, value_name = "BACKEND", value_parser = crate::settings::backend)]
    also_on: Vec<BackendKind>,
    #[command(flatten)]
    limits: Limits,
    /// Only operations whose name contains this
    #[arg(long, value_name = "PART")]
    only: Option<String>,
    /// Where the page goes
    #[arg(long, default_value = "shapewise-report.html", value_name = "FILE")]
    report: PathBuf,
}

/// What to show of the store.
#[derive(Args)]
pub struct ReportQuestion {
    /// Where the page goes
    #[arg(long, short, default_value = "shapewise-report.html", value_name = "FILE")]
    out: PathBuf,
}

/// `90`, `90s` or `5m` as a time.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix('m') {
        Some(minutes) => (minutes, 60.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds = number.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    let time = seconds.and_then(|n| Duration::try_from_secs_f64(n * unit).ok());
    time.ok_or_else(|| format!("`{text}` is not a time; write seconds like 60, or 90s, 5m"))
}

/// What tuning did.
#[derive(Serialize)]
struct Done<'a> {
    /// Workloads measured now, known before, and left for the next time.
    measured: usize,
    known: usize,
    left: usize,
    /// Workloads measured while others used the machine: kept, but they do not count.
    busy: usize,
    /// Candidates whose answers were wrong, and how: they are not kept.
    wrong: Vec<String>,
    /// Points of the wide spaces that were tried with the time that was left.
    searched: usize,
    /// What the search was told to start from and what it found; nothing where it did not run.
    search: Option<TuningReport>,
    seconds: f64,
    interrupted: bool,
    store: &'a Path,
    report: &'a Path,
    operations: Vec<shapewise_report::Leader>,
    workloads: Vec<board::Line>,
}

/// The file of evidence; one that lasts only as long as the process where evidence is kept in memory.
struct Place {
    file: PathBuf,
    temporary: Option<PathBuf>,
}

impl Place {
    fn of(settings: &Settings) -> Self {
        if let Some(file) = settings.location().file() {
            return Self { file, temporary: None };
        }
        let folder = std::env::temp_dir().join(format!("shapewise-tune-{}", std::process::id()));
        Self { file: folder.join("evidence.sqlite"), temporary: Some(folder) }
    }

    /// Opens the file; a damaged one is set aside first, anything else that is wrong is an error.
    fn open(&self) -> Result<SqliteStore> {
        drop(StoreLocation::File(self.file.clone()).open());
        SqliteStore::open(&self.file)
            .context("tuning needs a store that can be written; choose one by --store FILE")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(folder) = &self.temporary {
            // What is left in the folder for temporary files does no harm.
            drop(std::fs::remove_dir_all(folder));
        }
    }
}

/// Tunes, prints the leaderboard and writes the page.
pub fn run(tune: &TuneQuestion, settings: &Settings) -> Result<Ended> {
    let stop = Arc::new(AtomicBool::new(false));
    // A second Ctrl-C ends the process at once; the order of the two matters.
    signal_hook::flag::register_conditional_shutdown(SIGINT, 130, Arc::clone(&stop))?;
    signal_hook::flag::register(SIGINT, Arc::clone(&stop))?;
    let place = Place::of(settings);
    let store = place.open()?;
    let bar = Bar::new(tune.budget);
    if !settings.no_calibration {
        bar.say("looking up the machine's peaks: two seconds of measuring, once");
    }
    let cold = settings.builder().store(StoreLocation::Memory).build()?;
    let suite = suite::workloads(&cold, tune.only.as_deref())?;
    let plan = Plan::new(&cold, &suite, &store)?;
    let start = Instant::now();
    let constraints = tune.limits.constraints();
    // Measuring the suite runs every candidate, those that break a limit as well.
    let whole = if constraints == TuningConstraints::default() { tune.budget } else { Duration::ZERO };
    let tuned = measure_all(&plan, &cold, &store, &bar, &stop, whole)?;
    let tasks = search::tasks(&suite, &store, &Fingerprint::of(cold.device_info()))?;
    let campaign = Campaign { settings, file: &place.file, tasks: &tasks, tune, constraints };
    let searched = campaign.run(&bar, &stop, start.elapsed())?;
    bar.finish();
    all_refused(searched.as_ref())?;
    let seconds = start.elapsed().as_secs_f64();
    let report = assemble(settings, &place.file, &cold, &suite, &store)?;
    write(&tune.report, &report)?;
    let interrupted = stop.load(Ordering::Relaxed);
    let done = Done {
        measured: tuned.measured,
        known: plan.known,
        left: plan.queue.len() - tuned.measured,
        busy: tuned.busy,
        wrong: tuned.wrong,
        searched: searched.as_ref().map_or(0, |report| report.trials),
        search: searched,
        seconds,
        interrupted,
        store: &place.file,
        report: &tune.report,
        operations: report.leaders(),
        workloads: board::lines(&report),
    };
    output::print(settings.json, &done, &text(&done, &report))?;
    Ok(if interrupted { Ended::Interrupted } else { Ended::Well })
}

struct Tuned {
    measured: usize,
    busy: usize,
    wrong: Vec<String>,
}

/// Measures what the plan has until time is up or someone interrupts; every workload is kept at once.
fn measure_all(
    plan: &Plan<'_>,
    cold: &Runtime,
    store: &dyn Store,
    bar: &Bar,
    stop: &AtomicBool,
    budget: Duration,
) -> Result<Tuned> {
    let mut meter = Meter::new(cold);
    let mut won = Vec::new();
    let mut tuned = Tuned { measured: 0, busy: 0, wrong: Vec::new() };
    let start = Instant::now();
    for workload in &plan.queue {
        if stop.load(Ordering::Relaxed) || start.elapsed() >= budget {
            break;
        }
        bar.measuring(start.elapsed(), [tuned.measured, plan.queue.len()], workload, &won);
        let Outcome { rows, wrong } = meter.measure(workload)?;
        store.append(&rows)?;
        tuned.wrong.extend(wrong);
        tuned.measured += 1;
        tuned.busy += usize::from(rows.iter().any(|row| row.busy));
        won.extend(winner(cold, workload, &rows));
    }
    Ok(tuned)
}

/// A search of the wide spaces of kernels' parameters.
struct Campaign<'a> {
    settings: &'a Settings,
    file: &'a Path,
    tasks: &'a [TuningTask],
    tune: &'a TuneQuestion,
    constraints: TuningConstraints,
}

impl Campaign<'_> {
    /// Searches with the time that is left, on all devices; what is found is kept as it comes.
    fn run(&self, bar: &Bar, stop: &AtomicBool, before: Duration) -> Result<Option<TuningReport>> {
        let left = self.tune.budget.saturating_sub(before);
        if left.is_zero() || self.settings.no_calibration {
            return Ok(None);
        }
        let place = || StoreLocation::File(self.file.to_owned());
        let runtime = self.settings.builder().store(place()).build()?;
        let mut others = Vec::new();
        for &kind in &self.tune.also_on {
            let builder = self.settings.builder().placement(Placement::On(kind));
            others.push(builder.store(place()).build()?);
        }
        let first = Coordinator::new(&runtime);
        let mut coordinator = others.iter().fold(first, |all, other| all.and(other));
        coordinator.constraints = self.constraints.clone();
        let budget = TuningBudget { time: Some(left), trials: self.tune.trials };
        let report = coordinator.tune(self.tasks, &budget, &mut |so_far| {
            bar.searching(before, so_far);
            !stop.load(Ordering::Relaxed)
        });
        runtime.flush();
        others.iter().for_each(Runtime::flush);
        Ok(Some(report))
    }
}

/// An error where no workload keeps to the limits: the first one's, which names the limit and the nearest that can be kept.
fn all_refused(search: Option<&TuningReport>) -> Result<()> {
    let Some(report) = search else { return Ok(()) };
    let first = report.workloads.first().and_then(|w| w.error.as_deref().map(|error| (&w.workload, error)));
    match first {
        Some((workload, error)) if report.workloads.iter().all(|w| w.error.is_some()) => {
            anyhow::bail!("no workload was tuned; {workload}: {error}")
        }
        _ => Ok(()),
    }
}

/// The fastest kernel, and how many times faster it is than what would run without measurements.
fn winner(cold: &Runtime, workload: &Workload, rows: &[Evidence]) -> Option<(String, f64)> {
    let default = cold.explain_workload(workload).ok()?;
    let is_default = |r: &&Evidence| r.kernel == default.chosen && r.parameters == default.parameters;
    let best = rows.iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds))?;
    let kernel = best.kernel.rsplit("::").next().unwrap_or(&best.kernel);
    Some((kernel.to_owned(), rows.iter().find(is_default)?.seconds / best.seconds))
}

/// A report of the store as a new process would find it.
fn assemble(
    settings: &Settings,
    file: &Path,
    cold: &Runtime,
    suite: &[Workload],
    store: &dyn Store,
) -> Result<Report> {
    let runtime = settings.builder().store(StoreLocation::File(file.to_owned())).build()?;
    let report = gather::report(&Sources { runtime: &runtime, cold, suite, store, file: Some(file) });
    leave(runtime);
    report
}

fn write(path: &Path, report: &Report) -> Result<()> {
    std::fs::write(path, report.html()).with_context(|| {
        format!("the page {} cannot be written; choose another place for it", path.display())
    })
}

fn text(done: &Done<'_>, report: &Report) -> String {
    let Done { measured, known, left, busy, searched, .. } = done;
    let more = if *left > 0 { ": run it again to continue" } else { "" };
    let mut lines = vec![
        board::table(report),
        format!(
            "{measured} workloads measured in {:.0} s, {known} known before, {left} left{more}; {searched} further \
             parameters tried",
            done.seconds
        ),
    ];
    if *busy > 0 {
        lines.push(format!(
            "{busy} of them while other programs used the machine: they do not count; run it again when it is quiet"
        ));
    }
    lines.extend(done.search.as_ref().map(search::text));
    lines.extend(done.wrong.iter().map(|wrong| format!("not kept, because its answer is wrong: {wrong}")));
    lines.push(format!("kept in {}", done.store.display()));
    let page = std::path::absolute(done.report).unwrap_or_else(|_| done.report.to_owned());
    lines.push(format!("report: {}", page.display()));
    lines.join("\n")
}

/// Writes the page of what the store has.
pub fn report(question: &ReportQuestion, settings: &Settings) -> Result<()> {
    let file = settings
        .location()
        .file()
        .context("evidence is kept in memory, so there is nothing to show; give --store FILE")?;
    anyhow::ensure!(file.exists(), "{} is not there; `shapewise tune` makes it", file.display());
    let store = SqliteStore::open(&file)?;
    let cold = settings.builder().store(StoreLocation::Memory).build()?;
    let suite = suite::workloads(&cold, None)?;
    let report = assemble(settings, &file, &cold, &suite, &store)?;
    write(&question.out, &report)?;
    let page = std::path::absolute(&question.out).unwrap_or_else(|_| question.out.clone());
    let timed: usize = report.workloads.iter().map(|w| w.candidates.len()).sum();
    let text =
        format!("{} workloads, {timed} candidates\nreport: {}", report.workloads.len(), page.display());
    output::print(settings.json, &report, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(duration("60").unwrap(), Duration::from_mins(1));
        assert_eq!(duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("2m").unwrap(), Duration::from_mins(2));
        for wrong in ["", "soon", "-1", "inf", "nan", "1h", "1e30m"] {
            assert!(duration(wrong).unwrap_err().contains("write seconds"), "{wrong}");
        }
    }
}
