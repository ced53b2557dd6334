//! Lines side by side: as many as there are lanes are turned so that each has a lane of its own.
#![allow(unsafe_code)]

use super::cpu_convolution::flipped;
use super::cpu_lines::Width;
use super::cpu_rows::{Number, Numbers};
use crate::backends::cpu::real::{RealTask, Vectors};
use crate::backends::cpu::simd::{Lanes, MAX_LANES};

/// Up to LANES lines of `n` numbers, each `apart` elements from the next.
#[derive(Clone, Copy)]
pub(super) struct Lines<T> {
    pub first: Numbers<T>,
    pub apart: isize,
    pub n: usize,
    pub count: usize,
}

impl<T: Number> Lines<T> {
    /// Whether turning blocks of LANES by LANES covers them.
    fn can_turn(&self, lanes: usize) -> bool {
        self.first.stride == 1 && 2 * self.n >= lanes
    }

    /// The blocks, as the place of their first element in a line: the last one goes back over some that are done.
    fn blocks(self, lanes: usize) -> impl Iterator<Item = usize> {
        let elements = 2 * self.n;
        (0..elements).step_by(lanes).map(move |at| at.min(elements - lanes))
    }

    fn line(&self, lane: usize) -> *mut T {
        self.first.first.wrapping_offset(lane as isize * self.apart)
    }

    /// Every number: where it is, and where it is in scratch.
    fn places(self, lanes: usize) -> impl Iterator<Item = (*mut T, usize)> {
        (0..self.count).flat_map(move |lane| {
            let line = Numbers { first: self.line(lane), ..self.first };
            (0..self.n).map(move |row| (line.at(row as isize * line.stride).first, 2 * lanes * row + lane))
        })
    }

    /// Puts the lines into rows of scratch: LANES real parts, then LANES imaginary parts.
    ///
    /// # Safety
    /// The lines are valid, and scratch has room for n rows.
    pub unsafe fn gather(self, width: Width, to: *mut T) {
        let Width { isa, lanes, .. } = width;
        if self.can_turn(lanes) {
            return T::dispatch(isa, Gather { from: self, to });
        }
        // SAFETY: the caller's promise.
        unsafe {
            to.write_bytes(0, 2 * lanes * self.n);
            for (from, at) in self.places(lanes) {
                *to.add(at) = *from;
                *to.add(at + lanes) = flipped(*from.add(1), self.first.sign);
            }
        }
    }

    /// Takes the lines from rows of scratch.
    ///
    /// # Safety
    /// As for `gather`.
    pub unsafe fn scatter(self, width: Width, from: *const T) {
        let Width { isa, lanes, .. } = width;
        if self.can_turn(lanes) {
            return T::dispatch(isa, Scatter { from, to: self });
        }
        let Numbers { scale, sign, .. } = self.first;
        for (to, at) in self.places(lanes) {
            // SAFETY: the caller's promise.
            unsafe {
                *to = *from.add(at) * scale;
                *to.add(1) = flipped(*from.add(at + lanes) * scale, sign);
            }
        }
    }

    /// What real and imaginary parts are multiplied by.
    fn factors<S: Lanes<T>>(&self, s: S, scale: T) -> [S::V; 2] {
        let is_flipped = self.first.sign.to_bits64() != 0;
        [scale, if is_flipped { -scale } else { scale }].map(|factor| s.splat(factor))
    }
}

/// From lines of neighbours to rows of scratch. Lanes without a line have the last one.
struct Gather<T> {
    pub from: Lines<T>,
    pub to: *mut T,
}

/// And back.
struct Scatter<T> {
    pub from: *const T,
    pub to: Lines<T>,
}

impl<T: Number> RealTask<T> for Gather<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let lanes = <S as Lanes<T>>::LANES;
        let factors = self.from.factors::<S>(s, T::ONE);
        let mut block = [Lanes::<T>::splat(s, T::ZERO); MAX_LANES];
        for at in self.from.blocks(lanes) {
            for (lane, row) in block.iter_mut().enumerate().take(lanes) {
                let line = self.from.line(lane.min(self.from.count - 1));
                // SAFETY: the line has LANES elements from there on.
                *row = unsafe { Lanes::<T>::load(s, line.wrapping_add(at)) };
            }
            Lanes::<T>::transpose(s, &mut block);
            for (i, &column) in block.iter().enumerate().take(lanes) {
                // SAFETY: scratch has a vector for each element of a line.
                unsafe {
                    Lanes::<T>::store(
                        s,
                        self.to.add(lanes * (at + i)),
                        Lanes::<T>::mul(s, column, factors[(at + i) % 2]),
                    );
                }
            }
        }
    }
}

impl<T: Number> RealTask<T> for Scatter<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let lanes = <S as Lanes<T>>::LANES;
        let factors = self.to.factors::<S>(s, self.to.first.scale);
        let mut block = [Lanes::<T>::splat(s, T::ZERO); MAX_LANES];
        for at in self.to.blocks(lanes) {
            for (i, column) in block.iter_mut().enumerate().take(lanes) {
                // SAFETY: as in `Gather`.
                *column = unsafe {
                    Lanes::<T>::mul(
                        s,
                        Lanes::<T>::load(s, self.from.add(lanes * (at + i))),
                        factors[(at + i) % 2],
                    )
                };
            }
            Lanes::<T>::transpose(s, &mut block);
            for (lane, &row) in block.iter().enumerate().take(self.to.count) {
                // SAFETY: as in `Gather`.
                unsafe { Lanes::<T>::store(s, self.to.line(lane).wrapping_add(at), row) };
            }
        }
    }
}
