//! Reductions across runs of memory: the results lie side by side, and four far-apart rows are added at once.
//!
//! Lanes and totals of a band of columns stay in the first cache while the rows stream through.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::Range;

use super::cpu_fold::{Fold, Runner};
use super::cpu_stored::{Compute, Sink, Source};
use super::plan::Plan;
use crate::backends::cpu::simd::{Simd, SimdTask};
use crate::backends::cpu::threads::ThreadPool;
use crate::ops::walk::{Axis, offset};

/// Columns that are reduced together at most.
const BAND: usize = 4096;
/// Bytes of the lanes of a band: they stay in the first cache, and rows of 16 KiB are read without a gap (4096² floats on a Zen 5 in 1.15 ms, halves of
/// rows in 1.34 ms).
const NEAR: usize = 16 << 10;
/// Rows that go into a lane before it is added to a total; the bound on a sum's error is (128 + 2)·u.
const DEPTH: usize = 128;

struct Columns<'a, F: Fold> {
    fold: F,
    outer: &'a [Axis],
    inner: Axis,
    plan: &'a Plan,
    input: Source<F::In>,
    output: Sink<F::Out>,
}

// SAFETY: threads write disjoint outputs and only read the inputs; both outlive the call.
unsafe impl<F: Fold> Sync for Columns<'_, F> {}

/// Reduces on up to `threads` threads. The innermost kept axis is a run of memory in the input.
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
    band: Option<usize>,
) {
    let Some((&inner, outer)) = plan.kept.split_last() else { return };
    debug_assert_eq!(inner.input, 1, "columns side by side");
    let outputs = plan.outputs();
    if outputs == 0 {
        return;
    }
    let columns = Columns { fold, outer, inner, plan, input, output };
    let rows = outputs / inner.size;
    let bands = bands(rows, inner.size, threads, band.unwrap_or(NEAR / size_of::<F::Lane>()));
    pool.run(threads, rows * bands, &|task| {
        let (row, band) = (task / bands, task % bands);
        let range = inner.size * band / bands..inner.size * (band + 1) / bands;
        runner.run(Band { columns: &columns, row, range });
    });
}

/// As many bands per row as give every thread work, but none narrower than some cache lines.
pub(super) fn bands(rows: usize, columns: usize, threads: usize, widest: usize) -> usize {
    let wanted = threads.div_ceil(rows.max(1)).max(columns.div_ceil(widest.clamp(64, BAND)));
    wanted.min(columns.div_ceil(64)).max(1)
}

/// Room for a band, at a line of the cache: wide registers across two lines take twice as long.
#[repr(align(64))]
struct Slots<T>([MaybeUninit<T>; BAND]);

impl<T> Slots<T> {
    #[inline(always)]
    fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; BAND])
    }
}

/// A band of columns of one row of results.
struct Band<'a, F: Fold> {
    columns: &'a Columns<'a, F>,
    row: usize,
    range: Range<usize>,
}

impl<F: Fold> SimdTask for Band<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Columns { fold, outer, inner, plan, input, output } = *self.columns;
        let width = self.range.len();
        let first = offset(outer, self.row, |a| a.input) + self.range.start as isize;
        let input = input.from(first);
        let mut lanes = Slots::new();
        let mut totals = Slots::new();
        let lanes = fill(&mut lanes.0[..width], fold.lane());
        let totals = fill(&mut totals.0[..width], fold.total());

        let depth = plan.depth();
        // Elements that are computed with as they lie need no room.
        let room = if input.is_native() { 0 } else { width };
        let mut buffers = [const { MaybeUninit::uninit() }; 4 * BAND];
        let (low, high) = fill(&mut buffers[..4 * room], F::In::ZERO).split_at_mut(2 * room);
        let ((a, b), (c, d)) = (low.split_at_mut(room), high.split_at_mut(room));
        let at = |i: usize| input.from(offset(&plan.reduced, i, |a| a.input));
        let quarter = depth / 4;
        for i in 0..quarter {
            let rows = [i, i + quarter, i + 2 * quarter, i + 3 * quarter];
            // SAFETY: the plan's elements are valid (see `reduce`), and the band is side by side.
            let x = unsafe {
                [
                    at(rows[0]).gather(1, width, a),
                    at(rows[1]).gather(1, width, b),
                    at(rows[2]).gather(1, width, c),
                    at(rows[3]).gather(1, width, d),
                ]
            };
            fold.four(s, lanes, x, rows);
            if (i + 1) % (DEPTH / 4) == 0 {
                settle(fold, lanes, totals);
            }
        }
        for i in 4 * quarter..depth {
            // SAFETY: as above.
            let row = unsafe { at(i).gather(1, width, a) };
            for (lane, &x) in lanes.iter_mut().zip(row) {
                *lane = fold.step(*lane, x, i);
            }
        }
        settle(fold, lanes, totals);

        let first = offset(outer, self.row, |a| a.output);
        for (column, &total) in self.range.zip(totals.iter()) {
            // SAFETY: the output is valid at every kept index (see `reduce`).
            unsafe { output.write(first + column as isize * inner.output, fold.finish(total, depth)) };
        }
    }
}

#[inline(always)]
fn fill<T: Copy>(slots: &mut [MaybeUninit<T>], value: T) -> &mut [T] {
    for slot in slots.iter_mut() {
        slot.write(value);
    }
    // SAFETY: every slot was just written.
    unsafe { &mut *(std::ptr::from_mut(slots) as *mut [T]) }
}

/// Takes the lanes into the totals and begins new ones.
#[inline(always)]
fn settle<F: Fold>(fold: F, lanes: &mut [F::Lane], totals: &mut [F::Total]) {
    for (total, lane) in totals.iter_mut().zip(lanes) {
        *total = fold.absorb(*total, *lane);
        *lane = fold.lane();
    }
}
