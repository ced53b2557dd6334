//! Element after element through the meaning of each function: what every other kernel is tested against.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;
use half::{bf16, f16};
use num_complex::Complex;

use super::program::MAX_STEPS;
use super::value::{Value, apply};
use super::{Program, Source, program_of};
use crate::backends::cpu::Operand;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant, Workload,
};
use crate::tensor::{DType, Element, MAX_RANK};

/// `cpu::elementwise::reference`
pub struct Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::elementwise::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Elementwise
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs", "value.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn in_place(&self) -> bool {
        true
    }

    fn cost(&self, workload: &Workload, _parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let elements = workload.outputs()[0].len() as f64;
        let steps = program_of(workload).steps().len() as f64;
        let bytes = workload.bytes() as f64;
        let unit = ComputeUnit { dtype: DType::F32, isa: None };
        // Interpreting a step takes dozens of scalar instructions: tag checks, loads, a jump.
        Cost::new(elements * steps * 40.0, unit, Traffic::pass(bytes, bytes, &device.caches))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let program = program_of(call.workload);
        let inputs: ArrayVec<DType, 8> = call.inputs.iter().map(|o| o.desc().dtype).collect();
        let types = program.step_types(&inputs)?;
        let output = &call.outputs[0];
        let shape = output.shape();
        let mut index = [0usize; MAX_RANK];
        for _ in 0..output.desc().len() {
            let at = &index[..shape.len()];
            let values: ArrayVec<Value, 8> = call.inputs.iter().map(|o| read(o, at)).collect();
            write(output, at, evaluate(program, &inputs, &types, &values));
            for axis in (0..shape.len()).rev() {
                index[axis] += 1;
                if index[axis] < shape[axis] {
                    break;
                }
                index[axis] = 0;
            }
        }
        Ok(())
    }
}

/// The program's result for one element of each input.
fn evaluate(program: &Program, inputs: &[DType], types: &[DType], values: &[Value]) -> Value {
    let mut results = ArrayVec::<Value, MAX_STEPS>::new();
    for step in program.steps() {
        let arguments = &step.arguments[..step.function.arguments()];
        // The last argument's type is that of the numbers: a condition comes first.
        let dtype = arguments.iter().rev().find_map(|&source| match source {
            Source::Input(i) => Some(inputs[i as usize]),
            Source::Step(i) => Some(types[i as usize]),
            Source::Constant(_) => None,
        });
        let dtype = dtype.unwrap_or(DType::F64);
        let of = |source: Source| match source {
            Source::Input(i) => values[i as usize],
            Source::Step(i) => results[i as usize],
            Source::Constant(i) => Value::constant(program.constant(i), dtype),
        };
        results.push(apply(step.function, dtype, step.arguments.map(of)));
    }
    results.last().copied().unwrap_or(Value::Bool(false))
}

fn offset(operand: &Operand<'_>, index: &[usize]) -> isize {
    index.iter().zip(operand.strides()).map(|(&i, &stride)| i as isize * stride).sum()
}

/// The element at an index inside the operand's shape.
fn load<T: Element>(operand: &Operand<'_>, index: &[usize]) -> T {
    // SAFETY: the index lies inside the shape, and operands are valid everywhere inside it; any alignment is read.
    unsafe { operand.ptr::<T>().offset(offset(operand, index)).read_unaligned() }
}

fn store<T: Element>(operand: &Operand<'_>, index: &[usize], value: T) {
    // SAFETY: as in `load`, and the operand is an output.
    unsafe { operand.ptr_mut::<T>().offset(offset(operand, index)).write_unaligned(value) }
}

fn read(operand: &Operand<'_>, index: &[usize]) -> Value {
    match operand.desc().dtype {
        DType::F32 => Value::F32(load(operand, index)),
        DType::F64 => Value::F64(load(operand, index)),
        DType::F16 => Value::F32(load::<f16>(operand, index).to_f32()),
        DType::BF16 => Value::F32(load::<bf16>(operand, index).to_f32()),
        DType::I8 => Value::Int(load::<i8>(operand, index).into()),
        DType::I16 => Value::Int(load::<i16>(operand, index).into()),
        DType::U8 => Value::Int(load::<u8>(operand, index).into()),
        DType::I32 => Value::Int(load::<i32>(operand, index).into()),
        DType::U32 => Value::Int(load::<u32>(operand, index).into()),
        DType::I64 => Value::Int(load(operand, index)),
        DType::Bool => Value::Bool(load(operand, index)),
        DType::C32 => Value::C32(load::<Complex<f32>>(operand, index)),
        DType::C64 => Value::C64(load::<Complex<f64>>(operand, index)),
    }
}

fn write(operand: &Operand<'_>, index: &[usize], value: Value) {
    match (operand.desc().dtype, value) {
        (DType::F32, Value::F32(x)) => store(operand, index, x),
        (DType::F16, Value::F32(x)) => store(operand, index, f16::from_f32(x)),
        (DType::BF16, Value::F32(x)) => store(operand, index, bf16::from_f32(x)),
        (DType::F64, Value::F64(x)) => store(operand, index, x),
        (DType::I8, Value::Int(i)) => store(operand, index, i as i8),
        (DType::I16, Value::Int(i)) => store(operand, index, i as i16),
        (DType::U8, Value::Int(i)) => store(operand, index, i as u8),
        (DType::I32, Value::Int(i)) => store(operand, index, i as i32),
        (DType::U32, Value::Int(i)) => store(operand, index, i as u32),
        (DType::I64, Value::Int(i)) => store(operand, index, i),
        (DType::Bool, Value::Bool(b)) => store(operand, index, b),
        (DType::C32, Value::C32(z)) => store(operand, index, z),
        (DType::C64, Value::C64(z)) => store(operand, index, z),
        (dtype, value) => unreachable!("{value:?} for an output of {dtype}"),
    }
}
