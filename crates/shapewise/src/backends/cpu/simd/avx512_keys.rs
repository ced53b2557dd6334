//! Keys in 512-bit registers: sixteen of 32 bits, eight of 64.
#[allow(clippy::wildcard_imports)] // the intrinsics are named after their instructions
use std::arch::x86_64::*;

use super::Avx512;
use super::keys::KeyLanes;

macro_rules! key_lanes {
    ($k:ident, $signed:ident, $mask:ident, $n:literal,
     splat $set1:ident, load_first $mask_loadu:ident, store_first $mask_storeu:ident, below $cmplt:ident, pack $compress:ident,
     sort $sort:ident, choose $choose:ident, exchange $exchange:ident, interleave $permutex2var:ident($($index:ident),*)) => {
        impl KeyLanes<$k> for Avx512 {
            type V = __m512i;
            const LANES: usize = $n;

            #[inline(always)]
            fn splat(self, key: $k) -> __m512i {
                // SAFETY: the token proves that the CPU has the instruction.
                unsafe { $set1(key as $signed) }
            }
            #[inline(always)]
            unsafe fn load(self, at: *const $k) -> __m512i {
                // SAFETY: the caller's promise.
                unsafe { _mm512_loadu_si512(at.cast()) }
            }
            #[inline(always)]
            unsafe fn load_first(self, at: *const $k, n: usize, rest: __m512i) -> __m512i {
                // SAFETY: the mask keeps the load to n keys.
                unsafe { $mask_loadu(rest, first_lanes(n) as $mask, at.cast()) }
            }
            #[inline(always)]
            unsafe fn store(self, at: *mut $k, v: __m512i) {
                // SAFETY: the caller's promise.
                unsafe { _mm512_storeu_si512(at.cast(), v) }
            }
            #[inline(always)]
            unsafe fn store_first(self, at: *mut $k, v: __m512i, n: usize) {
                // SAFETY: the mask keeps the store to n keys.
                unsafe { $mask_storeu(at.cast(), first_lanes(n) as $mask, v) }
            }
            #[inline(always)]
            unsafe fn stream(self, at: *mut $k, v: __m512i) {
                // SAFETY: the caller's promise.
                unsafe { _mm512_stream_si512(at.cast(), v) }
            }
            #[inline(always)]
            fn fence(self) {
                // SAFETY: every x86-64 has the instruction.
                unsafe { _mm_sfence() }
            }
            #[inline(always)]
            fn first(self, v: __m512i) -> $k {
                let mut all = [0; $n];
                // SAFETY: the array has room for a register.
                unsafe { _mm512_storeu_si512(all.as_mut_ptr().cast(), v) };
                all[0]
            }
            #[inline(always)]
            fn below(self, a: __m512i, b: __m512i) -> u32 {
                // SAFETY: the token proves that the CPU has the instruction.
                u32::from(unsafe { $cmplt(a, b) })
            }
            #[inline(always)]
            fn pack(self, v: __m512i, lanes: u32) -> __m512i {
                // SAFETY: the token proves that the CPU has the instruction.
                unsafe { $compress(lanes as $mask, v) }
            }
            #[inline(always)]
            fn sort(self, a: __m512i, b: __m512i) -> (__m512i, __m512i) {
                // SAFETY: the token proves that the CPU has the instructions.
                unsafe { $sort(a, b) }
            }
            #[inline(always)]
            fn choose(self, a: __m512i, b: __m512i, larger: u32) -> __m512i {
                // SAFETY: the token proves that the CPU has the instructions.
                unsafe { $choose(a, b, larger as $mask) }
            }
            #[inline(always)]
            fn exchange(self, v: __m512i, with: usize) -> __m512i {
                // SAFETY: the token proves that the CPU has the instructions.
                unsafe { $exchange(v, with) }
            }
            #[inline(always)]
            fn interleave(self, a: __m512i, b: __m512i) -> (__m512i, __m512i) {
                // SAFETY: the token proves that the CPU has the instruction, and an index is as long as a register.
                unsafe { ($($permutex2var(a, _mm512_loadu_si512($index.as_ptr().cast()), b)),*) }
            }
        }
    };
}
key_lanes!(u32, i32, __mmask16, 16,
    splat _mm512_set1_epi32, load_first _mm512_mask_loadu_epi32, store_first _mm512_mask_storeu_epi32,
    below _mm512_cmplt_epu32_mask, pack _mm512_maskz_compress_epi32, sort sort_32, choose choose_32, exchange exchange_32,
    interleave _mm512_permutex2var_epi32(LOW_32, HIGH_32));
key_lanes!(u64, i64, __mmask8, 8,
    splat _mm512_set1_epi64, load_first _mm512_mask_loadu_epi64, store_first _mm512_mask_storeu_epi64,
    below _mm512_cmplt_epu64_mask, pack _mm512_maskz_compress_epi64, sort sort_64, choose choose_64, exchange exchange_64,
    interleave _mm512_permutex2var_epi64(LOW_64, HIGH_64));

static LOW_32: [u32; 16] = [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23];
static HIGH_32: [u32; 16] = [8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31];
static LOW_64: [u64; 8] = [0, 8, 1, 9, 2, 10, 3, 11];
static HIGH_64: [u64; 8] = [4, 12, 5, 13, 6, 14, 7, 15];

/// A mask of the first n lanes.
#[inline(always)]
const fn first_lanes(n: usize) -> u16 {
    if n >= 16 { u16::MAX } else { (1 << n) - 1 }
}

/// a ^ b ^ c
const XOR: i32 = 0x96;

/// The larger one is what the smaller one leaves of both: minima run on one port only, logic on two.
#[inline]
#[target_feature(enable = "avx512f")]
fn sort_32(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
    let min = _mm512_min_epu32(a, b);
    (min, _mm512_ternarylogic_epi32::<XOR>(min, a, b))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn choose_32(a: __m512i, b: __m512i, larger: __mmask16) -> __m512i {
    _mm512_mask_ternarylogic_epi32::<XOR>(_mm512_min_epu32(a, b), larger, a, b)
}

/// Minima of 64 bits take longer than a comparison and two blends.
#[inline]
#[target_feature(enable = "avx512f")]
fn sort_64(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
    let below = _mm512_cmplt_epu64_mask(a, b);
    (_mm512_mask_blend_epi64(below, b, a), _mm512_mask_blend_epi64(below, a, b))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn choose_64(a: __m512i, b: __m512i, larger: __mmask8) -> __m512i {
    _mm512_mask_blend_epi64(_mm512_cmplt_epu64_mask(a, b) ^ larger, b, a)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn exchange_32(v: __m512i, with: usize) -> __m512i {
    match with {
        1 => _mm512_shuffle_epi32::<0b10_11_00_01>(v),
        2 => _mm512_shuffle_epi32::<0b01_00_11_10>(v),
        3 => _mm512_shuffle_epi32::<0b00_01_10_11>(v),
        4 => _mm512_shuffle_i32x4::<0b10_11_00_01>(v, v),
        7 => {
            let mirror = _mm512_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8);
            _mm512_permutexvar_epi32(mirror, v)
        }
        _ => {
            let mirror = _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            _mm512_permutexvar_epi32(mirror, v)
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn exchange_64(v: __m512i, with: usize) -> __m512i {
    match with {
        1 => _mm512_permutex_epi64::<0b10_11_00_01>(v),
        2 => _mm512_permutex_epi64::<0b01_00_11_10>(v),
        3 => _mm512_permutex_epi64::<0b00_01_10_11>(v),
        4 => _mm512_shuffle_i64x2::<0b01_00_11_10>(v, v),
        _ => _mm512_permutexvar_epi64(_mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0), v),
    }
}
