//! The plain loops that every other kernel is tested against.
#![allow(unsafe_code)]

use super::problem::{Problem, at};
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Any float type under any layout, in f64, one query after the other.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::attention::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Attention
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs", "problem.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let p = Problem::of(workload);
        let pairs = p.pairs() * (p.batch * p.heads) as f64;
        let operations = pairs * (2 * (p.dim + p.value_dim)) as f64 + pairs * super::cost::EXPONENTIAL;
        let bytes = pairs * ((p.dim + p.value_dim) * p.dtype.size()) as f64;
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let traffic = Traffic::pass(bytes, workload.bytes() as f64, &device.caches);
        Cost { scratch: (p.keys + p.value_dim) * size_of::<f64>(), ..Cost::new(operations, unit, traffic) }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let p = Problem::of(call.workload);
        if p.is_empty() {
            return Ok(());
        }
        let mut scratch = call.cpu().scratch((p.keys + p.value_dim) * size_of::<f64>())?;
        let (weights, sums) = bytemuck::cast_slice_mut::<u8, f64>(&mut scratch).split_at_mut(p.keys);
        for batch in 0..p.batch {
            for head in 0..p.heads {
                for query in 0..p.queries {
                    scores(call, &p, (batch, head, query), weights);
                    mean(call, &p, (batch, head, query), weights, sums);
                }
            }
        }
        Ok(())
    }
}

/// An element of an input.
fn read(call: &Call<'_>, input: usize, index: isize) -> f64 {
    let operand = &call.inputs[input];
    // SAFETY: every index asked for is inside the operand's shape.
    unsafe { Value::read(operand.address(), index, operand.desc().dtype) }.real()
}

/// The scores of one query; −∞ where a key does not count.
fn scores(call: &Call<'_>, p: &Problem, (batch, head, query): (usize, usize, usize), out: &mut [f64]) {
    let q = at(&p.q, batch, head, query);
    let visible = p.visible(query);
    for (key, score) in out.iter_mut().enumerate() {
        let mask = match p.mask {
            None => 0.0,
            Some((dtype, strides)) => {
                let mask = read(call, 3, at(&strides, batch, head, query) + key as isize * strides[3]);
                match (dtype, mask == 0.0) {
                    (DType::Bool, true) => f64::NEG_INFINITY,
                    (DType::Bool, false) => 0.0,
                    _ => mask,
                }
            }
        };
        if key >= visible || mask == f64::NEG_INFINITY {
            *score = f64::NEG_INFINITY;
            continue;
        }
        let k = at(&p.k, batch, head / p.group(), key);
        let product: f64 =
            (0..p.dim as isize).map(|d| read(call, 0, q + d * p.q[3]) * read(call, 1, k + d * p.k[3])).sum();
        *score = product * p.scale + mask;
    }
}

/// The mean of the values by the softmax of the scores.
fn mean(
    call: &Call<'_>,
    p: &Problem,
    (batch, head, query): (usize, usize, usize),
    scores: &[f64],
    sums: &mut [f64],
) {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, |a, x| if x > a { x } else { a });
    let mut total = 0.0;
    sums.fill(0.0);
    for (key, &score) in scores.iter().enumerate().filter(|(_, s)| **s != f64::NEG_INFINITY) {
        let weight = (score - max).exp();
        total += weight;
        let v = at(&p.v, batch, head / p.group(), key);
        for (d, sum) in sums.iter_mut().enumerate() {
            *sum += weight * read(call, 2, v + d as isize * p.v[3]);
        }
    }
    let out = &call.outputs[0];
    let row = at(&p.out, batch, head, query);
    for (d, &sum) in sums.iter().enumerate() {
        let mean = if total == 0.0 { 0.0 } else { sum / total };
        // SAFETY: the index is inside the output's shape.
        unsafe { Value::Real(mean).write(out.address(), row + d as isize * p.out[3], out.desc().dtype) };
    }
}
