//! The vector trait: an algorithm is written once over [`Lanes`] and runs on every instruction set.
//!
//! A token such as [`Avx2`] exists only where its instructions do, so the operations on it are safe to
//! call; only those that touch memory through a pointer are `unsafe`. [`Isa::run`] picks the token and
//! compiles the algorithm inside a function that may use its instructions:
//!
//! ```
//! use shapewise::backends::cpu::simd::{Isa, Lanes, Simd, SimdTask};
//!
//! struct Sum<'a>(&'a [f32]);
//!
//! impl SimdTask for Sum<'_> {
//!     type Output = f32;
//!     #[inline(always)]
//!     fn run<S: Simd>(self, s: S) -> f32 {
//!         sum(s, self.0)
//!     }
//! }
//!
//! // Named with its one `Lanes<T>`, so that the compiler knows which lanes `add` means.
//! #[inline(always)]
//! fn sum<S: Lanes<f32>>(s: S, x: &[f32]) -> f32 {
//!     let mut sum = s.splat(0.0);
//!     let mut chunks = x.chunks_exact(S::LANES);
//!     for chunk in &mut chunks {
//!         // SAFETY: the chunk has exactly `LANES` elements.
//!         sum = s.add(sum, unsafe { s.load(chunk.as_ptr()) });
//!     }
//!     s.reduce_add(sum) + chunks.remainder().iter().sum::<f32>()
//! }
//!
//! assert_eq!(Isa::best().run(Sum(&[1.0; 21])), 21.0);
//! ```
//!
//! Everything between `Isa::run` and the operations must be `#[inline(always)]`: a function that is not
//! inlined is compiled without the instructions, which is right but slow.

mod float;
mod halves;
mod isa;
mod keys;
mod lanes;
pub mod math;
mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_keys;
#[cfg(target_arch = "x86_64")]
mod avx512_moves;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(test)]
mod tests;

pub use float::Float;
pub use isa::{Isa, ParseIsaError};
pub use keys::{KeyLanes, KeyTask, LaneKey};
pub use lanes::{Apart, HalfLanes, Lanes, MAX_LANES, Simd, SimdTask};
pub use portable::Portable;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;

/// Writes lane-wise methods that are one instruction each.
#[cfg(target_arch = "x86_64")]
macro_rules! forward {
    ($($name:ident($($arg:ident),*) = $instruction:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: Self::V),*) -> Self::V {
            // SAFETY: the token proves that the CPU has the instruction.
            unsafe { $instruction($($arg),*) }
        }
    )*};
}
#[cfg(target_arch = "x86_64")]
use forward;
