//! Speed over the size of the operands, a panel for each kind of shape: where one kernel overtakes another.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::axis::Axis;
use crate::legend::colour;
use crate::model::{Report, Workload};
use crate::summary::common_pattern;
use crate::text::{self, Escaped};

/// Panels that are drawn; the shapes of the others are in the table.
const MOST_PANELS: usize = 48;
/// Panels that are seen without a click.
const AT_ONCE: usize = 8;
/// Kernels that have a colour of their own in a panel.
const MOST_LINES: usize = 8;
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 506.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 262.0;

/// A kernel's best speed at each size of operands.
struct Line<'a> {
    kernel: &'a str,
    points: Vec<(f64, f64)>,
    wins: usize,
}

/// A panel for each kind of shape, those with the most sizes first.
pub fn panels(report: &Report) -> String {
    let mut kinds: BTreeMap<(&str, String), Vec<&Workload>> = BTreeMap::new();
    for workload in &report.workloads {
        kinds.entry((&workload.operation, workload.pattern())).or_default().push(workload);
    }
    let mut kinds: Vec<Vec<&Workload>> = kinds.into_values().filter(|list| list.len() > 1).collect();
    kinds.sort_by_key(|list| std::cmp::Reverse(list.len()));
    let left_out = kinds.len().saturating_sub(MOST_PANELS);
    let drawn: Vec<String> = kinds.iter().take(MOST_PANELS).filter_map(|list| panel(list)).collect();
    if drawn.is_empty() {
        return "<p class=none>Nothing was timed at more than one size yet.</p>".into();
    }
    let (first, more) = drawn.split_at(drawn.len().min(AT_ONCE));
    let mut out = format!("<div class=panels>{}</div>", first.concat());
    if !more.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<details><summary>{} more kinds of shapes</summary><div class=panels>{}</div></details>",
            more.len(),
            more.concat()
        );
    }
    if left_out > 0 {
        let _ = write!(out, "<p class=dim>{left_out} further kinds are only in the table of choices.</p>");
    }
    out
}

/// One kind of shape; `None` where nothing can be drawn.
fn panel(workloads: &[&Workload]) -> Option<String> {
    let name = &*common_pattern(workloads);
    let arithmetic = workloads.iter().all(|w| w.operations().is_some());
    let lines = lines(workloads, arithmetic);
    let x = Axis::over(lines.iter().flat_map(|l| l.points.iter().map(|p| p.0)), LEFT, RIGHT)?;
    let y = Axis::over(lines.iter().flat_map(|l| l.points.iter().map(|p| p.1)), BOTTOM, TOP)?;
    let (unit, label): (_, fn(f64) -> String) = if arithmetic {
        ("operations per second", text::rate)
    } else {
        ("bytes per second", text::bandwidth)
    };
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img><title>{}: {unit} over bytes of the operands, {} kernels</title>",
        Escaped(name),
        lines.len()
    );
    x.horizontal(&mut svg, TOP, BOTTOM, text::size, "bytes of the operands");
    y.vertical(&mut svg, LEFT, RIGHT, label, unit);
    for (i, line) in lines.iter().enumerate().rev() {
        draw(&mut svg, &x, &y, line, i, label);
    }
    winners(&mut svg, &x, &lines);
    svg.push_str("</svg><ul class=keys>");
    for (i, line) in lines.iter().take(MOST_LINES).enumerate() {
        let _ = write!(svg, "<li><i class=c{}></i>{}", shade(i), Escaped(line.kernel));
    }
    if lines.len() > MOST_LINES {
        let _ = write!(svg, "<li><i class=c{}></i>{} others", shade(MOST_LINES), lines.len() - MOST_LINES);
    }
    Some(format!("<figure class=panel><h4>{}</h4>{svg}</ul></figure>", Escaped(name)))
}

/// The colour of a line; those without one of their own are grey.
fn shade(index: usize) -> usize {
    if index < MOST_LINES { colour(index) } else { crate::legend::COLOURS }
}

/// Every kernel's best over its parameters; those that win most come first.
fn lines<'a>(workloads: &[&'a Workload], arithmetic: bool) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for workload in workloads {
        let Some(bytes) = workload.bytes.filter(|b| *b > 0.0) else { continue };
        let Some(work) = (if arithmetic { workload.operations() } else { Some(bytes) }) else { continue };
        let winner = workload.best().map(|b| &*b.kernel);
        for candidate in &workload.candidates {
            let speed = work / candidate.seconds;
            let found = lines.iter().position(|l| l.kernel == candidate.kernel);
            let index = found.unwrap_or_else(|| {
                lines.push(Line { kernel: &candidate.kernel, points: Vec::new(), wins: 0 });
                lines.len() - 1
            });
            let line = &mut lines[index];
            if let Some(known) = line.points.iter_mut().find(|p| p.0 == bytes) {
                known.1 = known.1.max(speed);
            } else {
                line.points.push((bytes, speed));
                line.wins += usize::from(winner == Some(line.kernel));
            }
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let top = |line: &Line<'_>| line.points.iter().map(|p| p.1).fold(0.0, f64::max);
    lines.sort_by(|a, b| b.wins.cmp(&a.wins).then(top(b).total_cmp(&top(a))));
    lines
}

fn draw(svg: &mut String, x: &Axis, y: &Axis, line: &Line<'_>, i: usize, label: fn(f64) -> String) {
    let path: Vec<String> =
        line.points.iter().map(|p| format!("{:.1},{:.1}", x.at(p.0), y.at(p.1))).collect();
    let quiet = if line.wins == 0 { " quiet" } else { "" };
    let _ = write!(svg, "<g class=\"line{quiet} c{}\"><polyline points=\"{}\" />", shade(i), path.join(" "));
    for (bytes, speed) in &line.points {
        let _ = write!(
            svg,
            "<circle cx={:.1} cy={:.1} r=3><title>{}&#10;{} of operands&#10;{}</title></circle>",
            x.at(*bytes),
            y.at(*speed),
            Escaped(line.kernel),
            text::size(*bytes),
            label(*speed)
        );
    }
    svg.push_str("</g>");
}

/// A strip below the plot in the colour of whoever is fastest, and a mark where that changes.
fn winners(svg: &mut String, x: &Axis, lines: &[Line<'_>]) {
    let mut sizes: Vec<f64> = lines.iter().flat_map(|l| l.points.iter().map(|p| p.0)).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let at = |size: f64| {
        let speed = |l: &Line<'_>| l.points.iter().find(|p| p.0 == size).map_or(0.0, |p| p.1);
        (0..lines.len()).max_by(|&a, &b| speed(&lines[a]).total_cmp(&speed(&lines[b]))).unwrap_or(0)
    };
    let best: Vec<usize> = sizes.iter().map(|&size| at(size)).collect();
    // Halfway between two sizes one kernel's reign ends and the next begins.
    let border = |i: usize| f64::midpoint(x.at(sizes[i]), x.at(sizes[i + 1]));
    let mut from = LEFT;
    for i in 0..sizes.len() {
        let last = i + 1 == sizes.len();
        if !last && best[i + 1] == best[i] {
            continue;
        }
        let to = if last { RIGHT } else { border(i) };
        let _ = write!(
            svg,
            "<rect class=\"reign c{}\" x={from:.1} y={:.1} width={:.1} height=5><title>fastest: {}</title></rect>",
            shade(best[i]),
            BOTTOM + 1.0,
            to - from,
            Escaped(lines[best[i]].kernel)
        );
        if !last {
            let _ = write!(svg, "<line class=cross x1={to:.1} x2={to:.1} y1={TOP} y2={BOTTOM} />");
        }
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::{example, product};

    #[test]
    fn a_crossover_is_marked_once() {
        let html = panels(&example());
        assert_eq!(html.matches("<polyline").count(), 3);
        assert_eq!(html.matches("class=cross").count(), 1, "{html}");
        assert_eq!(html.matches("class=\"reign").count(), 2);
        assert!(html.contains("matmul(f32 a×a, f32 a×a) → f32 a×a"));
    }

    #[test]
    fn one_size_is_no_line() {
        let report = Report { workloads: vec![product(64.0)], ..Report::default() };
        assert!(panels(&report).contains("more than one size"));
    }

    #[test]
    fn what_moves_data_is_shown_by_bytes() {
        let mut report = example();
        for candidate in report.workloads.iter_mut().flat_map(|w| &mut w.candidates) {
            candidate.operations = None;
        }
        assert!(panels(&report).contains("bytes per second"));
    }
}
