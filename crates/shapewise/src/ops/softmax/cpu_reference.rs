//! The plain loops that every other kernel is tested against.
#![allow(unsafe_code)]

use super::cpu_kernels::{attributes, axes};
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::walk::offset;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant,
    Workload,
};
use crate::tensor::DType;

/// Any float type under any layout, in f64, one element after the other.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::softmax::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Softmax
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn constraints(&self) -> &[Constraint] {
        &[Constraint::DTypes(DType::FLOATS)]
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let bytes = workload.bytes() as f64;
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let operations = super::cpu_kernels::OPERATIONS * workload.inputs()[0].len() as f64;
        Cost::new(operations, unit, Traffic::pass(2.0 * bytes, bytes, &device.caches))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (kept, axis) = axes(call.workload);
        let dtype = call.workload.inputs()[0].dtype;
        let (x, y) = (call.inputs[0].address(), call.outputs[0].address());
        for row in 0..kept.iter().map(|a| a.size).product() {
            let (from, to) = (offset(&kept, row, |a| a.input), offset(&kept, row, |a| a.output));
            let read = |i: usize| {
                // SAFETY: the offset is that of an index inside the operand's shape.
                unsafe { Value::read(x, from + i as isize * axis.input, dtype) }.real()
            };
            let max = (0..axis.size).map(read).fold(f64::NEG_INFINITY, |a, x| if x > a { x } else { a });
            let sum: f64 = (0..axis.size).map(|i| (read(i) - max).exp()).sum();
            for i in 0..axis.size {
                let y_i = if attributes(call.workload).log {
                    read(i) - max - sum.ln()
                } else {
                    (read(i) - max).exp() / sum
                };
                // SAFETY: as above.
                unsafe { Value::Real(y_i).write(y, to + i as isize * axis.output, dtype) };
            }
        }
        Ok(())
    }
}
