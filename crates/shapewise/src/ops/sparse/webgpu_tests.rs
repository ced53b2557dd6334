//! Products of every format against the reference; workloads come from calls, because only those make them.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;
use crate::backends::webgpu::testing::{agree, every_knob_counts, limits};
use crate::device::DeviceInfo;
use crate::ops::sparse::SparseMatrix;
use crate::ops::{
    Call, ComputeUnit, Cost, Kernel, KernelError, Knob, OperationKind, Parameters, Refusals, Traffic,
};
use crate::{Runtime, Tensor};

/// A kernel that takes nothing and remembers what it was asked for.
struct Spy(Arc<Mutex<Option<Workload>>>);

impl Kernel for Spy {
    fn name(&self) -> &'static str {
        "test::sparse::spy"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Sparse
    }

    fn supports(&self, workload: &Workload, _: &DeviceInfo) -> Result<(), Refusals> {
        *self.0.lock().unwrap() = Some(workload.clone());
        Err(Refusals::one(Refusal::Shape("nothing".into())))
    }

    fn cost(&self, _: &Workload, _: &Parameters, _: &DeviceInfo) -> Cost {
        Cost::new(0.0, ComputeUnit { dtype: DType::F32, isa: None }, Traffic::default())
    }

    fn launch(&self, _: &mut Call<'_>) -> Result<(), KernelError> {
        Err(KernelError("takes nothing".into()))
    }
}

/// The workload of a call.
fn asked(call: impl FnOnce(&Runtime)) -> Workload {
    let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
    let seen = Arc::new(Mutex::new(None));
    rt.kernels().register(Arc::new(Spy(Arc::clone(&seen)))).unwrap();
    call(&rt);
    let workload = seen.lock().unwrap().take();
    workload.expect("the registry asks every kernel")
}

/// About one of `sparse` entries of a matrix, as CSR.
fn matrix(rows: usize, columns: usize, sparse: usize) -> SparseMatrix {
    let (mut offsets, mut indices) = (vec![0u32], Vec::new());
    for row in 0..rows {
        indices.extend(
            (0..columns as u32).filter(|&c| (row * 7 + c as usize * (13 + row)).is_multiple_of(sparse)),
        );
        offsets.push(indices.len() as u32);
    }
    let n = indices.len();
    let values = Tensor::full(1.0f32, &[n]).unwrap();
    let indices = Tensor::from_vec(indices, &[n]).unwrap();
    let offsets = Tensor::from_vec(offsets, &[rows + 1]).unwrap();
    SparseMatrix::csr(&values, &indices, &offsets, [rows, columns]).unwrap()
}

#[test]
fn vectors_and_matrices() {
    for (rows, columns, sparse, n) in
        [(1, 1, 1, 1), (5, 7, 2, 1), (40, 30, 3, 1), (40, 30, 9, 5), (3, 500, 1, 8), (200, 3, 5, 2)]
    {
        let a = matrix(rows, columns, sparse);
        let x = Tensor::full(1.0f32, &[columns, n]).unwrap();
        let w = asked(|rt| drop(rt.sparse_matmul(&a, &x).unwrap()));
        assert!(agree(WEBGPU_KERNELS, &w) >= 3, "{rows} {columns} {sparse} {n}");
    }
}

/// The length of a share is a number that shaders are told, so it changes what they are given and not what they are.
#[test]
fn every_tunable_counts() {
    let a = matrix(40, 30, 2);
    let x = Tensor::full(1.0f32, &[30, 5]).unwrap();
    let w = asked(|rt| drop(rt.sparse_matmul(&a, &x).unwrap()));
    every_knob_counts(&merge::Merge, &w, &[Knob::WorkgroupX]);
    every_knob_counts(&rows::ROWS, &w, &[Knob::TileN, Knob::WorkgroupX]);
    let runs: Vec<_> = merge::Merge
        .space(&w, limits())
        .points()
        .iter()
        .filter(|p| p.get(Knob::WorkgroupX) == Some(64))
        .map(|p| merge::Merge.plan(&w, p, limits()).dispatches)
        .collect();
    assert!(runs.len() == 2 && runs[0] != runs[1]);
}

#[test]
fn other_formats() {
    let a = matrix(12, 20, 3);
    let x = Tensor::full(1.0f32, &[20, 5]).unwrap();
    for format in [SparseFormat::Coo, SparseFormat::Ell, SparseFormat::Bsr { rows: 3, columns: 4 }] {
        let stored = a.to_format(format).unwrap();
        let w = asked(|rt| drop(rt.sparse_matmul(&stored, &x).unwrap()));
        assert!(agree(WEBGPU_KERNELS, &w) > 0, "{format}");
    }
    let turned = a.to_format(SparseFormat::Csc).unwrap();
    let w = asked(|rt| drop(rt.sparse_matmul(&turned, &x).unwrap()));
    assert!(rows::ROWS.supports(&w, limits()).unwrap_err().to_string().contains("csc"));
}

#[test]
fn something_added_and_turned_operands() {
    let a = matrix(20, 30, 4);
    let x = Tensor::full(1.0f32, &[6, 30]).unwrap().transpose();
    let bias = Tensor::full(0.5f32, &[20, 6]).unwrap();
    let w = asked(|rt| drop(rt.sparse_linear(&a, &x, &bias).unwrap()));
    assert!(agree(WEBGPU_KERNELS, &w) > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]
    #[test]
    fn any_matrix(rows in 1usize..60, columns in 1usize..60, sparse in 1usize..12, n in 1usize..7) {
        let a = matrix(rows, columns, sparse);
        let x = Tensor::full(1.0f32, &[columns, n]).unwrap();
        let w = asked(|rt| drop(rt.sparse_matmul(&a, &x).unwrap()));
        prop_assert!(agree(WEBGPU_KERNELS, &w) > 0);
    }
}
