//! WGSL kernels as kernels of the library: operands go up, the plan runs, results come down.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::calibrate::Overheads;
use super::device::WebGpuDevice;
use super::error::{Result as DeviceResult, WebGpuError};
use super::host::{gather, scatter, span};
use super::pieces::{self, Piece};
use super::pool::Buffer;
use super::{Plan, WebGpuKernel};
use crate::backends::cpu::Operand;
use crate::device::{BackendKind, DeviceInfo, Fingerprint, Level, Peaks};
use crate::hash::fnv1a;
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
        let parts = self.pieces(workload);
        let dispatches: usize = parts
            .iter()
            .map(|part| self.plan(&part.workload, &self.point(&part.workload, parameters)).dispatches.len())
            .sum();
        let dispatches = dispatches.saturating_sub(parts.len());
        let Overheads { submit, dispatch, upload, download } = self.overheads;
        let bytes = |operand: &TensorDesc| span(operand) as f64;
        let up: f64 = workload.inputs().iter().map(|operand| upload.seconds(bytes(operand))).sum();
        let down: f64 = workload.outputs().iter().map(|operand| download.seconds(bytes(operand))).sum();
        arithmetic.max(memory) + parts.len() as f64 * submit + dispatches as f64 * dispatch + up + down
    }

    /// Bytes that one binding takes.
    fn most(&self) -> u64 {
        let limits = self.device.limits();
        limits.storage_binding.min(limits.buffer)
    }

    /// The workload itself, or the pieces that bindings take; nothing where it cannot be cut that small.
    fn pieces(&self, workload: &Workload) -> Vec<Piece> {
        if pieces::fits(workload, self.most()) {
            let offsets = vec![0; workload.operands().len()];
            return vec![Piece { workload: workload.clone(), offsets }];
        }
        // Scratch memory may be several times as large as the operands, and must fit a binding too.
        let mut tries = [1, 2, 4, 8].iter().map_while(|part| pieces::pieces(workload, self.most() / part));
        let Some(first) = tries.next() else { return Vec::new() };
        if self.takes(&first).is_ok() {
            return first;
        }
        tries.find(|pieces| self.takes(pieces).is_ok()).unwrap_or(first)
    }

    /// Whether the kernel takes every piece; all but the last are alike.
    fn takes(&self, pieces: &[Piece]) -> Result<(), Refusals> {
        let limits = self.device.limits();
        let mut ends = [pieces.first(), pieces.last()].into_iter().flatten();
        ends.try_for_each(|piece| self.kernel.supports(&piece.workload, limits))
    }

    /// The parameters, or the favourite where a piece does not have this point.
    fn point(&self, piece: &Workload, parameters: &Parameters) -> Parameters {
        let space = self.kernel.space(piece, self.device.limits());
        let point = space.points().iter().find(|&point| point == parameters).or(space.points().first());
        point.unwrap_or(parameters).clone()
    }

    fn run(&self, call: &mut Call<'_>) -> DeviceResult<()> {
        if pieces::fits(call.workload, self.most()) {
            let plan = self.plan(call.workload, call.parameters);
            return self.run_on(&plan, &call.inputs, &mut call.outputs);
        }
        for Piece { workload, offsets } in self.pieces(call.workload) {
            let plan = self.plan(&workload, &self.point(&workload, call.parameters));
            let all = call.inputs.iter().chain(&call.outputs).zip(workload.operands()).zip(offsets);
            // Offsets are those of elements that the operands have.
            let mut parts: Vec<Operand<'_>> = all
                .map(|((o, desc), offset)| Operand::new(o.ptr_bytes().wrapping_add(offset), desc))
                .collect();
            let (inputs, outputs) = parts.split_at_mut(call.inputs.len());
            self.run_on(&plan, inputs, outputs)?;
        }
        Ok(())
    }

    fn run_on(&self, plan: &Plan, inputs: &[Operand<'_>], outputs: &mut [Operand<'_>]) -> DeviceResult<()> {
        let device = &*self.device;
        let mut buffers: Vec<Buffer> = Vec::with_capacity(inputs.len() + outputs.len());
        for operand in inputs {
            buffers.push(device.upload(&gather(operand))?);
        }
        for operand in &*outputs {
            buffers.push(device.allocate(span(operand.desc()) as u64)?);
        }
        device.run(plan, &buffers.iter().collect::<Vec<_>>())?;
        for (operand, buffer) in outputs.iter_mut().zip(&buffers[inputs.len()..]) {
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

    /// Of the kernel on this adapter with this driver: what another one took does not count.
    fn source(&self) -> u64 {
        let driver = Fingerprint::description(&self.device.info);
        self.kernel.source() ^ fnv1a(driver.as_bytes())
    }

    fn supports(&self, workload: &Workload, _: &DeviceInfo) -> Result<(), Refusals> {
        if self.device.is_lost() {
            return Err(Refusals::one(Refusal::Missing("the device was lost".into())));
        }
        let backwards = |o: &TensorDesc| o.strides.iter().zip(o.shape.iter()).any(|(&s, &n)| s < 0 && n > 1);
        if workload.operands().iter().any(backwards) {
            return Err(Refusals::one(Refusal::Shape("operands that do not run backwards".into())));
        }
        let parts = self.pieces(workload);
        if parts.is_empty() {
            let large = workload.operands().iter().map(span).max().unwrap_or(0);
            let text = format!(
                "an operand spans {large} bytes, a binding takes {}, and this call cannot be cut so small",
                self.most()
            );
            return Err(Refusals::one(Refusal::Limit(text)));
        }
        self.takes(&parts)
    }

    /// The device has memory of its own, so the output never is the input.
    fn in_place(&self) -> bool {
        true
    }

    fn space(&self, workload: &Workload, _: &DeviceInfo) -> ParameterSpace {
        let parts = self.pieces(workload);
        let workload = parts.first().map_or(workload, |part| &part.workload);
        self.kernel.space(workload, self.device.limits())
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, _: &DeviceInfo) -> Cost {
        let elsewhere = self.seconds(workload, parameters);
        Cost { elsewhere, ..Cost::new(0.0, unit(workload), Traffic::default()) }
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
