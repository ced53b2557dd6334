//! Apple's GPUs: threadgroups, simdgroups and their matrices by GPU family.

use serde::Serialize;

use super::characteristics::{Characteristics, asking, default_kernel};
use super::constraints::{TuningConstraints, TuningError};
use super::feedback::Book;
use super::gpu::{Extent, Machine, Tile, estimate, tiles};
use super::strategy::{BackendPlan, Proposal, Proposed, Proposes};
use crate::device::{BackendKind, DeviceInfo};
use crate::ops::{Parameters, Workload};
use crate::sensors::{PowerMode, SystemState};
use crate::tensor::DType;
use crate::{Error, Result};

/// Families of GPUs, as Metal names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MetalFamily {
    /// A11.
    Apple4,
    /// A12.
    Apple5,
    /// A13.
    Apple6,
    /// A14, M1.
    Apple7,
    /// A15, A16, M2.
    Apple8,
    /// A17, M3, M4.
    Apple9,
    /// Macs with an AMD or Intel GPU.
    Mac2,
}

/// What a family allows (Apple, "Metal Feature Set Tables").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MetalLimits {
    /// Threads of a threadgroup.
    pub threads: u32,
    /// Bytes of threadgroup memory.
    pub memory: u32,
    /// Threads of a simdgroup; `None` where it differs within the family.
    pub simdgroup: Option<u32>,
    /// Whether simdgroups multiply matrices of eight by eight.
    pub matrices: bool,
    /// Whether simdgroups add up.
    pub reductions: bool,
    /// Whether CPU and GPU share their memory.
    pub unified: bool,
}

impl MetalFamily {
    /// Every family, in the order of the tables.
    pub const ALL: [Self; 7] =
        [Self::Apple4, Self::Apple5, Self::Apple6, Self::Apple7, Self::Apple8, Self::Apple9, Self::Mac2];

    /// What the family allows.
    pub fn limits(self) -> MetalLimits {
        let apple = self != Self::Mac2;
        MetalLimits {
            threads: 1024,
            memory: 32 << 10,
            simdgroup: apple.then_some(32),
            matrices: apple && self >= Self::Apple7,
            reductions: self >= Self::Apple7,
            unified: apple,
        }
    }
}

/// A Metal device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetalDevice {
    /// Its name.
    pub name: String,
    /// Its newest family.
    pub family: MetalFamily,
    /// Cores of the GPU, if the system tells.
    pub cores: Option<u32>,
    /// Bytes that are recommended to be in use at most.
    pub memory: Option<u64>,
    /// Measured multiply-adds per second.
    pub rate: Option<f64>,
    /// Measured bytes per second.
    pub bandwidth: Option<f64>,
    /// Measured seconds to start a kernel.
    pub launch: Option<f64>,
}

/// Where buffers live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StorageMode {
    /// Memory that CPU and GPU share: nothing is copied.
    Shared,
    /// The GPU's own memory: copied to and from.
    Private,
}

/// What a dispatch needs beyond a kernel's tunables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetalPlan {
    /// Threads of a threadgroup along each axis.
    pub threadgroup: [u32; 3],
    /// Threadgroups along each axis.
    pub grid: [u64; 3],
    /// Bytes of threadgroup memory, a multiple of sixteen.
    pub memory: u32,
    /// Simdgroups of a threadgroup, where their size is known.
    pub simdgroups: Option<u32>,
    /// Whether the simdgroups' matrices are used.
    pub matrices: bool,
    /// Where buffers live.
    pub storage: StorageMode,
}

/// Tunes for one Apple GPU.
#[derive(Debug)]
pub struct MetalStrategy {
    device: MetalDevice,
    limits: MetalLimits,
    asking: DeviceInfo,
    book: Book,
}

impl MetalStrategy {
    /// For a device.
    pub fn new(device: MetalDevice) -> Self {
        let asking = asking(BackendKind::Metal, &device.name, device.memory.map(|bytes| bytes as usize));
        Self { limits: device.family.limits(), device, asking, book: Book::default() }
    }

    /// The rate counts as one lane of one unit: Apple publishes neither lanes nor what is resident.
    fn machine(&self) -> Machine {
        Machine {
            units: self.device.cores.unwrap_or(1),
            lanes: 1.0,
            latency: 0.0,
            clock: self.device.rate.map(|rate| rate / f64::from(self.device.cores.unwrap_or(1).max(1))),
            bandwidth: self.device.bandwidth,
            launch: self.device.launch,
        }
    }

    fn traits(&self, workload: &Workload) -> Result<(Characteristics, Extent)> {
        if let Some(wide) = workload.operands().iter().find(|o| matches!(o.dtype, DType::F64 | DType::C64)) {
            return Err(Error::Unsupported {
                what: format!("{} on Metal", wide.dtype),
                reason: "its shading language has no 64-bit floats; cast to f32 or use the CPU".into(),
            });
        }
        let (_, _, cost) = default_kernel(workload, &self.asking)?;
        let traits = Characteristics::of(workload, &cost, &self.asking);
        let extent = Extent::of(workload, &traits);
        Ok((traits, extent))
    }

    /// `None` for a tile that the family cannot run.
    fn plan(&self, tile: &Tile, extent: &Extent, dtype: DType) -> Option<MetalPlan> {
        let memory = tile.shared(extent.size).next_multiple_of(16);
        if tile.threads() > self.limits.threads || memory > self.limits.memory {
            return None;
        }
        // A matrix of eight by eight needs as many results of a simdgroup in both directions.
        let whole = (tile.y * tile.rows).is_multiple_of(8) && (tile.x * tile.columns).is_multiple_of(8);
        let float = matches!(dtype, DType::F32 | DType::F16);
        Some(MetalPlan {
            threadgroup: [tile.x, tile.y, 1],
            grid: tile.groups(extent),
            memory,
            simdgroups: self.limits.simdgroup.map(|width| tile.threads().div_ceil(width)),
            matrices: self.limits.matrices && extent.blocked && whole && float,
            storage: if self.limits.unified { StorageMode::Shared } else { StorageMode::Private },
        })
    }
}

impl Proposes for MetalStrategy {
    const BACKEND: BackendKind = BackendKind::Metal;

    fn propose(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &TuningConstraints,
    ) -> Result<Proposed, TuningError> {
        let (traits, extent) = self.traits(workload)?;
        let (mode, machine) = (constraints.mode(state), self.machine());
        let units = u64::from(self.device.cores.unwrap_or(1).max(1));
        let (mut proposals, mut bound, mut least) = (Vec::new(), None, f64::INFINITY);
        for (tile, _) in tiles(&extent, mode, |_| units) {
            let Some(plan) = self.plan(&tile, &extent, traits.dtype) else { continue };
            let found = estimate(&machine, &extent, &tile, 1);
            if found.order < least {
                (least, bound) = (found.order, found.bound());
            }
            proposals.push(Proposal {
                parameters: tile.parameters(constraints.level),
                plan: BackendPlan::Metal(plan),
                seconds: found.seconds(),
                order: found.order * frugal(mode, &tile),
                memory: (traits.bytes as u64).saturating_add(tile.partial(&extent)),
                threads: 1,
            });
        }
        let reasons = vec![format!("{:?}, {mode:?}", self.device.family)];
        Ok(Proposed { proposals, kernel: None, bound, characteristics: traits, reasons })
    }

    fn modelled(&self, workload: &Workload, parameters: &Parameters) -> Option<f64> {
        let (traits, extent) = self.traits(workload).ok()?;
        let tile = Tile::from_parameters(parameters);
        self.plan(&tile, &extent, traits.dtype)?;
        estimate(&self.machine(), &extent, &tile, 1).seconds()
    }

    fn book(&self) -> &Book {
        &self.book
    }

    fn book_mut(&mut self) -> &mut Book {
        &mut self.book
    }
}

/// What a large threadgroup costs beyond time: a phone's or laptop's GPU keeps more of its parts awake for it. Nothing
/// when speed is all, its invocations when power is all, the square root of them in between.
pub(super) fn frugal(mode: PowerMode, tile: &Tile) -> f64 {
    let power = match mode {
        PowerMode::Performance => 0.0,
        PowerMode::Balanced => 0.5,
        PowerMode::Saving => 1.0,
    };
    f64::from(tile.threads()).powf(power)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{matmul, typed_matmul};
    use super::super::{BackendTuningStrategy, OptimisationLevel};
    use super::*;
    use crate::ops::Knob;

    fn m1() -> MetalDevice {
        MetalDevice {
            name: "M1".into(),
            family: MetalFamily::Apple7,
            cores: Some(8),
            memory: Some(10 << 30),
            rate: None,
            bandwidth: None,
            launch: None,
        }
    }

    fn plan(device: MetalDevice, constraints: &TuningConstraints) -> (Parameters, MetalPlan) {
        let mut strategy = MetalStrategy::new(device);
        let found =
            strategy.tune_for_workload(&matmul(512, 512, 512), &SystemState::default(), constraints).unwrap();
        let BackendPlan::Metal(plan) = found.best.plan else { panic!() };
        (found.best.parameters, plan)
    }

    #[test]
    fn families_differ_as_the_tables_say() {
        let none = TuningConstraints::default();
        let (_, new) = plan(m1(), &none);
        assert!(new.matrices && new.simdgroups.is_some() && new.storage == StorageMode::Shared);
        let (_, old) = plan(MetalDevice { family: MetalFamily::Apple6, ..m1() }, &none);
        assert!(!old.matrices);
        let (_, mac) = plan(MetalDevice { family: MetalFamily::Mac2, ..m1() }, &none);
        assert_eq!((mac.simdgroups, mac.storage, mac.matrices), (None, StorageMode::Private, false));
        for family in MetalFamily::ALL {
            let (_, plan) = plan(MetalDevice { family, ..m1() }, &none);
            assert!(plan.memory <= family.limits().memory && plan.memory.is_multiple_of(16));
            assert!(plan.threadgroup.iter().product::<u32>() <= family.limits().threads);
        }
    }

    #[test]
    fn modes_change_the_threadgroup_and_levels_the_unrolling() {
        let with = |mode, level| TuningConstraints { power_mode: Some(mode), level, ..Default::default() };
        let group =
            |mode| plan(m1(), &with(mode, OptimisationLevel::Balanced)).1.threadgroup.iter().product::<u32>();
        assert!(group(PowerMode::Saving) < group(PowerMode::Performance));
        let unroll = |level| plan(m1(), &with(PowerMode::Performance, level)).0.get(Knob::Unroll);
        assert_eq!(unroll(OptimisationLevel::Light), Some(1));
        assert_eq!(unroll(OptimisationLevel::Balanced), Some(4));
        assert_eq!(unroll(OptimisationLevel::Full), Some(16));
    }

    #[test]
    fn wide_floats_are_refused_with_what_to_do() {
        let mut strategy = MetalStrategy::new(m1());
        let work = typed_matmul(64, 64, 64, DType::F64);
        let none = TuningConstraints::default();
        let error = strategy.tune_for_workload(&work, &SystemState::default(), &none).unwrap_err();
        assert!(error.to_string().contains("cast to f32"), "{error}");
    }

    #[test]
    fn measured_rates_give_times() {
        let device = MetalDevice { rate: Some(1.3e12), bandwidth: Some(6e10), ..m1() };
        let mut strategy = MetalStrategy::new(device);
        let none = TuningConstraints::default();
        let found =
            strategy.tune_for_workload(&matmul(1024, 1024, 1024), &SystemState::default(), &none).unwrap();
        let seconds = found.best.expected.unwrap().seconds;
        assert!(seconds >= 1024f64.powi(3) / 1.3e12, "never faster than the measured rate: {seconds}");
    }
}
