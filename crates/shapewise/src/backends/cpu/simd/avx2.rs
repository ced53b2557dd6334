//! AVX2 with FMA and F16C: eight lanes of `f32`, four of `f64`.
use super::{Apart, Float, HalfLanes, Lanes, MAX_LANES, Simd, forward};
use half::{bf16, f16};
#[allow(clippy::wildcard_imports)] // the intrinsics are named after their instructions
use std::arch::x86_64::*;

/// Proof that this CPU has AVX2, FMA and F16C.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

impl Avx2 {
    /// The token, if the CPU has the instructions.
    pub fn new() -> Option<Self> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }

    /// The token without asking the CPU.
    ///
    /// # Safety
    /// The CPU has AVX2, FMA and F16C.
    #[inline(always)]
    pub const unsafe fn new_unchecked() -> Self {
        Self(())
    }
}

/// Eight set and eight clear words: reading at 8 − n gives a mask of the first n.
static FIRST_32: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
/// The same for words of 64 bits.
static FIRST_64: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

/// A function of its own for [`Lanes::apart`].
#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
fn run_apart<T: Float, K: Apart<T>>(s: Avx2, task: K)
where
    Avx2: Lanes<T>,
{
    task.run(s);
}

impl Lanes<f32> for Avx2 {
    type V = __m256;
    type M = __m256;
    const LANES: usize = 8;

    #[inline(always)]
    fn apart<K: Apart<f32>>(self, task: K) {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe { run_apart(self, task) };
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    unsafe fn load(self, at: *const f32) -> Self::V {
        // SAFETY: the caller lets us read 8 elements.
        unsafe { _mm256_loadu_ps(at) }
    }
    #[inline(always)]
    unsafe fn load_first(self, at: *const f32, n: usize) -> Self::V {
        // SAFETY: the mask lies inside the table and keeps the load to n elements.
        unsafe {
            let mask = _mm256_loadu_si256(FIRST_32.as_ptr().add(8 - n.min(8)).cast());
            _mm256_maskload_ps(at, mask)
        }
    }
    #[inline(always)]
    unsafe fn pick(self, from: *const f32, at: *const u32) -> Self::V {
        // Loads and inserts: the gather instruction is slower on most CPUs that have no wider one.
        // SAFETY: the caller lets us read 8 indices and the elements they stand for.
        unsafe {
            let low = four_ps(
                _mm_load_ss(from.add(*at as usize)),
                _mm_load_ss(from.add(*at.add(1) as usize)),
                _mm_load_ss(from.add(*at.add(2) as usize)),
                _mm_load_ss(from.add(*at.add(3) as usize)),
            );
            let high = four_ps(
                _mm_load_ss(from.add(*at.add(4) as usize)),
                _mm_load_ss(from.add(*at.add(5) as usize)),
                _mm_load_ss(from.add(*at.add(6) as usize)),
                _mm_load_ss(from.add(*at.add(7) as usize)),
            );
            _mm256_set_m128(high, low)
        }
    }
    #[inline(always)]
    unsafe fn pick_half(self, from: *const f32, at: *const u32) -> Self::V {
        // SAFETY: the caller lets us read 4 indices and the elements they stand for.
        unsafe {
            _mm256_zextps128_ps256(four_ps(
                _mm_load_ss(from.add(*at as usize)),
                _mm_load_ss(from.add(*at.add(1) as usize)),
                _mm_load_ss(from.add(*at.add(2) as usize)),
                _mm_load_ss(from.add(*at.add(3) as usize)),
            ))
        }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32, v: Self::V) {
        // SAFETY: the caller lets us write 8 elements.
        unsafe { _mm256_storeu_ps(at, v) }
    }
    #[inline(always)]
    unsafe fn store_first(self, mut at: *mut f32, v: Self::V, n: usize) {
        // Masked stores are microcoded on AMD before Zen 4, so write 4, 2 and 1 lanes by the bits of n.
        // SAFETY: the pieces add up to n elements (all 8 for n = 8).
        unsafe {
            if n >= 8 {
                return _mm256_storeu_ps(at, v);
            }
            let mut rest = _mm256_castps256_ps128(v);
            if n & 4 != 0 {
                _mm_storeu_ps(at, rest);
                rest = _mm256_extractf128_ps::<1>(v);
                at = at.add(4);
            }
            if n & 2 != 0 {
                _mm_storel_pd(at.cast(), _mm_castps_pd(rest));
                rest = _mm_movehl_ps(rest, rest);
                at = at.add(2);
            }
            if n & 1 != 0 {
                _mm_store_ss(at, rest);
            }
        }
    }
    #[inline(always)]
    unsafe fn stream(self, at: *mut f32, v: Self::V) {
        // SAFETY: the caller lets us write 8 elements at this aligned address.
        unsafe { _mm256_stream_ps(at, v) }
    }
    #[inline(always)]
    fn fence(self) {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm_sfence() }
    }

    forward! {
        add(a, b) = _mm256_add_ps;
        sub(a, b) = _mm256_sub_ps;
        mul(a, b) = _mm256_mul_ps;
        div(a, b) = _mm256_div_ps;
        mul_add(a, b, c) = _mm256_fmadd_ps;
        neg_mul_add(a, b, c) = _mm256_fnmadd_ps;
        sqrt(a) = _mm256_sqrt_ps;
        min(a, b) = _mm256_min_ps;
        max(a, b) = _mm256_max_ps;
        round(a) = round_ps;
        floor(a) = _mm256_floor_ps;
        and(a, b) = _mm256_and_ps;
        or(a, b) = _mm256_or_ps;
        xor(a, b) = _mm256_xor_ps;
        add_bits(a, b) = add_bits_ps;
        shl_mantissa(a) = shl_mantissa_ps;
        shr_mantissa(a) = shr_mantissa_ps;
        lt(a, b) = lt_ps;
        le(a, b) = le_ps;
        eq(a, b) = eq_ps;
        ne(a, b) = ne_ps;
        mask_and(a, b) = _mm256_and_ps;
        mask_or(a, b) = _mm256_or_ps;
        mask_not(a) = not_ps;
    }

    #[inline(always)]
    fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm256_blendv_ps(b, a, m) }
    }
    #[inline(always)]
    fn mask_bits(self, m: Self::M) -> u32 {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm256_movemask_ps(m) as u32 }
    }
    #[inline(always)]
    fn reduce_add_four(self, [a, b, c, d]: [Self::V; 4]) -> [f32; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: the token proves that the CPU has the instructions, and there is room for four.
        unsafe {
            let halves = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
            let all = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
            _mm_storeu_ps(sums.as_mut_ptr(), all);
        }
        sums
    }
    #[inline(always)]
    fn butterfly(self, a: Self::V, distance: usize) -> Self::V {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe {
            match distance {
                1 => _mm256_permute_ps::<0b10_11_00_01>(a),
                2 => _mm256_permute_ps::<0b01_00_11_10>(a),
                _ => _mm256_permute2f128_ps::<1>(a, a),
            }
        }
    }
    const ORDER: [u8; MAX_LANES] = [0, 1, 4, 5, 2, 3, 6, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    #[inline(always)]
    fn unzip(self, a: Self::V, b: Self::V) -> (Self::V, Self::V) {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe { (_mm256_shuffle_ps::<0b10_00_10_00>(a, b), _mm256_shuffle_ps::<0b11_01_11_01>(a, b)) }
    }
    #[inline(always)]
    fn zip(self, even: Self::V, odd: Self::V) -> (Self::V, Self::V) {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe { (_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd)) }
    }
    #[inline(always)]
    fn transpose(self, rows: &mut [Self::V]) {
        let r: &mut [Self::V; 8] = (&mut rows[..8]).try_into().expect("eight rows");
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe {
            // Blocks of two by two, of four by four, then the halves of the registers. Macros, because closures may not be inlined.
            macro_rules! two {
                ($a:expr, $b:expr) => {
                    (_mm256_unpacklo_ps($a, $b), _mm256_unpackhi_ps($a, $b))
                };
            }
            macro_rules! four {
                ($a:expr, $b:expr) => {
                    (_mm256_shuffle_ps::<0b01_00_01_00>($a, $b), _mm256_shuffle_ps::<0b11_10_11_10>($a, $b))
                };
            }
            macro_rules! eight {
                ($a:expr, $b:expr) => {
                    (_mm256_permute2f128_ps::<0x20>($a, $b), _mm256_permute2f128_ps::<0x31>($a, $b))
                };
            }
            let ((a0, a1), (a2, a3)) = (two!(r[0], r[1]), two!(r[2], r[3]));
            let ((a4, a5), (a6, a7)) = (two!(r[4], r[5]), two!(r[6], r[7]));
            let ((b0, b1), (b2, b3)) = (four!(a0, a2), four!(a1, a3));
            let ((b4, b5), (b6, b7)) = (four!(a4, a6), four!(a5, a7));
            (r[0], r[4]) = eight!(b0, b4);
            (r[1], r[5]) = eight!(b1, b5);
            (r[2], r[6]) = eight!(b2, b6);
            (r[3], r[7]) = eight!(b3, b7);
        }
    }
    #[inline(always)]
    unsafe fn load_turned(self, from: *const f32, step: usize, columns: &mut [Self::V]) {
        let columns: &mut [Self::V; 8] = (&mut columns[..8]).try_into().expect("eight columns");
        // Halves of registers meet on the way from memory, which takes no instruction that crosses them.
        // SAFETY: the caller lets us read eight rows of eight elements.
        unsafe {
            macro_rules! halves {
                ($low:literal, $high:literal, $at:expr) => {
                    _mm256_insertf128_ps::<1>(
                        _mm256_castps128_ps256(_mm_loadu_ps(from.add($low * step + $at))),
                        _mm_loadu_ps(from.add($high * step + $at)),
                    )
                };
            }
            macro_rules! four {
                ($at:literal) => {
                    let (a, b) = (halves!(0, 2, $at), halves!(1, 3, $at));
                    let (c, d) = (halves!(4, 6, $at), halves!(5, 7, $at));
                    let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
                    columns[$at] = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
                    columns[$at + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd);
                    let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
                    columns[$at + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
                    columns[$at + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd);
                };
            }
            four!(0);
            four!(4);
        }
    }
    #[inline(always)]
    fn first(self, a: Self::V) -> f32 {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm256_cvtss_f32(a) }
    }
}

impl Lanes<f64> for Avx2 {
    type V = __m256d;
    type M = __m256d;
    const LANES: usize = 4;

    #[inline(always)]
    fn apart<K: Apart<f64>>(self, task: K) {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe { run_apart(self, task) };
    }
    #[inline(always)]
    fn splat(self, x: f64) -> Self::V {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm256_set1_pd(x) }
    }
    #[inline(always)]
    unsafe fn load(self, at: *const f64) -> Self::V {
        // SAFETY: the caller lets us read 4 elements.
        unsafe { _mm256_loadu_pd(at) }
    }
    #[inline(always)]
    unsafe fn load_first(self, at: *const f64, n: usize) -> Self::V {
        // SAFETY: the mask lies inside the table and keeps the load to n elements.
        unsafe {
            let mask = _mm256_loadu_si256(FIRST_64.as_ptr().add(4 - n.min(4)).cast());
            _mm256_maskload_pd(at, mask)
        }
    }
    #[inline(always)]
    unsafe fn pick(self, from: *const f64, at: *const u32) -> Self::V {
        // SAFETY: the caller lets us read 4 indices and the elements they stand for.
        unsafe {
            let (a, b) = (from.add(*at as usize), from.add(*at.add(1) as usize));
            let (c, d) = (from.add(*at.add(2) as usize), from.add(*at.add(3) as usize));
            _mm256_set_m128d(_mm_loadh_pd(_mm_load_sd(c), d), _mm_loadh_pd(_mm_load_sd(a), b))
        }
    }
    #[inline(always)]
    unsafe fn pick_half(self, from: *const f64, at: *const u32) -> Self::V {
        // SAFETY: the caller lets us read 2 indices and the elements they stand for.
        unsafe {
            let (a, b) = (from.add(*at as usize), from.add(*at.add(1) as usize));
            _mm256_zextpd128_pd256(_mm_loadh_pd(_mm_load_sd(a), b))
        }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f64, v: Self::V) {
        // SAFETY: the caller lets us write 4 elements.
        unsafe { _mm256_storeu_pd(at, v) }
    }
    #[inline(always)]
    unsafe fn store_first(self, mut at: *mut f64, v: Self::V, n: usize) {
        // SAFETY: the pieces add up to n elements (all 4 for n = 4).
        unsafe {
            if n >= 4 {
                return _mm256_storeu_pd(at, v);
            }
            let mut rest = _mm256_castpd256_pd128(v);
            if n & 2 != 0 {
                _mm_storeu_pd(at, rest);
                rest = _mm256_extractf128_pd::<1>(v);
                at = at.add(2);
            }
            if n & 1 != 0 {
                _mm_store_sd(at, rest);
            }
        }
    }
    #[inline(always)]
    unsafe fn stream(self, at: *mut f64, v: Self::V) {
        // SAFETY: the caller lets us write 4 elements at this aligned address.
        unsafe { _mm256_stream_pd(at, v) }
    }
    #[inline(always)]
    fn fence(self) {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm_sfence() }
    }

    forward! {
        add(a, b) = _mm256_add_pd;
        sub(a, b) = _mm256_sub_pd;
        mul(a, b) = _mm256_mul_pd;
        div(a, b) = _mm256_div_pd;
        mul_add(a, b, c) = _mm256_fmadd_pd;
        neg_mul_add(a, b, c) = _mm256_fnmadd_pd;
        sqrt(a) = _mm256_sqrt_pd;
        min(a, b) = _mm256_min_pd;
        max(a, b) = _mm256_max_pd;
        round(a) = round_pd;
        floor(a) = _mm256_floor_pd;
        and(a, b) = _mm256_and_pd;
        or(a, b) = _mm256_or_pd;
        xor(a, b) = _mm256_xor_pd;
        add_bits(a, b) = add_bits_pd;
        shl_mantissa(a) = shl_mantissa_pd;
        shr_mantissa(a) = shr_mantissa_pd;
        lt(a, b) = lt_pd;
        le(a, b) = le_pd;
        eq(a, b) = eq_pd;
        ne(a, b) = ne_pd;
        mask_and(a, b) = _mm256_and_pd;
        mask_or(a, b) = _mm256_or_pd;
        mask_not(a) = not_pd;
    }

    #[inline(always)]
    fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm256_blendv_pd(b, a, m) }
    }
    #[inline(always)]
    fn mask_bits(self, m: Self::M) -> u32 {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm256_movemask_pd(m) as u32 }
    }
    #[inline(always)]
    fn reduce_add_four(self, [a, b, c, d]: [Self::V; 4]) -> [f64; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: the token proves that the CPU has the instructions, and there is room for four.
        unsafe {
            let (ab, cd) = (_mm256_hadd_pd(a, b), _mm256_hadd_pd(c, d));
            let (low, high) =
                (_mm256_permute2f128_pd::<0x20>(ab, cd), _mm256_permute2f128_pd::<0x31>(ab, cd));
            _mm256_storeu_pd(sums.as_mut_ptr(), _mm256_add_pd(low, high));
        }
        sums
    }
    #[inline(always)]
    fn butterfly(self, a: Self::V, distance: usize) -> Self::V {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe {
            match distance {
                1 => _mm256_permute_pd::<0b0101>(a),
                _ => _mm256_permute2f128_pd::<1>(a, a),
            }
        }
    }
    const ORDER: [u8; MAX_LANES] = [0, 2, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    #[inline(always)]
    fn unzip(self, a: Self::V, b: Self::V) -> (Self::V, Self::V) {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe { (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b)) }
    }
    #[inline(always)]
    fn zip(self, even: Self::V, odd: Self::V) -> (Self::V, Self::V) {
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe { (_mm256_unpacklo_pd(even, odd), _mm256_unpackhi_pd(even, odd)) }
    }
    #[inline(always)]
    fn transpose(self, rows: &mut [Self::V]) {
        let r: &mut [Self::V; 4] = (&mut rows[..4]).try_into().expect("four rows");
        // SAFETY: the token proves that the CPU has the instructions.
        unsafe {
            let (a0, a1) = (_mm256_unpacklo_pd(r[0], r[1]), _mm256_unpackhi_pd(r[0], r[1]));
            let (a2, a3) = (_mm256_unpacklo_pd(r[2], r[3]), _mm256_unpackhi_pd(r[2], r[3]));
            r[0] = _mm256_permute2f128_pd::<0x20>(a0, a2);
            r[1] = _mm256_permute2f128_pd::<0x20>(a1, a3);
            r[2] = _mm256_permute2f128_pd::<0x31>(a0, a2);
            r[3] = _mm256_permute2f128_pd::<0x31>(a1, a3);
        }
    }
    #[inline(always)]
    unsafe fn load_turned(self, from: *const f64, step: usize, columns: &mut [Self::V]) {
        let columns: &mut [Self::V; 4] = (&mut columns[..4]).try_into().expect("four columns");
        // SAFETY: the caller lets us read four rows of four elements.
        unsafe {
            macro_rules! two {
                ($at:literal) => {
                    let (low, high) = (from.add($at), from.add(step + $at));
                    let a = _mm256_insertf128_pd::<1>(
                        _mm256_castpd128_pd256(_mm_loadu_pd(low)),
                        _mm_loadu_pd(high),
                    );
                    let (low, high) = (low.add(2 * step), high.add(2 * step));
                    let b = _mm256_insertf128_pd::<1>(
                        _mm256_castpd128_pd256(_mm_loadu_pd(low)),
                        _mm_loadu_pd(high),
                    );
                    columns[$at] = _mm256_unpacklo_pd(a, b);
                    columns[$at + 1] = _mm256_unpackhi_pd(a, b);
                };
            }
            two!(0);
            two!(2);
        }
    }
    #[inline(always)]
    fn first(self, a: Self::V) -> f64 {
        // SAFETY: the token proves that the CPU has the instruction.
        unsafe { _mm256_cvtsd_f64(a) }
    }
}

/// Four lanes from the first lane of each; numbers in memory are inserted from there.
#[inline]
#[target_feature(enable = "avx2")]
fn four_ps(a: __m128, b: __m128, c: __m128, d: __m128) -> __m128 {
    _mm_insert_ps::<0x30>(_mm_insert_ps::<0x20>(_mm_insert_ps::<0x10>(a, b), c), d)
}

/// Instructions with a fixed immediate, or integer ones on the bits of floats.
macro_rules! with_immediate {
    ($($name:ident($($arg:ident),*: $v:ident) = $body:expr;)*) => {$(
        #[inline]
        #[target_feature(enable = "avx2")]
        fn $name($($arg: $v),*) -> $v {
            $body
        }
    )*};
}
with_immediate! {
    round_ps(a: __m256) = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
    round_pd(a: __m256d) = _mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
    lt_ps(a, b: __m256) = _mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
    lt_pd(a, b: __m256d) = _mm256_cmp_pd::<_CMP_LT_OQ>(a, b);
    le_ps(a, b: __m256) = _mm256_cmp_ps::<_CMP_LE_OQ>(a, b);
    le_pd(a, b: __m256d) = _mm256_cmp_pd::<_CMP_LE_OQ>(a, b);
    eq_ps(a, b: __m256) = _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b);
    eq_pd(a, b: __m256d) = _mm256_cmp_pd::<_CMP_EQ_OQ>(a, b);
    ne_ps(a, b: __m256) = _mm256_cmp_ps::<_CMP_NEQ_UQ>(a, b);
    ne_pd(a, b: __m256d) = _mm256_cmp_pd::<_CMP_NEQ_UQ>(a, b);
    not_ps(a: __m256) = _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1)));
    not_pd(a: __m256d) = _mm256_xor_pd(a, _mm256_castsi256_pd(_mm256_set1_epi32(-1)));
    add_bits_ps(a, b: __m256) =
        _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
    add_bits_pd(a, b: __m256d) =
        _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(a), _mm256_castpd_si256(b)));
    shl_mantissa_ps(a: __m256) = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_castps_si256(a)));
    shl_mantissa_pd(a: __m256d) = _mm256_castsi256_pd(_mm256_slli_epi64::<52>(_mm256_castpd_si256(a)));
    shr_mantissa_ps(a: __m256) = _mm256_castsi256_ps(_mm256_srli_epi32::<23>(_mm256_castps_si256(a)));
    shr_mantissa_pd(a: __m256d) = _mm256_castsi256_pd(_mm256_srli_epi64::<52>(_mm256_castpd_si256(a)));
}

impl HalfLanes for Avx2 {
    #[inline(always)]
    unsafe fn load_f16(self, at: *const f16) -> __m256 {
        // SAFETY: the caller lets us read 8 elements of 2 bytes.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, at: *mut f16, v: __m256) {
        // SAFETY: the caller lets us write 8 elements of 2 bytes.
        unsafe { _mm_storeu_si128(at.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(self, at: *const bf16) -> __m256 {
        // SAFETY: the caller lets us read 8 elements of 2 bytes.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut bf16, v: __m256) {
        // SAFETY: the caller lets us write 8 elements of 2 bytes.
        unsafe { _mm_storeu_si128(at.cast(), round_to_bf16(v)) }
    }
}

/// Rounds to the nearest bfloat, ties to even; a NaN stays one.
#[inline]
#[target_feature(enable = "avx2")]
fn round_to_bf16(v: __m256) -> __m128i {
    let bits = _mm256_castps_si256(v);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x40_0000));
    let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
    let high = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, is_nan));
    let packed = _mm256_packus_epi32(high, high);
    _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b10_00>(packed))
}

impl Simd for Avx2 {
    #[inline(always)]
    fn look_up(self, table: &[f32; MAX_LANES], at: &[u32; MAX_LANES]) -> [f32; MAX_LANES] {
        let mut found = [0.0; MAX_LANES];
        // SAFETY: the token proves that the CPU has the instructions; every array has two registers of eight lanes.
        unsafe {
            let (low, high) = (_mm256_loadu_ps(table.as_ptr()), _mm256_loadu_ps(table.as_ptr().add(8)));
            for half in [0, 8] {
                let at = _mm256_loadu_si256(at.as_ptr().add(half).cast());
                let (low, high) = (_mm256_permutevar8x32_ps(low, at), _mm256_permutevar8x32_ps(high, at));
                // The bit worth eight becomes the sign, which chooses.
                let upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(at));
                _mm256_storeu_ps(found.as_mut_ptr().add(half), _mm256_blendv_ps(low, high, upper));
            }
        }
        found
    }
}
