//! Small products whose tiles' functions are picked when the call is prepared: a product of 16×16 matrices takes 40 ns, so finding
//! out again what was known before is felt.
#![allow(unsafe_code)]

use super::cpu_micro::{InPlace, Left, Right};
use super::cpu_problem::{Gemm, Real};
use super::cpu_small::Tiling;
use super::cpu_tile::{Grid, plain_tiles};
use crate::backends::cpu::simd::Isa;
#[cfg(target_arch = "x86_64")]
use crate::backends::cpu::simd::{Avx2, Avx512, Lanes};
use crate::ops::Bound;

/// What tiles of one height know beside addresses.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    grid: Grid,
    k: usize,
    a_rs: isize,
    a_cs: isize,
    b_rs: isize,
    c_rs: isize,
}

/// Computes tiles that are simply written.
///
/// # Safety
/// The CPU has the instructions, and the operands are valid for all rows and steps and whole vectors of columns.
pub(super) type TileLoop<T> = unsafe fn(&Rows, *const T, *const T, *mut T);

/// An element type with such loops.
pub(super) trait ShortProduct: Real {
    /// The loop of tiles with so many rows and vectors, where there is one.
    fn pick(isa: Isa, rows: usize, vectors: usize) -> Option<TileLoop<Self>>;
}

/// The launch of a product that is only written, in few enough vectors of columns; its operands have the strides of `g` and no bias.
pub(super) fn bind<T: ShortProduct>(g: &Gemm<T>, isa: Isa) -> Option<Bound> {
    let tiling = Tiling::of(g, isa).filter(|_| g.b_cs == 1)?;
    let [first, second] = tiling.rows.groups().map(|(rows, count)| {
        let below = g.a_rs.wrapping_mul(rows as isize);
        let grid = Grid {
            count,
            below,
            across: tiling.across,
            beside: tiling.vectors * (isa.register_bytes() / size_of::<T>()),
            far: false,
        };
        let facts = Rows { grid, k: g.k, a_rs: g.a_rs, a_cs: g.a_cs, b_rs: g.b_rs, c_rs: g.c_rs };
        (facts, rows * count, T::pick(isa, rows, tiling.vectors))
    });
    match (first, second) {
        ((_, 0, _), (facts, _, Some(work))) => Some(Bound::short(move |a, b, c| {
            // SAFETY: the call's operands are valid, and the loop was picked for them on a CPU that has its instructions.
            unsafe { work(&facts, a.cast(), b.cast(), c.cast()) };
        })),
        ((facts, rows, Some(work)), (others, _, Some(more))) => {
            let (a_rows, c_rows) =
                (facts.a_rs.wrapping_mul(rows as isize), facts.c_rs.wrapping_mul(rows as isize));
            Some(Bound::short(move |a, b, c| {
                let (a, c) = (a.cast::<T>(), c.cast::<T>());
                // SAFETY: as above.
                unsafe {
                    work(&facts, a, b.cast(), c);
                    more(&others, a.wrapping_offset(a_rows), b.cast(), c.wrapping_offset(c_rows));
                }
            }))
        }
        _ => None,
    }
}

/// Picks `$function::<$t, rows, vectors>` by run-time numbers.
#[cfg(target_arch = "x86_64")]
macro_rules! pick {
    ($function:ident, $t:ident, $at:expr, $($v:literal: $($r:literal)*;)*) => {
        match $at {
            $($(($r, $v) => Some($function::<$t, $r, $v>),)*)*
            _ => None,
        }
    };
}

macro_rules! short_product {
    ($t:ident) => {
        impl ShortProduct for $t {
            #[cfg(target_arch = "x86_64")]
            fn pick(isa: Isa, rows: usize, vectors: usize) -> Option<TileLoop<$t>> {
                match isa {
                    Isa::Avx512 if isa.is_available() => pick!(avx512, $t, (rows, vectors),
                        1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16;
                        2: 1 2 3 4 5 6 7 8 9 10 11 12;),
                    Isa::Avx2 if isa.is_available() => {
                        pick!(avx2, $t, (rows, vectors), 1: 1 2 3 4 5 6; 2: 1 2 3 4 5 6;)
                    }
                    _ => None,
                }
            }

            /// Elsewhere there is one instruction set, and nothing to find out.
            #[cfg(not(target_arch = "x86_64"))]
            fn pick(_: Isa, _: usize, _: usize) -> Option<TileLoop<$t>> {
                None
            }
        }
    };
}
short_product!(f32);
short_product!(f64);

macro_rules! tile_loop {
    ($name:ident, $token:ident, $features:literal) => {
        /// # Safety
        /// As for [`TileLoop`].
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        unsafe fn $name<T: Real, const R: usize, const V: usize>(
            facts: &Rows,
            a: *const T,
            b: *const T,
            c: *mut T,
        ) where
            $token: Lanes<T>,
        {
            let &Rows { grid, k, a_rs, a_cs, b_rs, c_rs } = facts;
            let (left, right) = (Left { a, rs: a_rs, cs: a_cs }, Right { b, rs: b_rs });
            // SAFETY: the caller's promise.
            unsafe {
                plain_tiles::<T, _, InPlace, R, V>($token::new_unchecked(), grid, k, left, right, c, c_rs)
            };
        }
    };
}
tile_loop!(avx512, Avx512, "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c");
tile_loop!(avx2, Avx2, "avx2,fma,f16c");
