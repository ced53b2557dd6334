//! The choices: what they gained over the default kernel, and what they lost against the best.

use std::fmt::Write;

use crate::axis::Axis;
use crate::legend::colour;
use crate::model::{Report, Workload};
use crate::summary::{Leader, geometric_mean};
use crate::table::{Cell, Table};
use crate::text::{self, Escaped};

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 760.0;
const ROW: f64 = 34.0;
const TOP: f64 = 34.0;

/// A dot for each workload's gain, a row for each operation.
pub fn gains(report: &Report) -> String {
    let leaders = report.leaders();
    let all = report.workloads.iter().filter_map(Workload::gain);
    let Some(x) =
        Axis::over(all.chain([1.0]), LEFT, RIGHT).filter(|_| leaders.iter().any(|l| l.gain.is_some()))
    else {
        return "<p class=none>No choice was compared with its default kernel yet.</p>".into();
    };
    let bottom = TOP + ROW * leaders.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=img aria-labelledby=gain-title><title id=gain-title>How many times faster \
         than the default kernel, by operation</title>",
        bottom + 48.0
    );
    x.horizontal(
        &mut svg,
        TOP - 8.0,
        bottom,
        |v| text::tick(&text::number(v)) + "×",
        "times faster than the kernel that would run without measurements",
    );
    let one = x.at(1.0);
    // Writing to a string cannot fail.
    let _ = write!(svg, "<line class=one x1={one:.1} x2={one:.1} y1={:.1} y2={bottom:.1} />", TOP - 8.0);
    let _ = write!(
        svg,
        "<text class=axis x={:.1} y={:.1}>mean gain</text><text class=axis x={:.1} y={:.1}>of the machine's limit</text>",
        RIGHT + 20.0,
        TOP - 12.0,
        RIGHT + 104.0,
        TOP - 12.0
    );
    for (i, leader) in leaders.iter().enumerate() {
        row(&mut svg, &x, i, leader, report);
    }
    format!(
        "<figure>{svg}</svg><figcaption>A dot is a workload, the bar across the dots their geometric mean. Left of 1× the choice \
         is slower than the default. The limit is the time that the measured peaks would allow the least demanding candidate.\
         </figcaption></figure>"
    )
}

/// One operation: its workloads' dots, their mean, and the share of the limit.
fn row(svg: &mut String, x: &Axis, i: usize, leader: &Leader, report: &Report) {
    let y = TOP + ROW * (i as f64 + 0.5);
    let _ = write!(
        svg,
        "<text class=name x={:.1} y={:.1} text-anchor=end>{}</text>",
        LEFT - 14.0,
        y + 4.0,
        Escaped(&leader.operation)
    );
    for workload in report.workloads.iter().filter(|w| w.operation == leader.operation) {
        let (Some(gain), Some(chosen)) = (workload.gain(), workload.chosen()) else { continue };
        let _ = write!(
            svg,
            "<circle class=\"dot soft c{}\" cx={:.1} cy={y:.1} r=5><title>{}&#10;{} {}&#10;{}× the default, {}</title></circle>",
            colour(i),
            x.at(gain),
            Escaped(&workload.description),
            Escaped(&chosen.kernel),
            Escaped(&chosen.parameters),
            text::number(gain),
            text::seconds(chosen.seconds)
        );
    }
    if let Some(gain) = leader.gain {
        let at = x.at(gain);
        let _ = write!(
            svg,
            "<line class=mean x1={at:.1} x2={at:.1} y1={:.1} y2={:.1} /><text class=value x={:.1} y={:.1}>{}×</text>",
            y - 11.0,
            y + 11.0,
            RIGHT + 20.0,
            y + 4.0,
            text::number(gain)
        );
    }
    let _ = match leader.of_limit {
        Some(share) => write!(
            svg,
            "<rect class=barback x={:.1} y={:.1} width=80 height=8 rx=4 /><rect class=\"bar c{}\" x={:.1} y={:.1} width={:.1} height=8 rx=4 />\
             <text class=value x={:.1} y={:.1}>{}</text>",
            RIGHT + 104.0,
            y - 4.0,
            colour(i),
            RIGHT + 104.0,
            y - 4.0,
            80.0 * share.clamp(0.0, 1.0),
            RIGHT + 192.0,
            y + 4.0,
            text::percent(share)
        ),
        None => {
            write!(svg, "<text class=value x={:.1} y={:.1}>not measured</text>", RIGHT + 104.0, y + 4.0)
        }
    };
}

/// A row for each workload.
pub fn table(report: &Report) -> String {
    let mut table = Table::new(
        "Choices",
        &[
            ("operation", false),
            ("workload", false),
            ("chosen kernel", false),
            ("time", true),
            ("± ", true),
            ("gain", true),
            ("of limit", true),
            ("regret", true),
            ("candidates", true),
        ],
    );
    for workload in &report.workloads {
        let Some(chosen) = workload.chosen() else { continue };
        let half_width = chosen.interval.map(|i| (i.high / i.low).sqrt() - 1.0);
        let kernel = format!("{} {}", chosen.kernel, chosen.parameters);
        let why = workload.why.as_deref().unwrap_or("why is not known");
        table.row([
            Cell::text(&workload.operation),
            Cell::text(&workload.description),
            Cell::code(kernel.trim_end()).titled(why),
            Cell::number(Some(chosen.seconds), text::seconds),
            Cell::number(half_width, text::percent),
            Cell::number(workload.gain(), |g| format!("{}×", text::number(g))),
            Cell::number(workload.of_limit(), text::percent),
            Cell::number(workload.regret(), text::percent),
            Cell::number(Some(workload.candidates.len() as f64), |n| format!("{n:.0}")),
        ]);
    }
    table.html()
}

/// A row for each kernel.
pub fn kernels(report: &Report) -> String {
    let mut table = Table::new(
        "Kernels",
        &[
            ("kernel", false),
            ("timed on", true),
            ("chosen on", true),
            ("fastest on", true),
            ("mean of limit", true),
            ("behind the best", true),
        ],
    );
    let mut names: Vec<&str> =
        report.workloads.iter().flat_map(|w| w.candidates.iter().map(|c| &*c.kernel)).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let (mut timed, mut chosen, mut fastest, mut shares, mut behind) = (0, 0, 0, Vec::new(), Vec::new());
        for workload in &report.workloads {
            let own = workload.candidates.iter().filter(|c| c.kernel == name);
            let Some(own) = own.min_by(|a, b| a.seconds.total_cmp(&b.seconds)) else { continue };
            timed += 1;
            chosen += usize::from(workload.chosen().is_some_and(|c| c.kernel == name));
            let best = workload.best().map_or(own.seconds, |b| b.seconds);
            fastest += usize::from(own.seconds <= best);
            behind.push(own.seconds / best);
            shares.extend(workload.limit().map(|limit| limit / own.seconds));
        }
        let whole = |n: usize| Cell::number(Some(n as f64), |n| format!("{n:.0}"));
        table.row([
            Cell::code(name),
            whole(timed),
            whole(chosen),
            whole(fastest),
            Cell::number(geometric_mean(shares), text::percent),
            Cell::number(geometric_mean(behind), |b| format!("{}×", text::number(b))),
        ]);
    }
    table.html()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::example;

    #[test]
    fn every_workload_has_a_dot_and_a_row() {
        let report = example();
        assert_eq!(gains(&report).matches("<circle").count(), 4);
        let html = table(&report);
        assert_eq!(html.matches("<tr>").count(), 5, "four and the headings");
        assert!(
            html.contains("cpu::matmul::packed threads=1") && html.contains("title=\"measured fastest\"")
        );
        assert_eq!(kernels(&report).matches("<tr>").count(), 4);
    }

    #[test]
    fn without_choices_nothing_is_claimed() {
        let mut report = example();
        report.workloads.iter_mut().for_each(|w| w.chosen = None);
        assert!(gains(&report).contains("No choice was compared"));
        assert_eq!(table(&report).matches("<tr>").count(), 1);
    }

    #[test]
    fn hostile_names_stay_text() {
        let mut report = example();
        for candidate in report.workloads.iter_mut().flat_map(|w| &mut w.candidates) {
            candidate.kernel = "\"><script>alert(1)</script>".into();
        }
        for html in [gains(&report), table(&report), kernels(&report), crate::roofline::figure(&report)] {
            assert!(!html.contains("<script>"), "{html}");
        }
    }
}
