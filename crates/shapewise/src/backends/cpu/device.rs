//! The CPU as a device: threads, memory, and what is known about it.

use super::calibrate::measure;
use super::simd::Isa;
use super::topology::Topology;
use super::{MemoryPool, PooledBytes, ThreadPool};
use crate::device::{Backend, BackendKind, Device, DeviceInfo, calibrate};
use crate::error::Result;
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
