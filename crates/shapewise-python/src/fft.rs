//! Fourier transforms with the signatures of `numpy.fft`.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shapewise::ops::fft::{FftNorm, FftOptions, StftOptions};

use crate::arguments::Axis;
use crate::array::Input;
use crate::runtime::PyRuntime;

/// Fourier transforms of one runtime.
#[pyclass(module = "shapewise", frozen)]
pub struct Fft {
    pub runtime: PyRuntime,
}

fn norm(norm: Option<&str>) -> PyResult<FftNorm> {
    match norm {
        None | Some("backward") => Ok(FftNorm::Backward),
        Some("ortho") => Ok(FftNorm::Ortho),
        Some("forward") => Ok(FftNorm::Forward),
        Some(other) => {
            Err(PyValueError::new_err(format!("norm is {other:?}; use 'backward', 'ortho' or 'forward'")))
        }
    }
}

/// Integers and truth values as numpy takes them: in double precision. 16-bit floats as float32.
/// What can be transformed as it is stays where it is: nothing is given.
fn transformable<'py>(x: &Input<'py>) -> PyResult<Option<Input<'py>>> {
    use shapewise::DType::{BF16, F16};
    match x.dtype() {
        F16 | BF16 => x.cast("float32").map(Some),
        dtype if !dtype.is_float() && !dtype.is_complex() => x.cast("float64").map(Some),
        _ => Ok(None),
    }
}

macro_rules! lines {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        #[pymethods]
        impl Fft {$(
            $(#[$doc])*
            #[pyo3(signature = (a, n = None, axis = -1, norm = None))]
            fn $name<'py>(
                &self,
                py: Python<'py>,
                a: Input<'py>,
                n: Option<usize>,
                axis: isize,
                norm: Option<&str>,
            ) -> PyResult<Bound<'py, PyAny>> {
                let cast = transformable(&a)?;
                let mut options = FftOptions::new().axis(axis).norm(self::norm(norm)?);
                if let Some(n) = n {
                    options = options.len(n);
                }
                let a = cast.as_ref().unwrap_or(&a).view()?;
                self.runtime.run(py, |rt| rt.$name(a, &options))
            }
        )*}
    };
}

lines! {
    /// The transform along one axis.
    ///
    /// >>> sw.fft.fft(np.array([1, 0, 0, 0])).tolist()
    /// [(1+0j), (1+0j), (1+0j), (1+0j)]
    fft;
    /// The inverse of `fft`.
    ifft;
    /// The transform of real numbers along one axis: n/2 + 1 frequencies.
    rfft;
    /// The inverse of `rfft`.
    irfft;
}

macro_rules! planes {
    ($($(#[$doc:meta])* $name:ident $axes:expr;)*) => {
        #[pymethods]
        impl Fft {$(
            $(#[$doc])*
            #[pyo3(signature = (a, s = None, axes = $axes, norm = None))]
            fn $name<'py>(
                &self,
                py: Python<'py>,
                a: Input<'py>,
                s: Option<Vec<usize>>,
                axes: Option<Vec<isize>>,
                norm: Option<&str>,
            ) -> PyResult<Bound<'py, PyAny>> {
                let cast = transformable(&a)?;
                let mut options = FftOptions::new().norm(self::norm(norm)?);
                if let Some(s) = &s {
                    options = options.lens(s);
                }
                if let Some(axes) = &axes {
                    options = options.axes(axes);
                }
                let a = cast.as_ref().unwrap_or(&a).view()?;
                self.runtime.run(py, |rt| rt.$name(a, &options))
            }
        )*}
    };
}

planes! {
    /// The transform along two axes.
    fft2 Some(vec![-2, -1]);
    /// The inverse of `fft2`.
    ifft2 Some(vec![-2, -1]);
    /// The transform of real numbers along two axes.
    rfft2 Some(vec![-2, -1]);
    /// The inverse of `rfft2`.
    irfft2 Some(vec![-2, -1]);
    /// The transform along some or all axes.
    fftn None;
    /// The inverse of `fftn`.
    ifftn None;
    /// The transform of real numbers along some or all axes.
    rfftn None;
    /// The inverse of `rfftn`.
    irfftn None;
}

#[pymethods]
impl Fft {
    /// The zero frequency moved to the middle.
    #[pyo3(signature = (x, axes = None))]
    fn fftshift<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        axes: Option<Axis>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (x, over) = (x.view()?, Axis::over(axes, false));
        self.runtime.run(py, |rt| rt.fftshift(x, over))
    }

    /// The inverse of `fftshift`.
    #[pyo3(signature = (x, axes = None))]
    fn ifftshift<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        axes: Option<Axis>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (x, over) = (x.view()?, Axis::over(axes, false));
        self.runtime.run(py, |rt| rt.ifftshift(x, over))
    }
}

fn frames<'a>(
    n_fft: usize,
    hop_length: Option<usize>,
    window: Option<&'a Input<'_>>,
    center: bool,
) -> PyResult<StftOptions<'a>> {
    let mut options = StftOptions::new(n_fft).centred(center);
    if let Some(hop) = hop_length {
        options = options.hop(hop);
    }
    if let Some(window) = window {
        options = options.window(window.view()?);
    }
    Ok(options)
}

#[pymethods]
impl PyRuntime {
    /// The spectra of a real signal's frames: `[..., n_fft/2 + 1, frames]`; a Hann window unless given.
    #[pyo3(signature = (x, n_fft, hop_length = None, window = None, center = true))]
    fn stft<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        n_fft: usize,
        hop_length: Option<usize>,
        window: Option<Input<'py>>,
        center: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = frames(n_fft, hop_length, window.as_ref(), center)?;
        let x = x.view()?;
        self.run(py, |rt| rt.stft(x, &options))
    }

    /// The signal whose frames have these spectra: the inverse of `stft` with the same arguments.
    #[pyo3(signature = (x, n_fft, hop_length = None, window = None, center = true, length = None))]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn istft<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        n_fft: usize,
        hop_length: Option<usize>,
        window: Option<Input<'py>>,
        center: bool,
        length: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut options = frames(n_fft, hop_length, window.as_ref(), center)?;
        if let Some(length) = length {
            options = options.length(length);
        }
        let x = x.view()?;
        self.run(py, |rt| rt.istft(x, &options))
    }
}
