//! Real lines along the last axis: one after the other, or one in each lane.
#![allow(unsafe_code)]

use super::cpu_columns::packed;
use super::cpu_four_step::FourStep;
use super::cpu_lines::{Line, Width};
use super::cpu_passes::{Job, Pass, Planned, Shared, others};
use super::cpu_real;
use super::cpu_rows::{Number, Numbers};
use super::cpu_turned::Lines;
use super::geometry::Along;
use crate::ops::KernelError;
use crate::ops::walk::{Axis, offset};

impl<T: Planned> Job<'_, T> {
    /// Real lines along the last axis, to or from the first half of their spectrum.
    pub(super) fn real(&self, x: *mut T, y: *mut T, last: bool) -> Result<(), KernelError> {
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
        let lines = others.iter().map(|a| a.size).product::<usize>();
        let (width, line) = self.line(points, if halved { lines } else { 1 });
        // Kept apart by kind: whole lines have no such roots.
        let roots = self
            .tables
            .halves
            .get((points, halved), || if halved { cpu_real::roots(points) } else { Vec::new() });
        let numbers = self.numbers(y, 1, scale);
        if halved && matches!(*line, Line::Across(_)) {
            return self.real_groups((width, &line), points, &roots, others, [x, y], scale);
        }
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

    /// Up to LANES lines at a time, one in each lane.
    fn real_groups(
        &self,
        (width, line): (Width, &Line<T>),
        half: usize,
        roots: &[T],
        others: &[Axis],
        ends: [*mut T; 2],
        scale: f64,
    ) -> Result<(), KernelError> {
        let Line::Across(stages) = line else { return Ok(()) };
        let (inverse, ends) = (self.geometry.kind.is_inverse(), Shared(ends));
        // The spectrum has a row more than the stages.
        let each = line.scratch(width, half) + 2 * width.lanes;
        self.each_group(width, others, each, &|group, scratch| {
            let [x, y] = *ends.get();
            let [from, to] = if inverse { [2 * group.from, group.to] } else { [group.from, 2 * group.to] };
            let apart = if inverse { [2, 1] } else { [1, 2] };
            let side = |first, i: usize, scale, conjugate| Lines {
                first: Numbers::new(first, 1, scale, conjugate, false),
                apart: apart[i] * group.apart[i],
                n: if apart[i] == 2 { half + 1 } else { half },
                count: group.count,
            };
            let (from, to) = (
                side(x.wrapping_offset(from), 0, 1.0, false),
                side(y.wrapping_offset(to), 1, scale, inverse),
            );
            // SAFETY: the lines are valid, and the scratch has room for the rows of the stages twice and for one more.
            unsafe {
                from.gather(width, scratch);
                if inverse {
                    cpu_real::pack_rows(width.isa, half, roots, scratch);
                }
                let rows = packed(width, stages, half, scratch);
                if !inverse {
                    cpu_real::unpack_rows(width.isa, half, roots, rows);
                }
                to.scatter(width, rows);
            }
        })
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
    pub(super) fn real_inverse(&self, x: *mut T, y: *mut T) -> Result<(), KernelError> {
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
