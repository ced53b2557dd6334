//! Elements as unsigned keys of the same order.
#![allow(unsafe_code)]

use super::Order;
use crate::tensor::DType;

/// An unsigned number that sorts.
pub(super) trait Key: Copy + Ord + Send + Sync + 'static {
    /// The type of keys that carry an index.
    type Wide: Key;
    const ZERO: Self;

    /// How an element type is turned into keys.
    fn coding(dtype: DType, order: Order) -> Coding<Self>;
    fn encode(self, coding: &Coding<Self>) -> Self;
    fn decode(self, coding: &Coding<Self>) -> Self;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    /// How far above another.
    fn minus(self, other: Self) -> Self;
    /// The bits from `shift` on, masked.
    fn digit(self, shift: u32, mask: usize) -> usize;
    /// How far above `low`, in steps of 2^`shift`; what is too far for the type is as far as it goes.
    fn above(self, low: Self, shift: u32) -> u16;
    /// The bits that differ, joined with `seen`.
    fn differing(self, other: Self, seen: Self) -> Self;
    /// Lowest and highest set bit; nothing set is an empty range.
    fn span(self) -> (u32, u32);
}

/// The masks that turn the bits of one element type into keys and back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coding<K> {
    /// Everything but the sign of a float.
    magnitude: K,
    /// Magnitudes above this are NaN.
    infinity: K,
    /// All ones for floats, whose negative numbers are turned round.
    turn: K,
    /// The sign bit of signed types.
    sign: K,
    /// All ones when the largest comes first.
    flip: K,
    /// The bits of −0; zero where there is none.
    negative_zero: K,
}

macro_rules! keys {
    ($($k:ident, $signed:ident, $wide:ident;)*) => {$(
        impl Key for $k {
            type Wide = $wide;
            const ZERO: Self = 0;

            fn coding(dtype: DType, order: Order) -> Coding<Self> {
                let float = dtype.is_float();
                let signed = float || matches!(dtype, DType::I8 | DType::I32 | DType::I64);
                let sign = 1 << (<$k>::BITS - 1);
                let infinity = match dtype {
                    DType::F32 => u64::from(f32::INFINITY.to_bits()),
                    DType::F64 => f64::INFINITY.to_bits(),
                    DType::F16 => u64::from(half::f16::INFINITY.to_bits()),
                    DType::BF16 => u64::from(half::bf16::INFINITY.to_bits()),
                    _ => u64::MAX,
                };
                Coding {
                    magnitude: if float { !sign } else { 0 },
                    infinity: infinity as $k,
                    turn: if float { !0 } else { 0 },
                    sign: if signed { sign } else { 0 },
                    flip: if order == Order::Descending { !0 } else { 0 },
                    negative_zero: if float { sign } else { 0 },
                }
            }

            #[inline(always)]
            fn encode(self, c: &Coding<Self>) -> Self {
                let number = if self & c.magnitude > c.infinity { self & c.magnitude } else { self };
                let negative = (number as $signed >> (<$k>::BITS - 1)) as $k & c.turn;
                // A negative float is turned round whole, sign and all.
                number ^ (negative | c.sign) ^ c.flip
            }

            #[inline(always)]
            fn decode(self, c: &Coding<Self>) -> Self {
                let key = self ^ c.flip;
                let negative = (!key as $signed >> (<$k>::BITS - 1)) as $k & c.turn;
                key ^ (negative | c.sign)
            }

            #[inline(always)]
            fn widen(self) -> $wide {
                self as $wide
            }

            #[inline(always)]
            fn narrow(wide: $wide) -> Self {
                wide as $k
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn digit(self, shift: u32, mask: usize) -> usize {
                (self >> shift) as usize & mask
            }

            #[inline(always)]
            fn above(self, low: Self, shift: u32) -> u16 {
                // In the key's own type, for the sake of vectors; all of the shorter keys are near enough.
                (self.saturating_sub(low) >> shift).min(u16::MAX as $k) as u16
            }

            #[inline(always)]
            fn differing(self, other: Self, seen: Self) -> Self {
                seen | (self ^ other)
            }

            fn span(self) -> (u32, u32) {
                if self == 0 { (0, 0) } else { (self.trailing_zeros(), <$k>::BITS - self.leading_zeros()) }
            }
        }
    )*};
}
keys! {
    u8, i8, u32;
    u16, i16, u32;
    u32, i32, u32;
    u64, i64, u64;
}

impl<K: Key> Coding<K> {
    /// The key for a stable order: zeros of both signs are equal.
    #[inline(always)]
    pub fn encode_equal(&self, bits: K) -> K {
        if self.negative_zero == bits { K::ZERO.encode(self) } else { bits.encode(self) }
    }
}

/// What is sorted: a key, alone or with an index.
pub(super) trait Item: Copy + Ord + Send + Sync + 'static {
    type Key: Key;
    fn key(self) -> Self::Key;
}

macro_rules! items {
    ($($k:ident),*) => {$(
        impl Item for $k {
            type Key = $k;
            #[inline(always)]
            fn key(self) -> $k {
                self
            }
        }
    )*};
}
items!(u8, u16, u32, u64);

/// A key and where its element was; equal keys are in the order of their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair<K> {
    pub key: K,
    pub at: u32,
}

impl<K: Key> Item for Pair<K> {
    type Key = K;
    #[inline(always)]
    fn key(self) -> K {
        self.key
    }
}
