//! Lines whose vectors hold neighbouring numbers: stages of rows, and the lanes last.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use super::cpu_eights::fit_registers;
use super::cpu_lines::Width;
use super::cpu_radix::{Pair, dft2, dft4, dft8, four, four_turned};
use super::cpu_rows::{Expecting, Number, Numbers, Packed, Past, Plain, Rooted, Sink, Source};
use super::cpu_sixteens::{first_fours, last_four};
use super::cpu_stages::{Stage, all_but_last, run, stages};
use super::plan::Radices;
use super::roots::{Table, root};
use crate::backends::cpu::ALIGNMENT;
use crate::backends::cpu::real::{RealTask, Vectors, align_spills};
use crate::backends::cpu::simd::{Float, Lanes, MAX_LANES};

/// Numbers between two scratches, so that rows of both do not fall on the same lines of the first cache.
pub(super) const PAD: usize = 16 * 9;

/// Bytes from an address to the next that shares its lines of the first cache.
pub(super) const PAGE: usize = 4096;

/// Neighbouring numbers in a vector.
pub(super) struct Along<T> {
    width: Width,
    stages: Vec<Stage<T>>,
    rows: usize,
    /// For each row a vector of roots, by which its lanes are multiplied before they are transformed.
    roots: Table<T>,
}

impl<T: Number> Along<T> {
    pub fn new(radices: &Radices, width: Width) -> Self {
        let rows = radices.len();
        let n = rows * width.lanes;
        let roots: Vec<T> = (0..rows).flat_map(|row| width.vector(|lane| root(row * lane, n))).collect();
        Self { width, stages: stages(&radices.0), rows, roots: Table::new(&roots) }
    }

    /// Numbers of `T` in all rows.
    fn numbers(&self) -> usize {
        2 * self.width.lanes * self.rows
    }

    /// Numbers of `T` that a transform needs as scratch.
    pub fn scratch(&self) -> usize {
        self.numbers() + (self.numbers() + PAD).max(PAGE / size_of::<T>())
    }

    /// The last stage. The line at `next`, if any, is asked for as rows are written: it arrives while their lanes are transformed, and
    /// the loads of the first stage would be in its way.
    ///
    /// # Safety
    /// The source has all rows, and `to` has room for them.
    #[inline(always)]
    unsafe fn last(&self, from: impl Source<T>, to: *mut T, next: *const T) {
        let (isa, Some(stage)) = (self.width.isa, self.stages.last()) else { return };
        let rooted = Rooted { first: to, roots: self.roots.as_ptr() };
        // SAFETY: the caller's promise.
        unsafe {
            if next.is_null() {
                run::<T, true>(isa, stage, from, rooted);
            } else {
                let apart = next.addr().wrapping_sub(to.addr()) as isize / size_of::<T>() as isize;
                run::<T, true>(isa, stage, from, Expecting(rooted, apart));
            }
        }
    }

    /// All stages, from where numbers lie as they are or conjugate; the last one writes to the first of these places.
    ///
    /// # Safety
    /// As for `transform`; both places have room for all rows.
    #[inline(always)]
    unsafe fn stages(&self, from: impl Source<T>, next: *const T, [last, other]: [*mut T; 2]) {
        let odd = self.stages.len() % 2 == 1;
        // SAFETY: the caller's promise.
        unsafe {
            if self.stages.len() == 1 {
                return self.last(from, last, next);
            }
            let places = if odd { [last, other] } else { [other, last] };
            let (rows, there) = all_but_last(self.width.isa, &self.stages, from, places);
            self.last(rows, there, next);
        }
    }

    /// Transforms one line of neighbours; `x` may be `y`. The line at `next`, if any, is asked for meanwhile.
    ///
    /// # Safety
    /// Both lines are valid, and the scratch has room for `self.scratch()` numbers.
    pub unsafe fn transform(&self, x: &Numbers<T>, y: &Numbers<T>, next: *const T, scratch: *mut T) {
        let Width { isa, lanes, .. } = self.width;
        let (rows, stride) = (self.rows, lanes as isize);
        // Past the caches only whole registers go, each to a multiple of its size.
        let streams = y.streams() && rows.is_multiple_of(lanes);
        // SAFETY: the caller's promise.
        unsafe {
            // An aligned output is one of the two places that rows go to and fro between, so that all fit a nearer cache; the last rows
            // are in scratch, from where their lanes are written.
            let lent = x.first != y.first && !streams && y.first.addr().is_multiple_of(ALIGNMENT);
            let (from, other) = if lent {
                (half_a_page_from(y.first, scratch), y.first)
            } else {
                (scratch, scratch.add(self.numbers() + PAD))
            };
            if x.sign.to_bits64() == 0 {
                self.stages(Plain { first: x.first, stride }, next, [from, other]);
            } else {
                self.stages(Numbers { stride, ..*x }, next, [from, other]);
            }
            let to = Numbers { stride: rows as isize, ..*y };
            if streams {
                T::dispatch(isa, Finish { rows, from, to: Past(to) });
            } else if y.is_plain() {
                T::dispatch(isa, Finish { rows, from, to: Plain::of(&to) });
            } else {
                T::dispatch(isa, Finish { rows, from, to });
            }
        }
    }
}

/// The first place from `scratch` on that is half a page away from the rows at `other`: stages read rows that are a page apart and write
/// others, and where both fall on the same few lines of the first cache a line of 4096 points takes half as long again.
fn half_a_page_from<T>(other: *const T, scratch: *mut T) -> *mut T {
    scratch.wrapping_byte_add((other.addr() + PAGE / 2).wrapping_sub(scratch.addr()) % PAGE)
}

/// The lanes of all rows: turned so that each becomes a row, transformed and written.
struct Finish<T, B> {
    rows: usize,
    from: *mut T,
    to: B,
}

impl<T: Number, B: Sink<T>> RealTask<T> for Finish<T, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let lanes = <S as Lanes<T>>::LANES;
        align_spills::<<S as Lanes<T>>::V>();
        for row in (0..self.rows).step_by(lanes) {
            // The last group goes back over rows that are done rather than be shorter.
            let row = row.min(self.rows - lanes);
            if lanes == 8 && !fit_registers::<T, S>() {
                self.eight(s, row);
            } else {
                self.group(s, row);
            }
        }
    }
}

impl<T: Number, B: Sink<T>> Finish<T, B> {
    #[inline(always)]
    fn group<S: Lanes<T>>(&self, s: S, row: usize) {
        let zero = s.splat(T::ZERO);
        let (mut re, mut im) = ([zero; MAX_LANES], [zero; MAX_LANES]);
        let mut x = [Pair { re: zero, im: zero }; MAX_LANES];
        // SAFETY: scratch has LANES rows from `row` on, real and imaginary vectors by turns.
        unsafe {
            let from = self.from.add(2 * S::LANES * row);
            s.load_turned(from, 2 * S::LANES, &mut re);
            s.load_turned(from.add(S::LANES), 2 * S::LANES, &mut im);
        }
        for i in 0..S::LANES {
            x[usize::from(S::ORDER[i])] = Pair { re: re[i], im: im[i] };
        }
        if S::LANES == 16 {
            return self.sixteen(s, row, &mut x);
        }
        dft_lanes(s, &mut x);
        for (k, &x) in x.iter().take(S::LANES).enumerate() {
            // SAFETY: the line has LANES · rows numbers.
            unsafe { self.to.write(s, self.to.row::<S>(k).wrapping_add(2 * row), x, k, x) };
        }
    }

    /// The transform of sixteen lanes: results are written as soon as they are there.
    #[inline(always)]
    fn sixteen<S: Lanes<T>>(&self, s: S, row: usize, x: &mut [Pair<S::V>; MAX_LANES]) {
        first_fours(s, x);
        macro_rules! last {
            ($($k:literal)*) => {$(
                let y = last_four::<T, S, $k>(s, [x[4 * $k], x[4 * $k + 1], x[4 * $k + 2], x[4 * $k + 3]]);
                for (i, &y) in y.iter().enumerate() {
                    let k = $k + 4 * i;
                    // SAFETY: the line has sixteen times as many numbers as there are rows.
                    unsafe { self.to.write(s, self.to.row::<S>(k).wrapping_add(2 * row), y, k, y) };
                }
            )*};
        }
        last!(0 1 2 3);
    }

    /// The same for eight lanes in sixteen registers: the even results first, while differences of the lanes are kept for the odd ones.
    #[inline(always)]
    fn eight<S: Lanes<T>>(&self, s: S, row: usize) {
        let zero = s.splat(T::ZERO);
        let mut kept = MaybeUninit::<[Pair<S::V>; 4]>::uninit();
        let kept = kept.as_mut_ptr().cast::<T>();
        let mut x = [Pair { re: zero, im: zero }; 4];
        // SAFETY: scratch has eight rows from `row` on, real and imaginary vectors by turns; four pairs are kept.
        unsafe {
            for part in 0..2 {
                let (mut turned, mut lanes) = ([zero; MAX_LANES], [zero; MAX_LANES]);
                s.load_turned(self.from.add(16 * row + 8 * part), 16, &mut turned);
                for i in 0..8 {
                    lanes[usize::from(S::ORDER[i])] = turned[i];
                }
                for i in 0..4 {
                    let sum = s.add(lanes[i], lanes[i + 4]);
                    *(if part == 0 { &mut x[i].re } else { &mut x[i].im }) = sum;
                    s.store(kept.add(16 * i + 8 * part), s.sub(lanes[i], lanes[i + 4]));
                }
            }
            self.write(s, row, 0, four(s, x));
            for (i, x) in x.iter_mut().enumerate() {
                *x = Packed(kept).load(s, i);
            }
            self.write(s, row, 1, four_turned(s, x));
        }
    }

    /// Every other result, from the first or the second on.
    ///
    /// # Safety
    /// The line has eight times as many numbers as there are rows.
    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(&self, s: S, row: usize, first: usize, x: [Pair<S::V>; 4]) {
        for (i, &x) in x.iter().enumerate() {
            let k = 2 * i + first;
            // SAFETY: the caller's promise.
            unsafe { self.to.write(s, self.to.row::<S>(k).wrapping_add(2 * row), x, k, x) };
        }
    }
}

/// The transform of as many vectors as they have lanes, up to eight.
#[inline(always)]
fn dft_lanes<T: Float, S: Lanes<T>>(s: S, x: &mut [Pair<S::V>; MAX_LANES]) {
    match S::LANES {
        2 => dft2(s, x),
        4 => dft4(s, x),
        _ => dft8(s, x),
    }
}
