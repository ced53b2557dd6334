//! A quicksort over vectors: chosen lanes are packed to either side of a pivot, and the last few registers go through a network.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;

use super::cpu_network::{ROWS, sort_few};
use crate::backends::cpu::simd::{KeyLanes, KeyTask, LaneKey};

/// Parts that wait at most: as many as cuts may follow each other.
const DEEPEST: usize = 2 * usize::BITS as usize;

/// Sorts `keys` with the help of as much other memory.
pub(super) fn sort_keys<K: LaneKey>(keys: &mut [K], spare: &mut [K]) {
    assert!(spare.len() >= keys.len());
    let cuts = 2 * (usize::BITS - keys.len().leading_zeros()) as usize;
    if K::run(Quick { keys: &mut *keys, spare, cuts }).is_none() {
        keys.sort_unstable();
    }
}

struct Quick<'a, K> {
    keys: &'a mut [K],
    spare: &'a mut [K],
    /// Cuts that may follow each other before something else has to sort what is left.
    cuts: usize,
}

/// Keys that are to be sorted to where they belong.
#[derive(Clone, Copy)]
struct Part<K> {
    /// Where they belong.
    home: *mut K,
    /// As much memory elsewhere.
    other: *mut K,
    n: usize,
    /// Whether they are at home.
    at_home: bool,
    /// Cuts that may follow.
    cuts: usize,
}

impl<K: LaneKey> Part<K> {
    /// Where the keys are, and the memory that is free.
    #[inline(always)]
    fn sides(&self) -> (*mut K, *mut K) {
        if self.at_home { (self.home, self.other) } else { (self.other, self.home) }
    }
}

impl<K: LaneKey> KeyTask<K> for Quick<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: KeyLanes<K>>(self, s: S) {
        let (n, cuts) = (self.keys.len(), self.cuts);
        let (home, other) = (self.keys.as_mut_ptr(), self.spare.as_mut_ptr());
        let mut part = Part { home, other, n, at_home: true, cuts };
        let mut waiting = ArrayVec::<Part<K>, DEEPEST>::new();
        loop {
            let (from, free) = part.sides();
            // SAFETY: a part's memory is its own, `n` keys on both sides.
            unsafe {
                if part.n <= ROWS * S::LANES {
                    sort_few(s, from, part.home, part.n);
                } else if part.cuts == 0 {
                    std::slice::from_raw_parts_mut(from, part.n).sort_unstable();
                    if !part.at_home {
                        std::ptr::copy_nonoverlapping(from, free, part.n);
                    }
                } else {
                    let above;
                    (part, above) = cut(s, part);
                    waiting.push(above);
                    continue;
                }
            }
            let Some(next) = waiting.pop() else { return };
            part = next;
        }
    }
}

/// The keys below some pivot, and the others; the first are empty where all that are not above it were put in place.
///
/// # Safety
/// The part's memory is its own, and the keys fill more than a register.
#[inline(always)]
unsafe fn cut<K: LaneKey, S: KeyLanes<K>>(s: S, part: Part<K>) -> (Part<K>, Part<K>) {
    let Part { home, other, n, .. } = part;
    let cuts = part.cuts - 1;
    // SAFETY: the caller's promise; both sides have room for n keys, and so for those below and above.
    unsafe {
        let (from, free) = part.sides();
        let pivot = s.splat(middle_of_some(s, from, n));
        // At home the front stays where it is, elsewhere the rest: what moves is where it belongs, or opposite to it.
        let below = if part.at_home {
            split(s, from, free, n, pivot, 0)
        } else {
            n - split(s, from, free, n, pivot, u32::MAX)
        };
        if below > 0 {
            let above = n - below;
            let low = Part { home, other: other.add(above), n: below, at_home: true, cuts };
            return (low, Part { home: home.add(below), other, n: above, at_home: false, cuts });
        }
        let above = pack_above(s, other, n, pivot);
        let equal = n - above;
        for at in (0..equal).step_by(S::LANES) {
            s.store_first(home.add(at), pivot, equal - at);
        }
        let none = Part { home, other, n: 0, at_home: true, cuts };
        (none, Part { home: home.add(equal), other, n: above, at_home: false, cuts })
    }
}

/// The middle of the middles of three places' keys: one of the keys.
///
/// # Safety
/// `n` keys can be read, more than a register's.
#[inline(always)]
unsafe fn middle_of_some<K: LaneKey, S: KeyLanes<K>>(s: S, from: *const K, n: usize) -> K {
    let step = (n - S::LANES) / 4;
    // SAFETY: a register's keys from each place on are among the n.
    let (a, b, c) =
        unsafe { (s.load(from.add(step)), s.load(from.add(2 * step)), s.load(from.add(3 * step))) };
    let v = middle(s, a, b, c);
    let v = middle(s, v, s.exchange(v, 3), s.exchange(v, 2));
    s.first(middle(s, v, s.exchange(v, 7), s.exchange(v, 4)))
}

/// The middle one of each lane.
#[inline(always)]
fn middle<K: LaneKey, S: KeyLanes<K>>(s: S, a: S::V, b: S::V, c: S::V) -> S::V {
    let (a, b) = s.sort(a, b);
    s.sort(a, s.sort(b, c).0).1
}

/// Packs keys below the pivot to the front of where they are, and the others to the front of `to`; the other way round if `turn` is
/// all ones. How many stay.
///
/// # Safety
/// Both have room for `n` keys and share none.
#[inline(always)]
unsafe fn split<K: LaneKey, S: KeyLanes<K>>(
    s: S,
    from: *mut K,
    to: *mut K,
    n: usize,
    pivot: S::V,
    turn: u32,
) -> usize {
    const TOGETHER: usize = 4;
    let (mut at, mut stay) = (0, 0);
    // SAFETY: whole registers are written, but no further than keys were read.
    unsafe {
        while at + TOGETHER * S::LANES <= n {
            let (mut v, mut lanes) = ([pivot; TOGETHER], [0; TOGETHER]);
            for i in 0..TOGETHER {
                v[i] = s.load(from.add(at + i * S::LANES));
                lanes[i] = s.below(v[i], pivot) ^ turn;
            }
            for i in 0..TOGETHER {
                s.store(from.add(stay), s.pack(v[i], lanes[i]));
                s.store(to.add(at - stay), s.pack(v[i], !lanes[i]));
                stay += (lanes[i] & const { all::<K, S>() }).count_ones() as usize;
                at += S::LANES;
            }
        }
        while at < n {
            let some = (n - at).min(S::LANES);
            let there = const { all::<K, S>() } >> (S::LANES - some);
            let v = s.load_first(from.add(at), some, pivot);
            let lanes = (s.below(v, pivot) ^ turn) & there;
            let count = lanes.count_ones() as usize;
            s.store_first(from.add(stay), s.pack(v, lanes), count);
            s.store_first(to.add(at - stay), s.pack(v, !lanes & there), some - count);
            stay += count;
            at += some;
        }
    }
    stay
}

/// All lanes.
const fn all<K: LaneKey, S: KeyLanes<K>>() -> u32 {
    (1 << S::LANES) - 1
}

/// Packs the keys above the pivot to the front; how many.
///
/// # Safety
/// There are `n` keys.
#[inline(always)]
unsafe fn pack_above<K: LaneKey, S: KeyLanes<K>>(s: S, keys: *mut K, n: usize, pivot: S::V) -> usize {
    let mut above = 0;
    for at in (0..n).step_by(S::LANES) {
        // SAFETY: keys are written no further than they were read.
        unsafe {
            let v = s.load_first(keys.add(at), n - at, pivot);
            let lanes = s.below(pivot, v);
            let count = lanes.count_ones() as usize;
            s.store_first(keys.add(above), s.pack(v, lanes), count);
            above += count;
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys of every kind: as they come, few different ones, in order, in reverse, all the same, many of the largest.
    fn patterns(n: usize) -> Vec<Vec<u64>> {
        let random = |i: usize| {
            (i as u64 + 1)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(23)
                .wrapping_mul(0xD6E8_FEB8_6659_FD93)
        };
        let make = |key: &dyn Fn(usize) -> u64| (0..n).map(key).collect();
        vec![
            make(&random),
            make(&|i| random(i) % 3),
            make(&|i| random(i) % 300),
            make(&|i| i as u64),
            make(&|i| (n - i) as u64),
            make(&|_| 7),
            make(&|i| if random(i) % 2 == 0 { u64::MAX } else { random(i) }),
            make(&|i| i.min(n / 3) as u64),
        ]
    }

    fn check<K: LaneKey + std::fmt::Debug>(keys: &[K], cuts: Option<usize>) {
        let mut wanted = keys.to_vec();
        wanted.sort_unstable();
        let (mut got, mut spare) = (keys.to_vec(), keys.to_vec());
        match cuts {
            Some(cuts) => {
                if K::run(Quick { keys: &mut got, spare: &mut spare, cuts }).is_none() {
                    return;
                }
            }
            None => sort_keys(&mut got, &mut spare),
        }
        assert!(got == wanted, "{} keys, {cuts:?} cuts", keys.len());
    }

    #[test]
    fn keys_of_every_number_and_kind_are_sorted() {
        let (few, many) = if cfg!(miri) { (20, 300) } else { (600, 20_000) };
        for n in (0..few).chain([many / 4, many]) {
            for keys in patterns(n) {
                check(&keys, None);
                check(&keys.iter().map(|&key| key as u32).collect::<Vec<_>>(), None);
            }
        }
    }

    #[test]
    fn what_is_cut_too_often_is_sorted_too() {
        for keys in patterns(if cfg!(miri) { 300 } else { 5000 }) {
            for cuts in [0, 1, 2, 3] {
                check(&keys, Some(cuts));
                check(&keys.iter().map(|&key| key as u32).collect::<Vec<_>>(), Some(cuts));
            }
        }
    }
}
