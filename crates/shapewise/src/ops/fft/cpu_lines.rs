//! Transforms of lines by a plan: tables that are made once, and the passes over memory.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;

use super::cpu_along::Along;
use super::cpu_columns::{packed, spaced};
use super::cpu_convolution::Convolution;
use super::cpu_four_step::FourStep;
use super::cpu_rows::{Number, Numbers};
use super::cpu_stages::{Stage, stages};
use super::cpu_turned::Lines;
use super::plan::Plan;
use crate::backends::cpu::real::{RealTask, Vectors};
use crate::backends::cpu::simd::{Float, Isa, Lanes, MAX_LANES};

/// A plan with its tables, for vectors of one width.
pub(super) enum Line<T> {
    Across(Vec<Stage<T>>),
    Along(Along<T>),
    FourStep(FourStep<T>),
    Convolution(Convolution<T>),
}

/// An instruction set's vectors: how many lanes, and which of as many neighbours each lane holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Width {
    pub isa: Isa,
    pub lanes: usize,
    order: [u8; MAX_LANES],
}

/// Asks the vectors themselves.
struct AskWidth(Isa);

impl<T: Number> RealTask<T> for AskWidth {
    type Output = Width;

    #[inline(always)]
    fn run<S: Vectors<T>>(self, _: S) -> Width {
        Width { isa: self.0, lanes: <S as Lanes<T>>::LANES, order: <S as Lanes<T>>::ORDER }
    }
}

impl Width {
    pub fn of<T: Number>(isa: Isa) -> Self {
        T::dispatch(isa, AskWidth(isa))
    }

    /// A vector of numbers, each in the lane of its neighbour.
    pub fn vector<T: Float>(&self, number: impl Fn(usize) -> (f64, f64)) -> Vec<T> {
        // Asked for once: to find a root takes longer than all else that is done with it.
        let lanes = &self.order[..self.lanes];
        let numbers: ArrayVec<(f64, f64), MAX_LANES> = lanes.iter().map(|&i| number(i.into())).collect();
        let real = numbers.iter().map(|number| T::from_f64(number.0));
        real.chain(numbers.iter().map(|number| T::from_f64(number.1))).collect()
    }
}

impl<T: Number> Line<T> {
    pub fn new(n: usize, plan: &Plan, width: Width) -> Self {
        match plan {
            Plan::Across(radices) => Self::Across(stages(&radices.0)),
            Plan::Along(radices) => Self::Along(Along::new(radices, width)),
            Plan::FourStep(a, b) => Self::FourStep(FourStep::new(a, b, width)),
            Plan::Bluestein(..) | Plan::Rader(_) => Self::Convolution(Convolution::new(n, plan, width)),
        }
    }

    /// Numbers of `T` that one line, or as many as there are lanes, need as scratch.
    pub fn scratch(&self, width: Width, n: usize) -> usize {
        match self {
            Self::Across(_) => 4 * width.lanes * spaced(n),
            Self::Along(line) => line.scratch(),
            Self::FourStep(line) => line.middle() + line.scratch(),
            Self::Convolution(line) => line.scratch(),
        }
    }

    /// Transforms one line; `x` may be `y`. Plans along memory take the numbers to be neighbours, and may ask for those at `next`.
    ///
    /// # Safety
    /// Both lines are valid, and the scratch has room for `self.scratch()` numbers.
    pub unsafe fn transform(
        &self,
        width: Width,
        n: usize,
        [x, y]: [Numbers<T>; 2],
        next: *const T,
        scratch: *mut T,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Across(_) => self.gathered(width, n, [x, y], [0, 0], 1, scratch),
                Self::Along(line) => line.transform(&x, &y, next, scratch),
                Self::FourStep(line) => line.transform(x, y, scratch),
                Self::Convolution(line) => line.transform(x, y, scratch),
            }
        }
    }

    /// Transforms `count` lines, one in each lane, whose numbers lie anywhere: lanes are `apart` numbers in input and output.
    ///
    /// # Safety
    /// As for `transform`.
    pub unsafe fn gathered(
        &self,
        width: Width,
        n: usize,
        [x, y]: [Numbers<T>; 2],
        apart: [isize; 2],
        count: usize,
        scratch: *mut T,
    ) {
        let Self::Across(stages) = self else { return };
        let side = |first, apart: isize| Lines { first, apart: 2 * apart, n, count };
        // SAFETY: the caller's promise.
        unsafe {
            side(x, apart[0]).gather(width, scratch);
            let rows = packed(width, stages, n, scratch);
            side(y, apart[1]).scatter(width, rows);
        }
    }
}
