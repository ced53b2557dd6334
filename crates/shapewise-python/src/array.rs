//! numpy's memory as the library's views, and the library's tensors as numpy's arrays.

use numpy::npyffi::{self, NPY_TYPES, PY_ARRAY_API, npy_intp};
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyComplex, PyFloat, PyInt};
use shapewise::tensor::{Layout, Shape, Strides};
use shapewise::{DType, Tensor, TensorView};

use crate::error::raise;

/// An argument: an array of numpy whose memory the library reads where it lies.
pub struct Input<'py> {
    array: Bound<'py, PyUntypedArray>,
    dtype: DType,
    layout: Layout,
    /// The lowest address of any element, and the bytes from there to the end of the highest.
    memory: (*const u8, usize),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Input<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = object.cast::<PyUntypedArray>() {
            return Self::of(array.to_owned());
        }
        Self::of(foreign(&object)?)
    }
}

/// An array of anything else: by `DLPack` without a copy, or as numpy reads it.
fn foreign<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = object.py();
    let call = if object.hasattr(pyo3::intern!(py, "__dlpack__"))? { "from_dlpack" } else { "asarray" };
    Ok(py.import(pyo3::intern!(py, "numpy"))?.call_method1(call, (object,))?.cast_into::<PyUntypedArray>()?)
}

impl<'py> Input<'py> {
    fn of(array: Bound<'py, PyUntypedArray>) -> PyResult<Self> {
        let descr = array.dtype();
        let dtype = dtype_of(&descr)?;
        let size = dtype.size() as isize;
        // SAFETY: the array is alive, and its header is only read.
        let (flags, data) = unsafe {
            let raw = array.as_array_ptr();
            ((*raw).fields.flags, (*raw).fields.data.cast_const().cast::<u8>())
        };
        let plain = flags & npyffi::NPY_ARRAY_ALIGNED != 0 && descr.is_native_byteorder() != Some(false);
        if !plain || array.strides().iter().any(|stride| stride % size != 0) {
            return Self::of(copied(&array)?);
        }
        let shape = Shape::new(array.shape()).map_err(raise)?;
        if shape.contains(&0) {
            return Ok(Self {
                array,
                dtype,
                layout: Layout::contiguous(shape),
                memory: (std::ptr::dangling(), 0),
            });
        }
        let mut strides = Strides::new(array.strides()).map_err(raise)?;
        let (mut low, mut high) = (0, 0);
        for (stride, &n) in strides.iter_mut().zip(shape.iter()) {
            *stride /= size;
            let reach = *stride * (n as isize - 1);
            low += reach.min(0);
            high += reach.max(0);
        }
        let layout = Layout { shape, strides, offset: low.unsigned_abs() };
        let memory = (data.wrapping_offset(low * size), ((high - low + 1) * size) as usize);
        Ok(Self { array, dtype, layout, memory })
    }

    /// What the library reads; numpy's rule holds: nobody writes an array while it is being used.
    pub fn view(&self) -> PyResult<TensorView<'_>> {
        // SAFETY: the array keeps the memory between its lowest and its highest element alive as long as `self`.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory.0, self.memory.1) };
        TensorView::from_bytes(bytes, self.dtype, self.layout).map_err(raise)
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its sizes.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// The array with its elements one after the other on one axis.
    pub fn flat(&self) -> PyResult<Self> {
        Self::of(self.array.call_method0(pyo3::intern!(self.array.py(), "ravel"))?.cast_into()?)
    }

    /// The array with other elements.
    pub fn cast(&self, name: &str) -> PyResult<Self> {
        Self::of(self.array.call_method1(pyo3::intern!(self.array.py(), "astype"), (name,))?.cast_into()?)
    }
}

/// A copy in the machine's byte order, aligned and without gaps.
fn copied<'py>(array: &Bound<'py, PyUntypedArray>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = array.py();
    let native = array.dtype().call_method1(pyo3::intern!(py, "newbyteorder"), ("=",))?;
    Ok(array.call_method1(pyo3::intern!(py, "astype"), (native, "C"))?.cast_into::<PyUntypedArray>()?)
}

/// An operand of a function of two: an array, or a number that takes the type of the other one.
pub enum Operand<'py> {
    /// An array.
    Array(Input<'py>),
    /// One of Python's numbers.
    Number(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Operand<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let number = object.is_instance_of::<PyFloat>()
            || object.is_instance_of::<PyInt>()
            || object.is_instance_of::<PyComplex>();
        // numpy's own numbers have a type to keep.
        if number && !object.hasattr(pyo3::intern!(object.py(), "dtype"))? {
            return Ok(Self::Number(object.to_owned()));
        }
        Ok(Self::Array(object.extract()?))
    }
}

impl<'py> Operand<'py> {
    fn like(self, dtype: DType) -> PyResult<Input<'py>> {
        let number = match self {
            Self::Array(input) => return Ok(input),
            Self::Number(number) => number,
        };
        let truth = number.is_instance_of::<PyBool>();
        let fits = if dtype.is_complex() {
            true
        } else if dtype.is_float() {
            !number.is_instance_of::<PyComplex>()
        } else if dtype == DType::Bool {
            truth
        } else {
            number.is_instance_of::<PyInt>()
        };
        if !fits {
            return Err(PyTypeError::new_err(format!(
                "the number {number} does not fit an array of {}; cast the array first",
                numpy_name(dtype)
            )));
        }
        let py = number.py();
        let array =
            py.import(pyo3::intern!(py, "numpy"))?.call_method1("asarray", (number, describe(py, dtype)?))?;
        Input::of(array.cast_into()?)
    }
}

/// Two or three operands of one type: numbers take that of the arrays.
pub fn alike<const N: usize>(operands: [Operand<'_>; N]) -> PyResult<[Input<'_>; N]> {
    let dtype = operands.iter().find_map(|operand| match operand {
        Operand::Array(input) => Some(input.dtype),
        Operand::Number(_) => None,
    });
    let dtype = dtype.unwrap_or(DType::F64);
    let mut inputs = Vec::with_capacity(N);
    for operand in operands {
        inputs.push(operand.like(dtype)?);
    }
    Ok(inputs.try_into().unwrap_or_else(|_| unreachable!("one input for each operand")))
}

fn dtype_of(descr: &Bound<'_, PyArrayDescr>) -> PyResult<DType> {
    Ok(match (descr.kind(), descr.itemsize()) {
        (b'b', 1) => DType::Bool,
        (b'i', 1) => DType::I8,
        (b'i', 2) => DType::I16,
        (b'i', 4) => DType::I32,
        (b'i', 8) => DType::I64,
        (b'u', 1) => DType::U8,
        (b'u', 4) => DType::U32,
        (b'f', 2) => DType::F16,
        (b'f', 4) => DType::F32,
        (b'f', 8) => DType::F64,
        (b'c', 8) => DType::C32,
        (b'c', 16) => DType::C64,
        _ if descr.str()? == "bfloat16" => DType::BF16,
        _ => {
            return Err(PyTypeError::new_err(format!(
                "arrays of {descr} are not supported; use float16, bfloat16, float32, float64, int8, uint8, int16, \
                 int32, uint32, int64, bool, complex64 or complex128"
            )));
        }
    })
}

/// What numpy calls the type.
pub fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U32 => "uint32",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::C32 => "complex64",
        DType::C64 => "complex128",
    }
}

fn describe(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyArrayDescr>> {
    static BFLOAT16: PyOnceLock<Py<PyArrayDescr>> = PyOnceLock::new();
    let number = match dtype {
        DType::Bool => NPY_TYPES::NPY_BOOL,
        DType::I8 => NPY_TYPES::NPY_BYTE,
        DType::I16 => NPY_TYPES::NPY_SHORT,
        DType::I32 => NPY_TYPES::NPY_INT,
        DType::I64 => NPY_TYPES::NPY_LONGLONG,
        DType::U8 => NPY_TYPES::NPY_UBYTE,
        DType::U32 => NPY_TYPES::NPY_UINT,
        DType::F16 => NPY_TYPES::NPY_HALF,
        DType::F32 => NPY_TYPES::NPY_FLOAT,
        DType::F64 => NPY_TYPES::NPY_DOUBLE,
        DType::C32 => NPY_TYPES::NPY_CFLOAT,
        DType::C64 => NPY_TYPES::NPY_CDOUBLE,
        DType::BF16 => {
            let kept = BFLOAT16.get_or_try_init(py, || {
                let module = py.import("ml_dtypes").map_err(|_| {
                    PyTypeError::new_err("bfloat16 needs the package ml_dtypes: pip install ml_dtypes")
                })?;
                PyArrayDescr::new(py, module.getattr("bfloat16")?).map(Bound::unbind)
            })?;
            return Ok(kept.bind(py).clone());
        }
    };
    // numpy has two 64-bit integers on some systems; `int64` is the one that users compare with.
    if dtype == DType::I64 {
        return Ok(numpy::dtype::<i64>(py));
    }
    // SAFETY: numpy gives a new reference to the descriptor of one of its own types.
    unsafe {
        let raw = PY_ARRAY_API.PyArray_DescrFromType(py, number as _);
        Ok(Bound::from_owned_ptr(py, raw.cast()).cast_into_unchecked())
    }
}

/// What an array that came from the library keeps alive.
#[pyclass(frozen)]
struct Memory {
    _tensor: Tensor,
}

/// The tensor's memory as numpy's array, or as its number if there are no axes.
pub fn to_numpy(py: Python<'_>, tensor: Tensor) -> PyResult<Bound<'_, PyAny>> {
    let mut tensor = if tensor.is_contiguous() { tensor } else { tensor.to_contiguous().map_err(raise)? };
    let data = tensor.as_mut_ptr().map_err(raise)?;
    let descr = describe(py, tensor.dtype())?;
    let shape = Shape::new(tensor.shape()).map_err(raise)?;
    let mut sizes: [npy_intp; shapewise::tensor::MAX_RANK] = [0; _];
    for (size, &n) in sizes.iter_mut().zip(shape.iter()) {
        *size = n as npy_intp;
    }
    let memory = Bound::new(py, Memory { _tensor: tensor })?;
    // SAFETY: the sizes outlive the call, the descriptor is given away, and the tensor's memory lives as long as the
    // object that becomes the array's base; nobody else has the tensor.
    let array = unsafe {
        let raw = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            npyffi::get_type_object(py, npyffi::NpyTypes::PyArray_Type),
            descr.into_ptr().cast(),
            shape.len() as _,
            sizes.as_mut_ptr(),
            std::ptr::null_mut(),
            data.cast(),
            npyffi::NPY_ARRAY_WRITEABLE,
            std::ptr::null_mut(),
        );
        let array = Bound::from_owned_ptr_or_err(py, raw)?;
        if PY_ARRAY_API.PyArray_SetBaseObject(py, array.as_ptr().cast(), memory.into_ptr()) != 0 {
            return Err(PyErr::fetch(py));
        }
        array
    };
    if shape.is_empty() { array.get_item(pyo3::types::PyTuple::empty(py)) } else { Ok(array) }
}
