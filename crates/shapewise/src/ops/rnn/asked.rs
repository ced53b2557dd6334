//! A call that was checked: all operands in one order of axes.

use super::{Cell, RnnOptions, RnnWeights};
use crate::error::{Error, Result};
use crate::ops::reduce::expect;
use crate::ops::walk::layout;
use crate::tensor::{Layout, Shape, TensorView, TensorViewMut};

/// Bytes that an element of weights or projected inputs takes at most in a buffer: 8, padded from one column to a panel of 32.
const PADDED: usize = 8 * 32;

/// A checked call. Sequences are `[steps, batch, …]`, states `[layers · directions, batch, hidden]`.
#[derive(Clone, Copy)]
pub(super) struct Asked<'w, 'a> {
    pub cell: Cell,
    pub x: TensorView<'a>,
    pub weights: &'w [RnnWeights<'a>],
    pub h: Option<TensorView<'a>>,
    pub c: Option<TensorView<'a>>,
    pub lengths: Option<&'w [usize]>,
    pub dropout: Option<(f64, u64)>,
    pub directions: usize,
    pub hidden: usize,
    /// Whether there is an axis of sequences, and whether it comes first.
    pub batched: bool,
    pub batch_first: bool,
}

impl<'w, 'a> Asked<'w, 'a> {
    pub fn new(
        cell: Cell,
        x: TensorView<'a>,
        weights: &'w [RnnWeights<'a>],
        options: &RnnOptions<'a>,
    ) -> Result<Self>
    where
        'a: 'w,
    {
        let name = cell.name();
        let (batched, directions) = (x.rank() == 3, 1 + usize::from(options.bidirectional));
        if !(x.rank() == 2 || batched) {
            let axes = if options.batch_first { "[batch, steps, input]" } else { "[steps, batch, input]" };
            return wrong(name, format!("the sequence is {:?}; give {axes} or [steps, input]", x.shape()));
        }
        if !x.dtype().is_float() {
            let hint = "cast to a float type first".into();
            return Err(Error::UnsupportedDType { operation: name, dtype: x.dtype(), hint });
        }
        let Some(first) = weights.first().filter(|_| weights.len().is_multiple_of(directions)) else {
            let each = if directions == 2 { "two for each layer" } else { "one for each layer" };
            return wrong(name, format!("{} sets of weights; give {each}", weights.len()));
        };
        if first.w_hh.rank() != 2 {
            return wrong(name, format!("w_hh is {:?}; give [gates · hidden, hidden]", first.w_hh.shape()));
        }
        let asked = Self {
            cell,
            x: x.with_layout(sequence(x.layout(), batched, options.batch_first))?,
            weights,
            h: options.h,
            c: options.c,
            lengths: options.lengths,
            dropout: options.dropout,
            directions,
            hidden: first.w_hh.shape()[1],
            batched,
            batch_first: options.batch_first,
        };
        asked.check_weights()?;
        asked.check_attributes()?;
        asked.with_states()
    }

    pub fn steps(&self) -> usize {
        self.x.shape()[0]
    }

    pub fn batch(&self) -> usize {
        self.x.shape()[1]
    }

    /// The shapes of the result and of a final state, as the caller sees them.
    pub fn shapes(&self) -> Result<[Shape; 2]> {
        let (steps, batch, width) = (self.steps(), self.batch(), self.directions * self.hidden);
        let (all, hidden) = (self.weights.len(), self.hidden);
        Ok(match (self.batched, self.batch_first) {
            (false, _) => [Shape::new(&[steps, width])?, Shape::new(&[all, hidden])?],
            (true, false) => [Shape::new(&[steps, batch, width])?, Shape::new(&[all, batch, hidden])?],
            (true, true) => [Shape::new(&[batch, steps, width])?, Shape::new(&[all, batch, hidden])?],
        })
    }

    /// A given result, checked and in the order of axes of the layers.
    pub fn result<'o>(&self, out: TensorViewMut<'o>) -> Result<TensorViewMut<'o>> {
        expect(self.cell.name(), &out, &self.shapes()?[0], self.x.dtype())?;
        let to = sequence(out.layout(), self.batched, self.batch_first);
        out.with_layout(to)
    }

    /// A given final state, checked and with an axis of sequences.
    pub fn final_state<'o>(&self, out: TensorViewMut<'o>) -> Result<TensorViewMut<'o>> {
        expect(self.cell.name(), &out, &self.shapes()?[1], self.x.dtype())?;
        let to = sequence(out.layout(), self.batched, false);
        out.with_layout(to)
    }

    fn check_weights(&self) -> Result<()> {
        let (name, lines) = (self.cell.name(), self.cell.gates().checked_mul(self.hidden));
        let lines =
            lines.ok_or_else(|| Error::SizeOverflow { shape: vec![self.cell.gates(), self.hidden] })?;
        for (i, weights) in self.weights.iter().enumerate() {
            if let Some(other) = weights.views().find(|view| view.dtype() != self.x.dtype()) {
                return Err(Error::DTypeMismatch {
                    operation: name,
                    left: self.x.dtype(),
                    right: other.dtype(),
                });
            }
            let layer = i / self.directions;
            let input = if layer == 0 { self.x.shape()[2] } else { self.directions * self.hidden };
            let wanted: [&[usize]; 4] = [&[lines, input], &[lines, self.hidden], &[lines], &[lines]];
            for ((view, wanted), which) in weights.views().zip(wanted).zip(["w_ih", "w_hh", "b_ih", "b_hh"]) {
                if view.shape() != wanted {
                    let found = view.shape();
                    return wrong(
                        name,
                        format!("{which} of layer {layer} is {found:?}; it must be {wanted:?}"),
                    );
                }
            }
            // Views that repeat themselves can be larger than memory; buffers are made for some of these.
            let (steps, batch) = (self.steps(), self.batch());
            let sizes: [&[usize]; 3] =
                [&[lines, input], &[lines, self.hidden], &[steps.max(1), batch.max(1), lines]];
            for shape in sizes {
                let elements = Shape::new(shape)?.elements()?;
                if elements.checked_mul(PADDED).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
                    return Err(Error::SizeOverflow { shape: shape.to_vec() });
                }
            }
        }
        Ok(())
    }

    fn check_attributes(&self) -> Result<()> {
        let (operation, steps, batch) = (self.cell.name(), self.steps(), self.batch());
        let wrong = |reason: String| Err(Error::InvalidArgument { operation, reason });
        if let Some(lengths) = self.lengths {
            if lengths.len() != batch {
                return wrong(format!("{} lengths for {batch} sequences; give one for each", lengths.len()));
            }
            if let Some(long) = lengths.iter().find(|length| **length > steps) {
                return wrong(format!("a length of {long} in sequences of {steps} steps; cut it"));
            }
            if u32::try_from(steps).is_err() {
                return wrong(format!("lengths in sequences of {steps} steps; at most 2³² − 1 are counted"));
            }
        }
        match self.dropout {
            Some((p, _)) if !(0.0..=1.0).contains(&p) => {
                wrong(format!("a dropout of {p}; give a probability from 0 to 1"))
            }
            _ if self.c.is_some() && self.cell != Cell::Lstm => {
                wrong("an initial memory, which only an LSTM has".into())
            }
            _ => Ok(()),
        }
    }

    /// With checked initial states that have an axis of sequences.
    fn with_states(mut self) -> Result<Self> {
        let (name, wanted) = (self.cell.name(), self.shapes()?[1]);
        for (state, which) in [(&mut self.h, "state"), (&mut self.c, "memory")] {
            let Some(view) = state else { continue };
            if view.dtype() != self.x.dtype() {
                return Err(Error::DTypeMismatch {
                    operation: name,
                    left: self.x.dtype(),
                    right: view.dtype(),
                });
            }
            if *view.shape() != *wanted {
                let found = view.shape();
                return wrong(name, format!("the initial {which} is {found:?}; it must be {wanted}"));
            }
            *view = view.with_layout(sequence(view.layout(), self.batched, false))?;
        }
        Ok(self)
    }
}

fn wrong<T>(operation: &'static str, reason: String) -> Result<T> {
    Err(Error::ShapeMismatch { operation, reason })
}

/// A layout of two or three axes as `[first, batch, last]`.
fn sequence(of: &Layout, batched: bool, batch_first: bool) -> Layout {
    let axis = |i: usize| (of.shape[i], of.strides[i]);
    let axes = match (batched, batch_first) {
        (false, _) => [axis(0), (1, 0), axis(1)],
        (true, false) => [axis(0), axis(1), axis(2)],
        (true, true) => [axis(1), axis(0), axis(2)],
    };
    layout(axes.into_iter(), of.offset)
}
