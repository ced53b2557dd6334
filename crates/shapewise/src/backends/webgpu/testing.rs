//! WGSL kernels against the reference: what the unit tests of operations share.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::io::Write;
use std::sync::{Mutex, Once, OnceLock};

use rustc_hash::FxBuildHasher;

use super::wgsl::{fits, span};
use super::{PipelineCache, Plan, WebGpuBackend, WebGpuDevice, WebGpuError, WebGpuKernel, WebGpuLimits};
use crate::Runtime;
use crate::backends::cpu::{Operand, Probe};
use crate::ops::{Call, Knob, ParameterSpace, Parameters, Workload};
use crate::tensor::DType;

/// Devices, and a runtime for the reference.
struct Judge {
    runtime: Runtime,
    /// One for each core: software drivers compile in the one thread of a device's queue, and that is what takes long.
    devices: Vec<WebGpuDevice>,
    /// Kernels and points that somebody has tried.
    tried: Mutex<HashSet<(&'static str, Parameters)>>,
}

/// Nothing on a machine without an adapter, unless `SHAPEWISE_REQUIRE_WEBGPU` is set: there that is a failure.
fn backend() -> Option<WebGpuBackend> {
    static SAID: Once = Once::new();
    match WebGpuBackend::builder().pipeline_cache(PipelineCache::Off).build() {
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

/// A device of a test's own, if there is an adapter.
pub(crate) fn open() -> Option<WebGpuDevice> {
    backend().map(|backend| backend.open().unwrap())
}

fn judge() -> Option<&'static Judge> {
    static JUDGE: OnceLock<Option<Judge>> = OnceLock::new();
    let open = || {
        let backend = backend()?;
        let runtime = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let devices = (0..cores).map(|_| backend.open().unwrap()).collect();
        Some(Judge { runtime, devices, tried: Mutex::default() })
    };
    JUDGE.get_or_init(open).as_ref()
}

/// What every WebGPU device has.
static EVERYWHERE: WebGpuLimits = WebGpuLimits {
    invocations: 256,
    workgroup: [256, 256, 64],
    workgroup_memory: 16 << 10,
    groups: 65535,
    storage_binding: 128 << 20,
    buffer: 256 << 20,
    storage_bindings: 8,
    alignment: 256,
    subgroup: None,
    f16: false,
    u64: false,
};

/// The same with subgroups, f16 and 64-bit integers, as most GPUs have them.
static GPU: WebGpuLimits = WebGpuLimits { subgroup: Some((32, 32)), f16: true, u64: true, ..EVERYWHERE };

/// The limits of the device, or those that every WebGPU device has.
pub(crate) fn limits() -> &'static WebGpuLimits {
    judge().map_or(&EVERYWHERE, |judge| judge.devices[0].limits())
}

/// Runs every kernel that takes the workload and compares with the reference; gives how many runs there were, and more
/// than anybody asks for where there is no device.
pub(crate) fn agree(kernels: &[&'static dyn WebGpuKernel], workload: &Workload) -> usize {
    agree_on(kernels, workload, &|_, _| ())
}

/// The same with inputs of f32 changed by `spoil`, which gets the number of each.
pub(crate) fn agree_on(
    kernels: &[&'static dyn WebGpuKernel],
    workload: &Workload,
    spoil: &dyn Fn(usize, &mut [f32]),
) -> usize {
    for limits in [&EVERYWHERE, &GPU] {
        for kernel in kernels {
            keeps_to(*kernel, workload, limits);
        }
    }
    let Some(judge) = judge() else { return usize::MAX };
    let device = judge.runtime.device();
    let made_up = || {
        let mut probe = Probe::new(workload, device).unwrap();
        change(&probe.call(workload, &Parameters::new(), device), spoil);
        probe
    };
    let mut expected = made_up();
    let (reference, _) = workload.kind().kernels().split_last().unwrap();
    reference.launch(&mut expected.call(workload, &Parameters::new(), device)).unwrap();
    let mut ran = 0;
    for kernel in kernels.iter().filter(|k| k.supports(workload, limits()).is_ok()) {
        for parameters in judge.some_of(*kernel, &kernel.space(workload, limits())) {
            let mut found = made_up();
            judge.run(*kernel, &parameters, &mut found.call(workload, &parameters, device));
            if let Err(difference) = found.same_outputs(&expected, workload) {
                panic!("{} {parameters} on {workload}: {difference}", kernel.name());
            }
            let cost = kernel.cost(workload, &parameters);
            assert!(cost.operations >= 0.0 && cost.bytes.is_finite());
            ran += 1;
        }
    }
    ran
}

/// Each of these tunables has several values for the workload, and each value's shaders differ from the others': a tuner that tries them tries
/// something. Two that name the same shaders would be measured twice.
pub(crate) fn every_knob_counts(kernel: &dyn WebGpuKernel, workload: &Workload, knobs: &[Knob]) {
    let limits = limits();
    kernel.supports(workload, limits).unwrap();
    let space = kernel.space(workload, limits);
    let favourite = &space.points()[0];
    for &knob in knobs {
        let others = |p: &Parameters| p.iter().filter(|&(k, _)| k != knob).collect::<Vec<_>>();
        let line = space.points().iter().filter(|p| others(p) == others(favourite));
        let plans: Vec<_> = line.map(|p| kernel.plan(workload, p, limits).shaders).collect();
        assert!(plans.len() > 1, "{} has one value of {knob:?} for {workload}", kernel.name());
        for (i, plan) in plans.iter().enumerate() {
            assert!(!plans[..i].contains(plan), "{}: {knob:?} changes nothing", kernel.name());
        }
    }
}

/// Every point's plan keeps to the limits of a device, and its parts fit each other.
fn keeps_to(kernel: &dyn WebGpuKernel, workload: &Workload, limits: &WebGpuLimits) {
    if kernel.supports(workload, limits).is_err() {
        return;
    }
    let space = kernel.space(workload, limits);
    assert!(!space.points().is_empty(), "{} has no point for {workload}", kernel.name());
    for parameters in space.points() {
        let plan = kernel.plan(workload, parameters, limits);
        for shader in &plan.shaders {
            assert!(fits(limits, shader.workgroup, shader.workgroup_memory), "{}", shader.label);
            assert!(shader.bindings.len() <= limits.storage_bindings as usize, "{}", shader.label);
            assert!(!shader.subgroups || limits.subgroup.is_some(), "{}", shader.label);
            assert!(!shader.f16 || limits.f16, "{}", shader.label);
            assert!(!shader.source.contains("u64") || limits.u64, "{}", shader.label);
        }
        for run in &plan.dispatches {
            let shader = &plan.shaders[run.shader];
            assert_eq!(run.places.len(), shader.bindings.len(), "{}", shader.label);
            assert_eq!(run.uniform.len(), shader.uniform as usize, "{}", shader.label);
            assert!(run.groups.iter().all(|n| (1..=limits.groups).contains(n)), "{}", shader.label);
        }
        assert!(
            plan.scratch.iter().all(|bytes| (1..=limits.storage_binding).contains(bytes)),
            "{}",
            kernel.name()
        );
    }
}

impl Judge {
    /// The favourite, and two points that nobody has tried: compiling all of them for every workload would take minutes.
    fn some_of(&self, kernel: &dyn WebGpuKernel, space: &ParameterSpace) -> Vec<Parameters> {
        let (favourite, others) =
            space.points().split_first().expect("a kernel that takes a workload has a point");
        let mut tried = self.tried.lock().unwrap();
        let new = others.iter().filter(|&point| tried.insert((kernel.name(), point.clone()))).take(2);
        std::iter::once(favourite).chain(new).cloned().collect()
    }

    /// The same device for the same shaders, so that none is compiled twice.
    fn device(&self, plan: &Plan) -> &WebGpuDevice {
        let hash = FxBuildHasher.hash_one(&plan.shaders);
        &self.devices[(hash % self.devices.len() as u64) as usize]
    }

    /// Operands go up, the plan runs, outputs come down.
    fn run(&self, kernel: &dyn WebGpuKernel, parameters: &Parameters, call: &mut Call<'_>) {
        let plan = kernel.plan(call.workload, parameters, limits());
        let device = self.device(&plan);
        let operands = call.inputs.iter().chain(&call.outputs);
        let buffers: Vec<_> = operands.map(|operand| device.upload(&read(operand)).unwrap()).collect();
        device.run(&plan, &buffers.iter().collect::<Vec<_>>()).unwrap();
        for (operand, buffer) in call.outputs.iter().zip(&buffers[call.inputs.len()..]) {
            let mut bytes = read(operand);
            device.read(buffer, 0, &mut bytes).unwrap();
            write(operand, &bytes);
        }
    }
}

/// The memory of an operand, from its first element to its last.
fn read(operand: &Operand<'_>) -> Vec<u8> {
    let bytes = span(operand.desc()) * operand.desc().dtype.size();
    // SAFETY: a probe's memory reaches from the first to the last element, and no layout here runs backwards.
    unsafe { std::slice::from_raw_parts(operand.address(), bytes) }.to_vec()
}

/// Writes what [`read`] gave.
fn write(operand: &Operand<'_>, bytes: &[u8]) {
    // SAFETY: as in `read`, and the test's own probe is all that holds this memory.
    unsafe { operand.address().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

fn change(call: &Call<'_>, spoil: &dyn Fn(usize, &mut [f32])) {
    for (i, operand) in call.inputs.iter().enumerate().filter(|(_, o)| o.desc().dtype == DType::F32) {
        let mut values: Vec<f32> = bytemuck::pod_collect_to_vec(&read(operand));
        spoil(i, &mut values);
        write(operand, bytemuck::cast_slice(&values));
    }
}
