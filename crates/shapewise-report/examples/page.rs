//! A page from a report as JSON (`shapewise report --json`) on the standard input, or from made-up evidence without one.
//!
//! `cargo run -p shapewise-report --example page -- made-up > page.html`

use std::io::Read;

use shapewise_report::{
    Bandwidth, Candidate, Compute, Interval, Machine, Predicted, Progress, Report, Rows, Store, Workload,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let report = if std::env::args().nth(1).as_deref() == Some("made-up") {
        made_up()
    } else {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        serde_json::from_str(&text)?
    };
    print!("{}", report.html());
    Ok(())
}

/// Evidence that no machine measured: enough of everything to fill each part of the page.
fn made_up() -> Report {
    let products = (4..=10).map(|i| workload("matmul", 1u64 << i, 2.0 * f64::from(1u32 << i).powi(3), 12));
    let sums = (4..=12).map(|i| workload("reduce", 1 << i, f64::from(1u32 << i).powi(2), 4));
    let copies = (4..=12).map(|i| workload("copy", 1 << i, 0.0, 8));
    let progress = (1..=25).map(|i| Progress { timed: 4 * i, gain: 2.0 - 1.0 / i as f64 }).collect();
    Report {
        version: "made-up".into(),
        made_at: 0,
        machine: machine(),
        workloads: products.chain(sums).chain(copies).collect(),
        progress,
        store: Store {
            path: Some("made-up.sqlite".into()),
            rows: 100,
            damage: Some(Ok(())),
            operations: vec![Rows { operation: "matmul".into(), rows: 28, workloads: 7 }],
            ..Store::default()
        },
    }
}

fn machine() -> Machine {
    let compute = [("f32 avx2", 1e11), ("f64 avx2", 5e10), ("f32 scalar", 6e9)];
    let levels = [("L1", 4e11), ("L2", 1.5e11), ("L3", 7e10), ("memory", 2e10)];
    Machine {
        name: "Made-up CPU <of nobody>".into(),
        backend: "cpu".into(),
        compute: compute.map(|(unit, rate)| Compute { unit: unit.into(), threads: 2, rate }).into(),
        bandwidth: levels
            .map(|(level, rate)| Bandwidth {
                level: level.into(),
                threads: 2,
                read: rate,
                copy: rate,
                stream: rate,
            })
            .into(),
        ..Machine::default()
    }
}

/// A workload of `n`×`n` elements with kernels of different overheads and speeds.
fn workload(operation: &str, n: u64, work: f64, bytes: u64) -> Workload {
    let bytes = (bytes * n * n) as f64;
    let amount = if work > 0.0 { work } else { bytes };
    let kernels = [
        ("small", 5e-8, 1.5e10),
        ("packed", 2e-6, 8e10),
        ("threads", 9e-6, 1.2e11),
        ("reference", 2e-8, 1e9),
    ];
    let candidates: Vec<Candidate> = kernels
        .map(|(name, overhead, rate)| {
            let seconds = overhead + amount / rate;
            Candidate {
                kernel: format!("cpu::{operation}::{name}"),
                parameters: "threads=2".into(),
                seconds,
                interval: Some(Interval { low: seconds * 0.99, high: seconds * 1.01 }),
                samples: 9,
                operations: Some(work),
                limit: Some(amount / 1.6e11),
                predicted: Some(Predicted {
                    seconds: seconds * (0.8 + overhead * 1e5),
                    interval: Interval { low: seconds * 0.7, high: seconds * 1.4 },
                    basis: "learned".into(),
                }),
            }
        })
        .into();
    let best = candidates.iter().enumerate().min_by(|a, b| a.1.seconds.total_cmp(&b.1.seconds));
    Workload {
        operation: operation.into(),
        description: format!("{operation}(f32 {n}×{n}) → f32 {n}×{n}"),
        bytes: Some(bytes),
        chosen: best.map(|(i, _)| i),
        candidates,
        default: Some(1),
        why: Some("measured fastest".into()),
    }
}
