//! Matrix product: `a · b`, with bias and activation at the end.

use std::fmt;

use super::{Activation, Kernel};

/// What is computed beyond the plain product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MatmulAttributes {
    /// Whether a third input is added to every row of the result.
    pub bias: bool,
    /// The function applied to the result.
    pub activation: Activation,
}

impl fmt::Display for MatmulAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bias {
            write!(f, "+bias")?;
        }
        match self.activation {
            Activation::None => Ok(()),
            other => write!(f, "+{other}"),
        }
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[];
