//! Every function on blocks of every type. Floats run the vectorised recipes; the other loops are plain and
//! vectorised by the compiler, for the instruction set they are entered with.
#![allow(unsafe_code)]
#![allow(clippy::cast_lossless)] // one macro casts every pair of types

use half::{bf16, f16};
use num_complex::Complex;

use super::Function;
use super::cpu_lines::{Ahead, LineElement, Lines};
use super::formula::Recipe;
use super::plan::computed;
use crate::backends::cpu::simd::{Isa, Simd, SimdTask};
use crate::tensor::DType;

/// Addresses of the arguments and the result of a step on `n` elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) arguments: [*const u8; 3],
    pub(super) result: *mut u8,
    pub(super) n: usize,
}

impl Block {
    /// # Safety
    /// Argument `k` holds `n` aligned values of `T` that live as long as `'a`.
    unsafe fn argument<'a, T>(&self, k: usize) -> &'a [T] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(self.arguments[k].cast(), self.n) }
    }

    /// # Safety
    /// The result has room for `n` aligned values of `T`, overlaps no argument and lives as long as `'a`.
    unsafe fn result<'a, T>(&self) -> &'a mut [T] {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts_mut(self.result.cast(), self.n) }
    }
}

/// Applies a function to a block of numbers of a type.
///
/// # Safety
/// All addresses hold `n` aligned values of the types that the function takes and gives for `dtype`, and the result
/// overlaps no argument.
pub(super) unsafe fn apply(isa: Isa, function: Function, dtype: DType, block: Block) {
    // SAFETY: the caller vouched for the types; each arm reads and writes those of its dtype.
    unsafe {
        match (function, computed(dtype)) {
            (Function::Cast(to), from) => cast(from, to, block),
            (Function::Where, from) => isa.run(Choose(from.size(), block)),
            (_, DType::F32) => real::<f32>(isa, function, block),
            (_, DType::F64) => real::<f64>(isa, function, block),
            (_, DType::I8) => isa.run(Integers::<i8>(function, block, 0)),
            (_, DType::U8) => isa.run(Integers::<u8>(function, block, 0)),
            (_, DType::I32) => isa.run(Integers::<i32>(function, block, 0)),
            (_, DType::U32) => isa.run(Integers::<u32>(function, block, 0)),
            (_, DType::I64) => isa.run(Integers::<i64>(function, block, 0)),
            (_, DType::C32) => isa.run(Complexes::<f32>(function, block, 0.0)),
            (_, DType::C64) => isa.run(Complexes::<f64>(function, block, 0.0)),
            (_, other) => unreachable!("nothing is computed in {other}"),
        }
    }
}

/// # Safety
/// As for [`apply`].
unsafe fn real<T: LineElement>(isa: Isa, function: Function, block: Block) {
    if let Some(recipe) = Recipe::of(function) {
        let lines = Lines {
            inputs: block.arguments.map(<*const u8>::cast),
            input_steps: [0; 3],
            // Blocks of constants hold the same number everywhere.
            repeated: recipe.constants(),
            output: block.result.cast(),
            output_step: 0,
            rows: 1,
            length: block.n,
            stream: false,
            ahead: Ahead::Nothing,
        };
        // SAFETY: the block's values are contiguous.
        unsafe { T::pick(recipe, lines.repeated)(isa, &lines) }
    } else {
        isa.run(Compare::<T>(function, block, T::ZERO));
    }
}

/// Comparisons; the last field only names the type.
struct Compare<T>(Function, Block, T);
/// Functions of integers, and of truth values as bytes.
struct Integers<T>(Function, Block, T);
/// Functions of complex numbers.
struct Complexes<T>(Function, Block, T);
/// `where` for values of a size.
struct Choose(usize, Block);

impl<T: PartialOrd + Copy> SimdTask for Compare<T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        // SAFETY: `apply` was called with the right types.
        unsafe { compare::<T>(self.0, self.1) }
    }
}

/// # Safety
/// As for [`apply`].
#[inline(always)]
unsafe fn compare<T: PartialOrd + Copy>(function: Function, block: Block) {
    // SAFETY: the caller's; truth values are written as bytes 0 and 1.
    let (a, b, out) = unsafe { (block.argument::<T>(0), block.argument::<T>(1), block.result::<u8>()) };
    match function {
        Function::Equal => map2(a, b, out, |a, b| u8::from(a == b)),
        Function::NotEqual => map2(a, b, out, |a, b| u8::from(a != b)),
        Function::Less => map2(a, b, out, |a, b| u8::from(a < b)),
        Function::LessEqual => map2(a, b, out, |a, b| u8::from(a <= b)),
        Function::Greater => map2(a, b, out, |a, b| u8::from(a > b)),
        Function::GreaterEqual => map2(a, b, out, |a, b| u8::from(a >= b)),
        other => unreachable!("{} is no comparison", other.name()),
    }
}

#[inline(always)]
fn map1<A: Copy, R>(a: &[A], out: &mut [R], f: impl Fn(A) -> R) {
    for (out, a) in out.iter_mut().zip(a) {
        *out = f(*a);
    }
}

#[inline(always)]
fn map2<A: Copy, B: Copy, R>(a: &[A], b: &[B], out: &mut [R], f: impl Fn(A, B) -> R) {
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = f(*a, *b);
    }
}

macro_rules! integers {
    ($($t:ident),*) => {$(
        impl SimdTask for Integers<$t> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, _: S) {
                let Self(function, block, _) = self;
                if function.is_comparison() {
                    // SAFETY: `apply` was called with the right types.
                    return unsafe { compare::<$t>(function, block) };
                }
                // SAFETY: `apply` was called with the right types; unused arguments repeat the first.
                let [a, b, c]: [&[$t]; 3] = unsafe { [block.argument(0), block.argument(1), block.argument(2)] };
                // SAFETY: as above.
                let out: &mut [$t] = unsafe { block.result() };
                match function {
                    Function::Add => map2(a, b, out, $t::wrapping_add),
                    Function::Sub => map2(a, b, out, $t::wrapping_sub),
                    Function::Mul => map2(a, b, out, $t::wrapping_mul),
                    Function::Div => map2(a, b, out, |a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
                    Function::Min => map2(a, b, out, Ord::min),
                    Function::Max => map2(a, b, out, Ord::max),
                    Function::Neg => map1(a, out, $t::wrapping_neg),
                    Function::Abs => map1(a, out, |a| a.magnitude()),
                    Function::Relu => map1(a, out, |a| a.max(0)),
                    Function::Clamp => {
                        for (((out, a), b), c) in out.iter_mut().zip(a).zip(b).zip(c) {
                            *out = (*a).max(*b).min(*c);
                        }
                    }
                    other => unreachable!("{} is refused for integers", other.name()),
                }
            }
        }
    )*};
}
integers!(i8, u8, i32, u32, i64);

/// The size of an integer; the smallest one wraps.
trait Magnitude: Copy {
    fn magnitude(self) -> Self;
}
macro_rules! magnitude {
    ($($t:ident $body:expr;)*) => {$(impl Magnitude for $t {
        #[inline(always)]
        fn magnitude(self) -> Self {
            let of: fn($t) -> $t = $body;
            of(self)
        }
    })*};
}
magnitude! { i8 i8::wrapping_abs; i32 i32::wrapping_abs; i64 i64::wrapping_abs; u8 |x| x; u32 |x| x; }

macro_rules! complexes {
    ($($t:ident),*) => {$(
        impl SimdTask for Complexes<$t> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, _: S) {
                let Self(function, block, _) = self;
                // SAFETY: `apply` was called with the right types; unused arguments repeat the first.
                let (a, b): (&[Complex<$t>], &[Complex<$t>]) = unsafe { (block.argument(0), block.argument(1)) };
                // SAFETY: as above, for the type that the function gives.
                unsafe {
                    match function {
                        Function::Add => map2(a, b, block.result(), |a, b| a + b),
                        Function::Sub => map2(a, b, block.result(), |a, b| a - b),
                        Function::Mul => map2(a, b, block.result(), |a, b| a * b),
                        Function::Div => map2(a, b, block.result(), |a, b| a / b),
                        Function::Neg => map1(a, block.result(), |a| -a),
                        Function::Abs => map1(a, block.result(), |a| a.norm()),
                        Function::Equal => map2(a, b, block.result(), |a, b| u8::from(a == b)),
                        Function::NotEqual => map2(a, b, block.result(), |a, b| u8::from(a != b)),
                        other => unreachable!("{} is refused for complex numbers", other.name()),
                    }
                }
            }
        }
    )*};
}
complexes!(f32, f64);

impl SimdTask for Choose {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        // SAFETY: `apply` was called with values of this size; they are only moved.
        unsafe {
            match self.0 {
                1 => choose::<u8>(self.1),
                2 => choose::<u16>(self.1),
                4 => choose::<u32>(self.1),
                8 => choose::<u64>(self.1),
                _ => choose::<[u64; 2]>(self.1),
            }
        }
    }
}

/// # Safety
/// As for [`apply`], for values of the size of `T`.
#[inline(always)]
unsafe fn choose<T: Copy>(block: Block) {
    // SAFETY: the caller's; truth values are bytes.
    unsafe {
        let (condition, a, b) = (block.argument::<u8>(0), block.argument::<T>(1), block.argument::<T>(2));
        for (((out, is), a), b) in block.result::<T>().iter_mut().zip(condition).zip(a).zip(b) {
            *out = if *is != 0 { *a } else { *b };
        }
    }
}

/// A number that becomes any other type by the rules of [`Function::Cast`].
trait Castable: Copy {
    /// Real part and imaginary part, in double width.
    fn parts(self) -> Complex<f64>;
    /// Whether it is not zero.
    fn truth(self) -> bool;
    /// In single width, rounded once.
    fn single(self) -> f32;
    fn to_i8(self) -> i8;
    fn to_i16(self) -> i16;
    fn to_u8(self) -> u8;
    fn to_i32(self) -> i32;
    fn to_u32(self) -> u32;
    fn to_i64(self) -> i64;
}

macro_rules! castable {
    ($($t:ty, $x:ident, $real:expr, $parts:expr, $truth:expr;)*) => {$(impl Castable for $t {
        #[inline(always)]
        fn parts(self) -> Complex<f64> { let $x = self; $parts }
        #[inline(always)]
        fn truth(self) -> bool { let $x = self; $truth }
        #[inline(always)]
        fn single(self) -> f32 { let $x = self; $real as f32 }
        #[inline(always)]
        fn to_i8(self) -> i8 { let $x = self; $real as i8 }
        #[inline(always)]
        fn to_i16(self) -> i16 { let $x = self; $real as i16 }
        #[inline(always)]
        fn to_u8(self) -> u8 { let $x = self; $real as u8 }
        #[inline(always)]
        fn to_i32(self) -> i32 { let $x = self; $real as i32 }
        #[inline(always)]
        fn to_u32(self) -> u32 { let $x = self; $real as u32 }
        #[inline(always)]
        fn to_i64(self) -> i64 { let $x = self; $real as i64 }
    })*};
}
castable! {
    f32, x, x, Complex::new(f64::from(x), 0.0), x != 0.0;
    f64, x, x, Complex::new(x, 0.0), x != 0.0;
    i8, x, x, Complex::new(f64::from(x), 0.0), x != 0;
    u8, x, x, Complex::new(f64::from(x), 0.0), x != 0;
    i16, x, x, Complex::new(f64::from(x), 0.0), x != 0;
    i32, x, x, Complex::new(f64::from(x), 0.0), x != 0;
    u32, x, x, Complex::new(f64::from(x), 0.0), x != 0;
    i64, x, x, Complex::new(x as f64, 0.0), x != 0;
    Complex<f32>, x, x.re, Complex::new(f64::from(x.re), f64::from(x.im)), x != Complex::new(0.0, 0.0);
    Complex<f64>, x, x.re, x, x != Complex::new(0.0, 0.0);
}

/// # Safety
/// As for [`apply`]; `from` is a type that is computed in.
unsafe fn cast(from: DType, to: DType, block: Block) {
    // SAFETY: the caller's.
    unsafe {
        match from {
            DType::F32 => cast_from::<f32>(to, block),
            DType::F64 => cast_from::<f64>(to, block),
            DType::I8 => cast_from::<i8>(to, block),
            DType::I16 => cast_from::<i16>(to, block),
            DType::U8 => cast_from::<u8>(to, block),
            DType::I32 => cast_from::<i32>(to, block),
            DType::U32 => cast_from::<u32>(to, block),
            DType::I64 => cast_from::<i64>(to, block),
            DType::C32 => cast_from::<Complex<f32>>(to, block),
            DType::C64 => cast_from::<Complex<f64>>(to, block),
            other => unreachable!("nothing is computed in {other}"),
        }
    }
}

/// # Safety
/// As for [`apply`].
unsafe fn cast_from<A: Castable>(to: DType, block: Block) {
    // SAFETY: the caller's; the result has the type that values of `to` are computed in.
    unsafe {
        let a = block.argument::<A>(0);
        match to {
            DType::F32 => map1(a, block.result(), A::single),
            DType::F16 => map1(a, block.result(), |a| f16::from_f32(a.single()).to_f32()),
            DType::BF16 => map1(a, block.result(), |a| bf16::from_f32(a.single()).to_f32()),
            DType::F64 => map1(a, block.result(), |a| a.parts().re),
            DType::I8 => map1(a, block.result(), A::to_i8),
            DType::I16 => map1(a, block.result(), A::to_i16),
            DType::U8 => map1(a, block.result(), A::to_u8),
            DType::I32 => map1(a, block.result(), A::to_i32),
            DType::U32 => map1(a, block.result(), A::to_u32),
            DType::I64 => map1(a, block.result(), A::to_i64),
            DType::Bool => map1(a, block.result(), |a| u8::from(a.truth())),
            DType::C32 => {
                map1(a, block.result(), |a| Complex::new(a.single(), a.parts().im as f32));
            }
            DType::C64 => map1(a, block.result(), A::parts),
        }
    }
}
