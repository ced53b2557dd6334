//! Transcendental functions over [`Lanes`], written once for every instruction set and both widths.
//!
//! The largest error over dense samples of the whole range, in units of the last place, as the tests assert it:
//!
//! | function | f32 | f64 | portable f32 | portable f64 |
//! |---|---|---|---|---|
//! | `exp`, `exp_nonpositive`, `exp_nonpositive_each` | 1 | 2 | 1.5 | 2 |
//! | log | 1 | 2 | 1 | 2 |
//! | pow | 1.5 | 2 | 1.5 | 2 |
//! | sin, cos | 2 | 3 | 2 | 3 |
//! | tanh | 2.5 | 4 | 2.5 | 4 |
//! | sigmoid, and 1 / `sigmoid_divisor` while the sigmoid is a normal number | 2.5 | 3 | 2.5 | 3 |
//! | erf | 2.5 | 3 | 2.5 | 4 |
//! | rsqrt | 1.5 | 1.5 | 1.5 | 1.5 |
//! | silu (while the sigmoid is a normal number) | 3.5 | 4 | 3.5 | 4 |
//! | gelu (relative to x) | 1 | 2 | 1.5 | 2 |
//!
//! NaN gives NaN, infinities, zeros and denormals give what the scalar functions of `std` give, overflow gives
//! infinity and underflow a denormal or zero, unless a function says otherwise.

mod coefficients;
mod each;
mod exp;
mod pow;
#[cfg(test)]
mod tests;
mod trig;

pub use coefficients::{Coefficients, Scalar};
pub use each::{exp_each, log_each};
pub use exp::{erf, exp, exp_nonpositive, exp_nonpositive_each, gelu, log, sigmoid, silu, tanh};
pub use exp::{sigmoid_divisor, tanh_quotient};
pub use pow::pow;
pub use trig::{cos, sin};

use super::lanes::MAX_LANES;
use super::{Float, Lanes};

/// 1 / √x
#[inline(always)]
pub fn rsqrt<T: Float, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    s.div(s.splat(T::ONE), s.sqrt(x))
}

/// c₀ + c₁ x + c₂ x² + …
#[inline(always)]
fn polynomial<T: Float, S: Lanes<T>>(s: S, x: S::V, coefficients: &[T]) -> S::V {
    let mut sum = s.splat(coefficients[coefficients.len() - 1]);
    for c in coefficients[..coefficients.len() - 1].iter().rev() {
        sum = s.mul_add(sum, x, s.splat(*c));
    }
    sum
}

/// Adding this number leaves the nearest integer in the lowest bits, for anything well below it in size.
#[inline(always)]
fn rounder<T: Float>() -> T {
    T::from_f64(1.5 * (1_u64 << T::MANTISSA_BITS) as f64)
}

/// The scalar function in every lane.
#[inline(always)]
fn by_lane<T: Float, S: Lanes<T>>(s: S, x: S::V, y: S::V, f: impl Fn(T, T) -> T) -> S::V {
    let (mut a, mut b) = ([T::ZERO; MAX_LANES], [T::ZERO; MAX_LANES]);
    // SAFETY: no register has more than MAX_LANES lanes.
    unsafe {
        s.store(a.as_mut_ptr(), x);
        s.store(b.as_mut_ptr(), y);
    }
    for (a, b) in a.iter_mut().zip(b).take(S::LANES) {
        *a = f(*a, b);
    }
    // SAFETY: no register has more than MAX_LANES lanes.
    unsafe { s.load(a.as_ptr()) }
}
