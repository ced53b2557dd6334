//! Sparse products that choices are judged on: even, banded and power-law rows in every format, vectors and matrices.

use anyhow::Result;
use shapewise::ops::sparse::SparseFormat;
use shapewise::{DType, Tensor};

use super::Suite;
use crate::sparse::matrix;

impl Suite<'_> {
    /// Vectors, batches of them, and matrices of 2 to 128 columns.
    pub(super) fn sparse(&mut self) -> Result<()> {
        let formats = [
            SparseFormat::Csr,
            SparseFormat::Csr,
            SparseFormat::Coo,
            SparseFormat::Csc,
            SparseFormat::Ell,
            SparseFormat::Bsr { rows: 4, columns: 4 },
        ];
        for i in 0..30 {
            let format = formats[i % formats.len()];
            let dtype = if i % 5 == 3 { DType::F64 } else { DType::F32 };
            let (rows, columns) = (self.draw.size(16, 50_000), self.draw.size(16, 50_000));
            let [rows, columns] = [rows, columns].map(|n| n.next_multiple_of(4));
            let mean = self.draw.size(1, 60).min(400_000 / rows + 1);
            let structure = i / formats.len() % 3;
            let skewed = structure == 2 && format != SparseFormat::Ell;
            let a = matrix([rows, columns], dtype, format, |row| match structure {
                0 => (mean, columns),
                1 => (mean, 4 * mean),
                // Half of the entries in a hundredth of the rows.
                _ if skewed && row % 100 == 0 => (50 * mean, columns),
                _ => (mean.div_ceil(2), columns),
            })?;
            let n = self.draw.size(2, 128).min(4_000_000 / rows.max(columns));
            match i % 3 {
                0 => {
                    let x = Tensor::zeros(&[columns], dtype)?;
                    self.ask(|rt| rt.sparse_matmul(&a, &x))?;
                }
                1 => {
                    let x = Tensor::zeros(&[columns, n], dtype)?;
                    self.ask(|rt| rt.sparse_matmul(&a, &x))?;
                }
                _ if matches!(format, SparseFormat::Csr | SparseFormat::Ell) => {
                    let x = Tensor::zeros(&[n, columns], dtype)?;
                    self.ask(|rt| rt.sparse_matmul_batch(&a, &x))?;
                }
                _ => {
                    let (x, bias) = (Tensor::zeros(&[columns], dtype)?, Tensor::zeros(&[rows], dtype)?);
                    self.ask(|rt| rt.sparse_linear(&a, &x, &bias))?;
                }
            }
        }
        Ok(())
    }
}
