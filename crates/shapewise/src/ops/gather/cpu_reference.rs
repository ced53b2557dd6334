//! The plain loop that every other kernel is tested against.
#![allow(unsafe_code)]

use super::cpu_plan::{Indices, Plan};
use super::cpu_rows::plan;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Any type under any layout, one element after the other.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::gather::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Gather
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs", "cpu_plan.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = plan(workload, false);
        let elements = (plan.positions() * plan.list.size) as f64;
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let bytes = workload.bytes() as f64;
        Cost::new(16.0 * elements, unit, Traffic::pass(bytes, bytes, &device.caches))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let plan: Plan = plan(call.workload, false);
        let indices = Indices { at: call.inputs[1].address(), dtype: plan.index, n: plan.n };
        let (x, y) = (call.inputs[0].address(), call.outputs[0].address());
        for position in 0..plan.positions() {
            let (far, index, near) = plan.offsets(position);
            for j in 0..plan.list.size as isize {
                // SAFETY: indices were checked, and every other offset is that of an index inside its shape.
                unsafe {
                    let i = indices.get(index + j * plan.list.index) as isize;
                    let (from, to) = (x.offset(far + i * plan.step), y.offset(near + j * plan.list.near));
                    std::ptr::copy_nonoverlapping(from, to, plan.size);
                }
            }
        }
        Ok(())
    }
}
