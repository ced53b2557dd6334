//! Softmax along runs of memory, in one pass over memory.
//!
//! A row goes through the first cache in blocks: the block's maximum, then the powers against the largest maximum so
//! far, kept aside. At the end each block is scaled by what its maximum was short of the row's, over the sum.
#![allow(unsafe_code)]

use std::ops::Range;

use crate::backends::cpu::real::{Real, RealTask, Vectors, prefetch};
use crate::backends::cpu::simd::Float;
use crate::backends::cpu::simd::math::{Coefficients, exp_nonpositive};
use crate::ops::reduce::cpu_fold::{Peak, fold_block};
use crate::ops::walk::{Axis, offset};

/// Elements whose maximum is taken before their powers: half of the smallest first cache in use, for f64.
const BLOCK: usize = 2048;
/// The most lanes any instruction set has.
const MAX_LANES: usize = 16;

/// Rows to be normalised.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T: Real> {
    pub kept: &'a [Axis],
    pub axis: Axis,
    pub x: *const T,
    pub y: *mut T,
    pub log: bool,
    pub stream: bool,
}

// SAFETY: threads write disjoint rows of the output and only read the input; both outlive the call.
unsafe impl<T: Real> Sync for Rows<'_, T> {}

/// Bytes of scratch that one task needs: powers, maxima of blocks, and a row where elements are not side by side.
pub(super) fn scratch_bytes<T: Real>(axis: Axis) -> usize {
    let n = axis.size;
    let apart = if axis.input == 1 && axis.output == 1 { 0 } else { n * size_of::<T>() };
    let padded = n.next_multiple_of(MAX_LANES) + n.div_ceil(BLOCK).next_multiple_of(MAX_LANES);
    padded * size_of::<T::Wide>() + apart
}

/// Some of the rows, with scratch of [`scratch_bytes`].
pub(super) struct Part<'a, T: Real> {
    pub rows: Rows<'a, T>,
    pub range: Range<usize>,
    pub scratch: *mut u8,
}

impl<T: Real> RealTask<T> for Part<'_, T>
where
    T::Wide: Coefficients,
{
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let Rows { kept, axis, x, y, log, stream } = self.rows;
        let n = axis.size;
        let powers = self.scratch.cast::<T::Wide>();
        let maxima = powers.wrapping_add(n.next_multiple_of(MAX_LANES));
        let apart = maxima.wrapping_add(n.div_ceil(BLOCK).next_multiple_of(MAX_LANES)).cast::<T>();
        // While the powers of a block are computed, the next block or row comes in.
        let ahead = if n > BLOCK { BLOCK as isize } else { kept.last().map_or(0, |a| a.input) };
        for row in self.range {
            let from = x.wrapping_offset(offset(kept, row, |a| a.input));
            let to = y.wrapping_offset(offset(kept, row, |a| a.output));
            let (source, target) = (
                if axis.input == 1 { from } else { apart.cast_const() },
                if axis.output == 1 { to } else { apart },
            );
            // SAFETY: the row's elements are valid, and the scratch has room for what `scratch_bytes` counts.
            unsafe {
                if axis.input != 1 {
                    (0..n).for_each(|i| apart.add(i).write(*from.offset(i as isize * axis.input)));
                }
                if log {
                    log_row(s, source, target, n, ahead);
                } else {
                    weights_of_row(s, source, target, n, (powers, maxima), ahead, stream);
                }
                if axis.output != 1 {
                    (0..n).for_each(|i| to.offset(i as isize * axis.output).write(*apart.add(i)));
                }
            }
        }
        s.fence();
    }
}

/// A running maximum and Σ eˣ⁻ᵐᵃˣ.
struct Running<W> {
    max: W,
    sum: f64,
}

impl<W: Float> Running<W> {
    /// Takes the maximum of the next block; gives what is subtracted from its elements.
    #[inline(always)]
    fn raise(&mut self, peak: W) -> W {
        if peak > self.max {
            self.sum *= (self.max.to_f64() - peak.to_f64()).exp();
            self.max = peak;
        }
        // Nothing but −∞ so far: the powers are zero, not the NaN of −∞ + ∞.
        if self.max == -W::INFINITY { W::ZERO } else { self.max }
    }
}

/// # Safety
/// `x` and `powers` are valid for `n` elements to read and write, `y` to write, `maxima` for one per block.
#[inline(always)]
unsafe fn weights_of_row<T: Real, S: Vectors<T>>(
    s: S,
    x: *const T,
    y: *mut T,
    n: usize,
    (powers, maxima): (*mut T::Wide, *mut T::Wide),
    ahead: isize,
    stream: bool,
) where
    T::Wide: Coefficients,
{
    let mut running = Running { max: -T::Wide::INFINITY, sum: 0.0 };
    for (block, from) in (0..n).step_by(BLOCK).enumerate() {
        let len = (n - from).min(BLOCK);
        // SAFETY: from + len <= n.
        let peak = fold_block(s, Peak, unsafe { std::slice::from_raw_parts(x.add(from), len) });
        let center = running.raise(peak);
        // SAFETY: from + len <= n.
        running.sum +=
            unsafe { powers_of_block::<T, S, true>(s, x.add(from), len, center, powers.add(from), ahead) };
        // SAFETY: there is room for one maximum per block.
        unsafe { maxima.add(block).write(running.max) };
    }
    for (block, from) in (0..n).step_by(BLOCK).enumerate() {
        let len = (n - from).min(BLOCK);
        // SAFETY: written above.
        let max = unsafe { *maxima.add(block) };
        let short = if max == running.max { 1.0 } else { (max.to_f64() - running.max.to_f64()).exp() };
        let factor = T::Wide::from_f64(short / running.sum);
        // SAFETY: from + len <= n.
        unsafe { scale_block::<T, S>(s, powers.add(from), y.add(from), len, factor, stream) };
    }
}

/// # Safety
/// `x` is valid for reading `n` elements, `y` for writing.
#[inline(always)]
unsafe fn log_row<T: Real, S: Vectors<T>>(s: S, x: *const T, y: *mut T, n: usize, ahead: isize)
where
    T::Wide: Coefficients,
{
    let mut running = Running { max: -T::Wide::INFINITY, sum: 0.0 };
    for from in (0..n).step_by(BLOCK) {
        let len = (n - from).min(BLOCK);
        // SAFETY: from + len <= n.
        let peak = fold_block(s, Peak, unsafe { std::slice::from_raw_parts(x.add(from), len) });
        let center = running.raise(peak);
        // SAFETY: from + len <= n; nothing is written.
        running.sum += unsafe {
            powers_of_block::<T, S, false>(s, x.add(from), len, center, std::ptr::null_mut(), ahead)
        };
    }
    let (max, log) = (s.splat(running.max), s.splat(T::Wide::from_f64(running.sum.ln())));
    let mut i = 0;
    while i < n {
        let len = (n - i).min(S::LANES);
        // SAFETY: i + len <= n.
        unsafe {
            if len == S::LANES {
                s.write(y.add(i), s.sub(s.sub(s.read(x.add(i)), max), log));
            } else {
                s.write_first(y.add(i), s.sub(s.sub(s.read_first(x.add(i), len), max), log), len);
            }
        }
        i += len;
    }
}

/// Σ eˣ⁻ᶜ over a block; the powers are kept if `KEEP`. Elements `ahead` of these are asked for meanwhile: memory works
/// while the powers are computed.
///
/// # Safety
/// `x` is valid for reading `n` elements and, if `KEEP`, `powers` for writing.
#[inline(always)]
unsafe fn powers_of_block<T: Real, S: Vectors<T>, const KEEP: bool>(
    s: S,
    x: *const T,
    n: usize,
    center: T::Wide,
    powers: *mut T::Wide,
    ahead: isize,
) -> f64
where
    T::Wide: Coefficients,
{
    let center = s.splat(center);
    let mut sum = s.splat(T::Wide::ZERO);
    let mut i = 0;
    // One vector at a time: the processor overlaps them by itself, and more would not fit the registers.
    while i + S::LANES <= n {
        prefetch(x.wrapping_offset(i as isize + ahead));
        // SAFETY: i + LANES <= n.
        let e = exp_nonpositive(s, s.sub(unsafe { s.read(x.add(i)) }, center));
        if KEEP {
            // SAFETY: as above.
            unsafe { s.store(powers.add(i), e) };
        }
        sum = s.add(sum, e);
        i += S::LANES;
    }
    if i < n {
        let len = n - i;
        let mut rest = [-T::Wide::INFINITY; MAX_LANES];
        for (j, slot) in rest.iter_mut().enumerate().take(len) {
            // SAFETY: i + j < n.
            *slot = unsafe { *x.add(i + j) }.widen();
        }
        // SAFETY: `rest` has at least LANES elements.
        let e = exp_nonpositive(s, s.sub(unsafe { s.load(rest.as_ptr()) }, center));
        if KEEP {
            // SAFETY: i + len <= n.
            unsafe { s.store_first(powers.add(i), e, len) };
        }
        sum = s.add(sum, e);
    }
    s.reduce_add(sum).to_f64()
}

/// `y = powers · factor`, past the caches if `stream`.
///
/// # Safety
/// `powers` is valid for reading `n` elements, `y` for writing.
#[inline(always)]
unsafe fn scale_block<T: Real, S: Vectors<T>>(
    s: S,
    powers: *const T::Wide,
    y: *mut T,
    n: usize,
    factor: T::Wide,
    stream: bool,
) {
    let factor = s.splat(factor);
    let register = S::LANES * size_of::<T>();
    let mut i = 0;
    if stream {
        // The elements before the first whole register.
        let lead = (y.align_offset(register)).min(n);
        if lead > 0 && lead <= S::LANES {
            // SAFETY: lead <= n.
            unsafe { s.write_first(y, s.mul(s.load_first(powers, lead), factor), lead) };
            i = lead;
        }
        while i + S::LANES <= n && lead <= S::LANES {
            // SAFETY: i + LANES <= n, and y + i is aligned to a register.
            unsafe { s.write_past_cache(y.add(i), s.mul(s.load(powers.add(i)), factor)) };
            i += S::LANES;
        }
    }
    while i + S::LANES <= n {
        // SAFETY: i + LANES <= n.
        unsafe { s.write(y.add(i), s.mul(s.load(powers.add(i)), factor)) };
        i += S::LANES;
    }
    if i < n {
        // SAFETY: i < n.
        unsafe { s.write_first(y.add(i), s.mul(s.load_first(powers.add(i), n - i), factor), n - i) };
    }
}
