//! The WebGPU backend on whatever adapter is there; without one the tests say so and pass, unless `SHAPEWISE_REQUIRE_WEBGPU=1`.

mod copies;
mod devices;
mod kernels;
mod large;
mod memory;
mod operations;
mod profiles;

use std::io::Write;
use std::sync::{Arc, Once};

use shapewise::backends::webgpu::{
    PipelineCache, WebGpuBackend, WebGpuBackendBuilder, WebGpuDevice, WebGpuError,
};

/// Settings that leave the user's files alone.
fn builder() -> WebGpuBackendBuilder {
    WebGpuBackend::builder().pipeline_cache(PipelineCache::Off)
}

/// The backend, if there is an adapter.
fn backend(builder: WebGpuBackendBuilder) -> Option<WebGpuBackend> {
    static SAID: Once = Once::new();
    match builder.build() {
        Ok(backend) => Some(backend),
        Err(WebGpuError::NoAdapter { .. }) if std::env::var_os("SHAPEWISE_REQUIRE_WEBGPU").is_none() => {
            // Not `eprintln!`, whose output is shown only of tests that fail.
            SAID.call_once(|| {
                let _ = writeln!(std::io::stderr(), "skipped WebGPU tests: this machine has no adapter");
            });
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// An open device, if there is an adapter.
fn device() -> Option<Arc<WebGpuDevice>> {
    backend(builder()).map(|backend| backend.initialise().unwrap())
}

/// Adds one to each of `n` numbers.
const INCREMENT: &str = "
override invocations: u32 = 64;
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<uniform> n: u32;
@compute @workgroup_size(invocations)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < n { x[id.x] += 1u; }
}";

/// Numbers that look random and are always the same.
fn noise(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below.max(1)
    }
}
