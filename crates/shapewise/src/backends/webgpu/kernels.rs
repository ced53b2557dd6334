//! Kernels from a user's WGSL.

use std::sync::Arc;
use std::time::Duration;

use super::Access;
use super::device::WebGpuDevice;
use super::error::Result;
use super::pipeline::{Pipeline, Source};
use super::reflect::{INVOCATIONS, declares};

/// A compiled kernel of the user's own.
///
/// Its source has one `@compute` entry point, storage buffers at `@group(0) @binding(0)`, 1, 2 … and, after them, at most one uniform block;
/// or a `var<immediate>` instead of that where the device has them.
#[derive(Clone)]
pub struct WgslKernel {
    pipeline: Arc<Pipeline>,
    device: usize,
}

/// What is known about a compiled kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelReport {
    /// Time of parsing, checking and creating the pipeline; some drivers translate only at the first dispatch.
    pub compile_time: Duration,
    /// How each storage binding is used.
    pub bindings: Vec<Access>,
    /// Bytes of the uniform block; 0 without one.
    pub uniform: u32,
    /// Bytes of the immediates; 0 without any.
    pub immediates: u32,
    /// Invocations of a workgroup.
    pub workgroup: [u32; 3],
    /// Bytes of workgroup memory.
    pub workgroup_memory: u32,
    /// What compiles but is probably not meant.
    pub warnings: Vec<String>,
}

impl WgslKernel {
    /// Compiles a source, or finds it compiled. `constants` are values for its `override` declarations; one named `invocations` gets the
    /// device's preferred workgroup size unless it is given here.
    pub(super) fn new(
        device: &WebGpuDevice,
        label: &str,
        wgsl: &str,
        constants: &[(&str, f64)],
    ) -> Result<Self> {
        let mut constants = constants.to_vec();
        let given = constants.iter().any(|&(name, _)| name == INVOCATIONS);
        if !given && declares(wgsl, INVOCATIONS) {
            constants.push((INVOCATIONS, f64::from(device.preferred_workgroup())));
        }
        let source = Source { label, wgsl, constants: &constants, subgroups: wgsl.contains("subgroup") };
        Ok(Self { pipeline: device.pipelines().get(&source)?, device: device.number() })
    }

    /// The name it was given.
    pub fn label(&self) -> &str {
        &self.pipeline.label
    }

    /// What it needs and how long it took to compile.
    pub fn report(&self) -> KernelReport {
        let said = &self.pipeline.reflection;
        KernelReport {
            compile_time: self.pipeline.compile_time,
            bindings: said.bindings.iter().map(|binding| binding.access).collect(),
            uniform: said.uniform,
            immediates: said.immediates,
            workgroup: said.workgroup,
            workgroup_memory: said.workgroup_memory,
            warnings: said.warnings.clone(),
        }
    }

    pub(super) fn pipeline(&self) -> &Arc<Pipeline> {
        &self.pipeline
    }

    pub(super) fn is_of(&self, device: &WebGpuDevice) -> bool {
        self.device == device.number()
    }
}
