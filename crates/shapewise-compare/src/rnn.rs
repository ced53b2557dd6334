//! Recurrent layers of the list: sizes, and the recurrence of one sequence in f64.

use crate::buffer::Buffer;

/// One layer of LSTM or GRU cells with biases; sequences are `[steps, batch, input]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rnn {
    /// An LSTM, otherwise a GRU.
    pub lstm: bool,
    pub steps: usize,
    pub batch: usize,
    pub input: usize,
    pub hidden: usize,
}

impl Rnn {
    /// Rows of weights.
    pub fn lines(&self) -> usize {
        self.hidden * if self.lstm { 4 } else { 3 }
    }

    /// Elements of the sequence, the weights of input and state, and both biases.
    pub fn lengths(&self) -> [usize; 5] {
        let lines = self.lines();
        [self.steps * self.batch * self.input, lines * self.input, lines * self.hidden, lines, lines]
    }

    /// Makes weights as small as a network starts with.
    pub fn scale(&self, inputs: &mut [Buffer]) {
        let scale = 1.0 / (self.hidden as f32).sqrt();
        inputs.iter_mut().skip(1).flat_map(|weights| weights.iter_mut()).for_each(|w| *w *= scale);
    }

    /// The last state of the first sequence.
    pub fn last_state(&self, inputs: &[Buffer]) -> Vec<f64> {
        let (n, sigmoid) = (self.hidden, |x: f64| 1.0 / (1.0 + (-x).exp()));
        let (mut h, mut c) = (vec![0.0; n], vec![0.0; n]);
        for step in 0..self.steps {
            let x: Vec<f64> = inputs[0][step * self.batch * self.input..][..self.input]
                .iter()
                .map(|&x| f64::from(x))
                .collect();
            let sum = |weights: usize, line: usize, by: &[f64]| {
                let row = &inputs[weights][line * by.len()..][..by.len()];
                let product: f64 = row.iter().zip(by).map(|(&w, x)| f64::from(w) * x).sum();
                product + f64::from(inputs[weights + 2][line])
            };
            let new: Vec<_> = (0..n)
                .map(|unit| {
                    let parts = |gate: usize| (sum(1, gate * n + unit, &x), sum(2, gate * n + unit, &h));
                    let both = |gate: usize| parts(gate).0 + parts(gate).1;
                    if self.lstm {
                        let c = sigmoid(both(1)) * c[unit] + sigmoid(both(0)) * both(2).tanh();
                        return (sigmoid(both(3)) * c.tanh(), c);
                    }
                    let (z, (n_input, n_state)) = (sigmoid(both(1)), parts(2));
                    ((1.0 - z) * (n_input + sigmoid(both(0)) * n_state).tanh() + z * h[unit], 0.0)
                })
                .collect();
            (h, c) = new.into_iter().unzip();
        }
        h
    }
}
