//! Peak arithmetic of the vector units: independent multiply-adds, enough of them to fill the pipelines.

use std::hint::black_box;

use super::super::simd::{Float, Isa, Lanes, Simd, SimdTask};
use crate::ops::ComputeUnit;
use crate::tensor::DType;

/// Multiply-adds under way at once: more than any pipeline holds, fewer than the registers there are.
const CHAINS: usize = if cfg!(target_arch = "aarch64") { 24 } else { 12 };

/// A loop that keeps one arithmetic unit busy.
pub struct Load {
    /// The unit.
    pub unit: ComputeUnit,
    /// Operations in one repeat.
    pub operations: f64,
    /// The loop, given the number of repeats.
    pub run: Box<dyn Fn(usize) + Sync>,
}

impl Load {
    /// A loop over `operations` per repeat.
    pub fn new(
        dtype: DType,
        isa: Option<Isa>,
        operations: usize,
        run: impl Fn(usize) + Sync + 'static,
    ) -> Self {
        Self { unit: ComputeUnit { dtype, isa }, operations: operations as f64, run: Box::new(run) }
    }
}

/// The vector units of these instruction sets.
pub fn units(isas: &[Isa]) -> Vec<Load> {
    let mut units = Vec::new();
    for &isa in isas.iter().filter(|isa| isa.is_available()) {
        let lanes = |dtype: DType| isa.run(CountLanes(dtype));
        let operations = |dtype| 2 * CHAINS * lanes(dtype);
        units.push(Load::new(DType::F32, Some(isa), operations(DType::F32), move |repeats| {
            isa.run(Chains { repeats, factor: 0.999_f32, term: 0.001 });
        }));
        units.push(Load::new(DType::F64, Some(isa), operations(DType::F64), move |repeats| {
            isa.run(Chains { repeats, factor: 0.999_f64, term: 0.001 });
        }));
        #[cfg(target_arch = "x86_64")]
        units.extend(dot::units(isa));
    }
    units
}

/// How many numbers a register of an instruction set has.
struct CountLanes(DType);

impl SimdTask for CountLanes {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        if self.0 == DType::F64 { <S as Lanes<f64>>::LANES } else { <S as Lanes<f32>>::LANES }
    }
}

/// Multiply-adds that depend only on their own last result; they tend to one, so they stay normal numbers.
struct Chains<T> {
    repeats: usize,
    factor: T,
    term: T,
}

impl SimdTask for Chains<f32> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        chains(s, self.repeats, self.factor, self.term);
    }
}

impl SimdTask for Chains<f64> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        chains(s, self.repeats, self.factor, self.term);
    }
}

#[inline(always)]
fn chains<T: Float, S: Lanes<T>>(s: S, repeats: usize, factor: T, term: T) {
    let (factor, term) = (s.splat(black_box(factor)), s.splat(black_box(term)));
    let mut sums = [term; CHAINS];
    for _ in 0..repeats {
        for sum in &mut sums {
            *sum = s.mul_add(*sum, factor, term);
        }
    }
    let all = sums.into_iter().reduce(|a, b| s.add(a, b));
    black_box(all.map(|all| s.first(all)));
}

/// Dot-product instructions on short numbers: bf16 and int8, where the CPU has them.
#[cfg(target_arch = "x86_64")]
mod dot {
    use super::{CHAINS, DType, Isa, Load, black_box};
    use std::arch::x86_64::{
        __m256i, __m512, __m512bh, __m512i, _mm256_dpbusd_avx_epi32, _mm256_set1_epi8, _mm512_dpbf16_ps,
        _mm512_dpbusd_epi32, _mm512_set1_epi8, _mm512_set1_ps,
    };

    /// The units that belong to this instruction set.
    pub fn units(isa: Isa) -> Vec<Load> {
        let mut units = Vec::new();
        let operations = |products: usize| 2 * CHAINS * products;
        if isa == Isa::Avx512 && is_x86_feature_detected!("avx512bf16") {
            units.push(Load::new(DType::BF16, Some(isa), operations(32), |repeats| {
                // SAFETY: the CPU has the instructions.
                unsafe { bf16_512(repeats) }
            }));
        }
        if isa == Isa::Avx512 && is_x86_feature_detected!("avx512vnni") {
            units.push(Load::new(DType::I8, Some(isa), operations(64), |repeats| {
                // SAFETY: the CPU has the instructions.
                unsafe { int8_512(repeats) }
            }));
        }
        if isa == Isa::Avx2 && is_x86_feature_detected!("avxvnni") {
            units.push(Load::new(DType::I8, Some(isa), operations(32), |repeats| {
                // SAFETY: the CPU has the instructions.
                unsafe { int8_256(repeats) }
            }));
        }
        units
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn bf16_512(repeats: usize) {
        // SAFETY: both types are 64 bytes without invalid values; the bits 0x3f80 are the bfloat 1.
        let ones: __m512bh = unsafe { std::mem::transmute([black_box(0x3f80_u16); 32]) };
        let mut sums: [__m512; CHAINS] = [_mm512_set1_ps(black_box(0.0)); CHAINS];
        for _ in 0..repeats {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, ones, ones);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    fn int8_512(repeats: usize) {
        let ones = _mm512_set1_epi8(black_box(1));
        let mut sums: [__m512i; CHAINS] = [_mm512_set1_epi8(black_box(0)); CHAINS];
        for _ in 0..repeats {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, ones, ones);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,avxvnni")]
    fn int8_256(repeats: usize) {
        let ones = _mm256_set1_epi8(black_box(1));
        let mut sums: [__m256i; CHAINS] = [_mm256_set1_epi8(black_box(0)); CHAINS];
        for _ in 0..repeats {
            for sum in &mut sums {
                *sum = _mm256_dpbusd_avx_epi32(*sum, ones, ones);
            }
        }
        black_box(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_has_its_units() {
        let units = units(Isa::available());
        for &isa in Isa::available() {
            for dtype in [DType::F32, DType::F64] {
                let unit = ComputeUnit { dtype, isa: Some(isa) };
                let found = units.iter().find(|found| found.unit == unit).unwrap();
                let lanes = isa.register_bytes() / dtype.size();
                assert_eq!(found.operations, (2 * CHAINS * lanes) as f64);
            }
        }
        // The interpreter does not know the dot-product instructions.
        for load in
            units.iter().filter(|load| !cfg!(miri) || matches!(load.unit.dtype, DType::F32 | DType::F64))
        {
            (load.run)(3);
        }
    }
}
