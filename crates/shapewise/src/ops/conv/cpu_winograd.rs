//! Kernels of 3×3 by Winograd's minimal filtering: tiles of outputs from fewer products.
//!
//! Inputs, weights and results are transformed tile by tile; between the transforms there is one matrix product for
//! each of the tile's points, over the input channels. A panel of tiles is transformed, multiplied with blocks of
//! output channels and transformed back while it is in the second cache. A tile whose result is not finite is computed
//! anew by the definition: transforms spread infinities and overflow earlier.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use std::marker::PhantomData;
use std::ops::Range;

use super::cpu_image::Frame;
use super::cpu_interleave::{join2, join4};
use super::cpu_winograd_forms::{Form, MOST};
use super::geometry::Geometry;
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::{Float, Isa, Lanes};
use crate::ops::Activation;
use crate::ops::matmul::cpu_finish::activate_rows;
use crate::ops::matmul::cpu_micro::{self as micro, Left, Packed, Right, Target, tile_of, tile_shape};
use crate::ops::matmul::cpu_problem::{LanesTask, Real as Computed, Split, panel_width};

/// Output channels that are multiplied and transformed back at once: their results stay in the second cache.
const BLOCK_ROWS: usize = 48;

/// Elements between the planes of a tile's points beyond their size: planes start in different sets of the caches.
const APART: usize = 16;

/// How a convolution is cut into tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    /// Points of a tile.
    pub points: usize,
    /// Inputs and outputs of a tile along an axis.
    inputs: usize,
    outputs: usize,
    /// Rows of tiles, and tiles of a row.
    pub down: usize,
    pub across: usize,
    /// Tiles of a panel.
    pub width: usize,
    /// Output channels in groups that fill the registers, and blocks of those groups.
    pub groups: Split,
    pub blocks: Split,
    channels: usize,
}

impl Tiles {
    pub fn new<W>(g: &Geometry, isa: Isa, outputs: usize) -> Self {
        let inputs = outputs + 2;
        let (rows, _) = tile_shape(isa.register_bytes());
        let groups = Split::at_most(g.o, rows);
        Self {
            points: inputs * inputs,
            inputs,
            outputs,
            down: g.output[1].div_ceil(outputs),
            across: g.output[2].div_ceil(outputs),
            width: panel_width::<W>(isa),
            groups,
            blocks: Split::at_most(groups.blocks, (BLOCK_ROWS / rows).max(1)),
            channels: g.c,
        }
    }

    /// The convolution whose outputs are tiles and whose kernel is a tile's inputs: its frame is what tiles read.
    pub fn frame(&self, g: &Geometry) -> Frame {
        Frame::new(&Geometry {
            kernel: [1, self.inputs, self.inputs],
            output: [1, self.down, self.across],
            stride: [1, self.outputs, self.outputs],
            ..*g
        })
    }

    pub fn panels(&self) -> usize {
        (self.down * self.across).div_ceil(self.width)
    }

    /// Elements of the transformed weights of a group.
    pub fn weights(&self, g: &Geometry) -> usize {
        self.points * g.o * g.c
    }

    /// Elements from one point of a transformed panel to the next.
    fn input_plane(&self) -> usize {
        self.channels * self.width + APART
    }

    /// Elements of a transformed panel; the last vector may write beyond it.
    pub fn panel(&self) -> usize {
        self.points * self.input_plane() + APART
    }

    fn block_rows(&self) -> usize {
        self.blocks.longest() * self.groups.longest()
    }

    fn result_plane(&self) -> usize {
        self.block_rows() * self.width + APART
    }

    /// Elements of the products of a block.
    pub fn results(&self) -> usize {
        self.points * self.result_plane() + APART
    }

    /// First row and number of rows of a block.
    fn rows(&self, block: usize) -> (usize, usize) {
        let (first, count) = self.blocks.piece(block);
        let start = self.groups.piece(first).0;
        let (last, rows) = self.groups.piece(first + count - 1);
        (start, last + rows - start)
    }

    /// The runs of tiles in one row of tiles: row, first tile, place in the panel, number.
    fn runs(&self, panel: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> + use<> {
        let (across, end) = (self.across, (self.down * self.across).min((panel + 1) * self.width));
        let first = panel * self.width;
        let mut at = first;
        std::iter::from_fn(move || {
            let (row, tile) = (at / across, at % across);
            let count = (across - tile).min(end.saturating_sub(at));
            let run = (row, tile, at - first, count);
            at += count;
            (count > 0).then_some(run)
        })
    }
}

/// Transforms the weights of one group of output channels.
pub(super) struct Weights<'a, T, F> {
    pub g: &'a Geometry,
    pub tiles: &'a Tiles,
    /// The first weight of the convolution's group.
    pub w: *const T,
    pub to: *mut f32,
    pub rows: usize,
    pub form: PhantomData<F>,
}

impl<T: Real<Wide = f32>, F: Form> LanesTask<f32> for Weights<'_, T, F> {
    #[inline(always)]
    fn run<S: Lanes<f32>>(self, s: S) {
        let (g, tiles) = (self.g, self.tiles);
        let (start, rows) = tiles.groups.piece(self.rows);
        let w = self.w.wrapping_offset(start as isize * g.w[1]);
        let to = self.to.wrapping_add(start * g.c);
        for first in (0..rows).step_by(S::LANES) {
            let lanes = S::LANES.min(rows - first);
            for c in 0..g.c {
                let mut taps = [[s.splat(0.0); 3]; 3];
                for (y, taps) in taps.iter_mut().enumerate() {
                    for (x, tap) in taps.iter_mut().enumerate() {
                        let at = c as isize * g.w[2] + y as isize * g.w[4] + x as isize * g.w[5];
                        let mut line = [0.0; 16];
                        for (i, slot) in line.iter_mut().enumerate().take(lanes) {
                            // SAFETY: channels and tap exist.
                            *slot = unsafe { *w.offset((first + i) as isize * g.w[1] + at) }.widen();
                        }
                        // SAFETY: the line has LANES elements or more.
                        *tap = unsafe { s.load(line.as_ptr()) };
                    }
                }
                let columns = [0, 1, 2].map(|x| F::weights(s, [taps[0][x], taps[1][x], taps[2][x]]));
                for y in 0..F::INPUTS {
                    let row = F::weights(s, [columns[0][y], columns[1][y], columns[2][y]]);
                    for (x, &v) in row.iter().enumerate().take(F::INPUTS) {
                        let to = to.wrapping_add((y * F::INPUTS + x) * g.o * g.c + c * rows + first);
                        // SAFETY: the group has a place for every channel and point.
                        unsafe { s.store_first(to, v, lanes) };
                    }
                }
            }
        }
    }
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

/// Multiplies a panel with a block of output channels and transforms the results back.
pub(super) struct Outputs<'a, T: Real, F> {
    pub isa: Isa,
    pub g: &'a Geometry,
    pub tiles: &'a Tiles,
    pub frame: &'a Frame,
    /// The group's first channel in the frame, and its weights as they were given.
    pub image: *const T::Wide,
    pub w: *const T,
    /// The group's transformed weights and the transformed panel.
    pub weights: *const T::Wide,
    pub inputs: *const T::Wide,
    /// Room for the products of a block.
    pub results: *mut T::Wide,
    /// The group's first bias, null for none.
    pub bias: *const T::Wide,
    /// The group's first channel of the result, and the distance of channels and rows.
    pub to: *mut T::Wide,
    pub apart: isize,
    pub activation: Activation,
    pub panel: usize,
    pub block: usize,
    pub form: PhantomData<F>,
}

impl<T: Real, F: Form> LanesTask<T::Wide> for Outputs<'_, T, F>
where
    T::Wide: Computed,
{
    #[inline(always)]
    fn run<S: Lanes<T::Wide>>(self, s: S) {
        let (g, tiles) = (self.g, self.tiles);
        let (start, rows) = tiles.rows(self.block);
        let split = Split::into(rows, tiles.blocks.length(self.block));
        debug_assert!(split.longest() <= tile_of::<T::Wide, S>().0, "a group fits the registers");
        let count = tiles.width.min(tiles.down * tiles.across - self.panel * tiles.width);
        for point in 0..tiles.points {
            let left = Left { a: self.weights.wrapping_add(point * g.o * g.c + start * g.c), rs: 1, cs: 1 };
            let right =
                Right { b: self.inputs.wrapping_add(point * tiles.input_plane()), rs: tiles.width as isize };
            let target = Target {
                c: self.results.wrapping_add(point * tiles.result_plane()),
                rs: tiles.width as isize,
                // Whole panels are written: what is beyond the last tile is never looked at.
                columns: if count > S::LANES { tiles.width } else { S::LANES },
                accumulate: false,
                stream: false,
                bias: std::ptr::null(),
                bias_rs: 0,
                bias_cs: 0,
                activation: Activation::None,
            };
            // SAFETY: weights and panel are transformed, and the results have room for a block.
            unsafe { micro::column::<T::Wide, S, Packed>(s, split, g.c, left, right, target) };
        }
        for row in 0..rows {
            self.back(s, start + row, self.results.wrapping_add(row * tiles.width));
        }
    }
}

impl<T: Real, F: Form> Outputs<'_, T, F>
where
    T::Wide: Computed,
{
    /// Transforms the products of one output channel back.
    #[inline(always)]
    fn back<S: Lanes<T::Wide>>(&self, s: S, channel: usize, results: *const T::Wide) {
        let (g, plane) = (self.g, self.tiles.result_plane());
        let zero = s.splat(T::Wide::ZERO);
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
                // Zero times a finite number is zero; anything else is not.
                let mut finite = zero;
                let mut rows = [[zero; 4]; 4];
                for y in 0..F::OUTPUTS {
                    let mut m = [zero; MOST];
                    for x in 0..F::INPUTS {
                        m[x] = half[x][y];
                    }
                    rows[y] = F::output(s, m);
                    for v in rows[y].iter_mut().take(F::OUTPUTS) {
                        finite = s.mul_add(*v, zero, finite);
                        *v = self.finish(s, s.add(*v, bias));
                    }
                }
                let (top, column) = (row * F::OUTPUTS, (tile + i) * F::OUTPUTS);
                let columns = (lanes * F::OUTPUTS).min(g.output[2] - column);
                let height = F::OUTPUTS.min(g.output[1] - top);
                let corner = to.wrapping_add(top * g.output[2] + column);
                for (y, &row) in rows.iter().enumerate().take(height) {
                    // SAFETY: the row has so many columns.
                    unsafe { write_row::<T::Wide, S, F>(s, row, corner.add(y * g.output[2]), columns) };
                }
                // SAFETY: as above.
                unsafe {
                    activate_rows(self.isa, corner, g.output[2] as isize, height, columns, self.activation)
                };
                let bad = s.mask_bits(s.ne(finite, zero));
                for lane in (0..lanes).filter(|lane| bad >> lane & 1 == 1) {
                    self.anew(channel, row, tile + i + lane);
                }
            }
        }
    }

    /// The activations that are short; the others are applied to rows that are written.
    #[inline(always)]
    fn finish<S: Lanes<T::Wide>>(&self, s: S, x: S::V) -> S::V {
        match self.activation {
            Activation::Relu => s.max(s.splat(T::Wide::ZERO), x),
            Activation::LeakyRelu { slope } => {
                let scaled = s.mul(x, s.splat(T::Wide::from_f64(f64::from(slope))));
                s.select(s.lt(x, s.splat(T::Wide::ZERO)), scaled, x)
            }
            _ => x,
        }
    }

    /// One tile by the definition.
    #[cold]
    #[inline(never)]
    fn anew(&self, channel: usize, row: usize, tile: usize) {
        let (g, frame) = (self.g, self.frame);
        let w = self.w.wrapping_offset(channel as isize * g.w[1]);
        let to = self.to.wrapping_offset(channel as isize * self.apart);
        for y in row * F::OUTPUTS..((row + 1) * F::OUTPUTS).min(g.output[1]) {
            for x in tile * F::OUTPUTS..((tile + 1) * F::OUTPUTS).min(g.output[2]) {
                let mut sum = 0.0;
                for step in 0..g.c * 9 {
                    let (c, ky, kx) = (step / 9, step / 3 % 3, step % 3);
                    let from = c * frame.channel() + (y + ky) * frame.pitch();
                    let at = c as isize * g.w[2] + ky as isize * g.w[4] + kx as isize * g.w[5];
                    // SAFETY: channel, row and column are inside the frame, channels and tap inside the weights.
                    let (x, w) = unsafe { (*self.image.add(from + frame.column(x + kx)), *w.offset(at)) };
                    sum += x.to_f64() * w.widen().to_f64();
                }
                if !self.bias.is_null() {
                    // SAFETY: the bias has an element for every channel.
                    sum += unsafe { *self.bias.add(channel) }.to_f64();
                }
                let sum = crate::ops::matmul::apply(self.activation, sum);
                // SAFETY: the channel has this output.
                unsafe { to.add(y * g.output[2] + x).write(T::Wide::from_f64(sum)) };
            }
        }
    }
}

/// Writes a row of tiles, whose columns are in different vectors.
#[inline(always)]
unsafe fn write_row<W: Float, S: Lanes<W>, F: Form>(s: S, v: [S::V; 4], to: *mut W, columns: usize) {
    let put = |i: usize, v: S::V| {
        let at = i * S::LANES;
        if at < columns {
            // SAFETY: the row goes on for so many columns.
            unsafe { store_some(s, to.add(at), v, S::LANES.min(columns - at)) };
        }
    };
    if F::OUTPUTS == 2 {
        join2(s, [v[0], v[1]]).into_iter().enumerate().for_each(|(i, v)| put(i, v));
    } else {
        join4(s, v).into_iter().enumerate().for_each(|(i, v)| put(i, v));
    }
}
