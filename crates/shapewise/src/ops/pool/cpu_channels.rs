//! Channels that lie along memory: windows are combined for as many channels at once as the registers hold.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::PoolKind;
use super::cpu_rows::pick;
use super::problem::{Problem, Span, offset};
use crate::backends::cpu::real::{Real, RealTask, Vectors};
use crate::backends::cpu::simd::Float;

/// Vectors of channels that are combined side by side: enough to hide the latency of an addition.
const SIDE_BY_SIDE: usize = 4;

/// Some rows of results, counted over batch, depth and height.
pub(super) struct Channels<'a, T: Real> {
    pub p: &'a Problem,
    pub x: *const T,
    pub y: *mut T,
    pub rows: std::ops::Range<usize>,
}

impl<T: Real> RealTask<T> for Channels<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        if self.p.kind == PoolKind::Max {
            self.all::<S, true>(s);
        } else {
            self.all::<S, false>(s);
        }
    }
}

impl<T: Real> Channels<'_, T> {
    #[inline(always)]
    fn all<S: Vectors<T>, const MAX: bool>(&self, s: S) {
        let p = self.p;
        for row in self.rows.clone() {
            let h = row % p.output[3];
            let d = row / p.output[3] % p.output[2];
            let n = row / (p.output[3] * p.output[2]);
            let (depths, heights) = (p.span(0, d), p.span(1, h));
            for w in 0..p.output[4] {
                let spans = [depths, heights, p.span(2, w)];
                let x = self.x.wrapping_offset(offset(&p.x, [n, 0, 0, 0, 0]));
                let y = self.y.wrapping_offset(offset(&p.y, [n, 0, d, h, w]));
                let (mut c, channels) = (0, p.output[1]);
                // SAFETY: the channels add up to those of the image; spans lie inside it.
                unsafe {
                    while c + SIDE_BY_SIDE * S::LANES <= channels {
                        let (x, y) = (x.wrapping_add(c), y.wrapping_add(c));
                        self.window::<S, MAX, SIDE_BY_SIDE>(s, &spans, x, y, S::LANES);
                        c += SIDE_BY_SIDE * S::LANES;
                    }
                    while c < channels {
                        let lanes = S::LANES.min(channels - c);
                        self.window::<S, MAX, 1>(s, &spans, x.wrapping_add(c), y.wrapping_add(c), lanes);
                        c += lanes;
                    }
                }
            }
        }
    }

    /// One window for `N` vectors of channels, of which `lanes` exist in the last.
    ///
    /// # Safety
    /// The spans lie inside the image, and input and output have these channels.
    #[inline(always)]
    unsafe fn window<S: Vectors<T>, const MAX: bool, const N: usize>(
        &self,
        s: S,
        spans: &[Span; 3],
        x: *const T,
        y: *mut T,
        lanes: usize,
    ) {
        let p = self.p;
        let [depths, heights, widths] = spans;
        let mut all = [s.splat(if MAX { -T::Wide::INFINITY } else { T::Wide::ZERO }); N];
        for i in 0..depths.count * heights.count {
            let d = depths.first + i / heights.count * depths.step;
            let h = heights.first + i % heights.count * heights.step;
            let row = x.wrapping_offset(d as isize * p.x[2] + h as isize * p.x[3]);
            for k in 0..widths.count {
                let at = row.wrapping_offset((widths.first + k * widths.step) as isize * p.x[4]);
                for (j, all) in all.iter_mut().enumerate() {
                    // SAFETY: the caller's promise.
                    let x = unsafe {
                        if lanes == S::LANES { s.read(at.add(j * S::LANES)) } else { s.read_first(at, lanes) }
                    };
                    *all = pick::<T, S, MAX>(s, *all, x);
                }
            }
        }
        let divisor: usize = spans.iter().map(|s| s.divisor).product();
        let divisor = s.splat(T::Wide::from_f64(divisor as f64));
        for (j, sum) in all.into_iter().enumerate() {
            let result = if MAX { sum } else { s.div(sum, divisor) };
            // SAFETY: the caller's promise.
            unsafe {
                if lanes == S::LANES {
                    s.write(y.add(j * S::LANES), result);
                } else {
                    s.write_first(y, result, lanes);
                }
            }
        }
    }
}
