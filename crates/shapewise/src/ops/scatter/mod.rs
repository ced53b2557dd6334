//! Elements put where indices say: set, added, multiplied, or kept if larger or smaller.
//!
//! The forms are those of gather: an index for each element (`scatter`), or for all of the other axes at once
//! (`index_scatter`). The operation works in place; the calls that return a tensor copy first.
//!
//! Where indices repeat, elements are put in the row-major order of the index, whatever the number of threads: the last
//! one set wins, and sums are the same each time.

mod cpu_combine;
mod cpu_ranges;
mod cpu_reference;
#[cfg(test)]
mod tests;

use std::fmt;

use super::gather::indices::{Form, Places, check, near_shape};
use super::reduce::resolve;
use super::{Kernel, Operation, Request};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::tensor::{DType, Output, Tensor, TensorView};

/// What becomes of an element and of one that is put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combine {
    /// The new one; of several the last.
    Set,
    /// Their sum; integers wrap, truth values are joined by or.
    Add,
    /// Their product; integers wrap, truth values are joined by and.
    Prod,
    /// The larger one; NaN if either is.
    Max,
    /// The smaller one; NaN if either is.
    Min,
}

impl Combine {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
        }
    }
}

/// How elements are put and what becomes of those that were there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScatterAttributes {
    /// Every element has an index of its own; otherwise an index stands for all of the other axes.
    pub along: bool,
    /// What becomes of the element that was there.
    pub combine: Combine,
}

impl ScatterAttributes {
    /// The number that models see.
    pub(crate) fn feature(self) -> f32 {
        f32::from(2 * self.combine as u8 + u8::from(self.along))
    }

    /// What the key of a workload says.
    pub(crate) fn write_key(self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, " {} {}", u8::from(self.along), self.combine.name())
    }
}

impl fmt::Display for ScatterAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scatter {} {}", if self.along { "along" } else { "rows" }, self.combine.name())
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[&cpu_ranges::RANGES, &cpu_reference::REFERENCE];

/// A call in words.
#[derive(Clone, Copy)]
struct Asked<'a, 'b> {
    operation: &'static str,
    axis: isize,
    index: &'a TensorView<'b>,
    source: &'a TensorView<'b>,
    form: Form,
    combine: Combine,
}

impl Runtime {
    /// A copy of `x` with each element of `source` put at its index along the axis. `source` has the shape of `index`,
    /// whose other axes are at most as long as those of `x`.
    ///
    /// ```
    /// use shapewise::ops::scatter::Combine;
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let (x, index) = (Tensor::from_vec(vec![1.0f32, 2.0], &[2])?, Tensor::from_vec(vec![0i64, -1, 0], &[3])?);
    /// let source = Tensor::from_vec(vec![10.0f32, 20.0, 30.0], &[3])?;
    /// assert_eq!(rt.scatter(&x, 0, &index, &source, Combine::Add)?.to_vec::<f32>()?, [41.0, 22.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn scatter<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        index: impl Into<TensorView<'a>>,
        source: impl Into<TensorView<'a>>,
        combine: Combine,
    ) -> Result<Tensor> {
        let (index, source) = (&index.into(), &source.into());
        let asked = Asked { operation: "scatter", axis, index, source, form: Form::Along, combine };
        self.put_into_copy(&x.into(), asked)
    }

    /// As [`scatter`](Runtime::scatter), into `out` itself.
    pub fn scatter_in_place<'a>(
        &self,
        out: impl Output<'a>,
        axis: isize,
        index: impl Into<TensorView<'a>>,
        source: impl Into<TensorView<'a>>,
        combine: Combine,
    ) -> Result<()> {
        let (index, source) = (&index.into(), &source.into());
        let asked = Asked { operation: "scatter", axis, index, source, form: Form::Along, combine };
        self.put(out, asked)
    }

    /// A copy of `x` with a slice of `source` put at each index of an axis; `source` has the shape that
    /// [`index_select`](Runtime::index_select) would give.
    pub fn index_scatter<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        index: impl Into<TensorView<'a>>,
        source: impl Into<TensorView<'a>>,
        combine: Combine,
    ) -> Result<Tensor> {
        let (index, source) = (&index.into(), &source.into());
        let asked = Asked { operation: "index_scatter", axis, index, source, form: Form::Rows, combine };
        self.put_into_copy(&x.into(), asked)
    }

    /// As [`index_scatter`](Runtime::index_scatter), into `out` itself.
    pub fn index_scatter_in_place<'a>(
        &self,
        out: impl Output<'a>,
        axis: isize,
        index: impl Into<TensorView<'a>>,
        source: impl Into<TensorView<'a>>,
        combine: Combine,
    ) -> Result<()> {
        let (index, source) = (&index.into(), &source.into());
        let asked = Asked { operation: "index_scatter", axis, index, source, form: Form::Rows, combine };
        self.put(out, asked)
    }

    fn put_into_copy(&self, x: &TensorView<'_>, asked: Asked<'_, '_>) -> Result<Tensor> {
        asked.check(x)?;
        let mut out = self.copy(x)?;
        self.put(&mut out, asked)?;
        Ok(out)
    }

    fn put<'a>(&self, out: impl Output<'a>, asked: Asked<'_, '_>) -> Result<()> {
        let mut out = out.into_view_mut()?;
        let axis = asked.check(&out.as_view())?;
        let Asked { index, source, form, combine, .. } = asked;
        if source.is_empty() {
            return Ok(());
        }
        let places = Places::new(out.layout(), index.layout(), source.layout(), axis, form, true)?;
        let mut target = out.reborrow().with_layout(places.far)?;
        let mut source = source.with_layout(places.near)?;
        if combine == Combine::Set {
            // Only the size of an element matters then.
            (target, source) = (target.into_plain(), source.as_plain());
        }
        let attributes = ScatterAttributes { along: form == Form::Along, combine };
        let mut request = Request::new(Operation::Scatter(attributes));
        request.input_in_place(&mut target);
        request.input(&index.with_layout(places.index)?);
        request.input(&source);
        request.output_at(&mut target);
        self.execute(&request)
    }
}

impl Asked<'_, '_> {
    /// Checks everything before anything is written; gives the axis counted from the front.
    fn check(&self, x: &TensorView<'_>) -> Result<usize> {
        let &Self { operation, axis, index, source, form, combine } = self;
        let axis = resolve(axis, x.rank())?;
        let shape = near_shape(operation, x.shape(), axis, index.shape(), form)?;
        if source.dtype() != x.dtype() {
            return Err(Error::DTypeMismatch { operation, left: x.dtype(), right: source.dtype() });
        }
        if *source.shape() != *shape {
            let found = source.layout().shape;
            let reason = format!("the index asks for a source of {shape}, not {found}");
            return Err(Error::ShapeMismatch { operation, reason });
        }
        if x.dtype() == DType::I16 {
            let hint = "cast to i32".into();
            return Err(Error::UnsupportedDType { operation, dtype: x.dtype(), hint });
        }
        if x.dtype().is_complex() && matches!(combine, Combine::Max | Combine::Min) {
            let hint = "complex numbers have no order; use set, add or prod".into();
            return Err(Error::UnsupportedDType { operation, dtype: x.dtype(), hint });
        }
        check(operation, index, x.shape()[axis])?;
        Ok(axis)
    }
}
