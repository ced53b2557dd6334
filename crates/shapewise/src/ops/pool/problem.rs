//! One pooling as kernels see it: sizes and strides of five axes, and where windows begin and end.

use super::{PoolAttributes, PoolKind, Window};
use crate::ops::{Operation, Workload};

/// Batch, channels, depth, height and width.
pub(super) type Five<T> = [T; 5];

/// Sizes, strides and windows of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Problem {
    pub kind: PoolKind,
    pub indices: bool,
    pub window: [Window; 3],
    pub input: Five<usize>,
    pub output: Five<usize>,
    pub x: Five<isize>,
    pub y: Five<isize>,
    /// Of the indices, if there are any.
    pub at: Five<isize>,
}

/// A window's elements along one axis: `first`, `first + step` … , as many as `count` lie in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub first: usize,
    pub count: usize,
    pub step: usize,
    /// What the mean is divided by.
    pub divisor: usize,
}

impl Problem {
    pub fn of(workload: &Workload) -> Self {
        let PoolAttributes { kind, window, indices } = attributes(workload);
        let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
        let strides = |of: &[isize]| [of[0], of[1], of[2], of[3], of[4]];
        let sizes = |of: &[usize]| [of[0], of[1], of[2], of[3], of[4]];
        Self {
            kind,
            indices,
            window,
            input: sizes(&x.shape),
            output: sizes(&y.shape),
            x: strides(&x.strides),
            y: strides(&y.strides),
            at: workload.outputs().get(1).map_or([0; 5], |at| strides(&at.strides)),
        }
    }

    /// The window of output `o` along depth, height or width.
    #[inline]
    pub fn span(&self, axis: usize, o: usize) -> Span {
        let (n, outputs, w) = (self.input[axis + 2], self.output[axis + 2], &self.window[axis]);
        if self.kind == PoolKind::AdaptiveAverage {
            let (first, end) = (o * n / outputs, ((o + 1) * n).div_ceil(outputs));
            return Span { first, count: end - first, step: 1, divisor: end - first };
        }
        let (size, step, padding) = (w.size as usize, w.dilation as usize, w.padding as usize);
        // Places in the padded input.
        let start = o * w.stride as usize;
        let skipped = padding.saturating_sub(start).div_ceil(step).min(size);
        let first = start + skipped * step - padding;
        let count = if first < n { (n - first).div_ceil(step).min(size - skipped) } else { 0 };
        let divisor = match self.kind {
            PoolKind::Average { padding: true } => (start + size).min(n + 2 * padding).saturating_sub(start),
            _ => count,
        };
        Span { first, count, step, divisor }
    }

    /// Elements of a window, at most.
    pub fn window_elements(&self) -> usize {
        if self.kind == PoolKind::AdaptiveAverage {
            return (2..5).map(|a| self.input[a].div_ceil(self.output[a].max(1)) + 1).product();
        }
        self.window.iter().map(|w| w.size as usize).product()
    }

    /// Number of results.
    pub fn results(&self) -> usize {
        self.output.iter().product()
    }
}

/// The attributes of a workload of this operation.
pub(super) fn attributes(workload: &Workload) -> PoolAttributes {
    match workload.operation() {
        Operation::Pool(attributes) => *attributes,
        other => unreachable!("the registry gives pooling only, not {other}"),
    }
}

/// How far an element is from the first.
#[inline]
pub(super) fn offset(strides: &Five<isize>, place: Five<usize>) -> isize {
    strides.iter().zip(place).map(|(s, i)| s * i as isize).sum()
}
