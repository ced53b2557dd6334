//! The kernels: the same passes on each instruction set.
#![allow(unsafe_code)]

use super::cpu_lines::Width;
use super::cpu_passes::{Job, lane_count};
use super::geometry::{Geometry, attributes};
use super::plan::{Plan, across, plans};
use super::{FftKind, Rigor};
use crate::backends::cpu::simd::Isa;
use crate::device::{Caches, DeviceInfo};
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace,
    Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Mixed radices by Stockham's order, with convolutions for large primes, on one instruction set.
pub(super) struct Stockham {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($kernel:ident, $isa:ident, $name:literal;)*) => {$(
        pub(super) static $kernel: Stockham = Stockham {
            name: concat!("cpu::fft::", $name, "_stockham"),
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), Constraint::DTypes(super::DTYPES)],
        };
    )*};
}
kernels! {
    AVX512, Avx512, "avx512";
    AVX2, Avx2, "avx2";
    NEON, Neon, "neon";
    PORTABLE, Portable, "portable";
}

/// Points of the complex lines along memory whose plan is a choice; none if there are no such lines.
fn line(geometry: &Geometry) -> Option<usize> {
    let last = geometry.axes.last()?;
    let halved = match geometry.kind {
        FftKind::RealForward | FftKind::RealInverse if last.n.is_multiple_of(2) => last.n / 2,
        _ => last.n,
    };
    (last.input == 1 && last.output == 1).then_some(halved)
}

impl Kernel for Stockham {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Fft
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_kernels.rs",
            "cpu_passes.rs",
            "cpu_lines.rs",
            "cpu_stages.rs",
            "cpu_radix.rs",
            "cpu_convolution.rs",
            "cpu_real.rs",
            "plan.rs"
        )
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn in_place(&self) -> bool {
        true
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let geometry = Geometry::new(workload);
        let rigor = attributes(workload).rigor;
        let lanes = lane_count(self.isa, geometry.double);
        let count = line(&geometry).map_or(1, |n| plans(n, lanes, rigor).len());
        let variants: Vec<u32> = (0..count as u32).collect();
        // Below this a hand-over costs more than there is to share.
        let points = geometry.points() * geometry.repeats();
        let threads = if points < 4096 { 1 } else { device.threads };
        ParameterSpace::threads(threads).axis(Knob::Plan, &variants)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let geometry = Geometry::new(workload);
        let lanes = lane_count(self.isa, geometry.double);
        let unit =
            ComputeUnit { dtype: if geometry.double { DType::F64 } else { DType::F32 }, isa: Some(self.isa) };
        let rigor = attributes(workload).rigor;
        let chosen = parameters.get(Knob::Plan).unwrap_or(0) as usize;
        let number = if geometry.double { 16.0 } else { 8.0 };
        let total = (geometry.points() * geometry.repeats()) as f64;
        let (mut operations, mut traffic) = (0.0, Traffic::default());
        for (i, along) in geometry.axes.iter().enumerate() {
            let plan = plan_of(along.n, lanes, rigor, if i + 1 == geometry.axes.len() { chosen } else { 0 });
            let share =
                geometry.nominal_operations() / (5.0 * total * (geometry.points() as f64).max(2.0).log2());
            let (per_point, passes) = work(&plan, along.n);
            operations += share * per_point * total;
            let set = 3.0
                * number
                * along.n as f64
                * if matches!(plan, Plan::Across(_)) { lanes as f64 } else { 1.0 };
            traffic = traffic + moved(share * passes * 2.0 * number * total, set, &device.caches);
        }
        let bytes = workload.bytes() as f64 * geometry.axes.len() as f64;
        traffic = traffic + Traffic::pass(bytes, workload.bytes() as f64, &device.caches);
        let tasks = geometry.points() * geometry.repeats() / lanes;
        Cost::new(operations, unit, traffic).split(parameters.threads(), tasks.max(1))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let geometry = Geometry::new(call.workload);
        if call.workload.outputs()[0].is_empty() {
            return Ok(());
        }
        let rigor = attributes(call.workload).rigor;
        let variant = call.parameters.get(Knob::Plan).unwrap_or(0);
        if geometry.double {
            Job::<f64>::new(call, &geometry, Width::of::<f64>(self.isa), rigor, variant).run()
        } else {
            Job::<f32>::new(call, &geometry, Width::of::<f32>(self.isa), rigor, variant).run()
        }
    }
}

/// Scratch is read and written in the smallest cache that holds it.
fn moved(bytes: f64, set: f64, caches: &Caches) -> Traffic {
    Traffic::pass(bytes, set, caches)
}

/// The plan of that number, or the last there is.
pub(super) fn plan_of(n: usize, lanes: usize, rigor: Rigor, variant: usize) -> Plan {
    let mut all = plans(n, lanes, rigor);
    let at = variant.min(all.len() - 1);
    all.swap_remove(at)
}

/// Operations for each point, and the times that every point passes through scratch.
fn work(plan: &Plan, n: usize) -> (f64, f64) {
    let log = |n: usize| (n.max(2) as f64).log2();
    match plan {
        Plan::Across(radices) => (5.0 * log(n), radices.0.len() as f64),
        Plan::Along(radices) => (5.0 * log(n), radices.0.len() as f64 + 1.0),
        // The roots between the passes are products of two.
        Plan::FourStep(a, b) => (5.0 * log(n) + 6.0, (a.0.len() + b.0.len()) as f64 + 1.0),
        Plan::Bluestein(points, inner) => {
            let (operations, passes) = work(inner, *points);
            let times = *points as f64 / n as f64;
            (times * (2.0 * operations + 6.0) + 12.0, times * (2.0 * passes + 1.0) + 2.0)
        }
        Plan::Rader(inner) => {
            let (operations, passes) = work(inner, n - 1);
            (2.0 * operations + 8.0, 2.0 * passes + 3.0)
        }
    }
}

/// Whether columns of this length are transformed several at a time.
pub(super) fn is_smooth(n: usize) -> bool {
    across(n).is_some()
}
