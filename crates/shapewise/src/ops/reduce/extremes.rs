//! Maximum, minimum, where they are, and whether any or all elements are true.

// Both sides of `|` and `&` are cheap here, and without a branch the loops become vectors.
#![allow(clippy::needless_bitwise_bool)]

use std::marker::PhantomData;

use super::cpu_fold::{Fold, Largest, Smallest, fold_block, fold_quad};
use super::cpu_stored::Compute;
use crate::backends::cpu::simd::Simd;

/// An element with an order. `MAX` asks for the largest, otherwise the smallest wins.
pub(super) trait Ordered: Compute + PartialOrd {
    /// What every element beats or equals.
    fn worst<const MAX: bool>() -> Self;
    fn is_nan(self) -> bool;
    fn best<S: Simd, const MAX: bool>(s: S, x: &[Self]) -> Self;
    #[inline(always)]
    fn best_of_four<S: Simd, const MAX: bool>(s: S, x: [&[Self]; 4]) -> [Self; 4] {
        x.map(|x| Self::best::<S, MAX>(s, x))
    }

    /// Whether `self` is strictly further out than `other`; NaN is further out than any number.
    #[inline(always)]
    fn beats<const MAX: bool>(self, other: Self) -> bool {
        let further = if MAX { self > other } else { self < other };
        further | (self.is_nan() & !other.is_nan())
    }
    /// The one further out.
    #[inline(always)]
    fn better<const MAX: bool>(self, other: Self) -> Self {
        if other.beats::<MAX>(self) { other } else { self }
    }
}

macro_rules! ordered_real {
    ($($t:ty => $infinity:expr),*) => {$(
        impl Ordered for $t {
            #[inline(always)]
            fn worst<const MAX: bool>() -> Self {
                if MAX { -$infinity } else { $infinity }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
            #[inline(always)]
            fn best<S: Simd, const MAX: bool>(s: S, x: &[Self]) -> Self {
                if MAX { fold_block(s, Largest, x) } else { fold_block(s, Smallest, x) }
            }
            #[inline(always)]
            fn best_of_four<S: Simd, const MAX: bool>(s: S, x: [&[Self]; 4]) -> [Self; 4] {
                if MAX { fold_quad(s, Largest, x) } else { fold_quad(s, Smallest, x) }
            }
        }
    )*};
}
ordered_real!(f32 => f32::INFINITY, f64 => f64::INFINITY);

impl Ordered for i64 {
    #[inline(always)]
    fn worst<const MAX: bool>() -> Self {
        if MAX { i64::MIN } else { i64::MAX }
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
    #[inline(always)]
    fn best<S: Simd, const MAX: bool>(_: S, x: &[Self]) -> Self {
        let worst = Self::worst::<MAX>();
        if MAX { x.iter().fold(worst, |a, &x| a.max(x)) } else { x.iter().fold(worst, |a, &x| a.min(x)) }
    }
}

/// The largest or smallest element.
#[derive(Clone, Copy)]
pub(super) struct Extreme<T, const MAX: bool>(pub PhantomData<T>);

impl<T: Ordered, const MAX: bool> Fold for Extreme<T, MAX> {
    type In = T;
    type Lane = T;
    type Total = T;
    type Out = T;

    #[inline(always)]
    fn lane(self) -> T {
        T::worst::<MAX>()
    }
    #[inline(always)]
    fn step(self, lane: T, x: T, _: usize) -> T {
        let further = if MAX { x > lane } else { x < lane };
        // A lane that is NaN stays: nothing compares with it.
        if further | x.is_nan() { x } else { lane }
    }
    #[inline(always)]
    fn total(self) -> T {
        T::worst::<MAX>()
    }
    #[inline(always)]
    fn absorb(self, total: T, lane: T) -> T {
        total.better::<MAX>(lane)
    }
    #[inline(always)]
    fn merge(self, a: T, b: T) -> T {
        a.better::<MAX>(b)
    }
    #[inline(always)]
    fn finish(self, total: T, _: usize) -> T {
        total
    }
    #[inline(always)]
    fn block<S: Simd>(self, s: S, x: &[T], _: usize, _: T) -> T {
        T::best::<S, MAX>(s, x)
    }
    #[inline(always)]
    fn quad<S: Simd>(self, s: S, x: [&[T]; 4], _: [usize; 4], _: [T; 4]) -> [T; 4] {
        T::best_of_four::<S, MAX>(s, x)
    }
}

/// A value and its place among the reduced elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<T> {
    value: T,
    at: usize,
}

impl<T: Ordered> Place<T> {
    #[inline(always)]
    fn better<const MAX: bool>(self, other: Self) -> Self {
        let tie = (self.value == other.value) | (self.value.is_nan() & other.value.is_nan());
        if other.value.beats::<MAX>(self.value) | (tie & (other.at < self.at)) { other } else { self }
    }
}

/// Where the largest or smallest element is: the first of equals, and the first NaN before any number.
#[derive(Clone, Copy)]
pub(super) struct ArgExtreme<T, const MAX: bool>(pub PhantomData<T>);

impl<T: Ordered, const MAX: bool> ArgExtreme<T, MAX> {
    /// The place in a block whose best value is known; nothing if it does not beat what there is.
    #[inline(always)]
    fn locate(self, best: T, x: &[T], at: usize, so_far: Place<T>) -> Place<T> {
        if so_far.at != usize::MAX && !best.beats::<MAX>(so_far.value) {
            return self.lane();
        }
        let found = x.iter().position(|&x| x == best || (best.is_nan() && x.is_nan()));
        found.map_or(self.lane(), |i| Place { value: best, at: at + i })
    }
}

impl<T: Ordered, const MAX: bool> Fold for ArgExtreme<T, MAX> {
    type In = T;
    type Lane = Place<T>;
    type Total = Place<T>;
    type Out = i64;

    #[inline(always)]
    fn lane(self) -> Place<T> {
        Place { value: T::worst::<MAX>(), at: usize::MAX }
    }
    #[inline(always)]
    fn step(self, lane: Place<T>, x: T, at: usize) -> Place<T> {
        lane.better::<MAX>(Place { value: x, at })
    }
    #[inline(always)]
    fn total(self) -> Place<T> {
        self.lane()
    }
    #[inline(always)]
    fn absorb(self, total: Place<T>, lane: Place<T>) -> Place<T> {
        total.better::<MAX>(lane)
    }
    #[inline(always)]
    fn merge(self, a: Place<T>, b: Place<T>) -> Place<T> {
        a.better::<MAX>(b)
    }
    #[inline(always)]
    fn finish(self, total: Place<T>, _: usize) -> i64 {
        total.at as i64
    }
    #[inline(always)]
    fn block<S: Simd>(self, s: S, x: &[T], at: usize, so_far: Place<T>) -> Place<T> {
        self.locate(T::best::<S, MAX>(s, x), x, at, so_far)
    }
    #[inline(always)]
    fn quad<S: Simd>(self, s: S, x: [&[T]; 4], at: [usize; 4], so_far: [Place<T>; 4]) -> [Place<T>; 4] {
        let best = T::best_of_four::<S, MAX>(s, x);
        [0, 1, 2, 3].map(|k| self.locate(best[k], x[k], at[k], so_far[k]))
    }
}

/// Whether any element is true, or every one.
#[derive(Clone, Copy)]
pub(super) struct Quantified {
    pub any: bool,
}

impl Fold for Quantified {
    type In = bool;
    /// Whether an element was met that decides the answer.
    type Lane = bool;
    type Total = bool;
    type Out = bool;

    #[inline(always)]
    fn lane(self) -> bool {
        false
    }
    #[inline(always)]
    fn step(self, decided: bool, x: bool, _: usize) -> bool {
        decided | (x == self.any)
    }
    #[inline(always)]
    fn total(self) -> bool {
        false
    }
    #[inline(always)]
    fn absorb(self, a: bool, b: bool) -> bool {
        a | b
    }
    #[inline(always)]
    fn merge(self, a: bool, b: bool) -> bool {
        a | b
    }
    #[inline(always)]
    fn finish(self, decided: bool, _: usize) -> bool {
        decided == self.any
    }
    #[inline(always)]
    fn block<S: Simd>(self, _: S, x: &[bool], _: usize, decided: bool) -> bool {
        decided || x.iter().fold(false, |decided, &x| decided | (x == self.any))
    }
}
