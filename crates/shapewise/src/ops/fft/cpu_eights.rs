//! Stages of radix eight where eight numbers and what is computed from them are more than the registers hold: the even results first,
//! then the odd ones, each from four sums or differences that stay in registers.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Range;

use super::cpu_radix::{Pair, add, four, four_turned, mul, sub};
use super::cpu_rows::{Packed, Sink, Source};
use super::cpu_stages::{Stage, fourth};
use crate::backends::cpu::simd::{Float, Lanes};

/// Whether sixteen vectors and those computed from them fit the registers: there are 32 of those with 64 bytes, and of NEON's.
pub(super) const fn fit_registers<T: Float, S: Lanes<T>>() -> bool {
    S::LANES * size_of::<T>() >= 64 || cfg!(target_arch = "aarch64")
}

/// A whole stage.
///
/// # Safety
/// As for `cpu_stages::run`; the stage has seven roots for each of `rest`.
#[inline(always)]
pub(super) unsafe fn eights<T: Float, S: Lanes<T>, const LAST: bool>(
    s: S,
    stage: &Stage<T>,
    these: Range<usize>,
    from: impl Source<T>,
    to: impl Sink<T>,
) {
    let (rest, stride) = (if LAST { 1 } else { stage.rest }, stage.stride);
    let (near, far) = (from.apart::<S>(1), from.apart::<S>(stride * rest));
    let (next, step) = (to.apart::<S>(1), to.apart::<S>(stride));
    for p in these {
        let (mut source, mut target) = (from.row::<S>(stride * p), to.row::<S>(stride * 8 * p));
        let roots = stage.roots.as_ptr().wrapping_add(14 * p);
        for q in 0..stride {
            // SAFETY: q < stride and p < rest name rows of the stage; the first p has no roots.
            unsafe {
                let held = to.hold(s, q);
                if LAST || p == 0 {
                    eight::<T, S, false>(s, from, (source, far), to, (target, step), roots, held);
                } else {
                    eight::<T, S, true>(s, from, (source, far), to, (target, step), roots, held);
                }
            }
            (source, target) = (source.wrapping_offset(near), target.wrapping_offset(next));
        }
    }
}

/// The transform of eight rows that lie so far apart, times seven roots for all but the first result.
///
/// # Safety
/// The rows exist, and those of source and sink are not the same memory.
#[inline(always)]
pub(super) unsafe fn eight<T: Float, S: Lanes<T>, const ROOTS: bool>(
    s: S,
    from: impl Source<T>,
    (source, far): (*mut T, isize),
    to: impl Sink<T>,
    (target, step): (*mut T, isize),
    roots: *const T,
    held: Pair<S::V>,
) {
    let mut kept = MaybeUninit::<[Pair<S::V>; 4]>::uninit();
    let kept = Packed(kept.as_mut_ptr().cast::<T>());
    let zero = s.splat(T::ZERO);
    let mut x = [Pair { re: zero, im: zero }; 4];
    let source = [fourth(source, far, 0), fourth(source, far, 4)];
    let target = [fourth(target, step, 0), fourth(target, step, 4)];
    // SAFETY: the caller's promise.
    unsafe {
        halves::<T, S, _, true>(s, from, (source, far), kept, &mut x);
        x = four(s, x);
        quarter::<T, S, ROOTS>(s, &x, to, (target, step), roots, 0, held);
        halves::<T, S, _, false>(s, from, (source, far), kept, &mut x);
        x = four_turned(s, x);
        quarter::<T, S, ROOTS>(s, &x, to, (target, step), roots, 1, held);
    }
}

/// Sums, or differences, of rows half the radix apart. Where rows are not read twice, the differences are kept meanwhile.
///
/// # Safety
/// As for `eight`.
#[inline(always)]
unsafe fn halves<T: Float, S: Lanes<T>, A: Source<T>, const SUMS: bool>(
    s: S,
    from: A,
    (source, far): ([*mut T; 2], isize),
    kept: Packed<T>,
    x: &mut [Pair<S::V>; 4],
) {
    for (j, x) in x.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            if !SUMS && !A::TWICE {
                *x = kept.load(s, j);
                continue;
            }
            let a = from.read(s, source[0].wrapping_offset(far * j as isize));
            let b = from.read(s, source[1].wrapping_offset(far * j as isize));
            *x = if SUMS { add(s, a, b) } else { sub(s, a, b) };
            if SUMS && !A::TWICE {
                kept.store(s, j, sub(s, a, b));
            }
        }
    }
}

/// Writes every other result, from the first or the second on.
///
/// # Safety
/// As for `eight`.
#[inline(always)]
unsafe fn quarter<T: Float, S: Lanes<T>, const ROOTS: bool>(
    s: S,
    x: &[Pair<S::V>; 4],
    to: impl Sink<T>,
    (target, step): ([*mut T; 2], isize),
    roots: *const T,
    first: usize,
    held: Pair<S::V>,
) {
    for (i, &x) in x.iter().enumerate() {
        let k = 2 * i + first;
        let at = target[k / 4].wrapping_offset(step * (k % 4) as isize);
        // SAFETY: the caller's promise.
        unsafe {
            if ROOTS && k > 0 {
                let (re, im) = (*roots.add(2 * k - 2), *roots.add(2 * k - 1));
                to.write(s, at, held, k, mul(s, x, Pair { re: s.splat(re), im: s.splat(im) }));
            } else {
                to.write(s, at, held, k, x);
            }
        }
    }
}
