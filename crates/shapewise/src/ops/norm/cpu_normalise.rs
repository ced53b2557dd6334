//! The last step of every normalisation: `y = (x − mean) · factor · scale + bias` over a run of memory.
#![allow(unsafe_code)]

use crate::backends::cpu::real::{Real, Vectors};
use crate::backends::cpu::simd::{Float, Lanes};

/// What is done to an element, by its place.
pub(super) trait Step<W: Float> {
    /// The result for the vector that begins at element `i`; `n` lanes count.
    ///
    /// # Safety
    /// Elements `i..i + n` exist, and `n <= LANES`.
    unsafe fn at<S: Lanes<W>>(&self, s: S, x: S::V, i: usize, n: usize) -> S::V;
}

/// The same numbers for every element.
#[derive(Clone, Copy)]
pub(super) struct Uniform<W> {
    pub mean: W,
    pub factor: W,
    pub bias: W,
}

impl<W: Float> Step<W> for Uniform<W> {
    #[inline(always)]
    unsafe fn at<S: Lanes<W>>(&self, s: S, x: S::V, _: usize, _: usize) -> S::V {
        s.mul_add(s.sub(x, s.splat(self.mean)), s.splat(self.factor), s.splat(self.bias))
    }
}

/// One mean and factor, but scale and bias of each element's own.
#[derive(Clone, Copy)]
pub(super) struct Weighted<W> {
    pub mean: W,
    pub factor: W,
    pub scale: *const W,
    pub bias: *const W,
}

impl<W: Float> Step<W> for Weighted<W> {
    #[inline(always)]
    unsafe fn at<S: Lanes<W>>(&self, s: S, x: S::V, i: usize, n: usize) -> S::V {
        let d = s.mul(s.sub(x, s.splat(self.mean)), s.splat(self.factor));
        // SAFETY: scale and bias have an element for each of x.
        unsafe { s.mul_add(d, some(s, self.scale.add(i), n), some(s, self.bias.add(i), n)) }
    }
}

/// Mean, factor and bias of each element's own.
#[derive(Clone, Copy)]
pub(super) struct PerChannel<W> {
    pub mean: *const W,
    pub factor: *const W,
    pub bias: *const W,
}

impl<W: Float> Step<W> for PerChannel<W> {
    #[inline(always)]
    unsafe fn at<S: Lanes<W>>(&self, s: S, x: S::V, i: usize, n: usize) -> S::V {
        // SAFETY: mean, factor and bias have an element for each of x.
        unsafe {
            let d = s.sub(x, some(s, self.mean.add(i), n));
            s.mul_add(d, some(s, self.factor.add(i), n), some(s, self.bias.add(i), n))
        }
    }
}

/// # Safety
/// `at` is valid for reading `n <= LANES` elements.
#[inline(always)]
unsafe fn some<W: Float, S: Lanes<W>>(s: S, at: *const W, n: usize) -> S::V {
    // SAFETY: the caller's promise.
    unsafe { if n == S::LANES { s.load(at) } else { s.load_first(at, n) } }
}

/// Applies the step to `n` elements; past the caches if `stream`.
///
/// # Safety
/// `x` is valid for reading `n` elements, `y` for writing, and the step knows them all.
#[inline(always)]
pub(super) unsafe fn normalise<T: Real, S: Vectors<T>, P: Step<T::Wide>>(
    s: S,
    x: *const T,
    y: *mut T,
    n: usize,
    step: &P,
    stream: bool,
) {
    let lanes = S::LANES;
    let mut i = 0;
    // SAFETY: in each case the elements from i on that are touched are below n.
    unsafe {
        let lead = y.align_offset(lanes * size_of::<T>());
        if stream && lead < lanes {
            i = lead.min(n);
            if i > 0 {
                s.write_first(y, step.at(s, s.read_first(x, i), 0, i), i);
            }
            while i + 2 * lanes <= n {
                let a = step.at(s, s.read(x.add(i)), i, lanes);
                let b = step.at(s, s.read(x.add(i + lanes)), i + lanes, lanes);
                s.write_past_cache(y.add(i), a);
                s.write_past_cache(y.add(i + lanes), b);
                i += 2 * lanes;
            }
        }
        while i + 2 * lanes <= n {
            let a = step.at(s, s.read(x.add(i)), i, lanes);
            let b = step.at(s, s.read(x.add(i + lanes)), i + lanes, lanes);
            s.write(y.add(i), a);
            s.write(y.add(i + lanes), b);
            i += 2 * lanes;
        }
        while i < n {
            let len = (n - i).min(lanes);
            s.write_first(y.add(i), step.at(s, s.read_first(x.add(i), len), i, len), len);
            i += len;
        }
    }
}
