//! One element of any type, for the plain reference kernels.

// Callers promise that addresses are aligned for the element type.
#![allow(clippy::cast_ptr_alignment)]

use half::{bf16, f16};
use num_complex::Complex;

use crate::tensor::DType;

/// An element, widened without loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A float.
    Real(f64),
    /// An integer.
    Integer(i64),
    /// A truth value.
    Truth(bool),
    /// A complex number.
    Complex(Complex<f64>),
}

impl Value {
    /// Reads an element.
    ///
    /// # Safety
    /// `at` is valid for reading the `index`-th element of type `dtype`, aligned for it.
    pub unsafe fn read(at: *const u8, index: isize, dtype: DType) -> Self {
        macro_rules! get {
            ($t:ty) => {
                // SAFETY: the caller's promise.
                unsafe { at.cast::<$t>().offset(index).read() }
            };
        }
        match dtype {
            DType::F32 => Self::Real(get!(f32).into()),
            DType::F64 => Self::Real(get!(f64)),
            DType::F16 => Self::Real(get!(f16).to_f64()),
            DType::BF16 => Self::Real(get!(bf16).to_f64()),
            DType::I8 => Self::Integer(get!(i8).into()),
            DType::I16 => Self::Integer(get!(i16).into()),
            DType::U8 => Self::Integer(get!(u8).into()),
            DType::I32 => Self::Integer(get!(i32).into()),
            DType::U32 => Self::Integer(get!(u32).into()),
            DType::I64 => Self::Integer(get!(i64)),
            DType::Bool => Self::Truth(get!(bool)),
            DType::C32 => {
                let x = get!(Complex<f32>);
                Self::Complex(Complex::new(x.re.into(), x.im.into()))
            }
            DType::C64 => Self::Complex(get!(Complex<f64>)),
        }
    }

    /// Writes an element, rounded or wrapped to its type.
    ///
    /// # Safety
    /// `at` is valid for writing the `index`-th element of type `dtype`, aligned for it.
    pub unsafe fn write(self, at: *mut u8, index: isize, dtype: DType) {
        /// Writes at an index of a pointer that takes its type from the value.
        unsafe fn put<T>(at: *mut u8, index: isize, x: T) {
            // SAFETY: the caller's promise.
            unsafe { at.cast::<T>().offset(index).write(x) }
        }
        macro_rules! put {
            ($x:expr) => {
                // SAFETY: the caller's promise.
                unsafe { put(at, index, $x) }
            };
        }
        let (real, integer) = (self.real(), self.integer());
        match dtype {
            DType::F32 => put!(real as f32),
            DType::F64 => put!(real),
            DType::F16 => put!(f16::from_f64(real)),
            DType::BF16 => put!(bf16::from_f64(real)),
            DType::I8 => put!(integer as i8),
            DType::I16 => put!(integer as i16),
            DType::U8 => put!(integer as u8),
            DType::I32 => put!(integer as i32),
            DType::U32 => put!(integer as u32),
            DType::I64 => put!(integer),
            DType::Bool => put!(self.truth()),
            DType::C32 => {
                let x = self.complex();
                put!(Complex::new(x.re as f32, x.im as f32));
            }
            DType::C64 => put!(self.complex()),
        }
    }

    /// The number as a float; the real part of a complex one.
    pub fn real(self) -> f64 {
        match self {
            Self::Real(x) => x,
            Self::Integer(x) => x as f64,
            Self::Truth(x) => x.into(),
            Self::Complex(x) => x.re,
        }
    }

    /// The number as an integer, cut off at the point.
    pub fn integer(self) -> i64 {
        match self {
            Self::Integer(x) => x,
            Self::Truth(x) => x.into(),
            other => other.real() as i64,
        }
    }

    /// The number as a complex one.
    pub fn complex(self) -> Complex<f64> {
        match self {
            Self::Complex(x) => x,
            other => Complex::new(other.real(), 0.0),
        }
    }

    /// Whether it is anything but zero; NaN is true.
    pub fn truth(self) -> bool {
        match self {
            Self::Truth(x) => x,
            Self::Integer(x) => x != 0,
            Self::Real(x) => x != 0.0,
            Self::Complex(x) => x != Complex::new(0.0, 0.0),
        }
    }

    /// The absolute value.
    pub fn magnitude(self) -> f64 {
        match self {
            Self::Complex(x) => x.re.hypot(x.im),
            other => other.real().abs(),
        }
    }

    /// Whether it is no number.
    pub fn is_nan(self) -> bool {
        matches!(self, Self::Real(x) if x.is_nan())
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(b)),
            (a, b) => a.real().partial_cmp(&b.real()),
        }
    }
}
