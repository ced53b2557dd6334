//! The CPU: threads from parallelism, load and the cost of waking them; vectors from their measured speed; tiles from
//! the caches.

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
use crate::ops::{ComputeUnit, Cost, Knob, Parameters, Traffic, Workload};
use crate::sensors::{PowerMode, SystemState};
use crate::tensor::DType;

/// What the CPU does beyond a kernel's tunables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuPlan {
    /// Threads, the caller included.
    pub threads: usize,
    /// The instruction set that is fastest for the type.
    pub isa: Isa,
    /// How pieces are given to threads.
    pub schedule: Schedule,
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
}

/// The pool asks for large pages from this size on.
const LARGE_PAGE: f64 = (2 << 20) as f64;

impl CpuStrategy {
    /// For a device, calibrated or not; without peaks nothing is predicted.
    pub fn new(device: DeviceInfo) -> Self {
        Self { device, book: Book::default() }
    }

    /// Threads that may be asked for: the level's share of the cores, less what other programs use.
    fn most_threads(&self, state: &SystemState, constraints: &TuningConstraints) -> usize {
        let device = &self.device;
        let physical = device.physical_cores.unwrap_or(device.cores).min(device.threads);
        let allowed = match constraints.level {
            OptimisationLevel::Light => physical / 2,
            OptimisationLevel::Balanced => physical,
            OptimisationLevel::Full => device.threads,
        };
        let others = state.load.map_or(0.0, |load| load - state.own_load.unwrap_or(0.0)).clamp(0.0, 1.0);
        let free = (device.cores as f64 * (1.0 - others)).round() as usize;
        allowed.min(free).min(constraints.threads.unwrap_or(usize::MAX)).max(1)
    }

    /// The instruction set with the highest measured rate for a type; the widest where nothing was measured.
    fn isa(&self, dtype: DType, threads: usize) -> Isa {
        let peaks = self.device.peaks.as_ref();
        let rate = |isa: Isa| {
            let unit = ComputeUnit { dtype: computed(dtype), isa: Some(isa) };
            peaks.and_then(|p| p.arithmetic(unit, threads)).unwrap_or(0.0)
        };
        let fastest = self.device.isas.iter().copied().max_by(|&a, &b| rate(a).total_cmp(&rate(b)));
        fastest.unwrap_or(Isa::Portable)
    }

    fn cost(&self, traits: &Characteristics, isa: Isa, threads: usize) -> Cost {
        let unit = ComputeUnit { dtype: computed(traits.dtype), isa: Some(isa) };
        let traffic = Traffic::pass(traits.bytes, traits.bytes, &self.device.caches);
        Cost::new(traits.operations, unit, traffic).split(threads, tasks(traits))
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

    /// Schedules differ by little before anything is measured, so only their order counts. Threads of several NUMA nodes
    /// begin with what is near; work that differs from piece to piece is taken piece by piece; even work among
    /// disturbed threads in parts that grow smaller; and even work on a machine of its own in one share each.
    fn unfit(&self, schedule: Schedule, traits: &Characteristics, state: &SystemState) -> f64 {
        let uneven = matches!(traits.pattern, AccessPattern::Sparse | AccessPattern::Random);
        let others = state.load.zip(state.own_load).is_some_and(|(all, own)| all - own > 0.1);
        let fits = if self.device.numa.len() > 1 {
            Schedule::Stealing
        } else if uneven {
            Schedule::Dynamic
        } else if others || state.throttled == Some(true) {
            Schedule::Guided
        } else {
            Schedule::Static
        };
        if schedule == fits { 1.0 } else { 1.0 + 1e-3 }
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

    fn proposal(
        &self,
        traits: &Characteristics,
        state: &SystemState,
        mode: PowerMode,
        threads: usize,
        schedule: Schedule,
    ) -> Proposal {
        let isa = self.isa(traits.dtype, threads);
        let cost = self.cost(traits, isa, threads);
        let terms = self.terms(&cost, state);
        let seconds = terms.map(|terms| terms.seconds()).filter(|&s| s > 0.0);
        let lanes = (isa.register_bytes() / traits.dtype.size()).max(1) as u32;
        let mut parameters = Parameters::new()
            .with(Knob::Threads, threads as u32)
            .with(Knob::Vector, lanes)
            .with(Knob::Schedule, schedule as u32);
        if traits.pattern == AccessPattern::Blocked {
            let [rows, columns, depth] = blocks(&self.device, isa, traits.dtype);
            parameters =
                parameters.with(Knob::BlockM, rows).with(Knob::BlockN, columns).with(Knob::BlockK, depth);
        }
        let memory = self.memory(traits, threads);
        // Without peaks the least work of the busiest thread comes first.
        let time = seconds.unwrap_or(cost.imbalance / threads as f64);
        Proposal {
            parameters,
            plan: BackendPlan::Cpu(CpuPlan { threads, isa, schedule, memory }),
            seconds,
            order: time * weight(mode, threads) * self.unfit(schedule, traits, state),
            memory: traits.bytes as u64,
            threads,
        }
    }
}

impl Proposes for CpuStrategy {
    const BACKEND: BackendKind = BackendKind::Cpu;

    fn propose(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &TuningConstraints,
    ) -> Result<Proposed, TuningError> {
        let (_, _, cost) = default_kernel(workload, &self.device)?;
        let traits = Characteristics::of(workload, &cost, &self.device);
        let (most, mode) = (self.most_threads(state, constraints), constraints.mode(state));
        let useful = most.min(tasks(&traits));
        let halves = std::iter::successors(Some(useful), |&n| (n > 1).then_some(n / 2));
        let mut proposals = Vec::new();
        for threads in halves {
            for schedule in Schedule::ALL {
                if threads > 1 || schedule == Schedule::Static {
                    proposals.push(self.proposal(&traits, state, mode, threads, schedule));
                }
            }
        }
        let one = self.cost(&traits, self.isa(traits.dtype, 1), 1);
        let bound = self.terms(&one, state).map(|terms| Bound::of(&terms));
        let reasons = vec![
            format!("up to {most} threads: {:?}, {} cores", constraints.level, self.device.cores),
            format!("{} independent results, {mode:?}", traits.results),
        ];
        Ok(Proposed { proposals, bound, characteristics: traits, reasons })
    }

    fn modelled(&self, workload: &Workload, parameters: &Parameters) -> Option<f64> {
        let (_, _, cost) = default_kernel(workload, &self.device).ok()?;
        let traits = Characteristics::of(workload, &cost, &self.device);
        let threads = parameters.threads();
        let cost = self.cost(&traits, self.isa(traits.dtype, threads), threads);
        self.terms(&cost, &SystemState::default()).map(|terms| terms.seconds()).filter(|&s| s > 0.0)
    }

    fn book(&self) -> &Book {
        &self.book
    }

    fn book_mut(&mut self) -> &mut Book {
        &mut self.book
    }
}

/// Pieces that threads can take: results, or the inputs of a single one, of which kernels cut a vector's worth at least.
fn tasks(traits: &Characteristics) -> usize {
    let items = traits.results.max(traits.bytes / 64.0 / traits.dtype.size() as f64);
    (items as usize).max(1)
}

/// The type that arithmetic is calibrated for.
fn computed(dtype: DType) -> DType {
    if dtype.size() >= 8 { DType::F64 } else { DType::F32 }
}

/// What a thread costs beyond time: nothing when speed is all, as much as a core's time when power is all, and half of
/// that (in logarithms) in between, so that a second thread must bring a factor of 1.4.
fn weight(mode: PowerMode, threads: usize) -> f64 {
    let power = match mode {
        PowerMode::Performance => 0.0,
        PowerMode::Balanced => 0.5,
        PowerMode::Saving => 1.0,
    };
    (threads as f64).powf(power)
}

/// Rows, columns and depth of cache blocks: a panel of the right operand in half of the first cache, a block of the left
/// one in a quarter of the second, and a block of the right one in a quarter of the third.
fn blocks(device: &DeviceInfo, isa: Isa, dtype: DType) -> [u32; 3] {
    let size = dtype.size();
    // Two vectors of columns are what tiles of every instruction set have.
    let columns = 2 * isa.register_bytes() / size;
    let l1 = device.caches.l1d.unwrap_or(16 << 10);
    let l2 = device.caches.l2.unwrap_or(128 << 10);
    let l3 = device.caches.l3.unwrap_or(l2);
    let depth = (l1 / 2 / (columns * size)).max(16);
    let rows = (l2 / 4 / (depth * size)).max(4);
    [rows as u32, (l3 / 4 / (depth * size)).max(columns) as u32, depth as u32]
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
        assert_eq!(best.best.parameters.get(Knob::BlockK), Some(256), "half of 32 KiB over 64 bytes");
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
        let found = ask(&work, &busy, &none);
        assert_eq!(found.best.parameters.get(Knob::Threads), Some(4), "half of eight are free");
        assert_eq!(found.best.parameters.get(Knob::Schedule), Some(Schedule::Guided as u32));
        let quiet = SystemState { load: Some(0.25), own_load: Some(0.25), ..Default::default() };
        assert_eq!(
            ask(&work, &quiet, &none).best.parameters.get(Knob::Schedule),
            Some(Schedule::Static as u32)
        );
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
        assert_eq!((plan.schedule, plan.memory), (Schedule::Stealing, MemoryPlan::Interleaved));
        let found = strategy.tune_for_workload(&relu(&[1 << 22], None), &state, &none).unwrap();
        let BackendPlan::Cpu(plan) = found.best.plan else { panic!() };
        assert_eq!(plan.memory, MemoryPlan::NumaLocal);
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
        assert_eq!((plan.isa, plan.memory), (Isa::Avx2, MemoryPlan::LargePages));
    }
}
