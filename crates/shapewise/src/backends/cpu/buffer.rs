//! Host memory of tensors: from the reusing pool, or taken over from the user without a copy.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::PooledBytes;
use crate::tensor::Element;

/// Bytes that a tensor keeps alive.
pub enum HostBuffer {
    /// From the reusing pool.
    Pool(PooledBytes),
    /// Handed over by a user.
    Vec(ForeignVec),
}

/// A `Vec<T>` of any element type, seen as bytes.
pub struct ForeignVec {
    start: NonNull<u8>,
    len: usize,
    values: Box<dyn Any + Send + Sync>,
}

// SAFETY: `values` is Send, and the pointer only leads into the memory it owns.
unsafe impl Send for ForeignVec {}
// SAFETY: shared access only reads; writing needs `&mut self`.
unsafe impl Sync for ForeignVec {}

impl HostBuffer {
    /// Takes over a vector without copying it.
    pub fn from_vec<T: Element>(mut values: Vec<T>) -> Self {
        let start = NonNull::new(values.as_mut_ptr().cast::<u8>()).unwrap_or(NonNull::dangling());
        let len = size_of::<T>() * values.len();
        Self::Vec(ForeignVec { start, len, values: Box::new(values) })
    }

    /// The vector that was handed over, if this is one of that type.
    pub fn into_vec<T: Element>(self) -> Result<Vec<T>, Self> {
        match self {
            Self::Vec(ForeignVec { start, len, values }) => match values.downcast::<Vec<T>>() {
                Ok(values) => Ok(*values),
                Err(values) => Err(Self::Vec(ForeignVec { start, len, values })),
            },
            Self::Pool(_) => Err(self),
        }
    }

    /// The buffer to be written, if nobody else shares it.
    ///
    /// What [`Arc::get_mut`] does, without its locked instruction, which would wait until all that the last call wrote has
    /// reached the cache. That guards against weak references, and there are none of buffers.
    #[inline]
    pub fn sole(this: &mut Arc<Self>) -> Option<&mut Self> {
        debug_assert_eq!(Arc::weak_count(this), 0);
        if Arc::strong_count(this) != 1 {
            return None;
        }
        // Whoever shared it before is done with it.
        fence(Ordering::Acquire);
        // SAFETY: this is the only reference, strong or weak, and it is borrowed for as long as the result.
        Some(unsafe { &mut *Arc::as_ptr(this).cast_mut() })
    }

    /// All bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Pool(bytes) => bytes,
            // SAFETY: `start` and `len` describe initialised memory that `values` owns and nobody else writes.
            Self::Vec(v) => unsafe { std::slice::from_raw_parts(v.start.as_ptr(), v.len) },
        }
    }

    /// All bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pool(bytes) => bytes,
            // SAFETY: as in `bytes`, and `&mut self` is the only way to the memory.
            Self::Vec(v) => unsafe { std::slice::from_raw_parts_mut(v.start.as_ptr(), v.len) },
        }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pooled = matches!(self, Self::Pool(_));
        f.debug_struct("HostBuffer").field("bytes", &self.bytes().len()).field("pooled", &pooled).finish()
    }
}
