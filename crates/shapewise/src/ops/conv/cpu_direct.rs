//! Convolution by its definition, a few outputs of some vectors of channels at once: inputs are read where they lie.
//!
//! A tile is some outputs by two or four vectors of output channels, summed in registers: each step loads those vectors of weights
//! and spreads one input of each output over the lanes. Outputs whose inputs are partly padding come last, from a copy
//! of just those inputs.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set
#![allow(clippy::needless_range_loop)] // rows and columns of several arrays at once

use std::ops::Range;

use super::geometry::Geometry;
use crate::backends::cpu::simd::{Isa, Lanes};
use crate::ops::Activation;
use crate::ops::matmul::cpu_finish::apply;
use crate::ops::matmul::cpu_micro::{wide_of, wide_shape};
use crate::ops::matmul::cpu_problem::{LanesTask, Real as Computed};

/// The most outputs of a tile, each with an address in a register, and elements of one.
const MOST: usize = 8;
const MOST_ELEMENTS: usize = 6 * 4 * 16;

/// How a convolution is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Steps: input channels times taps.
    pub k: usize,
    /// Outputs of a tile.
    pub width: usize,
    /// Vectors of channels of a tile.
    vectors: usize,
    /// Channels of a block.
    pub block: usize,
    pub blocks: usize,
    /// Outputs along each axis all of whose inputs exist.
    inside: [(usize, usize); 3],
}

impl Cut {
    pub fn new<W>(g: &Geometry, isa: Isa) -> Self {
        let lanes = isa.register_bytes() / size_of::<W>();
        let (width, most) = wide_shape(isa.register_bytes());
        // Four vectors where they do not compute more channels that do not exist than two.
        let four = most == 4 && g.o.next_multiple_of(4 * lanes) == g.o.next_multiple_of(2 * lanes);
        let vectors = if four { 4 } else { 2 };
        let block = vectors * lanes;
        let inside = [0, 1, 2].map(|axis| {
            let (stride, output) = (g.stride[axis], g.output[axis] as isize);
            let reach = ((g.kernel[axis].max(1) - 1) * g.dilation[axis]) as isize;
            let first = ceiling(g.before[axis], stride).clamp(0, output);
            let end = ceiling(g.input[axis] as isize + g.before[axis] - reach, stride).clamp(first, output);
            (first as usize, end as usize)
        });
        Self { k: g.c * g.taps(), width, vectors, block, blocks: g.o.div_ceil(block), inside }
    }

    /// Elements of a group's packed weights.
    pub fn weights(&self) -> usize {
        self.blocks * self.block * self.k
    }

    /// Outputs all of whose inputs exist.
    pub fn whole(&self) -> usize {
        self.inside.iter().map(|(first, end)| end - first).product()
    }

    /// Tiles of outputs all of whose inputs exist, and of the others.
    pub fn tiles(&self, g: &Geometry) -> [usize; 2] {
        [self.whole().div_ceil(self.width), (g.pixels() - self.whole()).div_ceil(self.width)]
    }

    /// The outputs in the order in which they are computed, the whole ones first.
    pub fn order(&self, g: &Geometry, to: &mut [u32]) {
        let (mut first, mut last) = (0, self.whole());
        let [_, height, width] = g.output;
        for pixel in 0..g.pixels() {
            let at = [pixel / (height * width), pixel / width % height, pixel % width];
            let whole = (0..3).all(|axis| (self.inside[axis].0..self.inside[axis].1).contains(&at[axis]));
            let slot = if whole { &mut first } else { &mut last };
            to[*slot] = pixel as u32;
            *slot += 1;
        }
    }

    /// How far the input of each step is from that of the first.
    pub fn offsets(g: &Geometry, to: &mut [isize]) {
        for (step, to) in to.iter_mut().enumerate() {
            let (c, tap) = (step / g.taps(), tap(g, step % g.taps()));
            let taps: isize =
                (0..3).map(|axis| (tap[axis] * g.dilation[axis]) as isize * g.x[2 + axis]).sum();
            *to = c as isize * g.x[1] + taps;
        }
    }

    /// Packs the weights of a block, step by step; channels that do not exist have zeros.
    ///
    /// # Safety
    /// `w` is the group's first weight, `to` has room for a block.
    pub unsafe fn pack<W: Computed>(&self, g: &Geometry, block: usize, w: *const W, to: *mut W) {
        let first = block * self.block;
        for step in 0..self.k {
            let (c, tap) = (step / g.taps(), tap(g, step % g.taps()));
            let taps: isize = (0..3).map(|axis| tap[axis] as isize * g.w[3 + axis]).sum();
            let from = w.wrapping_offset(c as isize * g.w[2] + taps + first as isize * g.w[1]);
            for lane in 0..self.block {
                let exists = first + lane < g.o;
                // SAFETY: the weight exists, and the block has a place for it.
                unsafe {
                    let w = if exists { *from.offset(lane as isize * g.w[1]) } else { W::ZERO };
                    to.add(step * self.block + lane).write(w);
                }
            }
        }
    }
}

fn tap(g: &Geometry, tap: usize) -> [usize; 3] {
    let [_, kh, kw] = g.kernel;
    [tap / (kh * kw), tap / kw % kh, tap % kw]
}

fn ceiling(a: isize, b: usize) -> isize {
    a.div_euclid(b as isize) + isize::from(a.rem_euclid(b as isize) != 0)
}

/// Some tiles of some blocks of one image and group.
pub(super) struct Task<'a, W> {
    pub g: &'a Geometry,
    pub cut: &'a Cut,
    pub order: &'a [u32],
    pub offsets: &'a [isize],
    /// The group's first element of the image.
    pub x: *const W,
    /// The group's packed weights.
    pub weights: *const W,
    /// The group's first bias, null for none.
    pub bias: *const W,
    /// The group's first element of the result.
    pub y: *mut W,
    pub activation: Activation,
    pub tiles: Range<usize>,
    pub blocks: Range<usize>,
    /// Room for the inputs of a tile.
    pub own: *mut W,
}

/// Where the outputs of a tile lie.
struct Places<W> {
    from: [*const W; MOST],
    to: [*mut W; MOST],
    count: usize,
    /// Whether the inputs were copied, those of a step side by side.
    copied: bool,
}

impl<W: Computed> LanesTask<W> for Task<'_, W> {
    #[inline(always)]
    fn run<S: Lanes<W>>(self, s: S) {
        for tile in self.tiles.clone() {
            let places = self.places(tile);
            for block in self.blocks.clone() {
                let mut sums = [W::ZERO; MOST_ELEMENTS];
                let weights = self.weights.wrapping_add(block * self.cut.block * self.cut.k);
                let (outputs, most) = const { wide_of::<W, S>() };
                // SAFETY: the places are those of existing outputs, the weights are packed.
                unsafe {
                    if most == 4 && self.cut.vectors == 4 {
                        self.sum::<S, 6, 4>(s, &places, weights, &mut sums);
                    } else if outputs == 8 {
                        self.sum::<S, 8, 2>(s, &places, weights, &mut sums);
                    } else if outputs == 6 {
                        self.sum::<S, 6, 2>(s, &places, weights, &mut sums);
                    } else {
                        self.sum::<S, 4, 2>(s, &places, weights, &mut sums);
                    }
                    self.finish(s, &places, block, &mut sums);
                }
            }
        }
    }
}

impl<W: Computed> Task<'_, W> {
    /// Where a tile's outputs and their inputs lie; the last output stands in for missing ones.
    fn places(&self, tile: usize) -> Places<W> {
        let (g, cut) = (self.g, self.cut);
        let (whole, [inside, _]) = (cut.whole(), cut.tiles(g));
        let copied = tile >= inside;
        let (first, end) = if copied {
            (whole + (tile - inside) * cut.width, g.pixels())
        } else {
            (tile * cut.width, whole)
        };
        let count = cut.width.min(end - first);
        let mut places = Places { from: [self.x; MOST], to: [self.y; MOST], count, copied };
        let [_, height, width] = g.output;
        for i in 0..cut.width {
            let pixel = self.order[first + i.min(count - 1)] as usize;
            let at = [pixel / (height * width), pixel / width % height, pixel % width];
            let to: isize = (0..3).map(|axis| at[axis] as isize * g.y[2 + axis]).sum();
            places.to[i] = self.y.wrapping_offset(to);
            let corner = [0, 1, 2].map(|axis| (at[axis] * g.stride[axis]) as isize - g.before[axis]);
            if copied {
                places.from[i] = self.own.wrapping_add(i).cast_const();
                self.copy(corner, i);
            } else {
                let from: isize = (0..3).map(|axis| corner[axis] * g.x[2 + axis]).sum();
                places.from[i] = self.x.wrapping_offset(from);
            }
        }
        places
    }

    /// Copies the inputs of the tile's output `i`, zeros for padding.
    fn copy(&self, corner: [isize; 3], i: usize) {
        let (g, width, taps) = (self.g, self.cut.width, self.g.taps());
        for t in 0..taps {
            let tap = tap(g, t);
            let place = [0, 1, 2].map(|axis| corner[axis] + (tap[axis] * g.dilation[axis]) as isize);
            let inside = (0..3).all(|axis| place[axis] >= 0 && place[axis] < g.input[axis] as isize);
            let from: isize = (0..3).map(|axis| place[axis] * g.x[2 + axis]).sum();
            for c in 0..g.c {
                let from = self.x.wrapping_offset(from + c as isize * g.x[1]);
                // SAFETY: the place is inside the input where it is read; there is room for every step of the tile.
                unsafe {
                    let x = if inside { *from } else { W::ZERO };
                    self.own.add((c * taps + t) * width + i).write(x);
                }
            }
        }
    }

    /// # Safety
    /// Every output's inputs can be read, the weights are a packed block.
    #[inline(always)]
    unsafe fn sum<S: Lanes<W>, const N: usize, const V: usize>(
        &self,
        s: S,
        places: &Places<W>,
        weights: *const W,
        to: &mut [W; MOST_ELEMENTS],
    ) {
        let mut sums = [[s.splat(W::ZERO); V]; N];
        let mut from = [places.from[0]; N];
        from.copy_from_slice(&places.from[..N]);
        for step in 0..self.cut.k {
            let at = weights.wrapping_add(step * V * S::LANES);
            // SAFETY: the caller's promise.
            unsafe {
                let offset =
                    if places.copied { (step * N) as isize } else { *self.offsets.get_unchecked(step) };
                let mut w = [s.splat(W::ZERO); V];
                for v in 0..V {
                    w[v] = s.load(at.add(v * S::LANES));
                }
                for i in 0..N {
                    let x = s.splat(*from[i].offset(offset));
                    for v in 0..V {
                        sums[i][v] = s.mul_add(x, w[v], sums[i][v]);
                    }
                }
            }
        }
        for i in 0..N {
            for v in 0..V {
                // SAFETY: the array has room for the largest tile.
                unsafe { s.store(to.as_mut_ptr().add((i * V + v) * S::LANES), sums[i][v]) };
            }
        }
    }

    /// Adds the bias, applies the activation and writes the sums of a tile.
    ///
    /// # Safety
    /// The outputs of the tile can be written.
    #[inline(always)]
    unsafe fn finish<S: Lanes<W>>(
        &self,
        s: S,
        places: &Places<W>,
        block: usize,
        sums: &mut [W; MOST_ELEMENTS],
    ) {
        let (g, size) = (self.g, self.cut.block);
        let first = block * size;
        let channels = size.min(g.o - first);
        for v in 0..self.cut.vectors {
            let lanes = channels.saturating_sub(v * S::LANES).min(S::LANES);
            if lanes == 0 {
                break;
            }
            let mut bias = s.splat(W::ZERO);
            if !self.bias.is_null() {
                // SAFETY: the bias has an element for every channel.
                bias = unsafe { s.load_first(self.bias.add(first + v * S::LANES), lanes) };
            }
            for i in 0..places.count {
                let at = sums.as_mut_ptr().wrapping_add(i * size + v * S::LANES);
                // SAFETY: the sums of the tile, and a pixel with so many channels.
                unsafe {
                    let y = apply(s, s.add(s.load(at), bias), self.activation);
                    if g.y[1] != 1 {
                        s.store(at, y);
                    } else if lanes == S::LANES {
                        s.store(places.to[i].add(first + v * S::LANES), y);
                    } else {
                        s.store_first(places.to[i].add(first + v * S::LANES), y, lanes);
                    }
                }
            }
        }
        if g.y[1] == 1 {
            return;
        }
        for channel in 0..channels {
            for i in 0..places.count {
                let to = places.to[i].wrapping_offset((first + channel) as isize * g.y[1]);
                // SAFETY: the output has this channel.
                unsafe { to.write(sums[i * size + channel]) };
            }
        }
    }
}
