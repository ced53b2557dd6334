//! Predicted against measured times.

use std::fmt::Write;

use crate::axis::Axis;
use crate::legend::{colour, legend};
use crate::model::{Candidate, Predicted, Report};
use crate::table::{Cell, Table};
use crate::text::{self, Escaped};

/// Points that are drawn at most.
const MOST_POINTS: usize = 1500;
const SIZE: f64 = 620.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 604.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 562.0;

struct Pair<'a> {
    operation: usize,
    candidate: &'a Candidate,
    predicted: &'a Predicted,
}

impl Pair<'_> {
    fn is_covered(&self) -> bool {
        (self.predicted.interval.low..=self.predicted.interval.high).contains(&self.candidate.seconds)
    }

    fn error(&self) -> f64 {
        (self.predicted.seconds / self.candidate.seconds - 1.0).abs()
    }
}

/// The plot and the figures beside it.
pub fn section(report: &Report) -> String {
    let operations = report.operations();
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for workload in &report.workloads {
        let operation = operations.iter().position(|o| *o == workload.operation).unwrap_or(0);
        for candidate in &workload.candidates {
            pairs.extend(candidate.predicted.as_ref().map(|predicted| Pair {
                operation,
                candidate,
                predicted,
            }));
        }
    }
    if pairs.is_empty() {
        return "<p class=none>No prediction was compared with a measurement yet.</p>".into();
    }
    let step = pairs.len().div_ceil(MOST_POINTS);
    let drawn: Vec<&Pair<'_>> = pairs.iter().step_by(step).collect();
    format!(
        "<div class=beside><figure>{}{}<figcaption>On the line the prediction was exact; a stroke is its interval. Times left of \
         the plot's middle are short calls, where a microsecond of overhead weighs most.</figcaption></figure><div>{}<p class=dim>Covered: the share of measured times inside their intervals (aimed at: 90 %). Error and ± \
         are medians. An operation with fewer than 15 shapes is predicted by its peaks and its neighbours alone.</p></div></div>",
        legend(operations.iter().copied()),
        plot(&drawn, pairs.len()),
        figures(&pairs, &operations)
    )
}

fn plot(pairs: &[&Pair<'_>], all: usize) -> String {
    let times = pairs.iter().flat_map(|p| [p.candidate.seconds, p.predicted.seconds]);
    let Some(x) = Axis::over(times.clone(), LEFT, RIGHT) else { return String::new() };
    let Some(y) = Axis::over(times, BOTTOM, TOP) else { return String::new() };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {SIZE} {SIZE}\" role=img aria-labelledby=prediction-title><title id=prediction-title>Predicted over \
         measured time, {} of {all} candidates</title>",
        pairs.len()
    );
    x.horizontal(&mut svg, TOP, BOTTOM, text::seconds, "measured");
    y.vertical(&mut svg, LEFT, RIGHT, text::seconds, "predicted");
    // Writing to a string cannot fail.
    let _ = write!(svg, "<line class=one x1={LEFT} y1={BOTTOM} x2={RIGHT} y2={TOP} />");
    for pair in pairs {
        let Pair { operation, candidate, predicted } = pair;
        let (at, mid) = (x.at(candidate.seconds), y.at(predicted.seconds));
        let class = if pair.is_covered() { "" } else { " outside" };
        let _ = write!(
            svg,
            "<g class=\"pair{class} c{}\" data-key={operation}><line x1={at:.1} x2={at:.1} y1={:.1} y2={:.1} />\
             <circle cx={at:.1} cy={mid:.1} r=3.2><title>{} {}&#10;measured {}&#10;predicted {} ({} … {}), {}</title></circle></g>",
            colour(*operation),
            y.at(predicted.interval.low),
            y.at(predicted.interval.high),
            Escaped(&candidate.kernel),
            Escaped(&candidate.parameters),
            text::seconds(candidate.seconds),
            text::seconds(predicted.seconds),
            text::seconds(predicted.interval.low),
            text::seconds(predicted.interval.high),
            Escaped(&predicted.basis)
        );
    }
    svg + "</svg>"
}

/// The middle value.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// Coverage and errors, a row for each operation.
fn figures(pairs: &[Pair<'_>], operations: &[&str]) -> String {
    let mut table = Table::new(
        "Predictions",
        &[("operation", false), ("timed", true), ("covered", true), ("error", true), ("±", true)],
    );
    let groups = operations.iter().enumerate().map(|(i, name)| (*name, Some(i)));
    for (name, only) in groups.chain([("all", None)]) {
        let own: Vec<&Pair<'_>> = pairs.iter().filter(|p| only.is_none_or(|i| p.operation == i)).collect();
        if own.is_empty() {
            continue;
        }
        let covered = own.iter().filter(|p| p.is_covered()).count() as f64 / own.len() as f64;
        let widths = own.iter().map(|p| (p.predicted.interval.high / p.predicted.interval.low).sqrt() - 1.0);
        table.row([
            Cell::text(name),
            Cell::number(Some(own.len() as f64), |n| format!("{n:.0}")),
            Cell::number(Some(covered), text::percent),
            Cell::number(median(own.iter().map(|p| p.error()).collect()), text::percent),
            Cell::number(median(widths.collect()), text::percent),
        ]);
    }
    table.html()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::example;

    #[test]
    fn pairs_inside_and_outside_their_intervals() {
        let mut report = example();
        report.workloads[0].candidates[0].predicted.as_mut().unwrap().interval.low = 1.0;
        let html = section(&report);
        assert_eq!(html.matches("class=\"pair").count(), 12);
        assert_eq!(html.matches("pair outside").count(), 1);
        assert!(html.contains(">92 %"), "eleven of twelve are covered");
        assert!(html.contains(">10 %"), "each prediction is a tenth too long");
    }

    #[test]
    fn without_predictions_there_is_a_sentence() {
        assert!(section(&Report::default()).contains("No prediction"));
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
    }
}
