//! Pooling: the largest or the mean of a window that moves over one, two or three axes.
//!
//! Images are `[batch, channels, …]` or, with `channels_last`, `[batch, …, channels]`; the batch may be left out. f32, f64,
//! f16 and bf16 (sums in f32 for the 16-bit ones); the maximum also of integers. As in torch, NaN in a window makes its
//! maximum NaN, padding never wins a maximum, and the index of a maximum is its place in the unpadded plane.

mod api;
mod cpu_channels;
mod cpu_kernels;
mod cpu_plain;
mod cpu_reference;
mod cpu_rows;
mod problem;
#[cfg(test)]
mod tests;

use std::fmt;

use super::Kernel;

pub use api::PoolOptions;

/// What becomes of the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The largest.
    Max,
    /// Their mean.
    Average {
        /// Whether padding counts as zeros.
        padding: bool,
    },
    /// Their mean, where windows are as long as it takes to cover the input evenly.
    AdaptiveAverage,
}

impl PoolKind {
    /// The name in errors and keys.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max => "max_pool",
            Self::Average { .. } => "avg_pool",
            Self::AdaptiveAverage => "adaptive_avg_pool",
        }
    }
}

/// The window along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Elements.
    pub size: u32,
    /// How far it moves at each step.
    pub stride: u32,
    /// Elements before the first, and as many after the last.
    pub padding: u32,
    /// Distance of its elements.
    pub dilation: u32,
}

impl Window {
    /// A single element.
    pub const ONE: Self = Self { size: 1, stride: 1, padding: 0, dilation: 1 };

    /// From its first to its last element.
    pub(crate) fn reach(&self) -> usize {
        (self.size as usize - 1) * self.dilation as usize + 1
    }
}

/// What is pooled and how: windows along depth, height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolAttributes {
    /// What becomes of a window.
    pub kind: PoolKind,
    /// Its three axes; those that the images lack are a single element.
    pub window: [Window; 3],
    /// Whether a second output has the places of the maxima.
    pub indices: bool,
}

impl PoolAttributes {
    /// What the workload's key is made from.
    pub(super) fn write_key(&self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, " {} {}", self.kind.name(), u8::from(self.indices))?;
        if let PoolKind::Average { padding } = self.kind {
            write!(out, " {}", u8::from(padding))?;
        }
        for w in self.window {
            write!(out, " {}/{}+{}*{}", w.size, w.stride, w.padding, w.dilation)?;
        }
        Ok(())
    }

    /// The ordinal that models see.
    pub(crate) fn feature(&self) -> f32 {
        let kind = match self.kind {
            PoolKind::Max => f32::from(u8::from(self.indices)),
            PoolKind::Average { .. } => 2.0,
            PoolKind::AdaptiveAverage => 3.0,
        };
        let [_, height, width] = self.window;
        kind + 4.0 * (height.size.min(63) * 64 + width.size.min(63)) as f32
            + 0.25 * width.stride.min(3) as f32
    }
}

impl fmt::Display for PoolAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.kind == PoolKind::AdaptiveAverage {
            return Ok(());
        }
        let [d, h, w] = self.window.map(|w| w.size);
        write!(f, " {d}×{h}×{w}")?;
        let [d, h, w] = self.window.map(|w| w.stride);
        write!(f, " by {d}×{h}×{w}{}", if self.indices { " with indices" } else { "" })
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_kernels::AVX2_ROWS,
    &cpu_kernels::AVX2_CHANNELS,
    &cpu_kernels::NEON_ROWS,
    &cpu_kernels::NEON_CHANNELS,
    &cpu_kernels::PORTABLE_ROWS,
    &cpu_kernels::PORTABLE_CHANNELS,
    &cpu_plain::PLAIN,
    &cpu_reference::REFERENCE,
];
