//! The calls: `rt.max_pool(&x, &PoolOptions::new(&[3, 3]).stride(&[2, 2]))` …

use arrayvec::ArrayVec;

use super::{PoolAttributes, PoolKind, Window};
use crate::error::{Error, Result};
use crate::ops::reduce::{Over, ReduceKind, expect};
use crate::ops::walk::layout;
use crate::ops::{Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Tensor, TensorView, TensorViewMut};

/// Axes that a window moves over, at most.
const MOST: usize = 3;

/// Window, stride, padding and layout of a pooling; each has a number for every axis the window moves over.
///
/// ```
/// use shapewise::ops::pool::PoolOptions;
/// use shapewise::{Runtime, Tensor};
/// let rt = Runtime::builder().without_calibration().build()?;
/// let x = Tensor::from_vec((0..16).map(|i| i as f32).collect(), &[1, 1, 4, 4])?;
/// let y = rt.max_pool(&x, &PoolOptions::new(&[2, 2]))?;
/// assert_eq!(y.to_vec::<f32>()?, [5.0, 7.0, 13.0, 15.0]);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PoolOptions {
    window: Vec<usize>,
    stride: Option<Vec<usize>>,
    padding: Option<Vec<usize>>,
    dilation: Option<Vec<usize>>,
    ceil: bool,
    count_padding: bool,
    channels_last: bool,
}

impl PoolOptions {
    /// A window that moves by its own size, without padding; channels come before the axes it moves over.
    pub fn new(window: &[usize]) -> Self {
        Self {
            window: window.to_vec(),
            stride: None,
            padding: None,
            dilation: None,
            ceil: false,
            count_padding: true,
            channels_last: false,
        }
    }

    /// How far the window moves at each step.
    #[must_use]
    pub fn stride(mut self, stride: &[usize]) -> Self {
        self.stride = Some(stride.to_vec());
        self
    }

    /// Elements added before the first and after the last; at most half of the window.
    #[must_use]
    pub fn padding(mut self, padding: &[usize]) -> Self {
        self.padding = Some(padding.to_vec());
        self
    }

    /// Distance of the window's elements; for the maximum only.
    #[must_use]
    pub fn dilation(mut self, dilation: &[usize]) -> Self {
        self.dilation = Some(dilation.to_vec());
        self
    }

    /// Also windows that reach beyond the padded input, if they begin inside.
    #[must_use]
    pub fn ceil(mut self) -> Self {
        self.ceil = true;
        self
    }

    /// Whether the mean counts padding as zeros, as it does by default.
    #[must_use]
    pub fn count_include_pad(mut self, count: bool) -> Self {
        self.count_padding = count;
        self
    }

    /// Channels are the last axis.
    #[must_use]
    pub fn channels_last(mut self) -> Self {
        self.channels_last = true;
        self
    }

    fn windows(&self, kind: PoolKind) -> Result<ArrayVec<Window, MOST>> {
        let n = self.window.len();
        if n == 0 || n > MOST {
            return Err(wrong(kind, format!("a window over {n} axes; give 1 to {MOST} sizes")));
        }
        let (ones, zeros) = ([1; MOST], [0; MOST]);
        let stride = self.stride.as_deref().unwrap_or(&self.window);
        let dilation = self.dilation.as_deref().unwrap_or(&ones[..n]);
        let padding = self.padding.as_deref().unwrap_or(&zeros[..n]);
        for (what, given) in [("stride", stride), ("padding", padding), ("dilation", dilation)] {
            if given.len() != n {
                return Err(wrong(kind, format!("{what} {given:?} for a window over {n} axes")));
            }
        }
        let mut windows = ArrayVec::new();
        for i in 0..n {
            let all = [self.window[i], stride[i], padding[i], dilation[i]];
            if all[0] == 0 || all[1] == 0 || all[3] == 0 {
                let reason = format!(
                    "window {:?}, stride {stride:?} and dilation {dilation:?} must not be zero",
                    self.window
                );
                return Err(wrong(kind, reason));
            }
            // So that no sum of them overflows.
            if all.iter().any(|&x| x > 1 << 15) {
                return Err(wrong(kind, "window, stride, padding and dilation are at most 32768".into()));
            }
            let [size, stride, padding, dilation] = all.map(|x| x as u32);
            let window = Window { size, stride, padding, dilation };
            if 2 * all[2] > window.reach() {
                let reason =
                    format!("padding {padding} is more than half of the window's {}", window.reach());
                return Err(wrong(kind, reason));
            }
            if dilation != 1 && kind != PoolKind::Max {
                return Err(wrong(kind, "dilation is for the maximum only".into()));
            }
            windows.push(window);
        }
        Ok(windows)
    }
}

impl Runtime {
    /// The largest element of each window.
    pub fn max_pool<'a>(&self, x: impl Into<TensorView<'a>>, options: &PoolOptions) -> Result<Tensor> {
        let (x, asked) = (x.into(), PoolKind::Max);
        let plan = Plan::new(&x, asked, options)?;
        let mut out = self.allocate(&plan.shape, x.dtype())?;
        self.pool(&x, &plan, out.view_mut()?, None)?;
        Ok(out)
    }

    /// As [`max_pool`](Runtime::max_pool), written into `out`.
    pub fn max_pool_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        options: &PoolOptions,
        out: impl Output<'a>,
    ) -> Result<()> {
        let x = x.into();
        let plan = Plan::new(&x, PoolKind::Max, options)?;
        self.pool(&x, &plan, out.into_view_mut()?, None)
    }

    /// The largest element of each window and where it lies: its place (i64) in the plane of its channel, row-major,
    /// the first of equal ones.
    pub fn max_pool_with_indices<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        options: &PoolOptions,
    ) -> Result<(Tensor, Tensor)> {
        let x = x.into();
        let plan = Plan::new(&x, PoolKind::Max, options)?;
        let mut out = self.allocate(&plan.shape, x.dtype())?;
        let mut indices = self.allocate(&plan.shape, DType::I64)?;
        self.pool(&x, &plan, out.view_mut()?, Some(indices.view_mut()?))?;
        Ok((out, indices))
    }

    /// The mean of each window.
    pub fn avg_pool<'a>(&self, x: impl Into<TensorView<'a>>, options: &PoolOptions) -> Result<Tensor> {
        let x = x.into();
        let plan = Plan::new(&x, PoolKind::Average { padding: options.count_padding }, options)?;
        let mut out = self.allocate(&plan.shape, x.dtype())?;
        self.pool(&x, &plan, out.view_mut()?, None)?;
        Ok(out)
    }

    /// As [`avg_pool`](Runtime::avg_pool), written into `out`.
    pub fn avg_pool_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        options: &PoolOptions,
        out: impl Output<'a>,
    ) -> Result<()> {
        let x = x.into();
        let plan = Plan::new(&x, PoolKind::Average { padding: options.count_padding }, options)?;
        self.pool(&x, &plan, out.into_view_mut()?, None)
    }

    /// The mean of windows that cover the input evenly and give `sizes` results along the last axes.
    pub fn adaptive_avg_pool<'a>(&self, x: impl Into<TensorView<'a>>, sizes: &[usize]) -> Result<Tensor> {
        let x = x.into();
        let plan = Plan::adaptive(&x, sizes)?;
        let mut out = self.allocate(&plan.shape, x.dtype())?;
        self.pool(&x, &plan, out.view_mut()?, None)?;
        Ok(out)
    }

    /// The mean over the last `axes` axes, which stay with size one.
    pub fn global_avg_pool<'a>(&self, x: impl Into<TensorView<'a>>, axes: usize) -> Result<Tensor> {
        self.global_pool(PoolKind::Average { padding: false }, ReduceKind::Mean, &x.into(), axes)
    }

    /// The maximum over the last `axes` axes, which stay with size one.
    pub fn global_max_pool<'a>(&self, x: impl Into<TensorView<'a>>, axes: usize) -> Result<Tensor> {
        self.global_pool(PoolKind::Max, ReduceKind::Max, &x.into(), axes)
    }

    /// A window as large as the image is a reduction, which has kernels of its own.
    fn global_pool(
        &self,
        kind: PoolKind,
        reduce: ReduceKind,
        x: &TensorView<'_>,
        axes: usize,
    ) -> Result<Tensor> {
        check_type(kind, x.dtype())?;
        if axes == 0 || axes > MOST || axes >= x.rank() {
            return Err(wrong(kind, format!("cannot pool the last {axes} of {} axes", x.rank())));
        }
        let over: ArrayVec<isize, MOST> = (1..=axes as isize).map(|i| -i).collect();
        self.reduce(reduce, *x, Over::from(&over[..]).keepdims())
    }

    fn pool<'a>(
        &self,
        x: &TensorView<'a>,
        plan: &Plan,
        out: TensorViewMut<'a>,
        indices: Option<TensorViewMut<'a>>,
    ) -> Result<()> {
        let name = plan.attributes.kind.name();
        expect(name, &out, &plan.shape, x.dtype())?;
        let attributes = PoolAttributes { indices: indices.is_some(), ..plan.attributes };
        let mut request = Request::new(Operation::Pool(attributes));
        request.input(&x.with_layout(plan.five(x.layout()))?);
        let to = plan.five(out.layout());
        request.output(out.with_layout(to)?);
        if let Some(indices) = indices {
            let to = plan.five(indices.layout());
            request.output(indices.with_layout(to)?);
        }
        self.execute(&request)
    }
}

/// A checked pooling.
struct Plan {
    attributes: PoolAttributes,
    /// Of the result.
    shape: Shape,
    /// Where the channels and the first pooled axis are; the batch is before both, if there is one.
    channels: usize,
    first: usize,
    axes: usize,
}

impl Plan {
    fn new(x: &TensorView<'_>, kind: PoolKind, options: &PoolOptions) -> Result<Self> {
        let windows = options.windows(kind)?;
        let mut plan = Self::places(x, kind, windows.len(), options.channels_last)?;
        for (i, w) in windows.iter().enumerate() {
            let n = x.shape()[plan.first + i];
            plan.attributes.window[MOST - windows.len() + i] = *w;
            plan.shape[plan.first + i] = outputs(n, w, options.ceil).ok_or_else(|| {
                let padded = n.saturating_add(2 * w.padding as usize);
                wrong(
                    kind,
                    format!("a window that spans {} does not fit {padded} padded elements", w.reach()),
                )
            })?;
        }
        plan.shape.elements()?;
        for (i, w) in windows.iter().enumerate().filter(|(_, w)| w.dilation > 1) {
            let (n, outputs) = (x.shape()[plan.first + i], plan.shape[plan.first + i]);
            if (0..outputs).any(|o| is_padding(n, w, o)) {
                return Err(wrong(
                    kind,
                    format!(
                        "a window over {n} elements with dilation {} holds nothing but padding",
                        w.dilation
                    ),
                ));
            }
        }
        Ok(plan)
    }

    fn adaptive(x: &TensorView<'_>, sizes: &[usize]) -> Result<Self> {
        let kind = PoolKind::AdaptiveAverage;
        let mut plan = Self::places(x, kind, sizes.len(), false)?;
        for (i, &size) in sizes.iter().enumerate() {
            if x.shape()[plan.first + i] == 0 || size > 1 << 24 {
                let n = x.shape()[plan.first + i];
                return Err(wrong(kind, format!("{n} elements cannot give {size} means")));
            }
            plan.shape[plan.first + i] = size;
        }
        plan.shape.elements()?;
        Ok(plan)
    }

    fn places(x: &TensorView<'_>, kind: PoolKind, axes: usize, channels_last: bool) -> Result<Self> {
        check_type(kind, x.dtype())?;
        let rank = x.rank();
        if axes == 0 || axes > MOST || !(rank == axes + 1 || rank == axes + 2) {
            let reason = format!(
                "{:?} is neither [batch, channels, …] nor [channels, …] with {axes} pooled axes",
                x.shape()
            );
            return Err(Error::ShapeMismatch { operation: kind.name(), reason });
        }
        let batch = rank - axes - 1;
        let (channels, first) = if channels_last { (rank - 1, batch) } else { (batch, batch + 1) };
        let attributes = PoolAttributes { kind, window: [Window::ONE; 3], indices: false };
        Ok(Self { attributes, shape: x.layout().shape, channels, first, axes })
    }

    /// The layout with all five axes: batch, channels, depth, height, width.
    fn five(&self, of: &Layout) -> Layout {
        let axis = |i: usize| (of.shape[i], of.strides[i]);
        let batch = if of.shape.len() == self.axes + 2 { axis(0) } else { (1, 0) };
        let missing = std::iter::repeat_n((1, 0), MOST - self.axes);
        let pooled = (self.first..self.first + self.axes).map(axis);
        layout([batch, axis(self.channels)].into_iter().chain(missing).chain(pooled), of.offset)
    }
}

/// How many windows fit, as torch counts them; none where not a single one does.
fn outputs(n: usize, w: &Window, ceil: bool) -> Option<usize> {
    let (stride, padding) = (w.stride as usize, w.padding as usize);
    let left = n.checked_add(2 * padding)?.checked_sub(w.reach())?;
    let mut count = if ceil { left.div_ceil(stride) } else { left / stride } + 1;
    // A window must begin in the input or the padding before it.
    if ceil && (count - 1) * stride >= n + padding {
        count -= 1;
    }
    (n > 0 && count > 0).then_some(count)
}

/// Whether all elements of window `o` are padding: only possible where they are far apart.
fn is_padding(n: usize, w: &Window, o: usize) -> bool {
    let (start, padding) = (o * w.stride as usize, w.padding as usize);
    (0..w.size as usize).map(|i| start + i * w.dilation as usize).all(|at| at < padding || at >= padding + n)
}

fn check_type(kind: PoolKind, dtype: DType) -> Result<()> {
    if dtype.is_float() || (kind == PoolKind::Max && dtype.is_integer()) {
        return Ok(());
    }
    let hint = "cast to a float type first".into();
    Err(Error::UnsupportedDType { operation: kind.name(), dtype, hint })
}

fn wrong(kind: PoolKind, reason: String) -> Error {
    Error::InvalidArgument { operation: kind.name(), reason }
}
