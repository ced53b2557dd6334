//! Recurrent networks on views of every kind.

use shapewise::ops::rnn::{Nonlinearity, RnnOptions, RnnWeights};
use shapewise::{DType, Tensor};

use crate::data::Random;
use crate::{no_kernel_panics, wild};

/// A size that often fits the others.
fn size(r: &mut Random) -> usize {
    [1, 2, 3, 3, 17, 0][r.below(6)]
}

#[test]
fn networks() {
    no_kernel_panics(3_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r)];
        let (dtype, gates) = (wild::dtype(r), [1, 3, 4][r.below(3)]);
        let (steps, batch, input, hidden) = (size(r), size(r), size(r), size(r));
        let (directions, layers) = (1 + r.below(2), 1 + r.below(2));
        let zeros = |shape: &[usize]| Tensor::zeros(shape, dtype).unwrap();
        let (x, lines) = (zeros(&[steps, batch, input]), gates * hidden);
        let state = zeros(&[layers * directions, batch, hidden]);
        let (first, later) = (zeros(&[lines, input]), zeros(&[lines, directions * hidden]));
        let (w_hh, bias) = (zeros(&[lines, hidden]), zeros(&[lines]));
        // Now and then something else takes the place of what fits.
        let odd = r.below(12);
        let view = |r: &mut Random, place: usize, fitting| {
            if place == odd { wild::view(r, &storage[0]) } else { Tensor::view(fitting) }
        };
        let weights: Vec<_> = (0..layers * directions)
            .map(|i| {
                let w_ih = if i < directions { &first } else { &later };
                let set = RnnWeights::new(view(r, 0, w_ih), view(r, 1, &w_hh));
                if r.below(4) == 0 { set } else { set.bias(view(r, 2, &bias), view(r, 3, &bias)) }
            })
            .collect();
        let lengths: Vec<_> = (0..batch).map(|_| r.below(steps + if odd == 4 { 3 } else { 1 })).collect();
        let mut options = RnnOptions::new();
        options = if directions == 2 { options.bidirectional() } else { options };
        options = if r.below(9) == 0 { options.batch_first() } else { options };
        options = if r.below(3) == 0 { options.lengths(&lengths) } else { options };
        options = if r.below(3) == 0 { options.initial(view(r, 5, &state)) } else { options };
        options = if r.below(6) == 0 { options.initial_memory(view(r, 6, &state)) } else { options };
        options = if r.below(6) == 0 { options.dropout(wild::number(r), r.next()) } else { options };
        let x = view(r, 7, &x);
        let _ = rt.lstm(x, &weights, &options);
        let _ = rt.gru(x, &weights, &options);
        let _ = rt.rnn(x, &weights, Nonlinearity::Tanh, &options);
        let (y, mut h) = (&mut wild::storage(r), zeros(&[layers * directions, batch, hidden]));
        if let Ok(y) = y.view_mut().unwrap().with_layout(wild::layout(r)) {
            let _ = rt.gru_into(x, &weights, &options, y, &mut h);
        }
        let (x, h) = (wild::view(r, &storage[1]), zeros(&[batch, hidden]));
        let _ = rt.gru_cell(x, &h, &weights[0]);
        let _ = rt.lstm_cell(&zeros(&[batch, input]), &h, view(r, 8, &h), &weights[0]);
    });
}

#[test]
fn no_weights_and_no_axes() {
    no_kernel_panics(50, |rt, r| {
        let storage = wild::storage(r);
        assert!(rt.gru(wild::view(r, &storage), &[], &RnnOptions::new()).is_err());
        let scalar = Tensor::zeros(&[], DType::F32).unwrap();
        let weights = RnnWeights::new(&scalar, &scalar);
        assert!(rt.lstm(wild::view(r, &storage), &[weights], &RnnOptions::new()).is_err());
        assert!(rt.rnn_cell(&scalar, &scalar, &weights, Nonlinearity::Tanh).is_err());
    });
}
