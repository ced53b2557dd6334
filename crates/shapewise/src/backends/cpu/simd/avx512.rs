//! AVX-512 (F, BW, DQ, VL): sixteen lanes of `f32`, eight of `f64`, masks in registers of their own.
use super::lanes::MAX_LANES;
use super::{Apart, Float, HalfLanes, Lanes, Simd, avx512_moves as moves, forward};
use half::{bf16, f16};
#[allow(clippy::wildcard_imports)] // the intrinsics are named after their instructions
use std::arch::x86_64::*;

/// Proof that this CPU has AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

impl Avx512 {
    /// The token, if the CPU has the instructions.
    pub fn new() -> Option<Self> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        found.then_some(Self(()))
    }

    /// The token without asking the CPU.
    ///
    /// # Safety
    /// The CPU has AVX-512 F, BW, DQ and VL.
    #[inline(always)]
    pub const unsafe fn new_unchecked() -> Self {
        Self(())
    }
}

/// A mask of the first n lanes.
#[inline(always)]
const fn first_lanes(n: usize) -> u16 {
    if n >= 16 { u16::MAX } else { (1 << n) - 1 }
}

/// A function of its own for [`Lanes::apart`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
#[inline(never)]
fn run_apart<T: Float, K: Apart<T>>(s: Avx512, task: K)
where
    Avx512: Lanes<T>,
{
    task.run(s);
}

macro_rules! lanes {
    ($t:ident, $v:ident, $m:ident, $n:literal,
     splat $set1:ident, load $loadu:ident, load_first $maskz_loadu:ident, store $storeu:ident,
     store_first $mask_storeu:ident, stream $stream:ident, select $blend:ident, cmp $cmp:ident, first $cvt:ident,
     butterfly $butterfly:ident, order $order:ident, unzip $unzip:ident, zip $zip:ident, transpose $transpose:ident,
     load_turned $load_turned:ident, load_columns $load_columns:ident, pick $pick:ident, pick_half $pick_half:ident,
     sums $sums:ident, settled $settled:ident; $($forward:tt)*) => {
        impl Lanes<$t> for Avx512 {
            type V = $v;
            type M = $m;
            const LANES: usize = $n;
            const MASKS: bool = true;
            const ORDER: [u8; MAX_LANES] = moves::$order;

            #[inline(always)]
            fn apart<K: Apart<$t>>(self, task: K) {
                // SAFETY: the token proves that the CPU has the instructions.
                unsafe { run_apart(self, task) };
            }
            #[inline(always)]
            fn settled(self, a: $v) -> $v {
                // SAFETY: the token proves that the CPU has the registers.
                unsafe { moves::$settled(a) }
            }
            #[inline(always)]
            fn reduce_add_four(self, a: [$v; 4]) -> [$t; 4] {
                // SAFETY: the token proves that the CPU has the instructions.
                unsafe { moves::$sums(a) }
            }
            #[inline(always)]
            fn unzip(self, a: $v, b: $v) -> ($v, $v) {
                // SAFETY: the token proves that the CPU has the instructions.
                unsafe { moves::$unzip(a, b) }
            }
            #[inline(always)]
            fn zip(self, even: $v, odd: $v) -> ($v, $v) {
                // SAFETY: the token proves that the CPU has the instructions.
                unsafe { moves::$zip(even, odd) }
            }
            #[inline(always)]
            fn transpose(self, rows: &mut [$v]) {
                // SAFETY: the token proves that the CPU has the instructions.
                unsafe { moves::$transpose(rows) };
            }
            #[inline(always)]
            unsafe fn load_turned(self, from: *const $t, step: usize, columns: &mut [$v]) {
                // SAFETY: the caller lets us read these rows.
                unsafe { moves::$load_turned(from, step, columns) };
            }
            #[inline(always)]
            unsafe fn load_columns(self, places: &[*const $t; MAX_LANES], offset: usize, columns: &mut [$v]) {
                // SAFETY: the caller lets us read from these places.
                unsafe { moves::$load_columns(places, offset, columns) };
            }
            #[inline(always)]
            unsafe fn pick(self, from: *const $t, at: *const u32) -> $v {
                // SAFETY: the caller lets us read these indices and their elements.
                unsafe { moves::$pick(from, at) }
            }
            #[inline(always)]
            unsafe fn pick_half(self, from: *const $t, at: *const u32) -> $v {
                // SAFETY: the caller lets us read these indices and their elements.
                unsafe { moves::$pick_half(from, at) }
            }

            #[inline(always)]
            fn splat(self, x: $t) -> $v {
                // SAFETY: the token proves that the CPU has the instruction.
                unsafe { $set1(x) }
            }
            #[inline(always)]
            unsafe fn load(self, at: *const $t) -> $v {
                // SAFETY: the caller lets us read LANES elements.
                unsafe { $loadu(at) }
            }
            #[inline(always)]
            unsafe fn load_first(self, at: *const $t, n: usize) -> $v {
                // SAFETY: the mask keeps the load to n elements.
                unsafe { $maskz_loadu(first_lanes(n) as $m, at) }
            }
            #[inline(always)]
            unsafe fn store(self, at: *mut $t, v: $v) {
                // SAFETY: the caller lets us write LANES elements.
                unsafe { $storeu(at, v) }
            }
            #[inline(always)]
            unsafe fn store_first(self, at: *mut $t, v: $v, n: usize) {
                // SAFETY: the mask keeps the store to n elements.
                unsafe { $mask_storeu(at, first_lanes(n) as $m, v) }
            }
            #[inline(always)]
            unsafe fn stream(self, at: *mut $t, v: $v) {
                // SAFETY: the caller lets us write LANES elements at this aligned address.
                unsafe { $stream(at, v) }
            }
            #[inline(always)]
            fn fence(self) {
                // SAFETY: the token proves that the CPU has the instruction.
                unsafe { _mm_sfence() }
            }

            forward! { $($forward)* }

            #[inline(always)]
            fn lt(self, a: $v, b: $v) -> $m {
                // SAFETY: the token proves that the CPU has the instruction.
                unsafe { $cmp::<_CMP_LT_OQ>(a, b) }
            }
            #[inline(always)]
            fn le(self, a: $v, b: $v) -> $m {
                // SAFETY: the token proves that the CPU has the instruction.
                unsafe { $cmp::<_CMP_LE_OQ>(a, b) }
            }
            #[inline(always)]
            fn eq(self, a: $v, b: $v) -> $m {
                // SAFETY: the token proves that the CPU has the instruction.
                unsafe { $cmp::<_CMP_EQ_OQ>(a, b) }
            }
            #[inline(always)]
            fn ne(self, a: $v, b: $v) -> $m {
                // SAFETY: the token proves that the CPU has the instruction.
                unsafe { $cmp::<_CMP_NEQ_UQ>(a, b) }
            }
            #[inline(always)]
            fn select(self, m: $m, a: $v, b: $v) -> $v {
                // SAFETY: the token proves that the CPU has the instruction.
                unsafe { $blend(m, b, a) }
            }
            #[inline(always)]
            fn mask_and(self, a: $m, b: $m) -> $m {
                a & b
            }
            #[inline(always)]
            fn mask_or(self, a: $m, b: $m) -> $m {
                a | b
            }
            #[inline(always)]
            fn mask_not(self, a: $m) -> $m {
                !a
            }
            #[inline(always)]
            fn mask_bits(self, m: $m) -> u32 {
                u32::from(m)
            }
            #[inline(always)]
            fn butterfly(self, a: $v, distance: usize) -> $v {
                // SAFETY: the token proves that the CPU has the instructions.
                unsafe { $butterfly(a, distance) }
            }
            #[inline(always)]
            fn first(self, a: $v) -> $t {
                // SAFETY: the token proves that the CPU has the instruction.
                unsafe { $cvt(a) }
            }
        }
    };
}
lanes! {
    f32, __m512, __mmask16, 16,
    splat _mm512_set1_ps, load _mm512_loadu_ps, load_first _mm512_maskz_loadu_ps, store _mm512_storeu_ps,
    store_first _mm512_mask_storeu_ps, stream _mm512_stream_ps, select _mm512_mask_blend_ps,
    cmp _mm512_cmp_ps_mask, first _mm512_cvtss_f32, butterfly butterfly_ps,
    order ORDER_PS, unzip unzip_ps, zip zip_ps, transpose transpose_ps, load_turned load_turned_ps, load_columns load_columns_ps,
    pick pick_ps, pick_half pick_half_ps, sums sums_ps, settled settled_ps;
    add(a, b) = _mm512_add_ps;
    sub(a, b) = _mm512_sub_ps;
    mul(a, b) = _mm512_mul_ps;
    div(a, b) = _mm512_div_ps;
    mul_add(a, b, c) = _mm512_fmadd_ps;
    neg_mul_add(a, b, c) = _mm512_fnmadd_ps;
    sqrt(a) = _mm512_sqrt_ps;
    min(a, b) = min_ps;
    max(a, b) = max_ps;
    round(a) = round_ps;
    floor(a) = floor_ps;
    and(a, b) = _mm512_and_ps;
    or(a, b) = _mm512_or_ps;
    xor(a, b) = _mm512_xor_ps;
    add_bits(a, b) = add_bits_ps;
    shl_mantissa(a) = shl_mantissa_ps;
    shr_mantissa(a) = shr_mantissa_ps;
    scale(a, n) = scale_ps;
}
lanes! {
    f64, __m512d, __mmask8, 8,
    splat _mm512_set1_pd, load _mm512_loadu_pd, load_first _mm512_maskz_loadu_pd, store _mm512_storeu_pd,
    store_first _mm512_mask_storeu_pd, stream _mm512_stream_pd, select _mm512_mask_blend_pd,
    cmp _mm512_cmp_pd_mask, first _mm512_cvtsd_f64, butterfly butterfly_pd,
    order ORDER_PD, unzip unzip_pd, zip zip_pd, transpose transpose_pd, load_turned load_turned_pd, load_columns load_columns_pd,
    pick pick_pd, pick_half pick_half_pd, sums sums_pd, settled settled_pd;
    add(a, b) = _mm512_add_pd;
    sub(a, b) = _mm512_sub_pd;
    mul(a, b) = _mm512_mul_pd;
    div(a, b) = _mm512_div_pd;
    mul_add(a, b, c) = _mm512_fmadd_pd;
    neg_mul_add(a, b, c) = _mm512_fnmadd_pd;
    sqrt(a) = _mm512_sqrt_pd;
    min(a, b) = min_pd;
    max(a, b) = max_pd;
    round(a) = round_pd;
    floor(a) = floor_pd;
    and(a, b) = _mm512_and_pd;
    or(a, b) = _mm512_or_pd;
    xor(a, b) = _mm512_xor_pd;
    add_bits(a, b) = add_bits_pd;
    shl_mantissa(a) = shl_mantissa_pd;
    shr_mantissa(a) = shr_mantissa_pd;
    scale(a, n) = scale_pd;
}

/// Instructions with a fixed immediate, or integer ones on the bits of floats.
macro_rules! with_immediate {
    ($($name:ident($($arg:ident),*: $v:ident) = $body:expr;)*) => {$(
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn $name($($arg: $v),*) -> $v {
            $body
        }
    )*};
}
with_immediate! {
    add_bits_ps(a, b: __m512) =
        _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
    add_bits_pd(a, b: __m512d) =
        _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(a), _mm512_castpd_si512(b)));
    shl_mantissa_ps(a: __m512) = _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_castps_si512(a)));
    shl_mantissa_pd(a: __m512d) = _mm512_castsi512_pd(_mm512_slli_epi64::<52>(_mm512_castpd_si512(a)));
    shr_mantissa_ps(a: __m512) = _mm512_castsi512_ps(_mm512_srli_epi32::<23>(_mm512_castps_si512(a)));
    shr_mantissa_pd(a: __m512d) = _mm512_castsi512_pd(_mm512_srli_epi64::<52>(_mm512_castpd_si512(a)));
}

#[cfg(not(miri))]
with_immediate! {
    round_ps(a: __m512) = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
    round_pd(a: __m512d) = _mm512_roundscale_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
    floor_ps(a: __m512) = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a);
    floor_pd(a: __m512d) = _mm512_roundscale_pd::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a);
    scale_ps(a, n: __m512) = _mm512_scalef_ps(a, n);
    min_ps(a, b: __m512) = _mm512_min_ps(a, b);
    max_ps(a, b: __m512) = _mm512_max_ps(a, b);
    min_pd(a, b: __m512d) = _mm512_min_pd(a, b);
    max_pd(a, b: __m512d) = _mm512_max_pd(a, b);
    scale_pd(a, n: __m512d) = _mm512_scalef_pd(a, n);
}

/// Stand-ins for the few instructions that Miri does not know.
#[cfg(miri)]
mod unknown_to_miri {
    use super::*;
    use std::mem::transmute;

    macro_rules! by_lane {
        ($($name:ident($v:ident: [$t:ident; $n:literal], $a:ident, $b:ident) = $body:expr;)*) => {$(
            pub(super) fn $name(a: $v, b: $v) -> $v {
                // SAFETY: a register is its lanes.
                unsafe {
                    let (a, b): ([$t; $n], [$t; $n]) = (transmute(a), transmute(b));
                    transmute::<[$t; $n], $v>(std::array::from_fn(|i| { let ($a, $b) = (a[i], b[i]); $body }))
                }
            }
        )*};
    }
    by_lane! {
        round_by_ps(__m512: [f32; 16], x, _y) = x.round_ties_even();
        round_by_pd(__m512d: [f64; 8], x, _y) = x.round_ties_even();
        floor_by_ps(__m512: [f32; 16], x, _y) = x.floor();
        floor_by_pd(__m512d: [f64; 8], x, _y) = x.floor();
        min_ps(__m512: [f32; 16], x, y) = if x < y { x } else { y };
        min_pd(__m512d: [f64; 8], x, y) = if x < y { x } else { y };
        max_ps(__m512: [f32; 16], x, y) = if x > y { x } else { y };
        max_pd(__m512d: [f64; 8], x, y) = if x > y { x } else { y };
        scale_ps(__m512: [f32; 16], x, n) = (f64::from(x) * 2_f64.powi(n as i32)) as f32;
        scale_pd(__m512d: [f64; 8], x, n) = x * 2_f64.powi(n as i32 / 2) * 2_f64.powi(n as i32 - n as i32 / 2);
    }
    pub(super) fn round_ps(a: __m512) -> __m512 {
        round_by_ps(a, a)
    }
    pub(super) fn round_pd(a: __m512d) -> __m512d {
        round_by_pd(a, a)
    }
    pub(super) fn floor_ps(a: __m512) -> __m512 {
        floor_by_ps(a, a)
    }
    pub(super) fn floor_pd(a: __m512d) -> __m512d {
        floor_by_pd(a, a)
    }
}
#[cfg(miri)]
use unknown_to_miri::{
    floor_pd, floor_ps, max_pd, max_ps, min_pd, min_ps, round_pd, round_ps, scale_pd, scale_ps,
};

/// Lane i of the result is lane i ^ distance.
#[inline]
#[target_feature(enable = "avx512f")]
fn butterfly_ps(a: __m512, distance: usize) -> __m512 {
    match distance {
        1 => _mm512_permute_ps::<0b10_11_00_01>(a),
        2 => _mm512_permute_ps::<0b01_00_11_10>(a),
        4 => _mm512_shuffle_f32x4::<0b10_11_00_01>(a, a),
        _ => _mm512_shuffle_f32x4::<0b01_00_11_10>(a, a),
    }
}

/// Lane i of the result is lane i ^ distance.
#[inline]
#[target_feature(enable = "avx512f")]
fn butterfly_pd(a: __m512d, distance: usize) -> __m512d {
    match distance {
        1 => _mm512_permute_pd::<0b0101_0101>(a),
        2 => _mm512_shuffle_f64x2::<0b10_11_00_01>(a, a),
        _ => _mm512_shuffle_f64x2::<0b01_00_11_10>(a, a),
    }
}

impl HalfLanes for Avx512 {
    #[inline(always)]
    unsafe fn load_f16(self, at: *const f16) -> __m512 {
        // SAFETY: the caller lets us read 16 elements of 2 bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, at: *mut f16, v: __m512) {
        // SAFETY: the caller lets us write 16 elements of 2 bytes.
        unsafe { _mm256_storeu_si256(at.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, at: *const bf16) -> __m512 {
        // SAFETY: the caller lets us read 16 elements of 2 bytes.
        unsafe { widen_bf16(_mm256_loadu_si256(at.cast())) }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut bf16, v: __m512) {
        // SAFETY: the caller lets us write 16 elements of 2 bytes.
        unsafe { _mm256_storeu_si256(at.cast(), round_to_bf16(v)) }
    }
    #[inline(always)]
    unsafe fn load_f16_first(self, at: *const f16, n: usize) -> __m512 {
        // SAFETY: the mask keeps the load to n elements.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), at.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16_first(self, at: *mut f16, v: __m512, n: usize) {
        // SAFETY: the mask keeps the store to n elements.
        unsafe {
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
            _mm256_mask_storeu_epi16(at.cast(), first_lanes(n), halves);
        }
    }
    #[inline(always)]
    unsafe fn load_bf16_first(self, at: *const bf16, n: usize) -> __m512 {
        // SAFETY: the mask keeps the load to n elements.
        unsafe { widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), at.cast())) }
    }
    #[inline(always)]
    unsafe fn store_bf16_first(self, at: *mut bf16, v: __m512, n: usize) {
        // SAFETY: the mask keeps the store to n elements.
        unsafe { _mm256_mask_storeu_epi16(at.cast(), first_lanes(n), round_to_bf16(v)) }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn widen_bf16(halves: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
}

/// Rounds to the nearest bfloat, ties to even; a NaN stays one.
#[inline]
#[target_feature(enable = "avx512f")]
fn round_to_bf16(v: __m512) -> __m256i {
    let bits = _mm512_castps_si512(v);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
    let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
    _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(_mm512_mask_blend_epi32(is_nan, rounded, quiet)))
}

impl Simd for Avx512 {
    #[inline(always)]
    fn look_up(self, table: &[f32; MAX_LANES], at: &[u32; MAX_LANES]) -> [f32; MAX_LANES] {
        let mut found = [0.0; MAX_LANES];
        // SAFETY: the token proves that the CPU has the instructions; every array has sixteen lanes.
        unsafe {
            let (table, at) = (_mm512_loadu_ps(table.as_ptr()), _mm512_loadu_si512(at.as_ptr().cast()));
            _mm512_storeu_ps(found.as_mut_ptr(), _mm512_permutexvar_ps(at, table));
        }
        found
    }
}
