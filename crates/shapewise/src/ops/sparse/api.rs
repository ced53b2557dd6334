//! Products with dense operands.

use super::{SparseFormat, SparseMatrix};
use crate::error::{Error, Result};
use crate::ops::reduce::expect;
use crate::ops::{Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{Layout, Output, Shape, Strides, Tensor, TensorView, TensorViewMut};

const OPERATION: &str = "sparse_matmul";

impl Runtime {
    /// The product of a sparse matrix and a vector or a matrix.
    ///
    /// ```
    /// use shapewise::ops::sparse::SparseMatrix;
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let values = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3])?;
    /// let columns = Tensor::from_vec(vec![0, 2, 1], &[3])?;
    /// let offsets = Tensor::from_vec(vec![0, 2, 3], &[3])?;
    /// let a = SparseMatrix::csr(&values, &columns, &offsets, [2, 3])?;
    /// let x = Tensor::from_vec(vec![1.0f32, 10.0, 100.0], &[3])?;
    /// assert_eq!(rt.sparse_matmul(&a, &x)?.to_vec::<f32>()?, [201.0, 30.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn sparse_matmul<'a>(&self, a: &SparseMatrix, x: impl Into<TensorView<'a>>) -> Result<Tensor> {
        self.sparse_new(a, &x.into(), None)
    }

    /// As [`sparse_matmul`](Runtime::sparse_matmul), written into `out`.
    pub fn sparse_matmul_into<'a>(
        &self,
        a: &SparseMatrix,
        x: impl Into<TensorView<'a>>,
        out: impl Output<'a>,
    ) -> Result<()> {
        self.sparse_into(a, &x.into(), None, out.into_view_mut()?)
    }

    /// `A x + bias` in one pass; the bias is broadcast to the result.
    pub fn sparse_linear<'a>(
        &self,
        a: &SparseMatrix,
        x: impl Into<TensorView<'a>>,
        bias: impl Into<TensorView<'a>>,
    ) -> Result<Tensor> {
        self.sparse_new(a, &x.into(), Some(&bias.into()))
    }

    /// As [`sparse_linear`](Runtime::sparse_linear), written into `out`.
    pub fn sparse_linear_into<'a>(
        &self,
        a: &SparseMatrix,
        x: impl Into<TensorView<'a>>,
        bias: impl Into<TensorView<'a>>,
        out: impl Output<'a>,
    ) -> Result<()> {
        self.sparse_into(a, &x.into(), Some(&bias.into()), out.into_view_mut()?)
    }

    /// The product of a sparse matrix and each vector of a batch × columns tensor, as batch × rows.
    pub fn sparse_matmul_batch<'a>(&self, a: &SparseMatrix, x: impl Into<TensorView<'a>>) -> Result<Tensor> {
        let x = matrix(&x.into())?;
        let mut out = self.allocate(&Shape::new(&[x.shape()[0], a.shape[0]])?, a.dtype())?;
        self.sparse_matmul_batch_into(a, x, &mut out)?;
        Ok(out)
    }

    /// As [`sparse_matmul_batch`](Runtime::sparse_matmul_batch), written into `out`.
    pub fn sparse_matmul_batch_into<'a>(
        &self,
        a: &SparseMatrix,
        x: impl Into<TensorView<'a>>,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (x, out) = (matrix(&x.into())?, out.into_view_mut()?);
        expect(OPERATION, &out, &Shape::new(&[x.shape()[0], a.shape[0]])?, a.dtype())?;
        let turned = out.layout().transpose();
        self.sparse_into(a, &x.transpose(), None, out.with_layout(turned)?)
    }

    fn sparse_new(
        &self,
        a: &SparseMatrix,
        x: &TensorView<'_>,
        bias: Option<&TensorView<'_>>,
    ) -> Result<Tensor> {
        let mut out = self.allocate(&result_shape(a, x)?, a.dtype())?;
        self.sparse_into(a, x, bias, out.view_mut()?)?;
        Ok(out)
    }

    /// Checks, and brings operands into the layouts that kernels walk: columns or rows along memory.
    fn sparse_into(
        &self,
        a: &SparseMatrix,
        x: &TensorView<'_>,
        bias: Option<&TensorView<'_>>,
        out: TensorViewMut<'_>,
    ) -> Result<()> {
        let shape = result_shape(a, x)?;
        for dtype in [Some(x.dtype()), bias.map(TensorView::dtype)].into_iter().flatten() {
            if dtype != a.dtype() {
                return Err(Error::DTypeMismatch { operation: OPERATION, left: a.dtype(), right: dtype });
            }
        }
        expect(OPERATION, &out, &shape, a.dtype())?;
        let bias = bias.map(|b| b.broadcast_to(&shape)).transpose()?;
        if out.is_empty() {
            return Ok(());
        }
        let copied;
        let x = if side(x.layout()).is_some() {
            *x
        } else {
            copied = self.copy(*x)?;
            copied.view()
        };
        let sides = [side(x.layout()), side(out.layout())];
        // Blocks and columns are only multiplied with rows along memory.
        let walks = matches!(a.format, SparseFormat::Csr | SparseFormat::Coo | SparseFormat::Ell);
        if shape.len() > 1 && (sides[0] != sides[1] || !walks && sides[0] == Some(0)) || sides[1].is_none() {
            return self.by_way_of_rows(a, &x, bias.as_ref(), out);
        }
        self.ask_sparse(a, &x, bias.as_ref(), out)
    }

    /// Through memory of its own when operands lie along different axes.
    fn by_way_of_rows(
        &self,
        a: &SparseMatrix,
        x: &TensorView<'_>,
        bias: Option<&TensorView<'_>>,
        out: TensorViewMut<'_>,
    ) -> Result<()> {
        let copied = self.copy(*x)?;
        let mut rows = self.allocate(&Shape::new(out.shape())?, a.dtype())?;
        self.ask_sparse(a, &copied.view(), bias, rows.view_mut()?)?;
        self.copy_into(&rows, out)
    }

    fn ask_sparse(
        &self,
        a: &SparseMatrix,
        x: &TensorView<'_>,
        bias: Option<&TensorView<'_>>,
        out: TensorViewMut<'_>,
    ) -> Result<()> {
        let flat = out.rank() < 2 || out.strides()[1] == 1 || out.shape()[1] == 1;
        let copied;
        let bias = match bias {
            Some(b) if flat && b.rank() > 1 && !matches!(b.strides()[1], 0 | 1) => {
                copied = self.copy(*b)?;
                Some(copied.view())
            }
            other => other.copied(),
        };
        let mut request = Request::new(Operation::Sparse(a.attributes(bias.is_some())));
        request.input(&a.values.view());
        request.input(&x.with_layout(two_axes(x.layout()))?);
        request.input(&a.indices.view());
        request.input(&a.offsets.view());
        if let Some(bias) = bias {
            request.input(&bias.with_layout(two_axes(bias.layout()))?);
        }
        let layout = two_axes(out.layout());
        request.output(out.with_layout(layout)?);
        self.execute(&request)
    }
}

/// The axis along which neighbours are neighbours in memory: rows where both are.
fn side(layout: &Layout) -> Option<usize> {
    match (&layout.shape[..], &layout.strides[..]) {
        (&[_], &[stride]) => (stride == 1).then_some(0),
        (&[_, n], &[stride, 1]) if n != 1 || stride == 1 => Some(1),
        (&[_, 1], &[stride, _]) => (stride == 1).then_some(1),
        (&[_, _], &[1, _]) => Some(0),
        _ => None,
    }
}

/// A vector as a matrix of one column.
fn two_axes(layout: &Layout) -> Layout {
    let (mut shape, mut strides) = (layout.shape, layout.strides);
    if shape.len() == 1 {
        shape.append(1);
        strides.append(1);
    } else if shape[1] == 1 {
        // The distance of columns that are not there must not tell workloads apart.
        strides = Strides::new(&[strides[0], 1]).unwrap_or(strides);
    }
    Layout { shape, strides, offset: layout.offset }
}

/// A view of two axes.
fn matrix<'a>(x: &TensorView<'a>) -> Result<TensorView<'a>> {
    if x.rank() == 2 {
        return Ok(*x);
    }
    let reason = format!("a batch of vectors has two axes, not {}", x.layout().shape);
    Err(Error::ShapeMismatch { operation: OPERATION, reason })
}

fn result_shape(a: &SparseMatrix, x: &TensorView<'_>) -> Result<Shape> {
    let [rows, columns] = a.shape;
    let shape = match *x.shape() {
        [k] if k == columns => Shape::new(&[rows])?,
        [k, n] if k == columns => Shape::new(&[rows, n])?,
        _ => {
            let found = x.layout().shape;
            let reason = format!(
                "the matrix is {rows}×{columns}, so a vector or matrix of {columns} rows is needed, not {found}"
            );
            return Err(Error::ShapeMismatch { operation: OPERATION, reason });
        }
    };
    shape.elements()?;
    Ok(shape)
}
