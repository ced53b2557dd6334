//! The loops of short calls: one line that lies in the first-level cache, its instruction set chosen when the call is prepared.
//!
//! A thousand additions take 45 ns, so finding out again what was known before is felt.
#![allow(unsafe_code)]

use super::cpu_lines::FAR;
#[cfg(target_arch = "x86_64")]
use super::cpu_lines::{Ahead, row};
use super::formula::{Formula, Recipe, Visitor};
use crate::backends::cpu::simd::Isa;
use crate::backends::cpu::simd::math::Scalar;
#[cfg(target_arch = "x86_64")]
use crate::backends::cpu::simd::{Avx2, Avx512, Lanes};

/// Computes so many elements from as many of each argument; arguments beyond the arity are never read.
///
/// # Safety
/// The CPU has the instructions, arguments may be read and the output written at every place below the length, and the output
/// overlaps no argument except exactly.
pub(super) type ShortLoop<T> = unsafe fn(*const T, *const T, *mut T, usize);

/// An element type with such loops.
pub(super) trait ShortElement: Scalar {
    /// The loop of a recipe, where there is one and the length is worth it.
    fn pick_short(recipe: Recipe, isa: Isa, length: usize) -> Option<ShortLoop<Self>>;
}

/// Picks the loop for these instructions.
struct PickShort(Isa);

macro_rules! short_element {
    ($t:ident) => {
        impl ShortElement for $t {
            fn pick_short(recipe: Recipe, isa: Isa, length: usize) -> Option<ShortLoop<$t>> {
                let near = length * size_of::<$t>() <= FAR / 2;
                if near && recipe.is_light() { recipe.visit::<$t, _>(PickShort(isa)) } else { None }
            }
        }

        impl Visitor<$t> for PickShort {
            type Output = Option<ShortLoop<$t>>;

            fn heavy<F: Formula<$t>>(self) -> Self::Output {
                None
            }
            fn unary<F: Formula<$t>>(self) -> Self::Output {
                self.loop_of::<$t, F>()
            }
            fn commuting<F: Formula<$t>>(self) -> Self::Output {
                self.loop_of::<$t, F>()
            }
            fn binary<F: Formula<$t>>(self) -> Self::Output {
                self.loop_of::<$t, F>()
            }
            fn ternary<F: Formula<$t>>(self) -> Self::Output {
                None
            }
            fn constants<F: Formula<$t>>(self) -> Self::Output {
                None
            }
        }
    };
}
short_element!(f32);
short_element!(f64);

#[cfg(target_arch = "x86_64")]
impl PickShort {
    fn loop_of<T: Scalar, F: Formula<T>>(self) -> Option<ShortLoop<T>>
    where
        Avx2: Lanes<T>,
        Avx512: Lanes<T>,
    {
        match self.0 {
            Isa::Avx512 if self.0.is_available() => Some(avx512::<T, F>),
            Isa::Avx2 if self.0.is_available() => Some(avx2::<T, F>),
            _ => None,
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl PickShort {
    /// Elsewhere there is one instruction set, and nothing to find out.
    fn loop_of<T: Scalar, F: Formula<T>>(self) -> Option<ShortLoop<T>> {
        let _ = self.0;
        None
    }
}

/// # Safety
/// As for [`ShortLoop`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn avx512<T: Scalar, F: Formula<T>>(a: *const T, b: *const T, out: *mut T, length: usize)
where
    Avx512: Lanes<T>,
{
    // SAFETY: the caller's promise; the third argument is beyond the arity.
    unsafe { row::<T, _, F, 0, false>(Avx512::new_unchecked(), [a, b, a], out, length, 0, Ahead::Nothing) }
}

/// # Safety
/// As for [`ShortLoop`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2<T: Scalar, F: Formula<T>>(a: *const T, b: *const T, out: *mut T, length: usize)
where
    Avx2: Lanes<T>,
{
    // SAFETY: the caller's promise; the third argument is beyond the arity.
    unsafe { row::<T, _, F, 0, false>(Avx2::new_unchecked(), [a, b, a], out, length, 0, Ahead::Nothing) }
}
