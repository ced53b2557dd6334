//! Elements picked by index: index select, embedding lookup, gather along an axis.
//!
//! Two forms with one canonical layout. *Rows*: every index picks all of the other axes (`index_select`, `embedding`).
//! *Along*: every element has an index of its own (`gather`, numpy's `take_along_axis`). The axis that is picked from
//! goes last, the others are sorted and merged.
//!
//! Indices are i32, u32 or i64; negative ones count from the end. They are checked before anything is written.

mod cpu_elements;
pub(crate) mod cpu_plan;
mod cpu_reference;
mod cpu_rows;
pub(crate) mod indices;
#[cfg(test)]
mod tests;

use std::fmt;

use super::reduce::{expect, resolve};
use super::{Kernel, Operation, Request};
use crate::error::Result;
use crate::runtime::Runtime;
use crate::tensor::{Output, Shape, Tensor, TensorView};
use indices::{Form, Places, check, near_shape};

/// How indices pick elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GatherAttributes {
    /// Every element has an index of its own; otherwise an index picks all of the other axes.
    pub along: bool,
}

impl GatherAttributes {
    /// The number that models see.
    pub(crate) fn feature(self) -> f32 {
        f32::from(u8::from(self.along))
    }

    /// What the key of a workload says.
    pub(crate) fn write_key(self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, " {}", u8::from(self.along))
    }
}

impl fmt::Display for GatherAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if self.along { "gather along" } else { "gather rows" })
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] =
    &[&cpu_rows::AVX2_ROWS, &cpu_rows::PORTABLE_ROWS, &cpu_elements::ELEMENTS, &cpu_reference::REFERENCE];

impl Runtime {
    /// What lies at each index of an axis: the axis is replaced by the axes of `index`.
    ///
    /// ```
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let x = Tensor::from_vec(vec![10, 11, 20, 21, 30, 31], &[3, 2])?;
    /// let y = rt.index_select(&x, 0, &Tensor::from_vec(vec![-1i64, 0], &[2])?)?;
    /// assert_eq!(y.to_vec::<i32>()?, [30, 31, 10, 11]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn index_select<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        index: impl Into<TensorView<'a>>,
    ) -> Result<Tensor> {
        self.pick("index_select", &x.into(), axis, &index.into(), Form::Rows)
    }

    /// As [`index_select`](Runtime::index_select), written into `out`.
    pub fn index_select_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        index: impl Into<TensorView<'a>>,
        out: impl Output<'a>,
    ) -> Result<()> {
        self.pick_into("index_select", &x.into(), axis, &index.into(), Form::Rows, out)
    }

    /// The rows of a table, one for each of `ids`.
    pub fn embedding<'a>(
        &self,
        table: impl Into<TensorView<'a>>,
        ids: impl Into<TensorView<'a>>,
    ) -> Result<Tensor> {
        self.pick("embedding", &table.into(), 0, &ids.into(), Form::Rows)
    }

    /// As [`embedding`](Runtime::embedding), written into `out`.
    pub fn embedding_into<'a>(
        &self,
        table: impl Into<TensorView<'a>>,
        ids: impl Into<TensorView<'a>>,
        out: impl Output<'a>,
    ) -> Result<()> {
        self.pick_into("embedding", &table.into(), 0, &ids.into(), Form::Rows, out)
    }

    /// The element at `index` along the axis, for each place of `index`, whose other axes are at most as long as those
    /// of `x`.
    pub fn gather<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        index: impl Into<TensorView<'a>>,
    ) -> Result<Tensor> {
        self.pick("gather", &x.into(), axis, &index.into(), Form::Along)
    }

    /// As [`gather`](Runtime::gather), written into `out`.
    pub fn gather_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        index: impl Into<TensorView<'a>>,
        out: impl Output<'a>,
    ) -> Result<()> {
        self.pick_into("gather", &x.into(), axis, &index.into(), Form::Along, out)
    }

    fn pick(
        &self,
        operation: &'static str,
        x: &TensorView<'_>,
        axis: isize,
        index: &TensorView<'_>,
        form: Form,
    ) -> Result<Tensor> {
        let at = resolve(axis, x.rank())?;
        let shape: Shape = near_shape(operation, x.shape(), at, index.shape(), form)?;
        let mut out = self.allocate(&shape, x.dtype())?;
        self.pick_into(operation, x, axis, index, form, &mut out)?;
        Ok(out)
    }

    fn pick_into<'a>(
        &self,
        operation: &'static str,
        x: &TensorView<'_>,
        axis: isize,
        index: &TensorView<'_>,
        form: Form,
        out: impl Output<'a>,
    ) -> Result<()> {
        let out = out.into_view_mut()?;
        let axis = resolve(axis, x.rank())?;
        let shape = near_shape(operation, x.shape(), axis, index.shape(), form)?;
        expect(operation, &out, &shape, x.dtype())?;
        check(operation, index, x.shape()[axis])?;
        if out.is_empty() {
            return Ok(());
        }
        let places = Places::new(x.layout(), index.layout(), out.layout(), axis, form, false)?;
        let along = form == Form::Along;
        let mut request = Request::new(Operation::Gather(GatherAttributes { along }));
        request.input(&x.with_layout(places.far)?.as_plain());
        request.input(&index.with_layout(places.index)?);
        request.output(out.with_layout(places.near)?.into_plain());
        self.execute(&request)
    }
}
