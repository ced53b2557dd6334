//! What is known about a device.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Peaks;
use crate::backends::cpu::simd::Isa;

/// A family of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum BackendKind {
    /// The processor this program runs on.
    Cpu,
    /// Whatever Vulkan, Metal, DirectX 12 or a browser reaches.
    WebGpu,
    /// NVIDIA's GPUs.
    Cuda,
    /// Apple's GPUs.
    Metal,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cpu => "cpu",
            Self::WebGpu => "webgpu",
            Self::Cuda => "cuda",
            Self::Metal => "metal",
        })
    }
}

/// Data caches in bytes, as one core sees them; `None` where the machine does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caches {
    /// First level, data.
    pub l1d: Option<usize>,
    /// Second level.
    pub l2: Option<usize>,
    /// Third level, shared.
    pub l3: Option<usize>,
}

impl Caches {
    /// Bytes from which on writing past the caches is worth a try: a quarter of the third level, or eight times the second, because
    /// the third is shared, on a virtual machine with others who are not seen.
    pub fn far(&self) -> usize {
        let (l2, l3) = (self.l2.unwrap_or(usize::MAX), self.l3.unwrap_or(usize::MAX));
        (l3 / 4).min(l2.saturating_mul(8))
    }
}

/// CPUs that are equally near to a piece of the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// Its number.
    pub id: usize,
    /// Its CPUs.
    pub cpus: Vec<usize>,
    /// Its memory in bytes.
    pub memory: Option<usize>,
}

/// What was found about a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// Its family.
    pub backend: BackendKind,
    /// The name its maker gave it.
    pub name: String,
    /// Maker, family, model and stepping: what tells two designs of the same name apart.
    pub model: Option<String>,
    /// Instruction set extensions that kernels care about, by their usual names.
    pub features: Vec<String>,
    /// Threads that can run at once, within what this process is allowed.
    pub cores: usize,
    /// Cores that share no execution units.
    pub physical_cores: Option<usize>,
    /// Threads the runtime uses on it.
    pub threads: usize,
    /// Instruction sets that kernels may use, worst first.
    pub isas: Vec<Isa>,
    /// Data caches.
    pub caches: Caches,
    /// CPUs that share a third-level cache, one list for each cache.
    pub l3_groups: Vec<Vec<usize>>,
    /// NUMA nodes; empty where the machine does not tell.
    pub numa: Vec<NumaNode>,
    /// Bytes of memory that may be used at most.
    pub memory: Option<usize>,
    /// Measured peaks; `None` before calibration.
    pub peaks: Option<Peaks>,
}
