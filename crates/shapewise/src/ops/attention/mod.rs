//! Scaled dot-product attention: `softmax(q · kᵀ · scale + mask) · v`, each query over its keys.
//!
//! Queries are `[batch, heads, length, dim]` or `[heads, length, dim]`, keys and values the same with a length (and, for
//! values, a dim) of their own; under any strides. Keys and values may have fewer heads: each serves as many neighbouring
//! heads of queries. f32, f64, f16 and bf16; the 16-bit ones are computed in f32.
//!
//! A key that is masked (`false`, −∞, or after the query in causal attention), or whose score is −∞, is left out
//! altogether: its value does not count even if it is not finite. A query that is left without keys gives zeros, as in
//! torch. A score that is NaN or +∞ makes its row NaN.

mod api;
mod cost;
mod cpu_block;
mod cpu_decode;
mod cpu_kernels;
mod cpu_mask;
mod cpu_matmuls;
mod cpu_pack;
mod cpu_reference;
mod cpu_tiled;
mod plan;
mod problem;
#[cfg(test)]
mod tests;

use std::fmt;

use super::Kernel;

pub use api::AttentionOptions;

/// Which keys a query may look at, by their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Causality {
    /// All of them.
    #[default]
    None,
    /// Query `i` looks at keys `0..=i`: the first query and the first key are aligned.
    FromStart,
    /// Query `i` of `m` looks at keys `0..=i + n − m` of `n`: the last query and the last key are aligned.
    FromEnd,
}

impl Causality {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "full",
            Self::FromStart => "causal",
            Self::FromEnd => "causal from the end",
        }
    }
}

/// What is computed beyond shapes and types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionAttributes {
    /// Which keys a query may look at.
    pub causality: Causality,
    /// Whether a fourth input says which keys count (booleans) or is added to the scores (floats).
    pub mask: bool,
    scale: u64,
}

impl AttentionAttributes {
    /// Attributes with the factor of the products of queries and keys.
    pub fn new(causality: Causality, mask: bool, scale: f64) -> Self {
        Self { causality, mask, scale: scale.to_bits() }
    }

    /// The factor of the products of queries and keys.
    pub fn scale(&self) -> f64 {
        f64::from_bits(self.scale)
    }

    /// What the workload's key is made from.
    pub(super) fn write_key(&self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, " {} {} scale {:x}", self.causality.name(), u8::from(self.mask), self.scale)
    }

    /// The ordinal that models see.
    pub(crate) fn feature(&self) -> f32 {
        let causality = match self.causality {
            Causality::None => 0.0,
            Causality::FromStart => 1.0,
            Causality::FromEnd => 2.0,
        };
        2.0 * causality + f32::from(u8::from(self.mask))
    }
}

impl fmt::Display for AttentionAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attention {}{}", self.causality.name(), if self.mask { "+mask" } else { "" })
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_kernels::AVX512_TILED,
    &cpu_kernels::AVX512_MATMULS,
    &cpu_kernels::AVX2_TILED,
    &cpu_kernels::AVX2_MATMULS,
    &cpu_kernels::AVX2_DECODE,
    &cpu_kernels::NEON_TILED,
    &cpu_kernels::NEON_MATMULS,
    &cpu_kernels::NEON_DECODE,
    &cpu_kernels::PORTABLE_TILED,
    &cpu_kernels::PORTABLE_MATMULS,
    &cpu_kernels::PORTABLE_DECODE,
    &cpu_reference::REFERENCE,
];
