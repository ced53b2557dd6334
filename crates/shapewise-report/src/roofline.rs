//! Every timed candidate below the roofs that were measured.

use std::fmt::Write;

use crate::axis::Axis;
use crate::legend::{colour, legend};
use crate::model::{Candidate, Report, Workload};
use crate::text::{self, Escaped};

/// Points that are drawn at most, so that a page of a large store still opens at once.
const MOST_POINTS: usize = 3000;
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 980.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 462.0;

struct Point<'a> {
    intensity: f64,
    rate: f64,
    operation: usize,
    chosen: bool,
    workload: &'a Workload,
    candidate: &'a Candidate,
}

/// A roof: a name, and the rate that it allows at an intensity.
struct Roof {
    name: String,
    bandwidth: Option<f64>,
    rate: f64,
}

/// The figure; a sentence where nothing can be drawn.
pub fn figure(report: &Report) -> String {
    let operations = report.operations();
    let (points, without) = points(report, &operations);
    let moving = match without {
        0 => String::new(),
        n => format!(
            " {} candidates that only move data execute no arithmetic and are not on this plot.",
            text::count(n as u64)
        ),
    };
    let (flat, slanted) = (compute(report), memory(report));
    let Some(x) = Axis::over(points.iter().map(|p| p.intensity), LEFT, RIGHT) else {
        return format!(
            "<p class=none>Nothing with arithmetic was timed, so there is no roofline to draw.{moving}</p>"
        );
    };
    let tops = flat.iter().map(|r| r.rate);
    let Some(y) = Axis::over(points.iter().map(|p| p.rate).chain(tops), BOTTOM, TOP) else {
        return String::new();
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-labelledby=roofline-title><title id=roofline-title>Roofline: \
         operations per second over operations per byte, {} candidates</title>",
        points.len()
    );
    x.horizontal(&mut svg, TOP, BOTTOM, text::number, "operations for each byte of the operands");
    y.vertical(&mut svg, LEFT, RIGHT, text::rate, "operations per second");
    let labels = roofs(&mut svg, &x, &y, &flat, &slanted);
    let order = points.iter().filter(|p| !p.chosen).chain(points.iter().filter(|p| p.chosen));
    for point in order {
        draw(&mut svg, &x, &y, point);
    }
    svg.push_str(&labels);
    svg.push_str("</svg>");
    let total = report.workloads.iter().map(|w| w.candidates.len()).sum::<usize>() - without;
    let shown = if total > points.len() {
        format!(
            " Of {} candidates {} are drawn, every chosen one among them.",
            text::count(total as u64),
            points.len()
        )
    } else {
        String::new()
    };
    format!(
        "<figure>{}{svg}<figcaption>Full dots are the choices, rings the candidates that lost. Operands that fit a cache may \
         lie above the roof of memory and below that of their cache.{moving}{shown}</figcaption></figure>",
        legend(operations)
    )
}

/// What can be drawn, and how many candidates have no arithmetic.
fn points<'a>(report: &'a Report, operations: &[&str]) -> (Vec<Point<'a>>, usize) {
    let (mut chosen, mut others, mut without) = (Vec::new(), Vec::new(), 0);
    for workload in &report.workloads {
        let operation = operations.iter().position(|o| *o == workload.operation).unwrap_or(0);
        for (i, candidate) in workload.candidates.iter().enumerate() {
            let counted = candidate.operations.filter(|n| *n > 0.0).zip(workload.bytes.filter(|b| *b > 0.0));
            let Some((count, bytes)) = counted else {
                without += 1;
                continue;
            };
            let is_chosen = workload.chosen == Some(i);
            let (intensity, rate) = (count / bytes, count / candidate.seconds);
            let point = Point { intensity, rate, operation, chosen: is_chosen, workload, candidate };
            if is_chosen { chosen.push(point) } else { others.push(point) }
        }
    }
    chosen.truncate(MOST_POINTS);
    let room = MOST_POINTS - chosen.len();
    let step = others.len().div_ceil(room.max(1)).max(1);
    chosen.extend(others.into_iter().step_by(step).take(room));
    (chosen, without)
}

/// The fastest unit of each element type, on as many threads as were measured.
fn compute(report: &Report) -> Vec<Roof> {
    let mut best: Vec<Roof> = Vec::new();
    for peak in &report.machine.compute {
        let dtype = peak.unit.split(' ').next().unwrap_or_default();
        let roof = || Roof {
            name: format!("{}: {}", peak.unit, text::rate(peak.rate)),
            bandwidth: None,
            rate: peak.rate,
        };
        match best.iter_mut().find(|r| r.name.split(' ').next() == Some(dtype)) {
            Some(known) if known.rate < peak.rate => *known = roof(),
            Some(_) => {}
            None => best.push(roof()),
        }
    }
    best.retain(|r| r.name.starts_with("f32") || r.name.starts_with("f64"));
    best
}

/// The bandwidth of each level on as many threads as were measured.
fn memory(report: &Report) -> Vec<Roof> {
    let mut best: Vec<Roof> = Vec::new();
    for peak in &report.machine.bandwidth {
        let name = format!("{}: {}", peak.level, text::bandwidth(peak.copy));
        let roof = Roof { name, bandwidth: Some(peak.copy), rate: f64::INFINITY };
        match best.iter_mut().find(|r| r.name.split(':').next() == Some(&*peak.level)) {
            Some(known) if known.bandwidth < roof.bandwidth => *known = roof,
            Some(_) => {}
            None => best.push(roof),
        }
    }
    best
}

/// Draws the lines and returns their names, which are written over everything else.
fn roofs(svg: &mut String, x: &Axis, y: &Axis, flat: &[Roof], slanted: &[Roof]) -> String {
    let mut labels = String::new();
    let top = flat.iter().map(|r| r.rate).fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = x.range();
    let bottom = y.range().0;
    for roof in slanted {
        let Some(bandwidth) = roof.bandwidth else { continue };
        // From where it enters the picture to where arithmetic is the limit.
        let from = low.max(bottom / bandwidth);
        let to = if top.is_finite() { high.min(top / bandwidth) } else { high };
        if from >= to {
            continue;
        }
        let (x1, y1, x2, y2) = (x.at(from), y.at(from * bandwidth), x.at(to), y.at(to * bandwidth));
        let angle = (y2 - y1).atan2(x2 - x1).to_degrees();
        // Writing to a string cannot fail.
        let _ = write!(svg, "<line class=roof x1={x1:.1} y1={y1:.1} x2={x2:.1} y2={y2:.1} />");
        let _ = write!(
            labels,
            "<text class=rooflabel transform=\"translate({:.1} {:.1}) rotate({angle:.1})\">{}</text>",
            x1 + 6.0,
            y1 - 6.0,
            Escaped(&roof.name)
        );
    }
    let widest = slanted.iter().filter_map(|r| r.bandwidth).fold(f64::NEG_INFINITY, f64::max);
    for roof in flat {
        let from = if widest.is_finite() { (roof.rate / widest).max(low) } else { low };
        let (x1, y1) = (x.at(from), y.at(roof.rate));
        let _ = write!(svg, "<line class=roof x1={x1:.1} y1={y1:.1} x2={RIGHT} y2={y1:.1} />");
        let _ = write!(
            labels,
            "<text class=rooflabel x={:.1} y={:.1} text-anchor=end>{}</text>",
            RIGHT - 4.0,
            y1 - 6.0,
            Escaped(&roof.name)
        );
    }
    labels
}

fn draw(svg: &mut String, x: &Axis, y: &Axis, point: &Point<'_>) {
    let Point { workload, candidate, .. } = point;
    let class = if point.chosen { "dot" } else { "ring" };
    let text = format!(
        "{} {}\n{}\n{} · {}{}",
        candidate.kernel,
        candidate.parameters,
        workload.description,
        text::seconds(candidate.seconds),
        text::rate(point.rate),
        if point.chosen { " · chosen" } else { "" }
    );
    let _ = write!(
        svg,
        "<circle class=\"{class} c{}\" data-key={} cx={:.1} cy={:.1} r={}><title>{}</title></circle>",
        colour(point.operation),
        point.operation,
        x.at(point.intensity),
        y.at(point.rate),
        if point.chosen { 4.5 } else { 3.0 },
        // Line breaks are kept, everything else is made harmless.
        text.split('\n').map(|line| Escaped(line).to_string()).collect::<Vec<_>>().join("&#10;")
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Bandwidth, Compute};
    use crate::summary::tests::example;

    #[test]
    fn every_candidate_has_a_place_and_every_level_a_roof() {
        let mut report = example();
        for (threads, rate) in [(1, 5e10), (2, 1e11)] {
            report.machine.compute.push(Compute { unit: "f32 avx2".into(), threads, rate });
            let [read, copy, stream] = [rate / 5.0; 3];
            report.machine.bandwidth.push(Bandwidth { level: "memory".into(), threads, read, copy, stream });
        }
        let html = figure(&report);
        assert_eq!(html.matches("<circle").count(), 12);
        assert_eq!(html.matches("class=\"dot").count(), 4);
        assert_eq!(html.matches("class=roof ").count(), 2, "one of arithmetic, one of memory");
        assert!(html.contains("f32 avx2: 100 Gop/s") && html.contains("memory: 20.0 GB/s"), "{html}");
    }

    #[test]
    fn what_only_moves_data_is_counted_not_drawn() {
        let mut report = example();
        for candidate in report.workloads.iter_mut().flat_map(|w| &mut w.candidates) {
            candidate.operations = Some(0.0);
        }
        let html = figure(&report);
        assert!(html.contains("12 candidates that only move data") && !html.contains("<svg"), "{html}");
    }

    #[test]
    fn large_stores_are_thinned_but_keep_the_choices() {
        let mut report = example();
        report.workloads = (0..400).flat_map(|_| report.workloads.clone()).collect();
        let html = figure(&report);
        assert!(html.matches("<circle").count() <= MOST_POINTS);
        assert_eq!(html.matches("class=\"dot").count(), 1600);
        assert!(html.contains("every chosen one among them"), "{html}");
    }
}
