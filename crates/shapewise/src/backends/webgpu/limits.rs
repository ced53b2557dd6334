//! What a WebGPU device allows, as its adapter says.

pub use crate::tuning::GpuLimits as WebGpuLimits;

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
            alignment: limits.min_storage_buffer_offset_alignment,
            subgroup: subgroups.then_some((info.subgroup_min_size, info.subgroup_max_size)),
            f16: features.contains(wgpu::Features::SHADER_F16),
            u64: features.contains(wgpu::Features::SHADER_INT64),
        }
    }
}
