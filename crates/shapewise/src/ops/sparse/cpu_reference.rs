//! The plain loops that every other kernel is tested against.
#![allow(unsafe_code)]

use super::cpu_problem::{Problem, attributes};
use super::{Number, SparseFormat, by_type, cost};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, Parameters, Variant, Workload,
};
use crate::tensor::DType;

/// Every format under any layout, summed in f64.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

/// Only types that the constructors let through.
pub(super) const TYPES: Constraint =
    Constraint::Shape("values of f32 or f64", |w| matches!(w.inputs()[0].dtype, DType::F32 | DType::F64));

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::sparse::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Sparse
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs", "cpu_problem.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn constraints(&self) -> &[Constraint] {
        &[TYPES]
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let traffic = cost::traffic(workload, device);
        let scratch = workload.outputs()[0].len().saturating_mul(8);
        // Row and column of an entry, conversion, product and sum, one after the other.
        Cost { scratch, ..Cost::new(8.0 * cost::products(workload), unit, traffic) }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        by_type!(call.workload.inputs()[0].dtype, T => multiply::<T>(call))
    }
}

fn multiply<T: Number>(call: &Call<'_>) -> Result<(), KernelError> {
    let p = Problem::<T>::new(call)?;
    let mut scratch = call.cpu().scratch(p.rows * p.n * size_of::<f64>())?;
    scratch.fill(0);
    let sums: &mut [f64] = bytemuck::cast_slice_mut(&mut scratch);
    let mut add = |row: usize, column: usize, value: T| {
        for j in 0..p.n {
            // SAFETY: columns of a checked matrix exist.
            let x = unsafe { *p.x_row(column, j) };
            sums[row * p.n + j] += value.to_f64() * x.to_f64();
        }
    };
    let line = |i: usize| p.offsets[i] as usize..p.offsets[i + 1] as usize;
    match attributes(call.workload).format {
        SparseFormat::Coo => {
            for (at, &row) in p.offsets.iter().enumerate() {
                add(row as usize, p.indices[at] as usize, p.values[at]);
            }
        }
        SparseFormat::Csr => {
            for row in 0..p.rows {
                line(row).for_each(|at| add(row, p.indices[at] as usize, p.values[at]));
            }
        }
        SparseFormat::Csc => {
            for column in 0..p.columns {
                line(column).for_each(|at| add(p.indices[at] as usize, column, p.values[at]));
            }
        }
        SparseFormat::Bsr { rows, columns } => {
            let [r, c] = [rows as usize, columns as usize];
            for row in 0..p.rows {
                for block in line(row / r) {
                    for inner in 0..c {
                        let value = p.values[(block * r + row % r) * c + inner];
                        add(row, p.indices[block] as usize * c + inner, value);
                    }
                }
            }
        }
        SparseFormat::Ell => {
            for row in 0..p.rows {
                for at in (0..p.offsets[row] as usize).map(|place| place * p.rows + row) {
                    add(row, p.indices[at] as usize, p.values[at]);
                }
            }
        }
    }
    for row in 0..p.rows {
        for j in 0..p.n {
            // SAFETY: the place lies inside the output.
            unsafe { *p.y_row(row, j) = T::from_f64(sums[row * p.n + j] + p.bias_at(row, j).to_f64()) };
        }
    }
    Ok(())
}
