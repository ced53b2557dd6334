//! The innermost loops: words of weights against prepared rows of activations.
#![allow(unsafe_code)]

use std::ops::Range;

use super::cpu_weights::Problem;
use super::weights::{LANES, group};
use crate::backends::cpu::simd::Isa;

/// The most rows at once: sums and parts of sums fill the registers.
pub(super) const ROWS: usize = 4;

/// Prepared rows: `pitch` floats apart, their parts' sums `sums` floats after the start of each.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub x: *const f32,
    pub pitch: usize,
    pub sums: usize,
    /// Where the first one goes.
    pub first: usize,
    pub count: usize,
}

/// Of this many rows, how many are computed at once.
pub(super) fn rows_at_once(left: usize) -> usize {
    match left {
        0 | 1 => 1,
        2 | 3 => 2,
        _ => ROWS,
    }
}

/// # Safety
/// The CPU has the instructions, and the problem the rows and outputs.
pub(super) unsafe fn outputs(isa: Isa, p: &Problem, rows: &Rows, outputs: Range<usize>) {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx2 {
            return avx2::outputs(p, rows, outputs);
        }
        let _ = isa;
        portable(p, rows, outputs);
    }
}

/// # Safety
/// As for [`outputs`].
unsafe fn portable(p: &Problem, rows: &Rows, outputs: Range<usize>) {
    let places = 32 / p.bits as usize;
    let mask = (1u64 << p.bits) as u32 - 1;
    let per_part = p.part() / LANES;
    for j in outputs {
        let mut totals = [0.0f32; ROWS];
        let parts = places / per_part;
        let (mut walk, mut first) = (BlockWalk::new(p), 0);
        for part in 0..p.padded() / p.part() {
            if part % parts == 0 {
                first = walk.next(parts);
            }
            // SAFETY: the caller has this output.
            let (scale, zero) = unsafe { p.scale_and_zero(j, (first + part % parts).min(p.blocks - 1)) };
            let (group, from) = (part * per_part / places, part * per_part % places);
            for (i, total) in totals.iter_mut().enumerate().take(rows.count) {
                // SAFETY: as above; rows are prepared.
                let (x, words, sums) = unsafe {
                    let row = rows.x.add(i * rows.pitch);
                    (
                        std::slice::from_raw_parts(row.add(part * p.part()), p.part()),
                        std::slice::from_raw_parts(p.word(j, group), LANES),
                        std::slice::from_raw_parts(row.add(rows.sums + part * LANES), LANES),
                    )
                };
                let mut lanes = [0.0f32; LANES];
                for (lane, sum) in lanes.iter_mut().zip(sums) {
                    *lane = -zero * sum;
                }
                for (place, x) in (from..).zip(x.chunks_exact(LANES)) {
                    let shift = place as u32 * p.bits;
                    for ((lane, x), word) in lanes.iter_mut().zip(x).zip(words) {
                        let weight = if place + 1 == places { word >> shift } else { word & mask << shift };
                        *lane += weight as f32 * x;
                    }
                }
                *total += scale * lanes.iter().sum::<f32>();
            }
        }
        for (i, &total) in totals.iter().enumerate().take(rows.count) {
            // SAFETY: the caller's promise.
            unsafe { p.put_finite(rows.first + i, j, total) };
        }
    }
}

/// The block that each group of words begins in, without a division for each.
struct BlockWalk {
    block: usize,
    /// Groups of a block, and those left of the current one; a block within a group counts as one.
    groups: usize,
    left: usize,
}

impl BlockWalk {
    fn new(p: &Problem) -> Self {
        let groups = if p.block == 0 { usize::MAX } else { (p.block / group(p.bits)).max(1) };
        Self { block: 0, groups, left: groups }
    }

    /// The first block of the next group, which has `parts` parts.
    #[inline(always)]
    #[allow(clippy::inline_always)] // part of the innermost loops
    fn next(&mut self, parts: usize) -> usize {
        let first = self.block;
        self.left -= 1;
        if self.left == 0 {
            self.left = self.groups;
            self.block += parts;
        }
        first
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    #![allow(clippy::wildcard_imports)] // the instructions
    #![allow(clippy::needless_range_loop)] // one index for several arrays
    use std::arch::x86_64::*;
    use std::ops::Range;

    use super::super::weights::PANEL;
    use super::{BlockWalk, LANES, Problem, Rows};

    /// How far ahead words are asked for: a few hundred nanoseconds of work.
    const AHEAD: usize = 2048;

    /// # Safety
    /// As for [`super::outputs`]; the outputs begin at a panel.
    pub unsafe fn outputs(p: &Problem, rows: &Rows, outputs: Range<usize>) {
        macro_rules! run {
            ($bits:literal, $per_part:literal) => {
                match rows.count {
                    1 => several::<$bits, $per_part, 1, 4>(p, rows, outputs),
                    2 => several::<$bits, $per_part, 2, 2>(p, rows, outputs),
                    _ => several::<$bits, $per_part, 4, 1>(p, rows, outputs),
                }
            };
        }
        // SAFETY: the caller's promise.
        unsafe {
            match (p.bits, p.part() / LANES) {
                (4, 2) => run!(4, 2),
                (4, 4) => run!(4, 4),
                (4, _) => run!(4, 8),
                (_, 2) => run!(8, 2),
                (_, _) => run!(8, 4),
            }
        }
    }

    /// `N` outputs of a panel at a time.
    ///
    /// # Safety
    /// As for [`outputs`], for `M` rows.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn several<const BITS: u32, const PER_PART: usize, const M: usize, const N: usize>(
        p: &Problem,
        rows: &Rows,
        outputs: Range<usize>,
    ) {
        for j in outputs.step_by(N) {
            // SAFETY: the caller's promise; the last panel is padded.
            unsafe { dots::<BITS, PER_PART, M, N>(p, rows, j) };
        }
    }

    /// # Safety
    /// As for [`outputs`], for `M` rows and `N` outputs from `j` on, all in one panel.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn dots<const BITS: u32, const PER_PART: usize, const M: usize, const N: usize>(
        p: &Problem,
        rows: &Rows,
        j: usize,
    ) {
        let places = const { (32 / BITS) as usize };
        let parts = const { (32 / BITS) as usize / PER_PART };
        let masks = masks::<BITS>();
        let top = _mm_cvtsi32_si128(32 - BITS as i32);
        let mut totals = [[_mm256_setzero_ps(); N]; M];
        let mut walk = BlockWalk::new(p);
        let last = p.blocks - 1;
        let (scale, zero) = (first_of(p, p.scale, j), first_of(p, p.zero, j));
        let mut middle = [_mm256_set1_ps(-p.middle); N];
        // SAFETY: the caller's promise: all words, scales, prepared activations and sums of these rows are there.
        unsafe {
            for group in 0..p.groups {
                let first = walk.next(parts);
                let from = p.word(j, group);
                _mm_prefetch::<_MM_HINT_T0>(from.cast::<i8>().wrapping_add(AHEAD));
                _mm_prefetch::<_MM_HINT_T0>(from.cast::<i8>().wrapping_add(AHEAD + 64));
                let mut words = [_mm256_setzero_si256(); N];
                for (n, words) in words.iter_mut().enumerate() {
                    *words = _mm256_loadu_si256(from.add(n * LANES).cast());
                }
                for part in 0..parts {
                    let index = group * parts + part;
                    // The padding after the last block has activations of zero.
                    let block = (first + part).min(last) * PANEL;
                    let mut sums = [[_mm256_setzero_ps(); N]; M];
                    for n in 0..N {
                        if !p.zero.is_null() {
                            middle[n] = _mm256_set1_ps(-*zero.add(block + n));
                        }
                        for (m, sums) in sums.iter_mut().enumerate() {
                            let lanes = rows.x.add(m * rows.pitch + rows.sums + index * LANES);
                            sums[n] = _mm256_mul_ps(middle[n], _mm256_loadu_ps(lanes));
                        }
                    }
                    for inside in 0..PER_PART {
                        let place = part * PER_PART + inside;
                        for n in 0..N {
                            let weights = if place + 1 == places {
                                _mm256_srl_epi32(words[n], top)
                            } else {
                                _mm256_and_si256(words[n], masks[place])
                            };
                            let weights = _mm256_cvtepi32_ps(weights);
                            for (m, sums) in sums.iter_mut().enumerate() {
                                let x = rows.x.add(m * rows.pitch + (group * places + place) * LANES);
                                sums[n] = _mm256_fmadd_ps(weights, _mm256_loadu_ps(x), sums[n]);
                            }
                        }
                    }
                    for n in 0..N {
                        let scale = _mm256_set1_ps(*scale.add(block + n));
                        for m in 0..M {
                            totals[m][n] = _mm256_fmadd_ps(scale, sums[m][n], totals[m][n]);
                        }
                    }
                }
            }
        }
        for (m, totals) in totals.iter().enumerate() {
            for (n, &total) in totals.iter().enumerate().take(p.n - j) {
                // SAFETY: the problem has this result, and it is this thread's.
                unsafe { p.put_finite(rows.first + m, j + n, lanes_together(total)) };
            }
        }
    }

    /// The sum of the lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn lanes_together(v: __m256) -> f32 {
        let half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_add_ps(half, _mm_movehl_ps(half, half));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }

    /// Where the weights of each place are in their words.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn masks<const BITS: u32>() -> [__m256i; 8] {
        let mut masks = [_mm256_setzero_si256(); 8];
        for (place, mask) in masks.iter_mut().enumerate().take((32 / BITS) as usize) {
            *mask = _mm256_set1_epi32((((1u64 << BITS) - 1) << (place as u32 * BITS)) as i32);
        }
        masks
    }

    /// The number of an output's first block.
    fn first_of(p: &Problem, numbers: *const f32, j: usize) -> *const f32 {
        numbers.wrapping_add(j / PANEL * p.blocks * PANEL + j % PANEL)
    }
}
