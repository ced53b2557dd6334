//! Sum, mean and product.

use std::marker::PhantomData;

use num_complex::Complex;

use super::cpu_fold::{Add, Fold, add_rows, fold_block, fold_quad, striped};
use super::cpu_stored::Compute;
use crate::backends::cpu::simd::Simd;

/// A number and what rounding has cut off from it: the compensated sum of Neumaier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Twice {
    sum: f64,
    low: f64,
}

impl Twice {
    #[inline(always)]
    pub fn add(self, x: f64) -> Self {
        let sum = self.sum + x;
        let cut = if self.sum.abs() >= x.abs() { (self.sum - sum) + x } else { (x - sum) + self.sum };
        Self { sum, low: self.low + cut }
    }
    #[inline(always)]
    pub fn merge(self, other: Self) -> Self {
        let both = self.add(other.sum);
        Self { low: both.low + other.low, ..both }
    }
    #[inline(always)]
    pub fn value(self) -> f64 {
        // What was cut off from an infinity is not a number.
        if self.sum.is_finite() { self.sum + self.low } else { self.sum }
    }
}

/// A type that sums are computed in.
pub(super) trait Summand: Compute {
    type Total: Copy + Send + Sync;
    /// Whether [`four`](Summand::four) is written in vectors.
    const WIDE: bool = false;

    fn add(self, x: Self) -> Self;
    fn total() -> Self::Total;
    fn absorb(total: Self::Total, lane: Self) -> Self::Total;
    fn merge(a: Self::Total, b: Self::Total) -> Self::Total;
    /// The total over `divisor`.
    fn finish(total: Self::Total, divisor: usize) -> Self;
    fn block<S: Simd>(s: S, x: &[Self]) -> Self;
    #[inline(always)]
    fn quad<S: Simd>(s: S, x: [&[Self]; 4]) -> [Self; 4] {
        x.map(|x| Self::block(s, x))
    }
    /// Adds an element of each of four rows to every lane.
    #[inline(always)]
    fn four<S: Simd>(_: S, lanes: &mut [Self], rows: [&[Self]; 4]) {
        let [a, b, c, d] = rows.map(|row| &row[..lanes.len()]);
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane = lane.add(a[i]).add(b[i]).add(c[i]).add(d[i]);
        }
    }
}

impl Summand for f32 {
    type Total = f64;
    const WIDE: bool = true;

    #[inline(always)]
    fn add(self, x: Self) -> f32 {
        self + x
    }
    #[inline(always)]
    fn total() -> f64 {
        0.0
    }
    #[inline(always)]
    fn absorb(total: f64, lane: f32) -> f64 {
        total + f64::from(lane)
    }
    #[inline(always)]
    fn merge(a: f64, b: f64) -> f64 {
        a + b
    }
    #[inline(always)]
    fn finish(total: f64, divisor: usize) -> f32 {
        (total / divisor as f64) as f32
    }
    #[inline(always)]
    fn block<S: Simd>(s: S, x: &[Self]) -> f32 {
        fold_block(s, Add, x)
    }
    #[inline(always)]
    fn quad<S: Simd>(s: S, x: [&[Self]; 4]) -> [f32; 4] {
        fold_quad(s, Add, x)
    }
    #[inline(always)]
    fn four<S: Simd>(s: S, lanes: &mut [Self], rows: [&[Self]; 4]) {
        add_rows(s, lanes, rows);
    }
}

impl Summand for f64 {
    type Total = Twice;
    const WIDE: bool = true;

    #[inline(always)]
    fn add(self, x: Self) -> f64 {
        self + x
    }
    #[inline(always)]
    fn total() -> Twice {
        Twice::default()
    }
    #[inline(always)]
    fn absorb(total: Twice, lane: f64) -> Twice {
        total.add(lane)
    }
    #[inline(always)]
    fn merge(a: Twice, b: Twice) -> Twice {
        a.merge(b)
    }
    #[inline(always)]
    fn finish(total: Twice, divisor: usize) -> f64 {
        total.value() / divisor as f64
    }
    #[inline(always)]
    fn block<S: Simd>(s: S, x: &[Self]) -> f64 {
        fold_block(s, Add, x)
    }
    #[inline(always)]
    fn quad<S: Simd>(s: S, x: [&[Self]; 4]) -> [f64; 4] {
        fold_quad(s, Add, x)
    }
    #[inline(always)]
    fn four<S: Simd>(s: S, lanes: &mut [Self], rows: [&[Self]; 4]) {
        add_rows(s, lanes, rows);
    }
}

/// Wraps; only sums, the mean of integers is computed in f64.
impl Summand for i64 {
    type Total = i64;

    #[inline(always)]
    fn add(self, x: Self) -> i64 {
        self.wrapping_add(x)
    }
    #[inline(always)]
    fn total() -> i64 {
        0
    }
    #[inline(always)]
    fn absorb(total: i64, lane: i64) -> i64 {
        total.wrapping_add(lane)
    }
    #[inline(always)]
    fn merge(a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn finish(total: i64, _: usize) -> i64 {
        total
    }
    #[inline(always)]
    fn block<S: Simd>(_: S, x: &[Self]) -> i64 {
        x.iter().fold(0, |lane: i64, &x| lane.wrapping_add(x))
    }
}

impl Summand for Complex<f64> {
    type Total = (Twice, Twice);

    #[inline(always)]
    fn add(self, x: Self) -> Self {
        self + x
    }
    #[inline(always)]
    fn total() -> (Twice, Twice) {
        Default::default()
    }
    #[inline(always)]
    fn absorb(total: (Twice, Twice), lane: Self) -> (Twice, Twice) {
        (total.0.add(lane.re), total.1.add(lane.im))
    }
    #[inline(always)]
    fn merge(a: (Twice, Twice), b: (Twice, Twice)) -> (Twice, Twice) {
        (a.0.merge(b.0), a.1.merge(b.1))
    }
    #[inline(always)]
    fn finish(total: (Twice, Twice), divisor: usize) -> Self {
        let n = divisor as f64;
        Complex::new(total.0.value() / n, total.1.value() / n)
    }
    #[inline(always)]
    fn block<S: Simd>(_: S, x: &[Self]) -> Self {
        striped::<_, _, 8>(Self::ZERO, x, |a, b| a + b, |a, b| a + b)
    }
}

/// Σ x, or Σ x / n.
#[derive(Clone, Copy)]
pub(super) struct Sum<T> {
    pub mean: bool,
    pub element: PhantomData<T>,
}

impl<T: Summand> Fold for Sum<T> {
    type In = T;
    type Lane = T;
    type Total = T::Total;
    type Out = T;
    const WIDE: bool = T::WIDE;

    #[inline(always)]
    fn four<S: Simd>(self, s: S, lanes: &mut [T], rows: [&[T]; 4], _: [usize; 4]) {
        T::four(s, lanes, rows);
    }
    #[inline(always)]
    fn lane(self) -> T {
        T::ZERO
    }
    #[inline(always)]
    fn step(self, lane: T, x: T, _: usize) -> T {
        lane.add(x)
    }
    #[inline(always)]
    fn total(self) -> T::Total {
        T::total()
    }
    #[inline(always)]
    fn absorb(self, total: T::Total, lane: T) -> T::Total {
        T::absorb(total, lane)
    }
    #[inline(always)]
    fn merge(self, a: T::Total, b: T::Total) -> T::Total {
        T::merge(a, b)
    }
    #[inline(always)]
    fn finish(self, total: T::Total, n: usize) -> T {
        T::finish(total, if self.mean { n } else { 1 })
    }
    #[inline(always)]
    fn block<S: Simd>(self, s: S, x: &[T], _: usize, _: T::Total) -> T {
        T::block(s, x)
    }
    #[inline(always)]
    fn quad<S: Simd>(self, s: S, x: [&[T]; 4], _: [usize; 4], _: [T::Total; 4]) -> [T; 4] {
        T::quad(s, x)
    }
}

/// A type that products are computed in.
pub(super) trait Factor: Compute {
    const ONE: Self;
    fn times(self, x: Self) -> Self;
}

impl Factor for f64 {
    const ONE: Self = 1.0;
    #[inline(always)]
    fn times(self, x: Self) -> Self {
        self * x
    }
}

impl Factor for i64 {
    const ONE: Self = 1;
    #[inline(always)]
    fn times(self, x: Self) -> Self {
        self.wrapping_mul(x)
    }
}

impl Factor for Complex<f64> {
    const ONE: Self = Complex::new(1.0, 0.0);
    #[inline(always)]
    fn times(self, x: Self) -> Self {
        self * x
    }
}

/// Π x
#[derive(Clone, Copy)]
pub(super) struct Product<T>(pub PhantomData<T>);

impl<T: Factor> Fold for Product<T> {
    type In = T;
    type Lane = T;
    type Total = T;
    type Out = T;

    #[inline(always)]
    fn lane(self) -> T {
        T::ONE
    }
    #[inline(always)]
    fn step(self, lane: T, x: T, _: usize) -> T {
        lane.times(x)
    }
    #[inline(always)]
    fn total(self) -> T {
        T::ONE
    }
    #[inline(always)]
    fn absorb(self, total: T, lane: T) -> T {
        total.times(lane)
    }
    #[inline(always)]
    fn merge(self, a: T, b: T) -> T {
        a.times(b)
    }
    #[inline(always)]
    fn finish(self, total: T, _: usize) -> T {
        total
    }
    #[inline(always)]
    fn block<S: Simd>(self, _: S, x: &[T], _: usize, _: T) -> T {
        striped::<_, _, 8>(T::ONE, x, T::times, T::times)
    }
}
