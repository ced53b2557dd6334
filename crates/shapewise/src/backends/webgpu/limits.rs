//! What a WebGPU device allows, as its adapter says.

/// Limits and abilities that kernels must keep to; read from the adapter, never assumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebGpuLimits {
    /// Invocations of a workgroup together.
    pub invocations: u32,
    /// Invocations of a workgroup along each axis.
    pub workgroup: [u32; 3],
    /// Bytes of `var<workgroup>` memory.
    pub workgroup_memory: u32,
    /// Workgroups of a dispatch along each axis.
    pub groups: u32,
    /// Bytes of one storage binding.
    pub storage_binding: u64,
    /// Bytes of one buffer.
    pub buffer: u64,
    /// Storage bindings of one shader.
    pub storage_bindings: u32,
    /// Smallest and largest subgroup; `None` without subgroup operations.
    pub subgroup: Option<(u32, u32)>,
    /// Whether 16-bit floats can be computed with.
    pub f16: bool,
}

impl WebGpuLimits {
    /// The limits of an open device.
    pub(super) fn of(limits: &wgpu::Limits, features: wgpu::Features, info: &wgpu::AdapterInfo) -> Self {
        let subgroups = features.contains(wgpu::Features::SUBGROUP);
        Self {
            invocations: limits.max_compute_invocations_per_workgroup,
            workgroup: [
                limits.max_compute_workgroup_size_x,
                limits.max_compute_workgroup_size_y,
                limits.max_compute_workgroup_size_z,
            ],
            workgroup_memory: limits.max_compute_workgroup_storage_size,
            groups: limits.max_compute_workgroups_per_dimension,
            storage_binding: limits.max_storage_buffer_binding_size,
            buffer: limits.max_buffer_size,
            storage_bindings: limits.max_storage_buffers_per_shader_stage,
            subgroup: subgroups.then_some((info.subgroup_min_size, info.subgroup_max_size)),
            f16: features.contains(wgpu::Features::SHADER_F16),
        }
    }
}
