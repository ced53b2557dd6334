//! Scratch memory on the stack, for calls that are over before the pool's locks would be.

use std::mem::MaybeUninit;

/// Bytes that begin with a cache line; nobody has written them yet.
#[repr(align(64))]
pub(crate) struct OnStack<const BYTES: usize>([MaybeUninit<u8>; BYTES]);

impl<const BYTES: usize> OnStack<BYTES> {
    #[inline(always)]
    #[allow(clippy::inline_always, clippy::large_stack_arrays)] // in the caller's frame, and threads have megabytes
    pub fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; BYTES])
    }

    /// Where they begin.
    #[inline]
    pub fn at<T>(&mut self) -> *mut T {
        const { assert!(align_of::<T>() <= 64, "the bytes are aligned to a cache line") };
        self.0.as_mut_ptr().cast()
    }
}
