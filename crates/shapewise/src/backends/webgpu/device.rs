//! One open GPU: its memory, its kernels, its queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::calibrate::Overheads;
use super::context::Context;
use super::error::Result;
use super::executor::Batch;
use super::info::AdapterInfo;
use super::kernels::WgslKernel;
use super::options::Options;
use super::pipeline::{PipelineStats, Pipelines};
use super::pipeline_file::PipelineFile;
use super::pool::{Buffer, Compaction, Pool, PoolStats, Usage};
use super::profiler::{Clock, Profiler};
use super::staging::Staging;
use super::submission::Submission;
use super::trace::Profile;
use super::{Plan, WebGpuError, WebGpuLimits};
use crate::device::{Device, DeviceInfo};

/// Features that are used where the adapter has them.
const WANTED: wgpu::Features = wgpu::Features::SHADER_F16
    .union(wgpu::Features::SHADER_INT64)
    .union(wgpu::Features::SUBGROUP)
    .union(wgpu::Features::TIMESTAMP_QUERY)
    .union(wgpu::Features::PIPELINE_CACHE)
    .union(wgpu::Features::IMMEDIATES);

/// One open GPU with a queue, memory and kernels of its own. Give it to other threads in an [`Arc`].
pub struct WebGpuDevice {
    context: Arc<Context>,
    adapter: AdapterInfo,
    pub(super) info: DeviceInfo,
    limits: WebGpuLimits,
    uniform_alignment: usize,
    preferred_workgroup: u32,
    number: usize,
    pool: Arc<Pool>,
    staging: Staging,
    pipelines: Pipelines,
    profiler: Arc<Profiler>,
    pub(super) overheads: Option<Overheads>,
}

impl WebGpuDevice {
    /// Opens an adapter with all it can do.
    pub(super) async fn open(adapter: &wgpu::Adapter, options: &Options) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let found = adapter.get_info();
        let failed = |reason: String| WebGpuError::Open { adapter: found.name.clone(), reason };
        let unwanted =
            if options.host_clock { wgpu::Features::TIMESTAMP_QUERY } else { wgpu::Features::empty() };
        let (device, queue) = adapter
            .request_device(&wgpu::DeviceDescriptor {
                label: Some("shapewise"),
                required_features: (adapter.features() & WANTED) - unwanted,
                // The defaults stop at 128 MiB for a binding, whatever the adapter can do.
                required_limits: adapter.limits(),
                experimental_features: wgpu::ExperimentalFeatures::disabled(),
                memory_hints: wgpu::MemoryHints::Performance,
                trace: wgpu::Trace::Off,
            })
            .await
            .map_err(|error| failed(error.to_string()))?;
        let info = AdapterInfo::from_parts(&found, device.features(), &device.limits());
        let mut limits = info.limits.clone();
        let largest = options.largest_buffer.map_or(limits.buffer, |most| most.min(limits.buffer));
        limits.buffer = largest;
        limits.storage_binding = limits.storage_binding.min(largest);
        let uniform_alignment = device.limits().min_uniform_buffer_offset_alignment as usize;
        let context = Arc::new(Context::new(device, queue));
        let profiler = Arc::new(Profiler::new(Arc::clone(&context)));
        let file = options.cache_folder().and_then(|folder| PipelineFile::open(&context, &found, &folder));
        Ok(Self {
            pool: Pool::new(Arc::clone(&context), Arc::clone(&profiler), options.memory, largest),
            staging: Staging::new(Arc::clone(&context)),
            pipelines: Pipelines::new(Arc::clone(&context), limits.clone(), file),
            info: info.device_info(),
            preferred_workgroup: options.workgroup.unwrap_or(limits.invocations).min(limits.invocations),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            adapter: info,
            context,
            limits,
            uniform_alignment,
            profiler,
            overheads: None,
        })
    }

    /// What kernels must keep to.
    pub fn limits(&self) -> &WebGpuLimits {
        &self.limits
    }

    /// What the adapter says about itself.
    pub fn adapter(&self) -> &AdapterInfo {
        &self.adapter
    }

    /// What it costs to have something done, beyond doing it; `None` before calibration.
    pub fn overheads(&self) -> Option<&Overheads> {
        self.overheads.as_ref()
    }

    /// Invocations of a workgroup where a kernel leaves it open: as the builder was told, else as many as the device takes.
    pub fn preferred_workgroup(&self) -> u32 {
        self.preferred_workgroup
    }

    /// Memory for kernels to read and write; it holds whatever was there last.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer> {
        self.pool.allocate(bytes, Usage::Storage)
    }

    /// Sizes and counters of the device's memory.
    pub fn memory(&self) -> PoolStats {
        self.pool.stats()
    }

    /// Gives memory that is kept for reuse back to the driver; returns its bytes.
    pub fn collect(&self) -> u64 {
        self.pool.collect()
    }

    /// Moves live buffers that have more room than they need to tighter ones, and gives the rest back to the driver.
    pub fn compact(&self) -> Result<Compaction> {
        self.pool.compact()
    }

    /// Compiles a kernel of your own; the same source and constants are compiled once.
    ///
    /// `constants` are values for the source's `override` declarations; one named `invocations` gets
    /// [`Self::preferred_workgroup`] unless it is given. A source that does not compile gives an error with its line.
    pub fn create_kernel(&self, label: &str, wgsl: &str, constants: &[(&str, f64)]) -> Result<WgslKernel> {
        WgslKernel::new(self, label, wgsl, constants)
    }

    /// Work to be given to the device at once.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(self)
    }

    /// Runs a kernel: a batch of one. `uniform` are the bytes of its uniform block or of its immediates.
    pub fn launch(
        &self,
        kernel: &WgslKernel,
        buffers: &[&Buffer],
        uniform: &[u8],
        groups: [u32; 3],
    ) -> Result<Submission> {
        let mut batch = self.batch();
        batch.launch(kernel, buffers, uniform, groups)?;
        batch.submit()
    }

    /// Runs a plan on the buffers of its operands: a batch of one.
    pub fn run(&self, plan: &Plan, operands: &[&Buffer]) -> Result<Submission> {
        let mut batch = self.batch();
        batch.plan(plan, operands)?;
        batch.submit()
    }

    /// Waits until everything given to the device is done.
    pub fn synchronize(&self) -> Result<()> {
        self.context.check()?;
        self.staging.flush()?;
        self.context.wait(None, None)
    }

    /// Waits at most this long. On a timeout the device counts as lost: a shader that never ends cannot be stopped.
    pub fn synchronize_within(&self, timeout: Duration) -> Result<()> {
        self.context.wait(None, Some(timeout))
    }

    /// How many kernels were compiled, and how long that took.
    pub fn compiled(&self) -> PipelineStats {
        self.pipelines.stats()
    }

    /// Writes compiled kernels to disk, as dropping the device does; returns the bytes, or `None` where nothing is kept.
    pub fn save_pipelines(&self) -> Option<usize> {
        self.pipelines.save()
    }

    /// Starts to record kernels, copies and memory.
    pub fn start_profile(&self) -> Result<()> {
        self.context.check()?;
        self.profiler.start()
    }

    /// Ends the recording and gives what happened.
    pub fn stop_profile(&self) -> Result<Profile> {
        self.profiler.stop()
    }

    /// Where kernels' times come from on this device.
    pub fn clock(&self) -> Clock {
        self.profiler.clock()
    }

    /// Whether the device is gone, with all that was in its memory.
    pub fn is_lost(&self) -> bool {
        self.context.poll();
        self.context.is_lost()
    }

    /// The device and queue of wgpu, for what this type has no words for.
    pub fn wgpu(&self) -> (&wgpu::Device, &wgpu::Queue) {
        (&self.context.device, &self.context.queue)
    }

    /// Keeps what was compiled and gives the device up: everything after this is an error.
    pub(super) fn shut_down(&self) {
        self.pipelines.save();
        self.context.destroy("it was shut down");
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(super) fn staging(&self) -> &Staging {
        &self.staging
    }

    pub(super) fn pipelines(&self) -> &Pipelines {
        &self.pipelines
    }

    pub(super) fn profiler(&self) -> &Profiler {
        &self.profiler
    }

    pub(super) fn uniform_alignment(&self) -> usize {
        self.uniform_alignment
    }

    /// Another number for every device of the process.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    pub(super) fn owns(&self, buffer: &Buffer) -> bool {
        buffer.is_of(&self.pool)
    }
}

impl Drop for WebGpuDevice {
    fn drop(&mut self) {
        self.pipelines.save();
    }
}

impl Device for WebGpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn synchronise(&self) -> crate::Result<()> {
        Ok(self.synchronize()?)
    }
}

impl std::fmt::Debug for WebGpuDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WebGpuDevice({}, {})", self.adapter.name, self.adapter.interface)
    }
}
