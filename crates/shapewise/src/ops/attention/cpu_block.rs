//! Some queries of one head against all their keys, block by block of keys, without ever holding all scores.
//!
//! The scores of a block are products of packed panels. Their weights are taken against the largest score so far; where
//! a block raises it, the sums of the blocks before are scaled down. What is left to do at the end is a division.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::problem::Problem;
use crate::backends::cpu::simd::math::{exp_nonpositive, exp_nonpositive_each};
use crate::backends::cpu::simd::{Float, Lanes};
use crate::ops::Activation;
use crate::ops::matmul::cpu_micro::{
    InPlace, Left, Packed, Right, Target, band, column, is_wide, tile_of, wide_of,
};
use crate::ops::matmul::cpu_problem::{LanesTask, Real, Split};

/// Vectors whose powers are taken in turns: as many as the registers hold with what each needs.
const TURNS: usize = 4;

/// Fills a block of the mask: its first key and number of keys.
pub(super) type FillMask<'a> = &'a dyn Fn(usize, usize);

/// The scores of some queries with some keys, which become weights.
#[derive(Clone, Copy)]
pub(super) struct Scores<W> {
    pub at: *mut W,
    pub pitch: usize,
    /// The first query.
    pub first: usize,
    pub rows: usize,
    /// The largest score of each query so far.
    pub maxima: *mut W,
    /// The sum of weights of each query so far.
    pub totals: *mut W,
    /// What is added to the scores, null for nothing; −∞ leaves a key out.
    pub mask: *const W,
    /// From row to row of the mask.
    pub mask_pitch: usize,
}

/// Sums of weighted values: one row per query.
#[derive(Clone, Copy)]
pub(super) struct Sums<W> {
    pub at: *mut W,
    /// Columns, padded to whole panels.
    pub columns: usize,
}

/// What one thread computes at a time.
#[derive(Clone, Copy)]
pub(super) struct Block<'a, W> {
    pub problem: &'a Problem,
    pub scores: Scores<W>,
    pub sums: Sums<W>,
    /// Packed queries, not yet scaled.
    pub q: *mut W,
    /// Packed keys and values of the head.
    pub k: *const W,
    pub v: *const W,
    /// Keys or columns of a panel.
    pub width: usize,
    /// Keys of a block, a multiple of a panel's width.
    pub keys: usize,
    pub fill_mask: Option<FillMask<'a>>,
}

impl<W: Real> LanesTask<W> for Block<'_, W> {
    #[inline(always)]
    fn run<S: Lanes<W>>(self, s: S) {
        let (rows, dim) = (self.scores.rows, self.problem.dim);
        let tiles = Split::at_most(rows, const { wide_of::<W, S>() }.0);
        // SAFETY: the buffers have the sizes of the plan, which hold whole vectors.
        unsafe {
            scale(s, self.q, rows * dim, W::from_f64(self.problem.scale));
            self.all_keys(s, tiles, false);
            // Values that are not finite may have met weights of zero, which must leave them out.
            if self.problem.visible(self.scores.first + rows - 1) > 0 && !self.is_finite(s) {
                self.all_keys(s, tiles, true);
            }
        }
    }
}

impl<W: Real> Block<'_, W> {
    /// Weights and values of all keys, block by block; one by one if that is asked for.
    #[inline(always)]
    unsafe fn all_keys<S: Lanes<W>>(&self, s: S, tiles: Split, each: bool) {
        let (p, rows) = (self.problem, self.scores.rows);
        for row in 0..rows {
            // SAFETY: there is a number for every row.
            unsafe {
                self.scores.maxima.add(row).write(-W::INFINITY);
                self.scores.totals.add(row).write(W::ZERO);
            }
        }
        let end = p.visible(self.scores.first + rows - 1);
        for from in (0..end).step_by(self.keys) {
            let keys = self.keys.min(end - from);
            if let Some(fill) = self.fill_mask {
                fill(from, keys);
            }
            // SAFETY: the buffers have the sizes of the plan; panels are packed for all keys.
            unsafe {
                if const { is_wide::<W, S>() } {
                    for (row, rows) in (0..tiles.blocks).map(|i| tiles.piece(i)) {
                        self.band(row, rows).wide_keys(s, from, keys, each);
                    }
                    continue;
                }
                self.products(s, tiles, from, keys);
                weigh(s, p, &self.scores, from, keys, Some(self.sums));
                if each {
                    self.add_each(from, keys);
                } else {
                    self.add_values(s, tiles, from, keys);
                }
            }
        }
    }

    /// A few of the queries; the scores of all such bands have one place, which stays in the first-level cache.
    #[inline(always)]
    fn band(&self, row: usize, rows: usize) -> Self {
        let Scores { maxima, totals, mask, mask_pitch, first, .. } = self.scores;
        let scores = Scores {
            first: first + row,
            rows,
            maxima: maxima.wrapping_add(row),
            totals: totals.wrapping_add(row),
            mask: if mask.is_null() { mask } else { mask.wrapping_add(row * mask_pitch) },
            ..self.scores
        };
        let sums = Sums { at: self.sums.at.wrapping_add(row * self.sums.columns), ..self.sums };
        Self { scores, sums, q: self.q.wrapping_add(row * self.problem.dim), ..*self }
    }

    /// Weights and values of a block of keys for queries that fit one wide tile: keys and values pass by.
    #[inline(always)]
    unsafe fn wide_keys<S: Lanes<W>>(&self, s: S, from: usize, keys: usize, each: bool) {
        let (p, rows, pitch) = (self.problem, self.scores.rows, self.scores.pitch);
        let width = const { wide_of::<W, S>() }.1 * S::LANES;
        let left = Left { a: self.q.cast_const(), rs: 1, cs: 1 };
        let right = Right { b: self.k.wrapping_add(from * p.dim), rs: width as isize };
        let target = whole(self.scores.at, pitch, keys.next_multiple_of(S::LANES), false);
        // SAFETY: the panels have `dim` steps for every key, the scores a place for every whole vector, the sums all columns of whole panels.
        unsafe {
            band::<W, S, Packed>(s, rows, p.dim, left, right, target);
            weigh(s, p, &self.scores, from, keys, Some(self.sums));
            if each {
                return self.add_each(from, keys);
            }
            let left = Left { a: self.scores.at.cast_const(), rs: pitch as isize, cs: 1 };
            for done in (0..p.value_dim).step_by(width) {
                let columns = (p.value_dim - done).min(width).next_multiple_of(S::LANES);
                let right =
                    Right { b: self.v.wrapping_add(done * p.keys + from * width), rs: width as isize };
                let target = whole(self.sums.at.wrapping_add(done), self.sums.columns, columns, from > 0);
                band::<W, S, InPlace>(s, rows, keys, left, right, target);
            }
        }
    }

    /// Whether all sums are finite.
    #[inline(always)]
    unsafe fn is_finite<S: Lanes<W>>(&self, s: S) -> bool {
        // Zero times anything finite is zero.
        let zero = s.splat(W::ZERO);
        let mut sum = zero;
        for row in 0..self.scores.rows {
            for i in (0..self.problem.value_dim).step_by(S::LANES) {
                // SAFETY: rows of sums are whole vectors, which were all computed.
                let x = unsafe { s.load(self.sums.at.wrapping_add(row * self.sums.columns + i)) };
                sum = s.mul_add(x, zero, sum);
            }
        }
        !s.any(s.ne(sum, zero))
    }

    /// The products of all queries with the keys of a block, padded to whole panels.
    #[inline(always)]
    unsafe fn products<S: Lanes<W>>(&self, s: S, tiles: Split, from: usize, keys: usize) {
        let width = const { tile_of::<W, S>() }.1 * S::LANES;
        let dim = self.problem.dim;
        let left = Left { a: self.q.cast_const(), rs: 1, cs: 1 };
        for panel in 0..keys.div_ceil(width) {
            let right = Right { b: self.k.wrapping_add((from + panel * width) * dim), rs: width as isize };
            let target = whole(self.scores.at.wrapping_add(panel * width), self.scores.pitch, width, false);
            // SAFETY: the panels have `dim` steps, the scores a place for every whole panel.
            unsafe { column::<W, S, Packed>(s, tiles, dim, left, right, target) };
        }
    }

    /// Adds the values of a block of keys by their weights.
    #[inline(always)]
    unsafe fn add_values<S: Lanes<W>>(&self, s: S, tiles: Split, from: usize, keys: usize) {
        let (width, p) = (const { tile_of::<W, S>() }.1 * S::LANES, self.problem);
        let left = Left { a: self.scores.at.cast_const(), rs: self.scores.pitch as isize, cs: 1 };
        let mut done = 0;
        while done < p.value_dim {
            // A last panel of few columns is computed as one vector.
            let narrow = p.value_dim - done <= S::LANES;
            let columns = if narrow { S::LANES } else { width };
            let right = Right { b: self.v.wrapping_add(done * p.keys + from * width), rs: width as isize };
            let target = whole(self.sums.at.wrapping_add(done), self.sums.columns, columns, from > 0);
            // SAFETY: the panel has these keys, the sums all columns of whole panels.
            unsafe { column::<W, S, InPlace>(s, tiles, keys, left, right, target) };
            done += width;
        }
    }

    /// Adds the values of a block of keys one by one: a weight of zero leaves its value out even if that is not finite.
    #[cold]
    #[inline(never)]
    unsafe fn add_each(&self, from: usize, keys: usize) {
        let (p, width) = (self.problem, self.width);
        for row in 0..self.scores.rows {
            let out = self.sums.at.wrapping_add(row * self.sums.columns);
            if from == 0 {
                // SAFETY: the row has so many sums.
                unsafe { fill(out, 0, self.sums.columns, W::ZERO) };
            }
            for key in 0..keys {
                // SAFETY: the weights of all keys are there.
                let weight = unsafe { *self.scores.at.wrapping_add(row * self.scores.pitch + key) };
                // Not a number is not zero either.
                if weight == W::ZERO {
                    continue;
                }
                for d in 0..p.value_dim {
                    let at = d / width * p.keys * width + (from + key) * width + d % width;
                    // SAFETY: the panels hold every key and column, the sums every column.
                    unsafe { *out.add(d) += weight * *self.v.wrapping_add(at) };
                }
            }
        }
    }
}

/// A target of whole vectors without anything to add.
#[inline(always)]
fn whole<W>(c: *mut W, pitch: usize, columns: usize, accumulate: bool) -> Target<W> {
    Target {
        c,
        rs: pitch as isize,
        columns,
        accumulate,
        stream: false,
        bias: std::ptr::null(),
        bias_rs: 0,
        bias_cs: 0,
        activation: Activation::None,
    }
}

/// # Safety
/// `at` has room for `n` elements, rounded up to whole vectors.
#[inline(always)]
pub(super) unsafe fn scale<W: Float, S: Lanes<W>>(s: S, at: *mut W, n: usize, factor: W) {
    let factor = s.splat(factor);
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: the caller's promise.
        unsafe { s.store(at.add(i), s.mul(s.load(at.add(i)), factor)) };
    }
}

/// Makes weights of the scores with keys `from..from + keys`; what was summed before is scaled to the new maxima.
///
/// # Safety
/// The buffers have as many rows as the scores, rows of scores and mask whole vectors for the keys.
#[inline(always)]
pub(super) unsafe fn weigh<W: Real, S: Lanes<W>>(
    s: S,
    p: &Problem,
    scores: &Scores<W>,
    from: usize,
    keys: usize,
    sums: Option<Sums<W>>,
) {
    for row in 0..scores.rows {
        let at = scores.at.wrapping_add(row * scores.pitch);
        // Rows of several heads follow one another, each with all queries.
        let visible = p.visible((scores.first + row) % p.queries).clamp(from, from + keys) - from;
        let padded = visible.next_multiple_of(S::LANES);
        // SAFETY: the row has whole vectors for the keys.
        unsafe {
            if !scores.mask.is_null() {
                add_mask(s, at, scores.mask.wrapping_add(row * scores.mask_pitch), padded);
            }
            fill(at, visible, padded, -W::INFINITY);
            fill(at, padded, keys, W::ZERO);
            let (max, total) = (scores.maxima.wrapping_add(row), scores.totals.wrapping_add(row));
            let old = *max;
            let peak = peak(s, at, padded);
            let new = if peak > old { peak } else { old };
            // Nothing but −∞ so far: the weights are zero, not the NaN of −∞ + ∞.
            let centre = if new == -W::INFINITY { W::ZERO } else { new };
            let sum = powers(s, at, padded, centre);
            if new == old {
                *total += sum;
                continue;
            }
            let shrink = s.first(exp_nonpositive(s, s.splat(old - centre)));
            *max = new;
            *total = *total * shrink + sum;
            if let (Some(sums), true) = (sums, from > 0) {
                scale(s, sums.at.wrapping_add(row * sums.columns), sums.columns, shrink);
            }
        }
    }
}

/// # Safety
/// The row has elements `first..end`, if there are any.
#[inline(always)]
unsafe fn fill<W: Copy>(row: *mut W, first: usize, end: usize, value: W) {
    for i in first..end {
        // SAFETY: the caller's promise.
        unsafe { row.add(i).write(value) };
    }
}

/// # Safety
/// Scores and mask have `n` elements, whole vectors.
#[inline(always)]
unsafe fn add_mask<W: Float, S: Lanes<W>>(s: S, scores: *mut W, mask: *const W, n: usize) {
    let out = s.splat(-W::INFINITY);
    for i in (0..n).step_by(S::LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let (x, mask) = (s.load(scores.add(i)), s.load(mask.add(i)));
            // Also where the score is not a number: a key that is left out does not count at all.
            s.store(scores.add(i), s.select(s.eq(mask, out), out, s.add(x, mask)));
        }
    }
}

/// The largest score, NaN left aside.
///
/// # Safety
/// There are `n` scores, whole vectors.
#[inline(always)]
unsafe fn peak<W: Float, S: Lanes<W>>(s: S, scores: *const W, n: usize) -> W {
    let mut max = s.splat(-W::INFINITY);
    for i in (0..n).step_by(S::LANES) {
        // The maximum gives its second operand where one is NaN.
        // SAFETY: the caller's promise.
        max = s.max(unsafe { s.load(scores.add(i)) }, max);
    }
    s.reduce_max(max)
}

/// Each score to its power over the centre; gives their sum.
///
/// # Safety
/// There are `n` scores, whole vectors.
#[inline(always)]
unsafe fn powers<W: Real, S: Lanes<W>>(s: S, scores: *mut W, n: usize, centre: W) -> W {
    let centre = s.splat(centre);
    let mut sums = [s.splat(W::ZERO); TURNS];
    let mut i = 0;
    while i + TURNS * S::LANES <= n {
        let mut x = [centre; TURNS];
        for (j, x) in x.iter_mut().enumerate() {
            // SAFETY: i + (j + 1) · LANES <= n.
            *x = s.sub(unsafe { s.load(scores.add(i + j * S::LANES)) }, centre);
        }
        for (j, e) in exp_nonpositive_each(s, x).into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { s.store(scores.add(i + j * S::LANES), e) };
            sums[j] = s.add(sums[j], e);
        }
        i += TURNS * S::LANES;
    }
    while i < n {
        // SAFETY: i + LANES <= n.
        unsafe {
            let e = exp_nonpositive(s, s.sub(s.load(scores.add(i)), centre));
            s.store(scores.add(i), e);
            sums[0] = s.add(sums[0], e);
        }
        i += S::LANES;
    }
    s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}
