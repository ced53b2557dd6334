//! How the gain grew with the number of candidates timed.

use std::fmt::Write;

use crate::model::Report;
use crate::text;

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 280.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 980.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 222.0;

/// The curve; a sentence where there is none.
pub fn figure(report: &Report) -> String {
    let steps = &report.progress;
    let Some(last) = steps.last() else { return "<p class=none>Nothing was tuned yet.</p>".into() };
    let step = round_step(steps.iter().map(|p| p.gain - 1.0).fold(0.0, f64::max));
    let lines = (0..).map(|i| 1.0 + step * f64::from(i));
    let lines: Vec<f64> = lines.take_while(|gain| *gain < last.gain + step).collect();
    let top = lines.last().map_or(2.0, |gain| gain.max(1.0 + step));
    let y = |gain: f64| BOTTOM - (BOTTOM - TOP) * (gain - 1.0) / (top - 1.0);
    let most = last.timed.max(1) as f64;
    let x = |timed: u64| LEFT + (RIGHT - LEFT) * timed as f64 / most;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-labelledby=progress-title><title id=progress-title>Mean gain over the \
         default kernels after each measured workload; {}× after {} candidates</title>",
        text::number(last.gain),
        last.timed
    );
    let _ = write!(
        svg,
        "<text class=axis x={LEFT} y={:.1}>mean gain over the default kernels</text>",
        TOP - 14.0
    );
    for gain in lines {
        let at = y(gain);
        let label = text::tick(&text::number(gain));
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<line class=grid x1={LEFT} x2={RIGHT} y1={at:.1} y2={at:.1} /><text class=tick x={:.1} y={:.1} text-anchor=end>{label}×</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    bottom(&mut svg, last.timed);
    let mut path = format!("M{LEFT} {:.1}", y(1.0));
    for step in steps {
        // Steps, because nothing is known between two measurements.
        let _ = write!(path, "H{:.1}V{:.1}", x(step.timed), y(step.gain));
    }
    let _ = write!(
        svg,
        "<path class=area d=\"{path}V{BOTTOM}H{LEFT}Z\" /><path class=curve d=\"{path}\" /><circle class=\"dot c0\" cx={:.1} cy={:.1} r=5>\
         <title>{}× after {} candidates</title></circle></svg>",
        x(last.timed),
        y(last.gain),
        text::number(last.gain),
        text::count(last.timed)
    );
    format!(
        "<figure>{svg}<figcaption>Geometric mean over all workloads of this page: default kernel's time over the best time known by \
         then. What is not measured yet counts as 1×, so the curve flattens when little is left to gain.</figcaption></figure>"
    )
}

/// The number of candidates from left to right, in quarters.
fn bottom(svg: &mut String, all: u64) {
    let y = BOTTOM + 18.0;
    for i in 0..=4u32 {
        let x = LEFT + (RIGHT - LEFT) * f64::from(i) / 4.0;
        let timed = text::count(all * u64::from(i) / 4);
        // Writing to a string cannot fail.
        let _ = write!(svg, "<text class=tick x={x:.1} y={y:.1} text-anchor=middle>{timed}</text>");
    }
    let (middle, y) = (f64::midpoint(LEFT, RIGHT), BOTTOM + 38.0);
    let _ = write!(svg, "<text class=axis x={middle:.1} y={y:.1} text-anchor=middle>candidates timed</text>");
}

/// A round number of which about four make the whole.
fn round_step(whole: f64) -> f64 {
    let rough = (whole / 4.0).max(0.01);
    let decade = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Progress;

    #[test]
    fn the_curve_ends_at_the_last_gain() {
        let progress = vec![Progress { timed: 10, gain: 1.2 }, Progress { timed: 40, gain: 1.5 }];
        let html = figure(&Report { progress, ..Report::default() });
        assert!(html.contains("1.50× after 40 candidates"), "{html}");
        assert!(html.contains("cx=980.0"), "{html}");
        assert_eq!([round_step(0.27), round_step(8.0), round_step(0.0)], [0.1, 2.0, 0.01]);
        assert!(figure(&Report::default()).contains("Nothing was tuned"));
    }
}
