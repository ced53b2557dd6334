//! The CPU: the kernel with the fastest vectors; its threads from parallelism, load and the cost of waking them; its
//! schedule from the work and the machine's state. Its blocks are the kernel's own, which it cuts for the caches.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::characteristics::{AccessPattern, Bound, Characteristics, default_kernel};
use super::constraints::{OptimisationLevel, TuningConstraints, TuningError};
use super::feedback::Book;
use super::strategy::{BackendPlan, Proposal, Proposed, Proposes};
use crate::Result;
use crate::backends::cpu::schedule::Schedule;
use crate::backends::cpu::simd::Isa;
use crate::backends::cpu::{CpuDevice, MemoryPlan};
use crate::device::{BackendKind, DeviceInfo};
use crate::modelling::{Roofs, Terms};
use crate::ops::{
    ComputeUnit, Constraint, Cost, Kernel, Knob, ParameterSpace, Parameters, Workload, WorkloadKey,
};
use crate::sensors::{PowerMode, SystemState};
use crate::tensor::DType;

/// What the CPU does beyond a kernel's tunables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuPlan {
    /// Threads, the caller included.
    pub threads: usize,
    /// The instructions that the kernel is written for: the fastest for the type. `None` where it leaves them to a library.
    pub isa: Option<Isa>,
    /// How pieces are given to threads; `None` where the kernel shares its work in its own way.
    pub schedule: Option<Schedule>,
    /// Where the pages of large buffers lie.
    pub memory: MemoryPlan,
}

impl CpuPlan {
    /// Lets a device place its memory as planned; threads and schedule go with a call's parameters.
    pub fn apply(&self, device: &CpuDevice) -> Result<()> {
        device.place(self.memory)
    }
}

/// Tunes for one CPU.
#[derive(Debug)]
pub struct CpuStrategy {
    device: DeviceInfo,
    book: Book,
    /// Kernels picked before: they follow from device and workload alone.
    picks: RefCell<FxHashMap<WorkloadKey, Arc<Pick>>>,
}

/// Picks that are kept at most; beyond, all are forgotten at once.
const MOST_PICKS: usize = 4096;
/// The pool asks for large pages from this size on.
const LARGE_PAGE: f64 = (2 << 20) as f64;

impl CpuStrategy {
    /// For a device, calibrated or not; without peaks nothing is predicted.
    pub fn new(device: DeviceInfo) -> Self {
        Self { device, book: Book::default(), picks: RefCell::default() }
    }

    /// Threads that may be asked for: the level's share of the cores, less what other programs use.
    fn most_threads(&self, state: &SystemState, constraints: &TuningConstraints) -> usize {
        let device = &self.device;
        let allowed = constraints.level.threads(device);
        let free = (device.cores as f64 * (1.0 - others(state))).round() as usize;
        allowed.min(free).min(constraints.threads.unwrap_or(usize::MAX)).max(1)
    }

    /// The instruction set with the highest measured rate for a type on one thread; the widest where nothing was measured.
    fn isa(&self, dtype: DType) -> Isa {
        let peaks = self.device.peaks.as_ref();
        let rate = |isa: Isa| {
            let unit = ComputeUnit { dtype: computed(dtype), isa: Some(isa) };
            peaks.and_then(|p| p.arithmetic(unit, 1)).unwrap_or(0.0)
        };
        let fastest = self.device.isas.iter().copied().max_by(|&a, &b| rate(a).total_cmp(&rate(b)));
        fastest.unwrap_or(Isa::Portable)
    }

    /// The kernel to tune: of those with the fastest vectors the one whose own model promises the least time at one of its
    /// usual points, or the first that takes the workload where no peaks are known.
    fn pick(&self, workload: &Workload) -> Result<Arc<Pick>> {
        let key = workload.key();
        if let Some(pick) = self.picks.borrow().get(&key) {
            return Ok(Arc::clone(pick));
        }
        let pick = Arc::new(self.pick_anew(workload)?);
        let mut picks = self.picks.borrow_mut();
        if picks.len() >= MOST_PICKS {
            picks.clear();
        }
        picks.insert(key, Arc::clone(&pick));
        Ok(pick)
    }

    fn pick_anew(&self, workload: &Workload) -> Result<Pick> {
        let device = &self.device;
        let isa = self.isa(workload.outputs().first().map_or(DType::F32, |o| o.dtype));
        let other = |c: &Constraint| matches!(c, Constraint::Isa(needed) if *needed != isa);
        let mut roofs = Roofs::new(device.peaks.as_ref());
        let mut best: Option<(f64, Pick)> = None;
        for &kernel in workload.kind().kernels() {
            if kernel.constraints().iter().any(other) || kernel.supports(workload, device).is_err() {
                continue;
            }
            let space = kernel.space(workload, device);
            let Some(favourite) = space.points().first() else { continue };
            let cost = kernel.cost(workload, favourite, device);
            let mut seconds = |cost: &Cost| roofs.terms(cost).map_or(f64::INFINITY, |terms| terms.seconds());
            let mut least = seconds(&cost);
            for point in &space.points()[1..] {
                least = least.min(seconds(&kernel.cost(workload, point, device)));
            }
            if best.as_ref().is_none_or(|(so_far, _)| least < *so_far) {
                best = Some((least, Pick { kernel, space, cost }));
            }
        }
        if let Some((_, pick)) = best {
            return Ok(pick);
        }
        let (kernel, _, cost) = default_kernel(workload, device)?;
        Ok(Pick { kernel, space: kernel.space(workload, device), cost })
    }

    /// Seconds by the roofline, with the cost of waking the threads where they sleep.
    fn terms(&self, cost: &Cost, state: &SystemState) -> Option<Terms> {
        let peaks = self.device.peaks.as_ref()?;
        let mut terms = Roofs::new(Some(peaks)).terms(cost)?;
        // Workers that had less than half a core's work lately have gone to sleep.
        let asleep = state.own_load.is_some_and(|load| load * (self.device.cores as f64) < 0.5);
        if let (true, Some(wake)) = (asleep && cost.forks > 0, peaks.wake) {
            terms.hand_over = terms.hand_over.max(wake);
        }
        Some(terms)
    }

    /// The schedule for a workload in a state. Threads of several NUMA nodes begin with what is near; work that differs
    /// from piece to piece is taken piece by piece, or in parts where every hand-over costs power; even work among
    /// disturbed or throttled threads in parts that grow smaller; and even work on a machine of its own in one share each.
    fn fits(&self, traits: &Characteristics, state: &SystemState, mode: PowerMode) -> Schedule {
        let uneven = matches!(traits.pattern, AccessPattern::Sparse | AccessPattern::Random);
        if self.device.numa.len() > 1 {
            Schedule::Stealing
        } else if uneven && mode != PowerMode::Saving {
            Schedule::Dynamic
        } else if uneven || others(state) > 0.1 || state.throttled == Some(true) {
            Schedule::Guided
        } else {
            Schedule::Static
        }
    }

    /// Ordinary pages for what is smaller than a large one. On several nodes, operands that all threads read over and over
    /// are spread over all of them, so that no node's memory serves everybody; what each thread reads once stays near it.
    fn memory(&self, traits: &Characteristics, threads: usize) -> MemoryPlan {
        let shared = traits.pattern == AccessPattern::Blocked && threads > 1;
        match self.device.numa.len() {
            _ if traits.bytes < LARGE_PAGE => MemoryPlan::Default,
            0 | 1 => MemoryPlan::LargePages,
            _ if shared => MemoryPlan::Interleaved,
            _ => MemoryPlan::NumaLocal,
        }
    }

    fn proposal(&self, asked: &Asked<'_>, parameters: Parameters, schedule: Option<Schedule>) -> Proposal {
        let Asked { workload, traits, pick, state, mode, fits } = *asked;
        let threads = parameters.threads();
        let parameters = match schedule {
            Some(schedule) => parameters.with(Knob::Schedule, schedule as u32),
            None => parameters,
        };
        let cost = pick.kernel.cost(workload, &parameters, &self.device);
        let seconds = self.terms(&cost, state).map(|terms| terms.seconds()).filter(|&s| s > 0.0);
        let unfit = schedule.map_or(1.0, |schedule| unfit(schedule, fits, others(state)));
        // Without peaks the least work of the busiest thread comes first.
        let time = seconds.unwrap_or(cost.imbalance / threads as f64);
        let memory = self.memory(traits, threads);
        Proposal {
            parameters,
            plan: BackendPlan::Cpu(CpuPlan { threads, isa: pick.isa(), schedule, memory }),
            seconds,
            order: time * mode.weight(threads) * unfit,
            memory: (traits.bytes as u64).saturating_add(cost.scratch as u64),
            threads,
        }
    }

    fn reasons(&self, asked: &Asked<'_>, most: usize, level: OptimisationLevel) -> Vec<String> {
        let Asked { workload, traits, pick, state, mode, fits } = *asked;
        let (device, name) = (&self.device, pick.kernel.name());
        let why = match (&device.peaks, pick.isa()) {
            (Some(_), Some(isa)) => format!("{name}: {isa} is the fastest here, and its model promises most"),
            (Some(_), None) => format!("{name}: its model promises most"),
            (None, _) => format!("{name}: the first of its list that takes {workload}"),
        };
        let used = others(state);
        let busy = if used > 0.0 { format!(", {:.0} % used by others", 100.0 * used) } else { String::new() };
        let mut reasons = vec![
            why,
            format!("up to {most} threads: {level:?}, {} cores{busy}", device.cores),
            format!("{} independent results, {mode:?}", traits.results),
        ];
        if pick.kernel.schedules() {
            reasons.push(format!("{fits:?} pieces fit {:?} access here", traits.pattern));
        }
        if let (AccessPattern::Blocked, Some(l1), Some(l2)) =
            (traits.pattern, device.caches.l1d, device.caches.l2)
        {
            reasons.push(format!(
                "the kernel cuts blocks for caches of {} and {} KiB unless told otherwise",
                l1 >> 10,
                l2 >> 10
            ));
        }
        reasons
    }
}

/// A kernel, its usual points, and what it costs at its favourite.
struct Pick {
    kernel: &'static dyn Kernel,
    space: ParameterSpace,
    cost: Cost,
}

impl fmt::Debug for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.kernel.name())
    }
}

impl Pick {
    /// The usual points on up to so many threads, halved down to one: spaces name few numbers of threads, kernels take any.
    fn on(&self, most: usize) -> Vec<Parameters> {
        let points = self.space.points();
        let widest = points.iter().map(Parameters::threads).max().unwrap_or(1);
        let wide = points.iter().filter(|p| p.threads() == widest);
        if widest == 1 {
            return wide.cloned().collect();
        }
        let halves = std::iter::successors(Some(most.min(widest)), |&n| (n > 1).then_some(n / 2));
        halves.flat_map(|n| wide.clone().map(move |p| p.clone().with(Knob::Threads, n as u32))).collect()
    }

    /// The instructions that the kernel is written for; `None` where it leaves them to a library or the compiler.
    fn isa(&self) -> Option<Isa> {
        let needed = |c: &Constraint| if let Constraint::Isa(isa) = c { Some(*isa) } else { None };
        self.kernel.constraints().iter().find_map(needed)
    }
}

/// What all proposals of a request have in common.
#[derive(Clone, Copy)]
struct Asked<'a> {
    workload: &'a Workload,
    traits: &'a Characteristics,
    pick: &'a Pick,
    state: &'a SystemState,
    mode: PowerMode,
    fits: Schedule,
}

/// The share of the cores that other programs use.
fn others(state: &SystemState) -> f64 {
    state.load.map_or(0.0, |load| load - state.own_load.unwrap_or(0.0)).clamp(0.0, 1.0)
}

/// What a schedule costs where another one fits: shares that nobody can take over wait for a thread that has only what
/// others leave of its core, at most half; the rest is a matter of order.
fn unfit(schedule: Schedule, fits: Schedule, others: f64) -> f64 {
    let waits = if schedule == Schedule::Static { 1.0 / (1.0 - others.min(0.5)) } else { 1.0 };
    if schedule == fits { 1.0 } else { waits * (1.0 + 1e-3) }
}

impl Proposes for CpuStrategy {
    const BACKEND: BackendKind = BackendKind::Cpu;

    fn propose(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &TuningConstraints,
    ) -> Result<Proposed, TuningError> {
        let pick = self.pick(workload)?;
        let traits = Characteristics::of(workload, &pick.cost, &self.device);
        let (most, mode) = (self.most_threads(state, constraints), constraints.mode(state));
        let fits = self.fits(&traits, state, mode);
        let asked = Asked { workload, traits: &traits, pick: &pick, state, mode, fits };
        let mut proposals = Vec::new();
        for point in pick.on(most) {
            if pick.kernel.schedules() && point.threads() > 1 {
                for schedule in Schedule::ALL {
                    proposals.push(self.proposal(&asked, point.clone(), Some(schedule)));
                }
            } else {
                proposals.push(self.proposal(&asked, point, None));
            }
        }
        let bound = self.terms(&pick.cost, state).map(|terms| Bound::of(&terms, pick.cost.forks));
        let reasons = self.reasons(&asked, most, constraints.level);
        let kernel = Some(pick.kernel.name());
        Ok(Proposed { proposals, kernel, bound, characteristics: traits, reasons })
    }

    fn modelled(&self, workload: &Workload, parameters: &Parameters) -> Option<f64> {
        let pick = self.pick(workload).ok()?;
        let cost = pick.kernel.cost(workload, parameters, &self.device);
        self.terms(&cost, &SystemState::default()).map(|terms| terms.seconds()).filter(|&s| s > 0.0)
    }

    fn book(&self) -> &Book {
        &self.book
    }

    fn book_mut(&mut self) -> &mut Book {
        &mut self.book
    }
}

/// The type that arithmetic is calibrated for.
fn computed(dtype: DType) -> DType {
    if dtype.size() >= 8 { DType::F64 } else { DType::F32 }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{device, matmul, relu};
    use super::super::{BackendTuningStrategy, TuningRecommendation};
    use super::*;
    use crate::device::NumaNode;

    fn ask(
        workload: &Workload,
        state: &SystemState,
        constraints: &TuningConstraints,
    ) -> TuningRecommendation {
        CpuStrategy::new(device()).tune_for_workload(workload, state, constraints).unwrap()
    }

    fn threads(workload: &Workload, state: &SystemState, constraints: &TuningConstraints) -> u32 {
        ask(workload, state, constraints).best.parameters.get(Knob::Threads).unwrap()
    }

    #[test]
    fn large_work_gets_the_cores_and_small_work_one_thread() {
        let (state, none) = (SystemState::default(), TuningConstraints::default());
        assert_eq!(threads(&matmul(512, 512, 512), &state, &none), 4);
        assert_eq!(threads(&matmul(4, 4, 4), &state, &none), 1);
        let best = ask(&matmul(512, 512, 512), &state, &none);
        assert_eq!(best.bound, Some(Bound::Compute));
        // The crate `gemm` has wide registers too.
        let is_wide = |name: &str| name.starts_with("cpu::matmul::avx2") || name.ends_with("gemm_crate");
        assert!(best.kernel.is_some_and(is_wide), "{:?}", best.kernel);
        assert!(!best.alternatives.is_empty());
        let seconds = |a: &super::super::Alternative| a.expected.unwrap().seconds;
        assert!(best.alternatives.iter().all(|a| seconds(a) >= seconds(&best.best)));
    }

    #[test]
    fn levels_and_modes_change_the_threads() {
        let (work, state) = (matmul(512, 512, 512), SystemState::default());
        let level = |level| TuningConstraints { level, ..Default::default() };
        assert_eq!(threads(&work, &state, &level(OptimisationLevel::Light)), 2);
        assert_eq!(threads(&work, &state, &level(OptimisationLevel::Balanced)), 4);
        assert_eq!(threads(&work, &state, &level(OptimisationLevel::Full)), 8);
        // Memory-bound work: more threads bring something, but less than they cost.
        let work = relu(&[1 << 22], None);
        let mode = |mode| TuningConstraints { power_mode: Some(mode), ..Default::default() };
        let of = |m| threads(&work, &state, &mode(m));
        assert_eq!([of(PowerMode::Performance), of(PowerMode::Balanced), of(PowerMode::Saving)], [4, 2, 1]);
    }

    #[test]
    fn load_takes_threads_and_changes_the_schedule() {
        let work = matmul(512, 512, 512);
        let busy = SystemState { load: Some(0.75), own_load: Some(0.25), ..Default::default() };
        let none = TuningConstraints::default();
        assert_eq!(threads(&work, &busy, &none), 4, "half of eight are free");
        assert_eq!(
            ask(&work, &busy, &none).best.parameters.get(Knob::Schedule),
            None,
            "products have their own"
        );
        let even = relu(&[1 << 22], None);
        let schedule = |state: &SystemState| ask(&even, state, &none).best.parameters.get(Knob::Schedule);
        assert_eq!(schedule(&busy), Some(Schedule::Guided as u32));
        let quiet = SystemState { load: Some(0.25), own_load: Some(0.25), ..Default::default() };
        assert_eq!(schedule(&quiet), Some(Schedule::Static as u32));
        let full = SystemState { load: Some(1.0), own_load: Some(0.0), ..Default::default() };
        assert_eq!(threads(&work, &full, &none), 1);
    }

    #[test]
    fn several_numa_nodes_keep_work_near_its_memory() {
        let node = |id| NumaNode { id, cpus: vec![2 * id, 2 * id + 1], memory: None };
        let mut strategy = CpuStrategy::new(DeviceInfo { numa: vec![node(0), node(1)], ..device() });
        let (state, none) = (SystemState::default(), TuningConstraints::default());
        let found = strategy.tune_for_workload(&matmul(512, 512, 512), &state, &none).unwrap();
        let BackendPlan::Cpu(plan) = found.best.plan else { panic!() };
        assert_eq!((plan.schedule, plan.memory), (None, MemoryPlan::Interleaved));
        let found = strategy.tune_for_workload(&relu(&[1 << 22], None), &state, &none).unwrap();
        let BackendPlan::Cpu(plan) = found.best.plan else { panic!() };
        assert_eq!((plan.schedule, plan.memory), (Some(Schedule::Stealing), MemoryPlan::NumaLocal));
    }

    #[test]
    fn sleeping_threads_must_be_worth_waking() {
        let work = matmul(64, 64, 64);
        let none = TuningConstraints::default();
        let warm = SystemState { load: Some(0.2), own_load: Some(0.2), ..Default::default() };
        let asleep = SystemState { load: Some(0.0), own_load: Some(0.0), ..Default::default() };
        assert!(threads(&work, &warm, &none) > 1);
        assert_eq!(threads(&work, &asleep, &none), 1);
    }

    #[test]
    fn without_peaks_nothing_is_predicted_and_all_cores_are_used() {
        let mut strategy = CpuStrategy::new(DeviceInfo { peaks: None, ..device() });
        let (state, none) = (SystemState::default(), TuningConstraints::default());
        let found = strategy.tune_for_workload(&matmul(512, 512, 512), &state, &none).unwrap();
        assert_eq!(found.best.expected, None);
        assert_eq!(found.best.parameters.threads(), 4);
        let BackendPlan::Cpu(plan) = &found.best.plan else { panic!("{found:?}") };
        assert_eq!((plan.isa, plan.memory), (Some(Isa::Avx2), MemoryPlan::LargePages));
    }
}
