//! Little-endian bytes and tensors.

use anyhow::{Result, bail, ensure};
use bytemuck::{Pod, cast_slice, pod_collect_to_vec};
use half::{bf16, f16};
use num_complex::Complex;
use shapewise::{DType, Element, Tensor};

/// Numbers are stored least significant byte first; other machines would read them wrong.
const _: () = assert!(cfg!(target_endian = "little"));

/// A tensor from its bytes; their number must be that of the shape.
pub fn tensor(bytes: &[u8], dtype: DType, shape: &[usize]) -> Result<Tensor> {
    fn whole<T: Element + Pod>(bytes: &[u8], shape: &[usize]) -> Result<Tensor> {
        Ok(Tensor::from_vec(pod_collect_to_vec::<u8, T>(bytes), shape)?)
    }
    let elements = shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    let needed = elements.and_then(|n| n.checked_mul(dtype.size()));
    ensure!(
        needed == Some(bytes.len()),
        "{dtype} of shape {shape:?} does not fit the {} bytes of data that follow",
        bytes.len()
    );
    match dtype {
        DType::F32 => whole::<f32>(bytes, shape),
        DType::F64 => whole::<f64>(bytes, shape),
        DType::F16 => whole::<f16>(bytes, shape),
        DType::BF16 => whole::<bf16>(bytes, shape),
        DType::I8 => whole::<i8>(bytes, shape),
        DType::I16 => whole::<i16>(bytes, shape),
        DType::U8 => whole::<u8>(bytes, shape),
        DType::I32 => whole::<i32>(bytes, shape),
        DType::U32 => whole::<u32>(bytes, shape),
        DType::I64 => whole::<i64>(bytes, shape),
        DType::C32 => whole::<Complex<f32>>(bytes, shape),
        DType::C64 => whole::<Complex<f64>>(bytes, shape),
        DType::Bool => {
            ensure!(bytes.iter().all(|b| *b < 2), "a truth value is neither 0 nor 1");
            Ok(Tensor::from_vec(bytes.iter().map(|b| *b == 1).collect(), shape)?)
        }
    }
}

/// A tensor's bytes in the order of its axes.
pub fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    fn whole<T: Element + Pod>(tensor: &Tensor) -> Result<Vec<u8>> {
        Ok(cast_slice(&tensor.to_vec::<T>()?).to_vec())
    }
    match tensor.dtype() {
        DType::F32 => whole::<f32>(tensor),
        DType::F64 => whole::<f64>(tensor),
        DType::F16 => whole::<f16>(tensor),
        DType::BF16 => whole::<bf16>(tensor),
        DType::I8 => whole::<i8>(tensor),
        DType::I16 => whole::<i16>(tensor),
        DType::U8 => whole::<u8>(tensor),
        DType::I32 => whole::<i32>(tensor),
        DType::U32 => whole::<u32>(tensor),
        DType::I64 => whole::<i64>(tensor),
        DType::C32 => whole::<Complex<f32>>(tensor),
        DType::C64 => whole::<Complex<f64>>(tensor),
        DType::Bool => Ok(tensor.to_vec::<bool>()?.into_iter().map(u8::from).collect()),
    }
}

/// Refuses sizes that no tensor has before they are multiplied.
pub fn sizes(list: impl IntoIterator<Item = Option<usize>>) -> Result<Vec<usize>> {
    let sizes: Option<Vec<usize>> = list.into_iter().collect();
    match sizes {
        Some(sizes) if sizes.len() <= 32 => Ok(sizes),
        _ => bail!("its shape is not a short list of sizes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_type_goes_there_and_back() {
        for dtype in DType::ALL {
            let before: Vec<u8> = (0..6 * dtype.size()).map(|i| (i % 2) as u8).collect();
            let there = tensor(&before, dtype, &[2, 3]).unwrap();
            assert_eq!((there.dtype(), there.shape()), (dtype, &[2, 3][..]));
            assert_eq!(bytes(&there).unwrap(), before, "{dtype}");
        }
    }

    #[test]
    fn bytes_that_do_not_fit_are_refused() {
        assert!(tensor(&[0; 7], DType::F32, &[2]).is_err());
        assert!(tensor(&[0; 8], DType::F32, &[usize::MAX, 4]).is_err());
        assert!(tensor(&[2], DType::Bool, &[1]).is_err());
        assert_eq!(tensor(&[], DType::F32, &[0, 5]).unwrap().len(), 0);
        assert!(sizes([Some(1); 40]).is_err() && sizes([None]).is_err());
    }
}
