//! The calls: `rt.quantize(&x, &how)`, back, and from one quantisation to another.

use super::attributes::{QuantizeAttributes, Walk};
use super::{Granularity, QuantType, Quantization};
use crate::error::{Error, Result};
use crate::ops::{Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Tensor, TensorView, TensorViewMut};

impl Runtime {
    /// The integers nearest to `x / scale + zero_point`, halves to the even one, kept inside the type's range.
    ///
    /// As ONNX's `QuantizeLinear`: the division is rounded to f32. NaN becomes the smallest integer. Four-bit integers
    /// halve the last axis.
    pub fn quantize<'a>(&self, x: impl Into<TensorView<'a>>, how: &Quantization) -> Result<Tensor> {
        let x = x.into();
        let shape = stored_shape("quantize", x.shape(), how.kind())?;
        let mut out = self.allocate(&shape, how.kind().dtype())?;
        self.quantize_into(x, how, &mut out)?;
        Ok(out)
    }

    /// The same into a given output, which may have any strides.
    pub fn quantize_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        how: &Quantization,
        out: impl Output<'a>,
    ) -> Result<()> {
        let x = x.into();
        let sides = Sides { name: "quantize", from: None, to: Some(how) };
        sides.check_real(x.dtype())?;
        self.convert(&sides, &x, out.into_view_mut()?)
    }

    /// `(q − zero_point) · scale` in f32.
    pub fn dequantize<'a>(&self, q: impl Into<TensorView<'a>>, how: &Quantization) -> Result<Tensor> {
        let q = q.into();
        let sides = Sides { name: "dequantize", from: Some(how), to: None };
        let mut out = self.allocate(&Shape::new(&sides.numbers(&q)?)?, DType::F32)?;
        self.dequantize_into(q, how, &mut out)?;
        Ok(out)
    }

    /// The same into a given output of f32, f16 or bf16, which may have any strides.
    pub fn dequantize_into<'a>(
        &self,
        q: impl Into<TensorView<'a>>,
        how: &Quantization,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (q, out) = (q.into(), out.into_view_mut()?);
        let sides = Sides { name: "dequantize", from: Some(how), to: None };
        sides.check_real(out.dtype())?;
        self.convert(&sides, &q, out)
    }

    /// From one quantisation to another: what dequantising to f32 and quantising again gives, in one pass.
    ///
    /// Both are per tensor, or along the same axis, or in blocks of the same size.
    pub fn requantize<'a>(
        &self,
        q: impl Into<TensorView<'a>>,
        from: &Quantization,
        to: &Quantization,
    ) -> Result<Tensor> {
        let q = q.into();
        let sides = Sides { name: "requantize", from: Some(from), to: Some(to) };
        let shape = stored_shape("requantize", &sides.numbers(&q)?, to.kind())?;
        let mut out = self.allocate(&shape, to.kind().dtype())?;
        self.requantize_into(q, from, to, &mut out)?;
        Ok(out)
    }

    /// The same into a given output, which may have any strides.
    pub fn requantize_into<'a>(
        &self,
        q: impl Into<TensorView<'a>>,
        from: &Quantization,
        to: &Quantization,
        out: impl Output<'a>,
    ) -> Result<()> {
        let sides = Sides { name: "requantize", from: Some(from), to: Some(to) };
        self.convert(&sides, &q.into(), out.into_view_mut()?)
    }

    /// Operands that are not row-major without gaps go through a copy that is.
    fn convert(&self, sides: &Sides<'_>, x: &TensorView<'_>, mut out: TensorViewMut<'_>) -> Result<()> {
        let walk = sides.check(x, &out)?;
        if x.is_empty() {
            return Ok(());
        }
        let mut copied = None;
        let line = self.in_order(*x, &mut copied)?;
        if out.layout().is_contiguous() {
            return self.convert_lines(sides, &walk, &line, out);
        }
        let mut whole = self.allocate(&out.layout().shape, out.dtype())?;
        self.convert_lines(sides, &walk, &line, whole.view_mut()?)?;
        self.copy_into(&whole, out.reborrow())
    }

    /// The view, or one of a copy whose elements are row-major without gaps.
    pub(super) fn in_order<'a>(
        &self,
        x: TensorView<'a>,
        copy: &'a mut Option<Tensor>,
    ) -> Result<TensorView<'a>> {
        if x.layout().is_contiguous() {
            return Ok(x);
        }
        Ok(copy.insert(self.copy(x)?).view())
    }

    fn convert_lines<'a>(
        &self,
        sides: &Sides<'a>,
        walk: &Walk,
        x: &TensorView<'a>,
        out: TensorViewMut<'a>,
    ) -> Result<()> {
        let packed = |how: Option<&Quantization>| how.is_some_and(|how| how.kind().is_packed());
        let line = |packed: bool, offset: usize| -> Result<Layout> {
            let layout = Layout::contiguous(Shape::new(&walk.shape(packed))?);
            Ok(Layout { offset, ..layout })
        };
        let (from, to) =
            (line(packed(sides.from), x.layout().offset)?, line(packed(sides.to), out.layout().offset)?);
        let has_zero = |how: Option<&Quantization>| how.is_some_and(|how| !how.is_symmetric());
        let attributes = QuantizeAttributes {
            from: sides.from.map(Quantization::kind),
            to: sides.to.map(Quantization::kind),
            zero_points: [has_zero(sides.from), has_zero(sides.to)],
            block: walk.block,
        };
        self.ask(Operation::Quantize(attributes), |request: &mut Request<'a>| {
            request.input(&x.with_layout(from)?);
            for how in [sides.from, sides.to].into_iter().flatten() {
                for tensor in [Some(how.scale()), how.zero_point()].into_iter().flatten() {
                    request.input(&tensor.view().with_layout(Layout::line(tensor.len()))?);
                }
            }
            request.output(out.with_layout(to)?);
            Ok(())
        })
    }
}

/// The shape of a tensor that holds integers for numbers of this shape.
pub(super) fn stored_shape(operation: &'static str, shape: &[usize], kind: QuantType) -> Result<Shape> {
    let mut stored = Shape::new(shape)?;
    if kind.is_packed() {
        let last = stored.last_mut().filter(|n| **n % 2 == 0).ok_or_else(|| Error::ShapeMismatch {
            operation,
            reason: format!("{kind} lies two in a byte, so the last axis must be even; {shape:?} is not"),
        })?;
        *last /= 2;
    }
    Ok(stored)
}

/// What numbers come from and go to.
struct Sides<'a> {
    name: &'static str,
    from: Option<&'a Quantization>,
    to: Option<&'a Quantization>,
}

impl Sides<'_> {
    fn check_real(&self, dtype: DType) -> Result<()> {
        if matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Ok(());
        }
        let hint = "real numbers are f32, f16 or bf16 here; cast first".into();
        Err(Error::UnsupportedDType { operation: self.name, dtype, hint })
    }

    /// The shape of the numbers that the input holds.
    fn numbers(&self, x: &TensorView<'_>) -> Result<Vec<usize>> {
        let mut shape = x.shape().to_vec();
        if self.from.is_some_and(|how| how.kind().is_packed()) {
            let last = shape.last_mut().ok_or_else(|| Error::ShapeMismatch {
                operation: self.name,
                reason: "integers of four bits need an axis that they are packed along".into(),
            })?;
            *last = last.checked_mul(2).ok_or_else(|| Error::SizeOverflow { shape: x.shape().to_vec() })?;
        }
        Ok(shape)
    }

    fn check(&self, x: &TensorView<'_>, out: &TensorViewMut<'_>) -> Result<Walk> {
        if let Some(how) = self.from.filter(|how| how.kind().dtype() != x.dtype()) {
            let (operation, dtype) = (self.name, x.dtype());
            let hint = format!("the quantisation says {}, held by {}", how.kind(), how.kind().dtype());
            return Err(Error::UnsupportedDType { operation, dtype, hint });
        }
        if self.to.is_some_and(|how| how.kind() == QuantType::I32) {
            let reason = "i32 is for sums of products; quantise to 16 bits or fewer".into();
            return Err(Error::InvalidArgument { operation: self.name, reason });
        }
        let numbers = self.numbers(x)?;
        let stored = match self.to {
            Some(how) => stored_shape(self.name, &numbers, how.kind())?,
            None => Shape::new(&numbers)?,
        };
        let dtype = self.to.map_or(out.dtype(), |how| how.kind().dtype());
        crate::ops::reduce::expect(self.name, out, &stored, dtype)?;
        let walks: Vec<(&Quantization, Walk)> = [self.from, self.to]
            .into_iter()
            .flatten()
            .map(|how| Ok((how, how.walk(self.name, &numbers)?)))
            .collect::<Result<_>>()?;
        let by_part = |&&(how, _): &&(&Quantization, Walk)| how.granularity() != Granularity::Tensor;
        let mut parts = walks.iter().filter(by_part);
        let Some(&(_, walk)) = parts.next() else { return Ok(walks[0].1) };
        if parts.any(|other| other.1 != walk) {
            let reason =
                "both quantisations must be per tensor, along one axis, or in blocks of one size".into();
            return Err(Error::InvalidArgument { operation: self.name, reason });
        }
        Ok(walk)
    }
}
