//! The store's rows as a report.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::Result;
use shapewise::Runtime;
use shapewise::device::{DeviceInfo, Fingerprint, Level};
use shapewise::modelling::{Example, Features, OperationModel, Query, Training};
use shapewise::ops::{OperationKind, Workload as Asked};
use shapewise::store::{Evidence, SqliteStore, Store, unix_ms};
use shapewise::tracking::{History, Timings, Track};
use shapewise_report::{
    Bandwidth, Candidate, Compute, Interval, Machine, Predicted, Progress, Report, Rows, Workload,
    geometric_mean,
};

/// Parts of the shapes that are left out in turn when predictions are judged.
const FOLDS: usize = 5;
/// Shapes of an operation that predictions are judged on: enough for a plot, and a second of training.
const MOST_SHAPES: usize = 100;
/// Points of the curve of progress: more than a screen shows.
const MOST_STEPS: usize = 400;

/// What a report is made from.
pub struct Sources<'a> {
    /// A runtime that knows what the store has.
    pub runtime: &'a Runtime,
    /// One that knows nothing but the machine's peaks.
    pub cold: &'a Runtime,
    /// Workloads whose choices can be asked for.
    pub suite: &'a [Asked],
    /// The evidence.
    pub store: &'a dyn Store,
    /// Its file.
    pub file: Option<&'a Path>,
}

/// Everything known about one workload.
#[derive(Default)]
struct Group {
    operation: String,
    description: String,
    history: History,
    /// Features and roofline by kernel and parameters.
    features: HashMap<(String, String), (Vec<f32>, Option<f64>)>,
}

/// The report of what the store has about this machine.
pub fn report(from: &Sources<'_>) -> Result<Report> {
    let info = from.runtime.device_info();
    let here = Fingerprint::of(info);
    let sources: HashMap<&str, u64> =
        OperationKind::ALL.iter().flat_map(|o| o.kernels()).map(|k| (k.name(), k.source())).collect();
    let mut store = shapewise_report::Store::default();
    let mut rows: Vec<Evidence> = Vec::new();
    from.store.visit(None, &mut |row| {
        store.rows += 1;
        let (oldest, newest) = store.span.unwrap_or((row.measured_at, row.measured_at));
        store.span = Some((oldest.min(row.measured_at), newest.max(row.measured_at)));
        let is_stale = sources.get(&*row.kernel).is_some_and(|&source| source != row.source);
        store.elsewhere += u64::from(row.device != here);
        store.busy += u64::from(row.busy);
        store.stale += u64::from(is_stale && row.device == here);
        if row.device == here && !is_stale && !row.busy {
            rows.push(row);
        }
    })?;
    store.operations = operations(&rows);
    if let Some(path) = from.file {
        store.path = Some(path.display().to_string());
        store.bytes = std::fs::metadata(path).ok().map(|m| m.len());
        let opened = SqliteStore::open_read_only(path);
        store.schema = opened.as_ref().ok().map(SqliteStore::schema);
        store.damage = Some(opened.and_then(|s| s.check()).map_err(|e| e.to_string()));
    }
    rows.sort_by_key(|row| row.measured_at);
    let groups = groups(&rows);
    let predictions = predictions(&groups);
    let asked: HashMap<u128, &Asked> = from.suite.iter().map(|w| (w.key().bits(), w)).collect();
    let mut workloads: Vec<Workload> = Vec::new();
    let mut keys = Vec::new();
    for (key, group) in &groups {
        keys.push(*key);
        workloads.push(workload(from, group, asked.get(key).copied(), predictions.get(key)));
    }
    let progress = progress(&rows, &keys, &workloads);
    workloads.sort_by(|a, b| {
        (&a.operation, a.bytes.unwrap_or(0.0) as u64).cmp(&(&b.operation, b.bytes.unwrap_or(0.0) as u64))
    });
    let (version, made_at) = (env!("CARGO_PKG_VERSION").to_owned(), unix_ms());
    Ok(Report { version, made_at, machine: machine(info), workloads, progress, store })
}

fn operations(rows: &[Evidence]) -> Vec<Rows> {
    let mut found: BTreeMap<&str, (u64, BTreeSet<u128>)> = BTreeMap::new();
    for row in rows {
        let entry = found.entry(&row.operation).or_default();
        entry.0 += 1;
        entry.1.insert(row.workload.bits());
    }
    let rows = |(name, (rows, keys)): (&str, (u64, BTreeSet<u128>))| Rows {
        operation: name.to_owned(),
        rows,
        workloads: keys.len() as u64,
    };
    found.into_iter().map(rows).collect()
}

fn groups(rows: &[Evidence]) -> BTreeMap<u128, Group> {
    let mut groups: BTreeMap<u128, Group> = BTreeMap::new();
    for row in rows {
        let group = groups.entry(row.workload.bits()).or_default();
        group.operation.clone_from(&row.operation);
        group.description.clone_from(&row.description);
        let timings = Timings {
            seconds: row.seconds,
            samples: u64::from(row.samples),
            spread: row.spread,
            at: row.measured_at,
        };
        group.history.add(&row.kernel, &row.parameters, &timings);
        let names = (row.kernel.clone(), row.parameters.clone());
        group.features.insert(names, (row.features.clone(), row.baseline));
    }
    groups
}

/// Predictions by kernel and parameters, made by models that have not seen the workload.
type Judged = HashMap<(String, String), Predicted>;

fn predictions(groups: &BTreeMap<u128, Group>) -> HashMap<u128, Judged> {
    let mut out = HashMap::new();
    let mut operations: BTreeMap<&str, Vec<(u128, &Group)>> = BTreeMap::new();
    for (key, group) in groups {
        operations.entry(&group.operation).or_default().push((*key, group));
    }
    for shapes in operations.values_mut().filter(|shapes| shapes.len() >= FOLDS) {
        let every = shapes.len().div_ceil(MOST_SHAPES);
        *shapes = shapes.iter().step_by(every).copied().collect();
        for fold in 0..FOLDS {
            let (held, kept): (Vec<_>, Vec<_>) =
                shapes.iter().enumerate().partition(|(i, _)| i % FOLDS == fold);
            let examples: Vec<Example> =
                kept.iter().flat_map(|(_, (key, group))| examples(*key, group)).map(|e| e.1).collect();
            // Too little to learn from is no prediction, not an error of the report.
            let Ok(model) = OperationModel::train(&examples, &Training::default()) else { continue };
            for (_, (key, group)) in held {
                out.insert(*key, judge(&model, *key, group));
            }
        }
    }
    out
}

fn judge(model: &OperationModel, key: u128, group: &Group) -> Judged {
    let examples = examples(key, group);
    let queries: Vec<Query> =
        examples.iter().map(|(_, e)| Query { features: e.features, baseline: e.baseline }).collect();
    let mut found = Vec::new();
    model.predict(key as u64, &queries, &mut found);
    let predicted = found.iter().map(|p| Predicted {
        seconds: p.seconds,
        interval: Interval { low: p.low, high: p.high },
        basis: p.basis.to_string(),
    });
    examples.iter().map(|(names, _)| names.clone()).zip(predicted).collect()
}

/// A workload's candidates as a model learns them; without features or roofline there is nothing to learn.
fn examples(key: u128, group: &Group) -> Vec<((String, String), Example)> {
    let example = |track: Track| {
        let names = (track.kernel.clone(), track.parameters.clone());
        let (features, baseline) = group.features.get(&names)?;
        let features = Features(features.as_slice().try_into().ok()?);
        let seconds = track.measured()?.seconds;
        let example = Example { features, baseline: (*baseline)?, seconds, shape: key as u64, weight: 1.0 };
        Some((names, example)).filter(|(_, e)| e.is_plausible())
    };
    group.history.tracks().into_iter().filter_map(example).collect()
}

fn workload(from: &Sources<'_>, group: &Group, asked: Option<&Asked>, judged: Option<&Judged>) -> Workload {
    let mut candidates = Vec::new();
    for track in group.history.tracks() {
        let Some(measured) = track.measured() else { continue };
        let names = (track.kernel.clone(), track.parameters.clone());
        let (features, baseline) = group.features.get(&names).cloned().unwrap_or_default();
        let range = measured.prediction();
        candidates.push(Candidate {
            seconds: measured.seconds,
            interval: measured.spread.map(|_| Interval { low: range.low, high: range.high }),
            samples: measured.samples,
            operations: executed(&features),
            limit: baseline,
            predicted: judged.and_then(|j| j.get(&names)).cloned(),
            kernel: track.kernel,
            parameters: track.parameters,
        });
    }
    let find = |kernel: &str, parameters: &str| {
        candidates.iter().position(|c| c.kernel == kernel && c.parameters == parameters)
    };
    let chosen = asked.and_then(|w| from.runtime.explain_workload(w).ok());
    let default = asked.and_then(|w| from.cold.explain_workload(w).ok());
    let bytes = group.features.values().find_map(|(features, _)| feature(features, "bytes of all operands"));
    Workload {
        operation: group.operation.clone(),
        description: group.description.clone(),
        bytes: asked.map(|w| w.bytes() as f64).or(bytes),
        chosen: chosen.as_ref().and_then(|e| find(&e.chosen, &e.parameters)),
        default: default.as_ref().and_then(|e| find(&e.chosen, &e.parameters)),
        why: chosen.map(|e| e.reason),
        candidates,
    }
}

/// A number that rows keep as its logarithm to the base 2 (within one per cent); −1 stands for zero.
fn feature(features: &[f32], name: &str) -> Option<f64> {
    let index = (0..features.len()).find(|&i| Features::name(i) == name)?;
    let log = f64::from(features[index]);
    Some(if log == -1.0 { 0.0 } else { log.exp2() })
}

/// Arithmetic operations that a candidate executes.
fn executed(features: &[f32]) -> Option<f64> {
    Some(feature(features, "operations for each result")? * feature(features, "results")?)
}

/// The mean gain after each measured workload, in the order of measuring.
fn progress(rows: &[Evidence], keys: &[u128], workloads: &[Workload]) -> Vec<Progress> {
    let defaults: HashMap<u128, f64> = keys
        .iter()
        .zip(workloads)
        .filter_map(|(key, w)| Some((*key, w.default_candidate()?.seconds)))
        .collect();
    let mut best: HashMap<u128, f64> = defaults.clone();
    let mut steps: Vec<Progress> = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let Some(known) = best.get_mut(&row.workload.bits()) else { continue };
        *known = known.min(row.seconds);
        let batch_ends = rows.get(i + 1).is_none_or(|next| next.measured_at != row.measured_at);
        if !batch_ends {
            continue;
        }
        let gains = best.iter().map(|(key, seconds)| defaults[key] / seconds);
        steps.extend(geometric_mean(gains).map(|gain| Progress { timed: i as u64 + 1, gain }));
    }
    let last = steps.last().copied();
    let every = steps.len().div_ceil(MOST_STEPS).max(1);
    let mut few: Vec<Progress> = steps.into_iter().step_by(every).collect();
    if few.last() != last.as_ref() {
        few.extend(last);
    }
    few
}

fn machine(info: &DeviceInfo) -> Machine {
    let unit = |isa: Option<String>| isa.unwrap_or_else(|| "scalar".into());
    let level = |level: Level| match level {
        Level::L1 => "L1",
        Level::L2 => "L2",
        Level::L3 => "L3",
        Level::Memory => "memory",
    };
    let peaks = info.peaks.as_ref();
    let compute = |p: &shapewise::device::ArithmeticPeak| Compute {
        unit: format!("{} {}", p.unit.dtype, unit(p.unit.isa.map(|isa| isa.to_string()))),
        threads: p.threads as u64,
        rate: p.operations_per_second,
    };
    let bandwidth = |p: &shapewise::device::BandwidthPeak| Bandwidth {
        level: level(p.level).to_owned(),
        threads: p.threads as u64,
        read: p.read,
        copy: p.copy,
        stream: p.stream,
    };
    Machine {
        name: info.name.clone(),
        backend: info.backend.to_string(),
        fingerprint: Fingerprint::of(info).to_string(),
        cores: Some(info.cores as u64),
        threads: Some(info.threads as u64),
        instructions: info.isas.iter().map(ToString::to_string).collect(),
        caches: [info.caches.l1d, info.caches.l2, info.caches.l3].map(|c| c.map(|bytes| bytes as u64)),
        memory: info.memory.map(|bytes| bytes as u64),
        compute: peaks.map_or(Vec::new(), |p| p.arithmetic.iter().map(compute).collect()),
        bandwidth: peaks.map_or(Vec::new(), |p| p.bandwidth.iter().map(bandwidth).collect()),
        hand_off: peaks.and_then(|p| p.hand_off),
        wake: peaks.and_then(|p| p.wake),
        busy: peaks.is_some_and(|p| p.busy),
    }
}
