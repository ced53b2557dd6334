//! The plain loop that every other kernel is tested against.
#![allow(unsafe_code)]

use super::PadMode;
use super::cpu_rows::{attributes, traffic};
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Variant, Workload,
};
use crate::tensor::DType;

/// Any type under any layout, one element after the other.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::pad::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Pad
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs", "mod.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let output = &workload.outputs()[0];
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        // The place of every element is worked out by a division for each axis.
        Cost::new((output.len() * (8 + 8 * output.shape.len())) as f64, unit, traffic(workload, device))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (x, y) = (&call.workload.inputs()[0], &call.workload.outputs()[0]);
        let attributes = attributes(call.workload);
        let (from, to) = (call.inputs[0].address(), call.outputs[0].address());
        for place in 0..y.len() {
            let (mut rest, mut output, mut input) = (place, 0isize, Some(0isize));
            for i in (0..y.shape.len()).rev() {
                let at = rest % y.shape[i];
                rest /= y.shape[i];
                output += at as isize * y.strides[i];
                let source = attributes.mode.source(at as isize - attributes.before[i] as isize, x.shape[i]);
                input = input.zip(source).map(|(sum, source)| sum + source as isize * x.strides[i]);
            }
            // SAFETY: both offsets are those of indices inside the operands' shapes.
            unsafe {
                match (input, attributes.mode) {
                    (Some(input), _) => {
                        let size = x.dtype.size();
                        let at = |base: *mut u8, offset: isize| base.offset(offset * size as isize);
                        std::ptr::copy_nonoverlapping(at(from, input), at(to, output), size);
                    }
                    (None, PadMode::Constant(value)) => Value::Real(value.value()).write(to, output, y.dtype),
                    (None, _) => return Err(KernelError("only a constant has no source".into())),
                }
            }
        }
        Ok(())
    }
}
