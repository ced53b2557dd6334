//! What becomes of two elements, for each type.
#![allow(unsafe_code)]

use half::{bf16, f16};
use num_complex::Complex;

use super::Combine;

/// A rule for two elements of one type.
pub(super) trait Rule<T>: Copy + Send + Sync {
    /// What takes the place of `old`.
    fn join(self, old: T, new: T) -> T;
}

/// The new one.
#[derive(Clone, Copy)]
pub(super) struct Set;
/// The sum.
#[derive(Clone, Copy)]
pub(super) struct Add;
/// The product.
#[derive(Clone, Copy)]
pub(super) struct Prod;
/// The larger one, NaN before any.
#[derive(Clone, Copy)]
pub(super) struct Max;
/// The smaller one, NaN before any.
#[derive(Clone, Copy)]
pub(super) struct Min;

impl<T> Rule<T> for Set {
    #[inline(always)]
    fn join(self, _: T, new: T) -> T {
        new
    }
}

macro_rules! rules {
    ($($t:ty: $a:ident, $b:ident => $add:expr, $prod:expr $(, $max:expr, $min:expr)?;)*) => {$(
        impl Rule<$t> for Add {
            #[inline(always)]
            fn join(self, $a: $t, $b: $t) -> $t { $add }
        }
        impl Rule<$t> for Prod {
            #[inline(always)]
            fn join(self, $a: $t, $b: $t) -> $t { $prod }
        }
        $(
            impl Rule<$t> for Max {
                #[inline(always)]
                fn join(self, $a: $t, $b: $t) -> $t { if $max { $a } else { $b } }
            }
            impl Rule<$t> for Min {
                #[inline(always)]
                fn join(self, $a: $t, $b: $t) -> $t { if $min { $a } else { $b } }
            }
        )?
    )*};
}
rules! {
    f32: a, b => a + b, a * b, a > b || a.is_nan(), a < b || a.is_nan();
    f64: a, b => a + b, a * b, a > b || a.is_nan(), a < b || a.is_nan();
    f16: a, b => f16::from_f32(a.to_f32() + b.to_f32()), f16::from_f32(a.to_f32() * b.to_f32()),
        a > b || a.is_nan(), a < b || a.is_nan();
    bf16: a, b => bf16::from_f32(a.to_f32() + b.to_f32()), bf16::from_f32(a.to_f32() * b.to_f32()),
        a > b || a.is_nan(), a < b || a.is_nan();
    i8: a, b => a.wrapping_add(b), a.wrapping_mul(b), a > b, a < b;
    u8: a, b => a.wrapping_add(b), a.wrapping_mul(b), a > b, a < b;
    i32: a, b => a.wrapping_add(b), a.wrapping_mul(b), a > b, a < b;
    u32: a, b => a.wrapping_add(b), a.wrapping_mul(b), a > b, a < b;
    i64: a, b => a.wrapping_add(b), a.wrapping_mul(b), a > b, a < b;
    bool: a, b => a | b, a & b, a, !a;
    Complex<f32>: a, b => a + b, product(a, b);
    Complex<f64>: a, b => a + b, a * b;
}

/// In f64, because the parts' products may overflow where their difference does not.
#[inline(always)]
fn product(a: Complex<f32>, b: Complex<f32>) -> Complex<f32> {
    let wide = |z: Complex<f32>| Complex::new(f64::from(z.re), f64::from(z.im));
    let z = wide(a) * wide(b);
    Complex::new(z.re as f32, z.im as f32)
}

/// What to do with the rule that was found.
pub(super) trait Visitor: Sized {
    /// Elements of type `T` under a rule.
    fn visit<T: Copy, R: Rule<T>>(self, rule: R);
}

/// Calls the visitor with the rule for numbers that have an order.
pub(super) fn ordered<T: Copy, V: Visitor>(combine: Combine, v: V)
where
    Add: Rule<T>,
    Prod: Rule<T>,
    Max: Rule<T>,
    Min: Rule<T>,
{
    match combine {
        Combine::Set => v.visit::<T, _>(Set),
        Combine::Add => v.visit::<T, _>(Add),
        Combine::Prod => v.visit::<T, _>(Prod),
        Combine::Max => v.visit::<T, _>(Max),
        Combine::Min => v.visit::<T, _>(Min),
    }
}

/// Calls the visitor with the rule for complex numbers; whether there is one.
pub(super) fn unordered<T: Copy, V: Visitor>(combine: Combine, v: V) -> bool
where
    Add: Rule<T>,
    Prod: Rule<T>,
{
    match combine {
        Combine::Set => v.visit::<T, _>(Set),
        Combine::Add => v.visit::<T, _>(Add),
        Combine::Prod => v.visit::<T, _>(Prod),
        Combine::Max | Combine::Min => return false,
    }
    true
}
