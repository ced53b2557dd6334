//! Functions that operations apply to their results before writing them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A function fused to the end of an operation.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub enum Activation {
    /// The result as it is.
    #[default]
    None,
    /// `max(x, 0)`
    Relu,
    /// `x` where positive, `slope · x` elsewhere.
    LeakyRelu {
        /// Factor for negative values.
        slope: f32,
    },
    /// `x · Φ(x)`, exact (by erf).
    Gelu,
    /// `x · sigmoid(x)`
    Silu,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e⁻ˣ)`
    Sigmoid,
}

impl Activation {
    #[inline]
    pub(super) fn key(self) -> (u8, u32) {
        match self {
            Self::None => (0, 0),
            Self::Relu => (1, 0),
            Self::LeakyRelu { slope } => (2, slope.to_bits()),
            Self::Gelu => (3, 0),
            Self::Silu => (4, 0),
            Self::Tanh => (5, 0),
            Self::Sigmoid => (6, 0),
        }
    }

    /// Writes its name in the store.
    pub(super) fn write_key(self, out: &mut impl fmt::Write) -> fmt::Result {
        match self {
            // By its bits: the decimal form of a number is a matter of taste.
            Self::LeakyRelu { slope } => write!(out, "leaky_relu {:x}", slope.to_bits()),
            other => write!(out, "{other}"),
        }
    }

    /// Which function it is, for the models.
    pub(crate) fn ordinal(self) -> f32 {
        f32::from(self.key().0)
    }
}

// Slopes are compared as bits, so that a workload with a NaN slope still equals itself.
impl PartialEq for Activation {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Activation {}

impl std::hash::Hash for Activation {
    #[inline]
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let (which, slope) = self.key();
        state.write_u64(u64::from(which) << 32 | u64::from(slope));
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "none"),
            Self::Relu => write!(f, "relu"),
            Self::LeakyRelu { slope } => write!(f, "leaky_relu({slope})"),
            Self::Gelu => write!(f, "gelu"),
            Self::Silu => write!(f, "silu"),
            Self::Tanh => write!(f, "tanh"),
            Self::Sigmoid => write!(f, "sigmoid"),
        }
    }
}
