//! The cut into buckets with a line of the cache for each: lines that are full go past the caches to memory, which is not read
//! before it is written.
#![allow(unsafe_code)]

use std::ops::Range;

use super::cpu_buckets::{Chains, STEPS, Scale, TOGETHER};
use super::cpu_keys::{Item, Key};
use super::cpu_sources::Source;
use crate::backends::cpu::simd::{KeyLanes, KeyTask, LaneKey};

/// Bytes of a line and of a register.
const LINE: usize = 64;

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    _bytes: [u64; LINE / 8],
}

/// Writes the items of a range of a row to their buckets.
pub(super) struct Lines<'a, S: Source> {
    pub range: Range<usize>,
    pub row: S,
    pub scale: &'a Scale<<S::Item as Item>::Key>,
    pub chains: &'a mut Chains,
    pub region: &'a mut [S::Item],
}

impl<R: Source<Item: LaneKey>> KeyTask<R::Item> for Lines<'_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: KeyLanes<R::Item>>(self, s: S) {
        let Self { range, row, scale, chains, region } = self;
        let Chains { places, links, bits } = chains;
        let (bits, mut free) = (*bits, places.len());
        assert!(
            size_of::<R::Item>() * S::LANES == LINE
                && 1 << bits >= S::LANES
                && links.len() >= free + (range.len() >> bits)
                && region.len() >= links.len() << bits
                && region.as_ptr().addr().is_multiple_of(LINE)
        );
        // As many as there are steps: no place in it needs a check.
        let Some(table) = scale.table.first_chunk::<STEPS>() else { return };
        let mut lines = vec![Line::default(); places.len()];
        let (lines, upcoming) = (lines.as_mut_ptr().cast::<R::Item>(), places.as_mut_ptr());
        let region = region.as_mut_ptr();
        if range.is_empty() {
            return;
        }
        let mut items = [row.item(range.start); TOGETHER];
        let mut steps = [0u16; TOGETHER];
        for from in range.clone().step_by(TOGETHER) {
            let len = (range.end - from).min(TOGETHER);
            row.read(from, &mut items[..len]);
            for (step, x) in steps.iter_mut().zip(&items) {
                *step = x.key().above(scale.low, scale.shift);
            }
            for (&x, &step) in items[..len].iter().zip(&steps) {
                let bucket = usize::from(table[usize::from(step)]);
                // SAFETY: the table holds numbers of buckets, each has a place and a line; every place lies in a block, of
                // which there is one for each bucket and one more for each that is full.
                unsafe {
                    let place = upcoming.add(bucket);
                    let at = *place;
                    let line = lines.add(bucket * S::LANES);
                    line.add(at % S::LANES).write(x);
                    *place = at + 1;
                    if (at + 1).is_multiple_of(S::LANES) {
                        s.stream(region.add(at + 1 - S::LANES), s.load(line));
                        if (at + 1) & ((1 << bits) - 1) == 0 {
                            links[at >> bits] = free as u32;
                            *place = free << bits;
                            free += 1;
                        }
                    }
                }
            }
        }
        for (bucket, &end) in places.iter().enumerate() {
            let (rest, line) = (end % S::LANES, lines.wrapping_add(bucket * S::LANES));
            // SAFETY: as above; the rest was written to the line.
            unsafe { s.store_first(region.add(end - rest), s.load(line), rest) };
        }
        s.fence();
    }
}
