//! Layers, directions and dropout around the operation, which is one layer in one direction.

use super::asked::Asked;
use super::dropout::drop_out;
use super::plan::is_wide;
use super::{Cell, RnnAttributes, RnnWeights};
use crate::error::Result;
use crate::ops::elementwise::{Function, Program};
use crate::ops::walk::layout;
use crate::ops::{MAX_OPERANDS, Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Shape, Tensor, TensorView, TensorViewMut};

/// Where a call's results go: the sequence, the states and, for an LSTM, the memories.
pub(super) struct Results<'o> {
    pub y: TensorViewMut<'o>,
    pub h: TensorViewMut<'o>,
    pub c: Option<TensorViewMut<'o>>,
}

static ZERO_F32: [f32; 1] = [0.0];
static ZERO_F64: [f64; 1] = [0.0];

/// Zeros of this shape that take no memory.
fn zeros(dtype: DType, shape: [usize; 2]) -> Result<TensorView<'static>> {
    let one =
        if dtype == DType::F64 { TensorView::from(&ZERO_F64[..]) } else { TensorView::from(&ZERO_F32[..]) };
    one.with_layout(layout(shape.into_iter().map(|size| (size, 0)), 0))
}

/// One of the states: `[batch, hidden]`.
fn state(of: &Layout, i: usize) -> Layout {
    let axes = of.shape.iter().copied().zip(of.strides.iter().copied()).skip(1);
    layout(axes, of.offset.wrapping_add_signed(i as isize * of.strides[0]))
}

/// One direction's part of a result.
fn half(of: &Layout, direction: usize, hidden: usize) -> Layout {
    let mut part = *of;
    part.shape[2] = hidden;
    part.offset = of.offset.wrapping_add_signed((direction * hidden) as isize * of.strides[2]);
    part
}

impl Runtime {
    /// All layers of a call; 16-bit floats are computed in f32 from the first to the last.
    pub(super) fn recur(&self, asked: &Asked<'_, '_>, results: Results<'_>) -> Result<()> {
        if is_wide(asked.x.dtype()) {
            return self.recur_wide(asked, results);
        }
        let wide = |view: TensorView<'_>| self.cast(view, DType::F32);
        let x = wide(asked.x)?;
        let mut kept = Vec::new();
        for weights in asked.weights {
            kept.push(weights.views().map(|view| wide(*view)).collect::<Result<Vec<_>>>()?);
        }
        let weights: Vec<_> = kept.iter().map(|tensors| set(tensors)).collect();
        let (h, c) = (asked.h.map(wide).transpose()?, asked.c.map(wide).transpose()?);
        let (h, c) = (h.as_ref().map(Tensor::view), c.as_ref().map(Tensor::view));
        let asked = Asked { x: x.view(), weights: &weights, h, c, ..*asked };
        let room = |view: &TensorViewMut<'_>| self.allocate(&view.layout().shape, DType::F32);
        let (mut y, mut h) = (room(&results.y)?, room(&results.h)?);
        let mut c = results.c.as_ref().map(room).transpose()?;
        let wide =
            Results { y: y.view_mut()?, h: h.view_mut()?, c: c.as_mut().map(Tensor::view_mut).transpose()? };
        self.recur_wide(&asked, wide)?;
        for (from, to) in [(Some(&y), Some(results.y)), (Some(&h), Some(results.h)), (c.as_ref(), results.c)]
        {
            if let (Some(from), Some(to)) = (from, to) {
                let narrow = Program::single(Function::Cast(to.dtype()), &[]);
                self.elementwise_into(&narrow, &[from.view()], to)?;
            }
        }
        Ok(())
    }

    fn recur_wide(&self, asked: &Asked<'_, '_>, mut results: Results<'_>) -> Result<()> {
        let lengths = match asked.lengths {
            // Checked to fit.
            Some(lengths) => {
                Some(Tensor::from_vec(lengths.iter().map(|&n| n as u32).collect(), &[lengths.len()])?)
            }
            None => None,
        };
        let lengths = lengths.as_ref().map(Tensor::view);
        let layers = asked.weights.len() / asked.directions;
        let mut before: Option<Tensor> = None;
        for layer in 0..layers {
            let between = Shape::new(&[asked.steps(), asked.batch(), asked.directions * asked.hidden])?;
            let last = layer + 1 == layers;
            let mut made = if last { None } else { Some(self.allocate(&between, asked.x.dtype())?) };
            for direction in 0..asked.directions {
                let x = before.as_ref().map_or(asked.x, Tensor::view);
                let y = match &mut made {
                    Some(tensor) => tensor.view_mut()?,
                    None => results.y.reborrow(),
                };
                let part = half(y.layout(), direction, asked.hidden);
                let at = layer * asked.directions + direction;
                let (h, c) = (results.h.reborrow(), results.c.as_mut().map(TensorViewMut::reborrow));
                self.recur_layer(asked, at, x, lengths, Results { y: y.with_layout(part)?, h, c })?;
            }
            if let (Some(made), Some(how)) = (&mut made, asked.dropout) {
                drop_out(made, layer, how)?;
            }
            before = made;
        }
        Ok(())
    }

    /// One layer in one direction: the `at`-th set of weights.
    fn recur_layer(
        &self,
        asked: &Asked<'_, '_>,
        at: usize,
        x: TensorView<'_>,
        lengths: Option<TensorView<'_>>,
        results: Results<'_>,
    ) -> Result<()> {
        let weights = &asked.weights[at];
        // An LSTM with biases and lengths fills a workload; its weights are then packed in the call.
        let memory = usize::from(asked.cell == Cell::Lstm);
        let operands = 4 + 2 * memory + weights.views().count() + usize::from(lengths.is_some());
        let kept = weights.kept.as_ref().filter(|_| operands < MAX_OPERANDS);
        let attributes = RnnAttributes {
            cell: asked.cell,
            reverse: at % asked.directions == 1,
            bias: weights.bias.is_some(),
            lengths: lengths.is_some(),
            kept: kept.map(|kept| kept.0),
        };
        let mut request = Request::new(Operation::Rnn(attributes));
        request.input(&x);
        let states = [Some(&asked.h), (asked.cell == Cell::Lstm).then_some(&asked.c)];
        for given in states.into_iter().flatten() {
            match given {
                Some(view) => request.input(&view.with_layout(state(view.layout(), at))?),
                None => request.input(&zeros(x.dtype(), [asked.batch(), asked.hidden])?),
            }
        }
        for view in weights.views() {
            request.input(view);
        }
        if let Some(lengths) = lengths {
            request.input(&lengths);
        }
        if let Some((_, panels)) = kept {
            request.input(panels);
        }
        request.output(results.y);
        for out in [Some(results.h), results.c].into_iter().flatten() {
            let part = state(out.layout(), at);
            request.output(out.with_layout(part)?);
        }
        self.execute(&request)
    }
}

/// Weights from tensors in torch's order.
fn set(tensors: &[Tensor]) -> RnnWeights<'_> {
    let weights = RnnWeights::new(&tensors[0], &tensors[1]);
    if let [_, _, b_ih, b_hh] = tensors { weights.bias(b_ih, b_hh) } else { weights }
}
