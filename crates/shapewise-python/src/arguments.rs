//! Arguments that Python users write in several ways.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shapewise::ops::Activation;
use shapewise::ops::reduce::Over;

/// One axis, several, or (as `None`) all of them.
#[derive(FromPyObject)]
pub enum Axis {
    /// One.
    One(isize),
    /// Several.
    Some(Vec<isize>),
}

impl Axis {
    /// The axes to reduce over.
    pub fn over(axis: Option<Self>, keepdims: bool) -> Over {
        let over = match axis {
            None => Over::from(..),
            Some(Self::One(axis)) => Over::from(axis),
            Some(Self::Some(axes)) => Over::from(&axes[..]),
        };
        if keepdims { over.keepdims() } else { over }
    }
}

/// A size for all axes, or one for each.
#[derive(FromPyObject)]
pub enum Sizes {
    /// The same for all.
    All(usize),
    /// One for each.
    Each(Vec<usize>),
}

impl Sizes {
    /// One for each of `axes` axes.
    pub fn each(self, what: &str, axes: usize) -> PyResult<Vec<usize>> {
        match self {
            Self::All(size) => Ok(vec![size; axes]),
            Self::Each(sizes) if sizes.len() == axes => Ok(sizes),
            Self::Each(sizes) => Err(PyValueError::new_err(format!(
                "{what} has {} numbers; give one, or one for each of the {axes} axes",
                sizes.len()
            ))),
        }
    }
}

/// The function of this name.
pub fn activation(name: Option<&str>) -> PyResult<Activation> {
    Ok(match name {
        None | Some("none") => Activation::None,
        Some("relu") => Activation::Relu,
        Some("gelu") => Activation::Gelu,
        Some("silu") => Activation::Silu,
        Some("tanh") => Activation::Tanh,
        Some("sigmoid") => Activation::Sigmoid,
        Some(other) => {
            return Err(PyValueError::new_err(format!(
                "activation is {other:?}; use 'relu', 'gelu', 'silu', 'tanh', 'sigmoid' or None"
            )));
        }
    })
}
