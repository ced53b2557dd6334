//! Copies between views: permutations, transpositions, concatenations and splits.
//!
//! Only the size of an element matters to a copy, so types of one size share a workload, and axes are sorted and merged
//! first: equal work has an equal key. Where the innermost axes agree rows are moved whole (`cpu_lines`); where another
//! axis lies along the input's memory, square tiles are turned in registers (`cpu_tiles`).

mod cpu_lines;
mod cpu_plan;
mod cpu_reference;
#[cfg(target_arch = "x86_64")]
mod cpu_tile_avx2;
mod cpu_tiles;
#[cfg(test)]
mod tests;

use super::elementwise::canonical::{Operands, canonical};
use super::reduce::{expect, resolve};
use super::{Kernel, Operation, Request};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::tensor::{Output, Shape, Tensor, TensorView, TensorViewMut};

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] =
    &[&cpu_lines::LINES, &cpu_tiles::AVX2_TILES, &cpu_tiles::PORTABLE_TILES, &cpu_reference::REFERENCE];

impl Runtime {
    /// The elements in row-major order, in memory of their own.
    pub fn copy<'a>(&self, x: impl Into<TensorView<'a>>) -> Result<Tensor> {
        let x = x.into();
        let mut out = self.allocate(&x.layout().shape, x.dtype())?;
        self.copy_into(x, &mut out)?;
        Ok(out)
    }

    /// The elements written into `out`, which has the same shape and type under any layout.
    pub fn copy_into<'a>(&self, x: impl Into<TensorView<'a>>, out: impl Output<'a>) -> Result<()> {
        let (x, out) = (x.into(), out.into_view_mut()?);
        expect("copy", &out, &x.layout().shape, x.dtype())?;
        self.move_elements(&x, out)
    }

    /// The axes in another order, in memory of their own ([`Tensor::permute`] only looks at the same memory).
    ///
    /// ```
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let x = Tensor::from_vec((0..6i32).collect(), &[1, 2, 3])?;
    /// let y = rt.permute(&x, &[2, 0, 1])?;
    /// assert_eq!((y.shape(), y.as_slice::<i32>()?), (&[3, 1, 2][..], &[0, 3, 1, 4, 2, 5][..]));
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn permute<'a>(&self, x: impl Into<TensorView<'a>>, order: &[usize]) -> Result<Tensor> {
        self.copy(x.into().permute(order)?)
    }

    /// As [`permute`](Runtime::permute), written into `out`.
    pub fn permute_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        order: &[usize],
        out: impl Output<'a>,
    ) -> Result<()> {
        self.copy_into(x.into().permute(order)?, out)
    }

    /// The last two axes exchanged, in memory of their own.
    pub fn transpose<'a>(&self, x: impl Into<TensorView<'a>>) -> Result<Tensor> {
        self.copy(x.into().transpose())
    }

    /// As [`transpose`](Runtime::transpose), written into `out`.
    pub fn transpose_into<'a>(&self, x: impl Into<TensorView<'a>>, out: impl Output<'a>) -> Result<()> {
        self.copy_into(x.into().transpose(), out)
    }

    /// Tensors one after the other along an axis; their other sizes and their types are equal.
    ///
    /// ```
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let (a, b) = (Tensor::from_vec(vec![1u8, 2], &[2, 1])?, Tensor::from_vec(vec![3u8, 4], &[2, 1])?);
    /// assert_eq!(rt.concat(&[a.view(), b.view()], 1)?.to_vec::<u8>()?, [1, 3, 2, 4]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn concat(&self, parts: &[TensorView<'_>], axis: isize) -> Result<Tensor> {
        let (shape, _) = joined(parts, axis)?;
        let mut out = self.allocate(&shape, parts[0].dtype())?;
        self.concat_into(parts, axis, &mut out)?;
        Ok(out)
    }

    /// As [`concat`](Runtime::concat), written into `out`.
    pub fn concat_into<'a>(&self, parts: &[TensorView<'_>], axis: isize, out: impl Output<'a>) -> Result<()> {
        let mut out = out.into_view_mut()?;
        let (shape, axis) = joined(parts, axis)?;
        expect("concat", &out, &shape, parts[0].dtype())?;
        let whole = *out.layout();
        let mut start = 0;
        for part in parts {
            let end = start + part.shape()[axis];
            let place = out.reborrow().with_layout(whole.slice(axis, start, end, 1)?)?;
            self.move_elements(part, place)?;
            start = end;
        }
        Ok(())
    }

    /// Pieces of the given sizes along an axis, each in memory of its own ([`Tensor::slice`] looks at the same memory).
    pub fn split<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        sizes: &[usize],
        axis: isize,
    ) -> Result<Vec<Tensor>> {
        let x = x.into();
        let at = resolve(axis, x.rank())?;
        let total = sizes.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        if total != Some(x.shape()[at]) {
            let reason = format!("the sizes {sizes:?} do not add up to {} of axis {axis}", x.shape()[at]);
            return Err(Error::ShapeMismatch { operation: "split", reason });
        }
        let mut start = 0;
        let mut piece = |&size: &usize| {
            let part = x.slice(at, start, start + size, 1)?;
            start += size;
            self.copy(part)
        };
        sizes.iter().map(&mut piece).collect()
    }

    /// Copies between views of one shape and one size of element.
    pub(crate) fn move_elements(&self, x: &TensorView<'_>, out: TensorViewMut<'_>) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let mut layouts: Operands = [*x.layout(), *out.layout()].into_iter().collect();
        canonical(&mut layouts)?;
        let mut request = Request::new(Operation::Copy);
        request.input(&x.with_layout(layouts[0])?.as_plain());
        request.output(out.with_layout(layouts[1])?.into_plain());
        self.execute(&request)
    }
}

/// The shape of tensors one after the other, and the axis counted from the front.
fn joined(parts: &[TensorView<'_>], axis: isize) -> Result<(Shape, usize)> {
    let operation = "concat";
    let Some(first) = parts.first() else {
        let reason = "no tensors were given; the result has no type".into();
        return Err(Error::InvalidArgument { operation, reason });
    };
    let axis = resolve(axis, first.rank())?;
    let mut shape = first.layout().shape;
    for part in &parts[1..] {
        if part.dtype() != first.dtype() {
            return Err(Error::DTypeMismatch { operation, left: first.dtype(), right: part.dtype() });
        }
        let fits =
            part.rank() == shape.len() && (0..shape.len()).all(|i| i == axis || part.shape()[i] == shape[i]);
        if !fits {
            let reason = format!(
                "{} and {} differ in more than axis {axis}",
                first.layout().shape,
                part.layout().shape
            );
            return Err(Error::ShapeMismatch { operation, reason });
        }
        shape[axis] = shape[axis]
            .checked_add(part.shape()[axis])
            .ok_or_else(|| Error::SizeOverflow { shape: shape.to_vec() })?;
    }
    shape.elements()?;
    Ok((shape, axis))
}
