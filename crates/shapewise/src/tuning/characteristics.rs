//! Numbers that follow from a workload and from what a kernel executes for it. Each has a formula; none is typed in.

use std::fmt;

use serde::Serialize;

use crate::device::{BackendKind, Caches, DeviceInfo};
use crate::modelling::Terms;
use crate::ops::{
    Constraint, Cost, Kernel, Operation, OperationKind, Parameters, Refusals, TensorDesc, Workload,
};
use crate::tensor::DType;
use crate::{Error, Result};

/// How memory is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessPattern {
    /// Neighbours after neighbours: every operand is row-major without gaps.
    Sequential,
    /// Neighbours lie this many elements apart: the largest inner distance of an operand.
    Strided(usize),
    /// Where data or indices say: gather, scatter, sort.
    Random,
    /// Blocks that are used again: products, convolutions, attention, recurrent layers.
    Blocked,
    /// Ever wider passes: Fourier transforms.
    Hierarchical,
    /// Entries of a sparse matrix.
    Sparse,
}

/// What limits a workload, by the roofline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// A cache's or the memory's bandwidth.
    Bandwidth,
    /// Steps that wait for one another: each is handed to threads anew, and that takes longer than the work.
    Latency,
    /// Handing work to threads once, or starting it on a GPU.
    Launch,
    /// Nothing: there is no work.
    Nothing,
}

/// What a workload is like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Characteristics {
    /// The operation.
    pub operation: OperationKind,
    /// The type of the first result.
    pub dtype: DType,
    /// Arithmetic operations, as the kernel counts them.
    pub operations: f64,
    /// Bytes of all operands, each counted once.
    pub bytes: f64,
    /// Results: elements of all outputs.
    pub results: f64,
    /// How memory is walked.
    pub pattern: AccessPattern,
    /// Operations ÷ bytes; zero without bytes.
    pub intensity: f64,
    /// Bytes per second that keep the kernel's arithmetic unit busy: its measured peak ÷ intensity.
    pub bandwidth_need: Option<f64>,
    /// Independent results ÷ cores.
    pub parallelism: f64,
    /// What the threads work on ÷ the size of the first, second and third cache; above one it does not fit.
    pub locality: [Option<f64>; 3],
    /// The share of branches that can be foreseen: 1 where the shape alone decides, ½ where random data does; `None`
    /// where it depends on the data.
    pub predictability: Option<f64>,
    /// The share of lanes that hold elements when the innermost axis is cut into vectors; 0 where neighbours lie apart.
    pub vectorisation: f64,
}

impl Characteristics {
    /// Of a workload and what a kernel executes for it on a device.
    pub fn of(workload: &Workload, cost: &Cost, device: &DeviceInfo) -> Self {
        let bytes = workload.bytes() as f64;
        let results = workload.outputs().iter().map(TensorDesc::len).sum::<usize>() as f64;
        let intensity = if bytes > 0.0 { cost.operations / bytes } else { 0.0 };
        let peak = device.peaks.as_ref().and_then(|peaks| peaks.arithmetic(cost.unit, device.threads));
        let dtype = workload.outputs().first().map_or(DType::F32, |o| o.dtype);
        Self {
            operation: workload.kind(),
            dtype,
            operations: cost.operations,
            bytes,
            results,
            pattern: pattern(workload),
            intensity,
            bandwidth_need: peak.filter(|_| intensity > 0.0).map(|peak| peak / intensity),
            parallelism: results / device.cores.max(1) as f64,
            locality: locality(workload, device),
            predictability: predictability(workload.kind()),
            vectorisation: vectorisation(workload, vector_bytes(device)),
        }
    }

    /// Rows, columns and depth of the product that a blocked workload is: columns are the last axis of the result, rows
    /// its other elements, and the depth is what the operations leave, two for each product.
    pub fn extent(&self, workload: &Workload) -> [u64; 3] {
        let last =
            workload.outputs().first().and_then(|o| o.shape.last().copied()).unwrap_or(1).max(1) as f64;
        let rows = (self.results / last).max(1.0);
        let depth = (self.operations / (2.0 * self.results.max(1.0))).max(1.0);
        [rows as u64, last as u64, depth as u64]
    }
}

impl Bound {
    /// What takes longest of the resources' times, for work whose threads meet so many times.
    pub fn of(terms: &Terms, forks: u32) -> Self {
        let slowest = terms.levels.iter().copied().fold(0.0, f64::max);
        if terms.seconds() <= 0.0 {
            Self::Nothing
        } else if terms.hand_over > terms.arithmetic.max(slowest) {
            if forks > 1 { Self::Latency } else { Self::Launch }
        } else if terms.arithmetic >= slowest {
            Self::Compute
        } else {
            Self::Bandwidth
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Compute => "compute",
            Self::Bandwidth => "bandwidth",
            Self::Latency => "latency",
            Self::Launch => "launch",
            Self::Nothing => "nothing",
        })
    }
}

/// The first kernel of the operation's list that takes the workload, at its favourite point, and what it costs.
pub(super) fn default_kernel(
    workload: &Workload,
    device: &DeviceInfo,
) -> Result<(&'static dyn Kernel, Parameters, Cost)> {
    let kernels = workload.kind().kernels();
    // Reasons are put into words only when nobody accepts: most kernels of a list want other instructions.
    let lacks = |c: &Constraint| matches!(c, Constraint::Isa(isa) if !device.isas.contains(isa));
    for &kernel in kernels.iter().filter(|k| !k.constraints().iter().any(lacks)) {
        if kernel.supports(workload, device).is_ok()
            && let Some(point) = kernel.space(workload, device).points().first()
        {
            return Ok((kernel, point.clone(), kernel.cost(workload, point, device)));
        }
    }
    let refusal = |kernel: &&'static dyn Kernel| {
        Some((kernel.name().to_owned(), kernel.supports(workload, device).err()?))
    };
    let refusals: Vec<(String, Refusals)> = kernels.iter().filter_map(refusal).collect();
    Err(Error::NoKernel { workload: workload.to_string(), refusals })
}

/// A device for asking how much a workload computes where no kernels of the real one are listed yet: it has plain vectors.
pub(super) fn asking(backend: BackendKind, name: &str, memory: Option<usize>) -> DeviceInfo {
    DeviceInfo {
        backend,
        name: name.to_owned(),
        model: None,
        features: Vec::new(),
        cores: 1,
        physical_cores: None,
        threads: 1,
        isas: vec![crate::backends::cpu::simd::Isa::Portable],
        caches: Caches::default(),
        l3_groups: Vec::new(),
        numa: Vec::new(),
        memory,
        peaks: None,
    }
}

fn pattern(workload: &Workload) -> AccessPattern {
    match workload.kind() {
        OperationKind::Gather | OperationKind::Scatter | OperationKind::Sort => AccessPattern::Random,
        OperationKind::Sparse => AccessPattern::Sparse,
        OperationKind::Fft => AccessPattern::Hierarchical,
        OperationKind::Matmul
        | OperationKind::PackedMatmul
        | OperationKind::IntegerMatmul
        | OperationKind::QuantizedMatmul
        | OperationKind::Conv
        | OperationKind::Attention
        | OperationKind::Rnn => AccessPattern::Blocked,
        _ => {
            let apart = workload.operands().iter().filter(|o| !o.is_contiguous()).map(|o| inner(o).1).max();
            apart.map_or(AccessPattern::Sequential, AccessPattern::Strided)
        }
    }
}

/// Elements of the innermost axis with more than one, and how far apart they lie.
fn inner(operand: &TensorDesc) -> (usize, usize) {
    let axes = operand.shape.iter().zip(operand.strides.iter()).rev();
    axes.filter(|&(&size, _)| size > 1)
        .map(|(&size, &stride)| (size, stride.unsigned_abs()))
        .next()
        .unwrap_or((1, 1))
}

/// The first and second cache are a core's own and hold what one thread works on: its share of all operands, but of
/// operands that are used again by every thread (all inputs of a blocked workload but the first) the whole. The third holds
/// what all threads work on, or its share where there are several.
fn locality(workload: &Workload, device: &DeviceInfo) -> [Option<f64>; 3] {
    let caches = &device.caches;
    let all = workload.bytes() as f64;
    let common: usize = match pattern(workload) {
        AccessPattern::Blocked => workload.inputs().iter().skip(1).map(TensorDesc::bytes).sum(),
        _ => 0,
    };
    let common = (common as f64).min(all);
    let own = |parts: usize| (all - common) / parts.max(1) as f64 + common;
    let sets = [own(device.threads), own(device.threads), own(device.l3_groups.len().min(device.threads))];
    let sizes = [caches.l1d, caches.l2, caches.l3];
    std::array::from_fn(|i| sizes[i].filter(|&size| size > 0).map(|size| sets[i] / size as f64))
}

/// Loops over shapes are always the same; comparisons of random data are right half of the time.
fn predictability(operation: OperationKind) -> Option<f64> {
    match operation {
        OperationKind::Sort => Some(0.5),
        OperationKind::Sparse | OperationKind::Gather | OperationKind::Scatter => None,
        _ => Some(1.0),
    }
}

/// Bytes of the widest vectors that kernels may use.
fn vector_bytes(device: &DeviceInfo) -> usize {
    device.isas.iter().map(|isa| isa.register_bytes()).max().unwrap_or(1)
}

fn vectorisation(workload: &Workload, vector: usize) -> f64 {
    // Random and data-dependent walks read one element at a time.
    if matches!(workload.operation(), Operation::Gather(_) | Operation::Scatter(_) | Operation::Sparse(_)) {
        return 0.0;
    }
    let Some(operand) = workload.inputs().iter().max_by_key(|o| o.len()) else { return 0.0 };
    let (run, apart) = inner(operand);
    if apart > 1 || operand.is_empty() {
        return 0.0;
    }
    let lanes = (vector / operand.dtype.size()).max(1);
    // Contiguous operands are one long line, whatever their last axis is.
    let run = if operand.is_contiguous() { operand.len() } else { run };
    run as f64 / (run.div_ceil(lanes) * lanes) as f64
}

#[cfg(test)]
mod tests {
    use super::super::testing::{device, matmul, relu, sum_of_rows};
    use super::*;
    use crate::ops::{ComputeUnit, Traffic};

    fn cost(operations: f64) -> Cost {
        Cost::new(operations, ComputeUnit { dtype: DType::F32, isa: None }, Traffic::default())
    }

    #[test]
    fn a_product_of_known_size() {
        let (workload, device) = (matmul(64, 32, 128), device());
        let found = Characteristics::of(&workload, &cost(2.0 * 64.0 * 32.0 * 128.0), &device);
        assert_eq!(found.bytes, 4.0 * (64.0 * 128.0 + 128.0 * 32.0 + 64.0 * 32.0));
        assert_eq!(found.results, 64.0 * 32.0);
        assert_eq!(found.pattern, AccessPattern::Blocked);
        assert!((found.intensity - 524_288.0 / 57_344.0).abs() < 1e-12);
        assert_eq!(found.parallelism, 2048.0 / 8.0);
        // A thread of eight has its eighth of the rows and of the result, and the whole right operand.
        let own = (32_768.0 + 8192.0) / 8.0 + 16_384.0;
        assert_eq!(found.locality[..2], [Some(own / 32_768.0), Some(own / 524_288.0)]);
        assert_eq!(found.locality[2], Some(57_344.0 / 8_388_608.0));
        assert_eq!((found.predictability, found.vectorisation), (Some(1.0), 1.0));
        assert_eq!(found.extent(&workload), [64, 32, 128]);
        let need = 2.2e9 / found.intensity;
        let measured = found.bandwidth_need.unwrap();
        assert!((measured - need).abs() < 1e-3 * need, "{measured} {need}");
    }

    #[test]
    fn patterns_follow_operation_and_layout() {
        let (device, c) = (device(), cost(1.0));
        let of = |w: &Workload| Characteristics::of(w, &c, &device).pattern;
        assert_eq!(of(&relu(&[8, 8], None)), AccessPattern::Sequential);
        assert_eq!(of(&relu(&[8, 8], Some(&[1, 8]))), AccessPattern::Strided(8));
        assert_eq!(of(&sum_of_rows(8, 8, DType::F32)), AccessPattern::Sequential);
    }

    #[test]
    fn patterns_that_data_and_algorithms_make() {
        use crate::ops::fft::FftOptions;
        use crate::ops::quantize::IntegerOptions;
        use crate::ops::sort::Order;
        let rt = crate::Runtime::builder().threads(1).without_calibration().build().unwrap();
        let zeros = |shape: &[usize], dtype| crate::Tensor::zeros(shape, dtype).unwrap();
        let (table, rows) = (zeros(&[9, 4], DType::F32), zeros(&[3], DType::I64));
        let (line, waves) = (zeros(&[64], DType::F32), zeros(&[64], DType::C32));
        let small = zeros(&[8, 8], DType::I8);
        let ask = [
            (rt.workloads(|rt| rt.embedding(&table, &rows)), AccessPattern::Random),
            (rt.workloads(|rt| rt.sort(&line, -1, Order::Ascending)), AccessPattern::Random),
            (rt.workloads(|rt| rt.fft(&waves, &FftOptions::default())), AccessPattern::Hierarchical),
            (
                rt.workloads(|rt| rt.matmul_integer(&small, &small, &IntegerOptions::default())),
                AccessPattern::Blocked,
            ),
        ];
        for (workloads, expected) in ask {
            let workload = workloads.unwrap().remove(0);
            assert_eq!(pattern(&workload), expected, "{workload}");
        }
        let matrix = crate::ops::sparse::SparseMatrix::from_dense(&table).unwrap();
        let x = zeros(&[4], DType::F32);
        let workload = rt.workloads(|rt| rt.sparse_matmul(&matrix, &x)).unwrap().remove(0);
        assert_eq!(pattern(&workload), AccessPattern::Sparse);
        assert_eq!(predictability(workload.kind()), None);
    }

    #[test]
    fn lanes_that_hold_elements() {
        let (device, c) = (device(), cost(1.0));
        let of = |w: &Workload| Characteristics::of(w, &c, &device).vectorisation;
        assert_eq!(of(&relu(&[16], None)), 1.0);
        assert_eq!(of(&relu(&[9], None)), 9.0 / 16.0);
        assert_eq!(of(&relu(&[8, 8], Some(&[1, 8]))), 0.0);
        assert_eq!(of(&relu(&[0], None)), 0.0);
    }

    #[test]
    fn nothing_to_do_has_no_intensity() {
        let found = Characteristics::of(&relu(&[0], None), &cost(0.0), &device());
        assert_eq!((found.bytes, found.intensity, found.results), (0.0, 0.0, 0.0));
        assert_eq!(found.bandwidth_need, None);
        assert_eq!(found.extent(&relu(&[0], None)), [1, 1, 1]);
    }

    #[test]
    fn the_slowest_resource_names_the_bound() {
        let terms =
            |arithmetic, memory, hand_over| Terms { arithmetic, levels: [0.0, 0.0, 0.0, memory], hand_over };
        assert_eq!(Bound::of(&terms(2.0, 1.0, 0.5), 9), Bound::Compute);
        assert_eq!(Bound::of(&terms(1.0, 2.0, 0.5), 9), Bound::Bandwidth);
        assert_eq!(Bound::of(&terms(1.0, 2.0, 2.5), 1), Bound::Launch);
        assert_eq!(Bound::of(&terms(1.0, 2.0, 2.5), 9), Bound::Latency, "steps that wait for one another");
        assert_eq!(Bound::of(&Terms::default(), 0), Bound::Nothing);
    }

    #[test]
    fn the_default_is_the_first_that_accepts() {
        let device = device();
        let (kernel, _, cost) = default_kernel(&matmul(64, 64, 64), &device).unwrap();
        assert!(kernel.name().starts_with("cpu::matmul::"), "{}", kernel.name());
        assert!(cost.operations >= 2.0 * 64.0f64.powi(3));
    }
}
