//! Recurrent layers that choices are judged on: those of speech and language models, streaming, and odd sizes.

use anyhow::Result;
use shapewise::ops::rnn::{Cell, Nonlinearity, RnnOptions, RnnWeights};
use shapewise::{DType, Tensor};

use super::Suite;

/// Steps (some shortened), batch, input, hidden: a tagger, a language model, a listener, a prediction network step by step, voice
/// activity and keywords as they come, recommendation, and the layer that peers are measured on.
const MODELS: &[(Cell, [usize; 4])] = &[
    (Cell::Lstm, [30, 16, 100, 100]),
    (Cell::Lstm, [8, 20, 400, 1150]),
    (Cell::Lstm, [50, 8, 512, 256]),
    (Cell::Lstm, [1, 1, 640, 640]),
    (Cell::Lstm, [32, 1, 64, 64]),
    (Cell::Gru, [49, 1, 40, 154]),
    (Cell::Gru, [1, 50, 100, 100]),
    (Cell::Gru, [10, 4, 672, 800]),
    (Cell::Lstm, [16, 32, 256, 512]),
    (Cell::Gru, [16, 32, 256, 512]),
    (Cell::Tanh, [35, 20, 200, 200]),
    (Cell::Relu, [200, 16, 1, 100]),
];

impl Suite<'_> {
    /// The models' layers once, others drawn anew each time.
    pub(super) fn rnn(&mut self) -> Result<()> {
        for &(cell, sizes) in MODELS {
            self.one_rnn(cell, sizes, DType::F32)?;
        }
        for i in 0..12 {
            let cell = self.draw.pick(&[Cell::Lstm, Cell::Lstm, Cell::Gru, Cell::Gru, Cell::Tanh]);
            let (input, hidden) = (self.draw.size(1, 600), self.draw.size(4, 600));
            let batch = if i % 3 == 0 { 1 } else { self.draw.size(1, 100) };
            // A few milliseconds at most.
            let steps = self.draw.size(1, 100).min(30_000_000 / (batch * (input + hidden) * hidden)).max(1);
            let dtype = if i % 5 == 3 { DType::F64 } else { DType::F32 };
            self.one_rnn(cell, [steps, batch, input, hidden], dtype)?;
        }
        Ok(())
    }

    fn one_rnn(&mut self, cell: Cell, sizes: [usize; 4], dtype: DType) -> Result<()> {
        let [steps, batch, input, hidden] = sizes;
        let lines = cell.gates() * hidden;
        let x = Tensor::zeros(&[steps, batch, input], dtype)?;
        let (w_ih, w_hh) = (Tensor::zeros(&[lines, input], dtype)?, Tensor::zeros(&[lines, hidden], dtype)?);
        let bias = Tensor::zeros(&[lines], dtype)?;
        let (weights, options) = ([RnnWeights::new(&w_ih, &w_hh).bias(&bias, &bias)], RnnOptions::new());
        self.ask(|rt| {
            Ok(match cell {
                Cell::Tanh => rt.rnn(&x, &weights, Nonlinearity::Tanh, &options)?.0,
                Cell::Relu => rt.rnn(&x, &weights, Nonlinearity::Relu, &options)?.0,
                Cell::Gru => rt.gru(&x, &weights, &options)?.0,
                Cell::Lstm => rt.lstm(&x, &weights, &options)?.0,
            })
        })
    }
}
