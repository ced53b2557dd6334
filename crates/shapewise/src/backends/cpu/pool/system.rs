//! Where the pool's buffers come from and go to.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::ALIGNMENT;
use super::placement::Placement;

/// From here on buffers are whole huge pages: measured on a virtual machine, reading in order gains a quarter,
/// reading by columns a factor of two, and the first touch a factor of five.
#[cfg(all(target_os = "linux", not(miri)))]
const HUGE_PAGE: usize = 2 << 20;

/// From here on a buffer takes a page more than its size and starts somewhere in its first page. Arrays that start alike make
/// stores collide with loads of the others, by the low bits of their addresses: a sum of two took 6 % longer out of the third cache.
const STAGGERED: usize = 64 << 10;
const PAGE: usize = 4 << 10;

/// How far into its first page the next buffer starts: neighbours lie far apart, and all places are used.
fn stagger() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(11 * ALIGNMENT, Ordering::Relaxed) % PAGE
}

/// What a staggered buffer lies in.
fn first_page(start: NonNull<u8>) -> *mut u8 {
    start.as_ptr().wrapping_sub(start.as_ptr().addr() % PAGE)
}

fn layout(size: usize) -> Option<Layout> {
    if size >= STAGGERED {
        return Layout::from_size_align(size.checked_add(PAGE)?, PAGE).ok();
    }
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
    // SAFETY: class sizes are never zero.
    let base = NonNull::new(unsafe { alloc_zeroed(layout(size)?) })?;
    // SAFETY: a staggered buffer has a page more than its size.
    Some(if size >= STAGGERED { unsafe { base.add(stagger()) } } else { base })
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
        let base = if size >= STAGGERED { first_page(start) } else { start.as_ptr() };
        // SAFETY: the caller's promise; address and layout are those of `allocate`.
        unsafe { dealloc(base, layout) }
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

/// Mappings that start at a huge page and ask for huge pages; buffers are staggered within.
#[cfg(all(target_os = "linux", not(miri)))]
mod huge {
    use super::super::MemoryPlan;
    use super::{HUGE_PAGE, NonNull, PAGE, Placement, first_page, stagger};
    use libc::{MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE};

    pub fn allocate(size: usize, placement: &Placement) -> Option<NonNull<u8>> {
        let size = size.checked_add(PAGE)?;
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
        // SAFETY: the mapping has a page more than the buffer's size.
        Some(unsafe { start.add(stagger()) })
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
            libc::syscall(libc::SYS_mbind, first_page(start), size, libc::c_long::from(mode), nodes, bits, 0)
        };
        if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// # Safety
    /// `start` came from `allocate(size)` and is not used again.
    pub unsafe fn free(start: NonNull<u8>, size: usize) {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(first_page(start).cast(), size + PAGE) };
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

    #[test]
    fn large_buffers_start_at_different_places_of_their_pages() {
        let placement = Placement::default();
        for size in [STAGGERED, 1 << 20, HUGE_PAGE, 3 * HUGE_PAGE] {
            let starts: Vec<_> = (0..8).map(|_| allocate(size, &placement).unwrap()).collect();
            for &start in &starts {
                assert!(start.as_ptr().addr().is_multiple_of(ALIGNMENT));
                // SAFETY: the buffer is ours and of this size.
                unsafe { start.as_ptr().add(size - 1).write(7) };
            }
            // Another thread may have taken a place between: most differ, whatever it did.
            let mut places: Vec<_> = starts.iter().map(|start| start.as_ptr().addr() % PAGE).collect();
            places.sort_unstable();
            places.dedup();
            assert!(places.len() > 4, "{places:?}");
            // SAFETY: the buffers are ours, of this size, and not used again.
            starts.into_iter().for_each(|start| unsafe { free(start, size) });
        }
    }
}
