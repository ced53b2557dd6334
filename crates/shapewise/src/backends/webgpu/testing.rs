//! What the unit tests of WGSL kernels share: every kernel against the CPU's reference.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use super::{
    DeviceKernel, PipelineCache, WebGpuBackend, WebGpuDevice, WebGpuError, WebGpuKernel, WebGpuLimits,
};
use crate::Runtime;
use crate::backends::cpu::Probe;
use crate::device::Device;
use crate::ops::testing::runtime;
use crate::ops::{Kernel, Parameters, Workload};

/// The adapter's device; none on a machine without an adapter, unless `SHAPEWISE_REQUIRE_WEBGPU` is set.
fn device() -> Option<&'static Arc<WebGpuDevice>> {
    static DEVICE: LazyLock<Option<Arc<WebGpuDevice>>> = LazyLock::new(|| {
        let opened = WebGpuBackend::builder().pipeline_cache(PipelineCache::Off).build();
        match opened.and_then(|backend| backend.open()) {
            Ok(device) => Some(Arc::new(device)),
            Err(WebGpuError::NoAdapter { .. }) if std::env::var_os("SHAPEWISE_REQUIRE_WEBGPU").is_none() => {
                eprintln!("skipped: this machine has no WebGPU adapter");
                None
            }
            Err(error) => panic!("{error}"),
        }
    });
    DEVICE.as_ref()
}

/// The limits that kernels must keep to in tests: the adapter's, or those every WebGPU device has.
pub(crate) fn limits() -> &'static WebGpuLimits {
    static LEAST: WebGpuLimits = WebGpuLimits {
        invocations: 256,
        workgroup: [256, 256, 64],
        workgroup_memory: 16 << 10,
        groups: 65_535,
        storage_binding: 128 << 20,
        buffer: 256 << 20,
        storage_bindings: 8,
        subgroup: None,
        f16: false,
    };
    device().map_or(&LEAST, |device| device.limits())
}

/// Runs every kernel of the list that takes the workload, at its favourite point and two others in turn, and compares with the
/// reference; gives how many ran, or `usize::MAX` where there is no device.
pub(crate) fn agree(kernels: &[&'static dyn WebGpuKernel], workload: &Workload) -> usize {
    agree_with(kernels, workload, &|_| {})
}

/// The same after `spoil(i, numbers)` has changed the f32 of input `i`.
pub(crate) fn agree_on(
    kernels: &[&'static dyn WebGpuKernel],
    workload: &Workload,
    spoil: &dyn Fn(usize, &mut [f32]),
) -> usize {
    agree_with(kernels, workload, &|probe| {
        for i in 0..workload.inputs().len() {
            spoil(i, bytemuck::cast_slice_mut(probe.bytes_mut(i)));
        }
    })
}

fn agree_with(
    kernels: &[&'static dyn WebGpuKernel],
    workload: &Workload,
    prepare: &dyn Fn(&mut Probe),
) -> usize {
    static HOST: LazyLock<Runtime> = LazyLock::new(runtime);
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let Some(device) = device() else { return usize::MAX };
    let host = HOST.device();
    let probe = || {
        let mut probe = Probe::new(workload, host).unwrap();
        prepare(&mut probe);
        probe
    };
    let mut expected = probe();
    let reference = workload.kind().kernels().last().unwrap();
    reference.launch(&mut expected.call(workload, &Parameters::new(), host)).unwrap();
    let mut ran = 0;
    for kernel in kernels.iter().map(|&kernel| DeviceKernel::new(kernel, Arc::clone(device))) {
        if kernel.supports(workload, host.info()).is_err() {
            continue;
        }
        let points = kernel.space(workload, host.info()).points().to_vec();
        assert!(!points.is_empty(), "{} has no points for {workload}", kernel.name());
        let (turn, others) = (TURN.fetch_add(1, Ordering::Relaxed), points.len().max(2) - 1);
        for (i, parameters) in points.iter().enumerate() {
            if i > 0 && i != 1 + turn % others && i != 1 + (turn * 7 + 3) % others {
                continue;
            }
            let mut found = probe();
            let launched = kernel.launch(&mut found.call(workload, parameters, host));
            launched.unwrap_or_else(|error| panic!("{} {parameters} on {workload}: {error}", kernel.name()));
            if let Err(difference) = found.same_outputs(&expected, workload) {
                panic!("{} {parameters} on {workload}: {difference}", kernel.name());
            }
            ran += 1;
        }
    }
    ran
}
