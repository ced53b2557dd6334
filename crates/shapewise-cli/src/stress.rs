//! Many processes write to one store and are killed at random; afterwards nothing may be broken or missing.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use shapewise::ops::WorkloadKey;
use shapewise::store::{Evidence, EvidenceId, SqliteStore, Store, unix_ms};

/// Rows of one transaction.
const BATCH: usize = 8;
/// The longest that a process is left to write, in milliseconds: some tens of transactions.
const LONGEST_LIFE: u64 = 40;

/// What was found afterwards.
#[derive(Debug, Serialize)]
pub struct Report {
    processes: usize,
    kills: usize,
    acknowledged: usize,
    kept: usize,
    lost: usize,
    torn: usize,
    corruptions: usize,
    damage: Vec<String>,
    seconds: f64,
}

impl Report {
    /// Whether nothing was broken or lost.
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.torn == 0 && self.corruptions == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} processes, {} kills in {:.1} s: {} rows acknowledged, {} kept; {} lost, {} torn batches, {} corruptions",
            self.processes,
            self.kills,
            self.seconds,
            self.acknowledged,
            self.kept,
            self.lost,
            self.torn,
            self.corruptions,
        )?;
        self.damage.iter().try_for_each(|damage| write!(f, "\n  {damage}"))
    }
}

/// Keeps `processes` writers alive, kills them `kills` times, then reads everything back. The file must be new.
pub fn run(path: &Path, processes: usize, kills: usize) -> Result<Report> {
    ensure!(!path.exists(), "{} exists; a stress run needs a file of its own", path.display());
    ensure!(processes > 0, "no processes, nothing to see; use 1 or more");
    let start = Instant::now();
    let left = AtomicUsize::new(kills);
    let take = || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
    let outcomes: Vec<Result<Vec<u128>>> = thread::scope(|scope| {
        let slot = || {
            let mut acknowledged = Vec::new();
            while take() {
                acknowledged.extend(one_life(path)?);
            }
            Ok(acknowledged)
        };
        let slots: Vec<_> = (0..processes).map(|_| scope.spawn(slot)).collect();
        slots.into_iter().map(|slot| slot.join().expect("a slot does not panic")).collect()
    });
    let (mut acknowledged, mut damage) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(ids) => acknowledged.extend(ids),
            Err(error) => damage.push(format!("{error:#}")),
        }
    }
    let (kept, lost, torn) = match examine(path, &acknowledged) {
        Ok(found) => found,
        Err(error) => {
            damage.push(format!("{error:#}"));
            (0, acknowledged.len(), 0)
        }
    };
    Ok(Report {
        processes,
        kills: kills - left.into_inner(),
        acknowledged: acknowledged.len(),
        kept,
        lost,
        torn,
        corruptions: damage.len(),
        damage,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Starts a writer, kills it a random while after its first rows, and returns the ids it had acknowledged.
fn one_life(path: &Path) -> Result<Vec<u128>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["store", "stress-writer", "--store"])
        .arg(path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("a writer does not start")?;
    let out = BufReader::new(child.stdout.take().context("a writer without output")?);
    let (first, started) = mpsc::channel();
    let reader = thread::spawn(move || acknowledged(out, &first));
    let alive = started.recv().is_ok();
    if alive {
        let random = RandomState::new().hash_one(child.id());
        thread::sleep(Duration::from_micros(random % (LONGEST_LIFE * 1000)));
    }
    // Only a process that still ran is killed by this; one that ended by itself has met damage.
    let ended = child.try_wait()?;
    child.kill().context("a writer cannot be killed")?;
    child.wait()?;
    let ids = reader.join().expect("a reader does not panic");
    ensure!(alive && ended.is_none(), "a writer ended by itself: {}", complaint(&mut child));
    Ok(ids)
}

fn complaint(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(errors) = &mut child.stderr {
        // Without its words there is still the fact that it ended.
        let _ = errors.read_to_string(&mut text);
    }
    text.trim().to_owned()
}

/// The ids on complete lines; tells when the first has come.
fn acknowledged(mut out: impl BufRead, first: &mpsc::Sender<()>) -> Vec<u128> {
    let (mut ids, mut line) = (Vec::new(), String::new());
    while out.read_line(&mut line).is_ok_and(|n| n > 0) && line.ends_with('\n') {
        ids.extend(line.split_whitespace().filter_map(|id| u128::from_str_radix(id, 16).ok()));
        if ids.len() == BATCH {
            // Nobody listens any more after the kill.
            let _ = first.send(());
        }
        line.clear();
    }
    ids
}

/// Reads the file back: rows kept, acknowledged rows that are missing or changed, batches that are there in part.
fn examine(path: &Path, acknowledged: &[u128]) -> Result<(usize, usize, usize)> {
    let store = SqliteStore::open(path)?;
    store.check()?;
    let (mut rows, mut batches) = (HashMap::new(), HashMap::<WorkloadKey, usize>::new());
    store.visit(None, &mut |row| {
        *batches.entry(row.workload).or_default() += 1;
        rows.insert(row.id.bits(), row.description == row.id.to_string());
    })?;
    let lost = acknowledged.iter().filter(|id| rows.get(id) != Some(&true)).count();
    Ok((rows.len(), lost, batches.values().filter(|size| **size != BATCH).count()))
}

/// Adds batches and prints their ids once they are kept, until it is killed.
pub fn write(path: &Path) -> Result<()> {
    let store = SqliteStore::open(path)?;
    let mut out = std::io::stdout().lock();
    loop {
        let batch: Vec<Evidence> = rows();
        ensure!(store.append(&batch)? == BATCH, "rows were refused");
        let ids: Vec<String> = batch.iter().map(|row| row.id.to_string()).collect();
        // One write, so that a kill leaves a whole line or none that counts.
        out.write_all(format!("{}\n", ids.join(" ")).as_bytes())?;
        out.flush()?;
    }
}

/// A batch whose rows name their batch and themselves.
fn rows() -> Vec<Evidence> {
    let workload = WorkloadKey::from_bits(EvidenceId::new().bits());
    let row = |_| {
        let id = EvidenceId::new();
        Evidence {
            id,
            device: serde_json::from_value("cpu-stress".into()).expect("a fingerprint is text"),
            operation: "stress".into(),
            workload,
            description: id.to_string(),
            kernel: "cpu::stress::writer".into(),
            source: 0,
            parameters: String::new(),
            seconds: 1e-6,
            samples: 1,
            spread: None,
            busy: true,
            baseline: None,
            features: vec![0.0; 32],
            features_version: 0,
            measured_at: unix_ms(),
        }
    };
    (0..BATCH).map(row).collect()
}
