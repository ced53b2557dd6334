//! Moving elements between the lanes of 512-bit registers, and from scattered places into them.
#[allow(clippy::wildcard_imports)] // the intrinsics are named after their instructions
use std::arch::x86_64::*;

use super::lanes::MAX_LANES;

/// `Lanes::ORDER` of `f32`: pairs of neighbours that shuffles within a quarter of a register bring together.
pub(super) const ORDER_PS: [u8; MAX_LANES] = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15];
/// The same of `f64`.
pub(super) const ORDER_PD: [u8; MAX_LANES] = [0, 4, 1, 5, 2, 6, 3, 7, 0, 0, 0, 0, 0, 0, 0, 0];

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn unzip_ps(a: __m512, b: __m512) -> (__m512, __m512) {
    (_mm512_shuffle_ps::<0b10_00_10_00>(a, b), _mm512_shuffle_ps::<0b11_01_11_01>(a, b))
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn zip_ps(even: __m512, odd: __m512) -> (__m512, __m512) {
    (_mm512_unpacklo_ps(even, odd), _mm512_unpackhi_ps(even, odd))
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn unzip_pd(a: __m512d, b: __m512d) -> (__m512d, __m512d) {
    (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b))
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn zip_pd(even: __m512d, odd: __m512d) -> (__m512d, __m512d) {
    (_mm512_unpacklo_pd(even, odd), _mm512_unpackhi_pd(even, odd))
}

/// Four vectors with four lines of four elements each, as those lines' columns: two by two, then four by four.
macro_rules! turn_quarters {
    ($a:expr, $b:expr, $c:expr, $d:expr) => {{
        let (ab, cd) = (_mm512_unpacklo_ps($a, $b), _mm512_unpacklo_ps($c, $d));
        let (ef, gh) = (_mm512_unpackhi_ps($a, $b), _mm512_unpackhi_ps($c, $d));
        [
            _mm512_shuffle_ps::<0b01_00_01_00>(ab, cd),
            _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd),
            _mm512_shuffle_ps::<0b01_00_01_00>(ef, gh),
            _mm512_shuffle_ps::<0b11_10_11_10>(ef, gh),
        ]
    }};
}

/// Quarters of four vectors change places: vector `i` of the result has quarter `i` of each.
macro_rules! exchange_quarters {
    ($shuffle:ident, $a:expr, $b:expr, $c:expr, $d:expr) => {{
        let (even, odd) = ($shuffle::<0x88>($a, $b), $shuffle::<0xdd>($a, $b));
        let (even_too, odd_too) = ($shuffle::<0x88>($c, $d), $shuffle::<0xdd>($c, $d));
        [
            $shuffle::<0x88>(even, even_too),
            $shuffle::<0x88>(odd, odd_too),
            $shuffle::<0xdd>(even, even_too),
            $shuffle::<0xdd>(odd, odd_too),
        ]
    }};
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose_ps(rows: &mut [__m512]) {
    let r: &mut [__m512; 16] = (&mut rows[..16]).try_into().expect("sixteen rows");
    let a = turn_quarters!(r[0], r[1], r[2], r[3]);
    let b = turn_quarters!(r[4], r[5], r[6], r[7]);
    let c = turn_quarters!(r[8], r[9], r[10], r[11]);
    let d = turn_quarters!(r[12], r[13], r[14], r[15]);
    for i in 0..4 {
        [r[i], r[4 + i], r[8 + i], r[12 + i]] =
            exchange_quarters!(_mm512_shuffle_f32x4, a[i], b[i], c[i], d[i]);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn transpose_pd(rows: &mut [__m512d]) {
    let r: &mut [__m512d; 8] = (&mut rows[..8]).try_into().expect("eight rows");
    let (a, b) = (unzip_pd(r[0], r[1]), unzip_pd(r[2], r[3]));
    let (c, d) = (unzip_pd(r[4], r[5]), unzip_pd(r[6], r[7]));
    [r[0], r[2], r[4], r[6]] = exchange_quarters!(_mm512_shuffle_f64x2, a.0, b.0, c.0, d.0);
    [r[1], r[3], r[5], r[7]] = exchange_quarters!(_mm512_shuffle_f64x2, a.1, b.1, c.1, d.1);
}

/// `Lanes::load_turned`: quarters of registers meet on the way from memory, which takes no instruction that crosses them.
///
/// # Safety
/// Sixteen rows of sixteen elements, `step` apart, can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn load_turned_ps(from: *const f32, step: usize, columns: &mut [__m512]) {
    let columns: &mut [__m512; 16] = (&mut columns[..16]).try_into().expect("sixteen columns");
    // SAFETY: the caller lets us read these rows.
    unsafe {
        macro_rules! quarters {
            ($row:literal, $at:expr) => {{
                let from = from.add($row * step + $at);
                let v = _mm512_castps128_ps512(_mm_loadu_ps(from));
                let v = _mm512_insertf32x4::<1>(v, _mm_loadu_ps(from.add(2 * step)));
                let v = _mm512_insertf32x4::<2>(v, _mm_loadu_ps(from.add(4 * step)));
                _mm512_insertf32x4::<3>(v, _mm_loadu_ps(from.add(6 * step)))
            }};
        }
        macro_rules! four {
            ($at:literal) => {
                let (a, b) = (quarters!(0, $at), quarters!(1, $at));
                let (c, d) = (quarters!(8, $at), quarters!(9, $at));
                [columns[$at], columns[$at + 1], columns[$at + 2], columns[$at + 3]] =
                    turn_quarters!(a, b, c, d);
            };
        }
        four!(0);
        four!(4);
        four!(8);
        four!(12);
    }
}

/// `Lanes::load_turned`.
///
/// # Safety
/// Eight rows of eight elements, `step` apart, can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn load_turned_pd(from: *const f64, step: usize, columns: &mut [__m512d]) {
    let columns: &mut [__m512d; 8] = (&mut columns[..8]).try_into().expect("eight columns");
    // SAFETY: the caller lets us read these rows.
    unsafe {
        macro_rules! quarters {
            ($row:literal, $at:expr) => {{
                let from = from.add($row * step + $at);
                let v = _mm512_castpd128_pd512(_mm_loadu_pd(from));
                let v = _mm512_insertf64x2::<1>(v, _mm_loadu_pd(from.add(step)));
                let v = _mm512_insertf64x2::<2>(v, _mm_loadu_pd(from.add(2 * step)));
                _mm512_insertf64x2::<3>(v, _mm_loadu_pd(from.add(3 * step)))
            }};
        }
        macro_rules! two {
            ($at:literal) => {
                (columns[$at], columns[$at + 1]) = unzip_pd(quarters!(0, $at), quarters!(4, $at));
            };
        }
        two!(0);
        two!(2);
        two!(4);
        two!(6);
    }
}

/// `Lanes::pick`. Indices are widened first: the instruction takes those of 32 bits for signed ones.
///
/// # Safety
/// Sixteen indices can be read, and the elements that they stand for.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn pick_ps(from: *const f32, at: *const u32) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_insertf32x8::<1>(pick_half_ps(from, at), eight_ps(from, at.add(8))) }
}

/// `Lanes::pick_half`.
///
/// # Safety
/// Eight indices can be read, and the elements that they stand for.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn pick_half_ps(from: *const f32, at: *const u32) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe { _mm512_zextps256_ps512(eight_ps(from, at)) }
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn eight_ps(from: *const f32, at: *const u32) -> __m256 {
    // SAFETY: the caller lets us read eight indices and their elements.
    unsafe { _mm512_i64gather_ps::<4>(_mm512_cvtepu32_epi64(_mm256_loadu_si256(at.cast())), from) }
}

/// `Lanes::pick`.
///
/// # Safety
/// Eight indices can be read, and the elements that they stand for.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn pick_pd(from: *const f64, at: *const u32) -> __m512d {
    // SAFETY: the caller's promise.
    unsafe { _mm512_i64gather_pd::<8>(_mm512_cvtepu32_epi64(_mm256_loadu_si256(at.cast())), from) }
}

/// `Lanes::pick_half`.
///
/// # Safety
/// Four indices can be read, and the elements that they stand for.
#[inline]
#[target_feature(enable = "avx512f,avx2")]
pub(super) unsafe fn pick_half_pd(from: *const f64, at: *const u32) -> __m512d {
    // SAFETY: the caller's promise.
    unsafe {
        let at = _mm256_cvtepu32_epi64(_mm_loadu_si128(at.cast()));
        _mm512_zextpd256_pd512(_mm256_i64gather_pd::<8>(from, at))
    }
}
