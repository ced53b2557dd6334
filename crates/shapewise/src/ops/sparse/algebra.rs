//! Transposes, sums, differences, element-wise products, extremes and functions of sparse matrices.

use super::compressed::{Lines, Rows, check_entries};
use super::convert::{Triples, stored};
use super::{Number, SparseFormat, SparseMatrix, by_type};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl SparseMatrix {
    /// Rows and columns exchanged. CSR becomes CSC and the other way round without touching an entry; other formats stay.
    pub fn transpose(&self) -> Result<Self> {
        let [rows, columns] = self.shape;
        let shape = [columns, rows];
        let turned = match self.format {
            SparseFormat::Csr => SparseFormat::Csc,
            SparseFormat::Csc => SparseFormat::Csr,
            SparseFormat::Bsr { rows, columns } => SparseFormat::Bsr { rows: columns, columns: rows },
            SparseFormat::Coo => {
                return by_type!(self.dtype(), T => turned_triples::<T>(self, shape));
            }
            SparseFormat::Ell => {
                return by_type!(self.dtype(), T => {
                    stored(self.rows::<T>()?.turned(columns), shape, SparseFormat::Ell)
                });
            }
        };
        if let SparseFormat::Bsr { .. } = turned {
            return by_type!(self.dtype(), T => stored(self.rows::<T>()?.turned(columns), shape, turned));
        }
        Ok(Self { shape, format: turned, ..self.clone() })
    }

    /// The sum of two matrices, in the format of the first.
    pub fn add(&self, other: &Self) -> Result<Self> {
        self.merged("sparse add", other, |a, b| Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)))
    }

    /// The product of the elements at each place, in the format of the first: entries are where both have one.
    pub fn multiply(&self, other: &Self) -> Result<Self> {
        self.merged("sparse multiply", other, |a, b| Some(a? * b?))
    }

    /// The difference of two matrices, in the format of the first.
    pub fn subtract(&self, other: &Self) -> Result<Self> {
        self.merged("sparse subtract", other, |a, b| Some(a.unwrap_or(0.0) - b.unwrap_or(0.0)))
    }

    /// The larger element at each place, in the format of the first: entries are where one has one, and are compared with the zero
    /// of the other if it has none. NaN on either side gives NaN.
    pub fn maximum(&self, other: &Self) -> Result<Self> {
        self.merged("sparse maximum", other, |a, b| Some(larger(a.unwrap_or(0.0), b.unwrap_or(0.0))))
    }

    /// The smaller element at each place, as [`maximum`](SparseMatrix::maximum).
    pub fn minimum(&self, other: &Self) -> Result<Self> {
        self.merged("sparse minimum", other, |a, b| Some(-larger(-a.unwrap_or(0.0), -b.unwrap_or(0.0))))
    }

    /// A function of every entry. Places without one stay zero, whatever the function makes of zero; of BSR all elements of the blocks
    /// are entries.
    ///
    /// ```
    /// use shapewise::Tensor;
    /// use shapewise::ops::sparse::SparseMatrix;
    /// let dense = Tensor::from_vec(vec![0.0f32, -4.0, 9.0, 0.0], &[2, 2])?;
    /// let roots = SparseMatrix::from_dense(&dense)?.map(|x| x.abs().sqrt())?;
    /// assert_eq!(roots.to_dense()?.to_vec::<f32>()?, [0.0, 2.0, 3.0, 0.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn map(&self, function: impl Fn(f64) -> f64) -> Result<Self> {
        by_type!(self.dtype(), T => stored(mapped::<T>(self.rows()?, function), self.shape, self.format))
    }

    /// Every entry times a factor.
    pub fn scale(&self, factor: f64) -> Result<Self> {
        let values = by_type!(self.dtype(), T => {
            let scaled: Vec<T> = self.values.as_slice::<T>()?.iter().map(|&x| x * factor as T).collect();
            Tensor::from_slice(&scaled, self.values.shape())?
        });
        Ok(Self { values, ..self.clone() })
    }

    /// Entries by what each place has on both sides; products and sums of f32 are the same computed in f64 and rounded.
    fn merged(
        &self,
        operation: &'static str,
        other: &Self,
        value: impl Fn(Option<f64>, Option<f64>) -> Option<f64>,
    ) -> Result<Self> {
        self.check_same(operation, other)?;
        by_type!(self.dtype(), T => {
            let (a, b) = (self.rows::<T>()?, other.rows::<T>()?);
            let merged = merge(&a, &b, value);
            check_entries(operation, merged.columns.len())?;
            stored(merged, self.shape, self.format)
        })
    }

    /// Equal shapes and types.
    fn check_same(&self, operation: &'static str, other: &Self) -> Result<()> {
        if self.dtype() != other.dtype() {
            return Err(Error::DTypeMismatch { operation, left: self.dtype(), right: other.dtype() });
        }
        if self.shape != other.shape {
            let ([a, b], [c, d]) = (self.shape, other.shape);
            let reason = format!("the matrices are {a}×{b} and {c}×{d}");
            return Err(Error::ShapeMismatch { operation, reason });
        }
        Ok(())
    }

    /// The elements on the diagonal, zero where there is no entry.
    pub(super) fn diagonal<T: Number>(&self) -> Result<Vec<T>> {
        let rows = self.rows::<T>()?;
        let mut diagonal = vec![T::ZERO; self.shape[0].min(self.shape[1])];
        for (i, slot) in diagonal.iter_mut().enumerate() {
            let (columns, values) = rows.row(i);
            if let Ok(at) = columns.binary_search(&(i as u32)) {
                *slot = values[at];
            }
        }
        Ok(diagonal)
    }
}

/// The same rows with a function of their values.
fn mapped<T: Number>(rows: Rows<'_, T>, function: impl Fn(f64) -> f64) -> Rows<'static, T> {
    let values = rows.values.iter().map(|x| T::from_f64(function(x.to_f64()))).collect();
    Rows::new(rows.offsets.into_owned(), rows.columns.into_owned(), values)
}

/// The larger one; NaN if one is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// COO with its two indices exchanged and sorted anew.
fn turned_triples<T: Number>(a: &SparseMatrix, shape: [usize; 2]) -> Result<SparseMatrix> {
    let values = a.values.as_slice::<T>()?;
    let (columns, rows) = (a.indices.as_slice::<u32>()?, a.offsets.as_slice::<u32>()?);
    let mut order: Vec<usize> = (0..values.len()).collect();
    // Stable, so that the rows of one column, which rise, keep rising.
    order.sort_by_key(|&i| columns[i]);
    let pick = |from: &[u32]| order.iter().map(|&i| from[i]).collect();
    let values = order.iter().map(|&i| values[i]).collect();
    Triples { rows: pick(columns), columns: pick(rows), values }.stored(shape)
}

/// Two lists of rows walked side by side.
fn merge<T: Number>(
    a: &Rows<'_, T>,
    b: &Rows<'_, T>,
    value: impl Fn(Option<f64>, Option<f64>) -> Option<f64>,
) -> Rows<'static, T> {
    let mut out: Lines<T> = Lines { offsets: vec![0], indices: Vec::new(), values: Vec::new(), size: 1 };
    for i in 0..a.len() {
        let ((left, x), (right, y)) = (a.row(i), b.row(i));
        let (mut l, mut r) = (0, 0);
        while l < left.len() || r < right.len() {
            let column = match (left.get(l), right.get(r)) {
                (Some(&a), Some(&b)) => a.min(b),
                (Some(&one), None) | (None, Some(&one)) => one,
                (None, None) => break,
            };
            let here = |columns: &[u32], at: usize| columns.get(at) == Some(&column);
            let (from_left, from_right) = (here(left, l), here(right, r));
            let number = value(from_left.then(|| x[l].to_f64()), from_right.then(|| y[r].to_f64()));
            if let Some(number) = number {
                out.indices.push(column);
                out.values.push(T::from_f64(number));
            }
            l += usize::from(from_left);
            r += usize::from(from_right);
        }
        out.offsets.push(out.indices.len() as u32);
    }
    out.rows()
}
