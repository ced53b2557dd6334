//! The plain loops that every other kernel is tested against.
#![allow(unsafe_code)]

use super::NormKind;
use super::cpu_kernels::{attributes, axes};
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::walk::{Axis, offset};
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
        "cpu::norm::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Norm
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
        let traffic = Traffic::pass(3.0 * bytes, bytes, &device.caches);
        Cost::new(8.0 * workload.inputs()[0].len() as f64, unit, traffic)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let attributes = attributes(call.workload);
        let (axes, at) = axes(call.workload);
        if call.workload.inputs()[0].is_empty() {
            return Ok(());
        }
        match attributes.kind {
            NormKind::Layer | NormKind::Rms => {
                let (outer, inner) = axes.split_at(at);
                for row in 0..count(outer) {
                    let unit = Unit { call, fixed: outer, index: row, over: inner };
                    let (mean, variance) = unit.moments(attributes.kind == NormKind::Rms);
                    unit.write(mean, variance, |i| i);
                }
            }
            NormKind::BatchInference | NormKind::BatchTraining => {
                let others: Vec<Axis> =
                    axes.iter().enumerate().filter(|&(i, _)| i != at).map(|(_, a)| *a).collect();
                for channel in 0..axes[at].size {
                    let unit = Unit { call, fixed: &axes[at..=at], index: channel, over: &others };
                    let (mean, variance) = if attributes.kind == NormKind::BatchTraining {
                        let moments = unit.moments(false);
                        write_output(call, 1, channel, moments.0);
                        write_output(call, 2, channel, moments.1);
                        moments
                    } else {
                        let last = call.inputs.len();
                        (read_input(call, last - 2, channel), read_input(call, last - 1, channel))
                    };
                    unit.write(mean, variance, |_| channel);
                }
            }
            NormKind::Group { groups } => {
                let (channels, groups) = (axes[at], groups as usize);
                let each = channels.size / groups;
                // Group and channel within it instead of the channel.
                let mut fixed = axes[..at].to_vec();
                let step = each as isize;
                fixed.push(Axis {
                    size: groups,
                    input: channels.input * step,
                    output: channels.output * step,
                });
                let mut over = vec![Axis { size: each, ..channels }];
                over.extend_from_slice(&axes[at + 1..]);
                let places = count(&over) / each;
                for index in 0..count(&fixed) {
                    let unit = Unit { call, fixed: &fixed, index, over: &over };
                    let (mean, variance) = unit.moments(false);
                    unit.write(mean, variance, |i| index % groups * each + i / places);
                }
            }
        }
        Ok(())
    }
}

fn count(axes: &[Axis]) -> usize {
    axes.iter().map(|a| a.size).product()
}

/// Number `i` of a weight.
fn read_input(call: &Call<'_>, input: usize, i: usize) -> f64 {
    let operand = &call.inputs[input];
    // SAFETY: weights are contiguous and have an element for each that asks.
    unsafe { Value::read(operand.address(), i as isize, operand.desc().dtype) }.real()
}

fn write_output(call: &Call<'_>, output: usize, i: usize, value: f64) {
    let operand = &call.outputs[output];
    let at = i as isize * operand.strides()[0];
    // SAFETY: the statistics have an element for each channel.
    unsafe { Value::Real(value).write(operand.address(), at, operand.desc().dtype) };
}

/// Elements that share their statistics.
struct Unit<'a, 'c> {
    call: &'a Call<'c>,
    fixed: &'a [Axis],
    index: usize,
    over: &'a [Axis],
}

impl Unit<'_, '_> {
    fn read(&self, i: usize) -> f64 {
        let at = offset(self.fixed, self.index, |a| a.input) + offset(self.over, i, |a| a.input);
        let x = &self.call.inputs[0];
        // SAFETY: the offset is that of an index inside the operand's shape.
        unsafe { Value::read(x.address(), at, x.desc().dtype) }.real()
    }

    /// Mean and variance, or zero and the mean square.
    fn moments(&self, rms: bool) -> (f64, f64) {
        let n = count(self.over);
        let mean = if rms { 0.0 } else { (0..n).map(|i| self.read(i)).sum::<f64>() / n as f64 };
        let squares: f64 = (0..n).map(|i| (self.read(i) - mean).powi(2)).sum();
        (mean, squares / n as f64)
    }

    /// Normalises every element; `weight` says which number of scale and bias is its own.
    fn write(&self, mean: f64, variance: f64, weight: impl Fn(usize) -> usize) {
        let attributes = attributes(self.call.workload);
        let factor = 1.0 / (variance + attributes.eps()).sqrt();
        for i in 0..count(self.over) {
            let mut y = (self.read(i) - mean) * factor;
            if attributes.scale {
                y *= read_input(self.call, 1, weight(i));
            }
            if attributes.bias {
                y += read_input(self.call, 1 + usize::from(attributes.scale), weight(i));
            }
            let at = offset(self.fixed, self.index, |a| a.output) + offset(self.over, i, |a| a.output);
            let out = &self.call.outputs[0];
            // SAFETY: the offset is that of an index inside the operand's shape.
            unsafe { Value::Real(y).write(out.address(), at, out.desc().dtype) };
        }
    }
}
