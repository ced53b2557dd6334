//! Batch and group norm where each channel of each sample is a run of memory, and batch norm with channels last.
#![allow(unsafe_code)]

use std::ops::Range;

use super::cpu_normalise::{PerChannel, Uniform, normalise};
use crate::backends::cpu::real::{Real, RealTask, Vectors};
use crate::backends::cpu::simd::Float;
use crate::ops::reduce::cpu_fold::BLOCK;
use crate::ops::reduce::cpu_moments::{Moments, moments_of_block};

/// Samples × channels × places, with the strides of samples and channels; places lie side by side.
#[derive(Clone, Copy)]
pub(super) struct Planes<T: Real> {
    pub channels: usize,
    pub places: usize,
    pub x: *const T,
    pub y: *mut T,
    pub input: [isize; 2],
    pub output: [isize; 2],
    pub stream: bool,
}

// SAFETY: threads write disjoint planes of the output and only read the input; both outlive the call.
unsafe impl<T: Real> Sync for Planes<T> {}

/// Numbers of each channel, to be read or (by one task per channel) written.
#[derive(Clone, Copy)]
pub(super) struct PerChannelNumbers<W> {
    pub mean: *mut W,
    pub factor: *mut W,
    pub bias: *const W,
}

// SAFETY: tasks write numbers of channels of their own.
unsafe impl<W: Send> Sync for PerChannelNumbers<W> {}

impl<T: Real> Planes<T> {
    #[inline(always)]
    fn input(&self, sample: usize, channel: usize) -> &[T] {
        let at = sample as isize * self.input[0] + channel as isize * self.input[1];
        // SAFETY: every plane's elements are valid and side by side (see `Planes`' makers).
        unsafe { std::slice::from_raw_parts(self.x.offset(at), self.places) }
    }

    /// # Safety
    /// No other thread touches this plane of the output.
    #[inline(always)]
    unsafe fn write<S: Vectors<T>>(&self, s: S, sample: usize, channel: usize, step: Uniform<T::Wide>) {
        let at = sample as isize * self.output[0] + channel as isize * self.output[1];
        // SAFETY: the plane is valid in both operands.
        unsafe {
            let x = self.input(sample, channel).as_ptr();
            normalise(s, x, self.y.offset(at), self.places, &step, self.stream);
        }
    }
}

/// Mean and variance of one channel over all samples.
pub(super) struct ChannelMoments<'a, T: Real> {
    pub planes: &'a Planes<T>,
    pub samples: usize,
    pub channel: usize,
}

impl<T: Real> RealTask<T> for ChannelMoments<'_, T> {
    type Output = Moments;

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) -> Moments {
        let mut moments = Moments::default();
        for sample in 0..self.samples {
            for block in self.planes.input(sample, self.channel).chunks(BLOCK) {
                moments = moments.merge(moments_of_block(s, block));
            }
        }
        moments
    }
}

/// Normalises some planes by the numbers of their channels.
pub(super) struct Affine<'a, T: Real> {
    pub planes: &'a Planes<T>,
    pub numbers: PerChannelNumbers<T::Wide>,
    pub range: Range<usize>,
}

impl<T: Real> RealTask<T> for Affine<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        for plane in self.range {
            let (sample, channel) = (plane / self.planes.channels, plane % self.planes.channels);
            // SAFETY: there are numbers for each channel, and each plane is in one range only.
            unsafe {
                let step = Uniform {
                    mean: *self.numbers.mean.add(channel),
                    factor: *self.numbers.factor.add(channel),
                    bias: *self.numbers.bias.add(channel),
                };
                self.planes.write(s, sample, channel, step);
            }
        }
        s.fence();
    }
}

/// Normalises one group of channels of one sample by its own statistics.
pub(super) struct Group<'a, T: Real> {
    pub planes: &'a Planes<T>,
    pub sample: usize,
    pub channels: Range<usize>,
    pub scale: *const T::Wide,
    pub bias: *const T::Wide,
    pub eps: f64,
}

impl<T: Real> RealTask<T> for Group<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let mut moments = Moments::default();
        for channel in self.channels.clone() {
            for block in self.planes.input(self.sample, channel).chunks(BLOCK) {
                moments = moments.merge(moments_of_block(s, block));
            }
        }
        let factor = 1.0 / (moments.squares / moments.n + self.eps).sqrt();
        for channel in self.channels {
            // SAFETY: there are weights for each channel, and each group is one task's alone.
            unsafe {
                let step = Uniform {
                    mean: T::Wide::from_f64(moments.mean),
                    factor: T::Wide::from_f64(factor * (*self.scale.add(channel)).to_f64()),
                    bias: *self.bias.add(channel),
                };
                self.planes.write(s, self.sample, channel, step);
            }
        }
        s.fence();
    }
}

/// Normalises some rows whose elements are the channels.
pub(super) struct ChannelsLast<'a, T: Real> {
    pub planes: &'a Planes<T>,
    pub numbers: PerChannelNumbers<T::Wide>,
    pub range: Range<usize>,
}

impl<T: Real> RealTask<T> for ChannelsLast<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let PerChannelNumbers { mean, factor, bias } = self.numbers;
        let step = PerChannel { mean: mean.cast_const(), factor: factor.cast_const(), bias };
        let planes = self.planes;
        for row in self.range {
            let (from, to) = (row as isize * planes.input[0], row as isize * planes.output[0]);
            // SAFETY: the row is valid in both operands, and there are numbers for each channel.
            unsafe {
                normalise(
                    s,
                    planes.x.offset(from),
                    planes.y.offset(to),
                    planes.channels,
                    &step,
                    planes.stream,
                );
            }
        }
        s.fence();
    }
}
