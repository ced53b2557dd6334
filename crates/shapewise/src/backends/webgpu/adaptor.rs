//! WGSL kernels as kernels of the library: operands go up, the plan runs, results come down.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::calibrate::Overheads;
use super::device::WebGpuDevice;
use super::error::{Result as DeviceResult, WebGpuError};
use super::host::{gather, scatter, span};
use super::pool::Buffer;
use super::{Plan, WebGpuKernel};
use crate::device::{BackendKind, DeviceInfo, Level, Peaks};
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters, Refusal,
    Refusals, TensorDesc, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Plans that are kept; when there are more, all are made anew.
const MOST_PLANS: usize = 1024;

/// A WGSL kernel on one device, as a kernel that any runtime can choose.
pub struct DeviceKernel {
    kernel: &'static dyn WebGpuKernel,
    device: Arc<WebGpuDevice>,
    peaks: Peaks,
    overheads: Overheads,
    plans: Mutex<FxHashMap<(Workload, Parameters), Arc<Plan>>>,
}

impl DeviceKernel {
    /// The kernel on a device that was calibrated: without its peaks nobody could say whether the kernel is worth the copies.
    pub fn new(kernel: &'static dyn WebGpuKernel, device: Arc<WebGpuDevice>) -> DeviceResult<Self> {
        let measured = device.info.peaks.clone().zip(device.overheads().copied());
        let (peaks, overheads) = measured.ok_or_else(|| WebGpuError::Unsupported {
            what: "to choose kernels of this device",
            reason: "it was not measured; build the backend with `calibrate(true)`".into(),
        })?;
        Ok(Self { kernel, device, peaks, overheads, plans: Mutex::default() })
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters) -> Arc<Plan> {
        let key = (workload.clone(), parameters.clone());
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        let make = || Arc::new(self.kernel.plan(workload, parameters, self.device.limits()));
        Arc::clone(plans.entry(key).or_insert_with(make))
    }

    /// Seconds of a call: the work by the device's measured peaks, hand-overs and copies by what they cost here.
    pub fn seconds(&self, workload: &Workload, parameters: &Parameters) -> f64 {
        let work = self.kernel.cost(workload, parameters);
        let rate = self.peaks.arithmetic(unit(workload), 1).or_else(|| self.peaks.arithmetic(SINGLE, 1));
        let arithmetic = rate.map_or(0.0, |rate| work.operations / rate);
        let memory = self.peaks.bandwidth(Level::Memory, 1).map_or(0.0, |rate| work.bytes / rate);
        let dispatches = self.plan(workload, parameters).dispatches.len().saturating_sub(1);
        let Overheads { submit, dispatch, upload, download } = self.overheads;
        let bytes = |operand: &TensorDesc| span(operand) as f64;
        let up: f64 = workload.inputs().iter().map(|operand| upload.seconds(bytes(operand))).sum();
        let down: f64 = workload.outputs().iter().map(|operand| download.seconds(bytes(operand))).sum();
        arithmetic.max(memory) + submit + dispatches as f64 * dispatch + up + down
    }

    fn run(&self, call: &mut Call<'_>) -> DeviceResult<()> {
        let device = &*self.device;
        let plan = self.plan(call.workload, call.parameters);
        let mut buffers: Vec<Buffer> = Vec::with_capacity(call.inputs.len() + call.outputs.len());
        for operand in &call.inputs {
            buffers.push(device.upload(&gather(operand))?);
        }
        for operand in &call.outputs {
            buffers.push(device.allocate(span(operand.desc()) as u64)?);
        }
        device.run(&plan, &buffers.iter().collect::<Vec<_>>())?;
        for (operand, buffer) in call.outputs.iter_mut().zip(&buffers[call.inputs.len()..]) {
            scatter(operand, |bytes| device.read(buffer, 0, bytes))?;
        }
        Ok(())
    }
}

const SINGLE: ComputeUnit = ComputeUnit { dtype: DType::F32, isa: None };

/// The unit that a workload's arithmetic is bounded by.
fn unit(workload: &Workload) -> ComputeUnit {
    let half = workload.inputs().first().is_some_and(|input| input.dtype == DType::F16);
    if half { ComputeUnit { dtype: DType::F16, isa: None } } else { SINGLE }
}

impl Kernel for DeviceKernel {
    fn name(&self) -> &str {
        self.kernel.name()
    }

    fn operation(&self) -> OperationKind {
        self.kernel.operation()
    }

    fn backend(&self) -> BackendKind {
        BackendKind::WebGpu
    }

    fn variant(&self) -> Variant {
        self.kernel.variant()
    }

    fn source(&self) -> u64 {
        self.kernel.source()
    }

    fn supports(&self, workload: &Workload, _: &DeviceInfo) -> Result<(), Refusals> {
        if self.device.is_lost() {
            return Err(Refusals::one(Refusal::Missing("the device was lost".into())));
        }
        let limits = self.device.limits();
        let backwards = |o: &TensorDesc| o.strides.iter().zip(o.shape.iter()).any(|(&s, &n)| s < 0 && n > 1);
        if workload.operands().iter().any(backwards) {
            return Err(Refusals::one(Refusal::Shape("operands that do not run backwards".into())));
        }
        let most = limits.storage_binding.min(limits.buffer);
        if let Some(large) = workload.operands().iter().map(span).find(|&bytes| bytes as u64 > most) {
            let text = format!("an operand spans {large} bytes, a binding takes {most}");
            return Err(Refusals::one(Refusal::Limit(text)));
        }
        self.kernel.supports(workload, limits)
    }

    /// The device has memory of its own, so the output never is the input.
    fn in_place(&self) -> bool {
        true
    }

    fn space(&self, workload: &Workload, _: &DeviceInfo) -> ParameterSpace {
        self.kernel.space(workload, self.device.limits())
    }

    /// In the units of this device; [`DeviceKernel::seconds`] has the seconds.
    fn cost(&self, workload: &Workload, parameters: &Parameters, _: &DeviceInfo) -> Cost {
        let work = self.kernel.cost(workload, parameters);
        let traffic = Traffic { memory: work.bytes, ..Traffic::default() };
        Cost { forks: 1, ..Cost::new(work.operations, unit(workload), traffic) }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        self.run(call).map_err(|error| KernelError(error.to_string().into()))
    }
}

/// WGSL kernels on a measured device, ready to be registered with a runtime.
pub fn kernels_on(
    device: &Arc<WebGpuDevice>,
    kernels: impl IntoIterator<Item = &'static dyn WebGpuKernel>,
) -> DeviceResult<Vec<Arc<dyn Kernel>>> {
    let on = |kernel| Ok(Arc::new(DeviceKernel::new(kernel, Arc::clone(device))?) as Arc<dyn Kernel>);
    kernels.into_iter().map(on).collect()
}
