//! What the backend costs over bare wgpu doing the same on the same adapter, side by side; answers are checked before they are timed.
//! Arguments choose parts: `dispatches`, `copies`, `starts`, `leak`.

use std::time::Instant;

use shapewise::backends::webgpu::wgpu::{self, util::DeviceExt};
use shapewise::backends::webgpu::{PipelineCache, WebGpuBackend, WebGpuDevice};

const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<uniform> n: u32;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < n { x[id.x] += 1u; }
}";

/// Median seconds of two contestants that take turns.
fn race(rounds: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) -> (f64, f64) {
    let mut times = [Vec::new(), Vec::new()];
    let timed = |run: &mut dyn FnMut()| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    for round in 0..rounds + 3 {
        let pair = [timed(&mut ours), timed(&mut theirs)];
        // The first rounds warm up: drivers compile at the first dispatch.
        if round >= 3 {
            times[0].push(pair[0]);
            times[1].push(pair[1]);
        }
    }
    let [ours, theirs] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    (ours, theirs)
}

/// The same kernel on bare wgpu.
struct Bare<'a> {
    device: &'a wgpu::Device,
    queue: &'a wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    data: wgpu::Buffer,
    uniform: wgpu::Buffer,
    readable: wgpu::Buffer,
}

impl<'a> Bare<'a> {
    fn new(ours: &'a WebGpuDevice, bytes: u64) -> Self {
        let (device, queue) = ours.wgpu();
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(INCREMENT.into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let buffer = |usage| {
            let descriptor =
                wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
            device.create_buffer(&descriptor)
        };
        let both = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let data = buffer(wgpu::BufferUsages::STORAGE | both);
        let readable = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let uniform = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: None,
            contents: &64u32.to_le_bytes(),
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
        });
        Self { device, queue, pipeline, data, uniform, readable }
    }

    fn wait(&self) {
        self.device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    }

    /// Uniforms, bindings and dispatches as a program without a backend would write them.
    fn dispatch(&self, times: u32) {
        self.queue.write_buffer(&self.uniform, 0, &64u32.to_le_bytes());
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for _ in 0..times {
            let layout = self.pipeline.get_bind_group_layout(0);
            let entry = |binding, buffer| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer,
                    offset: 0,
                    size: None,
                }),
            };
            let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &[entry(0, &self.data), entry(1, &self.uniform)],
            });
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
        drop(pass);
        self.queue.submit([encoder.finish()]);
    }

    fn upload(&self, bytes: &[u8]) {
        self.queue.write_buffer(&self.data, 0, bytes);
        self.queue.submit([]);
        self.wait();
    }

    /// A read-back through one staging buffer that is made once: what a careful program does.
    fn download(&self, out: &mut [u8]) {
        let len = out.len() as u64;
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(&self.data, 0, &self.readable, 0, len);
        self.queue.submit([encoder.finish()]);
        self.readable.map_async(wgpu::MapMode::Read, ..len, |mapped| mapped.unwrap());
        self.wait();
        out.copy_from_slice(&self.readable.get_mapped_range(..len).unwrap());
        self.readable.unmap();
    }
}

fn dispatches(device: &WebGpuDevice, bare: &Bare<'_>) {
    let kernel = device.create_kernel("increment", INCREMENT, &[]).unwrap();
    let x = device.upload(&[0u32; 64]).unwrap();
    let n = 64u32.to_le_bytes();
    for times in [1, 100] {
        let ours = || {
            let mut batch = device.batch();
            for _ in 0..times {
                batch.launch(&kernel, &[&x], &n, [1, 1, 1]).unwrap();
            }
            batch.submit().unwrap().wait().unwrap();
        };
        let theirs = || {
            bare.dispatch(times);
            bare.wait();
        };
        let (ours, theirs) = race(201, ours, theirs);
        println!(
            "{times:>8} dispatches   ours {:>8.1} µs   bare {:>8.1} µs   {:.2}× the time (bar: ≤ 1.3)",
            ours * 1e6,
            theirs * 1e6,
            ours / theirs
        );
    }
    let counted = device.download::<u32>(&x).unwrap();
    assert_eq!(counted, [204 * 101; 64]);
}

fn copies(device: &WebGpuDevice, bare: &Bare<'_>, bytes: usize) {
    let data: Vec<u8> = (0..bytes).map(|i| (i * 31 % 251) as u8).collect();
    let x = device.allocate(bytes as u64).unwrap();
    let rounds = (1 << 28) / bytes;
    let upload = race(
        rounds.clamp(15, 301),
        || {
            device.write(&x, 0, &data).unwrap();
            device.synchronize().unwrap();
        },
        || bare.upload(&data),
    );
    let (mut ours, mut theirs) = (vec![0; bytes], vec![0; bytes]);
    let download =
        race(rounds.clamp(15, 301), || device.read(&x, 0, &mut ours).unwrap(), || bare.download(&mut theirs));
    assert!(ours == data && theirs == data);
    for (what, (ours, theirs)) in [("upload", upload), ("download", download)] {
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        println!(
            "{bytes:>9} bytes {what:<8} ours {:>7.3} GB/s   bare {:>7.3} GB/s   {:.2}× the rate (bar: ≥ 0.8)",
            rate(ours),
            rate(theirs),
            theirs / ours
        );
    }
}

/// Resident bytes of this process; `None` where the system does not tell.
fn resident() -> Option<u64> {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

fn leak(device: &WebGpuDevice) {
    let kernel = device.create_kernel("increment", INCREMENT, &[]).unwrap();
    for thousands in 1..=100u64 {
        for i in 0..100u64 {
            let x = device.upload(&vec![0u32; 64 + (i as usize * 37) % 1000]).unwrap();
            for _ in 0..10 {
                device.launch(&kernel, &[&x], &64u32.to_le_bytes(), [1, 1, 1]).unwrap();
            }
            assert_eq!(device.download::<u32>(&x).unwrap()[0], 10);
        }
        if [10, 50, 100].contains(&thousands) {
            let resident =
                resident().map_or("?".into(), |bytes| format!("{:.1} MiB", bytes as f64 / 1_048_576.0));
            println!("{thousands:>3} 000 operations: {resident} resident, pool {:?}", device.memory());
        }
    }
}

/// Variable that tells a child of this program where compiled kernels are kept.
const FOLDER: &str = "SHAPEWISE_BENCH_PIPELINES";

/// Compiles kernels, runs each once and prints the seconds: drivers compile at creation or at the first dispatch.
fn compile(folder: &std::ffi::OsStr) {
    let cache = PipelineCache::Folder(folder.into());
    let device = WebGpuBackend::builder().pipeline_cache(cache).build().unwrap().initialise().unwrap();
    let x = device.upload(&[0u32; 64]).unwrap();
    let start = Instant::now();
    for kernel in 0..12 {
        let lines: Vec<String> =
            (0..40).map(|i| format!("x[(id.x * {}u) % 64u] += {kernel}u;", i + 1)).collect();
        let wgsl = INCREMENT.replace("x[id.x] += 1u;", &lines.concat());
        let kernel = device.create_kernel("compiled", &wgsl, &[]).unwrap();
        device.launch(&kernel, &[&x], &64u32.to_le_bytes(), [1, 1, 1]).unwrap().wait().unwrap();
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{:.1} ms, kept {:?} bytes", seconds * 1e3, device.save_pipelines());
}

/// A first and a second start, with and without the driver's own cache on disk.
fn starts() {
    let folder = std::env::temp_dir().join(format!("shapewise-bench-{}", std::process::id()));
    for mesa in ["true", "false"] {
        for start in ["first", "second"] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .env(FOLDER, &folder)
                .env("MESA_SHADER_CACHE_DISABLE", mesa)
                .env("MESA_SHADER_CACHE_DIR", &folder)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stdout);
            let own = if mesa == "true" { "our cache alone" } else { "with Mesa's cache" };
            print!("{start:>7} start, {own}: 12 kernels in {said}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

fn main() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return compile(&folder);
    }
    let backend = WebGpuBackend::builder().pipeline_cache(PipelineCache::Off).build().unwrap();
    let device = backend.initialise().unwrap();
    println!("{} ({})", device.adapter().name, device.adapter().driver);
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|word| word == part);
    let bare = Bare::new(&device, 64 << 20);
    if wants("dispatches") {
        dispatches(&device, &bare);
    }
    if wants("copies") {
        for bytes in [4 << 10, 256 << 10, 4 << 20, 64 << 20] {
            copies(&device, &bare, bytes);
        }
    }
    if wants("starts") {
        starts();
    }
    if wants("leak") {
        leak(&device);
    }
}
