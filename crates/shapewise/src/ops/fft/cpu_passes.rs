//! A whole transform as passes along one axis each, shared between threads.
#![allow(unsafe_code)]

use std::sync::{Arc, LazyLock};

use super::cache::Cache;
use super::cpu_columns::{columns, spaced};
use super::cpu_four_step::FourStep;
use super::cpu_kernels::{is_smooth, plan_of};
use super::cpu_lines::{Line, Width};
use super::cpu_real;
use super::cpu_rows::{Number, Numbers};
use super::geometry::{Along, Geometry};
use super::plan::{Plan, across};
use super::{FftKind, Rigor};
use crate::backends::cpu::real::{RealTask, Vectors};
use crate::backends::cpu::simd::{Isa, Lanes};
use crate::ops::walk::{Axis, AxisList, offset};
use crate::ops::{Call, KernelError, Knob};

/// Lanes of a register.
pub(super) fn lane_count(isa: Isa, double: bool) -> usize {
    isa.register_bytes() / if double { 8 } else { 4 }
}

/// The instruction set for lines of n neighbours: the widest whose registers hold numbers of one line. Where the lines are as many
/// as there are lanes each has a lane of its own, whatever its length.
pub(super) fn line_isa(isa: Isa, n: usize, double: bool, lines: usize) -> Isa {
    let fits = |isa: &Isa| {
        let lanes = lane_count(*isa, double);
        n.is_multiple_of(lanes) && n / lanes >= lanes
    };
    let narrower = if isa == Isa::Avx512 { Isa::Avx2 } else { isa };
    let mut known = [isa, narrower, Isa::Portable].into_iter();
    let own = lines >= lane_count(isa, double) || !is_smooth(n);
    if own { isa } else { known.find(fits).unwrap_or(isa) }
}

/// What tables are kept by: points, instruction set, rigor and number of the plan.
pub(super) type Key = (usize, Isa, Rigor, u32);

/// The tables of one element type.
pub(super) struct Tables<T> {
    lines: Cache<Key, Line<T>>,
    halves: Cache<(usize, bool), Vec<T>>,
}

impl<T: Number> Tables<T> {
    pub fn new() -> Self {
        Self { lines: Cache::new(), halves: Cache::new() }
    }
}

/// An element type that has tables.
pub(super) trait Planned: Number {
    fn tables() -> &'static Tables<Self>;
}

macro_rules! planned {
    ($($t:ty)*) => {$(
        impl Planned for $t {
            fn tables() -> &'static Tables<Self> {
                static TABLES: LazyLock<Tables<$t>> = LazyLock::new(Tables::new);
                &TABLES
            }
        }
    )*};
}
planned!(f32 f64);

/// The number of a plan across columns, which is no choice.
const ACROSS: u32 = u32::MAX;

/// The tables of a plan.
pub(super) fn line<T: Planned>(n: usize, width: Width, rigor: Rigor, variant: u32) -> Arc<Line<T>> {
    T::tables().lines.get((n, width.isa, rigor, variant), || {
        let plan = match across(n, width.lanes) {
            Some(radices) if variant == ACROSS => Plan::Across(radices),
            _ => plan_of(n, width.lanes, rigor, variant as usize),
        };
        Line::new(n, &plan, width)
    })
}

/// One call.
pub(super) struct Job<'a, T: 'static> {
    call: &'a Call<'a>,
    geometry: &'a Geometry,
    width: Width,
    rigor: Rigor,
    variant: u32,
    threads: usize,
    /// Whether lines go past the caches.
    past: bool,
    tables: &'static Tables<T>,
}

/// One pass of complex numbers along an axis.
struct Pass<'a, T> {
    n: usize,
    x: Numbers<T>,
    y: Numbers<T>,
    others: &'a [Axis],
}

/// Lets other threads see what was written past the caches.
struct Fence;

impl<T: Number> RealTask<T> for Fence {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        Lanes::<T>::fence(s);
    }
}

/// Memory that tasks share by parts of their own.
#[derive(Clone, Copy)]
struct Shared<T>(T);

// SAFETY: tasks write lines and scratch of their own, and nobody writes what another one reads.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn get(&self) -> &T {
        &self.0
    }
}

impl<'a, T: Planned> Job<'a, T> {
    pub fn new(call: &'a Call<'a>, geometry: &'a Geometry, width: Width, rigor: Rigor, variant: u32) -> Self {
        let threads = call.parameters.threads();
        let past = call.parameters.get(Knob::Stream) == Some(1);
        Self { call, geometry, width, rigor, variant, threads, past, tables: T::tables() }
    }

    pub fn run(&self) -> Result<(), KernelError> {
        let (x, y) = (self.call.inputs[0].address().cast::<T>(), self.call.outputs[0].address().cast::<T>());
        let axes = self.geometry.axes.len();
        match self.geometry.kind {
            FftKind::Forward | FftKind::Inverse => {
                for i in (0..axes).rev() {
                    self.complex(i, if i + 1 == axes { x } else { y }, y, i + 1 != axes, i == 0)?;
                }
                Ok(())
            }
            FftKind::RealForward => {
                self.real(x, y, axes == 1)?;
                (0..axes - 1).rev().try_for_each(|i| self.complex(i, y, y, true, i == 0))
            }
            FftKind::RealInverse if axes == 1 => self.real(x, y, true),
            FftKind::RealInverse => self.real_inverse(x, y),
        }
    }

    /// The vectors for lines of n neighbours, and the tables of their plan.
    fn line(&self, n: usize, lines: usize) -> (Width, Arc<Line<T>>) {
        let isa = line_isa(self.width.isa, n, size_of::<T>() == 8, lines);
        let width = if isa == self.width.isa { self.width } else { Width::of::<T>(isa) };
        (width, line(n, width, self.rigor, self.variant))
    }

    fn numbers(&self, first: *mut T, stride: isize, scale: f64) -> Numbers<T> {
        Numbers::new(first, stride, scale, self.geometry.kind.is_inverse(), self.past)
    }

    /// Complex numbers along axis `i`; later passes work in the output's place.
    fn complex(&self, i: usize, x: *mut T, y: *mut T, in_place: bool, last: bool) -> Result<(), KernelError> {
        let along = self.geometry.axes[i];
        let mut others = others(self.geometry, i);
        if in_place {
            others.iter_mut().for_each(|a| a.input = a.output);
        }
        let input = if in_place { along.output } else { along.input };
        let scale = if last { self.geometry.scale } else { 1.0 };
        let pass = Pass {
            n: along.n,
            x: self.numbers(x, input, 1.0),
            y: self.numbers(y, along.output, scale),
            others: &others,
        };
        self.pass(&pass)
    }

    fn pass(&self, pass: &Pass<'_, T>) -> Result<(), KernelError> {
        let lines: usize = pass.others.iter().map(|a| a.size).product();
        let contiguous = pass.x.stride == 1 && pass.y.stride == 1;
        if !contiguous && is_smooth(pass.n) {
            return self.groups(pass, &line(pass.n, self.width, self.rigor, ACROSS));
        }
        let (width, line) = self.line(pass.n, lines);
        match &*line {
            Line::Across(_) => self.groups(pass, &line),
            Line::FourStep(step) if lines < self.threads || lines == 1 => {
                let middle = self.call.cpu().scratch(step.middle() * size_of::<T>())?;
                self.four_step(pass, step, lines, middle)
            }
            _ => {
                let each = line.scratch(width, pass.n);
                self.share(lines, each, &|task, scratch| {
                    let (x, y) = pass.line(task);
                    let next =
                        if task + 1 < lines { pass.line(task + 1).0.first } else { std::ptr::null_mut() };
                    // SAFETY: the line is one of the pass, and the scratch is as large as it says.
                    unsafe { line.transform(width, pass.n, [x, y], next, scratch) };
                })
            }
        }
    }

    /// Single long lines, each shared between the threads.
    fn four_step(
        &self,
        pass: &Pass<'_, T>,
        step: &FourStep<T>,
        lines: usize,
        mut middle: crate::backends::cpu::PooledBytes,
    ) -> Result<(), KernelError> {
        let middle = Shared(middle.as_mut_ptr().cast::<T>());
        let [columns, rows] = step.groups();
        for index in 0..lines {
            let ends = Shared(pass.line(index));
            self.share(columns, step.scratch(), &|group, scratch| {
                // SAFETY: the groups are those of the plan.
                unsafe { step.columns(group, ends.get().0, *middle.get(), scratch) };
            })?;
            self.share(rows, step.scratch(), &|group, scratch| {
                // SAFETY: as above, and all columns are done.
                unsafe { step.rows(group, ends.get().1, *middle.get(), scratch) };
            })?;
        }
        Ok(())
    }

    /// Several lines at a time, one in each lane: neighbouring columns as they are, other lines gathered first.
    fn groups(&self, pass: &Pass<'_, T>, line: &Line<T>) -> Result<(), KernelError> {
        let (lanes, n) = (self.width.lanes, pass.n);
        let Line::Across(stages) = line else { return Ok(()) };
        let (inner, outer) = match pass.others.split_last() {
            Some((inner, outer)) => (*inner, outer),
            None => (Axis { size: 1, input: 0, output: 0 }, &[][..]),
        };
        let side_by_side = inner.input == 1 && inner.output == 1;
        let (groups, repeats) = (inner.size.div_ceil(lanes), outer.iter().map(|a| a.size).product::<usize>());
        self.share(groups * repeats, 4 * lanes * spaced(n), &|task, scratch| {
            let (repeat, first) = (task / groups, task % groups * lanes);
            let count = lanes.min(inner.size - first);
            let from = offset(outer, repeat, |a| a.input) + first as isize * inner.input;
            let to = offset(outer, repeat, |a| a.output) + first as isize * inner.output;
            let (x, y) = (pass.x.at(from), pass.y.at(to));
            // SAFETY: the lines are those of the pass, and the scratch has room for two times LANES of them.
            unsafe {
                if side_by_side && count == lanes {
                    columns(self.width, stages, n, x, y, scratch);
                } else {
                    line.gathered(self.width, n, [x, y], [inner.input, inner.output], count, scratch);
                }
            }
        })
    }

    /// Runs tasks on the threads, each with scratch for so many numbers.
    fn share(&self, tasks: usize, each: usize, run: &dyn Fn(usize, *mut T)) -> Result<(), KernelError> {
        // A line more, so that the scratches of two threads do not fall on the same lines of their caches.
        let each = each.next_multiple_of(16) + 16;
        let threads = self.threads.min(tasks).max(1);
        let mut scratch = self.call.cpu().scratch(each * threads * size_of::<T>())?;
        let memory = Shared((scratch.as_mut_ptr().cast::<T>(), run));
        self.call.cpu().threads().run(threads, threads, &|part| {
            let (scratch, run) = *memory.get();
            for task in tasks * part / threads..tasks * (part + 1) / threads {
                run(task, scratch.wrapping_add(each * part));
            }
            if self.past {
                T::dispatch(self.width.isa, Fence);
            }
        });
        Ok(())
    }

    /// Real lines along the last axis, to or from the first half of their spectrum.
    fn real(&self, x: *mut T, y: *mut T, last: bool) -> Result<(), KernelError> {
        let Some(&along) = self.geometry.axes.last() else { return Ok(()) };
        let others = others(self.geometry, self.geometry.axes.len() - 1);
        let scale = if last { self.geometry.scale } else { 1.0 };
        self.real_lines(along, &others, x, y, scale)
    }

    fn real_lines(
        &self,
        along: Along,
        others: &[Axis],
        x: *mut T,
        y: *mut T,
        scale: f64,
    ) -> Result<(), KernelError> {
        let n = along.n;
        let inverse = self.geometry.kind.is_inverse();
        let halved = n.is_multiple_of(2) && along.input == 1 && along.output == 1;
        let points = if halved { n / 2 } else { n };
        let (width, line) = self.line(points, 1);
        // Kept apart by kind: whole lines have no such roots.
        let roots = self
            .tables
            .halves
            .get((points, halved), || if halved { cpu_real::roots(points) } else { Vec::new() });
        let (numbers, lines) = (self.numbers(y, 1, scale), others.iter().map(|a| a.size).product::<usize>());
        if let (Line::FourStep(step), true, false) = (&*line, halved, inverse)
            && lines < self.threads
        {
            return (0..lines).try_for_each(|index| {
                let from = x.wrapping_offset(offset(others, index, |a| a.input));
                let to = y.wrapping_offset(2 * offset(others, index, |a| a.output));
                self.real_shared(
                    step,
                    &roots,
                    Numbers { first: from, ..numbers },
                    Numbers { first: to, ..numbers },
                )
            });
        }
        // Rows of the transform's scratch start at cache lines.
        let (own, memory) = ((2 * points + 2).next_multiple_of(16), Shared((x, y)));
        let task = |index: usize, scratch: *mut T| {
            let (x, y) = *memory.get();
            // A complex number is two real ones.
            let (one, other) = if inverse { (2, 1) } else { (1, 2) };
            let line_at = |index: usize| x.wrapping_offset(one * offset(others, index, |a| a.input));
            let next = if index + 1 < lines { line_at(index + 1) } else { std::ptr::null_mut() };
            let x = line_at(index);
            let y = y.wrapping_offset(other * offset(others, index, |a| a.output));
            let rest = scratch.wrapping_add(own);
            let at = |first: *mut T| Numbers { first, ..numbers };
            let transform = |x: *mut T, y: *mut T| {
                // SAFETY: as below.
                unsafe { line.transform(width, points, [at(x), at(y)], next, rest) };
            };
            // SAFETY: the lines are valid, and the scratch has room for the numbers and for the transform.
            unsafe {
                match (halved, inverse) {
                    (true, false) => {
                        transform(x, y);
                        cpu_real::unpack(self.width.isa, points, &roots, y);
                    }
                    (true, true) => {
                        cpu_real::pack(self.width.isa, points, &roots, x, scratch);
                        transform(scratch, y);
                    }
                    (false, false) => {
                        widen(x, along, scratch);
                        transform(scratch, scratch);
                        narrow(scratch, y, along);
                    }
                    (false, true) => {
                        complete(x, along, scratch);
                        transform(scratch, scratch);
                        (0..n).for_each(|i| *y.offset(i as isize * along.output) = *scratch.add(2 * i));
                    }
                }
            }
        };
        self.share(lines, own + line.scratch(width, points), &task)
    }

    /// A single long line, forward, shared between the threads.
    fn real_shared(
        &self,
        step: &FourStep<T>,
        roots: &[T],
        x: Numbers<T>,
        y: Numbers<T>,
    ) -> Result<(), KernelError> {
        let points = step.rows * step.columns;
        let middle = self.call.cpu().scratch(step.middle() * size_of::<T>())?;
        self.four_step(&Pass { n: points, x, y, others: &[] }, step, 1, middle)?;
        // SAFETY: the output has room for half the points and one more.
        unsafe { cpu_real::unpack(self.width.isa, points, roots, y.first) };
        Ok(())
    }

    /// Complex passes over a copy of the spectra, then real lines from it.
    fn real_inverse(&self, x: *mut T, y: *mut T) -> Result<(), KernelError> {
        let mut copied = self.geometry.clone();
        let sizes: Vec<usize> =
            copied.batch.iter().map(|a| a.size).chain(copied.axes.iter().map(|a| a.from)).collect();
        let mut strides = vec![1isize; sizes.len()];
        for i in (0..sizes.len().saturating_sub(1)).rev() {
            strides[i] = strides[i + 1] * sizes[i + 1] as isize;
        }
        let count = copied.batch.len();
        copied.batch.iter_mut().zip(&strides).for_each(|(a, &s)| a.output = s);
        for (along, &stride) in copied.axes.iter_mut().zip(&strides[count..]) {
            (along.output, along.to) = (stride, along.from);
        }
        let total: usize = sizes.iter().product();
        let mut copy = self.call.cpu().scratch(2 * total * size_of::<T>())?;
        let copy = copy.as_mut_ptr().cast::<T>();
        let job = Job { geometry: &copied, ..*self };
        let axes = copied.axes.len();
        for i in 0..axes - 1 {
            job.complex(i, if i == 0 { x } else { copy }, copy, i > 0, false)?;
        }
        let mut lines = self.geometry.clone();
        lines.batch.iter_mut().zip(&copied.batch).for_each(|(a, b)| a.input = b.output);
        lines.axes.iter_mut().zip(&copied.axes).for_each(|(a, b)| a.input = b.output);
        Job { geometry: &lines, ..*self }.real(copy, y, true)
    }
}

impl<T: Number> Pass<'_, T> {
    fn line(&self, index: usize) -> (Numbers<T>, Numbers<T>) {
        let (from, to) = (offset(self.others, index, |a| a.input), offset(self.others, index, |a| a.output));
        (self.x.at(from), self.y.at(to))
    }
}

/// Every axis but one, the one with the nearest neighbours last. Sizes are those of complex passes.
fn others(geometry: &Geometry, except: usize) -> AxisList {
    let last = geometry.axes.len() - 1;
    let rest = geometry.axes.iter().enumerate().filter(|(i, _)| *i != except);
    // Beside the halved axis, input and output of the others are of one size; the halved axis has that of the spectrum.
    let rest = rest.map(|(i, a)| Axis {
        size: if i == last { a.from.min(a.to) } else { a.to },
        input: a.input,
        output: a.output,
    });
    let mut all: AxisList = geometry.batch.iter().copied().chain(rest).collect();
    all.sort_by_key(|a| std::cmp::Reverse(a.output.unsigned_abs()));
    all
}

/// Real numbers as complex ones.
///
/// # Safety
/// The line is valid, and `to` has room.
unsafe fn widen<T: Number>(x: *const T, along: Along, to: *mut T) {
    for i in 0..along.n {
        // SAFETY: the caller's promise.
        unsafe {
            *to.add(2 * i) = *x.offset(i as isize * along.input);
            *to.add(2 * i + 1) = T::ZERO;
        }
    }
}

/// The first half of a spectrum.
///
/// # Safety
/// As for `widen`.
unsafe fn narrow<T: Number>(from: *const T, y: *mut T, along: Along) {
    for k in 0..along.to {
        // SAFETY: the caller's promise.
        unsafe {
            let at = y.offset(2 * k as isize * along.output);
            *at = *from.add(2 * k);
            *at.add(1) = *from.add(2 * k + 1);
        }
    }
    // SAFETY: the caller's promise: there is a first number, and one in the middle of an even length.
    unsafe {
        *y.add(1) = T::ZERO;
        if along.n.is_multiple_of(2) {
            *y.offset(2 * (along.n / 2) as isize * along.output).add(1) = T::ZERO;
        }
    }
}

/// A whole spectrum from its first half.
///
/// # Safety
/// As for `widen`.
unsafe fn complete<T: Number>(x: *const T, along: Along, to: *mut T) {
    let n = along.n;
    for k in 0..n {
        let (from, mirrored) = if k <= n / 2 { (k, false) } else { (n - k, true) };
        // SAFETY: the caller's promise.
        let (re, im) = unsafe {
            let at = x.offset(2 * from as isize * along.input);
            (*at, *at.add(1))
        };
        let im = if k == 0 || 2 * k == n { T::ZERO } else { im };
        // SAFETY: the caller's promise.
        unsafe {
            *to.add(2 * k) = re;
            *to.add(2 * k + 1) = if mirrored { -im } else { im };
        }
    }
}
