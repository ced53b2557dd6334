//! From one format to another, and from and to dense matrices.

use std::borrow::Cow;

use super::build::{check_blocks, check_type};
use super::compressed::{Lines, Rows, check_entries, check_shape, counted};
use super::matrix::Profile;
use super::{Number, SparseFormat, SparseMatrix, by_type};
use crate::error::{Error, Result};
use crate::tensor::{DType, Tensor, TensorView};

const OPERATION: &str = "sparse format";

impl SparseMatrix {
    /// The same matrix in another format; one that it already has costs nothing.
    pub fn to_format(&self, format: SparseFormat) -> Result<Self> {
        if self.format == format {
            return Ok(self.clone());
        }
        by_type!(self.dtype(), T => stored(self.rows::<T>()?, self.shape, format))
    }

    /// The elements of a dense matrix that are not zero, in CSR.
    pub fn from_dense<'a>(dense: impl Into<TensorView<'a>>) -> Result<Self> {
        let dense = dense.into();
        let operation = "sparse from_dense";
        check_type(operation, dense.dtype())?;
        let &[rows, columns] = dense.shape() else {
            let reason = format!("a matrix is needed, not {}", dense.layout().shape);
            return Err(Error::ShapeMismatch { operation, reason });
        };
        check_shape(operation, [rows, columns])?;
        by_type!(dense.dtype(), T => {
            let all = dense.to_vec::<T>()?;
            let (mut offsets, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
            for row in 0..rows {
                for (column, &x) in all[row * columns..(row + 1) * columns].iter().enumerate() {
                    if x != 0.0 {
                        indices.push(column as u32);
                        values.push(x);
                    }
                }
                check_entries(operation, indices.len())?;
                offsets.push(indices.len() as u32);
            }
            stored(Rows::new(offsets, indices, values), [rows, columns], SparseFormat::Csr)
        })
    }

    /// All elements, row-major.
    pub fn to_dense(&self) -> Result<Tensor> {
        let mut dense = Tensor::zeros(&self.shape, self.dtype())?;
        by_type!(self.dtype(), T => {
            let rows = self.rows::<T>()?;
            let out = dense.as_mut_slice::<T>()?;
            for i in 0..rows.len() {
                let (columns, values) = rows.row(i);
                for (&column, &value) in columns.iter().zip(values) {
                    out[i * self.shape[1] + column as usize] = value;
                }
            }
        });
        Ok(dense)
    }

    /// The entries row by row, borrowed where they are kept so.
    pub(super) fn rows<T: Number>(&self) -> Result<Rows<'_, T>> {
        let values = self.values.as_slice::<T>()?;
        let (indices, offsets) = (self.indices.as_slice::<u32>()?, self.offsets.as_slice::<u32>()?);
        let borrowed =
            |offsets| Rows { offsets, columns: Cow::Borrowed(indices), values: Cow::Borrowed(values) };
        Ok(match self.format {
            SparseFormat::Csr => borrowed(Cow::Borrowed(offsets)),
            SparseFormat::Coo => borrowed(Cow::Owned(counted(offsets, self.shape[0]))),
            SparseFormat::Csc => borrowed(Cow::Borrowed(offsets)).turned(self.shape[0]),
            SparseFormat::Bsr { rows, columns } => {
                opened(values, indices, offsets, [rows as usize, columns as usize])
            }
            SparseFormat::Ell => gathered(values, indices, offsets),
        })
    }
}

/// The rows of blocks.
fn opened<T: Number>(values: &[T], indices: &[u32], offsets: &[u32], [r, c]: [usize; 2]) -> Rows<'static, T> {
    let mut out = Lines { offsets: vec![0], indices: Vec::new(), values: Vec::new(), size: 1 };
    out.indices.reserve(values.len());
    out.values.reserve(values.len());
    for pair in offsets.windows(2) {
        for i in 0..r {
            for block in pair[0] as usize..pair[1] as usize {
                let first = indices[block] * c as u32;
                out.indices.extend(first..first + c as u32);
                out.values.extend_from_slice(&values[(block * r + i) * c..(block * r + i + 1) * c]);
            }
            out.offsets.push(out.indices.len() as u32);
        }
    }
    out.rows()
}

/// The rows of places that are used.
fn gathered<T: Number>(values: &[T], indices: &[u32], lengths: &[u32]) -> Rows<'static, T> {
    let n = lengths.len();
    let mut out = Lines { offsets: vec![0], indices: Vec::new(), values: Vec::new(), size: 1 };
    for (row, &length) in lengths.iter().enumerate() {
        let places = (0..length as usize).map(|place| place * n + row);
        out.indices.extend(places.clone().map(|at| indices[at]));
        out.values.extend(places.map(|at| values[at]));
        out.offsets.push(out.indices.len() as u32);
    }
    out.rows()
}

/// Tidy rows in a format.
pub(super) fn stored<T: Number>(
    rows: Rows<'_, T>,
    shape: [usize; 2],
    format: SparseFormat,
) -> Result<SparseMatrix> {
    check_entries(OPERATION, rows.columns.len())?;
    let lines = |rows: Rows<'_, T>| Lines {
        offsets: rows.offsets.into_owned(),
        indices: rows.columns.into_owned(),
        values: rows.values.into_owned(),
        size: 1,
    };
    match format {
        SparseFormat::Csr => SparseMatrix::of_lines(&lines(rows), shape, format),
        SparseFormat::Csc => SparseMatrix::of_lines(&lines(rows.turned(shape[1])), shape, format),
        SparseFormat::Bsr { rows: r, columns: c } => {
            SparseMatrix::of_lines(&blocked(&rows, shape, [r as usize, c as usize])?, shape, format)
        }
        SparseFormat::Coo => {
            let mut own = Vec::with_capacity(rows.columns.len());
            for (i, pair) in rows.offsets.windows(2).enumerate() {
                own.resize(pair[1] as usize, i as u32);
            }
            let (columns, values) = (rows.columns.into_owned(), rows.values.into_owned());
            Triples { rows: own, columns, values }.stored(shape)
        }
        SparseFormat::Ell => padded(&rows, shape),
    }
}

/// Sorted entries without duplicates.
#[derive(Default)]
pub(super) struct Triples<T> {
    pub rows: Vec<u32>,
    pub columns: Vec<u32>,
    pub values: Vec<T>,
}

impl<T: Number> Triples<T> {
    /// As COO. Nothing as long as the matrix has rows is made: it may have far fewer entries.
    pub fn stored(self, shape: [usize; 2]) -> Result<SparseMatrix> {
        let n = self.values.len();
        let parts = [
            Tensor::from_slice(&self.values, &[n])?,
            Tensor::from_slice(&self.columns, &[n])?,
            Tensor::from_slice(&self.rows, &[n])?,
        ];
        let mut starts: Vec<u32> =
            (0..n).filter(|&i| i == 0 || self.rows[i] != self.rows[i - 1]).map(|i| i as u32).collect();
        starts.push(n as u32);
        let profile = Profile::of(&starts, &self.columns);
        Ok(SparseMatrix::new(shape, SparseFormat::Coo, parts, n, profile))
    }
}

/// As many places in each row as the longest one needs; those not used are zero at column zero.
fn padded<T: Number>(rows: &Rows<'_, T>, shape: [usize; 2]) -> Result<SparseMatrix> {
    let (n, entries) = (rows.len(), rows.columns.len());
    let lengths: Vec<u32> = rows.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let width = lengths.iter().copied().max().unwrap_or(0) as usize;
    if width.saturating_mul(n) > u32::MAX as usize {
        let reason = format!(
            "ell keeps {width} places in each of {n} rows for {entries} entries, more than {}; use csr",
            u32::MAX
        );
        return Err(Error::InvalidArgument { operation: OPERATION, reason });
    }
    let mut values = Tensor::zeros(&[width, n], T::DTYPE)?;
    let mut indices = Tensor::zeros(&[width, n], DType::U32)?;
    let (numbers, places) = (values.as_mut_slice::<T>()?, indices.as_mut_slice::<u32>()?);
    for row in 0..n {
        let (columns, own) = rows.row(row);
        for (place, (&column, &value)) in columns.iter().zip(own).enumerate() {
            (places[place * n + row], numbers[place * n + row]) = (column, value);
        }
    }
    let profile = Profile::of(&rows.offsets, &rows.columns);
    let offsets = Tensor::from_slice(&lengths, &[n])?;
    Ok(SparseMatrix::new(shape, SparseFormat::Ell, [values, indices, offsets], entries, profile))
}

/// The blocks that have an entry, zeros at their other places.
fn blocked<T: Number>(rows: &Rows<'_, T>, shape: [usize; 2], [r, c]: [usize; 2]) -> Result<Lines<T>> {
    check_blocks(OPERATION, shape, [r, c])?;
    let mut out = Lines { offsets: vec![0], indices: Vec::new(), values: Vec::new(), size: r * c };
    let mut used = Vec::new();
    for first in (0..shape[0]).step_by(r) {
        used.clear();
        for row in first..first + r {
            used.extend(rows.row(row).0.iter().map(|&column| column / c as u32));
        }
        used.sort_unstable();
        used.dedup();
        let start = out.indices.len();
        out.indices.extend_from_slice(&used);
        check_entries(OPERATION, out.indices.len().saturating_mul(r * c))?;
        out.values.resize(out.indices.len() * r * c, T::ZERO);
        for row in first..first + r {
            let (columns, values) = rows.row(row);
            let mut block = 0;
            for (&column, &value) in columns.iter().zip(values) {
                while used[block] < column / c as u32 {
                    block += 1;
                }
                let at = ((start + block) * r + row - first) * c + column as usize % c;
                out.values[at] = value;
            }
        }
        out.offsets.push(out.indices.len() as u32);
    }
    Ok(out)
}
