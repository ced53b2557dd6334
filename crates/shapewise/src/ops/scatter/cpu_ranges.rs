//! Elements put by index; threads share the work by where elements go, so that each place has one writer and one order.
#![allow(unsafe_code)]

use half::{bf16, f16};
use num_complex::Complex;

use super::ScatterAttributes;
use super::cpu_combine::{Rule, Visitor, ordered, unordered};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::gather::cpu_plan::{Indices, Plan};
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, Operation, OperationKind, ParameterSpace, Parameters,
    Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Any layout, type and rule.
pub(super) struct Ranges;

pub(super) static RANGES: Ranges = Ranges;

/// The attributes of a scatter's workload.
pub(super) fn attributes(workload: &Workload) -> ScatterAttributes {
    match workload.operation() {
        Operation::Scatter(attributes) => *attributes,
        other => unreachable!("the registry gives scatters only, not {other}"),
    }
}

/// The plan of a scatter's workload.
pub(super) fn plan(workload: &Workload, runs: bool) -> Plan {
    let (index, source) = (&workload.inputs()[1], &workload.inputs()[2]);
    Plan::new(&workload.outputs()[0], index, source, attributes(workload).along, runs)
}

/// Bytes across the borders of the caches: sources are read, and lines of the target read and written.
pub(super) fn traffic(plan: &Plan, workload: &Workload, device: &DeviceInfo) -> Traffic {
    let lines = (plan.run as f64 / 64.0 + 0.5).ceil() * 64.0 / plan.run as f64;
    let bytes = plan.bytes() as f64 * (1.0 + 2.0 * lines);
    Traffic::pass(bytes, workload.bytes() as f64, &device.caches)
}

impl Kernel for Ranges {
    fn name(&self) -> &'static str {
        "cpu::scatter::ranges"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Scatter
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_ranges.rs", "cpu_combine.rs", "../gather/cpu_plan.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn in_place(&self) -> bool {
        true
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = plan(workload, true);
        let (kept, ranges) = (kept(&plan), ranges(&plan, parameters.threads()));
        let puts = (plan.positions() * plan.list.size) as f64;
        // Every range looks at every index.
        let work = 6.0 * puts * ranges as f64 + puts * (plan.run / plan.size) as f64;
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let cost = Cost::new(work, unit, traffic(&plan, workload, device));
        cost.split(parameters.threads(), kept * ranges)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let plan = plan(call.workload, true);
        let combine = attributes(call.workload).combine;
        let put = Launch { call, plan: &plan };
        match call.workload.outputs()[0].dtype {
            DType::F32 => ordered::<f32, _>(combine, put),
            DType::F64 => ordered::<f64, _>(combine, put),
            DType::F16 => ordered::<f16, _>(combine, put),
            DType::BF16 => ordered::<bf16, _>(combine, put),
            DType::I8 => ordered::<i8, _>(combine, put),
            DType::U8 => ordered::<u8, _>(combine, put),
            DType::I32 => ordered::<i32, _>(combine, put),
            DType::U32 => ordered::<u32, _>(combine, put),
            DType::I64 => ordered::<i64, _>(combine, put),
            DType::Bool => ordered::<bool, _>(combine, put),
            DType::C32 if unordered::<Complex<f32>, _>(combine, put) => {}
            DType::C64 if unordered::<Complex<f64>, _>(combine, put) => {}
            other => return Err(KernelError(format!("{other} has no {}", combine.name()).into())),
        }
        Ok(())
    }
}

/// Positions that share no element of the target.
fn kept(plan: &Plan) -> usize {
    plan.outer[..plan.kept].iter().map(|a| a.size).product()
}

/// Parts of the indexed axis, each with a task of its own.
fn ranges(plan: &Plan, threads: usize) -> usize {
    // A part must be worth looking at all indices for it.
    if threads == 1 || kept(plan) >= 4 * threads || plan.list.size * plan.run < 16 << 10 {
        1
    } else {
        threads.min(plan.n)
    }
}

#[derive(Clone, Copy)]
struct Launch<'a, 'c> {
    call: &'a Call<'c>,
    plan: &'a Plan,
}

impl Visitor for Launch<'_, '_> {
    fn visit<T: Copy, R: Rule<T>>(self, rule: R) {
        let (call, plan) = (self.call, self.plan);
        let put = Put {
            plan,
            to: call.outputs[0].address(),
            from: call.inputs[2].address(),
            index: call.inputs[1].address(),
        };
        let (threads, ranges) = (call.parameters.threads(), ranges(plan, call.parameters.threads()));
        call.cpu().threads().run(threads, kept(plan) * ranges, &|task| {
            let (position, range) = (task / ranges, task % ranges);
            let (low, high) = (plan.n * range / ranges, plan.n * (range + 1) / ranges);
            // SAFETY: indices were checked, other offsets lie inside the shapes, and tasks write different places.
            unsafe { put.range::<T, R>(rule, position, low, high) };
        });
    }
}

struct Put<'a> {
    plan: &'a Plan,
    to: *mut u8,
    from: *const u8,
    index: *const u8,
}

// SAFETY: the memory outlives the call, inputs are only read, and tasks write disjoint elements of the target.
unsafe impl Sync for Put<'_> {}

impl Put<'_> {
    /// Puts what goes to `low..high` at one position of the kept axes.
    ///
    /// # Safety
    /// The indices were checked, and nobody else writes there.
    unsafe fn range<T: Copy, R: Rule<T>>(&self, rule: R, position: usize, low: usize, high: usize) {
        let plan = self.plan;
        let lists: usize = plan.outer[plan.kept..].iter().map(|a| a.size).product();
        let indices = Indices { at: self.index, dtype: plan.index, n: plan.n };
        let count = plan.run / plan.size;
        for list in 0..lists {
            let (far, index, near) = plan.offsets(position * lists + list);
            let (to, from) = (self.to.wrapping_offset(far), self.from.wrapping_offset(near));
            for j in 0..plan.list.size as isize {
                // SAFETY: the caller's promise.
                unsafe {
                    let i = indices.get(index + j * plan.list.index);
                    if i < low || i >= high {
                        continue;
                    }
                    let to = to.wrapping_offset(i as isize * plan.step).cast::<T>();
                    let from = from.wrapping_offset(j * plan.list.near).cast::<T>();
                    for k in 0..count {
                        let new = from.add(k).read_unaligned();
                        to.add(k).write_unaligned(rule.join(to.add(k).read_unaligned(), new));
                    }
                }
            }
        }
    }
}
