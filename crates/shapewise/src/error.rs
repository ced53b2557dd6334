//! What can go wrong, and what to do about it.

use crate::backends::cpu::MemoryError;
use crate::ops::Refusals;
use crate::store::StoreError;
use crate::tensor::DType;

/// An error of the library.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Shapes that do not fit together.
    #[error("{operation}: {reason}")]
    ShapeMismatch {
        /// What was asked for.
        operation: &'static str,
        /// Which sizes disagree.
        reason: String,
    },
    /// Operands of different element types.
    #[error("{operation}: operands are {left} and {right}; cast one of them first")]
    DTypeMismatch {
        /// What was asked for.
        operation: &'static str,
        /// One operand's type.
        left: DType,
        /// The other's.
        right: DType,
    },
    /// An element type that the operation is not defined for.
    #[error("{operation} is not defined for {dtype}; {hint}")]
    UnsupportedDType {
        /// What was asked for.
        operation: &'static str,
        /// The type that was given.
        dtype: DType,
        /// What would work.
        hint: String,
    },
    /// More axes than a tensor may have.
    #[error(
        "{rank} axes are more than the {} a tensor may have; merge some with reshape",
        crate::tensor::MAX_RANK
    )]
    RankTooLarge {
        /// The number of axes asked for.
        rank: usize,
    },
    /// A shape whose number of elements or bytes exceeds the address space.
    #[error("a tensor of shape {shape:?} does not fit the address space")]
    SizeOverflow {
        /// The shape asked for.
        shape: Vec<usize>,
    },
    /// A layout that reaches outside its storage.
    #[error(
        "shape {shape:?} with strides {strides:?} at offset {offset} reaches outside the {available} elements there are"
    )]
    OutOfBounds {
        /// The shape asked for.
        shape: Vec<usize>,
        /// Its strides.
        strides: Vec<isize>,
        /// Its first element.
        offset: usize,
        /// Elements in the storage.
        available: usize,
    },
    /// An axis that the tensor does not have.
    #[error("axis {axis} does not exist in a tensor of {rank} axes; use -{rank}..{rank}")]
    AxisOutOfRange {
        /// The axis asked for.
        axis: isize,
        /// Axes there are.
        rank: usize,
    },
    /// An argument outside what the operation accepts.
    #[error("{operation}: {reason}")]
    InvalidArgument {
        /// What was asked for.
        operation: &'static str,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The tensor's memory is shared or repeats itself, so it cannot be written.
    #[error("{operation}: the output {reason}")]
    NotWritable {
        /// What was asked for.
        operation: &'static str,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// Elements do not lie in row-major order without gaps.
    #[error("the elements are not contiguous; call `to_contiguous` first")]
    NotContiguous,
    /// Memory could not be had.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The store of what was measured.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No kernel accepts the workload.
    #[error("no kernel accepts {workload}:{}", list(refusals))]
    NoKernel {
        /// The workload in words.
        workload: String,
        /// Every kernel with all its reasons.
        refusals: Vec<(String, Refusals)>,
    },
    /// A kernel name that nothing is registered under.
    #[error("there is no kernel `{name}`; known for its operation: {}", known.join(", "))]
    UnknownKernel {
        /// The name asked for.
        name: String,
        /// Names that exist.
        known: Vec<String>,
    },
    /// A kernel failed and nothing could take its place.
    #[error("kernel `{kernel}` failed: {reason}")]
    KernelFailed {
        /// Its name.
        kernel: String,
        /// What happened.
        reason: String,
    },
    /// Something this machine, build or device cannot do.
    #[error("{what} is not possible here: {reason}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why not.
        reason: String,
    },
}

fn list(refusals: &[(String, Refusals)]) -> String {
    let lines: Vec<_> = refusals.iter().map(|(name, why)| format!("\n  {name}: {why}")).collect();
    lines.concat()
}

/// A result of the library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What launches return on their way up: an [`Error`] is so large that a short call would feel every copy of its place.
pub(crate) type Thin = Result<(), Box<Error>>;

impl From<Box<Error>> for Error {
    #[cold]
    fn from(error: Box<Error>) -> Self {
        *error
    }
}
