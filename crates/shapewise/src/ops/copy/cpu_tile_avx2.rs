//! Tiles turned in registers: 16 × 16 elements of 1 or 4 bytes, 8 × 8 of 2 or 8, single ones of 16.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, __m256, __m256d, __m256i, _mm_loadu_pd, _mm_loadu_ps, _mm_loadu_si128, _mm_setzero_si128,
    _mm_sfence, _mm_storeu_si128, _mm_stream_si128, _mm_unpackhi_epi8, _mm_unpackhi_epi16, _mm_unpacklo_epi8,
    _mm_unpacklo_epi16, _mm256_castpd_si256, _mm256_castpd128_pd256, _mm256_castps_si256,
    _mm256_castps128_ps256, _mm256_insertf128_pd, _mm256_insertf128_ps, _mm256_setzero_si256,
    _mm256_shuffle_ps, _mm256_storeu_si256, _mm256_stream_si256, _mm256_unpackhi_pd, _mm256_unpackhi_ps,
    _mm256_unpacklo_pd, _mm256_unpacklo_ps,
};

use super::cpu_tiles::{Turn, tile_edge, turn_plain};
use crate::backends::cpu::real::prefetch;

/// Turns a block: whole tiles, the last ones moved back so that they end with the block.
///
/// # Safety
/// Every element of the block is valid for reading and writing, the two do not overlap, and the CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn turn(block: Turn) {
    // SAFETY: the caller's promise; each tile has the size that its function takes.
    unsafe {
        match block.size {
            1 => tiles::<{ tile_edge(1) }>(block, |t| tile_1(t)),
            2 => tiles::<{ tile_edge(2) }>(block, |t| tile_2(t)),
            4 => tiles::<{ tile_edge(4) }>(block, |t| tile_4(t)),
            8 => tiles::<{ tile_edge(8) }>(block, |t| tile_8(t)),
            _ => tiles::<{ tile_edge(16) }>(block, |t| tile_16(t)),
        }
    }
}

/// # Safety
/// As [`turn`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn tiles<const EDGE: usize>(block: Turn, tile: impl Fn(&Turn)) {
    if block.rows < EDGE || block.columns < EDGE {
        // SAFETY: the caller's promise.
        return unsafe { turn_plain(block) };
    }
    let starts =
        |n: usize| (0..n / EDGE).map(|i| i * EDGE).chain((!n.is_multiple_of(EDGE)).then_some(n - EDGE));
    for column in starts(block.columns) {
        for row in starts(block.rows) {
            let mut part = block.part(row, column, EDGE, EDGE);
            if part.size != 4 {
                ask_for_next(&part, 0..EDGE as isize);
            }
            // Moved back along the output's memory, a tile is not aligned any more.
            part.stream &= row.is_multiple_of(EDGE);
            tile(&part);
        }
    }
    if block.stream {
        _mm_sfence();
    }
}

/// # Safety
/// `at` is valid for writing a register, and aligned to one if `stream`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn put(at: *mut u8, v: __m256i, stream: bool) {
    // SAFETY: the caller's promise.
    unsafe { if stream { _mm256_stream_si256(at.cast(), v) } else { _mm256_storeu_si256(at.cast(), v) } }
}

/// # Safety
/// A tile of 16 × 16 elements of 4 bytes; otherwise as [`turn`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn tile_4(t: &Turn) {
    // Four columns at a time, eight rows to a register and sixteen to a line of the output. All columns of the first eight rows
    // are read before any of the others: of rows that are pages apart a usual first cache holds eight lines.
    let from = t.place.from;
    let mut first = [[_mm256_setzero_si256(); 4]; 4];
    for (quarter, columns) in first.iter_mut().enumerate() {
        // SAFETY: rows up to 7 and columns up to 15 lie inside the tile.
        *columns = unsafe { four_by_eight(from.wrapping_add(16 * quarter), t.from_step) };
    }
    ask_for_next(t, 0..8);
    for (quarter, first) in first.iter().enumerate() {
        let from = from.wrapping_add(16 * quarter).wrapping_offset(8 * t.from_step);
        // SAFETY: rows up to 15 and columns up to 15 lie inside the tile.
        let second = unsafe { four_by_eight(from, t.from_step) };
        for k in 0..4 {
            let to = t.place.to.wrapping_offset((4 * quarter + k) as isize * t.to_step);
            // SAFETY: the tile's row of the output has 64 bytes.
            unsafe {
                put(to, first[k], t.stream);
                put(to.add(32), second[k], t.stream);
            }
        }
    }
    ask_for_next(t, 8..16);
}

/// Asks for the lines of the next tile along the input's memory.
#[inline]
fn ask_for_next(t: &Turn, rows: std::ops::Range<isize>) {
    for i in rows {
        prefetch(t.place.from.wrapping_offset(i * t.from_step).wrapping_add(64));
    }
}

/// Four columns of eight rows as four registers.
///
/// # Safety
/// Eight rows, `step` bytes apart, are valid for reading 16 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn four_by_eight(from: *const u8, step: isize) -> [__m256i; 4] {
    // SAFETY: the caller's promise.
    let (a, b, c, d) = unsafe {
        (
            apart(from, 4 * step),
            apart(from.offset(step), 4 * step),
            apart(from.offset(2 * step), 4 * step),
            apart(from.offset(3 * step), 4 * step),
        )
    };
    let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
    let (ba, dc) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
    [
        _mm256_castps_si256(_mm256_shuffle_ps::<0x44>(ab, cd)),
        _mm256_castps_si256(_mm256_shuffle_ps::<0xee>(ab, cd)),
        _mm256_castps_si256(_mm256_shuffle_ps::<0x44>(ba, dc)),
        _mm256_castps_si256(_mm256_shuffle_ps::<0xee>(ba, dc)),
    ]
}

/// Two halves of a register from places `step` bytes apart.
///
/// # Safety
/// Both are valid for reading 16 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn apart(from: *const u8, step: isize) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (_mm_loadu_ps(from.cast()), _mm_loadu_ps(from.offset(step).cast()));
        _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(a), b)
    }
}

/// # Safety
/// A tile of 8 × 8 elements of 8 bytes; otherwise as [`turn`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn tile_8(t: &Turn) {
    for quarter in 0..4 {
        let at =
            |row: usize| t.place.from.wrapping_offset(row as isize * t.from_step).wrapping_add(16 * quarter);
        let pair = |row: usize| -> __m256d {
            // SAFETY: rows and columns up to 7 lie inside the tile.
            unsafe {
                let (a, b) = (_mm_loadu_pd(at(row).cast()), _mm_loadu_pd(at(row + 2).cast()));
                _mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(a), b)
            }
        };
        let two = |row: usize| -> [__m256i; 2] {
            let (a, b) = (pair(row), pair(row + 1));
            [_mm256_castpd_si256(_mm256_unpacklo_pd(a, b)), _mm256_castpd_si256(_mm256_unpackhi_pd(a, b))]
        };
        let (first, second) = (two(0), two(4));
        for k in 0..2 {
            let to = t.place.to.wrapping_offset((2 * quarter + k) as isize * t.to_step);
            // SAFETY: the tile's row of the output has 64 bytes.
            unsafe {
                put(to, first[k], t.stream);
                put(to.add(32), second[k], t.stream);
            }
        }
    }
}

/// # Safety
/// A tile of 4 × 4 elements of 16 bytes; otherwise as [`turn`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn tile_16(t: &Turn) {
    for column in 0..4 {
        let part = t.part(0, column, 4, 1).place;
        for row in 0..4 {
            // SAFETY: rows and columns up to 3 lie inside the tile.
            unsafe {
                let x = _mm_loadu_si128(part.from.wrapping_offset(row * t.from_step).cast());
                let to = part.to.cast::<__m128i>().wrapping_offset(row);
                if t.stream { _mm_stream_si128(to, x) } else { _mm_storeu_si128(to, x) }
            }
        }
    }
}

/// The rows of a tile, 16 bytes each.
///
/// # Safety
/// The tile has `N` rows of at least 16 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn rows<const N: usize>(t: &Turn) -> [__m128i; N] {
    let mut out = [_mm_setzero_si128(); N];
    for (row, out) in out.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *out = unsafe { _mm_loadu_si128(t.place.from.wrapping_offset(row as isize * t.from_step).cast()) };
    }
    out
}

/// Writes the columns of a tile, 16 bytes each.
///
/// # Safety
/// The tile has `N` rows of the output of at least 16 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn put_columns<const N: usize>(t: &Turn, columns: &[__m128i; N]) {
    for (i, &v) in columns.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm_storeu_si128(t.place.to.wrapping_offset(i as isize * t.to_step).cast(), v) };
    }
}

/// Rows `i` and `i + 4` of elements of 2 bytes interleaved, which doubles what lies side by side.
#[inline]
#[target_feature(enable = "avx2")]
fn interleave_2(x: &[__m128i; 8]) -> [__m128i; 8] {
    let mut out = *x;
    for i in 0..4 {
        out[2 * i] = _mm_unpacklo_epi16(x[i], x[i + 4]);
        out[2 * i + 1] = _mm_unpackhi_epi16(x[i], x[i + 4]);
    }
    out
}

/// The same of rows `i` and `i + 8` of elements of 1 byte.
#[inline]
#[target_feature(enable = "avx2")]
fn interleave_1(x: &[__m128i; 16]) -> [__m128i; 16] {
    let mut out = *x;
    for i in 0..8 {
        out[2 * i] = _mm_unpacklo_epi8(x[i], x[i + 8]);
        out[2 * i + 1] = _mm_unpackhi_epi8(x[i], x[i + 8]);
    }
    out
}

/// # Safety
/// A tile of 8 × 8 elements of 2 bytes; otherwise as [`turn`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn tile_2(t: &Turn) {
    // SAFETY: the caller's promise.
    unsafe {
        let x: [__m128i; 8] = rows(t);
        put_columns(t, &interleave_2(&interleave_2(&interleave_2(&x))));
    }
}

/// # Safety
/// A tile of 16 × 16 elements of 1 byte; otherwise as [`turn`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn tile_1(t: &Turn) {
    // SAFETY: the caller's promise.
    unsafe {
        let x: [__m128i; 16] = rows(t);
        put_columns(t, &interleave_1(&interleave_1(&interleave_1(&interleave_1(&x)))));
    }
}
