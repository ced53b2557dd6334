//! Quantise, dequantise and requantise by the definition, one element after the other.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::QuantType;
use super::attributes::{QuantizeAttributes, Walk};
use super::cpu_linear::{attributes, cost};
use crate::backends::cpu::{Operand, Value};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Variant, Workload,
};
use crate::tensor::DType;

/// Everything, by plain loops.
pub(super) struct Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::quantize::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Quantize
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        cost(workload, ComputeUnit { dtype: DType::F32, isa: None }, parameters, device)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let attributes = attributes(call.workload);
        let walk = Walk::of(call.workload, &attributes);
        let sides = Side::both(call, &attributes);
        let mut at = 0;
        while at < walk.elements() {
            let stretch = walk.stretch(at);
            for (i, element) in (at..stretch.end).enumerate() {
                let index = stretch.index + i * stretch.step;
                convert(call, &attributes, &sides, element, index);
            }
            at = stretch.end;
        }
        Ok(())
    }
}

/// Scale and zero point.
struct Side<'a> {
    scale: Operand<'a>,
    zero: Option<Operand<'a>>,
}

impl<'a> Side<'a> {
    fn both(call: &Call<'a>, attributes: &QuantizeAttributes) -> [Option<Self>; 2] {
        let mut rest = call.inputs[1..].iter().copied();
        let mut next = |is_there: bool, zero: bool| {
            let scale = if is_there { rest.next() } else { None };
            scale.map(|scale| Side { scale, zero: if zero { rest.next() } else { None } })
        };
        let [a, b] = attributes.zero_points;
        [next(attributes.from.is_some(), a), next(attributes.to.is_some(), b)]
    }

    fn at(&self, index: usize) -> (f32, i64) {
        let read = |operand: &Operand<'_>| {
            let index = if operand.desc().len() == 1 { 0 } else { index as isize };
            // SAFETY: there is one for all, or one for every index of the walk.
            unsafe { Value::read(operand.address(), index, operand.desc().dtype) }
        };
        (read(&self.scale).real() as f32, self.zero.as_ref().map_or(0, |zero| read(zero).integer()))
    }
}

fn convert(
    call: &Call<'_>,
    attributes: &QuantizeAttributes,
    sides: &[Option<Side<'_>>; 2],
    at: usize,
    index: usize,
) {
    let (input, output) = (&call.inputs[0], &call.outputs[0]);
    let real = match (attributes.from, &sides[0]) {
        (Some(kind), Some(side)) => {
            let (scale, zero) = side.at(index);
            (integer(input, kind, at) - zero) as f32 * scale
        }
        // SAFETY: the operand has this element.
        _ => unsafe { Value::read(input.address(), at as isize, input.desc().dtype) }.real() as f32,
    };
    if let (Some(kind), Some(side)) = (attributes.to, &sides[1]) {
        let (scale, zero) = side.at(index);
        put(output, kind, at, nearest(real / scale, zero, kind));
    } else {
        let dtype = output.desc().dtype;
        // SAFETY: the operand has this element.
        unsafe { Value::Real(rounded(real, dtype)).write(output.address(), at as isize, dtype) }
    }
}

/// The nearest number of a short type: rounding straight from f32, because from f64 the last bits of f32 are not looked at.
fn rounded(x: f32, dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => bf16::from_f32(x).to_f64(),
        DType::F16 => f16::from_f32(x).to_f64(),
        _ => x.into(),
    }
}

/// Rounded with halves to even, moved by the zero point, kept in the type's range; NaN is the smallest.
fn nearest(x: f32, zero: i64, kind: QuantType) -> i64 {
    let (low, high) = kind.range();
    if x.is_nan() {
        return low.into();
    }
    // Saturates far outside, where the zero point makes no difference.
    (x.round_ties_even() as i64).saturating_add(zero).clamp(low.into(), high.into())
}

fn integer(operand: &Operand<'_>, kind: QuantType, at: usize) -> i64 {
    if !kind.is_packed() {
        // SAFETY: the operand has this element.
        return unsafe { Value::read(operand.address(), at as isize, kind.dtype()) }.integer();
    }
    // SAFETY: every byte has two elements.
    let byte = unsafe { operand.address().add(at / 2).read() };
    let half = i64::from(byte >> (at % 2 * 4) & 15);
    if kind == QuantType::I4 && half > 7 { half - 16 } else { half }
}

fn put(operand: &Operand<'_>, kind: QuantType, at: usize, value: i64) {
    if !kind.is_packed() {
        // SAFETY: the operand has this element.
        return unsafe { Value::Integer(value).write(operand.address(), at as isize, kind.dtype()) };
    }
    // SAFETY: every byte has two elements; the first one is written first and clears the other.
    unsafe {
        let byte = operand.address().add(at / 2);
        let half = (value & 15) as u8;
        byte.write(if at.is_multiple_of(2) { half } else { byte.read() & 15 | half << 4 });
    }
}
