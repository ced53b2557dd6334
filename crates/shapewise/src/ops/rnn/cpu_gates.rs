//! From the sums of one block of hidden units to its new states.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::Cell;
use super::cpu_part::{Layer, Spot, Step};
use crate::backends::cpu::simd::Lanes;
use crate::backends::cpu::simd::math::{Coefficients, exp_nonpositive, tanh};
use crate::ops::matmul::cpu_problem::Real;

/// What a cell makes of its sums.
trait Gates {
    /// Sums of a unit.
    const SUMS: usize;
    /// Whether there is a memory beside the state.
    const MEMORY: bool = false;

    /// New state and new memory.
    fn next<T: Coefficients, S: Lanes<T>>(s: S, sums: [S::V; 4], h: S::V, c: S::V) -> (S::V, S::V);
}

/// 1 / (1 + e⁻ˣ) in fewer instructions than the general one: below the smallest normal number it is zero.
#[inline(always)]
fn sigmoid<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    let one = s.splat(T::ONE);
    let e = exp_nonpositive(s, s.neg(s.abs(x)));
    s.div(s.select(s.lt(x, s.splat(T::ZERO)), e, one), s.add(one, e))
}

struct Tanh;
struct Relu;
struct Gru;
struct Lstm;

impl Gates for Tanh {
    const SUMS: usize = 1;

    #[inline(always)]
    fn next<T: Coefficients, S: Lanes<T>>(s: S, sums: [S::V; 4], _: S::V, c: S::V) -> (S::V, S::V) {
        (tanh(s, sums[0]), c)
    }
}

impl Gates for Relu {
    const SUMS: usize = 1;

    #[inline(always)]
    fn next<T: Coefficients, S: Lanes<T>>(s: S, sums: [S::V; 4], _: S::V, c: S::V) -> (S::V, S::V) {
        // The maximum gives its second operand where one is NaN.
        (s.max(s.splat(T::ZERO), sums[0]), c)
    }
}

impl Gates for Gru {
    const SUMS: usize = 4;

    #[inline(always)]
    fn next<T: Coefficients, S: Lanes<T>>(s: S, sums: [S::V; 4], h: S::V, c: S::V) -> (S::V, S::V) {
        let (r, z) = (sigmoid(s, sums[0]), sigmoid(s, sums[1]));
        let n = tanh(s, s.mul_add(r, sums[3], sums[2]));
        (s.mul_add(z, s.sub(h, n), n), c)
    }
}

impl Gates for Lstm {
    const SUMS: usize = 4;
    const MEMORY: bool = true;

    #[inline(always)]
    fn next<T: Coefficients, S: Lanes<T>>(s: S, sums: [S::V; 4], _: S::V, c: S::V) -> (S::V, S::V) {
        let (input, forget) = (sigmoid(s, sums[0]), sigmoid(s, sums[1]));
        let (new, output) = (tanh(s, sums[2]), sigmoid(s, sums[3]));
        let c = s.mul_add(forget, c, s.mul(input, new));
        (s.mul(output, tanh(s, c)), c)
    }
}

/// Applies the gates of a layer's cell.
///
/// # Safety
/// The spot has sequences and a block of the layer, and its sums are computed for those that go on.
#[inline(always)]
pub(super) unsafe fn apply<T: Real, S: Lanes<T>>(s: S, layer: &Layer<T>, step: &Step<T>, spot: Spot<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        match layer.p.cell {
            Cell::Tanh => rows::<Tanh, T, S>(s, layer, step, spot),
            Cell::Relu => rows::<Relu, T, S>(s, layer, step, spot),
            Cell::Gru => rows::<Gru, T, S>(s, layer, step, spot),
            Cell::Lstm => rows::<Lstm, T, S>(s, layer, step, spot),
        }
    }
}

#[inline(always)]
unsafe fn rows<G: Gates, T: Real, S: Lanes<T>>(s: S, layer: &Layer<T>, step: &Step<T>, spot: Spot<T>) {
    let (p, plan) = (&layer.p, &layer.plan);
    let unit = spot.block * plan.width;
    let units = plan.width.min(p.hidden - unit);
    for i in 0..spot.rows {
        let row = spot.first + i;
        let state = row * plan.pitch + unit;
        let (before, after) = (step.before.wrapping_add(state), step.after.wrapping_add(state));
        let y =
            layer.y.wrapping_offset(step.time as isize * p.y[0] + row as isize * p.y[1]).wrapping_add(unit);
        let goes_on = step.time < layer.length(row);
        for at in (0..units).step_by(S::LANES) {
            let lanes = S::LANES.min(units - at);
            // SAFETY: states are padded to whole blocks, results have `lanes` elements here.
            unsafe {
                let h = s.load(before.add(at));
                let (new, shown) = if goes_on {
                    let sums = sums::<G, T, S>(s, layer, step, &spot, i, at);
                    let memory = layer.memory.wrapping_add(state + at);
                    let c = if G::MEMORY { s.load(memory) } else { h };
                    let (h, c) = G::next(s, sums, h, c);
                    if G::MEMORY {
                        s.store(memory, c);
                    }
                    (h, h)
                } else {
                    (h, s.splat(T::ZERO))
                };
                s.store(after.add(at), new);
                if lanes == S::LANES {
                    s.store(y.add(at), shown)
                } else {
                    s.store_first(y.add(at), shown, lanes)
                }
            }
        }
    }
}

/// The sums of one vector of units, with what was computed before the step.
#[inline(always)]
unsafe fn sums<G: Gates, T: Real, S: Lanes<T>>(
    s: S,
    layer: &Layer<T>,
    step: &Step<T>,
    spot: &Spot<T>,
    i: usize,
    at: usize,
) -> [S::V; 4] {
    let (p, plan) = (&layer.p, &layer.plan);
    let unit = spot.block * plan.width + at;
    let mut sums = [s.splat(T::ZERO); 4];
    for (slot, sum) in sums.iter_mut().enumerate().take(G::SUMS) {
        // SAFETY: biases and sums are padded to whole blocks; of projected inputs only those that exist are read.
        unsafe {
            let mut x = s.load(layer.bias.add(slot * plan.padded + unit));
            // The inputs' part of a GRU's n has no product with the state.
            let alone = G::SUMS > p.cell.gates() && slot + 1 == p.cell.gates();
            if step.projected.is_null() || !alone {
                x = s.add(x, s.load(spot.sums.add((slot * plan.rows + i) * plan.width + at)));
            }
            if !step.projected.is_null() && slot < p.cell.gates() {
                let from = step.projected.add((spot.first + i) * p.columns() + slot * p.hidden + unit);
                let lanes = S::LANES.min(p.hidden - unit);
                x = s.add(x, if lanes == S::LANES { s.load(from) } else { s.load_first(from, lanes) });
            }
            *sum = x;
        }
    }
    sums
}
