//! Weights packed once and kept: `let w = rt.pack_rnn(Cell::Lstm, &weights)?; rt.lstm(&x, &[w.weights()], &options)?`.
//!
//! The plain weights are kept too, so that every kernel remains a candidate.

use super::plan::{depth, is_wide};
use super::problem::Problem;
use super::{Cell, Kept, RnnWeights, cpu_pack};
use crate::backends::cpu::simd::Isa;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::tensor::{DType, Shape, Tensor, TensorView};

const OPERATION: &str = "pack_rnn";

/// Weights of one layer in one direction as they are, and in panels. Cheap to clone; clones share the memory.
#[derive(Clone, Debug)]
pub struct PackedRnn {
    w_ih: Tensor,
    w_hh: Tensor,
    bias: Option<[Tensor; 2]>,
    kept: Kept,
    panels: Tensor,
}

impl PackedRnn {
    /// The weights, for `rt.rnn`, `rt.gru`, `rt.lstm` and their cells.
    pub fn weights(&self) -> RnnWeights<'_> {
        let mut weights = RnnWeights::new(&self.w_ih, &self.w_hh);
        if let Some([b_ih, b_hh]) = &self.bias {
            weights = weights.bias(b_ih, b_hh);
        }
        RnnWeights { kept: Some((self.kept, self.panels.view())), ..weights }
    }

    /// Bytes of the panels, padding included.
    pub fn bytes(&self) -> usize {
        self.panels.len() * self.panels.dtype().size()
    }
}

impl Runtime {
    /// Packs the weights of one layer in one direction for many calls, which then read them in order instead of packing them each time.
    /// `f32` and `f64`.
    ///
    /// ```
    /// use shapewise::ops::rnn::{Cell, RnnOptions, RnnWeights};
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let (w_ih, w_hh) = (Tensor::full(0.5f32, &[12, 2])?, Tensor::full(0.1f32, &[12, 3])?);
    /// let packed = rt.pack_rnn(Cell::Lstm, &RnnWeights::new(&w_ih, &w_hh))?;
    /// let x = Tensor::full(1.0f32, &[5, 4, 2])?;
    /// let (y, h, c) = rt.lstm(&x, &[packed.weights()], &RnnOptions::new())?;
    /// assert_eq!((y.shape(), h.shape(), c.shape()), (&[5, 4, 3][..], &[1, 4, 3][..], &[1, 4, 3][..]));
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn pack_rnn(&self, cell: Cell, weights: &RnnWeights<'_>) -> Result<PackedRnn> {
        let dtype = weights.w_ih.dtype();
        if !is_wide(dtype) {
            let hint = "cast to f32 or f64: 16-bit weights are widened in every call".into();
            return Err(Error::UnsupportedDType { operation: OPERATION, dtype, hint });
        }
        let sizes = check(cell, weights)?;
        let isa = self.device_info().isas.last().copied().unwrap_or(Isa::Portable);
        let kept = Kept { isa, depth: depth(isa, self.device_info()) as u32 };
        let copy = |view: &TensorView<'_>| -> Result<Tensor> {
            let mut copy = self.allocate(&view.layout().shape, view.dtype())?;
            view.copy_bytes(copy.bytes_mut()?);
            Ok(copy)
        };
        let (w_ih, w_hh) = (copy(&weights.w_ih)?, copy(&weights.w_hh)?);
        let bias = match &weights.bias {
            Some([b_ih, b_hh]) => Some([copy(b_ih)?, copy(b_hh)?]),
            None => None,
        };
        let p = Problem::of_weights(cell, dtype, sizes, kept);
        let mut panels =
            self.allocate(&Shape::new(&[cpu_pack::kept_elements(&p, isa).iter().sum()])?, dtype)?;
        let (views, info) = (&[w_ih.view(), w_hh.view()], self.device_info());
        match dtype {
            DType::F64 => cpu_pack::keep::<f64>(&p, isa, views, &mut panels, info)?,
            _ => cpu_pack::keep::<f32>(&p, isa, views, &mut panels, info)?,
        }
        Ok(PackedRnn { w_ih, w_hh, bias, kept, panels })
    }
}

/// Input and hidden units of weights that fit together.
fn check(cell: Cell, weights: &RnnWeights<'_>) -> Result<[usize; 2]> {
    let wrong = |reason: String| Err(Error::ShapeMismatch { operation: OPERATION, reason });
    let (&[lines, input], &[_, hidden]) = (weights.w_ih.shape(), weights.w_hh.shape()) else {
        let reason = "w_ih must be [gates · hidden, input] and w_hh [gates · hidden, hidden]".into();
        return wrong(reason);
    };
    let wanted: [&[usize]; 4] = [&[lines, input], &[lines, hidden], &[lines], &[lines]];
    for ((view, wanted), which) in weights.views().zip(wanted).zip(["w_ih", "w_hh", "b_ih", "b_hh"]) {
        if view.dtype() != weights.w_ih.dtype() {
            let (left, right) = (weights.w_ih.dtype(), view.dtype());
            return Err(Error::DTypeMismatch { operation: OPERATION, left, right });
        }
        if view.shape() != wanted {
            return wrong(format!("{which} is {:?}; it must be {wanted:?}", view.shape()));
        }
    }
    if cell.gates().checked_mul(hidden) != Some(lines) {
        let gates = cell.gates();
        return wrong(format!(
            "{lines} rows of weights for {hidden} hidden units; {} has {gates} for each",
            cell.name()
        ));
    }
    // Padding makes at most a panel of 32 of each column.
    for columns in [input, hidden] {
        Shape::new(&[lines, columns, 32])?.elements()?;
    }
    Ok([input, hidden])
}
