//! Recurrent layers: every cell, both directions, lengths, any layout; and the shapes of models that people run.

use half::{bf16, f16};
use proptest::prelude::*;
use shapewise::ops::OperationKind;
use shapewise::ops::rnn::{Cell, Nonlinearity, PackedRnn, RnnOptions, RnnWeights};
use shapewise::{DType, Runtime, Tensor};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::{Grade, Random};
use crate::common::operand::{Arrangement, Operand, arrangement};
#[cfg(feature = "webgpu")]
use crate::runner::each_again;
use crate::runner::{Suite, each};
#[cfg(feature = "webgpu")]
use crate::webgpu;

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // choices that have nothing to do with one another
struct Case {
    dtype: DType,
    cell: Cell,
    /// Steps, batch, input, hidden.
    sizes: [usize; 4],
    bidirectional: bool,
    batch_first: bool,
    bias: bool,
    initial: bool,
    lengths: bool,
    layers: usize,
    /// Weights are packed before the call.
    packed: bool,
    grade: Grade,
    layouts: [Arrangement; 6],
    seed: u64,
}

/// Element types, the usual ones more often.
const TYPES: [DType; 8] =
    [DType::F32, DType::F32, DType::F32, DType::F64, DType::F64, DType::F64, DType::F16, DType::BF16];

fn sizes() -> impl Strategy<Value = [usize; 4]> {
    let size = || prop_oneof![1 => Just(0usize), 3 => Just(1), 20 => 2usize..20, 6 => 20usize..60];
    prop_oneof![
        6 => (0usize..7, size(), size(), size()),
        3 => (1usize..7, 1usize..9, 1usize..70, 1usize..70),
        1 => (1usize..3, 40usize..110, 1usize..20, 1usize..40),
        1 => (1usize..4, 1usize..7, 250usize..600, 250usize..300),
    ]
    .prop_map(|(t, b, i, h)| [t, b, i, h])
}

fn cases() -> impl Strategy<Value = Case> {
    let grades = [Grade::Ordinary, Grade::Ordinary, Grade::Ordinary, Grade::Special, Grade::Denormal];
    (
        (prop::sample::select(&TYPES[..]), 0usize..4, sizes()),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        (prop::sample::select(&[1usize, 1, 1, 2, 3][..]), any::<bool>()),
        (prop::sample::select(grades.to_vec()), any::<u64>()),
        [arrangement(), arrangement(), arrangement(), arrangement(), arrangement(), arrangement()],
    )
        .prop_map(|((dtype, cell, sizes), flags, (layers, packed), (grade, seed), layouts)| {
            let (bidirectional, batch_first, bias, initial, lengths) = flags;
            Case {
                dtype,
                cell: Cell::ALL[cell],
                sizes,
                bidirectional,
                batch_first,
                bias,
                initial,
                lengths,
                layers,
                // 16-bit weights are not packed.
                packed: packed && matches!(dtype, DType::F32 | DType::F64),
                grade,
                layouts,
                seed,
            }
        })
}

#[test]
fn rnn() {
    let mut suite = Suite::new(OperationKind::Rnn);
    each(150, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_rnn() {
    let Some(mut suite) = webgpu::suite(OperationKind::Rnn, 5, webgpu::FUNCTIONS) else { return };
    each_again(24, cases(), |case| {
        let dtype = webgpu::shorter(case.dtype);
        check(&mut suite, &Case { dtype, grade: webgpu::within(dtype, case.grade), ..case })
    });
    suite.finish();
}

/// Layers that people run: steps (shortened), batch, input, hidden.
const MODELS: &[(&str, Cell, [usize; 4], bool)] = &[
    ("Deep Speech 2, gated", Cell::Gru, [3, 4, 672, 800], true),
    ("Listen, Attend and Spell, listener", Cell::Lstm, [3, 2, 512, 256], true),
    ("RNN-T prediction network, streaming", Cell::Lstm, [2, 1, 640, 640], false),
    ("AWD-LSTM, first layer", Cell::Lstm, [2, 8, 400, 1150], false),
    ("ELMo-small", Cell::Lstm, [3, 4, 128, 1024], true),
    ("BiLSTM-CRF tagger", Cell::Lstm, [6, 16, 100, 100], true),
    ("GRU4Rec", Cell::Gru, [2, 50, 100, 100], false),
    ("Tacotron post-net", Cell::Gru, [8, 2, 128, 128], true),
    ("Silero-style voice activity", Cell::Lstm, [4, 1, 64, 64], false),
    ("keyword spotting", Cell::Gru, [10, 1, 40, 154], false),
    ("Elman language model", Cell::Tanh, [6, 20, 200, 200], false),
    ("IRNN", Cell::Relu, [12, 16, 1, 100], false),
];

#[test]
fn layers_of_speech_and_language_models() {
    let mut suite = Suite::new(OperationKind::Rnn);
    for (i, &(name, cell, sizes, bidirectional)) in MODELS.iter().enumerate() {
        let case = Case {
            dtype: DType::F32,
            cell,
            sizes,
            bidirectional,
            batch_first: i % 2 == 1,
            bias: true,
            initial: i % 3 == 0,
            lengths: i % 4 == 2,
            layers: 1 + usize::from(i % 5 == 4),
            packed: i % 3 == 1,
            grade: Grade::Ordinary,
            layouts: [Arrangement::PLAIN; 6],
            seed: i as u64,
        };
        check(&mut suite, &case).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

/// Ordinary numbers, so small that the recurrence does not let roundings grow.
fn weights(case: &Case, shape: &[usize], i: u64) -> Operand {
    let (random, hidden) = (&mut Random::new(case.seed.wrapping_add(100 + i)), case.sizes[3].max(1) as f64);
    let arrangement = &case.layouts[1 + i as usize % 2];
    Operand::filled(shape, arrangement, |span| {
        let values: Vec<f64> = (0..span).map(|_| (2.0 * random.unit() - 1.0) / hidden.sqrt()).collect();
        match case.dtype {
            DType::F64 => Tensor::from_vec(values, &[span]),
            DType::F16 => Tensor::from_vec(values.into_iter().map(f16::from_f64).collect(), &[span]),
            DType::BF16 => Tensor::from_vec(values.into_iter().map(bf16::from_f64).collect(), &[span]),
            _ => Tensor::from_vec(values.into_iter().map(|x| x as f32).collect(), &[span]),
        }
        .unwrap()
    })
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let [steps, batch, input, hidden] = case.sizes;
    let (directions, lines) = (1 + usize::from(case.bidirectional), case.cell.gates() * hidden);
    let sequence =
        |width: usize| if case.batch_first { [batch, steps, width] } else { [steps, batch, width] };
    let states = [case.layers * directions, batch, hidden];
    let operand = |i: usize, shape: &[usize]| {
        Operand::new(case.dtype, shape, &case.layouts[i], case.grade, case.seed.wrapping_add(i as u64))
    };
    let (x, h, c) = (operand(0, &sequence(input)), operand(3, &states), operand(4, &states));
    let sets: Vec<_> = (0..(case.layers * directions) as u64)
        .map(|d| {
            let input = if d < directions as u64 { input } else { directions * hidden };
            let shapes = [vec![lines, input], vec![lines, hidden], vec![lines], vec![lines]];
            std::array::from_fn::<_, 4, _>(|i| weights(case, &shapes[i], 4 * d + i as u64))
        })
        .collect();
    let all: Vec<_> = sets
        .iter()
        .map(|[w_ih, w_hh, b_ih, b_hh]| {
            let weights = RnnWeights::new(w_ih.view(), w_hh.view());
            if case.bias { weights.bias(b_ih.view(), b_hh.view()) } else { weights }
        })
        .collect();
    let mut packed = Vec::new();
    if case.packed {
        let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
        for weights in &all {
            packed.push(rt.pack_rnn(case.cell, weights).map_err(|e| TestCaseError::fail(e.to_string()))?);
        }
    }
    let all = if case.packed { packed.iter().map(PackedRnn::weights).collect() } else { all };
    let random = &mut Random::new(case.seed);
    let lengths: Vec<_> = (0..batch).map(|_| random.below(steps + 1)).collect();
    let mut options = RnnOptions::new();
    options = if case.batch_first { options.batch_first() } else { options };
    options = if case.bidirectional { options.bidirectional() } else { options };
    options = if case.lengths { options.lengths(&lengths) } else { options };
    options = if case.initial { options.initial(h.view()) } else { options };
    if case.initial && case.cell == Cell::Lstm {
        options = options.initial_memory(c.view());
    }
    let (tolerance, to) = (tolerance(case), case.layouts[5].writable());
    let outputs = || {
        let shapes = [sequence(directions * hidden), states, states];
        let count = if case.cell == Cell::Lstm { 3 } else { 2 };
        shapes[..count].iter().map(|shape| Operand::new(case.dtype, shape, &to, Grade::Whole, 1)).collect()
    };
    suite.check(
        outputs,
        |rt, out| {
            let mut out: Vec<_> = out.iter_mut().map(Operand::view_mut).collect();
            let c = if out.len() == 3 { out.pop() } else { None };
            let (last, y) = (out.pop().unwrap(), out.pop().unwrap());
            let x = x.view();
            match case.cell {
                Cell::Tanh => rt.rnn_into(x, &all, Nonlinearity::Tanh, &options, y, last),
                Cell::Relu => rt.rnn_into(x, &all, Nonlinearity::Relu, &options, y, last),
                Cell::Gru => rt.gru_into(x, &all, &options, y, last),
                Cell::Lstm => rt.lstm_into(x, &all, &options, y, last, c.unwrap()),
            }
        },
        |_, _| tolerance,
    )
}

/// How far a kernel may be from the reference, which computes in f64 throughout.
///
/// A sum errs by √n roundings of terms that are at most 2/√hidden (weights) times 2 (inputs), functions by a few units of the
/// last place; the recurrence hands that on from step to step without letting it grow much.
fn tolerance(case: &Case) -> Tolerance {
    // 16-bit numbers are computed in f32 and rounded once.
    let computed = if case.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let epsilon = precision(computed).0;
    let ulps = if computed == case.dtype { 8.0 } else { 1.0 };
    let [steps, _, input, hidden] = case.sizes.map(|size| size.max(1) as f64);
    // Inputs of the other layers are the states of the one before, of both directions.
    let widest = if case.layers > 1 { input.max(2.0 * hidden) } else { input };
    let terms = 2.0 * (widest + hidden) / hidden.sqrt();
    Tolerance { ulps, absolute: epsilon * (8.0 + 2.0 * terms) * steps.min(16.0) * case.layers as f64 }
}
