//! From and to `ndarray`, without copying where the layout allows.
#![cfg(feature = "ndarray")]

use ndarray::{Array, ArrayD, ArrayRef, ArrayViewD, Dimension, IxDyn};

use super::{Element, Layout, Shape, Strides, Tensor, TensorView};
use crate::error::{Error, Result};

impl Tensor {
    /// Takes over an array: no copy when it is in row-major order and owns exactly its elements.
    pub fn from_ndarray<T: Element, D: Dimension>(array: Array<T, D>) -> Result<Self> {
        let shape = array.shape().to_vec();
        if array.is_standard_layout() {
            let len = array.len();
            let (values, offset) = array.into_raw_vec_and_offset();
            if values.len() == len && offset.unwrap_or(0) == 0 {
                return Self::from_vec(values, &shape);
            }
            let start = offset.unwrap_or(0);
            return Self::from_slice(&values[start..start + len], &shape);
        }
        Self::from_vec(array.iter().copied().collect(), &shape)
    }

    /// An owned array with the same elements.
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        ArrayD::from_shape_vec(IxDyn(self.shape()), self.to_vec()?).map_err(|e| foreign(&e))
    }
}

impl<'a> TensorView<'a> {
    /// A view of an array's memory, in any order of its axes.
    ///
    /// An array with gaps or negative strides gives an error, because its gaps may be borrowed by somebody else: view the whole
    /// array and [slice](Self::slice) the view instead, or copy with [`Tensor::from_ndarray`].
    pub fn from_ndarray<T: Element, D: Dimension>(array: &'a ArrayRef<T, D>) -> Result<Self> {
        let Some(values) = array.as_slice_memory_order() else {
            return Err(Error::NotContiguous);
        };
        if array.strides().iter().any(|&s| s < 0) {
            return Err(Error::NotContiguous);
        }
        let layout =
            Layout { shape: Shape::new(array.shape())?, strides: Strides::new(array.strides())?, offset: 0 };
        Self::from_slice_strided(values, layout)
    }

    /// An `ndarray` view of the same memory, for layouts without negative strides.
    pub fn as_ndarray<T: Element>(&self) -> Result<ArrayViewD<'a, T>> {
        use ndarray::ShapeBuilder;
        let contiguous = Layout { offset: self.layout().offset, ..Layout::contiguous(self.layout().shape) };
        if let Ok(values) = self.as_slice::<T>() {
            return ArrayViewD::from_shape(IxDyn(&contiguous.shape), values).map_err(|e| foreign(&e));
        }
        if self.strides().iter().any(|&s| s < 0) {
            return Err(Error::NotContiguous);
        }
        let strides: Vec<usize> = self.strides().iter().map(|&s| s as usize).collect();
        let values = self.elements_from_offset::<T>()?;
        ArrayViewD::from_shape(IxDyn(self.shape()).strides(IxDyn(&strides)), values).map_err(|e| foreign(&e))
    }
}

fn foreign(error: &ndarray::ShapeError) -> Error {
    Error::InvalidArgument { operation: "ndarray", reason: format!("ndarray refuses the layout: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, arr2};

    #[test]
    fn arrays_come_and_go() {
        let array = Array2::from_shape_fn((2, 3), |(i, j)| (i * 3 + j) as f32);
        let address = array.as_ptr();
        let tensor = Tensor::from_ndarray(array.clone()).unwrap();
        assert_eq!(tensor.to_ndarray::<f32>().unwrap(), array.clone().into_dyn());
        let taken = Tensor::from_ndarray(array).unwrap();
        assert_eq!(taken.as_slice::<f32>().unwrap().as_ptr(), address);
    }

    #[test]
    fn parts_of_arrays_are_parts_of_their_views() {
        let array = Array2::from_shape_fn((4, 6), |(i, j)| (i * 6 + j) as f32);
        let part = array.slice(ndarray::s![1..3, ..;2]);
        assert!(matches!(TensorView::from_ndarray(&part), Err(Error::NotContiguous)));
        let whole = TensorView::from_ndarray(&array).unwrap();
        let view = whole.slice(0, 1, 3, 1).unwrap().slice(1, 0, 6, 2).unwrap();
        assert_eq!(view.as_ndarray::<f32>().unwrap(), part.into_dyn());
        let copied = Tensor::from_ndarray(part.to_owned()).unwrap();
        assert_eq!(copied.to_vec::<f32>().unwrap(), view.to_vec::<f32>().unwrap());
    }

    #[test]
    fn transposed_arrays_are_viewed_without_copying() {
        let array = arr2(&[[1.0f64, 2.0], [3.0, 4.0], [5.0, 6.0]]);
        let t = array.t();
        let view = TensorView::from_ndarray(&t).unwrap();
        assert_eq!(view.shape(), [2, 3]);
        assert_eq!(view.to_vec::<f64>().unwrap(), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
        assert_eq!(view.as_ndarray::<f64>().unwrap(), t.into_dyn());
    }
}
