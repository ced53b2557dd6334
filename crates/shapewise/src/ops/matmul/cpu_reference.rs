//! The plain product: three loops in double precision, for every type, stride and size.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::cpu_batch::Products;
use crate::backends::cpu::simd::{Lanes, Portable, math};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Activation, Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic,
    Variant, Workload,
};
use crate::tensor::{DType, Element};

/// The judge of all other kernels.
pub(super) struct Reference;

/// The element types that products are defined for.
pub(super) const FLOATS: &[DType] = &[DType::F32, DType::F64, DType::F16, DType::BF16];

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::matmul::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn constraints(&self) -> &[Constraint] {
        &[Constraint::DTypes(FLOATS)]
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let products = Products::describe(workload);
        let g = products.first();
        let steps = (products.count * g.m * g.n * g.k) as f64;
        let size = workload.outputs()[0].dtype.size() as f64;
        // Each result reads a row and a column, one element at a time.
        let traffic = Traffic::pass(2.0 * steps * size, workload.bytes() as f64, &device.caches);
        Cost::new(2.0 * steps, ComputeUnit { dtype: DType::F64, isa: None }, traffic)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => product::<f32>(call, f64::from, |x| x as f32),
            DType::F64 => product::<f64>(call, |x| x, |x| x),
            DType::F16 => product::<f16>(call, f16::to_f64, f16::from_f64),
            DType::BF16 => product::<bf16>(call, bf16::to_f64, bf16::from_f64),
            other => return Err(KernelError(format!("{other} has no product").into())),
        }
        Ok(())
    }
}

fn product<T: Element>(call: &Call<'_>, wide: impl Fn(T) -> f64, narrow: impl Fn(f64) -> T) {
    let products = Products::<T>::of(call);
    for i in 0..products.count {
        let g = products.get(i);
        for row in 0..g.m {
            for column in 0..g.n {
                let (row, column) = (row as isize, column as isize);
                let mut sum = 0.0;
                for step in 0..g.k as isize {
                    // SAFETY: row, column and step lie inside the operands' shapes.
                    let (x, y) = unsafe {
                        (
                            *g.a.offset(row * g.a_rs + step * g.a_cs),
                            *g.b.offset(step * g.b_rs + column * g.b_cs),
                        )
                    };
                    sum += wide(x) * wide(y);
                }
                if !g.epilogue.bias.is_null() {
                    // SAFETY: the bias has an element for every column.
                    sum += wide(unsafe { *g.epilogue.bias.offset(column * g.epilogue.bias_cs) });
                }
                let result = narrow(apply(g.epilogue.activation, sum));
                // SAFETY: row and column lie inside the output's shape.
                unsafe { g.c.offset(row * g.c_rs + column * g.c_cs).write(result) };
            }
        }
    }
}

/// The activation of one number.
pub(in crate::ops) fn apply(activation: Activation, x: f64) -> f64 {
    let vector = Lanes::<f64>::splat(Portable, x);
    let y = match activation {
        Activation::None => return x,
        Activation::Relu => return if x < 0.0 { 0.0 } else { x },
        Activation::LeakyRelu { slope } => return if x < 0.0 { x * f64::from(slope) } else { x },
        Activation::Gelu => math::gelu::<f64, _>(Portable, vector),
        Activation::Silu => math::silu::<f64, _>(Portable, vector),
        Activation::Tanh => return x.tanh(),
        Activation::Sigmoid => return 1.0 / (1.0 + (-x).exp()),
    };
    Lanes::<f64>::first(Portable, y)
}
