//! How real numbers are kept as integers: scales and zero points, and what they belong to.

use super::QuantType;
use super::attributes::Walk;
use crate::error::{Error, Result};
use crate::ops::reduce::resolve;
use crate::tensor::{DType, Shape, Tensor, TensorView};

/// What shares a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// All elements.
    Tensor,
    /// All elements of the same index along an axis, which counts from the last if negative.
    Channel(isize),
    /// So many neighbours along the last axis; the last block may be shorter.
    Block(usize),
}

/// `x ≈ (q − zero_point) · scale`, for a tensor, each of its channels or each block of its last axis.
///
/// ```
/// use shapewise::ops::quantize::{QuantType, Quantization};
/// use shapewise::{Runtime, Tensor};
/// let rt = Runtime::builder().without_calibration().build()?;
/// let x = Tensor::from_vec(vec![-1.0f32, 0.26, 3.0, 100.0], &[4])?;
/// let how = Quantization::per_tensor(QuantType::U8, 0.5, 10)?;
/// let q = rt.quantize(&x, &how)?;
/// assert_eq!(q.to_vec::<u8>()?, [8, 11, 16, 210]);
/// assert_eq!(rt.dequantize(&q, &how)?.to_vec::<f32>()?, [-1.0, 0.5, 3.0, 100.0]);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Quantization {
    kind: QuantType,
    granularity: Granularity,
    /// f32, contiguous.
    scale: Tensor,
    /// i32, contiguous; none where all are zero.
    zero_point: Option<Tensor>,
}

const OPERATION: &str = "quantization";

fn invalid(reason: String) -> Error {
    Error::InvalidArgument { operation: OPERATION, reason }
}

impl Quantization {
    /// One scale and one zero point for all elements.
    pub fn per_tensor(kind: QuantType, scale: f32, zero_point: i32) -> Result<Self> {
        let zero = Tensor::scalar(zero_point);
        Self::new(kind, Granularity::Tensor, Tensor::scalar(scale).view(), Some(zero.view()))
    }

    /// A scale for each index along the axis, and a zero point; none at all means zeros.
    pub fn per_channel(kind: QuantType, axis: isize, scales: &[f32], zero_points: &[i32]) -> Result<Self> {
        let scale = TensorView::from_slice(scales, &[scales.len()])?;
        let zero = TensorView::from_slice(zero_points, &[zero_points.len()])?;
        Self::new(kind, Granularity::Channel(axis), scale, (!zero_points.is_empty()).then_some(zero))
    }

    /// A scale for each block of `size` neighbours along the last axis: the scales have the tensor's shape with the
    /// number of blocks, rounded up, as the last size. Zero points are integers of the same shape.
    pub fn per_block<'a>(
        kind: QuantType,
        size: usize,
        scales: impl Into<TensorView<'a>>,
        zero_points: Option<TensorView<'a>>,
    ) -> Result<Self> {
        Self::new(kind, Granularity::Block(size), scales.into(), zero_points)
    }

    pub(super) fn new(
        kind: QuantType,
        granularity: Granularity,
        scale: TensorView<'_>,
        zero_point: Option<TensorView<'_>>,
    ) -> Result<Self> {
        if scale.dtype() != DType::F32 {
            let hint = "scales are f32".into();
            return Err(Error::UnsupportedDType { operation: OPERATION, dtype: scale.dtype(), hint });
        }
        let scales = scale.to_vec::<f32>()?;
        if let Some(at) = scales.iter().position(|s| !(s.is_finite() && *s > 0.0)) {
            return Err(invalid(format!("scale {at} is {}; scales are positive and finite", scales[at])));
        }
        match granularity {
            Granularity::Tensor if scales.len() != 1 => {
                return Err(invalid(format!("{} scales for one tensor; give one", scales.len())));
            }
            Granularity::Channel(_) if scale.rank() != 1 => {
                return Err(invalid(format!(
                    "the scales of channels are a vector, not {}",
                    scale.layout().shape
                )));
            }
            Granularity::Block(0) => return Err(invalid("blocks of 0 elements hold nothing".into())),
            Granularity::Block(size) if kind.is_packed() && size % 2 == 1 => {
                return Err(invalid(format!(
                    "blocks of {size} would cut a byte of {kind}; give an even size"
                )));
            }
            Granularity::Block(_) if scale.rank() == 0 => {
                return Err(invalid("the scales of blocks have an axis of blocks".into()));
            }
            _ => {}
        }
        let zeros = zero_point.map(|zero| zero_points(kind, &scale, &zero)).transpose()?;
        let zeros = zeros.filter(|zeros| zeros.iter().any(|&z| z != 0));
        Ok(Self {
            kind,
            granularity,
            zero_point: zeros.map(|zeros| Tensor::from_slice(&zeros, scale.shape())).transpose()?,
            scale: Tensor::from_slice(&scales, scale.shape())?,
        })
    }

    /// The integers' type.
    pub fn kind(&self) -> QuantType {
        self.kind
    }

    /// What shares a scale.
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// The scales: f32.
    pub fn scale(&self) -> &Tensor {
        &self.scale
    }

    /// The zero points, i32; `None` where all are zero.
    pub fn zero_point(&self) -> Option<&Tensor> {
        self.zero_point.as_ref()
    }

    /// Whether there are no zero points but zero.
    pub fn is_symmetric(&self) -> bool {
        self.zero_point.is_none()
    }

    /// The same for `count` channels from `first` on; per tensor it is the same for all.
    pub(super) fn of_channels(&self, first: usize, count: usize) -> Result<Self> {
        if self.granularity == Granularity::Tensor {
            return Ok(self.clone());
        }
        let part = |tensor: &Tensor| tensor.slice(0, first, first + count, 1)?.to_contiguous();
        let zero_point = self.zero_point.as_ref().map(part).transpose()?;
        Ok(Self {
            kind: self.kind,
            granularity: Granularity::Channel(0),
            scale: part(&self.scale)?,
            zero_point,
        })
    }

    /// How elements of a tensor of this shape find their scales, if these are as many as are needed.
    pub(super) fn walk(&self, operation: &'static str, shape: &[usize]) -> Result<Walk> {
        let (walk, wanted) = self.granularity.walk(operation, shape)?;
        if self.granularity == Granularity::Tensor || self.scale.shape() == wanted {
            return Ok(walk);
        }
        let (found, wanted) = (self.scale.layout().shape, Shape::new(&wanted)?);
        let reason = match self.granularity {
            Granularity::Block(size) => format!("blocks of {size} need scales of {wanted}, not {found}"),
            _ => format!("{} scales for {} channels", self.scale.len(), wanted[0]),
        };
        Err(Error::ShapeMismatch { operation, reason })
    }
}

impl Granularity {
    /// How elements of a tensor of this shape find their scales, and the shape of these.
    pub(super) fn walk(self, operation: &'static str, shape: &[usize]) -> Result<(Walk, Vec<usize>)> {
        match self {
            Self::Tensor => Ok((Walk { outer: 1, channels: 1, inner: product(shape), block: 0 }, vec![])),
            Self::Channel(axis) => {
                let axis = resolve(axis, shape.len())?;
                let (outer, inner) = (product(&shape[..axis]), product(&shape[axis + 1..]));
                Ok((Walk { outer, channels: shape[axis], inner, block: 0 }, vec![shape[axis]]))
            }
            Self::Block(size) => {
                let Some((&n, rows)) = shape.split_last().filter(|_| size > 0) else {
                    let reason = "blocks need an axis and hold at least one element".into();
                    return Err(Error::ShapeMismatch { operation, reason });
                };
                let scales: Vec<usize> = rows.iter().copied().chain([n.div_ceil(size)]).collect();
                let walk = if n.is_multiple_of(size) {
                    Walk { outer: 1, channels: product(&scales), inner: size, block: 0 }
                } else {
                    Walk { outer: product(rows), channels: 1, inner: n, block: size }
                };
                Ok((walk, scales))
            }
        }
    }
}

/// Of sizes that may be beyond the address space beside one of 0.
fn product(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |product, &size| product.saturating_mul(size))
}

/// The zero points as i32, checked against the type's range and the scales' shape.
fn zero_points(kind: QuantType, scale: &TensorView<'_>, zero: &TensorView<'_>) -> Result<Vec<i32>> {
    let zeros: Vec<i32> = match zero.dtype() {
        DType::I8 => zero.to_vec::<i8>()?.into_iter().map(i32::from).collect(),
        DType::U8 => zero.to_vec::<u8>()?.into_iter().map(i32::from).collect(),
        DType::I16 => zero.to_vec::<i16>()?.into_iter().map(i32::from).collect(),
        DType::I32 => zero.to_vec::<i32>()?,
        dtype => {
            let hint = "zero points are i8, u8, i16 or i32".into();
            return Err(Error::UnsupportedDType { operation: OPERATION, dtype, hint });
        }
    };
    if zero.shape() != scale.shape() {
        let (found, wanted) = (zero.layout().shape, scale.layout().shape);
        return Err(invalid(format!("zero points of {found} for scales of {wanted}")));
    }
    let (low, high) = if kind == QuantType::I32 { (0, 0) } else { kind.range() };
    match zeros.iter().find(|z| !(low..=high).contains(*z)) {
        Some(z) => Err(invalid(format!("a zero point of {z} is outside {low} … {high} of {kind}"))),
        None => Ok(zeros),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_scales_and_zero_points_are_refused() {
        for scale in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            let error = Quantization::per_tensor(QuantType::I8, scale, 0).unwrap_err().to_string();
            assert!(error.contains("positive and finite"), "{error}");
        }
        let error = |kind, zero| Quantization::per_tensor(kind, 1.0, zero).unwrap_err().to_string();
        assert!(error(QuantType::U8, -1).contains("outside 0 … 255 of u8"));
        assert!(error(QuantType::I4, 8).contains("outside -8 … 7 of i4"));
        assert!(error(QuantType::I32, 1).contains("outside 0 … 0"));
        let wrong = Quantization::per_channel(QuantType::I8, 0, &[1.0, 2.0], &[0]);
        assert!(wrong.unwrap_err().to_string().contains("zero points of 1 for scales of 2"));
        let scales = Tensor::full(1.0f32, &[2, 2]).unwrap();
        let block = |kind, size| Quantization::per_block(kind, size, &scales, None);
        assert!(block(QuantType::I4, 3).unwrap_err().to_string().contains("even size"));
        assert!(block(QuantType::I8, 0).unwrap_err().to_string().contains("hold nothing"));
        let doubles = Tensor::full(1.0f64, &[2]).unwrap();
        assert!(Quantization::per_block(QuantType::I8, 4, &doubles, None).is_err());
    }

    #[test]
    fn zeros_are_symmetric_and_walks_follow_the_shape() {
        assert!(Quantization::per_tensor(QuantType::I8, 1.0, 0).unwrap().is_symmetric());
        let channels = Quantization::per_channel(QuantType::I8, -2, &[1.0, 2.0, 3.0], &[0, 1, 2]).unwrap();
        let walk = channels.walk("test", &[4, 3, 5]).unwrap();
        assert_eq!((walk.outer, walk.channels, walk.inner), (4, 3, 5));
        assert!(
            channels.walk("test", &[4, 2, 5]).unwrap_err().to_string().contains("3 scales for 2 channels")
        );
        assert!(channels.walk("test", &[3]).is_err());
        let scales = Tensor::full(1.0f32, &[2, 3]).unwrap();
        let blocks = Quantization::per_block(QuantType::I8, 4, &scales, None).unwrap();
        let even = blocks.walk("test", &[2, 12]).unwrap();
        assert_eq!((even.channels, even.inner, even.block), (6, 4, 0));
        let ragged = blocks.walk("test", &[2, 10]).unwrap();
        assert_eq!((ragged.outer, ragged.inner, ragged.block), (2, 10, 4));
        assert!(blocks.walk("test", &[2, 13]).unwrap_err().to_string().contains("blocks of 4 need scales"));
        assert!(blocks.walk("test", &[]).is_err());
    }
}
