//! The plain loop that every other kernel is tested against.
#![allow(unsafe_code)]

use super::cpu_plan::{Plan, Shared};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::walk::offset;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Variant, Workload,
};
use crate::tensor::DType;

/// Any type under any layout, one element after the other.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::copy::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Copy
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs", "cpu_plan.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = Plan::of(workload);
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        // The place of every element is worked out by a division for each axis.
        let operations = (plan.elements() * plan.axes.len() * 8) as f64;
        Cost::new(operations, unit, plan.traffic(1.0, false, device))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let plan = Plan::of(call.workload);
        let all = Shared::of(call);
        for i in 0..plan.elements() {
            let at = all.at(offset(&plan.axes, i, |a| a.input), offset(&plan.axes, i, |a| a.output));
            // SAFETY: the offsets are those of indices inside the operands' shapes, which do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(at.from, at.to, plan.size) };
        }
        Ok(())
    }
}
