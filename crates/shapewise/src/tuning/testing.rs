//! Made-up devices and workloads for the tests of this room.

use crate::backends::cpu::simd::Isa;
use crate::device::{ArithmeticPeak, BackendKind, BandwidthPeak, Caches, DeviceInfo, Level, Peaks};
use crate::ops::elementwise::Program;
use crate::ops::matmul::MatmulAttributes;
use crate::ops::reduce::{ReduceAttributes, ReduceKind};
use crate::ops::{ComputeUnit, Operation, TensorDesc, Workload};
use crate::tensor::{DType, Shape, Strides};

/// A CPU of eight threads on four cores, with peaks as if they had been measured.
pub fn device() -> DeviceInfo {
    let isas = [None, Some(Isa::Portable), Some(Isa::Avx2)];
    let mut arithmetic = Vec::new();
    for (isa, rate) in isas.into_iter().zip([0.5e9, 2e9, 20e9]) {
        for dtype in [DType::F32, DType::F64] {
            for (threads, scale) in [(1, 1.0), (4, 4.0), (8, 4.4)] {
                let unit = ComputeUnit { dtype, isa };
                arithmetic.push(ArithmeticPeak { unit, threads, operations_per_second: rate * scale });
            }
        }
    }
    let mut bandwidth = Vec::new();
    for (level, rate, most) in [
        (Level::L1, 100e9, 4.0f64),
        (Level::L2, 50e9, 4.0),
        (Level::L3, 25e9, 3.0),
        (Level::Memory, 10e9, 2.2),
    ] {
        for (threads, scale) in [(1, 1.0), (2, most.min(1.9)), (4, most), (8, most)] {
            let (read, copy, stream) = (rate * scale, rate * scale, rate * scale);
            bandwidth.push(BandwidthPeak { level, threads, read, copy, stream });
        }
    }
    DeviceInfo {
        backend: BackendKind::Cpu,
        name: "Example CPU".into(),
        model: None,
        features: Vec::new(),
        cores: 8,
        physical_cores: Some(4),
        threads: 8,
        isas: vec![Isa::Portable, Isa::Avx2],
        caches: Caches { l1d: Some(32 << 10), l2: Some(512 << 10), l3: Some(8 << 20) },
        l3_groups: Vec::new(),
        numa: Vec::new(),
        memory: Some(16 << 30),
        peaks: Some(Peaks { arithmetic, bandwidth, hand_off: Some(1e-6), wake: Some(5e-5), busy: false }),
    }
}

fn desc(dtype: DType, shape: &[usize], strides: Option<&[isize]>) -> TensorDesc {
    let mut desc = TensorDesc::contiguous(dtype, Shape::new(shape).unwrap());
    if let Some(strides) = strides {
        desc.strides = Strides::new(strides).unwrap();
    }
    desc
}

/// m×k times k×n.
pub fn typed_matmul(m: usize, n: usize, k: usize, dtype: DType) -> Workload {
    let [a, b, c] = [[m, k], [k, n], [m, n]].map(|shape| desc(dtype, &shape, None));
    Workload::new(Operation::Matmul(MatmulAttributes::default()), &[a, b], &[c])
}

/// The same in f32.
pub fn matmul(m: usize, n: usize, k: usize) -> Workload {
    typed_matmul(m, n, k, DType::F32)
}

/// relu of an f32 tensor of any strides.
pub fn relu(shape: &[usize], strides: Option<&[isize]>) -> Workload {
    let program = Program::build(1, |x| x[0].relu()).unwrap();
    let operands = [desc(DType::F32, shape, strides), desc(DType::F32, shape, None)];
    Workload::new(Operation::Elementwise(program), &operands[..1], &operands[1..])
}

/// The sum of each row.
pub fn sum_of_rows(rows: usize, columns: usize, dtype: DType) -> Workload {
    let attributes = ReduceAttributes { kind: ReduceKind::Sum, axes: 1 };
    let operands = [desc(dtype, &[rows, columns], None), desc(dtype, &[rows], None)];
    Workload::new(Operation::Reduce(attributes), &operands[..1], &operands[1..])
}
