//! Sort, argsort and top-k along any axis.
//!
//! NaN counts as larger than every number, zeros of both signs as equal. Equal elements keep their order, so argsort and
//! top-k are stable; among sorted values without indices −0 may come before +0.
//!
//! Elements become unsigned keys of the same order (`cpu_keys`), so that one radix sort serves every type.

mod cpu_buckets;
mod cpu_keys;
mod cpu_lines;
mod cpu_network;
mod cpu_quick;
mod cpu_radix;
mod cpu_reference;
mod cpu_rows;
mod cpu_select;
mod cpu_sources;
mod cpu_split;
#[cfg(test)]
mod tests;

use std::fmt;

use super::elementwise::canonical::Operands;
use super::gather::indices::{append, few, part};
use super::reduce::{expect, resolve};
use super::{Kernel, Operation, Request};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Tensor, TensorView, TensorViewMut};

/// Which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// The smallest first, NaN last.
    #[default]
    Ascending,
    /// NaN first, then the largest.
    Descending,
}

/// What is wanted of the sorted elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// The elements.
    Values,
    /// Where they were.
    Indices,
    /// Both.
    Both,
}

/// A sort along the last axis; outputs that are shorter hold the first elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SortAttributes {
    /// Which way.
    pub order: Order,
    /// What the outputs are: elements, then where they were.
    pub wanted: Wanted,
}

impl SortAttributes {
    /// The number that models see.
    pub(crate) fn feature(self) -> f32 {
        f32::from(2 * self.wanted as u8 + self.order as u8)
    }

    /// What the key of a workload says.
    pub(crate) fn write_key(self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, " {} {}", self.order as u8, self.wanted as u8)
    }
}

impl fmt::Display for SortAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.wanted {
            Wanted::Values => "sort",
            Wanted::Indices => "argsort",
            Wanted::Both => "sort with indices",
        };
        f.pad(what)?;
        if self.order == Order::Descending { f.write_str(" descending") } else { Ok(()) }
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_select::SELECT,
    &cpu_quick::QUICK,
    &cpu_rows::RADIX,
    &cpu_rows::COMPARISONS,
    &cpu_reference::REFERENCE,
];

impl Runtime {
    /// The elements in order along an axis.
    ///
    /// ```
    /// use shapewise::ops::sort::Order;
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let x = Tensor::from_vec(vec![3.0f32, f32::NAN, -1.0], &[3])?;
    /// assert_eq!(rt.sort(&x, 0, Order::Ascending)?.to_vec::<f32>()?[..2], [-1.0, 3.0]);
    /// assert_eq!(rt.argsort(&x, 0, Order::Descending)?.to_vec::<i64>()?, [1, 0, 2]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn sort<'a>(&self, x: impl Into<TensorView<'a>>, axis: isize, order: Order) -> Result<Tensor> {
        let x = x.into();
        let shape = checked("sort", &x, axis, None)?;
        let mut out = self.allocate(&shape, x.dtype())?;
        self.sort_into(x, axis, order, &mut out)?;
        Ok(out)
    }

    /// As [`sort`](Runtime::sort), written into `out`.
    pub fn sort_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        order: Order,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (x, out) = (x.into(), out.into_view_mut()?);
        expect("sort", &out, &checked("sort", &x, axis, None)?, x.dtype())?;
        self.sort_any(&x, axis, order, Some(out), None)
    }

    /// Where the elements in order were, as i64; equal ones keep their order.
    pub fn argsort<'a>(&self, x: impl Into<TensorView<'a>>, axis: isize, order: Order) -> Result<Tensor> {
        let x = x.into();
        let mut out = self.allocate(&checked("argsort", &x, axis, None)?, DType::I64)?;
        self.argsort_into(x, axis, order, &mut out)?;
        Ok(out)
    }

    /// As [`argsort`](Runtime::argsort), written into `out`.
    pub fn argsort_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        order: Order,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (x, out) = (x.into(), out.into_view_mut()?);
        expect("argsort", &out, &checked("argsort", &x, axis, None)?, DType::I64)?;
        self.sort_any(&x, axis, order, None, Some(out))
    }

    /// The elements in order and where they were.
    pub fn sort_with_indices<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        order: Order,
    ) -> Result<(Tensor, Tensor)> {
        let x = x.into();
        let shape = checked("sort_with_indices", &x, axis, None)?;
        let (mut values, mut indices) =
            (self.allocate(&shape, x.dtype())?, self.allocate(&shape, DType::I64)?);
        self.sort_with_indices_into(x, axis, order, &mut values, &mut indices)?;
        Ok((values, indices))
    }

    /// As [`sort_with_indices`](Runtime::sort_with_indices), written into `values` and `indices`.
    pub fn sort_with_indices_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        order: Order,
        values: impl Output<'a>,
        indices: impl Output<'a>,
    ) -> Result<()> {
        let x = x.into();
        let shape = checked("sort_with_indices", &x, axis, None)?;
        self.sort_both("sort_with_indices", &x, axis, order, shape, values, indices)
    }

    /// The first `k` elements in order and where they were: the largest ones with [`Order::Descending`], the smallest
    /// with [`Order::Ascending`]. Of equal ones the first are taken.
    pub fn topk<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        k: usize,
        axis: isize,
        order: Order,
    ) -> Result<(Tensor, Tensor)> {
        let x = x.into();
        let shape = checked("topk", &x, axis, Some(k))?;
        let (mut values, mut indices) =
            (self.allocate(&shape, x.dtype())?, self.allocate(&shape, DType::I64)?);
        self.topk_into(x, k, axis, order, &mut values, &mut indices)?;
        Ok((values, indices))
    }

    /// As [`topk`](Runtime::topk), written into `values` and `indices`.
    pub fn topk_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        k: usize,
        axis: isize,
        order: Order,
        values: impl Output<'a>,
        indices: impl Output<'a>,
    ) -> Result<()> {
        let x = x.into();
        let shape = checked("topk", &x, axis, Some(k))?;
        self.sort_both("topk", &x, axis, order, shape, values, indices)
    }

    #[allow(clippy::too_many_arguments)] // the union of two calls
    fn sort_both<'a>(
        &self,
        operation: &'static str,
        x: &TensorView<'_>,
        axis: isize,
        order: Order,
        shape: Shape,
        values: impl Output<'a>,
        indices: impl Output<'a>,
    ) -> Result<()> {
        let (values, indices) = (values.into_view_mut()?, indices.into_view_mut()?);
        expect(operation, &values, &shape, x.dtype())?;
        expect(operation, &indices, &shape, DType::I64)?;
        self.sort_any(x, axis, order, Some(values), Some(indices))
    }

    /// The canonical workload: kept axes sorted and merged, the sorted one last.
    fn sort_any(
        &self,
        x: &TensorView<'_>,
        axis: isize,
        order: Order,
        values: Option<TensorViewMut<'_>>,
        indices: Option<TensorViewMut<'_>>,
    ) -> Result<()> {
        let axis = resolve(axis, x.rank())?;
        let wanted = match (&values, &indices) {
            (Some(_), Some(_)) => Wanted::Both,
            (Some(_), None) => Wanted::Values,
            (None, _) => Wanted::Indices,
        };
        let outputs: Vec<TensorViewMut<'_>> = values.into_iter().chain(indices).collect();
        if outputs.iter().all(TensorViewMut::is_empty) {
            return Ok(());
        }
        let layouts: Vec<Layout> =
            std::iter::once(*x.layout()).chain(outputs.iter().map(|o| *o.layout())).collect();
        let kept: Operands =
            layouts.iter().map(|l| part(l, (0..l.shape.len()).filter(|&i| i != axis), l.offset)).collect();
        let mut places = few(kept)?;
        for (place, layout) in places.iter_mut().zip(&layouts) {
            append(place, layout.shape[axis], layout.strides[axis]);
        }
        let mut request = Request::new(Operation::Sort(SortAttributes { order, wanted }));
        request.input(&x.with_layout(places[0])?);
        for (output, place) in outputs.into_iter().zip(&places[1..]) {
            request.output(output.with_layout(*place)?);
        }
        self.execute(&request)
    }
}

/// The shape of the result, `k` long along the axis if that is given.
fn checked(operation: &'static str, x: &TensorView<'_>, axis: isize, k: Option<usize>) -> Result<Shape> {
    let axis = resolve(axis, x.rank())?;
    if x.dtype().is_complex() || x.dtype() == DType::I16 {
        let hint = "complex numbers have no order: sort a part or the magnitude; cast i16 to i32".into();
        return Err(Error::UnsupportedDType { operation, dtype: x.dtype(), hint });
    }
    let mut shape = x.layout().shape;
    if let Some(k) = k {
        if k > shape[axis] {
            let reason = format!("{k} elements are asked for, the axis has {}", shape[axis]);
            return Err(Error::InvalidArgument { operation, reason });
        }
        shape[axis] = k;
    }
    Ok(shape)
}
