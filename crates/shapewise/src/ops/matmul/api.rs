//! The calls: `rt.matmul(&a, &b)`, into a given output, and with bias and activation.

use super::MatmulAttributes;
use crate::error::{Error, Result, Thin};
use crate::ops::{Activation, Asked, Operation, Request};
use crate::tensor::{DType, Layout, Output, Peeked, Shape, Strides, Tensor, TensorView, TensorViewMut, Word};
use crate::{Prepared, Runtime};

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
    pub(super) bias: Option<TensorView<'a>>,
    pub(super) activation: Activation,
}

impl<'a> Fused<'a> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn operation(&self) -> Operation {
        Operation::Matmul(MatmulAttributes { bias: self.bias.is_some(), activation: self.activation })
    }

    /// The same without a copy where nothing is fused.
    #[inline]
    fn asked(&self) -> Asked<'static> {
        match (&self.bias, self.activation) {
            (None, Activation::None) => Asked::Lent(const { &Operation::Matmul(PLAIN) }),
            _ => Asked::Own(self.operation()),
        }
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

/// What short calls of products are known by.
const KIND: usize = 63;

/// Nothing fused.
const PLAIN: MatmulAttributes = MatmulAttributes { bias: false, activation: Activation::None };

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
    #[inline]
    pub fn matmul_into<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        b: impl Into<TensorView<'a>>,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (a, b, mut out) = (a.into(), b.into(), out);
        match self.short_product(a.peek(), b.peek(), out.peek()) {
            Some(done) => Ok(done?),
            None => self.matmul_views(&a, &b, &Fused::new(), &mut out.into_view_mut()?),
        }
    }

    /// A plain product of matrices that lie without gaps, if it is in the table, where only those are that were found to be right. It
    /// melts into the call, and views are not made for it: short calls feel every word that goes through memory.
    #[inline(always)]
    fn short_product(&self, a: Peeked, b: Peeked, out: Option<Peeked>) -> Option<Thin> {
        self.execute_short(KIND, [PLAIN.word()], [a, b, out?], Word::are_matrices)
    }

    /// The matrix product with bias and activation in the same pass.
    pub fn matmul_fused<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        b: impl Into<TensorView<'a>>,
        fused: Fused<'a>,
    ) -> Result<Tensor> {
        let (a, b) = (a.into(), b.into());
        check(&a, &b, &fused)?;
        let shape = match plain(&a, &b)? {
            Some(shape) => Shape::new(&shape)?,
            None => Sides::new(&a, &b)?.shape,
        };
        let mut out = self.allocate(&shape, a.dtype())?;
        let operation = fused.operation();
        let mut request = Request::new(Asked::Lent(&operation));
        fill(&mut request, &a, &b, &fused, out.view_mut()?)?;
        self.execute(&request)?;
        Ok(out)
    }

    /// The same into a given output, which may have any strides.
    #[inline]
    pub fn matmul_fused_into<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        b: impl Into<TensorView<'a>>,
        fused: Fused<'a>,
        out: impl Output<'a>,
    ) -> Result<()> {
        self.matmul_views(&a.into(), &b.into(), &fused, &mut out.into_view_mut()?)
    }

    fn matmul_views<'a>(
        &self,
        a: &TensorView<'a>,
        b: &TensorView<'a>,
        fused: &Fused<'a>,
        out: &mut TensorViewMut<'a>,
    ) -> Result<()> {
        if a.rank() == 2 && b.rank() == 2 && out.rank() == 2 {
            let mut request = Request::new(fused.asked());
            push(&mut request, a, b, fused, out);
            // What the table knows was checked when it was new.
            if let Some(done) = self.execute_known(&request.words, &request.pointers) {
                return Ok(done?);
            }
        }
        self.matmul_unchecked(a, b, fused, out.reborrow())
    }

    /// The same for operands that are yet to be checked.
    #[inline(never)]
    fn matmul_unchecked(
        &self,
        a: &TensorView<'_>,
        b: &TensorView<'_>,
        fused: &Fused<'_>,
        out: TensorViewMut<'_>,
    ) -> Result<()> {
        check(a, b, fused)?;
        let mut request = Request::new(fused.operation());
        fill(&mut request, a, b, fused, out)?;
        self.execute(&request)
    }

    /// Decides a product for tensors of these layouts once; see [`Prepared`]. A bias is the third input of every run.
    ///
    /// ```
    /// # use shapewise::{DType, Runtime, Tensor, ops::matmul::Fused};
    /// # let rt = Runtime::builder().without_calibration().build()?;
    /// let a = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let mut c = Tensor::zeros(&[2, 2], DType::F32)?;
    /// let product = rt.prepare_matmul(&a, &a, &Fused::new(), &mut c)?;
    /// product.run(&[&a, &a], &mut c)?;
    /// assert_eq!(c.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn prepare_matmul(
        &self,
        a: &Tensor,
        b: &Tensor,
        fused: &Fused<'_>,
        out: &mut Tensor,
    ) -> Result<Prepared> {
        let (a, b) = (a.view(), b.view());
        check(&a, &b, fused)?;
        let mut operands = vec![(a.dtype(), *a.layout(), a.first()), (b.dtype(), *b.layout(), b.first())];
        operands.extend(fused.bias.iter().map(|bias| (bias.dtype(), *bias.layout(), bias.first())));
        operands.push((out.dtype(), *out.layout(), out.as_mut_ptr()?.cast_const()));
        let mut request = Request::new(fused.operation());
        fill(&mut request, &a, &b, fused, out.view_mut()?)?;
        Prepared::new(self, &request, &operands)
    }
}

/// The operands as matrices with the same batch axes.
#[inline]
fn fill<'a>(
    request: &mut Request<'a>,
    a: &TensorView<'a>,
    b: &TensorView<'a>,
    fused: &Fused<'a>,
    mut out: TensorViewMut<'a>,
) -> Result<()> {
    if out.dtype() != a.dtype() {
        return Err(Error::DTypeMismatch { operation: OPERATION, left: a.dtype(), right: out.dtype() });
    }
    let Some([m, n]) = plain(a, b)? else {
        return fill_sides(request, a, b, fused, out);
    };
    if !matches!(out.shape(), &[rows, columns] if (rows, columns) == (m, n)) {
        return Err(misfit(&Shape::new(&[m, n])?, &out));
    }
    push(request, a, b, fused, &mut out);
    Ok(())
}

#[inline]
fn push<'a>(
    request: &mut Request<'a>,
    a: &TensorView<'a>,
    b: &TensorView<'a>,
    fused: &Fused<'a>,
    out: &mut TensorViewMut<'a>,
) {
    request.input(a);
    request.input(b);
    if let Some(bias) = &fused.bias {
        request.input(bias);
    }
    request.output_at(out);
}

/// Vectors and batches.
fn fill_sides<'a>(
    request: &mut Request<'a>,
    a: &TensorView<'a>,
    b: &TensorView<'a>,
    fused: &Fused<'a>,
    out: TensorViewMut<'a>,
) -> Result<()> {
    let sides = Sides::new(a, b)?;
    if out.layout().shape != sides.shape {
        return Err(misfit(&sides.shape, &out));
    }
    let layout = sides.output(out.layout())?;
    let (a, b) = (a.with_layout(sides.a)?, b.with_layout(sides.b)?);
    push(request, &a, &b, fused, &mut out.with_layout(layout)?);
    Ok(())
}

fn misfit(result: &Shape, out: &TensorViewMut<'_>) -> Error {
    mismatch(format!("the result is {result}, the output {}", out.layout().shape))
}

const OPERATION: &str = "matmul";

fn mismatch(reason: String) -> Error {
    Error::ShapeMismatch { operation: OPERATION, reason }
}

/// The operands as matrices with the same batch axes.
pub(in crate::ops) struct Sides {
    pub a: Layout,
    pub b: Layout,
    /// Of the result as the user sees it.
    pub shape: Shape,
    /// Axes that vectors were given and the result does not have.
    row: bool,
    column: bool,
}

impl Sides {
    /// The layout of the result with the axes of vectors.
    pub fn output(&self, layout: &Layout) -> Result<Layout> {
        let mut layout = *layout;
        if self.column {
            layout = with_axis(&layout, false)?;
        }
        if self.row {
            layout = with_axis(&layout, true)?;
        }
        Ok(layout)
    }

    pub fn new(a: &TensorView<'_>, b: &TensorView<'_>) -> Result<Self> {
        let (row, column) = (a.rank() == 1, b.rank() == 1);
        let left = if row { with_axis(a.layout(), true)? } else { *a.layout() };
        let right = if column { with_axis(b.layout(), false)? } else { *b.layout() };
        let (rank_a, rank_b) = (left.shape.len(), right.shape.len());
        let (k, n) = (left.shape[rank_a - 1], right.shape[rank_b - 1]);
        same_depth(a, b, k, right.shape[rank_b - 2])?;
        let m = left.shape[rank_a - 2];
        let batch = Shape::new(&left.shape[..rank_a - 2])?
            .broadcast(&Shape::new(&right.shape[..rank_b - 2])?, OPERATION)?;
        let a = left.broadcast_to(&joined(&batch, &[m, k])?)?;
        let b = right.broadcast_to(&joined(&batch, &[k, n])?)?;
        let shape = match (row, column) {
            (false, false) => joined(&batch, &[m, n])?,
            (true, false) => joined(&batch, &[n])?,
            (false, true) => joined(&batch, &[m])?,
            (true, true) => joined(&batch, &[])?,
        };
        shape.elements()?;
        Ok(Self { a, b, shape, row, column })
    }
}

/// What holds for operands of any rank.
#[inline]
fn check(a: &TensorView<'_>, b: &TensorView<'_>, fused: &Fused<'_>) -> Result<()> {
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
    match (b.rank(), b.shape().last()) {
        (2.., Some(&n)) => check_bias(a.dtype(), n, fused),
        _ => check_bias(a.dtype(), 1, fused),
    }
}

/// The result's shape, if both operands are plain matrices.
#[inline]
fn plain(a: &TensorView<'_>, b: &TensorView<'_>) -> Result<Option<[usize; 2]>> {
    let (&[m, k], &[rows, n]) = (a.shape(), b.shape()) else {
        return Ok(None);
    };
    same_depth(a, b, k, rows)?;
    Ok(Some([m, n]))
}

#[inline]
fn same_depth(a: &TensorView<'_>, b: &TensorView<'_>, columns: usize, rows: usize) -> Result<()> {
    if columns == rows {
        return Ok(());
    }
    Err(mismatch(format!(
        "the left operand {} has {columns} columns, the right one {} has {rows} rows",
        a.layout().shape,
        b.layout().shape
    )))
}

#[inline]
fn check_bias(dtype: DType, n: usize, fused: &Fused<'_>) -> Result<()> {
    let Some(bias) = &fused.bias else { return Ok(()) };
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
