//! `shapewise store`: what is kept, where, and how it moves between machines.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::json;
use shapewise::device::Fingerprint;
use shapewise::store::{self, SqliteStore, Store, unix_ms};
use shapewise::{Runtime, StoreLocation};

use crate::output::print;
use crate::stress;

/// After ten half-lives of seven days a row weighs less than a thousandth.
const RETENTION_DAYS: u32 = 70;

/// What to do with which store.
#[derive(Args)]
pub struct StoreQuestion {
    #[command(subcommand)]
    command: StoreCommand,
    /// The file [default: `SHAPEWISE_STORE`, or a file in the platform's cache directory]
    #[arg(long, global = true, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum StoreCommand {
    /// Where the file is
    Path,
    /// What is in it
    #[command(alias = "stats")]
    Info,
    /// Reads every page and every row and says what is broken
    Verify,
    /// Writes every row as a line of JSON; `-` for the standard output
    Export { file: PathBuf },
    /// Adds the rows of exports; rows that are there already change nothing
    Import {
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Adds the rows of other stores
    Merge {
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Drops old rows
    Prune {
        /// Their least age in days
        #[arg(long, value_name = "DAYS", default_value_t = RETENTION_DAYS)]
        older_than: u32,
    },
    /// Lets frozen runtimes on this machine choose anew
    Unpin {
        /// Threads of those runtimes [default: all cores]
        #[arg(long)]
        threads: Option<usize>,
    },
    /// Writes from many processes, kills them at random and looks for damage
    #[command(hide = true)]
    Stress {
        #[arg(long, default_value_t = 16)]
        processes: usize,
        #[arg(long, default_value_t = 200)]
        kills: usize,
    },
    /// One of the processes of `stress`
    #[command(hide = true)]
    StressWriter,
}

/// Runs a command on the store.
pub fn run(question: &StoreQuestion) -> Result<()> {
    let json = question.json;
    match &question.command {
        StoreCommand::Path => {
            let file = question.location().file();
            let text = file.as_ref().map_or("memory".into(), |path| path.display().to_string());
            print(json, &json!({ "path": file }), &text)
        }
        StoreCommand::Info => info(&question.file()?, json),
        StoreCommand::Verify => verify(&question.file()?, json),
        StoreCommand::Export { file } => export(&*question.open()?, file, json),
        StoreCommand::Import { files } => import(&*question.open()?, files, json),
        StoreCommand::Merge { files } => merge(&*question.open()?, files, json),
        StoreCommand::Prune { older_than } => {
            let gone = question.open()?.prune(unix_ms() - i64::from(*older_than) * 86_400_000)?;
            print(json, &json!({ "pruned": gone }), &format!("{gone} rows dropped"))
        }
        StoreCommand::Unpin { threads } => {
            let mut runtime = Runtime::builder().without_calibration().store(StoreLocation::Memory);
            if let Some(threads) = threads {
                runtime = runtime.threads(*threads);
            }
            let here = Fingerprint::of(runtime.build()?.device_info());
            let gone = question.open()?.unpin(&here)?;
            print(json, &json!({ "unpinned": gone }), &format!("{gone} choices are free again"))
        }
        StoreCommand::Stress { processes, kills } => {
            let report = stress::run(&question.file()?, *processes, *kills)?;
            let text = report.to_string();
            print(json, &serde_json::to_value(&report)?, &text)?;
            anyhow::ensure!(report.is_clean(), "the store did not hold");
            Ok(())
        }
        StoreCommand::StressWriter => stress::write(&question.file()?),
    }
}

impl StoreQuestion {
    fn location(&self) -> StoreLocation {
        self.store.clone().map_or(StoreLocation::Default, StoreLocation::File)
    }

    fn file(&self) -> Result<PathBuf> {
        self.location().file().context("there is no file: evidence is kept in memory; give one with --store")
    }

    /// The store, without the fallbacks of a runtime: who asks for a file wants to know what is wrong with it.
    fn open(&self) -> Result<Box<dyn Store>> {
        Ok(Box::new(SqliteStore::open(self.file()?)?))
    }
}

/// Rows of one device and operation.
#[derive(Default)]
struct Group {
    rows: usize,
    busy: usize,
    workloads: BTreeSet<u128>,
    kernels: BTreeSet<String>,
    newest: i64,
}

fn info(path: &Path, json: bool) -> Result<()> {
    if !path.exists() {
        let value = json!({ "path": path, "rows": 0, "groups": [] });
        return print(json, &value, &format!("{}\n  nothing is kept yet", path.display()));
    }
    let store = SqliteStore::open(path)?;
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    store.visit(None, &mut |row| {
        let group = groups.entry((row.device.to_string(), row.operation)).or_default();
        group.rows += 1;
        group.busy += usize::from(row.busy);
        group.workloads.insert(row.workload.bits());
        group.kernels.insert(row.kernel);
        group.newest = group.newest.max(row.measured_at);
    })?;
    let bytes = std::fs::metadata(path)?.len();
    let rows = store.count()?;
    let summary = format!("  {rows} rows, {} KiB, schema {}", bytes >> 10, store.schema());
    let mut lines = vec![path.display().to_string(), summary];
    let mut list = Vec::new();
    for ((device, operation), g) in &groups {
        let days = (unix_ms() - g.newest).max(0) / 86_400_000;
        lines.push(format!(
            "  {device:<24} {operation:<14} {:>7} rows ({} busy), {} workloads, {} kernels, newest {days} days old",
            g.rows,
            g.busy,
            g.workloads.len(),
            g.kernels.len(),
        ));
        list.push(json!({
            "device": device, "operation": operation, "rows": g.rows, "busy": g.busy,
            "workloads": g.workloads.len(), "kernels": g.kernels.len(), "newest_ms": g.newest,
        }));
    }
    let value =
        json!({ "path": path, "bytes": bytes, "schema": store.schema(), "rows": rows, "groups": list });
    print(json, &value, &lines.join("\n"))
}

/// Reads every page, then every row: those that cannot have been measured are counted.
fn verify(path: &Path, json: bool) -> Result<()> {
    anyhow::ensure!(path.exists(), "{} is not there; `shapewise tune` makes it", path.display());
    let advice = "any command that measures sets it aside and keeps every row that can be read";
    let store = SqliteStore::open_read_only(path).context(advice)?;
    store.check().context(advice)?;
    let mut sound = 0;
    store.visit(None, &mut |_| sound += 1).context(advice)?;
    let rows = store.count()?;
    let text = format!("{}: whole, {sound} of {rows} rows are sound", path.display());
    print(json, &json!({ "path": path, "whole": true, "rows": rows, "sound": sound }), &text)
}

fn export(from: &dyn Store, file: &Path, json: bool) -> Result<()> {
    if file == Path::new("-") {
        store::export(from, &mut std::io::stdout().lock())?;
        return Ok(());
    }
    let failed = || format!("{} cannot be written", file.display());
    let mut out = BufWriter::new(File::create(file).with_context(failed)?);
    let rows = store::export(from, &mut out).with_context(failed)?;
    out.flush().with_context(failed)?;
    print(json, &json!({ "exported": rows }), &format!("{rows} rows written to {}", file.display()))
}

fn import(into: &dyn Store, files: &[PathBuf], json: bool) -> Result<()> {
    for file in files {
        let failed = || format!("{} is not imported", file.display());
        let mut from = BufReader::new(File::open(file).with_context(failed)?);
        let done = store::import(into, &mut from).with_context(failed)?;
        let counts =
            format!("{} new rows, {} known already, {} refused", done.added, done.known, done.refused);
        let lines = [&[format!("{}: {counts}", file.display())], &done.reasons[..]].concat();
        print(json, &json!({ "file": file, "imported": done }), &lines.join("\n  "))?;
    }
    Ok(())
}

fn merge(into: &dyn Store, files: &[PathBuf], json: bool) -> Result<()> {
    for file in files {
        let failed = || format!("{} is not merged", file.display());
        let from = SqliteStore::open_read_only(file).with_context(failed)?;
        let added = store::merge(into, &from).with_context(failed)?;
        print(
            json,
            &json!({ "file": file, "added": added }),
            &format!("{}: {added} new rows", file.display()),
        )?;
    }
    Ok(())
}
