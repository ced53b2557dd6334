//! NEON: four lanes of `f32`, two of `f64`. Every AArch64 CPU has it, so no operation needs a check.
use super::{HalfLanes, Lanes, Simd};
use half::bf16;
#[allow(clippy::wildcard_imports)] // the intrinsics are named after their instructions
use std::arch::aarch64::*;

/// Proof that this is an AArch64 CPU.
#[derive(Clone, Copy, Debug)]
pub struct Neon(());

impl Neon {
    /// The token.
    #[allow(clippy::unnecessary_wraps)] // the same shape as on the other instruction sets
    pub fn new() -> Option<Self> {
        Some(Self(()))
    }
}

/// The methods of both element types: the first list names the instructions that touch memory, the second
/// gives a body for each lane-wise method.
macro_rules! lanes {
    ($t:ident, $v:ident, $m:ident, $n:literal, load $load:ident, store $store:ident;
     $($name:ident($($arg:ident: $arg_t:ty),*) -> $r:ty = $body:expr;)*) => {
                impl Lanes<$t> for Neon {
            type V = $v;
            type M = $m;
            const LANES: usize = $n;

            #[inline(always)]
            unsafe fn load(self, at: *const $t) -> $v {
                // SAFETY: the caller lets us read LANES elements.
                unsafe { $load(at) }
            }
            #[inline(always)]
            unsafe fn load_first(self, at: *const $t, n: usize) -> $v {
                let mut some = [0.0; $n];
                // SAFETY: n <= LANES elements may be read; `some` has room for them and is read as a whole.
                unsafe {
                    std::ptr::copy_nonoverlapping(at, some.as_mut_ptr(), n.min($n));
                    $load(some.as_ptr())
                }
            }
            #[inline(always)]
            unsafe fn store(self, at: *mut $t, v: $v) {
                // SAFETY: the caller lets us write LANES elements.
                unsafe { $store(at, v) }
            }
            #[inline(always)]
            unsafe fn store_first(self, at: *mut $t, v: $v, n: usize) {
                let mut all = [0.0; $n];
                // SAFETY: `all` has LANES elements, and n <= LANES of them may be written.
                unsafe {
                    $store(all.as_mut_ptr(), v);
                    std::ptr::copy_nonoverlapping(all.as_ptr(), at, n.min($n));
                }
            }
            #[inline(always)]
            unsafe fn stream(self, at: *mut $t, v: $v) {
                // SAFETY: the caller lets us write LANES elements.
                unsafe { $store(at, v) }
            }
            #[inline(always)]
            fn fence(self) {}

            $(#[inline(always)]
            fn $name(self, $($arg: $arg_t),*) -> $r {
                // SAFETY: every AArch64 CPU has the instructions.
                unsafe { $body }
            })*
        }
    };
}

lanes! {
    f32, float32x4_t, uint32x4_t, 4, load vld1q_f32, store vst1q_f32;
    splat(x: f32) -> float32x4_t = vdupq_n_f32(x);
    add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
    sub(a: float32x4_t, b: float32x4_t) -> float32x4_t = vsubq_f32(a, b);
    mul(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmulq_f32(a, b);
    div(a: float32x4_t, b: float32x4_t) -> float32x4_t = vdivq_f32(a, b);
    mul_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
    neg_mul_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmsq_f32(c, a, b);
    sqrt(a: float32x4_t) -> float32x4_t = vsqrtq_f32(a);
    min(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcltq_f32(a, b), a, b);
    max(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcgtq_f32(a, b), a, b);
    min_nan(a: float32x4_t, b: float32x4_t) -> float32x4_t = vminq_f32(a, b);
    max_nan(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmaxq_f32(a, b);
    round(a: float32x4_t) -> float32x4_t = vrndnq_f32(a);
    floor(a: float32x4_t) -> float32x4_t = vrndmq_f32(a);
    and(a: float32x4_t, b: float32x4_t) -> float32x4_t = float_32(vandq_u32(bits_32(a), bits_32(b)));
    or(a: float32x4_t, b: float32x4_t) -> float32x4_t = float_32(vorrq_u32(bits_32(a), bits_32(b)));
    xor(a: float32x4_t, b: float32x4_t) -> float32x4_t = float_32(veorq_u32(bits_32(a), bits_32(b)));
    add_bits(a: float32x4_t, b: float32x4_t) -> float32x4_t = float_32(vaddq_u32(bits_32(a), bits_32(b)));
    shl_mantissa(a: float32x4_t) -> float32x4_t = float_32(vshlq_n_u32::<23>(bits_32(a)));
    shr_mantissa(a: float32x4_t) -> float32x4_t = float_32(vshrq_n_u32::<23>(bits_32(a)));
    lt(a: float32x4_t, b: float32x4_t) -> uint32x4_t = vcltq_f32(a, b);
    le(a: float32x4_t, b: float32x4_t) -> uint32x4_t = vcleq_f32(a, b);
    eq(a: float32x4_t, b: float32x4_t) -> uint32x4_t = vceqq_f32(a, b);
    ne(a: float32x4_t, b: float32x4_t) -> uint32x4_t = vmvnq_u32(vceqq_f32(a, b));
    select(m: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(m, a, b);
    mask_and(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t = vandq_u32(a, b);
    mask_or(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t = vorrq_u32(a, b);
    mask_not(a: uint32x4_t) -> uint32x4_t = vmvnq_u32(a);
    mask_bits(m: uint32x4_t) -> u32 = {
        let bit = vcombine_u32(vcreate_u32(0x2_0000_0001), vcreate_u32(0x8_0000_0004));
        vaddvq_u32(vandq_u32(m, bit))
    };
    butterfly(a: float32x4_t, distance: usize) -> float32x4_t =
        if distance == 1 { vrev64q_f32(a) } else { vextq_f32::<2>(a, a) };
    first(a: float32x4_t) -> f32 = vgetq_lane_f32::<0>(a);
}

lanes! {
    f64, float64x2_t, uint64x2_t, 2, load vld1q_f64, store vst1q_f64;
    splat(x: f64) -> float64x2_t = vdupq_n_f64(x);
    add(a: float64x2_t, b: float64x2_t) -> float64x2_t = vaddq_f64(a, b);
    sub(a: float64x2_t, b: float64x2_t) -> float64x2_t = vsubq_f64(a, b);
    mul(a: float64x2_t, b: float64x2_t) -> float64x2_t = vmulq_f64(a, b);
    div(a: float64x2_t, b: float64x2_t) -> float64x2_t = vdivq_f64(a, b);
    mul_add(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t = vfmaq_f64(c, a, b);
    neg_mul_add(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t = vfmsq_f64(c, a, b);
    sqrt(a: float64x2_t) -> float64x2_t = vsqrtq_f64(a);
    min(a: float64x2_t, b: float64x2_t) -> float64x2_t = vbslq_f64(vcltq_f64(a, b), a, b);
    max(a: float64x2_t, b: float64x2_t) -> float64x2_t = vbslq_f64(vcgtq_f64(a, b), a, b);
    min_nan(a: float64x2_t, b: float64x2_t) -> float64x2_t = vminq_f64(a, b);
    max_nan(a: float64x2_t, b: float64x2_t) -> float64x2_t = vmaxq_f64(a, b);
    round(a: float64x2_t) -> float64x2_t = vrndnq_f64(a);
    floor(a: float64x2_t) -> float64x2_t = vrndmq_f64(a);
    and(a: float64x2_t, b: float64x2_t) -> float64x2_t = float_64(vandq_u64(bits_64(a), bits_64(b)));
    or(a: float64x2_t, b: float64x2_t) -> float64x2_t = float_64(vorrq_u64(bits_64(a), bits_64(b)));
    xor(a: float64x2_t, b: float64x2_t) -> float64x2_t = float_64(veorq_u64(bits_64(a), bits_64(b)));
    add_bits(a: float64x2_t, b: float64x2_t) -> float64x2_t = float_64(vaddq_u64(bits_64(a), bits_64(b)));
    shl_mantissa(a: float64x2_t) -> float64x2_t = float_64(vshlq_n_u64::<52>(bits_64(a)));
    shr_mantissa(a: float64x2_t) -> float64x2_t = float_64(vshrq_n_u64::<52>(bits_64(a)));
    lt(a: float64x2_t, b: float64x2_t) -> uint64x2_t = vcltq_f64(a, b);
    le(a: float64x2_t, b: float64x2_t) -> uint64x2_t = vcleq_f64(a, b);
    eq(a: float64x2_t, b: float64x2_t) -> uint64x2_t = vceqq_f64(a, b);
    ne(a: float64x2_t, b: float64x2_t) -> uint64x2_t =
        vreinterpretq_u64_u32(vmvnq_u32(vreinterpretq_u32_u64(vceqq_f64(a, b))));
    select(m: uint64x2_t, a: float64x2_t, b: float64x2_t) -> float64x2_t = vbslq_f64(m, a, b);
    mask_and(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t = vandq_u64(a, b);
    mask_or(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t = vorrq_u64(a, b);
    mask_not(a: uint64x2_t) -> uint64x2_t = vreinterpretq_u64_u32(vmvnq_u32(vreinterpretq_u32_u64(a)));
    mask_bits(m: uint64x2_t) -> u32 =
        (vgetq_lane_u64::<0>(m) & 1 | vgetq_lane_u64::<1>(m) & 2) as u32;
    butterfly(a: float64x2_t, _distance: usize) -> float64x2_t = vextq_f64::<1>(a, a);
    first(a: float64x2_t) -> f64 = vgetq_lane_f64::<0>(a);
}

#[inline(always)]
fn bits_32(a: float32x4_t) -> uint32x4_t {
    // SAFETY: every AArch64 CPU has the instruction.
    unsafe { vreinterpretq_u32_f32(a) }
}

#[inline(always)]
fn float_32(a: uint32x4_t) -> float32x4_t {
    // SAFETY: every AArch64 CPU has the instruction.
    unsafe { vreinterpretq_f32_u32(a) }
}

#[inline(always)]
fn bits_64(a: float64x2_t) -> uint64x2_t {
    // SAFETY: every AArch64 CPU has the instruction.
    unsafe { vreinterpretq_u64_f64(a) }
}

#[inline(always)]
fn float_64(a: uint64x2_t) -> float64x2_t {
    // SAFETY: every AArch64 CPU has the instruction.
    unsafe { vreinterpretq_f64_u64(a) }
}

impl HalfLanes for Neon {
    #[inline(always)]
    unsafe fn load_bf16(self, at: *const bf16) -> float32x4_t {
        // SAFETY: the caller lets us read 4 elements of 2 bytes.
        float_32(unsafe { vshll_n_u16::<16>(vld1_u16(at.cast())) })
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut bf16, v: float32x4_t) {
        let bits = bits_32(v);
        // SAFETY: the caller lets us write 4 elements of 2 bytes.
        unsafe {
            let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
            let rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
            let quiet = vorrq_u32(bits, vdupq_n_u32(0x40_0000));
            let narrow = vshrn_n_u32::<16>(vbslq_u32(vceqq_f32(v, v), rounded, quiet));
            vst1_u16(at.cast(), narrow);
        }
    }
}

impl Simd for Neon {}
