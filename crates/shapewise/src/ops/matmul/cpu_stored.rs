//! Elements as they lie in memory, and the type they are computed in.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use half::{bf16, f16};

use crate::backends::cpu::simd::math::Coefficients;
use crate::backends::cpu::simd::{Isa, Lanes, Simd, SimdTask};

/// An element type that operands are stored in: computed in itself, or in `f32` where it is a 16-bit float.
pub(super) trait Stored: Copy + Send + Sync + 'static {
    /// The type it is computed in.
    type Wide: Coefficients + Stored<Wide = Self::Wide>;
    /// Zero.
    const NIL: Self;
    /// The same number.
    fn widen(self) -> Self::Wide;
    /// The nearest number.
    fn narrow(x: Self::Wide) -> Self;
    /// The same memory, if it is computed in as it is.
    fn as_wide(at: *const Self) -> Option<*const Self::Wide>;
    /// Runs the algorithm with these instructions.
    fn run<K: StoredTask<Self>>(isa: Isa, task: K);
}

/// Vectors that read and write `E`, converting on the way.
pub(super) trait Reads<E: Stored>: Lanes<E::Wide> {
    /// Reads `LANES` elements.
    ///
    /// # Safety
    /// `at` is valid for reading them.
    unsafe fn read(self, at: *const E) -> Self::V;
    /// Reads the first `n <= LANES` elements; the other lanes are zero.
    ///
    /// # Safety
    /// `at` is valid for reading them.
    unsafe fn read_first(self, at: *const E, n: usize) -> Self::V;
    /// Writes the first `n <= LANES` elements.
    ///
    /// # Safety
    /// `at` is valid for writing them.
    unsafe fn write_first(self, at: *mut E, v: Self::V, n: usize);
}

/// An algorithm over vectors that read `E`.
pub(super) trait StoredTask<E: Stored> {
    /// The algorithm; `#[inline(always)]` like all it calls.
    fn run<S: Reads<E> + Reads<E::Wide>>(self, s: S);
}

/// Beside a [`StoredTask`] it makes a pair that [`Isa::run`] takes; a pair's code stays with the module of its first part.
struct Over<E>(std::marker::PhantomData<E>);

macro_rules! stored {
    ($e:ident, $wide:ident, $nil:expr, $widen:expr, $narrow:expr, $as_wide:expr, $read:ident, $read_first:ident, $write_first:ident) => {
        impl Stored for $e {
            type Wide = $wide;
            const NIL: Self = $nil;
            #[inline(always)]
            fn widen(self) -> $wide {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(x: $wide) -> Self {
                $narrow(x)
            }
            #[inline(always)]
            fn as_wide(at: *const Self) -> Option<*const $wide> {
                $as_wide(at)
            }
            #[inline]
            fn run<K: StoredTask<Self>>(isa: Isa, task: K) {
                isa.run((task, Over::<$e>(std::marker::PhantomData)));
            }
        }

        impl<S: Simd> Reads<$e> for S {
            #[inline(always)]
            unsafe fn read(self, at: *const $e) -> <S as Lanes<$wide>>::V {
                // SAFETY: the caller's promise.
                unsafe { self.$read(at) }
            }
            #[inline(always)]
            unsafe fn read_first(self, at: *const $e, n: usize) -> <S as Lanes<$wide>>::V {
                // SAFETY: the caller's promise.
                unsafe { self.$read_first(at, n) }
            }
            #[inline(always)]
            unsafe fn write_first(self, at: *mut $e, v: <S as Lanes<$wide>>::V, n: usize) {
                // SAFETY: the caller's promise.
                unsafe { self.$write_first(at, v, n) }
            }
        }

        impl<K: StoredTask<$e>> SimdTask for (K, Over<$e>) {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                self.0.run(s);
            }
        }
    };
}

stored!(f32, f32, 0.0, |x| x, |x| x, Some, load, load_first, store_first);
stored!(f64, f64, 0.0, |x| x, |x| x, Some, load, load_first, store_first);
stored!(f16, f32, f16::ZERO, f16::to_f32, f16::from_f32, |_| None, load_f16, load_f16_first, store_f16_first);
stored!(
    bf16,
    f32,
    bf16::ZERO,
    bf16::to_f32,
    bf16::from_f32,
    |_| None,
    load_bf16,
    load_bf16_first,
    store_bf16_first
);
