//! What the machine tells about its processor: cores, caches, NUMA nodes, features, memory.
//!
//! Nothing here is guessed: what cannot be read is `None` or empty.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::device::{Caches, NumaNode};

/// Processor and memory, as far as the machine tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The name its maker gave it.
    pub brand: Option<String>,
    /// Maker, family, model and stepping: what tells two designs of the same name apart.
    pub model: Option<String>,
    /// Instruction set extensions that kernels care about, by their usual names.
    pub features: Vec<String>,
    /// Threads that may run at once, within the affinity and quota of this process.
    pub logical_cores: usize,
    /// Cores that share no execution units.
    pub physical_cores: Option<usize>,
    /// Data caches; of the largest core where they differ.
    pub caches: Caches,
    /// CPUs that share a third-level cache, one list for each cache.
    pub l3_groups: Vec<Vec<usize>>,
    /// NUMA nodes; empty where the machine does not tell.
    pub numa: Vec<NumaNode>,
    /// Memory that this process may use at most, in bytes.
    pub memory: Option<usize>,
}

impl Topology {
    /// Asks the machine.
    pub fn detect() -> Self {
        #[allow(unused_mut)] // on a system without a reader of its own
        let mut found = Self {
            logical_cores: std::thread::available_parallelism().map_or(1, usize::from),
            features: features(),
            ..Self::default()
        };
        #[cfg(target_os = "linux")]
        linux::read(std::path::Path::new("/"), &mut found);
        #[cfg(target_os = "macos")]
        macos::read(&mut found);
        #[cfg(target_arch = "x86_64")]
        x86::read(&mut found);
        found
    }
}

/// The names of those features that the CPU has.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! detected {
    ($detect:ident: $($name:tt)*) => {
        [$(($name, std::arch::$detect!($name))),*]
    };
}

#[cfg(target_arch = "x86_64")]
fn features() -> Vec<String> {
    names(&detected!(is_x86_feature_detected:
        "sse4.2" "avx" "f16c" "fma" "avx2" "avxvnni" "avx512f" "avx512bw" "avx512dq" "avx512vl" "avx512vnni"
        "avx512bf16" "avx512fp16" "gfni" "bmi2"))
}

#[cfg(target_arch = "aarch64")]
fn features() -> Vec<String> {
    names(&detected!(is_aarch64_feature_detected: "neon" "fp16" "fhm" "dotprod" "bf16" "i8mm" "sve" "sve2"))
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn features() -> Vec<String> {
    Vec::new()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn names(features: &[(&str, bool)]) -> Vec<String> {
    features.iter().filter(|(_, present)| *present).map(|(name, _)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells_something_sensible() {
        let found = Topology::detect();
        assert!(found.logical_cores >= 1);
        assert!(found.physical_cores.is_none_or(|cores| cores >= 1));
        let Caches { l1d, l2, l3 } = found.caches;
        for (small, large) in [(l1d, l2), (l2, l3)] {
            if let (Some(small), Some(large)) = (small, large) {
                assert!(small > 0 && small <= large);
            }
        }
        assert!(found.memory.is_none_or(|bytes| bytes > 1 << 20));
        assert!(found.brand.is_none_or(|brand| !brand.trim().is_empty()));
        assert!(found.l3_groups.iter().all(|group| !group.is_empty()));
    }
}
