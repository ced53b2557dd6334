//! Mean and squared deviations, in one pass over memory and two over each block while it is in the first cache.
#![allow(unsafe_code)]

use super::cpu_fold::{Add, fold_block};
use crate::backends::cpu::real::{Real, Vectors};
use crate::backends::cpu::simd::Float;

/// Number, mean and Σ (x − mean)² of some elements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moments {
    pub n: f64,
    pub mean: f64,
    pub squares: f64,
}

impl Moments {
    /// One more element (Welford).
    #[inline(always)]
    pub fn with(self, x: f64) -> Self {
        let n = self.n + 1.0;
        let delta = x - self.mean;
        let mean = self.mean + delta / n;
        Self { n, mean, squares: self.squares + delta * (x - mean) }
    }

    /// The moments of both together (Chan's formula).
    #[inline(always)]
    pub fn merge(self, other: Self) -> Self {
        if self.n == 0.0 {
            return other;
        }
        if other.n == 0.0 {
            return self;
        }
        let n = self.n + other.n;
        let delta = other.mean - self.mean;
        let mean = self.mean + delta * (other.n / n);
        Self { n, mean, squares: self.squares + other.squares + delta * delta * (self.n * other.n / n) }
    }
}

/// The moments of a block that fits the first cache: its mean first, then the deviations from it.
#[inline(always)]
pub(crate) fn moments_of_block<T: Real, S: Vectors<T>>(s: S, x: &[T]) -> Moments {
    moments_by_sum(s, x, fold_block(s, Add, x).to_f64())
}

/// The moments of a block whose sum is known.
#[inline(always)]
pub(crate) fn moments_by_sum<T: Real, S: Vectors<T>>(s: S, x: &[T], sum: f64) -> Moments {
    let n = x.len() as f64;
    let mean = T::Wide::from_f64(sum / n);
    let (first, second) = deviations(s, x, mean);
    // The rounded mean is a little off; the deviations say by how much.
    let shift = first / n;
    let squares = second - first * shift;
    // Rounding may leave less than nothing; NaN must stay.
    Moments { n, mean: mean.to_f64() + shift, squares: if squares < 0.0 { 0.0 } else { squares } }
}

/// Σ (x − c) and Σ (x − c)².
#[inline(always)]
fn deviations<T: Real, S: Vectors<T>>(s: S, x: &[T], c: T::Wide) -> (f64, f64) {
    let (n, at, center) = (x.len(), x.as_ptr(), s.splat(c));
    let zero = s.splat(T::Wide::ZERO);
    let (mut sum, mut squares) = ([zero; 4], [zero; 4]);
    let mut i = 0;
    while i + 4 * S::LANES <= n {
        for k in 0..4 {
            // SAFETY: i + 4 · LANES <= n.
            let d = s.sub(unsafe { s.read(at.add(i + k * S::LANES)) }, center);
            sum[k] = s.add(sum[k], d);
            squares[k] = s.mul_add(d, d, squares[k]);
        }
        i += 4 * S::LANES;
    }
    let join = |v: [S::V; 4]| s.reduce_add(s.add(s.add(v[0], v[1]), s.add(v[2], v[3]))).to_f64();
    let (mut first, mut second) = (join(sum), join(squares));
    for x in &x[i..] {
        let d = (x.widen() - c).to_f64();
        first += d;
        second += d * d;
    }
    (first, second)
}
