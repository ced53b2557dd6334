//! What the device did and when: kernels by GPU timestamps, copies and memory by the host's clock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::PoolStats;
use super::context::Context;
use super::error::{Result, WebGpuError};
use super::trace::{KernelEvent, MemoryRecord, Profile};

/// Where a kernel's time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Timestamps that the GPU writes at the start and end of a kernel.
    Gpu,
    /// The host's clock around a submission of this kernel alone: includes the hand-over to the driver.
    Wall,
}

/// What happened to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryEvent {
    /// A buffer was handed out.
    Allocate,
    /// A buffer came back.
    Free,
    /// Bytes went to the device.
    Upload,
    /// Bytes came from the device.
    Download,
    /// Live buffers were moved to tighter places; the bytes are those that were copied.
    Compact,
}

/// Timestamps of one submission that are still on the device.
pub struct Stamps {
    set: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    readable: wgpu::Buffer,
    labels: Vec<String>,
}

impl Stamps {
    /// Room for the start and end of each label's kernel.
    pub fn new(context: &Context, labels: Vec<String>) -> Self {
        let count = 2 * labels.len() as u32;
        let size = u64::from(count) * wgpu::QUERY_SIZE as u64;
        let buffer = |usage| {
            context.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("timestamps"),
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        let set = context.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("timestamps"),
            ty: wgpu::QueryType::Timestamp,
            count,
        });
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let readable = buffer(wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ);
        Self { set, resolved, readable, labels }
    }

    /// Where kernel `i` writes its times.
    pub fn writes(&self, i: usize) -> wgpu::ComputePassTimestampWrites<'_> {
        wgpu::ComputePassTimestampWrites {
            query_set: &self.set,
            beginning_of_pass_write_index: Some(2 * i as u32),
            end_of_pass_write_index: Some(2 * i as u32 + 1),
        }
    }

    /// Makes the times readable, at the end of the commands that write them.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.resolve_query_set(&self.set, 0..2 * self.labels.len() as u32, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.readable, 0, self.readable.size());
    }

    /// The ticks, when the work is done.
    pub fn read(&self, context: &Context) -> Result<Vec<u64>> {
        let slice = self.readable.slice(..);
        let refused = |reason: String| WebGpuError::Refused { what: "to read timestamps".into(), reason };
        slice.map_async(wgpu::MapMode::Read, |_| {});
        context.wait(None, None)?;
        let view = slice.get_mapped_range().map_err(|error| refused(error.to_string()))?;
        let ticks = view.chunks_exact(8).map(|tick| u64::from_le_bytes(tick.try_into().unwrap_or_default()));
        Ok(ticks.collect())
    }
}

/// Kernels that were timed, some perhaps still under way.
pub enum Timed {
    Gpu(Stamps),
    Wall { label: String, started: Instant, duration: Duration },
}

/// When a kernel began: a tick of the GPU, in its own count, or a moment of the host.
#[derive(Clone, Copy)]
pub enum Begin {
    Tick(u64),
    Moment(Instant),
}

impl Timed {
    /// Name, begin and duration of each kernel, when the work is done.
    pub fn read(&self, context: &Context) -> Result<Vec<(String, Begin, Duration)>> {
        match self {
            Self::Wall { label, started, duration } => {
                Ok(vec![(label.clone(), Begin::Moment(*started), *duration)])
            }
            Self::Gpu(stamps) => {
                let ticks = stamps.read(context)?;
                let pairs = stamps.labels.iter().zip(ticks.chunks_exact(2));
                Ok(pairs
                    .map(|(label, pair)| {
                        (
                            label.clone(),
                            Begin::Tick(pair[0]),
                            time_of(context, pair[1].saturating_sub(pair[0])),
                        )
                    })
                    .collect())
            }
        }
    }
}

/// Ticks of the GPU as time.
fn time_of(context: &Context, ticks: u64) -> Duration {
    Duration::from_nanos((ticks as f64 * f64::from(context.queue.get_timestamp_period())) as u64)
}

#[derive(Default)]
struct Session {
    start: Option<Instant>,
    /// A tick of the GPU and the moment it was taken, since the start.
    anchor: Option<(u64, Duration)>,
    pending: Vec<Timed>,
    memory: Vec<MemoryRecord>,
}

/// Collects events while it is on.
pub struct Profiler {
    context: Arc<Context>,
    clock: Clock,
    on: AtomicBool,
    session: Mutex<Session>,
}

impl Profiler {
    pub fn new(context: Arc<Context>) -> Self {
        let stamps = context.device.features().contains(wgpu::Features::TIMESTAMP_QUERY);
        let clock = if stamps { Clock::Gpu } else { Clock::Wall };
        Self { context, clock, on: AtomicBool::new(false), session: Mutex::default() }
    }

    fn session(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of kernels, if anything is recorded now.
    pub fn recording(&self) -> Option<Clock> {
        self.on.load(Ordering::Acquire).then_some(self.clock)
    }

    /// The clock that kernels are timed with on this device.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Starts anew; what an earlier session recorded is forgotten.
    pub fn start(&self) -> Result<()> {
        if cfg!(target_family = "wasm") {
            let reason = "WebAssembly has no clock; use the browser's own profiler".into();
            return Err(WebGpuError::Unsupported { what: "a profile", reason });
        }
        let start = Instant::now();
        let anchor = if self.clock == Clock::Gpu { Some(self.tick(start)?) } else { None };
        *self.session() = Session { start: Some(start), anchor, ..Session::default() };
        self.on.store(true, Ordering::Release);
        Ok(())
    }

    /// A tick of the GPU with the host's time: halfway between giving the work away and getting it back.
    fn tick(&self, start: Instant) -> Result<(u64, Duration)> {
        let given = start.elapsed();
        let stamps = Stamps::new(&self.context, vec![String::new()]);
        let mut encoder =
            self.context.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        drop(encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: Some(stamps.writes(0)),
        }));
        stamps.resolve(&mut encoder);
        self.context.scoped("a timestamp", || self.context.queue.submit([encoder.finish()]))?;
        let ticks = stamps.read(&self.context)?;
        Ok((ticks.first().copied().unwrap_or_default(), (given + start.elapsed()) / 2))
    }

    /// Keeps what was timed to be read at the end.
    pub fn keep(&self, timed: Vec<Timed>) {
        if !timed.is_empty() {
            self.session().pending.extend(timed);
        }
    }

    /// Notes an allocation or a release.
    pub fn memory(&self, event: MemoryEvent, bytes: u64, stats: &PoolStats) {
        if self.recording().is_some() {
            self.note(event, bytes, Instant::now(), Some(stats));
        }
    }

    /// The time, if anything is recorded now.
    pub fn begin(&self) -> Option<Instant> {
        self.recording().map(|_| Instant::now())
    }

    /// Notes a copy that started then and ends now.
    pub fn copied(&self, event: MemoryEvent, bytes: u64, started: Option<Instant>) {
        if let Some(started) = started {
            self.note(event, bytes, started, None);
        }
    }

    fn note(&self, event: MemoryEvent, bytes: u64, started: Instant, stats: Option<&PoolStats>) {
        let duration = if stats.is_some() { Duration::ZERO } else { started.elapsed() };
        let mut session = self.session();
        let Some(start) = session.start else { return };
        let start = started.saturating_duration_since(start);
        let held = stats.map(|stats| (stats.allocated, stats.reserved));
        session.memory.push(MemoryRecord { event, bytes, start, duration, held });
    }

    /// Stops and gives what was recorded, in the order of time.
    pub fn stop(&self) -> Result<Profile> {
        self.on.store(false, Ordering::Release);
        let mut session = std::mem::take(&mut *self.session());
        let (zero, at) = session.anchor.unwrap_or_default();
        let mut kernels = Vec::new();
        for timed in &session.pending {
            for (label, begin, duration) in timed.read(&self.context)? {
                let start = match begin {
                    Begin::Tick(tick) => at + time_of(&self.context, tick.saturating_sub(zero)),
                    Begin::Moment(moment) => {
                        session.start.map_or(Duration::ZERO, |start| moment.saturating_duration_since(start))
                    }
                };
                kernels.push(KernelEvent { label, start, duration });
            }
        }
        kernels.sort_by_key(|event| event.start);
        session.memory.sort_by_key(|event| event.start);
        Ok(Profile { clock: self.clock, kernels, memory: session.memory })
    }
}
