//! A whole transform as passes along one axis each, shared between threads.
#![allow(unsafe_code)]

use std::sync::{Arc, LazyLock};

use super::cache::Cache;
use super::cpu_columns::columns;
use super::cpu_four_step::FourStep;
use super::cpu_kernels::{is_smooth, plan_of};
use super::cpu_lines::{Line, Width};
use super::cpu_rows::{Number, Numbers};
use super::geometry::Geometry;
use super::plan::{Plan, across, has_matrix};
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
    if lines >= lane_count(isa, double) || !is_smooth(n) {
        return isa;
    }
    let narrower = if isa == Isa::Avx512 { Isa::Avx2 } else { isa };
    let known = [isa, narrower, Isa::Portable];
    let find = |fits: fn(usize, usize) -> bool| known.into_iter().find(|i| fits(n, lane_count(*i, double)));
    let whole = |n: usize, lanes| n.is_multiple_of(lanes) && n / lanes >= lanes;
    find(whole).or_else(|| find(has_matrix)).unwrap_or(narrower)
}

/// What tables are kept by: points, instruction set, rigor and number of the plan.
pub(super) type Key = (usize, Isa, Rigor, u32);

/// The tables of one element type.
pub(super) struct Tables<T> {
    lines: Cache<Key, Line<T>>,
    pub halves: Cache<(usize, bool), Vec<T>>,
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
    pub call: &'a Call<'a>,
    pub geometry: &'a Geometry,
    pub width: Width,
    pub rigor: Rigor,
    pub variant: u32,
    pub threads: usize,
    /// Whether lines go past the caches.
    pub past: bool,
    pub tables: &'static Tables<T>,
}

/// One pass of complex numbers along an axis.
pub(super) struct Pass<'a, T> {
    pub n: usize,
    pub x: Numbers<T>,
    pub y: Numbers<T>,
    pub others: &'a [Axis],
}

/// Lines that take a lane each: where the first begins, and elements from one to the next, in input and output.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub from: isize,
    pub to: isize,
    pub apart: [isize; 2],
    pub count: usize,
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
pub(super) struct Shared<T>(pub T);

// SAFETY: tasks write lines and scratch of their own, and nobody writes what another one reads.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub fn get(&self) -> &T {
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
    pub(super) fn line(&self, n: usize, lines: usize) -> (Width, Arc<Line<T>>) {
        let isa = line_isa(self.width.isa, n, size_of::<T>() == 8, lines);
        let width = if isa == self.width.isa { self.width } else { Width::of::<T>(isa) };
        (width, line(n, width, self.rigor, self.variant))
    }

    pub(super) fn numbers(&self, first: *mut T, stride: isize, scale: f64) -> Numbers<T> {
        Numbers::new(first, stride, scale, self.geometry.kind.is_inverse(), self.past)
    }

    /// Complex numbers along axis `i`; later passes work in the output's place.
    pub(super) fn complex(
        &self,
        i: usize,
        x: *mut T,
        y: *mut T,
        in_place: bool,
        last: bool,
    ) -> Result<(), KernelError> {
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
            return self.groups(self.width, pass, &line(pass.n, self.width, self.rigor, ACROSS));
        }
        let (width, line) = self.line(pass.n, lines);
        match &*line {
            Line::Across(_) => self.groups(width, pass, &line),
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
    pub(super) fn four_step(
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
    fn groups(&self, width: Width, pass: &Pass<'_, T>, line: &Line<T>) -> Result<(), KernelError> {
        let n = pass.n;
        let Line::Across(stages) = line else { return Ok(()) };
        self.each_group(width, pass.others, line.scratch(width, n), &|group, scratch| {
            let (x, y) = (pass.x.at(group.from), pass.y.at(group.to));
            // SAFETY: the lines are those of the pass, and the scratch has room for two times LANES of them.
            unsafe {
                if group.apart == [1, 1] && group.count == width.lanes {
                    columns(width, stages, n, x, y, scratch);
                } else {
                    line.gathered(width, n, [x, y], group.apart, group.count, scratch);
                }
            }
        })
    }

    /// Runs a task for up to LANES lines at a time, neighbours along the last of these axes, with scratch for so many numbers.
    pub(super) fn each_group(
        &self,
        width: Width,
        others: &[Axis],
        each: usize,
        run: &dyn Fn(Group, *mut T),
    ) -> Result<(), KernelError> {
        let (inner, outer) = match others.split_last() {
            Some((inner, outer)) => (*inner, outer),
            None => (Axis { size: 1, input: 0, output: 0 }, &[][..]),
        };
        let (groups, repeats) =
            (inner.size.div_ceil(width.lanes), outer.iter().map(|a| a.size).product::<usize>());
        self.share(groups * repeats, each, &|task, scratch| {
            let (repeat, first) = (task / groups, task % groups * width.lanes);
            let group = Group {
                from: offset(outer, repeat, |a| a.input) + first as isize * inner.input,
                to: offset(outer, repeat, |a| a.output) + first as isize * inner.output,
                apart: [inner.input, inner.output],
                count: width.lanes.min(inner.size - first),
            };
            run(group, scratch);
        })
    }

    /// Runs tasks on the threads, each with scratch for so many numbers.
    pub(super) fn share(
        &self,
        tasks: usize,
        each: usize,
        run: &dyn Fn(usize, *mut T),
    ) -> Result<(), KernelError> {
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
}

impl<T: Number> Pass<'_, T> {
    fn line(&self, index: usize) -> (Numbers<T>, Numbers<T>) {
        let (from, to) = (offset(self.others, index, |a| a.input), offset(self.others, index, |a| a.output));
        (self.x.at(from), self.y.at(to))
    }
}

/// Every axis but one, the one with the nearest neighbours last. Sizes are those of complex passes.
pub(super) fn others(geometry: &Geometry, except: usize) -> AxisList {
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
