//! Many dispatches and copies in one submission, checked before anything is given to the driver.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::device::WebGpuDevice;
use super::error::{Result, WebGpuError};
use super::kernels::WgslKernel;
use super::pipeline::Pipeline;
use super::pool::{Buffer, Usage};
use super::profiler::{Clock, Stamps, Timed};
use super::submission::Submission;
use super::{Access, Place, Plan};

/// Part of a buffer as a kernel sees it.
#[derive(Clone)]
pub struct Bound {
    pub buffer: Buffer,
    pub offset: u64,
    pub size: u64,
}

impl Bound {
    /// All of a buffer.
    pub fn whole(buffer: &Buffer) -> Self {
        Self { buffer: buffer.clone(), offset: 0, size: buffer.len() }
    }
}

enum Step {
    Dispatch {
        pipeline: Arc<Pipeline>,
        bound: Vec<Bound>,
        /// Where in the batch's uniforms its own begin.
        uniform: Option<usize>,
        immediates: Vec<u8>,
        groups: [u32; 3],
    },
    Copy {
        from: Buffer,
        from_offset: u64,
        to: Buffer,
        to_offset: u64,
        len: u64,
    },
}

impl Step {
    fn label(&self) -> Option<&str> {
        match self {
            Self::Dispatch { pipeline, .. } => Some(&pipeline.label),
            Self::Copy { .. } => None,
        }
    }
}

/// Work that is given to the device at once; each step sees what those before it wrote.
pub struct Batch<'d> {
    device: &'d WebGpuDevice,
    steps: Vec<Step>,
    uniforms: Vec<u8>,
}

impl<'d> Batch<'d> {
    pub(super) fn new(device: &'d WebGpuDevice) -> Self {
        Self { device, steps: Vec::new(), uniforms: Vec::new() }
    }

    /// Adds a kernel: `uniform` are the bytes of its uniform block or of its immediates, `groups` the workgroups along each axis.
    ///
    /// More workgroups than the device takes along an axis are split, if that block has a member `group_offset: vec3<u32>` to be told
    /// where a piece begins.
    pub fn launch(
        &mut self,
        kernel: &WgslKernel,
        buffers: &[&Buffer],
        uniform: &[u8],
        groups: [u32; 3],
    ) -> Result<&mut Self> {
        if !kernel.is_of(self.device) {
            let reason = "the kernel was made for another device; create it on this one".into();
            return Err(WebGpuError::Binding { label: kernel.label().to_owned(), reason });
        }
        let bound = buffers.iter().map(|buffer| Bound::whole(buffer)).collect();
        self.dispatch(kernel.pipeline(), bound, uniform, groups)?;
        Ok(self)
    }

    /// Adds everything of a plan; `operands` are the buffers of its operands.
    pub fn plan(&mut self, plan: &Plan, operands: &[&Buffer]) -> Result<&mut Self> {
        let pipelines: Vec<_> = plan
            .shaders
            .iter()
            .map(|shader| self.device.pipelines().of_shader(shader))
            .collect::<Result<_>>()?;
        let scratch: Vec<_> =
            plan.scratch.iter().map(|&bytes| self.device.allocate(bytes)).collect::<Result<_>>()?;
        for dispatch in &plan.dispatches {
            let missing = |what: String| WebGpuError::Binding { label: "plan".into(), reason: what };
            let pipeline = pipelines
                .get(dispatch.shader)
                .ok_or_else(|| missing(format!("there is no shader {}", dispatch.shader)))?;
            let find = |place: &Place| {
                match *place {
                    Place::Operand(i) => operands.get(i).copied(),
                    Place::Scratch(i) => scratch.get(i),
                }
                .map(Bound::whole)
                .ok_or_else(|| WebGpuError::Binding {
                    label: pipeline.label.clone(),
                    reason: format!("there is no {place:?}"),
                })
            };
            let bound = dispatch.places.iter().map(find).collect::<Result<_>>()?;
            self.dispatch(pipeline, bound, &dispatch.uniform, dispatch.groups)?;
        }
        Ok(self)
    }

    /// Adds a copy of bytes whose offsets and length are multiples of four, between different buffers.
    pub(super) fn copy(&mut self, from: &Buffer, from_offset: u64, to: &Buffer, to_offset: u64, len: u64) {
        debug_assert!(
            [from_offset, to_offset, len].iter().all(|n| n.is_multiple_of(4)) && from.id() != to.id()
        );
        self.steps.push(Step::Copy { from: from.clone(), from_offset, to: to.clone(), to_offset, len });
    }

    pub(super) fn dispatch(
        &mut self,
        pipeline: &Arc<Pipeline>,
        mut bound: Vec<Bound>,
        uniform: &[u8],
        groups: [u32; 3],
    ) -> Result<()> {
        self.check(pipeline, &mut bound, uniform)?;
        let most = self.device.limits().groups;
        if groups.contains(&0) {
            return Ok(());
        }
        if groups.iter().all(|&n| n <= most) {
            self.push(pipeline, bound, uniform, [0; 3], groups);
            return Ok(());
        }
        if pipeline.reflection.group_offset.is_none() {
            return Err(WebGpuError::Limit {
                label: pipeline.label.clone(),
                reason: format!(
                    "{groups:?} workgroups, the device takes {most} along an axis; add `group_offset: vec3<u32>` to the uniform block \
                     so that the dispatch can be split"
                ),
            });
        }
        let starts = |axis: usize| (0..groups[axis]).step_by(most as usize);
        for z in starts(2) {
            for y in starts(1) {
                for x in starts(0) {
                    let start = [x, y, z];
                    let piece = std::array::from_fn(|axis| (groups[axis] - start[axis]).min(most));
                    self.push(pipeline, bound.clone(), uniform, start, piece);
                }
            }
        }
        Ok(())
    }

    fn push(
        &mut self,
        pipeline: &Arc<Pipeline>,
        bound: Vec<Bound>,
        uniform: &[u8],
        start: [u32; 3],
        groups: [u32; 3],
    ) {
        let asks = &pipeline.reflection;
        let tell = |block: &mut [u8]| {
            if let Some(member) = asks.group_offset {
                block[member as usize..member as usize + 12].copy_from_slice(bytemuck::bytes_of(&start));
            }
        };
        let mut immediates = Vec::new();
        let mut at = None;
        if asks.immediates > 0 {
            immediates.extend_from_slice(&uniform[..asks.immediates as usize]);
            tell(&mut immediates);
        } else if asks.uniform > 0 {
            let place = self.uniforms.len().next_multiple_of(self.device.uniform_alignment());
            self.uniforms.resize(place, 0);
            self.uniforms.extend_from_slice(uniform);
            tell(&mut self.uniforms[place..]);
            at = Some(place);
        }
        let pipeline = Arc::clone(pipeline);
        self.steps.push(Step::Dispatch { pipeline, bound, uniform: at, immediates, groups });
    }

    /// Checks buffers and uniforms against what the kernel's source says, and sets the bytes that each binding shows.
    fn check(&self, pipeline: &Pipeline, bound: &mut [Bound], uniform: &[u8]) -> Result<()> {
        let asks = &pipeline.reflection;
        let fail = |reason: String| Err(WebGpuError::Binding { label: pipeline.label.clone(), reason });
        if bound.len() != asks.bindings.len() {
            return fail(format!("{} buffers for {} bindings", bound.len(), asks.bindings.len()));
        }
        let (block, what) = match asks.immediates {
            0 => (asks.uniform, "uniforms"),
            bytes => (bytes, "immediates"),
        };
        if uniform.len() < block as usize || (block == 0 && !uniform.is_empty()) {
            return fail(format!(
                "{} bytes of {what} for a block of {block}; fill it with padding included",
                uniform.len()
            ));
        }
        for (i, (part, binding)) in bound.iter_mut().zip(&asks.bindings).enumerate() {
            if !self.device.owns(&part.buffer) || part.buffer.usage() != Usage::Storage {
                return fail(format!("buffer {i} is not a storage buffer of this device"));
            }
            // Elements are at most 16 bytes, and there is always room to round up to one.
            if part.size.max(1).next_multiple_of(16) < binding.least {
                return fail(format!(
                    "buffer {i} has {} bytes, the kernel needs {}",
                    part.size, binding.least
                ));
            }
            part.size = part.size.next_multiple_of(4).max(binding.least);
            let most = self.device.limits().storage_binding;
            if part.size > most {
                return fail(format!("buffer {i} has {} bytes, a binding takes {most}; split it", part.size));
            }
        }
        for (i, binding) in asks.bindings.iter().enumerate() {
            let same = |(j, other): (usize, &Bound)| j != i && other.buffer.id() == bound[i].buffer.id();
            if binding.access == Access::Write && bound.iter().enumerate().any(same) {
                return fail(format!("buffer {i} is written and bound twice; write to a buffer of its own"));
            }
        }
        Ok(())
    }

    /// Gives the work to the device and returns at once.
    pub fn submit(self) -> Result<Submission> {
        let profiler = self.device.profiler();
        let (index, timed) = self.give(profiler.recording())?;
        profiler.keep(timed);
        Ok(Submission::new(self.device.context(), index))
    }

    /// Gives the work to the device, waits, and returns the time of each dispatch by the device's clock.
    pub fn time(self) -> Result<Vec<Duration>> {
        if cfg!(target_family = "wasm") {
            let reason = "WebAssembly has no clock and cannot wait; use the browser's own profiler".into();
            return Err(WebGpuError::Unsupported { what: "to time kernels", reason });
        }
        let (_, timed) = self.give(Some(self.device.clock()))?;
        let mut times = Vec::with_capacity(self.steps.len());
        for timed in timed {
            times.extend(timed.read(self.device.context())?.into_iter().map(|(_, _, duration)| duration));
        }
        Ok(times)
    }

    /// Submits the steps: all at once, or with a clock in as many pieces as it needs.
    fn give(&self, clock: Option<Clock>) -> Result<(Option<wgpu::SubmissionIndex>, Vec<Timed>)> {
        let context = self.device.context();
        context.check()?;
        let _still = self.device.pool().hold();
        let uniforms = self.upload_uniforms()?;
        let most = match clock {
            None => self.steps.len(),
            Some(Clock::Gpu) => wgpu::QUERY_SET_MAX_QUERIES as usize / 2,
            Some(Clock::Wall) => 1,
        };
        let (mut last, mut timed) = (None, Vec::new());
        for steps in self.steps.chunks(most.max(1)) {
            let started = (clock == Some(Clock::Wall)).then(Instant::now);
            let labels = || steps.iter().filter_map(Step::label).map(str::to_owned).collect::<Vec<_>>();
            let stamps = (clock == Some(Clock::Gpu))
                .then(labels)
                .filter(|labels| !labels.is_empty())
                .map(|labels| Stamps::new(context, labels));
            let index = context.scoped("a submission", || {
                let encoder = self.encode(steps, uniforms.as_ref(), stamps.as_ref());
                context.queue.submit([encoder.finish()])
            })?;
            if let Some(started) = started {
                context.wait(Some(index.clone()), None)?;
                let duration = started.elapsed();
                timed.extend(labels().into_iter().map(|label| Timed::Wall { label, started, duration }));
            }
            timed.extend(stamps.map(Timed::Gpu));
            last = Some(index);
        }
        Ok((last, timed))
    }

    fn upload_uniforms(&self) -> Result<Option<Buffer>> {
        if self.uniforms.is_empty() {
            return Ok(None);
        }
        let mut bytes = self.uniforms.clone();
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        let buffer = self.device.pool().allocate(bytes.len() as u64, Usage::Uniform)?;
        self.device.context().queue.write_buffer(&buffer.raw(), 0, &bytes);
        Ok(Some(buffer))
    }

    fn encode(
        &self,
        steps: &[Step],
        uniforms: Option<&Buffer>,
        stamps: Option<&Stamps>,
    ) -> wgpu::CommandEncoder {
        let device = &self.device.context().device;
        let uniforms = uniforms.map(Buffer::raw);
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass: Option<wgpu::ComputePass<'static>> = None;
        let mut dispatches = 0;
        for step in steps {
            match step {
                Step::Copy { from, from_offset, to, to_offset, len } => {
                    pass = None;
                    encoder.copy_buffer_to_buffer(&from.raw(), *from_offset, &to.raw(), *to_offset, *len);
                }
                Step::Dispatch { pipeline, bound, uniform, immediates, groups } => {
                    let uniform = uniforms.as_ref().zip(*uniform);
                    let group = bind(device, pipeline, bound, uniform);
                    if stamps.is_some() {
                        // Timestamps are taken around passes.
                        pass = None;
                    }
                    let open = pass.get_or_insert_with(|| {
                        let timestamp_writes = stamps.map(|stamps| stamps.writes(dispatches));
                        let label = Some(pipeline.label.as_str());
                        let descriptor = wgpu::ComputePassDescriptor { label, timestamp_writes };
                        encoder.begin_compute_pass(&descriptor).forget_lifetime()
                    });
                    open.set_pipeline(&pipeline.raw);
                    open.set_bind_group(0, &group, &[]);
                    if !immediates.is_empty() {
                        open.set_immediates(0, immediates);
                    }
                    open.dispatch_workgroups(groups[0], groups[1], groups[2]);
                    dispatches += 1;
                }
            }
        }
        drop(pass);
        if let Some(stamps) = stamps {
            stamps.resolve(&mut encoder);
        }
        encoder
    }
}

fn bind(
    device: &wgpu::Device,
    pipeline: &Pipeline,
    bound: &[Bound],
    uniform: Option<(&wgpu::Buffer, usize)>,
) -> wgpu::BindGroup {
    let raws: Vec<_> = bound.iter().map(|part| part.buffer.raw()).collect();
    let entry = |binding: usize, buffer, offset, size| wgpu::BindGroupEntry {
        binding: binding as u32,
        resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset,
            size: wgpu::BufferSize::new(size),
        }),
    };
    let mut entries: Vec<_> = raws
        .iter()
        .zip(bound)
        .enumerate()
        .map(|(i, (raw, part))| entry(i, raw, part.offset, part.size))
        .collect();
    if let Some((raw, offset)) = uniform {
        let size = u64::from(pipeline.reflection.uniform);
        entries.push(entry(entries.len(), raw, offset as u64, size));
    }
    device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some(&pipeline.label),
        layout: &pipeline.layout,
        entries: &entries,
    })
}
