//! Integer products by the definition.
#![allow(unsafe_code)]

use super::attributes::Along;
use super::cpu_integer_problem::{Problem, attributes, batches};
use crate::backends::cpu::{Operand, Value};
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
        "cpu::integer_matmul::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::IntegerMatmul
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_integer_reference.rs", "cpu_integer_problem.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let [m, n, k] = Problem::sizes(workload).map(|size| size as f64);
        let steps = m * n * k * batches(workload) as f64;
        let traffic = Traffic::pass(2.0 * steps, workload.bytes() as f64, &device.caches);
        Cost::new(2.0 * steps, ComputeUnit { dtype: DType::I64, isa: None }, traffic)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let attributes = attributes(call.workload);
        for index in 0..batches(call.workload) {
            let (problem, finish) = Problem::of(call, index);
            for i in 0..problem.m {
                for j in 0..problem.n {
                    // SAFETY: the operands have these rows, columns and steps.
                    let mut sum = unsafe { dot(&problem, i, j) };
                    if let Some((bias, along)) = finish.bias {
                        sum += integer(bias, if along == Along::Rows { i } else { j });
                    }
                    let out = finish.out;
                    let at = i as isize * out.row + j as isize * out.column;
                    // Sums wrap around in 32 bits, as ONNX's do.
                    let sum = sum as i32;
                    let value = match finish.scales.filter(|_| attributes.requantized) {
                        None => i64::from(sum),
                        Some(s) => {
                            let factor = real(s.a, i) * real(s.b, j) / real(s.y, 0);
                            let (low, high) = if out.dtype == DType::I8 { (-128, 127) } else { (0, 255) };
                            rounded(sum as f32 * factor, integer(s.zero, 0), low, high)
                        }
                    };
                    // SAFETY: the output has this element.
                    unsafe { Value::Integer(value).write(out.at, at, out.dtype) };
                }
            }
        }
        Ok(())
    }
}

/// # Safety
/// The operands have row `i` and column `j`.
unsafe fn dot(problem: &Problem, i: usize, j: usize) -> i64 {
    let mut sum = 0i64;
    // SAFETY: the caller's promise.
    unsafe {
        let (za, zb) = (i64::from(problem.a.zero(i)), i64::from(problem.b.zero(j)));
        for p in 0..problem.k {
            let (a, b) = (i64::from(problem.a.get(i, p)), i64::from(problem.b.get(j, p)));
            sum = sum.wrapping_add((a - za) * (b - zb));
        }
    }
    sum
}

fn rounded(x: f32, zero: i64, low: i64, high: i64) -> i64 {
    if x.is_nan() {
        return low;
    }
    (x.round_ties_even() as i64).saturating_add(zero).clamp(low, high)
}

fn value(operand: &Operand<'_>, index: usize) -> Value {
    let index = if operand.desc().len() == 1 { 0 } else { index as isize * operand.strides()[0] };
    // SAFETY: there is one for all, or one for every row or column.
    unsafe { Value::read(operand.address(), index, operand.desc().dtype) }
}

fn real(operand: &Operand<'_>, index: usize) -> f32 {
    value(operand, index).real() as f32
}

fn integer(operand: &Operand<'_>, index: usize) -> i64 {
    value(operand, index).integer()
}
