//! Where a sleeping worker wakes up.
//!
//! Linux wakes a thread on the core where it last ran or on that of the thread that wakes it, and not always on an idle one: of 64
//! workers that had slept on the other core of a Zen 5 under KVM, 18 woke on their caller's. Both then share a core until the system's next
//! look at the load, milliseconds later: a product of 255 takes three times as long, one of 127 that two threads compute in 9 µs takes 16.

/// A worker that went to sleep, and the way to keep it off a core.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) use linux::Place;
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) use other::Place;

#[cfg(all(target_os = "linux", not(miri)))]
mod linux {
    use std::mem::{size_of, zeroed};
    use std::sync::atomic::{AtomicI32, Ordering};
    use std::sync::{Mutex, PoisonError};

    use libc::{CPU_CLR, CPU_COUNT, cpu_set_t, pid_t};

    pub struct Place {
        thread: AtomicI32,
        /// The cores that the worker may use, while it is kept off one of them.
        allowed: Mutex<Option<cpu_set_t>>,
    }

    impl Place {
        pub const fn new() -> Self {
            Self { thread: AtomicI32::new(0), allowed: Mutex::new(None) }
        }

        /// The worker is about to sleep.
        pub fn leave(&self) {
            // SAFETY: asks for a number.
            self.thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        }

        /// Sees to it that the worker, asleep, wakes up on another core than the caller's.
        pub fn make_way(&self) {
            // SAFETY: asks for a number.
            let here = unsafe { libc::sched_getcpu() };
            if here < 0 {
                return;
            }
            let thread = self.thread.load(Ordering::Relaxed);
            // Locked until both are done. One that woke by itself just before still has its old set waiting here.
            let mut kept = self.allowed();
            let Some(allowed) = (*kept).or_else(|| cores_of(thread)) else { return };
            let others = without(allowed, here as usize);
            // SAFETY: the set is a valid one.
            if unsafe { CPU_COUNT(&others) } > 0 {
                *kept = Some(allowed);
                keep_to(thread, &others);
            }
        }

        /// The worker is awake: all its cores are open to it again.
        pub fn arrive(&self) {
            let mut kept = self.allowed();
            if let Some(allowed) = kept.take() {
                keep_to(0, &allowed);
            }
        }

        fn allowed(&self) -> std::sync::MutexGuard<'_, Option<cpu_set_t>> {
            self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// The cores that a thread may use (0: the calling one); `None` where the system has more than a set holds.
    fn cores_of(thread: pid_t) -> Option<cpu_set_t> {
        // SAFETY: a set is a plain array of bits, which the system fills.
        unsafe {
            let mut set: cpu_set_t = zeroed();
            (libc::sched_getaffinity(thread, size_of::<cpu_set_t>(), &raw mut set) == 0).then_some(set)
        }
    }

    fn without(mut set: cpu_set_t, core: usize) -> cpu_set_t {
        if core < libc::CPU_SETSIZE as usize {
            // SAFETY: the number is one of the set's.
            unsafe { CPU_CLR(core, &mut set) };
        }
        set
    }

    /// Where this fails the thread stays as it is, and only time is lost.
    fn keep_to(thread: pid_t, cores: &cpu_set_t) {
        // SAFETY: the set is valid and only read.
        unsafe { libc::sched_setaffinity(thread, size_of::<cpu_set_t>(), cores) };
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::sync::mpsc::channel;

        fn numbers(set: &cpu_set_t) -> Vec<usize> {
            // SAFETY: the numbers are those of a set.
            (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, set) }).collect()
        }

        /// The calling thread stays on one core.
        fn pin(core: usize) {
            // SAFETY: no bit set is a valid set, and the number comes from the system.
            let mut set: cpu_set_t = unsafe { zeroed() };
            unsafe { libc::CPU_SET(core, &mut set) };
            keep_to(0, &set);
        }

        #[test]
        fn a_sleeper_is_kept_off_the_core_of_its_waker_and_gets_it_back() {
            let (wake, woken) = channel();
            let (tell, told) = channel();
            let place = Place::new();
            std::thread::scope(|scope| {
                let place = &place;
                scope.spawn(move || {
                    let before = numbers(&cores_of(0).unwrap());
                    place.leave();
                    tell.send(before).unwrap();
                    woken.recv().unwrap();
                    place.arrive();
                    tell.send(numbers(&cores_of(0).unwrap())).unwrap();
                });
                scope.spawn(move || {
                    let before = told.recv().unwrap();
                    let thread = place.thread.load(Ordering::Relaxed);
                    // Wherever it slept, it is kept off the waker's core, and off no other.
                    for &core in &before {
                        pin(core);
                        place.make_way();
                        let mut others = before.clone();
                        others.retain(|&other| other != core || before.len() == 1);
                        assert_eq!(numbers(&cores_of(thread).unwrap()), others);
                    }
                    place.make_way();
                    wake.send(()).unwrap();
                    assert_eq!(told.recv().unwrap(), before);
                });
            });
        }

        #[test]
        fn a_sleeper_that_woke_before_it_was_moved_gets_all_its_cores_back() {
            let place = Place::new();
            let before = numbers(&cores_of(0).unwrap());
            for _ in 0..before.len() {
                // Nobody arrives in between: each time another core is taken away, and the first set is the one to keep.
                place.leave();
                place.make_way();
            }
            place.arrive();
            assert_eq!(numbers(&cores_of(0).unwrap()), before);
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod other {
    /// Other systems have no such call.
    pub struct Place;

    impl Place {
        pub const fn new() -> Self {
            Self
        }

        pub fn leave(&self) {}

        pub fn make_way(&self) {}

        pub fn arrive(&self) {}
    }
}
