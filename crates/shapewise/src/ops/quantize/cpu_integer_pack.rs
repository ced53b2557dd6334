//! Operands of integer products in the order in which tiles read them.
//!
//! Lines (rows on the left, columns on the right) lie side by side in steps of four bytes: two 16-bit numbers with the zero
//! point taken off, or four 8-bit ones, signed on one side and unsigned on the other, whose sums make up for that later.
#![allow(unsafe_code)]

use super::QuantType;

/// Bytes of a step of one line, in either form.
pub(super) const STEP_BYTES: usize = 4;

/// What a step holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Steps {
    /// Two numbers of 16 bits.
    Pairs,
    /// Four of 8 bits, signed on the left and unsigned on the right, moved by 128 where they are not.
    Quads,
    /// The same with unsigned numbers on the left and signed ones on the right.
    Bytes,
}

impl Steps {
    /// Numbers in a step.
    pub const fn numbers(self) -> usize {
        match self {
            Self::Pairs => 2,
            Self::Quads | Self::Bytes => 4,
        }
    }
}

/// One operand, by lines and along the depth. Strides are in bytes.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub at: *const u8,
    pub kind: QuantType,
    pub line: isize,
    pub along: isize,
    pub k: usize,
    /// Null for none; one for each line where `zero_step` is 1.
    pub zero: *const i32,
    pub zero_step: usize,
}

// SAFETY: threads only read what it points to.
unsafe impl Sync for Source {}

impl Source {
    /// The zero point of a line.
    ///
    /// # Safety
    /// There is such a line.
    pub unsafe fn zero(&self, line: usize) -> i32 {
        // SAFETY: the caller's promise.
        if self.zero.is_null() { 0 } else { unsafe { *self.zero.add(line * self.zero_step) } }
    }

    /// A number.
    ///
    /// # Safety
    /// There is such a line and such a step of the depth.
    #[inline]
    pub unsafe fn get(&self, line: usize, p: usize) -> i32 {
        let row = self.at.wrapping_offset(p as isize * self.along);
        // SAFETY: the caller's promise; numbers of four bits lie along the lines.
        unsafe {
            match self.kind {
                QuantType::I8 => (*row.offset(line as isize * self.line)).cast_signed().into(),
                QuantType::U8 => (*row.offset(line as isize * self.line)).into(),
                kind => {
                    let half = i32::from(*row.add(line / 2) >> (line % 2 * 4) & 15);
                    if kind == QuantType::I4 { (half ^ 8) - 8 } else { half }
                }
            }
        }
    }

    /// How far numbers are moved to have the signs of the steps: what is packed is `x + offset`.
    pub fn offset(&self, steps: Steps, left: bool) -> i32 {
        match (steps, left, self.kind) {
            (Steps::Quads, true, QuantType::U8) | (Steps::Bytes, false, QuantType::U8) => -128,
            (Steps::Quads, false, QuantType::I8) | (Steps::Bytes, true, QuantType::I8) => 128,
            (Steps::Quads, false, QuantType::I4) => 8,
            _ => 0,
        }
    }
}

/// Which lines and which part of the depth are packed where.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub first: usize,
    pub lines: usize,
    /// Lines that a step has room for; those beyond are zeros.
    pub pitch: usize,
    /// First number of the depth, and how many.
    pub from: usize,
    pub len: usize,
    pub to: *mut u8,
    /// Where the sum of every line is added up; not for pairs.
    pub sums: *mut i32,
    pub left: bool,
}

/// Packs by plain loops.
///
/// # Safety
/// The source has the lines and numbers, and there is room for `len` rounded up to whole steps of `pitch` lines.
pub(super) unsafe fn pack(steps: Steps, source: &Source, place: &Place) {
    // SAFETY: the caller's promise.
    unsafe {
        match steps {
            Steps::Pairs => pack_pairs(source, place),
            Steps::Quads | Steps::Bytes => pack_quads(steps, source, place),
        }
    }
}

unsafe fn pack_pairs(source: &Source, place: &Place) {
    let to = place.to.cast::<[i16; 2]>();
    for line in 0..place.pitch {
        for step in 0..place.len.div_ceil(2) {
            let mut pair = [0; 2];
            if line < place.lines {
                // SAFETY: the caller has this line.
                let zero = unsafe { source.zero(place.first + line) };
                for (i, number) in pair.iter_mut().enumerate().take(place.len - 2 * step) {
                    // SAFETY: the caller has this number.
                    let x = unsafe { source.get(place.first + line, place.from + 2 * step + i) };
                    // 8 bits less a zero point of 8 bits.
                    *number = x.wrapping_sub(zero) as i16;
                }
            }
            // SAFETY: the caller has room for every step of `pitch` lines.
            unsafe { to.add(step * place.pitch + line).write_unaligned(pair) };
        }
    }
}

unsafe fn pack_quads(steps: Steps, source: &Source, place: &Place) {
    let to = place.to.cast::<[u8; 4]>();
    let offset = source.offset(steps, place.left);
    for line in 0..place.pitch {
        let mut sum = 0i32;
        for step in 0..place.len.div_ceil(4) {
            let mut quad = [0; 4];
            if line < place.lines {
                for (i, number) in quad.iter_mut().enumerate().take(place.len - 4 * step) {
                    // SAFETY: the caller has this number.
                    let x = unsafe { source.get(place.first + line, place.from + 4 * step + i) } + offset;
                    sum = sum.wrapping_add(x);
                    *number = x as u8;
                }
            }
            // SAFETY: the caller has room for every step of `pitch` lines.
            unsafe { to.add(step * place.pitch + line).write_unaligned(quad) };
        }
        if line < place.lines && !place.sums.is_null() {
            // SAFETY: the caller has a sum for every line.
            unsafe { *place.sums.add(line) = (*place.sums.add(line)).wrapping_add(sum) };
        }
    }
}

/// Packs pairs of a whole panel with AVX2 where lines or depth are neighbours in memory.
///
/// # Safety
/// As for [`pack`], and the CPU has AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn pack_avx2(steps: Steps, source: &Source, place: &Place) {
    debug_assert_eq!(steps, Steps::Pairs);
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = !source.kind.is_packed();
        if (source.line == 1 || !bytes) && place.lines == 16 && place.pitch == 16 {
            avx2::neighbouring_lines(source, place);
        } else if bytes && source.along == 1 {
            avx2::lines_along_memory(source, place);
        } else {
            pack_pairs(source, place);
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use avx2::sixteen;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    #![allow(clippy::wildcard_imports)] // the instructions
    use std::arch::x86_64::*;

    use super::{Place, QuantType, Source, pack_pairs};

    /// Sixteen bytes as 16-bit numbers.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn widen(kind: QuantType, bytes: __m128i) -> __m256i {
        if kind == QuantType::U8 || kind == QuantType::U4 {
            _mm256_cvtepu8_epi16(bytes)
        } else {
            _mm256_cvtepi8_epi16(bytes)
        }
    }

    /// Sixteen neighbouring lines at one place of the depth.
    ///
    /// # Safety
    /// There are so many.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub unsafe fn sixteen(source: &Source, first: usize, p: usize) -> __m128i {
        let row = source.at.wrapping_offset(p as isize * source.along);
        // SAFETY: the caller's promise.
        unsafe {
            if !source.kind.is_packed() {
                return _mm_loadu_si128(row.add(first).cast());
            }
            let halves = _mm_loadl_epi64(row.add(first / 2).cast());
            let mask = _mm_set1_epi8(15);
            let upper = _mm_and_si128(_mm_srli_epi16::<4>(halves), mask);
            let numbers = _mm_unpacklo_epi8(_mm_and_si128(halves, mask), upper);
            if source.kind == QuantType::I4 {
                let eight = _mm_set1_epi8(8);
                return _mm_sub_epi8(_mm_xor_si128(numbers, eight), eight);
            }
            numbers
        }
    }

    /// # Safety
    /// As for [`super::pack`], for sixteen lines that are neighbours.
    #[target_feature(enable = "avx2")]
    pub unsafe fn neighbouring_lines(source: &Source, place: &Place) {
        let mut zeros = [0i16; 32];
        for (line, pair) in zeros.chunks_exact_mut(2).enumerate() {
            // SAFETY: the caller has these lines.
            pair.fill(unsafe { source.zero(place.first + line) } as i16);
        }
        // SAFETY: all loads are of these 32 numbers, of sixteen lines, and stores of whole steps.
        unsafe {
            let zeros = [
                _mm256_loadu_si256(zeros.as_ptr().cast()),
                _mm256_loadu_si256(zeros.as_ptr().add(16).cast()),
            ];
            for step in 0..place.len.div_ceil(2) {
                let p = place.from + 2 * step;
                let first = sixteen(source, place.first, p);
                let last = 2 * step + 1 == place.len;
                let second = if last { first } else { sixteen(source, place.first, p + 1) };
                let to = place.to.add(step * 64).cast::<__m256i>();
                let mut parts = [_mm_unpacklo_epi8(first, second), _mm_unpackhi_epi8(first, second)];
                for (i, part) in parts.iter_mut().enumerate() {
                    let mut pairs = _mm256_sub_epi16(widen(source.kind, *part), zeros[i]);
                    if last {
                        // The number after the last one counts nothing.
                        pairs = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff));
                    }
                    _mm256_storeu_si256(to.add(i), pairs);
                }
            }
        }
    }

    /// # Safety
    /// As for [`super::pack`], for lines whose numbers are neighbours.
    #[target_feature(enable = "avx2")]
    pub unsafe fn lines_along_memory(source: &Source, place: &Place) {
        let whole = place.len / 16 * 16;
        let to = place.to.cast::<u32>();
        for line in 0..place.lines {
            let from = source.at.wrapping_offset((place.first + line) as isize * source.line);
            // SAFETY: the caller has this line.
            let zero = _mm256_set1_epi16(unsafe { source.zero(place.first + line) } as i16);
            for p in (0..whole).step_by(16) {
                let mut pairs = [0u32; 8];
                // SAFETY: sixteen numbers of the line are left, and there is room for their steps.
                unsafe {
                    let bytes = _mm_loadu_si128(from.add(place.from + p).cast());
                    let numbers = _mm256_sub_epi16(widen(source.kind, bytes), zero);
                    _mm256_storeu_si256(pairs.as_mut_ptr().cast(), numbers);
                    for (i, pair) in pairs.into_iter().enumerate() {
                        to.add((p / 2 + i) * place.pitch + line).write_unaligned(pair);
                    }
                }
            }
        }
        for line in place.lines..place.pitch {
            for step in 0..whole / 2 {
                // SAFETY: there is room for every step of `pitch` lines.
                unsafe { to.add(step * place.pitch + line).write_unaligned(0) };
            }
        }
        let done = whole / 2 * place.pitch * super::STEP_BYTES;
        let rest = Place {
            from: place.from + whole,
            len: place.len - whole,
            to: place.to.wrapping_add(done),
            ..*place
        };
        // SAFETY: the numbers after the whole vectors.
        unsafe { pack_pairs(source, &rest) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vectors_pack_what_plain_loops_pack() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let bytes: Vec<u8> = (0..4000u32).map(|i| (i * 97 % 251) as u8).collect();
        let zeros: Vec<i32> = (0..40).map(|i| i - 20).collect();
        for kind in [QuantType::I8, QuantType::U8, QuantType::I4, QuantType::U4] {
            for (line, along) in [(1, 40), (67, 1), (40, 2)] {
                if kind.is_packed() && line != 1 {
                    continue;
                }
                for (lines, pitch, from, len) in
                    [(16, 16, 0, 33), (16, 16, 3, 48), (5, 16, 1, 40), (6, 6, 0, 7)]
                {
                    let zero = zeros.as_ptr();
                    let source = Source { at: bytes.as_ptr(), kind, line, along, k: 60, zero, zero_step: 1 };
                    let mut out = [vec![77u8; 64 * 40], vec![77u8; 64 * 40]];
                    for (vectors, out) in out.iter_mut().enumerate() {
                        let (to, sums) = (out.as_mut_ptr(), std::ptr::null_mut());
                        let place = Place { first: 2, lines, pitch, from, len, to, sums, left: true };
                        // SAFETY: the bytes have room for 18 lines of 51 numbers in these orders, the output for all steps.
                        unsafe {
                            if vectors == 1 {
                                pack_avx2(Steps::Pairs, &source, &place);
                            } else {
                                pack(Steps::Pairs, &source, &place);
                            }
                        }
                    }
                    assert_eq!(out[0], out[1], "{kind} {line} {along} {lines} {len}");
                }
            }
        }
    }
}
