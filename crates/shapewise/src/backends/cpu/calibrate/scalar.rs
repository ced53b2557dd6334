//! Arithmetic of plain code, one number at a time, for every element type.

use std::hint::black_box;

use half::{bf16, f16};
use num_complex::Complex;

use super::arithmetic::Load;
use crate::tensor::DType;

/// Numbers under way at once: the registers hold them and the operands.
const CHAINS: usize = 12;

/// A multiply-add in the words of each type.
trait Number: Copy + Send + Sync + 'static {
    /// `self * factor + term`, wrapping; for truth values `and` and `xor`.
    fn step(self, factor: Self, term: Self) -> Self;

    /// The same value, without the compiler knowing: it cannot merge chains into vectors.
    fn hidden(self) -> Self;
}

/// The scalar units of all types.
pub fn units() -> Vec<Load> {
    vec![
        unit(DType::F32, 0.999_f32, 0.001),
        unit(DType::F64, 0.999_f64, 0.001),
        unit(DType::F16, f16::from_f32(0.99), f16::from_f32(0.01)),
        unit(DType::BF16, bf16::from_f32(0.99), bf16::from_f32(0.01)),
        unit(DType::I8, 3_i8, 1),
        unit(DType::U8, 3_u8, 1),
        unit(DType::I16, 3_i16, 1),
        unit(DType::I32, 3_i32, 1),
        unit(DType::U32, 3_u32, 1),
        unit(DType::I64, 3_i64, 1),
        unit(DType::Bool, true, true),
        unit(DType::C32, Complex::new(0.9_f32, 0.1), Complex::new(0.1, 0.0)),
        unit(DType::C64, Complex::new(0.9_f64, 0.1), Complex::new(0.1, 0.0)),
    ]
}

fn unit<T: Number>(dtype: DType, factor: T, term: T) -> Load {
    Load::new(dtype, None, 2 * CHAINS, move |repeats| chains(repeats, factor, term))
}

fn chains<T: Number>(repeats: usize, factor: T, term: T) {
    let (factor, term) = (black_box(factor), black_box(term));
    let mut values = [term; CHAINS];
    for _ in 0..repeats {
        for value in &mut values {
            *value = value.step(factor, term).hidden();
        }
    }
    black_box(values);
}

/// Passes a register through an empty piece of assembly.
macro_rules! hide {
    ($value:expr, $x86:ident $x86_form:literal, $arm:ident $arm_form:literal) => {{
        let mut value = $value;
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: there is no instruction in it.
        unsafe {
            std::arch::asm!(concat!("/* {0", $x86_form, "} */"), inout($x86) value,
                options(nomem, nostack, preserves_flags));
        }
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: there is no instruction in it.
        unsafe {
            std::arch::asm!(concat!("/* {0", $arm_form, "} */"), inout($arm) value,
                options(nomem, nostack, preserves_flags));
        }
        #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
        {
            value = black_box(value);
        }
        value
    }};
}

macro_rules! floats {
    ($($float:ty, $form:literal;)*) => {$(
        impl Number for $float {
            fn step(self, factor: Self, term: Self) -> Self {
                self * factor + term
            }

            fn hidden(self) -> Self {
                hide!(self, xmm_reg "", vreg $form)
            }
        }

        impl Number for Complex<$float> {
            fn step(self, factor: Self, term: Self) -> Self {
                self * factor + term
            }

            fn hidden(self) -> Self {
                Self::new(self.re.hidden(), self.im.hidden())
            }
        }
    )*};
}

floats! {
    f32, ":s";
    f64, ":d";
}

macro_rules! integers {
    ($($int:ty, $register:ty, $x86:literal, $arm:literal;)*) => {$(
        impl Number for $int {
            fn step(self, factor: Self, term: Self) -> Self {
                self.wrapping_mul(factor).wrapping_add(term)
            }

            fn hidden(self) -> Self {
                hide!(self as $register, reg $x86, reg $arm) as Self
            }
        }
    )*};
}

integers! {
    i8, i32, ":e", ":w";
    u8, u32, ":e", ":w";
    i16, i32, ":e", ":w";
    u16, u32, ":e", ":w";
    i32, i32, ":e", ":w";
    u32, u32, ":e", ":w";
    i64, i64, ":r", ":x";
}

impl Number for bool {
    fn step(self, factor: Self, term: Self) -> Self {
        (self & factor) ^ term
    }

    fn hidden(self) -> Self {
        u8::from(self).hidden() != 0
    }
}

macro_rules! halves {
    ($($half:ty),*) => {$(
        impl Number for $half {
            fn step(self, factor: Self, term: Self) -> Self {
                Self::from_f32(self.to_f32() * factor.to_f32() + term.to_f32())
            }

            fn hidden(self) -> Self {
                Self::from_bits(self.to_bits().hidden())
            }
        }
    )*};
}

halves!(f16, bf16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_its_unit() {
        let units = units();
        for dtype in DType::ALL {
            assert_eq!(units.iter().filter(|unit| unit.unit.dtype == dtype).count(), 1, "{dtype}");
        }
        for unit in &units {
            (unit.run)(3);
        }
    }

    #[test]
    fn hiding_changes_nothing() {
        assert_eq!((-7_i8).hidden(), -7);
        assert_eq!(250_u8.hidden(), 250);
        assert_eq!(i64::MIN.hidden(), i64::MIN);
        assert_eq!(1.5_f32.hidden(), 1.5);
        assert_eq!(f16::from_f32(1.5).hidden(), f16::from_f32(1.5));
        assert_eq!(Complex::new(1.0, -2.0).hidden(), Complex::new(1.0, -2.0));
        assert!(true.hidden() && !false.hidden());
    }

    #[test]
    fn steps_multiply_and_add() {
        assert_eq!(2.0_f64.step(3.0, 1.0), 7.0);
        assert_eq!(100_u8.step(3, 1), 45);
        assert_eq!(bf16::from_f32(2.0).step(bf16::from_f32(3.0), bf16::ONE), bf16::from_f32(7.0));
        assert!(true.step(true, false) && !true.step(true, true));
    }
}
