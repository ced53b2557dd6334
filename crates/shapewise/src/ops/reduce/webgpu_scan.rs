//! Running results: each invocation walks along one line.

use super::{Geometry, is_scan};
use crate::backends::webgpu::wgsl::{
    Checks, FUNCTIONS, GROUP, Wgsl, dispatch, element, fits, line_of_groups, real,
};
use crate::backends::webgpu::{Place, Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::reduce::{ReduceKind, ScanKind};
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};
use crate::tensor::DType;

/// `webgpu::reduce::scan`
pub(super) struct Scan;

impl WebGpuKernel for Scan {
    fn name(&self) -> &'static str {
        "webgpu::reduce::scan"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Reduce
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_scan.rs", "webgpu.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let geometry = Geometry::of(workload);
        Checks::layouts(workload, limits)
            .types(&[DType::F32, DType::F16])
            .needs(is_scan(&geometry), "a result for each place, not one")
            .turns(geometry.depth())
            .done()
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
            .axis(Knob::WorkgroupX, &[64, 8])
            .constrained(|p| fits(limits, [p.get(Knob::WorkgroupX).unwrap_or(8), 1, 1], 0))
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        WebGpuCost { operations: workload.inputs()[0].len() as f64, bytes: workload.bytes() as f64 }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let geometry = Geometry::of(workload);
        let ReduceKind::Cumulative(scan) = geometry.attributes.kind else { return Plan::default() };
        if geometry.results() * geometry.depth() == 0 {
            return Plan::default();
        }
        let (first, joined) = match scan.kind {
            ScanKind::Sum => ("0.0".into(), "acc + v"),
            ScanKind::Prod => ("1.0".into(), "acc * v"),
            ScanKind::Max => (real(f64::NEG_INFINITY), "select(v, acc, is_nan(acc) || acc >= v)"),
            ScanKind::Min => (real(f64::INFINITY), "select(v, acc, is_nan(acc) || acc <= v)"),
        };
        let x = parameters.get(Knob::WorkgroupX).unwrap_or(64);
        let name = element(workload.outputs()[0].dtype);
        let write = format!("y[to + element_out(i)] = {name}(acc);\n");
        let (before, after) = if scan.exclusive { (write.as_str(), "") } else { ("", write.as_str()) };
        let numbers = geometry.numbers();
        let shader = Wgsl::new(self.name(), [x, 1, 1])
            .read("x", name)
            .write("y", name)
            .numbers(&numbers)
            .with(format!("{FUNCTIONS}{}", geometry.places()))
            .main(format!(
                "{GROUP}let result = line * {x}u + lane;\nif (result >= s.results) {{ return; }}\n\
                 let base = result_in(result); let to = result_out(result);\nvar acc = {first};\n\
                 for (var i = 0u; i < s.depth; i++) {{\nlet v = f32(x[base + element_in(i)]);\n{before}acc = {joined};\n{after}}}"
            ));
        let groups = line_of_groups(geometry.results().div_ceil(x as usize));
        let run = dispatch(0, &[Place::Operand(0), Place::Operand(1)], &numbers, groups);
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }
}
