//! A workload's inputs, and an f64 reference at sampled entries with a stated tolerance.

use crate::buffer::{Buffer, Random};
use crate::workload::{Conv, Over, Pointwise, Task, Transform};

/// Added to the variance in both norms.
pub const EPSILON: f32 = 1e-5;

/// The scale of conversions to i8.
pub const QUANT_SCALE: f32 = 0.01;
/// Their zero point.
pub const QUANT_ZERO: i32 = 3;

/// The scale of weights of 4 bits.
pub const WEIGHT_SCALE: f32 = 0.125;

/// Entries of the answer that are compared with the reference.
const SAMPLED: usize = 64;

/// Inputs and expected answers of one workload.
pub struct Problem {
    /// What is computed.
    pub task: Task,
    /// The inputs, in the order of `Input`'s constants.
    pub inputs: Vec<Buffer>,
    points: Vec<Point>,
}

/// Places in `Problem::inputs`.
pub mod input {
    /// The left matrix, or the only tensor.
    pub const X: usize = 0;
    /// The right matrix or second operand.
    pub const Y: usize = 1;
    /// The keys of an attention, whose queries are `X`.
    pub const KEYS: usize = 1;
    /// The values of an attention.
    pub const VALUES: usize = 2;
    /// A norm's weight.
    pub const WEIGHT: usize = 1;
    /// A norm's bias.
    pub const BIAS: usize = 2;
    /// The random numbers that the columns of a sparse matrix are made from, whose entries are `VALUES`.
    pub const PLACES: usize = 1;
    /// Batch norm's mean.
    pub const MEAN: usize = 3;
    /// Batch norm's variance.
    pub const VARIANCE: usize = 4;
}

/// One expected entry: it may differ by `allowed`.
struct Point {
    index: usize,
    value: f64,
    allowed: f64,
}

/// Rounding errors of `terms` f32 additions grow like the square root of their number when they are independent;
/// twice that, and sixteen roundings for the rest of the computation, relative to the sum of the magnitudes.
fn allowed(magnitude: f64, terms: usize) -> f64 {
    f64::from(f32::EPSILON) * (16.0 + 2.0 * (terms as f64).sqrt()) * magnitude
}

impl Problem {
    /// Makes inputs, and computes the reference at the sampled entries.
    pub fn new(task: Task) -> Self {
        let inputs = make_inputs(&task);
        let mut random = Random::new(99);
        let places = (0..SAMPLED.min(task.output_len())).map(|_| random.below(task.output_len()));
        let points = match task {
            // Sorted once for all places.
            Task::Sort { .. } | Task::TopK { .. } => {
                let mut sorted = inputs[input::X].to_vec();
                sorted.sort_unstable_by(f32::total_cmp);
                if matches!(task, Task::TopK { .. }) {
                    sorted.reverse();
                }
                places.map(|index| moved(index, sorted[index])).collect()
            }
            // One sequence for all places, of which the first is as good as any.
            Task::Rnn(rnn) => {
                let (last, first) = (rnn.last_state(&inputs), (rnn.steps - 1) * rnn.batch * rnn.hidden);
                // States below one, from sums of so many terms; the recurrence does not let errors grow.
                let allowed = allowed(1.0, rnn.input + rnn.hidden);
                let place = |index: usize| index % rnn.hidden;
                places.map(|i| Point { index: first + place(i), value: last[place(i)], allowed }).collect()
            }
            _ => places.map(|index| point(&task, &inputs, index)).collect(),
        };
        Self { task, inputs, points }
    }

    /// Which rows of the table are picked.
    pub fn picks(&self) -> Vec<i64> {
        let Task::Gather { rows, .. } = self.task else { return Vec::new() };
        self.inputs[input::Y].iter().map(|&v| pick(v, rows) as i64).collect()
    }

    /// The columns of a sparse matrix, row by row.
    pub fn columns(&self) -> Vec<u32> {
        let Task::Sparse { n, per_row, .. } = self.task else { return Vec::new() };
        let all = &self.inputs[input::PLACES];
        (0..n * per_row).map(|entry| column(all, entry, n, per_row) as u32).collect()
    }

    /// An input as i8.
    pub fn signed(&self, place: usize) -> Vec<i8> {
        self.inputs[place].iter().map(|&v| signed(v)).collect()
    }

    /// An input as u8 below 128, as activations that must not saturate are.
    pub fn unsigned(&self, place: usize) -> Vec<u8> {
        self.inputs[place].iter().map(|&v| unsigned(v)).collect()
    }

    /// Weights of 4 bits, two in a byte, the first one low.
    pub fn nibbles(&self) -> Vec<u8> {
        let pair = |pair: &[f32]| (nibble(pair[0]) & 15) as u8 | (nibble(pair[1]) << 4) as u8;
        self.inputs[input::Y].chunks_exact(2).map(pair).collect()
    }

    /// The same weights as numbers.
    pub fn widened(&self) -> Vec<f32> {
        self.inputs[input::Y].iter().map(|&v| f32::from(nibble(v)) * WEIGHT_SCALE).collect()
    }

    /// The largest error of an answer as a multiple of what is allowed: right when at most 1.
    pub fn error(&self, answer: &[f32]) -> f64 {
        if answer.len() != self.task.output_len() || answer.iter().any(|v| !v.is_finite()) {
            return f64::INFINITY;
        }
        let of = |p: &Point| (f64::from(answer[p.index]) - p.value).abs() / p.allowed;
        self.points.iter().map(of).fold(0.0, f64::max)
    }
}

fn make_inputs(task: &Task) -> Vec<Buffer> {
    let lengths = match *task {
        Task::Conv(conv) => conv.shapes()[..2].iter().map(|shape| shape.iter().product()).collect(),
        Task::Matmul { batch, m, k, n, .. } => vec![batch * m * k, batch * k * n],
        Task::Elementwise { n, .. } => vec![n, n],
        Task::Fft { op, n, batch } => vec![if op == Transform::Real { n } else { 2 * n } * batch],
        Task::Sum { rows, cols, .. } | Task::Softmax { rows, cols } => vec![rows * cols],
        Task::LayerNorm { rows, cols } => vec![rows * cols, cols, cols],
        Task::BatchNorm { batch, channels: c, plane } => vec![batch * c * plane, c, c, c, c],
        Task::Attention { heads, length, dim, .. } => vec![heads * length * dim; 3],
        Task::Rnn(rnn) => rnn.lengths().to_vec(),
        Task::Transpose { n } => vec![n * n],
        Task::Gather { rows, cols, picks } => vec![rows * cols, picks],
        Task::Sort { n } | Task::TopK { n, .. } | Task::Quantize { n } | Task::Dequantize { n } => vec![n],
        Task::IntegerMatmul { m, k, n } | Task::WeightMatmul { m, k, n } => vec![m * k, k * n],
        Task::Sparse { n, per_row, cols } => vec![n * cols, n * per_row, n * per_row],
    };
    let mut inputs: Vec<_> = lengths.iter().enumerate().map(|(i, &len)| Buffer::random(len, i)).collect();
    match task {
        // A sum that cancels says nothing about the error of its terms.
        Task::Sum { .. } => inputs[input::X].iter_mut().for_each(|v| *v = v.abs()),
        Task::BatchNorm { .. } => inputs[input::VARIANCE].iter_mut().for_each(|v| *v = v.abs() + 0.5),
        Task::Rnn(rnn) => rnn.scale(&mut inputs),
        _ => {}
    }
    inputs
}

/// A weight of 4 bits from a number in [-1, 1).
fn nibble(v: f32) -> i8 {
    (v * 8.0).floor().clamp(-8.0, 7.0) as i8
}

fn signed(v: f32) -> i8 {
    (v * 128.0) as i8
}

fn unsigned(v: f32) -> u8 {
    ((v + 1.0) * 64.0) as u8
}

/// A row from a number in [-1, 1).
fn pick(v: f32, rows: usize) -> usize {
    ((f64::from(v) + 1.0) / 2.0 * rows as f64) as usize % rows
}

/// The column of an entry: the row's entries each have an equal share of the columns, in order, and a random place in it.
fn column(places: &[f32], entry: usize, n: usize, per_row: usize) -> usize {
    let at = entry % per_row;
    let (first, end) = (at * n / per_row, (at + 1) * n / per_row);
    first + pick(places[entry], end - first)
}

/// An entry that is moved and not computed: nothing but itself is right.
fn moved(index: usize, value: f32) -> Point {
    Point { index, value: value.into(), allowed: f64::MIN_POSITIVE }
}

fn point(task: &Task, inputs: &[Buffer], index: usize) -> Point {
    let x = &inputs[input::X];
    let at = |i: usize| f64::from(x[i]);
    match *task {
        Task::Conv(conv) => conv_point(&conv, x, &inputs[input::WEIGHT], index),
        Task::Matmul { m, k, n, transposed, .. } => {
            let y = &inputs[input::Y];
            let (row, j) = (index / n, index % n);
            let block = row / m * k * n;
            let products = (0..k).map(|p| {
                let place = if transposed { j * k + p } else { p * n + j };
                at(row * k + p) * f64::from(y[block + place])
            });
            let (value, magnitude) = products.fold((0.0, 0.0), |(s, t), v| (s + v, t + v.abs()));
            Point { index, value, allowed: allowed(magnitude, k) }
        }
        Task::Elementwise { op, .. } => {
            let y = f64::from(inputs[input::Y][index]);
            let value = match op {
                Pointwise::Add => at(index) + y,
                Pointwise::Mul => at(index) * y,
                Pointwise::Relu => at(index).max(0.0),
                Pointwise::AddRelu => (at(index) + y).max(0.0),
            };
            // One rounding; the smallest allowance keeps an expected zero comparable.
            Point { index, value, allowed: f64::from(f32::EPSILON) * (value.abs() + 1e-30) }
        }
        Task::Fft { op, n, batch } => spectrum_point(x, op, [n, batch], index),
        Task::Sum { over, rows, cols } => {
            let (value, terms): (f64, usize) = match over {
                Over::All => (x.iter().copied().map(f64::from).sum(), rows * cols),
                Over::Rows => ((0..cols).map(|c| at(index * cols + c)).sum(), cols),
                Over::Columns => ((0..rows).map(|r| at(r * cols + index)).sum(), rows),
            };
            Point { index, value, allowed: allowed(value, terms) }
        }
        Task::Softmax { cols, .. } => {
            let row = &x[index / cols * cols..][..cols];
            let total: f64 = row.iter().map(|&v| f64::from(v).exp()).sum();
            let value = at(index).exp() / total;
            Point { index, value, allowed: allowed(value, cols) }
        }
        Task::LayerNorm { cols, .. } => {
            let row = &x[index / cols * cols..][..cols];
            let mean = row.iter().copied().map(f64::from).sum::<f64>() / cols as f64;
            let variance = row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / cols as f64;
            norm_point(inputs, index, index % cols, mean, variance, cols)
        }
        Task::BatchNorm { channels, plane, .. } => {
            let c = index / plane % channels;
            let (mean, variance) = (f64::from(inputs[input::MEAN][c]), f64::from(inputs[input::VARIANCE][c]));
            norm_point(inputs, index, c, mean, variance, 1)
        }
        Task::Attention { length, dim, causal, .. } => attention_point(inputs, index, length, dim, causal),
        Task::Transpose { n } => moved(index, x[index % n * n + index / n]),
        Task::Gather { rows, cols, .. } => {
            let row = pick(inputs[input::Y][index / cols], rows);
            moved(index, x[row * cols + index % cols])
        }
        Task::IntegerMatmul { k, n, .. } => {
            let (y, row) = (&inputs[input::Y], &x[index / n * k..][..k]);
            let products = row
                .iter()
                .enumerate()
                .map(|(p, &a)| f64::from(unsigned(a)) * f64::from(signed(y[p * n + index % n])));
            let value: f64 = products.sum();
            // Exact but for its way through f32.
            Point { index, value, allowed: f64::from(f32::EPSILON) * (value.abs() + 1.0) }
        }
        Task::WeightMatmul { k, n, .. } => {
            let line = &inputs[input::Y][index % n * k..][..k];
            let weights = line.iter().map(|&v| f64::from(nibble(v)) * f64::from(WEIGHT_SCALE));
            let products = weights.enumerate().map(|(p, w)| at(index / n * k + p) * w);
            let (value, magnitude) = products.fold((0.0, 0.0), |(s, t), v| (s + v, t + v.abs()));
            Point { index, value, allowed: allowed(magnitude, k) }
        }
        Task::Quantize { .. } => {
            let rounded = (x[index] / QUANT_SCALE).round_ties_even() + QUANT_ZERO as f32;
            moved(index, rounded.clamp(-128.0, 127.0))
        }
        Task::Dequantize { .. } => {
            moved(index, (i32::from(signed(x[index])) - QUANT_ZERO) as f32 * QUANT_SCALE)
        }
        Task::Sparse { n, per_row, cols } => {
            let row = index / cols;
            let products = (row * per_row..(row + 1) * per_row).map(|entry| {
                let column = column(&inputs[input::PLACES], entry, n, per_row);
                f64::from(inputs[input::VALUES][entry]) * at(column * cols + index % cols)
            });
            let (value, magnitude) = products.fold((0.0, 0.0), |(s, t), v| (s + v, t + v.abs()));
            Point { index, value, allowed: allowed(magnitude, per_row) }
        }
        Task::Sort { .. } | Task::TopK { .. } | Task::Rnn(_) => {
            unreachable!("computed for all places at once")
        }
    }
}

/// A mean of values errs like a sum of as many terms as there are keys, after scores of as many as there are dims.
fn attention_point(inputs: &[Buffer], index: usize, length: usize, dim: usize, causal: bool) -> Point {
    let at = |i: usize, place: usize| f64::from(inputs[i][place]);
    let (query, d) = (index / dim, index % dim);
    let first = query / length * length;
    let keys = if causal { query - first + 1 } else { length };
    let score = |key: usize| {
        let products = (0..dim).map(|p| at(input::X, query * dim + p) * at(input::KEYS, key * dim + p));
        products.sum::<f64>() / (dim as f64).sqrt()
    };
    let (mut total, mut sum, mut magnitude) = (0.0, 0.0, 0.0);
    for key in first..first + keys {
        // Scores of inputs below one are small enough to go without their maximum.
        let weight = score(key).exp();
        let value = at(input::VALUES, key * dim + d);
        total += weight;
        sum += weight * value;
        magnitude += weight * value.abs();
    }
    Point { index, value: sum / total, allowed: allowed(magnitude / total, keys + dim) }
}

fn conv_point(conv: &Conv, x: &[f32], w: &[f32], index: usize) -> Point {
    let [[_, inputs, height, width], [_, depth, kernel, _], [_, outputs, down, across]] = conv.shapes();
    let (column, row) = (index % across, index / across % down);
    let (o, n) = (index / (across * down) % outputs, index / (across * down) / outputs);
    let first = o / (outputs / conv.groups) * depth;
    let (mut value, mut magnitude) = (0.0, 0.0);
    for tap in 0..depth * kernel * kernel {
        let (c, ky, kx) = (tap / (kernel * kernel), tap / kernel % kernel, tap % kernel);
        let (y, x_at) = (row * conv.stride + ky, column * conv.stride + kx);
        let inside = |at: usize, size: usize| at.checked_sub(conv.padding).filter(|&at| at < size);
        if let (Some(y), Some(at)) = (inside(y, height), inside(x_at, width)) {
            let place = ((n * inputs + first + c) * height + y) * width + at;
            let product = f64::from(x[place]) * f64::from(w[o * depth * kernel * kernel + tap]);
            value += product;
            magnitude += product.abs();
        }
    }
    Point { index, value, allowed: allowed(magnitude, depth * kernel * kernel) }
}

/// One part of one frequency; errors grow with the logarithm of the number of points, relative to the root of their number.
fn spectrum_point(x: &[f32], op: Transform, [n, batch]: [usize; 2], index: usize) -> Point {
    let bins = if op == Transform::Real { n / 2 + 1 } else { n };
    let (row, bin) = (index / 2 / bins, index / 2 % bins);
    let roots = |k: usize, n: usize| -> Vec<(f64, f64)> {
        let angle = |j: usize| -std::f64::consts::TAU * (j * k % n) as f64 / n as f64;
        (0..n).map(|j| (angle(j).cos(), angle(j).sin())).collect()
    };
    let along = roots(bin, n);
    let plane = op == Transform::Plane;
    let down = if plane { roots(row, batch) } else { vec![(1.0, 0.0)] };
    let (mut re, mut im) = (0.0, 0.0);
    for (i, &(a, b)) in down.iter().enumerate() {
        let line = if plane { i } else { row };
        for (j, &(c, s)) in along.iter().enumerate() {
            let (c, s) = (a * c - b * s, a * s + b * c);
            let at = line * n + j;
            let (p, q) = match op {
                Transform::Real => (f64::from(x[at]), 0.0),
                _ => (f64::from(x[2 * at]), f64::from(x[2 * at + 1])),
            };
            re += p * c - q * s;
            im += p * s + q * c;
        }
    }
    let points = (n * if plane { batch } else { 1 }) as f64;
    let value = if index.is_multiple_of(2) { re } else { im };
    Point { index, value, allowed: allowed(points.sqrt(), points.log2().ceil() as usize) }
}

fn norm_point(inputs: &[Buffer], index: usize, c: usize, mean: f64, variance: f64, terms: usize) -> Point {
    let x = f64::from(inputs[input::X][index]);
    let (weight, bias) = (f64::from(inputs[input::WEIGHT][c]), f64::from(inputs[input::BIAS][c]));
    let scale = weight / (variance + f64::from(EPSILON)).sqrt();
    let magnitude = (x.abs() + mean.abs()) * scale.abs() + bias.abs();
    Point { index, value: (x - mean) * scale + bias, allowed: allowed(magnitude, terms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_answer_passes_and_a_wrong_one_does_not() {
        let task = Task::Matmul { batch: 2, m: 3, k: 4, n: 5, transposed: true };
        let problem = Problem::new(task);
        let (a, b) = (&problem.inputs[0], &problem.inputs[1]);
        let mut out = vec![0f32; task.output_len()];
        for (index, o) in out.iter_mut().enumerate() {
            let (t, i, j) = (index / 15, index / 5 % 3, index % 5);
            *o = (0..4).map(|p| a[t * 12 + i * 4 + p] * b[t * 20 + j * 4 + p]).sum();
        }
        assert!(problem.error(&out) <= 1.0);
        for v in &mut out {
            *v *= 1.001;
        }
        assert!(problem.error(&out) > 1.0);
        out[0] = f32::NAN;
        assert_eq!(problem.error(&out), f64::INFINITY);
        assert_eq!(problem.error(&[]), f64::INFINITY);
    }

    #[test]
    fn convolutions_have_a_reference() {
        let conv = Conv {
            batch: 1,
            inputs: 2,
            height: 2,
            width: 2,
            outputs: 2,
            kernel: 1,
            stride: 1,
            padding: 0,
            groups: 2,
        };
        let problem = Problem::new(Task::Conv(conv));
        let (x, w) = (&problem.inputs[0], &problem.inputs[1]);
        let answer: Vec<f32> = (0..8).map(|i| x[i] * w[i / 4]).collect();
        assert!(problem.error(&answer) <= 1.0);
    }

    #[test]
    fn norms_and_sums_have_a_reference() {
        let problem = Problem::new(Task::Sum { over: Over::Columns, rows: 3, cols: 2 });
        let x = &problem.inputs[0];
        assert!(problem.error(&[x[0] + x[2] + x[4], x[1] + x[3] + x[5]]) <= 1.0);
        let problem = Problem::new(Task::BatchNorm { batch: 1, channels: 2, plane: 1 });
        let at = |i: usize, c: usize| problem.inputs[i][c];
        let norm = |c: usize| (at(0, c) - at(3, c)) / (at(4, c) + EPSILON).sqrt() * at(1, c) + at(2, c);
        assert!(problem.error(&[norm(0), norm(1)]) <= 1.0);
    }
}
