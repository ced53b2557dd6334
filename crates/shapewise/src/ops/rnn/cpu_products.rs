//! The sums of one block of hidden units: inputs and states times weights.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::Cell;
use super::cpu_part::{Layer, Spot, Step};
use super::plan::PASSING;
use crate::backends::cpu::simd::Lanes;
use crate::ops::Activation;
use crate::ops::matmul::cpu_micro::{Left, Right, Streamed, Target, column, tile_of};
use crate::ops::matmul::cpu_problem::{LanesTask, Real, Split};

/// The sum that a gate's product goes to; `n` of a GRU has one for the inputs and one for the state.
#[inline(always)]
pub(super) fn slot(cell: Cell, of_state: bool, gate: usize) -> usize {
    if of_state && cell == Cell::Gru && gate == 2 { 3 } else { gate }
}

/// Whether a gate's product with the state is added to that with the inputs.
#[inline(always)]
fn adds<T>(layer: &Layer<T>, of_state: bool, gate: usize) -> bool {
    of_state && !layer.plan.way.projects() && slot(layer.p.cell, true, gate) == gate
}

/// The rows of inputs or states of a step.
#[inline(always)]
fn left<T>(layer: &Layer<T>, step: &Step<T>, first: usize, of_state: bool) -> Left<T> {
    let (p, row) = (&layer.p, first as isize);
    if of_state {
        let pitch = layer.plan.pitch as isize;
        Left { a: step.before.wrapping_offset(row * pitch), rs: pitch, cs: 1 }
    } else {
        Left {
            a: layer.x.wrapping_offset(step.time as isize * p.x[0] + row * p.x[1]),
            rs: p.x[1],
            cs: p.x[2],
        }
    }
}

/// By packed panels, which follow one another in the order of use.
///
/// # Safety
/// The layer's weights are packed by its plan, and the spot has sequences and a block of the layer.
#[inline(always)]
pub(super) unsafe fn by_panels<T: Real, S: Lanes<T>>(s: S, layer: &Layer<T>, step: &Step<T>, spot: Spot<T>) {
    let (plan, cell) = (&layer.plan, layer.p.cell);
    let (most_rows, vectors) = const { tile_of::<T, S>() };
    let width = vectors * S::LANES;
    let split = Split::at_most(spot.rows, most_rows);
    let sections = plan.pieces(&layer.p);
    for (section, pieces) in sections.iter().enumerate() {
        let of_state = section == 1;
        if !of_state && plan.way.projects() {
            continue;
        }
        if of_state && step.still {
            // SAFETY: the sums have a place for every row.
            unsafe { leave_out_state(layer, &spot) };
            continue;
        }
        let left = left(layer, step, spot.first, of_state);
        let mut panel = layer.packed[section].wrapping_add(spot.block * plan.block[section]);
        for piece in 0..pieces.blocks {
            let (from, depth) = pieces.piece(piece);
            let left = Left { a: left.a.wrapping_offset(from as isize * left.cs), ..left };
            for gate in 0..cell.gates() {
                let sums = slot(cell, of_state, gate) * plan.rows * width;
                let adds = piece > 0 || adds(layer, of_state, gate);
                let target = target(spot.sums.wrapping_add(sums), width, adds);
                // SAFETY: the panel has these steps, the sums a place for every row.
                unsafe {
                    let right = Right { b: panel, rs: width as isize };
                    column::<T, S, Streamed>(s, split, depth, left, right, target);
                }
                panel = panel.wrapping_add(depth * width);
            }
        }
    }
}

/// Rows of a panel's width, one after the other.
#[inline(always)]
fn target<T>(c: *mut T, width: usize, accumulate: bool) -> Target<T> {
    Target {
        c,
        rs: width as isize,
        columns: width,
        accumulate,
        stream: false,
        bias: std::ptr::null(),
        bias_rs: 0,
        bias_cs: 0,
        activation: Activation::None,
    }
}

/// The products of one block's input weights with the inputs of some steps.
pub(super) struct Projection<'a, T> {
    pub layer: &'a Layer<T>,
    pub block: usize,
    /// The first step, and how many.
    pub steps: (usize, usize),
    /// Where the first step's products go.
    pub to: *mut T,
}

impl<T: Real> LanesTask<T> for Projection<'_, T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let (p, plan) = (&self.layer.p, &self.layer.plan);
        // Sequences of all steps are rows one after the other, if one stride leads through them and their results are so too.
        let merged = p.batch == 1 || p.x[0] == p.x[1] * p.batch as isize;
        let (groups, rows, apart) = match p.batch {
            1 => (1, self.steps.1, p.x[0]),
            batch if merged => (1, self.steps.1 * batch, p.x[1]),
            batch => (self.steps.1, batch, p.x[1]),
        };
        let start = self.layer.x.wrapping_offset(self.steps.0 as isize * p.x[0]);
        let to = self.to.wrapping_add(self.block * plan.chunk * p.batch * p.cell.gates() * plan.width);
        for group in 0..groups {
            let cuts = Split::at_most(rows, PASSING);
            for (first, rows) in (0..cuts.blocks).map(|cut| cuts.piece(cut)) {
                let at = group as isize * p.x[0] + first as isize * apart;
                let left = Left { a: start.wrapping_offset(at), rs: apart, cs: p.x[2] };
                let row = group * p.batch + first;
                // SAFETY: the inputs have these rows, and there is room for the products of a whole chunk.
                unsafe { self.pass(s, left, rows, to.wrapping_add(row * plan.width)) };
            }
        }
    }
}

impl<T: Real> Projection<'_, T> {
    /// All panels of the block by some rows of inputs.
    #[inline(always)]
    unsafe fn pass<S: Lanes<T>>(&self, s: S, left: Left<T>, rows: usize, to: *mut T) {
        let Layer { p, plan, packed, .. } = self.layer;
        let split = Split::at_most(rows, const { tile_of::<T, S>().0 });
        let width = const { tile_of::<T, S>().1 } * S::LANES;
        let mut panel = packed[0].wrapping_add(self.block * plan.block[0]);
        let pieces = plan.pieces(p)[0];
        for piece in 0..pieces.blocks {
            let (from, depth) = pieces.piece(piece);
            let left = Left { a: left.a.wrapping_offset(from as isize * left.cs), ..left };
            for gate in 0..p.cell.gates() {
                let target = target(to.wrapping_add(gate * plan.chunk * p.batch * width), width, piece > 0);
                // SAFETY: the caller's rows; the panel has these steps.
                unsafe {
                    let right = Right { b: panel, rs: width as isize };
                    column::<T, S, Streamed>(s, split, depth, left, right, target);
                }
                panel = panel.wrapping_add(depth * width);
            }
        }
    }
}

/// Zeros for the sums that only products with the state go to.
///
/// # Safety
/// The spot's sums are of the layer's plan.
#[inline(always)]
unsafe fn leave_out_state<T>(layer: &Layer<T>, spot: &Spot<T>) {
    let (plan, cell) = (&layer.plan, layer.p.cell);
    let untouched = if plan.way.projects() { 0 } else { cell.gates() };
    for slot in untouched..cell.sums() {
        let sums = spot.sums.wrapping_add(slot * plan.rows * plan.width);
        // SAFETY: the caller's promise; all bits clear is zero.
        unsafe { std::ptr::write_bytes(sums, 0, spot.rows * plan.width) };
    }
}

/// By the rows of weights where they lie; elements of rows are neighbours.
///
/// # Safety
/// The spot has sequences and a block of the layer, whose inputs and weights have neighbouring elements.
#[inline(always)]
pub(super) unsafe fn by_rows<T: Real, S: Lanes<T>>(s: S, layer: &Layer<T>, step: &Step<T>, spot: Spot<T>) {
    let (p, plan) = (&layer.p, &layer.plan);
    let unit = spot.block * plan.width;
    let lines = plan.width.min(p.hidden - unit);
    for of_state in [false, true] {
        if !of_state && plan.way.projects() {
            continue;
        }
        let left = left(layer, step, spot.first, of_state);
        let (weights, apart, k) =
            if of_state { (layer.w_hh, p.w_hh[0], p.hidden) } else { (layer.w_ih, p.w_ih[0], p.input) };
        for gate in 0..p.cell.gates() {
            let w = weights.wrapping_offset((gate * p.hidden + unit) as isize * apart);
            let sums = spot.sums.wrapping_add(slot(p.cell, of_state, gate) * plan.rows * plan.width);
            let add = adds(layer, of_state, gate);
            let mut row = 0;
            while row < spot.rows {
                let at = left.a.wrapping_offset(row as isize * left.rs);
                let to = sums.wrapping_add(row * plan.width);
                // SAFETY: rows, lines and sums exist as the caller says.
                unsafe {
                    // As many chains of sums in either case as hide how long an addition takes.
                    if spot.rows - row >= 2 {
                        dots::<T, S, 4, 2>(s, k, (w, apart, lines), (at, left.rs), (to, plan.width), add);
                        row += 2;
                    } else {
                        dots::<T, S, 8, 1>(s, k, (w, apart, lines), (at, left.rs), (to, plan.width), add);
                        row += 1;
                    }
                }
            }
        }
    }
}

/// `R` rows times all lines of weights, `N` at a time.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // iterators over vectors may be compiled without their instructions
unsafe fn dots<T: Real, S: Lanes<T>, const N: usize, const R: usize>(
    s: S,
    k: usize,
    (w, apart, lines): (*const T, isize, usize),
    (left, rs): (*const T, isize),
    (sums, pitch): (*mut T, usize),
    add: bool,
) {
    for first in (0..lines).step_by(N) {
        let (mut line, mut row) = ([w; N], [left; R]);
        for (i, line) in line.iter_mut().enumerate() {
            // Past the end the last one is computed again, and left out below.
            *line = w.wrapping_offset((first + i).min(lines - 1) as isize * apart);
        }
        for (i, row) in row.iter_mut().enumerate() {
            *row = left.wrapping_offset(i as isize * rs);
        }
        let mut totals = [[s.splat(T::ZERO); N]; R];
        let mut at = 0;
        while at < k {
            let lanes = S::LANES.min(k - at);
            let whole = lanes == S::LANES;
            let mut x = [s.splat(T::ZERO); R];
            for i in 0..R {
                // SAFETY: `lanes` elements are left of the row.
                x[i] = unsafe {
                    if whole { s.load(row[i].add(at)) } else { s.load_first(row[i].add(at), lanes) }
                };
            }
            for j in 0..N {
                // SAFETY: `lanes` elements are left of the line.
                let y = unsafe {
                    if whole { s.load(line[j].add(at)) } else { s.load_first(line[j].add(at), lanes) }
                };
                for i in 0..R {
                    totals[i][j] = s.mul_add(x[i], y, totals[i][j]);
                }
            }
            at += S::LANES;
        }
        for (i, totals) in totals.iter().enumerate() {
            for (j, &total) in totals.iter().enumerate().take(lines - first) {
                let to = sums.wrapping_add(i * pitch + first + j);
                let sum = s.reduce_add(total);
                // SAFETY: the sums have these rows and lines.
                unsafe { *to = if add { *to + sum } else { sum } };
            }
        }
    }
}
