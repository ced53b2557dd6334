//! Convolutions and pooling.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use shapewise::ops::conv::{ConvLayout, ConvOptions, PackedConv};
use shapewise::ops::pool::PoolOptions;

use crate::arguments::{Sizes, activation};
use crate::array::Input;
use crate::runtime::PyRuntime;

/// A padding: a number, one for each axis, or a word.
#[derive(FromPyObject)]
enum Padding {
    Word(String),
    Sizes(Sizes),
}

/// `NCHW` and the like, or `NHWC` and the like.
fn channels_last(layout: &str) -> PyResult<bool> {
    match layout {
        "NCHW" | "NCW" | "NCDHW" => Ok(false),
        "NHWC" | "NWC" | "NDHWC" => Ok(true),
        _ => Err(PyValueError::new_err(format!("layout is {layout:?}; use 'NCHW' or 'NHWC'"))),
    }
}

/// What all convolutions take.
struct Common<'a, 'py> {
    bias: Option<&'a Input<'py>>,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: usize,
    layout: &'a str,
    activation: Option<&'a str>,
}

impl<'a> Common<'a, '_> {
    fn options(self, axes: usize) -> PyResult<ConvOptions<'a>> {
        let mut options = ConvOptions::new()
            .strides(&self.stride.each("stride", axes)?)
            .dilations(&self.dilation.each("dilation", axes)?)
            .groups(self.groups)
            .activation(activation(self.activation)?);
        if channels_last(self.layout)? {
            options = options.layout(ConvLayout::ChannelsLast);
        }
        options = match self.padding {
            Padding::Sizes(sizes) => {
                let both: Vec<_> =
                    sizes.each("padding", axes)?.into_iter().map(|size| (size, size)).collect();
                options.paddings(&both)
            }
            Padding::Word(word) if word == "same" => options.same(),
            Padding::Word(word) if word == "valid" => options.valid(),
            Padding::Word(word) => {
                return Err(PyValueError::new_err(format!(
                    "padding is {word:?}; use a number, one for each axis, 'same' or 'valid'"
                )));
            }
        };
        match self.bias {
            Some(bias) => Ok(options.bias(bias.view()?)),
            None => Ok(options),
        }
    }
}

macro_rules! convolutions {
    ($($(#[$doc:meta])* $name:ident $axes:literal;)*) => {
        #[pymethods]
        impl PyRuntime {$(
            $(#[$doc])*
            #[pyo3(signature = (x, w, bias = None, stride = Sizes::All(1), padding = Padding::Sizes(Sizes::All(0)),
                dilation = Sizes::All(1), groups = 1, layout = "NCHW", activation = None))]
            #[pyo3(text_signature = "($self, x, w, bias=None, stride=1, padding=0, dilation=1, groups=1, \
                layout='NCHW', activation=None)")]
            #[allow(clippy::too_many_arguments)] // Python's signature
            fn $name<'py>(
                &self,
                py: Python<'py>,
                x: Input<'py>,
                w: Input<'py>,
                bias: Option<Input<'py>>,
                stride: Sizes,
                padding: Padding,
                dilation: Sizes,
                groups: usize,
                layout: &str,
                activation: Option<&str>,
            ) -> PyResult<Bound<'py, PyAny>> {
                let bias = bias.as_ref();
                let common = Common { bias, stride, padding, dilation, groups, layout, activation };
                let options = common.options($axes)?;
                let (x, w) = (x.view()?, w.view()?);
                self.run(py, |rt| rt.$name(x, w, &options))
            }
        )*}
    };
}

convolutions! {
    /// The convolution of N×C×W with weights O×C/groups×k.
    conv1d 1;
    /// The convolution of N×C×H×W with weights O×C/groups×kh×kw. `padding` may be 'same' or 'valid'.
    conv2d 2;
    /// The convolution of N×C×D×H×W with weights O×C/groups×kd×kh×kw.
    conv3d 3;
}

/// Weights of a convolution as they are, and as a kernel reads them: see `pack_conv`.
#[pyclass(module = "shapewise", name = "ConvWeights", frozen)]
pub struct PyConvWeights {
    inner: PackedConv,
}

impl PyConvWeights {
    /// Axes along which the weights are moved.
    fn axes(&self) -> usize {
        self.inner.weights().rank().saturating_sub(2)
    }
}

#[pymethods]
impl PyConvWeights {
    /// The shape of the weights as they were given.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.inner.weights().shape().to_vec()
    }

    /// Whether they are kept in the form of a kernel, too.
    #[getter]
    fn kept(&self) -> bool {
        self.inner.kept().is_some()
    }

    fn __repr__(&self) -> String {
        format!("<shapewise.ConvWeights {:?}>", self.inner.weights().shape())
    }
}

#[pymethods]
impl PyRuntime {
    /// Weights O×C/groups×k… prepared once for many convolutions of inputs like `x`, with the options of `conv2d`.
    #[pyo3(signature = (w, x, stride = Sizes::All(1), padding = Padding::Sizes(Sizes::All(0)), dilation = Sizes::All(1),
        groups = 1, layout = "NCHW"))]
    #[pyo3(text_signature = "($self, w, x, stride=1, padding=0, dilation=1, groups=1, layout='NCHW')")]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn pack_conv(
        &self,
        py: Python<'_>,
        w: Input<'_>,
        x: Input<'_>,
        stride: Sizes,
        padding: Padding,
        dilation: Sizes,
        groups: usize,
        layout: &str,
    ) -> PyResult<PyConvWeights> {
        let (x, w) = (x.view()?, w.view()?);
        let common = Common { bias: None, stride, padding, dilation, groups, layout, activation: None };
        let options = common.options(w.rank().saturating_sub(2))?;
        Ok(PyConvWeights { inner: self.compute(py, |rt| rt.pack_conv(w, x, &options))? })
    }

    /// The convolution along as many axes as the packed weights have.
    #[pyo3(signature = (x, w, bias = None, stride = Sizes::All(1), padding = Padding::Sizes(Sizes::All(0)),
        dilation = Sizes::All(1), groups = 1, layout = "NCHW", activation = None))]
    #[pyo3(
        text_signature = "($self, x, w, bias=None, stride=1, padding=0, dilation=1, groups=1, layout='NCHW', \
        activation=None)"
    )]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn conv_packed<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        w: &PyConvWeights,
        bias: Option<Input<'py>>,
        stride: Sizes,
        padding: Padding,
        dilation: Sizes,
        groups: usize,
        layout: &str,
        activation: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bias = bias.as_ref();
        let common = Common { bias, stride, padding, dilation, groups, layout, activation };
        let options = common.options(w.axes())?;
        let (x, inner) = (x.view()?, &w.inner);
        self.run(py, |rt| rt.conv_packed(x, inner, &options))
    }
}

macro_rules! transposed {
    ($($(#[$doc:meta])* $name:ident $axes:literal;)*) => {
        #[pymethods]
        impl PyRuntime {$(
            $(#[$doc])*
            #[pyo3(signature = (x, w, bias = None, stride = Sizes::All(1), padding = Padding::Sizes(Sizes::All(0)),
                output_padding = Sizes::All(0), dilation = Sizes::All(1), groups = 1, layout = "NCHW"))]
            #[pyo3(text_signature = "($self, x, w, bias=None, stride=1, padding=0, output_padding=0, dilation=1, \
                groups=1, layout='NCHW')")]
            #[allow(clippy::too_many_arguments)] // Python's signature
            fn $name<'py>(
                &self,
                py: Python<'py>,
                x: Input<'py>,
                w: Input<'py>,
                bias: Option<Input<'py>>,
                stride: Sizes,
                padding: Padding,
                output_padding: Sizes,
                dilation: Sizes,
                groups: usize,
                layout: &str,
            ) -> PyResult<Bound<'py, PyAny>> {
                let bias = bias.as_ref();
                let common = Common { bias, stride, padding, dilation, groups, layout, activation: None };
                let output_padding = output_padding.each("output_padding", $axes)?;
                let options = common.options($axes)?.output_paddings(&output_padding);
                let (x, w) = (x.view()?, w.view()?);
                self.run(py, |rt| rt.$name(x, w, &options))
            }
        )*}
    };
}

transposed! {
    /// The transposed convolution of N×C×W with weights C×O/groups×k.
    conv_transpose1d 1;
    /// The transposed convolution of N×C×H×W with weights C×O/groups×kh×kw.
    conv_transpose2d 2;
    /// The transposed convolution of N×C×D×H×W with weights C×O/groups×kd×kh×kw.
    conv_transpose3d 3;
}

fn window(
    kernel: Sizes,
    stride: Option<Sizes>,
    padding: Sizes,
    layout: &str,
    axes: usize,
) -> PyResult<PoolOptions> {
    let mut options =
        PoolOptions::new(&kernel.each("kernel", axes)?).padding(&padding.each("padding", axes)?);
    if let Some(stride) = stride {
        options = options.stride(&stride.each("stride", axes)?);
    }
    Ok(if channels_last(layout)? { options.channels_last() } else { options })
}

macro_rules! pools {
    ($($(#[$doc:meta])* $name:ident $method:ident $axes:literal;)*) => {
        #[pymethods]
        impl PyRuntime {$(
            $(#[$doc])*
            #[pyo3(signature = (x, kernel, stride = None, padding = Sizes::All(0), layout = "NCHW"))]
            #[pyo3(text_signature = "($self, x, kernel, stride=None, padding=0, layout='NCHW')")]
            fn $name<'py>(
                &self,
                py: Python<'py>,
                x: Input<'py>,
                kernel: Sizes,
                stride: Option<Sizes>,
                padding: Sizes,
                layout: &str,
            ) -> PyResult<Bound<'py, PyAny>> {
                let options = window(kernel, stride, padding, layout, $axes)?;
                let x = x.view()?;
                self.run(py, |rt| rt.$method(x, &options))
            }
        )*}
    };
}

pools! {
    /// The largest element of each window.
    max_pool1d max_pool 1;
    /// The largest element of each window; the stride is the window's size unless given.
    max_pool2d max_pool 2;
    /// The largest element of each window.
    max_pool3d max_pool 3;
    /// The mean of each window.
    avg_pool1d avg_pool 1;
    /// The mean of each window; padding counts as zeros.
    avg_pool2d avg_pool 2;
    /// The mean of each window.
    avg_pool3d avg_pool 3;
}
