//! Recurrent networks with torch's weights and results.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shapewise::ops::rnn::{Cell, Nonlinearity, PackedRnn, RnnOptions, RnnWeights};

use crate::array::{Input, to_numpy};
use crate::runtime::PyRuntime;

/// The weights of all layers and directions: arrays, or what `pack_rnn` gave.
#[derive(FromPyObject)]
pub enum Params<'py> {
    Packed(Bound<'py, PyPackedRnn>),
    Plain(Vec<Input<'py>>),
}

impl Params<'_> {
    fn weights(&self, sets: usize) -> PyResult<Vec<RnnWeights<'_>>> {
        match self {
            Self::Plain(arrays) => weights(arrays, sets),
            Self::Packed(packed) => {
                let inner = &packed.get().inner;
                if inner.len() != sets {
                    return Err(PyValueError::new_err(format!(
                        "params was packed for {} layers and directions, not {sets}; give the same num_layers and \
                         bidirectional to pack_rnn",
                        inner.len()
                    )));
                }
                Ok(inner.iter().map(PackedRnn::weights).collect())
            }
        }
    }
}

/// Weights of a network in the order in which products read them: see `pack_rnn`.
#[pyclass(module = "shapewise", name = "PackedRnn", frozen)]
pub struct PyPackedRnn {
    inner: Vec<PackedRnn>,
}

#[pymethods]
impl PyPackedRnn {
    /// Bytes of the packed weights, padding included.
    #[getter]
    fn nbytes(&self) -> usize {
        self.inner.iter().map(PackedRnn::bytes).sum()
    }

    fn __repr__(&self) -> String {
        format!("<shapewise.PackedRnn of {} layers and directions>", self.inner.len())
    }
}

/// The arrays of all layers and directions, as `list(module.parameters())` gives them: `w_ih, w_hh` and, if there are biases,
/// `b_ih, b_hh`.
fn weights<'a>(params: &'a [Input<'_>], sets: usize) -> PyResult<Vec<RnnWeights<'a>>> {
    let each = params.len().checked_div(sets).unwrap_or(0);
    if sets == 0 || !(each == 2 || each == 4) || !params.len().is_multiple_of(sets) {
        return Err(PyValueError::new_err(format!(
            "params has {} arrays; give w_ih, w_hh (and b_ih, b_hh) for each of {sets} layers and directions",
            params.len()
        )));
    }
    let set = |part: &'a [Input<'_>]| {
        let weights = RnnWeights::new(part[0].view()?, part[1].view()?);
        if part.len() == 4 { Ok(weights.bias(part[2].view()?, part[3].view()?)) } else { Ok(weights) }
    };
    params.chunks(each).map(set).collect()
}

/// What may be left out.
struct Settings {
    num_layers: usize,
    bidirectional: bool,
    batch_first: bool,
    lengths: Option<Vec<usize>>,
    dropout: f64,
    seed: u64,
}

impl Settings {
    fn sets(&self) -> usize {
        self.num_layers.saturating_mul(if self.bidirectional { 2 } else { 1 })
    }

    fn options(&self) -> RnnOptions<'_> {
        let mut options = RnnOptions::new();
        if self.bidirectional {
            options = options.bidirectional();
        }
        if self.batch_first {
            options = options.batch_first();
        }
        if let Some(lengths) = &self.lengths {
            options = options.lengths(lengths);
        }
        if self.dropout == 0.0 { options } else { options.dropout(self.dropout, self.seed) }
    }
}

#[pymethods]
impl PyRuntime {
    /// Packs the weights of a network once for many calls; `rnn`, `gru` and `lstm` take the result instead of `params`.
    ///
    /// `cell` is 'rnn', 'gru' or 'lstm'; float32 and float64.
    #[pyo3(signature = (params, cell, num_layers = 1, bidirectional = false))]
    fn pack_rnn<'py>(
        &self,
        py: Python<'py>,
        params: Vec<Input<'py>>,
        cell: &str,
        num_layers: usize,
        bidirectional: bool,
    ) -> PyResult<PyPackedRnn> {
        let cell = match cell {
            "rnn" => Cell::Tanh,
            "gru" => Cell::Gru,
            "lstm" => Cell::Lstm,
            other => {
                return Err(PyValueError::new_err(format!("cell is {other:?}; use 'rnn', 'gru' or 'lstm'")));
            }
        };
        let sets = num_layers.saturating_mul(if bidirectional { 2 } else { 1 });
        let weights = weights(&params, sets)?;
        let inner = self.compute(py, |rt| weights.iter().map(|set| rt.pack_rnn(cell, set)).collect())?;
        Ok(PyPackedRnn { inner })
    }

    /// A vanilla network; gives `(output, h_n)` as `torch.nn.RNN` does. `nonlinearity` is 'tanh' or 'relu'.
    ///
    /// `x` is `[steps, batch, input]` (`[batch, steps, input]` with `batch_first`), `params` the weights of all layers and
    /// directions in torch's order; `lengths` says how many steps of each sequence count. With `dropout`, the same `seed` gives
    /// the same zeros.
    #[pyo3(signature = (x, params, h0 = None, num_layers = 1, bidirectional = false, batch_first = false,
        nonlinearity = "tanh", lengths = None, dropout = 0.0, seed = 0))]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn rnn<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        params: Params<'py>,
        h0: Option<Input<'py>>,
        num_layers: usize,
        bidirectional: bool,
        batch_first: bool,
        nonlinearity: &str,
        lengths: Option<Vec<usize>>,
        dropout: f64,
        seed: u64,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let nonlinearity = match nonlinearity {
            "tanh" => Nonlinearity::Tanh,
            "relu" => Nonlinearity::Relu,
            other => {
                return Err(PyValueError::new_err(format!(
                    "nonlinearity is {other:?}; use 'tanh' or 'relu'"
                )));
            }
        };
        let settings = Settings { num_layers, bidirectional, batch_first, lengths, dropout, seed };
        let mut options = settings.options();
        if let Some(h) = &h0 {
            options = options.initial(h.view()?);
        }
        let (x, weights) = (x.view()?, params.weights(settings.sets())?);
        self.run_two(py, |rt| rt.rnn(x, &weights, nonlinearity, &options))
    }

    /// Gated recurrent units; gives `(output, h_n)` as `torch.nn.GRU` does. Arguments as for `rnn`.
    #[pyo3(signature = (x, params, h0 = None, num_layers = 1, bidirectional = false, batch_first = false, lengths = None,
        dropout = 0.0, seed = 0))]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn gru<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        params: Params<'py>,
        h0: Option<Input<'py>>,
        num_layers: usize,
        bidirectional: bool,
        batch_first: bool,
        lengths: Option<Vec<usize>>,
        dropout: f64,
        seed: u64,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let settings = Settings { num_layers, bidirectional, batch_first, lengths, dropout, seed };
        let mut options = settings.options();
        if let Some(h) = &h0 {
            options = options.initial(h.view()?);
        }
        let (x, weights) = (x.view()?, params.weights(settings.sets())?);
        self.run_two(py, |rt| rt.gru(x, &weights, &options))
    }

    /// Long short-term memories; gives `(output, (h_n, c_n))` as `torch.nn.LSTM` does. Arguments as for `rnn`.
    #[pyo3(signature = (x, params, h0 = None, c0 = None, num_layers = 1, bidirectional = false, batch_first = false,
        lengths = None, dropout = 0.0, seed = 0))]
    #[allow(clippy::too_many_arguments, clippy::type_complexity)] // Python's signature
    fn lstm<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        params: Params<'py>,
        h0: Option<Input<'py>>,
        c0: Option<Input<'py>>,
        num_layers: usize,
        bidirectional: bool,
        batch_first: bool,
        lengths: Option<Vec<usize>>,
        dropout: f64,
        seed: u64,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyAny>, Bound<'py, PyAny>))> {
        let settings = Settings { num_layers, bidirectional, batch_first, lengths, dropout, seed };
        let mut options = settings.options();
        if let Some(h) = &h0 {
            options = options.initial(h.view()?);
        }
        if let Some(c) = &c0 {
            options = options.initial_memory(c.view()?);
        }
        let (x, weights) = (x.view()?, params.weights(settings.sets())?);
        let (y, h, c) = self.compute(py, |rt| rt.lstm(x, &weights, &options))?;
        Ok((to_numpy(py, y)?, (to_numpy(py, h)?, to_numpy(py, c)?)))
    }
}
