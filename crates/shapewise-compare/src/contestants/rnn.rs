//! Recurrent layers: Shapewise, and candle step by step as its users call it.

use super::ours::{PACKED, owned};
use super::rust_pointwise::{candle_tensor, read_candle};
use super::{Entrants, OURS, returns};
use crate::problem::Problem;
use crate::rnn::Rnn;
use anyhow::Result;
use candle_core::{DType as CandleType, Device};
use candle_nn::VarBuilder;
use candle_nn::rnn::{GRU, GRUConfig, LSTM, LSTMConfig, RNN};
use shapewise::ops::rnn::{Cell, PackedRnn, RnnOptions, RnnWeights};
use shapewise::{DType, Runtime, Tensor};
use std::collections::HashMap;

/// Names of the weights, in the order of the inputs after the sequence.
const NAMES: [&str; 4] = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"];

fn shapes(sizes: &Rnn) -> [Vec<usize>; 5] {
    let lines = sizes.lines();
    let sequence = vec![sizes.steps, sizes.batch, sizes.input];
    [sequence, vec![lines, sizes.input], vec![lines, sizes.hidden], vec![lines], vec![lines]]
}

/// Weights as they are, or packed before the clock started.
enum Weights {
    Plain([Tensor; 4]),
    Packed(PackedRnn),
}

impl Weights {
    fn get(&self) -> RnnWeights<'_> {
        match self {
            Self::Plain([w_ih, w_hh, b_ih, b_hh]) => RnnWeights::new(w_ih, w_hh).bias(b_ih, b_hh),
            Self::Packed(packed) => packed.weights(),
        }
    }
}

/// The call with all results given: with plain weights, and with packed ones, as onnxruntime and torch keep theirs.
pub fn ours<'a>(problem: &Problem, runtime: &'a Runtime, sizes: &Rnn) -> Result<Entrants<'a>> {
    let mut all = Vec::new();
    for (values, shape) in problem.inputs.iter().zip(shapes(sizes)) {
        all.push(Tensor::from_slice(values, &shape)?);
    }
    let plain = Weights::Plain([1, 2, 3, 4].map(|i: usize| all[i].clone()));
    let cell = if sizes.lstm { Cell::Lstm } else { Cell::Gru };
    let packed = Weights::Packed(runtime.pack_rnn(cell, &plain.get())?);
    let mut entrants = Vec::new();
    for (name, weights) in [(OURS, plain), (PACKED, packed)] {
        let state = || Tensor::zeros(&[1, sizes.batch, sizes.hidden], DType::F32);
        let (x, mut h, mut c, lstm) = (all[0].clone(), state()?, state()?, sizes.lstm);
        let out = Tensor::zeros(&[sizes.steps, sizes.batch, sizes.hidden], DType::F32)?;
        let call = move |out: &mut Tensor| {
            let weights = [weights.get()];
            if lstm {
                runtime.lstm_into(&x, &weights, &RnnOptions::new(), out, &mut h, &mut c)
            } else {
                runtime.gru_into(&x, &weights, &RnnOptions::new(), out, &mut h)
            }
        };
        entrants.push(owned(name, out, call));
    }
    Ok(entrants)
}

/// Everyone who can do this layer.
pub fn enter<'a>(problem: &'a Problem, sizes: &Rnn) -> Result<Entrants<'a>> {
    let shapes = shapes(sizes);
    let mut weights = HashMap::new();
    for (i, name) in NAMES.iter().enumerate() {
        weights.insert((*name).to_owned(), candle_tensor(&problem.inputs[i + 1], &shapes[i + 1])?);
    }
    let builder = VarBuilder::from_tensors(weights, CandleType::F32, &Device::Cpu);
    let x = candle_tensor(&problem.inputs[0], &shapes[0])?.transpose(0, 1)?.contiguous()?;
    let read = |y: candle_core::Result<candle_core::Tensor>| read_candle(y.and_then(|y| y.transpose(0, 1)));
    if sizes.lstm {
        let net = LSTM::new(sizes.input, sizes.hidden, LSTMConfig::default(), builder)?;
        return Ok(vec![returns("candle", move || net.states_to_tensor(&net.seq(&x)?), read)]);
    }
    let net = GRU::new(sizes.input, sizes.hidden, GRUConfig::default(), builder)?;
    Ok(vec![returns("candle", move || net.states_to_tensor(&net.seq(&x)?), read)])
}
