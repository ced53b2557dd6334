//! Borrowed views: what operations take and kernels see.

use std::ops::Deref;

use super::{DType, Element, Layout, Shape, Tensor, Word};
use crate::backends::cpu::MemoryError;
use crate::error::{Error, Result};

/// A view's layout: the tensor's own, or another one. Layouts are large, and a small call should not copy them.
#[derive(Clone, Copy, Debug)]
enum Placed<'a> {
    Tensor(&'a Layout),
    Own(Layout),
}

impl Deref for Placed<'_> {
    type Target = Layout;

    #[inline]
    fn deref(&self) -> &Layout {
        match self {
            Self::Tensor(layout) => layout,
            Self::Own(layout) => layout,
        }
    }
}

/// A borrowed, read-only tensor.
#[derive(Clone, Copy, Debug)]
pub struct TensorView<'a>(Seen<'a>);

/// A whole tensor is looked at where it lies: what a short call need not know is not even read.
#[derive(Clone, Copy, Debug)]
enum Seen<'a> {
    Tensor(&'a Tensor),
    Memory {
        bytes: &'a [u8],
        dtype: DType,
        layout: Placed<'a>,
        /// Type, alignment and layout again.
        word: Word,
    },
}

/// A borrowed tensor that may be written.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    bytes: &'a mut [u8],
    dtype: DType,
    layout: Placed<'a>,
    /// Type, alignment and layout again.
    word: Word,
}

macro_rules! describe {
    () => {
        /// Elements along each axis.
        #[inline]
        pub fn shape(&self) -> &[usize] {
            &self.layout().shape
        }

        /// Distance between neighbours along each axis, in elements.
        #[inline]
        pub fn strides(&self) -> &[isize] {
            &self.layout().strides
        }

        /// Number of axes.
        #[inline]
        pub fn rank(&self) -> usize {
            self.layout().shape.len()
        }

        /// Number of elements.
        #[inline]
        pub fn len(&self) -> usize {
            self.layout().len()
        }

        /// Whether there are no elements.
        pub fn is_empty(&self) -> bool {
            self.layout().is_empty()
        }
    };
}

/// Views outside what `bytes` holds cannot be made: checks `layout` against it.
fn checked(bytes: &[u8], dtype: DType, layout: &Layout) -> Result<()> {
    layout.check(bytes.len() / dtype.size())
}

/// Nothing is written through a layout that repeats elements.
#[inline]
fn writable(layout: &Layout) -> Result<()> {
    if layout.is_contiguous() || !layout.overlaps_itself() {
        return Ok(());
    }
    Err(Error::NotWritable {
        operation: "view",
        reason: "repeats elements (a broadcast view); write into a tensor of its own",
    })
}

impl<'a> TensorView<'a> {
    describe!();

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        match &self.0 {
            Seen::Tensor(tensor) => tensor.dtype(),
            Seen::Memory { dtype, .. } => *dtype,
        }
    }

    /// Shape, strides and offset.
    #[inline]
    pub fn layout(&self) -> &Layout {
        match &self.0 {
            Seen::Tensor(tensor) => tensor.layout(),
            Seen::Memory { layout, .. } => layout,
        }
    }

    /// The memory that holds the layout.
    #[inline]
    fn bytes(&self) -> &'a [u8] {
        match &self.0 {
            Seen::Tensor(tensor) => tensor.bytes(),
            Seen::Memory { bytes, .. } => bytes,
        }
    }

    /// A view of a slice, row-major.
    pub fn from_slice<T: Element>(values: &'a [T], shape: &[usize]) -> Result<Self> {
        Self::from_slice_strided(values, Layout::contiguous(Shape::new(shape)?))
    }

    /// A view of a slice under any layout that lies inside it.
    pub fn from_slice_strided<T: Element>(values: &'a [T], layout: Layout) -> Result<Self> {
        Self::new(bytemuck::cast_slice(values), T::DTYPE, layout)
    }

    /// A view of memory that another library or file gave, aligned for its elements; truth values must be 0 or 1.
    pub fn from_bytes(bytes: &'a [u8], dtype: DType, layout: Layout) -> Result<Self> {
        if dtype == DType::Bool {
            checked_cast::<bool>(bytes)?;
        }
        let alignment = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
        if !bytes.is_empty() && !bytes.as_ptr().addr().is_multiple_of(alignment) {
            let reason = format!("the memory is not aligned for {dtype}; copy it into a tensor");
            return Err(Error::InvalidArgument { operation: "view", reason });
        }
        Self::new(bytes, dtype, layout)
    }

    pub(crate) fn new(bytes: &'a [u8], dtype: DType, layout: Layout) -> Result<Self> {
        checked(bytes, dtype, &layout)?;
        Ok(Self::of(bytes, dtype, layout))
    }

    /// A view of memory that holds the layout.
    #[inline]
    fn of(bytes: &'a [u8], dtype: DType, layout: Layout) -> Self {
        let word = Word::of(dtype, element(bytes.as_ptr().cast_mut(), dtype, &layout), &layout);
        Self(Seen::Memory { bytes, dtype, layout: Placed::Own(layout), word })
    }

    /// The same memory under another layout.
    pub fn with_layout(&self, layout: Layout) -> Result<Self> {
        Self::new(self.bytes(), self.dtype(), layout)
    }

    /// The same bytes as elements of the type that stands for all of this size.
    pub(crate) fn as_plain(&self) -> Self {
        let (bytes, dtype) = (self.bytes(), self.dtype().plain());
        match self.0 {
            Seen::Tensor(tensor) => {
                let word = tensor.peek().word.with_dtype(dtype);
                Self(Seen::Memory { bytes, dtype, layout: Placed::Tensor(tensor.layout()), word })
            }
            Seen::Memory { layout, word, .. } => {
                Self(Seen::Memory { bytes, dtype, layout, word: word.with_dtype(dtype) })
            }
        }
    }

    /// The last two axes exchanged.
    #[must_use]
    pub fn transpose(&self) -> Self {
        Self::of(self.bytes(), self.dtype(), self.layout().transpose())
    }

    /// The axes in another order.
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        Ok(Self::of(self.bytes(), self.dtype(), self.layout().permute(order)?))
    }

    /// Elements `start..end` of an axis in steps of `step`.
    pub fn slice(&self, axis: usize, start: usize, end: usize, step: isize) -> Result<Self> {
        Ok(Self::of(self.bytes(), self.dtype(), self.layout().slice(axis, start, end, step)?))
    }

    /// Repeats axes of size one up to `shape`.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Self> {
        Ok(Self::of(self.bytes(), self.dtype(), self.layout().broadcast_to(&Shape::new(shape)?)?))
    }

    /// The first element's address; meaningless for an empty view.
    #[inline]
    pub(crate) fn first(&self) -> *const u8 {
        element(self.bytes().as_ptr().cast_mut(), self.dtype(), self.layout())
    }

    /// What a short call looks at.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Peeked {
        match &self.0 {
            Seen::Tensor(tensor) => tensor.peek(),
            Seen::Memory { word, .. } => Peeked { first: self.first().cast_mut(), word: *word },
        }
    }

    /// The elements as a slice, if they are contiguous and of type `T`.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        expect::<T>("as_slice", self.dtype())?;
        contiguous_slice(self.bytes(), self.layout())
    }

    /// The storage from the first element on.
    #[cfg(feature = "ndarray")]
    pub(super) fn elements_from_offset<T: Element>(&self) -> Result<&'a [T]> {
        expect::<T>("as_ndarray", self.dtype())?;
        checked_cast(self.bytes().get(self.layout().offset * size_of::<T>()..).unwrap_or_default())
    }

    /// The elements in row-major order.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        expect::<T>("to_vec", self.dtype())?;
        if let Ok(values) = contiguous_slice::<T>(self.bytes(), self.layout()) {
            return Ok(values.to_vec());
        }
        let values = checked_cast::<T>(self.bytes())?;
        let mut out = Vec::new();
        // A broadcast view may have far more elements than there is memory.
        out.try_reserve_exact(self.len()).map_err(|_| MemoryError::OutOfMemory {
            requested: self.len().saturating_mul(self.dtype().size()),
        })?;
        self.for_each_run(|start, count, stride| {
            out.extend((0..count).map(|i| values[start.wrapping_add_signed(stride * i as isize)]));
        });
        Ok(out)
    }

    /// Calls `run(first, count, stride)` for each innermost line, in row-major order.
    pub(crate) fn for_each_run(&self, mut run: impl FnMut(usize, usize, isize)) {
        if self.is_empty() {
            return;
        }
        let merged = self.layout().merged();
        let (Some((&count, outer)), Some((&stride, outer_strides))) =
            (merged.shape.split_last(), merged.strides.split_last())
        else {
            return run(merged.offset, 1, 1);
        };
        let mut index = [0usize; super::MAX_RANK];
        let mut at = merged.offset;
        loop {
            run(at, count, stride);
            let mut axis = outer.len();
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                at = at.wrapping_add_signed(outer_strides[axis]);
                if index[axis] < outer[axis] {
                    break;
                }
                at = at.wrapping_add_signed(-outer_strides[axis] * outer[axis] as isize);
                index[axis] = 0;
            }
        }
    }

    /// Copies the elements in row-major order into `out`, which holds exactly as many bytes.
    pub(crate) fn copy_bytes(&self, out: &mut [u8]) {
        let size = self.dtype().size();
        let mut written = 0;
        self.for_each_run(|start, count, stride| {
            let target = &mut out[written..written + count * size];
            if stride == 1 {
                target.copy_from_slice(&self.bytes()[start * size..(start + count) * size]);
            } else {
                for (i, element) in target.chunks_exact_mut(size).enumerate() {
                    let from = start.wrapping_add_signed(stride * i as isize) * size;
                    element.copy_from_slice(&self.bytes()[from..from + size]);
                }
            }
            written += count * size;
        });
    }
}

impl<'a> TensorViewMut<'a> {
    describe!();

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape, strides and offset.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A view of a slice, row-major.
    pub fn from_slice<T: Element + bytemuck::AnyBitPattern>(
        values: &'a mut [T],
        shape: &[usize],
    ) -> Result<Self> {
        Self::new(bytemuck::cast_slice_mut(values), T::DTYPE, Layout::contiguous(Shape::new(shape)?))
    }

    pub(crate) fn new(bytes: &'a mut [u8], dtype: DType, layout: Layout) -> Result<Self> {
        checked(bytes, dtype, &layout)?;
        writable(&layout)?;
        let word = Word::of(dtype, element(bytes.as_mut_ptr(), dtype, &layout), &layout);
        Ok(Self { bytes, dtype, layout: Placed::Own(layout), word })
    }

    /// A view whose layout was checked against the memory when its tensor was made.
    #[inline(always)]
    pub(super) fn of_tensor(
        bytes: &'a mut [u8],
        dtype: DType,
        layout: &'a Layout,
        word: Word,
    ) -> Result<Self> {
        debug_assert!(checked(bytes, dtype, layout).is_ok());
        writable(layout)?;
        Ok(Self { bytes, dtype, layout: Placed::Tensor(layout), word })
    }

    /// The same memory under another layout.
    pub fn with_layout(self, layout: Layout) -> Result<Self> {
        Self::new(self.bytes, self.dtype, layout)
    }

    /// The same bytes as elements of the type that stands for all of this size.
    pub(crate) fn into_plain(self) -> Self {
        let dtype = self.dtype.plain();
        Self { dtype, word: self.word.with_dtype(dtype), ..self }
    }

    /// The same view, to be read.
    pub fn as_view(&self) -> TensorView<'_> {
        TensorView(Seen::Memory {
            bytes: self.bytes,
            dtype: self.dtype,
            layout: self.layout,
            word: self.word,
        })
    }

    /// The same view, borrowed for a while.
    pub fn reborrow(&mut self) -> TensorViewMut<'_> {
        TensorViewMut { bytes: self.bytes, dtype: self.dtype, layout: self.layout, word: self.word }
    }

    /// The first element's address; meaningless for an empty view.
    #[inline]
    pub(crate) fn first(&mut self) -> *mut u8 {
        element(self.bytes.as_mut_ptr(), self.dtype, &self.layout)
    }
}

pub(super) fn expect<T: Element>(operation: &'static str, found: DType) -> Result<()> {
    if found == T::DTYPE {
        Ok(())
    } else {
        Err(Error::DTypeMismatch { operation, left: found, right: T::DTYPE })
    }
}

/// Bytes as elements; fails where truth values are neither 0 nor 1 or the memory is not aligned for `T`.
pub(super) fn checked_cast<T: Element>(bytes: &[u8]) -> Result<&[T]> {
    bytemuck::checked::try_cast_slice(bytes).map_err(|error| Error::InvalidArgument {
        operation: "view",
        reason: format!("the memory cannot be read as {}: {error}", T::DTYPE),
    })
}

fn contiguous_slice<'a, T: Element>(bytes: &'a [u8], layout: &Layout) -> Result<&'a [T]> {
    if !layout.is_contiguous() {
        return Err(Error::NotContiguous);
    }
    let size = size_of::<T>();
    let len = layout.len();
    if len == 0 {
        return Ok(&[]);
    }
    checked_cast(&bytes[layout.offset * size..(layout.offset + len) * size])
}

impl<'a> From<&'a Tensor> for TensorView<'a> {
    #[inline]
    fn from(tensor: &'a Tensor) -> Self {
        Self(Seen::Tensor(tensor))
    }
}

impl<'a> From<&TensorView<'a>> for TensorView<'a> {
    fn from(view: &TensorView<'a>) -> Self {
        *view
    }
}

impl<'a, T: Element> From<&'a [T]> for TensorView<'a> {
    fn from(values: &'a [T]) -> Self {
        Self::of(bytemuck::cast_slice(values), T::DTYPE, Layout::line(values.len()))
    }
}

/// The address of the first element.
#[inline(always)]
pub(super) fn element(bytes: *mut u8, dtype: DType, layout: &Layout) -> *mut u8 {
    // Most begin with their memory, and a foreseen branch is quicker than a product.
    if layout.offset == 0 { bytes } else { bytes.wrapping_add(layout.offset.wrapping_mul(dtype.size())) }
}

/// What a short call looks at instead of a view, which is larger.
#[derive(Clone, Copy)]
pub struct Peeked {
    pub(crate) first: *mut u8,
    pub(crate) word: Word,
}

/// What a result can be written into.
pub trait Output<'a> {
    /// The memory to write, or why it cannot be written.
    fn into_view_mut(self) -> Result<TensorViewMut<'a>>;

    /// What can be seen without a view, if nothing but a layout that repeats elements stands against writing.
    #[doc(hidden)]
    #[inline(always)]
    fn peek(&mut self) -> Option<Peeked> {
        None
    }
}

impl<'a> Output<'a> for TensorViewMut<'a> {
    #[inline]
    fn into_view_mut(self) -> Result<TensorViewMut<'a>> {
        Ok(self)
    }

    #[inline(always)]
    fn peek(&mut self) -> Option<Peeked> {
        Some(Peeked { first: self.first(), word: self.word })
    }
}

impl<'a> Output<'a> for &'a mut Tensor {
    // Views are large: one that is made where it is used is not copied.
    #[inline(always)]
    fn into_view_mut(self) -> Result<TensorViewMut<'a>> {
        self.view_mut()
    }

    #[inline(always)]
    fn peek(&mut self) -> Option<Peeked> {
        self.peek_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_memory_is_checked_before_it_is_read() {
        let numbers = [1.0f32, 2.0, 3.0, 4.0];
        let bytes = bytemuck::cast_slice(&numbers);
        let line = |n| Layout::contiguous(Shape::filled(n, 1));
        let view = TensorView::from_bytes(bytes, DType::F32, line(4)).unwrap();
        assert_eq!(view.to_vec::<f32>().unwrap(), numbers);
        assert!(TensorView::from_bytes(bytes, DType::F32, line(5)).is_err(), "too short");
        let odd = TensorView::from_bytes(&bytes[1..], DType::F32, line(3)).unwrap_err();
        assert!(odd.to_string().contains("aligned"), "{odd}");
        assert!(TensorView::from_bytes(&[1, 0, 1], DType::Bool, line(3)).is_ok());
        assert!(TensorView::from_bytes(&[1, 2], DType::Bool, line(2)).is_err(), "2 is no truth value");
        assert!(TensorView::from_bytes(&[], DType::F64, line(0)).is_ok());
    }
}
