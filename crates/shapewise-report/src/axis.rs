//! Logarithmic axes.

use std::fmt::Write;

use crate::text::{Escaped, tick as short};

/// Values along a line of the picture, in equal steps of their logarithm.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// An axis over all values that a logarithm has, from one place of the picture to another; `None` without any.
    pub fn over(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let mut range: Option<(f64, f64)> = None;
        for value in values.into_iter().filter(|v| v.is_finite() && *v > 0.0) {
            let (low, high) = range.unwrap_or((value, value));
            range = Some((low.min(value), high.max(value)));
        }
        let (low, high) = range?;
        // A sixteenth of room on both sides, and at least half a decade altogether.
        let room = ((high / low).log10() / 16.0).max(if high / low < 3.0 { 0.25 } else { 0.0 });
        let factor = 10f64.powf(room);
        Some(Self { low: low / factor, high: high * factor, from, to })
    }

    /// The least and the greatest value.
    pub fn range(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Where a value stands; values outside stand at the ends.
    pub fn at(&self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        self.from + (self.to - self.from) * share.min(1.0)
    }

    /// Round values on the axis: several of each decade where there is room, whole decades otherwise.
    pub fn ticks(&self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let pixels = (self.to - self.from).abs();
        let steps: &[f64] = match pixels / decades {
            room if room > 500.0 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
            room if room > 170.0 => &[1.0, 2.0, 5.0],
            room if room > 90.0 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let stride = ((60.0 * decades / pixels).ceil() as i32).max(1);
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let all = (first..=last)
            .filter(|exponent| exponent.rem_euclid(stride) == 0)
            .flat_map(|exponent| steps.iter().map(move |step| step * 10f64.powi(exponent)));
        all.filter(|value| (self.low..=self.high).contains(value)).collect()
    }

    /// Grid lines and labels of an axis from left to right; `top` and `bottom` are the other axis's ends.
    pub fn horizontal(
        &self,
        out: &mut String,
        top: f64,
        bottom: f64,
        label: impl Fn(f64) -> String,
        title: &str,
    ) {
        for tick in self.ticks() {
            let x = self.at(tick);
            let text = short(&label(tick));
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "<line class=grid x1={x:.1} x2={x:.1} y1={top:.1} y2={bottom:.1} />\
                 <text class=tick x={x:.1} y={:.1} text-anchor=middle>{}</text>",
                bottom + 18.0,
                Escaped(&text)
            );
        }
        let middle = f64::midpoint(self.from, self.to);
        let _ = write!(
            out,
            "<text class=axis x={middle:.1} y={:.1} text-anchor=middle>{}</text>",
            bottom + 38.0,
            Escaped(title)
        );
    }

    /// Grid lines and labels of an axis from bottom to top; `left` and `right` are the other axis's ends.
    pub fn vertical(
        &self,
        out: &mut String,
        left: f64,
        right: f64,
        label: impl Fn(f64) -> String,
        title: &str,
    ) {
        for tick in self.ticks() {
            let y = self.at(tick);
            let text = short(&label(tick));
            let _ = write!(
                out,
                "<line class=grid x1={left:.1} x2={right:.1} y1={y:.1} y2={y:.1} />\
                 <text class=tick x={:.1} y={:.1} text-anchor=end>{}</text>",
                left - 8.0,
                y + 4.0,
                Escaped(&text)
            );
        }
        let _ = write!(
            out,
            "<text class=axis x={left:.1} y={:.1}>{}</text>",
            self.from.min(self.to) - 12.0,
            Escaped(title)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_equal_steps_of_their_logarithm() {
        let axis = Axis { low: 1.0, high: 1e4, from: 0.0, to: 400.0 };
        assert!((axis.at(100.0) - 200.0).abs() < 1e-9);
        assert_eq!([axis.at(0.5), axis.at(1e9)], [0.0, 400.0]);
        assert_eq!(axis.ticks(), [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4]);
        let upwards = Axis { low: 1.0, high: 1e2, from: 100.0, to: 0.0 };
        assert!((upwards.at(10.0) - 50.0).abs() < 1e-9);
        assert_eq!(upwards.ticks(), [1.0, 100.0]);
    }

    #[test]
    fn what_has_no_logarithm_makes_no_axis() {
        assert!(Axis::over([], 0.0, 1.0).is_none());
        assert!(Axis::over([f64::NAN, 0.0, -3.0, f64::INFINITY], 0.0, 1.0).is_none());
        let single = Axis::over([5.0], 0.0, 100.0).unwrap();
        assert!((single.at(5.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn long_axes_skip_decades() {
        let axis = Axis { low: 1.0, high: 1e12, from: 0.0, to: 240.0 };
        let ticks = axis.ticks();
        assert!(ticks.len() >= 3 && ticks.len() <= 5, "{ticks:?}");
    }

    #[test]
    fn labels_are_escaped() {
        let axis = Axis { low: 1.0, high: 10.0, from: 0.0, to: 100.0 };
        let mut svg = String::new();
        axis.horizontal(&mut svg, 0.0, 10.0, |_| "<b>".into(), "a & b");
        assert!(svg.contains("&lt;b&gt;") && svg.contains("a &amp; b") && !svg.contains("<b>"), "{svg}");
    }
}
