//! Weights that were packed before the call, and panels cut otherwise.

use super::*;
use crate::backends::cpu::Probe;
use crate::device::Device;
use crate::ops::{Knob, Parameters};

#[test]
fn packed_weights_give_the_same_answers() {
    let rt = runtime();
    let x = Tensor::from_vec(numbers(4 * 7 * 9, 1, 1.0), &[4, 7, 9]).unwrap();
    for cell in Cell::ALL {
        let net = Net::new(cell, [9, 21], 2, 2, 5);
        let packed: Vec<_> = net.weights().iter().map(|w| rt.pack_rnn(cell, w).unwrap()).collect();
        assert!(packed[0].bytes() >= 4 * cell.gates() * 21 * (9 + 21));
        let kept: Vec<_> = packed.iter().map(PackedRnn::weights).collect();
        let lengths = [4, 1, 0, 3, 4, 2, 4];
        for options in
            [RnnOptions::new().bidirectional(), RnnOptions::new().bidirectional().lengths(&lengths)]
        {
            let plain = net.run(&rt, &x, &options).unwrap();
            for kernel in KERNELS {
                // Those for other instructions or fewer sequences refuse.
                let forced = rt.with_kernel(kernel.name()).unwrap();
                let Ok(given) = call(cell, &forced, &x, &kept, &options) else { continue };
                for (found, wanted) in given.iter().zip(&plain) {
                    close(found, wanted);
                }
            }
        }
    }
}

#[test]
fn packed_weights_that_are_not_finite_reach_the_first_step() {
    let rt = runtime();
    let (w_ih, mut w) = (Tensor::full(0.5f32, &[20, 3]).unwrap(), vec![0.1f32; 20 * 20]);
    w[7] = f32::INFINITY;
    let w_hh = Tensor::from_vec(w, &[20, 20]).unwrap();
    let weights = RnnWeights::new(&w_ih, &w_hh);
    let packed = rt.pack_rnn(Cell::Tanh, &weights).unwrap();
    let x = Tensor::full(1.0f32, &[1, 2, 3]).unwrap();
    for weights in [weights, packed.weights()] {
        // Zero times infinity.
        let (y, _) = rt.rnn(&x, &[weights], Nonlinearity::Tanh, &RnnOptions::new()).unwrap();
        let y = y.to_vec::<f32>().unwrap();
        assert!(y[0].is_nan() && y[20].is_nan() && !y[1].is_nan());
    }
}

#[test]
fn what_cannot_be_packed_is_refused() {
    let rt = runtime();
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype).unwrap();
    let (w_ih, w_hh) = (zeros(&[12, 2], DType::F32), zeros(&[12, 3], DType::F32));
    let short = zeros(&[11], DType::F32);
    assert!(rt.pack_rnn(Cell::Lstm, &RnnWeights::new(&w_ih, &w_hh)).is_ok());
    let wrong = [
        (Cell::Gru, RnnWeights::new(&w_ih, &w_hh)),
        (Cell::Lstm, RnnWeights::new(&w_ih, &short)),
        (Cell::Lstm, RnnWeights::new(&w_ih, &w_hh).bias(&short, &short)),
    ];
    for (cell, weights) in wrong {
        assert!(matches!(rt.pack_rnn(cell, &weights), Err(crate::Error::ShapeMismatch { .. })));
    }
    let half = zeros(&[12, 2], DType::F16);
    let refused = rt.pack_rnn(Cell::Lstm, &RnnWeights::new(&half, &half));
    assert!(matches!(refused, Err(crate::Error::UnsupportedDType { .. })));
    let double = zeros(&[12, 3], DType::F64);
    let refused = rt.pack_rnn(Cell::Lstm, &RnnWeights::new(&w_ih, &double));
    assert!(matches!(refused, Err(crate::Error::DTypeMismatch { .. })));
}

#[test]
fn pieces_of_every_depth_that_a_tuner_tries() {
    let rt = runtime();
    let (device, mut depths) = (rt.device(), 0);
    for cell in [Cell::Gru, Cell::Lstm] {
        let attributes = RnnAttributes { cell, reverse: false, bias: true, lengths: false, kept: None };
        let workload = workload(DType::F32, [2, 5, 300, 270], attributes);
        let mut expected = Probe::new(&workload, device).unwrap();
        let (reference, others) = KERNELS.split_last().unwrap();
        reference.launch(&mut expected.call(&workload, &Parameters::new(), device)).unwrap();
        for kernel in others.iter().filter(|k| k.supports(&workload, device.info()).is_ok()) {
            for point in kernel.tuning_space(&workload, device.info()).points() {
                let mut found = Probe::new(&workload, device).unwrap();
                kernel.launch(&mut found.call(&workload, point, device)).unwrap();
                if let Err(difference) = found.same_outputs(&expected, &workload) {
                    panic!("{} {point}: {difference}", kernel.name());
                }
                depths += usize::from(point.get(Knob::BlockK).is_some());
            }
        }
    }
    assert!(depths > 10, "only {depths} points have a depth");
}
