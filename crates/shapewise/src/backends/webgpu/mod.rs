//! WebGPU: whatever Vulkan, Metal, DirectX 12 or a browser reaches, through `wgpu`.
#![allow(unsafe_code)]

mod adaptor;
pub(crate) mod axes;
mod backend;
mod calibrate;
mod context;
mod copy;
mod device;
mod error;
mod executor;
mod host;
mod info;
mod kernel;
mod kernels;
mod limits;
mod options;
mod pieces;
mod pipeline;
mod pipeline_file;
mod plan;
mod pool;
mod profiler;
mod reflect;
#[cfg(not(target_family = "wasm"))]
mod shared;
mod staging;
mod submission;
#[cfg(test)]
pub(crate) mod testing;
mod trace;
pub(crate) mod wgsl;

pub use adaptor::{DeviceKernel, kernels_on};
pub use backend::WebGpuBackend;
pub use calibrate::{CopyCost, Overheads};
pub use device::WebGpuDevice;
pub use error::{Result, WebGpuError};
pub use executor::Batch;
pub use info::{AdapterInfo, AdapterKind};
pub use kernel::{WebGpuCost, WebGpuKernel};
pub use kernels::{KernelReport, WgslKernel};
pub use limits::WebGpuLimits;
pub use options::{PipelineCache, PowerPreference, WebGpuBackendBuilder};
pub use pipeline::PipelineStats;
pub use plan::{Access, Dispatch, Place, Plan, Shader};
pub use pool::{Buffer, Compaction, PoolStats, Usage};
pub use profiler::{Clock, MemoryEvent};
#[cfg(not(target_family = "wasm"))]
pub use shared::shared_device;
pub use submission::Submission;
pub use trace::{KernelEvent, MemoryRecord, Profile};
pub use wgpu;
