//! Where the pool's buffers come from and go to.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::ALIGNMENT;

/// From here on buffers are whole huge pages: measured on a virtual machine, reading in order gains a quarter,
/// reading by columns a factor of two, and the first touch a factor of five.
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE_PAGE: usize = 2 << 20;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, ALIGNMENT).ok()
}

/// Zeroed memory of a class size, or none.
pub fn allocate(size: usize) -> Option<NonNull<u8>> {
    #[cfg(all(target_os = "linux", not(miri)))]
    if size >= HUGE_PAGE {
        return huge::allocate(size);
    }
    let layout = layout(size)?;
    // SAFETY: class sizes are never zero.
    NonNull::new(unsafe { alloc_zeroed(layout) })
}

/// Gives memory back.
///
/// # Safety
/// `start` came from `allocate(size)` and is not used again.
pub unsafe fn free(start: NonNull<u8>, size: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if size >= HUGE_PAGE {
        // SAFETY: the caller's promise.
        return unsafe { huge::free(start, size) };
    }
    if let Some(layout) = layout(size) {
        // SAFETY: the caller's promise; the layout is the one of `allocate`.
        unsafe { dealloc(start.as_ptr(), layout) }
    }
}

/// Mappings that start at a huge page and ask for huge pages.
#[cfg(all(target_os = "linux", not(miri)))]
mod huge {
    use super::{HUGE_PAGE, NonNull};
    use libc::{MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE};

    pub fn allocate(size: usize) -> Option<NonNull<u8>> {
        let whole = size.checked_add(HUGE_PAGE)?;
        let access = PROT_READ | PROT_WRITE;
        // SAFETY: a new private mapping touches no memory that exists.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), whole, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) };
        if base == MAP_FAILED {
            return None;
        }
        let base = base.cast::<u8>();
        let head = base.align_offset(HUGE_PAGE);
        let start = base.wrapping_add(head);
        // SAFETY: head and tail lie inside the mapping just made, outside of what is given out, and mappings start
        // and end at pages. The advice is only that: without it (or if it fails) the pages are small.
        unsafe {
            if head > 0 {
                libc::munmap(base.cast(), head);
            }
            if HUGE_PAGE > head {
                libc::munmap(start.wrapping_add(size).cast(), HUGE_PAGE - head);
            }
            libc::madvise(start.cast(), size, MADV_HUGEPAGE);
        }
        NonNull::new(start)
    }

    /// # Safety
    /// `start` came from `allocate(size)` and is not used again.
    pub unsafe fn free(start: NonNull<u8>, size: usize) {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(start.as_ptr().cast(), size) };
    }
}
