//! Settings of the backend.

use std::path::PathBuf;

use super::backend::WebGpuBackend;
use super::error::Result;
use crate::store::cache_directory;

/// Which adapter is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The best one.
    #[default]
    Any,
    /// By its place in [`WebGpuBackend::adapters`].
    Index(usize),
    /// By a part of its name.
    Name(String),
}

/// What matters when there are several adapters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerPreference {
    /// Speed: a GPU with memory of its own first.
    #[default]
    HighPerformance,
    /// Power: a GPU that shares the host's memory first.
    LowPower,
}

/// Where compiled kernels are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PipelineCache {
    /// In the cache directory of the library.
    #[default]
    Default,
    /// In this folder.
    Folder(PathBuf),
    /// Nowhere.
    Off,
}

/// Everything a device is opened with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub wanted: Wanted,
    pub power: PowerPreference,
    pub debug: bool,
    pub largest_buffer: Option<u64>,
    pub memory: Option<u64>,
    pub pipeline_cache: PipelineCache,
    pub workgroup: Option<u32>,
    pub calibrate: bool,
    pub host_clock: bool,
}

impl Options {
    /// The folder of compiled kernels.
    pub fn cache_folder(&self) -> Option<PathBuf> {
        match &self.pipeline_cache {
            PipelineCache::Default => cache_directory().map(|folder| folder.join("webgpu")),
            PipelineCache::Folder(folder) => Some(folder.clone()),
            PipelineCache::Off => None,
        }
    }
}

/// Settings for a [`WebGpuBackend`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct WebGpuBackendBuilder {
    options: Options,
}

impl WebGpuBackendBuilder {
    /// The adapter at this place of [`WebGpuBackend::adapters`].
    pub fn adapter(mut self, index: usize) -> Self {
        self.options.wanted = Wanted::Index(index);
        self
    }

    /// The first adapter whose name contains this, in upper or lower case.
    pub fn adapter_named(mut self, name: &str) -> Self {
        self.options.wanted = Wanted::Name(name.to_owned());
        self
    }

    /// What matters when there are several adapters; speed unless told.
    pub fn power_preference(mut self, preference: PowerPreference) -> Self {
        self.options.power = preference;
        self
    }

    /// Validation layers of the driver where they are installed, and names on everything that is submitted.
    pub fn debug(mut self, on: bool) -> Self {
        self.options.debug = on;
        self
    }

    /// Bytes that one buffer, and so one binding, may have at most; the device's own limits unless told.
    pub fn max_buffer_size(mut self, bytes: u64) -> Self {
        self.options.largest_buffer = Some(bytes);
        self
    }

    /// Bytes of device memory that all buffers together may hold; no limit unless told.
    pub fn max_memory(mut self, bytes: u64) -> Self {
        self.options.memory = Some(bytes);
        self
    }

    /// Where compiled kernels are kept between processes, if the adapter supports it.
    pub fn pipeline_cache(mut self, cache: PipelineCache) -> Self {
        self.options.pipeline_cache = cache;
        self
    }

    /// Invocations of a workgroup where a kernel leaves it open; as many as the device takes unless told.
    pub fn preferred_workgroup(mut self, invocations: u32) -> Self {
        self.options.workgroup = Some(invocations.max(1));
        self
    }

    /// Times kernels by the host's clock also where the GPU has timestamps, for drivers whose timestamps are wrong.
    pub fn host_clock(mut self, on: bool) -> Self {
        self.options.host_clock = on;
        self
    }

    /// Measures each device when it is opened (about a second, once per driver): without it nothing can be predicted.
    pub fn calibrate(mut self, on: bool) -> Self {
        self.options.calibrate = on;
        self
    }

    /// The backend; an error if no adapter is what was asked for. Nothing is opened yet.
    #[cfg(not(target_family = "wasm"))]
    pub fn build(self) -> Result<WebGpuBackend> {
        pollster::block_on(self.build_async())
    }

    /// The same without blocking, for browsers.
    pub async fn build_async(self) -> Result<WebGpuBackend> {
        WebGpuBackend::find(self.options).await
    }
}
