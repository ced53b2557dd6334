//! Functions of each element.

use pyo3::prelude::*;

use crate::array::{Input, Operand, alike};
use crate::runtime::PyRuntime;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        #[pymethods]
        impl PyRuntime {$(
            $(#[$doc])*
            #[pyo3(signature = (x, /))]
            fn $name<'py>(&self, py: Python<'py>, x: Input<'py>) -> PyResult<Bound<'py, PyAny>> {
                let x = x.view()?;
                self.run(py, |rt| rt.$name(x))
            }
        )*}
    };
}

unary! {
    /// `-x`; integers wrap.
    neg;
    /// Magnitude.
    abs;
    /// eˣ.
    exp;
    /// Natural logarithm.
    log;
    /// Square root.
    sqrt;
    /// 1 / √x.
    rsqrt;
    /// Sine.
    sin;
    /// Cosine.
    cos;
    /// Hyperbolic tangent.
    tanh;
    /// 1 / (1 + e⁻ˣ).
    sigmoid;
    /// max(x, 0); NaN stays.
    relu;
    /// x · Φ(x), by erf.
    gelu;
    /// x · sigmoid(x).
    silu;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident $method:ident;)*) => {
        #[pymethods]
        impl PyRuntime {$(
            $(#[$doc])*
            #[pyo3(signature = (a, b, /))]
            fn $name<'py>(
                &self,
                py: Python<'py>,
                a: Operand<'py>,
                b: Operand<'py>,
            ) -> PyResult<Bound<'py, PyAny>> {
                let [a, b] = &alike([a, b])?;
                let (a, b) = (a.view()?, b.view()?);
                self.run(py, |rt| rt.$method(a, b))
            }
        )*}
    };
}

binary! {
    /// `a + b`, broadcast; integers wrap.
    ///
    /// >>> sw.add(np.arange(3), 10).tolist()
    /// [10, 11, 12]
    add add;
    /// `a - b`, broadcast; integers wrap.
    sub sub;
    /// `a * b`, broadcast; integers wrap.
    mul mul;
    /// `a / b`, broadcast; integers truncate, and `a / 0` is 0 for them.
    div div;
    /// The larger one of each pair, NaN if either is.
    maximum maximum;
    /// The smaller one of each pair, NaN if either is.
    minimum minimum;
    /// `a` to the power `b`.
    power pow;
    /// `a == b` as truth values.
    equal equal;
    /// `a != b` as truth values.
    not_equal not_equal;
    /// `a < b` as truth values.
    less less;
    /// `a <= b` as truth values.
    less_equal less_equal;
    /// `a > b` as truth values.
    greater greater;
    /// `a >= b` as truth values.
    greater_equal greater_equal;
}

#[pymethods]
impl PyRuntime {
    /// `a` where the condition is true, `b` elsewhere.
    #[pyo3(name = "where", signature = (condition, a, b, /))]
    fn choose<'py>(
        &self,
        py: Python<'py>,
        condition: Input<'py>,
        a: Operand<'py>,
        b: Operand<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let [a, b] = &alike([a, b])?;
        let (condition, a, b) = (condition.view()?, a.view()?, b.view()?);
        self.run(py, |rt| rt.where_(condition, a, b))
    }

    /// `x` moved into the range from `min` to `max`; NaN stays.
    #[pyo3(signature = (x, min = f64::NEG_INFINITY, max = f64::INFINITY))]
    fn clip<'py>(&self, py: Python<'py>, x: Input<'py>, min: f64, max: f64) -> PyResult<Bound<'py, PyAny>> {
        let x = x.view()?;
        self.run(py, |rt| rt.clamp(x, min, max))
    }

    /// `x` where positive, `slope * x` elsewhere.
    #[pyo3(signature = (x, slope = 0.01))]
    fn leaky_relu<'py>(&self, py: Python<'py>, x: Input<'py>, slope: f64) -> PyResult<Bound<'py, PyAny>> {
        let x = x.view()?;
        self.run(py, |rt| rt.leaky_relu(x, slope))
    }
}
