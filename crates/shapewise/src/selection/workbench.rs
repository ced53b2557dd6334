//! A runtime as the place where a tuner tries candidates.

use std::sync::Arc;

use super::Candidate;
use crate::device::DeviceInfo;
use crate::error::Result;
use crate::ops::Workload;
use crate::tuning::search::Trial;
use crate::tuning::{BackendTuningStrategy, CpuStrategy, CpuTrial, GuardedTrial, LONGEST, Workbench};
use crate::{Error, Runtime};

impl Workbench for Runtime {
    fn info(&self) -> &DeviceInfo {
        self.device_info()
    }

    fn strategies(&self) -> Vec<Box<dyn BackendTuningStrategy>> {
        let cpu: Box<dyn BackendTuningStrategy> = Box::new(CpuStrategy::new(self.device_info().clone()));
        std::iter::once(cpu).chain(webgpu(self)).collect()
    }

    fn candidates(&self, workload: &Workload) -> Result<Vec<Candidate>> {
        self.selector().wide(workload)
    }

    fn trial<'a>(
        &'a self,
        workload: &'a Workload,
        candidates: &'a [Candidate],
    ) -> Result<Box<dyn Trial + 'a>> {
        let device = &self.selector().knowledge.device;
        match GuardedTrial::new(workload, candidates, device, LONGEST) {
            // Without threads nobody could wait for a candidate that hangs.
            Err(Error::Unsupported { .. }) => Ok(Box::new(CpuTrial::new(workload, candidates, device)?)),
            guarded => Ok(Box::new(guarded?)),
        }
    }

    fn keep(&self, workload: &Workload, candidate: &Candidate, samples: &[f64]) {
        self.selector().note(workload, candidate, samples);
    }

    fn refuse(&self, workload: &Workload, candidate: &Candidate, reason: &str) {
        let (name, parameters) = (candidate.kernel.name(), candidate.parameters.to_string());
        tracing::warn!(kernel = name, parameters, reason, "a candidate was refused by its trial");
        self.selector().knowledge.refuse(workload.key(), candidate, reason);
    }

    fn settle(&self, workload: &Workload) {
        if let Err(error) = self.selector().open(&Arc::new(workload.clone()), false) {
            tracing::warn!(%error, "a tuned workload could not be decided anew");
        }
    }
}

/// The strategy of the GPU whose kernels take part, with what was measured of it.
#[cfg(feature = "webgpu")]
fn webgpu(runtime: &Runtime) -> Option<Box<dyn BackendTuningStrategy>> {
    use crate::device::{BackendKind, Device, Level};
    use crate::ops::OperationKind;
    use crate::tuning::{GpuRates, WebGpuStrategy};
    let kernels = runtime.kernels();
    let has = |o: &OperationKind| kernels.kernels(*o).iter().any(|k| k.backend() == BackendKind::WebGpu);
    if !OperationKind::ALL.iter().any(has) {
        return None;
    }
    // Its kernels hold the device open, so this finds it and opens nothing.
    let device = crate::backends::webgpu::shared_device(true).ok()?;
    let info = device.info();
    let peaks = info.peaks.as_ref();
    let first = peaks.and_then(|peaks| peaks.arithmetic.first());
    let rates = GpuRates {
        // A multiply-add is two operations.
        rate: first.map(|peak| peak.operations_per_second / 2.0),
        bandwidth: peaks.and_then(|peaks| peaks.bandwidth(Level::Memory, 1)),
        launch: device.overheads().map(|overheads| overheads.submit),
    };
    Some(Box::new(WebGpuStrategy::new(&info.name, device.limits().clone(), rates)))
}

#[cfg(not(feature = "webgpu"))]
fn webgpu(_: &Runtime) -> Option<Box<dyn BackendTuningStrategy>> {
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::StoreLocation;
    use crate::backends::cpu::Probe;
    use crate::ops::Parameters;
    use crate::ops::conv::ConvOptions;
    use crate::ops::reduce::Over;
    use crate::tensor::Tensor;
    use crate::tuning::{Coordinator, TuningBudget, TuningTask};

    #[test]
    fn what_was_tuned_runs_and_is_kept() {
        let rt = Runtime::builder().threads(1).store(StoreLocation::Memory).build().unwrap();
        let (a, b) = (Tensor::full(1.0f32, &[96, 160]).unwrap(), Tensor::full(1.0f32, &[160, 128]).unwrap());
        let workload = rt.workloads(|rt| rt.matmul(&a, &b)).unwrap().remove(0);
        let tasks = [TuningTask { workload: workload.clone(), weight: 1.0, calls: None }];
        let budget = TuningBudget { time: None, trials: Some(12) };
        let report = Coordinator::new(&rt).tune(&tasks, &budget, &mut |_| true);
        let tuned = &report.workloads[0];
        assert!(tuned.error.is_none() && tuned.trials >= 4, "{tuned:?}");
        let best = tuned.best.clone().unwrap();
        let known = rt.candidates(&workload).unwrap();
        let measured = known.iter().filter(|c| c.measured.is_some()).count();
        assert_eq!(measured, tuned.trials);
        let usual = rt.selector().candidates(&workload).unwrap();
        assert!(usual.iter().any(|c| c.is(&best.kernel, &best.parameters)), "calls consider what was tuned");
        let one = TuningBudget { trials: Some(1), ..budget };
        let again = Coordinator::new(&rt).tune(&tasks, &one, &mut |_| true);
        let known = &again.workloads[0];
        assert!(again.trials <= 1 && known.default.is_some() && known.leaderboard.len() >= 4, "{known:?}");
    }

    #[test]
    #[cfg(feature = "store")]
    fn what_was_measured_or_refused_is_known_to_the_next_process() {
        let file = std::env::temp_dir().join(format!("shapewise-refused-{}.sqlite", std::process::id()));
        let begin = || {
            let location = StoreLocation::File(file.clone());
            Runtime::builder().threads(1).store(location).build().unwrap()
        };
        let rt = begin();
        let (a, b) = (Tensor::full(1.0f32, &[64, 300]).unwrap(), Tensor::full(1.0f32, &[300, 96]).unwrap());
        let workload = rt.workloads(|rt| rt.matmul(&a, &b)).unwrap().remove(0);
        let tasks = [TuningTask { workload: workload.clone(), weight: 1.0, calls: None }];
        let few = TuningBudget { time: None, trials: Some(6) };
        let interrupted = Coordinator::new(&rt).tune(&tasks, &few, &mut |_| true);
        let all = rt.candidates(&workload).unwrap();
        let measured = |all: &[Candidate]| {
            let measured = all.iter().filter(|c| c.measured.is_some());
            measured.map(|c| format!("{} {}", c.kernel.name(), c.parameters)).collect::<BTreeSet<_>>()
        };
        let before = measured(&all);
        // A machine that stops for seconds makes a candidate look as if it hung; that one is refused, with its time.
        let stopped = rt.selector().knowledge.refused(workload.key());
        assert!(
            (before.len()..=before.len() + stopped.len()).contains(&interrupted.trials),
            "{interrupted:?}"
        );
        // One that was measured would be forgotten with its time.
        let wrong = all.iter().rfind(|c| c.measured.is_none()).unwrap().clone();
        rt.refuse(&workload, &wrong, "wrong answer");
        rt.flush();
        drop(rt);

        let rt = begin();
        let known = rt.candidates(&workload).unwrap();
        let same = |c: &Candidate| c.is(wrong.kernel.name(), &wrong.parameters.to_string());
        assert!(!known.iter().any(same), "it is not tried again");
        assert_eq!(known.len(), all.len() - 1);
        assert!(!before.is_empty());
        assert_eq!(measured(&known), before);
        let one = TuningBudget { trials: Some(1), ..few };
        let resumed = Coordinator::new(&rt).tune(&tasks, &one, &mut |_| true);
        assert!(resumed.trials <= 1 && resumed.workloads[0].leaderboard.len() >= before.len());
        let reasons = rt.selector().knowledge.refused(workload.key());
        assert!(reasons.len() > stopped.len(), "{reasons:?}");
        assert!(reasons.iter().any(|r| r.reason == "wrong answer"), "{reasons:?}");
        drop(rt);
        for suffix in ["", "-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{suffix}", file.display())));
        }
    }

    #[test]
    fn every_point_of_the_wide_spaces_is_right() {
        let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
        let full = |shape: &[usize]| Tensor::full(1.0f32, shape).unwrap();
        let (a, b) = (full(&[70, 600]), full(&[600, 90]));
        let (x, w, tall) = (full(&[2, 20, 13, 13]), full(&[24, 20, 3, 3]), full(&[37, 5000]));
        let ask = [
            rt.workloads(|rt| rt.matmul(&a, &b)),
            rt.workloads(|rt| rt.conv2d(&x, &w, &ConvOptions::new())),
            rt.workloads(|rt| rt.sum(&tall, Over::from(-1))),
            rt.workloads(|rt| rt.argmax(&tall, Over::from(0))),
        ];
        for workload in ask.map(|asked| asked.unwrap().remove(0)) {
            let reference = workload.kind().kernels().last().unwrap();
            let mut expected = Probe::new(&workload, rt.device()).unwrap();
            reference.launch(&mut expected.call(&workload, &Parameters::new(), rt.device())).unwrap();
            for candidate in rt.candidates(&workload).unwrap() {
                let mut probe = Probe::new(&workload, rt.device()).unwrap();
                let parameters = &candidate.parameters;
                candidate.kernel.launch(&mut probe.call(&workload, parameters, rt.device())).unwrap();
                let same = probe.same_outputs(&expected, &workload);
                assert_eq!(same, Ok(()), "{} {parameters}", candidate.kernel.name());
            }
        }
    }

    #[test]
    fn the_wide_spaces_of_products_convolutions_and_sums_have_a_hundred_points() {
        let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
        let full = |shape: &[usize]| Tensor::full(1.0f32, shape).unwrap();
        let (a, x, w) = (full(&[1024, 1024]), full(&[1, 64, 56, 56]), full(&[128, 64, 3, 3]));
        let ask = [
            rt.workloads(|rt| rt.matmul(&a, &a)),
            rt.workloads(|rt| rt.conv2d(&x, &w, &ConvOptions::new())),
            rt.workloads(|rt| rt.sum(&a, Over::from(-1))),
        ];
        for workload in ask.map(|asked| asked.unwrap().remove(0)) {
            let kernels = rt.kernels().kernels(workload.kind());
            let accepting = kernels.iter().filter(|k| k.supports(&workload, rt.device_info()).is_ok());
            let largest = accepting.map(|k| k.tuning_space(&workload, rt.device_info()).points().len()).max();
            assert!(largest >= Some(100), "{workload}: {largest:?}");
        }
    }
}
