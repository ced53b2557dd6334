//! The plain loops that every other kernel is tested against.
#![allow(unsafe_code)]

use super::PoolKind;
use super::problem::{Five, Problem, offset};
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Any type under any layout, one window after the other, means in f64.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::pool::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Pool
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs", "problem.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let p = Problem::of(workload);
        let elements = p.results() as f64 * p.window_elements() as f64;
        let size = workload.inputs()[0].dtype.size() as f64;
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        // An element's place takes five products and sums, its type a branch.
        let traffic = Traffic::pass(elements * size, workload.bytes() as f64, &device.caches);
        Cost::new(12.0 * elements, unit, traffic)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let p = Problem::of(call.workload);
        let [batch, channels, depth, height, width] = p.output;
        for n in 0..batch {
            for c in 0..channels {
                for d in 0..depth {
                    for h in 0..height {
                        for w in 0..width {
                            window(call, &p, [n, c, d, h, w]);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// One result.
fn window(call: &Call<'_>, p: &Problem, at: Five<usize>) {
    let dtype = call.workload.inputs()[0].dtype;
    let [n, c, ..] = at;
    let spans = [0, 1, 2].map(|axis| p.span(axis, at[axis + 2]));
    let places = spans.map(|s| (0..s.count).map(move |i| s.first + i * s.step));
    let (mut best, mut sum): (Option<(Value, i64)>, f64) = (None, 0.0);
    let [depths, heights, widths] = places;
    for d in depths {
        for h in heights.clone() {
            for w in widths.clone() {
                // SAFETY: the place is inside the input.
                let x =
                    unsafe { Value::read(call.inputs[0].address(), offset(&p.x, [n, c, d, h, w]), dtype) };
                let place = ((d * p.input[3] + h) * p.input[4] + w) as i64;
                sum += x.real();
                // NaN wins over everything, the last one over others.
                if best.is_none_or(|(b, _)| x.is_nan() || (!b.is_nan() && x > b)) {
                    best = Some((x, place));
                }
            }
        }
    }
    let divisor: usize = spans.iter().map(|s| s.divisor).product();
    let (result, place) = match p.kind {
        PoolKind::Max => best.unwrap_or((Value::Real(f64::NAN), 0)),
        _ => (Value::Real(sum / divisor as f64), 0),
    };
    // SAFETY: the place is inside the outputs.
    unsafe {
        result.write(call.outputs[0].address(), offset(&p.y, at), dtype);
        if p.indices {
            Value::Integer(place).write(call.outputs[1].address(), offset(&p.at, at), DType::I64);
        }
    }
}
