//! The exponential, its inverse, and what is made of them.
use super::super::{Float, Lanes};
use super::{Coefficients, polynomial, rounder};

/// Splits x = n ln 2 + r with |r| ≤ ln 2 / 2; gives (n + bias + rounder, n, r).
#[inline(always)]
fn reduce<T: Coefficients, S: Lanes<T>>(s: S, x: S::V, bias: T) -> (S::V, S::V, S::V) {
    let rounder = s.splat(rounder::<T>() + bias);
    let shifted = s.mul_add(x, s.splat(T::from_f64(std::f64::consts::LOG2_E)), rounder);
    let n = s.sub(shifted, rounder);
    let r = s.neg_mul_add(n, s.splat(T::LN2[0]), x);
    (shifted, n, s.neg_mul_add(n, s.splat(T::LN2[1]), r))
}

/// eʳ for |r| ≤ ln 2 / 2.
#[inline(always)]
fn exp_reduced<T: Coefficients, S: Lanes<T>>(s: S, r: S::V) -> S::V {
    let one = s.splat(T::ONE);
    let q = polynomial(s, r, T::EXP);
    s.mul_add(s.mul_add(q, r, one), r, one)
}

/// eˣ
#[inline(always)]
pub fn exp<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    exp_sum(s, x, s.splat(T::ZERO))
}

/// e^(x + tail), where the tail is at most a few units in the last place of x.
#[inline(always)]
pub(super) fn exp_sum<T: Coefficients, S: Lanes<T>>(s: S, x: S::V, tail: S::V) -> S::V {
    // In this order NaN comes through both.
    let x = s.min(s.splat(T::EXP_ANY[1]), s.max(s.splat(T::EXP_ANY[0]), x));
    let (_, n, r) = reduce(s, x, T::ZERO);
    s.scale(exp_reduced(s, s.add(r, tail)), n)
}

/// eˣ for x ≤ 0, in fewer instructions: what is below the smallest normal number becomes zero.
///
/// For the weights of a softmax, where x has had the maximum subtracted. Right up to x = ln(MAX) all the same;
/// beyond that the result is meaningless.
#[inline(always)]
pub fn exp_nonpositive<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    s.select(s.lt(x, s.splat(T::EXP_NORMAL[0])), s.splat(T::ZERO), exp_normal(s, x))
}

/// eˣ where it is a normal number; meaningless elsewhere.
#[inline(always)]
fn exp_normal<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    // With the bias in the rounder, the lowest bits are those of an exponent.
    let (shifted, _, r) = reduce(s, x, T::from_f64(f64::from(T::BIAS)));
    s.mul(exp_reduced(s, r), s.shl_mantissa(shifted))
}

/// ln x
#[inline(always)]
pub fn log<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let (m, e) = split_near_one(s, x);
    let half = s.splat(T::from_f64(0.5));
    let f = s.sub(m, s.splat(T::ONE));
    let half_square = s.mul(half, s.mul(f, f));
    let t = s.div(f, s.add(f, s.splat(T::from_f64(2.0))));
    let z = s.mul(t, t);
    let rest = s.mul(z, polynomial(s, z, T::LOG));
    // ln m = f − f²/2 + t (f²/2 + rest): the large terms are exact, so the order keeps the last bits.
    let small = s.mul_add(t, s.add(half_square, rest), s.mul(e, s.splat(T::LN2[1])));
    let y = s.sub(f, s.sub(half_square, small));
    let y = s.mul_add(e, s.splat(T::LN2[0]), y);

    let (zero, infinity) = (s.splat(T::ZERO), s.splat(T::INFINITY));
    let special = s.select(s.eq(x, infinity), x, s.splat(T::NAN));
    let special = s.select(s.eq(x, zero), s.splat(-T::INFINITY), special);
    s.select(s.mask_and(s.lt(zero, x), s.lt(x, infinity)), y, special)
}

/// x = m · 2ᵉ with √½ ≤ m < √2, denormals included.
#[inline(always)]
pub(super) fn split_near_one<T: Float, S: Lanes<T>>(s: S, x: S::V) -> (S::V, S::V) {
    let lift = f64::from(T::MANTISSA_BITS + 2);
    let denormal = s.lt(x, s.splat(T::MIN_POSITIVE));
    let lifted = s.select(denormal, s.mul(x, s.splat(T::from_f64(lift.exp2()))), x);
    let (m, e) = s.split(lifted);
    let e = s.select(denormal, s.sub(e, s.splat(T::from_f64(lift))), e);
    let upper = s.lt(s.splat(T::from_f64(std::f64::consts::SQRT_2)), m);
    let m = s.select(upper, s.mul(m, s.splat(T::from_f64(0.5))), m);
    (m, s.select(upper, s.add(e, s.splat(T::ONE)), e))
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let (above, below) = tanh_quotient(s, x);
    s.copysign(s.div(above, below), x)
}

/// The size of the hyperbolic tangent as a quotient, for those who divide by something else too; both parts are finite.
#[inline(always)]
pub fn tanh_quotient<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> (S::V, S::V) {
    // tanh x = (e²ˣ − 1) / (e²ˣ + 1), with e²ˣ − 1 taken without cancellation.
    let size = s.min(s.splat(T::TANH_ONE), s.abs(x));
    let (shifted, _, r) = reduce(s, s.add(size, size), T::from_f64(f64::from(T::BIAS)));
    let power = s.shl_mantissa(shifted);
    let grown = s.mul_add(s.mul(r, r), polynomial(s, r, T::EXP), r);
    let minus_one = s.mul_add(power, grown, s.sub(power, s.splat(T::ONE)));
    (minus_one, s.add(minus_one, s.splat(T::from_f64(2.0))))
}

/// 1 / (1 + e⁻ˣ)
#[inline(always)]
pub fn sigmoid<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let one = s.splat(T::ONE);
    let e = exp(s, s.neg(s.abs(x)));
    s.div(s.select(s.lt(x, s.splat(T::ZERO)), e, one), s.add(one, e))
}

/// 1 + e⁻ˣ, by which the sigmoid divides, in few instructions: it stops growing where the sigmoid is about as small as a normal number
/// can be, and is infinite where the sigmoid is zero, so that a gate that is shut makes NaN of infinities.
#[inline(always)]
pub fn sigmoid_divisor<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    // A little inside what is normal; in this order NaN comes through both.
    let most = s.splat(-T::EXP_NORMAL[0] - T::ONE);
    let near = s.min(most, s.max(s.neg(most), s.neg(x)));
    let divisor = s.add(s.splat(T::ONE), exp_normal(s, near));
    s.select(s.lt(x, s.splat(T::EXP_ANY[0])), s.splat(T::INFINITY), divisor)
}

/// x · sigmoid x; −∞ gives −0.
#[inline(always)]
pub fn silu<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    // From twice the range of the exponential on the sigmoid is zero, whatever x.
    let x = s.max(s.splat(T::EXP_ANY[0] + T::EXP_ANY[0]), x);
    s.mul(x, sigmoid(s, x))
}

/// The error function.
#[inline(always)]
pub fn erf<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let one = s.splat(T::ONE);
    let size = s.min(s.splat(T::ERF_ONE), s.abs(x));
    let small = s.mul(x, polynomial(s, s.mul(size, size), T::ERF_SMALL));
    let complement = polynomial(s, s.sub(size, s.splat(T::ERF_CENTRE)), T::ERF_LARGE);
    let large = s.sub(one, exp_nonpositive(s, complement));
    s.select(s.lt(size, one), small, s.copysign(large, x))
}

/// x Φ(x) by the error function (not the tanh approximation); −∞ gives −0. The error is relative to |x|: the
/// tail for large negative x keeps no relative accuracy.
#[inline(always)]
pub fn gelu<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let half = s.splat(T::from_f64(0.5));
    let x = s.max(s.splat(T::EXP_ANY[0]), x);
    let scaled = s.mul(x, s.splat(T::from_f64(std::f64::consts::FRAC_1_SQRT_2)));
    let half_x = s.mul(half, x);
    s.mul_add(half_x, erf(s, scaled), half_x)
}

/// eˣ for x ≤ 0 of several vectors, step by step in turns; below the smallest normal number it is zero or a denormal.
///
/// A CPU looks only some tens of instructions ahead, about as many as one power takes: it does not overlap them by itself.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // closures and iterators over vectors may be compiled without their instructions
pub fn exp_nonpositive_each<T: Coefficients, S: Lanes<T>, const N: usize>(s: S, x: [S::V; N]) -> [S::V; N] {
    // One below the least exponent: there the power of two is a zero. In this order NaN comes through.
    let least = s.splat(T::from_f64(-f64::from(T::BIAS) * std::f64::consts::LN_2));
    let rounder = s.splat(rounder::<T>() + T::from_f64(f64::from(T::BIAS)));
    let log2_e = s.splat(T::from_f64(std::f64::consts::LOG2_E));
    let (mut r, mut shifted, mut n) = (x, x, x);
    for i in 0..N {
        r[i] = s.max(least, x[i]);
    }
    for i in 0..N {
        shifted[i] = s.mul_add(r[i], log2_e, rounder);
    }
    for i in 0..N {
        n[i] = s.sub(shifted[i], rounder);
    }
    for part in T::LN2 {
        let part = s.splat(part);
        for i in 0..N {
            r[i] = s.neg_mul_add(n[i], part, r[i]);
        }
    }
    let mut y = [s.splat(T::EXP[T::EXP.len() - 1]); N];
    for c in T::EXP[..T::EXP.len() - 1].iter().rev() {
        let c = s.splat(*c);
        for i in 0..N {
            y[i] = s.mul_add(y[i], r[i], c);
        }
    }
    // The first two coefficients are one.
    let one = s.splat(T::ONE);
    for _ in 0..2 {
        for i in 0..N {
            y[i] = s.mul_add(y[i], r[i], one);
        }
    }
    for i in 0..N {
        y[i] = s.mul(y[i], s.shl_mantissa(shifted[i]));
    }
    y
}
