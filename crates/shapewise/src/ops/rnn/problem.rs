//! One layer as kernels see it: sizes and strides.

use super::{Cell, Places, RnnAttributes};
use crate::ops::{Operation, TensorDesc, Workload};
use crate::tensor::DType;

/// Sizes, strides and attributes of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Problem {
    pub dtype: DType,
    pub cell: Cell,
    pub reverse: bool,
    pub bias: bool,
    pub places: Places,
    pub steps: usize,
    pub batch: usize,
    pub input: usize,
    pub hidden: usize,
    /// Strides along steps, batch and input.
    pub x: [isize; 3],
    /// Strides along rows and columns.
    pub w_ih: [isize; 2],
    pub w_hh: [isize; 2],
    /// Strides along steps, batch and hidden.
    pub y: [isize; 3],
}

impl Problem {
    pub fn of(workload: &Workload) -> Self {
        let RnnAttributes { cell, reverse, bias, .. } = attributes(workload);
        let places = attributes(workload).places();
        let (inputs, y) = (workload.inputs(), &workload.outputs()[0]);
        let x = &inputs[0];
        Self {
            dtype: y.dtype,
            cell,
            reverse,
            bias,
            places,
            steps: x.shape[0],
            batch: x.shape[1],
            input: x.shape[2],
            hidden: y.shape[2],
            x: strides(x),
            w_ih: strides(&inputs[places.w_ih]),
            w_hh: strides(&inputs[places.w_hh]),
            y: strides(y),
        }
    }

    /// The `i`-th step to be computed.
    #[inline]
    pub fn step(&self, i: usize) -> usize {
        if self.reverse { self.steps - 1 - i } else { i }
    }

    /// Rows of weights.
    pub fn columns(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// Sequences of all steps one after the other, if one stride leads through them.
    pub fn rows_stride(&self) -> Option<isize> {
        match (self.steps, self.batch) {
            (1, _) => Some(self.x[1]),
            (_, 1) => Some(self.x[0]),
            (_, batch) => (self.x[0] == self.x[1] * batch as isize).then_some(self.x[1]),
        }
    }
}

fn strides<const N: usize>(desc: &TensorDesc) -> [isize; N] {
    std::array::from_fn(|i| desc.strides[i])
}

/// The attributes of a workload of this operation.
pub(super) fn attributes(workload: &Workload) -> RnnAttributes {
    match workload.operation() {
        Operation::Rnn(attributes) => *attributes,
        other => unreachable!("the registry gives recurrent layers only, not {other}"),
    }
}
