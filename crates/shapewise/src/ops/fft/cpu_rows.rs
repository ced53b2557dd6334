//! Where stages read rows and where they write them: scratch, lines and columns of memory.
#![allow(unsafe_code)]

use super::cpu_radix::{Pair, mul};
use super::cpu_stages::Stage;
use super::cpu_tiles::cut;
use crate::backends::cpu::ALIGNMENT;
use crate::backends::cpu::real::{Real, prefetch};
use crate::backends::cpu::simd::{Float, Lanes};

/// The parts of complex numbers: f32 and f64.
pub(super) trait Number: Float + Real<Wide = Self> {}

impl Number for f32 {}
impl Number for f64 {}

/// Where a stage reads rows.
pub(super) trait Source<T: Float>: Copy {
    /// Whether reading a row again takes no more than its loads.
    const TWICE: bool = false;
    /// Where a row starts.
    fn row<S: Lanes<T>>(self, row: usize) -> *mut T;
    /// Elements of `T` between rows that are so many apart.
    fn apart<S: Lanes<T>>(self, rows: usize) -> isize;
    /// # Safety
    /// A row of this source starts at `at`.
    unsafe fn read<S: Lanes<T>>(self, s: S, at: *mut T) -> Pair<S::V>;
    /// # Safety
    /// The row exists.
    #[inline(always)]
    unsafe fn load<S: Lanes<T>>(self, s: S, row: usize) -> Pair<S::V> {
        // SAFETY: the caller's promise.
        unsafe { self.read(s, self.row::<S>(row)) }
    }
}

/// Where a stage writes rows: row = q + stride · k, which the last stage's sinks make use of.
pub(super) trait Sink<T: Float>: Copy {
    /// Where a row starts.
    fn row<S: Lanes<T>>(self, row: usize) -> *mut T;
    /// Elements of `T` between rows that are so many apart.
    fn apart<S: Lanes<T>>(self, rows: usize) -> isize;
    /// What all rows with this q need, in registers.
    ///
    /// # Safety
    /// Rows with this q exist.
    #[inline(always)]
    unsafe fn hold<S: Lanes<T>>(self, s: S, q: usize) -> Pair<S::V> {
        let _ = q;
        Pair { re: s.splat(T::ZERO), im: s.splat(T::ZERO) }
    }
    /// # Safety
    /// A row of this sink starts at `at`, and this is held for it.
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, held: Pair<S::V>, k: usize, x: Pair<S::V>);
    /// # Safety
    /// The row exists.
    #[inline(always)]
    unsafe fn store<S: Lanes<T>>(self, s: S, row: usize, x: Pair<S::V>) {
        // SAFETY: the caller's promise.
        unsafe { self.write(s, Sink::row::<S>(self, row), self.hold(s, 0), 0, x) }
    }
}

/// Rows in scratch.
#[derive(Clone, Copy)]
pub(super) struct Packed<T>(pub *mut T);

/// The two methods that tell where rows lie, the same for reading and writing.
macro_rules! rows {
    (|$self:ident, $row:ident| $at:expr, |$rows:ident| $apart:expr) => {
        #[inline(always)]
        fn row<S: Lanes<T>>($self, $row: usize) -> *mut T {
            $at
        }

        #[inline(always)]
        fn apart<S: Lanes<T>>($self, $rows: usize) -> isize {
            $apart
        }
    };
}

impl<T: Float> Source<T> for Packed<T> {
    const TWICE: bool = true;
    rows!(|self, row| self.0.wrapping_add(2 * S::LANES * row), |rows| (2 * S::LANES * rows) as isize);

    #[inline(always)]
    unsafe fn read<S: Lanes<T>>(self, s: S, at: *mut T) -> Pair<S::V> {
        // SAFETY: the caller's promise.
        unsafe { Pair { re: s.load(at), im: s.load(at.add(S::LANES)) } }
    }
}

impl<T: Float> Sink<T> for Packed<T> {
    rows!(|self, row| self.0.wrapping_add(2 * S::LANES * row), |rows| (2 * S::LANES * rows) as isize);

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, _: Pair<S::V>, _: usize, x: Pair<S::V>) {
        // SAFETY: the caller's promise.
        unsafe {
            s.store(at, x.re);
            s.store(at.add(S::LANES), x.im);
        }
    }
}

/// Rows in scratch with room for one more after every so many (a power of two): rows that are read together then do not share the
/// same few lines of the first cache.
#[derive(Clone, Copy)]
pub(super) struct Spaced<T> {
    pub first: *mut T,
    gap: u32,
}

impl<T> Spaced<T> {
    /// The rows between these stages, as the last but one writes and the last reads them.
    pub fn between(stages: &[Stage<T>], first: *mut T) -> Self {
        let gap = match stages {
            [one, _] if cut(one.radix).is_some() => one.radix.ilog2(),
            _ => usize::BITS - 1,
        };
        Self { first, gap }
    }

    /// The same elsewhere.
    pub fn at(self, first: *mut T) -> Self {
        Self { first, ..self }
    }
}

impl<T: Float> Source<T> for Spaced<T> {
    const TWICE: bool = true;
    rows!(
        |self, row| Source::row::<S>(Packed(self.first), row + (row >> self.gap)),
        |rows| Source::apart::<S>(Packed(self.first), rows + (rows >> self.gap))
    );

    #[inline(always)]
    unsafe fn read<S: Lanes<T>>(self, s: S, at: *mut T) -> Pair<S::V> {
        // SAFETY: the caller's promise.
        unsafe { Packed(self.first).read(s, at) }
    }
}

impl<T: Float> Sink<T> for Spaced<T> {
    rows!(|self, row| Source::row::<S>(self, row), |rows| Source::apart::<S>(self, rows));

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, held: Pair<S::V>, k: usize, x: Pair<S::V>) {
        // SAFETY: the caller's promise.
        unsafe { Packed(self.first).write(s, at, held, k, x) };
    }
}

/// Rows of LANES neighbouring complex numbers in memory, `stride` numbers apart.
#[derive(Clone, Copy)]
pub(super) struct Numbers<T> {
    pub first: *mut T,
    pub stride: isize,
    /// What numbers are multiplied by when they are written.
    pub scale: T,
    /// Conjugate: the sign bit that is flipped in imaginary parts.
    pub sign: T,
    /// Whether lines are written past the caches where their place allows it.
    pub past: bool,
}

impl<T: Float> Numbers<T> {
    /// Numbers of a forward or an inverse transform.
    pub fn new(first: *mut T, stride: isize, scale: f64, inverse: bool, past: bool) -> Self {
        let sign = if inverse { -T::ZERO } else { T::ZERO };
        Self { first, stride, scale: T::from_f64(scale), sign, past }
    }

    /// Whether numbers are written as they are.
    pub fn is_plain(&self) -> bool {
        self.scale == T::ONE && self.sign.to_bits64() == 0
    }

    /// Whether numbers are to go past the caches and start at a cache line.
    pub fn streams(&self) -> bool {
        self.past && self.first.addr().is_multiple_of(ALIGNMENT)
    }

    /// The same for rows, so many numbers apart, which all start at a cache line.
    pub fn rows_stream(&self, apart: usize) -> bool {
        // A complex number has at least eight bytes.
        self.streams() && apart.is_multiple_of(ALIGNMENT / 8)
    }

    /// The same from `n` numbers further on.
    #[inline(always)]
    pub fn at(self, n: isize) -> Self {
        Self { first: self.first.wrapping_offset(2 * n), ..self }
    }

    #[inline(always)]
    fn start(self, row: usize) -> *mut T {
        self.first.wrapping_offset(2 * self.stride * row as isize)
    }

    /// Numbers as they are written.
    #[inline(always)]
    fn scaled<S: Lanes<T>>(self, s: S, x: Pair<S::V>) -> Pair<S::V> {
        let scale = s.splat(self.scale);
        // The scale carries the sign into the imaginary part.
        Pair { re: s.mul(x.re, scale), im: s.mul(x.im, s.xor(scale, s.splat(self.sign))) }
    }
}

impl<T: Float> Source<T> for Numbers<T> {
    rows!(|self, row| self.start(row), |rows| 2 * self.stride * rows as isize);

    #[inline(always)]
    unsafe fn read<S: Lanes<T>>(self, s: S, at: *mut T) -> Pair<S::V> {
        // SAFETY: the caller's promise.
        unsafe {
            let (re, im) = s.unzip(s.load(at), s.load(at.add(S::LANES)));
            Pair { re, im: s.xor(im, s.splat(self.sign)) }
        }
    }
}

impl<T: Float> Sink<T> for Numbers<T> {
    rows!(|self, row| self.start(row), |rows| 2 * self.stride * rows as isize);

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, _: Pair<S::V>, _: usize, x: Pair<S::V>) {
        // SAFETY: the caller's promise.
        unsafe { Plain::of(&self).write(s, at, x, 0, self.scaled(s, x)) };
    }
}

/// Numbers that are written past the caches; every row starts at a multiple of a register.
#[derive(Clone, Copy)]
pub(super) struct Past<T>(pub Numbers<T>);

impl<T: Float> Sink<T> for Past<T> {
    rows!(|self, row| self.0.start(row), |rows| 2 * self.0.stride * rows as isize);

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, _: Pair<S::V>, _: usize, x: Pair<S::V>) {
        let x = self.0.scaled(s, x);
        let (a, b) = s.zip(x.re, x.im);
        // SAFETY: the caller's promise, and that of whoever takes this sink.
        unsafe {
            s.stream(at, a);
            s.stream(at.add(S::LANES), b);
        }
    }
}

/// Numbers that are neither scaled nor conjugated. Only what is needed: a task that is put together from single fields and then copied as
/// vectors waits for the fields to arrive in the cache.
#[derive(Clone, Copy)]
pub(super) struct Plain<T> {
    pub first: *mut T,
    pub stride: isize,
}

impl<T: Float> Plain<T> {
    #[inline(always)]
    pub fn of(numbers: &Numbers<T>) -> Self {
        Self { first: numbers.first, stride: numbers.stride }
    }

    #[inline(always)]
    fn start(self, row: usize) -> *mut T {
        self.first.wrapping_offset(2 * self.stride * row as isize)
    }
}

impl<T: Float> Source<T> for Plain<T> {
    rows!(|self, row| self.start(row), |rows| 2 * self.stride * rows as isize);

    #[inline(always)]
    unsafe fn read<S: Lanes<T>>(self, s: S, at: *mut T) -> Pair<S::V> {
        // SAFETY: the caller's promise.
        let (re, im) = unsafe { s.unzip(s.load(at), s.load(at.add(S::LANES))) };
        Pair { re, im }
    }
}

impl<T: Float> Sink<T> for Plain<T> {
    rows!(|self, row| self.start(row), |rows| 2 * self.stride * rows as isize);

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, _: Pair<S::V>, _: usize, x: Pair<S::V>) {
        let (a, b) = s.zip(x.re, x.im);
        // SAFETY: the caller's promise.
        unsafe {
            s.store(at, a);
            s.store(at.add(S::LANES), b);
        }
    }
}

/// Rows whose counterparts so many elements away are asked for as they are read or written: those of the line after this one, or rows
/// of columns that are read soon. They are pages apart, which no machine foresees.
#[derive(Clone, Copy)]
pub(super) struct Expecting<A>(pub A, pub isize);

impl<A> Expecting<A> {
    #[inline(always)]
    fn ask<T: Float, S: Lanes<T>>(&self, at: *mut T) {
        let later = at.wrapping_offset(self.1).cast_const();
        for line in 0..const { (2 * S::LANES * size_of::<T>()).div_ceil(ALIGNMENT) } {
            prefetch(later.wrapping_byte_add(ALIGNMENT * line));
        }
    }
}

impl<T: Float, A: Source<T>> Source<T> for Expecting<A> {
    rows!(|self, row| self.0.row::<S>(row), |rows| self.0.apart::<S>(rows));

    #[inline(always)]
    unsafe fn read<S: Lanes<T>>(self, s: S, at: *mut T) -> Pair<S::V> {
        self.ask::<T, S>(at);
        // SAFETY: the caller's promise.
        unsafe { self.0.read(s, at) }
    }
}

impl<T: Float, B: Sink<T>> Sink<T> for Expecting<B> {
    rows!(|self, row| Sink::row::<S>(self.0, row), |rows| Sink::apart::<S>(self.0, rows));

    #[inline(always)]
    unsafe fn hold<S: Lanes<T>>(self, s: S, q: usize) -> Pair<S::V> {
        // SAFETY: the caller's promise.
        unsafe { self.0.hold(s, q) }
    }

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, held: Pair<S::V>, k: usize, x: Pair<S::V>) {
        self.ask::<T, S>(at);
        // SAFETY: the caller's promise.
        unsafe { self.0.write(s, at, held, k, x) };
    }
}

/// Rows of a block of an intermediate matrix: numbers are multiplied by the roots between its two passes, which are the
/// products of a root for q and one for k.
#[derive(Clone, Copy)]
pub(super) struct Turned<T> {
    pub first: *mut T,
    pub by_q: *const T,
    pub by_k: *const T,
}

impl<T: Float> Sink<T> for Turned<T> {
    rows!(|self, row| self.first.wrapping_add(2 * S::LANES * row), |rows| (2 * S::LANES * rows) as isize);

    #[inline(always)]
    unsafe fn hold<S: Lanes<T>>(self, s: S, q: usize) -> Pair<S::V> {
        // SAFETY: the caller's promise; there are as many roots as values of q.
        unsafe { Packed(self.by_q.cast_mut()).load(s, q) }
    }

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, held: Pair<S::V>, k: usize, x: Pair<S::V>) {
        // The row behind this one is written by the next q: stores wait less for lines that were asked for.
        for line in 0..const { (2 * S::LANES * size_of::<T>()).div_ceil(ALIGNMENT) } {
            prefetch(at.wrapping_add(2 * S::LANES).wrapping_byte_add(ALIGNMENT * line).cast_const());
        }
        // SAFETY: the caller's promise; there are as many roots as values of k.
        unsafe {
            let root = mul(s, held, Packed(self.by_k.cast_mut()).load(s, k));
            Packed(at).write(s, at, held, k, mul(s, x, root));
        }
    }
}

/// Rows in scratch that are multiplied by a vector of roots each, which lie in a table as the rows do.
#[derive(Clone, Copy)]
pub(super) struct Rooted<T> {
    pub first: *mut T,
    pub roots: *const T,
}

impl<T: Float> Sink<T> for Rooted<T> {
    rows!(|self, row| self.first.wrapping_add(2 * S::LANES * row), |rows| (2 * S::LANES * rows) as isize);

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, held: Pair<S::V>, k: usize, x: Pair<S::V>) {
        let root = self.roots.wrapping_byte_offset(at.addr().wrapping_sub(self.first.addr()) as isize);
        // SAFETY: the caller's promise; the table has as many rows.
        unsafe {
            let root = Packed(root.cast_mut()).read(s, root.cast_mut());
            Packed(at).write(s, at, held, k, mul(s, x, root));
        }
    }
}
