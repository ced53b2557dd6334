//! The elements that vectors compute with.

/// An element that fits vector lanes and is computed with, and the layout of its bits.
pub trait Float:
    Copy
    + Default
    + Send
    + Sync
    + PartialOrd
    + std::fmt::Debug
    + std::fmt::Display
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
    + 'static
{
    /// Bits of the stored mantissa: 23 or 52.
    const MANTISSA_BITS: u32;
    /// What is added to the exponent in the stored bits: 127 or 1023.
    const BIAS: u32;
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Infinity.
    const INFINITY: Self;
    /// A quiet NaN.
    const NAN: Self;
    /// The smallest positive number with a full mantissa.
    const MIN_POSITIVE: Self;
    /// The largest finite number.
    const MAX: Self;

    /// The nearest number to `x`.
    fn from_f64(x: f64) -> Self;
    /// This number, exactly.
    fn to_f64(self) -> f64;
    /// The number with these bits (the low 32 for `f32`).
    fn from_bits64(bits: u64) -> Self;
    /// The bits, in the low end of a `u64`.
    fn to_bits64(self) -> u64;
    /// Square root.
    #[must_use]
    fn sqrt(self) -> Self;
}

macro_rules! float {
    ($t:ident, $bits:ident, $mantissa:literal, $bias:literal) => {
        impl Float for $t {
            const MANTISSA_BITS: u32 = $mantissa;
            const BIAS: u32 = $bias;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = $t::INFINITY;
            const NAN: Self = $t::NAN;
            const MIN_POSITIVE: Self = $t::MIN_POSITIVE;
            const MAX: Self = $t::MAX;

            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn from_bits64(bits: u64) -> Self {
                $t::from_bits(bits as $bits)
            }
            #[inline(always)]
            #[allow(clippy::useless_conversion)] // u64 to u64 for one of the two
            fn to_bits64(self) -> u64 {
                u64::from(self.to_bits())
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $t::sqrt(self)
            }
        }
    };
}
float!(f32, u32, 23, 127);
float!(f64, u64, 52, 1023);
