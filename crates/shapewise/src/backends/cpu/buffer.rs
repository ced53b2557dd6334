//! Host memory of tensors: from the reusing pool, or taken over from the user without a copy.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

use super::PooledBytes;
use crate::tensor::Element;

/// Bytes that a tensor keeps alive.
pub struct HostBuffer {
    start: NonNull<u8>,
    len: usize,
    owner: Owner,
}

enum Owner {
    Pool(PooledBytes),
    /// A `Vec<T>` that was handed over.
    Vec(Box<dyn Any + Send + Sync>),
}

// SAFETY: the owner is Send and Sync, and the pointer only leads into the memory it owns.
unsafe impl Send for HostBuffer {}
// SAFETY: shared access only reads; writing needs `&mut self`.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Takes over a vector without copying it.
    pub fn from_vec<T: Element>(mut values: Vec<T>) -> Self {
        let start = NonNull::new(values.as_mut_ptr().cast::<u8>()).unwrap_or(NonNull::dangling());
        let len = size_of::<T>() * values.len();
        Self { start, len, owner: Owner::Vec(Box::new(values)) }
    }

    /// The vector that was handed over, if this is one of that type.
    pub fn into_vec<T: Element>(self) -> Result<Vec<T>, Self> {
        let Self { start, len, owner } = self;
        match owner {
            Owner::Vec(any) => match any.downcast::<Vec<T>>() {
                Ok(values) => Ok(*values),
                Err(any) => Err(Self { start, len, owner: Owner::Vec(any) }),
            },
            owner @ Owner::Pool(_) => Err(Self { start, len, owner }),
        }
    }

    /// All bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start` and `len` describe initialised memory that `owner` keeps alive and nobody else writes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// All bytes, to be written.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is the only way to the memory.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl From<PooledBytes> for HostBuffer {
    fn from(mut bytes: PooledBytes) -> Self {
        let start = NonNull::from(&mut bytes[..]).cast();
        Self { start, len: bytes.len(), owner: Owner::Pool(bytes) }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pooled = matches!(self.owner, Owner::Pool(_));
        f.debug_struct("HostBuffer").field("bytes", &self.len).field("pooled", &pooled).finish()
    }
}
