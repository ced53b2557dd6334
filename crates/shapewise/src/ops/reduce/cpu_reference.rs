//! The plain loops that every other kernel is tested against.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::attributes::{NormOrder, ReduceKind, ScanKind};
use super::cpu_kernels::attributes;
use super::sums::Twice;
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::walk::{Axis, offset};
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Any reduction of any type under any layout, one element after the other.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::reduce::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Reduce
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let input = &workload.inputs()[0];
        let bytes = workload.bytes() as f64;
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        Cost::new(input.len() as f64, unit, Traffic::pass(bytes, bytes, &device.caches))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let attributes = attributes(call.workload);
        let (input, output) = (call.workload.inputs()[0], call.workload.outputs()[0]);
        let axes: Vec<Axis> = (0..input.shape.len())
            .map(|i| {
                let along = output.strides.get(i).copied().unwrap_or(0);
                Axis { size: input.shape[i], input: input.strides[i], output: along }
            })
            .collect();
        let (kept, reduced) = axes.split_at(axes.len() - usize::from(attributes.axes));
        let count = |axes: &[Axis]| axes.iter().map(|a| a.size).product::<usize>();
        let (first, out) = (call.inputs[0].address(), call.outputs[0].address());
        for result in 0..count(kept) {
            let (from, to) = (offset(kept, result, |a| a.input), offset(kept, result, |a| a.output));
            // SAFETY: the offsets are those of indices inside the operands' shapes.
            let element =
                |i| unsafe { Value::read(first, from + offset(reduced, i, |a| a.input), input.dtype) };
            if let ReduceKind::Cumulative(scan) = attributes.kind {
                let mut running = Running::new(scan.kind, output.dtype);
                for i in 0..count(reduced) {
                    // Read before anything is written: in place this is the same element.
                    let x = element(i);
                    let before = running.value();
                    running.add(x);
                    let value = if scan.exclusive { before } else { running.value() };
                    // SAFETY: as above.
                    unsafe { value.write(out, to + offset(reduced, i, |a| a.output), output.dtype) };
                }
                continue;
            }
            let value = reduce(attributes.kind, count(reduced), element);
            // SAFETY: as above.
            unsafe { value.write(out, to, output.dtype) };
        }
        Ok(())
    }
}

/// One result from its `n` elements.
fn reduce(kind: ReduceKind, n: usize, element: impl Fn(usize) -> Value) -> Value {
    let all = || (0..n).map(&element);
    match kind {
        ReduceKind::Sum => sum(all()),
        ReduceKind::Mean => mean(n, all()),
        ReduceKind::Prod => product(all()),
        ReduceKind::Max => best(n, &element, |x, y| x > y).map_or(Value::Real(f64::NAN), &element),
        ReduceKind::Min => best(n, &element, |x, y| x < y).map_or(Value::Real(f64::NAN), &element),
        ReduceKind::ArgMax => Value::Integer(best(n, &element, |x, y| x > y).map_or(-1, |i| i as i64)),
        ReduceKind::ArgMin => Value::Integer(best(n, &element, |x, y| x < y).map_or(-1, |i| i as i64)),
        ReduceKind::Any => Value::Truth(all().any(Value::truth)),
        ReduceKind::All => Value::Truth(all().all(Value::truth)),
        ReduceKind::Variance { correction } => {
            let mean = mean(n, all().map(|x| Value::Real(x.real()))).real();
            let squares = all().fold(Twice::default(), |s, x| s.add((x.real() - mean).powi(2))).value();
            Value::Real(squares / n.saturating_sub(correction as usize) as f64)
        }
        ReduceKind::Norm(order) => Value::Real(norm(order, n, &element)),
        ReduceKind::Cumulative(_) => unreachable!("scans have a result for each place"),
    }
}

/// The result of the elements so far.
enum Running {
    Sum(Total),
    Prod(Value),
    /// The best so far, what stands for none, and what beats it.
    Best(Option<Value>, Value, fn(&Value, &Value) -> bool),
}

impl Running {
    fn new(kind: ScanKind, dtype: DType) -> Self {
        match kind {
            ScanKind::Sum => Self::Sum(Total::default()),
            ScanKind::Prod => Self::Prod(Value::Integer(1)),
            ScanKind::Max => Self::Best(None, lowest(dtype, false), |x, y| x > y),
            ScanKind::Min => Self::Best(None, lowest(dtype, true), |x, y| x < y),
        }
    }

    fn add(&mut self, x: Value) {
        match self {
            Self::Sum(total) => total.add(x),
            Self::Prod(a) => *a = times(*a, x),
            Self::Best(best, _, further) => {
                if best.is_none_or(|a| !a.is_nan() && (x.is_nan() || further(&x, &a))) {
                    *best = Some(x);
                }
            }
        }
    }

    fn value(&self) -> Value {
        match self {
            Self::Sum(total) => total.value(),
            Self::Prod(value) => *value,
            Self::Best(best, none, _) => best.unwrap_or(*none),
        }
    }
}

/// The lowest number of a type, or the highest: what every other beats.
pub(super) fn lowest(dtype: DType, highest: bool) -> Value {
    let (low, high) = match dtype {
        DType::I8 => (i8::MIN.into(), i8::MAX.into()),
        DType::U8 => (0, u8::MAX.into()),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::U32 => (0, u32::MAX.into()),
        DType::I64 => (i64::MIN, i64::MAX),
        DType::Bool => (0, 1),
        _ => return Value::Real(if highest { f64::INFINITY } else { f64::NEG_INFINITY }),
    };
    Value::Integer(if highest { high } else { low })
}

fn sum(all: impl Iterator<Item = Value>) -> Value {
    let mut total = Total::default();
    all.for_each(|x| total.add(x));
    total.value()
}

/// A sum of any numbers, in the type of the last one.
struct Total {
    re: Twice,
    im: Twice,
    integer: i64,
    last: Value,
}

impl Default for Total {
    fn default() -> Self {
        Self { re: Twice::default(), im: Twice::default(), integer: 0, last: Value::Integer(0) }
    }
}

impl Total {
    fn add(&mut self, x: Value) {
        self.last = x;
        if matches!(x, Value::Integer(_) | Value::Truth(_)) {
            self.integer = self.integer.wrapping_add(x.integer());
        }
        let z = x.complex();
        (self.re, self.im) = (self.re.add(z.re), self.im.add(z.im));
    }

    fn value(&self) -> Value {
        match self.last {
            Value::Integer(_) | Value::Truth(_) => Value::Integer(self.integer),
            Value::Real(_) => Value::Real(self.re.value()),
            Value::Complex(_) => Value::Complex(Complex::new(self.re.value(), self.im.value())),
        }
    }
}

fn mean(n: usize, all: impl Iterator<Item = Value>) -> Value {
    if n == 0 {
        return Value::Complex(Complex::new(f64::NAN, f64::NAN));
    }
    match sum(all.map(|x| if let Value::Complex(_) = x { x } else { Value::Real(x.real()) })) {
        Value::Complex(z) => Value::Complex(z / n as f64),
        x => Value::Real(x.real() / n as f64),
    }
}

fn product(all: impl Iterator<Item = Value>) -> Value {
    all.fold(Value::Integer(1), times)
}

fn times(a: Value, x: Value) -> Value {
    match (a, x) {
        (Value::Integer(a), Value::Integer(_) | Value::Truth(_)) => {
            Value::Integer(a.wrapping_mul(x.integer()))
        }
        (_, Value::Complex(z)) => Value::Complex(a.complex() * z),
        _ => Value::Real(a.real() * x.real()),
    }
}

/// The first place that no other beats; NaN beats every number.
fn best(n: usize, element: impl Fn(usize) -> Value, further: fn(&Value, &Value) -> bool) -> Option<usize> {
    (0..n).reduce(|a, b| {
        let (x, y) = (element(a), element(b));
        if !x.is_nan() && (y.is_nan() || further(&y, &x)) { b } else { a }
    })
}

fn norm(order: NormOrder, n: usize, element: impl Fn(usize) -> Value) -> f64 {
    let sizes = || (0..n).map(|i| element(i).magnitude());
    let total = |f: &dyn Fn(f64) -> f64| sizes().fold(Twice::default(), |s, x| s.add(f(x))).value();
    match order {
        NormOrder::Zero => total(&|x| f64::from(x != 0.0)),
        NormOrder::One => total(&|x| x),
        NormOrder::Two => total(&|x| x * x).sqrt(),
        NormOrder::Infinity => sizes().fold(0.0, |a, x| if x > a || x.is_nan() { x } else { a }),
        NormOrder::NegativeInfinity => {
            sizes().fold(f64::INFINITY, |a, x| if x < a || x.is_nan() { x } else { a })
        }
        NormOrder::Other(p) => total(&|x| x.powf(p.value())).powf(1.0 / p.value()),
    }
}
