//! What an adapter says about itself.

use super::WebGpuLimits;
use crate::device::{BackendKind, Caches, DeviceInfo};
use crate::tensor::DType;

/// What kind of machine an adapter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdapterKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU that another machine lends.
    Virtual,
    /// Software on the CPU.
    Cpu,
    /// It does not say.
    Other,
}

/// What an adapter says about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterInfo {
    /// The name its maker gave it.
    pub name: String,
    /// What kind of machine it is.
    pub kind: AdapterKind,
    /// The interface it is reached by: `vulkan`, `metal`, `dx12`, `webgpu`.
    pub interface: String,
    /// Numbers of its maker and design on the PCI bus; 0 where unknown.
    pub ids: (u32, u32),
    /// Its driver, with the version.
    pub driver: String,
    /// What kernels must keep to.
    pub limits: WebGpuLimits,
    /// Element types that kernels can compute with.
    pub dtypes: Vec<DType>,
    /// Whether the GPU can write timestamps.
    pub timestamps: bool,
    /// Whether compiled kernels can be kept on disk.
    pub pipeline_cache: bool,
}

impl AdapterInfo {
    pub(super) fn of(adapter: &wgpu::Adapter) -> Self {
        Self::from_parts(&adapter.get_info(), adapter.features(), &adapter.limits())
    }

    pub(super) fn from_parts(
        info: &wgpu::AdapterInfo,
        features: wgpu::Features,
        limits: &wgpu::Limits,
    ) -> Self {
        let limits = WebGpuLimits::of(limits, features, info);
        let mut dtypes = vec![DType::F32, DType::I32, DType::U32];
        dtypes.extend(limits.f16.then_some(DType::F16));
        Self {
            name: info.name.clone(),
            kind: match info.device_type {
                wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
                wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
                wgpu::DeviceType::VirtualGpu => AdapterKind::Virtual,
                wgpu::DeviceType::Cpu => AdapterKind::Cpu,
                wgpu::DeviceType::Other => AdapterKind::Other,
            },
            interface: info.backend.to_string(),
            ids: (info.vendor, info.device),
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
            limits,
            dtypes,
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            pipeline_cache: features.contains(wgpu::Features::PIPELINE_CACHE),
        }
    }

    /// The same in the words that all devices share. One queue takes the work, so `cores` and `threads` are 1.
    pub(super) fn device_info(&self) -> DeviceInfo {
        let mut features = vec![self.interface.clone()];
        features.extend(self.limits.f16.then(|| "f16".to_owned()));
        features.extend(self.limits.subgroup.map(|(least, most)| format!("subgroups {least} to {most}")));
        DeviceInfo {
            backend: BackendKind::WebGpu,
            name: self.name.clone(),
            model: Some(format!("{:04x}:{:04x}, {}", self.ids.0, self.ids.1, self.driver)),
            features,
            cores: 1,
            physical_cores: None,
            threads: 1,
            isas: Vec::new(),
            caches: Caches::default(),
            l3_groups: Vec::new(),
            numa: Vec::new(),
            memory: None,
            peaks: None,
        }
    }
}
