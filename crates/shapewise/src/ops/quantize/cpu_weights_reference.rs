//! Products with quantised weights by the definition, in double precision.
#![allow(unsafe_code)]

use super::cpu_weights::Problem;
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Everything, one product after the other.
pub(super) struct Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::quantized_matmul::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::QuantizedMatmul
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_weights_reference.rs", "cpu_weights.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let p = Problem::describe(workload);
        let steps = (p.m * p.n * p.k) as f64;
        let traffic = Traffic::pass(8.0 * steps, p.bytes(), &device.caches);
        Cost::new(4.0 * steps, ComputeUnit { dtype: DType::F64, isa: None }, traffic)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let p = Problem::of(call);
        for i in 0..p.m {
            for j in 0..p.n {
                // SAFETY: the result has this element.
                unsafe { Value::Real(p.dot(i, j)).write(p.y, (i * p.n + j) as isize, p.dtype) };
            }
        }
        Ok(())
    }
}
