//! What element-wise kernels execute.

use super::formula::Recipe;
use super::program_of;
use crate::device::DeviceInfo;
use crate::ops::{ComputeUnit, Cost, Knob, ParameterSpace, Parameters, TensorDesc, Traffic, Workload};

/// Work below this many bytes is over before another thread could help.
const WORTH_A_THREAD: usize = 64 << 10;

/// One thread, and more for work that is large enough or made of slow functions; the likely best first.
pub(super) fn threads(workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
    let effort = workload.bytes().saturating_mul(1 + weight(workload) as usize / 8);
    if device.threads < 2 || effort < WORTH_A_THREAD {
        return ParameterSpace::single().axis(Knob::Threads, &[1]);
    }
    let points = ParameterSpace::threads(device.threads);
    let mut values: Vec<u32> = points.points().iter().filter_map(|p| p.get(Knob::Threads)).collect();
    values.reverse();
    ParameterSpace::single().axis(Knob::Threads, &values)
}

/// Whether the operands do not fit the last cache, so that results may as well go past it.
pub(super) fn exceeds_caches(workload: &Workload, device: &DeviceInfo) -> bool {
    device.caches.l3.or(device.caches.l2).is_some_and(|size| workload.bytes() > size)
}

/// Vector instructions for one register of results, about.
pub(super) fn weight(workload: &Workload) -> u32 {
    program_of(workload).steps().iter().map(|step| Recipe::of(step.function).map_or(2, Recipe::weight)).sum()
}

/// One pass over the operands with the program's arithmetic.
pub(super) fn pass(
    workload: &Workload,
    parameters: &Parameters,
    device: &DeviceInfo,
    unit: ComputeUnit,
) -> Cost {
    let elements = workload.outputs()[0].len();
    let inputs: usize = workload.inputs().iter().map(TensorDesc::bytes).sum();
    let (inputs, output) = (inputs as f64, workload.outputs()[0].bytes() as f64);
    let (caches, threads) = (&device.caches, parameters.threads());
    let pass = |bytes: f64| Traffic::pass(bytes, inputs + output, caches);
    let traffic = if parameters.get(Knob::Stream) == Some(1) {
        pass(inputs) + Traffic::past_caches(output, threads, device)
    } else {
        // That a line is read before it is written is in the rate of a copy.
        pass(inputs + output)
    };
    // Peaks count a fused multiplication and addition as two operations; others take its place as one.
    let operations = 2.0 * elements as f64 * f64::from(weight(workload));
    Cost::new(operations, unit, traffic).converting(workload).split(threads, threads)
}
