//! Sorting neighbours by the rest of their index after division by two or four, and back, in registers.
//!
//! Some vectors of neighbours are numbered by bits: those of the vector and those of the lane. Exchanging a bit of the
//! one with a bit of the other is two shuffles and two blends; the right exchanges move the lowest bits to the front.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use crate::backends::cpu::simd::{Float, Lanes};

/// The most lanes of any instruction set.
const MAX_LANES: usize = 16;

/// Exchanges the bit that tells `a` from `b` with the bit `distance` of the lanes.
#[inline(always)]
fn exchange<T: Float, S: Lanes<T>>(s: S, a: S::V, b: S::V, distance: usize) -> (S::V, S::V) {
    let mut low = [T::ZERO; MAX_LANES];
    for (i, low) in low.iter_mut().enumerate() {
        *low = if i & distance == 0 { T::ONE } else { T::ZERO };
    }
    // SAFETY: the array has LANES elements or more.
    let low = s.eq(unsafe { s.load(low.as_ptr()) }, s.splat(T::ONE));
    (s.select(low, a, s.butterfly(b, distance)), s.select(low, s.butterfly(a, distance), b))
}

/// Two vectors of neighbours to the even and the odd ones.
#[inline(always)]
pub(super) fn split2<T: Float, S: Lanes<T>>(s: S, [mut a, mut b]: [S::V; 2]) -> [S::V; 2] {
    let mut distance = S::LANES / 2;
    while distance > 0 {
        (a, b) = exchange(s, a, b, distance);
        distance /= 2;
    }
    [a, b]
}

/// The inverse of [`split2`].
#[inline(always)]
pub(super) fn join2<T: Float, S: Lanes<T>>(s: S, [mut a, mut b]: [S::V; 2]) -> [S::V; 2] {
    let mut distance = 1;
    while distance < S::LANES {
        (a, b) = exchange(s, a, b, distance);
        distance *= 2;
    }
    [a, b]
}

/// Four vectors of neighbours to those with each rest.
#[inline(always)]
pub(super) fn split4<T: Float, S: Lanes<T>>(s: S, mut v: [S::V; 4]) -> [S::V; 4] {
    let (mut distance, mut high) = (S::LANES / 2, true);
    while distance > 0 {
        v = exchange4(s, v, distance, high);
        (distance, high) = (distance / 2, !high);
    }
    // After an odd number of exchanges the two bits of the vector stand the other way round.
    if high { v } else { [v[0], v[2], v[1], v[3]] }
}

/// The inverse of [`split4`].
#[inline(always)]
pub(super) fn join4<T: Float, S: Lanes<T>>(s: S, v: [S::V; 4]) -> [S::V; 4] {
    let odd = !S::LANES.trailing_zeros().is_multiple_of(2);
    let mut v = if odd { [v[0], v[2], v[1], v[3]] } else { v };
    let (mut distance, mut high) = (1, odd);
    while distance < S::LANES {
        v = exchange4(s, v, distance, high);
        (distance, high) = (distance * 2, !high);
    }
    v
}

/// Exchanges the higher or the lower bit of the vector with a bit of the lanes.
#[inline(always)]
fn exchange4<T: Float, S: Lanes<T>>(s: S, [a, b, c, d]: [S::V; 4], distance: usize, high: bool) -> [S::V; 4] {
    if high {
        let ((a, c), (b, d)) = (exchange(s, a, c, distance), exchange(s, b, d, distance));
        [a, b, c, d]
    } else {
        let ((a, b), (c, d)) = (exchange(s, a, b, distance), exchange(s, c, d, distance));
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::cpu::simd::Isa;
    use crate::ops::matmul::cpu_problem::{LanesTask, Real};

    struct RoundTrip;

    impl<T: Real> LanesTask<T> for RoundTrip {
        #[inline(always)]
        fn run<S: Lanes<T>>(self, s: S) {
            let n = S::LANES;
            let line: Vec<T> = (0..4 * n).map(|i| T::from_f64(i as f64)).collect();
            // SAFETY: the line has four vectors.
            let load = |i: usize| unsafe { s.load(line[i * n..].as_ptr()) };
            let lane = |v: S::V, i: usize| {
                let mut out = [T::ZERO; MAX_LANES];
                // SAFETY: the array has LANES elements or more.
                unsafe { s.store(out.as_mut_ptr(), v) };
                out[i].to_f64() as usize
            };
            let (two, four) = ([load(0), load(1)], [load(0), load(1), load(2), load(3)]);
            for i in 0..n {
                for (rest, v) in split2(s, two).into_iter().enumerate() {
                    assert_eq!(lane(v, i), 2 * i + rest);
                }
                for (rest, v) in split4(s, four).into_iter().enumerate() {
                    assert_eq!(lane(v, i), 4 * i + rest);
                }
                for (at, v) in join2(s, split2(s, two)).into_iter().enumerate() {
                    assert_eq!(lane(v, i), at * n + i);
                }
                for (at, v) in join4(s, split4(s, four)).into_iter().enumerate() {
                    assert_eq!(lane(v, i), at * n + i);
                }
            }
        }
    }

    #[test]
    fn neighbours_are_sorted_and_joined_again() {
        for &isa in Isa::available() {
            f32::run(isa, RoundTrip);
            f64::run(isa, RoundTrip);
        }
    }
}
