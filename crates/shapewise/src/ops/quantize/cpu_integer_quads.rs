//! Packing for the VNNI tile: steps of four bytes, where lines or depth are neighbours in memory.
#![allow(unsafe_code)]
#![allow(clippy::wildcard_imports)] // the instructions

use std::arch::x86_64::*;

use super::QuantType;
use super::cpu_integer_pack::{Place, Source, Steps, pack};

/// Columns of a panel.
const COLUMNS: usize = 48;

/// # Safety
/// As for [`pack`], and the CPU has AVX-512 with BW, VL and VNNI.
pub(super) unsafe fn pack_quads(steps: Steps, source: &Source, place: &Place) {
    debug_assert_eq!(steps, Steps::Quads);
    let bytes = !source.kind.is_packed();
    // SAFETY: the caller's promise.
    unsafe {
        if bytes && source.line == 1 && !place.left && place.pitch == COLUMNS {
            neighbouring_lines(source, place);
        } else if bytes && source.along == 1 {
            lines_along_memory(source, place);
        } else {
            pack(steps, source, place);
        }
    }
}

/// What changes the signs of a quad's bytes: moving by 128 is flipping the highest bit.
fn flip(source: &Source, place: &Place) -> u32 {
    if source.offset(Steps::Quads, place.left) == 0 { 0 } else { 0x8080_8080 }
}

/// Sixteen columns at a time, four numbers of each from as many rows of memory.
///
/// # Safety
/// As for [`pack_quads`]; numbers are unsigned bytes when they are packed, because they are those of the right operand.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn neighbouring_lines(source: &Source, place: &Place) {
    let flip = flip(source, place);
    for group in 0..COLUMNS / 16 {
        let lanes = place.lines.saturating_sub(16 * group).min(16);
        let mask = ((1u32 << lanes) - 1) as u16;
        let from = source.at.wrapping_add(place.first + 16 * group);
        let mut sums = _mm512_setzero_si512();
        for step in 0..place.len.div_ceil(4) {
            let have = (place.len - 4 * step).min(4);
            let mut quads = _mm512_setzero_si512();
            for i in 0..4 {
                if i < have {
                    let row = from.wrapping_offset((place.from + 4 * step + i) as isize * source.along);
                    // SAFETY: the caller has these rows, and the mask keeps to its lines.
                    let bytes = unsafe { _mm_maskz_loadu_epi8(mask, row.cast()) };
                    let shift = _mm512_set1_epi32(8 * i as i32);
                    quads = _mm512_or_si512(quads, _mm512_sllv_epi32(_mm512_cvtepu8_epi32(bytes), shift));
                }
            }
            let flips = _mm512_maskz_set1_epi32(mask, (flip >> (8 * (4 - have))).cast_signed());
            quads = _mm512_xor_si512(quads, flips);
            sums = _mm512_dpbusd_epi32(sums, quads, _mm512_set1_epi8(1));
            // SAFETY: the caller has room for every step of all columns.
            unsafe { _mm512_storeu_si512(place.to.add(4 * (COLUMNS * step + 16 * group)).cast(), quads) };
        }
        if !place.sums.is_null() {
            // SAFETY: the caller has a sum for every line, and the mask keeps to them.
            unsafe {
                let at = place.sums.add((16 * group).min(place.lines));
                let before = _mm512_maskz_loadu_epi32(mask, at);
                _mm512_mask_storeu_epi32(at, mask, _mm512_add_epi32(before, sums));
            }
        }
    }
}

/// Four neighbours at a time.
///
/// # Safety
/// As for [`pack_quads`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn lines_along_memory(source: &Source, place: &Place) {
    let flip = flip(source, place);
    let offset = source.offset(Steps::Quads, place.left);
    let to = place.to.cast::<u32>();
    let (whole, rest) = (place.len / 4, place.len % 4);
    for line in 0..place.lines {
        let row = source.at.wrapping_offset((place.first + line) as isize * source.line);
        // SAFETY: the caller has so many numbers of this line.
        let numbers = unsafe { std::slice::from_raw_parts(row.add(place.from), place.len) };
        for (step, quad) in numbers.chunks_exact(4).enumerate() {
            let quad = u32::from_le_bytes([quad[0], quad[1], quad[2], quad[3]]) ^ flip;
            // SAFETY: the caller has room for every step of `pitch` lines.
            unsafe { to.add(step * place.pitch + line).write_unaligned(quad) };
        }
        if rest > 0 {
            let mut last = [0; 4];
            last[..rest].copy_from_slice(&numbers[4 * whole..]);
            let quad = u32::from_le_bytes(last) ^ (flip >> (8 * (4 - rest)));
            // SAFETY: as above.
            unsafe { to.add(whole * place.pitch + line).write_unaligned(quad) };
        }
        if !place.sums.is_null() {
            let mut sum = offset.wrapping_mul(place.len as i32);
            for &x in numbers {
                let x = if source.kind == QuantType::I8 { x.cast_signed().into() } else { i32::from(x) };
                sum = sum.wrapping_add(x);
            }
            // SAFETY: the caller has a sum for every line.
            unsafe { *place.sums.add(line) = (*place.sums.add(line)).wrapping_add(sum) };
        }
    }
    for line in place.lines..place.pitch {
        for step in 0..place.len.div_ceil(4) {
            // SAFETY: as above.
            unsafe { to.add(step * place.pitch + line).write_unaligned(0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::cpu::simd::Isa;

    /// What both ways of packing leave, sums included.
    fn packed(
        how: unsafe fn(Steps, &Source, &Place),
        source: &Source,
        [first, lines, pitch, from, len]: [usize; 5],
        left: bool,
    ) -> (Vec<u8>, Vec<i32>) {
        let mut to = vec![7u8; 4 * pitch * len.div_ceil(4)];
        let mut sums: Vec<i32> = (0..lines as i32).collect();
        let place =
            Place { first, lines, pitch, from, len, to: to.as_mut_ptr(), sums: sums.as_mut_ptr(), left };
        // SAFETY: the source has these lines and numbers, and there is room for them.
        unsafe { how(Steps::Quads, source, &place) };
        (to, sums)
    }

    #[test]
    fn quads_are_those_of_plain_loops() {
        if !Isa::Avx512.is_available() || !is_x86_feature_detected!("avx512vnni") {
            return;
        }
        let (lines, k) = (60, 45);
        let bytes: Vec<u8> = (0..lines * k).map(|i| (i * 89 + i / 7) as u8).collect();
        for kind in [QuantType::I8, QuantType::U8] {
            for (line, along) in [(1, lines as isize), (k as isize, 1)] {
                let zero = std::ptr::null();
                let source = Source { at: bytes.as_ptr(), kind, line, along, k, zero, zero_step: 0 };
                for (left, pitch) in [(true, 8), (true, 3), (false, COLUMNS)] {
                    for lines in [1, pitch / 2 + 1, pitch] {
                        for len in [0, 1, 3, 4, 18, 40] {
                            let place = [5, lines, pitch, 2, len];
                            let found = packed(pack_quads, &source, place, left);
                            assert_eq!(
                                found,
                                packed(pack, &source, place, left),
                                "{kind:?} {place:?} {left}"
                            );
                        }
                    }
                }
            }
        }
    }
}
