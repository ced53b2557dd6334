//! The plain loop that every other kernel is tested against.
#![allow(unsafe_code)]

use super::Combine;
use super::cpu_ranges::{attributes, plan, traffic};
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::gather::cpu_plan::Indices;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Variant, Workload,
};
use crate::tensor::DType;

/// Any type under any layout, one element after the other.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::scatter::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Scatter
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs", "../gather/cpu_plan.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn in_place(&self) -> bool {
        true
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = plan(workload, false);
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let puts = (plan.positions() * plan.list.size) as f64;
        Cost::new(24.0 * puts, unit, traffic(&plan, workload, device))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let plan = plan(call.workload, false);
        let combine = attributes(call.workload).combine;
        let dtype = call.workload.outputs()[0].dtype;
        let indices = Indices { at: call.inputs[1].address(), dtype: plan.index, n: plan.n };
        let (from, to) = (call.inputs[2].address(), call.outputs[0].address());
        for position in 0..plan.positions() {
            let (far, index, near) = plan.offsets(position);
            for j in 0..plan.list.size as isize {
                // SAFETY: indices were checked, and every other offset is that of an index inside its shape.
                unsafe {
                    let i = indices.get(index + j * plan.list.index) as isize;
                    let from = from.offset(near + j * plan.list.near);
                    let to = to.offset(far + i * plan.step);
                    if combine == Combine::Set {
                        std::ptr::copy_nonoverlapping(from, to, plan.size);
                        continue;
                    }
                    join(combine, Value::read(to, 0, dtype), Value::read(from, 0, dtype)).write(to, 0, dtype);
                }
            }
        }
        Ok(())
    }
}

/// What becomes of two elements.
fn join(combine: Combine, old: Value, new: Value) -> Value {
    use Value::{Complex, Integer, Real, Truth};
    match (combine, old, new) {
        (Combine::Set, _, _) => new,
        (Combine::Add, Integer(a), Integer(b)) => Integer(a.wrapping_add(b)),
        (Combine::Add, Truth(a), Truth(b)) => Truth(a | b),
        (Combine::Add, Complex(a), Complex(b)) => Complex(a + b),
        (Combine::Add, a, b) => Real(a.real() + b.real()),
        (Combine::Prod, Integer(a), Integer(b)) => Integer(a.wrapping_mul(b)),
        (Combine::Prod, Truth(a), Truth(b)) => Truth(a & b),
        (Combine::Prod, Complex(a), Complex(b)) => Complex(a * b),
        (Combine::Prod, a, b) => Real(a.real() * b.real()),
        (Combine::Max, a, b) => {
            if a.is_nan() || a > b {
                a
            } else {
                b
            }
        }
        (Combine::Min, a, b) => {
            if a.is_nan() || a < b {
                a
            } else {
                b
            }
        }
    }
}
