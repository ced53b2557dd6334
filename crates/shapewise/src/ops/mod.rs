//! Operations: one folder each, all its kernels in it.

mod activation;
pub mod attention;
mod bound;
mod call;
pub mod conv;
pub mod copy;
mod cost;
pub mod elementwise;
pub mod fft;
pub mod gather;
mod kernel;
mod key;
pub mod matmul;
pub mod norm;
pub mod pad;
mod parameters;
pub mod pool;
pub mod quantize;
pub mod reduce;
pub mod rnn;
pub mod scatter;
pub mod softmax;
pub mod sort;
pub mod sparse;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod walk;
mod words;
mod workload;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use crate::backends::cpu::ALIGNMENT;
pub use activation::Activation;
pub use bound::Bound;
pub use call::{Asked, Call, Request};
pub use cost::{ComputeUnit, Cost, Traffic};
pub use kernel::{Constraint, Kernel, KernelError, Refusal, Refusals, Variant};
pub use key::WorkloadKey;
pub use parameters::{Knob, ParameterSpace, Parameters};
pub(crate) use words::{KeptWords, ShortKey, Words};
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
    /// Elements picked by index.
    Gather(gather::GatherAttributes),
    /// Matrix product, with bias and activation.
    Matmul(matmul::MatmulAttributes),
    /// Batch, layer, RMS or group norm.
    Norm(norm::NormAttributes),
    /// Matrix product with a right operand that was packed before.
    PackedMatmul(matmul::MatmulAttributes),
    /// Product of integers, requantised or not.
    IntegerMatmul(quantize::IntegerMatmulAttributes),
    /// The largest or the mean of moving windows.
    Pool(pool::PoolAttributes),
    /// A border around a tensor.
    Pad(pad::PadAttributes),
    /// Real numbers to integers that stand for them, back, and between such integers.
    Quantize(quantize::QuantizeAttributes),
    /// Matrix product with quantised weights that were packed before.
    QuantizedMatmul(quantize::QuantizedMatmulAttributes),
    /// Elements along some axes to one result.
    Reduce(reduce::ReduceAttributes),
    /// One layer of a recurrent network in one direction.
    Rnn(rnn::RnnAttributes),
    /// Elements put where indices say.
    Scatter(scatter::ScatterAttributes),
    /// Softmax or log-softmax along an axis.
    Softmax(softmax::SoftmaxAttributes),
    /// Elements in order, or where they were.
    Sort(sort::SortAttributes),
    /// Sparse matrix times dense vector or matrix.
    Sparse(sparse::SparseAttributes),
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
    /// Elements picked by index.
    Gather,
    /// Matrix product.
    Matmul,
    /// Batch, layer, RMS or group norm.
    Norm,
    /// Matrix product with a right operand that was packed before.
    PackedMatmul,
    /// Product of integers.
    IntegerMatmul,
    /// The largest or the mean of moving windows.
    Pool,
    /// A border around a tensor.
    Pad,
    /// Real numbers to integers that stand for them, and back.
    Quantize,
    /// Matrix product with quantised weights that were packed before.
    QuantizedMatmul,
    /// Elements along some axes to one result.
    Reduce,
    /// One layer of a recurrent network in one direction.
    Rnn,
    /// Elements put where indices say.
    Scatter,
    /// Softmax or log-softmax along an axis.
    Softmax,
    /// Elements in order, or where they were.
    Sort,
    /// Sparse matrix times dense vector or matrix.
    Sparse,
}

impl OperationKind {
    /// Every operation.
    pub const ALL: &'static [OperationKind] = &[
        OperationKind::Conv,
        OperationKind::Copy,
        OperationKind::Attention,
        OperationKind::Elementwise,
        OperationKind::Fft,
        OperationKind::Gather,
        OperationKind::Matmul,
        OperationKind::Norm,
        OperationKind::Pool,
        OperationKind::Pad,
        OperationKind::Reduce,
        OperationKind::Rnn,
        OperationKind::Scatter,
        OperationKind::Softmax,
        OperationKind::Sort,
        OperationKind::Sparse,
        OperationKind::PackedMatmul,
        OperationKind::Quantize,
        OperationKind::IntegerMatmul,
        OperationKind::QuantizedMatmul,
    ];

    /// The name in kernels' names and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Conv => "conv",
            Self::Copy => "copy",
            Self::Attention => "attention",
            Self::Elementwise => "elementwise",
            Self::Fft => "fft",
            Self::Gather => "gather",
            Self::Matmul => "matmul",
            Self::Norm => "norm",
            Self::PackedMatmul => "packed_matmul",
            Self::IntegerMatmul => "integer_matmul",
            Self::Pool => "pool",
            Self::Pad => "pad",
            Self::Quantize => "quantize",
            Self::QuantizedMatmul => "quantized_matmul",
            Self::Reduce => "reduce",
            Self::Rnn => "rnn",
            Self::Scatter => "scatter",
            Self::Softmax => "softmax",
            Self::Sort => "sort",
            Self::Sparse => "sparse",
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
            Self::Gather => gather::KERNELS,
            Self::Matmul => matmul::KERNELS,
            Self::Norm => norm::KERNELS,
            Self::PackedMatmul => matmul::PACKED_KERNELS,
            Self::IntegerMatmul => quantize::INTEGER_KERNELS,
            Self::Pool => pool::KERNELS,
            Self::Pad => pad::KERNELS,
            Self::Quantize => quantize::KERNELS,
            Self::QuantizedMatmul => quantize::WEIGHT_KERNELS,
            Self::Reduce => reduce::KERNELS,
            Self::Rnn => rnn::KERNELS,
            Self::Scatter => scatter::KERNELS,
            Self::Softmax => softmax::KERNELS,
            Self::Sort => sort::KERNELS,
            Self::Sparse => sparse::KERNELS,
        }
    }
}

#[cfg(feature = "webgpu")]
impl OperationKind {
    /// The built-in WGSL kernels.
    pub fn webgpu_kernels(self) -> &'static [&'static dyn crate::backends::webgpu::WebGpuKernel] {
        match self {
            Self::Conv => conv::webgpu::WEBGPU_KERNELS,
            Self::Elementwise => elementwise::webgpu::WEBGPU_KERNELS,
            Self::Fft => fft::webgpu::WEBGPU_KERNELS,
            Self::Matmul => matmul::webgpu::WEBGPU_KERNELS,
            Self::IntegerMatmul => quantize::webgpu::WEBGPU_INTEGER_KERNELS,
            Self::Norm => norm::webgpu::WEBGPU_KERNELS,
            Self::Quantize => quantize::webgpu::WEBGPU_KERNELS,
            Self::QuantizedMatmul => quantize::webgpu::WEBGPU_WEIGHT_KERNELS,
            Self::Reduce => reduce::webgpu::WEBGPU_KERNELS,
            Self::Rnn => rnn::webgpu::WEBGPU_KERNELS,
            Self::Softmax => softmax::webgpu::WEBGPU_KERNELS,
            Self::Sparse => sparse::webgpu::WEBGPU_KERNELS,
            _ => &[],
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
            Self::Gather(_) => OperationKind::Gather,
            Self::Matmul(_) => OperationKind::Matmul,
            Self::Norm(_) => OperationKind::Norm,
            Self::PackedMatmul(_) => OperationKind::PackedMatmul,
            Self::IntegerMatmul(_) => OperationKind::IntegerMatmul,
            Self::Pool(_) => OperationKind::Pool,
            Self::Pad(_) => OperationKind::Pad,
            Self::Quantize(_) => OperationKind::Quantize,
            Self::QuantizedMatmul(_) => OperationKind::QuantizedMatmul,
            Self::Reduce(_) => OperationKind::Reduce,
            Self::Rnn(_) => OperationKind::Rnn,
            Self::Scatter(_) => OperationKind::Scatter,
            Self::Softmax(_) => OperationKind::Softmax,
            Self::Sort(_) => OperationKind::Sort,
            Self::Sparse(_) => OperationKind::Sparse,
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
            Self::Gather(attributes) => write!(f, "{attributes}"),
            Self::Matmul(attributes) => write!(f, "matmul{attributes}"),
            Self::Norm(attributes) => write!(f, "{attributes}"),
            Self::PackedMatmul(attributes) => write!(f, "packed_matmul{attributes}"),
            Self::IntegerMatmul(attributes) => write!(f, "{attributes}"),
            Self::Pool(attributes) => write!(f, "{attributes}"),
            Self::Pad(attributes) => write!(f, "{attributes}"),
            Self::Quantize(attributes) => write!(f, "{attributes}"),
            Self::QuantizedMatmul(attributes) => write!(f, "{attributes}"),
            Self::Reduce(attributes) => write!(f, "reduce {attributes}"),
            Self::Rnn(attributes) => write!(f, "{attributes}"),
            Self::Scatter(attributes) => write!(f, "{attributes}"),
            Self::Softmax(attributes) => write!(f, "{attributes}"),
            Self::Sort(attributes) => write!(f, "{attributes}"),
            Self::Sparse(attributes) => write!(f, "{attributes}"),
        }
    }
}
