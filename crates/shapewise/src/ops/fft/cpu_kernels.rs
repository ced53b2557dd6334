//! The kernels: the same passes on each instruction set.
#![allow(unsafe_code)]

use super::cpu_alone::Alone;
use super::cpu_along::{PAD, PAGE};
use super::cpu_columns::spaced;
use super::cpu_lines::Width;
use super::cpu_passes::{Job, Planned, lane_count, line_isa};
use super::cpu_tiles::cut;
use super::geometry::{Geometry, attributes};
use super::plan::{Plan, across, recent_plans};
use super::{FftKind, Rigor};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Bound, Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace,
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

/// Passes that the step between half a spectrum and a whole one counts for: it reads and writes a line, and reads as many roots.
const HALVES: f64 = 1.5;

/// Whether one side of a transform is real.
fn is_real(kind: FftKind) -> bool {
    matches!(kind, FftKind::RealForward | FftKind::RealInverse)
}

/// Points of the complex lines of the last axis, and whether they lie along memory.
fn line(geometry: &Geometry) -> (usize, bool) {
    let Some(last) = geometry.axes.last() else { return (1, false) };
    let contiguous = last.input == 1 && last.output == 1;
    let halved = is_real(geometry.kind) && last.n.is_multiple_of(2) && contiguous;
    (if halved { last.n / 2 } else { last.n }, contiguous)
}

/// Whether lines are written once and for all, too many of them to stay near: whole ones, or matrices by pieces of their rows.
fn streams(workload: &Workload, geometry: &Geometry, plan: &Plan, device: &DeviceInfo) -> bool {
    matches!(geometry.kind, FftKind::Forward | FftKind::Inverse)
        && geometry.axes.len() == 1
        && matches!(plan, Plan::Along(_) | Plan::FourStep(..))
        && device.caches.l2.is_some_and(|l2| workload.bytes() > l2)
}

/// The values of the knob that calls on so many threads try, the one that is taken until times are known first. Lines that fill half of the
/// last cache, which others use too, go past it: through it one thread took up to a quarter longer, and so would every call that tries.
/// Several threads wait for memory sooner: where the cache holds all lines, two took up to a quarter less through it on one machine. The
/// pieces of a matrix took longer past the caches on one machine and a fifth less on another.
fn stream_values(workload: &Workload, plan: &Plan, device: &DeviceInfo, threads: usize) -> &'static [u32] {
    let bytes = workload.bytes();
    match (plan, device.caches.l3, device.caches.l2) {
        (Plan::Along(_), Some(l3), _) if bytes >= l3 / 2 => {
            if threads > 1 && bytes < l3 {
                &[1, 0]
            } else {
                &[1]
            }
        }
        (Plan::Along(_), None, Some(l2)) if bytes >= l2 / 2 => &[1, 0],
        _ => &[0, 1],
    }
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
            "cpu_alone.rs",
            "cpu_lines.rs",
            "cpu_along.rs",
            "cpu_four_step.rs",
            "cpu_columns.rs",
            "cpu_stages.rs",
            "cpu_rows.rs",
            "cpu_eights.rs",
            "cpu_sixteens.rs",
            "cpu_tiles.rs",
            "cpu_turned.rs",
            "cpu_radix.rs",
            "cpu_convolution.rs",
            "cpu_real.rs",
            "cpu_real_lines.rs",
            "plan.rs",
            "roots.rs"
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
        self.points(workload, device, |plan, threads| stream_values(workload, plan, device, threads))
    }

    fn tuning_space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        self.points(workload, device, |_, _| &[0, 1])
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let geometry = Geometry::new(workload);
        let lanes = lane_count(self.isa, geometry.double);
        let unit =
            ComputeUnit { dtype: if geometry.double { DType::F64 } else { DType::F32 }, isa: Some(self.isa) };
        let rigor = attributes(workload).rigor;
        let variant = parameters.get(Knob::Plan).unwrap_or(0) as usize;
        let number = if geometry.double { 16.0 } else { 8.0 };
        let total = (geometry.points() * geometry.repeats()) as f64;
        let share =
            geometry.nominal_operations() / (5.0 * total * (geometry.points() as f64).max(2.0).log2());
        let streamed = parameters.get(Knob::Stream) == Some(1);
        let (mut operations, mut traffic, mut most) = (0.0, Traffic::default(), 0);
        let (mut shared, mut alone, mut all_passes) = (false, 0.0, 0.0);
        let mut tasks = geometry.points() * geometry.repeats() / lanes;
        for (i, along) in geometry.axes.iter().enumerate() {
            let last = i + 1 == geometry.axes.len();
            let (n, contiguous) = if last { line(&geometry) } else { (along.n, along.output == 1) };
            let own = if contiguous { self.line_lanes(&geometry, along.n, n) } else { lanes };
            let across = if contiguous { None } else { across(n, lanes).map(Plan::Across) };
            let all;
            let plan = if let Some(plan) = &across {
                plan
            } else {
                all = recent_plans(n, own, rigor);
                &all[variant.min(all.len() - 1)]
            };
            let (mut per_point, mut passes) = work(plan, n, own);
            // Narrower registers take as many times the instructions.
            per_point *= lanes as f64 / own as f64;
            if contiguous && matches!(plan, Plan::Across(_)) {
                // Lanes without a line work for nothing, and lines are turned on their way in and out.
                let lines = total / along.n as f64;
                per_point *= (lines / lanes as f64).ceil() * lanes as f64 / lines;
                passes += 2.0;
            }
            if contiguous && !matches!(plan, Plan::Across(_) | Plan::FourStep(..)) {
                // Such a line is one thread's.
                tasks = tasks.min(total as usize / along.n);
            }
            // A single line that threads share: what one wrote between its two steps, others read.
            let is_shared = contiguous
                && matches!(plan, Plan::FourStep(..))
                && total as usize / along.n < parameters.threads();
            shared |= is_shared;
            if last && contiguous && is_real(geometry.kind) {
                passes += HALVES;
                // Shared lines are completed by the caller.
                alone = if is_shared { HALVES } else { 0.0 };
            }
            all_passes += passes;
            operations += share * per_point * total;
            let numbers = scratch(plan, n, own);
            // Scratch is read and written in the smallest cache that holds it.
            let set = numbers as f64 * number / 2.0;
            traffic = traffic + Traffic::pass(share * passes * 2.0 * number * total, set, &device.caches);
            most = most.max(numbers);
        }
        let (bytes, set) = (workload.bytes() as f64, workload.bytes() as f64);
        let passed = if streamed { bytes / 2.0 } else { 0.0 };
        let kept = bytes * geometry.axes.len() as f64 - passed;
        // What goes past the caches is on no way between them.
        let past = Traffic { l1: passed, memory: passed, ..Traffic::default() };
        traffic = traffic + Traffic::pass(kept, set, &device.caches) + past;
        if shared {
            traffic.l3 += share * 2.0 * number * total;
        }
        let mut cost = Cost::new(operations, unit, traffic).split(parameters.threads(), tasks.max(1));
        cost.imbalance *= 1.0 + alone * (cost.threads - 1) as f64 / all_passes.max(1.0);
        cost.forks += u32::from(shared && cost.threads > 1);
        // Inverse real transforms over several axes work on a copy.
        let copied = match geometry.kind {
            FftKind::RealInverse if geometry.axes.len() > 1 => workload.inputs()[0].bytes(),
            _ => 0,
        };
        Cost { scratch: cost.threads * most * (number / 2.0) as usize + copied, ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if call.workload.outputs()[0].is_empty() {
            return Ok(());
        }
        if is_double(call.workload) { self.compute::<f64>(call) } else { self.compute::<f32>(call) }
    }

    fn bind(&self, workload: &Workload, parameters: &Parameters) -> Option<Bound> {
        if is_double(workload) {
            Alone::<f64>::new(self.isa, workload, parameters)?.bind()
        } else {
            Alone::<f32>::new(self.isa, workload, parameters)?.bind()
        }
    }
}

/// Whether the numbers of a workload are f64 and c64.
fn is_double(workload: &Workload) -> bool {
    matches!(workload.outputs()[0].dtype, DType::F64 | DType::C64)
}

impl Stockham {
    fn compute<T: Planned>(&self, call: &Call<'_>) -> Result<(), KernelError> {
        if let Some(alone) = Alone::<T>::new(self.isa, call.workload, call.parameters) {
            return alone.launch(call);
        }
        let (geometry, rigor) = (Geometry::new(call.workload), attributes(call.workload).rigor);
        let variant = call.parameters.get(Knob::Plan).unwrap_or(0);
        Job::<T>::new(call, &geometry, Width::of::<T>(self.isa), rigor, variant).run()
    }

    /// Threads and plans, with the ways to write that so many threads have where lines may go past the caches.
    fn points(
        &self,
        workload: &Workload,
        device: &DeviceInfo,
        streamed: impl Fn(&Plan, usize) -> &'static [u32],
    ) -> ParameterSpace {
        let geometry = Geometry::new(workload);
        let (points, contiguous) = line(&geometry);
        let lanes = self.line_lanes(&geometry, geometry.axes.last().map_or(1, |last| last.n), points);
        let all = contiguous.then(|| recent_plans(points, lanes, attributes(workload).rigor));
        let variants: Vec<u32> = (0..all.as_ref().map_or(1, |all| all.len()) as u32).collect();
        // Below this a hand-over costs more than there is to share.
        let threads = if geometry.points() * geometry.repeats() < 4096 { 1 } else { device.threads };
        let space = ParameterSpace::threads(threads).axis(Knob::Plan, &variants);
        let past = all.filter(|all| streams(workload, &geometry, &all[0], device));
        let Some(all) = past else { return space };
        let space = space.axis(Knob::Stream, streamed(&all[0], threads));
        space.constrained(|p| {
            p.get(Knob::Stream).is_some_and(|value| streamed(&all[0], p.threads()).contains(&value))
        })
    }

    /// Lanes of the registers that work on lines of n neighbours, which are transformed as so many points. Real lines that are not
    /// halved are transformed one by one.
    fn line_lanes(&self, geometry: &Geometry, n: usize, points: usize) -> usize {
        let several = matches!(geometry.kind, FftKind::Forward | FftKind::Inverse) || points < n;
        let lines = if several { geometry.points() * geometry.repeats() / n.max(1) } else { 1 };
        lane_count(line_isa(self.isa, points, geometry.double, lines), geometry.double)
    }
}

/// The plan of that number, or the last there is.
pub(super) fn plan_of(n: usize, lanes: usize, rigor: Rigor, variant: usize) -> Plan {
    let all = recent_plans(n, lanes, rigor);
    all[variant.min(all.len() - 1)].clone()
}

/// Operations for each point, and the times that every point passes through scratch, on vectors of so many lanes.
fn work(plan: &Plan, n: usize, lanes: usize) -> (f64, f64) {
    let log = |n: usize| (n.max(2) as f64).log2();
    match plan {
        Plan::Across(radices) => (5.0 * log(n), radices.0.len() as f64),
        Plan::Along(radices) => (5.0 * log(n), radices.0.len() as f64 + 1.0),
        // The roots between the passes are products of two; rows are turned on their own, or with a first stage that is cut. The last
        // vectors of both sides go back over what is done.
        Plan::FourStep(a, b) => {
            let own = !matches!(&b.0[..], [first, _, ..] if cut((*first).into()).is_some());
            let whole = |side: usize| side.next_multiple_of(lanes) as f64 / side as f64;
            let (columns, rows) = (whole(b.len()), whole(a.len()));
            let passes = columns * a.0.len() as f64 + rows * (b.0.len() + usize::from(own)) as f64;
            (columns * 5.0 * log(a.len()) + rows * 5.0 * log(b.len()) + 6.0, passes)
        }
        Plan::Bluestein(points, inner) => {
            let (operations, passes) = work(inner, *points, lanes);
            let times = *points as f64 / n as f64;
            (times * (2.0 * operations + 6.0) + 12.0, times * (2.0 * passes + 1.0) + 2.0)
        }
        Plan::Rader(inner) => {
            let (operations, passes) = work(inner, n - 1, lanes);
            (2.0 * operations + 8.0, 2.0 * passes + 3.0)
        }
    }
}

/// Real numbers that a thread needs as scratch, at most.
fn scratch(plan: &Plan, n: usize, lanes: usize) -> usize {
    // Halved real lines keep a line beside it.
    let own = match plan {
        Plan::Across(_) => 4 * lanes * spaced(n),
        Plan::Along(_) => 4 * n + PAD + PAGE / size_of::<f32>(),
        Plan::FourStep(a, b) => {
            let middle = 2 * (a.len() + lanes) * b.len().next_multiple_of(lanes);
            middle + 4 * lanes * spaced(a.len().max(b.len()))
        }
        Plan::Bluestein(points, inner) => 4 * points + scratch(inner, *points, lanes),
        Plan::Rader(inner) => 4 * n + scratch(inner, n - 1, lanes),
    };
    own + 2 * n + 2
}

/// Whether columns of this length are transformed several at a time.
pub(super) fn is_smooth(n: usize) -> bool {
    across(n, 1).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::{FftAttributes, FftNorm};
    use super::*;
    use crate::ops::testing::runtime;
    use crate::ops::{Operation, TensorDesc};
    use crate::tensor::Shape;

    #[test]
    fn several_threads_try_both_ways_where_the_last_cache_holds_all_lines() {
        let mut device = runtime().device_info().clone();
        (device.threads, device.caches.l2, device.caches.l3) = (2, Some(1 << 20), Some(32 << 20));
        let attributes = FftAttributes {
            kind: FftKind::Forward,
            axes: 1,
            norm: FftNorm::Backward,
            rigor: Rigor::Estimate,
        };
        let ways = |lines: usize, threads: usize| -> Vec<u32> {
            let desc = TensorDesc::contiguous(DType::C32, Shape::new(&[lines, 1024]).unwrap());
            let workload = Workload::new(Operation::Fft(attributes), &[desc], &[desc]);
            let space = PORTABLE.space(&workload, &device);
            let points = space.points().iter().filter(|p| p.threads() == threads);
            points.filter_map(|p| p.get(Knob::Stream)).collect()
        };
        // A quarter of the cache, half of it, and all of it.
        assert_eq!([ways(512, 1), ways(512, 2)], [[0, 1], [0, 1]]);
        assert_eq!([ways(1024, 1), ways(1024, 2)], [vec![1], vec![1, 0]]);
        assert_eq!([ways(2048, 1), ways(2048, 2)], [[1], [1]]);
    }
}
