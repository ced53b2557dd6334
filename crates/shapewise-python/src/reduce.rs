//! Sums, extremes and their places, scans, softmax.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shapewise::ops::reduce::NormOrder;

use crate::arguments::Axis;
use crate::array::Input;
use crate::error::raise;
use crate::runtime::PyRuntime;

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        #[pymethods]
        impl PyRuntime {$(
            $(#[$doc])*
            #[pyo3(signature = (x, axis = None, keepdims = false))]
            fn $name<'py>(
                &self,
                py: Python<'py>,
                x: Input<'py>,
                axis: Option<Axis>,
                keepdims: bool,
            ) -> PyResult<Bound<'py, PyAny>> {
                let (x, over) = (x.view()?, Axis::over(axis, keepdims));
                self.run(py, |rt| rt.$name(x, over))
            }
        )*}
    };
}

reductions! {
    /// The sum over the axes; integers and truth values give int64.
    ///
    /// >>> sw.sum(np.ones((2, 3), "float32"), axis=1).tolist()
    /// [3.0, 3.0]
    sum;
    /// The mean over the axes; integers and truth values give float64.
    mean;
    /// The product over the axes; integers and truth values give int64.
    prod;
    /// The largest element; NaN if there is one.
    max;
    /// The smallest element; NaN if there is one.
    min;
    /// Where the largest element is: the first of equals, counted in row-major order over several axes.
    argmax;
    /// Where the smallest element is: the first of equals, counted in row-major order over several axes.
    argmin;
    /// Whether any element is not zero.
    any;
    /// Whether no element is zero.
    all;
}

macro_rules! scans {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        #[pymethods]
        impl PyRuntime {$(
            $(#[$doc])*
            #[pyo3(signature = (x, axis = None))]
            fn $name<'py>(
                &self,
                py: Python<'py>,
                x: Input<'py>,
                axis: Option<isize>,
            ) -> PyResult<Bound<'py, PyAny>> {
                let (x, axis) = match axis {
                    Some(axis) => (x, axis),
                    None => (x.flat()?, 0),
                };
                let x = x.view()?;
                self.run(py, |rt| rt.$name(x, axis))
            }
        )*}
    };
}

scans! {
    /// The sums of the first, the first two … elements along the axis; of all elements in a row without one.
    cumsum;
    /// The products of the first, the first two … elements along the axis.
    cumprod;
    /// The largest so far along the axis.
    cummax;
    /// The smallest so far along the axis.
    cummin;
}

#[pymethods]
impl PyRuntime {
    /// Σ (x − mean)² / (n − ddof) over the axes.
    #[pyo3(signature = (x, axis = None, keepdims = false, ddof = 0))]
    fn var<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        axis: Option<Axis>,
        keepdims: bool,
        ddof: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (x, over) = (x.view()?, Axis::over(axis, keepdims));
        self.run(py, |rt| rt.variance(x, ddof, over))
    }

    /// The vector norm of order `ord` (2 by default; 0, 1, any positive number, inf, -inf) over the axes.
    #[pyo3(signature = (x, axis = None, keepdims = false, ord = 2.0))]
    fn norm<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        axis: Option<Axis>,
        keepdims: bool,
        ord: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (x, over, order) = (x.view()?, Axis::over(axis, keepdims), order(ord)?);
        self.run(py, |rt| rt.norm(x, order, over))
    }

    /// eˣ over its sum along the axis.
    #[pyo3(signature = (x, axis = -1))]
    fn softmax<'py>(&self, py: Python<'py>, x: Input<'py>, axis: isize) -> PyResult<Bound<'py, PyAny>> {
        let x = x.view()?;
        self.run(py, |rt| rt.softmax(x, axis))
    }

    /// The logarithm of the softmax along the axis.
    #[pyo3(signature = (x, axis = -1))]
    fn log_softmax<'py>(&self, py: Python<'py>, x: Input<'py>, axis: isize) -> PyResult<Bound<'py, PyAny>> {
        let x = x.view()?;
        self.run(py, |rt| rt.log_softmax(x, axis))
    }
}

fn order(ord: f64) -> PyResult<NormOrder> {
    match ord {
        0.0 => Ok(NormOrder::Zero),
        1.0 => Ok(NormOrder::One),
        2.0 => Ok(NormOrder::Two),
        f64::INFINITY => Ok(NormOrder::Infinity),
        f64::NEG_INFINITY => Ok(NormOrder::NegativeInfinity),
        _ if ord.is_nan() => {
            Err(PyValueError::new_err("ord is NaN; give 0, 1, 2, a positive number, inf or -inf"))
        }
        _ => NormOrder::p(ord).map_err(raise),
    }
}
