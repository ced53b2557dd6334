//! The radix sort of what fits a cache: digit by digit.
#![allow(unsafe_code)]

use super::cpu_keys::{Item, Key};
use crate::backends::cpu::simd::{Isa, Simd, SimdTask};

/// Below this many items comparisons are faster than counting digits.
const FEW: usize = 128;
/// Bits of a digit at most: the counters of a pass stay in the first cache.
const DIGIT: u32 = 11;
/// Passes over keys of 64 bits at most, in the short digits of short lists.
const PASSES: usize = 8;

/// Counters of every pass.
type Counters = [[u32; 1 << DIGIT]];

/// Counters that are made when they are first needed, too large for a stack of threads.
#[derive(Default)]
pub(super) struct LazyCounters(Option<Box<Counters>>);

impl LazyCounters {
    fn get(&mut self) -> &mut Counters {
        self.0.get_or_insert_with(|| vec![[0; 1 << DIGIT]; PASSES].into_boxed_slice())
    }
}

/// Sorts `a` with the help of `b`, keeping the order of equal keys; whether the result is in `b`.
pub(super) fn sort_digits<I: Item>(a: &mut [I], b: &mut [I], counters: &mut LazyCounters) -> bool {
    if a.len() <= FEW {
        a.sort_unstable();
        return false;
    }
    assert!(b.len() >= a.len());
    let Some(digits) = Digits::<_, false>::of(&[a], a.len()) else { return false };
    let counters = counters.get();
    digits.count(&[a], counters);
    digits.distribute_all(0, a, b, counters)
}

/// The items of all `parts` sorted, in memory that grows as needed; equal keys keep their order. None if they are in order as they are.
pub(super) fn sort_parts<'a, I: Item>(
    parts: &[&[I]],
    memory: &'a mut Vec<I>,
    counters: &mut LazyCounters,
) -> Option<&'a [I]> {
    let n = parts.iter().map(|part| part.len()).sum::<usize>();
    if n <= FEW {
        memory.clear();
        for part in parts {
            memory.extend_from_slice(part);
        }
        memory.sort_unstable();
        return Some(memory);
    }
    let digits = Digits::<_, true>::of(parts, n)?;
    if memory.len() < 2 * n {
        memory.resize(2 * n, *parts.iter().find_map(|part| part.first())?);
    }
    let (a, b) = memory[..2 * n].split_at_mut(n);
    let counters = counters.get();
    digits.count(parts, counters);
    let places = digits.places(0, counters);
    for part in parts {
        distribute(part, a, places, digits.digit(0));
    }
    Some(if digits.distribute_all(1, a, b, counters) { b } else { a })
}

/// How keys are cut into digits: those of a bucket, which lie close together, by how far `ABOVE` the smallest they are, others
/// as they are.
struct Digits<K, const ABOVE: bool> {
    /// The smallest key.
    base: K,
    /// The lowest bit in which keys differ.
    low: u32,
    /// Bits of a digit.
    width: u32,
    passes: usize,
}

impl<K: Key, const ABOVE: bool> Digits<K, ABOVE> {
    /// For `n` items; none if all have the same key.
    fn of<I: Item<Key = K>>(parts: &[&[I]], n: usize) -> Option<Self> {
        let first = parts.iter().find_map(|part| part.first())?.key();
        let Range { min, max, differing } = Isa::best().run_narrow(Look { parts, first });
        let (low, mut high) = differing.span();
        if high == 0 {
            return None;
        }
        if ABOVE {
            (_, high) = max.minus(min).span();
        }
        // Short lists take short digits, so that clearing counters costs less than passes.
        let longest = if n < 2048 { 8 } else { DIGIT };
        let passes = (high - low).div_ceil(longest);
        Some(Self { base: min, low, width: (high - low).div_ceil(passes), passes: passes as usize })
    }

    fn mask(&self) -> usize {
        (1 << self.width) - 1
    }

    /// The digit of a pass.
    #[inline(always)]
    fn digit<I: Item<Key = K>>(&self, pass: usize) -> impl Fn(I) -> usize + Copy + use<I, K, ABOVE> {
        let (base, shift, mask) = (self.base, self.low + pass as u32 * self.width, self.mask());
        move |x| {
            let key = if ABOVE { x.key().minus(base) } else { x.key() };
            key.digit(shift, mask) & ((1 << DIGIT) - 1)
        }
    }

    /// Counts the digits of all passes.
    fn count<I: Item<Key = K>>(&self, parts: &[&[I]], counters: &mut Counters) {
        let counters = &mut counters[..self.passes];
        for counts in counters.iter_mut() {
            counts[..=self.mask()].fill(0);
        }
        // Keys are read once for all of the usual passes.
        match self.passes {
            2 => self.count_together::<I, 2>(parts, counters),
            3 => self.count_together::<I, 3>(parts, counters),
            4 => self.count_together::<I, 4>(parts, counters),
            _ => {
                for (pass, counts) in counters.iter_mut().enumerate() {
                    let digit = self.digit::<I>(pass);
                    for part in parts {
                        part.iter().for_each(|&x| counts[digit(x)] += 1);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn count_together<I: Item<Key = K>, const N: usize>(&self, parts: &[&[I]], counters: &mut Counters) {
        let Some(counters) = counters.first_chunk_mut::<N>() else { return };
        let digits: [_; N] = std::array::from_fn(|pass| self.digit::<I>(pass));
        for part in parts {
            for &x in *part {
                for (counts, digit) in counters.iter_mut().zip(&digits) {
                    counts[digit(x)] += 1;
                }
            }
        }
    }

    /// Where the items of each digit of a pass begin, from their counts.
    fn places<'a>(&self, pass: usize, counters: &'a mut Counters) -> &'a mut [u32; 1 << DIGIT] {
        let places = &mut counters[pass];
        let mut next = 0;
        for place in &mut places[..=self.mask()] {
            next += std::mem::replace(place, next);
        }
        places
    }

    /// The passes from `first` on, of items that are in `a`; whether the result is in `b`.
    fn distribute_all<I: Item<Key = K>>(
        &self,
        first: usize,
        a: &mut [I],
        b: &mut [I],
        counters: &mut Counters,
    ) -> bool {
        let mut swapped = false;
        for pass in first..self.passes {
            let (from, to) = if swapped { (&*b, &mut *a) } else { (&*a, &mut *b) };
            distribute(from, to, self.places(pass, counters), self.digit(pass));
            swapped = !swapped;
        }
        swapped
    }
}

/// What keys there are.
struct Range<K> {
    min: K,
    max: K,
    /// The bits that are not the same in all.
    differing: K,
}

/// Looks at all keys; plain code that the compiler writes over vectors.
struct Look<'a, I: Item> {
    parts: &'a [&'a [I]],
    first: I::Key,
}

impl<I: Item> SimdTask for Look<'_, I> {
    type Output = Range<I::Key>;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Self::Output {
        let first = self.first;
        let (mut min, mut max, mut differing) = (first, first, I::Key::ZERO);
        for part in self.parts {
            for x in *part {
                let key = x.key();
                min = min.min(key);
                max = max.max(key);
                differing = key.differing(first, differing);
            }
        }
        Range { min, max, differing }
    }
}

/// Writes each item to the next place of its digit.
#[inline(always)]
fn distribute<I: Item>(from: &[I], to: &mut [I], places: &mut [u32; 1 << DIGIT], digit: impl Fn(I) -> usize) {
    let to = to.as_mut_ptr();
    for &x in from {
        let place = &mut places[digit(x)];
        // SAFETY: the places of all digits were counted from the items of this pass, which are as many as `to` has room for.
        unsafe { to.add(*place as usize).write(x) };
        *place += 1;
    }
}
