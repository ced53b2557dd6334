//! Softmax and log-softmax on WebGPU: online, in one pass over the row for its largest element and its sum.

#[path = "webgpu_kernels.rs"]
mod kernels;
#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;

use super::SoftmaxAttributes;
use crate::backends::webgpu::WebGpuKernel;
use crate::backends::webgpu::axes::{self, Axis, count, merged};
use crate::backends::webgpu::wgsl::{Numbers, stride};
use crate::ops::{Operation, Workload};

/// Every WebGPU kernel.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] =
    &[&kernels::SUBGROUP, &kernels::REGISTERS, &kernels::WORKGROUP, &kernels::EACH];

/// Rows and where they lie.
struct Geometry {
    attributes: SoftmaxAttributes,
    rows: Vec<Axis>,
    /// Elements of a row and their distance.
    n: usize,
    input: usize,
    output: usize,
}

impl Geometry {
    fn of(workload: &Workload) -> Self {
        let attributes = match workload.operation() {
            Operation::Softmax(attributes) => *attributes,
            other => unreachable!("the registry gives softmax only, not {other}"),
        };
        let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
        let last = x.shape.len() - 1;
        let rows: Vec<_> = (0..last).map(|i| Axis::of(x, y, i)).collect();
        let (input, output) = (stride(x, last), stride(y, last));
        Self { attributes, rows: merged(&rows), n: x.shape[last], input, output }
    }

    fn count(&self) -> usize {
        count(&self.rows)
    }

    fn numbers(&self) -> Numbers {
        let first = Numbers::default()
            .with("rows", self.count())
            .with("n", self.n)
            .with("step_in", self.input)
            .with("step_out", self.output);
        axes::numbers(first, "row", &self.rows)
    }
}
