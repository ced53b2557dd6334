//! A kernel of your own in WGSL: compiled once, checked before it runs, timed on the device.

use shapewise::backends::webgpu::{WebGpuBackend, WebGpuError};

const SAXPY: &str = "
struct Sizes { n: u32, factor: f32 }
override invocations: u32 = 64;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> sizes: Sizes;

@compute @workgroup_size(invocations)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < sizes.n { y[id.x] += sizes.factor * x[id.x]; }
}";

fn main() -> Result<(), WebGpuError> {
    let backend = WebGpuBackend::builder().preferred_workgroup(128).build()?;
    let device = backend.initialise()?;
    println!("{} ({})", device.adapter().name, device.adapter().driver);

    let kernel = device.create_kernel("saxpy", SAXPY, &[])?;
    println!("{:?}", kernel.report());

    let n = 1u32 << 20;
    let x = device.upload(&vec![1.0f32; n as usize])?;
    let y = device.upload(&vec![0.5f32; n as usize])?;
    let uniform = [n.to_le_bytes(), 2.0f32.to_le_bytes()].concat();
    let groups = [n.div_ceil(kernel.report().workgroup[0]), 1, 1];

    device.start_profile()?;
    let mut batch = device.batch();
    for _ in 0..3 {
        batch.launch(&kernel, &[&x, &y], &uniform, groups)?;
    }
    batch.submit()?;
    println!("0.5 + 3 · 2 · 1 = {}", device.download::<f32>(&y)?[12345]);
    let profile = device.stop_profile()?;
    for event in &profile.kernels {
        println!("{} took {:?} ({:?} clock)", event.label, event.duration, profile.clock);
    }
    println!("{} bytes of trace for Perfetto", profile.to_chrome_trace().len());

    let broken = SAXPY.replace("sizes.factor", "sizes.faktor");
    if let Err(error) = device.create_kernel("broken", &broken, &[]) {
        println!("\n{error}");
    }
    Ok(())
}
