//! Normalisation: batch norm, layer norm, RMS norm, group norm; f32, f64, f16 and bf16.
//!
//! Statistics are taken in two passes over blocks in the first cache and merged in f64; 16-bit floats are computed in
//! f32. Scale, bias and given statistics may be of any float type.

mod api;
mod cpu_kernels;
mod cpu_normalise;
mod cpu_planes;
mod cpu_reference;
mod cpu_rows;
#[cfg(test)]
mod tests;
#[cfg(feature = "webgpu")]
pub mod webgpu;

use std::fmt;

use super::Kernel;

pub use api::{BatchStatistics, NormOptions};

/// Over which elements mean and variance are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// Given statistics for each channel.
    BatchInference,
    /// Everything but the channel; the statistics are outputs too.
    BatchTraining,
    /// The last axes.
    Layer,
    /// The last axes, without subtracting the mean.
    Rms,
    /// Groups of neighbouring channels, each sample by itself.
    Group {
        /// How many groups the channels fall into.
        groups: u32,
    },
}

impl NormKind {
    /// The name in errors and keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BatchInference => "batch_norm",
            Self::BatchTraining => "batch_norm_training",
            Self::Layer => "layer_norm",
            Self::Rms => "rms_norm",
            Self::Group { .. } => "group_norm",
        }
    }
}

/// What is normalised and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NormAttributes {
    /// Over which elements.
    pub kind: NormKind,
    /// For batch and group norm the axis of the channels; for layer and RMS norm the first normalised axis.
    pub axis: u8,
    /// Whether the result is multiplied by an input.
    pub scale: bool,
    /// Whether an input is added to the result.
    pub bias: bool,
    eps: u64,
}

impl NormAttributes {
    /// Attributes with the number that is added to the variance.
    pub fn new(kind: NormKind, axis: u8, scale: bool, bias: bool, eps: f64) -> Self {
        Self { kind, axis, scale, bias, eps: eps.to_bits() }
    }

    /// What is added to the variance.
    pub fn eps(&self) -> f64 {
        f64::from_bits(self.eps)
    }
}

impl fmt::Display for NormAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if let NormKind::Group { groups } = self.kind {
            write!(f, " of {groups} groups")?;
        }
        let also = |yes: bool, what| if yes { what } else { "" };
        write!(f, " axis {}{}{}", self.axis, also(self.scale, "+scale"), also(self.bias, "+bias"))
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_kernels::AVX512_ROWS,
    &cpu_kernels::AVX2_ROWS,
    &cpu_kernels::AVX2_PLANES,
    &cpu_kernels::AVX2_CHANNELS,
    &cpu_kernels::NEON_ROWS,
    &cpu_kernels::NEON_PLANES,
    &cpu_kernels::NEON_CHANNELS,
    &cpu_kernels::PORTABLE_ROWS,
    &cpu_kernels::PORTABLE_PLANES,
    &cpu_kernels::PORTABLE_CHANNELS,
    &cpu_reference::REFERENCE,
];
