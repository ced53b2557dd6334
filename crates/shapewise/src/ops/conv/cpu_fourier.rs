//! Large kernels as products of Fourier transforms: a correlation is the product of a spectrum with a conjugated one.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_image::Frame;
use super::geometry::Geometry;
use crate::backends::cpu::real::{Real, RealTask, Vectors};
use crate::backends::cpu::simd::{Float, Lanes};
use crate::ops::fft::{FftAttributes, FftKind, FftNorm, Rigor};
use crate::ops::matmul::cpu_finish::apply;
use crate::ops::matmul::cpu_problem::{LanesTask, Real as Computed};
use crate::ops::{Activation, Operation, TensorDesc, Workload};
use crate::tensor::{DType, Shape};

/// Odd factors of lengths that have fast transforms.
const ODD: [usize; 8] = [1, 3, 5, 9, 15, 27, 45, 75];

/// The points that images and kernels are transformed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// At least what the outputs see along each axis, so that nothing wraps around; the last is even.
    pub sizes: [usize; 3],
    pub frame: Frame,
}

impl Grid {
    pub fn new(g: &Geometry) -> Self {
        let reach = |axis: usize| (g.kernel[axis].max(1) - 1) * g.dilation[axis];
        let sizes = [0, 1, 2].map(|axis| {
            let span = g.output[axis] + reach(axis);
            if span == 1 && axis < 2 { 1 } else { even_length(span) }
        });
        // The convolution whose frame has these sizes; what is beyond the image is zero.
        let output = [0, 1, 2].map(|axis| sizes[axis] - reach(axis));
        Self { sizes, frame: Frame::new(&Geometry { output, ..*g }) }
    }

    /// Points of a transform.
    pub fn points(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Complex numbers of a spectrum: the last axis has its non-negative frequencies only.
    pub fn bins(&self) -> usize {
        self.sizes[0] * self.sizes[1] * (self.sizes[2] / 2 + 1)
    }

    /// Real transforms of all images, weights and results.
    pub fn transforms(g: &Geometry) -> f64 {
        let [n, groups, o, c] = [g.n, g.groups, g.o, g.c].map(|n| n as f64);
        groups * (n * c + o * c + n * o)
    }

    /// Operations of transforms (2.5 n log₂ n each) and products of spectra (8 for each pair).
    pub fn operations(&self, g: &Geometry) -> f64 {
        let points = self.points() as f64;
        let pairs = (g.n * g.groups) as f64 * (g.o * g.c) as f64 * self.bins() as f64;
        Self::transforms(g) * 2.5 * points * points.log2() + 8.0 * pairs
    }

    /// One transform, to spectra or back.
    pub fn transform(&self, kind: FftKind, double: bool) -> Option<Workload> {
        let (real, complex) = if double { (DType::F64, DType::C64) } else { (DType::F32, DType::C32) };
        // Axes of one point at the front are left out.
        let first = self.sizes[..2].iter().take_while(|&&n| n == 1).count();
        let mut half = self.sizes;
        half[2] = half[2] / 2 + 1;
        let points = TensorDesc::contiguous(real, Shape::new(&self.sizes[first..]).ok()?);
        let bins = TensorDesc::contiguous(complex, Shape::new(&half[first..]).ok()?);
        let (axes, norm) = ((3 - first) as u8, FftNorm::Backward);
        let attributes = FftAttributes { kind, axes, norm, rigor: Rigor::Estimate };
        let (from, to) = if kind.is_inverse() { (bins, points) } else { (points, bins) };
        Some(Workload::new(Operation::Fft(attributes), &[from], &[to]))
    }

    /// Spreads a channel's weights over the points.
    ///
    /// # Safety
    /// `w` is the first weight of the pair of channels, `to` has room for all points.
    pub unsafe fn weights<T: Real>(&self, g: &Geometry, w: *const T, to: *mut T::Wide) {
        let [_, kh, kw] = g.kernel;
        // SAFETY: the caller's promise; a tap's place is below the kernel's reach, which fits the points.
        unsafe {
            to.write_bytes(0, self.points());
            for tap in 0..g.taps() {
                let at = [tap / (kh * kw), tap / kw % kh, tap % kw];
                let from: isize = (0..3).map(|axis| at[axis] as isize * g.w[3 + axis]).sum();
                let [z, y, x] = [0, 1, 2].map(|axis| at[axis] * g.dilation[axis]);
                let place = (z * self.sizes[1] + y) * self.sizes[2] + x;
                to.add(place).write((*w.offset(from)).widen());
            }
        }
    }
}

/// The smallest even length of at least `n` with small factors.
fn even_length(n: usize) -> usize {
    let lengths = ODD.iter().map(|&odd| odd * n.div_ceil(odd).next_power_of_two().max(2));
    lengths.fold(usize::MAX, usize::min)
}

/// Adds the product of a spectrum with a conjugated one.
pub(super) struct Multiply<W> {
    pub x: *const W,
    pub w: *const W,
    pub sum: *mut W,
    /// Complex numbers of each.
    pub bins: usize,
}

impl<W: Computed> LanesTask<W> for Multiply<W> {
    #[inline(always)]
    fn run<S: Lanes<W>>(self, s: S) {
        let (n, step) = (2 * self.bins, 2 * S::LANES);
        let mut at = 0;
        while at + step <= n {
            // SAFETY: two vectors of each are left.
            unsafe {
                let pair = |from: *const W| (s.load(from.add(at)), s.load(from.add(at + S::LANES)));
                let ((a, b), (c, d), (e, f)) = (pair(self.x), pair(self.w), pair(self.sum.cast_const()));
                let ((x, ix), (w, iw), (y, iy)) = (s.unzip(a, b), s.unzip(c, d), s.unzip(e, f));
                let re = s.mul_add(ix, iw, s.mul_add(x, w, y));
                let im = s.neg_mul_add(x, iw, s.mul_add(ix, w, iy));
                let (a, b) = s.zip(re, im);
                s.store(self.sum.add(at), a);
                s.store(self.sum.add(at + S::LANES), b);
            }
            at += step;
        }
        while at < n {
            // SAFETY: a number of each is left.
            unsafe {
                let (x, ix, w, iw) =
                    (*self.x.add(at), *self.x.add(at + 1), *self.w.add(at), *self.w.add(at + 1));
                *self.sum.add(at) += x * w + ix * iw;
                *self.sum.add(at + 1) += ix * w - x * iw;
            }
            at += 2;
        }
    }
}

/// Bias and activation of the outputs among the points, which are moved together; tells whether all were finite.
pub(super) struct Finish<'a, W> {
    pub g: &'a Geometry,
    pub grid: &'a Grid,
    pub points: *mut W,
    pub bias: W,
    pub activation: Activation,
}

impl<T: Real> RealTask<T> for Finish<'_, T::Wide>
where
    T::Wide: Computed,
{
    type Output = bool;

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) -> bool {
        let [depth, height, width] = self.g.output;
        let (zero, bias) = (s.splat(T::Wide::ZERO), s.splat(self.bias));
        // Zero times a finite number is zero; anything else is not.
        let mut finite = zero;
        for row in 0..depth * height {
            let line = (row / height * self.grid.sizes[1] + row % height) * self.grid.sizes[2];
            let mut x = 0;
            while x < width {
                let lanes = S::LANES.min(width - x);
                // SAFETY: the points have this row, and outputs lie closer together than points.
                unsafe {
                    let v = s.load_first(self.points.add(line + x), lanes);
                    finite = s.mul_add(v, zero, finite);
                    let v = apply(s, s.add(v, bias), self.activation);
                    s.store_first(self.points.add(row * width + x), v, lanes);
                }
                x += lanes;
            }
        }
        s.mask_bits(s.ne(finite, zero)) == 0
    }
}

/// One channel of results by the definition: transforms spread infinities and NaN over all points.
///
/// # Safety
/// `x` is the group's first element of the image, `w` the channel's first weight, `y` its first element of the result.
#[cold]
pub(super) unsafe fn by_definition<T: Real>(
    g: &Geometry,
    x: *const T,
    w: *const T,
    bias: T::Wide,
    activation: Activation,
    y: *mut T,
) {
    let [_, height, width] = g.output;
    let [_, kh, kw] = g.kernel;
    for pixel in 0..g.pixels() {
        let at = [pixel / (height * width), pixel / width % height, pixel % width];
        let mut sum = bias.to_f64();
        for tap in 0..g.taps() {
            let tap = [tap / (kh * kw), tap / kw % kh, tap % kw];
            let place = [0, 1, 2].map(|axis| {
                (at[axis] * g.stride[axis] + tap[axis] * g.dilation[axis]) as isize - g.before[axis]
            });
            let inside = (0..3).all(|axis| place[axis] >= 0 && place[axis] < g.input[axis] as isize);
            let from: isize = (0..3).map(|axis| place[axis] * g.x[2 + axis]).sum();
            let with: isize = (0..3).map(|axis| tap[axis] as isize * g.w[3 + axis]).sum();
            for c in 0..g.c as isize {
                // SAFETY: the weight exists, and so does the input where it is not padding, which counts as zero.
                unsafe {
                    let x = if inside { (*x.offset(from + c * g.x[1])).widen().to_f64() } else { 0.0 };
                    sum += x * (*w.offset(with + c * g.w[2])).widen().to_f64();
                }
            }
        }
        let to: isize = (0..3).map(|axis| at[axis] as isize * g.y[2 + axis]).sum();
        let value = T::Wide::from_f64(crate::ops::matmul::apply(activation, sum));
        // SAFETY: the channel has this output.
        unsafe { y.offset(to).write(T::narrow(value)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_even_and_not_much_longer() {
        for n in 1..3000 {
            let length = even_length(n);
            assert!(length >= n && length.is_multiple_of(2), "{n}: {length}");
            assert!(n < 16 || length as f64 <= 1.25 * n as f64, "{n}: {length}");
        }
    }
}
