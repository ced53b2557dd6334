//! The element types and what is known about each.

use std::fmt;
use std::str::FromStr;

use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};
use num_complex::Complex;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// 16-bit IEEE float.
    F16,
    /// 16-bit float with the exponent of f32.
    BF16,
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit signed integer.
    I64,
    /// Truth value, one byte.
    Bool,
    /// Complex number of two f32.
    C32,
    /// Complex number of two f64.
    C64,
    /// 16-bit signed integer: kept, moved, cast and quantised to, not computed with.
    I16,
}

impl DType {
    /// Every element type.
    pub const ALL: [DType; 13] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::U8,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::Bool,
        DType::C32,
        DType::C64,
        DType::I16,
    ];
    /// The real floating-point types.
    pub const FLOATS: &'static [DType] = &[DType::F32, DType::F64, DType::F16, DType::BF16];

    /// Bytes of one element.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::C32 => 8,
            DType::C64 => 16,
        }
    }

    /// The type that stands for all of its size where only bytes are moved.
    pub(crate) const fn plain(self) -> Self {
        match self.size() {
            1 => DType::U8,
            2 => DType::F16,
            4 => DType::F32,
            8 => DType::F64,
            _ => DType::C64,
        }
    }

    /// The name users write: `f32`, `bool`, `c64` …
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I32 => "i32",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::Bool => "bool",
            DType::C32 => "c32",
            DType::C64 => "c64",
            DType::I16 => "i16",
        }
    }

    /// Whether this is a real floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }

    /// Whether this is an integer type; truth values are not.
    pub const fn is_integer(self) -> bool {
        matches!(self, DType::I8 | DType::U8 | DType::I32 | DType::U32 | DType::I64)
    }

    /// Whether this is a complex type.
    pub const fn is_complex(self) -> bool {
        matches!(self, DType::C32 | DType::C64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        DType::ALL.into_iter().find(|d| d.name() == text).ok_or_else(|| {
            let names: Vec<_> = DType::ALL.iter().map(|d| d.name()).collect();
            Error::InvalidArgument {
                operation: "dtype",
                reason: format!("`{text}` is not an element type; use one of {}", names.join(", ")),
            }
        })
    }
}

/// A Rust type that tensors hold.
pub trait Element: NoUninit + CheckedBitPattern + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// The matching tag.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $d:ident),* $(,)?) => {$(impl Element for $t { const DTYPE: DType = DType::$d; })*};
}

elements! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => BF16, i8 => I8, u8 => U8, i32 => I32, u32 => U32, i64 => I64,
    bool => Bool, Complex<f32> => C32, Complex<f64> => C64, i16 => I16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for d in DType::ALL {
            assert_eq!(d.name().parse::<DType>().unwrap(), d);
        }
        assert!("float".parse::<DType>().unwrap_err().to_string().contains("use one of f32"));
    }

    #[test]
    fn sizes_are_those_of_the_rust_types() {
        macro_rules! check {
            ($($t:ty),*) => {$(assert_eq!(<$t as Element>::DTYPE.size(), size_of::<$t>());)*};
        }
        check!(f32, f64, f16, bf16, i8, u8, i32, u32, i64, bool, Complex<f32>, Complex<f64>, i16);
    }
}
