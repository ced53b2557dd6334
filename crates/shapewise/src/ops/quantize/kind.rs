//! The integers that real numbers are kept as.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::tensor::DType;

/// An integer type that stands for real numbers.
///
/// Four-bit integers lie two in a byte along the last axis, the first one in the low half, in a tensor of u8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantType {
    /// 8 bits, −128 … 127.
    I8,
    /// 8 bits, 0 … 255.
    U8,
    /// 16 bits, −32768 … 32767.
    I16,
    /// 4 bits, −8 … 7, two in a byte.
    I4,
    /// 4 bits, 0 … 15, two in a byte.
    U4,
    /// 32 bits: sums of products. They can be dequantised and requantised, not quantised to.
    I32,
}

impl QuantType {
    /// Every type.
    pub const ALL: [Self; 6] = [Self::I8, Self::U8, Self::I16, Self::I4, Self::U4, Self::I32];

    /// The smallest and the largest number.
    pub const fn range(self) -> (i32, i32) {
        match self {
            Self::I8 => (-128, 127),
            Self::U8 => (0, 255),
            Self::I16 => (-32768, 32767),
            Self::I4 => (-8, 7),
            Self::U4 => (0, 15),
            Self::I32 => (i32::MIN, i32::MAX),
        }
    }

    /// The element type of tensors that hold it.
    pub const fn dtype(self) -> DType {
        match self {
            Self::I8 => DType::I8,
            Self::U8 | Self::I4 | Self::U4 => DType::U8,
            Self::I16 => DType::I16,
            Self::I32 => DType::I32,
        }
    }

    /// Bits of one number.
    pub const fn bits(self) -> usize {
        match self {
            Self::I4 | Self::U4 => 4,
            other => 8 * other.dtype().size(),
        }
    }

    /// Whether two numbers share a byte.
    pub const fn is_packed(self) -> bool {
        matches!(self, Self::I4 | Self::U4)
    }

    /// The name users write: `i8`, `u4` …
    pub const fn name(self) -> &'static str {
        match self {
            Self::I4 => "i4",
            Self::U4 => "u4",
            other => other.dtype().name(),
        }
    }

    /// Bytes that so many numbers in a row take.
    pub(super) const fn bytes(self, numbers: usize) -> usize {
        if self.is_packed() { numbers.div_ceil(2) } else { numbers * self.dtype().size() }
    }
}

impl fmt::Display for QuantType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for QuantType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            Error::InvalidArgument {
                operation: "quantisation type",
                reason: format!("`{text}` is not one; use one of {}", names.join(", ")),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_ranges_fit_their_bits() {
        for kind in QuantType::ALL {
            assert_eq!(kind.name().parse::<QuantType>().unwrap(), kind);
            let (low, high) = kind.range();
            assert_eq!(i64::from(high) - i64::from(low) + 1, 1 << kind.bits());
        }
        assert!("f32".parse::<QuantType>().unwrap_err().to_string().contains("use one of i8"));
        assert_eq!((QuantType::I4.bytes(6), QuantType::I16.bytes(6)), (3, 12));
    }
}
