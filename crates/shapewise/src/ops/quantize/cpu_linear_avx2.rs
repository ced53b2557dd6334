//! Stretches with AVX2, 32 elements at a time.
#![allow(unsafe_code)]
#![allow(clippy::wildcard_imports)] // the instructions

use std::arch::x86_64::*;

use super::QuantType;
use super::cpu_linear::{STEP, Scales, Way};
use crate::backends::cpu::real::prefetch_write;

/// Kinds as constants, so that each loop is compiled for its own.
mod kind {
    pub const I8: u8 = 0;
    pub const U8: u8 = 1;
    pub const I16: u8 = 2;
    pub const I4: u8 = 3;
    pub const U4: u8 = 4;
    pub const I32: u8 = 5;
}

/// Makes stores past the caches visible to others.
pub(super) fn fence() {
    // SAFETY: every x86-64 has the instruction.
    unsafe { _mm_sfence() };
}

/// # Safety
/// The CPU has AVX2; the rest as for the portable one.
pub(super) unsafe fn quantise(
    which: QuantType,
    x: *const f32,
    n: usize,
    s: Scales,
    y: *mut u8,
    stream: bool,
) {
    macro_rules! run {
        ($kind:ident) => {
            if s.step == 0 {
                quantise_as::<{ kind::$kind }, false>(which, x, n, s, y, stream)
            } else {
                quantise_as::<{ kind::$kind }, true>(which, x, n, s, y, stream)
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        match which {
            QuantType::I8 if s.step == 0 => quantise_near::<{ kind::I8 }>(which, x, n, s, y, stream),
            QuantType::U8 if s.step == 0 => quantise_near::<{ kind::U8 }>(which, x, n, s, y, stream),
            QuantType::I8 => quantise_as::<{ kind::I8 }, true>(which, x, n, s, y, stream),
            QuantType::U8 => quantise_as::<{ kind::U8 }, true>(which, x, n, s, y, stream),
            QuantType::I16 => run!(I16),
            QuantType::I4 => run!(I4),
            QuantType::U4 => run!(U4),
            QuantType::I32 => super::cpu_linear_portable::quantise(which, x, n, s, y),
        }
    }
}

/// # Safety
/// The CPU has AVX2; the rest as for the portable one.
pub(super) unsafe fn dequantise(which: QuantType, q: *const u8, n: usize, s: Scales, y: *mut f32, way: Way) {
    macro_rules! run {
        ($kind:ident) => {
            if s.step == 0 {
                dequantise_as::<{ kind::$kind }, false>(which, q, n, s, y, way)
            } else {
                dequantise_as::<{ kind::$kind }, true>(which, q, n, s, y, way)
            }
        };
    }
    // SAFETY: the caller's promise.
    unsafe {
        match which {
            QuantType::I8 => run!(I8),
            QuantType::U8 => run!(U8),
            QuantType::I16 => run!(I16),
            QuantType::I4 => run!(I4),
            QuantType::U4 => run!(U4),
            QuantType::I32 => run!(I32),
        }
    }
}

/// # Safety
/// As for [`quantise`].
#[target_feature(enable = "avx2,fma")]
unsafe fn quantise_as<const KIND: u8, const EACH: bool>(
    which: QuantType,
    x: *const f32,
    n: usize,
    s: Scales,
    y: *mut u8,
    stream: bool,
) {
    let (low, high) = which.range();
    let stream = stream && y.addr().is_multiple_of(STEP);
    // SAFETY: a stretch has at least one scale.
    let mut current = unsafe { Current::<EACH>::new(s) };
    let mut borders = current.borders(low, high);
    // SAFETY: as above.
    let divisor = if EACH { None } else { Divisor::new(unsafe { *s.scale }, borders) };
    let mut i = 0;
    while i + STEP <= n {
        let mut v = [_mm256_setzero_si256(); 4];
        for (part, v) in v.iter_mut().enumerate() {
            let at = i + 8 * part;
            if EACH {
                // SAFETY: there is a scale for each of the eight.
                current = unsafe { Current::<EACH>::load(s, at) };
                borders = current.borders(low, high);
            }
            // SAFETY: at + 8 <= n.
            let x = unsafe { _mm256_loadu_ps(x.add(at)) };
            let x = match &divisor {
                Some(divisor) => divisor.quotient(x),
                None => _mm256_div_ps(x, current.scale),
            };
            // The second operand wins where the first is NaN.
            let x = _mm256_min_ps(_mm256_max_ps(x, borders.0), borders.1);
            *v = _mm256_add_epi32(_mm256_cvtps_epi32(x), current.zero);
        }
        // SAFETY: there is room for the integers of a whole step.
        unsafe { store::<KIND>(y, i, v, stream) };
        i += STEP;
    }
    if i < n {
        let y = y.wrapping_add(which.bytes(i));
        let s = if EACH { Scales { scale: s.scale.wrapping_add(i), zero: ahead(s.zero, i), ..s } } else { s };
        // SAFETY: the rest of the stretch.
        unsafe { super::cpu_linear_portable::quantise(which, x.add(i), n - i, s, y) };
    }
}

/// How far ahead numbers are asked for: a few hundred nanoseconds of work, found by trying on Zen 3.
const AHEAD: usize = 1024;

/// Bytes that numbers are asked for before they are written.
const RESULTS_AHEAD: usize = 1 << 10;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Bytes with one scale: steps whose quotients are surely rounded as products with the reciprocal are, others divide.
///
/// # Safety
/// As for [`quantise`], for one scale.
#[target_feature(enable = "avx2,fma")]
unsafe fn quantise_near<const KIND: u8>(
    which: QuantType,
    x: *const f32,
    n: usize,
    s: Scales,
    y: *mut u8,
    stream: bool,
) {
    let aligned = stream && y.addr().is_multiple_of(STEP);
    let mut i = 0;
    // SAFETY: a stretch has at least one scale; every step lies inside it.
    unsafe {
        if let Some(near) = Near::new(s.of(0)) {
            while i + STEP <= n {
                for line in 0..STEP / 16 {
                    _mm_prefetch::<_MM_HINT_T0>(x.wrapping_add(i + AHEAD + 16 * line).cast());
                }
                match near.step::<KIND>(x.add(i)) {
                    Some(bytes) => put(y.add(i), bytes, aligned),
                    None => quantise_as::<KIND, false>(which, x.add(i), STEP, s, y.add(i), stream),
                }
                i += STEP;
            }
        }
        quantise_as::<KIND, false>(which, x.add(i), n - i, s, y.add(i), stream);
    }
}

/// Products with a reciprocal that is a little too large and with one that is a little too small: where both are rounded to the
/// same integer, the quotient between them is too.
struct Near {
    large: __m256,
    small: __m256,
    /// Leads beyond every range of bytes, so that nothing overflows upwards; downwards an overflow is the lowest integer.
    high: __m256,
    zero: __m256i,
}

impl Near {
    /// None for scales whose reciprocal, or products with it, could be rounded by more than their last bit.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn new((scale, zero): (f32, i32)) -> Option<Self> {
        // Reciprocal, factor, product and quotient are each rounded by 2⁻²⁴ at most: eight times that is apart enough.
        let apart = 8.0 * f32::EPSILON / 2.0;
        let reciprocal = 1.0 / scale;
        let exponent = (scale.to_bits() >> 23 & 0xff) as i32 - 127;
        (scale > 0.0 && exponent.abs() < 60).then_some(Self {
            large: _mm256_set1_ps(reciprocal * (1.0 + apart)),
            small: _mm256_set1_ps(reciprocal * (1.0 - apart)),
            high: _mm256_set1_ps(scale * 1024.0),
            zero: _mm256_set1_epi16(zero as i16),
        })
    }

    /// The bytes of a step, if they are sure.
    ///
    /// # Safety
    /// There are 32 numbers.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn step<const KIND: u8>(&self, x: *const f32) -> Option<__m256i> {
        let (mut more, mut less) = ([_mm256_setzero_si256(); 4], [_mm256_setzero_si256(); 4]);
        for part in 0..4 {
            // The second operand wins where it is NaN, which becomes the lowest integer.
            // SAFETY: the caller's promise.
            let x = _mm256_min_ps(self.high, unsafe { _mm256_loadu_ps(x.add(8 * part)) });
            more[part] = _mm256_cvtps_epi32(_mm256_mul_ps(x, self.large));
            less[part] = _mm256_cvtps_epi32(_mm256_mul_ps(x, self.small));
        }
        let more = [_mm256_packs_epi32(more[0], more[1]), _mm256_packs_epi32(more[2], more[3])];
        let less = [_mm256_packs_epi32(less[0], less[1]), _mm256_packs_epi32(less[2], less[3])];
        let same =
            _mm256_and_si256(_mm256_cmpeq_epi16(more[0], less[0]), _mm256_cmpeq_epi16(more[1], less[1]));
        let moved = [_mm256_adds_epi16(more[0], self.zero), _mm256_adds_epi16(more[1], self.zero)];
        let bytes = if KIND == kind::U8 {
            _mm256_packus_epi16(moved[0], moved[1])
        } else {
            _mm256_packs_epi16(moved[0], moved[1])
        };
        (_mm256_movemask_epi8(same) == -1).then_some(_mm256_permutevar8x32_epi32(bytes, eighths()))
    }
}

/// Puts the eighths in order that packing twice within halves has mixed.
#[inline]
#[target_feature(enable = "avx2")]
fn eighths() -> __m256i {
    _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)
}

fn ahead(zero: *const i32, by: usize) -> *const i32 {
    if zero.is_null() { zero } else { zero.wrapping_add(by) }
}

/// Division by one number, rounded as the division itself but in less time: a product with the reciprocal, corrected twice by
/// its remainder. With the reciprocal rounded to nearest the second correction is exact (Markstein 1990).
struct Divisor {
    by: __m256,
    reciprocal: __m256,
    /// What leads beyond the borders of the quotients, so that nothing overflows.
    low: __m256,
    high: __m256,
}

impl Divisor {
    /// None for scales so large or small that remainders of quotients that matter could be rounded.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn new(divisor: f32, borders: (__m256, __m256)) -> Option<Self> {
        let exponent = (divisor.to_bits() >> 23 & 0xff) as i32 - 127;
        let (one, vector) = (_mm256_set1_ps(1.0), _mm256_set1_ps(divisor));
        (divisor > 0.0 && exponent.abs() < 60).then_some(Self {
            by: vector,
            reciprocal: _mm256_set1_ps(1.0 / divisor),
            low: _mm256_mul_ps(_mm256_sub_ps(borders.0, one), vector),
            high: _mm256_mul_ps(_mm256_add_ps(borders.1, one), vector),
        })
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn quotient(&self, x: __m256) -> __m256 {
        // The second operand wins where the first is NaN.
        let x = _mm256_min_ps(_mm256_max_ps(x, self.low), self.high);
        let mut q = _mm256_mul_ps(x, self.reciprocal);
        for _ in 0..2 {
            q = _mm256_fmadd_ps(_mm256_fnmadd_ps(q, self.by, x), self.reciprocal, q);
        }
        q
    }
}

/// Scales and zero points of eight elements.
#[derive(Clone, Copy)]
struct Current<const EACH: bool> {
    scale: __m256,
    zero: __m256i,
}

impl<const EACH: bool> Current<EACH> {
    /// # Safety
    /// The stretch has one element.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn new(s: Scales) -> Self {
        // SAFETY: the caller's promise.
        let (scale, zero) = unsafe { s.of(0) };
        Self { scale: _mm256_set1_ps(scale), zero: _mm256_set1_epi32(zero) }
    }

    /// # Safety
    /// The stretch has a scale for each of the eight elements from `at` on.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load(s: Scales, at: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let zero = if s.zero.is_null() {
                _mm256_setzero_si256()
            } else {
                _mm256_loadu_si256(s.zero.add(at).cast())
            };
            Self { scale: _mm256_loadu_ps(s.scale.add(at)), zero }
        }
    }

    /// What the quotients are kept between, so that the zero point leads to the type's range.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn borders(&self, low: i32, high: i32) -> (__m256, __m256) {
        let border = |x: i32| _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_set1_epi32(x), self.zero));
        (border(low), border(high))
    }
}

/// Narrows 32 integers that are inside the type's range; the address of `y` is that of element 0.
///
/// # Safety
/// There is room for them; a stream starts at a multiple of 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store<const KIND: u8>(y: *mut u8, i: usize, v: [__m256i; 4], stream: bool) {
    let (low, high) = (_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    // Packing works within halves.
    // SAFETY: the caller's promise.
    unsafe {
        if KIND == kind::I16 {
            put(y.add(2 * i), _mm256_permute4x64_epi64::<0b11_01_10_00>(low), stream);
            put(y.add(2 * i + 32), _mm256_permute4x64_epi64::<0b11_01_10_00>(high), stream);
            return;
        }
        let bytes = if KIND == kind::U8 || KIND == kind::U4 {
            _mm256_packus_epi16(low, high)
        } else {
            _mm256_packs_epi16(low, high)
        };
        let bytes = _mm256_permutevar8x32_epi32(bytes, eighths());
        if KIND == kind::I8 || KIND == kind::U8 {
            put(y.add(i), bytes, stream);
            return;
        }
        // The second of two neighbours goes to the upper half of their byte.
        let halves = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
        let pairs = _mm256_maddubs_epi16(halves, _mm256_set1_epi16(0x1001));
        let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(pairs, pairs));
        _mm_storeu_si128(y.add(i / 2).cast(), _mm256_castsi256_si128(packed));
    }
}

/// # Safety
/// There is room; a stream is aligned to 32 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn put(at: *mut u8, v: __m256i, stream: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        if stream {
            _mm256_stream_si256(at.cast(), v);
        } else {
            _mm256_storeu_si256(at.cast(), v);
        }
    }
}

/// # Safety
/// As for [`dequantise`].
#[target_feature(enable = "avx2")]
unsafe fn dequantise_as<const KIND: u8, const EACH: bool>(
    which: QuantType,
    q: *const u8,
    n: usize,
    s: Scales,
    y: *mut f32,
    way: Way,
) {
    let stream = way.stream && y.addr().is_multiple_of(STEP);
    // SAFETY: a stretch has at least one scale.
    let mut current = unsafe { Current::<EACH>::new(s) };
    let mut i = 0;
    while i + STEP <= n {
        // SAFETY: a whole step is left.
        let v = unsafe { load::<KIND>(q, i) };
        if way.ahead {
            for line in 0..const { STEP * size_of::<f32>() / LINE } {
                prefetch_write(y.wrapping_add(i).wrapping_byte_add(RESULTS_AHEAD + LINE * line));
            }
        }
        for (part, v) in v.into_iter().enumerate() {
            let at = i + 8 * part;
            if EACH {
                // SAFETY: there is a scale for each of the eight.
                current = unsafe { Current::<EACH>::load(s, at) };
            }
            let x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(v, current.zero)), current.scale);
            // SAFETY: at + 8 <= n, and a stream keeps the alignment of its start.
            unsafe { put(y.add(at).cast(), _mm256_castps_si256(x), stream) };
        }
        i += STEP;
    }
    if i < n {
        let q = q.wrapping_add(which.bytes(i));
        let s = if EACH { Scales { scale: s.scale.wrapping_add(i), zero: ahead(s.zero, i), ..s } } else { s };
        // SAFETY: the rest of the stretch.
        unsafe { super::cpu_linear_portable::dequantise(which, q, n - i, s, y.add(i)) };
    }
}

/// 32 integers from element `i` on, widened; the address of `q` is that of element 0.
///
/// # Safety
/// They can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load<const KIND: u8>(q: *const u8, i: usize) -> [__m256i; 4] {
    let mut out = [_mm256_setzero_si256(); 4];
    // SAFETY: the caller's promise.
    unsafe {
        if KIND == kind::I4 || KIND == kind::U4 {
            let bytes = _mm_loadu_si128(q.add(i / 2).cast());
            let mask = _mm_set1_epi8(15);
            let (first, second) =
                (_mm_and_si128(bytes, mask), _mm_and_si128(_mm_srli_epi16::<4>(bytes), mask));
            let mut sixteen = [_mm_unpacklo_epi8(first, second), _mm_unpackhi_epi8(first, second)];
            for (part, numbers) in sixteen.iter_mut().enumerate() {
                if KIND == kind::I4 {
                    let eight = _mm_set1_epi8(8);
                    *numbers = _mm_sub_epi8(_mm_xor_si128(*numbers, eight), eight);
                }
                out[2 * part] = _mm256_cvtepi8_epi32(*numbers);
                out[2 * part + 1] = _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(*numbers));
            }
            return out;
        }
        for (part, out) in out.iter_mut().enumerate() {
            let at = i + 8 * part;
            *out = match KIND {
                kind::I8 => _mm256_cvtepi8_epi32(_mm_loadl_epi64(q.add(at).cast())),
                kind::U8 => _mm256_cvtepu8_epi32(_mm_loadl_epi64(q.add(at).cast())),
                kind::I16 => _mm256_cvtepi16_epi32(_mm_loadu_si128(q.add(2 * at).cast())),
                _ => _mm256_loadu_si256(q.add(4 * at).cast()),
            };
        }
    }
    out
}
