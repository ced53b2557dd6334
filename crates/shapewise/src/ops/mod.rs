//! Operations: one folder each, all its kernels in it.

mod activation;
pub mod attention;
mod call;
pub mod conv;
pub mod copy;
mod cost;
pub mod elementwise;
pub mod fft;
mod kernel;
mod key;
pub mod matmul;
pub mod norm;
mod parameters;
pub mod pool;
pub mod reduce;
pub mod softmax;
pub(crate) mod walk;
mod words;
mod workload;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use crate::backends::cpu::ALIGNMENT;
pub use activation::Activation;
pub use call::{Call, Request};
pub use cost::{ComputeUnit, Cost, Traffic};
pub use kernel::{Constraint, Kernel, KernelError, Refusal, Refusals, Variant};
pub use key::WorkloadKey;
pub use parameters::{Knob, ParameterSpace, Parameters};
pub(crate) use words::{KeptWords, Words};
pub use workload::{MAX_OPERANDS, TensorDesc, Workload};

/// What a user asks for, with its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Convolution, plain or transposed, with bias and activation.
    Conv(conv::ConvAttributes),
    /// Elements from one layout to another.
    Copy,
    /// Scaled dot-product attention.
    Attention(attention::AttentionAttributes),
    /// A function, or a fused chain of them, of each element.
    Elementwise(elementwise::Program),
    /// Fourier transform along some axes.
    Fft(fft::FftAttributes),
    /// Matrix product, with bias and activation.
    Matmul(matmul::MatmulAttributes),
    /// Batch, layer, RMS or group norm.
    Norm(norm::NormAttributes),
    /// Matrix product with a right operand that was packed before.
    PackedMatmul(matmul::MatmulAttributes),
    /// The largest or the mean of moving windows.
    Pool(pool::PoolAttributes),
    /// Elements along some axes to one result.
    Reduce(reduce::ReduceAttributes),
    /// Softmax or log-softmax along an axis.
    Softmax(softmax::SoftmaxAttributes),
}

/// What a user asks for, without attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OperationKind {
    /// Convolution, plain or transposed.
    Conv,
    /// Elements from one layout to another.
    Copy,
    /// Scaled dot-product attention.
    Attention,
    /// Functions of each element.
    Elementwise,
    /// Fourier transforms.
    Fft,
    /// Matrix product.
    Matmul,
    /// Batch, layer, RMS or group norm.
    Norm,
    /// Matrix product with a right operand that was packed before.
    PackedMatmul,
    /// The largest or the mean of moving windows.
    Pool,
    /// Elements along some axes to one result.
    Reduce,
    /// Softmax or log-softmax along an axis.
    Softmax,
}

impl OperationKind {
    /// Every operation.
    pub const ALL: &'static [OperationKind] = &[
        OperationKind::Conv,
        OperationKind::Copy,
        OperationKind::Attention,
        OperationKind::Elementwise,
        OperationKind::Fft,
        OperationKind::Matmul,
        OperationKind::Norm,
        OperationKind::Pool,
        OperationKind::Reduce,
        OperationKind::Softmax,
        OperationKind::PackedMatmul,
    ];

    /// The name in kernels' names and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conv => "conv",
            Self::Copy => "copy",
            Self::Attention => "attention",
            Self::Elementwise => "elementwise",
            Self::Fft => "fft",
            Self::Matmul => "matmul",
            Self::Norm => "norm",
            Self::PackedMatmul => "packed_matmul",
            Self::Pool => "pool",
            Self::Reduce => "reduce",
            Self::Softmax => "softmax",
        }
    }

    /// The built-in kernels, reference last.
    pub fn kernels(self) -> &'static [&'static dyn Kernel] {
        match self {
            Self::Conv => conv::KERNELS,
            Self::Copy => copy::KERNELS,
            Self::Attention => attention::KERNELS,
            Self::Elementwise => elementwise::KERNELS,
            Self::Fft => fft::KERNELS,
            Self::Matmul => matmul::KERNELS,
            Self::Norm => norm::KERNELS,
            Self::PackedMatmul => matmul::PACKED_KERNELS,
            Self::Pool => pool::KERNELS,
            Self::Reduce => reduce::KERNELS,
            Self::Softmax => softmax::KERNELS,
        }
    }
}

impl Operation {
    /// The operation without its attributes.
    pub const fn kind(&self) -> OperationKind {
        match self {
            Self::Conv(_) => OperationKind::Conv,
            Self::Copy => OperationKind::Copy,
            Self::Attention(_) => OperationKind::Attention,
            Self::Elementwise(_) => OperationKind::Elementwise,
            Self::Fft(_) => OperationKind::Fft,
            Self::Matmul(_) => OperationKind::Matmul,
            Self::Norm(_) => OperationKind::Norm,
            Self::PackedMatmul(_) => OperationKind::PackedMatmul,
            Self::Pool(_) => OperationKind::Pool,
            Self::Reduce(_) => OperationKind::Reduce,
            Self::Softmax(_) => OperationKind::Softmax,
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for OperationKind {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|o| o.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|o| o.name()).collect();
            crate::Error::InvalidArgument {
                operation: "operation",
                reason: format!("`{text}` is not an operation; use one of {}", names.join(", ")),
            }
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conv(attributes) => write!(f, "{attributes}"),
            Self::Copy => f.write_str("copy"),
            Self::Attention(attributes) => write!(f, "{attributes}"),
            Self::Elementwise(program) => write!(f, "elementwise {program}"),
            Self::Fft(attributes) => write!(f, "{attributes}"),
            Self::Matmul(attributes) => write!(f, "matmul{attributes}"),
            Self::Norm(attributes) => write!(f, "{attributes}"),
            Self::PackedMatmul(attributes) => write!(f, "packed_matmul{attributes}"),
            Self::Pool(attributes) => write!(f, "{attributes}"),
            Self::Reduce(attributes) => write!(f, "reduce {attributes}"),
            Self::Softmax(attributes) => write!(f, "{attributes}"),
        }
    }
}
