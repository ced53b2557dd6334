//! `shapewise bench`: every candidate side by side.

use std::io::{IsTerminal, Write};

use anyhow::Result;
use shapewise::Runtime;
use shapewise::measure::{Race, RaceOptions, Timing};
use shapewise::ops::Workload;

use crate::output;

/// Races the candidates and prints them, fastest first.
pub fn run(runtime: &Runtime, workload: &Workload, samples: usize, json: bool) -> Result<()> {
    let options = RaceOptions { samples, ..RaceOptions::default() };
    let shown = std::io::stderr().is_terminal();
    let mut progress = |done: usize, all: usize| {
        if shown {
            // Progress is a courtesy: a closed stderr must not stop the measurement.
            let _ =
                write!(std::io::stderr(), "\r{done} of {all} turns{}", if done == all { "\r\n" } else { "" });
        }
    };
    let race = runtime.benchmark_kernels(workload, &options, &mut progress)?;
    output::print(json, &race, &table(&race))
}

fn table(race: &Race) -> String {
    let median = |t: &Timing| t.measured_us.map_or(f64::INFINITY, |m| m.median);
    let mut order: Vec<usize> = (0..race.timings.len()).collect();
    order.sort_by(|&a, &b| median(&race.timings[a]).total_cmp(&median(&race.timings[b])));
    let best = order.first().map_or(f64::INFINITY, |&i| median(&race.timings[i]));
    let mut lines = vec![race.workload.clone(), String::new()];
    lines.push(format!(
        "  {:<40} {:<26} {:>12} {:>9} {:>12}",
        "kernel", "parameters", "median µs", "of best", "predicted µs"
    ));
    for i in order {
        let t = &race.timings[i];
        let mark = if i == race.chosen { '→' } else { ' ' };
        let number = |x: Option<f64>| x.map_or("–".to_owned(), |x| format!("{x:.2}"));
        let ratio = t.measured_us.map_or("–".to_owned(), |m| format!("{:.2}×", best / m.median));
        let measured = number(t.measured_us.map(|m| m.median));
        lines.push(format!(
            "{mark} {:<40} {:<26} {measured:>12} {ratio:>9} {:>12}{}",
            t.kernel,
            t.parameters,
            number(t.predicted_us),
            t.remark.as_ref().map_or(String::new(), |r| format!("  {r}")),
        ));
    }
    if !race.refusals.is_empty() {
        lines.push("\nrefused:".into());
        lines.extend(race.refusals.iter().map(|r| format!("  {:<40} {}", r.kernel, r.reasons.join("; "))));
    }
    lines.push("\n→ is what the policy picks before anything is measured\n".into());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shapewise::measure::Summary;

    #[test]
    fn the_fastest_stands_first_and_the_choice_is_marked() {
        let timing = |kernel: &str, median: Option<f64>| Timing {
            kernel: kernel.into(),
            parameters: "threads=1".into(),
            predicted_us: Some(1.0),
            measured_us: median.and_then(|m| Summary::of(&[m, m, m])),
            operations_per_second: None,
            bytes_per_second: None,
            remark: median.is_none().then(|| "given up".into()),
        };
        let race = Race {
            workload: "w".into(),
            chosen: 1,
            timings: vec![timing("lost", None), timing("slow", Some(4.0)), timing("fast", Some(2.0))],
            refusals: vec![],
        };
        let text = table(&race);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[3].starts_with("  fast") && lines[3].contains("1.00×"));
        assert!(lines[4].starts_with("→ slow") && lines[4].contains("0.50×"));
        assert!(lines[5].contains("lost") && lines[5].ends_with("given up"));
    }
}
