//! The calls: names, defaults and lengths as in `numpy.fft`.

use arrayvec::ArrayVec;

use super::{FftAttributes, FftKind, FftNorm, Rigor};
use crate::error::{Error, Result};
use crate::ops::elementwise::{Function, Program};
use crate::ops::reduce::{expect, resolve};
use crate::ops::walk::{Axis, AxisList, layout, tidy};
use crate::ops::{Operation, Request};
use crate::tensor::{Axes, DType, MAX_RANK, Output, Shape, Tensor, TensorView, TensorViewMut};
use crate::{Prepared, Runtime};

/// Along which axes, how long and how scaled a transform is; everything has numpy's default.
///
/// ```
/// # use shapewise::{Runtime, Tensor, ops::fft::{FftNorm, FftOptions}};
/// # let rt = Runtime::builder().without_calibration().build()?;
/// let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
/// // Columns instead of rows, with a zero behind each.
/// let y = rt.rfft(&x, &FftOptions::new().axis(0).len(4).norm(FftNorm::Ortho))?;
/// assert_eq!(y.shape(), [3, 2]);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct FftOptions {
    axes: Option<Axes<isize>>,
    lengths: Option<Shape>,
    /// The number of axes or lengths, if a tensor cannot have so many.
    too_many: Option<usize>,
    norm: FftNorm,
    rigor: Rigor,
}

impl FftOptions {
    /// The last axis (two, all for `fft2` and `fftn`) at its own length; the inverse is divided.
    pub fn new() -> Self {
        Self::default()
    }

    /// The axis to transform, negative from the last.
    #[must_use]
    pub fn axis(self, axis: isize) -> Self {
        self.axes(&[axis])
    }

    /// The axes to transform; a real transform halves the last one named.
    #[must_use]
    pub fn axes(mut self, axes: &[isize]) -> Self {
        match Axes::new(axes) {
            Ok(axes) => self.axes = Some(axes),
            Err(_) => self.too_many = Some(axes.len()),
        }
        self
    }

    /// The number of points along the axis: longer input is cut, shorter input is filled up with zeros.
    #[must_use]
    pub fn len(self, points: usize) -> Self {
        self.lens(&[points])
    }

    /// The number of points along each axis.
    #[must_use]
    pub fn lens(mut self, points: &[usize]) -> Self {
        match Shape::new(points) {
            Ok(points) => self.lengths = Some(points),
            Err(_) => self.too_many = Some(points.len()),
        }
        self
    }

    /// Which direction is divided by the number of points.
    #[must_use]
    pub fn norm(mut self, norm: FftNorm) -> Self {
        self.norm = norm;
        self
    }

    /// How many plans are tried.
    #[must_use]
    pub fn rigor(mut self, rigor: Rigor) -> Self {
        self.rigor = rigor;
        self
    }
}

/// How many axes a call transforms when none are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Last(usize),
    All,
}

/// One of the named calls.
#[derive(Clone, Copy)]
struct Named {
    name: &'static str,
    kind: FftKind,
    default: Wanted,
}

impl Named {
    /// Whether a call is about one line of complex numbers, all of it and nothing more, so that there is nothing to work out.
    fn takes_as_it_is(&self, x: &TensorView<'_>, options: &FftOptions) -> bool {
        let complex = matches!(self.kind, FftKind::Forward | FftKind::Inverse) && x.dtype().is_complex();
        let plain = options.axes.is_none() && options.lengths.is_none() && options.too_many.is_none();
        complex && plain && self.default != Wanted::Last(2) && x.rank() == 1 && x.shape()[0] > 0
    }

    /// The attributes of such a call.
    fn as_it_is(&self, options: &FftOptions) -> FftAttributes {
        FftAttributes { kind: self.kind, axes: 1, norm: options.norm, rigor: options.rigor }
    }
}

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident $into:ident $kind:ident $default:expr;)*) => {
        impl Runtime {$(
            $(#[$doc])*
            pub fn $name<'a>(&self, x: impl Into<TensorView<'a>>, options: &FftOptions) -> Result<Tensor> {
                let named = Named { name: stringify!($name), kind: FftKind::$kind, default: $default };
                self.any_fft(named, &x.into(), options)
            }

            #[doc = concat!("As [`", stringify!($name), "`](Runtime::", stringify!($name), "), written into `out`.")]
            pub fn $into<'a>(
                &self,
                x: impl Into<TensorView<'a>>,
                options: &FftOptions,
                out: impl Output<'a>,
            ) -> Result<()> {
                let named = Named { name: stringify!($name), kind: FftKind::$kind, default: $default };
                self.any_fft_into(named, &x.into(), options, out.into_view_mut()?)
            }
        )*}
    };
}

methods! {
    /// The Fourier transform along one axis. Real input is taken as complex.
    ///
    /// ```
    /// # use shapewise::{Runtime, Tensor, ops::fft::FftOptions};
    /// # let rt = Runtime::builder().without_calibration().build()?;
    /// let x = Tensor::from_vec(vec![1.0f32, 0.0, 0.0, 0.0], &[4])?;
    /// let y = rt.fft(&x, &FftOptions::new())?;
    /// assert_eq!(y.to_vec::<num_complex::Complex<f32>>()?, [num_complex::Complex::ONE; 4]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    fft fft_into Forward Wanted::Last(1);
    /// The inverse of [`fft`](Runtime::fft).
    ifft ifft_into Inverse Wanted::Last(1);
    /// The transform of real numbers along one axis: the n/2 + 1 frequencies that are not redundant.
    rfft rfft_into RealForward Wanted::Last(1);
    /// The inverse of [`rfft`](Runtime::rfft): real numbers, 2(m − 1) of them unless the length is given.
    irfft irfft_into RealInverse Wanted::Last(1);
    /// The Fourier transform along two axes.
    fft2 fft2_into Forward Wanted::Last(2);
    /// The inverse of [`fft2`](Runtime::fft2).
    ifft2 ifft2_into Inverse Wanted::Last(2);
    /// The transform of real numbers along two axes; the second one named is halved.
    rfft2 rfft2_into RealForward Wanted::Last(2);
    /// The inverse of [`rfft2`](Runtime::rfft2).
    irfft2 irfft2_into RealInverse Wanted::Last(2);
    /// The Fourier transform along some or all axes.
    fftn fftn_into Forward Wanted::All;
    /// The inverse of [`fftn`](Runtime::fftn).
    ifftn ifftn_into Inverse Wanted::All;
    /// The transform of real numbers along some or all axes; the last one named is halved.
    rfftn rfftn_into RealForward Wanted::All;
    /// The inverse of [`rfftn`](Runtime::rfftn).
    irfftn irfftn_into RealInverse Wanted::All;
}

impl Runtime {
    /// As [`fftn`](Runtime::fftn), in the place of its input.
    pub fn fftn_in_place<'a>(&self, x: impl Output<'a>, options: &FftOptions) -> Result<()> {
        let named = Named { name: "fftn_in_place", kind: FftKind::Forward, default: Wanted::All };
        self.any_fft_in_place(named, x.into_view_mut()?, options)
    }

    /// As [`ifftn`](Runtime::ifftn), in the place of its input.
    pub fn ifftn_in_place<'a>(&self, x: impl Output<'a>, options: &FftOptions) -> Result<()> {
        let named = Named { name: "ifftn_in_place", kind: FftKind::Inverse, default: Wanted::All };
        self.any_fft_in_place(named, x.into_view_mut()?, options)
    }

    /// As [`fft`](Runtime::fft), in the place of its input.
    pub fn fft_in_place<'a>(&self, x: impl Output<'a>, options: &FftOptions) -> Result<()> {
        let named = Named { name: "fft_in_place", kind: FftKind::Forward, default: Wanted::Last(1) };
        self.any_fft_in_place(named, x.into_view_mut()?, options)
    }

    /// As [`ifft`](Runtime::ifft), in the place of its input.
    pub fn ifft_in_place<'a>(&self, x: impl Output<'a>, options: &FftOptions) -> Result<()> {
        let named = Named { name: "ifft_in_place", kind: FftKind::Inverse, default: Wanted::Last(1) };
        self.any_fft_in_place(named, x.into_view_mut()?, options)
    }

    fn any_fft(&self, named: Named, x: &TensorView<'_>, options: &FftOptions) -> Result<Tensor> {
        if named.takes_as_it_is(x, options) {
            let mut out = self.allocate(&x.layout().shape, x.dtype())?;
            self.line_fft(named.as_it_is(options), x, out.view_mut()?)?;
            return Ok(out);
        }
        let asked = Asked::new(named, x, options)?;
        let mut out = self.allocate(&asked.output, asked.output_type())?;
        self.fft_asked(&asked, x, out.view_mut()?)?;
        Ok(out)
    }

    fn any_fft_into(
        &self,
        named: Named,
        x: &TensorView<'_>,
        options: &FftOptions,
        out: TensorViewMut<'_>,
    ) -> Result<()> {
        if named.takes_as_it_is(x, options) {
            expect(named.name, &out, &x.layout().shape, x.dtype())?;
            return self.line_fft(named.as_it_is(options), x, out);
        }
        let asked = Asked::new(named, x, options)?;
        expect(named.name, &out, &asked.output, asked.output_type())?;
        self.fft_asked(&asked, x, out)
    }

    /// A single axis is canonical as it is, and short lines feel every step of a call.
    fn line_fft<'a>(
        &self,
        attributes: FftAttributes,
        x: &TensorView<'a>,
        mut out: TensorViewMut<'a>,
    ) -> Result<()> {
        self.ask(Operation::Fft(attributes), |request: &mut Request<'_>| {
            request.input(x);
            request.output_at(&mut out);
            Ok(())
        })
    }

    fn any_fft_in_place(&self, named: Named, x: TensorViewMut<'_>, options: &FftOptions) -> Result<()> {
        let asked = Asked::new(named, &x.as_view(), options)?;
        expect(named.name, &x, &asked.output, asked.output_type())?;
        let axes = asked.canonical(x.layout().strides, x.layout().strides);
        let mut view = x;
        let offset = view.layout().offset;
        let place = layout(axes.iter().map(|a| (a.from, a.input)), offset);
        view = view.with_layout(place)?;
        self.ask(Operation::Fft(asked.attributes(&axes)), |request| {
            request.input_in_place(&mut view);
            request.output_at(&mut view);
            Ok(())
        })
    }

    /// Brings the input to the type and lengths that were asked for, then transforms it.
    fn fft_asked(&self, asked: &Asked, x: &TensorView<'_>, out: TensorViewMut<'_>) -> Result<()> {
        let mut held = None;
        if x.dtype() != asked.input_type() {
            held = Some(self.cast(x, asked.input_type())?);
        }
        let mut view = held.as_ref().map_or(*x, Tensor::view);
        for (axis, &size) in asked.input.iter().enumerate() {
            if view.shape()[axis] > size {
                view = view.slice(axis, 0, size, 1)?;
            }
        }
        if *view.shape() == *asked.input {
            return self.fft_request(asked, &view, out);
        }
        let mut longer = self.allocate(&asked.input, view.dtype())?;
        longer.bytes_mut()?.fill(0);
        let mut part = *longer.layout();
        part.shape = view.layout().shape;
        let copy = Program::single(Function::Cast(view.dtype()), &[]);
        self.elementwise_into(&copy, &[view], longer.view_mut()?.with_layout(part)?)?;
        self.fft_request(asked, &longer.view(), out)
    }

    /// Decides a transform of tensors of these layouts once; see [`Prepared`]. Without axes in the options it is along the last.
    ///
    /// Tensors have the type and the lengths of the transform: a plain call would convert, cut or fill up.
    ///
    /// ```
    /// # use shapewise::{DType, Runtime, Tensor, ops::fft::{FftKind, FftOptions}};
    /// # use num_complex::Complex;
    /// # let rt = Runtime::builder().without_calibration().build()?;
    /// let x = Tensor::from_vec(vec![1.0f32, 0.0, 0.0, 0.0], &[4])?;
    /// let mut y = Tensor::zeros(&[3], DType::C32)?;
    /// let spectrum = rt.prepare_fft(FftKind::RealForward, &x, &FftOptions::new(), &mut y)?;
    /// spectrum.run(&[&x], &mut y)?;
    /// assert_eq!(y.to_vec::<Complex<f32>>()?, [Complex::ONE; 3]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn prepare_fft(
        &self,
        kind: FftKind,
        x: &Tensor,
        options: &FftOptions,
        out: &mut Tensor,
    ) -> Result<Prepared> {
        let default = if options.axes.is_some() { Wanted::All } else { Wanted::Last(1) };
        let named = Named { name: "prepare_fft", kind, default };
        let (view, start) = (x.view(), out.as_mut_ptr()?.cast_const());
        let asked = Asked::new(named, &view, options)?;
        if x.dtype() != asked.input_type() || *x.shape() != *asked.input {
            let reason = format!(
                "the input is {} {}, the transform takes {} {}; convert, cut or pad it first",
                x.dtype(),
                x.layout().shape,
                asked.input_type(),
                asked.input
            );
            return Err(Error::InvalidArgument { operation: named.name, reason });
        }
        let operands = [(x.dtype(), *x.layout(), view.first()), (out.dtype(), *out.layout(), start)];
        let mut target = out.view_mut()?;
        expect(named.name, &target, &asked.output, asked.output_type())?;
        let axes = asked.canonical(x.layout().strides, target.layout().strides);
        let from = layout(axes.iter().map(|a| (a.from, a.input)), x.layout().offset);
        let to = layout(axes.iter().map(|a| (a.to, a.output)), target.layout().offset);
        target = target.with_layout(to)?;
        let mut request = Request::new(Operation::Fft(asked.attributes(&axes)));
        request.input(&view.with_layout(from)?);
        request.output_at(&mut target);
        Prepared::new(self, &request, &operands)
    }

    fn fft_request<'a>(&self, asked: &Asked, x: &TensorView<'a>, out: TensorViewMut<'a>) -> Result<()> {
        if asked.input.len() == 1 && asked.axes.len() == 1 {
            let Asked { kind, norm, rigor, .. } = *asked;
            return self.line_fft(FftAttributes { kind, axes: 1, norm, rigor }, x, out);
        }
        let axes = asked.canonical(x.layout().strides, out.layout().strides);
        let from = layout(axes.iter().map(|a| (a.from, a.input)), x.layout().offset);
        let to = layout(axes.iter().map(|a| (a.to, a.output)), out.layout().offset);
        let (x, mut out) = (x.with_layout(from)?, out.with_layout(to)?);
        self.ask(Operation::Fft(asked.attributes(&axes)), |request: &mut Request<'_>| {
            request.input(&x);
            request.output_at(&mut out);
            Ok(())
        })
    }
}

/// A checked call.
struct Asked {
    kind: FftKind,
    norm: FftNorm,
    rigor: Rigor,
    double: bool,
    /// The axes that are transformed, in the order named.
    axes: ArrayVec<usize, MAX_RANK>,
    /// Shapes of what is really read and written.
    input: Shape,
    output: Shape,
}

/// An axis of the workload.
struct Canonical {
    from: usize,
    to: usize,
    input: isize,
    output: isize,
    transformed: bool,
}

type CanonicalAxes = ArrayVec<Canonical, MAX_RANK>;

impl Asked {
    fn new(named: Named, x: &TensorView<'_>, options: &FftOptions) -> Result<Self> {
        let Named { name, kind, .. } = named;
        check_type(name, kind, x.dtype())?;
        if let Some(rank) = options.too_many {
            return Err(Error::RankTooLarge { rank });
        }
        let axes = chosen(named, x.rank(), options)?;
        let lengths = options.lengths.as_deref();
        if let Some(lengths) = lengths
            && lengths.len() != axes.len()
        {
            let reason = format!("{} lengths for {} axes; give one for each", lengths.len(), axes.len());
            return Err(Error::InvalidArgument { operation: name, reason });
        }
        let (mut input, mut output) = (x.layout().shape, x.layout().shape);
        for (i, &axis) in axes.iter().enumerate() {
            let halved = i + 1 == axes.len();
            let natural = match kind {
                FftKind::RealInverse if halved => x.shape()[axis].saturating_sub(1).saturating_mul(2),
                _ => x.shape()[axis],
            };
            let points = lengths.map_or(natural, |lengths| lengths[i]);
            if points == 0 || (lengths.is_none() && x.shape()[axis] == 0) {
                let reason = format!(
                    "a transform of 0 points along axis {axis} of {}; give a length",
                    x.layout().shape
                );
                return Err(Error::InvalidArgument { operation: name, reason });
            }
            let half = points / 2 + 1;
            input[axis] = if halved && kind == FftKind::RealInverse { half } else { points };
            output[axis] = if halved && kind == FftKind::RealForward { half } else { points };
        }
        input.elements()?;
        let double = matches!(x.dtype(), DType::F64 | DType::C64);
        Ok(Self { kind, norm: options.norm, rigor: options.rigor, double, axes, input, output })
    }

    fn number_type(&self, real: bool) -> DType {
        match (real, self.double) {
            (true, false) => DType::F32,
            (true, true) => DType::F64,
            (false, false) => DType::C32,
            (false, true) => DType::C64,
        }
    }

    fn input_type(&self) -> DType {
        self.number_type(self.kind == FftKind::RealForward)
    }

    fn output_type(&self) -> DType {
        self.number_type(self.kind == FftKind::RealInverse)
    }

    /// The batch sorted and merged, then the transformed axes, so that equal work has an equal key.
    fn canonical(&self, input: Axes<isize>, output: Axes<isize>) -> CanonicalAxes {
        let kept: AxisList = (0..self.input.len())
            .filter(|axis| !self.axes.contains(axis))
            .map(|i| Axis { size: self.input[i], input: input[i], output: output[i] })
            .collect();
        let batch = tidy(&kept, false).into_iter().map(|a| Canonical {
            from: a.size,
            to: a.size,
            input: a.input,
            output: a.output,
            transformed: false,
        });
        let mut along: CanonicalAxes = self
            .axes
            .iter()
            .map(|&i| Canonical {
                from: self.input[i],
                to: self.output[i],
                input: input[i],
                output: output[i],
                transformed: true,
            })
            .collect();
        // The order of complex transforms makes no difference: the one along memory goes last. One point transforms to itself.
        let free = match self.kind {
            FftKind::Forward | FftKind::Inverse => along.len(),
            FftKind::RealForward | FftKind::RealInverse => along.len() - 1,
        };
        along[..free].sort_by_key(|a| (a.from != 1, std::cmp::Reverse(a.output.unsigned_abs())));
        let last = along.pop();
        along.retain(|a| a.from != 1);
        batch.chain(along).chain(last).collect()
    }

    fn attributes(&self, axes: &CanonicalAxes) -> FftAttributes {
        let axes = axes.iter().filter(|a| a.transformed).count() as u8;
        FftAttributes { kind: self.kind, axes, norm: self.norm, rigor: self.rigor }
    }
}

/// The axes that a call transforms.
fn chosen(named: Named, rank: usize, options: &FftOptions) -> Result<ArrayVec<usize, MAX_RANK>> {
    let Named { name, default, .. } = named;
    let mut axes: ArrayVec<usize, MAX_RANK> = ArrayVec::new();
    if let Some(named) = &options.axes {
        for &axis in named.iter() {
            let at = resolve(axis, rank)?;
            if axes.contains(&at) {
                let reason = format!("axis {axis} is named twice; transform along each axis once");
                return Err(Error::InvalidArgument { operation: name, reason });
            }
            axes.push(at);
        }
    } else {
        let count = match (default, &options.lengths) {
            (Wanted::Last(count), _) => count,
            (Wanted::All, Some(lengths)) => lengths.len(),
            (Wanted::All, None) => rank,
        };
        if count > rank {
            return Err(Error::AxisOutOfRange { axis: -(count as isize), rank });
        }
        axes.extend(rank - count..rank);
    }
    let wanted = if let Wanted::Last(count) = default { count } else { axes.len().max(1) };
    if axes.len() != wanted {
        let reason = format!("{} axes were named, {wanted} needed", axes.len());
        return Err(Error::InvalidArgument { operation: name, reason });
    }
    Ok(axes)
}

fn check_type(operation: &'static str, kind: FftKind, dtype: DType) -> Result<()> {
    let real = matches!(dtype, DType::F32 | DType::F64);
    let (right, hint) = match kind {
        FftKind::RealForward => (real, "cast to f32 or f64, or call `fft` for complex numbers"),
        _ => (real || dtype.is_complex(), "cast to f32, f64, c32 or c64 first"),
    };
    if right { Ok(()) } else { Err(Error::UnsupportedDType { operation, dtype, hint: hint.into() }) }
}
