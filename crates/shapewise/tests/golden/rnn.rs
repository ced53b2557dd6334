//! Recurrent networks and their cells.

use shapewise::ops::OperationKind;
use shapewise::ops::rnn::{Nonlinearity, RnnOptions, RnnWeights};
use shapewise::{Runtime, Tensor};

use crate::compare::{Tolerance, precision};
use crate::read::{Case, sizes};

#[test]
fn rnn() {
    crate::run(
        OperationKind::Rnn,
        compute,
        // Sums of a few numbers up to 2, handed on over a few steps.
        |_, dtype, largest| {
            let short = dtype.size() == 2;
            let epsilon = precision(if short { shapewise::DType::F32 } else { dtype }).0;
            Tolerance { ulps: if short { 1.0 } else { 8.0 }, absolute: 50.0 * epsilon * largest.max(1.0) }
        },
    );
}

fn compute(rt: &Runtime, case: &Case) -> shapewise::Result<Vec<Tensor>> {
    let (sets, each) = (case.integer("sets") as usize, if case.flag("bias") { 4 } else { 2 });
    let (x, rest) = case.inputs.split_first().expect("a sequence");
    let (weights, states) = rest.split_at(sets * each);
    let weights: Vec<_> = weights
        .chunks(each)
        .map(|set| {
            let weights = RnnWeights::new(&set[0], &set[1]);
            if each == 4 { weights.bias(&set[2], &set[3]) } else { weights }
        })
        .collect();
    if case.flag("cell") {
        return cell(rt, case, x, &weights[0], states);
    }
    let lengths = sizes(&case.attributes["lengths"]);
    let mut options = RnnOptions::new();
    options = if case.flag("bidirectional") { options.bidirectional() } else { options };
    options = if case.flag("batch_first") { options.batch_first() } else { options };
    options = if lengths.is_empty() { options } else { options.lengths(&lengths) };
    if let Some(h) = states.first() {
        options = options.initial(h);
    }
    if let Some(c) = states.get(1) {
        options = options.initial_memory(c);
    }
    let two = |(y, h)| vec![y, h];
    match case.text("op") {
        "rnn_tanh" => rt.rnn(x, &weights, Nonlinearity::Tanh, &options).map(two),
        "rnn_relu" => rt.rnn(x, &weights, Nonlinearity::Relu, &options).map(two),
        "gru" => rt.gru(x, &weights, &options).map(two),
        _ => rt.lstm(x, &weights, &options).map(|(y, h, c)| vec![y, h, c]),
    }
}

fn cell(
    rt: &Runtime,
    case: &Case,
    x: &Tensor,
    weights: &RnnWeights<'_>,
    states: &[Tensor],
) -> shapewise::Result<Vec<Tensor>> {
    let one = |h| vec![h];
    match case.text("op") {
        "rnn_tanh" => rt.rnn_cell(x, &states[0], weights, Nonlinearity::Tanh).map(one),
        "rnn_relu" => rt.rnn_cell(x, &states[0], weights, Nonlinearity::Relu).map(one),
        "gru" => rt.gru_cell(x, &states[0], weights).map(one),
        _ => rt.lstm_cell(x, &states[0], &states[1], weights).map(|(h, c)| vec![h, c]),
    }
}
