//! The program `shapewise`: tunes a machine, says what is here, why a kernel is chosen, and how fast each candidate is.

mod bench;
mod devices;
mod files;
mod output;
mod question;
mod regret;
mod run;
mod settings;
mod sparse;
mod store;
mod stress;
mod tune;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use tracing_subscriber::filter::LevelFilter;

use question::Question;
use settings::Settings;

/// The fastest kernel for every shape, on whatever the machine has.
///
/// Without a command it tunes: measures this machine and a suite of workloads for a minute, prints a leaderboard and writes
/// a page with everything.
#[derive(Parser)]
#[command(name = "shapewise", version, args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
struct Program {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    tune: tune::TuneQuestion,
    #[command(flatten)]
    settings: Settings,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed (one line says why), 2 the command line is wrong, 130 interrupted by Ctrl-C.";

#[derive(Subcommand)]
enum Command {
    /// Measures a suite of workloads and keeps what it finds; what `shapewise` alone does
    Tune {
        #[command(flatten)]
        tune: tune::TuneQuestion,
        #[command(flatten)]
        settings: Settings,
    },
    /// Devices that were found, with their measured peaks
    Devices {
        #[command(flatten)]
        settings: Settings,
    },
    /// Why an operation on these shapes runs the kernel it runs
    #[command(after_help = question::EXAMPLES)]
    Explain {
        #[command(flatten)]
        question: Question,
        #[command(flatten)]
        settings: Settings,
        /// Force the kernel of this name
        #[arg(long, value_name = "NAME")]
        force: Option<String>,
    },
    /// Times every candidate for an operation side by side, answers checked first
    #[command(after_help = question::EXAMPLES)]
    Bench {
        #[command(flatten)]
        question: Question,
        #[command(flatten)]
        settings: Settings,
        /// Samples per candidate
        #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        samples: u32,
    },
    /// Executes an operation on `.npy` or `.safetensors` files
    Run {
        #[command(flatten)]
        run: run::RunQuestion,
        #[command(flatten)]
        settings: Settings,
    },
    /// Writes the page of what the store has
    Report {
        #[command(flatten)]
        question: tune::ReportQuestion,
        #[command(flatten)]
        settings: Settings,
    },
    /// What was measured and kept: where it is, and how it moves between machines
    Store(store::StoreQuestion),
    /// Judges the choices: measures every candidate on a suite of shapes and plays the selector against it (minutes)
    Regret {
        #[command(flatten)]
        question: regret::RegretQuestion,
        #[command(flatten)]
        settings: Settings,
    },
    /// Prints completions for a shell: shapewise completions bash > ~/.local/share/bash-completion/completions/shapewise
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: Shell,
    },
    /// Prints the manual page: shapewise man | man -l -
    Man,
}

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It did everything.
    Well,
    /// It kept what it had when Ctrl-C came.
    Interrupted,
}

fn main() -> ExitCode {
    // Warnings of the library, such as a store that cannot be written, are the user's to know.
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .init();
    let program = match Program::try_parse() {
        Ok(program) => program,
        // Help and version, with the colours that the terminal may have.
        Err(help) if !help.to_string().starts_with("error: ") => help.exit(),
        Err(error) => {
            eprintln!("{}", one_line(&error.to_string()));
            return ExitCode::from(2);
        }
    };
    match run(program) {
        Ok(Ended::Well) => ExitCode::SUCCESS,
        // What shells report of a program that Ctrl-C ended.
        Ok(Ended::Interrupted) => ExitCode::from(130),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What is wrong with a command line, on one line: lists and tips follow each other.
fn one_line(text: &str) -> String {
    let text = text.replace("invalid digit found in string", "write a whole number like 2");
    let parts = text.lines().map(str::trim).filter(|part| !part.is_empty());
    let parts = parts.take_while(|part| !part.starts_with("For more information"));
    parts.fold(String::new(), |line, part| match line.chars().next_back() {
        None => part.to_owned(),
        Some(':') => line + " " + part,
        Some('>') if part.starts_with(['<', '-']) => line + " " + part,
        Some(_) => line + "; " + part,
    })
}

fn run(program: Program) -> Result<Ended> {
    match program.command {
        None => return tune::run(&program.tune, &program.settings),
        Some(Command::Tune { tune, settings }) => return tune::run(&tune, &settings),
        Some(Command::Store(question)) => store::run(&question)?,
        Some(Command::Devices { settings }) => devices::print(&settings.runtime()?, settings.json)?,
        Some(Command::Explain { question, settings, force }) => {
            let mut runtime = settings.runtime()?;
            if let Some(name) = force {
                runtime = runtime.with_kernel(&name)?;
            }
            let explanation = runtime.explain_workload(&question.workload(&runtime)?)?;
            output::print(settings.json, &explanation, &explanation.to_string())?;
            settings::leave(runtime);
        }
        Some(Command::Bench { question, settings, samples }) => {
            let runtime = settings.runtime()?;
            bench::run(&runtime, &question.workload(&runtime)?, samples as usize, settings.json)?;
        }
        Some(Command::Run { run: question, settings }) => {
            run::run(&question, &settings.runtime()?, settings.json)?;
        }
        Some(Command::Report { question, settings }) => tune::report(&question, &settings)?,
        Some(Command::Regret { question, settings }) => {
            // Nothing that this machine has learned may help, and nothing measured here is kept.
            let settings = Settings { store: Some("memory".into()), ..settings };
            return regret::run(&question, &settings.runtime()?, settings.json);
        }
        Some(Command::Completions { shell }) => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Program::command(), "shapewise", &mut text);
            output::line(&String::from_utf8_lossy(&text))?;
        }
        Some(Command::Man) => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Program::command()).render(&mut text)?;
            output::line(&String::from_utf8_lossy(&text))?;
        }
    }
    Ok(Ended::Well)
}
