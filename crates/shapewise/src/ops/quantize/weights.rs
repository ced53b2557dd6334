//! Weights of four or eight bits, packed once: `let w = rt.pack_quantized(&q, &how)?; rt.matmul_quantized(&x, &w)?`.
//!
//! Eight words of 32 bits side by side hold 8 · 32 / bits neighbouring weights of an output, so that the weights at the same place
//! of the eight words are neighbours, and a mask makes a vector of them. Four outputs share a panel, group by group, so that
//! memory is read in one stream; their scales lie side by side as well.

use super::attributes::{QuantizedMatmulAttributes, WeightZero};
use super::{Granularity, QuantType, Quantization};
use crate::error::{Error, Result};
use crate::ops::reduce::{expect, resolve};
use crate::ops::{Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Tensor, TensorView};

/// Words that weights are spread over: the lanes of a vector of 256 bits.
pub(super) const LANES: usize = 8;

/// Outputs that share a panel.
pub(super) const PANEL: usize = 4;

/// Weights that eight words hold.
pub(super) const fn group(bits: u32) -> usize {
    LANES * (32 / bits as usize)
}

/// Quantised weights in the order in which products read them. Cheap to clone; clones share the memory.
#[derive(Clone, Debug)]
pub struct QuantizedWeights {
    /// Panels × groups × words of the panel's outputs.
    words: Tensor,
    /// Panels × blocks × outputs of a panel, f32.
    scale: Tensor,
    /// The same, where there are zero points.
    zero: Option<Tensor>,
    attributes: QuantizedMatmulAttributes,
    kind: QuantType,
    n: usize,
    k: usize,
}

impl QuantizedWeights {
    /// Outputs and inputs of the layer: rows and columns of the weights.
    pub fn shape(&self) -> [usize; 2] {
        [self.n, self.k]
    }

    /// The weights' type.
    pub fn kind(&self) -> QuantType {
        self.kind
    }

    /// Bytes of weights, scales and zero points.
    pub fn bytes(&self) -> usize {
        let scales = self.scale.len() + self.zero.as_ref().map_or(0, Tensor::len);
        4 * (self.words.len() + scales)
    }
}

const PACK: &str = "pack_quantized";
const MULTIPLY: &str = "matmul_quantized";

impl Runtime {
    /// Packs quantised weights, outputs × inputs (inputs / 2 bytes for four bits), for products with real activations.
    ///
    /// They are i8, u8, i4 or u4, quantised per tensor, per output (axis 0) or per block of inputs.
    ///
    /// ```
    /// use shapewise::ops::quantize::{QuantType, Quantization};
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let weights = Tensor::from_vec(vec![1.0f32, -2.0, 0.5, 1.5], &[2, 2])?;
    /// let how = Quantization::per_channel(QuantType::I4, 0, &[0.5, 0.25], &[])?;
    /// let packed = rt.pack_quantized(&rt.quantize(&weights, &how)?, &how)?;
    /// let x = Tensor::from_vec(vec![1.0f32, 1.0], &[1, 2])?;
    /// assert_eq!(rt.matmul_quantized(&x, &packed)?.to_vec::<f32>()?, [-1.0, 2.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn pack_quantized<'a>(
        &self,
        q: impl Into<TensorView<'a>>,
        how: &Quantization,
    ) -> Result<QuantizedWeights> {
        let (q, kind) = (q.into(), how.kind());
        let invalid = |reason: String| Error::InvalidArgument { operation: PACK, reason };
        if kind.bits() > 8 {
            return Err(invalid(format!("weights have 4 or 8 bits, not those of {kind}")));
        }
        if q.dtype() != kind.dtype() {
            let hint = format!("the quantisation says {kind}, held by {}", kind.dtype());
            return Err(Error::UnsupportedDType { operation: PACK, dtype: q.dtype(), hint });
        }
        let &[n, bytes] = q.shape() else {
            let reason = format!("a matrix of outputs × inputs is needed, not {}", q.layout().shape);
            return Err(Error::ShapeMismatch { operation: PACK, reason });
        };
        let k = if kind.is_packed() { bytes.saturating_mul(2) } else { bytes };
        // Checks the number of scales.
        how.walk(PACK, &[n, k])?;
        let block = match how.granularity() {
            Granularity::Block(size) if size < k => size,
            Granularity::Channel(axis) if resolve(axis, 2)? != 0 => {
                return Err(invalid(
                    "scales of inputs cannot be taken out of the sums; quantise axis 0".into(),
                ));
            }
            _ => 0,
        };
        let bits = kind.bits() as u32;
        let signed = matches!(kind, QuantType::I8 | QuantType::I4);
        let zero = match (how.zero_point(), signed) {
            (Some(_), _) => WeightZero::Each,
            (None, true) => WeightZero::Middle,
            (None, false) => WeightZero::Lowest,
        };
        let blocks = if block == 0 { 1 } else { k.div_ceil(block) };
        // Without inputs there is nothing to keep.
        let rows = if k == 0 { 0 } else { n };
        let each = |at: usize| if how.granularity() == Granularity::Tensor { 0 } else { at };
        let scales = how.scale().as_slice::<f32>()?;
        let middle = if signed { 1 << (bits - 1) } else { 0 };
        let zeros = match how.zero_point() {
            None => None,
            Some(zeros) => {
                let zeros = zeros.as_slice::<i32>()?;
                Some(panels(rows, blocks, |i| (zeros[each(i)] + middle) as f32)?)
            }
        };
        Ok(QuantizedWeights {
            words: self.pack_words(&q, kind, [rows, k])?,
            scale: panels(rows, blocks, |i| scales[each(i)])?,
            zero: zeros,
            attributes: QuantizedMatmulAttributes { bits, block, zero },
            kind,
            n,
            k,
        })
    }

    fn pack_words(&self, q: &TensorView<'_>, kind: QuantType, [n, k]: [usize; 2]) -> Result<Tensor> {
        let bits = kind.bits() as u32;
        let groups = k.div_ceil(group(bits));
        let mut words = Tensor::zeros(&[n.div_ceil(PANEL), groups, PANEL * LANES], DType::U32)?;
        if words.is_empty() {
            return Ok(words);
        }
        let mut raw = self.allocate(&q.layout().shape, DType::U8)?;
        q.copy_bytes(raw.bytes_mut()?);
        let raw = raw.as_slice::<u8>()?;
        // What is signed becomes unsigned by turning its highest bit over.
        let turn = if matches!(kind, QuantType::I8 | QuantType::I4) { 1 << (bits - 1) } else { 0 };
        let words_mut = words.as_mut_slice::<u32>()?;
        let rows = raw.chunks_exact((raw.len() / n.max(1)).max(1));
        for (j, from) in rows.enumerate() {
            let first = j / PANEL * groups * PANEL * LANES + j % PANEL * LANES;
            for i in 0..k {
                let weight = if bits == 4 { from[i / 2] >> (i % 2 * 4) & 15 } else { from[i] } ^ turn;
                let (place, inside) = (i / group(bits) * PANEL * LANES, i % group(bits));
                let word = &mut words_mut[first + place + inside % LANES];
                *word |= u32::from(weight) << (inside / LANES * bits as usize);
            }
        }
        Ok(words)
    }

    /// The product of `x` (a row, a matrix, or a batch of matrices of f32 or bf16) and the transposed weights; the result
    /// has the type of `x`.
    pub fn matmul_quantized<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        weights: &QuantizedWeights,
    ) -> Result<Tensor> {
        let x = x.into();
        let mut out = self.allocate(&result_shape(&x, weights)?, x.dtype())?;
        self.matmul_quantized_into(x, weights, &mut out)?;
        Ok(out)
    }

    /// The same into a given output, which may have any strides.
    pub fn matmul_quantized_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        weights: &QuantizedWeights,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (x, mut out) = (x.into(), out.into_view_mut()?);
        let shape = result_shape(&x, weights)?;
        expect(MULTIPLY, &out, &shape, x.dtype())?;
        if out.is_empty() {
            return Ok(());
        }
        let mut copied = None;
        let rows = self.in_order(x, &mut copied)?;
        if !out.layout().is_contiguous() {
            let whole = self.matmul_quantized(rows, weights)?;
            return self.copy_into(&whole, out.reborrow());
        }
        let [n, k] = weights.shape();
        let m = shape[..shape.len() - 1].iter().product();
        let matrix = |columns: usize, offset: usize| -> Result<Layout> {
            Ok(Layout { offset, ..Layout::contiguous(Shape::new(&[m, columns])?) })
        };
        let (from, to) = (matrix(k, rows.layout().offset)?, matrix(n, out.layout().offset)?);
        self.ask(Operation::QuantizedMatmul(weights.attributes), |request: &mut Request<'_>| {
            request.input(&rows.with_layout(from)?);
            request.input(&weights.words.view());
            request.input(&weights.scale.view());
            if let Some(zero) = &weights.zero {
                request.input(&zero.view());
            }
            request.output(out.with_layout(to)?);
            Ok(())
        })
    }
}

/// A number for every block of every output, the outputs of a panel side by side; ones for those that are missing.
fn panels(n: usize, blocks: usize, number: impl Fn(usize) -> f32) -> Result<Tensor> {
    let mut all = vec![1.0; n.div_ceil(PANEL) * blocks * PANEL];
    for (j, block) in (0..n).flat_map(|j| (0..blocks).map(move |block| (j, block))) {
        all[(j / PANEL * blocks + block) * PANEL + j % PANEL] = number(j * blocks + block);
    }
    Tensor::from_slice(&all, &[n.div_ceil(PANEL), blocks, PANEL])
}

fn result_shape(x: &TensorView<'_>, weights: &QuantizedWeights) -> Result<Shape> {
    if !matches!(x.dtype(), DType::F32 | DType::BF16) {
        let hint = "activations are f32 or bf16; cast first".into();
        return Err(Error::UnsupportedDType { operation: MULTIPLY, dtype: x.dtype(), hint });
    }
    let [n, k] = weights.shape();
    let mismatch = |reason: String| Error::ShapeMismatch { operation: MULTIPLY, reason };
    let Some((&columns, leading)) = x.shape().split_last() else {
        return Err(mismatch("a scalar has no columns".into()));
    };
    if columns != k {
        return Err(mismatch(format!(
            "{} has {columns} columns, the weights {n}×{k} have {k}",
            x.layout().shape
        )));
    }
    let mut shape = Shape::new(leading)?;
    shape.append(n);
    shape.elements()?;
    Ok(shape)
}
