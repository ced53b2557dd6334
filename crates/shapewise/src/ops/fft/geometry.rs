//! Where the numbers of a transform lie: what every kernel reads from a workload.

use arrayvec::ArrayVec;

use super::{FftAttributes, FftKind};
use crate::ops::walk::{Axis, AxisList};
use crate::ops::{Operation, Workload};
use crate::tensor::{DType, MAX_RANK};

/// One axis that is transformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Along {
    /// Points of the transform.
    pub n: usize,
    /// Elements of the input, and of the output.
    pub from: usize,
    pub to: usize,
    /// Distance of neighbours in the input and in the output, in elements.
    pub input: isize,
    pub output: isize,
}

/// A transform: the batch it is repeated over, its axes, and its scale.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub kind: FftKind,
    pub batch: AxisList,
    /// The axis of a real transform that is halved is the last.
    pub axes: ArrayVec<Along, MAX_RANK>,
    pub scale: f64,
    /// Whether numbers are f64 and c64.
    pub double: bool,
}

/// The attributes of a workload that the registry gave to a kernel of this operation.
pub(super) fn attributes(workload: &Workload) -> FftAttributes {
    match workload.operation() {
        Operation::Fft(attributes) => *attributes,
        other => unreachable!("the registry gives transforms only, not {other}"),
    }
}

impl Geometry {
    pub fn new(workload: &Workload) -> Self {
        let FftAttributes { kind, axes: count, norm, .. } = attributes(workload);
        let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
        let first = x.shape.len() - usize::from(count);
        let batch = (0..first)
            .map(|i| Axis { size: x.shape[i], input: x.strides[i], output: y.strides[i] })
            .collect();
        let axes: ArrayVec<Along, MAX_RANK> = (first..x.shape.len())
            .map(|i| {
                let (from, to) = (x.shape[i], y.shape[i]);
                Along { n: from.max(to), from, to, input: x.strides[i], output: y.strides[i] }
            })
            .collect();
        let points = axes.iter().map(|a| a.n).product();
        let scale = norm.scale(kind.is_inverse(), points);
        Self { kind, batch, axes, scale, double: matches!(x.dtype, DType::F64 | DType::C64) }
    }

    /// Transforms in the batch.
    pub fn repeats(&self) -> usize {
        self.batch.iter().map(|a| a.size).product()
    }

    /// Points of one transform over all its axes.
    pub fn points(&self) -> usize {
        self.axes.iter().map(|a| a.n).product()
    }

    /// Arithmetic operations of a fast transform: 5 n log₂ n for complex numbers, half of that for real ones.
    pub fn nominal_operations(&self) -> f64 {
        let points = self.points() as f64;
        let share = if matches!(self.kind, FftKind::Forward | FftKind::Inverse) { 5.0 } else { 2.5 };
        share * points * points.max(2.0).log2() * self.repeats() as f64
    }
}
