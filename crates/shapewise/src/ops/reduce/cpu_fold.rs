//! What a reduction does with its elements, apart from where they lie.
//!
//! Elements go into *lanes* (narrow, fast, at most [`BLOCK`] steps each), lanes into *totals* (wide, exact enough for
//! any length), totals of parts into one total, and that into the result. The engines in `cpu_rows` and
//! `cpu_columns` decide the order; every fold works in any order.
#![allow(unsafe_code)]

use super::cpu_stored::Compute;
use crate::backends::cpu::real::{Real, Vectors};
use crate::backends::cpu::simd::{Float, Isa, Lanes, Portable, Simd, SimdTask};

/// The most lanes any instruction set has.
const MAX_LANES: usize = 16;

/// The most elements that go into one lane before it is added to a total.
///
/// With at least 16 lanes side by side a lane takes 128 steps at most, so a sum's relative error is bounded by
/// about (128 + 4 + 2)·u of the sum of magnitudes, u the unit roundoff of the lane's type, for any length.
pub(crate) const BLOCK: usize = 2048;

/// How an engine starts its algorithms.
pub(super) trait Runner: Copy + Sync {
    fn run<K: SimdTask>(self, task: K) -> K::Output;
}

impl Runner for Isa {
    #[inline(always)]
    fn run<K: SimdTask>(self, task: K) -> K::Output {
        Isa::run(self, task)
    }
}

/// No registers wider than 256 bits: what the compiler vectorises by itself does not use them.
#[derive(Clone, Copy)]
pub(super) struct Narrow(pub Isa);

impl Runner for Narrow {
    #[inline(always)]
    fn run<K: SimdTask>(self, task: K) -> K::Output {
        self.0.run_narrow(task)
    }
}

/// The baseline instructions only, so that rare combinations are compiled once.
#[derive(Clone, Copy)]
pub(super) struct Baseline;

impl Runner for Baseline {
    #[inline(always)]
    fn run<K: SimdTask>(self, task: K) -> K::Output {
        task.run(Portable)
    }
}

/// A reduction of elements `In` to one `Out`.
pub(super) trait Fold: Copy + Send + Sync {
    /// The type of the elements while they are computed with.
    type In: Compute;
    /// A running value for a block of elements.
    type Lane: Copy + Send + Sync;
    /// A running value for any number of elements.
    type Total: Copy + Send + Sync;
    /// The type of the result before it is stored.
    type Out: Compute;
    /// Whether [`four`](Fold::four) uses the widest registers by itself.
    const WIDE: bool = false;

    /// A lane before its first element.
    fn lane(self) -> Self::Lane;
    /// Takes in one element, the `at`-th of the reduced ones.
    fn step(self, lane: Self::Lane, x: Self::In, at: usize) -> Self::Lane;
    /// A total before its first lane.
    fn total(self) -> Self::Total;
    /// Takes a lane into a total.
    fn absorb(self, total: Self::Total, lane: Self::Lane) -> Self::Total;
    /// One total of two.
    fn merge(self, a: Self::Total, b: Self::Total) -> Self::Total;
    /// The result over `n` elements.
    fn finish(self, total: Self::Total, n: usize) -> Self::Out;

    /// Takes an element of each of four rows into every lane.
    #[inline(always)]
    fn four<S: Simd>(self, _: S, lanes: &mut [Self::Lane], rows: [&[Self::In]; 4], at: [usize; 4]) {
        let [a, b, c, d] = rows.map(|row| &row[..lanes.len()]);
        for (i, lane) in lanes.iter_mut().enumerate() {
            let two = self.step(self.step(*lane, a[i], at[0]), b[i], at[1]);
            *lane = self.step(self.step(two, c[i], at[2]), d[i], at[3]);
        }
    }

    /// Takes in up to [`BLOCK`] neighbours of which the first is the `at`-th; `so_far` may tell that it needs no look.
    fn block<S: Simd>(self, s: S, x: &[Self::In], at: usize, so_far: Self::Total) -> Self::Lane;
    /// [`block`](Fold::block) of four equally long blocks: four streams of memory are faster than one.
    #[inline(always)]
    fn quad<S: Simd>(
        self,
        s: S,
        x: [&[Self::In]; 4],
        at: [usize; 4],
        so_far: [Self::Total; 4],
    ) -> [Self::Lane; 4] {
        let mut lanes = [self.lane(); 4];
        // A loop and not `map`: its closure would be compiled without the instruction set and call every vector operation.
        for (k, lane) in lanes.iter_mut().enumerate() {
            *lane = self.block(s, x[k], at[k], so_far[k]);
        }
        lanes
    }
}

/// A lane-wise step of a vector reduction.
pub(crate) trait LaneStep: Copy {
    /// What a lane begins with.
    fn start<W: Float>(self) -> W;
    /// Takes in one element per lane.
    fn step<W: Float, S: Lanes<W>>(self, s: S, lanes: S::V, x: S::V) -> S::V;
    /// One vector of two.
    fn join<W: Float, S: Lanes<W>>(self, s: S, a: S::V, b: S::V) -> S::V;
}

/// Σ x
#[derive(Clone, Copy)]
pub(crate) struct Add;
/// The largest; NaN if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Largest;
/// The smallest; NaN if there is one.
#[derive(Clone, Copy)]
pub(super) struct Smallest;
/// The largest magnitude; NaN if there is a NaN.
#[derive(Clone, Copy)]
pub(super) struct LargestAbs;

impl LaneStep for Add {
    #[inline(always)]
    fn start<W: Float>(self) -> W {
        W::ZERO
    }
    #[inline(always)]
    fn step<W: Float, S: Lanes<W>>(self, s: S, lanes: S::V, x: S::V) -> S::V {
        s.add(lanes, x)
    }
    #[inline(always)]
    fn join<W: Float, S: Lanes<W>>(self, s: S, a: S::V, b: S::V) -> S::V {
        s.add(a, b)
    }
}

/// Σ x²
#[derive(Clone, Copy)]
pub(crate) struct AddSquare;

impl LaneStep for AddSquare {
    #[inline(always)]
    fn start<W: Float>(self) -> W {
        W::ZERO
    }
    #[inline(always)]
    fn step<W: Float, S: Lanes<W>>(self, s: S, lanes: S::V, x: S::V) -> S::V {
        s.mul_add(x, x, lanes)
    }
    #[inline(always)]
    fn join<W: Float, S: Lanes<W>>(self, s: S, a: S::V, b: S::V) -> S::V {
        s.add(a, b)
    }
}

impl LaneStep for Largest {
    #[inline(always)]
    fn start<W: Float>(self) -> W {
        -W::INFINITY
    }
    #[inline(always)]
    fn step<W: Float, S: Lanes<W>>(self, s: S, lanes: S::V, x: S::V) -> S::V {
        s.max_nan(lanes, x)
    }
    #[inline(always)]
    fn join<W: Float, S: Lanes<W>>(self, s: S, a: S::V, b: S::V) -> S::V {
        s.max_nan(a, b)
    }
}

impl LaneStep for Smallest {
    #[inline(always)]
    fn start<W: Float>(self) -> W {
        W::INFINITY
    }
    #[inline(always)]
    fn step<W: Float, S: Lanes<W>>(self, s: S, lanes: S::V, x: S::V) -> S::V {
        s.min_nan(lanes, x)
    }
    #[inline(always)]
    fn join<W: Float, S: Lanes<W>>(self, s: S, a: S::V, b: S::V) -> S::V {
        s.min_nan(a, b)
    }
}

/// The largest number; NaN is passed over.
#[derive(Clone, Copy)]
pub(crate) struct Peak;

impl LaneStep for Peak {
    #[inline(always)]
    fn start<W: Float>(self) -> W {
        -W::INFINITY
    }
    #[inline(always)]
    fn step<W: Float, S: Lanes<W>>(self, s: S, lanes: S::V, x: S::V) -> S::V {
        s.max(x, lanes)
    }
    #[inline(always)]
    fn join<W: Float, S: Lanes<W>>(self, s: S, a: S::V, b: S::V) -> S::V {
        s.max(a, b)
    }
}

impl LaneStep for LargestAbs {
    #[inline(always)]
    fn start<W: Float>(self) -> W {
        W::ZERO
    }
    #[inline(always)]
    fn step<W: Float, S: Lanes<W>>(self, s: S, lanes: S::V, x: S::V) -> S::V {
        s.max_nan(lanes, s.abs(x))
    }
    #[inline(always)]
    fn join<W: Float, S: Lanes<W>>(self, s: S, a: S::V, b: S::V) -> S::V {
        s.max_nan(a, b)
    }
}

/// Combines the lanes of one vector.
#[inline(always)]
fn horizontal<W: Float, S: Lanes<W>, O: LaneStep>(s: S, op: O, mut v: S::V) -> W {
    let mut distance = S::LANES / 2;
    while distance > 0 {
        v = op.join(s, v, s.butterfly(v, distance));
        distance /= 2;
    }
    s.first(v)
}

/// The last `n < LANES` elements, the other lanes at the start value.
///
/// # Safety
/// `at` is valid for reading `n` elements.
#[inline(always)]
unsafe fn tail<T: Real, S: Vectors<T>, O: LaneStep>(s: S, op: O, at: *const T, n: usize) -> S::V {
    let mut padded = [op.start(); MAX_LANES];
    for (j, x) in padded.iter_mut().enumerate().take(n) {
        // SAFETY: j < n.
        *x = unsafe { *at.add(j) }.widen();
    }
    // SAFETY: `padded` has at least LANES elements.
    unsafe { s.load(padded.as_ptr()) }
}

/// Reduces one block with eight vectors in flight.
#[inline(always)]
pub(crate) fn fold_block<T: Real, S: Vectors<T>, O: LaneStep>(s: S, op: O, x: &[T]) -> T::Wide {
    const FLIGHT: usize = 8;
    let (n, at) = (x.len(), x.as_ptr());
    let mut lanes = [s.splat(op.start()); FLIGHT];
    let mut i = 0;
    while i + FLIGHT * S::LANES <= n {
        for (k, lane) in lanes.iter_mut().enumerate() {
            // SAFETY: i + (k + 1) · LANES <= n.
            *lane = op.step(s, *lane, unsafe { s.read(at.add(i + k * S::LANES)) });
        }
        i += FLIGHT * S::LANES;
    }
    while i + S::LANES <= n {
        // SAFETY: i + LANES <= n.
        lanes[0] = op.step(s, lanes[0], unsafe { s.read(at.add(i)) });
        i += S::LANES;
    }
    if i < n {
        // SAFETY: i < n elements, fewer than LANES are left.
        lanes[FLIGHT - 1] = op.step(s, lanes[FLIGHT - 1], unsafe { tail(s, op, at.add(i), n - i) });
    }
    let mut width = FLIGHT;
    while width > 1 {
        width /= 2;
        for k in 0..width {
            lanes[k] = op.join(s, lanes[k], lanes[k + width]);
        }
    }
    horizontal(s, op, lanes[0])
}

/// Reduces four equally long blocks, one cache line of each in turn.
#[inline(always)]
pub(crate) fn fold_quad<T: Real, S: Vectors<T>, O: LaneStep>(s: S, op: O, x: [&[T]; 4]) -> [T::Wide; 4] {
    let n = x.iter().map(|x| x.len()).min().unwrap_or(0);
    let at = x.map(<[T]>::as_ptr);
    let mut lanes = [[s.splat(op.start()); 2]; 4];
    let mut i = 0;
    while i + 2 * S::LANES <= n {
        for (lane, at) in lanes.iter_mut().zip(at) {
            // SAFETY: i + 2 · LANES <= n.
            lane[0] = op.step(s, lane[0], unsafe { s.read(at.add(i)) });
            // SAFETY: i + 2 · LANES <= n.
            lane[1] = op.step(s, lane[1], unsafe { s.read(at.add(i + S::LANES)) });
        }
        i += 2 * S::LANES;
    }
    for (lane, at) in lanes.iter_mut().zip(at) {
        let mut i = i;
        if i + S::LANES <= n {
            // SAFETY: i + LANES <= n.
            lane[0] = op.step(s, lane[0], unsafe { s.read(at.add(i)) });
            i += S::LANES;
        }
        if i < n {
            // SAFETY: i < n elements, fewer than LANES are left.
            lane[1] = op.step(s, lane[1], unsafe { tail(s, op, at.add(i), n - i) });
        }
    }
    let mut totals = [op.start(); 4];
    // A loop and not `map`, as in `Fold::quad`.
    for (total, lane) in totals.iter_mut().zip(lanes) {
        *total = horizontal(s, op, op.join(s, lane[0], lane[1]));
    }
    totals
}

/// Adds an element of each of four rows to every lane, one load instruction for each row: the prefetchers of Zen go by the instruction's address.
#[inline(always)]
pub(super) fn add_rows<T: Float, S: Lanes<T>>(s: S, lanes: &mut [T], rows: [&[T]; 4]) {
    let n = lanes.len();
    let [a, b, c, d] = rows.map(|row| row[..n].as_ptr());
    let sums = lanes.as_mut_ptr();
    let mut i = 0;
    while i < n {
        let some = (n - i).min(S::LANES);
        // SAFETY: all five have n elements, and `some` are left from i on, LANES if they fill a register.
        unsafe {
            if some == S::LANES {
                let two = s.add(s.add(s.load(sums.add(i)), s.load(a.add(i))), s.load(b.add(i)));
                s.store(sums.add(i), s.add(s.add(two, s.load(c.add(i))), s.load(d.add(i))));
            } else {
                let two = s.add(s.load_first(sums.add(i), some), s.load_first(a.add(i), some));
                let three = s.add(two, s.load_first(b.add(i), some));
                let four = s.add(three, s.load_first(c.add(i), some));
                s.store_first(sums.add(i), s.add(four, s.load_first(d.add(i), some)), some);
            }
        }
        i += some;
    }
}

/// Reduces a block in `W` independent lanes, in a form that compilers turn into vectors.
#[inline(always)]
pub(super) fn striped<X: Copy, L: Copy, const W: usize>(
    start: L,
    x: &[X],
    step: impl Fn(L, X) -> L,
    join: impl Fn(L, L) -> L,
) -> L {
    let mut lanes = [start; W];
    let chunks = x.chunks_exact(W);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = step(*lane, x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, x);
    }
    let mut width = W;
    while width > 1 {
        width /= 2;
        for k in 0..width {
            lanes[k] = join(lanes[k], lanes[k + width]);
        }
    }
    lanes[0]
}
