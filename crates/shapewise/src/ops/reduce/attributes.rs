//! What is reduced and how.

use std::fmt;

use crate::error::{Error, Result};
use crate::tensor::DType;

/// Which norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormOrder {
    /// How many elements are not zero.
    Zero,
    /// Σ |x|
    One,
    /// √ Σ |x|²
    Two,
    /// The largest |x|.
    Infinity,
    /// The smallest |x|.
    NegativeInfinity,
    /// (Σ |x|ᵖ)^(1/p)
    Other(Exponent),
}

/// A real exponent, by its bits, so that it can be part of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Exponent(u64);

impl Exponent {
    /// A number by its bits.
    pub const fn new(value: f64) -> Self {
        Self(value.to_bits())
    }

    /// The number.
    pub fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl fmt::Debug for Exponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

impl NormOrder {
    /// The norm of order `p`; anything but NaN will do.
    pub fn p(p: f64) -> Result<Self> {
        if p.is_nan() {
            return Err(Error::InvalidArgument {
                operation: "norm",
                reason: "the order is NaN; give a number".into(),
            });
        }
        Ok(match p {
            0.0 => Self::Zero,
            1.0 => Self::One,
            2.0 => Self::Two,
            f64::INFINITY => Self::Infinity,
            f64::NEG_INFINITY => Self::NegativeInfinity,
            p => Self::Other(Exponent(p.to_bits())),
        })
    }
}

impl fmt::Display for NormOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => f.write_str("0"),
            Self::One => f.write_str("1"),
            Self::Two => f.write_str("2"),
            Self::Infinity => f.write_str("inf"),
            Self::NegativeInfinity => f.write_str("-inf"),
            Self::Other(p) => write!(f, "{p:?}"),
        }
    }
}

/// How elements up to each place become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanKind {
    /// Their sum; types as for the sum.
    Sum,
    /// Their product; types as for the product.
    Prod,
    /// The largest, of the input's type; NaN from the first one on.
    Max,
    /// The smallest, of the input's type; NaN from the first one on.
    Min,
}

/// A result for each place along an axis, from the elements up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scan {
    /// What becomes of them.
    pub kind: ScanKind,
    /// Without the element at the place itself: the first result is 0, 1, or the lowest or highest number of the type.
    pub exclusive: bool,
}

impl Scan {
    /// With the element at the place itself.
    pub const fn new(kind: ScanKind) -> Self {
        Self { kind, exclusive: false }
    }

    /// Without the element at the place itself.
    #[must_use]
    pub const fn exclusive(self) -> Self {
        Self { exclusive: true, ..self }
    }

    const fn name(self) -> &'static str {
        match (self.kind, self.exclusive) {
            (ScanKind::Sum, false) => "cumsum",
            (ScanKind::Prod, false) => "cumprod",
            (ScanKind::Max, false) => "cummax",
            (ScanKind::Min, false) => "cummin",
            (ScanKind::Sum, true) => "exclusive_cumsum",
            (ScanKind::Prod, true) => "exclusive_cumprod",
            (ScanKind::Max, true) => "exclusive_cummax",
            (ScanKind::Min, true) => "exclusive_cummin",
        }
    }
}

/// What becomes of the reduced elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceKind {
    /// Σ x; integers and truth values give i64 and wrap.
    Sum,
    /// Σ x / n; integers and truth values give f64.
    Mean,
    /// Π x; integers and truth values give i64 and wrap.
    Prod,
    /// The largest; NaN if there is one.
    Max,
    /// The smallest; NaN if there is one.
    Min,
    /// Where the largest is, as i64: the first of equals, and NaN counts as largest.
    ArgMax,
    /// Where the smallest is, as i64: the first of equals, and NaN counts as smallest.
    ArgMin,
    /// Whether any element is true (not zero).
    Any,
    /// Whether all elements are true (not zero).
    All,
    /// Σ (x − mean)² / (n − correction); integers and truth values give f64.
    Variance {
        /// 0 for the variance of a population, 1 for the estimate from a sample.
        correction: u32,
    },
    /// A vector norm; integers and truth values give f64, complex numbers the real type of their parts.
    Norm(NormOrder),
    /// A result for each place: of the first, the first two, the first three … elements.
    Cumulative(Scan),
}

impl ReduceKind {
    /// The element type of the result, if the reduction is defined for the input's.
    pub fn output(self, input: DType) -> Option<DType> {
        let exact = input.is_integer() || input == DType::Bool;
        match self {
            _ if input == DType::I16 => None,
            Self::Sum | Self::Prod => Some(if exact { DType::I64 } else { input }),
            Self::Cumulative(scan) => match scan.kind {
                ScanKind::Sum => Self::Sum.output(input),
                ScanKind::Prod => Self::Prod.output(input),
                ScanKind::Max | ScanKind::Min => Self::Max.output(input),
            },
            Self::Mean => Some(if exact { DType::F64 } else { input }),
            Self::Max | Self::Min => (!input.is_complex()).then_some(input),
            Self::ArgMax | Self::ArgMin => (!input.is_complex()).then_some(DType::I64),
            Self::Any | Self::All => Some(DType::Bool),
            Self::Variance { .. } => match input {
                _ if exact => Some(DType::F64),
                _ => (!input.is_complex()).then_some(input),
            },
            Self::Norm(_) => Some(match input {
                DType::C32 => DType::F32,
                DType::C64 => DType::F64,
                _ if exact => DType::F64,
                _ => input,
            }),
        }
    }

    /// Whether there is a result for no elements at all.
    pub fn accepts_empty(self) -> bool {
        !matches!(
            self,
            Self::Max
                | Self::Min
                | Self::ArgMax
                | Self::ArgMin
                | Self::Norm(NormOrder::Infinity | NormOrder::NegativeInfinity)
        )
    }

    /// Whether the result depends on the order of the elements.
    pub fn is_ordered(self) -> bool {
        matches!(self, Self::ArgMax | Self::ArgMin | Self::Cumulative(_))
    }

    /// The name in errors and keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::ArgMax => "argmax",
            Self::ArgMin => "argmin",
            Self::Any => "any",
            Self::All => "all",
            Self::Variance { .. } => "variance",
            Self::Norm(_) => "norm",
            Self::Cumulative(scan) => scan.name(),
        }
    }
}

impl fmt::Display for ReduceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variance { correction } => write!(f, "variance-{correction}"),
            Self::Norm(order) => write!(f, "norm-{order}"),
            other => f.pad(other.name()),
        }
    }
}

/// A reduction of the last axes of its input; the first ones are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReduceAttributes {
    /// What becomes of the elements.
    pub kind: ReduceKind,
    /// How many axes are reduced, counted from the last.
    pub axes: u8,
}

impl fmt::Display for ReduceAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} axes", self.kind, self.axes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_orders_are_equal_keys() {
        assert_eq!(NormOrder::p(2.0).unwrap(), NormOrder::Two);
        assert_eq!(NormOrder::p(-0.0).unwrap(), NormOrder::Zero);
        assert_eq!(NormOrder::p(3.5).unwrap(), NormOrder::p(3.5).unwrap());
        assert!(NormOrder::p(f64::NAN).is_err());
        assert_eq!(ReduceKind::Norm(NormOrder::p(1.5).unwrap()).to_string(), "norm-1.5");
    }

    #[test]
    fn result_types() {
        assert_eq!(ReduceKind::Sum.output(DType::U8), Some(DType::I64));
        assert_eq!(ReduceKind::Mean.output(DType::I64), Some(DType::F64));
        assert_eq!(ReduceKind::Norm(NormOrder::Two).output(DType::C32), Some(DType::F32));
        assert_eq!(ReduceKind::Max.output(DType::C32), None);
        assert_eq!(ReduceKind::Any.output(DType::C64), Some(DType::Bool));
    }
}
