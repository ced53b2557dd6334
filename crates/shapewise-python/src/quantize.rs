//! Quantised numbers: ONNX's rules, numpy's types; integers of four bits lie two in a byte, the first one in the low half.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::quantize::{
    Calibration, Granularity, IntegerOptions, QuantType, Quantization, QuantizedWeights,
};
use shapewise::{DType, Tensor};

use crate::arguments::Sizes;
use crate::array::{Input, numpy_name, to_numpy};
use crate::error::raise;
use crate::runtime::PyRuntime;

/// What integers stand for, as Python writes it.
struct Numbers<'a, 'py> {
    scale: &'a Input<'py>,
    zero_point: Option<&'a Input<'py>>,
    axis: Option<isize>,
    block_size: Option<usize>,
}

impl Numbers<'_, '_> {
    fn quantization(&self, kind: QuantType) -> PyResult<Quantization> {
        let scale = self.scale.cast("float32")?;
        let scales = scale.view()?.to_vec::<f32>().map_err(raise)?;
        let zeros = self.zero_points(scales.len())?;
        let made = match (self.axis, self.block_size) {
            (None, None) if scales.len() == 1 => {
                let [zero] = zeros[..] else { return Err(PyValueError::new_err(UNEVEN)) };
                Quantization::per_tensor(kind, scales[0], zero)
            }
            (Some(axis), None) => Quantization::per_channel(kind, axis, &scales, &zeros),
            (None, Some(size)) => {
                let (scales, zeros) = (scale.view()?, Tensor::from_vec(zeros, scale.shape()).map_err(raise)?);
                Quantization::per_block(kind, size, scales, Some(zeros.view()))
            }
            (Some(_), Some(_)) => {
                return Err(PyValueError::new_err("give axis or block_size, not both"));
            }
            (None, None) => {
                return Err(PyValueError::new_err(format!(
                    "{} scales: give axis (one for each index along it) or block_size",
                    scales.len()
                )));
            }
        };
        made.map_err(raise)
    }

    /// One for each scale.
    fn zero_points(&self, scales: usize) -> PyResult<Vec<i32>> {
        let Some(zeros) = self.zero_point else { return Ok(vec![0; scales]) };
        if zeros.dtype().is_float() || zeros.dtype().is_complex() {
            return Err(PyTypeError::new_err("zero points are integers"));
        }
        let zeros = zeros.cast("int32")?.view()?.to_vec::<i32>().map_err(raise)?;
        match zeros.len() {
            1 => Ok(vec![zeros[0]; scales]),
            n if n == scales => Ok(zeros),
            _ => Err(PyValueError::new_err(UNEVEN)),
        }
    }
}

const UNEVEN: &str = "give one zero point, or as many as there are scales";

/// The type of this name, or the one that arrays of this type hold.
fn kind(name: Option<&str>, held: DType) -> PyResult<QuantType> {
    let name = name.unwrap_or_else(|| numpy_name(held));
    match name {
        "int8" => Ok(QuantType::I8),
        "uint8" => Ok(QuantType::U8),
        "int16" => Ok(QuantType::I16),
        "int32" => Ok(QuantType::I32),
        "int4" => Ok(QuantType::I4),
        "uint4" => Ok(QuantType::U4),
        _ => Err(PyValueError::new_err(format!(
            "dtype is {name:?}; use 'int8', 'uint8', 'int16', 'int4' or 'uint4'"
        ))),
    }
}

/// What shares a scale.
fn granularity(axis: Option<isize>, block_size: Option<usize>) -> PyResult<Granularity> {
    match (axis, block_size) {
        (None, None) => Ok(Granularity::Tensor),
        (Some(axis), None) => Ok(Granularity::Channel(axis)),
        (None, Some(size)) => Ok(Granularity::Block(size)),
        (Some(_), Some(_)) => Err(PyValueError::new_err("give axis or block_size, not both")),
    }
}

/// Scales and zero points as numpy's arrays.
fn described<'py>(py: Python<'py>, how: &Quantization) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let own = |tensor: &Tensor| tensor.deep_clone().map_err(raise);
    let zeros = match how.zero_point() {
        Some(zeros) => own(zeros)?,
        None => Tensor::zeros(how.scale().shape(), DType::I32).map_err(raise)?,
    };
    Ok((to_numpy(py, own(how.scale())?)?, to_numpy(py, zeros)?))
}

/// Quantised weights in the order in which products read them: see `pack_quantized`.
#[pyclass(module = "shapewise", name = "QuantizedWeights", frozen)]
pub struct PyWeights {
    inner: QuantizedWeights,
}

#[pymethods]
impl PyWeights {
    /// Outputs and inputs of the layer.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        let [n, k] = self.inner.shape();
        (n, k)
    }

    /// Bytes of weights, scales and zero points.
    #[getter]
    fn nbytes(&self) -> usize {
        self.inner.bytes()
    }

    fn __repr__(&self) -> String {
        let [n, k] = self.inner.shape();
        format!("<shapewise.QuantizedWeights {n}x{k} of {}>", self.inner.kind())
    }
}

#[pymethods]
impl PyRuntime {
    /// The integers nearest to `x / scale + zero_point`, halves to the even one, kept inside the type's range (ONNX's
    /// `QuantizeLinear`).
    ///
    /// With `axis` there is a scale for each index along it, with `block_size` one for each block along the last axis.
    /// 'int4' and 'uint4' lie two in a byte along the last axis, the first one in the low half.
    ///
    /// >>> sw.quantize(np.array([-1.0, 0.26, 100.0], "float32"), 0.1).tolist()
    /// [-10, 3, 127]
    #[pyo3(signature = (x, scale, zero_point = None, dtype = "int8", axis = None, block_size = None))]
    #[pyo3(text_signature = "($self, x, scale, zero_point=0, dtype='int8', axis=None, block_size=None)")]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn quantize<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        scale: Input<'py>,
        zero_point: Option<Input<'py>>,
        dtype: &str,
        axis: Option<isize>,
        block_size: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let numbers = Numbers { scale: &scale, zero_point: zero_point.as_ref(), axis, block_size };
        let (how, x) = (numbers.quantization(kind(Some(dtype), x.dtype())?)?, x.view()?);
        self.run(py, |rt| rt.quantize(x, &how))
    }

    /// `(q - zero_point) * scale` in float32. `dtype` says 'int4' or 'uint4' where `q` holds two in a byte.
    #[pyo3(signature = (q, scale, zero_point = None, dtype = None, axis = None, block_size = None))]
    #[pyo3(text_signature = "($self, q, scale, zero_point=0, dtype=None, axis=None, block_size=None)")]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn dequantize<'py>(
        &self,
        py: Python<'py>,
        q: Input<'py>,
        scale: Input<'py>,
        zero_point: Option<Input<'py>>,
        dtype: Option<&str>,
        axis: Option<isize>,
        block_size: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let numbers = Numbers { scale: &scale, zero_point: zero_point.as_ref(), axis, block_size };
        let (how, q) = (numbers.quantization(kind(dtype, q.dtype())?)?, q.view()?);
        self.run(py, |rt| rt.dequantize(q, &how))
    }

    /// `(scale, zero_point)` for numbers like these. `method` is 'minmax', 'percentile', 'entropy' or 'mse'.
    ///
    /// Symmetric quantisations have no zero point (the middle of the range for unsigned types); others cover the range
    /// together with 0.
    #[staticmethod]
    #[pyo3(signature = (x, dtype = "int8", axis = None, block_size = None, method = "minmax", percentile = 99.9,
        symmetric = true))]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn calibrate<'py>(
        py: Python<'py>,
        x: Input<'py>,
        dtype: &str,
        axis: Option<isize>,
        block_size: Option<usize>,
        method: &str,
        percentile: f64,
        symmetric: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let calibration = match method {
            "minmax" => Calibration::MinMax,
            "percentile" => Calibration::Percentile(percentile),
            "entropy" => Calibration::Entropy,
            "mse" => Calibration::Mse,
            _ => {
                return Err(PyValueError::new_err(format!(
                    "method is {method:?}; use 'minmax', 'percentile', 'entropy' or 'mse'"
                )));
            }
        };
        let (kind, granularity) = (kind(Some(dtype), x.dtype())?, granularity(axis, block_size)?);
        let x = x.view()?;
        let how = py
            .detach(|| Quantization::calibrate(x, kind, granularity, calibration, symmetric))
            .map_err(raise)?;
        described(py, &how)
    }

    /// Four-bit integers for an array, two in a byte, with the scale of each block along the last axis (of the whole array
    /// without `block_size`): `(q, scale, zero_point)`. Symmetric ones are 'int4', others 'uint4'.
    #[pyo3(signature = (x, block_size = Some(32), symmetric = true))]
    #[allow(clippy::type_complexity)] // Python's tuple
    fn quantize_int4<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        block_size: Option<usize>,
        symmetric: bool,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let kind = if symmetric { QuantType::I4 } else { QuantType::U4 };
        let (granularity, x) = (granularity(None, block_size)?, x.view()?);
        let (how, q) = self.compute(py, |rt| {
            let how = Quantization::calibrate(x, kind, granularity, Calibration::MinMax, symmetric)?;
            let q = rt.quantize(x, &how)?;
            Ok((how, q))
        })?;
        let (scale, zero_point) = described(py, &how)?;
        Ok((to_numpy(py, q)?, scale, zero_point))
    }

    /// Packs quantised weights of a layer, outputs × inputs, for `matmul_quantized`: 'int8', 'uint8', 'int4' or 'uint4', with
    /// one scale, one for each output (`axis=0`) or one for each block of inputs.
    #[pyo3(signature = (q, scale, zero_point = None, dtype = None, axis = None, block_size = None))]
    #[pyo3(text_signature = "($self, q, scale, zero_point=0, dtype=None, axis=None, block_size=None)")]
    #[allow(clippy::too_many_arguments)] // Python's signature
    fn pack_quantized(
        &self,
        py: Python<'_>,
        q: Input<'_>,
        scale: Input<'_>,
        zero_point: Option<Input<'_>>,
        dtype: Option<&str>,
        axis: Option<isize>,
        block_size: Option<usize>,
    ) -> PyResult<PyWeights> {
        let numbers = Numbers { scale: &scale, zero_point: zero_point.as_ref(), axis, block_size };
        let (how, q) = (numbers.quantization(kind(dtype, q.dtype())?)?, q.view()?);
        Ok(PyWeights { inner: self.compute(py, |rt| rt.pack_quantized(q, &how))? })
    }

    /// `x @ weights.T` with quantised weights and real activations (float32 or bfloat16).
    ///
    /// >>> w = np.array([[1.0, -2.0], [0.5, 1.5]], "float32")
    /// >>> q, scale, zero_point = sw.quantize_int4(w, block_size=None)
    /// >>> packed = sw.pack_quantized(q, scale, zero_point, dtype="int4")
    /// >>> sw.matmul_quantized(np.ones((1, 2), "float32"), packed).shape
    /// (1, 2)
    fn matmul_quantized<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        weights: &Bound<'py, PyWeights>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (x, weights) = (x.view()?, &weights.get().inner);
        self.run(py, |rt| rt.matmul_quantized(x, weights))
    }

    /// The product of int8 or uint8 arrays less their zero points, in int32 (ONNX's `MatMulInteger`): sums wrap around.
    ///
    /// The zero point of `a` is one number or one for each row, that of `b` one or one for each column.
    #[pyo3(signature = (a, b, a_zero_point = None, b_zero_point = None))]
    #[pyo3(text_signature = "($self, a, b, a_zero_point=0, b_zero_point=0)")]
    fn matmul_integer<'py>(
        &self,
        py: Python<'py>,
        a: Input<'py>,
        b: Input<'py>,
        a_zero_point: Option<Input<'py>>,
        b_zero_point: Option<Input<'py>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // Python's plain numbers arrive as int64; ONNX wants the type of the operand.
        let like = |zero: Option<Input<'py>>, operand: &Input<'py>| {
            zero.map(|zero| zero.cast(numpy_name(operand.dtype()))).transpose()
        };
        let (a_zero, b_zero) = (like(a_zero_point, &a)?, like(b_zero_point, &b)?);
        let mut options = IntegerOptions::new();
        if let Some(zero) = &a_zero {
            options = options.a_zero_point(zero.view()?);
        }
        if let Some(zero) = &b_zero {
            options = options.b_zero_point(zero.view()?);
        }
        let (a, b) = (a.view()?, b.view()?);
        self.run(py, |rt| rt.matmul_integer(a, b, &options))
    }

    /// The product of quantised arrays, quantised with `y_scale` and `y_zero_point` (ONNX's `QLinearMatMul`).
    ///
    /// `a` has one scale or one for each row, `b` one or one for each column; the result has the type of `a`, or `dtype`.
    #[pyo3(signature = (a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point, dtype = None))]
    #[allow(clippy::too_many_arguments)] // ONNX's operands
    fn qmatmul<'py>(
        &self,
        py: Python<'py>,
        a: Input<'py>,
        a_scale: Input<'py>,
        a_zero_point: Input<'py>,
        b: Input<'py>,
        b_scale: Input<'py>,
        b_zero_point: Input<'py>,
        y_scale: Input<'py>,
        y_zero_point: Input<'py>,
        dtype: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let a_how = side(&a, &a_scale, &a_zero_point, -2)?;
        let b_how = side(&b, &b_scale, &b_zero_point, -1)?;
        let y_how = result(&y_scale, &y_zero_point, kind(dtype, a.dtype())?)?;
        let (a, b) = (a.view()?, b.view()?);
        self.run(py, |rt| rt.qmatmul(a, &a_how, b, &b_how, &y_how))
    }

    /// The convolution of quantised images N×C×H×W and weights, quantised with `y_scale` and `y_zero_point` (ONNX's
    /// `QLinearConv`). The weights have one scale or one for each output channel; the bias is int32.
    #[pyo3(signature = (x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, bias = None,
        stride = Sizes::All(1), padding = Sizes::All(0), dilation = Sizes::All(1), groups = 1, dtype = None))]
    #[pyo3(
        text_signature = "($self, x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, \
        bias=None, stride=1, padding=0, dilation=1, groups=1, dtype=None)"
    )]
    #[allow(clippy::too_many_arguments)] // ONNX's operands
    fn qconv2d<'py>(
        &self,
        py: Python<'py>,
        x: Input<'py>,
        x_scale: Input<'py>,
        x_zero_point: Input<'py>,
        w: Input<'py>,
        w_scale: Input<'py>,
        w_zero_point: Input<'py>,
        y_scale: Input<'py>,
        y_zero_point: Input<'py>,
        bias: Option<Input<'py>>,
        stride: Sizes,
        padding: Sizes,
        dilation: Sizes,
        groups: usize,
        dtype: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let x_how = result(&x_scale, &x_zero_point, kind(None, x.dtype())?)?;
        let w_how = side(&w, &w_scale, &w_zero_point, 0)?;
        let y_how = result(&y_scale, &y_zero_point, kind(dtype, x.dtype())?)?;
        let both: Vec<_> = padding.each("padding", 2)?.into_iter().map(|size| (size, size)).collect();
        let mut options = ConvOptions::new()
            .strides(&stride.each("stride", 2)?)
            .dilations(&dilation.each("dilation", 2)?)
            .paddings(&both)
            .groups(groups);
        if let Some(bias) = &bias {
            options = options.bias(bias.view()?);
        }
        let (x, w) = (x.view()?, w.view()?);
        self.run(py, |rt| rt.qconv2d(x, &x_how, w, &w_how, &y_how, &options))
    }
}

/// An operand with one scale, or one for each index along the axis.
fn side(x: &Input<'_>, scale: &Input<'_>, zero_point: &Input<'_>, axis: isize) -> PyResult<Quantization> {
    let axis = (!scale.shape().is_empty() && scale.shape() != [1]).then_some(axis);
    let numbers = Numbers { scale, zero_point: Some(zero_point), axis, block_size: None };
    numbers.quantization(kind(None, x.dtype())?)
}

/// One scale and one zero point for everything.
fn result(scale: &Input<'_>, zero_point: &Input<'_>, kind: QuantType) -> PyResult<Quantization> {
    Numbers { scale, zero_point: Some(zero_point), axis: None, block_size: None }.quantization(kind)
}
