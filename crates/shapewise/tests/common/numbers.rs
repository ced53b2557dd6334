//! Tensors read back as numbers.

use half::{bf16, f16};
use num_complex::Complex;
use shapewise::{DType, TensorView};

/// A tensor's numbers, wide enough to hold them exactly.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    Real(Vec<f64>),
    Integer(Vec<i64>),
    /// Real and imaginary parts by turns.
    Complex(Vec<f64>),
}

/// The numbers of a view in row-major order.
pub fn numbers(view: &TensorView<'_>) -> Numbers {
    macro_rules! read {
        ($t:ty, $f:expr) => {
            view.to_vec::<$t>().unwrap().into_iter().map($f).collect()
        };
    }
    match view.dtype() {
        DType::F32 => Numbers::Real(read!(f32, f64::from)),
        DType::F64 => Numbers::Real(read!(f64, |x| x)),
        DType::F16 => Numbers::Real(read!(f16, f64::from)),
        DType::BF16 => Numbers::Real(read!(bf16, f64::from)),
        DType::I8 => Numbers::Integer(read!(i8, i64::from)),
        DType::I16 => Numbers::Integer(read!(i16, i64::from)),
        DType::U8 => Numbers::Integer(read!(u8, i64::from)),
        DType::I32 => Numbers::Integer(read!(i32, i64::from)),
        DType::U32 => Numbers::Integer(read!(u32, i64::from)),
        DType::I64 => Numbers::Integer(read!(i64, |x| x)),
        DType::Bool => Numbers::Integer(read!(bool, i64::from)),
        DType::C32 => {
            let all: Vec<Complex<f32>> = view.to_vec().unwrap();
            Numbers::Complex(all.iter().flat_map(|z| [f64::from(z.re), f64::from(z.im)]).collect())
        }
        DType::C64 => {
            let all: Vec<Complex<f64>> = view.to_vec().unwrap();
            Numbers::Complex(all.iter().flat_map(|z| [z.re, z.im]).collect())
        }
    }
}
