//! The search of the wide spaces of kernels' parameters: what it is worth to whom, and what it found.

use std::collections::HashMap;
use std::fmt::Write;

use anyhow::Result;
use shapewise::device::Fingerprint;
use shapewise::ops::Workload;
use shapewise::store::Store;
use shapewise::tuning::{TunedWorkload, TuningReport, TuningTask};
use shapewise_report::text;

/// Workloads whose starts are printed; the JSON has all.
const SHOWN: usize = 10;

/// Runs and seconds of a workload's candidates, by kernel and parameters.
type Spent = HashMap<(String, String), (f64, f64)>;

/// The workloads with their shares of the time that the store knows of: runs × seconds of each one's candidate with the
/// most runs, which is the one that calls use. What the store does not know counts as much as the mean of what it does.
pub fn tasks(suite: &[Workload], store: &dyn Store, device: &Fingerprint) -> Result<Vec<TuningTask>> {
    let mut runs: HashMap<u128, Spent> = HashMap::new();
    store.visit(Some(device), &mut |row| {
        let candidates = runs.entry(row.workload.bits()).or_default();
        let (count, seconds) = candidates.entry((row.kernel, row.parameters)).or_default();
        *count += f64::from(row.samples);
        *seconds += f64::from(row.samples) * row.seconds;
    })?;
    let spent = |workload: &Workload| {
        let candidates = runs.get(&workload.key().bits())?.values();
        candidates.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, seconds)| *seconds)
    };
    let known: Vec<f64> = suite.iter().filter_map(spent).collect();
    let mean = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
    let task = |workload: &Workload| TuningTask {
        workload: workload.clone(),
        weight: spent(workload).unwrap_or(mean) / mean,
        calls: None,
    };
    Ok(suite.iter().map(task).collect())
}

/// What the strategies recommended and what came of it, what they counted, and what could not be done.
pub fn text(report: &TuningReport) -> String {
    let mut out = String::new();
    let mut searched: Vec<&TunedWorkload> =
        report.workloads.iter().filter(|w| w.starts.iter().any(|s| s.seconds.is_some())).collect();
    searched.sort_by(|a, b| b.gain.unwrap_or(0.0).total_cmp(&a.gain.unwrap_or(0.0)));
    if !searched.is_empty() {
        out.push_str("\nwhere searches started, and what they found\n");
    }
    let time = |seconds: Option<f64>| seconds.map_or("–".to_owned(), text::seconds);
    for tuned in searched.iter().take(SHOWN) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {} on {}", tuned.workload, tuned.device);
        for start in tuned.starts.iter().filter(|s| s.seconds.is_some()) {
            let (expected, measured) = (time(start.expected), time(start.seconds));
            let name = format!("{} {}", start.kernel, start.parameters);
            let _ = writeln!(out, "    start {name}: {expected} expected, {measured} measured");
            let _ = writeln!(out, "      because {}", start.reasons.join("; "));
        }
        if let Some(best) = &tuned.best {
            let gain = tuned.gain.map_or("–".into(), |gain| format!("{}×", text::number(gain)));
            let name = format!("{} {}", best.kernel, best.parameters);
            let _ = writeln!(out, "    best  {name}: {}, {gain} of the default", time(Some(best.seconds)));
        }
    }
    if searched.len() > SHOWN {
        let _ = writeln!(out, "  and {} more: --json has them all", searched.len() - SHOWN);
    }
    for tuned in report.workloads.iter().filter(|w| w.error.is_some()) {
        let _ = writeln!(out, "  {}: {}", tuned.workload, tuned.error.as_deref().unwrap_or_default());
    }
    for strategy in &report.strategies {
        let m = &strategy.metrics;
        let _ = writeln!(
            out,
            "strategy of {} ({}): {} recommendations in {}, {} runs reported, {} right about the time, {}× the default's speed",
            strategy.backend,
            strategy.device,
            m.optimisations,
            text::seconds(m.overhead_seconds),
            m.reports,
            text::percent(m.prediction_accuracy),
            text::number(m.speed_up)
        );
    }
    let _ = writeln!(out, "recommendations kept: {} hits, {} misses", report.cache.hits, report.cache.misses);
    out
}

#[cfg(test)]
mod tests {
    use shapewise::store::MemoryStore;
    use shapewise::{Runtime, Tensor};

    use super::*;

    #[test]
    fn workloads_weigh_what_they_took() {
        let runtime = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let ask = |n: usize| {
            let x = Tensor::full(1.0f32, &[n]).unwrap();
            runtime.workloads(|rt| rt.relu(&x)).unwrap().remove(0)
        };
        let suite = [ask(10), ask(20), ask(30)];
        let store = MemoryStore::new();
        let here = Fingerprint::of(runtime.device_info());
        let weights = |store: &MemoryStore| {
            tasks(&suite, store, &here).unwrap().iter().map(|t| t.weight).collect::<Vec<_>>()
        };
        assert_eq!(weights(&store), [1.0; 3], "nothing is known");
        let mut meter = super::super::measure::Meter::new(&runtime);
        for (workload, (samples, seconds)) in suite.iter().zip([(100, 1e-3), (300, 1e-3)]) {
            let mut row = meter.measure(workload).unwrap().rows.remove(0);
            (row.samples, row.seconds) = (samples, seconds);
            store.append(&[row]).unwrap();
        }
        let found = weights(&store);
        for (found, expected) in found.iter().zip([0.5, 1.5, 1.0]) {
            assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        }
    }
}
