//! Vector norms and variance. Norms are computed in f64, so that squares of f32 neither overflow nor vanish.

use std::marker::PhantomData;

use super::cpu_fold::{Fold, LargestAbs, fold_block, striped};
use super::cpu_moments::{Moments, moments_of_block};
use super::cpu_stored::Compute;
use super::sums::Twice;
use crate::backends::cpu::simd::{Float, Simd};

/// A real type that norms and variances are computed from.
pub(super) trait Measure: Compute {
    fn wide(self) -> f64;
    fn narrow(wide: f64) -> Self;
    /// The largest magnitude of a block; NaN if there is one.
    fn largest<S: Simd>(s: S, x: &[Self]) -> f64;
    fn moments<S: Simd>(s: S, x: &[Self]) -> Moments;
}

macro_rules! measures {
    ($($t:ty),*) => {$(
        impl Measure for $t {
            #[inline(always)]
            fn wide(self) -> f64 {
                self.to_f64()
            }
            #[inline(always)]
            fn narrow(wide: f64) -> $t {
                <$t as Float>::from_f64(wide)
            }
            #[inline(always)]
            fn largest<S: Simd>(s: S, x: &[Self]) -> f64 {
                fold_block(s, LargestAbs, x).to_f64()
            }
            #[inline(always)]
            fn moments<S: Simd>(s: S, x: &[Self]) -> Moments {
                moments_of_block(s, x)
            }
        }
    )*};
}
measures!(f32, f64);

/// The norms that are a sum over elements and a function of it.
pub(super) trait PowerSum: Copy + Send + Sync {
    fn term(self, x: f64) -> f64;
    fn root(self, sum: f64) -> f64;
}

/// Σ |x|
#[derive(Clone, Copy)]
pub(super) struct Taxicab;
/// √ Σ |x|²
#[derive(Clone, Copy)]
pub(super) struct Euclid;
/// Any order by its exponent: 0 counts what is not zero.
#[derive(Clone, Copy)]
pub(super) struct Power(pub f64);

impl PowerSum for Taxicab {
    #[inline(always)]
    fn term(self, x: f64) -> f64 {
        x.abs()
    }
    #[inline(always)]
    fn root(self, sum: f64) -> f64 {
        sum
    }
}

impl PowerSum for Euclid {
    #[inline(always)]
    fn term(self, x: f64) -> f64 {
        x * x
    }
    #[inline(always)]
    fn root(self, sum: f64) -> f64 {
        sum.sqrt()
    }
}

impl PowerSum for Power {
    #[inline(always)]
    fn term(self, x: f64) -> f64 {
        match self.0 {
            0.0 => f64::from(x != 0.0),
            1.0 => x.abs(),
            2.0 => x * x,
            p => x.abs().powf(p),
        }
    }
    #[inline(always)]
    fn root(self, sum: f64) -> f64 {
        match self.0 {
            0.0 | 1.0 => sum,
            2.0 => sum.sqrt(),
            p => sum.powf(1.0 / p),
        }
    }
}

/// A norm by a sum.
#[derive(Clone, Copy)]
pub(super) struct SumNorm<T, P>(pub P, pub PhantomData<T>);

impl<T: Measure, P: PowerSum> Fold for SumNorm<T, P> {
    type In = T;
    type Lane = f64;
    type Total = Twice;
    type Out = T;

    #[inline(always)]
    fn lane(self) -> f64 {
        0.0
    }
    #[inline(always)]
    fn step(self, lane: f64, x: T, _: usize) -> f64 {
        lane + self.0.term(x.wide())
    }
    #[inline(always)]
    fn total(self) -> Twice {
        Twice::default()
    }
    #[inline(always)]
    fn absorb(self, total: Twice, lane: f64) -> Twice {
        total.add(lane)
    }
    #[inline(always)]
    fn merge(self, a: Twice, b: Twice) -> Twice {
        a.merge(b)
    }
    #[inline(always)]
    fn finish(self, total: Twice, _: usize) -> T {
        T::narrow(self.0.root(total.value()))
    }
    #[inline(always)]
    fn block<S: Simd>(self, _: S, x: &[T], _: usize, _: Twice) -> f64 {
        striped::<_, _, 16>(0.0, x, |lane, x| lane + self.0.term(x.wide()), |a, b| a + b)
    }
}

/// The largest magnitude (`MAX`) or the smallest.
#[derive(Clone, Copy)]
pub(super) struct ExtremeNorm<T, const MAX: bool>(pub PhantomData<T>);

impl<T: Measure, const MAX: bool> Fold for ExtremeNorm<T, MAX> {
    type In = T;
    type Lane = f64;
    type Total = f64;
    type Out = T;

    #[inline(always)]
    fn lane(self) -> f64 {
        if MAX { 0.0 } else { f64::INFINITY }
    }
    #[inline(always)]
    fn step(self, lane: f64, x: T, _: usize) -> f64 {
        self.merge(lane, x.wide().abs())
    }
    #[inline(always)]
    fn total(self) -> f64 {
        self.lane()
    }
    #[inline(always)]
    fn absorb(self, total: f64, lane: f64) -> f64 {
        self.merge(total, lane)
    }
    #[inline(always)]
    fn merge(self, a: f64, b: f64) -> f64 {
        let further = if MAX { b > a } else { b < a };
        // A NaN on the left stays: nothing compares with it.
        if further | b.is_nan() { b } else { a }
    }
    #[inline(always)]
    fn finish(self, total: f64, _: usize) -> T {
        T::narrow(total)
    }
    #[inline(always)]
    fn block<S: Simd>(self, s: S, x: &[T], at: usize, _: f64) -> f64 {
        if MAX { T::largest(s, x) } else { x.iter().fold(self.lane(), |lane, &x| self.step(lane, x, at)) }
    }
}

/// Σ (x − mean)² / (n − correction)
#[derive(Clone, Copy)]
pub(super) struct Variance<T> {
    pub correction: u32,
    pub element: PhantomData<T>,
}

impl<T: Measure> Fold for Variance<T> {
    type In = T;
    type Lane = Moments;
    type Total = Moments;
    type Out = T;

    #[inline(always)]
    fn lane(self) -> Moments {
        Moments::default()
    }
    #[inline(always)]
    fn step(self, lane: Moments, x: T, _: usize) -> Moments {
        lane.with(x.wide())
    }
    #[inline(always)]
    fn total(self) -> Moments {
        Moments::default()
    }
    #[inline(always)]
    fn absorb(self, total: Moments, lane: Moments) -> Moments {
        total.merge(lane)
    }
    #[inline(always)]
    fn merge(self, a: Moments, b: Moments) -> Moments {
        a.merge(b)
    }
    #[inline(always)]
    fn finish(self, total: Moments, n: usize) -> T {
        // As NumPy: 0 / 0 is not a number, anything else over 0 is infinite.
        let freedom = n.saturating_sub(self.correction as usize);
        T::narrow(if n == 0 { f64::NAN } else { total.squares / freedom as f64 })
    }
    #[inline(always)]
    fn block<S: Simd>(self, s: S, x: &[T], _: usize, _: Moments) -> Moments {
        if x.is_empty() { Moments::default() } else { T::moments(s, x) }
    }
}
