//! Single elements picked by index, one loop for each type of index and size of element.
#![allow(unsafe_code)]

use super::cpu_plan::{Plan, from_front};
use super::cpu_rows::{plan, traffic};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters, Variant,
    Workload,
};
use crate::tensor::DType;

/// Any layout; rows are treated as so many lists.
pub(super) struct Elements;

pub(super) static ELEMENTS: Elements = Elements;

impl Kernel for Elements {
    fn name(&self) -> &'static str {
        "cpu::gather::elements"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Gather
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_elements.rs", "cpu_plan.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = plan(workload, false);
        let elements = (plan.positions() * plan.list.size) as f64;
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let tasks = plan.positions() * plan.pieces(parameters.threads());
        let cost = Cost::new(4.0 * elements, unit, traffic(&plan, workload, false, device));
        cost.split(parameters.threads(), tasks)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let plan = plan(call.workload, false);
        match plan.index {
            DType::I64 => by_size::<i64>(call, &plan),
            DType::I32 => by_size::<i32>(call, &plan),
            _ => by_size::<u32>(call, &plan),
        }
        Ok(())
    }
}

fn by_size<I: Copy + Into<i64>>(call: &Call<'_>, plan: &Plan) {
    match plan.size {
        1 => run::<I, u8>(call, plan),
        2 => run::<I, u16>(call, plan),
        4 => run::<I, u32>(call, plan),
        8 => run::<I, u64>(call, plan),
        _ => run::<I, u128>(call, plan),
    }
}

fn run<I: Copy + Into<i64>, T: Copy>(call: &Call<'_>, plan: &Plan) {
    let list = List::<I> {
        plan,
        x: call.inputs[0].address(),
        y: call.outputs[0].address(),
        index: call.inputs[1].address().cast(),
    };
    let pieces = plan.pieces(call.parameters.threads());
    call.cpu().threads().run(call.parameters.threads(), plan.positions() * pieces, &|task| {
        let (position, piece) = (task / pieces, task % pieces);
        let cut = |piece: usize| plan.list.size * piece / pieces;
        // SAFETY: indices were checked, other offsets lie inside the shapes, and each element is written by one task.
        unsafe { list.pick::<T>(position, cut(piece), cut(piece + 1)) };
    });
}

struct List<'a, I> {
    plan: &'a Plan,
    x: *const u8,
    y: *mut u8,
    index: *const I,
}

// SAFETY: the memory outlives the call, inputs are only read, and tasks write disjoint elements of the output.
unsafe impl<I> Sync for List<'_, I> {}

impl<I: Copy + Into<i64>> List<'_, I> {
    /// # Safety
    /// The indices were checked and the piece lies inside the list.
    unsafe fn pick<T: Copy>(&self, position: usize, start: usize, end: usize) {
        let plan = self.plan;
        let (far, index, near) = plan.offsets(position);
        let (x, y) = (self.x.wrapping_offset(far), self.y.wrapping_offset(near));
        let at = self.index.wrapping_offset(index);
        for j in start as isize..end as isize {
            // SAFETY: the caller's promise.
            unsafe {
                let i = from_front(at.offset(j * plan.list.index).read_unaligned().into(), plan.n);
                let value: T = x.offset(i as isize * plan.step).cast::<T>().read_unaligned();
                y.offset(j * plan.list.near).cast::<T>().write_unaligned(value);
            }
        }
    }
}
