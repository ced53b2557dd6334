//! Powers: the logarithm with more bits than a lane has, times the exponent, through the exponential.
use super::super::Lanes;
use super::exp::{exp_sum, split_near_one};
use super::{Scalar, by_lane, polynomial};

/// xʸ, as `powf`: a negative x needs an integral y.
#[inline(always)]
pub fn pow<T: Scalar, S: Lanes<T>>(s: S, x: S::V, y: S::V) -> S::V {
    let size = s.abs(x);
    let finite = |v| s.lt(s.abs(v), s.splat(T::INFINITY));
    let ordinary = s.mask_and(s.mask_and(finite(x), finite(y)), s.le(s.splat(T::MIN_POSITIVE), size));
    if !s.all(ordinary) {
        // Zeros, denormals, infinities and NaN are rare and full of rules.
        return by_lane(s, x, y, T::pow);
    }
    let (high, low) = log_in_two(s, size);
    let (product, error) = two_product(s, y, high);
    let tail = s.mul_add(y, low, error);
    // Beyond the range of the exponential the tail is meaningless and may be NaN.
    let within = s.lt(s.abs(product), s.splat(T::from_f64(1000.0)));
    let z = exp_sum(s, product, s.select(within, tail, s.splat(T::ZERO)));

    let half_y = s.mul(y, s.splat(T::from_f64(0.5)));
    let odd = s.mask_and(s.eq(s.floor(y), y), s.ne(s.floor(half_y), half_y));
    let of_negative = s.select(s.eq(s.floor(y), y), s.select(odd, s.neg(z), z), s.splat(T::NAN));
    s.select(s.lt(x, s.splat(T::ZERO)), of_negative, z)
}

/// ln x of positive normal numbers as a sum of two.
#[inline(always)]
fn log_in_two<T: Scalar, S: Lanes<T>>(s: S, x: S::V) -> (S::V, S::V) {
    let one = s.splat(T::ONE);
    let (m, e) = split_near_one(s, x);
    let f = s.sub(m, one);
    let d = s.add(m, one);
    let d_low = s.sub(m, s.sub(d, one));
    // t + t_low = f / (d + d_low)
    let t = s.div(f, d);
    let (back, back_low) = two_product(s, t, d);
    let rest = s.sub(s.sub(s.sub(f, back), back_low), s.mul(t, d_low));
    let t_low = s.div(rest, d);
    // ln m = 2 t + ⅔ t³ + t⁵ …: the cubic term still counts in the second number, the others do not.
    let (square, square_low) = two_product(s, t, t);
    let square_low = s.mul_add(s.add(t, t), t_low, square_low);
    let (cube, cube_low) = two_product(s, t, square);
    let cube_low = s.add(cube_low, s.mul_add(t, square_low, s.mul(t_low, square)));
    let (third, third_low) = two_product(s, cube, s.splat(T::TWO_THIRDS[0]));
    let third_low = s.add(
        third_low,
        s.mul_add(cube, s.splat(T::TWO_THIRDS[1]), s.mul(cube_low, s.splat(T::TWO_THIRDS[0]))),
    );
    let fifth = s.mul(s.mul(cube, square), polynomial(s, square, T::POW_LOG));
    let (high, low) = two_sum(s, s.mul(e, s.splat(T::LN2[0])), s.add(t, t));
    let (high, lower) = two_sum(s, high, third);
    let small = s.add(s.add(s.add(t_low, t_low), third_low), fifth);
    let small = s.add(s.mul_add(e, s.splat(T::LN2[1]), small), s.add(low, lower));
    two_sum(s, high, small)
}

/// a + b and what its rounding lost.
#[inline(always)]
fn two_sum<T: Scalar, S: Lanes<T>>(s: S, a: S::V, b: S::V) -> (S::V, S::V) {
    let sum = s.add(a, b);
    let b_part = s.sub(sum, a);
    (sum, s.add(s.sub(a, s.sub(sum, b_part)), s.sub(b, b_part)))
}

/// a · b and what its rounding lost.
#[inline(always)]
fn two_product<T: Scalar, S: Lanes<T>>(s: S, a: S::V, b: S::V) -> (S::V, S::V) {
    let product = s.mul(a, b);
    if S::FUSED {
        return (product, s.mul_add(a, b, s.neg(product)));
    }
    // Halves of half the bits multiply exactly.
    let splitter = s.splat(T::from_f64(f64::from(T::MANTISSA_BITS / 2 + 1).exp2()) + T::ONE);
    let halves = |v| {
        let grown = s.mul(v, splitter);
        let high = s.sub(grown, s.sub(grown, v));
        (high, s.sub(v, high))
    };
    let ((a1, a0), (b1, b0)) = (halves(a), halves(b));
    let middle = s.add(s.sub(s.mul(a1, b1), product), s.add(s.mul(a1, b0), s.mul(a0, b1)));
    (product, s.add(middle, s.mul(a0, b0)))
}
