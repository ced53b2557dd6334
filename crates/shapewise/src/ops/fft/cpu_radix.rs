//! Small transforms of vectors: every lane is a transform of its own.
#![allow(unsafe_code)]

use crate::backends::cpu::simd::{Float, Lanes};

/// The largest factor that has a small transform; lengths with larger primes are turned into convolutions.
pub(super) const LARGEST: usize = 31;

/// As many complex numbers as a register has lanes.
#[derive(Clone, Copy)]
pub(super) struct Pair<V> {
    pub re: V,
    pub im: V,
}

#[inline(always)]
pub(super) fn add<T: Float, S: Lanes<T>>(s: S, a: Pair<S::V>, b: Pair<S::V>) -> Pair<S::V> {
    Pair { re: s.add(a.re, b.re), im: s.add(a.im, b.im) }
}

#[inline(always)]
pub(super) fn sub<T: Float, S: Lanes<T>>(s: S, a: Pair<S::V>, b: Pair<S::V>) -> Pair<S::V> {
    Pair { re: s.sub(a.re, b.re), im: s.sub(a.im, b.im) }
}

/// `a · b`
#[inline(always)]
pub(super) fn mul<T: Float, S: Lanes<T>>(s: S, a: Pair<S::V>, b: Pair<S::V>) -> Pair<S::V> {
    Pair { re: s.neg_mul_add(a.im, b.im, s.mul(a.re, b.re)), im: s.mul_add(a.re, b.im, s.mul(a.im, b.re)) }
}

/// `a − i b` and `a + i b`
#[inline(always)]
pub(super) fn turn<T: Float, S: Lanes<T>>(s: S, a: Pair<S::V>, b: Pair<S::V>) -> [Pair<S::V>; 2] {
    [
        Pair { re: s.add(a.re, b.im), im: s.sub(a.im, b.re) },
        Pair { re: s.sub(a.re, b.im), im: s.add(a.im, b.re) },
    ]
}

/// `a + c b` and `a − c b` for a real c.
#[inline(always)]
pub(super) fn scaled<T: Float, S: Lanes<T>>(s: S, a: Pair<S::V>, b: Pair<S::V>, c: S::V) -> [Pair<S::V>; 2] {
    [
        Pair { re: s.mul_add(b.re, c, a.re), im: s.mul_add(b.im, c, a.im) },
        Pair { re: s.neg_mul_add(b.re, c, a.re), im: s.neg_mul_add(b.im, c, a.im) },
    ]
}

/// The transform of `R` numbers, in their place. `odd` holds cos and sin of 2πj/R for odd `R`.
#[inline(always)]
pub(super) fn dft<T: Float, S: Lanes<T>, const R: usize>(s: S, x: &mut [Pair<S::V>; R], odd: &[T]) {
    match R {
        1 => {}
        2 => dft2(s, x),
        4 => dft4(s, x),
        8 => dft8(s, x),
        _ => dft_odd::<T, S, R>(s, x, odd),
    }
}

#[inline(always)]
pub(super) fn dft2<T: Float, S: Lanes<T>>(s: S, x: &mut [Pair<S::V>]) {
    (x[0], x[1]) = (add(s, x[0], x[1]), sub(s, x[0], x[1]));
}

#[inline(always)]
pub(super) fn four<T: Float, S: Lanes<T>>(s: S, x: [Pair<S::V>; 4]) -> [Pair<S::V>; 4] {
    let (a, b) = (add(s, x[0], x[2]), sub(s, x[0], x[2]));
    let (c, d) = (add(s, x[1], x[3]), sub(s, x[1], x[3]));
    let [y1, y3] = turn(s, b, d);
    [add(s, a, c), y1, sub(s, a, c), y3]
}

/// The same after the numbers are multiplied by powers of e^(−πi/4); products with √½ are fused into the last sums.
#[inline(always)]
pub(super) fn four_turned<T: Float, S: Lanes<T>>(s: S, x: [Pair<S::V>; 4]) -> [Pair<S::V>; 4] {
    let root = s.splat(T::from_f64(std::f64::consts::FRAC_1_SQRT_2));
    let [a, b] = turn(s, x[0], x[2]);
    // (1 − i) and (1 + i) times the others, √½ left out.
    let one = Pair { re: s.add(x[1].re, x[1].im), im: s.sub(x[1].im, x[1].re) };
    let three = Pair { re: s.sub(x[3].re, x[3].im), im: s.add(x[3].re, x[3].im) };
    let (c, d) = (sub(s, one, three), add(s, one, three));
    let [y0, y2] = scaled(s, a, c, root);
    let d = Pair { re: d.im, im: d.re };
    let y1 = Pair { re: s.mul_add(d.re, root, b.re), im: s.neg_mul_add(d.im, root, b.im) };
    let y3 = Pair { re: s.neg_mul_add(d.re, root, b.re), im: s.mul_add(d.im, root, b.im) };
    [y0, y1, y2, y3]
}

#[inline(always)]
pub(super) fn dft4<T: Float, S: Lanes<T>>(s: S, x: &mut [Pair<S::V>]) {
    // One by one: a copy of the slice would go through memory.
    [x[0], x[1], x[2], x[3]] = four(s, [x[0], x[1], x[2], x[3]]);
}

/// Two transforms of four whose results are combined; products with √½ are fused into the last sums.
#[inline(always)]
pub(super) fn dft8<T: Float, S: Lanes<T>>(s: S, x: &mut [Pair<S::V>]) {
    let root = s.splat(T::from_f64(std::f64::consts::FRAC_1_SQRT_2));
    let even = four(s, [x[0], x[2], x[4], x[6]]);
    let odd = four(s, [x[1], x[3], x[5], x[7]]);
    // (1 − i) and (−1 − i) times the odd numbers, √½ and the last sign left out.
    let first = Pair { re: s.add(odd[1].re, odd[1].im), im: s.sub(odd[1].im, odd[1].re) };
    let third = Pair { re: s.sub(odd[3].im, odd[3].re), im: s.add(odd[3].re, odd[3].im) };
    (x[0], x[4]) = (add(s, even[0], odd[0]), sub(s, even[0], odd[0]));
    [x[1], x[5]] = scaled(s, even[1], first, root);
    [x[2], x[6]] = turn(s, even[2], odd[2]);
    let e = even[3];
    x[3] = Pair { re: s.mul_add(third.re, root, e.re), im: s.neg_mul_add(third.im, root, e.im) };
    x[7] = Pair { re: s.neg_mul_add(third.re, root, e.re), im: s.mul_add(third.im, root, e.im) };
}

/// Sums and differences of the numbers that stand symmetrically, times cosines and sines.
#[inline(always)]
fn dft_odd<T: Float, S: Lanes<T>, const R: usize>(s: S, x: &mut [Pair<S::V>; R], odd: &[T]) {
    let zero = Pair { re: s.splat(T::ZERO), im: s.splat(T::ZERO) };
    // Filled with what is there: zeros would be written to memory first.
    let (mut sums, mut differences, first) = (*x, *x, x[0]);
    let mut total = first;
    for j in 1..=R / 2 {
        sums[j] = add(s, x[j], x[R - j]);
        differences[j] = sub(s, x[j], x[R - j]);
        total = add(s, total, sums[j]);
    }
    x[0] = total;
    for k in 1..=R / 2 {
        let (mut a, mut b) = (first, zero);
        for j in 1..=R / 2 {
            let at = j * k % R;
            let (cos, sin) = (s.splat(odd[2 * at]), s.splat(odd[2 * at + 1]));
            [a, _] = scaled(s, a, sums[j], cos);
            [b, _] = scaled(s, b, differences[j], sin);
        }
        [x[k], x[R - k]] = turn(s, a, b);
    }
}

/// The same for a length that is only known at run time.
#[inline(always)]
pub(super) fn dft_any<T: Float, S: Lanes<T>>(s: S, x: &mut [Pair<S::V>], odd: &[T]) {
    let zero = Pair { re: s.splat(T::ZERO), im: s.splat(T::ZERO) };
    let (n, first) = (x.len(), x[0]);
    let (mut sums, mut differences) = ([zero; LARGEST / 2 + 1], [zero; LARGEST / 2 + 1]);
    let mut total = first;
    for j in 1..=n / 2 {
        sums[j] = add(s, x[j], x[n - j]);
        differences[j] = sub(s, x[j], x[n - j]);
        total = add(s, total, sums[j]);
    }
    x[0] = total;
    for k in 1..=n / 2 {
        let (mut a, mut b, mut at) = (first, zero, 0);
        for j in 1..=n / 2 {
            at += k;
            at -= if at >= n { n } else { 0 };
            let (cos, sin) = (s.splat(odd[2 * at]), s.splat(odd[2 * at + 1]));
            [a, _] = scaled(s, a, sums[j], cos);
            [b, _] = scaled(s, b, differences[j], sin);
        }
        [x[k], x[n - k]] = turn(s, a, b);
    }
}
