//! What is asked for, as a key: operation, shapes, element types, layouts, attributes.

use std::fmt;
use std::hash::{Hash, Hasher};

use arrayvec::ArrayVec;

use super::{Operation, OperationKind};
use crate::tensor::{DType, Shape, Strides, count, in_order};

/// The most operands (inputs and outputs together) an operation may have.
pub const MAX_OPERANDS: usize = 11;

/// One operand as far as the choice of a kernel may depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorDesc {
    /// Element type.
    pub dtype: DType,
    /// Whether the first element's address is a multiple of [`super::ALIGNMENT`].
    pub aligned: bool,
    /// Elements along each axis.
    pub shape: Shape,
    /// Distance between neighbours along each axis, in elements.
    pub strides: Strides,
}

impl TensorDesc {
    /// A row-major, aligned operand.
    pub fn contiguous(dtype: DType, shape: Shape) -> Self {
        Self { dtype, aligned: true, shape, strides: shape.contiguous_strides() }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        count(&self.shape)
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Bytes of all elements, each counted once even where a broadcast repeats it.
    pub fn bytes(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let distinct: usize =
            self.shape.iter().zip(self.strides.iter()).filter(|&(_, &s)| s != 0).map(|(&n, _)| n).product();
        distinct * self.dtype.size()
    }

    /// Whether elements lie in row-major order without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        in_order(&self.shape, &self.strides)
    }
}

impl Hash for TensorDesc {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.dtype as u32 | u32::from(self.aligned) << 8 | (self.shape.len() as u32) << 16);
        for (&size, &stride) in self.shape.iter().zip(self.strides.iter()) {
            state.write_usize(size);
            state.write_isize(stride);
        }
    }
}

impl fmt::Display for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dtype, self.shape)?;
        if !self.is_contiguous() {
            write!(f, " strides {:?}", self.strides)?;
        }
        if self.aligned { Ok(()) } else { write!(f, " unaligned") }
    }
}

/// Operation, operands and attributes: hashable, the key of every decision and measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    operation: Operation,
    operands: ArrayVec<TensorDesc, MAX_OPERANDS>,
    outputs: u8,
    in_place: bool,
}

impl Workload {
    /// A workload from its parts.
    ///
    /// # Panics
    /// If there are more than [`MAX_OPERANDS`] operands; operations have a fixed, smaller number.
    pub fn new(operation: Operation, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Self {
        let operands = inputs.iter().chain(outputs).copied().collect();
        Self { operation, operands, outputs: outputs.len() as u8, in_place: false }
    }

    pub(super) fn set_in_place(&mut self) {
        self.in_place = true;
    }

    /// The operation with its attributes.
    #[inline]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The operation without its attributes.
    pub fn kind(&self) -> OperationKind {
        self.operation.kind()
    }

    /// What is read.
    #[inline]
    pub fn inputs(&self) -> &[TensorDesc] {
        &self.operands[..self.operands.len() - self.outputs as usize]
    }

    /// What is written.
    #[inline]
    pub fn outputs(&self) -> &[TensorDesc] {
        &self.operands[self.operands.len() - self.outputs as usize..]
    }

    /// Inputs, then outputs.
    pub fn operands(&self) -> &[TensorDesc] {
        &self.operands
    }

    /// For an operand that holds indices: the size of the axis they point into, the last one of the first operand; for
    /// one that holds lengths, one more than the longest.
    pub(crate) fn indices_below(&self, operand: usize) -> Option<usize> {
        if let Operation::Rnn(attributes) = self.operation {
            return attributes.lengths_below(operand, &self.operands);
        }
        let indexed = matches!(self.operation, Operation::Gather(_) | Operation::Scatter(_)) && operand == 1;
        self.operands.first().and_then(|o| o.shape.last().copied()).filter(|_| indexed)
    }

    /// How large made-up numbers of an operand should be: weights that are applied over and over must not make them grow.
    pub(crate) fn magnitude(&self, operand: usize) -> f64 {
        match self.operation {
            Operation::Rnn(attributes) => attributes.magnitude(operand, &self.operands),
            _ => 1.0,
        }
    }

    /// Whether an input is the very memory of the output.
    pub fn in_place(&self) -> bool {
        self.in_place
    }

    /// Bytes of all operands: the least that must move.
    pub fn bytes(&self) -> usize {
        self.operands.iter().map(TensorDesc::bytes).sum()
    }
}

impl Hash for Workload {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.operation.hash(state);
        state.write_u32(
            self.operands.len() as u32 | u32::from(self.outputs) << 8 | u32::from(self.in_place) << 16,
        );
        for operand in &self.operands {
            operand.hash(state);
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |operands: &[TensorDesc]| operands.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "{}({}) → {}", self.operation, list(self.inputs()), list(self.outputs()))?;
        if self.in_place { write!(f, " in place") } else { Ok(()) }
    }
}
