//! The program `shapewise`: what is here, why a kernel is chosen, and how fast each candidate is.

mod bench;
mod devices;
mod question;
mod regret;
mod sparse;
mod store;
mod stress;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use shapewise::{Runtime, StoreLocation};
use tracing_subscriber::filter::LevelFilter;

use question::Question;

/// The fastest kernel for every shape, on whatever the machine has.
#[derive(Parser)]
#[command(name = "shapewise", version, arg_required_else_help = true)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
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
        /// Force this kernel
        #[arg(long, value_name = "NAME")]
        kernel: Option<String>,
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
    /// What was measured and kept: where it is, and how it moves between machines
    Store(store::StoreQuestion),
    /// Judges the choices: measures every candidate on a suite of shapes and plays the selector against it (minutes)
    Regret {
        #[command(flatten)]
        settings: Settings,
        /// The measured times: read if the file is there, written after measuring otherwise
        #[arg(long, value_name = "FILE")]
        oracle: Option<PathBuf>,
    },
}

#[derive(Args)]
struct Settings {
    /// Threads to use, the caller included [default: all cores]
    #[arg(long)]
    threads: Option<usize>,
    /// Do not measure the machine's peaks (about two seconds, once)
    #[arg(long)]
    no_calibration: bool,
    /// Keep what is measured in this file, or only in `memory` [default: `SHAPEWISE_STORE`, or the platform's cache directory]
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Settings {
    fn runtime(&self) -> Result<Runtime> {
        let mut builder = Runtime::builder();
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(path) = &self.store {
            let memory = path.as_os_str() == "memory";
            let location = if memory { StoreLocation::Memory } else { StoreLocation::File(path.clone()) };
            builder = builder.store(location);
        }
        if self.no_calibration {
            builder = builder.without_calibration();
        }
        Ok(builder.build()?)
    }
}

fn main() -> ExitCode {
    // Warnings of the library, such as a store that cannot be written, are the user's to know.
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
    match run(Program::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Store(question) => store::run(&question),
        Command::Devices { settings } => devices::print(&settings.runtime()?, settings.json),
        Command::Explain { question, settings, kernel } => {
            let mut runtime = settings.runtime()?;
            if let Some(name) = kernel {
                runtime = runtime.with_kernel(&name)?;
            }
            let explanation = runtime.explain_workload(&question.workload(&runtime)?)?;
            if settings.json {
                println!("{}", serde_json::to_string_pretty(&explanation)?);
            } else {
                println!("{explanation}");
            }
            Ok(())
        }
        Command::Bench { question, settings, samples } => {
            let runtime = settings.runtime()?;
            bench::run(&runtime, &question.workload(&runtime)?, samples as usize, settings.json)
        }
        Command::Regret { settings, oracle } => {
            // Nothing that this machine has learned may help, and nothing measured here is kept.
            let settings = Settings { store: Some("memory".into()), ..settings };
            regret::run(&settings.runtime()?, oracle.as_deref(), settings.json)
        }
    }
}
