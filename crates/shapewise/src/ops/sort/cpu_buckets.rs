//! Long rows are cut into buckets that fit the second cache, in one pass: buckets are chains of blocks, so that nobody has to
//! count first.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::cpu_keys::{Item, Key};
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::simd::{Isa, Simd, SimdTask};

/// Items that are sorted digit by digit at once: they and their copies fit a second cache of 256 KiB or more.
pub(super) const BUCKET: usize = 16 << 10;
/// Buckets at most.
const BUCKETS: usize = 4096;
/// Keys that are looked at to cut a row into buckets of about equal size.
const SAMPLES: usize = 8 << 10;
/// Steps between the smallest and the largest key seen, as many as a `u16` has; each belongs to one bucket.
pub(super) const STEPS: usize = 1 << u16::BITS;
/// Elements whose steps are worked out together, in loops that the compiler writes over vectors.
pub(super) const TOGETHER: usize = 128;
/// Items that get their places before any is written: a place that is read right after items were written waits for them.
const GROUP: usize = 8;

fn buckets(n: usize) -> usize {
    (n / BUCKET).clamp(2, BUCKETS)
}

/// Bits of a place within its block, with few threads: a bucket is a few long blocks.
const LONG: u32 = 10;
/// With many threads, each of which has blocks of its own that are not full.
const SHORT: u32 = 7;

/// How the scratch of a row is given out: a region for each thread, blocks within.
#[derive(Clone, Copy)]
struct Regions {
    buckets: usize,
    /// Bits of a place within its block.
    bits: u32,
    /// Blocks of a region.
    blocks: usize,
}

impl Regions {
    fn new(n: usize, threads: usize) -> Self {
        let buckets = buckets(n);
        let bits = if threads <= 4 { LONG } else { SHORT };
        Self { buckets, bits, blocks: buckets + (n.div_ceil(threads) >> bits) }
    }

    /// Items of a region.
    fn items(&self) -> usize {
        self.blocks << self.bits
    }
}

/// Items of scratch that [`partition`] needs.
pub(super) fn room(n: usize, threads: usize) -> usize {
    Regions::new(n, threads).items().saturating_mul(threads)
}

/// Which keys go to which bucket.
pub(super) struct Scale<K> {
    pub low: K,
    pub shift: u32,
    /// The bucket of every step, below the number of buckets.
    pub table: Vec<u16>,
}

impl<K: Key> Scale<K> {
    /// Buckets of about as many of `n` keys each, by looking at some of them.
    fn sampled(n: usize, buckets: usize, key: &impl Fn(usize) -> K) -> Self {
        let step = (n / SAMPLES).max(1);
        let sample: Vec<K> = (0..n).step_by(step).map(key).collect();
        let low = sample.iter().copied().min().unwrap_or(K::ZERO);
        let high = sample.iter().copied().max().unwrap_or(K::ZERO);
        let (_, bits) = high.minus(low).span();
        let shift = bits.saturating_sub(STEPS.ilog2());
        let mut counts = vec![0usize; STEPS];
        for k in sample {
            counts[usize::from(k.above(low, shift))] += 1;
        }
        let total: usize = counts.iter().sum::<usize>() + 1;
        // A share of the buckets for each key, in fixed point: a division for every step would take longer than the sample.
        let (share, mut before) = (((buckets as u64) << 32) / total as u64, 0);
        let mut table = vec![0u16; STEPS];
        for (bucket, &count) in table.iter_mut().zip(&counts) {
            // A step belongs to the bucket that its middle falls into.
            *bucket = (((before + count / 2) as u64 * share) >> 32) as u16;
            before += count;
        }
        Self { low, shift, table }
    }
}

/// The buckets of one thread's part of a row.
pub(super) struct Chains {
    /// Where the next item of each bucket goes. The first block of a bucket has the bucket's number.
    pub places: Vec<usize>,
    /// The block after each that is full.
    pub links: Vec<u32>,
    /// Bits of a place within its block.
    pub bits: u32,
}

impl Chains {
    fn new(regions: Regions) -> Self {
        let Regions { buckets, bits, blocks } = regions;
        Self { places: (0..buckets).map(|b| b << bits).collect(), links: vec![0; blocks], bits }
    }

    /// The places of a bucket's items, block by block.
    fn blocks(&self, bucket: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let end = self.places[bucket];
        let mut next = Some(bucket);
        std::iter::from_fn(move || {
            let block = next?;
            let start = block << self.bits;
            let last = block == end >> self.bits;
            next = (!last).then(|| self.links[block] as usize);
            Some(start..if last { end } else { start + (1 << self.bits) })
        })
    }
}

/// Gives out places to items that come in order.
struct Places<'a, const BITS: u32> {
    table: &'a [u16; STEPS],
    /// The next place of each bucket.
    upcoming: &'a mut [usize],
    links: &'a mut [u32],
    /// The next block that nobody has.
    free: usize,
}

impl<const BITS: u32> Places<'_, BITS> {
    /// The place of the next item of a step.
    #[inline(always)]
    fn next(&mut self, step: u16) -> usize {
        let bucket = usize::from(self.table[usize::from(step)]);
        // SAFETY: the table holds numbers of buckets, and each bucket has a place.
        let place = unsafe { self.upcoming.get_unchecked_mut(bucket) };
        let at = *place;
        *place = at + 1;
        if *place & ((1 << BITS) - 1) == 0 {
            self.links[at >> BITS] = self.free as u32;
            *place = self.free << BITS;
            self.free += 1;
        }
        at
    }
}

/// Writes the items of a range to their buckets.
struct Scatter<'a, I: Item, F, const BITS: u32> {
    range: Range<usize>,
    item: F,
    scale: &'a Scale<I::Key>,
    chains: &'a mut Chains,
    region: &'a mut [I],
}

impl<I: Item, F: Fn(usize) -> I, const BITS: u32> SimdTask for Scatter<'_, I, F, BITS> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { range, item, scale, chains, region } = self;
        let (low, shift) = (scale.low, scale.shift);
        let Chains { places, links, bits } = chains;
        let free = places.len();
        assert!(
            *bits == BITS
                && links.len() >= free + (range.len() >> BITS)
                && region.len() >= links.len() << BITS
        );
        // As many as there are steps: no place in it needs a check.
        let Some(table) = scale.table.first_chunk::<STEPS>() else { return };
        let mut places = Places::<BITS> { table, upcoming: places, links, free };
        let region = region.as_mut_ptr();
        // SAFETY: every place lies in a block: there is one for each bucket, and one more for each block that is full.
        let put = |at: usize, x: I| unsafe { region.add(at).write(x) };
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
                *step = x.key().above(low, shift);
            }
            let whole = len / GROUP * GROUP;
            for (items, steps) in items[..whole].chunks_exact(GROUP).zip(steps.chunks_exact(GROUP)) {
                let mut at = [0; GROUP];
                for (at, &step) in at.iter_mut().zip(steps) {
                    *at = places.next(step);
                }
                for (&at, &x) in at.iter().zip(items) {
                    put(at, x);
                }
            }
            for (&x, &step) in items[whole..len].iter().zip(&steps[whole..len]) {
                put(places.next(step), x);
            }
            from += len;
        }
    }
}

/// A row cut into buckets of rising keys.
pub(super) struct Buckets<'a, I> {
    /// The buckets of every thread's part of the row, and its memory.
    threads: Vec<(Chains, &'a [I])>,
    /// Where each bucket begins in the sorted row; the last number is the length of the row.
    pub starts: Vec<usize>,
}

impl<'a, I> Buckets<'a, I> {
    /// The items of a bucket, put into `parts`; equal keys are in the order that they have in the row.
    pub fn parts(&self, bucket: usize, parts: &mut Vec<&'a [I]>) {
        parts.clear();
        for (chains, memory) in &self.threads {
            parts.extend(chains.blocks(bucket).map(|block| &memory[block]));
        }
    }
}

/// Cuts the row of `n` items that `item` reads into buckets; `scratch` has the [`room`] for it.
pub(super) fn partition<'a, I: Item>(
    n: usize,
    item: impl Fn(usize) -> I + Sync + Copy,
    scratch: &'a mut [I],
    pool: &ThreadPool,
    threads: usize,
) -> Buckets<'a, I> {
    let key = |i: usize| item(i).key();
    partition_by(n, key, scratch, pool, threads, |range, scale, chains, region| {
        if chains.bits == LONG {
            Isa::best().run_narrow(Scatter::<_, _, LONG> { range, item, scale, chains, region });
        } else {
            Isa::best().run_narrow(Scatter::<_, _, SHORT> { range, item, scale, chains, region });
        }
    })
}

/// Cuts a row of `n` items into buckets by `scatter`, which writes those of a range to their chains; `scratch` has the [`room`] for it.
pub(super) fn partition_by<'a, I: Item>(
    n: usize,
    key: impl Fn(usize) -> I::Key,
    scratch: &'a mut [I],
    pool: &ThreadPool,
    threads: usize,
    scatter: impl Fn(Range<usize>, &Scale<I::Key>, &mut Chains, &mut [I]) + Sync,
) -> Buckets<'a, I> {
    let regions = Regions::new(n, threads);
    let scale = Scale::sampled(n, regions.buckets, &key);
    // Every task has its own region.
    let tasks: Vec<_> = scratch
        .chunks_exact_mut(regions.items())
        .take(threads)
        .map(|region| Mutex::new((Chains::new(regions), region)))
        .collect();
    pool.run(threads, threads, &|task| {
        let range = n * task / threads..n * (task + 1) / threads;
        let mut own = tasks[task].lock().unwrap_or_else(PoisonError::into_inner);
        let (chains, region) = &mut *own;
        scatter(range, &scale, chains, region);
    });
    let threads: Vec<(Chains, &'a [I])> = tasks
        .into_iter()
        .map(|task| task.into_inner().unwrap_or_else(PoisonError::into_inner))
        .map(|(chains, region)| (chains, &*region))
        .collect();
    let mut next = 0;
    let mut starts = vec![0];
    for bucket in 0..regions.buckets {
        next += threads.iter().flat_map(|(chains, _)| chains.blocks(bucket)).map(|b| b.len()).sum::<usize>();
        starts.push(next);
    }
    Buckets { threads, starts }
}

#[cfg(test)]
mod tests {
    use super::super::cpu_keys::Pair;
    use super::super::cpu_radix::{LazyCounters, sort_parts};
    use super::*;

    #[test]
    fn buckets_of_any_number_of_threads_hold_all_items_in_order() {
        let n = if cfg!(miri) { 3000 } else { 70_001 };
        let pool = ThreadPool::new(2);
        // Few and many different keys, close together and spread over all there are; the last with one far outside.
        for (different, scale) in [(1, 1u64), (3, 1 << 60), (1000, 1), (1 << 16, 1 << 40), (1 << 62, 2)] {
            let key = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) % different * scale;
            let item = |i: usize| Pair { key: if i == 7 { u64::MAX } else { key(i) }, at: i as u32 };
            let mut wanted: Vec<_> = (0..n).map(item).collect();
            wanted.sort_unstable();
            for threads in [1, 2, 4, 5, 40] {
                let mut scratch = vec![item(0); room(n, threads)];
                let cut = partition(n, item, &mut scratch, &pool, threads);
                let (mut got, mut parts, mut memory) = (Vec::new(), Vec::new(), Vec::new());
                for bucket in 0..cut.starts.len() - 1 {
                    assert_eq!(got.len(), cut.starts[bucket]);
                    cut.parts(bucket, &mut parts);
                    match sort_parts(&parts, &mut memory, &mut LazyCounters::default()) {
                        Some(sorted) => got.extend_from_slice(sorted),
                        None => parts.iter().for_each(|part| got.extend_from_slice(part)),
                    }
                }
                assert!(got == wanted, "{different} keys in steps of {scale}, {threads} threads");
            }
        }
    }
}
