//! One folder per family of devices.

pub mod cpu;
#[cfg(feature = "webgpu")]
pub mod webgpu;
