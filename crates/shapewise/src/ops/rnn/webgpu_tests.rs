//! Every cell against the reference.

use proptest::prelude::*;

use super::*;
use crate::backends::webgpu::testing::{agree, every_knob_counts, limits};
use crate::ops::rnn::{Cell, RnnAttributes};
use crate::ops::{Knob, Operation, TensorDesc, Workload};
use crate::tensor::{DType, Shape};

fn workload(attributes: RnnAttributes, sizes: [usize; 4]) -> Workload {
    of(DType::F32, attributes, sizes)
}

fn of(dtype: DType, attributes: RnnAttributes, [steps, batch, input, hidden]: [usize; 4]) -> Workload {
    let desc = |shape: &[usize]| TensorDesc::contiguous(dtype, Shape::new(shape).unwrap());
    let lines = attributes.cell.gates() * hidden;
    let state = desc(&[batch, hidden]);
    let mut inputs = vec![desc(&[steps, batch, input]), state];
    let mut outputs = vec![desc(&[steps, batch, hidden]), state];
    if attributes.cell == Cell::Lstm {
        inputs.push(state);
        outputs.push(state);
    }
    inputs.extend([desc(&[lines, input]), desc(&[lines, hidden])]);
    if attributes.bias {
        inputs.extend([desc(&[lines]); 2]);
    }
    if attributes.lengths {
        inputs.push(TensorDesc::contiguous(DType::U32, Shape::new(&[batch]).unwrap()));
    }
    Workload::new(Operation::Rnn(attributes), &inputs, &outputs)
}

#[test]
fn every_cell_both_ways() {
    for cell in Cell::ALL {
        for (reverse, bias, lengths) in
            [(false, true, false), (true, false, false), (false, true, true), (true, true, true)]
        {
            let attributes = RnnAttributes { cell, reverse, bias, lengths, kept: None };
            for sizes in [[5, 3, 4, 6], [1, 1, 1, 1], [4, 2, 9, 17]] {
                assert!(agree(WEBGPU_KERNELS, &workload(attributes, sizes)) > 0, "{attributes} {sizes:?}");
            }
        }
    }
}

#[test]
fn rows_that_share_loads_and_vectors() {
    let plain = RnnAttributes { cell: Cell::Lstm, reverse: false, bias: true, lengths: false, kept: None };
    // The last rows have fewer than four neighbours, and units are more than invocations.
    let layers = Cell::ALL.map(|cell| (cell, [3, 6, 8, 12]));
    for (cell, sizes) in layers.into_iter().chain([(Cell::Gru, [2, 9, 5, 70]), (Cell::Tanh, [3, 4, 4, 300])])
    {
        let w = workload(RnnAttributes { cell, ..plain }, sizes);
        assert!(agree(WEBGPU_KERNELS, &w) >= 2, "{cell:?} {sizes:?}");
    }
    let w = workload(plain, [3, 6, 8, 12]);
    every_knob_counts(&resident::Resident, &w, &[Knob::TileM, Knob::WorkgroupX, Knob::Vector]);
    every_knob_counts(&projected::Projected, &w, &[Knob::Plan, Knob::WorkgroupX, Knob::Vector]);
}

#[test]
fn short_floats() {
    for cell in Cell::ALL {
        let attributes = RnnAttributes { cell, reverse: true, bias: true, lengths: false, kept: None };
        for sizes in [[4, 3, 5, 7], [3, 5, 8, 12]] {
            let w = of(DType::F16, attributes, sizes);
            if limits().f16 {
                assert!(agree(WEBGPU_KERNELS, &w) > 0, "{cell:?} {sizes:?}");
            } else {
                assert!(resident::Resident.supports(&w, limits()).is_err());
            }
        }
    }
}

#[test]
fn what_a_workgroup_cannot_hold_is_left_to_the_other() {
    let attributes =
        RnnAttributes { cell: Cell::Gru, reverse: false, bias: false, lengths: false, kept: None };
    let w = workload(attributes, [1, 1, 1, 100_000]);
    let reasons = resident::Resident.supports(&w, limits()).unwrap_err().to_string();
    assert!(reasons.contains("the workgroup's memory holds"), "{reasons}");
    let w = workload(attributes, [60_000, 1, 4, 4]);
    let reasons = resident::Resident.supports(&w, limits()).unwrap_err().to_string();
    assert!(reasons.contains("turns"), "{reasons}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn any_shape(steps in 1usize..8, batch in 1usize..7, input in 1usize..20, hidden in 1usize..20, cell in 0usize..4, bias: bool) {
        let attributes = RnnAttributes { cell: Cell::ALL[cell], reverse: false, bias, lengths: false, kept: None };
        prop_assert!(agree(WEBGPU_KERNELS, &workload(attributes, [steps, batch, input, hidden])) > 0);
    }
}
