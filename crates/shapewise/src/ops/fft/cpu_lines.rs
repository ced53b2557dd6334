//! Transforms of lines by a plan: tables that are made once, and the passes over memory.
#![allow(unsafe_code)]

use super::cpu_columns::{all_but_last_of_columns, last_of_columns, packed};
use super::cpu_convolution::{Convolution, flipped};
use super::cpu_radix::{Pair, dft2, dft4, dft8, dft16, mul};
use super::cpu_stages::{
    Expecting, Number, Numbers, Packed, Past, Plain, Sink, Source, Stage, Turned, all_but_last, run, stages,
};
use super::cpu_turned::{Gather, Lines, Scatter};
use super::plan::{Plan, Radices};
use super::roots::root;
use crate::backends::cpu::real::{RealTask, Vectors, prefetch};
use crate::backends::cpu::simd::{Float, Isa, Lanes, MAX_LANES};

/// A plan with its tables, for vectors of one width.
pub(super) enum Line<T> {
    Across(Vec<Stage<T>>),
    Along(Along<T>),
    FourStep(FourStep<T>),
    Convolution(Convolution<T>),
}

/// Numbers between two scratches, so that rows of both do not fall on the same lines of the first cache.
pub(super) const PAD: usize = 16 * 9;

/// Neighbouring numbers in a vector.
pub(super) struct Along<T> {
    width: Width,
    stages: Vec<Stage<T>>,
    rows: usize,
    /// For each group of LANES rows and each lane but the first a vector of roots, a row in each of its lanes.
    roots: Vec<T>,
}

/// A matrix of `rows` by `columns`, both at least as many as there are lanes: the last group of either goes back over some that
/// are done rather than be shorter.
pub(super) struct FourStep<T> {
    width: Width,
    pub rows: usize,
    pub columns: usize,
    first: Vec<Stage<T>>,
    second: Vec<Stage<T>>,
    /// For each group of columns: a vector of roots for each q, then one for each k of the last stage.
    roots: Vec<T>,
    /// Values of q and of k.
    parts: [usize; 2],
}

/// An instruction set's vectors: how many lanes, and which of as many neighbours each lane holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Width {
    pub isa: Isa,
    pub lanes: usize,
    order: [u8; MAX_LANES],
}

/// Asks the vectors themselves.
struct AskWidth(Isa);

impl<T: Number> RealTask<T> for AskWidth {
    type Output = Width;

    #[inline(always)]
    fn run<S: Vectors<T>>(self, _: S) -> Width {
        Width { isa: self.0, lanes: <S as Lanes<T>>::LANES, order: <S as Lanes<T>>::ORDER }
    }
}

impl Width {
    pub fn of<T: Number>(isa: Isa) -> Self {
        T::dispatch(isa, AskWidth(isa))
    }

    fn vector<T: Float>(&self, number: impl Fn(usize) -> (f64, f64)) -> Vec<T> {
        let of = |lane: usize| number(usize::from(self.order[lane]));
        let real = (0..self.lanes).map(|lane| T::from_f64(of(lane).0));
        real.chain((0..self.lanes).map(|lane| T::from_f64(of(lane).1))).collect()
    }
}

impl<T: Number> Along<T> {
    pub fn new(radices: &Radices, width: Width) -> Self {
        let rows = radices.len();
        let n = rows * width.lanes;
        let groups = (0..rows).step_by(width.lanes).map(|row| row.min(rows - width.lanes));
        let columns = |row: usize| (1..width.lanes).map(move |lane| (row, usize::from(width.order[lane])));
        let vector = |(row, column): (usize, usize)| width.vector(|i| root((row + i) * column, n));
        let roots = groups.flat_map(columns).flat_map(vector).collect();
        Self { width, stages: stages(&radices.0), rows, roots }
    }

    /// Numbers of `T` in all rows.
    fn numbers(&self) -> usize {
        2 * self.width.lanes * self.rows
    }

    /// Numbers of `T` that a transform needs as scratch.
    pub fn scratch(&self) -> usize {
        2 * self.numbers() + PAD
    }

    /// Transforms one line of neighbours; `x` may be `y`. The line at `next`, if any, is asked for meanwhile.
    ///
    /// # Safety
    /// Both lines are valid, and the scratch has room for `self.scratch()` numbers.
    pub unsafe fn transform(&self, x: Numbers<T>, y: Numbers<T>, next: *const T, scratch: *mut T) {
        let Width { isa, lanes, .. } = self.width;
        let Some((first, others)) = self.stages.split_first() else { return };
        // SAFETY: the caller's promise.
        unsafe {
            let (mut here, mut there) = (scratch, scratch.add(self.numbers() + PAD));
            let from = Numbers { stride: lanes as isize, ..x };
            let plain = from.sign.to_bits64() == 0;
            if next.is_null() && plain {
                run::<T, false>(isa, first, Plain(from), Packed(here));
            } else {
                // Without a next line this one asks for itself, which changes nothing.
                let apart = next.addr().wrapping_sub(x.first.addr()) as isize / size_of::<T>() as isize;
                let later = if next.is_null() { 0 } else { apart };
                if plain {
                    run::<T, false>(isa, first, Expecting(Plain(from), later), Packed(here));
                } else {
                    run::<T, false>(isa, first, Expecting(from, later), Packed(here));
                }
            }
            for stage in others {
                run::<T, false>(isa, stage, Packed(here), Packed(there));
                (here, there) = (there, here);
            }
            let streams = y.streams();
            let to =
                Numbers { first: if streams { there } else { y.first }, stride: self.rows as isize, ..y };
            let (rows, roots, from) = (self.rows, &self.roots[..], here);
            if to.is_plain() {
                T::dispatch(isa, Finish { rows, roots, from, to: Plain(to) });
            } else {
                T::dispatch(isa, Finish { rows, roots, from, to });
            }
            if streams {
                T::dispatch(isa, Release { numbers: self.numbers(), from: there, to: y.first });
            }
        }
    }
}

/// The lanes of all rows: turned so that each becomes a row, transformed and written.
struct Finish<'a, T, B> {
    rows: usize,
    roots: &'a [T],
    from: *mut T,
    to: B,
}

impl<T: Number, B: Sink<T>> RealTask<T> for Finish<'_, T, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let lanes = <S as Lanes<T>>::LANES;
        let mut roots = self.roots;
        for row in (0..self.rows).step_by(lanes) {
            let (own, others) = roots.split_at(2 * lanes * (lanes - 1));
            // The last group goes back over rows that are done rather than be shorter.
            self.group(s, row.min(self.rows - lanes), own);
            roots = others;
        }
    }
}

impl<T: Number, B: Sink<T>> Finish<'_, T, B> {
    #[inline(always)]
    fn group<S: Lanes<T>>(&self, s: S, row: usize, roots: &[T]) {
        let zero = s.splat(T::ZERO);
        let (mut re, mut im) = ([zero; MAX_LANES], [zero; MAX_LANES]);
        let mut x = [Pair { re: zero, im: zero }; MAX_LANES];
        // SAFETY: scratch has LANES rows from `row` on, real and imaginary vectors by turns, and the group a vector of
        // roots for each lane but the first, whose roots are one.
        unsafe {
            let from = self.from.add(2 * S::LANES * row);
            s.load_turned(from, 2 * S::LANES, &mut re);
            s.load_turned(from.add(S::LANES), 2 * S::LANES, &mut im);
            x[0] = Pair { re: re[0], im: im[0] };
            for i in 1..S::LANES {
                let root = Packed(roots.as_ptr().cast_mut()).load(s, i - 1);
                x[usize::from(S::ORDER[i])] = mul(s, Pair { re: re[i], im: im[i] }, root);
            }
        }
        dft_lanes(s, &mut x);
        for (k, &x) in x.iter().take(S::LANES).enumerate() {
            // SAFETY: the line has LANES · rows numbers.
            unsafe { self.to.write(s, self.to.row::<S>(k).wrapping_add(2 * row), row, k, x) };
        }
    }
}

/// A line from scratch to where it goes past the caches. One after the other: lines of a cache that are written here and there take
/// twice as long.
struct Release<T> {
    numbers: usize,
    from: *const T,
    to: *mut T,
}

impl<T: Number> RealTask<T> for Release<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        for i in (0..self.numbers).step_by(<S as Lanes<T>>::LANES) {
            // SAFETY: this task is made for lines of so many numbers, a multiple of LANES, from a cache line on.
            unsafe { s.stream(self.to.add(i), s.load(self.from.add(i))) };
        }
    }
}

/// The transform of as many vectors as they have lanes.
#[inline(always)]
fn dft_lanes<T: Float, S: Lanes<T>>(s: S, x: &mut [Pair<S::V>; MAX_LANES]) {
    match S::LANES {
        2 => dft2(s, x),
        4 => dft4(s, x),
        8 => dft8(s, x),
        _ => dft16(s, x),
    }
}

impl<T: Number> FourStep<T> {
    pub fn new(a: &Radices, b: &Radices, width: Width) -> Self {
        let (rows, columns) = (a.len(), b.len());
        let last = a.0.last().map_or(1, |&r| usize::from(r));
        let parts = [rows / last, last];
        let mut roots = Vec::with_capacity(2 * columns * (parts[0] + parts[1]));
        for group in (0..columns).step_by(width.lanes).map(|group| group.min(columns - width.lanes)) {
            let row = |row: usize| width.vector::<T>(|i| root((group + i) * row, rows * columns));
            roots.extend((0..parts[0]).flat_map(row));
            roots.extend((0..parts[1]).flat_map(|k| row(k * parts[0])));
        }
        Self { width, rows, columns, first: stages(&a.0), second: stages(&b.0), roots, parts }
    }

    /// Numbers of `T` between the passes.
    pub fn middle(&self) -> usize {
        self.block() * self.columns.div_ceil(self.width.lanes)
    }

    /// Numbers of `T` from a block of LANES columns to the next: a few more rows, so that blocks share no lines of a cache.
    fn block(&self) -> usize {
        2 * self.width.lanes * (self.rows + self.width.lanes)
    }

    /// Numbers of `T` that each thread needs as scratch.
    pub fn scratch(&self) -> usize {
        4 * self.width.lanes * self.rows.max(self.columns)
    }

    /// Groups of columns, and of rows; the last one of rows has those that are left over too, so that no two write the same.
    pub fn groups(&self) -> [usize; 2] {
        [self.columns.div_ceil(self.width.lanes), self.rows / self.width.lanes]
    }

    /// Transforms one line on this thread; `x` may be `y`.
    ///
    /// # Safety
    /// Both lines are valid, and the scratch has room for `middle` and `scratch`.
    pub unsafe fn transform(&self, x: Numbers<T>, y: Numbers<T>, scratch: *mut T) {
        let [columns, rows] = self.groups();
        // SAFETY: the caller's promise.
        unsafe {
            let own = scratch.add(self.middle());
            (0..columns).for_each(|group| self.columns(group, x, scratch, own));
            (0..rows).for_each(|group| self.rows(group, y, scratch, own));
        }
    }

    /// Transforms a group of LANES columns of `x` into `middle`.
    ///
    /// # Safety
    /// The line is valid, and `middle` and `scratch` have room for as many numbers as they say.
    pub unsafe fn columns(&self, group: usize, x: Numbers<T>, middle: *mut T, scratch: *mut T) {
        let Width { isa, lanes, .. } = self.width;
        let Some(last) = self.first.last() else { return };
        let column = (group * lanes).min(self.columns - lanes);
        let from = Numbers { stride: self.columns as isize, ..x }.at(column as isize);
        // SAFETY: the caller's promise; every group has roots for each q and k.
        unsafe {
            let there = scratch.add(2 * lanes * self.rows);
            let [here, _] = all_but_last_of_columns(isa, &self.first, from, [scratch, there]);
            let [q, k] = self.parts;
            let by_q = self.roots.as_ptr().add(2 * lanes * (q + k) * group);
            let to = Turned {
                first: middle.add(self.block() * group),
                by_q,
                by_k: by_q.add(2 * lanes * q),
                next: from.at(lanes as isize),
            };
            run::<T, true>(isa, last, Packed(here), to);
        }
    }

    /// Transforms LANES rows of `middle` and writes them as columns of `y`.
    ///
    /// # Safety
    /// As for `columns`; all columns are done.
    pub unsafe fn rows(&self, group: usize, y: Numbers<T>, middle: *mut T, scratch: *mut T) {
        let lanes = self.width.lanes;
        // SAFETY: the caller's promise; there are at least LANES rows.
        unsafe {
            self.rows_from(group * lanes, y, middle, scratch);
            if group + 1 == self.rows / lanes && !self.rows.is_multiple_of(lanes) {
                self.rows_from(self.rows - lanes, y, middle, scratch);
            }
        }
    }

    /// The same for the LANES rows from `row` on.
    ///
    /// # Safety
    /// As for `rows`, and there are so many rows.
    unsafe fn rows_from(&self, row: usize, y: Numbers<T>, middle: *mut T, scratch: *mut T) {
        let Width { isa, lanes, .. } = self.width;
        let Some(last) = self.second.last() else { return };
        let to = Numbers { stride: self.rows as isize, ..y }.at(row as isize);
        // SAFETY: the caller's promise.
        unsafe {
            let from = middle.add(2 * lanes * row);
            T::dispatch(isa, Turn { block: self.block(), columns: self.columns, from, to: scratch });
            let there = scratch.add(2 * lanes * self.columns);
            let [here, _] = all_but_last(isa, &self.second, Packed(scratch), [there, scratch]);
            if to.rows_stream(self.rows) {
                run::<T, true>(isa, last, Packed(here), Past(to));
            } else {
                last_of_columns(isa, last, here, to);
            }
        }
    }
}

/// LANES rows of a matrix become as many rows of scratch as the matrix has columns. The matrix lies in blocks of LANES
/// columns, each with all rows.
struct Turn<T> {
    /// Numbers of `T` from block to block.
    block: usize,
    columns: usize,
    from: *mut T,
    to: *mut T,
}

impl<T: Number> RealTask<T> for Turn<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let lanes = <S as Lanes<T>>::LANES;
        for block in 0..self.columns.div_ceil(lanes) {
            for part in 0..2 {
                self.block(s, block, lanes * part);
            }
        }
    }
}

impl<T: Number> Turn<T> {
    #[inline(always)]
    fn block<S: Lanes<T>>(&self, s: S, block: usize, part: usize) {
        let mut rows = [s.splat(T::ZERO); MAX_LANES];
        let from = self.from.wrapping_add(self.block * block + part);
        for i in 0..S::LANES {
            // The rows of the next turn lie behind these, too many pieces for the machine to see.
            prefetch(from.wrapping_add(2 * S::LANES * (S::LANES + i)));
        }
        // SAFETY: the block has LANES rows of LANES numbers here, real and imaginary vectors by turns.
        unsafe { s.load_turned(from, 2 * S::LANES, &mut rows) };
        let first = (S::LANES * block).min(self.columns - S::LANES);
        for (&row, &i) in rows.iter().zip(&S::ORDER).take(S::LANES) {
            let at = 2 * S::LANES * (first + usize::from(i)) + part;
            // SAFETY: scratch has room for the same numbers.
            unsafe { s.store(self.to.add(at), row) };
        }
    }
}

impl<T: Number> Line<T> {
    pub fn new(n: usize, plan: &Plan, width: Width) -> Self {
        match plan {
            Plan::Across(radices) => Self::Across(stages(&radices.0)),
            Plan::Along(radices) => Self::Along(Along::new(radices, width)),
            Plan::FourStep(a, b) => Self::FourStep(FourStep::new(a, b, width)),
            Plan::Bluestein(..) | Plan::Rader(_) => Self::Convolution(Convolution::new(n, plan, width)),
        }
    }

    /// Numbers of `T` that one line, or as many as there are lanes, need as scratch.
    pub fn scratch(&self, width: Width, n: usize) -> usize {
        match self {
            Self::Across(_) => 4 * width.lanes * n,
            Self::Along(line) => line.scratch(),
            Self::FourStep(line) => line.middle() + line.scratch(),
            Self::Convolution(line) => line.scratch(),
        }
    }

    /// Transforms one line; `x` may be `y`. Plans along memory take the numbers to be neighbours, and may ask for those at `next`.
    ///
    /// # Safety
    /// Both lines are valid, and the scratch has room for `self.scratch()` numbers.
    pub unsafe fn transform(
        &self,
        width: Width,
        n: usize,
        [x, y]: [Numbers<T>; 2],
        next: *const T,
        scratch: *mut T,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Across(_) => self.gathered(width, n, [x, y], [0, 0], 1, scratch),
                Self::Along(line) => line.transform(x, y, next, scratch),
                Self::FourStep(line) => line.transform(x, y, scratch),
                Self::Convolution(line) => line.transform(x, y, scratch),
            }
        }
    }

    /// Transforms `count` lines, one in each lane, whose numbers lie anywhere: lanes are `apart` in input and output.
    ///
    /// # Safety
    /// As for `transform`.
    pub unsafe fn gathered(
        &self,
        width: Width,
        n: usize,
        [x, y]: [Numbers<T>; 2],
        apart: [isize; 2],
        count: usize,
        scratch: *mut T,
    ) {
        let Self::Across(stages) = self else { return };
        let Width { isa, lanes, .. } = width;
        let (from, to) = (Lines { first: x, apart: apart[0], n }, Lines { first: y, apart: apart[1], n });
        if count == lanes && from.can_turn(lanes) && to.can_turn(lanes) {
            // SAFETY: the caller's promise.
            unsafe {
                T::dispatch(isa, Gather { from, to: scratch });
                packed(width, stages, n, scratch);
                T::dispatch(isa, Scatter { from: scratch, to });
            }
            return;
        }
        let places = |at: Numbers<T>, apart: isize| {
            (0..count).flat_map(move |lane| {
                (0..n).map(move |row| {
                    let from = row as isize * at.stride + lane as isize * apart;
                    (at.first.wrapping_offset(2 * from), 2 * lanes * row + lane)
                })
            })
        };
        // SAFETY: the caller's promise; rows in scratch have a real and an imaginary part for each lane.
        unsafe {
            scratch.write_bytes(0, 2 * lanes * n);
            for (from, to) in places(x, apart[0]) {
                *scratch.add(to) = *from;
                *scratch.add(to + lanes) = flipped(*from.add(1), x.sign);
            }
            packed(width, stages, n, scratch);
            for (to, from) in places(y, apart[1]) {
                *to = *scratch.add(from) * y.scale;
                *to.add(1) = flipped(*scratch.add(from + lanes) * y.scale, y.sign);
            }
        }
    }
}
