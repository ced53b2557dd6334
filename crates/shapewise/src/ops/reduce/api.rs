//! The calls: `rt.sum(&x, 1)`, `rt.mean(&x, [0, 2])`, `rt.max(&x, ..)` …

use std::ops::RangeFull;

use super::attributes::{NormOrder, ReduceAttributes, ReduceKind, Scan, ScanKind};
use super::plan::Plan;
use crate::error::{Error, Result};
use crate::ops::walk::{Axis, AxisList};
use crate::ops::{Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{Axes, DType, MAX_RANK, Output, Shape, Tensor, TensorView, TensorViewMut};

/// The axes a reduction runs over, and whether they stay with size one.
///
/// Made from one axis, several, or `..` for all; negative axes count from the last.
///
/// ```
/// use shapewise::ops::reduce::Over;
/// let rows = Over::from(-1);
/// let planes = Over::from([0, 2]).keepdims();
/// let everything = Over::from(..);
/// # let _ = (rows, planes, everything);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    axes: Chosen,
    keepdims: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    All,
    Some(Axes<isize>),
    /// More than any tensor has.
    TooMany(usize),
}

impl Over {
    /// Keeps the reduced axes, with size one.
    #[must_use]
    pub fn keepdims(mut self) -> Self {
        self.keepdims = true;
        self
    }

    /// Which of `rank` axes are meant.
    pub(crate) fn mask(&self, operation: &'static str, rank: usize) -> Result<[bool; MAX_RANK]> {
        let mut mask = [false; MAX_RANK];
        match self.axes {
            Chosen::All => mask[..rank].fill(true),
            Chosen::TooMany(count) => return Err(Error::RankTooLarge { rank: count }),
            Chosen::Some(axes) => {
                for &axis in axes.iter() {
                    let at = resolve(axis, rank)?;
                    if std::mem::replace(&mut mask[at], true) {
                        return Err(Error::InvalidArgument {
                            operation,
                            reason: format!(
                                "axis {axis} is given twice (counting from the front it is {at}); name each once"
                            ),
                        });
                    }
                }
            }
        }
        Ok(mask)
    }
}

/// The axis counted from the front.
pub(crate) fn resolve(axis: isize, rank: usize) -> Result<usize> {
    let at = if axis < 0 { axis + rank as isize } else { axis };
    usize::try_from(at).ok().filter(|&at| at < rank).ok_or(Error::AxisOutOfRange { axis, rank })
}

impl From<RangeFull> for Over {
    fn from(_: RangeFull) -> Self {
        Self { axes: Chosen::All, keepdims: false }
    }
}

impl From<isize> for Over {
    fn from(axis: isize) -> Self {
        Self::from([axis])
    }
}

impl From<&[isize]> for Over {
    fn from(axes: &[isize]) -> Self {
        let axes = Axes::new(axes).map_or(Chosen::TooMany(axes.len()), Chosen::Some);
        Self { axes, keepdims: false }
    }
}

impl<const N: usize> From<[isize; N]> for Over {
    fn from(axes: [isize; N]) -> Self {
        Self::from(&axes[..])
    }
}

/// Named methods for each kind, with and without a given output.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident, $into:ident($($arg:ident: $type:ty)?) => $kind:expr;)*) => {
        impl Runtime {$(
            $(#[$doc])*
            #[inline]
            pub fn $name<'a>(
                &self,
                x: impl Into<TensorView<'a>>,
                $($arg: $type,)?
                over: impl Into<Over>,
            ) -> Result<Tensor> {
                self.reduce($kind, x, over)
            }

            #[doc = concat!("As [`", stringify!($name), "`](Runtime::", stringify!($name), "), written into `out`.")]
            #[inline]
            pub fn $into<'a>(
                &self,
                x: impl Into<TensorView<'a>>,
                $($arg: $type,)?
                over: impl Into<Over>,
                out: impl Output<'a>,
            ) -> Result<()> {
                self.reduce_into($kind, x, over, out)
            }
        )*}
    };
}

methods! {
    /// Σ x. Integers and truth values give i64 (wrapping); 16-bit floats are summed in f32.
    ///
    /// ```
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// assert_eq!(rt.sum(&x, 1)?.to_vec::<f32>()?, [6.0, 15.0]);
    /// assert_eq!(rt.sum(&x, ..)?.item::<f32>()?, 21.0);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    sum, sum_into() => ReduceKind::Sum;
    /// Σ x / n. Integers and truth values give f64; no elements give NaN.
    mean, mean_into() => ReduceKind::Mean;
    /// Π x. Integers and truth values give i64 (wrapping); floats of up to 32 bits are multiplied in f64.
    prod, prod_into() => ReduceKind::Prod;
    /// The largest element; NaN if there is one. No elements are an error.
    max, max_into() => ReduceKind::Max;
    /// The smallest element; NaN if there is one. No elements are an error.
    min, min_into() => ReduceKind::Min;
    /// Where the largest element is, as i64: the first of equals, the first NaN before any number. Over several axes
    /// the place is counted in row-major order. No elements are an error.
    argmax, argmax_into() => ReduceKind::ArgMax;
    /// Where the smallest element is, as i64: the first of equals, the first NaN before any number. Over several axes
    /// the place is counted in row-major order. No elements are an error.
    argmin, argmin_into() => ReduceKind::ArgMin;
    /// Whether any element is not zero; NaN counts. No elements give false.
    any, any_into() => ReduceKind::Any;
    /// Whether no element is zero; NaN counts. No elements give true.
    all, all_into() => ReduceKind::All;
    /// Σ (x − mean)² / (n − correction): correction 0 for a population, 1 for an estimate from a sample. Integers and
    /// truth values give f64; no elements give NaN.
    variance, variance_into(correction: u32) => ReduceKind::Variance { correction };
    /// A vector norm, computed in f64: `NormOrder::One`, `Two`, `Infinity` or `NormOrder::p(3.0)?`. Integers and truth
    /// values give f64, complex numbers the type of their parts.
    norm, norm_into(order: NormOrder) => ReduceKind::Norm(order);
}

impl Runtime {
    /// Any reduction by its kind.
    pub fn reduce<'a>(
        &self,
        kind: ReduceKind,
        x: impl Into<TensorView<'a>>,
        over: impl Into<Over>,
    ) -> Result<Tensor> {
        let (x, over) = (x.into(), over.into());
        let asked = Asked::new(kind, &x, &over)?;
        let mut out = self.allocate(&asked.shape, asked.dtype)?;
        self.execute(&asked.request(&x, out.view_mut()?)?)?;
        Ok(out)
    }

    /// Any reduction by its kind, written into `out`.
    pub fn reduce_into<'a>(
        &self,
        kind: ReduceKind,
        x: impl Into<TensorView<'a>>,
        over: impl Into<Over>,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (x, out) = (x.into(), out.into_view_mut()?);
        let asked = Asked::new(kind, &x, &over.into())?;
        self.execute(&asked.request(&x, out)?)
    }

    /// A result for each place along an axis, from the elements up to it.
    ///
    /// ```
    /// use shapewise::ops::reduce::{Scan, ScanKind};
    /// use shapewise::{Runtime, Tensor};
    /// let rt = Runtime::builder().without_calibration().build()?;
    /// let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3])?;
    /// assert_eq!(rt.cumsum(&x, 0)?.to_vec::<f32>()?, [1.0, 3.0, 6.0]);
    /// let before = rt.scan(Scan::new(ScanKind::Sum).exclusive(), &x, 0)?;
    /// assert_eq!(before.to_vec::<f32>()?, [0.0, 1.0, 3.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn scan<'a>(&self, scan: Scan, x: impl Into<TensorView<'a>>, axis: isize) -> Result<Tensor> {
        let x = x.into();
        resolve(axis, x.rank())?;
        let mut out = self.allocate(&x.layout().shape, scanned_type(scan, x.dtype())?)?;
        self.scan_into(scan, x, axis, &mut out)?;
        Ok(out)
    }

    /// As [`scan`](Runtime::scan), written into `out`.
    pub fn scan_into<'a>(
        &self,
        scan: Scan,
        x: impl Into<TensorView<'a>>,
        axis: isize,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (x, out) = (x.into(), out.into_view_mut()?);
        let axis = resolve(axis, x.rank())?;
        let kind = ReduceKind::Cumulative(scan);
        expect(kind.name(), &out, &x.layout().shape, scanned_type(scan, x.dtype())?)?;
        // The scanned axis goes last.
        let mut order: Axes<usize> = Axes::new(&[])?;
        (0..x.rank()).filter(|&a| a != axis).chain([axis]).for_each(|a| order.append(a));
        let (from, to) = (x.layout().permute(&order)?, out.layout().permute(&order)?);
        let attributes = ReduceAttributes { kind, axes: 1 };
        let mut request = Request::new(Operation::Reduce(attributes));
        request.input(&x.with_layout(from)?);
        request.output(out.with_layout(to)?);
        self.execute(&request)
    }
}

fn scanned_type(scan: Scan, input: DType) -> Result<DType> {
    let kind = ReduceKind::Cumulative(scan);
    kind.output(input).ok_or_else(|| unordered(kind, input))
}

fn unordered(kind: ReduceKind, dtype: DType) -> Error {
    let hint = "complex numbers have no order; take the norm or the parts".into();
    Error::UnsupportedDType { operation: kind.name(), dtype, hint }
}

/// Named methods for each scan, with and without a given output.
macro_rules! scans {
    ($($(#[$doc:meta])* $name:ident, $into:ident => $kind:ident;)*) => {
        impl Runtime {$(
            $(#[$doc])*
            pub fn $name<'a>(&self, x: impl Into<TensorView<'a>>, axis: isize) -> Result<Tensor> {
                self.scan(Scan::new(ScanKind::$kind), x, axis)
            }

            #[doc = concat!("As [`", stringify!($name), "`](Runtime::", stringify!($name), "), written into `out`.")]
            pub fn $into<'a>(
                &self,
                x: impl Into<TensorView<'a>>,
                axis: isize,
                out: impl Output<'a>,
            ) -> Result<()> {
                self.scan_into(Scan::new(ScanKind::$kind), x, axis, out)
            }
        )*}
    };
}
scans! {
    /// The sums of the first, the first two, the first three … elements along an axis; types as for the sum.
    cumsum, cumsum_into => Sum;
    /// The products of the first, the first two, the first three … elements along an axis; types as for the product.
    cumprod, cumprod_into => Prod;
    /// The largest of the elements so far along an axis; NaN from the first one on.
    cummax, cummax_into => Max;
    /// The smallest of the elements so far along an axis; NaN from the first one on.
    cummin, cummin_into => Min;
}

/// Checks a given output.
pub(crate) fn expect(
    operation: &'static str,
    out: &TensorViewMut<'_>,
    shape: &Shape,
    dtype: DType,
) -> Result<()> {
    if out.dtype() != dtype {
        return Err(Error::DTypeMismatch { operation, left: dtype, right: out.dtype() });
    }
    if *out.shape() != **shape {
        let found = Shape::new(out.shape())?;
        return Err(Error::ShapeMismatch {
            operation,
            reason: format!("the result is {shape}, the output {found}"),
        });
    }
    Ok(())
}

/// A checked reduction.
struct Asked {
    kind: ReduceKind,
    mask: [bool; MAX_RANK],
    keepdims: bool,
    shape: Shape,
    dtype: DType,
}

impl Asked {
    fn new(kind: ReduceKind, x: &TensorView<'_>, over: &Over) -> Result<Self> {
        let operation = kind.name();
        if matches!(kind, ReduceKind::Cumulative(_)) {
            let reason = "a scan has a result for every element; call `scan`".into();
            return Err(Error::InvalidArgument { operation, reason });
        }
        let dtype = kind.output(x.dtype()).ok_or_else(|| unordered(kind, x.dtype()))?;
        let mask = over.mask(operation, x.rank())?;
        let mut shape = Shape::filled(0, 0);
        let mut depth = 1usize;
        for (i, &size) in x.shape().iter().enumerate() {
            match (mask[i], over.keepdims) {
                (false, _) => shape.append(size),
                (true, true) => shape.append(1),
                (true, false) => {}
            }
            if mask[i] {
                depth = depth.saturating_mul(size);
            }
        }
        if depth == 0 && !kind.accepts_empty() && !shape.contains(&0) {
            return Err(Error::InvalidArgument {
                operation,
                reason: format!(
                    "no elements along the reduced axes of shape {:?}, so there is no result",
                    x.shape()
                ),
            });
        }
        Ok(Self { kind, mask, keepdims: over.keepdims, shape, dtype })
    }

    /// The canonical workload: kept axes first, all sorted and merged, so that equal work has an equal key.
    fn request<'a>(&self, x: &TensorView<'a>, out: TensorViewMut<'a>) -> Result<Request<'a>> {
        expect(self.kind.name(), &out, &self.shape, self.dtype)?;
        let (mut kept, mut reduced) = (AxisList::new(), AxisList::new());
        let mut at = 0;
        for (i, (&size, &input)) in x.shape().iter().zip(x.strides()).enumerate() {
            if self.mask[i] {
                reduced.push(Axis { size, input, output: 0 });
            } else {
                kept.push(Axis { size, input, output: out.strides()[at] });
            }
            at += usize::from(!self.mask[i] || self.keepdims);
        }
        let plan = Plan::new(&kept, &reduced, self.kind.is_ordered());
        let attributes = ReduceAttributes { kind: self.kind, axes: plan.reduced.len() as u8 };
        let mut request = Request::new(Operation::Reduce(attributes));
        request.input(&x.with_layout(plan.input_layout(x.layout().offset))?);
        let to = plan.output_layout(out.layout().offset);
        request.output(out.with_layout(to)?);
        Ok(request)
    }
}
