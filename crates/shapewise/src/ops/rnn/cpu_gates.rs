//! From the sums of one block of hidden units to its new states.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set
#![allow(clippy::needless_range_loop)] // iterators over vectors may be compiled without their instructions

use super::Cell;
use super::cpu_part::{Layer, Spot, Step};
use crate::backends::cpu::simd::Lanes;
use crate::backends::cpu::simd::math::{Coefficients, sigmoid_divisor, tanh, tanh_quotient};
use crate::ops::matmul::cpu_problem::Real;

/// Vectors that go through the gates together, one function after the other: a CPU overlaps the same function of several vectors, but
/// does not look as far ahead as all functions of one.
const TURNS: usize = 4;

/// What a cell makes of its sums.
trait Gates {
    /// Sums of a unit.
    const SUMS: usize;
    /// Whether there is a memory beside the state.
    const MEMORY: bool = false;

    /// New states and new memories in place of the old ones.
    fn next<T: Coefficients, S: Lanes<T>, const N: usize>(
        s: S,
        sums: &[[S::V; 4]; N],
        h: &mut [S::V; N],
        c: &mut [S::V; N],
    );
}

/// 1 / (1 + e⁻ˣ)
#[inline(always)]
fn sigmoid<T: Coefficients, S: Lanes<T>>(s: S, x: S::V) -> S::V {
    s.div(s.splat(T::ONE), sigmoid_divisor(s, x))
}

/// `sigmoid(x) · tanh(y)`, which share a division.
#[inline(always)]
fn gated<T: Coefficients, S: Lanes<T>>(s: S, x: S::V, y: S::V) -> S::V {
    let (above, below) = tanh_quotient(s, y);
    s.copysign(s.div(above, s.mul(below, sigmoid_divisor(s, x))), y)
}

struct Tanh;
struct Relu;
struct Gru;
struct Lstm;

impl Gates for Tanh {
    const SUMS: usize = 1;

    #[inline(always)]
    fn next<T: Coefficients, S: Lanes<T>, const N: usize>(
        s: S,
        sums: &[[S::V; 4]; N],
        h: &mut [S::V; N],
        _: &mut [S::V; N],
    ) {
        for i in 0..N {
            h[i] = tanh(s, sums[i][0]);
        }
    }
}

impl Gates for Relu {
    const SUMS: usize = 1;

    #[inline(always)]
    fn next<T: Coefficients, S: Lanes<T>, const N: usize>(
        s: S,
        sums: &[[S::V; 4]; N],
        h: &mut [S::V; N],
        _: &mut [S::V; N],
    ) {
        for i in 0..N {
            // The maximum gives its second operand where one is NaN.
            h[i] = s.max(s.splat(T::ZERO), sums[i][0]);
        }
    }
}

impl Gates for Gru {
    const SUMS: usize = 4;

    #[inline(always)]
    fn next<T: Coefficients, S: Lanes<T>, const N: usize>(
        s: S,
        sums: &[[S::V; 4]; N],
        h: &mut [S::V; N],
        _: &mut [S::V; N],
    ) {
        let (mut r, mut z) = (*h, *h);
        for i in 0..N {
            r[i] = sigmoid(s, sums[i][0]);
        }
        for i in 0..N {
            z[i] = sigmoid(s, sums[i][1]);
        }
        for i in 0..N {
            let n = tanh(s, s.mul_add(r[i], sums[i][3], sums[i][2]));
            h[i] = s.mul_add(z[i], s.sub(h[i], n), n);
        }
    }
}

impl Gates for Lstm {
    const SUMS: usize = 4;
    const MEMORY: bool = true;

    #[inline(always)]
    fn next<T: Coefficients, S: Lanes<T>, const N: usize>(
        s: S,
        sums: &[[S::V; 4]; N],
        h: &mut [S::V; N],
        c: &mut [S::V; N],
    ) {
        for i in 0..N {
            c[i] = s.div(c[i], sigmoid_divisor(s, sums[i][1]));
        }
        for i in 0..N {
            c[i] = s.add(c[i], gated(s, sums[i][0], sums[i][2]));
        }
        for i in 0..N {
            h[i] = gated(s, sums[i][3], c[i]);
        }
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
    let plan = &layer.plan;
    let vectors = plan.width / S::LANES;
    let (units, mut done) = (plan.width.min(layer.p.hidden - spot.block * plan.width), 0);
    // SAFETY: the caller's promise.
    unsafe {
        if units == plan.width && layer.lengths.is_none() {
            while done + TURNS <= spot.rows * vectors {
                several::<G, T, S, TURNS>(s, layer, step, &spot, done);
                done += TURNS;
            }
        }
        while done < spot.rows * vectors {
            let (row, at) = (done / vectors, done % vectors * S::LANES);
            if at < units {
                one::<G, T, S>(s, layer, step, &spot, row, at, S::LANES.min(units - at));
            }
            done += 1;
        }
    }
}

/// `N` whole vectors of a block's rows from the `first` on, of sequences that all go on.
#[inline(always)]
unsafe fn several<G: Gates, T: Real, S: Lanes<T>, const N: usize>(
    s: S,
    layer: &Layer<T>,
    step: &Step<T>,
    spot: &Spot<T>,
    first: usize,
) {
    let vectors = layer.plan.width / S::LANES;
    let zero = s.splat(T::ZERO);
    let (mut all, mut h, mut c) = ([[zero; 4]; N], [zero; N], [zero; N]);
    let mut places = [Place { state: 0, y: layer.y }; N];
    for i in 0..N {
        let (row, at) = ((first + i) / vectors, (first + i) % vectors * S::LANES);
        places[i] = Place::new(layer, step, spot, row, at);
        // SAFETY: states and sums are padded to whole blocks.
        unsafe {
            all[i] = sums::<G, T, S>(s, layer, step, spot, row, at);
            h[i] = s.load(step.before.add(places[i].state));
            if G::MEMORY {
                c[i] = s.load(layer.memory.add(places[i].state));
            }
        }
    }
    G::next(s, &all, &mut h, &mut c);
    for i in 0..N {
        // SAFETY: as above; the results have a whole vector here.
        unsafe {
            s.store(step.after.add(places[i].state), h[i]);
            s.store(places[i].y, h[i]);
            if G::MEMORY {
                s.store(layer.memory.add(places[i].state), c[i]);
            }
        }
    }
}

/// One vector, of which `lanes` exist, of a sequence that may be over.
#[inline(always)]
unsafe fn one<G: Gates, T: Real, S: Lanes<T>>(
    s: S,
    layer: &Layer<T>,
    step: &Step<T>,
    spot: &Spot<T>,
    row: usize,
    at: usize,
    lanes: usize,
) {
    let Place { state, y } = Place::new(layer, step, spot, row, at);
    // SAFETY: states are padded to whole blocks, results have `lanes` elements here.
    unsafe {
        let old = s.load(step.before.add(state));
        if step.time >= layer.length(spot.first + row) {
            s.store(step.after.add(state), old);
            return s.store_first(y, s.splat(T::ZERO), lanes);
        }
        let all = [sums::<G, T, S>(s, layer, step, spot, row, at)];
        let memory = layer.memory.wrapping_add(state);
        let (mut h, mut c) = ([old], [if G::MEMORY { s.load(memory) } else { old }]);
        G::next(s, &all, &mut h, &mut c);
        if G::MEMORY {
            s.store(memory, c[0]);
        }
        s.store(step.after.add(state), h[0]);
        s.store_first(y, h[0], lanes);
    }
}

/// Where a vector of units stands among the states and in the results.
#[derive(Clone, Copy)]
struct Place<T> {
    state: usize,
    y: *mut T,
}

impl<T> Place<T> {
    #[inline(always)]
    fn new(layer: &Layer<T>, step: &Step<T>, spot: &Spot<T>, row: usize, at: usize) -> Self {
        let (row, unit) = (spot.first + row, spot.block * layer.plan.width + at);
        let y = step.time as isize * layer.p.y[0] + row as isize * layer.p.y[1];
        Self { state: row * layer.plan.pitch + unit, y: layer.y.wrapping_offset(y).wrapping_add(unit) }
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
        // SAFETY: biases, sums and projected inputs are padded to whole blocks.
        unsafe {
            let mut x = s.load(layer.bias.add(slot * plan.padded + unit));
            // The inputs' part of a GRU's n has no product with the state.
            let alone = G::SUMS > p.cell.gates() && slot + 1 == p.cell.gates();
            if step.projected.is_null() || !alone {
                x = s.add(x, s.load(spot.sums.add((slot * plan.rows + i) * plan.width + at)));
            }
            if !step.projected.is_null() && slot < p.cell.gates() {
                let gate = spot.block * p.cell.gates() + slot;
                let row = gate * plan.chunk * p.batch + spot.first + i;
                x = s.add(x, s.load(step.projected.add(row * plan.width + at)));
            }
            *sum = x;
        }
    }
    sums
}
