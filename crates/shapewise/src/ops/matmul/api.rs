//! The calls: `rt.matmul(&a, &b)`, into a given output, and with bias and activation.

use super::MatmulAttributes;
use crate::error::{Error, Result};
use crate::ops::{Activation, Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Strides, Tensor, TensorView, TensorViewMut};

/// What is added and applied to a product before it is written, in the same pass.
///
/// ```
/// # use shapewise::{Runtime, Tensor, ops::{Activation, matmul::Fused}};
/// # let rt = Runtime::builder().without_calibration().build()?;
/// let x = Tensor::from_vec(vec![1.0f32, 2.0], &[1, 2])?;
/// let w = Tensor::from_vec(vec![1.0f32, 0.0, 0.0, -1.0], &[2, 2])?;
/// let bias = Tensor::from_vec(vec![0.5f32, 0.5], &[2])?;
/// let y = rt.matmul_fused(&x, &w, Fused::new().bias(&bias).activation(Activation::Relu))?;
/// assert_eq!(y.to_vec::<f32>()?, [1.5, 0.0]);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Fused<'a> {
    bias: Option<TensorView<'a>>,
    activation: Activation,
}

impl<'a> Fused<'a> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A vector with an element for every column, added to every row of the product.
    #[must_use]
    pub fn bias(mut self, bias: impl Into<TensorView<'a>>) -> Self {
        self.bias = Some(bias.into());
        self
    }

    /// A function applied to the sum of product and bias.
    #[must_use]
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }
}

impl Runtime {
    /// The matrix product by numpy's rules: vectors are rows on the left and columns on the right, leading axes are
    /// batches and broadcast. Any strides will do, and transposed views cost no copy.
    ///
    /// ```
    /// # use shapewise::{Runtime, Tensor};
    /// # let rt = Runtime::builder().without_calibration().build()?;
    /// let a = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let c = rt.matmul(&a, &a.transpose())?;
    /// assert_eq!(c.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn matmul<'a>(&self, a: impl Into<TensorView<'a>>, b: impl Into<TensorView<'a>>) -> Result<Tensor> {
        self.matmul_fused(a, b, Fused::new())
    }

    /// The same into a given output, which may have any strides.
    pub fn matmul_into<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        b: impl Into<TensorView<'a>>,
        out: impl Output<'a>,
    ) -> Result<()> {
        self.matmul_fused_into(a, b, Fused::new(), out)
    }

    /// The matrix product with bias and activation in the same pass.
    pub fn matmul_fused<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        b: impl Into<TensorView<'a>>,
        fused: Fused<'a>,
    ) -> Result<Tensor> {
        let (a, b) = (a.into(), b.into());
        let sides = Sides::new(&a, &b, &fused)?;
        let mut out = self.allocate(&sides.shape, a.dtype())?;
        self.execute(&sides.request(a, b, fused, out.view_mut()?)?)?;
        Ok(out)
    }

    /// The same into a given output, which may have any strides.
    pub fn matmul_fused_into<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        b: impl Into<TensorView<'a>>,
        fused: Fused<'a>,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (a, b, out) = (a.into(), b.into(), out.into_view_mut()?);
        let sides = Sides::new(&a, &b, &fused)?;
        if out.dtype() != a.dtype() {
            return Err(Error::DTypeMismatch { operation: OPERATION, left: a.dtype(), right: out.dtype() });
        }
        if out.shape() != &*sides.shape {
            return Err(mismatch(format!(
                "the result is {}, the output {}",
                sides.shape,
                out.layout().shape
            )));
        }
        self.execute(&sides.request(a, b, fused, out)?)
    }
}

const OPERATION: &str = "matmul";

fn mismatch(reason: String) -> Error {
    Error::ShapeMismatch { operation: OPERATION, reason }
}

/// The operands as matrices with the same batch axes.
struct Sides {
    a: Layout,
    b: Layout,
    /// Of the result as the user sees it.
    shape: Shape,
    /// Axes that vectors were given and the result does not have.
    row: bool,
    column: bool,
}

impl Sides {
    fn new(a: &TensorView<'_>, b: &TensorView<'_>, fused: &Fused<'_>) -> Result<Self> {
        if a.dtype() != b.dtype() {
            return Err(Error::DTypeMismatch { operation: OPERATION, left: a.dtype(), right: b.dtype() });
        }
        if !matches!(a.dtype(), DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
            let hint = "cast to f32, f64, f16 or bf16".into();
            return Err(Error::UnsupportedDType { operation: OPERATION, dtype: a.dtype(), hint });
        }
        if a.rank() == 0 || b.rank() == 0 {
            return Err(mismatch("a scalar has no rows or columns; use mul".into()));
        }
        let (row, column) = (a.rank() == 1, b.rank() == 1);
        let left = if row { with_axis(a.layout(), true)? } else { *a.layout() };
        let right = if column { with_axis(b.layout(), false)? } else { *b.layout() };
        let (rank_a, rank_b) = (left.shape.len(), right.shape.len());
        let (k, n) = (left.shape[rank_a - 1], right.shape[rank_b - 1]);
        if k != right.shape[rank_b - 2] {
            let reason = format!(
                "the left operand {} has {k} columns, the right one {} has {} rows",
                a.layout().shape,
                b.layout().shape,
                right.shape[rank_b - 2]
            );
            return Err(mismatch(reason));
        }
        check_bias(a.dtype(), n, fused)?;
        let m = left.shape[rank_a - 2];
        let (a, b) = if rank_a == 2 && rank_b == 2 {
            (left, right)
        } else {
            let batch = Shape::new(&left.shape[..rank_a - 2])?
                .broadcast(&Shape::new(&right.shape[..rank_b - 2])?, OPERATION)?;
            (left.broadcast_to(&joined(&batch, &[m, k])?)?, right.broadcast_to(&joined(&batch, &[k, n])?)?)
        };
        let batch = &a.shape[..a.shape.len() - 2];
        let shape = match (row, column) {
            (false, false) => joined(batch, &[m, n])?,
            (true, false) => joined(batch, &[n])?,
            (false, true) => joined(batch, &[m])?,
            (true, true) => joined(batch, &[])?,
        };
        shape.elements()?;
        Ok(Self { a, b, shape, row, column })
    }

    fn request<'a>(
        &self,
        a: TensorView<'a>,
        b: TensorView<'a>,
        fused: Fused<'a>,
        out: TensorViewMut<'a>,
    ) -> Result<Request<'a>> {
        let attributes = MatmulAttributes { bias: fused.bias.is_some(), activation: fused.activation };
        let mut request = Request::new(Operation::Matmul(attributes));
        let same = |view: &TensorView<'a>, layout: &Layout| view.rank() == layout.shape.len();
        request.input(&if same(&a, &self.a) && self.a.shape.len() == 2 { a } else { a.with_layout(self.a)? });
        request.input(&if same(&b, &self.b) && self.b.shape.len() == 2 { b } else { b.with_layout(self.b)? });
        if let Some(bias) = fused.bias {
            request.input(&bias);
        }
        if !self.row && !self.column {
            request.output(out);
            return Ok(request);
        }
        let mut layout = *out.layout();
        if self.column {
            layout = with_axis(&layout, false)?;
        }
        if self.row {
            layout = with_axis(&layout, true)?;
        }
        request.output(out.with_layout(layout)?);
        Ok(request)
    }
}

fn check_bias(dtype: DType, n: usize, fused: &Fused<'_>) -> Result<()> {
    let Some(bias) = fused.bias else { return Ok(()) };
    if bias.dtype() != dtype {
        return Err(Error::DTypeMismatch { operation: OPERATION, left: dtype, right: bias.dtype() });
    }
    if bias.shape() != [n] {
        return Err(mismatch(format!(
            "the bias is {}, a vector of {n} columns is needed",
            bias.layout().shape
        )));
    }
    Ok(())
}

fn joined(batch: &[usize], matrix: &[usize]) -> Result<Shape> {
    let mut shape = Shape::new(batch)?;
    for &size in matrix {
        if shape.len() == crate::tensor::MAX_RANK {
            return Err(Error::RankTooLarge { rank: batch.len() + matrix.len() });
        }
        shape.append(size);
    }
    Ok(shape)
}

/// An axis of size one before the last one, or after it.
fn with_axis(layout: &Layout, before_last: bool) -> Result<Layout> {
    let mut sizes = joined(&layout.shape, &[1])?;
    let mut strides = Strides::filled(1, sizes.len());
    strides[..layout.strides.len()].copy_from_slice(&layout.strides);
    let last = sizes.len() - 1;
    if before_last {
        sizes.swap(last - 1, last);
        strides.swap(last - 1, last);
    }
    Ok(Layout { shape: sizes, strides, offset: layout.offset })
}
