//! Stages of a radix that is too large for the registers: it is cut into two factors, between which its rows stay in a tile that the
//! first cache holds. Columns of a thousand rows do not fit that cache, so that every stage less is a way to the second one less.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Range;

use super::cpu_eights::{eight, fit_registers};
use super::cpu_radix::{Pair, dft, mul};
use super::cpu_rows::{Packed, Sink, Source};
use super::cpu_stages::{Stage, each};
use crate::backends::cpu::simd::{Float, Lanes};

/// The largest radix that is cut.
const MOST: usize = 32;

/// The two factors of a radix that is cut.
pub(super) const fn cut(radix: usize) -> Option<[usize; 2]> {
    match radix {
        MOST => Some([8, 4]),
        _ => None,
    }
}

/// A stage whose radix is `A · B`: row j + B·i is number i of the small transform j, and result k + A·i is number i of transform k.
///
/// # Safety
/// As for `cpu_stages::run`; the stage has `A · B` roots for each of `rest`, and those between its factors.
#[inline(always)]
pub(super) unsafe fn tiled<T: Float, S: Lanes<T>, const A: usize, const B: usize, const LAST: bool>(
    s: S,
    stage: &Stage<T>,
    these: Range<usize>,
    from: impl Source<T>,
    to: impl Sink<T>,
) {
    const { assert!(A * B <= MOST) };
    let mut tile = MaybeUninit::<[Pair<S::V>; MOST]>::uninit();
    let tile = Packed(tile.as_mut_ptr().cast::<T>());
    let (rest, stride) = (if LAST { 1 } else { stage.rest }, stage.stride);
    let (near, far) = (from.apart::<S>(1), from.apart::<S>(stride * rest));
    let (next, step) = (to.apart::<S>(1), to.apart::<S>(stride));
    for p in these {
        let (mut source, mut target) = (from.row::<S>(stride * p), to.row::<S>(stride * A * B * p));
        let roots = stage.roots.as_ptr().wrapping_add(2 * A * B * p);
        for q in 0..stride {
            // SAFETY: the rows are those of `known`, and the tile has one for each number of the radix.
            unsafe {
                fill::<T, S, A, B>(s, stage.inner.as_ptr(), from, (source, far), tile);
                empty::<T, S, A, B, LAST>(s, roots, tile, to, (target, step), to.hold(s, q));
            }
            (source, target) = (source.wrapping_offset(near), target.wrapping_offset(next));
        }
    }
}

/// The transforms of `A` rows, times the roots between the factors.
///
/// # Safety
/// As for `tiled`; rows are so far apart.
#[inline(always)]
unsafe fn fill<T: Float, S: Lanes<T>, const A: usize, const B: usize>(
    s: S,
    roots: *const T,
    from: impl Source<T>,
    rows: (*mut T, isize),
    tile: Packed<T>,
) {
    // SAFETY: the caller's promise. The first transform's roots are all one.
    unsafe {
        fill_one::<T, S, A, B, false>(s, roots, from, rows, tile, 0);
        for j in 1..B {
            fill_one::<T, S, A, B, true>(s, roots, from, rows, tile, j);
        }
    }
}

/// Transform `j` of them, with or without its roots.
///
/// # Safety
/// As for `fill`, and j < B.
#[inline(always)]
unsafe fn fill_one<T: Float, S: Lanes<T>, const A: usize, const B: usize, const ROOTS: bool>(
    s: S,
    roots: *const T,
    from: impl Source<T>,
    (source, far): (*mut T, isize),
    tile: Packed<T>,
    j: usize,
) {
    if A == 8 && !fit_registers::<T, S>() {
        let (first, row) = (source.wrapping_offset(far * j as isize), Sink::row::<S>(tile, A * j));
        let step = Sink::apart::<S>(tile, 1);
        // SAFETY: as below; the roots of the first number are left out.
        return unsafe {
            let roots = roots.add(2 * A * j + 2);
            eight::<T, S, ROOTS>(
                s,
                from,
                (first, far * B as isize),
                tile,
                (row, step),
                roots,
                tile.hold(s, 0),
            );
        };
    }
    let zero = s.splat(T::ZERO);
    let mut x = [Pair { re: zero, im: zero }; A];
    // SAFETY: j < B and i < A name rows of the stage and of the tile.
    unsafe {
        each!(i in A {
            x[i] = from.read(s, source.wrapping_offset(far * (j + B * i) as isize));
        });
        dft::<T, S, A>(s, &mut x, &[]);
        let roots = roots.add(2 * A * j);
        each!(k in A {
            if ROOTS && k > 0 {
                x[k] = mul(s, x[k], Pair { re: s.splat(*roots.add(2 * k)), im: s.splat(*roots.add(2 * k + 1)) });
            }
            tile.store(s, A * j + k, x[k]);
        });
    }
}

/// The transforms of `B` rows, times the roots after the stage.
///
/// # Safety
/// As for `tiled`; rows are written so far apart.
#[inline(always)]
unsafe fn empty<T: Float, S: Lanes<T>, const A: usize, const B: usize, const LAST: bool>(
    s: S,
    roots: *const T,
    tile: Packed<T>,
    to: impl Sink<T>,
    (target, step): (*mut T, isize),
    held: Pair<S::V>,
) {
    let zero = s.splat(T::ZERO);
    for k in 0..A {
        let mut x = [Pair { re: zero, im: zero }; B];
        // SAFETY: k < A and i < B name rows of the tile and of the stage.
        unsafe {
            each!(i in B {
                x[i] = tile.load(s, k + A * i);
            });
            dft::<T, S, B>(s, &mut x, &[]);
            each!(i in B {
                let (at, k) = (target.wrapping_offset(step * (k + A * i) as isize), k + A * i);
                if LAST {
                    to.write(s, at, held, k, x[i]);
                } else {
                    let root = Pair { re: s.splat(*roots.add(2 * k)), im: s.splat(*roots.add(2 * k + 1)) };
                    to.write(s, at, held, k, mul(s, x[i], root));
                }
            });
        }
    }
}
