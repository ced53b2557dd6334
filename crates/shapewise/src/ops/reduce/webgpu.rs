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

use std::fmt::Write;

use super::{ReduceAttributes, ReduceKind};
use crate::backends::webgpu::WebGpuKernel;
use crate::backends::webgpu::wgsl::{Numbers, stride};
use crate::ops::{Operation, Workload};

/// Every WebGPU kernel; the one that takes every shape is last but for running results.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] =
    &[&kernels::TWO_STAGE, &kernels::SUBGROUP, &kernels::WORKGROUP, &kernels::EACH, &scan::Scan];

/// Neighbours that differ by one stride, in the input and in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    size: usize,
    input: usize,
    output: usize,
}

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
        let axis = |i: usize| Axis { size: x.shape[i], input: stride(x, i), output: stride(y, i) };
        let first = x.shape.len() - usize::from(attributes.axes);
        let kept: Vec<_> = (0..first).map(axis).collect();
        let reduced: Vec<_> = (first..x.shape.len()).map(axis).collect();
        Self { attributes, kept: merged(&kept), reduced: merged(&reduced) }
    }

    fn results(&self) -> usize {
        self.kept.iter().map(|a| a.size).product()
    }

    fn depth(&self) -> usize {
        self.reduced.iter().map(|a| a.size).product()
    }

    fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default().with("results", self.results()).with("depth", self.depth());
        for (name, axes) in [("kept", &self.kept), ("reduced", &self.reduced)] {
            for (i, axis) in axes.iter().enumerate() {
                numbers = numbers
                    .with(format!("{name}{i}"), axis.size)
                    .with(format!("{name}{i}_in"), axis.input)
                    .with(format!("{name}{i}_out"), axis.output);
            }
        }
        numbers
    }

    /// Functions from the number of a result or of an element of it to its place in memory.
    fn places(&self) -> String {
        let mut text = String::new();
        for (function, name, axes, side) in [
            ("result_in", "kept", &self.kept, "in"),
            ("result_out", "kept", &self.kept, "out"),
            ("element_in", "reduced", &self.reduced, "in"),
            ("element_out", "reduced", &self.reduced, "out"),
        ] {
            let _ = writeln!(text, "fn {function}(index: u32) -> u32 {{\nvar rest = index; var at = 0u;");
            for i in (0..axes.len()).rev() {
                let step = if i == 0 { String::new() } else { format!(" % s.{name}{i}") };
                let _ = writeln!(text, "at += (rest{step}) * s.{name}{i}_{side};");
                if i > 0 {
                    let _ = writeln!(text, "rest /= s.{name}{i};");
                }
            }
            text.push_str("return at;\n}\n");
        }
        text
    }
}

/// Without axes of size one, neighbours merged where one stride serves both.
fn merged(axes: &[Axis]) -> Vec<Axis> {
    let mut out: Vec<Axis> = Vec::new();
    for axis in axes.iter().filter(|a| a.size != 1) {
        match out.last_mut() {
            Some(last) if last.input == axis.input * axis.size && last.output == axis.output * axis.size => {
                *last = Axis { size: last.size * axis.size, ..*axis };
            }
            _ => out.push(*axis),
        }
    }
    out
}

/// Whether there is a result for each place instead of one.
fn is_scan(geometry: &Geometry) -> bool {
    matches!(geometry.attributes.kind, ReduceKind::Cumulative(_))
}
