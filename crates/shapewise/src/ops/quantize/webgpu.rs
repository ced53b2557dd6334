//! Quantised numbers on WebGPU, which has no memory of bytes: they are taken out of words and put into them.

#[path = "webgpu_integer.rs"]
mod integer;
#[path = "webgpu_integer_problem.rs"]
mod integer_problem;
#[path = "webgpu_linear.rs"]
mod linear;
#[path = "webgpu_runs.rs"]
mod runs;
#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;
#[path = "webgpu_weights.rs"]
mod weights;

use crate::backends::webgpu::WebGpuKernel;

/// Every WebGPU kernel of conversions.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] = &[&runs::Runs, &linear::Words];

/// Every WebGPU kernel of integer products.
pub static WEBGPU_INTEGER_KERNELS: &[&dyn WebGpuKernel] = &[&integer::DOT, &integer::UNPACKED];

/// Every WebGPU kernel of products with quantised weights.
pub static WEBGPU_WEIGHT_KERNELS: &[&dyn WebGpuKernel] = &[&weights::EACH, &weights::WORKGROUP];

/// Divisions, roundings and short floats exactly as the CPU has them.
const NUMBERS: &str = include_str!("webgpu_numbers.wgsl");
