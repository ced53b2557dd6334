//! Convolutions of single channels, along the rows of planes.
//!
//! A band of rows is framed in the first cache; then every output row is a sum of shifted rows of the frame.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set
#![allow(clippy::needless_range_loop)] // rows and columns of several arrays at once

use std::ops::Range;

use super::cpu_depthwise_rows::straight_rows;
use super::cpu_image::{Fill, Frame, SLACK};
use super::geometry::Geometry;
use crate::backends::cpu::real::{Real, RealTask, Vectors};
use crate::backends::cpu::simd::{Float, Lanes};
use crate::ops::Activation;
use crate::ops::matmul::cpu_finish::apply;
use crate::ops::matmul::cpu_problem::Real as Computed;

/// Vectors of outputs that are summed at once: with nine weights they fill the registers of AVX2.
const VECTORS: usize = 4;

/// Rows of outputs that a kernel of 3×3 computes at once: each row of inputs is read once for three of them.
pub(super) const ROWS: usize = 4;

/// How the rows of a channel are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bands {
    pub frame: Frame,
    /// Output rows of a band: all of them where there is depth.
    pub rows: usize,
    /// Rows of the frame that a band reads at most.
    framed: usize,
}

impl Bands {
    /// As many rows as the frame of which takes half of the first cache.
    pub fn new<T: Real>(g: &Geometry, l1: usize) -> Self {
        let frame = Frame::new(&Geometry { c: 1, ..*g });
        let row = frame.pitch() * size_of::<T::Wide>();
        let reach = frame.rows - (g.output[1] - 1) * g.stride[1];
        let fit = (l1 / 2 / row.max(1)).saturating_sub(reach) / g.stride[1] + 1;
        if frame.planes > 1 {
            return Self { frame, rows: g.output[1], framed: frame.planes * frame.rows };
        }
        let rows = fit.clamp(1, g.output[1]);
        Self { frame, rows, framed: (rows - 1) * g.stride[1] + reach }
    }

    /// Elements of a thread's scratch: the frame of a band, and weights and offsets of every tap.
    pub fn scratch(&self, g: &Geometry) -> usize {
        self.framed * self.frame.pitch() + SLACK + 3 * (g.taps() + 8)
    }
}

/// One channel of one image.
pub(super) struct Plane<'a, T: Real> {
    pub g: &'a Geometry,
    pub bands: &'a Bands,
    pub x: *const T,
    /// The channel's first weight.
    pub w: *const T,
    pub bias: T::Wide,
    pub y: *mut T,
    pub activation: Activation,
    pub stream: bool,
    /// The output rows to compute; all of them where there is depth.
    pub rows: Range<usize>,
    pub scratch: *mut T::Wide,
}

impl<T: Real> RealTask<T> for Plane<'_, T>
where
    T::Wide: Computed,
{
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let (g, bands) = (self.g, self.bands);
        let frame = &bands.frame;
        let taps = g.taps();
        let weights = self.scratch;
        // Aligned byte by byte: weights may end where no whole number of offsets leads to the next multiple.
        let behind = weights.wrapping_add(taps + 2).cast::<u8>();
        let offsets = behind.wrapping_add(behind.align_offset(align_of::<usize>())).cast::<usize>();
        let image = self.scratch.wrapping_add(3 * (taps + 8));
        for tap in 0..taps {
            let at = [tap / (g.kernel[1] * g.kernel[2]), tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]];
            let from: isize = (0..3).map(|axis| at[axis] as isize * g.w[3 + axis]).sum();
            // SAFETY: the tap exists, and the scratch has room for its weight and its offset.
            unsafe {
                weights.add(tap).write((*self.w.offset(from)).widen());
                offsets.add(tap).write(frame.tap(at));
            }
        }
        // SAFETY: they were written above.
        let (weights, offsets) =
            unsafe { (std::slice::from_raw_parts(weights, taps), std::slice::from_raw_parts(offsets, taps)) };
        let straight = straight_rows(g, S::LANES, &self.rows);
        // SAFETY: the call's plane is valid.
        unsafe { self.straight(s, weights, straight.clone()) };
        for rows in [self.rows.start..straight.start, straight.end..self.rows.end] {
            self.framed(s, weights, offsets, image, rows);
        }
        if self.stream {
            s.fence();
        }
    }
}

impl<T: Real> Plane<'_, T>
where
    T::Wide: Computed,
{
    /// Rows of outputs by bands, which are framed in `image`.
    #[inline(always)]
    fn framed<S: Vectors<T>>(
        &self,
        s: S,
        weights: &[T::Wide],
        offsets: &[usize],
        image: *mut T::Wide,
        rows: Range<usize>,
    ) {
        let (g, bands) = (self.g, self.bands);
        let frame = &bands.frame;
        let whole = frame.planes > 1;
        let three = g.kernel == [1, 3, 3] && g.stride[1] == 1 && g.dilation[1] == 1;
        let mut first = rows.start;
        while first < rows.end {
            let end = (first + bands.rows).min(rows.end);
            let top = if whole { 0 } else { first * g.stride[1] };
            let lines = if whole {
                0..frame.planes * frame.rows
            } else {
                top..(end - 1) * g.stride[1] + frame.rows - (g.output[1] - 1) * g.stride[1]
            };
            Fill { g, frame, x: self.x, to: image, rows: lines }.run(s);
            for z in 0..g.output[0] {
                let mut y = first;
                while y < end {
                    let from = image.wrapping_add(frame.output([z, y, 0]) - top * frame.pitch()).cast_const();
                    let to = self.y.wrapping_offset(z as isize * g.y[2] + y as isize * g.y[3]);
                    // SAFETY: the band's rows are framed, and the output has these rows.
                    unsafe {
                        if three && end - y >= ROWS {
                            self.some_rows(s, from, weights, offsets, to);
                            y += ROWS;
                        } else {
                            self.row(s, from, weights, offsets, to);
                            y += 1;
                        }
                    }
                }
            }
            first = end;
        }
    }

    /// Some rows of outputs of a kernel of 3×3 that moves down by one.
    ///
    /// # Safety
    /// Every tap of the rows is in the frame, with slack after it, and the rows can be written.
    #[inline(always)]
    unsafe fn some_rows<S: Vectors<T>>(
        &self,
        s: S,
        from: *const T::Wide,
        weights: &[T::Wide],
        offsets: &[usize],
        to: *mut T,
    ) {
        let (n, pitch) = (self.g.output[2], self.bands.frame.pitch());
        let mut w = [s.splat(T::Wide::ZERO); 9];
        for (slot, &x) in w.iter_mut().zip(weights) {
            *slot = s.splat(x);
        }
        let (left, middle, right) = (offsets[0], offsets[1], offsets[2]);
        let mut x = 0;
        while x < n {
            let mut sums = [s.splat(self.bias); ROWS];
            for input in 0..ROWS + 2 {
                let at = from.wrapping_add(input * pitch + x);
                // SAFETY: the frame has slack for vectors after its last element.
                let (a, b, c) =
                    unsafe { (s.load(at.add(left)), s.load(at.add(middle)), s.load(at.add(right))) };
                for (y, sum) in sums.iter_mut().enumerate() {
                    // The input's row is the first, second or third of these outputs.
                    if input >= y && input < y + 3 {
                        let k = 3 * (input - y);
                        *sum = s.mul_add(w[k], a, *sum);
                        *sum = s.mul_add(w[k + 1], b, *sum);
                        *sum = s.mul_add(w[k + 2], c, *sum);
                    }
                }
            }
            if self.activation != Activation::None {
                activate(s, &mut sums, self.activation);
            }
            for (y, &sum) in sums.iter().enumerate() {
                // SAFETY: the rows have so many columns left.
                unsafe { self.put(s, to.offset(y as isize * self.g.y[3]).add(x), sum, n - x) };
            }
            x += S::LANES;
        }
    }

    /// One row of outputs.
    ///
    /// # Safety
    /// Every tap of the row is in the frame, with slack after it, and the row can be written.
    #[inline(always)]
    unsafe fn row<S: Vectors<T>>(
        &self,
        s: S,
        from: *const T::Wide,
        weights: &[T::Wide],
        offsets: &[usize],
        to: *mut T,
    ) {
        let n = self.g.output[2];
        let mut nine = [s.splat(T::Wide::ZERO); 9];
        for (slot, &w) in nine.iter_mut().zip(weights) {
            *slot = s.splat(w);
        }
        let mut x = 0;
        while x < n {
            let mut sums = [s.splat(self.bias); VECTORS];
            if weights.len() == 9 && offsets.len() == 9 {
                // Nine weights stay in registers.
                for tap in 0..9 {
                    // SAFETY: the frame has slack for vectors after its last element.
                    unsafe { add_row::<T, S>(s, &mut sums, nine[tap], from.add(offsets[tap] + x)) };
                }
            } else {
                for (&w, &offset) in weights.iter().zip(offsets) {
                    // SAFETY: as above.
                    unsafe { add_row::<T, S>(s, &mut sums, s.splat(w), from.add(offset + x)) };
                }
            }
            // SAFETY: the row has the columns that are written.
            unsafe { self.write(s, sums, to.add(x), n - x) };
            x += VECTORS * S::LANES;
        }
    }

    /// # Safety
    /// `columns` or all of the sums can be written; they are aligned if they are streamed.
    #[inline(always)]
    unsafe fn write<S: Vectors<T>>(&self, s: S, mut sums: [S::V; VECTORS], to: *mut T, columns: usize) {
        if self.activation != Activation::None {
            activate(s, &mut sums, self.activation);
        }
        for (i, sum) in sums.into_iter().enumerate() {
            let at = i * S::LANES;
            if at >= columns {
                break;
            }
            // SAFETY: so many columns are left.
            unsafe { self.put(s, to.add(at), sum, columns - at) };
        }
    }

    /// # Safety
    /// `columns` or a whole vector can be written; it is aligned if it is streamed.
    #[inline(always)]
    pub(super) unsafe fn put<S: Vectors<T>>(&self, s: S, to: *mut T, v: S::V, columns: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if columns < S::LANES {
                s.write_first(to, v, columns);
            } else if self.stream {
                s.write_past_cache(to, v);
            } else {
                s.write(to, v);
            }
        }
    }
}

/// Adds a weight times some neighbours.
///
/// # Safety
/// The vectors can be read.
#[inline(always)]
unsafe fn add_row<T: Real, S: Vectors<T>>(s: S, sums: &mut [S::V; VECTORS], w: S::V, at: *const T::Wide) {
    for (i, sum) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *sum = s.mul_add(w, unsafe { s.load(at.add(i * S::LANES)) }, *sum);
    }
}

/// The activation of every vector, by way of memory: written once, whatever is inlined.
#[inline(always)]
pub(super) fn activate<W: Computed, S: Lanes<W>, const N: usize>(
    s: S,
    sums: &mut [S::V; N],
    activation: Activation,
) {
    let mut rest = N;
    while std::hint::black_box(rest) > 0 {
        rest -= 1;
        sums[rest] = apply(s, sums[rest], activation);
    }
}

/// All channels of some pixels, where channels are neighbours.
pub(super) struct Pixels<'a, T: Real> {
    pub g: &'a Geometry,
    /// The image's first element.
    pub x: *const T,
    /// Weights by tap, then by channel.
    pub weights: *const T::Wide,
    /// Null for none.
    pub bias: *const T::Wide,
    /// As many zeros as channels.
    pub zeros: *const T,
    pub y: *mut T,
    pub activation: Activation,
    /// Rows of outputs, planes below one another.
    pub rows: Range<usize>,
}

/// Pixels that share the weights they are multiplied with.
const PIXELS: usize = 4;
/// Taps of a usual kernel.
const KNOWN: usize = 9;

impl<T: Real> RealTask<T> for Pixels<'_, T>
where
    T::Wide: Computed,
{
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let width = self.g.output[2];
        for row in self.rows.clone() {
            for x in (0..width).step_by(PIXELS) {
                // SAFETY: rows and pixels exist.
                unsafe {
                    if width - x >= PIXELS {
                        self.some::<S, PIXELS>(s, row, x);
                    } else {
                        for x in x..width {
                            self.some::<S, 1>(s, row, x);
                        }
                    }
                }
            }
        }
    }
}

impl<T: Real> Pixels<'_, T>
where
    T::Wide: Computed,
{
    /// # Safety
    /// The row has `N` pixels from `x` on.
    #[inline(always)]
    unsafe fn some<S: Vectors<T>, const N: usize>(&self, s: S, row: usize, x: usize) {
        let g = self.g;
        let (z, y) = (row / g.output[1], row % g.output[1]);
        // What the first taps read is worked out once for all channels.
        let mut known = [[self.zeros; N]; KNOWN];
        for (tap, known) in known.iter_mut().enumerate().take(g.taps()) {
            *known = self.meets::<N>([z, y, x], tap);
        }
        let to = self.y.wrapping_offset(z as isize * g.y[2] + y as isize * g.y[3] + x as isize * g.y[4]);
        for c in (0..g.groups).step_by(S::LANES) {
            let lanes = S::LANES.min(g.groups - c);
            let mut sums = [s.splat(T::Wide::ZERO); N];
            if !self.bias.is_null() {
                // SAFETY: the bias has an element for every channel.
                sums = [unsafe { s.load_first(self.bias.add(c), lanes) }; N];
            }
            for tap in 0..g.taps() {
                let from = if tap < KNOWN { known[tap] } else { self.meets::<N>([z, y, x], tap) };
                // SAFETY: there is a weight for every tap and channel, and slack for a vector after them.
                let w = unsafe { s.load(self.weights.add(tap * g.groups + c)) };
                for (sum, from) in sums.iter_mut().zip(from) {
                    // SAFETY: the place is inside the input, or all zeros; both have every channel.
                    let v = unsafe {
                        if lanes == S::LANES { s.read(from.add(c)) } else { s.read_first(from.add(c), lanes) }
                    };
                    *sum = s.mul_add(v, w, *sum);
                }
            }
            if self.activation != Activation::None {
                activate(s, &mut sums, self.activation);
            }
            for (i, &y) in sums.iter().enumerate() {
                let to = to.wrapping_offset(i as isize * g.y[4]).wrapping_add(c);
                // SAFETY: the pixel has these channels.
                unsafe { if lanes == S::LANES { s.write(to, y) } else { s.write_first(to, y, lanes) } };
            }
        }
    }

    /// What a tap of `N` neighbouring outputs meets: the first channel of a pixel, or zeros.
    #[inline(always)]
    fn meets<const N: usize>(&self, [z, y, x]: [usize; 3], tap: usize) -> [*const T; N] {
        let [_, kh, kw] = self.g.kernel;
        let at = [tap / (kh * kw), tap / kw % kh, tap % kw];
        let mut found = [self.zeros; N];
        for (i, found) in found.iter_mut().enumerate() {
            if let Some(place) = self.place([z, y, x + i], at) {
                *found = self.x.wrapping_offset(place);
            }
        }
        found
    }

    /// Where a tap of an output meets the input; None in the padding.
    #[inline(always)]
    fn place(&self, output: [usize; 3], tap: [usize; 3]) -> Option<isize> {
        let g = self.g;
        let mut sum = 0;
        for axis in 0..3 {
            let place =
                (output[axis] * g.stride[axis] + tap[axis] * g.dilation[axis]) as isize - g.before[axis];
            if place < 0 || place >= g.input[axis] as isize {
                return None;
            }
            sum += place * g.x[2 + axis];
        }
        Some(sum)
    }
}
