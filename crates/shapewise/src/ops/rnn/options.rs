//! What a call is given beside the sequence: weights, and what may be left out.

use super::{Cell, Kept};
use crate::tensor::TensorView;

/// What a vanilla network applies to its sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Nonlinearity {
    /// The hyperbolic tangent.
    #[default]
    Tanh,
    /// The larger of the sum and zero.
    Relu,
}

impl From<Nonlinearity> for Cell {
    fn from(nonlinearity: Nonlinearity) -> Self {
        match nonlinearity {
            Nonlinearity::Tanh => Self::Tanh,
            Nonlinearity::Relu => Self::Relu,
        }
    }
}

/// Weights of one layer in one direction, as torch keeps them.
#[derive(Clone, Copy, Debug)]
pub struct RnnWeights<'a> {
    pub(super) w_ih: TensorView<'a>,
    pub(super) w_hh: TensorView<'a>,
    pub(super) bias: Option<[TensorView<'a>; 2]>,
    /// The same in panels, if they were packed.
    pub(super) kept: Option<(Kept, TensorView<'a>)>,
}

impl<'a> RnnWeights<'a> {
    /// `[gates · hidden, input]` for the inputs and `[gates · hidden, hidden]` for the state; without biases.
    pub fn new(w_ih: impl Into<TensorView<'a>>, w_hh: impl Into<TensorView<'a>>) -> Self {
        Self { w_ih: w_ih.into(), w_hh: w_hh.into(), bias: None, kept: None }
    }

    /// With biases of inputs and state, `[gates · hidden]` each.
    #[must_use]
    pub fn bias(mut self, b_ih: impl Into<TensorView<'a>>, b_hh: impl Into<TensorView<'a>>) -> Self {
        self.bias = Some([b_ih.into(), b_hh.into()]);
        self
    }

    /// All of them, in torch's order.
    pub(super) fn views(&self) -> impl Iterator<Item = &TensorView<'a>> {
        [&self.w_ih, &self.w_hh].into_iter().chain(self.bias.iter().flatten())
    }
}

/// Directions, order of axes, lengths, initial states and dropout.
///
/// ```
/// use shapewise::ops::rnn::{Nonlinearity, RnnOptions, RnnWeights};
/// use shapewise::{Runtime, Tensor};
/// let rt = Runtime::builder().without_calibration().build()?;
/// let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3, 1])?;
/// let one = Tensor::full(1.0f32, &[1, 1])?;
/// let (y, h) = rt.rnn(&x, &[RnnWeights::new(&one, &one)], Nonlinearity::Relu, &RnnOptions::new())?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 3.0, 6.0]);
/// assert_eq!(h.to_vec::<f32>()?, [6.0]);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RnnOptions<'a> {
    pub(super) batch_first: bool,
    pub(super) bidirectional: bool,
    pub(super) lengths: Option<&'a [usize]>,
    pub(super) dropout: Option<(f64, u64)>,
    pub(super) h: Option<TensorView<'a>>,
    pub(super) c: Option<TensorView<'a>>,
}

impl<'a> RnnOptions<'a> {
    /// Steps before sequences, forwards, all of one length, from zeros, without dropout.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sequences are `[batch, steps, …]` instead of `[steps, batch, …]`; states are not concerned.
    #[must_use]
    pub fn batch_first(mut self) -> Self {
        self.batch_first = true;
        self
    }

    /// Each layer runs forwards and backwards; weights of both directions follow one another, layer by layer.
    #[must_use]
    pub fn bidirectional(mut self) -> Self {
        self.bidirectional = true;
        self
    }

    /// How many steps of each sequence count, in any order; the others give zeros and leave the state alone.
    #[must_use]
    pub fn lengths(mut self, lengths: &'a [usize]) -> Self {
        self.lengths = Some(lengths);
        self
    }

    /// Between layers, each element becomes zero with this probability, the others grow by as much. The same seed gives the
    /// same zeros, whatever kernel and number of threads.
    #[must_use]
    pub fn dropout(mut self, probability: f64, seed: u64) -> Self {
        self.dropout = Some((probability, seed));
        self
    }

    /// The states before the first step: `[layers · directions, batch, hidden]`, zeros if not given.
    #[must_use]
    pub fn initial(mut self, h: impl Into<TensorView<'a>>) -> Self {
        self.h = Some(h.into());
        self
    }

    /// The memories of an LSTM before the first step, of the same shape.
    #[must_use]
    pub fn initial_memory(mut self, c: impl Into<TensorView<'a>>) -> Self {
        self.c = Some(c.into());
        self
    }
}
