//! A shared value that is seldom replaced and read by every call.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;

/// A value that anybody may read and replace, and that its first reader reads without a locked instruction: such an
/// instruction waits until all that the last kernel wrote has reached the cache, which short calls feel.
///
/// The first thread that looks keeps a reference of its own and renews it when it finds the value replaced, at its next look
/// or at the end of this one. All others take a counted one each time.
///
/// Each fills a line of the cache, so that owners of several do not wait for each other.
#[repr(align(64))]
pub(crate) struct Near<T> {
    shared: ArcSwap<T>,
    /// Counts replacements.
    version: AtomicU64,
    /// The number of the first reader; zero before there was one, [`LENT`] while its look is under way, so that `value` must stay.
    owner: AtomicU64,
    /// Only the owner touches it.
    own: UnsafeCell<Own<T>>,
}

struct Own<T> {
    value: Option<Arc<T>>,
    version: u64,
}

/// No thread has this number.
const LENT: u64 = u64::MAX;

// SAFETY: `own` is only touched by the thread whose number is `owner`, and what it holds may be shared and dropped anywhere.
unsafe impl<T: Send + Sync> Sync for Near<T> {}

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// A number that no other thread has, had or will have; neither zero nor [`LENT`].
#[inline(always)]
fn thread_number() -> u64 {
    let number = NUMBER.get();
    if number != 0 { number } else { new_number() }
}

#[cold]
#[inline(never)]
fn new_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    NUMBER.set(number);
    number
}

impl<T> Near<T> {
    pub fn new(value: Arc<T>) -> Self {
        let own = UnsafeCell::new(Own { value: None, version: 0 });
        Self { shared: ArcSwap::new(value), version: AtomicU64::new(1), owner: AtomicU64::new(0), own }
    }

    /// Calls `look` with the value as it is now.
    #[inline]
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        match self.lend() {
            Some(loan) => look(loan.value()),
            None => look(&self.shared.load()),
        }
    }

    /// The value as it is now.
    pub fn get(&self) -> Arc<T> {
        self.shared.load_full()
    }

    /// Replaces the value.
    pub fn set(&self, value: Arc<T>) {
        self.shared.store(value);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Replaces the value by what `change` makes of it; called again if somebody else was quicker.
    pub fn change(&self, change: impl FnMut(&Arc<T>) -> T) {
        self.shared.rcu(change);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The value as it is now by the owner's reference, unless somebody else asks or the owner is looking already.
    #[inline(always)]
    pub fn lend(&self) -> Option<Loan<'_, T>> {
        let (owner, now) = (thread_number(), self.owner.load(Ordering::Relaxed));
        if now != owner && (now != 0 || !self.claim(owner)) {
            return None;
        }
        // SAFETY: this thread is the owner and not looking, and no reference to `own` outlives a statement here or in `Loan::drop`.
        unsafe {
            self.renew();
            let value = Arc::as_ptr((*self.own.get()).value.as_ref()?);
            self.owner.store(LENT, Ordering::Relaxed);
            Some(Loan { value, owner, from: self })
        }
    }

    /// Makes this thread the owner if there is none yet; tells whether it is.
    #[cold]
    #[inline(never)]
    fn claim(&self, owner: u64) -> bool {
        self.owner.compare_exchange(0, owner, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Brings the owner's reference up to date.
    ///
    /// # Safety
    /// The calling thread is the owner, and nothing is lent.
    #[inline(always)]
    unsafe fn renew(&self) {
        let version = self.version.load(Ordering::Acquire);
        // SAFETY: the caller's promise.
        unsafe {
            if (*self.own.get()).version != version {
                self.replace(version);
            }
        }
    }

    /// Takes the value of a newer version; apart, because that is seldom.
    ///
    /// # Safety
    /// As for `renew`.
    #[cold]
    #[inline(never)]
    unsafe fn replace(&self, version: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            // The old one may run destructors, which may look here in turn: it goes when the new one is in place.
            let old = (*self.own.get()).value.replace(self.shared.load_full());
            (*self.own.get()).version = version;
            drop(old);
        }
    }
}

/// The owner's look at its reference.
pub(crate) struct Loan<'a, T> {
    value: *const T,
    owner: u64,
    from: &'a Near<T>,
}

impl<T> Loan<'_, T> {
    /// What is looked at.
    #[inline(always)]
    pub fn value(&self) -> &T {
        // SAFETY: the owner's reference stays in its place until the loan ends.
        unsafe { &*self.value }
    }
}

impl<T> Drop for Loan<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: loans are only made by the owner and stay on its stack; this one ends, and its value is not read again.
        unsafe {
            self.from.owner.store(self.owner, Ordering::Relaxed);
            self.from.renew();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_sees_what_is_there() {
        let near = Near::new(Arc::new(1));
        assert_eq!(near.with(|x| *x), 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(near.with(|x| *x), 1);
                near.set(Arc::new(2));
                assert_eq!((near.with(|x| *x), *near.get()), (2, 2));
            });
        });
        assert_eq!(near.with(|x| *x), 2);
        near.change(|x| **x + 1);
        assert_eq!(near.with(|x| *x), 3);
    }

    #[test]
    fn a_value_stays_while_it_is_looked_at_and_goes_after() {
        let (first, second) = (Arc::new(1), Arc::new(2));
        let near = Near::new(Arc::clone(&first));
        near.with(|x| {
            near.set(Arc::clone(&second));
            // Looks within a look take a counted reference.
            assert_eq!((near.with(|y| *y), *x, Arc::strong_count(&first)), (2, 1, 2));
        });
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 3));
        drop(near);
        assert_eq!(Arc::strong_count(&second), 1);
    }

    #[test]
    fn a_look_that_panics_ends() {
        let near = Near::new(Arc::new(1));
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| near.with(|_| panic!("no"))));
        assert!(looked.is_err());
        near.set(Arc::new(2));
        assert_eq!(near.with(|x| *x), 2);
    }

    #[test]
    fn many_threads_look_while_one_replaces() {
        let near = Near::new(Arc::new(vec![0usize; 8]));
        let rounds = if cfg!(miri) { 20 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        near.with(|all| assert!(all.iter().all(|x| *x == all[0])));
                    }
                });
            }
            for round in 0..rounds {
                near.set(Arc::new(vec![round; 8]));
            }
        });
        assert_eq!(near.with(|all| all[7]), rounds - 1);
    }
}
