//! Softmax across runs of memory: a band of neighbouring columns at a time, narrow enough to stay in the second cache
//! while it is read for the maximum, the sum and the weights.
#![allow(unsafe_code)]

use crate::backends::cpu::real::{Real, RealTask, Vectors};
use crate::backends::cpu::simd::Float;
use crate::backends::cpu::simd::math::{Coefficients, exp_nonpositive};
use crate::ops::walk::Axis;

/// The most columns of a band.
pub(super) const BAND: usize = 256;
/// Rows that are summed in the lanes' own type before they go to an f64.
const DEPTH: usize = 128;

/// A band of columns.
pub(super) struct Band<T: Real> {
    pub axis: Axis,
    pub x: *const T,
    pub y: *mut T,
    pub width: usize,
    pub log: bool,
}

impl<T: Real> RealTask<T> for Band<T>
where
    T::Wide: Coefficients,
{
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let (mut center, mut shift) = ([T::Wide::ZERO; BAND], [T::Wide::ZERO; BAND]);
        for from in (0..self.width).step_by(S::LANES) {
            let len = (self.width - from).min(S::LANES);
            // SAFETY: the band's elements are valid; from + len <= width <= BAND, which LANES divides.
            unsafe {
                let max = self.maximum(s, from, len);
                let sums = self.sums(s, from, len, max);
                s.store(center.as_mut_ptr().add(from), max);
                for (slot, sum) in shift[from..].iter_mut().zip(sums).take(S::LANES) {
                    *slot = T::Wide::from_f64(if self.log { sum.ln() } else { 1.0 / sum });
                }
            }
        }
        for i in 0..self.axis.size {
            for from in (0..self.width).step_by(S::LANES) {
                let len = (self.width - from).min(S::LANES);
                // SAFETY: as above.
                unsafe {
                    let (c, f) = (s.load(center.as_ptr().add(from)), s.load(shift.as_ptr().add(from)));
                    let d = s.sub(self.read(s, i, from, len), c);
                    let y = if self.log { s.sub(d, f) } else { s.mul(exp_nonpositive(s, d), f) };
                    let at = self.y.offset(i as isize * self.axis.output).add(from);
                    if len == S::LANES { s.write(at, y) } else { s.write_first(at, y, len) }
                }
            }
        }
    }
}

impl<T: Real> Band<T> {
    /// # Safety
    /// Row `i` is valid at `from..from + len`.
    #[inline(always)]
    unsafe fn read<S: Vectors<T>>(&self, s: S, i: usize, from: usize, len: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe {
            let at = self.x.offset(i as isize * self.axis.input).add(from);
            if len == S::LANES { s.read(at) } else { s.read_first(at, len) }
        }
    }

    /// What is subtracted in each column: its largest number.
    ///
    /// # Safety
    /// Every row is valid at `from..from + len`.
    #[inline(always)]
    unsafe fn maximum<S: Vectors<T>>(&self, s: S, from: usize, len: usize) -> S::V {
        let mut max = s.splat(-T::Wide::INFINITY);
        for i in 0..self.axis.size {
            // SAFETY: the caller's promise.
            max = s.max(unsafe { self.read(s, i, from, len) }, max);
        }
        max
    }

    /// Σ eˣ⁻ᵐᵃˣ of each column.
    ///
    /// # Safety
    /// Every row is valid at `from..from + len`.
    #[inline(always)]
    unsafe fn sums<S: Vectors<T>>(&self, s: S, from: usize, len: usize, max: S::V) -> [f64; 16]
    where
        T::Wide: Coefficients,
    {
        let mut totals = [0.0f64; 16];
        let mut start = 0;
        while start < self.axis.size {
            let end = (start + DEPTH).min(self.axis.size);
            let mut lanes = s.splat(T::Wide::ZERO);
            for i in start..end {
                // SAFETY: the caller's promise.
                let d = s.sub(unsafe { self.read(s, i, from, len) }, max);
                lanes = s.add(lanes, exp_nonpositive(s, d));
            }
            let mut part = [T::Wide::ZERO; 16];
            // SAFETY: `part` has at least LANES elements.
            unsafe { s.store(part.as_mut_ptr(), lanes) };
            totals.iter_mut().zip(part).for_each(|(total, x)| *total += x.to_f64());
            start = end;
        }
        totals
    }
}
