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

/// `Lanes::settled`: no instruction, but reads do not move across it.
macro_rules! settled {
    ($($name:ident $v:ident;)*) => {$(
        #[inline]
        #[target_feature(enable = "avx512f")]
        pub(super) fn $name(a: $v) -> $v {
            #[cfg(not(miri))]
            {
                let mut a = a;
                // SAFETY: a comment does nothing.
                unsafe { std::arch::asm!("/* {0} */", inout(zmm_reg) a, options(nostack, preserves_flags)) };
                a
            }
            #[cfg(miri)]
            a
        }
    )*};
}
settled! {
    settled_ps __m512;
    settled_pd __m512d;
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

/// `Lanes::reduce_add_four`: pairs of vectors, then pairs of pairs, then quarters of the register.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn sums_ps([a, b, c, d]: [__m512; 4]) -> [f32; 4] {
    let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    let (low, high) =
        (_mm512_shuffle_ps::<0b01_00_01_00>(ab, cd), _mm512_shuffle_ps::<0b11_10_11_10>(ab, cd));
    let all = _mm512_castps_pd(_mm512_add_ps(low, high));
    let (low, high) = (_mm512_castpd512_pd256(all), _mm512_extractf64x4_pd::<1>(all));
    let half = _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high));
    let quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
    let mut sums = [0.0; 4];
    // SAFETY: there is room for four.
    unsafe { _mm_storeu_ps(sums.as_mut_ptr(), quarter) };
    sums
}

/// The same: pairs of vectors, halves of the register, then both pairs.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn sums_pd([a, b, c, d]: [__m512d; 4]) -> [f64; 4] {
    let ab = _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
    let cd = _mm512_add_pd(_mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d));
    let ab = _mm256_add_pd(_mm512_castpd512_pd256(ab), _mm512_extractf64x4_pd::<1>(ab));
    let cd = _mm256_add_pd(_mm512_castpd512_pd256(cd), _mm512_extractf64x4_pd::<1>(cd));
    let all = _mm256_add_pd(_mm256_permute2f128_pd::<0x20>(ab, cd), _mm256_permute2f128_pd::<0x31>(ab, cd));
    let mut sums = [0.0; 4];
    // SAFETY: there is room for four.
    unsafe { _mm256_storeu_pd(sums.as_mut_ptr(), all) };
    sums
}

/// Sixteen rows as columns. Quarters of registers meet on the way from memory, which takes no instruction that crosses them.
macro_rules! load_sixteen {
    ($columns:ident, $at:ident, $row:ident, [$($a:literal)*], [$($b:literal)*], [$($c:literal)*], [$($d:literal)*]) => {
        for $at in [0, 4, 8, 12] {
            let a = quarters_ps!($at, $row, $($a)*);
            let b = quarters_ps!($at, $row, $($b)*);
            let c = quarters_ps!($at, $row, $($c)*);
            let d = quarters_ps!($at, $row, $($d)*);
            [$columns[$at], $columns[$at + 1], $columns[$at + 2], $columns[$at + 3]] = turn_quarters!(a, b, c, d);
        }
    };
}

/// Four elements of each of four rows.
macro_rules! quarters_ps {
    ($at:ident, $row:ident, $a:literal $b:literal $c:literal $d:literal) => {{
        let v = _mm512_castps128_ps512(_mm_loadu_ps($row!($a).wrapping_add($at)));
        let v = _mm512_insertf32x4::<1>(v, _mm_loadu_ps($row!($b).wrapping_add($at)));
        let v = _mm512_insertf32x4::<2>(v, _mm_loadu_ps($row!($c).wrapping_add($at)));
        _mm512_insertf32x4::<3>(v, _mm_loadu_ps($row!($d).wrapping_add($at)))
    }};
}

/// The same for eight rows.
macro_rules! load_eight {
    ($columns:ident, $at:ident, $row:ident, [$($a:literal)*], [$($b:literal)*]) => {
        for $at in [0, 2, 4, 6] {
            let (a, b) = (quarters_pd!($at, $row, $($a)*), quarters_pd!($at, $row, $($b)*));
            ($columns[$at], $columns[$at + 1]) = unzip_pd(a, b);
        }
    };
}

/// Two elements of each of four rows.
macro_rules! quarters_pd {
    ($at:ident, $row:ident, $a:literal $b:literal $c:literal $d:literal) => {{
        let v = _mm512_castpd128_pd512(_mm_loadu_pd($row!($a).wrapping_add($at)));
        let v = _mm512_insertf64x2::<1>(v, _mm_loadu_pd($row!($b).wrapping_add($at)));
        let v = _mm512_insertf64x2::<2>(v, _mm_loadu_pd($row!($c).wrapping_add($at)));
        _mm512_insertf64x2::<3>(v, _mm_loadu_pd($row!($d).wrapping_add($at)))
    }};
}

/// `Lanes::load_turned`.
///
/// # Safety
/// Sixteen rows of sixteen elements, `step` apart, can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn load_turned_ps(from: *const f32, step: usize, columns: &mut [__m512]) {
    let columns: &mut [__m512; 16] = (&mut columns[..16]).try_into().expect("sixteen columns");
    macro_rules! row {
        ($i:literal) => {
            from.wrapping_add($i * step)
        };
    }
    // SAFETY: the caller lets us read these rows.
    unsafe { load_sixteen!(columns, at, row, [0 2 4 6], [1 3 5 7], [8 10 12 14], [9 11 13 15]) };
}

/// `Lanes::load_turned`.
///
/// # Safety
/// Eight rows of eight elements, `step` apart, can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn load_turned_pd(from: *const f64, step: usize, columns: &mut [__m512d]) {
    let columns: &mut [__m512d; 8] = (&mut columns[..8]).try_into().expect("eight columns");
    macro_rules! row {
        ($i:literal) => {
            from.wrapping_add($i * step)
        };
    }
    // SAFETY: the caller lets us read these rows.
    unsafe { load_eight!(columns, at, row, [0 1 2 3], [4 5 6 7]) };
}

/// `Lanes::load_columns`.
///
/// # Safety
/// Sixteen elements can be read from `offset` on behind each of sixteen places.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn load_columns_ps(from: &[*const f32; MAX_LANES], offset: usize, columns: &mut [__m512]) {
    let columns: &mut [__m512; 16] = (&mut columns[..16]).try_into().expect("sixteen columns");
    macro_rules! row {
        ($i:literal) => {
            from[$i].wrapping_add(offset)
        };
    }
    // SAFETY: the caller lets us read there.
    unsafe { load_sixteen!(columns, at, row, [0 4 8 12], [1 5 9 13], [2 6 10 14], [3 7 11 15]) };
}

/// `Lanes::load_columns`.
///
/// # Safety
/// Eight elements can be read from `offset` on behind each of the first eight places.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn load_columns_pd(from: &[*const f64; MAX_LANES], offset: usize, columns: &mut [__m512d]) {
    let columns: &mut [__m512d; 8] = (&mut columns[..8]).try_into().expect("eight columns");
    macro_rules! row {
        ($i:literal) => {
            from[$i].wrapping_add(offset)
        };
    }
    // SAFETY: the caller lets us read there.
    unsafe { load_eight!(columns, at, row, [0 2 4 6], [1 3 5 7]) };
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
