//! The calls: `rt.attention(&q, &k, &v, &options)` and `rt.attention_into(…)`.

use super::{AttentionAttributes, Causality};
use crate::error::{Error, Result};
use crate::ops::reduce::expect;
use crate::ops::walk::layout;
use crate::ops::{Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Tensor, TensorView, TensorViewMut};

/// Mask, causality and scale of an attention.
///
/// ```
/// use shapewise::ops::attention::AttentionOptions;
/// use shapewise::{Runtime, Tensor};
/// let rt = Runtime::builder().without_calibration().build()?;
/// let q = Tensor::full(1.0f32, &[1, 1, 2, 4])?;
/// let v = Tensor::from_vec(vec![1.0f32, 3.0], &[1, 1, 2, 1])?;
/// let y = rt.attention(&q, &q, &v, &AttentionOptions::new().causal())?;
/// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions<'a> {
    causality: Causality,
    mask: Option<TensorView<'a>>,
    scale: Option<f64>,
}

impl<'a> AttentionOptions<'a> {
    /// Every query looks at every key; products are divided by the root of dim.
    pub fn new() -> Self {
        Self::default()
    }

    /// Query `i` looks at keys up to `i`. Where lengths differ the first query and the first key are aligned, as by
    /// torch's `is_causal`.
    #[must_use]
    pub fn causal(self) -> Self {
        self.causality(Causality::FromStart)
    }

    /// The last query looks at all keys, the one before at all but the last, and so on: for a few new queries after
    /// many keys that are kept, as in decoding.
    #[must_use]
    pub fn causal_from_end(self) -> Self {
        self.causality(Causality::FromEnd)
    }

    /// Which keys a query may look at.
    #[must_use]
    pub fn causality(mut self, causality: Causality) -> Self {
        self.causality = causality;
        self
    }

    /// Booleans, `true` where a query may look at a key, or floats (of the queries' type) that are added to the scores;
    /// broadcast to `[batch, heads, queries, keys]`.
    #[must_use]
    pub fn mask(mut self, mask: impl Into<TensorView<'a>>) -> Self {
        self.mask = Some(mask.into());
        self
    }

    /// The factor of the products of queries and keys, instead of 1 / √dim.
    #[must_use]
    pub fn scale(mut self, scale: f64) -> Self {
        self.scale = Some(scale);
        self
    }

    fn attributes(&self, dim: usize) -> Result<AttentionAttributes> {
        let scale = self.scale.unwrap_or_else(|| 1.0 / (dim.max(1) as f64).sqrt());
        if !scale.is_finite() {
            return Err(Error::InvalidArgument {
                operation: NAME,
                reason: format!("the scale is {scale}; give a finite number"),
            });
        }
        Ok(AttentionAttributes::new(self.causality, self.mask.is_some(), scale))
    }
}

const NAME: &str = "attention";

/// Bytes that an element takes at most in a buffer: 8, padded from one column to a panel of 32.
const PADDED: usize = 8 * 32;

impl Runtime {
    /// For each query the mean of the values, weighted by the softmax of its products with the keys.
    pub fn attention<'a>(
        &self,
        q: impl Into<TensorView<'a>>,
        k: impl Into<TensorView<'a>>,
        v: impl Into<TensorView<'a>>,
        options: &AttentionOptions<'a>,
    ) -> Result<Tensor> {
        let (q, k, v) = (q.into(), k.into(), v.into());
        let shape = check(&q, &k, &v)?;
        let mut out = self.allocate(&shape, q.dtype())?;
        self.attend(&q, &k, &v, options, out.view_mut()?)?;
        Ok(out)
    }

    /// As [`attention`](Runtime::attention), written into `out`.
    pub fn attention_into<'a>(
        &self,
        q: impl Into<TensorView<'a>>,
        k: impl Into<TensorView<'a>>,
        v: impl Into<TensorView<'a>>,
        options: &AttentionOptions<'a>,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (q, k, v, out) = (q.into(), k.into(), v.into(), out.into_view_mut()?);
        expect(NAME, &out, &check(&q, &k, &v)?, q.dtype())?;
        self.attend(&q, &k, &v, options, out)
    }

    fn attend<'a>(
        &self,
        q: &TensorView<'a>,
        k: &TensorView<'a>,
        v: &TensorView<'a>,
        options: &AttentionOptions<'a>,
        out: TensorViewMut<'a>,
    ) -> Result<()> {
        let attributes = options.attributes(q.shape()[q.rank() - 1])?;
        let mut request = Request::new(Operation::Attention(attributes));
        for view in [q, k, v] {
            request.input(&view.with_layout(four(view.layout()))?);
        }
        if let Some(mask) = options.mask {
            let mut scores = q.layout().shape;
            scores[q.rank() - 1] = k.shape()[k.rank() - 2];
            let mask = check_mask(&mask, q.dtype(), &scores)?;
            request.input(&mask.with_layout(four(mask.layout()))?);
        }
        let to = four(out.layout());
        request.output(out.with_layout(to)?);
        self.execute(&request)
    }
}

/// With a batch of one before the others, if there are three axes.
fn four(of: &Layout) -> Layout {
    if of.shape.len() == 4 {
        return *of;
    }
    let rest = of.shape.iter().copied().zip(of.strides.iter().copied());
    layout(std::iter::once((1, 0)).chain(rest), of.offset)
}

/// The shape of the result.
fn check(q: &TensorView<'_>, k: &TensorView<'_>, v: &TensorView<'_>) -> Result<Shape> {
    let rank = q.rank();
    let wrong = |reason: String| Err(Error::ShapeMismatch { operation: NAME, reason });
    if !(rank == 3 || rank == 4) || k.rank() != rank || v.rank() != rank {
        return wrong(format!(
            "queries {:?}, keys {:?} and values {:?}; all are [batch, heads, length, dim] or [heads, length, dim]",
            q.shape(),
            k.shape(),
            v.shape()
        ));
    }
    for view in [k, v] {
        if view.dtype() != q.dtype() {
            return Err(Error::DTypeMismatch { operation: NAME, left: q.dtype(), right: view.dtype() });
        }
    }
    if !q.dtype().is_float() {
        let hint = "cast to a float type first".into();
        return Err(Error::UnsupportedDType { operation: NAME, dtype: q.dtype(), hint });
    }
    let axis = |view: &TensorView<'_>, back: usize| view.shape()[rank - back];
    if axis(q, 1) != axis(k, 1) {
        return wrong(format!("queries have dim {}, keys {}; they must be equal", axis(q, 1), axis(k, 1)));
    }
    if axis(k, 2) != axis(v, 2) {
        return wrong(format!("{} keys but {} values; each key has one", axis(k, 2), axis(v, 2)));
    }
    if axis(k, 3) != axis(v, 3) {
        return wrong(format!("keys have {} heads, values {}", axis(k, 3), axis(v, 3)));
    }
    if rank == 4 && (axis(q, 4) != axis(k, 4) || axis(q, 4) != axis(v, 4)) {
        let sizes = [axis(q, 4), axis(k, 4), axis(v, 4)];
        return wrong(format!("batches of {sizes:?}; expand the smaller ones with `broadcast_to`"));
    }
    let (heads, shared) = (axis(q, 3), axis(k, 3));
    if heads != shared && (shared == 0 || !heads.is_multiple_of(shared)) {
        return wrong(format!("{heads} heads of queries cannot share {shared} heads of keys evenly"));
    }
    let (mut scores, mut shape) = (q.layout().shape, q.layout().shape);
    scores[rank - 1] = axis(k, 2);
    shape[rank - 1] = axis(v, 1);
    // Views that repeat themselves can be larger than memory; buffers are made for some of these.
    for shape in [&scores, &shape, &k.layout().shape, &v.layout().shape] {
        let fits = shape.elements()?.checked_mul(PADDED).is_some_and(|bytes| isize::try_from(bytes).is_ok());
        if !fits {
            return Err(Error::SizeOverflow { shape: shape.to_vec() });
        }
    }
    Ok(shape)
}

/// The mask, repeated to the shape of the scores.
fn check_mask<'a>(mask: &TensorView<'a>, dtype: DType, scores: &[usize]) -> Result<TensorView<'a>> {
    if mask.dtype() != DType::Bool && mask.dtype() != dtype {
        let hint = format!("a mask is bool or, as the queries, {dtype}");
        return Err(Error::UnsupportedDType {
            operation: "the mask of attention",
            dtype: mask.dtype(),
            hint,
        });
    }
    mask.broadcast_to(scores).map_err(|_| Error::ShapeMismatch {
        operation: NAME,
        reason: format!("a mask of {:?} does not repeat to the scores' {scores:?}", mask.shape()),
    })
}
