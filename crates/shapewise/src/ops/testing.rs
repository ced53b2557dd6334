//! What the unit tests of operations share.

use super::{Parameters, Workload};
use crate::Runtime;
use crate::backends::cpu::Probe;
use crate::device::{Caches, Device};

/// A runtime of two threads that measures nothing.
pub(crate) fn runtime() -> Runtime {
    Runtime::builder().threads(2).without_calibration().build().unwrap()
}

/// Runs every kernel that takes the workload, at every point of its space, and compares with the reference; gives how
/// many ran.
pub(crate) fn agree(rt: &Runtime, workload: &Workload) -> usize {
    let device = rt.device();
    let (reference, others) = workload.kind().kernels().split_last().unwrap();
    let mut expected = Probe::new(workload, device).unwrap();
    reference.launch(&mut expected.call(workload, &Parameters::new(), device)).unwrap();
    // What a kernel tries beyond the caches runs on small operands too.
    let mut tiny = device.info().clone();
    tiny.caches = Caches { l1d: Some(64), l2: Some(128), l3: Some(256) };
    let mut ran = 0;
    for kernel in others.iter().filter(|k| k.supports(workload, device.info()).is_ok()) {
        let mut points = kernel.space(workload, device.info()).points().to_vec();
        points.extend_from_slice(kernel.space(workload, &tiny).points());
        points.dedup();
        for parameters in &points {
            let mut found = Probe::new(workload, device).unwrap();
            kernel.launch(&mut found.call(workload, parameters, device)).unwrap();
            if let Err(difference) = found.same_outputs(&expected, workload) {
                panic!("{} {parameters} on {workload}: {difference}", kernel.name());
            }
            let cost = kernel.cost(workload, parameters, device.info());
            assert!(cost.operations >= 0.0 && cost.traffic.l1.is_finite());
            ran += 1;
        }
    }
    ran
}
