//! Shapewise side by side with its peers: answers checked first, contestants in turns, ratios printed.
#![deny(unsafe_code)]

mod bare;
mod buffer;
mod contestants;
mod environment;
mod problem;
mod records;
mod report;
mod rnn;
mod timing;
#[cfg(feature = "burn")]
mod webgpu;
mod workload;

use anyhow::{Context, Result, bail};
use clap::Parser;
use contestants::{Contestant, OURS, Setup};
use problem::Problem;
use report::{Case, Entry, Times};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use timing::Plan;
use workload::Workload;

/// Times Shapewise and its peers in turns and prints ratios (above 1: Shapewise is faster).
///
/// Before anyone is timed, answers are compared with an f64 reference at 64 sampled entries. The allowed error is
/// (16 + 2 sqrt(n)) times f32's epsilon of the sum of magnitudes, n the number of terms added up; one epsilon for
/// element-wise operations.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A list of workloads (JSON); without it, the list of this crate.
    #[arg(long, value_name = "FILE")]
    workloads: Option<PathBuf>,
    /// Threads that each contestant may use.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Only workloads whose name contains one of these parts, comma separated.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Writes the records of this run; - for the standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only these peers, comma separated; Shapewise always takes part.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    peers: Vec<String>,
    /// Records of other harnesses to show beside, marked as not interleaved.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    records: Vec<PathBuf>,
    /// Times a 4x4 product through the runtime and its kernel alone, and nothing else.
    #[arg(long)]
    bare: bool,
    /// Times WGSL kernels and burn's wgpu backend on the same adapter, and nothing else.
    #[cfg(feature = "burn")]
    #[arg(long)]
    webgpu: bool,
    /// Samples per contestant when calls are quick.
    #[arg(long, value_name = "N", default_value_t = 31, value_parser = clap::value_parser!(u16).range(15..=1000))]
    samples: u16,
}

fn main() -> ExitCode {
    match compare(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &Arguments) -> Result<()> {
    let threads = usize::from(arguments.threads);
    let workloads = load(arguments)?;
    let mut records = Vec::new();
    for path in &arguments.records {
        records.extend(records::read(path)?);
    }
    environment::prepare(threads)?;
    let plan = Plan { most_rounds: usize::from(arguments.samples), ..Plan::default() };
    #[cfg(feature = "burn")]
    if arguments.webgpu {
        return webgpu::run(&workloads, &plan);
    }
    let setup = Setup::new(threads, arguments.peers.clone())?;
    if arguments.bare {
        print!("{}", bare::run(&setup.runtime, &plan)?);
        return Ok(());
    }
    contestants::warnings().iter().for_each(|w| eprintln!("{w}"));
    let mut cases = Vec::new();
    for (index, workload) in workloads.iter().enumerate() {
        let progress = Progress::new(index, workloads.len(), &workload.name);
        let mut case = run(workload, &setup, &plan, &progress)?;
        progress.clear();
        records::merge(&mut case, &records);
        println!("{}", report::table(&case));
        cases.push(case);
        if let Some(path) = &arguments.json {
            // After every case, so that a long run that is stopped leaves what it has.
            if path.as_os_str() != "-" {
                records::write(path, &cases)?;
            }
        }
    }
    println!("{}", report::summary(&cases));
    if let Some(path) = arguments.json.as_ref().filter(|p| p.as_os_str() == "-") {
        records::write(path, &cases)?;
    }
    let wrong: Vec<&str> = cases
        .iter()
        .filter(|c| c.wrong.iter().any(|(name, _)| name.starts_with(OURS)))
        .map(|c| c.workload.as_str())
        .collect();
    if !wrong.is_empty() {
        bail!("Shapewise gave a wrong answer on {}", wrong.join(", "));
    }
    Ok(())
}

/// The workloads that were asked for.
fn load(arguments: &Arguments) -> Result<Vec<Workload>> {
    let mut workloads = match &arguments.workloads {
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            workload::parse(&text).with_context(|| format!("in {}", path.display()))?
        }
        None => workload::parse(workload::DEFAULT_LIST)?,
    };
    workloads.retain(|w| workload::matches(&w.name, &arguments.filter));
    if workloads.is_empty() {
        bail!("no workload's name contains `{}`", arguments.filter);
    }
    Ok(workloads)
}

/// Checks all answers of a workload, then times those who were right.
fn run(workload: &Workload, setup: &Setup, plan: &Plan, progress: &Progress) -> Result<Case> {
    progress.show("making inputs and the reference");
    let problem = Problem::new(workload.task);
    let mut out = buffer::Buffer::zeroed(workload.task.output_len(), problem.inputs.len());
    let mut entrants = contestants::enter(&problem, setup)?;
    let mut wrong = Vec::new();
    entrants.retain_mut(|contestant| {
        progress.show(&format!("checking {}", contestant.name()));
        let error = check(contestant.as_mut(), &problem, &mut out);
        if error > 1.0 {
            wrong.push((contestant.name().to_owned(), error));
        }
        error <= 1.0
    });
    progress.show("warming up");
    let race = timing::race(&mut entrants, &mut out, plan, setup.threads, &mut |round, most| {
        progress.show(&format!("round {round} of at most {most}"));
    });
    let named = entrants.iter().map(|c| c.name().to_owned()).zip(race.timings);
    let entries = named.map(|(name, t)| Entry { name, times: Times::Interleaved(t) }).collect();
    Ok(Case {
        workload: workload.name.clone(),
        group: workload.task.group(),
        threads: setup.threads,
        entries,
        wrong,
        foreign_cores: race.foreign_cores,
    })
}

fn check(contestant: &mut dyn Contestant, problem: &Problem, out: &mut [f32]) -> f64 {
    out.fill(f32::NAN);
    contestant.answer(out);
    problem.error(out)
}

/// A line on the terminal that says what goes on.
struct Progress {
    label: String,
    terminal: bool,
}

impl Progress {
    fn new(index: usize, count: usize, name: &str) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let label = format!("[{}/{count}] {name}", index + 1);
        if !terminal {
            eprintln!("{label}");
        }
        Self { label, terminal }
    }

    fn show(&self, what: &str) {
        if self.terminal {
            eprint!("\r\x1b[2K{}: {what}", self.label);
            let _ = std::io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }
}
