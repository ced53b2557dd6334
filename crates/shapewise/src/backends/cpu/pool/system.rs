//! Where the pool's buffers come from and go to.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::ALIGNMENT;
use super::placement::Placement;

/// From here on buffers are whole huge pages: measured on a virtual machine, reading in order gains a quarter,
/// reading by columns a factor of two, and the first touch a factor of five.
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE_PAGE: usize = 2 << 20;

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, ALIGNMENT).ok()
}

/// Zeroed memory of a class size, or none. Large buffers are placed; small ones share the pages of the program's heap.
pub fn allocate(size: usize, placement: &Placement) -> Option<NonNull<u8>> {
    #[cfg(all(target_os = "linux", not(miri)))]
    if size >= HUGE_PAGE {
        return huge::allocate(size, placement);
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = placement;
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

/// Whether the system places pages like this; the error says why not.
pub fn possible(placement: &Placement) -> Result<(), String> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        let start = huge::allocate(HUGE_PAGE, placement).ok_or("the system has no memory left")?;
        let bound = huge::bind(start, HUGE_PAGE, placement);
        // SAFETY: it was just allocated with this size and nobody else has it.
        unsafe { huge::free(start, HUGE_PAGE) };
        bound.map_err(|error| error.to_string())
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    match placement.plan {
        super::MemoryPlan::Default => Ok(()),
        _ => Err("only Linux is asked for large pages and nodes".into()),
    }
}

/// Mappings that start at a huge page and ask for huge pages.
#[cfg(all(target_os = "linux", not(miri)))]
mod huge {
    use super::super::MemoryPlan;
    use super::{HUGE_PAGE, NonNull, Placement};
    use libc::{MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE};

    pub fn allocate(size: usize, placement: &Placement) -> Option<NonNull<u8>> {
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
            if placement.large() {
                libc::madvise(start.cast(), size, MADV_HUGEPAGE);
            }
        }
        let start = NonNull::new(start)?;
        // `possible` has asked before; pages that are not bound after all are as good, only elsewhere.
        let _ = bind(start, size, placement);
        Some(start)
    }

    /// Binds the pages of a mapping to nodes before anyone touches them.
    pub fn bind(start: NonNull<u8>, size: usize, placement: &Placement) -> std::io::Result<()> {
        // Preferring no node in particular is preferring the one that touches a page first.
        let (mode, nodes, bits) = match placement.plan {
            MemoryPlan::Default | MemoryPlan::LargePages => return Ok(()),
            MemoryPlan::NumaLocal => (libc::MPOL_PREFERRED, std::ptr::null(), 0),
            // The system counts one bit less than it is told.
            MemoryPlan::Interleaved => {
                (libc::MPOL_INTERLEAVE, placement.nodes.as_ptr(), 64 * placement.nodes.len() + 1)
            }
        };
        // SAFETY: the mapping is ours, only its policy changes, and the mask outlives the call.
        let done = unsafe {
            libc::syscall(libc::SYS_mbind, start.as_ptr(), size, libc::c_long::from(mode), nodes, bits, 0)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// # Safety
    /// `start` came from `allocate(size)` and is not used again.
    pub unsafe fn free(start: NonNull<u8>, size: usize) {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(start.as_ptr().cast(), size) };
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::super::MemoryPlan;
    use super::*;

    /// The policy of the pages at an address, as the kernel tells it; `None` where it does not.
    fn policy(start: NonNull<u8>) -> Option<i32> {
        /// `MPOL_F_ADDR` of `linux/mempolicy.h`: ask about an address, not about the thread.
        const OF_ADDRESS: usize = 2;
        let mut mode = -1i32;
        let none = std::ptr::null_mut::<u64>();
        // SAFETY: the kernel writes one number to `mode`.
        let done = unsafe {
            libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, none, 0usize, start.as_ptr(), OF_ADDRESS)
        };
        (done == 0).then_some(mode)
    }

    /// Whether the mapping at an address asks for large pages.
    fn asks_for_large_pages(start: NonNull<u8>) -> Option<bool> {
        let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let address = start.as_ptr() as usize;
        let mut inside = false;
        for line in maps.lines() {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let ends = range.and_then(|(a, b)| {
                Some((usize::from_str_radix(a, 16).ok()?, usize::from_str_radix(b, 16).ok()?))
            });
            if let Some((from, to)) = ends {
                inside = (from..to).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
                return Some(flags.split_whitespace().any(|flag| flag == "hg"));
            }
        }
        None
    }

    #[test]
    fn pages_lie_as_the_plan_says() {
        // The second mode of a local policy is what newer kernels call it (`MPOL_LOCAL`).
        let plans: [(MemoryPlan, &[usize], bool, &[i32]); 4] = [
            (MemoryPlan::Default, &[0], false, &[0]),
            (MemoryPlan::LargePages, &[0], true, &[0]),
            (MemoryPlan::NumaLocal, &[0], true, &[libc::MPOL_PREFERRED, 4]),
            (MemoryPlan::Interleaved, &[0, 1], true, &[libc::MPOL_INTERLEAVE]),
        ];
        for (plan, nodes, large, modes) in plans {
            let placement = Placement::new(plan, nodes).unwrap();
            // A machine of one node refuses a second one, a sandbox refuses every one: then nothing is bound.
            let bound = possible(&placement);
            let start = allocate(2 * HUGE_PAGE, &placement).unwrap();
            if let (Ok(()), Some(mode)) = (&bound, policy(start)) {
                assert!(modes.contains(&mode), "{plan:?}: {mode}");
            }
            if let Some(asks) = asks_for_large_pages(start) {
                assert_eq!(asks, large, "{plan:?}");
            }
            // SAFETY: the buffer is ours, of this size, and not used after it is freed.
            unsafe {
                start.as_ptr().write(7);
                assert_eq!((start.as_ptr().read(), start.as_ptr().add(HUGE_PAGE).read()), (7, 0));
                free(start, 2 * HUGE_PAGE);
            }
        }
    }
}
