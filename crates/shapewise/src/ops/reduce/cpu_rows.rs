//! Reductions along runs of memory: four far-apart runs at once, because one stream does not fill a memory bus.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Range;

use super::cpu_fold::{BLOCK, Fold, Runner};
use super::cpu_stored::{Compute, Sink, Source};
use super::plan::Plan;
use crate::backends::cpu::schedule::{self, Schedule};
use crate::backends::cpu::simd::{Simd, SimdTask};
use crate::backends::cpu::threads::ThreadPool;
use crate::ops::walk::{Axis, offset};
use crate::ops::{Knob, Parameters};

/// The most partial totals that are kept when the reduced elements are split over threads.
const PARTS: usize = 64;

/// How a reduction is cut; what a tuner may change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Tasks for each thread: a few even out what else runs on the cores.
    pub tasks: usize,
    /// Neighbours that go into a lane at once, at most [`BLOCK`].
    pub block: usize,
    /// Whether four runs are read at once.
    pub four: bool,
    /// How tasks are given to threads.
    pub schedule: Schedule,
}

impl Cut {
    pub fn of(parameters: &Parameters) -> Self {
        let get = |knob, usual: usize| parameters.get(knob).map_or(usual, |value| value.max(1) as usize);
        Self {
            tasks: get(Knob::Split, 4),
            block: get(Knob::BlockK, BLOCK).min(BLOCK),
            four: get(Knob::Unroll, 4) == 4,
            schedule: Schedule::from_number(parameters.get(Knob::Schedule)),
        }
    }

    /// Pieces that so many results are cut into, and how often a thread goes for some of them.
    pub fn pieces(&self, outputs: usize, threads: usize) -> (usize, u32) {
        if by_depth(outputs, threads) {
            return (threads, 1);
        }
        let pieces = self.tasks(outputs, threads);
        (pieces, self.schedule.takes(threads, pieces))
    }

    fn tasks(&self, outputs: usize, threads: usize) -> usize {
        if threads > 1 { (self.tasks * threads).min(outputs.div_ceil(4)).max(1) } else { 1 }
    }
}

/// Whether there are so few results that each is computed by all threads.
fn by_depth(outputs: usize, threads: usize) -> bool {
    threads > 1 && outputs < 2 * threads && outputs * threads <= PARTS
}

/// A reduction over given memory.
pub(super) struct Rows<'a, F: Fold> {
    fold: F,
    cut: Cut,
    outer: &'a [Axis],
    inner: Axis,
    plan: &'a Plan,
    input: Source<F::In>,
    output: Sink<F::Out>,
}

// SAFETY: threads write disjoint outputs and only read the inputs; both outlive the call.
unsafe impl<F: Fold> Sync for Rows<'_, F> {}

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
    cut: Cut,
) {
    const NONE: Axis = Axis { size: 1, input: 1, output: 0 };
    let (inner, outer) = plan.reduced.split_last().map_or((NONE, &[][..]), |(last, rest)| (*last, rest));
    let rows = Rows { fold, cut, outer, inner, plan, input, output };
    let outputs = plan.outputs();
    if outputs == 0 {
        return;
    }
    if by_depth(outputs, threads) {
        return rows.split_depth(runner, pool, threads);
    }
    let tasks = cut.tasks(outputs, threads);
    schedule::run(pool, threads, tasks, cut.schedule, &|task| {
        let range = outputs * task / tasks..outputs * (task + 1) / tasks;
        runner.run(Part { rows: &rows, range, runs: 0..rows.runs(), along: 0..inner.size, slots: None });
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
            let (runs, along) =
                if runs >= threads { (cut(runs, part), 0..size) } else { (0..runs, cut(size, part)) };
            let slots = Some(slots.from(part * outputs));
            runner.run(Part { rows: self, range: 0..outputs, runs, along, slots });
        });
        for output in 0..outputs {
            let mut total = self.fold.total();
            for part in 0..threads {
                // SAFETY: every slot below outputs · threads was written.
                total = self.fold.merge(total, unsafe { parts[part * outputs + output].assume_init() });
            }
            self.write(output, total);
        }
    }
}

/// Where a thread leaves its totals.
#[derive(Clone, Copy)]
struct Slots<T>(*mut MaybeUninit<T>);

impl<T> Slots<T> {
    fn from(&self, i: usize) -> Self {
        Self(self.0.wrapping_add(i))
    }
}

// SAFETY: each thread writes slots of its own.
unsafe impl<T: Send> Sync for Slots<T> {}

/// Reduces a range of results, or some of the elements of each into slots.
struct Part<'a, F: Fold> {
    rows: &'a Rows<'a, F>,
    range: Range<usize>,
    runs: Range<usize>,
    along: Range<usize>,
    slots: Option<Slots<F::Total>>,
}

impl<F: Fold> SimdTask for Part<'_, F> {
    type Output = ();

    /// One loop for both ways to have four streams, four results or four quarters of one: what is inlined into it is
    /// large, so it should be there once.
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { rows, ref range, slots, .. } = self;
        let fold = rows.fold;
        let fours = if rows.cut.four && rows.is_plain() && slots.is_none() { range.len() / 4 } else { 0 };
        let singles = range.len() - 4 * fours;
        let mut buffer = [F::In::ZERO; BLOCK];
        for job in 0..fours + singles {
            let four = job < fours;
            let outputs = [0, 1, 2, 3]
                .map(|k| range.start + if four { job + k * fours } else { 4 * fours + (job - fours) });
            let totals = self.totals(s, outputs, four, &mut buffer);
            if four {
                outputs.into_iter().zip(totals).for_each(|(output, total)| rows.write(output, total));
                continue;
            }
            let total = fold.merge(fold.merge(totals[0], totals[1]), fold.merge(totals[2], totals[3]));
            match slots {
                // SAFETY: there is a slot for each result.
                Some(slots) => unsafe { slots.0.add(outputs[0]).write(MaybeUninit::new(total)) },
                None => rows.write(outputs[0], total),
            }
        }
    }
}

impl<F: Fold> Part<'_, F> {
    /// The totals of four results, or four parts of the total of one.
    #[inline(always)]
    fn totals<S: Simd>(
        &self,
        s: S,
        outputs: [usize; 4],
        four: bool,
        buffer: &mut [F::In; BLOCK],
    ) -> [F::Total; 4] {
        let Self { rows, along, .. } = self;
        let fold = rows.fold;
        let bases = outputs.map(|output| rows.base(output));
        let long = rows.cut.four && along.len() >= 2 * BLOCK;
        let quarter = if rows.is_plain() && long { along.len() / 4 } else { 0 };
        let (len, apart) = if four { (along.len(), 0) } else { (quarter, quarter) };
        let mut totals = [fold.total(); 4];
        for run in self.runs.clone() {
            let step = offset(rows.outer, run, |a| a.input);
            let place = run * rows.inner.size;
            let mut done = 0;
            while done < len {
                let count = (len - done).min(rows.cut.block);
                let from = [0, 1, 2, 3].map(|k| along.start + k * apart + done);
                // SAFETY: the plan's elements are valid (see `reduce`), native and side by side.
                let x = [0, 1, 2, 3].map(|k| unsafe { bases[k].from(step + from[k] as isize).slice(count) });
                let lanes = fold.quad(s, x, from.map(|from| place + from), totals);
                for (total, lane) in totals.iter_mut().zip(lanes) {
                    *total = fold.absorb(*total, lane);
                }
                done += count;
            }
            let mut from = if four { along.end } else { along.start + 4 * len };
            while from < along.end {
                let (count, stride) = ((along.end - from).min(rows.cut.block), rows.inner.input);
                let start = bases[0].from(step + from as isize * stride);
                // SAFETY: the plan's elements are valid (see `reduce`).
                let x = unsafe { start.gather(stride, count, buffer) };
                totals[3] = fold.absorb(totals[3], fold.block(s, x, place + from, totals[3]));
                from += count;
            }
        }
        totals
    }
}
