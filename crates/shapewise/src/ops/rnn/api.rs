//! The calls on sequences: `rt.rnn`, `rt.gru`, `rt.lstm` and their forms with given results.

use super::asked::Asked;
use super::stack::Results;
use super::{Cell, Nonlinearity, RnnOptions, RnnWeights};
use crate::error::Result;
use crate::runtime::Runtime;
use crate::tensor::{Output, Tensor, TensorView};

impl Runtime {
    /// A vanilla network; gives the sequence of states of the last layer, and the last state of every layer and direction.
    ///
    /// `x` is `[steps, batch, input]`, or `[steps, input]` for a single sequence, which then has no axis in the results either.
    /// There is a set of weights for each layer, or two (forwards, backwards) if the network is bidirectional.
    pub fn rnn<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        weights: &[RnnWeights<'a>],
        nonlinearity: Nonlinearity,
        options: &RnnOptions<'a>,
    ) -> Result<(Tensor, Tensor)> {
        self.two_results(&Asked::new(nonlinearity.into(), x.into(), weights, options)?)
    }

    /// As [`rnn`](Runtime::rnn), written into `y` and `h`.
    pub fn rnn_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        weights: &[RnnWeights<'a>],
        nonlinearity: Nonlinearity,
        options: &RnnOptions<'a>,
        y: impl Output<'a>,
        h: impl Output<'a>,
    ) -> Result<()> {
        let asked = Asked::new(nonlinearity.into(), x.into(), weights, options)?;
        let (y, h) = (asked.result(y.into_view_mut()?)?, asked.final_state(h.into_view_mut()?)?);
        self.recur(&asked, Results { y, h, c: None })
    }

    /// A network of gated recurrent units; arguments and results as of [`rnn`](Runtime::rnn).
    pub fn gru<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        weights: &[RnnWeights<'a>],
        options: &RnnOptions<'a>,
    ) -> Result<(Tensor, Tensor)> {
        self.two_results(&Asked::new(Cell::Gru, x.into(), weights, options)?)
    }

    /// As [`gru`](Runtime::gru), written into `y` and `h`.
    pub fn gru_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        weights: &[RnnWeights<'a>],
        options: &RnnOptions<'a>,
        y: impl Output<'a>,
        h: impl Output<'a>,
    ) -> Result<()> {
        let asked = Asked::new(Cell::Gru, x.into(), weights, options)?;
        let (y, h) = (asked.result(y.into_view_mut()?)?, asked.final_state(h.into_view_mut()?)?);
        self.recur(&asked, Results { y, h, c: None })
    }

    /// A network of long short-term memories; as [`rnn`](Runtime::rnn), and the last memories too.
    pub fn lstm<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        weights: &[RnnWeights<'a>],
        options: &RnnOptions<'a>,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let asked = Asked::new(Cell::Lstm, x.into(), weights, options)?;
        let [sequence, state] = asked.shapes()?;
        let mut y = self.allocate(&sequence, asked.x.dtype())?;
        let mut h = self.allocate(&state, asked.x.dtype())?;
        let mut c = self.allocate(&state, asked.x.dtype())?;
        let results = Results {
            y: asked.result(y.view_mut()?)?,
            h: asked.final_state(h.view_mut()?)?,
            c: Some(asked.final_state(c.view_mut()?)?),
        };
        self.recur(&asked, results)?;
        Ok((y, h, c))
    }

    /// As [`lstm`](Runtime::lstm), written into `y`, `h` and `c`.
    pub fn lstm_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        weights: &[RnnWeights<'a>],
        options: &RnnOptions<'a>,
        y: impl Output<'a>,
        h: impl Output<'a>,
        c: impl Output<'a>,
    ) -> Result<()> {
        let asked = Asked::new(Cell::Lstm, x.into(), weights, options)?;
        let results = Results {
            y: asked.result(y.into_view_mut()?)?,
            h: asked.final_state(h.into_view_mut()?)?,
            c: Some(asked.final_state(c.into_view_mut()?)?),
        };
        self.recur(&asked, results)
    }

    /// The results of a cell without a memory.
    fn two_results(&self, asked: &Asked<'_, '_>) -> Result<(Tensor, Tensor)> {
        let [sequence, state] = asked.shapes()?;
        let mut y = self.allocate(&sequence, asked.x.dtype())?;
        let mut h = self.allocate(&state, asked.x.dtype())?;
        let results =
            Results { y: asked.result(y.view_mut()?)?, h: asked.final_state(h.view_mut()?)?, c: None };
        self.recur(asked, results)?;
        Ok((y, h))
    }
}
