//! Borders around a tensor: a constant, the edge, or the tensor itself mirrored or repeated.

mod cpu_reference;
mod cpu_rows;
#[cfg(test)]
mod tests;

use std::fmt;

use super::reduce::{Exponent, expect};
use super::{Kernel, Operation, Request};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::tensor::{Axes, Layout, Output, Shape, Strides, Tensor, TensorView};

/// What a border is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Border {
    /// One value, rounded to the element type (integers: cut off at the point).
    Constant(f64),
    /// The nearest element.
    Edge,
    /// The tensor mirrored at its edge elements, which are not repeated.
    Reflect,
    /// The tensor from its other end.
    Wrap,
}

/// What a border is made of, as part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PadMode {
    /// One value.
    Constant(Exponent),
    /// The nearest element.
    Edge,
    /// The tensor mirrored at its edge elements.
    Reflect,
    /// The tensor from its other end.
    Wrap,
}

impl PadMode {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant(_) => "constant",
            Self::Edge => "edge",
            Self::Reflect => "reflect",
            Self::Wrap => "wrap",
        }
    }

    /// Which of `n` elements stands at place `at`, counted from the first one; `None` is the constant.
    #[inline]
    fn source(self, at: isize, n: usize) -> Option<usize> {
        if let Ok(inside) = usize::try_from(at)
            && inside < n
        {
            return Some(inside);
        }
        let last = n as isize - 1;
        Some(match self {
            Self::Constant(_) => return None,
            Self::Edge => at.clamp(0, last),
            Self::Reflect if last == 0 => 0,
            Self::Reflect => {
                let there_and_back = at.rem_euclid(2 * last);
                there_and_back.min(2 * last - there_and_back)
            }
            Self::Wrap => at.rem_euclid(last + 1),
        } as usize)
    }
}

/// A border around the input: the output is larger by what stands before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PadAttributes {
    /// What it is made of.
    pub mode: PadMode,
    /// Elements before the first along each axis.
    pub before: Axes<usize>,
}

impl PadAttributes {
    /// The number that models see.
    pub(crate) fn feature(self) -> f32 {
        match self.mode {
            PadMode::Constant(_) => 0.0,
            PadMode::Edge => 1.0,
            PadMode::Reflect => 2.0,
            PadMode::Wrap => 3.0,
        }
    }

    /// What the key of a workload says.
    pub(crate) fn write_key(self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, " {}", self.mode.name())?;
        if let PadMode::Constant(value) = self.mode {
            write!(out, " {:x}", value.value().to_bits())?;
        }
        self.before.iter().try_for_each(|before| write!(out, " {before}"))
    }
}

impl fmt::Display for PadAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pad {} {:?}", self.mode.name(), self.before)
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[&cpu_rows::ROWS, &cpu_reference::REFERENCE];

impl Runtime {
    /// A border of `(before, after)` elements along each axis.
    ///
    /// ```
    /// use shapewise::ops::pad::Border;
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let x = Tensor::from_vec(vec![1, 2, 3], &[3])?;
    /// assert_eq!(rt.pad(&x, &[(2, 1)], Border::Reflect)?.to_vec::<i32>()?, [3, 2, 1, 2, 3, 2]);
    /// assert_eq!(rt.pad(&x, &[(0, 2)], Border::Constant(7.0))?.to_vec::<i32>()?, [1, 2, 3, 7, 7]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn pad<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        widths: &[(usize, usize)],
        border: Border,
    ) -> Result<Tensor> {
        let x = x.into();
        let mut out = self.allocate(&padded(&x, widths, border)?, x.dtype())?;
        self.pad_into(x, widths, border, &mut out)?;
        Ok(out)
    }

    /// As [`pad`](Runtime::pad), written into `out`.
    pub fn pad_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        widths: &[(usize, usize)],
        border: Border,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (x, out) = (x.into(), out.into_view_mut()?);
        expect("pad", &out, &padded(&x, widths, border)?, x.dtype())?;
        if out.is_empty() {
            return Ok(());
        }
        let (from, to, before) = merged(x.layout(), out.layout(), widths);
        let mode = match border {
            Border::Constant(value) => PadMode::Constant(Exponent::new(value)),
            Border::Edge => PadMode::Edge,
            Border::Reflect => PadMode::Reflect,
            Border::Wrap => PadMode::Wrap,
        };
        let mut request = Request::new(Operation::Pad(PadAttributes { mode, before }));
        request.input(&x.with_layout(from)?);
        request.output(out.with_layout(to)?);
        self.execute(&request)
    }
}

/// The shape with its border.
fn padded(x: &TensorView<'_>, widths: &[(usize, usize)], border: Border) -> Result<Shape> {
    let operation = "pad";
    if widths.len() != x.rank() {
        let reason = format!("{} widths for {} axes; give one for each", widths.len(), x.rank());
        return Err(Error::InvalidArgument { operation, reason });
    }
    let mut shape = x.layout().shape;
    for (axis, (size, &(before, after))) in shape.iter_mut().zip(widths).enumerate() {
        let taken = !matches!(border, Border::Constant(_));
        if *size == 0 && taken && (before, after) != (0, 0) {
            let reason = format!("axis {axis} has no elements to make a border of; use a constant");
            return Err(Error::InvalidArgument { operation, reason });
        }
        *size = size
            .checked_add(before)
            .and_then(|n| n.checked_add(after))
            .ok_or_else(|| Error::SizeOverflow { shape: vec![*size, before, after] })?;
    }
    shape.elements()?;
    Ok(shape)
}

/// Layouts and borders with neighbouring axes that have no border merged: equal work has an equal key.
fn merged(from: &Layout, to: &Layout, widths: &[(usize, usize)]) -> (Layout, Layout, Axes<usize>) {
    let nothing = |offset| Layout { shape: Shape::filled(0, 0), strides: Strides::filled(0, 0), offset };
    let (mut x, mut y) = (nothing(from.offset), nothing(to.offset));
    let mut before = Axes::filled(0, 0);
    let mut open = false;
    for (i, &width) in widths.iter().enumerate() {
        let plain = width == (0, 0);
        let size = from.shape[i];
        if plain && size == 1 {
            continue;
        }
        let (near, far) = (from.strides[i], to.strides[i]);
        let joins = |last: Option<&isize>, stride: isize| last == Some(&stride.saturating_mul(size as isize));
        let rank = x.shape.len();
        if plain && open && joins(x.strides.last(), near) && joins(y.strides.last(), far) {
            x.shape[rank - 1] *= size;
            y.shape[rank - 1] *= size;
            (x.strides[rank - 1], y.strides[rank - 1]) = (near, far);
            continue;
        }
        for (layout, size, stride) in [(&mut x, size, near), (&mut y, to.shape[i], far)] {
            layout.shape.append(size);
            layout.strides.append(stride);
        }
        before.append(width.0);
        open = plain;
    }
    (x, y, before)
}
