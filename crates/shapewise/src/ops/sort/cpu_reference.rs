//! The plain sort that every other kernel is tested against.
#![allow(unsafe_code)]

use std::cmp::Ordering;

use super::cpu_sources::{attributes, plan};
use super::{Order, Wanted};
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant,
    Workload,
};
use crate::tensor::DType;

/// Any type under any layout: the standard library's stable sort of widened elements.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::sort::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Sort
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn constraints(&self) -> &[Constraint] {
        &[Constraint::Shape("numbers that have an order", |w| !w.inputs()[0].dtype.is_complex())]
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let elements = workload.inputs()[0].len();
        let depth = workload.inputs()[0].shape.last().map_or(0, |&n| n.max(2).ilog2());
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        // Widened elements take six times the bytes of an f32 and move at every level of the merge.
        let moved = 48.0 * elements as f64;
        let traffic = Traffic::pass(moved * f64::from(depth), moved, &device.caches);
        let cost = Cost::new(8.0 * elements as f64 * f64::from(depth), unit, traffic);
        Cost { scratch: moved as usize, ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let plan = plan(call.workload);
        let super::SortAttributes { order, wanted } = attributes(call.workload);
        let dtype = call.workload.inputs()[0].dtype;
        let x = call.inputs[0].address();
        for row in 0..plan.rows() {
            let places = plan.row(row);
            // SAFETY: the offset is that of an index inside the operand's shape.
            let read = |i: usize| unsafe { Value::read(x, places.from + i as isize * plan.from_step, dtype) };
            let mut all: Vec<(Value, usize)> = (0..plan.n).map(|i| (read(i), i)).collect();
            all.sort_by(|a, b| match order {
                Order::Ascending => compare(a.0, b.0),
                Order::Descending => compare(b.0, a.0),
            });
            for (j, &(value, i)) in all.iter().take(plan.k).enumerate() {
                for (o, output) in call.outputs.iter().enumerate() {
                    let at = places.to[o] + j as isize * plan.to_step[o];
                    let index = wanted == Wanted::Indices || o == 1;
                    let (value, dtype) =
                        if index { (Value::Integer(i as i64), DType::I64) } else { (value, dtype) };
                    // SAFETY: as above.
                    unsafe { value.write(output.address(), at, dtype) };
                }
            }
        }
        Ok(())
    }
}

/// NaN is larger than every number.
fn compare(a: Value, b: Value) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
