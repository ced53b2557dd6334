//! Reductions along runs of memory: four far-apart runs at once, because one stream does not fill a memory bus.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Range;

use super::cpu_fold::{BLOCK, Fold, Runner};
use super::cpu_stored::{Compute, Sink, Source};
use super::plan::Plan;
use crate::backends::cpu::simd::{Simd, SimdTask};
use crate::backends::cpu::threads::ThreadPool;
use crate::ops::walk::{Axis, offset};

/// The most partial totals that are kept when the reduced elements are split over threads.
const PARTS: usize = 64;

/// A reduction over given memory.
pub(super) struct Rows<'a, F: Fold> {
    fold: F,
    outer: &'a [Axis],
    inner: Axis,
    plan: &'a Plan,
    input: Source<F::In>,
    output: Sink<F::Out>,
}

// SAFETY: threads write disjoint outputs and only read the inputs; both outlive the call.
unsafe impl<F: Fold> Sync for Rows<'_, F> {}

/// Some of the elements that one result is made of: whole runs and a part of each.
#[derive(Clone)]
struct Piece {
    runs: Range<usize>,
    inner: Range<usize>,
}

/// Reduces on up to `threads` threads.
///
/// # Safety
/// `input` is valid for reading and `output` for writing everywhere the plan goes, and nothing else writes there.
pub(super) unsafe fn reduce<F: Fold>(
    fold: F,
    plan: &Plan,
    input: Source<F::In>,
    output: Sink<F::Out>,
    runner: impl Runner,
    (pool, threads): (&ThreadPool, usize),
) {
    const NONE: Axis = Axis { size: 1, input: 1, output: 0 };
    let (inner, outer) = plan.reduced.split_last().map_or((NONE, &[][..]), |(last, rest)| (*last, rest));
    let rows = Rows { fold, outer, inner, plan, input, output };
    let outputs = plan.outputs();
    if outputs == 0 {
        return;
    }
    if threads <= 1 {
        return runner.run(Outputs { rows: &rows, range: 0..outputs });
    }
    if outputs < 2 * threads && outputs * threads <= PARTS {
        return rows.split_depth(runner, pool, threads);
    }
    // A few tasks per thread even out what else runs on the cores.
    let tasks = (4 * threads).min(outputs.div_ceil(4));
    pool.run(threads, tasks, &|task| {
        let range = outputs * task / tasks..outputs * (task + 1) / tasks;
        runner.run(Outputs { rows: &rows, range });
    });
}

impl<F: Fold> Rows<'_, F> {
    fn runs(&self) -> usize {
        self.outer.iter().map(|a| a.size).product()
    }

    /// Whether a run is a slice that needs no conversion.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.inner.input == 1 && self.input.is_native()
    }

    #[inline(always)]
    fn base(&self, output: usize) -> Source<F::In> {
        self.input.from(offset(&self.plan.kept, output, |a| a.input))
    }

    #[inline(always)]
    fn write(&self, output: usize, total: F::Total) {
        let at = offset(&self.plan.kept, output, |a| a.output);
        // SAFETY: the output is valid at every kept index (see `reduce`).
        unsafe { self.output.write(at, self.fold.finish(total, self.plan.depth())) };
    }

    /// Every thread reduces a part of each result; the parts are merged in order.
    fn split_depth(&self, runner: impl Runner, pool: &ThreadPool, threads: usize) {
        let (outputs, runs, size) = (self.plan.outputs(), self.runs(), self.inner.size);
        let cut = |n: usize, part: usize| n * part / threads..n * (part + 1) / threads;
        let mut parts = [const { MaybeUninit::<F::Total>::uninit() }; PARTS];
        let slots = Slots(parts.as_mut_ptr());
        pool.run(threads, threads, &|part| {
            let piece = if runs >= threads {
                Piece { runs: cut(runs, part), inner: 0..size }
            } else {
                Piece { runs: 0..runs, inner: cut(size, part) }
            };
            for output in 0..outputs {
                let total = runner.run(Single { rows: self, output, piece: piece.clone() });
                // SAFETY: output · threads + part < PARTS, and each part writes its own slots.
                unsafe { slots.at(output * threads + part).write(MaybeUninit::new(total)) };
            }
        });
        for output in 0..outputs {
            let mut total = self.fold.total();
            for part in &parts[output * threads..(output + 1) * threads] {
                // SAFETY: every slot below outputs · threads was written.
                total = self.fold.merge(total, unsafe { part.assume_init() });
            }
            self.write(output, total);
        }
    }

    /// The total of one piece of one result.
    #[inline(always)]
    fn single<S: Simd>(&self, s: S, output: usize, piece: &Piece) -> F::Total {
        let (base, fold) = (self.base(output), self.fold);
        let mut totals = [fold.total(); 4];
        let mut buffer = [F::In::ZERO; BLOCK];
        for run_index in piece.runs.clone() {
            let run = base.from(offset(self.outer, run_index, |a| a.input));
            let mut from = piece.inner.start;
            let place = run_index * self.inner.size;
            let quarter = piece.inner.len() / 4;
            if self.is_plain() && quarter >= BLOCK / 2 {
                totals = self.quarters(s, run, from, quarter, place, totals);
                from += 4 * quarter;
            }
            while from < piece.inner.end {
                let len = (piece.inner.end - from).min(BLOCK);
                let stride = self.inner.input;
                // SAFETY: the plan's elements are valid (see `reduce`).
                let x = unsafe { run.from(from as isize * stride).gather(stride, len, &mut buffer) };
                totals[3] = fold.absorb(totals[3], fold.block(s, x, place + from, totals[3]));
                from += len;
            }
        }
        fold.merge(fold.merge(totals[0], totals[1]), fold.merge(totals[2], totals[3]))
    }

    /// Takes four neighbouring quarters of a run into four totals, a block of each in turn.
    #[inline(always)]
    fn quarters<S: Simd>(
        &self,
        s: S,
        run: Source<F::In>,
        from: usize,
        quarter: usize,
        place: usize,
        mut totals: [F::Total; 4],
    ) -> [F::Total; 4] {
        let mut done = 0;
        while done < quarter {
            let len = (quarter - done).min(BLOCK);
            let starts = [0, 1, 2, 3].map(|k| from + k * quarter + done);
            // SAFETY: the plan's elements are valid (see `reduce`) and side by side.
            let x = starts.map(|at| unsafe { run.from(at as isize).slice(len) });
            let lanes = self.fold.quad(s, x, starts.map(|at| place + at), totals);
            for (total, lane) in totals.iter_mut().zip(lanes) {
                *total = self.fold.absorb(*total, lane);
            }
            done += len;
        }
        totals
    }

    /// Four results at once.
    #[inline(always)]
    fn four<S: Simd>(&self, s: S, outputs: [usize; 4]) {
        let (bases, fold, size) = (outputs.map(|o| self.base(o)), self.fold, self.inner.size);
        let mut totals = [fold.total(); 4];
        for run in 0..self.runs() {
            let step = offset(self.outer, run, |a| a.input);
            let mut from = 0;
            while from < size {
                let len = (size - from).min(BLOCK);
                // SAFETY: the plan's elements are valid (see `reduce`) and side by side.
                let x = bases.map(|base| unsafe { base.from(step + from as isize).slice(len) });
                let lanes = fold.quad(s, x, [run * size + from; 4], totals);
                for (total, lane) in totals.iter_mut().zip(lanes) {
                    *total = fold.absorb(*total, lane);
                }
                from += len;
            }
        }
        for (output, total) in outputs.into_iter().zip(totals) {
            self.write(output, total);
        }
    }
}

/// Where the threads leave their totals.
struct Slots<T>(*mut MaybeUninit<T>);

impl<T> Slots<T> {
    fn at(&self, i: usize) -> *mut MaybeUninit<T> {
        self.0.wrapping_add(i)
    }
}

// SAFETY: each thread writes slots of its own.
unsafe impl<T: Send> Sync for Slots<T> {}

/// Reduces a range of results.
struct Outputs<'a, F: Fold> {
    rows: &'a Rows<'a, F>,
    range: Range<usize>,
}

impl<F: Fold> SimdTask for Outputs<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Range { start, end } = self.range;
        let mut rest = start;
        if self.rows.is_plain() {
            let quarter = (end - start) / 4;
            for i in start..start + quarter {
                self.rows.four(s, [i, i + quarter, i + 2 * quarter, i + 3 * quarter]);
            }
            rest += 4 * quarter;
        }
        let whole = Piece { runs: 0..self.rows.runs(), inner: 0..self.rows.inner.size };
        for output in rest..end {
            let total = self.rows.single(s, output, &whole);
            self.rows.write(output, total);
        }
    }
}

/// Reduces a piece of one result.
struct Single<'a, F: Fold> {
    rows: &'a Rows<'a, F>,
    output: usize,
    piece: Piece,
}

impl<F: Fold> SimdTask for Single<'_, F> {
    type Output = F::Total;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> F::Total {
        self.rows.single(s, self.output, &self.piece)
    }
}
