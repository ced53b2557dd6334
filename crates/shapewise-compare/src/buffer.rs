//! Buffers that treat every contestant alike: aligned, in huge pages when large, at staggered page offsets.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};

const HUGE_PAGE: usize = 2 << 20;
const CACHE_LINE: usize = 64;

/// A zeroed slice of f32 that starts on a cache line.
pub struct Buffer {
    block: *mut u8,
    layout: Layout,
    start: *mut f32,
    len: usize,
}

impl Buffer {
    /// `slot` numbers the buffers of one workload: each starts at another offset within its page, because equal
    /// offsets make stores collide with loads of the other arrays.
    pub fn zeroed(len: usize, slot: usize) -> Self {
        let offset = slot * 11 * CACHE_LINE;
        let bytes = len * size_of::<f32>() + offset + CACHE_LINE;
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { 4096 };
        let layout = Layout::from_size_align(bytes, align).expect("sizes are limited when the list is read");
        // SAFETY: the layout's size is not zero.
        let block = unsafe { alloc(layout) };
        if block.is_null() {
            handle_alloc_error(layout);
        }
        if align == HUGE_PAGE {
            // Before anything is written: pages that are there already stay small.
            // SAFETY: the range lies within the block just allocated; the advice changes no contents.
            unsafe { libc::madvise(block.cast(), bytes & !(HUGE_PAGE - 1), libc::MADV_HUGEPAGE) };
        }
        // SAFETY: the block has so many bytes.
        unsafe { block.write_bytes(0, bytes) };
        // SAFETY: the block has `offset` bytes before `len` elements.
        let start = unsafe { block.add(offset) }.cast();
        Self { block, layout, start, len }
    }

    /// Random values in [-1, 1), the same for the same seed.
    pub fn random(len: usize, slot: usize) -> Self {
        let mut random = Random::new(slot as u64 + 1);
        let mut buffer = Self::zeroed(len, slot);
        buffer.fill_with(|| random.signed());
        buffer
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout.
        unsafe { dealloc(self.block, self.layout) }
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        // SAFETY: `len` initialised elements from `start` belong to this buffer.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

/// A small xorshift generator: inputs need to be varied and repeatable, nothing more.
pub struct Random(u64);

impl Random {
    /// A generator for this seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) | 1);
        for _ in 0..8 {
            random.bits();
        }
        random
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform in [-1, 1).
    pub fn signed(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }

    /// A whole number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_staggered_and_repeatable() {
        for len in [1, 1000, 1_000_000] {
            let (a, b) = (Buffer::random(len, 0), Buffer::random(len, 1));
            assert_eq!(a.as_ptr() as usize % CACHE_LINE, 0);
            assert_ne!(a.as_ptr() as usize % 4096, b.as_ptr() as usize % 4096);
            assert_eq!(&a[..], &Buffer::random(len, 0)[..]);
            assert!(a.iter().all(|v| (-1.0..1.0).contains(v)));
        }
    }

    #[test]
    fn below_covers_its_range() {
        let mut random = Random::new(7);
        let mut seen = [false; 5];
        (0..100).for_each(|_| seen[random.below(5)] = true);
        assert_eq!(seen, [true; 5]);
    }
}
