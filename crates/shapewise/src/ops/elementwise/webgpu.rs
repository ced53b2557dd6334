//! Element-wise programs on WebGPU: the whole program becomes one function of a shader.

#[path = "webgpu_compute.rs"]
mod compute;
#[path = "webgpu_memory.rs"]
mod memory;
#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;

use super::Program;
use crate::backends::webgpu::wgsl::{Checks, GROUP, Numbers, Wgsl, dispatch, fits, line_of_groups, stride};
use crate::backends::webgpu::{Access, Place, Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, Operation, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};
use crate::tensor::DType;
use memory::{Operand, Width};

/// Every WebGPU kernel, the one that takes every layout last.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] = &[&VEC4, &STRIDED];

/// The element types that shaders can read and write; bytes are taken out of words and put into them.
const TYPES: &[DType] = &[DType::F32, DType::F16, DType::I32, DType::U32, DType::I8, DType::U8, DType::Bool];

/// A walk over the elements, one or four of them at a time.
struct Walk {
    name: &'static str,
    width: Width,
}

static VEC4: Walk = Walk { name: "webgpu::elementwise::vec4", width: Width::Four };
static STRIDED: Walk = Walk { name: "webgpu::elementwise::strided", width: Width::One };

fn program(workload: &Workload) -> &Program {
    match workload.operation() {
        Operation::Elementwise(program) => program,
        other => unreachable!("the registry gives element-wise programs only, not {other}"),
    }
}

fn is_byte(dtype: DType) -> bool {
    dtype.size() == 1
}

/// Whether four neighbours along the last axis can be read and written together everywhere.
fn by_four(workload: &Workload) -> bool {
    let y = &workload.outputs()[0];
    let last = y.shape.len() - 1;
    let whole = |o: &crate::ops::TensorDesc| {
        (0..last).all(|axis| stride(o, axis).is_multiple_of(4) || o.shape[axis] == 1)
    };
    let reads = |o: &crate::ops::TensorDesc| stride(o, last) == 0 || (stride(o, last) == 1 && whole(o));
    y.shape[last].is_multiple_of(4) && stride(y, last) == 1 && whole(y) && workload.inputs().iter().all(reads)
}

impl Walk {
    /// Elements of one turn of an invocation: bytes share a word with their neighbours, so one invocation writes four.
    fn turn(&self, workload: &Workload) -> usize {
        if self.width == Width::Four || is_byte(workload.outputs()[0].dtype) { 4 } else { 1 }
    }
}

impl WebGpuKernel for Walk {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Elementwise
    }

    fn variant(&self) -> Variant {
        if self.width == Width::Four { Variant::Vectorised } else { Variant::Fused }
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu.rs", "webgpu_compute.rs", "webgpu_memory.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let y = &workload.outputs()[0];
        let types: Vec<DType> = workload.inputs().iter().map(|o| o.dtype).collect();
        let steps = program(workload).step_types(&types).unwrap_or_default();
        let half = steps.contains(&DType::F16);
        let checks = Checks::layouts(workload, limits)
            .types(TYPES)
            .bindings(workload.operands().len())
            .needs(
                steps.iter().all(|t| TYPES.contains(t)),
                "a program on f32, f16, 8- and 32-bit integers and bool",
            )
            .needs(!half || limits.f16, "a device with 16-bit floats");
        match self.width {
            Width::Four => {
                checks.needs(by_four(workload), "rows of whole fours, without gaps or repeated").done()
            }
            Width::One => {
                checks.needs(!is_byte(y.dtype) || y.is_contiguous(), "an output of bytes without gaps").done()
            }
        }
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
            .axis(Knob::WorkgroupX, &[64, 256])
            .axis(Knob::Unroll, &[1, 4])
            .constrained(|p| fits(limits, [p.get(Knob::WorkgroupX).unwrap_or(64), 1, 1], 0))
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        let elements = workload.outputs()[0].len() as f64;
        WebGpuCost {
            operations: elements * program(workload).steps().len() as f64,
            bytes: workload.bytes() as f64,
        }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let y = &workload.outputs()[0];
        if y.is_empty() {
            return Plan::default();
        }
        let x = parameters.get(Knob::WorkgroupX).unwrap_or(64);
        let unroll = parameters.get(Knob::Unroll).unwrap_or(1);
        let turns = y.len().div_ceil(self.turn(workload));
        let operands = memory::operands(workload);
        let numbers =
            memory::numbers(workload, &operands, self.width).with("turns", turns).with("elements", y.len());
        let shader = declare(self.name, x, workload, &operands, self.width, &numbers)
            .with(compute::function(program(workload), workload))
            .with(memory::functions(workload, &operands, self.width))
            .main(format!(
                "{GROUP}for (var u = 0u; u < {unroll}u; u++) {{\nlet i = (line * {unroll}u + u) * {x}u + lane;\n\
                 if (i < s.turns) {{ turn(i); }}\n}}"
            ));
        let places: Vec<_> = operands.iter().map(|o| Place::Operand(o.index)).collect();
        let groups = line_of_groups(turns.div_ceil((x * unroll) as usize));
        let run = dispatch(0, &places, &numbers, groups);
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}

/// The shader's buffers: inputs, then the output.
fn declare(
    label: &str,
    x: u32,
    workload: &Workload,
    operands: &[Operand],
    width: Width,
    numbers: &Numbers,
) -> Wgsl {
    let mut wgsl = Wgsl::new(label, [x, 1, 1]).numbers(numbers);
    for operand in operands {
        let output = operand.index == workload.inputs().len();
        let access = if output { Access::Write } else { Access::Read };
        wgsl = wgsl.buffer(&operand.buffer, &operand.stored(width), access);
    }
    wgsl
}
