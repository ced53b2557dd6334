//! Short lines side by side: as many as there are lanes are turned so that each has a lane of its own.
#![allow(unsafe_code)]

use super::cpu_rows::{Number, Numbers};
use crate::backends::cpu::real::{RealTask, Vectors};
use crate::backends::cpu::simd::{Lanes, MAX_LANES};

/// LANES lines of `n` neighbouring numbers, each `apart` numbers from the next.
#[derive(Clone, Copy)]
pub(super) struct Lines<T> {
    pub first: Numbers<T>,
    pub apart: isize,
    pub n: usize,
}

impl<T: Number> Lines<T> {
    /// Whether turning blocks of LANES by LANES covers them.
    pub fn can_turn(&self, lanes: usize) -> bool {
        self.first.stride == 1 && 2 * self.n >= lanes
    }

    /// The blocks, as the place of their first element in a line: the last one goes back over some that are done.
    fn blocks(self, lanes: usize) -> impl Iterator<Item = usize> {
        let elements = 2 * self.n;
        (0..elements).step_by(lanes).map(move |at| at.min(elements - lanes))
    }

    fn line(&self, lane: usize) -> *mut T {
        self.first.first.wrapping_offset(2 * lane as isize * self.apart)
    }

    /// What real and imaginary parts are multiplied by.
    fn factors<S: Lanes<T>>(&self, s: S, scale: T) -> [S::V; 2] {
        let is_flipped = self.first.sign.to_bits64() != 0;
        [scale, if is_flipped { -scale } else { scale }].map(|factor| s.splat(factor))
    }
}

/// From lines to rows of scratch: LANES real parts, then LANES imaginary parts.
pub(super) struct Gather<T> {
    pub from: Lines<T>,
    pub to: *mut T,
}

/// And back.
pub(super) struct Scatter<T> {
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
                // SAFETY: the line has LANES elements from there on.
                *row = unsafe { Lanes::<T>::load(s, self.from.line(lane).wrapping_add(at)) };
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
            for (lane, &row) in block.iter().enumerate().take(lanes) {
                // SAFETY: as in `Gather`.
                unsafe { Lanes::<T>::store(s, self.to.line(lane).wrapping_add(at), row) };
            }
        }
    }
}
