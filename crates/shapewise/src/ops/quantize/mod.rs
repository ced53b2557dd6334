//! Real numbers kept as small integers, and products of them.
//!
//! [`Quantization`] says how: a type of 4 to 16 bits, scales and zero points for the tensor, each channel or each block.
//! `quantize`, `dequantize` and `requantize` convert; `matmul_integer`, `qmatmul`, `conv_integer2d` and `qconv2d` compute
//! with integers as ONNX defines it; `matmul_quantized` multiplies real activations with packed quantised weights.
//! Numbers are rounded to the nearest integer, halves to the even one, and kept inside the type's range.

mod api;
mod attributes;
mod calibration;
mod conv;
mod cpu_conv_columns;
mod cpu_integer;
#[cfg(target_arch = "x86_64")]
mod cpu_integer_bytes;
mod cpu_integer_finish;
mod cpu_integer_pack;
mod cpu_integer_problem;
#[cfg(target_arch = "x86_64")]
mod cpu_integer_quads;
mod cpu_integer_reference;
mod cpu_integer_tile;
mod cpu_linear;
#[cfg(target_arch = "x86_64")]
mod cpu_linear_avx2;
mod cpu_linear_portable;
mod cpu_reference;
mod cpu_weights;
mod cpu_weights_dot;
mod cpu_weights_reference;
mod cpu_weights_widened;
mod description;
#[cfg(test)]
mod errors;
mod integer;
mod kind;
#[cfg(test)]
mod tests;
#[cfg(feature = "webgpu")]
pub mod webgpu;
mod weights;

use super::Kernel;

pub use attributes::{
    Along, IntegerMatmulAttributes, QuantizeAttributes, QuantizedMatmulAttributes, WeightZero,
};
pub use calibration::Calibration;
pub use description::{Granularity, Quantization};
pub use integer::IntegerOptions;
pub use kind::QuantType;
pub use weights::QuantizedWeights;

/// Every kernel of conversions, reference last.
pub static KERNELS: &[&dyn Kernel] = &[&cpu_linear::AVX2, &cpu_linear::PORTABLE, &cpu_reference::Reference];

/// Every kernel of integer products, reference last.
pub static INTEGER_KERNELS: &[&dyn Kernel] = &[
    #[cfg(target_arch = "x86_64")]
    &cpu_integer::AVX512_VNNI,
    #[cfg(target_arch = "x86_64")]
    &cpu_integer::AVX2,
    &cpu_integer::PORTABLE,
    &cpu_integer_reference::Reference,
];

/// Every kernel of products with quantised weights, reference last.
pub static WEIGHT_KERNELS: &[&dyn Kernel] = &[
    &cpu_weights::AVX2,
    &cpu_weights_widened::AVX512,
    &cpu_weights_widened::AVX2,
    &cpu_weights_widened::NEON,
    &cpu_weights::PORTABLE,
    &cpu_weights_widened::PORTABLE,
    &cpu_weights_reference::Reference,
];
