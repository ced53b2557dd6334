//! The one-dimensional transforms of Winograd's F(2,3) and F(4,3), after Lavin and Gray (2015).
//!
//! A form computes `m` neighbouring outputs of a kernel of three from `m + 2` inputs with as many products. The
//! transforms add and scale, so rounding errors grow by the sizes of their rows: see the operation's page for how far results are from exact ones.
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use crate::backends::cpu::simd::{Float, Lanes};

/// The most inputs of a tile along an axis.
pub(super) const MOST: usize = 6;

/// A way to compute tiles of outputs; arrays are as long as the longest form needs, the rest is not looked at.
pub(super) trait Form: Copy + Send + Sync + 'static {
    /// Outputs of a tile along an axis.
    const OUTPUTS: usize;
    /// Inputs, and products, of a tile along an axis.
    const INPUTS: usize = Self::OUTPUTS + 2;

    /// `Bᵀ d`
    fn input<T: Float, S: Lanes<T>>(s: S, d: [S::V; MOST]) -> [S::V; MOST];
    /// `G g`
    fn weights<T: Float, S: Lanes<T>>(s: S, g: [S::V; 3]) -> [S::V; MOST];
    /// `Aᵀ m`
    fn output<T: Float, S: Lanes<T>>(s: S, m: [S::V; MOST]) -> [S::V; 4];
}

/// Two outputs from four inputs.
#[derive(Clone, Copy)]
pub(super) struct Two;

/// Four outputs from six inputs.
#[derive(Clone, Copy)]
pub(super) struct Four;

impl Form for Two {
    const OUTPUTS: usize = 2;

    #[inline(always)]
    fn input<T: Float, S: Lanes<T>>(s: S, d: [S::V; MOST]) -> [S::V; MOST] {
        [s.sub(d[0], d[2]), s.add(d[1], d[2]), s.sub(d[2], d[1]), s.sub(d[1], d[3]), d[0], d[0]]
    }

    #[inline(always)]
    fn weights<T: Float, S: Lanes<T>>(s: S, [a, b, c]: [S::V; 3]) -> [S::V; MOST] {
        let half = s.splat(T::from_f64(0.5));
        let (ends, middle) = (s.mul(s.add(a, c), half), s.mul(b, half));
        [a, s.add(ends, middle), s.sub(ends, middle), c, a, a]
    }

    #[inline(always)]
    fn output<T: Float, S: Lanes<T>>(s: S, m: [S::V; MOST]) -> [S::V; 4] {
        let (sum, difference) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
        let (a, b) = (s.add(m[0], sum), s.sub(difference, m[3]));
        [a, b, a, b]
    }
}

impl Form for Four {
    const OUTPUTS: usize = 4;

    #[inline(always)]
    fn input<T: Float, S: Lanes<T>>(s: S, d: [S::V; MOST]) -> [S::V; MOST] {
        let (two, four, five) =
            (s.splat(T::from_f64(2.0)), s.splat(T::from_f64(4.0)), s.splat(T::from_f64(5.0)));
        let even = s.neg_mul_add(four, d[2], d[4]);
        let odd = s.neg_mul_add(four, d[1], d[3]);
        let (near, far) = (s.sub(d[4], d[2]), s.mul(two, s.sub(d[3], d[1])));
        [
            s.mul_add(four, d[0], s.neg_mul_add(five, d[2], d[4])),
            s.add(even, odd),
            s.sub(even, odd),
            s.add(near, far),
            s.sub(near, far),
            s.mul_add(four, d[1], s.neg_mul_add(five, d[3], d[5])),
        ]
    }

    #[inline(always)]
    fn weights<T: Float, S: Lanes<T>>(s: S, [a, b, c]: [S::V; 3]) -> [S::V; MOST] {
        let (quarter, sixth) = (s.splat(T::from_f64(0.25)), s.splat(T::from_f64(1.0 / 6.0)));
        let (twelfth, rest) = (s.splat(T::from_f64(1.0 / 12.0)), s.splat(T::from_f64(1.0 / 24.0)));
        let (ends, middle) = (s.neg(s.mul(s.add(a, c), sixth)), s.mul(b, sixth));
        let (wide, half) = (s.mul_add(c, sixth, s.mul(a, rest)), s.mul(b, twelfth));
        [s.mul(a, quarter), s.sub(ends, middle), s.add(ends, middle), s.add(wide, half), s.sub(wide, half), c]
    }

    #[inline(always)]
    fn output<T: Float, S: Lanes<T>>(s: S, m: [S::V; MOST]) -> [S::V; 4] {
        let (two, four, eight) =
            (s.splat(T::from_f64(2.0)), s.splat(T::from_f64(4.0)), s.splat(T::from_f64(8.0)));
        let (sum, difference) = (s.add(m[1], m[2]), s.sub(m[1], m[2]));
        let (sums, differences) = (s.add(m[3], m[4]), s.sub(m[3], m[4]));
        [
            s.add(m[0], s.add(sum, sums)),
            s.mul_add(two, differences, difference),
            s.mul_add(four, sums, sum),
            s.add(s.mul_add(eight, differences, difference), m[5]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::cpu::simd::Portable;

    fn check<F: Form>() {
        let d = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0];
        let g = [2.0, -6.0, 5.0];
        let splat = |x: f64| Lanes::<f64>::splat(Portable, x);
        let (u, v) =
            (F::weights::<f64, _>(Portable, g.map(splat)), F::input::<f64, _>(Portable, d.map(splat)));
        let mut m = [splat(0.0); MOST];
        for i in 0..F::INPUTS {
            m[i] = Lanes::<f64>::mul(Portable, u[i], v[i]);
        }
        let found = F::output::<f64, _>(Portable, m).map(|y| Lanes::<f64>::first(Portable, y));
        for i in 0..F::OUTPUTS {
            let wanted: f64 = (0..3).map(|k| d[i + k] * g[k]).sum();
            assert!((found[i] - wanted).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn tiles_are_correlations() {
        check::<Two>();
        check::<Four>();
    }
}
