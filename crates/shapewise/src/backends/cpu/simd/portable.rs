//! Plain arrays as vectors: the compiler turns them into whatever the baseline CPU has.
//!
//! `mul_add` is `a * b + c`, rounded twice: without the instruction a fused one is a slow library call.
use super::{Float, HalfLanes, Lanes, Simd};

/// Vectors for every CPU.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

/// One 16-byte register of lanes.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Array<T, const N: usize>([T; N]);

/// An array of what `$x` is for each lane `$i`. Written out, because closures of vectors cost the compiler minutes.
macro_rules! each {
    (2, $i:ident => $x:expr) => {
        [
            {
                let $i = 0;
                $x
            },
            {
                let $i = 1;
                $x
            },
        ]
    };
    (4, $i:ident => $x:expr) => {
        [
            {
                let $i = 0;
                $x
            },
            {
                let $i = 1;
                $x
            },
            {
                let $i = 2;
                $x
            },
            {
                let $i = 3;
                $x
            },
        ]
    };
}

macro_rules! lanes {
    ($t:ident, $n:tt) => {
        impl Lanes<$t> for Portable {
            type V = Array<$t, $n>;
            type M = [bool; $n];
            const LANES: usize = $n;
            const FUSED: bool = false;

            #[inline(always)]
            fn splat(self, x: $t) -> Self::V {
                Array([x; $n])
            }
            #[inline(always)]
            unsafe fn load(self, at: *const $t) -> Self::V {
                // SAFETY: the caller lets us read LANES elements.
                Array(unsafe { at.cast::<[$t; $n]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn load_first(self, at: *const $t, n: usize) -> Self::V {
                // SAFETY: only the first n elements are read.
                Array(each!($n, i => if i < n { unsafe { at.add(i).read() } } else { 0.0 }))
            }
            #[inline(always)]
            unsafe fn store(self, at: *mut $t, v: Self::V) {
                // SAFETY: the caller lets us write LANES elements.
                unsafe { at.cast::<[$t; $n]>().write_unaligned(v.0) }
            }
            #[inline(always)]
            unsafe fn store_first(self, at: *mut $t, v: Self::V, n: usize) {
                for (i, x) in v.0.iter().enumerate().take(n) {
                    // SAFETY: only the first n elements are written.
                    unsafe { at.add(i).write(*x) };
                }
            }
            #[inline(always)]
            unsafe fn stream(self, at: *mut $t, v: Self::V) {
                // SAFETY: the caller lets us write LANES elements.
                unsafe { at.cast::<[$t; $n]>().write(v.0) }
            }
            #[inline(always)]
            fn fence(self) {}

            #[inline(always)]
            fn add(self, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => a.0[i] + b.0[i]))
            }
            #[inline(always)]
            fn sub(self, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => a.0[i] - b.0[i]))
            }
            #[inline(always)]
            fn mul(self, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => a.0[i] * b.0[i]))
            }
            #[inline(always)]
            fn div(self, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => a.0[i] / b.0[i]))
            }
            #[inline(always)]
            fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
                Array(each!($n, i => a.0[i] * b.0[i] + c.0[i]))
            }
            #[inline(always)]
            fn neg_mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
                Array(each!($n, i => c.0[i] - a.0[i] * b.0[i]))
            }
            #[inline(always)]
            fn sqrt(self, a: Self::V) -> Self::V {
                Array(each!($n, i => a.0[i].sqrt()))
            }
            #[inline(always)]
            fn min(self, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => if a.0[i] < b.0[i] { a.0[i] } else { b.0[i] }))
            }
            #[inline(always)]
            fn max(self, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => if a.0[i] > b.0[i] { a.0[i] } else { b.0[i] }))
            }
            #[inline(always)]
            fn round(self, a: Self::V) -> Self::V {
                Array(each!($n, i => round(a.0[i])))
            }
            #[inline(always)]
            fn floor(self, a: Self::V) -> Self::V {
                // Rounding went up where the result is above; NaN compares false and stays.
                Array(each!($n, i => if a.0[i] < round(a.0[i]) { round(a.0[i]) - 1.0 } else { round(a.0[i]) }))
            }

            #[inline(always)]
            fn and(self, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => $t::from_bits(a.0[i].to_bits() & b.0[i].to_bits())))
            }
            #[inline(always)]
            fn or(self, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => $t::from_bits(a.0[i].to_bits() | b.0[i].to_bits())))
            }
            #[inline(always)]
            fn xor(self, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => $t::from_bits(a.0[i].to_bits() ^ b.0[i].to_bits())))
            }
            #[inline(always)]
            fn add_bits(self, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => $t::from_bits(a.0[i].to_bits().wrapping_add(b.0[i].to_bits()))))
            }
            #[inline(always)]
            fn shl_mantissa(self, a: Self::V) -> Self::V {
                Array(each!($n, i => $t::from_bits(a.0[i].to_bits() << <$t as Float>::MANTISSA_BITS)))
            }
            #[inline(always)]
            fn shr_mantissa(self, a: Self::V) -> Self::V {
                Array(each!($n, i => $t::from_bits(a.0[i].to_bits() >> <$t as Float>::MANTISSA_BITS)))
            }

            #[inline(always)]
            fn lt(self, a: Self::V, b: Self::V) -> Self::M {
                each!($n, i => a.0[i] < b.0[i])
            }
            #[inline(always)]
            fn le(self, a: Self::V, b: Self::V) -> Self::M {
                each!($n, i => a.0[i] <= b.0[i])
            }
            #[inline(always)]
            fn eq(self, a: Self::V, b: Self::V) -> Self::M {
                each!($n, i => a.0[i] == b.0[i])
            }
            #[inline(always)]
            fn ne(self, a: Self::V, b: Self::V) -> Self::M {
                each!($n, i => a.0[i] != b.0[i])
            }
            #[inline(always)]
            fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V {
                Array(each!($n, i => if m[i] { a.0[i] } else { b.0[i] }))
            }
            #[inline(always)]
            fn mask_and(self, a: Self::M, b: Self::M) -> Self::M {
                each!($n, i => a[i] & b[i])
            }
            #[inline(always)]
            fn mask_or(self, a: Self::M, b: Self::M) -> Self::M {
                each!($n, i => a[i] | b[i])
            }
            #[inline(always)]
            fn mask_not(self, a: Self::M) -> Self::M {
                each!($n, i => !a[i])
            }
            #[inline(always)]
            fn mask_bits(self, m: Self::M) -> u32 {
                m.iter().enumerate().fold(0, |bits, (i, is)| bits | u32::from(*is) << i)
            }
            #[inline(always)]
            fn butterfly(self, a: Self::V, distance: usize) -> Self::V {
                Array(each!($n, i => a.0[(i ^ distance) % $n]))
            }
            #[inline(always)]
            fn first(self, a: Self::V) -> $t {
                a.0[0]
            }
        }
    };
}
lanes!(f32, 4);
lanes!(f64, 2);

/// The nearest integer, ties to even. Adding and subtracting 2^mantissa lets the adder round; larger numbers are
/// integers already, and the sign is put back for those that become zero.
#[inline(always)]
fn round<T: Float>(x: T) -> T {
    let magic = T::from_f64((1_u64 << T::MANTISSA_BITS) as f64);
    let sign = x.to_bits64() & (-T::ZERO).to_bits64();
    let size = T::from_bits64(x.to_bits64() ^ sign);
    let rounded = T::from_bits64((size + magic - magic).to_bits64() | sign);
    if size < magic { rounded } else { x }
}

impl HalfLanes for Portable {}
impl Simd for Portable {}
