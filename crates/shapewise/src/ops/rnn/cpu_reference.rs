//! The plain loops that every other kernel is tested against.
#![allow(unsafe_code)]

use super::Cell;
use super::problem::Problem;
use crate::backends::cpu::{Operand, Value};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Any float type under any layout, in f64, one sequence after the other.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::rnn::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Rnn
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs", "problem.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let p = Problem::of(workload);
        let products = (p.steps * p.batch) as f64 * p.columns() as f64 * (p.input + p.hidden) as f64;
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let bytes = products * p.dtype.size() as f64;
        let operations = 2.0 * products + super::cost::activations(&p);
        let traffic = Traffic::pass(bytes, workload.bytes() as f64, &device.caches);
        Cost { scratch: scratch(&p) * size_of::<f64>(), ..Cost::new(operations, unit, traffic) }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let p = Problem::of(call.workload);
        let mut scratch = call.cpu().scratch(scratch(&p) * size_of::<f64>())?;
        let (h, rest) = bytemuck::cast_slice_mut::<u8, f64>(&mut scratch).split_at_mut(p.hidden);
        let (c, sums) = rest.split_at_mut(p.hidden);
        for row in 0..p.batch {
            sequence(call, &p, row, h, c, sums);
        }
        Ok(())
    }
}

/// Numbers of both states and of all sums: a GRU keeps the two parts of n apart.
fn scratch(p: &Problem) -> usize {
    (2 + p.cell.sums()) * p.hidden
}

/// An element of an input.
fn read(operand: &Operand<'_>, index: &[usize]) -> f64 {
    let at: isize = index.iter().zip(operand.strides()).map(|(&i, &stride)| i as isize * stride).sum();
    // SAFETY: every index asked for is inside the operand's shape.
    unsafe { Value::read(operand.address(), at, operand.desc().dtype) }.real()
}

fn write(operand: &Operand<'_>, index: &[usize], x: f64) {
    let at: isize = index.iter().zip(operand.strides()).map(|(&i, &stride)| i as isize * stride).sum();
    // SAFETY: every index asked for is inside the output's shape.
    unsafe { Value::Real(x).write(operand.address(), at, operand.desc().dtype) };
}

/// All steps of one sequence.
fn sequence(call: &Call<'_>, p: &Problem, row: usize, h: &mut [f64], c: &mut [f64], sums: &mut [f64]) {
    let memory = p.cell == Cell::Lstm;
    for unit in 0..p.hidden {
        h[unit] = read(&call.inputs[1], &[row, unit]);
        c[unit] = if memory { read(&call.inputs[2], &[row, unit]) } else { 0.0 };
    }
    let length = p.places.lengths.map_or(p.steps, |at| read(&call.inputs[at], &[row]) as usize);
    for step in (0..p.steps).map(|i| p.step(i)) {
        let counts = step < length;
        if counts {
            products(call, p, (step, row), h, sums);
            for unit in 0..p.hidden {
                let sum = |i: usize| sums[i * p.hidden + unit];
                (h[unit], c[unit]) = gates(p.cell, sum, h[unit], c[unit]);
            }
        }
        for (unit, &h) in h.iter().enumerate() {
            write(&call.outputs[0], &[step, row, unit], if counts { h } else { 0.0 });
        }
    }
    for unit in 0..p.hidden {
        write(&call.outputs[1], &[row, unit], h[unit]);
        if memory {
            write(&call.outputs[2], &[row, unit], c[unit]);
        }
    }
}

/// The sums of one step.
fn products(call: &Call<'_>, p: &Problem, (step, row): (usize, usize), h: &[f64], sums: &mut [f64]) {
    let (x, w_ih, w_hh) = (&call.inputs[0], &call.inputs[p.places.w_ih], &call.inputs[p.places.w_hh]);
    for line in 0..p.columns() {
        let mut parts = [0.0, 0.0];
        if p.bias {
            parts = [0, 1].map(|i| read(&call.inputs[p.places.bias + i], &[line]));
        }
        parts[0] += (0..p.input).map(|i| read(w_ih, &[line, i]) * read(x, &[step, row, i])).sum::<f64>();
        parts[1] += h.iter().enumerate().map(|(i, h)| read(w_hh, &[line, i]) * h).sum::<f64>();
        let apart = p.cell == Cell::Gru && line >= 2 * p.hidden;
        sums[line] = if apart { parts[0] } else { parts[0] + parts[1] };
        if apart {
            sums[line + p.hidden] = parts[1];
        }
    }
}

/// The new states of a unit.
fn gates(cell: Cell, sum: impl Fn(usize) -> f64, h: f64, c: f64) -> (f64, f64) {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match cell {
        Cell::Tanh => (sum(0).tanh(), c),
        // Not `max`, which would lose a NaN.
        Cell::Relu => (if sum(0) < 0.0 { 0.0 } else { sum(0) }, c),
        Cell::Gru => {
            let (r, z) = (sigmoid(sum(0)), sigmoid(sum(1)));
            let n = (sum(2) + r * sum(3)).tanh();
            (n + z * (h - n), c)
        }
        Cell::Lstm => {
            let c = sigmoid(sum(1)) * c + sigmoid(sum(0)) * sum(2).tanh();
            (sigmoid(sum(3)) * c.tanh(), c)
        }
    }
}
