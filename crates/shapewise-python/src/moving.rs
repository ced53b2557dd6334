//! Elements moved, picked, put and sorted.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shapewise::ops::pad::Border;
use shapewise::ops::scatter::Combine;
use shapewise::ops::sort::Order;

use crate::array::{Input, to_numpy};
use crate::runtime::PyRuntime;

fn order(descending: bool) -> Order {
    if descending { Order::Descending } else { Order::Ascending }
}

/// Pairs of widths: one number, one pair, or a pair for each axis.
#[derive(FromPyObject)]
enum Widths {
    All(usize),
    Pair((usize, usize)),
    Each(Vec<(usize, usize)>),
}

#[pymethods]
impl PyRuntime {
    /// A copy with the axes in another order; reversed unless `axes` names it.
    #[pyo3(signature = (x, axes = None))]
    fn transpose<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        axes: Option<Vec<isize>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let rank = x.shape().len();
        let axes = axes.unwrap_or_else(|| (0..rank as isize).rev().collect());
        let place = |axis: isize| if axis < 0 { axis + rank as isize } else { axis };
        let axes: Vec<_> =
            axes.into_iter().map(|axis| usize::try_from(place(axis)).unwrap_or(usize::MAX)).collect();
        let x = x.view()?;
        self.run(py, |rt| rt.permute(x, &axes))
    }

    /// Arrays joined along an axis.
    #[pyo3(signature = (arrays, axis = 0))]
    fn concat<'py>(
        &self,
        py: Python<'py>,
        arrays: Vec<Input<'py>>,
        axis: isize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let views: Vec<_> = arrays.iter().map(Input::view).collect::<PyResult<_>>()?;
        self.run(py, |rt| rt.concat(&views, axis))
    }

    /// Pieces of the given sizes along an axis.
    #[pyo3(signature = (x, sizes, axis = 0))]
    fn split<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        sizes: Vec<usize>,
        axis: isize,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let x = x.view()?;
        let pieces = self.compute(py, |rt| rt.split(x, &sizes, axis))?;
        pieces.into_iter().map(|piece| to_numpy(py, piece)).collect()
    }

    /// A border: `widths` as for `numpy.pad`; `mode` is 'constant', 'edge', 'reflect' or 'wrap'.
    #[pyo3(signature = (x, widths, mode = "constant", value = 0.0))]
    fn pad<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        widths: Widths,
        mode: &str,
        value: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let border = match mode {
            "constant" => Border::Constant(value),
            "edge" => Border::Edge,
            "reflect" => Border::Reflect,
            "wrap" => Border::Wrap,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "mode is {mode:?}; use 'constant', 'edge', 'reflect' or 'wrap'"
                )));
            }
        };
        let widths = match widths {
            Widths::All(width) => vec![(width, width); x.shape().len()],
            Widths::Pair(pair) => vec![pair; x.shape().len()],
            Widths::Each(each) => each,
        };
        let x = x.view()?;
        self.run(py, |rt| rt.pad(x, &widths, border))
    }

    /// Slices of `x` at the indices along an axis; negative ones count from the end.
    #[pyo3(signature = (x, indices, axis = 0))]
    fn take<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        indices: Input<'py>,
        axis: isize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (x, indices) = (x.view()?, indices.view()?);
        self.run(py, |rt| rt.index_select(x, axis, indices))
    }

    /// The rows of a table, one for each of `ids`.
    fn embedding<'py>(
        &self,
        py: Python<'py>,
        table: Input<'py>,
        ids: Input<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (table, ids) = (table.view()?, ids.view()?);
        self.run(py, |rt| rt.embedding(table, ids))
    }

    /// The element at each index along the axis, as `numpy.take_along_axis`.
    #[pyo3(signature = (x, indices, axis = -1))]
    fn gather<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        indices: Input<'py>,
        axis: isize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (x, indices) = (x.view()?, indices.view()?);
        self.run(py, |rt| rt.gather(x, axis, indices))
    }

    /// A copy of `x` with `source` put at the indices along the axis: `mode` is 'set', 'add', 'prod', 'max' or 'min'.
    #[pyo3(signature = (x, indices, source, axis = -1, mode = "set"))]
    fn scatter<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        indices: Input<'py>,
        source: Input<'py>,
        axis: isize,
        mode: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let combine = match mode {
            "set" => Combine::Set,
            "add" => Combine::Add,
            "prod" => Combine::Prod,
            "max" => Combine::Max,
            "min" => Combine::Min,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "mode is {mode:?}; use 'set', 'add', 'prod', 'max' or 'min'"
                )));
            }
        };
        let (x, indices, source) = (x.view()?, indices.view()?, source.view()?);
        self.run(py, |rt| rt.scatter(x, axis, indices, source, combine))
    }

    /// The elements in order along an axis; equal ones keep theirs, NaN counts as the largest.
    #[pyo3(signature = (x, axis = -1, descending = false))]
    fn sort<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        axis: isize,
        descending: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let x = x.view()?;
        self.run(py, |rt| rt.sort(x, axis, order(descending)))
    }

    /// Where the elements in order were.
    #[pyo3(signature = (x, axis = -1, descending = false))]
    fn argsort<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        axis: isize,
        descending: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let x = x.view()?;
        self.run(py, |rt| rt.argsort(x, axis, order(descending)))
    }

    /// The `k` largest (or smallest) elements along an axis, in order, and where they were.
    #[pyo3(signature = (x, k, axis = -1, largest = true))]
    fn topk<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        k: usize,
        axis: isize,
        largest: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let x = x.view()?;
        self.run_two(py, |rt| rt.topk(x, k, axis, order(largest)))
    }
}
