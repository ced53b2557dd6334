//! Reductions: sum, mean, product, extremes and their places, truth, variance, norms, scans.
//!
//! A reduction is a *fold* (what happens to elements: `sums`, `extremes`, `norms`) run by an *engine* (where they
//! lie: `cpu_rows`, `cpu_columns`). `plan` sorts and merges the axes so that every layout is one of the two, and
//! `dispatch` finds the fold for a kind and an element type.

mod api;
mod attributes;
mod cpu_columns;
mod cpu_cumulative;
pub(crate) mod cpu_fold;
mod cpu_kernels;
pub(crate) mod cpu_moments;
mod cpu_reference;
mod cpu_rows;
mod cpu_stored;
mod dispatch;
mod extremes;
mod norms;
mod plan;
mod sums;
#[cfg(test)]
mod tests;
#[cfg(feature = "webgpu")]
pub mod webgpu;

use super::Kernel;

pub use api::Over;
pub(crate) use api::{expect, resolve};
pub use attributes::{Exponent, NormOrder, ReduceAttributes, ReduceKind, Scan, ScanKind};

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_kernels::AVX512_ROWS,
    &cpu_kernels::AVX2_ROWS,
    &cpu_kernels::AVX2_COLUMNS,
    &cpu_kernels::NEON_ROWS,
    &cpu_kernels::NEON_COLUMNS,
    &cpu_kernels::PORTABLE_ROWS,
    &cpu_kernels::PORTABLE_COLUMNS,
    &cpu_cumulative::CUMULATIVE,
    &cpu_reference::REFERENCE,
];
