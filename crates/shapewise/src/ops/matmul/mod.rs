//! Matrix product: `a · b`, with bias and activation at the end.

mod api;
mod cost;
mod cpu_bandwidth;
mod cpu_batch;
#[cfg(feature = "blas")]
mod cpu_blas;
pub(super) mod cpu_finish;
#[cfg(feature = "gemm")]
mod cpu_gemm_crate;
mod cpu_half;
mod cpu_kernels;
pub(super) mod cpu_micro;
pub(super) mod cpu_pack;
pub(super) mod cpu_packed;
mod cpu_panel;
mod cpu_panels;
mod cpu_prepacked;
pub(super) mod cpu_problem;
mod cpu_reference;
mod cpu_short;
mod cpu_small;
mod cpu_split_k;
mod cpu_stored;
mod cpu_stream;
mod cpu_stream_cost;
mod cpu_stream_dot;
mod cpu_stream_outer;
mod cpu_tile;
pub(super) mod plan;
mod prepacked;
#[cfg(test)]
mod tests;
#[cfg(feature = "webgpu")]
pub mod webgpu;

use std::fmt;

use super::{Activation, Kernel};

pub use api::Fused;
pub(super) use api::Sides;
pub(super) use cpu_reference::apply;
pub use prepacked::{PACKED_KERNELS, PackedRhs};

/// What is computed beyond the plain product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MatmulAttributes {
    /// Whether a third input is added to every row of the result.
    pub bias: bool,
    /// The function applied to the result.
    pub activation: Activation,
}

impl MatmulAttributes {
    /// Part of the word that a product is looked up by, which no number of an operation has and no element-wise program.
    const MARK: u64 = 1 << 62;

    /// All of it in one word, different for different attributes.
    #[inline(always)]
    pub(super) fn word(&self) -> u64 {
        let (which, slope) = self.activation.key();
        Self::MARK | u64::from(self.bias) << 40 | u64::from(which) << 32 | u64::from(slope)
    }
}

impl fmt::Display for MatmulAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bias {
            write!(f, "+bias")?;
        }
        match self.activation {
            Activation::None => Ok(()),
            other => write!(f, "+{other}"),
        }
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_bandwidth::AVX512_VECTOR,
    &cpu_bandwidth::AVX512_SKINNY,
    &cpu_bandwidth::AVX2_VECTOR,
    &cpu_bandwidth::AVX2_SKINNY,
    &cpu_bandwidth::NEON_VECTOR,
    &cpu_bandwidth::NEON_SKINNY,
    &cpu_bandwidth::PORTABLE_VECTOR,
    &cpu_bandwidth::PORTABLE_SKINNY,
    &cpu_kernels::AVX512_SMALL,
    &cpu_kernels::AVX512_PANEL,
    &cpu_kernels::AVX512_PACKED,
    &cpu_kernels::AVX512_SPLIT_K,
    &cpu_kernels::AVX2_SMALL,
    &cpu_kernels::AVX2_PANEL,
    &cpu_kernels::AVX2_PACKED,
    &cpu_kernels::AVX2_SPLIT_K,
    &cpu_kernels::NEON_SMALL,
    &cpu_kernels::NEON_PANEL,
    &cpu_kernels::NEON_PACKED,
    &cpu_kernels::NEON_SPLIT_K,
    &cpu_kernels::PORTABLE_SMALL,
    &cpu_kernels::PORTABLE_PANEL,
    &cpu_kernels::PORTABLE_PACKED,
    &cpu_kernels::PORTABLE_SPLIT_K,
    &cpu_half::AVX512_HALF,
    &cpu_half::AVX2_HALF,
    &cpu_half::NEON_HALF,
    &cpu_half::PORTABLE_HALF,
    #[cfg(feature = "blas")]
    &cpu_blas::SystemBlas,
    #[cfg(feature = "gemm")]
    &cpu_gemm_crate::GemmCrate,
    &cpu_reference::Reference,
];
