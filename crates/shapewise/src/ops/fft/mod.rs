//! Fourier transforms of c32, c64, f32 and f64: any length, along any axes, both ways, as in `numpy.fft`.
//!
//! Kernels agree with the exact transform to O(ε·log n) of its root mean square. Infinities and NaN spread over
//! the whole transform that they are part of.

mod api;
mod attributes;
mod cache;
mod cpu_alone;
mod cpu_along;
mod cpu_columns;
mod cpu_convolution;
mod cpu_eights;
mod cpu_four_step;
mod cpu_kernels;
mod cpu_lines;
mod cpu_passes;
mod cpu_radix;
mod cpu_real;
mod cpu_real_lines;
mod cpu_reference;
mod cpu_rows;
#[cfg(feature = "rustfft")]
mod cpu_rustfft;
mod cpu_sixteens;
mod cpu_stages;
mod cpu_tiles;
mod cpu_turned;
mod geometry;
mod plan;
mod roots;
mod shift;
mod stft;
#[cfg(test)]
mod tests;
#[cfg(feature = "webgpu")]
pub mod webgpu;

pub use api::FftOptions;
pub use attributes::{FftAttributes, FftKind, FftNorm, Rigor};
pub use plan::{Plan, Radices, plans};
pub use stft::StftOptions;

use super::Kernel;
use crate::tensor::DType;

/// What can be transformed.
const DTYPES: &[DType] = &[DType::F32, DType::F64, DType::C32, DType::C64];

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_kernels::AVX512,
    &cpu_kernels::AVX2,
    &cpu_kernels::NEON,
    #[cfg(feature = "rustfft")]
    &cpu_rustfft::RUSTFFT,
    &cpu_kernels::PORTABLE,
    &cpu_reference::REFERENCE,
];
