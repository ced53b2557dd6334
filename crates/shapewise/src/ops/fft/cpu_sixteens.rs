//! Sixteen numbers as four by four: what the first four transforms give just fills 32 registers, and each of the last four is written
//! before the next begins. All products are fused into sums: 144 operations.
#![allow(unsafe_code)]

use std::ops::Range;

use super::cpu_radix::{Pair, add, four, mul, scaled, sub, turn};
use super::cpu_rows::{Sink, Source};
use super::cpu_stages::{Stage, each, fourth};
use crate::backends::cpu::simd::{Float, Lanes};

const COS: f64 = 0.923_879_532_511_286_7;
const TAN: f64 = 0.414_213_562_373_095_03;

/// `a − i c b` and `a + i c b` for a real c.
#[inline(always)]
fn turn_scaled<T: Float, S: Lanes<T>>(s: S, a: Pair<S::V>, b: Pair<S::V>, c: S::V) -> [Pair<S::V>; 2] {
    [
        Pair { re: s.mul_add(b.im, c, a.re), im: s.neg_mul_add(b.re, c, a.im) },
        Pair { re: s.neg_mul_add(b.im, c, a.re), im: s.mul_add(b.re, c, a.im) },
    ]
}

/// `(1 − i) a`
#[inline(always)]
fn eighth<T: Float, S: Lanes<T>>(s: S, a: Pair<S::V>) -> Pair<S::V> {
    Pair { re: s.add(a.re, a.im), im: s.sub(a.im, a.re) }
}

/// `(1 − i tan π/8) a`: e^(−πi/8) a, the cosine left out.
#[inline(always)]
fn first_root<T: Float, S: Lanes<T>>(s: S, tan: S::V, a: Pair<S::V>) -> Pair<S::V> {
    Pair { re: s.mul_add(a.im, tan, a.re), im: s.neg_mul_add(a.re, tan, a.im) }
}

/// `(tan π/8 − i) a`: e^(−3πi/8) a, the same cosine left out.
#[inline(always)]
fn third_root<T: Float, S: Lanes<T>>(s: S, tan: S::V, a: Pair<S::V>) -> Pair<S::V> {
    Pair { re: s.mul_add(a.re, tan, a.im), im: s.sub(s.mul(a.im, tan), a.re) }
}

/// Results K, K + 4, K + 8 and K + 12 from number K of each of the first four transforms.
#[inline(always)]
pub(super) fn last_four<T: Float, S: Lanes<T>, const K: usize>(s: S, x: [Pair<S::V>; 4]) -> [Pair<S::V>; 4] {
    let (cos, tan) = (s.splat(T::from_f64(COS)), s.splat(T::from_f64(TAN)));
    let root = s.splat(T::from_f64(std::f64::consts::FRAC_1_SQRT_2));
    let ([a, b], [c, d], by) = match K {
        0 => return four(s, x),
        1 => {
            let (u, v) = (first_root(s, tan, x[1]), third_root(s, tan, x[3]));
            (scaled(s, x[0], eighth(s, x[2]), root), [add(s, u, v), sub(s, u, v)], cos)
        }
        2 => (turn(s, x[0], x[2]), turn(s, eighth(s, x[1]), eighth(s, x[3])), root),
        _ => {
            let (u, v) = (third_root(s, tan, x[1]), first_root(s, tan, x[3]));
            (turn_scaled(s, x[0], eighth(s, x[2]), root), [sub(s, u, v), add(s, u, v)], cos)
        }
    };
    let ([y0, y2], [y1, y3]) = (scaled(s, a, c, by), turn_scaled(s, b, d, by));
    [y0, y1, y2, y3]
}

/// The first four transforms of all sixteen numbers: number k of transform j is at 4 k + j.
#[inline(always)]
pub(super) fn first_fours<T: Float, S: Lanes<T>>(s: S, x: &mut [Pair<S::V>]) {
    for j in 0..4 {
        [x[j], x[j + 4], x[j + 8], x[j + 12]] = four(s, [x[j], x[j + 4], x[j + 8], x[j + 12]]);
    }
}

/// The share of a stage that these of `rest` are.
///
/// # Safety
/// As for `cpu_stages::run`; the stage has fifteen roots for each of `rest`.
#[inline(always)]
pub(super) unsafe fn sixteens<T: Float, S: Lanes<T>, const LAST: bool>(
    s: S,
    stage: &Stage<T>,
    these: Range<usize>,
    from: impl Source<T>,
    to: impl Sink<T>,
) {
    const FOUR: usize = 4;
    let (rest, stride) = (if LAST { 1 } else { stage.rest }, stage.stride);
    let (near, far) = (from.apart::<S>(1), from.apart::<S>(stride * rest));
    let (next, step) = (to.apart::<S>(1), to.apart::<S>(stride));
    for p in these {
        let (mut source, mut target) = (from.row::<S>(stride * p), to.row::<S>(stride * 16 * p));
        let roots = stage.roots.as_ptr().wrapping_add(30 * p);
        for q in 0..stride {
            let zero = s.splat(T::ZERO);
            let mut x = [Pair { re: zero, im: zero }; 16];
            each!(j in FOUR {
                let at = fourth(source, far, j);
                let mut y = [Pair { re: zero, im: zero }; 4];
                each!(i in FOUR {
                    // SAFETY: q < stride, p < rest and j + 4i < 16 name rows below stride · rest · 16.
                    y[i] = unsafe { from.read(s, at.wrapping_offset(far * 4 * i as isize)) };
                });
                y = four(s, y);
                each!(k in FOUR {
                    x[4 * k + j] = Pair { re: s.settled(y[k].re), im: s.settled(y[k].im) };
                });
            });
            // SAFETY: as above; q is below the stride, and the first p has no roots.
            unsafe {
                let held = to.hold(s, q);
                if LAST || p == 0 {
                    write::<T, S, false>(s, &x, to, (target, step), roots, held);
                } else {
                    write::<T, S, true>(s, &x, to, (target, step), roots, held);
                }
            }
            (source, target) = (source.wrapping_offset(near), target.wrapping_offset(next));
        }
    }
}

/// The last four transforms, times fifteen roots for all but the first result.
///
/// # Safety
/// The rows exist.
#[inline(always)]
unsafe fn write<T: Float, S: Lanes<T>, const ROOTS: bool>(
    s: S,
    x: &[Pair<S::V>; 16],
    to: impl Sink<T>,
    (target, step): (*mut T, isize),
    roots: *const T,
    held: Pair<S::V>,
) {
    const FOUR: usize = 4;
    macro_rules! last {
        ($($k:literal)*) => {$({
            let y = last_four::<T, S, $k>(s, [x[4 * $k], x[4 * $k + 1], x[4 * $k + 2], x[4 * $k + 3]]);
            let at = fourth(target, step, $k);
            each!(i in FOUR {
                let k = $k + 4 * i;
                // SAFETY: the caller's promise.
                unsafe {
                    let mut y = y[i];
                    if ROOTS && k > 0 {
                        let (re, im) = (*roots.add(2 * k - 2), *roots.add(2 * k - 1));
                        y = mul(s, y, Pair { re: s.splat(re), im: s.splat(im) });
                    }
                    to.write(s, at.wrapping_offset(step * 4 * i as isize), held, k, y);
                }
            });
        })*};
    }
    last!(0 1 2 3);
}
