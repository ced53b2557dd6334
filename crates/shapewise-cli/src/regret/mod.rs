//! `shapewise regret`: choices judged against the measured best.

mod oracle;
mod suite;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;
use shapewise::Runtime;

use oracle::Oracle;

/// What was measured for one operation.
#[derive(Default, Serialize)]
struct Measured {
    workloads: usize,
    candidates: usize,
}

/// Measures or reads the oracle and prints what is in it.
pub fn run(runtime: &Runtime, file: Option<&Path>, json: bool) -> Result<()> {
    let workloads = suite::workloads(runtime)?;
    let oracle = Oracle::load_or_measure(runtime, &workloads, file)?;
    let mut operations = BTreeMap::<String, Measured>::new();
    for problem in &oracle.problems {
        let of = operations.entry(problem.kind().to_string()).or_default();
        of.workloads += 1;
        of.candidates += problem.candidates.len();
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&operations)?);
    } else {
        for (operation, of) in &operations {
            println!("{operation:<16} {:>5} workloads {:>6} candidates", of.workloads, of.candidates);
        }
    }
    Ok(())
}
