//! The workloads that are tuned by default: what networks and scientific programs call, from tiny to large.

use std::collections::HashSet;

use anyhow::{Context, Result};
use shapewise::ops::Workload;
use shapewise::{DType, Runtime, Tensor};

use crate::question::{self, Attributes};
use crate::sparse;

/// An operation at several sizes: its name, and for each size the shapes of its operands.
type Ladder = (&'static str, &'static [&'static [&'static str]]);

const LADDERS: &[Ladder] = &[
    (
        "matmul",
        &[
            &["16x16", "16x16"],
            &["32x32", "32x32"],
            &["64x64", "64x64"],
            &["128x128", "128x128"],
            &["256x256", "256x256"],
            &["512x512", "512x512"],
            &["1024x1024", "1024x1024"],
            &["1x256", "256x256"],
            &["1x1024", "1024x1024"],
            &["1x2048", "2048x2048"],
            &["8x512", "512x512"],
            &["8x2048", "2048x2048"],
        ],
    ),
    (
        "conv2d",
        &[
            &["1x64x56x56", "64x64x3x3"],
            &["1x128x28x28", "128x128x3x3"],
            &["1x256x14x14", "256x256x3x3"],
            &["1x3x112x112", "32x3x7x7"],
            &["1x64x56x56", "64x1x3x3"],
            &["1x256x28x28", "64x256x1x1"],
            &["1x512x14x14", "128x512x1x1"],
        ],
    ),
    ("attention", &[&["8x64x64", "8x64x64", "8x64x64"], &["8x256x64", "8x256x64", "8x256x64"]]),
    ("add", &[&["1000", "1000"], &["30000", "30000"], &["1000000", "1000000"], &["6000000", "6000000"]]),
    ("gelu", &[&["1000"], &["30000"], &["1000000"], &["6000000"]]),
    ("sum", &[&["1000"], &["100000"], &["1000000"], &["10000000"]]),
    ("softmax", &[&["16x64"], &["64x512"], &["256x1000"], &["1024x2000"]]),
    ("layer_norm", &[&["16x64"], &["64x512"], &["256x768"], &["1024x2048"]]),
    ("transpose", &[&["64x64"], &["256x256"], &["1024x1024"], &["2000x2000"]]),
    ("cumsum", &[&["16x1000"], &["1000x1000"]]),
    ("fft", &[&["256"], &["4096"], &["65536"], &["262144"], &["1000"], &["64x1000"]]),
    ("rfft", &[&["1024"], &["16384"], &["262144"]]),
    ("sort", &[&["1000"], &["30000"], &["1000000"]]),
    ("max_pool", &[&["1x64x56x56"], &["1x64x112x112"]]),
    ("embedding", &[&["1000x64", "256"], &["30000x128", "2000"]]),
    ("lstm", &[&["16x4x128", "512x128", "512x128"]]),
    ("spmv", &[&["1000x1000"], &["30000x30000"], &["200000x200000"]]),
];

/// Entries in each row of the sparse matrices: those of a finite-difference grid in three dimensions, and a few more.
const NONZEROS: usize = 10;

/// The workloads, operation by operation; only those of operations whose name contains `only`, if given.
pub fn workloads(runtime: &Runtime, only: Option<&str>) -> Result<Vec<Workload>> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    for (name, sizes) in LADDERS {
        for shapes in *sizes {
            let workload = workload(runtime, name, shapes)?;
            let wanted = only.is_none_or(|part| name.contains(part) || workload.kind().name().contains(part));
            if wanted && known.insert(workload.key()) {
                found.push(workload);
            }
        }
    }
    let names = || LADDERS.iter().map(|l| l.0).collect::<Vec<_>>().join(", ");
    anyhow::ensure!(!found.is_empty(), "--only matches nothing that is tuned; use a part of {}", names());
    Ok(found)
}

fn workload(runtime: &Runtime, name: &str, shapes: &[&str]) -> Result<Workload> {
    let shapes = shapes.iter().map(|text| question::shape(text)).collect::<Result<Vec<_>>>()?;
    if let Some(workload) = sparse::workload(runtime, name, &shapes, DType::F32, NONZEROS)? {
        return Ok(workload);
    }
    let dtype = |i: usize| match name {
        "fft" => DType::C32,
        "embedding" if i == 1 => DType::I64,
        _ => DType::F32,
    };
    let tensors = shapes.iter().enumerate().map(|(i, shape)| Tensor::zeros(shape, dtype(i)));
    let tensors = tensors.collect::<shapewise::Result<Vec<_>>>()?;
    question::workload_of(runtime, name, &tensors, &Attributes::default())
        .with_context(|| format!("{name} of the default suite"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_covers_the_operations_and_can_be_narrowed() {
        let runtime = Runtime::builder().threads(1).without_calibration().build().unwrap();
        let all = workloads(&runtime, None).unwrap();
        let kinds: HashSet<_> = all.iter().map(Workload::kind).collect();
        assert!(all.len() >= 60 && kinds.len() >= 13, "{} workloads, {} operations", all.len(), kinds.len());
        let few = workloads(&runtime, Some("matmul")).unwrap();
        assert_eq!(few.len(), 12);
        let error = workloads(&runtime, Some("knitting")).unwrap_err().to_string();
        assert!(error.contains("use a part of matmul"), "{error}");
    }
}
