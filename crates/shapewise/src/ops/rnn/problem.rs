//! One layer as kernels see it: sizes and strides.

use super::cpu_pack::kept_elements;
use super::{Cell, Kept, Places, RnnAttributes};
use crate::ops::{Operation, TensorDesc, Workload};
use crate::tensor::DType;

/// Sizes, strides and attributes of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Problem {
    pub dtype: DType,
    pub cell: Cell,
    pub reverse: bool,
    pub bias: bool,
    /// How the last input holds the weights, if they were packed before.
    pub kept: Option<Kept>,
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
        let RnnAttributes { cell, reverse, bias, kept, .. } = attributes(workload);
        let places = attributes(workload).places();
        let (inputs, y) = (workload.inputs(), &workload.outputs()[0]);
        let x = &inputs[0];
        let mut problem = Self {
            dtype: y.dtype,
            cell,
            reverse,
            bias,
            kept,
            places,
            steps: x.shape[0],
            batch: x.shape[1],
            input: x.shape[2],
            hidden: y.shape[2],
            x: strides(x),
            w_ih: strides(&inputs[places.w_ih]),
            w_hh: strides(&inputs[places.w_hh]),
            y: strides(y),
        };
        // Whoever asks without `pack_rnn` may have put anything there.
        problem.kept = kept.filter(|kept| {
            let elements: usize = kept_elements(&problem, kept.isa).iter().sum();
            inputs.last().is_some_and(|o| o.dtype == y.dtype && *o.shape == [elements] && o.strides[0] == 1)
        });
        problem
    }

    /// A layer of which only the weights are known, which are contiguous.
    pub fn of_weights(cell: Cell, dtype: DType, [input, hidden]: [usize; 2], kept: Kept) -> Self {
        let attributes =
            RnnAttributes { cell, reverse: false, bias: false, lengths: false, kept: Some(kept) };
        Self {
            dtype,
            cell,
            reverse: false,
            bias: false,
            kept: Some(kept),
            places: attributes.places(),
            steps: 0,
            batch: 0,
            input,
            hidden,
            x: [0; 3],
            w_ih: [input as isize, 1],
            w_hh: [hidden as isize, 1],
            y: [0; 3],
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
