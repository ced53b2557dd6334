//! A transform of a few points, written out.

use std::f64::consts::TAU;
use std::fmt::Write;

/// Text so far, and how many names it has used.
pub(super) struct Butterfly {
    pub text: String,
    names: usize,
    /// +1 for the inverse, −1 forward.
    sign: f64,
}

impl Butterfly {
    pub fn new(inverse: bool) -> Self {
        Self { text: String::new(), names: 0, sign: if inverse { 1.0 } else { -1.0 } }
    }

    fn name(&mut self, value: &str) -> String {
        let name = format!("z{}", self.names);
        self.names += 1;
        let _ = writeln!(self.text, "let {name} = {value};");
        name
    }

    /// The transform of these variables, as new ones: even lengths by halves, odd ones term by term.
    pub fn transform(&mut self, x: &[String]) -> Vec<String> {
        let n = x.len();
        if n <= 1 {
            return x.to_vec();
        }
        if !n.is_multiple_of(2) {
            return (0..n).map(|k| self.term_by_term(x, k)).collect();
        }
        let half = |odd: usize| x.iter().skip(odd).step_by(2).cloned().collect::<Vec<_>>();
        let (even, odd) = (self.transform(&half(0)), self.transform(&half(1)));
        let turned: Vec<_> = (0..n / 2).map(|k| self.turned(&odd[k], k, n)).collect();
        let sums: Vec<_> = (0..n / 2).map(|k| self.name(&format!("{} + {}", even[k], turned[k]))).collect();
        let differences: Vec<_> =
            (0..n / 2).map(|k| self.name(&format!("{} - {}", even[k], turned[k]))).collect();
        sums.into_iter().chain(differences).collect()
    }

    /// A variable times e^(±2πi k/n).
    fn turned(&mut self, x: &str, k: usize, n: usize) -> String {
        if k == 0 {
            return x.into();
        }
        if 4 * k == n {
            let (re, im) = if self.sign > 0.0 { ("-", "") } else { ("", "-") };
            return self.name(&format!("vec2<f32>({re}{x}.y, {im}{x}.x)"));
        }
        let angle = self.sign * TAU * k as f64 / n as f64;
        let (c, s) = (angle.cos() as f32, angle.sin() as f32);
        self.name(&format!("vec2<f32>({x}.x * {c:?}f - {x}.y * {s:?}f, {x}.x * {s:?}f + {x}.y * {c:?}f)"))
    }

    fn term_by_term(&mut self, x: &[String], k: usize) -> String {
        let n = x.len();
        let terms: Vec<_> = (0..n).map(|j| self.turned(&x[j], j * k % n, n)).collect();
        self.name(&terms.join(" + "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_points_are_a_sum_and_a_difference() {
        let mut b = Butterfly::new(false);
        let y = b.transform(&["a".into(), "b".into()]);
        assert_eq!(b.text, "let z0 = a + b;\nlet z1 = a - b;\n");
        assert_eq!(y, ["z0", "z1"]);
    }
}
