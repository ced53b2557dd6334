//! What a device can do at most, measured: arithmetic, memory, and the way from and to the host.

use std::time::{Duration, Instant};

use super::device::WebGpuDevice;
use super::error::{Result, WebGpuError};
use super::kernels::WgslKernel;
use super::pool::Buffer;
use crate::device::{ArithmeticPeak, BandwidthPeak, Calibration, Fingerprint, Level, Peaks};
use crate::ops::ComputeUnit;
use crate::store::CalibrationFiles;
use crate::tensor::DType;

/// Bytes of the buffers that memory is measured with: more than the caches of common GPUs hold.
const MEMORY: u64 = 32 << 20;
/// Bytes of the copies between host and device that are timed.
const COPY: usize = 16 << 20;
/// A kernel is made longer until it takes this many seconds: a thousand times the tick of the coarsest GPU clocks, about 1 µs.
const LONG_ENOUGH: f64 = 1e-3;
/// Timings of each thing; the best counts, as all that disturbs makes them longer.
const SAMPLES: usize = 7;
/// No more timings are taken of a thing that took this long, after the one that warms up and another.
const ENOUGH: Duration = Duration::from_millis(100);
/// Dispatches of one batch when their own cost is measured.
const BATCH: usize = 100;

const INVOCATIONS: u32 = 64;
/// Rounds of the arithmetic kernel, each with eight fused multiply-adds of four numbers.
const ROUNDS: u64 = 256;

const ARITHMETIC: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<TYPE>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let a = vec4<TYPE>(TYPE(id.x % 7u) * 0.125);
    var x0 = a; var x1 = a + 1; var x2 = a + 2; var x3 = a + 3;
    var x4 = a + 4; var x5 = a + 5; var x6 = a + 6; var x7 = a + 7;
    for (var i = 0u; i < 256u; i++) {
        x0 = fma(x0, a, a); x1 = fma(x1, a, a); x2 = fma(x2, a, a); x3 = fma(x3, a, a);
        x4 = fma(x4, a, a); x5 = fma(x5, a, a); x6 = fma(x6, a, a); x7 = fma(x7, a, a);
    }
    let sum = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7;
    out[id.x % 64u] = sum.x + sum.y + sum.z + sum.w;
}";

const COPY_MEMORY: &str = "
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let stride = groups.x * 64u;
    for (var i = id.x; i < arrayLength(&x); i += stride) { y[i] = x[i]; }
}";

const READ_MEMORY: &str = "
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let stride = groups.x * 64u;
    var sum = vec4<f32>();
    for (var i = id.x; i < arrayLength(&x); i += stride) { sum += x[i]; }
    y[id.x] = sum;
}";

/// Seconds of a copy between host and device: a fixed part and one for each byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyCost {
    /// Seconds of a copy of next to nothing.
    pub latency: f64,
    /// Bytes per second beyond that.
    pub rate: f64,
}

impl CopyCost {
    /// Seconds for so many bytes.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.latency + bytes / self.rate
    }
}

/// What it costs to have something done, beyond doing it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overheads {
    /// Seconds to give a batch to the device and hear that it is done.
    pub submit: f64,
    /// Seconds for each further dispatch of a batch.
    pub dispatch: f64,
    /// Host to device.
    pub upload: CopyCost,
    /// Device to host.
    pub download: CopyCost,
}

impl WebGpuDevice {
    /// Measures the device, or takes its peaks from the files if it was measured before; about a second.
    pub fn calibrate(&mut self, files: Option<&CalibrationFiles>) -> Result<()> {
        if cfg!(target_family = "wasm") {
            let reason = "WebAssembly has no clock and cannot wait".into();
            return Err(WebGpuError::Unsupported { what: "a calibration", reason });
        }
        let fingerprint = Fingerprint::of(&self.info);
        let kept = files.and_then(|files| files.load(&fingerprint)).map(|kept| kept.peaks);
        let overheads = self.measure_overheads()?;
        let peaks = match kept {
            Some(peaks) => peaks,
            None => self.measure_peaks(overheads.submit)?,
        };
        if let Some(files) = files {
            let device = Fingerprint::description(&self.info);
            files.save(&Calibration { fingerprint, device, attempts: 1, peaks: peaks.clone() });
        }
        self.info.peaks = Some(peaks);
        self.overheads = Some(overheads);
        self.collect();
        Ok(())
    }

    fn measure_peaks(&self, submit: f64) -> Result<Peaks> {
        let mut arithmetic = vec![self.measure_arithmetic(DType::F32)?];
        if self.limits().f16 {
            arithmetic.push(self.measure_arithmetic(DType::F16)?);
        }
        let bytes = MEMORY.min(self.limits().storage_binding);
        let (x, y) = (self.upload(&vec![0u8; bytes as usize])?, self.allocate(bytes)?);
        let copy = 2.0 * bytes as f64 / self.memory_seconds("calibrate copy", COPY_MEMORY, &x, &y)?;
        let read = bytes as f64 / self.memory_seconds("calibrate read", READ_MEMORY, &x, &y)?;
        // A GPU has no second way of storing, so streaming is copying.
        let bandwidth = vec![BandwidthPeak { level: Level::Memory, threads: 1, read, copy, stream: copy }];
        Ok(Peaks { arithmetic, bandwidth, hand_off: Some(submit), wake: None, busy: false })
    }

    fn measure_arithmetic(&self, dtype: DType) -> Result<ArithmeticPeak> {
        let enable = if dtype == DType::F16 { "enable f16;" } else { "" };
        let wgsl = format!("{enable}{}", ARITHMETIC.replace("TYPE", dtype.name()));
        let kernel = self.create_kernel("calibrate arithmetic", &wgsl, &[])?;
        let out = self.allocate(64 * 4)?;
        let mut groups = 1;
        let seconds = loop {
            let seconds = self.best(&kernel, &[&out], groups)?;
            if seconds >= LONG_ENOUGH || groups * 2 > self.limits().groups {
                break seconds;
            }
            groups *= 2;
        };
        let operations = u64::from(groups * INVOCATIONS) * ROUNDS * 8 * 4 * 2;
        let unit = ComputeUnit { dtype, isa: None };
        Ok(ArithmeticPeak { unit, threads: 1, operations_per_second: operations as f64 / seconds })
    }

    /// The best time over different numbers of workgroups: few suit a CPU, many a GPU.
    fn memory_seconds(&self, label: &str, wgsl: &str, x: &Buffer, y: &Buffer) -> Result<f64> {
        let kernel = self.create_kernel(label, wgsl, &[])?;
        let mut best = f64::INFINITY;
        for groups in [1 << 10, 1 << 13] {
            best = best.min(self.best(&kernel, &[x, y], groups)?);
        }
        Ok(best)
    }

    /// The best time of a kernel.
    fn best(&self, kernel: &WgslKernel, buffers: &[&Buffer], groups: u32) -> Result<f64> {
        let mut best = f64::INFINITY;
        let start = Instant::now();
        for sample in 0..=SAMPLES {
            if sample > 1 && start.elapsed() > ENOUGH {
                break;
            }
            let mut batch = self.batch();
            batch.launch(kernel, buffers, &[], [groups, 1, 1])?;
            let seconds: f64 = batch.time()?.iter().map(Duration::as_secs_f64).sum();
            best = best.min(seconds);
        }
        Ok(best)
    }

    fn measure_overheads(&self) -> Result<Overheads> {
        let nothing = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() { x[0] = 1u; }";
        let kernel = self.create_kernel("calibrate dispatch", nothing, &[])?;
        let word = self.upload(&[0u32])?;
        let batch = |dispatches: usize| {
            let mut batch = self.batch();
            for _ in 0..dispatches {
                batch.launch(&kernel, &[&word], &[], [1, 1, 1])?;
            }
            batch.submit()?.wait()
        };
        let submit = typical(|| batch(1))?;
        let many = typical(|| batch(1 + BATCH))?;
        let bytes = COPY.min(usize::try_from(self.limits().buffer).unwrap_or(COPY));
        let data = vec![1u8; bytes];
        let large = self.upload(&data)?;
        let mut back = data.clone();
        let write = |buffer: &Buffer, bytes: &[u8]| {
            self.write(buffer, 0, bytes)?;
            self.synchronize()
        };
        let upload = [typical(|| write(&word, &[0; 4]))?, typical(|| write(&large, &data))?];
        let download =
            [typical(|| self.read(&word, 0, &mut [0; 4]))?, typical(|| self.read(&large, 0, &mut back))?];
        let cost = |[short, long]: [f64; 2]| CopyCost {
            latency: short,
            rate: bytes as f64 / (long - short).max(f64::MIN_POSITIVE),
        };
        Ok(Overheads {
            submit,
            dispatch: (many - submit).max(0.0) / BATCH as f64,
            upload: cost(upload),
            download: cost(download),
        })
    }
}

/// The median of a few timings, after one that warms up.
fn typical(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let mut times = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[SAMPLES / 2])
}
