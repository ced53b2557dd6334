//! The calls on single steps: `rt.rnn_cell`, `rt.gru_cell`, `rt.lstm_cell` and their forms with given results.

use std::slice::from_ref;

use super::asked::Asked;
use super::stack::Results;
use super::{Cell, Nonlinearity, RnnOptions, RnnWeights};
use crate::error::{Error, Result};
use crate::ops::walk::layout;
use crate::runtime::Runtime;
use crate::tensor::{Layout, Output, Shape, Tensor, TensorView, TensorViewMut};

/// Input, state and, for an LSTM, memory before a step.
struct Before<'a> {
    cell: Cell,
    x: TensorView<'a>,
    h: TensorView<'a>,
    c: Option<TensorView<'a>>,
}

impl Runtime {
    /// One step of a vanilla network: the state after `x` `[batch, input]` from `h` `[batch, hidden]`; both may lack the batch.
    pub fn rnn_cell<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        h: impl Into<TensorView<'a>>,
        weights: &RnnWeights<'a>,
        nonlinearity: Nonlinearity,
    ) -> Result<Tensor> {
        self.one_result(&Before { cell: nonlinearity.into(), x: x.into(), h: h.into(), c: None }, weights)
    }

    /// As [`rnn_cell`](Runtime::rnn_cell), written into `out`.
    pub fn rnn_cell_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        h: impl Into<TensorView<'a>>,
        weights: &RnnWeights<'a>,
        nonlinearity: Nonlinearity,
        out: impl Output<'a>,
    ) -> Result<()> {
        let before = Before { cell: nonlinearity.into(), x: x.into(), h: h.into(), c: None };
        self.one_step(&before, weights, out.into_view_mut()?, None)
    }

    /// One step of a gated recurrent unit, as [`rnn_cell`](Runtime::rnn_cell).
    pub fn gru_cell<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        h: impl Into<TensorView<'a>>,
        weights: &RnnWeights<'a>,
    ) -> Result<Tensor> {
        self.one_result(&Before { cell: Cell::Gru, x: x.into(), h: h.into(), c: None }, weights)
    }

    /// As [`gru_cell`](Runtime::gru_cell), written into `out`.
    pub fn gru_cell_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        h: impl Into<TensorView<'a>>,
        weights: &RnnWeights<'a>,
        out: impl Output<'a>,
    ) -> Result<()> {
        let before = Before { cell: Cell::Gru, x: x.into(), h: h.into(), c: None };
        self.one_step(&before, weights, out.into_view_mut()?, None)
    }

    /// One step of a long short-term memory: state and memory after `x`, as [`rnn_cell`](Runtime::rnn_cell).
    pub fn lstm_cell<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        h: impl Into<TensorView<'a>>,
        c: impl Into<TensorView<'a>>,
        weights: &RnnWeights<'a>,
    ) -> Result<(Tensor, Tensor)> {
        let before = Before { cell: Cell::Lstm, x: x.into(), h: h.into(), c: Some(c.into()) };
        let shape = before.check(weights)?;
        let mut h = self.allocate(&shape, before.x.dtype())?;
        let mut c = self.allocate(&shape, before.x.dtype())?;
        self.one_step(&before, weights, h.view_mut()?, Some(c.view_mut()?))?;
        Ok((h, c))
    }

    /// As [`lstm_cell`](Runtime::lstm_cell), written into `h_out` and `c_out`.
    pub fn lstm_cell_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        h: impl Into<TensorView<'a>>,
        c: impl Into<TensorView<'a>>,
        weights: &RnnWeights<'a>,
        h_out: impl Output<'a>,
        c_out: impl Output<'a>,
    ) -> Result<()> {
        let before = Before { cell: Cell::Lstm, x: x.into(), h: h.into(), c: Some(c.into()) };
        self.one_step(&before, weights, h_out.into_view_mut()?, Some(c_out.into_view_mut()?))
    }

    fn one_result(&self, before: &Before<'_>, weights: &RnnWeights<'_>) -> Result<Tensor> {
        let mut out = self.allocate(&before.check(weights)?, before.x.dtype())?;
        self.one_step(before, weights, out.view_mut()?, None)?;
        Ok(out)
    }

    /// A sequence of one step.
    fn one_step(
        &self,
        before: &Before<'_>,
        weights: &RnnWeights<'_>,
        h: TensorViewMut<'_>,
        c: Option<TensorViewMut<'_>>,
    ) -> Result<()> {
        before.check(weights)?;
        let x = before.x.with_layout(once(before.x.layout()))?;
        let mut options = RnnOptions::new().initial(before.h.with_layout(once(before.h.layout()))?);
        if let Some(c) = &before.c {
            options = options.initial_memory(c.with_layout(once(c.layout()))?);
        }
        let asked = Asked::new(before.cell, x, from_ref(weights), &options)?;
        let mut y = self.allocate(&asked.shapes()?[0], x.dtype())?;
        let results = Results {
            y: asked.result(y.view_mut()?)?,
            h: state(&asked, h)?,
            c: c.map(|c| state(&asked, c)).transpose()?,
        };
        self.recur(&asked, results)
    }
}

impl Before<'_> {
    /// The shape of a new state.
    fn check(&self, weights: &RnnWeights<'_>) -> Result<Shape> {
        let operation = self.cell.name();
        let wrong = |reason: String| Err(Error::ShapeMismatch { operation, reason });
        if !(self.x.rank() == 1 || self.x.rank() == 2) {
            return wrong(format!("the input is {:?}; give [batch, input] or [input]", self.x.shape()));
        }
        let mut shape = self.x.layout().shape;
        let last = shape.len() - 1;
        shape[last] = weights.w_hh.shape().last().copied().unwrap_or(0);
        for (state, which) in [(Some(&self.h), "state"), (self.c.as_ref(), "memory")] {
            if let Some(state) = state.filter(|state| *state.shape() != *shape) {
                return wrong(format!("the {which} is {:?}; it must be {shape}", state.shape()));
            }
        }
        Ok(shape)
    }
}

/// A given state as a sequence's final one.
fn state<'o>(asked: &Asked<'_, '_>, out: TensorViewMut<'o>) -> Result<TensorViewMut<'o>> {
    let to = once(out.layout());
    asked.final_state(out.with_layout(to)?)
}

/// The same after an axis of one element.
fn once(of: &Layout) -> Layout {
    let rest = of.shape.iter().copied().zip(of.strides.iter().copied());
    layout(std::iter::once((1, 0)).chain(rest), of.offset)
}
