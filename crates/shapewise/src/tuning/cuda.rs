//! NVIDIA's GPUs: block and tile from an exact occupancy calculation, tensor cores by architecture and type.

use serde::Serialize;

use super::characteristics::{Characteristics, asking, default_kernel};
use super::constraints::{Accuracy, TuningConstraints, TuningError};
use super::feedback::Book;
use super::gpu::{Extent, Machine, Tile, estimate, shortlist, tiles};
use super::occupancy::{Multiprocessor, Occupancy};
use super::strategy::{BackendPlan, Proposal, Proposed, Proposes};
use crate::device::{BackendKind, DeviceInfo};
use crate::ops::{Parameters, Workload};
use crate::sensors::{PowerMode, SystemState};
use crate::tensor::DType;
use crate::{Error, Result};

/// An NVIDIA GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CudaDevice {
    /// Its name.
    pub name: String,
    /// Major and minor compute capability.
    pub capability: (u8, u8),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Hertz of the multiprocessors.
    pub clock: Option<f64>,
    /// Measured bytes per second of its memory.
    pub bandwidth: Option<f64>,
    /// Measured seconds to start a kernel.
    pub launch: Option<f64>,
}

/// How operands get to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostMemory {
    /// Ordinary memory: one stream, copies wait.
    Pageable,
    /// Pinned memory: copies run beside kernels of other streams.
    Pinned,
    /// Shared addresses: more than the device holds.
    Unified,
}

/// What a launch needs beyond a kernel's tunables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CudaPlan {
    /// Threads of a block along each axis.
    pub block: [u32; 3],
    /// Blocks along each axis.
    pub grid: [u32; 3],
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Registers of a thread that were reckoned with.
    pub registers: u32,
    /// What runs at once on a multiprocessor.
    pub occupancy: Occupancy,
    /// The type that tensor cores compute in; `None` without them.
    pub tensor_cores: Option<TensorType>,
    /// Streams that together fill the device.
    pub streams: u32,
    /// How operands get there.
    pub host_memory: HostMemory,
}

/// Types that tensor cores take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorType {
    /// 16-bit IEEE floats.
    F16,
    /// 16-bit floats with the exponent of f32.
    Bf16,
    /// f32 rounded to 10 bits of fraction.
    Tf32,
    /// 64-bit floats.
    F64,
    /// 8-bit integers.
    Int8,
}

/// Registers for addresses and counters beside sums and operands: the median that NVRTC 12.9 used in plain tiled products
/// (tiles of 1 to 64 results, compute capability 5.0 to 12.0; 16 to 56 were seen).
const ADDRESSES: u32 = 37;
/// Blocks along the second and third axis of a grid, on every architecture (CUDA C++ Programming Guide).
const MOST_ROWS: u64 = 65_535;
/// Blocks along the first axis of a grid.
const MOST_COLUMNS: u64 = (1 << 31) - 1;

/// Tunes for one NVIDIA GPU.
#[derive(Debug)]
pub struct CudaStrategy {
    device: CudaDevice,
    multiprocessor: Multiprocessor,
    asking: DeviceInfo,
    book: Book,
}

impl CudaStrategy {
    /// For a device; an error for an architecture that is not in the table.
    pub fn new(device: CudaDevice) -> Result<Self> {
        let (major, minor) = device.capability;
        let multiprocessor = Multiprocessor::of(device.capability).ok_or_else(|| Error::Unsupported {
            what: format!("tuning for compute capability {major}.{minor}"),
            reason: "its limits are not in the table, which goes from 5.0 to 12.1".into(),
        })?;
        let asking = asking(BackendKind::Cuda, &device.name, device.memory.map(|bytes| bytes as usize));
        Ok(Self { device, multiprocessor, asking, book: Book::default() })
    }

    fn machine(&self, dtype: DType, tensor: Option<TensorType>) -> Machine {
        let device = &self.device;
        let plain = lanes(device.capability, dtype);
        Machine {
            units: device.multiprocessors,
            lanes: tensor.and_then(|tensor| tensor_lanes(device.capability, tensor)).unwrap_or(plain),
            latency: latency(device.capability),
            clock: device.clock,
            bandwidth: device.bandwidth,
            launch: device.launch,
        }
    }

    fn occupancy(&self, tile: &Tile, size: u64) -> (u32, Occupancy) {
        let registers = registers(tile, size);
        (registers, self.multiprocessor.occupancy(tile.threads(), registers, tile.shared(size)))
    }

    fn traits(&self, workload: &Workload) -> Result<(Characteristics, Extent)> {
        let (_, _, cost) = default_kernel(workload, &self.asking)?;
        let traits = Characteristics::of(workload, &cost, &self.asking);
        let extent = Extent::of(workload, &traits);
        Ok((traits, extent))
    }

    fn plan(&self, tile: &Tile, extent: &Extent, request: &Asked<'_>) -> Option<CudaPlan> {
        let (registers, occupancy) = self.occupancy(tile, extent.size);
        let [columns, rows, split] = tile.groups(extent);
        // More rows than a grid has are walked by each block in steps of the grid.
        let grid = [columns.min(MOST_COLUMNS) as u32, rows.min(MOST_ROWS) as u32, split as u32];
        if occupancy.blocks == 0 {
            return None;
        }
        let slots = u64::from(self.device.multiprocessors) * u64::from(occupancy.blocks);
        let blocks = columns.saturating_mul(rows).saturating_mul(split).max(1);
        let streams = match request.mode {
            PowerMode::Saving => 1,
            _ => (slots / blocks).clamp(1, grids(self.device.capability)) as u32,
        };
        let over = self.device.memory.is_some_and(|memory| request.bytes > memory as f64);
        let host_memory = match (over, streams) {
            (true, _) => HostMemory::Unified,
            (false, 1) => HostMemory::Pageable,
            _ => HostMemory::Pinned,
        };
        Some(CudaPlan {
            block: [tile.x, tile.y, 1],
            grid,
            shared: tile.shared(extent.size),
            registers,
            occupancy,
            tensor_cores: if extent.blocked { request.tensor } else { None },
            streams,
            host_memory,
        })
    }
}

/// What all proposals of a request have in common.
struct Asked<'a> {
    mode: PowerMode,
    bytes: f64,
    tensor: Option<TensorType>,
    constraints: &'a TuningConstraints,
}

impl Proposes for CudaStrategy {
    const BACKEND: BackendKind = BackendKind::Cuda;

    fn propose(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &TuningConstraints,
    ) -> Result<Proposed, TuningError> {
        let (traits, extent) = self.traits(workload)?;
        let mode = constraints.mode(state);
        let tensor = tensor_type(self.device.capability, traits.dtype, constraints.accuracy);
        let request = Asked { mode, bytes: traits.bytes, tensor, constraints };
        let machine = self.machine(traits.dtype, tensor.filter(|_| extent.blocked));
        let slots = |tile: &Tile| {
            u64::from(self.device.multiprocessors.max(1))
                * u64::from(self.occupancy(tile, extent.size).1.blocks)
        };
        let estimated = tiles(&extent, mode, slots).into_iter().map(|(tile, at_once)| {
            let blocks = (at_once / u64::from(self.device.multiprocessors.max(1))) as u32;
            (tile, estimate(&machine, &extent, &tile, blocks))
        });
        let short = shortlist(estimated.collect());
        let bound = short.first().and_then(|(_, found)| found.bound());
        let mut proposals = Vec::with_capacity(short.len());
        for (tile, found) in short {
            let Some(plan) = self.plan(&tile, &extent, &request) else { continue };
            proposals.push(Proposal {
                parameters: tile.parameters(request.constraints.level),
                plan: BackendPlan::Cuda(plan),
                seconds: found.seconds(),
                order: found.order,
                memory: (traits.bytes as u64).saturating_add(tile.partial(&extent)),
                threads: 1,
            });
        }
        let (major, minor) = self.device.capability;
        let reasons = vec![
            format!(
                "compute capability {major}.{minor}, {} multiprocessors, {mode:?}",
                self.device.multiprocessors
            ),
            tensor.map_or("no tensor cores for this type".into(), |t| format!("tensor cores in {t:?}")),
        ];
        Ok(Proposed { proposals, kernel: None, bound, characteristics: traits, reasons })
    }

    fn modelled(&self, workload: &Workload, parameters: &Parameters) -> Option<f64> {
        let (traits, extent) = self.traits(workload).ok()?;
        let tile = Tile::from_parameters(parameters);
        let (_, occupancy) = self.occupancy(&tile, extent.size);
        if occupancy.blocks == 0 {
            return None;
        }
        let tensor = tensor_type(self.device.capability, traits.dtype, Accuracy::Exact);
        let machine = self.machine(traits.dtype, tensor.filter(|_| extent.blocked));
        estimate(&machine, &extent, &tile, occupancy.blocks).seconds()
    }

    fn book(&self) -> &Book {
        &self.book
    }

    fn book_mut(&mut self) -> &mut Book {
        &mut self.book
    }
}

/// Sums, one row and one column of operands, and addresses; a number of eight bytes takes two registers.
fn registers(tile: &Tile, size: u64) -> u32 {
    let words = if size > 4 { 2 } else { 1 };
    ADDRESSES + words * (tile.rows * tile.columns + tile.rows + tile.columns)
}

/// Multiply-adds of a multiprocessor in a clock (CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions").
fn lanes(capability: (u8, u8), dtype: DType) -> f64 {
    let single = match capability {
        (6 | 8, 0) | (7, _) => 64.0,
        _ => 128.0,
    };
    if dtype.size() < 8 {
        return single;
    }
    match capability {
        (5, _) | (6, 1 | 2) => 4.0,
        (6..=8, 0) | (7, 2) => 32.0,
        (9 | 10, 0) => 64.0,
        _ => 2.0,
    }
}

/// Multiply-adds of a multiprocessor's tensor cores in a clock, dense, sums in 32 bits (64 for f64): NVIDIA's architecture white papers
/// of V100, T4, A100, GA102, H100, AD102 and Blackwell, peak rate ÷ (2 × multiprocessors × boost clock). `None` where
/// they do not tell; the plain units' rate counts then.
fn tensor_lanes(capability: (u8, u8), tensor: TensorType) -> Option<f64> {
    // Of 16-bit floats; 8-bit integers go twice as fast and TF32 half as fast on every one of them.
    let halves = match capability {
        (7, 0..=5) => 512.0,
        (8, 0) => 1024.0,
        // GeForce cards halve the rate where sums have 32 bits; workstation cards of the same design do not.
        (8, 6 | 9) | (12, _) => 256.0,
        (9, 0) => 2048.0,
        _ => return None,
    };
    let full = if matches!(capability, (8, 6 | 9) | (12, _)) { 2.0 * halves } else { halves };
    Some(match tensor {
        TensorType::F16 | TensorType::Bf16 => halves,
        TensorType::Tf32 => halves / 2.0,
        TensorType::Int8 => 2.0 * full,
        TensorType::F64 => halves / 16.0,
    })
}

/// Clocks until a result can be used: six before Volta, four since (NVIDIA's tuning guides for Pascal and Volta).
fn latency(capability: (u8, u8)) -> f64 {
    if capability.0 >= 7 { 4.0 } else { 6.0 }
}

/// Grids that can be resident at once (CUDA C++ Programming Guide).
fn grids(capability: (u8, u8)) -> u64 {
    match capability {
        (5, 3) | (6 | 7, 2) => 16,
        (5, _) | (6, 1) => 32,
        _ => 128,
    }
}

/// The type that tensor cores compute an operand's type in; narrower ones only where that is allowed.
fn tensor_type(capability: (u8, u8), dtype: DType, accuracy: Accuracy) -> Option<TensorType> {
    match dtype {
        DType::F16 => (capability >= (7, 0)).then_some(TensorType::F16),
        DType::BF16 => (capability >= (8, 0)).then_some(TensorType::Bf16),
        DType::F32 => (capability >= (8, 0) && accuracy == Accuracy::Reduced).then_some(TensorType::Tf32),
        DType::F64 => matches!(capability, (8..=10, 0)).then_some(TensorType::F64),
        DType::I8 | DType::U8 => (capability >= (7, 2)).then_some(TensorType::Int8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{matmul, relu};
    use super::super::{BackendTuningStrategy, TuningRecommendation};
    use super::*;
    use crate::ops::Knob;

    fn a100() -> CudaDevice {
        CudaDevice {
            name: "A100".into(),
            capability: (8, 0),
            multiprocessors: 108,
            memory: Some(40 << 30),
            clock: Some(1.41e9),
            bandwidth: Some(1.4e12),
            launch: None,
        }
    }

    fn ask(workload: &Workload, constraints: &TuningConstraints) -> (TuningRecommendation, CudaPlan) {
        let mut strategy = CudaStrategy::new(a100()).unwrap();
        let found = strategy.tune_for_workload(workload, &SystemState::default(), constraints).unwrap();
        let BackendPlan::Cuda(plan) = found.best.plan.clone() else { panic!("{found:?}") };
        (found, plan)
    }

    #[test]
    fn large_products_get_large_tiles_and_small_ones_fill_the_device() {
        let none = TuningConstraints::default();
        let (found, plan) = ask(&matmul(4096, 4096, 4096), &none);
        let tile = Tile::from_parameters(&found.best.parameters);
        assert!(tile.rows * tile.columns >= 16, "{tile:?}");
        assert!(plan.occupancy.blocks > 0 && plan.tensor_cores.is_none());
        let covered = u64::from(plan.grid[0]) * u64::from(tile.x * tile.columns);
        assert!(covered >= 4096, "{covered}");
        let (found, _) = ask(&matmul(64, 64, 65_536), &none);
        assert!(found.best.parameters.get(Knob::Split).unwrap() > 1, "{:?}", found.best.parameters);
        assert!(found.best.expected.unwrap().seconds > 0.0);
    }

    #[test]
    fn modes_change_streams_and_splits() {
        let mode = |m| TuningConstraints { power_mode: Some(m), ..Default::default() };
        let work = matmul(64, 64, 65_536);
        let (fast, _) = ask(&work, &mode(PowerMode::Performance));
        let (frugal, plan) = ask(&work, &mode(PowerMode::Saving));
        assert!(fast.best.parameters.get(Knob::Split) > Some(1));
        assert_eq!((frugal.best.parameters.get(Knob::Split), plan.streams), (Some(1), 1));
        let (_, plan) = ask(&relu(&[4096], None), &mode(PowerMode::Performance));
        assert!(plan.streams > 1);
        assert_eq!(plan.host_memory, HostMemory::Pinned);
    }

    #[test]
    fn tensor_cores_follow_architecture_type_and_permission() {
        let (exact, reduced) = (Accuracy::Exact, Accuracy::Reduced);
        assert_eq!(tensor_type((8, 0), DType::F32, exact), None);
        assert_eq!(tensor_type((8, 0), DType::F32, reduced), Some(TensorType::Tf32));
        assert_eq!(tensor_type((7, 5), DType::F32, reduced), None);
        assert_eq!(tensor_type((7, 0), DType::F16, exact), Some(TensorType::F16));
        assert_eq!(tensor_type((6, 1), DType::F16, exact), None);
        assert_eq!(tensor_type((7, 5), DType::BF16, exact), None);
        assert_eq!(tensor_type((8, 6), DType::F64, exact), None);
        assert_eq!(tensor_type((9, 0), DType::F64, exact), Some(TensorType::F64));
        let (_, plan) =
            ask(&matmul(256, 256, 256), &TuningConstraints { accuracy: reduced, ..Default::default() });
        assert_eq!(plan.tensor_cores, Some(TensorType::Tf32));
    }

    #[test]
    fn tensor_cores_make_products_faster() {
        let work = matmul(4096, 4096, 4096);
        let seconds = |accuracy| {
            let constraints = TuningConstraints { accuracy, ..Default::default() };
            ask(&work, &constraints).0.best.expected.unwrap().seconds
        };
        assert!(seconds(Accuracy::Reduced) < 0.8 * seconds(Accuracy::Exact));
        // 312 Tflop/s in f16 and 19.5 in f64 are what the A100's data sheet has.
        let peak = |tensor| tensor_lanes((8, 0), tensor).unwrap() * 2.0 * 108.0 * 1.41e9;
        assert!((peak(TensorType::F16) / 312e12 - 1.0).abs() < 0.01, "{}", peak(TensorType::F16));
        assert!((peak(TensorType::F64) / 19.5e12 - 1.0).abs() < 0.01, "{}", peak(TensorType::F64));
        assert_eq!(tensor_lanes((10, 3), TensorType::F16), None);
    }

    #[test]
    fn the_state_of_the_gpu_counts_and_not_the_processors() {
        let gpu = |temperature, throttle| crate::sensors::GpuState {
            temperature: Some(temperature),
            throttle: Some(throttle),
            power: Some(250.0),
            power_limit: Some(300.0),
            ..Default::default()
        };
        let state = SystemState {
            temperature: Some(95.0),
            gpus: vec![gpu(60.0, vec![]), gpu(91.0, vec![crate::sensors::Throttle::Heat])],
            ..Default::default()
        };
        let mut strategy = CudaStrategy::new(a100()).unwrap();
        let work = matmul(64, 64, 65_536);
        let mut ask = |gpu: usize, constraints: &TuningConstraints| {
            strategy.tune_for_workload(&work, &state.of_gpu(gpu).unwrap(), constraints)
        };
        let cool = TuningConstraints { temperature: Some(80.0), ..Default::default() };
        assert!(ask(0, &cool).is_ok(), "the processor is hot, this GPU is not");
        let error = ask(1, &cool).unwrap_err().to_string();
        assert_eq!(error, "temperature of at most 80 °C cannot be met; the nearest that can is 91 °C");
        let none = TuningConstraints::default();
        let split = |found: &TuningRecommendation| found.best.parameters.get(Knob::Split);
        assert!(split(&ask(0, &none).unwrap()) > Some(1));
        assert_eq!(split(&ask(1, &none).unwrap()), Some(1), "a throttled GPU saves power");
        let capped = TuningConstraints { power: Some(300.0), ..Default::default() };
        assert!(ask(0, &capped).is_ok(), "the card never draws more");
        assert!(ask(0, &TuningConstraints { power: Some(200.0), ..Default::default() }).is_err());
        assert_eq!(state.of_gpu(2), None);
    }

    #[test]
    fn an_unknown_architecture_is_an_error() {
        let error = CudaStrategy::new(CudaDevice { capability: (4, 2), ..a100() }).unwrap_err().to_string();
        assert!(error.contains("compute capability 4.2"), "{error}");
    }

    #[test]
    fn what_the_device_cannot_hold_is_shared() {
        let mut strategy = CudaStrategy::new(CudaDevice { memory: Some(1 << 20), ..a100() }).unwrap();
        let none = TuningConstraints::default();
        let found =
            strategy.tune_for_workload(&matmul(2048, 2048, 64), &SystemState::default(), &none).unwrap();
        let BackendPlan::Cuda(plan) = found.best.plan else { panic!() };
        assert_eq!(plan.host_memory, HostMemory::Unified);
    }
}
