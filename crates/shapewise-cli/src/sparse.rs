//! Sparse matrices for questions and suites: as many entries in each row as asked for.

use anyhow::{Result, ensure};
use shapewise::ops::Workload;
use shapewise::ops::sparse::{SparseFormat, SparseMatrix};
use shapewise::{DType, Runtime, Tensor};

/// The workload of `spmv A` or `spmm A X`; none for other operations.
pub fn workload(
    runtime: &Runtime,
    operation: &str,
    shapes: &[Vec<usize>],
    dtype: DType,
    nonzeros: usize,
) -> Result<Option<Workload>> {
    let wanted = match operation {
        "spmv" => 1,
        "spmm" => 2,
        _ => return Ok(None),
    };
    ensure!(shapes.len() == wanted, "{operation} takes {wanted} shapes, {} were given", shapes.len());
    let &[rows, columns] = &shapes[0][..] else {
        anyhow::bail!("a sparse matrix has two axes, such as 1000x1000");
    };
    let a = matrix([rows, columns], dtype, SparseFormat::Csr, |_| (nonzeros, columns))?;
    let x = Tensor::zeros(shapes.get(1).map_or(&[columns], |x| &x[..]), dtype)?;
    let workloads = runtime.workloads(|rt| rt.sparse_matmul(&a, &x))?;
    Ok(workloads.into_iter().next_back())
}

/// A matrix of ones; `row` says how many entries a row has, and in how wide a window around the diagonal.
pub fn matrix(
    [rows, columns]: [usize; 2],
    dtype: DType,
    format: SparseFormat,
    row: impl Fn(usize) -> (usize, usize),
) -> Result<SparseMatrix> {
    let (mut offsets, mut indices) = (vec![0i64], Vec::new());
    for i in 0..rows {
        let (count, window) = row(i);
        let window = window.clamp(1, columns.max(1)).min(columns);
        let count = count.min(window);
        let first = (i * columns / rows).saturating_sub(window / 2).min(columns - window);
        // Even steps with an offset of each row's own.
        let noise = i.wrapping_mul(0x9E37_79B9) >> 5;
        indices.extend((0..count).map(|j| {
            let step = window / count;
            (first + j * window / count + (noise + j * 7919) % step) as i64
        }));
        offsets.push(indices.len() as i64);
    }
    let n = indices.len();
    let values = match dtype {
        DType::F64 => Tensor::full(1.0f64, &[n])?,
        _ => Tensor::full(1.0f32, &[n])?,
    };
    ensure!(matches!(dtype, DType::F32 | DType::F64), "sparse matrices are f32 or f64, not {dtype}");
    let offsets = Tensor::from_vec(offsets, &[rows + 1])?;
    let a = SparseMatrix::csr(&values, &Tensor::from_vec(indices, &[n])?, &offsets, [rows, columns])?;
    Ok(a.to_format(format)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_as_many_entries_as_asked_for() {
        let a = matrix([10, 30], DType::F32, SparseFormat::Csr, |i| (i, 20)).unwrap();
        assert_eq!(a.nonzeros(), 45);
        let full = matrix([4, 4], DType::F64, SparseFormat::Ell, |_| (99, 99)).unwrap();
        assert_eq!(full.nonzeros(), 16);
        assert_eq!(matrix([3, 0], DType::F32, SparseFormat::Coo, |_| (5, 5)).unwrap().nonzeros(), 0);
    }
}
