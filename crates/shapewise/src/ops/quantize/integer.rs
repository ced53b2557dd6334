//! Products of integers: `matmul_integer` with sums of i32, `qmatmul` with requantised results.

use super::attributes::{Along, IntegerMatmulAttributes};
use super::{Granularity, QuantType, Quantization};
use crate::error::{Error, Result};
use crate::ops::matmul::Sides;
use crate::ops::reduce::{expect, resolve};
use crate::ops::{Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Tensor, TensorView, TensorViewMut};

/// Zero points of the operands of [`Runtime::matmul_integer`], and whether the right one has four bits.
///
/// ```
/// use shapewise::ops::quantize::IntegerOptions;
/// use shapewise::{Runtime, Tensor};
/// let rt = Runtime::builder().without_calibration().build()?;
/// let a = Tensor::from_vec(vec![11u8, 7, 3, 10, 6, 2], &[2, 3])?;
/// let b = Tensor::from_vec(vec![1i8, 4, 2, 5, 3, 6], &[3, 2])?;
/// let zero = Tensor::scalar(12u8);
/// let c = rt.matmul_integer(&a, &b, &IntegerOptions::new().a_zero_point(&zero))?;
/// assert_eq!(c.to_vec::<i32>()?, [-38, -83, -44, -98]);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct IntegerOptions<'a> {
    a_zero_point: Option<TensorView<'a>>,
    b_zero_point: Option<TensorView<'a>>,
    packed: Option<QuantType>,
}

impl<'a> IntegerOptions<'a> {
    /// No zero points, eight bits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The zero point of the left operand, of its type: one, or one for every row.
    #[must_use]
    pub fn a_zero_point(mut self, zero: impl Into<TensorView<'a>>) -> Self {
        self.a_zero_point = Some(zero.into());
        self
    }

    /// The zero point of the right operand: one, or one for every column. For four bits it is i8 or u8.
    #[must_use]
    pub fn b_zero_point(mut self, zero: impl Into<TensorView<'a>>) -> Self {
        self.b_zero_point = Some(zero.into());
        self
    }

    /// The right operand is u8 and holds two integers of four bits in a byte along its last axis.
    #[must_use]
    pub fn b_packed(mut self, kind: QuantType) -> Self {
        self.packed = Some(kind);
        self
    }
}

impl IntegerOptions<'_> {
    /// Copies of the zero points of the left and of the right operand.
    pub(super) fn zero_points(&self) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let copy = |zero: Option<TensorView<'_>>| -> Result<Option<Tensor>> {
            let Some(zero) = zero else { return Ok(None) };
            match zero.dtype() {
                DType::I8 => Tensor::from_slice(&zero.to_vec::<i8>()?, zero.shape()).map(Some),
                DType::U8 => Tensor::from_slice(&zero.to_vec::<u8>()?, zero.shape()).map(Some),
                dtype => {
                    let hint = "zero points are i8 or u8".into();
                    Err(Error::UnsupportedDType { operation: "zero points", dtype, hint })
                }
            }
        };
        Ok((copy(self.a_zero_point)?, copy(self.b_zero_point)?))
    }
}

impl Runtime {
    /// The product of 8-bit integers less their zero points, in i32, as ONNX's `MatMulInteger`: sums wrap around.
    ///
    /// Shapes are those of [`matmul`](Runtime::matmul). Operands are i8 or u8, each its own; the right one may have four
    /// bits, then it is a contiguous matrix.
    pub fn matmul_integer<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        b: impl Into<TensorView<'a>>,
        options: &IntegerOptions<'a>,
    ) -> Result<Tensor> {
        let product = Product::integer("matmul_integer", a.into(), b.into(), options)?;
        let mut out = self.allocate(&product.shape, DType::I32)?;
        self.integer_product(&product, out.view_mut()?)?;
        Ok(out)
    }

    /// The same into a given output, which may have any strides.
    pub fn matmul_integer_into<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        b: impl Into<TensorView<'a>>,
        options: &IntegerOptions<'a>,
        out: impl Output<'a>,
    ) -> Result<()> {
        let product = Product::integer("matmul_integer", a.into(), b.into(), options)?;
        self.integer_product(&product, out.into_view_mut()?)
    }

    /// The product of two quantised operands, quantised as `y` says, as ONNX's `QLinearMatMul`:
    /// `round(sum · (a_scale · b_scale / y_scale)) + y_zero_point`, kept inside the type's range.
    ///
    /// The left operand is quantised per tensor or row, the right one per tensor or column and may have four bits; the
    /// result is i8 or u8, per tensor.
    pub fn qmatmul<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        a_how: &'a Quantization,
        b: impl Into<TensorView<'a>>,
        b_how: &'a Quantization,
        y_how: &'a Quantization,
    ) -> Result<Tensor> {
        let product = Product::quantised("qmatmul", (a.into(), a_how), (b.into(), b_how), y_how)?;
        let mut out = self.allocate(&product.shape, y_how.kind().dtype())?;
        self.integer_product(&product, out.view_mut()?)?;
        Ok(out)
    }

    /// The same into a given output, which may have any strides.
    pub fn qmatmul_into<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        a_how: &'a Quantization,
        b: impl Into<TensorView<'a>>,
        b_how: &'a Quantization,
        y_how: &'a Quantization,
        out: impl Output<'a>,
    ) -> Result<()> {
        let product = Product::quantised("qmatmul", (a.into(), a_how), (b.into(), b_how), y_how)?;
        self.integer_product(&product, out.into_view_mut()?)
    }

    pub(super) fn integer_product(&self, product: &Product<'_>, out: TensorViewMut<'_>) -> Result<()> {
        let dtype = product.rescale.map_or(DType::I32, |(_, _, y)| y.kind().dtype());
        expect(product.name, &out, &product.shape, dtype)?;
        if out.is_empty() {
            return Ok(());
        }
        let out_layout = product.sides.output(out.layout())?;
        let no_zero = Tensor::scalar(0i32);
        let attributes = IntegerMatmulAttributes {
            zero_points: [product.zeros[0].is_some(), product.zeros[1].is_some()],
            packed: product.packed,
            bias: product.bias.map(|(_, along)| along),
            requantized: product.rescale.is_some(),
        };
        self.ask(Operation::IntegerMatmul(attributes), |request: &mut Request<'_>| {
            request.input(&product.a.with_layout(product.sides.a)?);
            request.input(&product.b.with_layout(product.sides.b)?);
            for zero in product.zeros.iter().flatten() {
                request.input(&line(zero)?);
            }
            if let Some((bias, _)) = &product.bias {
                request.input(bias);
            }
            if let Some((a, b, y)) = product.rescale {
                for tensor in [a.scale(), b.scale(), y.scale(), y.zero_point().unwrap_or(&no_zero)] {
                    request.input(&line(tensor)?);
                }
            }
            request.output(out.with_layout(out_layout)?);
            Ok(())
        })
    }
}

/// A small tensor without gaps as a vector.
fn line(tensor: &Tensor) -> Result<TensorView<'_>> {
    tensor.view().with_layout(Layout { offset: tensor.layout().offset, ..Layout::line(tensor.len()) })
}

/// A product that was checked.
pub(super) struct Product<'a> {
    name: &'static str,
    a: TensorView<'a>,
    b: TensorView<'a>,
    sides: Sides,
    pub(super) shape: Shape,
    packed: Option<QuantType>,
    zeros: [Option<Tensor>; 2],
    rescale: Option<(&'a Quantization, &'a Quantization, &'a Quantization)>,
    pub(super) bias: Option<(TensorView<'a>, Along)>,
}

impl<'a> Product<'a> {
    pub fn integer(
        name: &'static str,
        a: TensorView<'a>,
        b: TensorView<'a>,
        options: &IntegerOptions<'a>,
    ) -> Result<Self> {
        let mut product = Self::of(name, a, b, options.packed)?;
        let (m, n) = product.rows_and_columns();
        let range = |dtype: DType| if dtype == DType::I8 { QuantType::I8 } else { QuantType::U8 };
        let kinds = [range(a.dtype()), options.packed.unwrap_or_else(|| range(b.dtype()))];
        let given = [options.a_zero_point, options.b_zero_point];
        for (side, (zero, lines)) in given.into_iter().zip([m, n]).enumerate() {
            let Some(zero) = zero else { continue };
            let zeros = bytes(name, &zero)?;
            check_lines(name, "zero points", zeros.len(), zero.rank(), lines)?;
            let (low, high) = kinds[side].range();
            if let Some(z) = zeros.iter().find(|z| !(low..=high).contains(*z)) {
                let kind = kinds[side];
                let reason = format!("a zero point of {z} is outside {low} … {high} of {kind}");
                return Err(Error::InvalidArgument { operation: name, reason });
            }
            product.zeros[side] = some_zeros(&zeros)?;
        }
        Ok(product)
    }

    pub fn quantised(
        name: &'static str,
        (a, a_how): (TensorView<'a>, &'a Quantization),
        (b, b_how): (TensorView<'a>, &'a Quantization),
        y: &'a Quantization,
    ) -> Result<Self> {
        let packed = b_how.kind().is_packed().then_some(b_how.kind());
        for (view, how) in [(&a, a_how), (&b, b_how)] {
            if how.kind().dtype() != view.dtype() {
                let hint = format!("the quantisation says {}, held by {}", how.kind(), how.kind().dtype());
                return Err(Error::UnsupportedDType { operation: name, dtype: view.dtype(), hint });
            }
        }
        if !matches!(y.kind(), QuantType::I8 | QuantType::U8) || y.granularity() != Granularity::Tensor {
            let reason =
                "the result is i8 or u8, per tensor; use matmul_integer and requantize for others".into();
            return Err(Error::InvalidArgument { operation: name, reason });
        }
        let mut product = Self::of(name, a, b, packed)?;
        let (m, n) = product.rows_and_columns();
        for (side, (how, axis, rank, lines)) in
            [(a_how, -2, a.rank(), m), (b_how, -1, b.rank(), n)].into_iter().enumerate()
        {
            match how.granularity() {
                Granularity::Tensor => {}
                Granularity::Channel(along) if resolve(along, rank)? == resolve(axis, rank)? => {
                    check_lines(name, "scales", how.scale().len(), 1, lines)?;
                }
                _ => {
                    let what = if side == 0 { "row" } else { "column" };
                    let reason = format!("this operand is quantised per tensor or per {what}");
                    return Err(Error::InvalidArgument { operation: name, reason });
                }
            }
            product.zeros[side] = how.zero_point().cloned();
        }
        product.rescale = Some((a_how, b_how, y));
        Ok(product)
    }

    fn of(
        name: &'static str,
        a: TensorView<'a>,
        b: TensorView<'a>,
        packed: Option<QuantType>,
    ) -> Result<Self> {
        for dtype in [a.dtype(), b.dtype()] {
            if !matches!(dtype, DType::I8 | DType::U8) {
                let hint = "operands are i8 or u8".into();
                return Err(Error::UnsupportedDType { operation: name, dtype, hint });
            }
        }
        if a.rank() == 0 || b.rank() == 0 {
            let reason = "a scalar has no rows or columns".into();
            return Err(Error::ShapeMismatch { operation: name, reason });
        }
        let sides = match packed {
            None => Sides::new(&a, &b)?,
            Some(kind) => packed_sides(name, &a, &b, kind)?,
        };
        let shape = sides.shape;
        Ok(Self { name, a, b, sides, shape, packed, zeros: [None, None], rescale: None, bias: None })
    }

    /// Rows and columns of the matrices; vectors count as one.
    fn rows_and_columns(&self) -> (usize, usize) {
        let (a, b) = (&self.sides.a.shape, &self.sides.b.shape);
        let columns = b[b.len() - 1];
        (a[a.len() - 2], if self.packed.is_some() { 2 * columns } else { columns })
    }
}

/// A right operand of four bits is a matrix of bytes; the layouts keep the bytes, the shape has the numbers.
fn packed_sides(
    name: &'static str,
    a: &TensorView<'_>,
    b: &TensorView<'_>,
    kind: QuantType,
) -> Result<Sides> {
    if !kind.is_packed() || b.dtype() != DType::U8 {
        let reason = format!("a packed right operand is i4 or u4 in u8, not {kind} in {}", b.dtype());
        return Err(Error::InvalidArgument { operation: name, reason });
    }
    if b.rank() != 2 || !b.layout().is_contiguous() {
        let reason = "a right operand of four bits must be a contiguous matrix; call `to_contiguous`".into();
        return Err(Error::ShapeMismatch { operation: name, reason });
    }
    let mut sides = Sides::new(a, b)?;
    let last = sides.shape.len() - 1;
    sides.shape[last] =
        sides.shape[last].checked_mul(2).ok_or_else(|| Error::SizeOverflow { shape: b.shape().to_vec() })?;
    sides.shape.elements()?;
    Ok(sides)
}

fn check_lines(name: &'static str, what: &str, found: usize, rank: usize, lines: usize) -> Result<()> {
    if found == 1 || (rank == 1 && found == lines) {
        return Ok(());
    }
    let reason = format!("{found} {what} for {lines} rows or columns; give one, or a vector of one for each");
    Err(Error::ShapeMismatch { operation: name, reason })
}

/// Zero points of eight bits as i32.
fn bytes(name: &'static str, zero: &TensorView<'_>) -> Result<Vec<i32>> {
    match zero.dtype() {
        DType::I8 => Ok(zero.to_vec::<i8>()?.into_iter().map(i32::from).collect()),
        DType::U8 => Ok(zero.to_vec::<u8>()?.into_iter().map(i32::from).collect()),
        dtype => {
            let hint = "zero points are i8 or u8".into();
            Err(Error::UnsupportedDType { operation: name, dtype, hint })
        }
    }
}

/// As a tensor, unless all are zero.
fn some_zeros(zeros: &[i32]) -> Result<Option<Tensor>> {
    if zeros.iter().all(|&z| z == 0) {
        return Ok(None);
    }
    Tensor::from_slice(zeros, &[zeros.len()]).map(Some)
}
