//! Made-up numbers of every element type.

use half::{bf16, f16};
use num_complex::Complex;
use shapewise::{DType, Tensor};

/// A small generator: the same seed gives the same numbers everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// In `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// What kind of numbers an operand holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// Between -2 and 2.
    Ordinary,
    /// Between 0.5 and 2: safe to divide by and to multiply many of.
    Positive,
    /// Small whole numbers: sums are exact in any order.
    Whole,
    /// Ordinary ones with NaN, infinities and zeros of both signs among them.
    Special,
    /// Smaller than the smallest normal number of the type.
    Denormal,
    /// Near the largest number of the type (integers: anywhere in their range).
    Huge,
}

impl Grade {
    pub const ALL: [Self; 6] =
        [Self::Ordinary, Self::Positive, Self::Whole, Self::Special, Self::Denormal, Self::Huge];

    /// A number for a float type with this smallest normal and largest number.
    fn real(self, random: &mut Random, smallest: f64, largest: f64) -> f64 {
        let x = random.unit();
        match self {
            Self::Ordinary => 4.0 * x - 2.0,
            Self::Positive => 0.5 + 1.5 * x,
            Self::Whole => (x * 9.0).floor() - 4.0,
            Self::Special => match random.below(12) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::NEG_INFINITY,
                3 => 0.0,
                4 => -0.0,
                _ => 4.0 * x - 2.0,
            },
            Self::Denormal => smallest * (2.0 * x - 1.0),
            Self::Huge => largest * if x < 0.5 { x - 1.0 } else { x },
        }
    }

    fn integer(self, random: &mut Random, low: i64, high: i64) -> i64 {
        match self {
            Self::Special | Self::Huge => match random.below(4) {
                0 => low,
                1 => high,
                2 => random.next() as i64,
                _ => random.below(3) as i64,
            },
            Self::Positive => 1 + random.below(5) as i64,
            _ => random.below(9) as i64 - 4,
        }
    }
}

/// Numbers in a row. `pooled` memory starts at a multiple of 64; other memory ends with its last element.
pub fn line(dtype: DType, len: usize, grade: Grade, random: &mut Random, pooled: bool) -> Tensor {
    macro_rules! fill {
        ($f:expr) => {{
            let values: Vec<_> = (0..len).map(|_| $f(&mut *random)).collect();
            tensor(values, pooled)
        }};
    }
    let single = |r: &mut Random| grade.real(r, f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)) as f32;
    let double = |r: &mut Random| grade.real(r, f64::MIN_POSITIVE, f64::MAX);
    match dtype {
        DType::F32 => fill!(single),
        DType::F64 => fill!(double),
        DType::F16 => fill!(|r| f16::from_f64(grade.real(r, 6e-5, 65504.0))),
        DType::BF16 => fill!(|r| bf16::from_f64(grade.real(r, 1e-38, 3e38))),
        DType::I16 => fill!(|r| grade.integer(r, i64::from(i16::MIN), i64::from(i16::MAX)) as i16),
        DType::I8 => fill!(|r| grade.integer(r, i64::from(i8::MIN), i64::from(i8::MAX)) as i8),
        DType::U8 => fill!(|r| grade.integer(r, 0, i64::from(u8::MAX)) as u8),
        DType::I32 => fill!(|r| grade.integer(r, i64::from(i32::MIN), i64::from(i32::MAX)) as i32),
        DType::U32 => fill!(|r| grade.integer(r, 0, i64::from(u32::MAX)) as u32),
        DType::I64 => fill!(|r| grade.integer(r, i64::MIN, i64::MAX)),
        DType::Bool => fill!(|r: &mut Random| r.below(2) == 1),
        DType::C32 => fill!(|r: &mut Random| Complex::new(single(r), single(r))),
        DType::C64 => fill!(|r: &mut Random| Complex::new(double(r), double(r))),
    }
}

fn tensor<T: shapewise::Element>(values: Vec<T>, pooled: bool) -> Tensor {
    let shape = [values.len()];
    if pooled { Tensor::from_slice(&values, &shape) } else { Tensor::from_vec(values, &shape) }.unwrap()
}
