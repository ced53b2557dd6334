//! Long lines as a matrix: its columns first, then its rows, LANES of either side by side.
#![allow(unsafe_code)]

use super::cpu_columns::{all_but_last_of_columns, last_of_columns, spaced};
use super::cpu_lines::Width;
use super::cpu_radix::Pair;
use super::cpu_rows::{Number, Numbers, Packed, Past, Source, Spaced, Turned};
use super::cpu_stages::{Stage, all_but_last, between, part, run, stages};
use super::cpu_tiles::cut;
use super::plan::Radices;
use super::roots::{Table, root};
use crate::backends::cpu::ALIGNMENT;
use crate::backends::cpu::real::{RealTask, Vectors, prefetch};
use crate::backends::cpu::simd::{Float, Lanes, MAX_LANES};

/// A matrix of `rows` by `columns`, both at least as many as there are lanes: the last group of either goes back over some that
/// are done rather than be shorter.
pub(super) struct FourStep<T> {
    width: Width,
    pub rows: usize,
    pub columns: usize,
    first: Vec<Stage<T>>,
    second: Vec<Stage<T>>,
    /// For each group of columns: a vector of roots for each q, then one for each k of the last stage.
    roots: Table<T>,
    /// Values of q and of k.
    parts: [usize; 2],
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
        let (first, second, roots) = (stages(&a.0), stages(&b.0), Table::new(&roots));
        Self { width, rows, columns, first, second, roots, parts }
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
        4 * self.width.lanes * spaced(self.rows.max(self.columns))
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
            let there = scratch.add(2 * lanes * spaced(self.rows));
            let (here, _) = all_but_last_of_columns(isa, &self.first, from, [scratch, there]);
            let [q, k] = self.parts;
            let by_q = self.roots.as_ptr().add(2 * lanes * (q + k) * group);
            let to = Turned { first: middle.add(self.block() * group), by_q, by_k: by_q.add(2 * lanes * q) };
            run::<T, true>(isa, last, here, to);
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
            let turn = Turn { block: self.block(), columns: self.columns, from, to: scratch };
            let there = scratch.add(2 * lanes * spaced(self.columns));
            let (here, _) = match &self.second[..] {
                [stage, middle @ .., _] if cut(stage.radix).is_some() && stage.rest.is_multiple_of(lanes) => {
                    let to = Spaced::between(&self.second, there);
                    T::dispatch(isa, TurnAndRun { turn, stage, to });
                    between(isa, middle, to, scratch)
                }
                stages => {
                    T::dispatch(isa, turn);
                    all_but_last(isa, stages, Packed(scratch), [there, scratch])
                }
            };
            if to.rows_stream(self.rows) {
                run::<T, true>(isa, last, here, Past(to));
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
            self.block(s, block, (lanes * block).min(self.columns - lanes));
        }
    }
}

impl<T: Number> Turn<T> {
    /// A block of the matrix becomes LANES rows of scratch from `row` on.
    #[inline(always)]
    fn block<S: Lanes<T>>(&self, s: S, block: usize, row: usize) {
        let from = self.from.wrapping_add(self.block * block);
        for i in 0..S::LANES {
            for line in 0..const { (2 * S::LANES * size_of::<T>()).div_ceil(ALIGNMENT) } {
                // The rows of the next turn lie behind these, too many pieces for the machine to see.
                let at = from.wrapping_add(2 * S::LANES * (S::LANES + i));
                prefetch(at.wrapping_byte_add(ALIGNMENT * line));
            }
        }
        for part in [0, S::LANES] {
            let mut rows = [s.splat(T::ZERO); MAX_LANES];
            // SAFETY: the block has LANES rows of LANES numbers here, real and imaginary vectors by turns.
            unsafe { s.load_turned(from.wrapping_add(part), 2 * S::LANES, &mut rows) };
            for (&column, &i) in rows.iter().zip(&S::ORDER).take(S::LANES) {
                let at = 2 * S::LANES * (row + usize::from(i)) + part;
                // SAFETY: scratch has room for the same numbers.
                unsafe { s.store(self.to.add(at), column) };
            }
        }
    }
}

/// The same, and the first stage of the rows in scratch, as many at a time as stay in the first cache between the two.
struct TurnAndRun<'a, T> {
    turn: Turn<T>,
    stage: &'a Stage<T>,
    to: Spaced<T>,
}

impl<T: Number> RealTask<T> for TurnAndRun<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let Self { turn, stage, to } = self;
        let (lanes, rest) = (<S as Lanes<T>>::LANES, stage.rest);
        for p in (0..rest).step_by(lanes) {
            for j in 0..stage.radix {
                turn.block(s, (p + rest * j) / lanes, lanes * j);
            }
            let from = Chunk { first: turn.to, p, rest };
            // SAFETY: the chunk has the rows of LANES of `rest` from p on, and there is room for all rows.
            unsafe { part::<T, S, false>(s, stage, p..p + lanes, from, to) };
        }
    }
}

/// Every row p + rest · j of LANES neighbouring p, in the order of j.
#[derive(Clone, Copy)]
struct Chunk<T> {
    first: *mut T,
    p: usize,
    rest: usize,
}

impl<T: Float> Source<T> for Chunk<T> {
    const TWICE: bool = true;

    #[inline(always)]
    fn row<S: Lanes<T>>(self, row: usize) -> *mut T {
        Source::row::<S>(Packed(self.first), row - self.p)
    }

    #[inline(always)]
    fn apart<S: Lanes<T>>(self, rows: usize) -> isize {
        Source::apart::<S>(Packed(self.first), rows / self.rest * S::LANES)
    }

    #[inline(always)]
    unsafe fn read<S: Lanes<T>>(self, s: S, at: *mut T) -> Pair<S::V> {
        // SAFETY: the caller's promise.
        unsafe { Packed(self.first).read(s, at) }
    }
}
