//! The CPU as a device: threads, memory, and what is known about it.

use super::calibrate::measure;
use super::simd::Isa;
use super::topology::Topology;
use super::{MemoryPlan, MemoryPool, PooledBytes, ThreadPool};
use crate::device::{Backend, BackendKind, Device, DeviceInfo, calibrate};
use crate::error::{Error, Result};
use crate::store::CalibrationFiles;

/// The processor this program runs on.
pub struct CpuDevice {
    info: DeviceInfo,
    threads: ThreadPool,
    memory: MemoryPool,
}

impl CpuDevice {
    /// Opens the CPU with a pool of `threads` threads (the caller included) and memory from `memory`.
    pub fn new(info: DeviceInfo, memory: MemoryPool) -> Self {
        let threads = ThreadPool::new(info.threads);
        Self { info, threads, memory }
    }

    /// Fills in the peaks: those that were kept for this device, or measured now, which takes about two seconds.
    pub fn calibrate(&mut self, files: Option<&CalibrationFiles>) {
        let peaks = calibrate(&self.info, files, || measure(&self.info, &self.threads));
        self.info.peaks = Some(peaks);
    }

    /// The pool of threads.
    #[inline]
    pub fn threads(&self) -> &ThreadPool {
        &self.threads
    }

    /// Where tensors and scratch come from.
    #[inline]
    pub fn memory(&self) -> &MemoryPool {
        &self.memory
    }

    /// Places large buffers from now on; what the machine cannot do is an error that says why.
    pub fn place(&self, plan: MemoryPlan) -> Result<()> {
        let nodes: Vec<usize> = self.info.numa.iter().map(|node| node.id).collect();
        self.memory
            .place(plan, &nodes)
            .map_err(|reason| Error::Unsupported { what: format!("{plan:?} memory"), reason })
    }

    /// Aligned memory for the time of a call; it holds whatever was there last.
    #[inline]
    pub fn scratch(&self, bytes: usize) -> Result<PooledBytes> {
        Ok(self.memory.take(bytes)?)
    }
}

impl Device for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// CPU kernels are done when their launch returns.
    fn synchronise(&self) -> Result<()> {
        Ok(())
    }
}

/// Finds the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuBackend;

impl Backend for CpuBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Cpu
    }

    fn find(&self) -> Vec<DeviceInfo> {
        let found = Topology::detect();
        vec![DeviceInfo {
            backend: BackendKind::Cpu,
            name: found.brand.unwrap_or_else(|| "CPU".into()),
            model: found.model,
            features: found.features,
            cores: found.logical_cores,
            physical_cores: found.physical_cores,
            threads: found.logical_cores,
            isas: Isa::available().to_vec(),
            caches: found.caches,
            l3_groups: found.l3_groups,
            numa: found.numa,
            memory: found.memory,
            peaks: None,
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_placed_or_the_reason_is_told() {
        let mut info = CpuBackend.find().remove(0);
        info.numa.truncate(1);
        let device = CpuDevice::new(info, MemoryPool::new(None));
        let error = device.place(MemoryPlan::Interleaved).unwrap_err().to_string();
        assert!(error.contains("Interleaved") && error.contains("turns need two"), "{error}");
        assert_eq!(device.memory().plan(), MemoryPlan::LargePages, "what cannot be done changes nothing");
        drop(device.scratch(4 << 20).unwrap());
        assert!(device.memory().stats().bytes_kept > 0);
        device.place(MemoryPlan::Default).unwrap();
        assert_eq!((device.memory().plan(), device.memory().stats().bytes_kept), (MemoryPlan::Default, 0));
        let mut bytes = device.scratch(4 << 20).unwrap();
        bytes.fill(1);
        assert!(bytes.iter().all(|&byte| byte == 1));
    }
}
