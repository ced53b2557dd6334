//! The stages of a transform whose rows are vectors: each row holds one number of LANES transforms side by side.
//!
//! Rows lie in scratch as LANES real parts and LANES imaginary parts. A stage of radix R takes rows that are far apart,
//! transforms them, multiplies by the roots of unity between factors and writes them in the order of the next stage
//! (Stockham's), so that no stage reorders anything by itself. All transforms go forward: the inverse is the forward transform of
//! conjugate numbers, conjugated.
#![allow(unsafe_code)]

use std::ops::Range;

use super::cpu_eights::{eights, fit_registers};
use super::cpu_radix::{LARGEST, Pair, dft, dft_any, mul};
use super::cpu_rows::{Number, Packed, Sink, Source, Spaced};
use super::cpu_sixteens::sixteens;
use super::cpu_tiles::{cut, tiled};
use super::roots::root;
use crate::backends::cpu::real::{RealTask, Vectors, settled};
use crate::backends::cpu::simd::{Float, Isa, Lanes};

/// One factor of a length with the roots of unity that follow it.
#[derive(Clone, Debug)]
pub(super) struct Stage<T> {
    pub radix: usize,
    /// What is left of the length after this factor and those before it.
    pub rest: usize,
    /// The product of the factors before.
    pub stride: usize,
    /// For each of `rest`, radix − 1 roots as real and imaginary part; a radix that is cut has the first one too, which is one.
    pub roots: Vec<T>,
    /// The roots between the two factors of a radix that is cut.
    pub inner: Vec<T>,
    /// Cosines and sines of an odd radix.
    odd: Vec<T>,
}

/// The stages of a length that is the product of these factors.
pub(super) fn stages<T: Float>(radices: &[u8]) -> Vec<Stage<T>> {
    let mut rest: usize = radices.iter().map(|&r| usize::from(r)).product();
    let mut stride = 1;
    let parts = |(re, im): (f64, f64)| [T::from_f64(re), T::from_f64(im)];
    let mut all = Vec::with_capacity(radices.len());
    for radix in radices.iter().map(|&r| usize::from(r)) {
        let n = rest;
        rest /= radix;
        let [a, b] = cut(radix).unwrap_or_default();
        let first = usize::from(a == 0);
        let powers = (0..rest).flat_map(|p| (first..radix).map(move |k| root(p * k, n)));
        let inner = (0..b).flat_map(|j| (0..a).map(move |k| root(j * k, radix)));
        let odd = if radix % 2 == 1 { radix } else { 0 };
        // Sines of the positive angle.
        let odd = (0..odd).map(|j| root(j, radix)).map(|(cos, sin)| (cos, -sin));
        all.push(Stage {
            radix,
            rest,
            stride,
            roots: powers.flat_map(parts).collect(),
            inner: inner.flat_map(parts).collect(),
            odd: odd.flat_map(parts).collect(),
        });
        stride *= radix;
    }
    all
}

/// A loop that is written out: the compiler keeps sixteen vectors in registers only where no loop is left.
macro_rules! each {
    ($i:ident in $n:ident $body:block) => { each!($i in $n $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    ($i:ident in $n:ident $body:block $($at:literal)*) => {$(
        if $at < $n {
            let $i: usize = $at;
            $body
        }
    )*};
}
pub(super) use each;

/// One stage from rows to rows; `LAST` stages have no roots.
struct Run<'a, T, A, B, const LAST: bool> {
    stage: &'a Stage<T>,
    from: A,
    to: B,
}

impl<T: Number, A: Source<T>, B: Sink<T>, const LAST: bool> RealTask<T> for Run<'_, T, A, B, LAST> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let rest = if LAST { 1 } else { self.stage.rest };
        // SAFETY: `run` is the only one who makes this task, and its caller promised that all rows exist.
        unsafe { part::<T, S, LAST>(s, self.stage, 0..rest, self.from, self.to) };
    }
}

/// The share of a stage that these of `rest` are.
///
/// # Safety
/// As for `run`, of the rows that are read and written here.
#[inline(always)]
pub(super) unsafe fn part<T: Float, S: Lanes<T>, const LAST: bool>(
    s: S,
    stage: &Stage<T>,
    these: Range<usize>,
    from: impl Source<T>,
    to: impl Sink<T>,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match stage.radix {
            2 => known::<T, S, 2, LAST>(s, stage, these, from, to),
            3 => known::<T, S, 3, LAST>(s, stage, these, from, to),
            4 => known::<T, S, 4, LAST>(s, stage, these, from, to),
            5 => known::<T, S, 5, LAST>(s, stage, these, from, to),
            8 if !fit_registers::<T, S>() => eights::<T, S, LAST>(s, stage, these, from, to),
            8 => known::<T, S, 8, LAST>(s, stage, these, from, to),
            16 => sixteens::<T, S, LAST>(s, stage, these, from, to),
            32 => tiled::<T, S, 8, 4, LAST>(s, stage, these, from, to),
            _ => any::<T, S>(s, stage, these, from, to),
        }
    }
}

/// Runs one stage with these instructions.
///
/// Every stage is a function of its own for each instruction set, so that small transforms are compiled once.
///
/// # Safety
/// Source and sink have all rows of the stage's length and are not the same memory.
#[inline]
pub(super) unsafe fn run<T: Number, const LAST: bool>(
    isa: Isa,
    stage: &Stage<T>,
    from: impl Source<T>,
    to: impl Sink<T>,
) {
    T::dispatch(isa, Run::<T, _, _, LAST> { stage, from, to });
}

/// Every fourth of rows that lie so far apart. The others are found from it by adding: a register for each would be too many, and one
/// that is computed from another loop's would be kept in memory.
#[inline(always)]
pub(super) fn fourth<T>(first: *mut T, far: isize, row: usize) -> *mut T {
    settled(first.wrapping_offset(far * row as isize)).cast_mut()
}

/// # Safety
/// As for `run`.
#[inline(always)]
unsafe fn known<T: Float, S: Lanes<T>, const R: usize, const LAST: bool>(
    s: S,
    stage: &Stage<T>,
    these: Range<usize>,
    from: impl Source<T>,
    to: impl Sink<T>,
) {
    let (rest, stride) = (if LAST { 1 } else { stage.rest }, stage.stride);
    let (roots, odd) = (stage.roots.as_ptr(), &stage.odd[..]);
    // Rows are found by adding, because there are more of them than registers to hold their places.
    let (near, far) = (from.apart::<S>(1), from.apart::<S>(stride * rest));
    let (next, step) = (to.apart::<S>(1), to.apart::<S>(stride));
    for p in these {
        let (mut source, mut target) = (from.row::<S>(stride * p), to.row::<S>(stride * R * p));
        for q in 0..stride {
            let zero = s.splat(T::ZERO);
            let mut x = [Pair { re: zero, im: zero }; R];
            let mut at = source;
            each!(j in R {
                if j.is_multiple_of(4) {
                    at = fourth(source, far, j);
                }
                // SAFETY: q < stride, p < rest and j < R name rows below stride · rest · R.
                x[j] = unsafe { from.read(s, at.wrapping_offset(far * (j % 4) as isize)) };
            });
            dft::<T, S, R>(s, &mut x, odd);
            let mut at = target;
            // SAFETY: as above; q is below the stride.
            let held = unsafe { to.hold(s, q) };
            // SAFETY: as above; the table has R − 1 roots for each p, and the first p has none.
            unsafe {
                if LAST || p == 0 {
                    each!(k in R {
                        if k.is_multiple_of(4) {
                            at = fourth(target, step, k);
                        }
                        to.write(s, at.wrapping_offset(step * (k % 4) as isize), held, k, x[k]);
                    });
                } else {
                    let roots = roots.add(2 * (R - 1) * p);
                    each!(k in R {
                        if k.is_multiple_of(4) {
                            at = fourth(target, step, k);
                        }
                        if k > 0 {
                            let (re, im) = (*roots.add(2 * k - 2), *roots.add(2 * k - 1));
                            x[k] = mul(s, x[k], Pair { re: s.splat(re), im: s.splat(im) });
                        }
                        to.write(s, at.wrapping_offset(step * (k % 4) as isize), held, k, x[k]);
                    });
                }
            }
            (source, target) = (source.wrapping_offset(near), target.wrapping_offset(next));
        }
    }
}

/// A radix that is only known at run time.
///
/// # Safety
/// As for `run`.
#[inline(always)]
unsafe fn any<T: Float, S: Lanes<T>>(
    s: S,
    stage: &Stage<T>,
    these: Range<usize>,
    from: impl Source<T>,
    to: impl Sink<T>,
) {
    let Stage { radix, rest, stride, roots, odd, .. } = stage;
    let (radix, rest, stride) = (*radix, *rest, *stride);
    let zero = s.splat(T::ZERO);
    let mut rows = [Pair { re: zero, im: zero }; LARGEST];
    let x = &mut rows[..radix];
    let far = from.apart::<S>(stride * rest);
    for p in these {
        for q in 0..stride {
            let source = from.row::<S>(q + stride * p);
            for (j, x) in x.iter_mut().enumerate() {
                // SAFETY: as in `known`.
                *x = unsafe { from.read(s, source.wrapping_offset(far * j as isize)) };
            }
            dft_any(s, x, odd);
            for (k, &x) in x.iter().enumerate() {
                let at = 2 * ((radix - 1) * p + k);
                let root = if k == 0 { [T::ONE, T::ZERO] } else { [roots[at - 2], roots[at - 1]] };
                let x = mul(s, x, Pair { re: s.splat(root[0]), im: s.splat(root[1]) });
                // SAFETY: as above.
                unsafe { to.write(s, to.row::<S>(q + stride * (radix * p + k)), to.hold(s, q), k, x) };
            }
        }
    }
}

/// All stages but the last, from the source into scratch, going to and fro; gives the rows and the scratch that is free.
///
/// # Safety
/// The source has the rows of all stages; both scratches have room for them and for one more after every 32.
pub(super) unsafe fn all_but_last<T: Number>(
    isa: Isa,
    stages: &[Stage<T>],
    from: impl Source<T>,
    [here, there]: [*mut T; 2],
) -> (Spaced<T>, *mut T) {
    let rows = Spaced::between(stages, here);
    let [first, middle @ .., _] = stages else {
        // A single stage is the last; it finds its rows in scratch like any other.
        let n = stages.first().map_or(1, |stage| stage.radix);
        T::dispatch(isa, Move { n, from, to: rows });
        return (rows, there);
    };
    // SAFETY: the caller's promise.
    unsafe {
        run::<T, false>(isa, first, from, rows);
        between(isa, middle, rows, there)
    }
}

/// The stages between the first and the last.
///
/// # Safety
/// Both scratches have room for the rows.
pub(super) unsafe fn between<T: Number>(
    isa: Isa,
    stages: &[Stage<T>],
    rows: Spaced<T>,
    mut there: *mut T,
) -> (Spaced<T>, *mut T) {
    let mut here = rows.first;
    for stage in stages {
        // SAFETY: the caller's promise; where there are such stages, rows follow each other.
        unsafe { run::<T, false>(isa, stage, Packed(here), Packed(there)) };
        (here, there) = (there, here);
    }
    (rows.at(here), there)
}

/// Rows as they are.
pub(super) struct Move<A, B> {
    pub n: usize,
    pub from: A,
    pub to: B,
}

impl<T: Number, A: Source<T>, B: Sink<T>> RealTask<T> for Move<A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        for row in 0..self.n {
            // SAFETY: this task is made for rows that exist.
            unsafe { self.to.store(s, row, self.from.load(s, row)) };
        }
    }
}
