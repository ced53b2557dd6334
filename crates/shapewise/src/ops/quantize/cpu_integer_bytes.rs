//! Products of bytes with AVX2 where no sum of two of them leaves 16 bits: exact, and with fewer instructions than pairs.
//!
//! Rows are unsigned and columns signed. Whether the sums fit is seen from the largest numbers before anything is packed.
#![allow(unsafe_code)]
#![allow(clippy::wildcard_imports)] // the instructions

use std::arch::x86_64::*;
use std::sync::atomic::{AtomicBool, Ordering};

use super::QuantType;
use super::cpu_integer_pack::{Place, STEP_BYTES, Source, Steps, pack, sixteen};
use super::cpu_integer_problem::Problem;
use super::cpu_integer_tile::{Form, Tile, by_rows};
use crate::backends::cpu::threads::ThreadPool;

pub(super) static FORM: Form = Form { rows: 6, columns: 16, steps: Steps::Bytes, tile, pack: pack_bytes };

/// Rows and columns from which on an operand is looked through: a byte of it takes a twentieth of a cycle, and its products with so
/// many others two cycles.
const WORTH: usize = 64;
/// Bytes that are looked through at a time.
const LOOK: usize = 1 << 14;

/// Whether no sum of two products leaves 16 bits: rows up to 128, whatever the columns, or columns of seven bits or less.
pub(super) fn fits(problem: &Problem, pool: &ThreadPool, threads: usize) -> bool {
    let Problem { m, n, a, b, .. } = problem;
    // 2 · 255 · 64 and 2 · 128 · 128, which only sums below zero reach.
    b.kind.is_packed()
        || *n >= WORTH && within(a, *m, (0, 128), pool, threads)
        || *m >= WORTH && within(b, *n, (64, 192), pool, threads)
}

/// Whether the numbers of an operand, moved to 0 … 255 where they are signed, lie between two of them.
fn within(source: &Source, lines: usize, (low, high): (u8, u8), pool: &ThreadPool, threads: usize) -> bool {
    let (rows, len, apart) = match (source.along, source.line) {
        _ if source.k == 0 => return false,
        (1, apart) => (lines, source.k, apart),
        (apart, 1) => (source.k, lines, apart),
        _ => return false,
    };
    let turn = if source.kind == QuantType::I8 { 128 } else { 0 };
    let at_once = (LOOK / len.max(1)).max(1);
    let all = AtomicBool::new(true);
    pool.run(threads, rows.div_ceil(at_once), &|task| {
        for row in task * at_once..((task + 1) * at_once).min(rows) {
            if !all.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: the operand has so many rows of neighbours, and this form runs on CPUs with AVX2.
            let (least, most) = unsafe {
                bounds(std::slice::from_raw_parts(source.at.wrapping_offset(row as isize * apart), len), turn)
            };
            if least < low || most > high {
                all.store(false, Ordering::Relaxed);
            }
        }
    });
    all.into_inner()
}

/// The least and the largest byte, with some of their bits turned over.
#[target_feature(enable = "avx2")]
fn bounds(bytes: &[u8], turn: u8) -> (u8, u8) {
    let (mut least, mut most) = (u8::MAX, 0);
    for &byte in bytes {
        (least, most) = (least.min(byte ^ turn), most.max(byte ^ turn));
    }
    (least, most)
}

/// # Safety
/// As for [`pack`], and the CPU has AVX2.
unsafe fn pack_bytes(steps: Steps, source: &Source, place: &Place) {
    debug_assert_eq!(steps, Steps::Bytes);
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = !source.kind.is_packed();
        if (source.line == 1 || !bytes) && place.lines == 16 && place.pitch == 16 && !place.left {
            neighbouring_lines(source, place);
        } else if bytes && source.along == 1 {
            lines_along_memory(source, place);
        } else {
            pack(steps, source, place);
        }
    }
}

/// What turns the signs of all bytes that are moved by 128.
#[inline]
#[target_feature(enable = "avx2")]
fn turn(source: &Source, place: &Place) -> __m128i {
    let moved = source.offset(Steps::Bytes, place.left) != 0;
    _mm_set1_epi8(if moved { i8::MIN } else { 0 })
}

/// The place after the first `len` numbers.
fn rest(place: &Place, len: usize) -> Place {
    let to = place.to.wrapping_add(len / 4 * place.pitch * STEP_BYTES);
    Place { from: place.from + len, len: place.len - len, to, ..*place }
}

/// Sixteen signed columns.
///
/// # Safety
/// As for [`pack`], for sixteen lines that are neighbours.
#[target_feature(enable = "avx2")]
unsafe fn neighbouring_lines(source: &Source, place: &Place) {
    let turn = turn(source, place);
    let (one, ones) = (_mm256_set1_epi8(1), _mm256_set1_epi16(1));
    let mut sums = [_mm256_setzero_si256(); 2];
    // SAFETY: loads are of sixteen lines, stores of whole steps and of the sums of sixteen lines.
    unsafe {
        for step in 0..place.len / 4 {
            let mut rows = [turn; 4];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = _mm_xor_si128(sixteen(source, place.first, place.from + 4 * step + i), turn);
            }
            let first = [_mm_unpacklo_epi8(rows[0], rows[1]), _mm_unpackhi_epi8(rows[0], rows[1])];
            let second = [_mm_unpacklo_epi8(rows[2], rows[3]), _mm_unpackhi_epi8(rows[2], rows[3])];
            let to = place.to.add(step * 16 * STEP_BYTES).cast::<__m256i>();
            for i in 0..2 {
                let quads = _mm256_set_m128i(
                    _mm_unpackhi_epi16(first[i], second[i]),
                    _mm_unpacklo_epi16(first[i], second[i]),
                );
                _mm256_storeu_si256(to.add(i), quads);
                let four = _mm256_madd_epi16(_mm256_maddubs_epi16(one, quads), ones);
                sums[i] = _mm256_add_epi32(sums[i], four);
            }
        }
        for (i, &sum) in sums.iter().enumerate() {
            let to = place.sums.add(8 * i).cast::<__m256i>();
            _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), sum));
        }
        pack(Steps::Bytes, source, &rest(place, place.len / 4 * 4));
    }
}

/// # Safety
/// As for [`pack`], for lines whose numbers are neighbours.
#[target_feature(enable = "avx2")]
unsafe fn lines_along_memory(source: &Source, place: &Place) {
    let (whole, turn, zero) = (place.len / 16 * 16, turn(source, place), _mm_setzero_si128());
    // What a byte adds to a sum of unsigned ones less than to that of signed ones.
    let (signs, less) = if place.left { (0, 0) } else { (i8::MIN, 128 * whole as i32) };
    let signs = _mm_set1_epi8(signs);
    let to = place.to.cast::<u32>();
    for line in 0..place.pitch {
        let from = source.at.wrapping_offset((place.first + line) as isize * source.line);
        let mut sum = zero;
        for p in (0..whole).step_by(16) {
            let mut quads = [0u32; 4];
            if line < place.lines {
                // SAFETY: sixteen numbers of the line are left.
                unsafe {
                    let bytes = _mm_xor_si128(_mm_loadu_si128(from.add(place.from + p).cast()), turn);
                    sum = _mm_add_epi64(sum, _mm_sad_epu8(_mm_xor_si128(bytes, signs), zero));
                    _mm_storeu_si128(quads.as_mut_ptr().cast(), bytes);
                }
            }
            for (i, quad) in quads.iter().enumerate() {
                // SAFETY: there is room for every step of `pitch` lines.
                unsafe { to.add((p / 4 + i) * place.pitch + line).write_unaligned(*quad) };
            }
        }
        if line < place.lines {
            let sum = _mm_cvtsi128_si32(_mm_add_epi64(sum, _mm_unpackhi_epi64(sum, sum)));
            // SAFETY: there is a sum for every line.
            unsafe { *place.sums.add(line) = (*place.sums.add(line)).wrapping_add(sum).wrapping_sub(less) };
        }
    }
    // SAFETY: the numbers after the whole vectors.
    unsafe { pack(Steps::Bytes, source, &rest(place, whole)) };
}

/// # Safety
/// The CPU has AVX2, the operands are packed in bytes for `rows` and 16 columns, and there is room for the sums.
unsafe fn tile(t: &Tile) {
    by_rows!(t, 1 2 3 4 5 6);
}

/// # Safety
/// As for [`tile`], for `R` rows.
#[target_feature(enable = "avx2")]
unsafe fn group<const R: usize>(t: &Tile) {
    let (mut left, mut right) = (t.left.cast::<i32>(), t.right.cast::<__m256i>());
    let mut sums = [[_mm256_setzero_si256(); 2]; R];
    let ones = _mm256_set1_epi16(1);
    // SAFETY: the caller has packed these steps and has room for the sums.
    unsafe {
        for _ in 0..t.steps {
            let columns = [_mm256_loadu_si256(right), _mm256_loadu_si256(right.add(1))];
            for (row, sums) in sums.iter_mut().enumerate() {
                let a = _mm256_set1_epi32(left.add(row).read_unaligned());
                for (sum, &column) in sums.iter_mut().zip(&columns) {
                    let four = _mm256_madd_epi16(_mm256_maddubs_epi16(a, column), ones);
                    *sum = _mm256_add_epi32(*sum, four);
                }
            }
            left = left.add(R);
            right = right.add(2);
        }
        for (row, sums) in sums.iter().enumerate() {
            let out = t.sums.add(row * t.pitch).cast::<__m256i>();
            for (i, &sum) in sums.iter().enumerate() {
                let before = if t.first { _mm256_setzero_si256() } else { _mm256_loadu_si256(out.add(i)) };
                _mm256_storeu_si256(out.add(i), _mm256_add_epi32(before, sum));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::quantize::IntegerOptions;
    use crate::ops::testing::runtime;
    use crate::tensor::{DType, Tensor};

    #[test]
    fn vectors_pack_what_plain_loops_pack() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let bytes: Vec<u8> = (0..4000u32).map(|i| (i * 97 % 256) as u8).collect();
        for kind in [QuantType::I8, QuantType::U8, QuantType::I4, QuantType::U4] {
            for (line, along) in
                [(1, 40), (67, 1), (40, 2)].into_iter().filter(|s| s.0 == 1 || !kind.is_packed())
            {
                for (lines, pitch, from, len) in [
                    (16, 16, 0, 35),
                    (16, 16, 3, 48),
                    (5, 16, 1, 41),
                    (6, 6, 0, 7),
                    (6, 6, 2, 50),
                    (16, 16, 0, 3),
                ] {
                    for left in [false, true] {
                        let (zero, zero_step) = (std::ptr::null(), 0);
                        let source = Source { at: bytes.as_ptr(), kind, line, along, k: 60, zero, zero_step };
                        let mut out =
                            [(vec![77u8; 64 * 16], vec![5i32; 16]), (vec![77u8; 64 * 16], vec![5i32; 16])];
                        for (vectors, (out, sums)) in out.iter_mut().enumerate() {
                            let (to, sums) = (out.as_mut_ptr(), sums.as_mut_ptr());
                            let place = Place { first: 2, lines, pitch, from, len, to, sums, left };
                            let pack = if vectors == 1 { pack_bytes } else { pack };
                            // SAFETY: the bytes have room for 18 lines of 52 numbers, the output for all steps.
                            unsafe { pack(Steps::Bytes, &source, &place) };
                        }
                        assert_eq!(out[0], out[1], "{kind} {line} {along} {lines} {len} {left}");
                    }
                }
            }
        }
    }

    /// The largest numbers that fit, and the next ones, which must be multiplied in another way.
    #[test]
    fn sums_at_the_border_of_16_bits_are_exact() {
        let (m, k, n) = (70, 37, 81);
        let cases: [(DType, i32, i32); 12] = [
            (DType::U8, 128, -128),
            (DType::U8, 129, -128),
            (DType::U8, 128, 127),
            (DType::U8, 129, 127),
            (DType::U8, 255, 64),
            (DType::U8, 255, -64),
            (DType::U8, 255, 65),
            (DType::U8, 255, -65),
            (DType::I8, 127, -65),
            (DType::I8, 0, -128),
            (DType::I8, 1, -128),
            (DType::I8, -128, -128),
        ];
        let rt = runtime();
        for (left, a, b) in cases {
            let rows = vec![a as u8; m * k];
            let rows = if left == DType::U8 {
                Tensor::from_vec(rows, &[m, k])
            } else {
                Tensor::from_vec(rows.into_iter().map(u8::cast_signed).collect(), &[m, k])
            };
            let rows = rows.unwrap();
            let zero = if left == DType::U8 { Tensor::scalar(3u8) } else { Tensor::scalar(3i8) };
            for offset in [0, 128] {
                // Unsigned columns are moved by 128.
                let columns = vec![(b + offset) as u8; k * n];
                let columns = if offset == 0 {
                    Tensor::from_vec(columns.into_iter().map(u8::cast_signed).collect(), &[k, n])
                } else {
                    Tensor::from_vec(columns, &[k, n])
                };
                let columns = columns.unwrap();
                let plain = rt.matmul_integer(&rows, &columns, &IntegerOptions::new()).unwrap();
                let wanted = vec![k as i32 * a * (b + offset); m * n];
                assert_eq!(plain.to_vec::<i32>().unwrap(), wanted, "{left} {a} {b} {offset}");
                let moved = rt.matmul_integer(&rows, &columns, &IntegerOptions::new().a_zero_point(&zero));
                let wanted = vec![k as i32 * (a - 3) * (b + offset); m * n];
                assert_eq!(moved.unwrap().to_vec::<i32>().unwrap(), wanted, "{left} {a} {b} {offset}");
            }
        }
    }

    #[test]
    fn operands_are_looked_through_to_the_last_number() {
        let rt = runtime();
        let mut bytes = vec![0u8; 70 * 300];
        bytes[70 * 300 - 1] = 129;
        let source = |line, along, kind| {
            let (zero, zero_step) = (std::ptr::null(), 0);
            Source { at: bytes.as_ptr(), kind, line, along, k: 300, zero, zero_step }
        };
        let pool = rt.device().threads();
        for (line, along) in [(300, 1), (1, 70)] {
            let unsigned = source(line, along, QuantType::U8);
            assert!(!within(&unsigned, 70, (0, 128), pool, 2));
            assert!(within(&unsigned, 70, (0, 129), pool, 2));
            // 129 is -127, and 0 is the middle.
            assert!(within(&source(line, along, QuantType::I8), 70, (1, 128), pool, 2));
            assert!(!within(&source(line, along, QuantType::I8), 70, (2, 128), pool, 2));
        }
        assert!(
            !within(&source(2, 140, QuantType::U8), 70, (0, 255), pool, 1),
            "numbers far apart are not looked at"
        );
    }
}
