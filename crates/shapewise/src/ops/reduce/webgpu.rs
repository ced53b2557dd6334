//! Reductions on WebGPU: any axes, one or two passes, with or without the workgroup's memory.

#[path = "webgpu_fold.rs"]
mod fold;
#[path = "webgpu_kernels.rs"]
mod kernels;
#[path = "webgpu_scan.rs"]
mod scan;
#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;

use super::{ReduceAttributes, ReduceKind};
use crate::backends::webgpu::WebGpuKernel;
use crate::backends::webgpu::axes::{self, Axis, count, merged};
use crate::backends::webgpu::wgsl::Numbers;
use crate::ops::{Operation, Workload};

/// Every WebGPU kernel; the one that takes every shape is last but for running results.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] =
    &[&kernels::TWO_STAGE, &kernels::SUBGROUP, &kernels::WORKGROUP, &kernels::EACH, &scan::Scan];

/// Which axes are kept and which are reduced, as few as possible.
struct Geometry {
    attributes: ReduceAttributes,
    kept: Vec<Axis>,
    reduced: Vec<Axis>,
}

impl Geometry {
    fn of(workload: &Workload) -> Self {
        let attributes = match workload.operation() {
            Operation::Reduce(attributes) => *attributes,
            other => unreachable!("the registry gives reductions only, not {other}"),
        };
        let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
        let axis = |i: usize| Axis::of(x, y, i);
        let first = x.shape.len() - usize::from(attributes.axes);
        let kept: Vec<_> = (0..first).map(axis).collect();
        let reduced: Vec<_> = (first..x.shape.len()).map(axis).collect();
        Self { attributes, kept: merged(&kept), reduced: merged(&reduced) }
    }

    fn results(&self) -> usize {
        count(&self.kept)
    }

    fn depth(&self) -> usize {
        count(&self.reduced)
    }

    fn numbers(&self) -> Numbers {
        let first = Numbers::default().with("results", self.results()).with("depth", self.depth());
        axes::numbers(axes::numbers(first, "result", &self.kept), "element", &self.reduced)
    }

    /// Functions from the number of a result or of an element of it to its place in memory.
    fn places(&self) -> String {
        axes::places("result", &self.kept) + &axes::places("element", &self.reduced)
    }
}

/// Whether there is a result for each place instead of one.
fn is_scan(geometry: &Geometry) -> bool {
    matches!(geometry.attributes.kind, ReduceKind::Cumulative(_))
}
