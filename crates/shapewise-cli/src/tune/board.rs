//! The leaderboard.

use std::fmt::Write;

use serde::Serialize;
use shapewise_report::{Report, Workload, text};

/// One workload's line.
#[derive(Serialize)]
pub struct Line {
    operation: String,
    workload: String,
    kernel: String,
    parameters: String,
    /// Seconds of a call, and where the true time lies.
    seconds: f64,
    interval: Option<(f64, f64)>,
    /// Times faster than what would run without measurements.
    gain: Option<f64>,
    /// Share of the speed that the measured peaks allow.
    of_limit: Option<f64>,
    /// Share of time lost against the fastest candidate.
    regret: Option<f64>,
}

/// The workloads that have a choice.
pub fn lines(report: &Report) -> Vec<Line> {
    let line = |w: &Workload| {
        let chosen = w.chosen()?;
        Some(Line {
            operation: w.operation.clone(),
            workload: w.description.clone(),
            kernel: chosen.kernel.clone(),
            parameters: chosen.parameters.clone(),
            seconds: chosen.seconds,
            interval: chosen.interval.map(|i| (i.low, i.high)),
            gain: w.gain(),
            of_limit: w.of_limit(),
            regret: w.regret(),
        })
    };
    report.workloads.iter().filter_map(line).collect()
}

/// Operations with their workloads below, for people.
pub fn table(report: &Report) -> String {
    let lines = lines(report);
    let mut out = String::new();
    for leader in report.leaders() {
        let times = |x: Option<f64>| x.map_or("–".to_owned(), |x| format!("{}×", text::number(x)));
        let share = |x: Option<f64>| x.map_or("–".to_owned(), text::percent);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "\n{:<88} {:>10} {:>7} {:>9} {:>9}",
            leader.operation, "time", "±", "gain", "of limit"
        );
        for line in lines.iter().filter(|l| l.operation == leader.operation) {
            let width = line.interval.map(|(low, high)| (high / low).sqrt() - 1.0);
            let kernel = line.kernel.rsplit("::").next().unwrap_or(&line.kernel);
            let _ = writeln!(
                out,
                "  {:<50} {:<35} {:>10} {:>7} {:>9} {:>9}",
                cut(&line.workload, 50),
                cut(format!("{kernel} {}", line.parameters).trim_end(), 35),
                text::seconds(line.seconds),
                share(width),
                times(line.gain),
                share(line.of_limit)
            );
        }
        let range = leader.gains.map_or(String::new(), |(low, high)| {
            format!(", {}× to {}×", text::number(low), text::number(high))
        });
        let _ = writeln!(
            out,
            "  mean gain {}{range}; {} of the machine's limit; {} chosen on {} of {}",
            times(leader.gain),
            share(leader.of_limit),
            leader.kernel,
            leader.chosen,
            leader.workloads
        );
    }
    if out.is_empty() {
        out.push_str("\nno choice was measured yet\n");
    }
    out
}

/// The beginning of a text that is too long.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shapewise_report::{Candidate, Interval};

    #[test]
    fn a_line_for_each_choice_and_a_mean_for_each_operation() {
        let candidate = |kernel: &str, seconds: f64| Candidate {
            kernel: kernel.into(),
            parameters: String::new(),
            seconds,
            interval: Some(Interval { low: seconds * 0.99, high: seconds * 1.01 }),
            samples: 9,
            operations: None,
            limit: Some(1e-6),
            predicted: None,
        };
        let workload = Workload {
            operation: "copy".into(),
            description: "copy(f32 10) → f32 10".into(),
            candidates: vec![candidate("cpu::copy::rows", 2e-6), candidate("cpu::copy::reference", 4e-6)],
            chosen: Some(0),
            default: Some(1),
            ..Workload::default()
        };
        let report = Report { workloads: vec![workload], ..Report::default() };
        let text = table(&report);
        assert!(text.contains("rows") && text.contains("2.00×") && text.contains("50 %"), "{text}");
        assert!(text.contains("mean gain 2.00×"), "{text}");
        assert_eq!(lines(&report)[0].regret, Some(0.0));
        assert!(table(&Report::default()).contains("no choice"));
        assert_eq!(cut("abcdef", 4), "abc…");
    }
}
