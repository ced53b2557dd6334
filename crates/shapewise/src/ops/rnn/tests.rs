//! Every kernel against the reference, identities, and what users rely on at the edges.

use super::*;
use crate::ops::testing::{agree, runtime};
use crate::ops::{Operation, Workload};
use crate::tensor::{DType, Shape, Tensor, TensorView};
use crate::{Result, Runtime};
use proptest::prelude::*;

mod packed;

/// Sizes: steps, batch, input, hidden.
fn workload(dtype: DType, sizes: [usize; 4], attributes: RnnAttributes) -> Workload {
    let [steps, batch, input, hidden] = sizes;
    let lines = attributes.cell.gates() * hidden;
    let of = |shape: &[usize]| TensorDesc::contiguous(dtype, Shape::new(shape).unwrap());
    let (y, state) = (of(&[steps, batch, hidden]), of(&[batch, hidden]));
    let memory = usize::from(attributes.cell == Cell::Lstm);
    let mut inputs = vec![of(&[steps, batch, input])];
    inputs.extend(vec![state; 1 + memory]);
    inputs.extend([of(&[lines, input]), of(&[lines, hidden])]);
    inputs.extend(vec![of(&[lines]); 2 * usize::from(attributes.bias)]);
    if attributes.lengths {
        inputs.push(TensorDesc::contiguous(DType::U32, Shape::new(&[batch]).unwrap()));
    }
    let outputs = [vec![y], vec![state; 1 + memory]].concat();
    Workload::new(Operation::Rnn(attributes), &inputs, &outputs)
}

#[test]
fn every_cell_direction_and_type() {
    let rt = runtime();
    let mut ran = 0;
    for cell in Cell::ALL {
        for flags in 0..8 {
            let [reverse, bias, lengths] = [1, 2, 4].map(|flag| flags & flag != 0);
            let attributes = RnnAttributes { cell, reverse, bias, lengths, kept: None };
            for dtype in [DType::F32, DType::F64] {
                for sizes in [[1, 1, 1, 1], [5, 3, 4, 7], [3, 8, 20, 33], [4, 13, 300, 40]] {
                    ran += agree(&rt, &workload(dtype, sizes, attributes));
                }
            }
        }
    }
    assert!(ran > 500, "only {ran} combinations ran");
}

#[test]
fn long_products_many_sequences_and_short_types() {
    let rt = runtime();
    for cell in Cell::ALL {
        let attributes = RnnAttributes { cell, reverse: false, bias: true, lengths: true, kept: None };
        let sizes =
            if cfg!(miri) { [[2, 3, 4, 5], [1, 2, 3, 4]] } else { [[3, 130, 10, 18], [2, 5, 700, 530]] };
        for sizes in sizes {
            assert!(agree(&rt, &workload(DType::F32, sizes, attributes)) > 0);
        }
        // Only the reference takes these; the calls compute them in f32.
        assert_eq!(agree(&rt, &workload(DType::BF16, [2, 2, 3, 4], attributes)), 0);
    }
}

#[test]
fn nothing_to_compute() {
    let rt = runtime();
    for cell in Cell::ALL {
        let attributes = RnnAttributes { cell, reverse: true, bias: true, lengths: true, kept: None };
        for sizes in [[0, 2, 3, 4], [2, 0, 3, 4], [2, 2, 0, 4], [2, 2, 3, 0]] {
            agree(&rt, &workload(DType::F32, sizes, attributes));
        }
    }
    let net = Net::new(Cell::Gru, [3, 4], 1, 1, 1);
    let h0 = Tensor::from_vec(numbers(8, 3, 1.0), &[1, 2, 4]).unwrap();
    let x = Tensor::zeros(&[0, 2, 3], DType::F32).unwrap();
    let (y, h) = rt.gru(&x, &net.weights(), &RnnOptions::new().initial(&h0)).unwrap();
    assert_eq!(y.shape(), [0, 2, 4]);
    assert_eq!(h.to_vec::<f32>().unwrap(), h0.to_vec::<f32>().unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]
    #[test]
    fn random_sizes(
        (cell, double) in (0usize..4, any::<bool>()),
        (steps, batch, input, hidden) in (1usize..9, 1usize..40, 1usize..70, 1usize..70),
        (reverse, bias, lengths) in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let attributes = RnnAttributes { cell: Cell::ALL[cell], reverse, bias, lengths, kept: None };
        let dtype = if double { DType::F64 } else { DType::F32 };
        agree(&runtime(), &workload(dtype, [steps, batch, input, hidden], attributes));
    }
}

/// Numbers without pattern.
fn numbers(n: usize, seed: u32, size: f32) -> Vec<f32> {
    let number = |i: u32| (i.wrapping_add(seed.wrapping_mul(977)).wrapping_mul(2_654_435_761) >> 8) as f32;
    (0..n as u32).map(|i| (number(i) / 8_388_608.0 - 1.0) * size).collect()
}

/// Weights of a network.
struct Net {
    cell: Cell,
    sets: Vec<[Tensor; 4]>,
}

impl Net {
    fn new(cell: Cell, [input, hidden]: [usize; 2], layers: usize, directions: usize, seed: u32) -> Self {
        let lines = cell.gates() * hidden;
        let sets = (0..layers * directions).map(|i| {
            let input = if i < directions { input } else { directions * hidden };
            let mut part = 0;
            [vec![lines, input], vec![lines, hidden], vec![lines], vec![lines]].map(|shape| {
                part += 1;
                let values = numbers(shape.iter().product(), seed + 10 * i as u32 + part, 0.5);
                Tensor::from_vec(values, &shape).unwrap()
            })
        });
        Self { cell, sets: sets.collect() }
    }

    fn weights(&self) -> Vec<RnnWeights<'_>> {
        self.sets.iter().map(|[a, b, c, d]| RnnWeights::new(a, b).bias(c, d)).collect()
    }

    /// Result, last states and, for an LSTM, last memories.
    fn run<'a>(&'a self, rt: &Runtime, x: &'a Tensor, options: &RnnOptions<'a>) -> Result<Vec<Tensor>> {
        call(self.cell, rt, x, &self.weights(), options)
    }
}

fn call<'a>(
    cell: Cell,
    rt: &Runtime,
    x: &'a Tensor,
    weights: &[RnnWeights<'a>],
    options: &RnnOptions<'a>,
) -> Result<Vec<Tensor>> {
    let two = |(y, h)| vec![y, h];
    match cell {
        Cell::Tanh => rt.rnn(x, weights, Nonlinearity::Tanh, options).map(two),
        Cell::Relu => rt.rnn(x, weights, Nonlinearity::Relu, options).map(two),
        Cell::Gru => rt.gru(x, weights, options).map(two),
        Cell::Lstm => rt.lstm(x, weights, options).map(|(y, h, c)| vec![y, h, c]),
    }
}

fn close<'a>(a: impl Into<TensorView<'a>>, b: impl Into<TensorView<'a>>) {
    let (a, b) = (a.into(), b.into());
    assert_eq!(a.shape(), b.shape());
    for (a, b) in a.to_vec::<f32>().unwrap().into_iter().zip(b.to_vec::<f32>().unwrap()) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn a_sequence_is_its_steps_by_cells() {
    let rt = runtime();
    let (steps, batch) = (5, 3);
    let x = Tensor::from_vec(numbers(steps * batch * 4, 1, 1.0), &[steps, batch, 4]).unwrap();
    for cell in Cell::ALL {
        let net = Net::new(cell, [4, 6], 1, 1, 2);
        let found = net.run(&rt, &x, &RnnOptions::new()).unwrap();
        let weights = net.weights();
        let zeros = || Tensor::zeros(&[batch, 6], DType::F32).unwrap();
        let (mut h, mut c) = (zeros(), zeros());
        for step in 0..steps {
            let x = x.slice(0, step, step + 1, 1).unwrap().reshape(&[batch, 4]).unwrap();
            (h, c) = match cell {
                Cell::Tanh => (rt.rnn_cell(&x, &h, &weights[0], Nonlinearity::Tanh).unwrap(), c),
                Cell::Relu => (rt.rnn_cell(&x, &h, &weights[0], Nonlinearity::Relu).unwrap(), c),
                Cell::Gru => (rt.gru_cell(&x, &h, &weights[0]).unwrap(), c),
                Cell::Lstm => rt.lstm_cell(&x, &h, &c, &weights[0]).unwrap(),
            };
            close(&found[0].slice(0, step, step + 1, 1).unwrap().reshape(&[batch, 6]).unwrap(), &h);
        }
        close(&found[1].reshape(&[batch, 6]).unwrap(), &h);
        if cell == Cell::Lstm {
            close(&found[2].reshape(&[batch, 6]).unwrap(), &c);
        }
    }
}

#[test]
fn backwards_is_forwards_on_the_turned_sequence() {
    let rt = runtime();
    let x = Tensor::from_vec(numbers(7 * 2 * 3, 5, 1.0), &[7, 2, 3]).unwrap();
    let turned = x.slice(0, 0, 7, -1).unwrap();
    for cell in Cell::ALL {
        let net = Net::new(cell, [3, 5], 1, 2, 4);
        let both = net.run(&rt, &x, &RnnOptions::new().bidirectional()).unwrap();
        let second = Net { cell, sets: vec![net.sets[1].clone()] };
        let alone = second.run(&rt, &turned, &RnnOptions::new()).unwrap();
        close(&both[0].slice(2, 5, 10, 1).unwrap(), &alone[0].slice(0, 0, 7, -1).unwrap());
        close(&both[1].slice(0, 1, 2, 1).unwrap(), &alone[1]);
    }
}

#[test]
fn a_batch_is_its_members_and_lengths_are_shorter_sequences() {
    let rt = runtime();
    let (steps, lengths) = (6, [4, 0, 6, 1]);
    let x = Tensor::from_vec(numbers(steps * 4 * 3, 6, 1.0), &[steps, 4, 3]).unwrap();
    for cell in Cell::ALL {
        let net = Net::new(cell, [3, 5], 2, 2, 7);
        let all = net.run(&rt, &x, &RnnOptions::new().bidirectional()).unwrap();
        let some = net.run(&rt, &x, &RnnOptions::new().bidirectional().lengths(&lengths)).unwrap();
        for (i, &length) in lengths.iter().enumerate() {
            let member = x.slice(1, i, i + 1, 1).unwrap();
            let one = net.run(&rt, &member, &RnnOptions::new().bidirectional()).unwrap();
            let cut = member.slice(0, 0, length, 1).unwrap();
            let short = net.run(&rt, &cut, &RnnOptions::new().bidirectional()).unwrap();
            let of = |t: &Tensor| t.slice(1, i, i + 1, 1).unwrap();
            for part in 0..all.len() {
                close(&of(&all[part]), &one[part]);
            }
            close(&of(&some[0]).slice(0, 0, length, 1).unwrap(), &short[0]);
            let rest = of(&some[0]).slice(0, length, steps, 1).unwrap();
            assert!(rest.to_vec::<f32>().unwrap().iter().all(|y| *y == 0.0));
            for part in 1..all.len() {
                close(&of(&some[part]), &short[part]);
            }
        }
    }
}

#[test]
fn orders_of_axes_and_single_sequences() {
    let rt = runtime();
    let x = Tensor::from_vec(numbers(4 * 3 * 2, 8, 1.0), &[4, 3, 2]).unwrap();
    let net = Net::new(Cell::Lstm, [2, 5], 2, 1, 9);
    let found = net.run(&rt, &x, &RnnOptions::new()).unwrap();
    let first = x.permute(&[1, 0, 2]).unwrap().to_contiguous().unwrap();
    let turned = net.run(&rt, &first, &RnnOptions::new().batch_first()).unwrap();
    close(&turned[0].permute(&[1, 0, 2]).unwrap(), &found[0]);
    close(&turned[1], &found[1]);
    close(&turned[2], &found[2]);
    let one = x.slice(1, 1, 2, 1).unwrap().reshape(&[4, 2]).unwrap();
    let alone = net.run(&rt, &one, &RnnOptions::new()).unwrap();
    assert_eq!((alone[0].shape(), alone[1].shape()), (&[4, 5][..], &[2, 5][..]));
    close(&alone[0], &found[0].slice(1, 1, 2, 1).unwrap().reshape(&[4, 5]).unwrap());
}

#[test]
fn a_state_carries_a_sequence_on() {
    let rt = runtime();
    let x = Tensor::from_vec(numbers(6 * 2 * 3, 3, 1.0), &[6, 2, 3]).unwrap();
    for cell in Cell::ALL {
        let net = Net::new(cell, [3, 4], 2, 1, 5);
        let whole = net.run(&rt, &x, &RnnOptions::new()).unwrap();
        let start = net.run(&rt, &x.slice(0, 0, 2, 1).unwrap(), &RnnOptions::new()).unwrap();
        let mut options = RnnOptions::new().initial(&start[1]);
        if cell == Cell::Lstm {
            options = options.initial_memory(&start[2]);
        }
        let tail = x.slice(0, 2, 6, 1).unwrap();
        let rest = net.run(&rt, &tail, &options).unwrap();
        close(&whole[0].slice(0, 2, 6, 1).unwrap(), &rest[0]);
        for part in 1..whole.len() {
            close(&whole[part], &rest[part]);
        }
    }
}

#[test]
fn dropout_is_the_same_on_every_kernel_and_only_between_layers() {
    let x = Tensor::from_vec(numbers(5 * 4 * 3, 3, 1.0), &[5, 4, 3]).unwrap();
    let (two, one) = (Net::new(Cell::Gru, [3, 6], 2, 1, 5), Net::new(Cell::Gru, [3, 6], 1, 1, 5));
    let rt = runtime();
    let plain = two.run(&rt, &x, &RnnOptions::new()).unwrap();
    let dropped = two.run(&rt, &x, &RnnOptions::new().dropout(0.5, 42)).unwrap();
    assert_ne!(plain[0].to_vec::<f32>().unwrap(), dropped[0].to_vec::<f32>().unwrap());
    let other = two.run(&rt, &x, &RnnOptions::new().dropout(0.5, 43)).unwrap();
    assert_ne!(other[0].to_vec::<f32>().unwrap(), dropped[0].to_vec::<f32>().unwrap());
    close(&two.run(&rt, &x, &RnnOptions::new().dropout(0.0, 1)).unwrap()[0], &plain[0]);
    for kernel in KERNELS {
        let forced = rt.with_kernel(kernel.name()).unwrap();
        if let Ok(found) = two.run(&forced, &x, &RnnOptions::new().dropout(0.5, 42)) {
            close(&found[0], &dropped[0]);
        }
    }
    let alone = one.run(&rt, &x, &RnnOptions::new()).unwrap();
    close(&one.run(&rt, &x, &RnnOptions::new().dropout(0.9, 42)).unwrap()[0], &alone[0]);
}

#[test]
fn short_floats_are_computed_in_f32() {
    let rt = runtime();
    let x = Tensor::from_vec(numbers(4 * 2 * 3, 3, 1.0), &[4, 2, 3]).unwrap();
    let net = Net::new(Cell::Lstm, [3, 6], 2, 2, 5);
    let short = |t: &Tensor| rt.cast(t, DType::BF16).unwrap();
    let wide = |t: &Tensor| rt.cast(&short(t), DType::F32).unwrap();
    let rounded = Net { cell: Cell::Lstm, sets: net.sets.iter().map(|s| s.each_ref().map(wide)).collect() };
    let narrow = Net { cell: Cell::Lstm, sets: net.sets.iter().map(|s| s.each_ref().map(short)).collect() };
    let options = RnnOptions::new().bidirectional().batch_first();
    let (wide_x, short_x) = (wide(&x), short(&x));
    let (wanted, found) =
        (rounded.run(&rt, &wide_x, &options).unwrap(), narrow.run(&rt, &short_x, &options).unwrap());
    for (wanted, found) in wanted.iter().zip(found) {
        assert_eq!(found.dtype(), DType::BF16);
        close(&rt.cast(&found, DType::F32).unwrap(), &wide(wanted));
    }
}

#[test]
fn not_a_number_stays_in_its_sequence() {
    let (steps, batch) = (3, 4);
    let mut values = numbers(steps * batch * 2, 3, 1.0);
    values[batch * 2 + 2] = f32::NAN;
    let x = Tensor::from_vec(values, &[steps, batch, 2]).unwrap();
    for cell in Cell::ALL {
        let net = Net::new(cell, [2, 5], 1, 1, 5);
        for kernel in KERNELS {
            let rt = runtime().with_kernel(kernel.name()).unwrap();
            let Ok(found) = net.run(&rt, &x, &RnnOptions::new()) else { continue };
            let y = found[0].to_vec::<f32>().unwrap();
            for (i, y) in y.iter().enumerate() {
                let (step, row) = (i / (batch * 5), i / 5 % batch);
                assert_eq!(y.is_nan(), step > 0 && row == 1, "{} {cell:?} {step} {row}", kernel.name());
            }
        }
    }
}

/// Kernels may leave out products with a state of zeros, but not what infinite weights make of it.
#[test]
fn zeros_times_infinite_weights_are_not_left_out() {
    let x = Tensor::from_vec(numbers(2 * 3 * 4, 1, 1.0), &[2, 3, 4]).unwrap();
    for cell in Cell::ALL {
        let mut net = Net::new(cell, [4, 20], 1, 1, 2);
        let mut w_hh = net.sets[0][1].to_vec::<f32>().unwrap();
        // The last gate of unit 17: an output or a candidate, which its state depends on at once.
        w_hh[((cell.gates() - 1) * 20 + 17) * 20 + 3] = f32::INFINITY;
        net.sets[0][1] = Tensor::from_vec(w_hh, &[cell.gates() * 20, 20]).unwrap();
        for kernel in KERNELS {
            let rt = runtime().with_kernel(kernel.name()).unwrap();
            let Ok(found) = net.run(&rt, &x, &RnnOptions::new()) else { continue };
            let first = &found[0].to_vec::<f32>().unwrap()[..3 * 20];
            for (at, y) in first.iter().enumerate() {
                assert_eq!(y.is_nan(), at % 20 == 17, "{} {cell:?} {at}: {y}", kernel.name());
            }
        }
    }
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let rt = runtime();
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype).unwrap();
    let x = |shape: &[usize]| zeros(shape, DType::F32);
    let (seq, net) = (x(&[5, 3, 4]), Net::new(Cell::Lstm, [4, 6], 2, 1, 1));
    let none = RnnOptions::new();
    let fails = |net: &Net, seq: &Tensor, options: &RnnOptions<'_>, why: &str| {
        let error = net.run(&rt, seq, options).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    fails(&net, &x(&[4]), &none, "[steps, batch, input] or [steps, input]");
    fails(&net, &x(&[5, 3, 4, 1]), &none.batch_first(), "[batch, steps, input]");
    fails(&net, &x(&[5, 3, 7]), &none, "w_ih of layer 0 is [24, 4]; it must be [24, 7]");
    fails(&net, &zeros(&[5, 3, 4], DType::I32), &none, "cast to a float");
    fails(&net, &zeros(&[5, 3, 4], DType::F64), &none, "cast one of them");
    fails(&net, &seq, &none.bidirectional(), "w_ih of layer 0");
    fails(&Net { cell: Cell::Lstm, sets: vec![] }, &seq, &none, "0 sets of weights; give one for each layer");
    let three = Net::new(Cell::Lstm, [4, 6], 3, 1, 1);
    fails(&three, &seq, &none.bidirectional(), "3 sets of weights; give two for each layer");
    for (part, shape, why) in [
        (0, vec![23, 4], "w_ih of layer 0 is [23, 4]; it must be [24, 4]"),
        (1, vec![24, 5], "w_ih of layer 0 is [24, 4]; it must be [20, 4]"),
        (1, vec![24], "give [gates · hidden, hidden]"),
        (2, vec![6], "b_ih of layer 0 is [6]; it must be [24]"),
        (3, vec![24, 1], "b_hh of layer 0 is [24, 1]; it must be [24]"),
    ] {
        let mut wrong = Net::new(Cell::Lstm, [4, 6], 1, 1, 1);
        wrong.sets[0][part] = x(&shape);
        fails(&wrong, &seq, &none, why);
    }
    fails(&net, &seq, &none.lengths(&[5, 5]), "2 lengths for 3 sequences");
    fails(&net, &seq, &none.lengths(&[5, 6, 1]), "a length of 6 in sequences of 5 steps");
    for p in [-0.1, 1.1, f64::NAN] {
        fails(&net, &seq, &none.dropout(p, 1), "a probability from 0 to 1");
    }
    let (h, double) = (x(&[2, 3, 5]), zeros(&[2, 3, 6], DType::F64));
    fails(&net, &seq, &none.initial(&h), "the initial state is [2, 3, 5]; it must be 2×3×6");
    fails(&net, &seq, &none.initial_memory(&h), "the initial memory is [2, 3, 5]");
    fails(&net, &seq, &none.initial(&double), "cast one of them");
    let (gru, c) = (Net::new(Cell::Gru, [4, 6], 2, 1, 1), x(&[2, 3, 6]));
    fails(&gru, &seq, &none.initial_memory(&c), "only an LSTM has");
    let endless = Tensor::scalar(1.0f32).broadcast_to(&[1, 1, 1 << 58]).unwrap();
    let mut wide = Net::new(Cell::Tanh, [1, 6], 1, 1, 1);
    wide.sets[0][0] = Tensor::scalar(1.0f32).broadcast_to(&[6, 1 << 58]).unwrap();
    fails(&wide, &endless, &none, "address space");
}

#[test]
fn bad_cells_and_outputs_are_refused_with_the_reason() {
    let rt = runtime();
    let x = |shape: &[usize]| Tensor::zeros(shape, DType::F32).unwrap();
    let net = Net::new(Cell::Lstm, [4, 6], 1, 1, 1);
    let weights = net.weights();
    let (input, h) = (x(&[3, 4]), x(&[3, 6]));
    let says = |outcome: Result<()>, why: &str| {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    says(rt.lstm_cell(&x(&[1, 3, 4]), &h, &h, &weights[0]).map(drop), "[batch, input] or [input]");
    says(rt.lstm_cell(&input, &x(&[2, 6]), &h, &weights[0]).map(drop), "the state is [2, 6]; it must be 3×6");
    says(rt.lstm_cell(&input, &h, &x(&[6]), &weights[0]).map(drop), "the memory is [6]; it must be 3×6");
    says(rt.gru_cell(&input, &h, &weights[0]).map(drop), "w_ih of layer 0 is [24, 4]; it must be [18, 4]");
    let (mut good, mut bad) = (x(&[3, 6]), x(&[3, 5]));
    says(rt.lstm_cell_into(&input, &h, &h, &weights[0], &mut good, &mut bad), "the output 1×3×5");
    let seq = x(&[2, 3, 4]);
    let (mut y, mut last, mut memory) = (x(&[2, 3, 6]), x(&[1, 3, 6]), x(&[1, 3, 6]));
    let options = RnnOptions::new();
    rt.lstm_into(&seq, &weights, &options, &mut y, &mut last, &mut memory).unwrap();
    says(rt.lstm_into(&seq, &weights, &options, &mut last, &mut y, &mut memory), "the output 1×3×6");
    says(rt.lstm_into(&seq, &weights, &options, &mut y, &mut memory, &mut bad), "the output 3×5");
    let one = rt.rnn_cell(
        &x(&[4]),
        &x(&[6]),
        &Net::new(Cell::Relu, [4, 6], 1, 1, 1).weights()[0],
        Nonlinearity::Relu,
    );
    assert_eq!(one.unwrap().shape(), [6]);
}

#[test]
fn everything_that_tells_layers_apart_is_in_their_key() {
    let mut keys = std::collections::HashSet::new();
    for cell in Cell::ALL {
        for reverse in [false, true] {
            let attributes = RnnAttributes { cell, reverse, bias: false, lengths: false, kept: None };
            assert!(keys.insert(workload(DType::F32, [2, 2, 3, 4], attributes).key()));
        }
    }
}
