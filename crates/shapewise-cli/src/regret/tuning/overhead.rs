//! What tuning itself costs: a recommendation of each backend, and the sensors.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;
use shapewise::measure::Summary;
use shapewise::ops::Workload;
use shapewise::sensors::{Machine, Monitor, Sensors, SystemState};
use shapewise::tuning::{
    BackendTuningStrategy, CpuStrategy, CudaDevice, CudaStrategy, GpuLimits, GpuRates, MetalDevice,
    MetalFamily, MetalStrategy, TuningConstraints, TuningError, WebGpuStrategy,
};
use shapewise::{Error, Runtime};

/// Recommendations of each workload that are timed.
const REPEATS: usize = 50;
/// Readings of the sensors that are timed.
const READINGS: usize = 200;
/// Between two readings of a monitor, and the snapshots that are taken of one.
const EVERY: Duration = Duration::from_millis(100);
const SNAPSHOTS: u32 = 10_000;

/// The cost of tuning.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the unit belongs to the names in the JSON")]
pub struct Overhead {
    /// Microseconds of a recommendation: median and 95th percentile, by backend.
    pub recommendation_us: Vec<(String, f64, f64)>,
    /// Microseconds of reading every sensor of this machine once, on the monitor's thread.
    pub reading_us: f64,
    /// Microseconds of taking the newest reading.
    pub snapshot_us: f64,
}

/// Times them on some workloads.
pub fn measure(runtime: &Runtime, workloads: &[Workload]) -> Result<Overhead> {
    let mut recommendation_us = Vec::new();
    for mut strategy in strategies(runtime)? {
        let (state, constraints) = (SystemState::default(), TuningConstraints::default());
        let mut times = Vec::with_capacity(REPEATS * workloads.len());
        for _ in 0..REPEATS {
            for workload in workloads {
                let start = Instant::now();
                let told = black_box(strategy.tune_for_workload(workload, &state, &constraints));
                let took = start.elapsed().as_secs_f64() * 1e6;
                // A backend that lacks the type refuses, which takes other work than a recommendation.
                match told {
                    Ok(_) => times.push(took),
                    Err(TuningError::Library(Error::Unsupported { .. })) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let name = strategy.backend().to_string();
        recommendation_us.extend(Summary::of(&times).map(|s| (name, s.median, s.p95)));
    }
    let mut machine = Machine::new();
    let readings: Vec<f64> = (0..READINGS)
        .map(|_| {
            let start = Instant::now();
            black_box(machine.sample());
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    let monitor = Monitor::start(machine, EVERY)?;
    let start = Instant::now();
    for _ in 0..SNAPSHOTS {
        black_box(monitor.state());
    }
    let snapshot_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(SNAPSHOTS);
    let reading_us = Summary::of(&readings).map_or(f64::NAN, |s| s.median);
    Ok(Overhead { recommendation_us, reading_us, snapshot_us })
}

/// This machine's strategy, and those of devices as their makers describe them; the limits are WebGPU's defaults.
fn strategies(runtime: &Runtime) -> Result<Vec<Box<dyn BackendTuningStrategy>>> {
    let cuda = CudaDevice {
        name: "A100".into(),
        capability: (8, 0),
        multiprocessors: 108,
        memory: Some(40 << 30),
        clock: Some(1.41e9),
        bandwidth: Some(1.555e12),
        launch: None,
    };
    let metal = MetalDevice {
        name: "M2".into(),
        family: MetalFamily::Apple8,
        cores: Some(10),
        memory: None,
        rate: Some(3.6e12),
        bandwidth: Some(1e11),
        launch: None,
    };
    let limits = GpuLimits {
        invocations: 256,
        workgroup: [256, 256, 64],
        workgroup_memory: 16_384,
        groups: 65_535,
        storage_binding: 128 << 20,
        buffer: 256 << 20,
        storage_bindings: 8,
        alignment: 256,
        subgroup: None,
        f16: false,
        u64: false,
    };
    let rates = GpuRates { rate: None, bandwidth: None, launch: None };
    Ok(vec![
        Box::new(CpuStrategy::new(runtime.device_info().clone())),
        Box::new(CudaStrategy::new(cuda)?),
        Box::new(MetalStrategy::new(metal)),
        Box::new(WebGpuStrategy::new("adapter", limits, rates)),
    ])
}

impl Overhead {
    /// As lines beside what they must reach.
    pub fn text(&self) -> String {
        let each =
            self.recommendation_us.iter().map(|(name, median, p95)| format!("{name} {median:.1} / {p95:.1}"));
        format!(
            "recommendation, median / p95   {} µs   (≤ 20)\nsensors   {:.0} µs a reading off the hot path, {:.2} µs a snapshot   (≤ 50)\n",
            each.collect::<Vec<_>>().join(", "),
            self.reading_us,
            self.snapshot_us
        )
    }
}

#[cfg(test)]
mod tests {
    use shapewise::ops::reduce::Over;
    use shapewise::{DType, Tensor};

    use super::*;

    #[test]
    fn a_backend_that_lacks_the_type_is_left_out() {
        let runtime = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let x = Tensor::zeros(&[8, 64], DType::F32).unwrap();
        let workloads = runtime.workloads(|rt| rt.argmax(&x, Over::from(-1))).unwrap();
        let overhead = measure(&runtime, &workloads).unwrap();
        let named = |name: &str| overhead.recommendation_us.iter().any(|(backend, ..)| backend == name);
        assert!(named("cpu") && named("webgpu"), "{:?}", overhead.recommendation_us);
        let x = Tensor::zeros(&[8, 64], DType::F64).unwrap();
        let workloads = runtime.workloads(|rt| rt.max(&x, Over::from(-1))).unwrap();
        let overhead = measure(&runtime, &workloads).unwrap();
        let named = |name: &str| overhead.recommendation_us.iter().any(|(backend, ..)| backend == name);
        assert!(named("cpu") && !named("webgpu"), "WGSL has no f64: {:?}", overhead.recommendation_us);
        assert!(overhead.snapshot_us > 0.0 && overhead.reading_us > 0.0);
    }
}
