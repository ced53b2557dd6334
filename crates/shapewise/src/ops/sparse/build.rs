//! Matrices from what users give: every index, offset and length is checked, lines are sorted, duplicates summed.

use super::compressed::{Lines, Rows, check_entries, check_shape};
use super::convert::{Triples, stored};
use super::{Number, SparseFormat, SparseMatrix, by_type};
use crate::error::{Error, Result};
use crate::tensor::{DType, Element, TensorView};

impl SparseMatrix {
    /// From the row, column and value of each entry, in any order; duplicates are summed.
    ///
    /// ```
    /// use shapewise::Tensor;
    /// use shapewise::ops::sparse::SparseMatrix;
    /// let values = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3])?;
    /// let (rows, columns) = (Tensor::from_vec(vec![1i64, 0, 1], &[3])?, Tensor::from_vec(vec![0i64, 2, 0], &[3])?);
    /// let a = SparseMatrix::coo(&values, &rows, &columns, [2, 3])?;
    /// assert_eq!(a.nonzeros(), 2);
    /// assert_eq!(a.to_dense()?.to_vec::<f32>()?, [0.0, 0.0, 2.0, 4.0, 0.0, 0.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn coo<'a>(
        values: impl Into<TensorView<'a>>,
        rows: impl Into<TensorView<'a>>,
        columns: impl Into<TensorView<'a>>,
        shape: [usize; 2],
    ) -> Result<Self> {
        let (values, rows, columns) = (values.into(), rows.into(), columns.into());
        let given = Given { operation: "sparse coo", shape };
        given.check(&values, 1)?;
        let n = values.len();
        let rows = given.indices("row", &rows, n, shape[0])?;
        let columns = given.indices("column", &columns, n, shape[1])?;
        by_type!(values.dtype(), T => {
            let values = values.to_vec::<T>()?;
            let key = |i: usize| u64::from(rows[i]) << 32 | u64::from(columns[i]);
            let mut order: Vec<usize> = (0..n).collect();
            // Stable: duplicates are summed in the order they were given in. Sorted entries cost one pass.
            order.sort_by_key(|&i| key(i));
            let mut sorted = Triples::default();
            for (at, &i) in order.iter().enumerate() {
                if at > 0 && key(order[at - 1]) == key(i) {
                    let last = sorted.values.len() - 1;
                    sorted.values[last] += values[i];
                } else {
                    sorted.rows.push(rows[i]);
                    sorted.columns.push(columns[i]);
                    sorted.values.push(values[i]);
                }
            }
            sorted.stored(shape)
        })
    }

    /// From values and columns row by row; row `i` is `offsets[i]..offsets[i + 1]`.
    pub fn csr<'a>(
        values: impl Into<TensorView<'a>>,
        columns: impl Into<TensorView<'a>>,
        offsets: impl Into<TensorView<'a>>,
        shape: [usize; 2],
    ) -> Result<Self> {
        let given = Given { operation: "sparse csr", shape };
        given.lines(&values.into(), &columns.into(), &offsets.into(), shape, SparseFormat::Csr)
    }

    /// From values and rows column by column; column `j` is `offsets[j]..offsets[j + 1]`.
    pub fn csc<'a>(
        values: impl Into<TensorView<'a>>,
        rows: impl Into<TensorView<'a>>,
        offsets: impl Into<TensorView<'a>>,
        shape: [usize; 2],
    ) -> Result<Self> {
        let given = Given { operation: "sparse csc", shape };
        let [rows_, columns] = shape;
        given.lines(&values.into(), &rows.into(), &offsets.into(), [columns, rows_], SparseFormat::Csc)
    }

    /// From dense blocks row by row: values are blocks × rows of a block × columns of a block, `columns` counts blocks.
    pub fn bsr<'a>(
        values: impl Into<TensorView<'a>>,
        columns: impl Into<TensorView<'a>>,
        offsets: impl Into<TensorView<'a>>,
        shape: [usize; 2],
    ) -> Result<Self> {
        let (values, given) = (values.into(), Given { operation: "sparse bsr", shape });
        given.check(&values, 3)?;
        let &[_, r, c] = values.shape() else { unreachable!("the rank was checked") };
        check_blocks(given.operation, shape, [r, c])?;
        let blocks = [shape[0] / r, shape[1] / c];
        let format = SparseFormat::Bsr { rows: r as u32, columns: c as u32 };
        given.lines(&values, &columns.into(), &offsets.into(), blocks, format)
    }

    /// From as many places for each row as the longest one needs: values and columns are rows × places, and a negative
    /// column marks a place that is not used.
    pub fn ell<'a>(
        values: impl Into<TensorView<'a>>,
        columns: impl Into<TensorView<'a>>,
        shape: [usize; 2],
    ) -> Result<Self> {
        let (values, columns) = (values.into(), columns.into());
        let given = Given { operation: "sparse ell", shape };
        given.check(&values, 2)?;
        if values.shape() != columns.shape() || values.shape()[0] != shape[0] {
            return Err(given.lengths(format!(
                "values are {}, columns {}; both are {} rows × places",
                values.layout().shape,
                columns.layout().shape,
                shape[0]
            )));
        }
        let places = columns_or_none(given.operation, &columns, shape[1])?;
        let width = values.shape()[1];
        by_type!(values.dtype(), T => {
            let all = values.to_vec::<T>()?;
            let mut lines = Lines { offsets: vec![0], indices: Vec::new(), values: Vec::new(), size: 1 };
            for row in 0..shape[0] {
                for at in row * width..(row + 1) * width {
                    if let Some(column) = places[at] {
                        lines.indices.push(column);
                        lines.values.push(all[at]);
                    }
                }
                lines.offsets.push(lines.indices.len() as u32);
            }
            stored(lines.tidy().rows(), shape, SparseFormat::Ell)
        })
    }
}

impl<T: Number> Lines<T> {
    /// As rows of single numbers.
    pub(super) fn rows(self) -> Rows<'static, T> {
        Rows::new(self.offsets, self.indices, self.values)
    }
}

/// What is being made, for messages.
struct Given {
    operation: &'static str,
    shape: [usize; 2],
}

impl Given {
    fn wrong(&self, reason: String) -> Error {
        Error::InvalidArgument { operation: self.operation, reason }
    }

    fn lengths(&self, reason: String) -> Error {
        Error::ShapeMismatch { operation: self.operation, reason }
    }

    /// Sizes, type and rank of the values.
    fn check(&self, values: &TensorView<'_>, rank: usize) -> Result<()> {
        check_shape(self.operation, self.shape)?;
        check_entries(self.operation, values.len())?;
        check_type(self.operation, values.dtype())?;
        if values.rank() != rank {
            return Err(self.lengths(format!(
                "values have {rank} axes, not {} ({})",
                values.rank(),
                values.layout().shape
            )));
        }
        Ok(())
    }

    /// `n` indices, each below a bound.
    fn indices(&self, what: &str, view: &TensorView<'_>, n: usize, below: usize) -> Result<Vec<u32>> {
        let all = integers(self.operation, view)?;
        if view.rank() != 1 || all.len() != n {
            let found = view.layout().shape;
            return Err(self.lengths(format!("{what} indices are {found}, a vector of {n} is needed")));
        }
        if let Some(at) = all.iter().position(|&i| !(0..below as i64).contains(&i)) {
            let wrong = all[at];
            return Err(
                self.wrong(format!("{what} index {wrong} of entry {at} does not exist; there are {below}"))
            );
        }
        Ok(all.into_iter().map(|i| i as u32).collect())
    }

    /// Where each of `lines` lines starts among `n` entries.
    fn offsets(&self, view: &TensorView<'_>, lines: usize, n: usize) -> Result<Vec<u32>> {
        let all = integers(self.operation, view)?;
        if view.rank() != 1 || all.len() != lines + 1 {
            let (found, wanted) = (view.layout().shape, lines + 1);
            return Err(self.lengths(format!(
                "offsets are {found}, a vector of {wanted} is needed: one for each line and the end"
            )));
        }
        if all[0] != 0 || all[lines] != n as i64 {
            let (first, last) = (all[0], all[lines]);
            return Err(self.wrong(format!(
                "offsets go from {first} to {last}; they go from 0 to the {n} entries there are"
            )));
        }
        if let Some(at) = all.windows(2).position(|pair| pair[0] > pair[1]) {
            let (here, next) = (all[at], all[at + 1]);
            return Err(self.wrong(format!("offset {at} is {here} and the next {next}; offsets never fall")));
        }
        Ok(all.into_iter().map(|i| i as u32).collect())
    }

    /// A format of lines; `sizes` counts lines and the places along one.
    fn lines(
        &self,
        values: &TensorView<'_>,
        indices: &TensorView<'_>,
        offsets: &TensorView<'_>,
        sizes: [usize; 2],
        format: SparseFormat,
    ) -> Result<SparseMatrix> {
        self.check(values, if matches!(format, SparseFormat::Bsr { .. }) { 3 } else { 1 })?;
        let n = values.shape()[0];
        let what = if format == SparseFormat::Csc { "row" } else { "column" };
        let offsets = self.offsets(offsets, sizes[0], n)?;
        let indices = self.indices(what, indices, n, sizes[1])?;
        by_type!(values.dtype(), T => {
            let size = values.shape()[1..].iter().product();
            let lines = Lines { offsets, indices, values: values.to_vec::<T>()?, size }.tidy();
            SparseMatrix::of_lines(&lines, self.shape, format)
        })
    }
}

/// Only f32 and f64.
pub(super) fn check_type(operation: &'static str, dtype: DType) -> Result<()> {
    if matches!(dtype, DType::F32 | DType::F64) {
        return Ok(());
    }
    Err(Error::UnsupportedDType { operation, dtype, hint: "cast the values to f32 or f64 first".into() })
}

/// Blocks of at least one element that fill the matrix.
pub(super) fn check_blocks(
    operation: &'static str,
    [rows, columns]: [usize; 2],
    [r, c]: [usize; 2],
) -> Result<()> {
    let fits = r > 0 && c > 0 && rows % r == 0 && columns % c == 0;
    if fits && i32::try_from(r.saturating_mul(c)).is_ok() {
        return Ok(());
    }
    let reason = format!("blocks of {r}×{c} do not fill a matrix of {rows}×{columns}");
    Err(Error::InvalidArgument { operation, reason })
}

/// Integers of any type that indices have.
fn integers(operation: &'static str, view: &TensorView<'_>) -> Result<Vec<i64>> {
    fn wide<T: Element + Into<i64>>(view: &TensorView<'_>) -> Result<Vec<i64>> {
        Ok(view.to_vec::<T>()?.into_iter().map(Into::into).collect())
    }
    check_entries(operation, view.len())?;
    match view.dtype() {
        DType::I32 => wide::<i32>(view),
        DType::U32 => wide::<u32>(view),
        DType::I64 => view.to_vec::<i64>(),
        dtype => {
            let hint = "indices and offsets are i32, u32 or i64; cast them first".into();
            Err(Error::UnsupportedDType { operation, dtype, hint })
        }
    }
}

/// Columns, none where they are negative.
fn columns_or_none(operation: &'static str, view: &TensorView<'_>, below: usize) -> Result<Vec<Option<u32>>> {
    let all = integers(operation, view)?;
    if let Some(at) = all.iter().position(|&i| i >= below as i64) {
        let wrong = all[at];
        let reason = format!("column index {wrong} of place {at} does not exist; there are {below}");
        return Err(Error::InvalidArgument { operation, reason });
    }
    Ok(all.into_iter().map(|i| u32::try_from(i).ok()).collect())
}
