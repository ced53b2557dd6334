//! Sine and cosine.
use super::super::Lanes;
use super::{Scalar, by_lane, polynomial, rounder};

/// sin x
#[inline(always)]
pub fn sin<T: Scalar, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    // The formula turns −0 into 0.
    let y = rotated(s, x, T::ZERO);
    near(s, x, s.select(s.eq(x, s.splat(T::ZERO)), x, y), T::sin)
}

/// cos x
#[inline(always)]
pub fn cos<T: Scalar, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    near(s, x, rotated(s, x, T::ONE), T::cos)
}

/// `y` if every lane of x is small enough for the reduction, else the scalar function of each lane.
#[inline(always)]
fn near<T: Scalar, S: Lanes<T>>(s: S, x: S::V, y: S::V, scalar: fn(T) -> T) -> S::V {
    if s.all(s.le(s.abs(x), s.splat(T::TRIG_LIMIT))) {
        return y;
    }
    by_lane(s, x, x, |x, _| scalar(x))
}

/// sin(x + quarters · π / 2) for |x| within the limit.
#[inline(always)]
fn rotated<T: Scalar, S: Lanes<T>>(s: S, x: S::V, quarters: T) -> S::V {
    let shift = s.splat(rounder::<T>());
    let n = s.sub(s.mul_add(x, s.splat(T::from_f64(std::f64::consts::FRAC_2_PI)), shift), shift);
    let mut r = x;
    for part in T::HALF_PI {
        r = s.neg_mul_add(n, s.splat(part), r);
    }
    let (half, one) = (s.splat(T::from_f64(0.5)), s.splat(T::ONE));
    let z = s.mul(r, r);
    let sin = s.mul_add(s.mul(r, z), polynomial(s, z, T::SIN), r);
    let cos = s.mul_add(s.mul(z, z), polynomial(s, z, T::COS), s.neg_mul_add(half, z, one));
    // The quadrant: its lowest bit swaps sine and cosine, the next one flips the sign.
    let halves = s.mul(s.add(n, s.splat(quarters)), half);
    let whole = s.floor(halves);
    let y = s.select(s.ne(halves, whole), cos, sin);
    let turns = s.mul(whole, half);
    s.select(s.ne(turns, s.floor(turns)), s.neg(y), y)
}
