//! `shapewise regret`: choices judged against the measured best.

mod oracle;
mod suite;
mod validate;

use std::path::Path;

use anyhow::Result;
use shapewise::Runtime;
use shapewise::modelling::Training;

use oracle::Oracle;

/// Measures or reads the oracle and prints how well times are predicted.
pub fn run(runtime: &Runtime, file: Option<&Path>, json: bool) -> Result<()> {
    let workloads = suite::workloads(runtime)?;
    let oracle = Oracle::load_or_measure(runtime, &workloads, file)?;
    let operations = validate::validate(&oracle, &Training::default())?;
    if json {
        println!("{}", serde_json::to_string_pretty(&operations)?);
        return Ok(());
    }
    println!(
        "                 shapes   cold start mean/P10/min      error seen/unseen   (roofline)   ranks   covered   half-width"
    );
    for (operation, f) in &operations {
        let [mean, p10, least] = f.cold_start.map(|x| 100.0 * x);
        println!(
            "{operation:<16} {:>6}   {mean:>7.1} {p10:>7.1} {least:>7.1} %   {:>7.1} {:>7.1} %     {:>7.0} %   {:>5.2}   {:>5.1} %   {:>6.1} %",
            f.shapes,
            100.0 * f.error_seen,
            100.0 * f.error_unseen,
            100.0 * f.error_roofline,
            f.rank_correlation,
            100.0 * f.coverage,
            100.0 * f.half_width,
        );
        f.worst.iter().for_each(|text| println!("    {text}"));
    }
    Ok(())
}
