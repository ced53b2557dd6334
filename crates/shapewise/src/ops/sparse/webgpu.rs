//! Sparse matrix times dense vector or matrix on WebGPU: a row from each invocation, from each subgroup, or equal shares of
//! the entries.

#[path = "webgpu_merge.rs"]
mod merge;
#[path = "webgpu_rows.rs"]
mod rows;
#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;

use super::SparseFormat;
use crate::backends::webgpu::wgsl::{Checks, Numbers, Wgsl, stride};
use crate::backends::webgpu::{Place, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::ops::{Operation, Refusal, TensorDesc, Workload};
use crate::tensor::DType;

/// Every WebGPU kernel.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] = &[&rows::ROWS, &rows::SUBGROUP, &merge::Merge];

/// Sizes and strides of a product.
struct Geometry {
    format: SparseFormat,
    rows: usize,
    columns: usize,
    /// Columns of the dense operand.
    n: usize,
    entries: usize,
    bias: bool,
}

impl Geometry {
    fn of(workload: &Workload) -> Self {
        let attributes = match workload.operation() {
            Operation::Sparse(attributes) => *attributes,
            other => unreachable!("the registry gives sparse products only, not {other}"),
        };
        let (inputs, y) = (workload.inputs(), &workload.outputs()[0]);
        Self {
            format: attributes.format(),
            rows: y.shape[0],
            columns: inputs[1].shape[0],
            n: y.shape[1],
            entries: inputs[2].len(),
            bias: attributes.bias(),
        }
    }

    /// Entries of a row at most: no column comes twice.
    fn longest(&self) -> usize {
        match self.format {
            SparseFormat::Bsr { .. } => self.columns,
            _ => self.entries.min(self.columns),
        }
    }

    fn numbers(&self, workload: &Workload) -> Numbers {
        let (x, y) = (&workload.inputs()[1], &workload.outputs()[0]);
        let bias = |axis: usize| workload.inputs().get(4).map_or(0, |b| stride(b, axis));
        Numbers::default()
            .with("rows", self.rows)
            .with("n", self.n)
            .with("entries", self.entries)
            .with("x_row", stride(x, 0))
            .with("x_column", stride(x, 1))
            .with("y_row", stride(y, 0))
            .with("y_column", stride(y, 1))
            .with("bias_row", bias(0))
            .with("bias_column", bias(1))
    }

    /// Binds values, dense operand, indices, offsets, bias and, last, the output, with the function `finish` of a sum.
    fn shader(&self, label: &str, x: u32, numbers: &Numbers) -> Wgsl {
        let wgsl = Wgsl::new(label, [x, 1, 1])
            .read("values", "f32")
            .read("x", "f32")
            .read("indices", "u32")
            .read("offsets", "u32");
        let (wgsl, added) = if self.bias {
            (wgsl.read("bias", "f32"), " + bias[row * s.bias_row + j * s.bias_column]")
        } else {
            (wgsl, "")
        };
        wgsl.write("y", "f32").numbers(numbers).with(format!(
            "fn finish(row: u32, j: u32, sum: f32) {{ y[row * s.y_row + j * s.y_column] = sum{added}; }}"
        ))
    }

    /// The buffers that [`Geometry::shader`] binds.
    fn places(&self) -> Vec<Place> {
        (0..5 + usize::from(self.bias)).map(Place::Operand).collect()
    }

    fn cost(&self, workload: &Workload) -> WebGpuCost {
        let entries = workload.inputs()[0].len() as f64;
        // Value, index and an element of the dense operand for each entry and column.
        let bytes = workload.bytes() as f64 + 4.0 * entries * self.n as f64;
        WebGpuCost { operations: 2.0 * entries * self.n as f64, bytes }
    }
}

/// What all kernels need of a workload: f32, with u32 indices that lie without gaps.
fn checks<'a>(workload: &'a Workload, limits: &'a WebGpuLimits) -> Checks<'a> {
    let inputs = workload.inputs();
    let real = |o: &TensorDesc| o.dtype == DType::F32;
    let reals = real(&inputs[0]) && real(&inputs[1]) && workload.outputs().iter().all(real);
    let index = |o: &TensorDesc| o.dtype == DType::U32 && o.is_contiguous();
    Checks::layouts(workload, limits).needs(reals, "values of f32").needs(
        inputs[0].is_contiguous() && index(&inputs[2]) && index(&inputs[3]),
        "u32 indices and values without gaps",
    )
}

/// The reason against a format.
fn format(workload: &Workload) -> Refusal {
    Refusal::Shape(format!("another format than {}", Geometry::of(workload).format).into())
}
