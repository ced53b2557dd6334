//! Convolution along one, two or three axes, plain and transposed; f32, f64, f16 and bf16.
//!
//! As in torch, weights are not flipped: `y[p] = Σ x[p · stride + k · dilation − padding] · w[k]`. Kernels see every
//! convolution as one of three spatial axes (missing ones have size one), and layouts such as NHWC only as strides.

mod api;
mod cost;
mod cpu_depthwise;
mod cpu_depthwise_kernels;
mod cpu_depthwise_rows;
mod cpu_direct;
mod cpu_direct_kernels;
mod cpu_fourier;
mod cpu_fourier_kernels;
mod cpu_gemm;
mod cpu_ground;
mod cpu_im2col;
mod cpu_image;
mod cpu_interleave;
mod cpu_keep;
mod cpu_kernels;
mod cpu_pointwise;
mod cpu_reference;
mod cpu_winograd;
mod cpu_winograd_forms;
mod cpu_winograd_kernels;
mod cpu_winograd_tiles;
mod geometry;
mod options;
mod packed;
#[cfg(test)]
mod tests;
#[cfg(feature = "webgpu")]
pub mod webgpu;

use std::fmt::{self, Write};

use super::{Activation, Kernel};
use crate::backends::cpu::simd::Isa;

pub(super) use api::{Plan, Which};
pub use options::{ConvLayout, ConvOptions};
pub use packed::PackedConv;

/// Everything about a convolution that its operands' shapes do not say.
///
/// Operands of the workload are the input N×C×D×H×W, the weights G×O/G×C/G×kd×kh×kw, a bias of O numbers if there is
/// one, kept weights if there are some, and the output N×O×D×H×W.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvAttributes {
    /// Distance of neighbouring outputs in the input (in the output, if transposed), depth first.
    pub stride: [u32; 3],
    /// Distance of neighbouring weights.
    pub dilation: [u32; 3],
    /// Zeros before the first element; what comes after the last follows from the output's size.
    pub before: [i32; 3],
    /// Inputs are spread to outputs instead of outputs gathered from inputs.
    pub transposed: bool,
    /// Whether the third input is added to every channel of the result.
    pub bias: bool,
    /// The function applied to the result.
    pub activation: Activation,
    /// A form of the weights that is the last input, beside the plain ones.
    pub kept: Option<Kept>,
}

/// Weights as a kernel reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// In which order, and transformed how.
    pub form: KeptForm,
    /// The instruction set whose kernel reads them.
    pub isa: Isa,
}

/// In which order weights are, and transformed how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeptForm {
    /// Panels of the implicit product.
    Panels,
    /// Blocks of output channels, step by step, as the direct kernels read them.
    Blocks,
    /// Transformed by Winograd's F(2,3).
    WinogradTwo,
    /// Transformed by Winograd's F(4,3).
    WinogradFour,
}

impl Kept {
    fn write(self, out: &mut impl Write) -> fmt::Result {
        let form = match self.form {
            KeptForm::Panels => "panels",
            KeptForm::Blocks => "blocks",
            KeptForm::WinogradTwo => "winograd_f2",
            KeptForm::WinogradFour => "winograd_f4",
        };
        write!(out, "+{}_{form}", self.isa)
    }
}

impl ConvAttributes {
    /// Writes what tells these attributes from others in the store.
    pub(super) fn write_key(&self, out: &mut impl Write) -> fmt::Result {
        let Self { stride, dilation, before, .. } = self;
        let [transposed, bias] = [self.transposed, self.bias].map(u8::from);
        write!(out, " s {stride:?} d {dilation:?} p {before:?} {transposed}{bias} ")?;
        self.activation.write_key(out)?;
        self.kept.map_or(Ok(()), |kept| kept.write(out))
    }

    /// What is computed, as an ordinal for the models.
    pub(crate) fn feature(&self) -> f32 {
        let strided = self.stride.iter().any(|&s| s > 1);
        let dilated = self.dilation.iter().any(|&d| d > 1);
        let flags = [self.transposed, strided, dilated, self.bias];
        let plain = flags.iter().fold(0.0, |sum, &flag| 2.0 * sum + f32::from(u8::from(flag)));
        8.0 * plain + self.activation.ordinal()
    }
}

impl fmt::Display for ConvAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.transposed { "conv_transpose" } else { "conv" })?;
        for (what, values) in [("stride", self.stride), ("dilation", self.dilation)] {
            if values != [1; 3] {
                write!(f, " {what} {values:?}")?;
            }
        }
        if self.before != [0; 3] {
            write!(f, " padding {:?}", self.before)?;
        }
        if self.bias {
            write!(f, "+bias")?;
        }
        if self.activation != Activation::None {
            write!(f, "+{}", self.activation)?;
        }
        self.kept.map_or(Ok(()), |kept| kept.write(f))
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_pointwise::AVX512_PACKED,
    &cpu_pointwise::AVX512_PANEL,
    &cpu_pointwise::AVX512_HALF,
    &cpu_depthwise_kernels::AVX512_PLANES,
    &cpu_depthwise_kernels::AVX512_CHANNELS,
    &cpu_pointwise::AVX2_PACKED,
    &cpu_pointwise::AVX2_PANEL,
    &cpu_pointwise::AVX2_HALF,
    &cpu_depthwise_kernels::AVX2_PLANES,
    &cpu_depthwise_kernels::AVX2_CHANNELS,
    &cpu_pointwise::NEON_PACKED,
    &cpu_pointwise::NEON_PANEL,
    &cpu_pointwise::NEON_HALF,
    &cpu_depthwise_kernels::NEON_PLANES,
    &cpu_depthwise_kernels::NEON_CHANNELS,
    &cpu_pointwise::PORTABLE_PACKED,
    &cpu_pointwise::PORTABLE_PANEL,
    &cpu_pointwise::PORTABLE_HALF,
    &cpu_depthwise_kernels::PORTABLE_PLANES,
    &cpu_depthwise_kernels::PORTABLE_CHANNELS,
    &cpu_winograd_kernels::AVX512_F4,
    &cpu_winograd_kernels::AVX512_F2,
    &cpu_winograd_kernels::AVX2_F4,
    &cpu_winograd_kernels::AVX2_F2,
    &cpu_winograd_kernels::NEON_F4,
    &cpu_winograd_kernels::NEON_F2,
    &cpu_winograd_kernels::PORTABLE_F4,
    &cpu_winograd_kernels::PORTABLE_F2,
    &cpu_kernels::AVX512_GEMM,
    &cpu_direct_kernels::AVX512,
    &cpu_fourier_kernels::AVX512,
    &cpu_im2col::AVX512_PACKED,
    &cpu_kernels::AVX2_GEMM,
    &cpu_direct_kernels::AVX2,
    &cpu_fourier_kernels::AVX2,
    &cpu_im2col::AVX2_PACKED,
    &cpu_kernels::NEON_GEMM,
    &cpu_direct_kernels::NEON,
    &cpu_fourier_kernels::NEON,
    &cpu_im2col::NEON_PACKED,
    &cpu_kernels::PORTABLE_GEMM,
    &cpu_direct_kernels::PORTABLE,
    &cpu_fourier_kernels::PORTABLE,
    &cpu_im2col::PORTABLE_PACKED,
    &cpu_reference::REFERENCE,
];
