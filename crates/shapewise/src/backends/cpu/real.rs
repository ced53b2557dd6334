//! Real elements in memory and the vectors they are computed in: 16-bit floats widen to f32 on the way.
//!
//! An algorithm written over [`Vectors`] serves f32, f64, f16 and bf16 on every instruction set; start it with
//! [`Real::dispatch`].

use half::{bf16, f16};

use super::simd::{Float, Isa, Lanes, Simd, SimdTask};
use crate::tensor::Element;

/// A real float as tensors store it.
pub trait Real: Element {
    /// What it is computed in: `f64` for itself, `f32` for the others.
    type Wide: Float;

    /// The same number, wide.
    fn widen(self) -> Self::Wide;
    /// The nearest number that can be stored.
    fn narrow(wide: Self::Wide) -> Self;
    /// Runs the algorithm for this element with these instructions.
    fn dispatch<K: RealTask<Self>>(isa: Isa, task: K) -> K::Output;
    /// As [`dispatch`](Real::dispatch), for algorithms that gain nothing from 512-bit registers.
    fn dispatch_narrow<K: RealTask<Self>>(isa: Isa, task: K) -> K::Output;
}

/// Vectors of the wide type that are read from and written to memory as `T`.
pub trait Vectors<T: Real>: Lanes<T::Wide> + Send + Sync {
    /// Reads `LANES` elements.
    ///
    /// # Safety
    /// `at` is valid for reading `LANES` elements.
    unsafe fn read(self, at: *const T) -> Self::V;
    /// Reads the first `n <= LANES` elements; the other lanes are zero.
    ///
    /// # Safety
    /// `at` is valid for reading `n` elements.
    unsafe fn read_first(self, at: *const T, n: usize) -> Self::V;
    /// Writes `LANES` elements.
    ///
    /// # Safety
    /// `at` is valid for writing `LANES` elements.
    unsafe fn write(self, at: *mut T, v: Self::V);
    /// Writes the first `n <= LANES` elements.
    ///
    /// # Safety
    /// `at` is valid for writing `n` elements.
    unsafe fn write_first(self, at: *mut T, v: Self::V, n: usize);
    /// Writes `LANES` elements, past the caches where the stored and the wide type are one.
    ///
    /// # Safety
    /// `at` is valid for writing `LANES` elements and aligned to the size of a register.
    unsafe fn write_past_cache(self, at: *mut T, v: Self::V);
}

/// Asks for a cache line that will soon be needed; any address will do.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The same for a cache line that will soon be written: it comes with the right to do so, for which a store would have to ask again.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // nobody follows the pointer
pub fn prefetch_write<T>(at: *mut T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 has the instruction or takes it for none, and it never faults.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) at, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Asks for a cache line that is needed later: it comes no nearer than the second-level cache.
#[inline(always)]
pub fn prefetch_far<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The same pointer, of which the compiler does not know how it was computed: it keeps it in a register and does not compute
/// it anew in every step.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // nobody follows the pointer
pub fn settled<T>(at: *const T) -> *const T {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let mut at = at;
        // SAFETY: a comment does nothing.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) at, options(pure, nomem, nostack, preserves_flags));
        }
        at
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    at
}

/// The same for a distance.
#[inline(always)]
pub fn settled_offset(distance: isize) -> isize {
    settled(std::ptr::without_provenance::<u8>(distance as usize)).addr() as isize
}

/// Vectors that find no register lie at multiples of their size in the function that this melts into: the compiler sees to that only
/// where a variable asks for it, and a vector in two cache lines takes twice as long.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)] // nobody follows the pointer
pub fn align_spills<V>() {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
    {
        let mut anchor = std::mem::MaybeUninit::<V>::uninit();
        // SAFETY: a comment does nothing.
        unsafe {
            std::arch::asm!("/* {0} */", in(reg) anchor.as_mut_ptr(), options(nomem, nostack, preserves_flags));
        }
    }
}

/// An algorithm over any instruction set for elements `T`.
pub trait RealTask<T: Real> {
    /// What it computes.
    type Output;
    /// The algorithm; mark it `#[inline(always)]`, and all it calls.
    fn run<S: Vectors<T>>(self, s: S) -> Self::Output;
}

/// Beside a [`RealTask`] it makes a pair that [`Isa::run`] takes; a pair's code stays with the module of its first part.
struct Over<T>(std::marker::PhantomData<T>);

macro_rules! real {
    ($t:ty, $wide:ty, $widen:expr, $narrow:expr, $load:ident, $load_first:ident, $store:ident, $store_first:ident,
     $stream:ident) => {
        impl Real for $t {
            type Wide = $wide;

            #[inline(always)]
            fn widen(self) -> $wide {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(wide: $wide) -> Self {
                $narrow(wide)
            }
            #[inline]
            fn dispatch<K: RealTask<Self>>(isa: Isa, task: K) -> K::Output {
                isa.run((task, Over::<$t>(std::marker::PhantomData)))
            }
            #[inline]
            fn dispatch_narrow<K: RealTask<Self>>(isa: Isa, task: K) -> K::Output {
                isa.run_narrow((task, Over::<$t>(std::marker::PhantomData)))
            }
        }

        impl<K: RealTask<$t>> SimdTask for (K, Over<$t>) {
            type Output = K::Output;

            #[inline(always)]
            fn run<S: Simd>(self, s: S) -> K::Output {
                self.0.run(s)
            }
        }

        impl<S: Simd> Vectors<$t> for S {
            #[inline(always)]
            unsafe fn read(self, at: *const $t) -> <S as Lanes<$wide>>::V {
                // SAFETY: the caller's promise is the same.
                unsafe { self.$load(at) }
            }
            #[inline(always)]
            unsafe fn read_first(self, at: *const $t, n: usize) -> <S as Lanes<$wide>>::V {
                // SAFETY: the caller's promise is the same.
                unsafe { self.$load_first(at, n) }
            }
            #[inline(always)]
            unsafe fn write(self, at: *mut $t, v: <S as Lanes<$wide>>::V) {
                // SAFETY: the caller's promise is the same.
                unsafe { self.$store(at, v) }
            }
            #[inline(always)]
            unsafe fn write_first(self, at: *mut $t, v: <S as Lanes<$wide>>::V, n: usize) {
                // SAFETY: the caller's promise is the same.
                unsafe { self.$store_first(at, v, n) }
            }
            #[inline(always)]
            unsafe fn write_past_cache(self, at: *mut $t, v: <S as Lanes<$wide>>::V) {
                // SAFETY: the caller's promise is the same.
                unsafe { self.$stream(at, v) }
            }
        }
    };
}

real!(f32, f32, |x| x, |x| x, load, load_first, store, store_first, stream);
real!(f64, f64, |x| x, |x| x, load, load_first, store, store_first, stream);
real!(f16, f32, f16::to_f32, f16::from_f32, load_f16, load_f16_first, store_f16, store_f16_first, store_f16);
real!(
    bf16,
    f32,
    bf16::to_f32,
    bf16::from_f32,
    load_bf16,
    load_bf16_first,
    store_bf16,
    store_bf16_first,
    store_bf16
);
