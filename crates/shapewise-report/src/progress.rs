//! How the gain grew with the number of candidates timed.

use std::fmt::Write;

use crate::axis::Axis;
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
    let Some((last, y)) =
        steps.last().zip(Axis::over(steps.iter().map(|p| p.gain).chain([1.0]), BOTTOM, TOP))
    else {
        return "<p class=none>Nothing was tuned yet.</p>".into();
    };
    let most = last.timed.max(1) as f64;
    let x = |timed: u64| LEFT + (RIGHT - LEFT) * timed as f64 / most;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-labelledby=progress-title><title id=progress-title>Mean gain over the \
         default kernels after each measured workload; {}× after {} candidates</title>",
        text::number(last.gain),
        last.timed
    );
    y.vertical(
        &mut svg,
        LEFT,
        RIGHT,
        |v| text::tick(&text::number(v)) + "×",
        "mean gain over the default kernels",
    );
    for i in 0..=4 {
        let timed = last.timed * i / 4;
        // Writing to a string cannot fail.
        let _ = write!(
            svg,
            "<text class=tick x={:.1} y={:.1} text-anchor=middle>{}</text>",
            x(timed),
            BOTTOM + 18.0,
            text::count(timed)
        );
    }
    let _ = write!(
        svg,
        "<text class=axis x={:.1} y={:.1} text-anchor=middle>candidates timed</text>",
        f64::midpoint(LEFT, RIGHT),
        BOTTOM + 38.0
    );
    let mut path = format!("M{LEFT} {:.1}", y.at(1.0));
    for step in steps {
        // Steps, because nothing is known between two measurements.
        let _ = write!(path, "H{:.1}V{:.1}", x(step.timed), y.at(step.gain));
    }
    let _ = write!(
        svg,
        "<path class=area d=\"{path}V{BOTTOM}H{LEFT}Z\" /><path class=curve d=\"{path}\" /><circle class=\"dot c0\" cx={:.1} cy={:.1} r=5>\
         <title>{}× after {} candidates</title></circle></svg>",
        x(last.timed),
        y.at(last.gain),
        text::number(last.gain),
        text::count(last.timed)
    );
    format!(
        "<figure>{svg}<figcaption>Geometric mean over all workloads of this page: default kernel's time over the best time known by \
         then. What is not measured yet counts as 1×, so the curve flattens when little is left to gain.</figcaption></figure>"
    )
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
        assert!(figure(&Report::default()).contains("Nothing was tuned"));
    }
}
