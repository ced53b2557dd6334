//! Calls of a workload on made-up operands, through the runtime as a user's calls go.

use crate::Runtime;
use crate::backends::cpu::Probe;
use crate::error::Result;
use crate::ops::{Request, Workload};

/// A workload with memory of its own.
pub struct Rehearsal {
    workload: Workload,
    probe: Probe,
}

impl Rehearsal {
    /// Makes up the operands.
    pub fn new(runtime: &Runtime, workload: &Workload) -> Result<Self> {
        Ok(Self { workload: workload.clone(), probe: Probe::new(workload, runtime.device())? })
    }

    /// The request that a call makes; [`Runtime::execute`] runs it any number of times.
    pub fn request(&mut self) -> Request<'_> {
        self.probe.request(&self.workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn a_rehearsed_call_is_a_call() {
        let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let a = Tensor::full(1.0f32, &[5, 7]).unwrap();
        let workload = rt.workloads(|rt| rt.exp(&a)).unwrap().remove(0);
        let mut rehearsal = Rehearsal::new(&rt, &workload).unwrap();
        let request = rehearsal.request();
        assert!(!rt.selector().is_decided(&request));
        rt.execute(&request).unwrap();
        assert!(rt.selector().is_decided(&request));
        assert_eq!(rt.decisions(), 1);
    }
}
