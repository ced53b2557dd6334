//! Every cell against the reference.

use proptest::prelude::*;

use super::*;
use crate::backends::webgpu::testing::agree;

fn workload(attributes: RnnAttributes, [steps, batch, input, hidden]: [usize; 4]) -> Workload {
    let desc = |shape: &[usize]| TensorDesc::contiguous(DType::F32, Shape::new(shape).unwrap());
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn any_shape(steps in 1usize..8, batch in 1usize..5, input in 1usize..20, hidden in 1usize..20, cell in 0usize..4, bias: bool) {
        let attributes = RnnAttributes { cell: Cell::ALL[cell], reverse: false, bias, lengths: false, kept: None };
        prop_assert!(agree(WEBGPU_KERNELS, &workload(attributes, [steps, batch, input, hidden])) > 0);
    }
}
