//! One recurrent layer on WebGPU: a dispatch for each step after one product of all inputs, or all steps in one dispatch.

#[path = "webgpu_layer.rs"]
mod layer;
#[path = "webgpu_projected.rs"]
mod projected;
#[path = "webgpu_resident.rs"]
mod resident;
#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;

use crate::backends::webgpu::WebGpuKernel;

/// Every WebGPU kernel.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] = &[&projected::Projected, &resident::Resident];
