//! The tensor that owns (or shares) its memory.

use std::fmt;
use std::sync::Arc;

use super::view::{Peeked, checked_cast, element, expect};
use super::{DType, Element, Layout, Shape, TensorView, TensorViewMut, Word};
use crate::backends::cpu::{HostBuffer, MemoryPool};
use crate::error::{Error, Result};

/// Elements of one type under a shape. Views such as [`Tensor::transpose`] share the memory; cloning does too.
///
/// ```
/// use shapewise::Tensor;
/// let t = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
/// assert_eq!(t.transpose().to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    storage: Arc<HostBuffer>,
    dtype: DType,
    layout: Layout,
    /// Type, alignment and layout again.
    word: Word,
}

impl Tensor {
    /// Takes over a vector without copying it.
    pub fn from_vec<T: Element>(values: Vec<T>, shape: &[usize]) -> Result<Self> {
        let shape = fitting(shape, values.len())?;
        let storage = Arc::new(HostBuffer::from_vec(values));
        Ok(Self::of(storage, T::DTYPE, Layout::contiguous(shape)))
    }

    /// Copies a slice.
    pub fn from_slice<T: Element>(values: &[T], shape: &[usize]) -> Result<Self> {
        let shape = fitting(shape, values.len())?;
        let mut tensor = Self::uninitialised(MemoryPool::global(), &shape, T::DTYPE)?;
        tensor.bytes_mut()?.copy_from_slice(bytemuck::cast_slice(values));
        Ok(tensor)
    }

    /// One element, no axes.
    pub fn scalar<T: Element>(value: T) -> Self {
        let layout = Layout::contiguous(Shape::filled(0, 0));
        Self::of(Arc::new(HostBuffer::from_vec(vec![value])), T::DTYPE, layout)
    }

    /// All zeros.
    pub fn zeros(shape: &[usize], dtype: DType) -> Result<Self> {
        let mut tensor = Self::uninitialised(MemoryPool::global(), &Shape::new(shape)?, dtype)?;
        tensor.bytes_mut()?.fill(0);
        Ok(tensor)
    }

    /// Every element `value`.
    pub fn full<T: Element>(value: T, shape: &[usize]) -> Result<Self> {
        let len = Shape::new(shape)?.elements()?;
        let mut tensor = Self::uninitialised(MemoryPool::global(), &Shape::new(shape)?, T::DTYPE)?;
        let size = size_of::<T>();
        let bytes = tensor.bytes_mut()?;
        for i in 0..len {
            bytes[i * size..(i + 1) * size].copy_from_slice(bytemuck::bytes_of(&value));
        }
        Ok(tensor)
    }

    /// Memory from a pool that the caller is about to overwrite: it holds whatever was there last.
    #[inline]
    pub(crate) fn uninitialised(pool: &MemoryPool, shape: &Shape, dtype: DType) -> Result<Self> {
        let bytes = shape
            .elements()?
            .checked_mul(dtype.size())
            .filter(|&n| isize::try_from(n).is_ok())
            .ok_or_else(|| Error::SizeOverflow { shape: shape.to_vec() })?;
        let storage = Arc::new(HostBuffer::Pool(pool.take(bytes)?));
        Ok(Self::of(storage, dtype, Layout::contiguous(*shape)))
    }

    /// Elements in memory that holds the layout.
    #[inline]
    fn of(storage: Arc<HostBuffer>, dtype: DType, layout: Layout) -> Self {
        let first = element(storage.bytes().as_ptr().cast_mut(), dtype, &layout);
        Self { word: Word::of(dtype, first, &layout), storage, dtype, layout }
    }

    /// The same memory under another layout that it holds.
    fn laid_out(&self, layout: Layout) -> Self {
        Self::of(Arc::clone(&self.storage), self.dtype, layout)
    }

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Elements along each axis.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// Distance between neighbours along each axis, in elements.
    pub fn strides(&self) -> &[isize] {
        &self.layout.strides
    }

    /// Shape, strides and offset.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.layout.shape.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// Whether elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// A borrowed view.
    #[inline]
    pub fn view(&self) -> TensorView<'_> {
        TensorView::from(self)
    }

    /// The memory that holds the layout.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.storage.bytes()
    }

    /// The address of element `[0, 0, …]`.
    #[inline]
    pub(crate) fn view_first(&self) -> *const u8 {
        element(self.storage.bytes().as_ptr().cast_mut(), self.dtype, &self.layout)
    }

    /// The address of element `[0, 0, …]`, for code outside Rust; an error while other tensors share the memory.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> Result<*mut u8> {
        let Some(storage) = HostBuffer::sole(&mut self.storage) else { return Err(SHARED) };
        Ok(element(storage.bytes_mut().as_mut_ptr(), self.dtype, &self.layout))
    }

    /// What a short call looks at.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Peeked {
        Peeked { first: self.view_first().cast_mut(), word: self.word }
    }

    /// The same of a result, unless other tensors share the memory.
    #[inline(always)]
    pub(crate) fn peek_mut(&mut self) -> Option<Peeked> {
        let start = HostBuffer::sole(&mut self.storage)?.bytes_mut().as_mut_ptr();
        Some(Peeked { first: element(start, self.dtype, &self.layout), word: self.word })
    }

    /// A borrowed view to be written; an error while other tensors share the memory.
    #[inline(always)]
    pub fn view_mut(&mut self) -> Result<TensorViewMut<'_>> {
        let Some(storage) = HostBuffer::sole(&mut self.storage) else { return Err(SHARED) };
        TensorViewMut::of_tensor(storage.bytes_mut(), self.dtype, &self.layout, self.word)
    }

    /// The last two axes exchanged, sharing the memory.
    #[must_use]
    pub fn transpose(&self) -> Self {
        self.laid_out(self.layout.transpose())
    }

    /// The axes in another order, sharing the memory.
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        Ok(self.laid_out(self.layout.permute(order)?))
    }

    /// Elements `start..end` of an axis in steps of `step`, sharing the memory.
    pub fn slice(&self, axis: usize, start: usize, end: usize, step: isize) -> Result<Self> {
        Ok(self.laid_out(self.layout.slice(axis, start, end, step)?))
    }

    /// Repeats axes of size one up to `shape`, sharing the memory.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Self> {
        Ok(self.laid_out(self.layout.broadcast_to(&Shape::new(shape)?)?))
    }

    /// Another shape for the same elements; copies only where strides cannot express it.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        if let Some(layout) = self.layout.reshape(shape)? {
            return Ok(self.laid_out(layout));
        }
        self.to_contiguous()?.reshape(shape)
    }

    /// The same elements in row-major order without gaps; copies only if they are not so already.
    pub fn to_contiguous(&self) -> Result<Self> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        let mut out = Self::uninitialised(MemoryPool::global(), &self.layout.shape, self.dtype)?;
        self.view().copy_bytes(out.bytes_mut()?);
        Ok(out)
    }

    /// The elements as a slice, if they are contiguous and of type `T`.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.view().as_slice()
    }

    /// The elements to be written, if they are contiguous, of type `T` and not shared.
    pub fn as_mut_slice<T: Element + bytemuck::AnyBitPattern>(&mut self) -> Result<&mut [T]> {
        expect::<T>("as_mut_slice", self.dtype)?;
        if !self.is_contiguous() {
            return Err(Error::NotContiguous);
        }
        let (start, len) = (self.layout.offset * size_of::<T>(), self.len() * size_of::<T>());
        let bytes = HostBuffer::sole(&mut self.storage).ok_or(SHARED)?.bytes_mut();
        if len == 0 {
            return Ok(&mut []);
        }
        bytemuck::try_cast_slice_mut(&mut bytes[start..start + len]).map_err(|error| Error::InvalidArgument {
            operation: "as_mut_slice",
            reason: format!("the memory cannot be written as {}: {error}", T::DTYPE),
        })
    }

    /// The elements in row-major order.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        self.view().to_vec()
    }

    /// The elements as a vector: the very one given to [`Tensor::from_vec`] where it is still whole and unshared.
    pub fn into_vec<T: Element>(self) -> Result<Vec<T>> {
        expect::<T>("into_vec", self.dtype)?;
        let whole = self.layout.offset == 0
            && self.is_contiguous()
            && self.len() * self.dtype.size() == self.storage.bytes().len();
        if !whole {
            return self.to_vec();
        }
        let Self { storage, .. } = self;
        match Arc::try_unwrap(storage) {
            Ok(buffer) => match buffer.into_vec::<T>() {
                Ok(values) => Ok(values),
                Err(buffer) => Ok(checked_cast(buffer.bytes())?.to_vec()),
            },
            Err(shared) => Ok(checked_cast(shared.bytes())?.to_vec()),
        }
    }

    /// The only element of a tensor that has exactly one.
    pub fn item<T: Element>(&self) -> Result<T> {
        let none = || Error::ShapeMismatch {
            operation: "item",
            reason: format!("{} has {} elements, not one", self.layout.shape, self.len()),
        };
        if self.len() != 1 {
            return Err(none());
        }
        self.to_vec::<T>()?.pop().ok_or_else(none)
    }

    pub(crate) fn bytes_mut(&mut self) -> Result<&mut [u8]> {
        Ok(HostBuffer::sole(&mut self.storage).ok_or(SHARED)?.bytes_mut())
    }
}

const SHARED: Error = Error::NotWritable {
    operation: "view_mut",
    reason: "shares its memory with another tensor; drop that one, or copy with `deep_clone`",
};

/// The shape, if it has exactly `len` elements.
fn fitting(shape: &[usize], len: usize) -> Result<Shape> {
    let shape = Shape::new(shape)?;
    let wanted = shape.elements()?;
    if wanted == len {
        return Ok(shape);
    }
    Err(Error::ShapeMismatch {
        operation: "from_vec",
        reason: format!("{len} values were given for the shape {shape}, which has {wanted} elements"),
    })
}

impl Tensor {
    /// A copy with memory of its own, row-major.
    pub fn deep_clone(&self) -> Result<Self> {
        let mut out = Self::uninitialised(MemoryPool::global(), &self.layout.shape, self.dtype)?;
        self.view().copy_bytes(out.bytes_mut()?);
        Ok(out)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {})", self.dtype, self.layout.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_without_a_copy() {
        let values = vec![1.0f32; 12];
        let address = values.as_ptr();
        let tensor = Tensor::from_vec(values, &[3, 4]).unwrap();
        let back = tensor.into_vec::<f32>().unwrap();
        assert_eq!(back.as_ptr(), address);
    }

    #[test]
    fn views_share_and_do_not_write() {
        let mut a = Tensor::from_vec((0..6i32).collect(), &[2, 3]).unwrap();
        let t = a.transpose();
        assert_eq!(t.shape(), [3, 2]);
        assert!(matches!(a.view_mut(), Err(Error::NotWritable { .. })));
        drop(t);
        a.as_mut_slice::<i32>().unwrap()[0] = 9;
        assert_eq!(a.slice(1, 0, 3, 2).unwrap().to_vec::<i32>().unwrap(), [9, 2, 3, 5]);
        assert_eq!(a.slice(1, 0, 3, -1).unwrap().to_vec::<i32>().unwrap(), [2, 1, 9, 5, 4, 3]);
    }

    #[test]
    fn a_broadcast_view_cannot_be_written() {
        let mut wide = Tensor::scalar(1.0f64).broadcast_to(&[2, 2]).unwrap();
        assert!(matches!(wide.view_mut(), Err(Error::NotWritable { .. })));
        assert_eq!(wide.to_vec::<f64>().unwrap(), [1.0; 4]);
    }

    #[test]
    fn empty_scalar_and_wrong_shapes() {
        assert_eq!(Tensor::zeros(&[0, 5], DType::F32).unwrap().len(), 0);
        assert_eq!(Tensor::scalar(7u8).item::<u8>().unwrap(), 7);
        assert!(Tensor::from_vec(vec![1u8, 2], &[3]).is_err());
        assert!(matches!(Tensor::zeros(&[usize::MAX, 3], DType::U8), Err(Error::SizeOverflow { .. })));
        assert!(matches!(Tensor::zeros(&[usize::MAX / 8], DType::C64), Err(Error::SizeOverflow { .. })));
        assert!(Tensor::scalar(1i8).to_vec::<u8>().is_err());
    }

    #[test]
    fn reshape_copies_only_when_it_must() {
        let a = Tensor::from_vec((0..12i64).collect(), &[3, 4]).unwrap();
        assert_eq!(
            a.reshape(&[2, 6]).unwrap().as_slice::<i64>().unwrap().as_ptr(),
            a.as_slice::<i64>().unwrap().as_ptr()
        );
        let t = a.transpose().reshape(&[12]).unwrap();
        assert_eq!(t.to_vec::<i64>().unwrap(), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
    }
}
