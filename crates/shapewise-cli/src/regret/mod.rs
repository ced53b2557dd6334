//! `shapewise regret`: choices judged against the measured best.

mod live;
mod oracle;
mod replay;
mod suite;
mod tuning;
mod validate;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use shapewise::Runtime;
use shapewise::modelling::Training;

use crate::{Ended, output, stress};
use oracle::Oracle;

/// Processes that write to one store, and how often one of them is killed.
const WRITERS: usize = 16;
const KILLS: usize = 200;

/// Every figure.
#[derive(Serialize)]
struct Report {
    workloads: usize,
    predictions: BTreeMap<String, validate::Figures>,
    selection: replay::Figures,
    decisions: live::Figures,
    store: stress::Report,
}

/// What is judged.
#[derive(Args)]
pub struct RegretQuestion {
    /// The measured times: read if the file is there, written after measuring otherwise
    #[arg(long, value_name = "FILE")]
    oracle: Option<PathBuf>,
    /// Times that every kind of shape is drawn: fewer take less time, and leave models fewer shapes to learn from
    #[arg(long, default_value_t = suite::ROUNDS as u16, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Judges the search for parameters instead: every point of spaces of a hundred and more, on shapes held out
    #[arg(long)]
    tuning: bool,
    /// Shapes of each operation
    #[arg(long, default_value_t = 20, requires = "tuning", value_parser = clap::value_parser!(u32).range(1..=1000))]
    shapes: u32,
}

/// Measures or reads the oracle, plays the selector against it and prints what came out.
pub fn run(question: &RegretQuestion, runtime: &Runtime, json: bool) -> Result<Ended> {
    let file = question.oracle.as_deref();
    if question.tuning {
        return tuning::run(runtime, file, question.shapes as usize, json);
    }
    let workloads = suite::workloads(runtime, usize::from(question.rounds))?;
    let oracle = Oracle::load_or_measure(runtime, &workloads, file)?;
    let training = Training::default();
    let report = Report {
        workloads: oracle.problems.len(),
        predictions: validate::validate(&oracle, &training)?,
        selection: replay::play(runtime, &oracle, &training)?,
        decisions: live::observe(runtime, &oracle, &workloads)?,
        store: stress_store()?,
    };
    output::print(json, &report, &(predictions(&report.predictions) + &bars(&report)))?;
    Ok(Ended::Well)
}

fn stress_store() -> Result<stress::Report> {
    let folder = std::env::temp_dir().join(format!("shapewise-stress-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let report = stress::run(&folder.join("evidence.sqlite"), WRITERS, KILLS);
    std::fs::remove_dir_all(&folder)?;
    report
}

/// How well times are predicted, a line for each operation.
fn predictions(operations: &BTreeMap<String, validate::Figures>) -> String {
    let mut out = String::from(
        "                 shapes   cold start mean/P10/min      error seen/unseen   (roofline)   ranks   covered seen/unseen   half-width seen/unseen\n",
    );
    for (operation, f) in operations {
        let [mean, p10, least] = f.cold_start.map(|x| 100.0 * x);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{operation:<16} {:>6}   {mean:>7.1} {p10:>7.1} {least:>7.1} %   {:>7.1} {:>7.1} %     {:>7.0} %   {:>5.2}   {:>8.1} {:>7.1} %   {:>12.1} {:>7.1} %",
            f.shapes,
            100.0 * f.error_seen,
            100.0 * f.error_unseen,
            100.0 * f.error_roofline,
            f.rank_correlation,
            100.0 * f.coverage_seen,
            100.0 * f.coverage,
            100.0 * f.half_width_seen,
            100.0 * f.half_width,
        );
        for text in &f.worst {
            let _ = writeln!(out, "    {text}");
        }
    }
    if let Some(all) = operations.get("all") {
        let [mean, p10, least] = all.measured_once.map(|x| 100.0 * x);
        let _ = writeln!(
            out,
            "for comparison, every candidate measured in one pass and judged by the other passes: {mean:.1} {p10:.1} {least:.1} %, error {:.1} %",
            100.0 * all.error_once
        );
    }
    out
}

/// The figures of the selector beside what they must reach.
fn bars(report: &Report) -> String {
    let (s, d) = (&report.selection, &report.decisions);
    let percent = |x: f64| format!("{:.2} %", 100.0 * x);
    let lines = [
        (
            "converged regret, geometric mean / p99",
            format!("{} / {}", percent(s.converged_regret), percent(s.converged_regret_p99)),
            "≤ 1 % / ≤ 10 %",
        ),
        (
            "candidates timed to within 2 % of the oracle, median / p95",
            format!("{} / {}", s.tried_median, s.tried_p95),
            "≤ 3 / ≤ 8",
        ),
        ("first call against the default kernel, p99", format!("{:.2} ×", s.first_call_p99), "≤ 2 ×"),
        (
            "decision on a hit, median / p99",
            format!("{:.0} ns / {:.0} ns", d.hit_ns[0], d.hit_ns[1]),
            "≤ 50 ns / ≤ 200 ns",
        ),
        (
            "decision on a miss, median; with the most candidates",
            format!("{:.1} µs; {:.1} µs for {}", d.miss_us, d.largest_miss.0, d.largest_miss.1),
            "≤ 10 µs for 64",
        ),
        (
            "time lost to exploring over 10 000 calls",
            format!("{} ({} races not over)", percent(s.exploring_share), s.unsettled),
            "≤ 1 %",
        ),
        (
            "winner slowed 1.3 ×: timed calls until noticed, median / p95",
            format!("{} / {}", s.drift_calls[0], s.drift_calls[1]),
            "≤ 30 with the new race",
        ),
        ("false alarms in 10⁶ calls", s.false_alarms.to_string(), "≤ 1"),
        ("frozen: the same choices over 100 restarts", d.frozen_identical.to_string(), "true"),
        ("store", report.store.to_string(), "0 lost, 0 corruptions"),
    ];
    let mut out = format!("\n{} workloads\n", report.workloads);
    for (what, found, bar) in lines {
        let _ = writeln!(out, "{what:<64} {found:<34} {bar}");
    }
    for text in &s.worst {
        let _ = writeln!(out, "    worst: {text}");
    }
    out
}
