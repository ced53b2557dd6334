//! What a CPU kernel reads and writes.

use std::marker::PhantomData;

use crate::ops::TensorDesc;
use crate::tensor::Element;

/// An operand's memory: the address of element `[0, 0, …]` and its description.
///
/// The memory is valid for every index inside the description's shape for as long as `'a` lasts: operands are
/// only made from checked views. An output's memory overlaps no other operand, except that in an in-place call
/// (see [`crate::ops::Workload::in_place`]) inputs may be exactly the output.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    first: *mut u8,
    desc: &'a TensorDesc,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: an operand stands for borrowed memory of plain numbers; kernels split it between threads themselves.
unsafe impl Send for Operand<'_> {}
// SAFETY: as above; writing through a shared operand takes an unsafe block with its own argument.
unsafe impl Sync for Operand<'_> {}

impl<'a> Operand<'a> {
    #[inline]
    pub(crate) fn new(first: *mut u8, desc: &'a TensorDesc) -> Self {
        Self { first, desc, memory: PhantomData }
    }

    /// Element type, shape and strides.
    #[inline]
    pub fn desc(&self) -> &'a TensorDesc {
        self.desc
    }

    /// Elements along each axis.
    #[inline]
    pub fn shape(&self) -> &'a [usize] {
        &self.desc.shape
    }

    /// Distance between neighbours along each axis, in elements.
    #[inline]
    pub fn strides(&self) -> &'a [isize] {
        &self.desc.strides
    }

    /// The address of element `[0, 0, …]`.
    #[inline]
    pub fn ptr<T: Element>(&self) -> *const T {
        debug_assert_eq!(T::DTYPE, self.desc.dtype);
        self.first.cast()
    }

    /// The address of element `[0, 0, …]`, whatever its type.
    #[inline]
    pub fn ptr_bytes(&self) -> *mut u8 {
        self.first
    }

    /// The address of element `[0, 0, …]`, to be written if this is an output.
    #[inline]
    pub fn ptr_mut<T: Element>(&self) -> *mut T {
        debug_assert_eq!(T::DTYPE, self.desc.dtype);
        self.first.cast()
    }

    /// The address of element `[0, 0, …]`, whatever its type.
    #[inline]
    pub fn address(&self) -> *mut u8 {
        self.first
    }

    /// The elements, if they are contiguous and of type `T`.
    #[inline]
    pub(crate) fn slice<T: Element + bytemuck::AnyBitPattern>(&self) -> Option<&'a [T]> {
        if self.desc.dtype != T::DTYPE || !self.desc.is_contiguous() || !self.first.cast::<T>().is_aligned() {
            return None;
        }
        let len = self.desc.len();
        if len == 0 {
            return Some(&[]);
        }
        // SAFETY: a contiguous description covers exactly `len` valid elements, any bits are a `T`, and
        // `Call::input` asks only for inputs that are not the memory of the output.
        Some(unsafe { std::slice::from_raw_parts(self.first.cast(), len) })
    }

    /// The elements to be written, if they are contiguous and of type `T`.
    #[inline]
    pub(crate) fn slice_mut<T: Element + bytemuck::AnyBitPattern>(&mut self) -> Option<&mut [T]> {
        if self.desc.dtype != T::DTYPE || !self.desc.is_contiguous() || !self.first.cast::<T>().is_aligned() {
            return None;
        }
        let len = self.desc.len();
        if len == 0 {
            return Some(&mut []);
        }
        // SAFETY: as in `slice`; the output is borrowed mutably by the call and `&mut self` keeps it single.
        Some(unsafe { std::slice::from_raw_parts_mut(self.first.cast(), len) })
    }
}
