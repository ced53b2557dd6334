//! Kernels of 3×3 by Winograd's minimal filtering: tiles of outputs from fewer products.
//!
//! Inputs, weights and results are transformed tile by tile; between the transforms there is one matrix product for
//! each of the tile's points, over the input channels. A panel of tiles is transformed, multiplied with blocks of
//! output channels and transformed back while it is in the second cache. A tile whose result is not finite is computed
//! anew by the definition: transforms spread infinities and overflow earlier.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set
#![allow(clippy::needless_range_loop)] // rows and columns of several arrays at once

use std::marker::PhantomData;
use std::ops::Range;

use super::cpu_image::{Frame, weight_rows};
use super::cpu_interleave::{join2, join4};
use super::cpu_winograd_forms::{Form, MOST};
use super::cpu_winograd_tiles::Tiles;
use super::geometry::Geometry;
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::{Float, Isa, Lanes};
use crate::ops::Activation;
use crate::ops::matmul::cpu_finish::activate_rows;
use crate::ops::matmul::cpu_micro::{self as micro, Left, Packed, Right, Target, tile_of};
use crate::ops::matmul::cpu_pack::{PackPanels, Part};
use crate::ops::matmul::cpu_problem::{LanesTask, Real as Computed, Split};

/// Transforms the weights of one group of output channels.
struct Weights<'a, W, F> {
    isa: Isa,
    tiles: &'a Tiles,
    /// The first channel's weights in a row, and the distance of rows.
    rows: (*const W, isize),
    /// The first of the group's transformed weights, and the distance of points.
    to: (*mut W, usize),
    /// How many output channels.
    count: usize,
    /// Room for [`Tiles::turned`] elements.
    turned: *mut W,
    form: PhantomData<F>,
}

impl<W: Computed, F: Form> LanesTask<W> for Weights<'_, W, F> {
    #[inline(always)]
    fn run<S: Lanes<W>>(self, s: S) {
        let (c, rows, (to, plane)) = (self.tiles.channels, self.count, self.to);
        let part = Part { at: self.rows.0, across: self.rows.1, along: 1, width: rows, depth: 9 * c };
        W::run(self.isa, PackPanels { part, width: rows, pitch: rows, panels: self.turned, apart: 0 });
        for lane in (0..rows).step_by(S::LANES) {
            let lanes = S::LANES.min(rows - lane);
            for channel in 0..c {
                let mut taps = [s.splat(W::ZERO); 9];
                for (tap, slot) in taps.iter_mut().enumerate() {
                    let at = self.turned.wrapping_add((channel * 9 + tap) * rows + lane);
                    // SAFETY: the weights were turned, and there is slack for a vector after them.
                    *slot = unsafe { s.load(at) };
                }
                // No closures over vectors here: what the compiler does not inline is compiled without the instructions.
                let columns = [
                    F::weights(s, [taps[0], taps[3], taps[6]]),
                    F::weights(s, [taps[1], taps[4], taps[7]]),
                    F::weights(s, [taps[2], taps[5], taps[8]]),
                ];
                for y in 0..F::INPUTS {
                    let row = F::weights(s, [columns[0][y], columns[1][y], columns[2][y]]);
                    for (x, &v) in row.iter().enumerate().take(F::INPUTS) {
                        let to = to.wrapping_add((y * F::INPUTS + x) * plane + channel * rows + lane);
                        // What a vector writes too much is overwritten by the next channels, where there are some.
                        let whole = lanes == S::LANES || channel * rows + lane + S::LANES <= c * rows;
                        // SAFETY: the group has a place for every channel and point.
                        unsafe {
                            if whole {
                                s.store(to, v);
                            } else {
                                s.store_first(to, v, lanes);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Transforms the weights of one group of output channels: gathers them where they are not in rows, and turns them.
///
/// # Safety
/// `w` is the first weight of the convolution's group, `own` has room for twice [`Tiles::turned`] elements and `to` for
/// the transformed weights of the group at all points, so far apart.
pub(super) unsafe fn transform_weights<T: Real<Wide = f32>, F: Form>(
    g: &Geometry,
    tiles: &Tiles,
    isa: Isa,
    group: usize,
    w: *const T,
    own: *mut f32,
    to: (*mut f32, usize),
) {
    let (start, count) = tiles.groups.piece(group);
    // SAFETY: the caller's promise.
    let rows = unsafe { weight_rows(g, w.wrapping_offset(start as isize * g.w[1]), count, own) };
    let turned = own.wrapping_add(tiles.turned());
    f32::run(isa, Weights { isa, tiles, rows, to, count, turned, form: PhantomData::<F> });
}

/// Transforms some channels of a panel of tiles.
pub(super) struct Inputs<'a, W, F> {
    pub tiles: &'a Tiles,
    pub frame: &'a Frame,
    /// The group's first channel in the frame.
    pub image: *const W,
    pub panel: usize,
    pub channels: Range<usize>,
    /// The transformed panel.
    pub to: *mut W,
    pub form: PhantomData<F>,
}

impl<W: Computed, F: Form> LanesTask<W> for Inputs<'_, W, F> {
    #[inline(always)]
    fn run<S: Lanes<W>>(self, s: S) {
        let (tiles, frame) = (self.tiles, self.frame);
        let plane = tiles.input_plane();
        for c in self.channels {
            let to = self.to.wrapping_add(c * tiles.width);
            for (row, tile, place, count) in tiles.runs(self.panel) {
                let corner = c * frame.channel() + row * F::OUTPUTS * frame.pitch() + tile;
                for i in (0..count).step_by(S::LANES) {
                    let lanes = S::LANES.min(count - i);
                    let from = self.image.wrapping_add(corner + i);
                    let mut half = [[s.splat(W::ZERO); MOST]; MOST];
                    for x in 0..F::INPUTS {
                        let mut d = [s.splat(W::ZERO); MOST];
                        for (y, d) in d.iter_mut().enumerate().take(F::INPUTS) {
                            // SAFETY: the frame has all inputs of its tiles, and slack for a vector after them.
                            *d = unsafe { s.load(from.add(y * frame.pitch() + frame.column(x))) };
                        }
                        half[x] = F::input(s, d);
                    }
                    for y in 0..F::INPUTS {
                        let mut d = [s.splat(W::ZERO); MOST];
                        for x in 0..F::INPUTS {
                            d[x] = half[x][y];
                        }
                        let row = F::input(s, d);
                        for (x, &v) in row.iter().enumerate().take(F::INPUTS) {
                            let to = to.wrapping_add((y * F::INPUTS + x) * plane + place + i);
                            // SAFETY: the panel has a place for these tiles.
                            unsafe { store_some(s, to, v, lanes) };
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn store_some<W: Float, S: Lanes<W>>(s: S, to: *mut W, v: S::V, lanes: usize) {
    // SAFETY: the caller has room for so many lanes.
    unsafe { if lanes == S::LANES { s.store(to, v) } else { s.store_first(to, v, lanes) } }
}

/// Multiplies a panel with some groups of output channels, point by point.
pub(super) struct Products<'a, W> {
    pub tiles: &'a Tiles,
    /// The first of the groups' transformed weights, and the distance of points.
    pub weights: (*const W, usize),
    /// The transformed panel.
    pub inputs: *const W,
    /// Room for the products of a block.
    pub results: *mut W,
    pub panel: usize,
    /// The first of the groups, and how many.
    pub groups: (usize, usize),
}

impl<W: Computed> LanesTask<W> for Products<'_, W> {
    #[inline(always)]
    fn run<S: Lanes<W>>(self, s: S) {
        let (tiles, c) = (self.tiles, self.tiles.channels);
        let split = Split::into(tiles.rows_of(self.groups).1, self.groups.1);
        debug_assert!(split.longest() <= tile_of::<W, S>().0, "a group fits the registers");
        let count = tiles.width.min(tiles.down * tiles.across - self.panel * tiles.width);
        for point in 0..tiles.points {
            let weights = self.weights.0.wrapping_add(point * self.weights.1);
            let inputs = self.inputs.wrapping_add(point * tiles.input_plane());
            let target = Target {
                c: self.results.wrapping_add(point * tiles.result_plane()),
                rs: tiles.width as isize,
                // Whole vectors are written: what is beyond the last tile is never looked at.
                columns: if count > S::LANES { tiles.width } else { S::LANES },
                accumulate: false,
                stream: false,
                bias: std::ptr::null(),
                bias_rs: 0,
                bias_cs: 0,
                activation: Activation::None,
            };
            let (left, right) =
                (Left { a: weights, rs: 1, cs: 1 }, Right { b: inputs, rs: tiles.width as isize });
            // SAFETY: weights and panel are transformed, and the results have room for a block.
            unsafe { micro::column::<W, S, Packed>(s, split, c, left, right, target) };
        }
    }
}

/// Weights as they were given, one at a time.
#[derive(Clone, Copy)]
pub(super) struct Plain<W> {
    /// The group's first weight.
    pub at: *const u8,
    /// The element so far from it.
    pub read: unsafe fn(*const u8, isize) -> W,
}

/// Reads an element and widens it.
///
/// # Safety
/// `at` plus `offset` elements is one of the weights.
pub(super) unsafe fn read_plain<T: Real>(at: *const u8, offset: isize) -> T::Wide {
    // SAFETY: the caller's promise.
    unsafe { *at.cast::<T>().offset(offset) }.widen()
}

/// Transforms the products of some groups of output channels back.
pub(super) struct Outputs<'a, W, F> {
    pub isa: Isa,
    pub g: &'a Geometry,
    pub tiles: &'a Tiles,
    pub frame: &'a Frame,
    /// The group's first channel in the frame.
    pub image: *const W,
    pub plain: Plain<W>,
    /// The products of the groups.
    pub results: *const W,
    /// The group's first bias, null for none.
    pub bias: *const W,
    /// The group's first channel of the result, and the distance of channels.
    pub to: *mut W,
    pub apart: isize,
    pub activation: Activation,
    pub panel: usize,
    /// The first of the groups, and how many.
    pub groups: (usize, usize),
    pub form: PhantomData<F>,
}

impl<W: Computed, F: Form> LanesTask<W> for Outputs<'_, W, F> {
    #[inline(always)]
    fn run<S: Lanes<W>>(self, s: S) {
        let (start, rows) = self.tiles.rows_of(self.groups);
        for row in 0..rows {
            self.back(s, start + row, self.results.wrapping_add(row * self.tiles.width));
        }
    }
}

impl<W: Computed, F: Form> Outputs<'_, W, F> {
    /// Transforms the products of one output channel back.
    #[inline(always)]
    fn back<S: Lanes<W>>(&self, s: S, channel: usize, results: *const W) {
        let (g, plane) = (self.g, self.tiles.result_plane());
        let zero = s.splat(W::ZERO);
        let bias = if self.bias.is_null() {
            zero
        } else {
            // SAFETY: the bias has an element for every channel.
            s.splat(unsafe { *self.bias.add(channel) })
        };
        let to = self.to.wrapping_offset(channel as isize * self.apart);
        for (row, tile, place, count) in self.tiles.runs(self.panel) {
            for i in (0..count).step_by(S::LANES) {
                let lanes = S::LANES.min(count - i);
                let mut half = [[zero; 4]; MOST];
                for x in 0..F::INPUTS {
                    let mut m = [zero; MOST];
                    for (y, m) in m.iter_mut().enumerate().take(F::INPUTS) {
                        let from = results.wrapping_add((y * F::INPUTS + x) * plane + place + i);
                        // SAFETY: the products have these tiles, and slack for a vector after them.
                        *m = unsafe { s.load(from) };
                    }
                    half[x] = F::output(s, m);
                }
                let (top, column) = (row * F::OUTPUTS, (tile + i) * F::OUTPUTS);
                let columns = (lanes * F::OUTPUTS).min(g.output[2] - column);
                let height = F::OUTPUTS.min(g.output[1] - top);
                let corner = to.wrapping_add(top * g.output[2] + column);
                // Zero times a finite number is zero; anything else is not.
                let mut finite = zero;
                for y in 0..F::OUTPUTS {
                    let mut m = [zero; MOST];
                    for x in 0..F::INPUTS {
                        m[x] = half[x][y];
                    }
                    let mut v = F::output(s, m);
                    for v in v.iter_mut().take(F::OUTPUTS) {
                        finite = s.mul_add(*v, zero, finite);
                        *v = self.finish(s, s.add(*v, bias));
                    }
                    if y < height {
                        // SAFETY: the row has so many columns.
                        unsafe { write_row::<W, S, F>(s, v, corner.add(y * g.output[2]), columns) };
                    }
                }
                // SAFETY: these rows were written.
                unsafe {
                    activate_rows(self.isa, corner, g.output[2] as isize, height, columns, self.activation);
                }
                let bad = s.mask_bits(s.ne(finite, zero));
                for lane in (0..lanes).filter(|lane| bad >> lane & 1 == 1) {
                    self.anew(channel, row, tile + i + lane);
                }
            }
        }
    }

    /// The activations that are short; the others are applied to rows that are written.
    #[inline(always)]
    fn finish<S: Lanes<W>>(&self, s: S, x: S::V) -> S::V {
        match self.activation {
            Activation::Relu => s.max(s.splat(W::ZERO), x),
            Activation::LeakyRelu { slope } => {
                let scaled = s.mul(x, s.splat(W::from_f64(f64::from(slope))));
                s.select(s.lt(x, s.splat(W::ZERO)), scaled, x)
            }
            _ => x,
        }
    }

    /// One tile by the definition.
    #[cold]
    #[inline(never)]
    fn anew(&self, channel: usize, row: usize, tile: usize) {
        let (g, frame) = (self.g, self.frame);
        let to = self.to.wrapping_offset(channel as isize * self.apart);
        for y in row * F::OUTPUTS..((row + 1) * F::OUTPUTS).min(g.output[1]) {
            for x in tile * F::OUTPUTS..((tile + 1) * F::OUTPUTS).min(g.output[2]) {
                let mut sum = 0.0;
                for step in 0..g.c * 9 {
                    let (c, ky, kx) = (step / 9, step / 3 % 3, step % 3);
                    let from = c * frame.channel() + (y + ky) * frame.pitch() + frame.column(x + kx);
                    let at = channel as isize * g.w[1]
                        + c as isize * g.w[2]
                        + ky as isize * g.w[4]
                        + kx as isize * g.w[5];
                    // SAFETY: channel, row and column are inside the frame, channels and tap inside the weights.
                    let (x, w) = unsafe { (*self.image.add(from), (self.plain.read)(self.plain.at, at)) };
                    sum += x.to_f64() * w.to_f64();
                }
                if !self.bias.is_null() {
                    // SAFETY: the bias has an element for every channel.
                    sum += unsafe { *self.bias.add(channel) }.to_f64();
                }
                let sum = crate::ops::matmul::apply(self.activation, sum);
                // SAFETY: the channel has this output.
                unsafe { to.add(y * g.output[2] + x).write(W::from_f64(sum)) };
            }
        }
    }
}

/// Writes a row of tiles, whose columns are in different vectors.
#[inline(always)]
unsafe fn write_row<W: Float, S: Lanes<W>, F: Form>(s: S, v: [S::V; 4], to: *mut W, columns: usize) {
    let joined = if F::OUTPUTS == 2 {
        let [a, b] = join2(s, [v[0], v[1]]);
        [a, b, a, b]
    } else {
        join4(s, v)
    };
    for (i, v) in joined.into_iter().enumerate().take(F::OUTPUTS) {
        let at = i * S::LANES;
        if at < columns {
            // SAFETY: the row goes on for so many columns.
            unsafe { store_some(s, to.add(at), v, S::LANES.min(columns - at)) };
        }
    }
}
