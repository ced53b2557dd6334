//! What kernels that compute plane by plane have in common: frames, results, threads and scratch memory.
#![allow(unsafe_code)]

use std::ops::Range;

use super::cpu_image::{Fill, Frame, SLACK, Spread, outputs_in_a_row};
use super::geometry::{Geometry, attributes};
use super::{Kept, KeptForm};
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::Isa;
use crate::backends::cpu::{CpuDevice, Operand};
use crate::device::DeviceInfo;
use crate::ops::matmul::cpu_problem::Shared;
use crate::ops::{Call, Knob, ParameterSpace, Workload};

/// All threads first where each gets products enough to be worth a hand-over, one thread first where not.
pub(super) fn thread_space(workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
    let few = Geometry::of(workload).products() / (device.threads.max(1) as f64) < f64::from(1 << 16);
    let mut values = [1, device.threads.max(1) as u32];
    if !few {
        values.reverse();
    }
    let values = if device.threads > 1 { &values[..] } else { &values[..1] };
    ParameterSpace::single().axis(Knob::Threads, values)
}

/// Operands of a call.
#[derive(Clone, Copy)]
pub(super) struct Memory<T> {
    pub x: *const T,
    pub w: *const T,
    /// Null for none.
    pub bias: *const T,
    pub y: *mut T,
    /// Weights in the form that was kept, null for none.
    pub kept: *const u8,
}

// SAFETY: the pointers stand for operands that outlive the launch; kernels give each thread its own part of `y`.
unsafe impl<T: Send + Sync> Send for Memory<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Memory<T> {}

impl<T: Real> Memory<T> {
    pub fn of(call: &Call<'_>) -> Self {
        let bias = attributes(call.workload).bias;
        let bias = call.inputs.get(2).filter(|_| bias).map_or(std::ptr::null(), Operand::ptr::<T>);
        let kept = attributes(call.workload).kept;
        let kept =
            call.inputs.last().filter(|_| kept.is_some()).map_or(std::ptr::null_mut(), Operand::address);
        Self { x: call.inputs[0].ptr(), w: call.inputs[1].ptr(), bias, y: call.outputs[0].ptr_mut(), kept }
    }

    /// The kept weights, if they are in this form.
    pub fn kept(&self, call: &Call<'_>, form: KeptForm, isa: Isa) -> Option<Shared<T::Wide>> {
        let same = attributes(call.workload).kept == Some(Kept { form, isa });
        same.then(|| Shared(self.kept.cast::<T::Wide>().cast_mut()))
    }
}

/// How threads share images, and what each image needs in the scratch memory, in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub frame: Frame,
    /// Images computed side by side, and threads on each of them.
    pub outer: usize,
    pub inner: usize,
    pub bias: usize,
    pub image: usize,
    /// None where results are written straight to the output.
    pub result: usize,
}

/// Rounded up and a line apart, so that no two threads write the same one.
pub(super) fn line(elements: usize) -> usize {
    elements.next_multiple_of(16) + 16
}

impl Share {
    pub fn new<T: Real>(g: &Geometry, frame: Frame, bias: bool, threads: usize) -> Self {
        let together = threads > 1 && g.n >= threads && (g.n.is_multiple_of(threads) || g.n >= 4 * threads);
        let (outer, inner) = if together { (threads, 1) } else { (1, threads) };
        let channels = g.groups * g.o;
        let apart = size_of::<T>() != size_of::<T::Wide>() || !outputs_in_a_row(g);
        Self {
            bias: if bias { line(channels) } else { 0 },
            image: line(g.groups * g.c * frame.channel() + SLACK),
            result: if apart { line(channels * g.pixels()) } else { 0 },
            frame,
            outer,
            inner,
        }
    }

    /// Elements of scratch memory for bias, frames and results.
    pub fn scratch(&self) -> usize {
        self.bias + self.outer * (self.image + self.result)
    }

    pub fn threads(&self) -> usize {
        self.outer * self.inner
    }

    /// Times that work is handed over, given how often for each image.
    pub fn forks(&self, n: usize, each: usize) -> u32 {
        match (self.outer, self.inner) {
            (1, 1) => 0,
            (1, _) => (1 + n * each) as u32,
            _ => 2,
        }
    }
}

/// Scratch memory that is handed out piece by piece.
pub(super) struct Pieces<W> {
    at: *mut W,
}

impl<W> Pieces<W> {
    pub fn new(at: *mut u8) -> Self {
        Self { at: at.cast() }
    }

    /// The next so many elements.
    pub fn take(&mut self, elements: usize) -> Shared<W> {
        let at = self.at;
        self.at = at.wrapping_add(elements);
        Shared(at)
    }
}

/// What the threads of a launch share.
pub(super) struct Ground<'a, T: Real> {
    g: &'a Geometry,
    isa: Isa,
    memory: Memory<T>,
    device: &'a CpuDevice,
    share: Share,
    bias: Option<Shared<T::Wide>>,
    images: Shared<T::Wide>,
    results: Shared<T::Wide>,
}

/// One image on its way.
pub(super) struct Image<T: Real> {
    /// Which of the images side by side it is.
    pub slot: usize,
    n: usize,
    /// The first channel of its frame.
    pub frame: Shared<T::Wide>,
    /// The first channel of its result.
    pub to: Shared<T::Wide>,
    /// The distance of channels of its result.
    pub apart: isize,
}

impl<'a, T: Real> Ground<'a, T> {
    /// Takes its share of the scratch memory and widens the bias.
    pub fn new(
        g: &'a Geometry,
        (isa, device): (Isa, &'a CpuDevice),
        memory: Memory<T>,
        share: Share,
        scratch: &mut Pieces<T::Wide>,
    ) -> Self {
        let bias = scratch.take(share.bias);
        let bias = (!memory.bias.is_null()).then_some(bias);
        if let Some(bias) = bias {
            for channel in 0..g.groups * g.o {
                // SAFETY: the bias has an element for every channel, and so has the scratch memory.
                unsafe { bias.at(channel).write((*memory.bias.offset(channel as isize * g.bias)).widen()) };
            }
        }
        let (images, results) =
            (scratch.take(share.outer * share.image), scratch.take(share.outer * share.result));
        Self { g, isa, memory, device, share, bias, images, results }
    }

    /// Calls `task(worker, i)` for every `i`, on threads that each have a number.
    pub fn share(&self, threads: usize, tasks: usize, task: impl Fn(usize, usize) + Sync) {
        self.device.threads().run_numbered(threads, tasks, &task);
    }

    /// The bias of a channel, null where there is none.
    pub fn bias(&self, channel: usize) -> *const T::Wide {
        self.bias.map_or(std::ptr::null(), |bias| bias.at(channel).cast_const())
    }

    /// The first weight of a group.
    pub fn weights(&self, group: usize) -> *const T {
        self.memory.w.wrapping_offset(group as isize * self.g.w[0])
    }

    /// Fills each image's frame, computes it and writes what was not written straight to the output.
    pub fn images(&self, compute: impl Fn(&Image<T>) + Sync) {
        self.empty_images(|image| {
            self.fill(image);
            compute(image);
        });
    }

    /// The same with frames that `compute` fills.
    pub fn empty_images(&self, compute: impl Fn(&Image<T>) + Sync) {
        let one = |slot: usize, n: usize| {
            let image = self.image(slot, n);
            compute(&image);
            self.spread(&image);
        };
        if self.share.outer == 1 {
            (0..self.g.n).for_each(|n| one(0, n));
        } else {
            self.share(self.share.outer, self.g.n, one);
        }
    }

    fn image(&self, slot: usize, n: usize) -> Image<T> {
        let (g, share) = (self.g, &self.share);
        let frame = Shared(self.images.at(slot * share.image));
        let (to, apart) = if share.result > 0 {
            (self.results.at(slot * share.result), g.pixels() as isize)
        } else {
            (self.memory.y.wrapping_offset(n as isize * g.y[0]).cast(), g.y[1])
        };
        Image { slot, n, frame, to: Shared(to), apart }
    }

    fn fill(&self, image: &Image<T>) {
        let (g, frame) = (self.g, &self.share.frame);
        let (channels, lines) = (g.groups * g.c, frame.planes * frame.rows);
        // A few pieces for each thread, of rows where there are few channels.
        let pieces = (4 * self.share.inner).div_ceil(channels.max(1)).min(lines);
        self.share(self.share.inner, channels * pieces, |_, i| {
            let (c, piece) = (i / pieces, i % pieces);
            self.fill_rows(image, c, lines * piece / pieces..lines * (piece + 1) / pieces);
        });
    }

    /// Fills all of a channel's frame.
    pub fn fill_channel(&self, image: &Image<T>, channel: usize) {
        self.fill_rows(image, channel, 0..self.share.frame.planes * self.share.frame.rows);
    }

    fn fill_rows(&self, image: &Image<T>, channel: usize, rows: Range<usize>) {
        let (g, frame) = (self.g, &self.share.frame);
        let to = image.frame.at(channel * frame.channel() + rows.start * frame.pitch());
        let x = self.memory.x.wrapping_offset(image.n as isize * g.x[0] + channel as isize * g.x[1]);
        T::dispatch_narrow(self.isa, Fill { g, frame, x, to, rows });
    }

    fn spread(&self, image: &Image<T>) {
        if self.share.result == 0 {
            return;
        }
        let g = self.g;
        let y = Shared(self.memory.y.wrapping_offset(image.n as isize * g.y[0]));
        self.share(self.share.inner, g.groups * g.o, |_, channel| {
            let from = image.to.at(channel * g.pixels()).cast_const();
            let y = y.at(0).wrapping_offset(channel as isize * g.y[1]);
            T::dispatch_narrow(self.isa, Spread { g, from, y });
        });
    }
}
