//! The radix sort: long rows are cut into buckets that fit the second cache, buckets are sorted digit by digit.
#![allow(unsafe_code)]

use super::cpu_keys::{Item, Key};
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::simd::{Isa, Simd, SimdTask};

/// Below this many items comparisons are faster than counting digits.
const FEW: usize = 128;
/// Items that are sorted digit by digit at once: they and their copy fit a second cache of 256 KiB or more.
pub(super) const BUCKET: usize = 16 << 10;
/// Bits of a digit at most: the counters of a pass stay in the first cache.
const DIGIT: u32 = 11;
/// Passes over keys of 64 bits at most, in the short digits of short lists.
const PASSES: usize = 8;
/// Keys that are looked at to cut a row into buckets of about equal size.
const SAMPLES: usize = 8 << 10;
/// Steps between the smallest and the largest key seen; each belongs to one bucket.
const STEPS: usize = 1 << 16;

/// Counters of every pass.
pub(super) type Counters = [[u32; 1 << DIGIT]];

/// New counters, too large for a stack of threads.
pub(super) fn counters() -> Box<Counters> {
    vec![[0; 1 << DIGIT]; PASSES].into_boxed_slice()
}

/// Sorts `a` with the help of `b`, keeping the order of equal keys; whether the result is in `b`.
pub(super) fn sort_digits<I: Item>(a: &mut [I], b: &mut [I], counters: &mut Counters) -> bool {
    let n = a.len();
    if n <= FEW {
        a.sort_unstable();
        return false;
    }
    let first = a[0].key();
    let differing = a.iter().fold(I::Key::ZERO, |seen, x| x.key().differing(first, seen));
    let (low, high) = differing.span();
    if low == high {
        return false;
    }
    // Short lists take short digits, so that clearing counters costs less than passes.
    let longest = if n < 2048 { 8 } else { DIGIT };
    let passes = (high - low).div_ceil(longest);
    let digit = (high - low).div_ceil(passes);
    let mask = (1usize << digit) - 1;
    let shifts = |pass: usize| low + pass as u32 * digit;
    let counters = &mut counters[..passes as usize];
    for counts in counters.iter_mut() {
        counts[..=mask].fill(0);
    }
    // Keys are read once for all of the usual two or three passes.
    match passes {
        2 => count::<I, 2>(a, counters, shifts, mask),
        3 => count::<I, 3>(a, counters, shifts, mask),
        _ => {
            for (pass, counts) in counters.iter_mut().enumerate() {
                count::<I, 1>(a, std::slice::from_mut(counts), |_| shifts(pass), mask);
            }
        }
    }
    let mut swapped = false;
    for (pass, places) in counters.iter_mut().enumerate() {
        let mut next = 0;
        for place in &mut places[..=mask] {
            next += std::mem::replace(place, next);
        }
        let (from, to) = if swapped { (&*b, &mut *a) } else { (&*a, &mut *b) };
        let shift = shifts(pass);
        distribute(from, to, places, move |x| x.key().digit(shift, mask));
        swapped = !swapped;
    }
    swapped
}

/// Counts the digits of the first `N` passes.
#[inline(always)]
fn count<I: Item, const N: usize>(
    a: &[I],
    counters: &mut Counters,
    shifts: impl Fn(usize) -> u32,
    mask: usize,
) {
    let Some(counters) = counters.first_chunk_mut::<N>() else { return };
    for x in a {
        for (pass, counts) in counters.iter_mut().enumerate() {
            counts[x.key().digit(shifts(pass), mask) & ((1 << DIGIT) - 1)] += 1;
        }
    }
}

/// Writes each item to the next place of its digit.
#[inline(always)]
fn distribute<I: Item>(from: &[I], to: &mut [I], places: &mut [u32; 1 << DIGIT], digit: impl Fn(I) -> usize) {
    assert!(to.len() >= from.len());
    let to = to.as_mut_ptr();
    for &x in from {
        let place = &mut places[digit(x) & ((1 << DIGIT) - 1)];
        // SAFETY: the places of all digits were counted from these very items, so each is below `from.len()`.
        unsafe { to.add(*place as usize).write(x) };
        *place += 1;
    }
}

/// A row cut into buckets of rising keys.
pub(super) struct Buckets<K> {
    low: K,
    shift: u32,
    table: Vec<u16>,
    /// Where each bucket begins; the last number is the length of the row.
    pub starts: Vec<usize>,
}

impl<K: Key> Buckets<K> {
    /// Cuts a row of `n` keys by looking at some of them.
    fn sampled(n: usize, key: &impl Fn(usize) -> K) -> Self {
        let buckets = (n / BUCKET).clamp(2, 4096);
        let step = (n / SAMPLES).max(1);
        let sample = || (0..n).step_by(step).map(key);
        let low = sample().min().unwrap_or(K::ZERO);
        let high = sample().max().unwrap_or(K::ZERO);
        let (_, bits) = high.differing(low, K::ZERO).span();
        let shift = bits.saturating_sub(STEPS.ilog2());
        let mut counts = vec![0usize; STEPS];
        sample().for_each(|k| counts[k.above(low, shift, STEPS - 1)] += 1);
        let total: usize = counts.iter().sum::<usize>() + 1;
        let mut before = 0;
        let mut table = vec![0u16; STEPS];
        for (bucket, &count) in table.iter_mut().zip(&counts) {
            // A step belongs to the bucket that its middle falls into.
            *bucket = ((before + count / 2) * buckets / total) as u16;
            before += count;
        }
        Self { low, shift, table, starts: vec![0; buckets + 1] }
    }

    /// The table with its scale, by value: a loop keeps them in registers.
    fn scale(&self) -> Scale<'_, K> {
        Scale { low: self.low, shift: self.shift, table: &self.table }
    }
}

#[derive(Clone, Copy)]
struct Scale<'a, K> {
    low: K,
    shift: u32,
    table: &'a [u16],
}

/// Elements whose steps are worked out together, in loops that the compiler writes over vectors.
const TOGETHER: usize = 512;

/// Calls `see` with the items of a range and their buckets, at most [`TOGETHER`] at a time.
struct Walk<'a, I: Item, F, G> {
    range: std::ops::Range<usize>,
    item: F,
    scale: Scale<'a, I::Key>,
    see: G,
}

impl<I: Item, F: Fn(usize) -> I, G: FnMut(&[I], &[u16])> SimdTask for Walk<'_, I, F, G> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { range, item, scale, mut see } = self;
        let Scale { low, shift, table } = scale;
        // As many as there are steps: no place in it needs a check.
        let Some(table) = table.first_chunk::<STEPS>() else { return };
        if range.is_empty() {
            return;
        }
        let mut items = [item(range.start); TOGETHER];
        let mut steps = [0u16; TOGETHER];
        let mut from = range.start;
        while from < range.end {
            let len = (range.end - from).min(TOGETHER);
            items[..len].iter_mut().enumerate().for_each(|(j, slot)| *slot = item(from + j));
            for (step, x) in steps.iter_mut().zip(&items) {
                *step = x.key().above(low, shift, STEPS - 1) as u16;
            }
            steps[..len].iter_mut().for_each(|step| *step = table[*step as usize]);
            see(&items[..len], &steps[..len]);
            from += len;
        }
    }
}

/// Where items go, shared by tasks that write places of their own.
struct Target<I>(*mut I);

// SAFETY: every task writes the places that it counted for itself.
unsafe impl<I> Sync for Target<I> {}

impl<I> Target<I> {
    /// # Safety
    /// `at` lies inside the target and nobody else writes it.
    #[inline(always)]
    unsafe fn put(&self, at: usize, x: I) {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(at).write(x) }
    }
}

/// Cuts the row that `item` reads into buckets, written to `out` in their order; equal keys keep theirs.
pub(super) fn partition<I: Item>(
    n: usize,
    item: impl Fn(usize) -> I + Sync + Copy,
    out: &mut [I],
    pool: &ThreadPool,
    threads: usize,
) -> Buckets<I::Key> {
    assert!(out.len() >= n);
    let mut cut = Buckets::sampled(n, &|i| item(i).key());
    let buckets = cut.starts.len() - 1;
    let chunk = |task: usize| n * task / threads..n * (task + 1) / threads;
    // Counts of every chunk, a row of buckets each; every task has its own row.
    let rows: Vec<std::sync::Mutex<Vec<usize>>> =
        (0..threads).map(|_| std::sync::Mutex::new(vec![0; buckets])).collect();
    let own = |task: usize| rows[task].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    pool.run(threads, threads, &|task| {
        let mut guard = own(task);
        let counts = &mut guard[..];
        let see = |_: &[I], buckets: &[u16]| buckets.iter().for_each(|&bucket| counts[bucket as usize] += 1);
        Isa::best().run_narrow(Walk { range: chunk(task), item, scale: cut.scale(), see });
    });
    let mut next = 0;
    for bucket in 0..buckets {
        cut.starts[bucket] = next;
        for task in 0..threads {
            let count = &mut own(task)[bucket];
            next += std::mem::replace(count, next);
        }
    }
    cut.starts[buckets] = next;
    let target = Target(out.as_mut_ptr());
    pool.run(threads, threads, &|task| {
        let mut guard = own(task);
        let places = &mut guard[..];
        let mut at = [0; TOGETHER];
        let see = |items: &[I], buckets: &[u16]| {
            // All places first: a place that is read after items were written to places just read waits for them.
            for (at, &bucket) in at.iter_mut().zip(buckets) {
                let place = &mut places[bucket as usize];
                *at = *place;
                *place += 1;
            }
            for (&at, &x) in at.iter().zip(items) {
                // SAFETY: places were counted from these very items, each chunk has its own, and all are below `n`.
                unsafe { target.put(at, x) };
            }
        };
        Isa::best().run_narrow(Walk { range: chunk(task), item, scale: cut.scale(), see });
    });
    cut
}
