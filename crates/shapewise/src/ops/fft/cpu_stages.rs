//! The stages of a transform whose rows are vectors: each row holds one number of LANES transforms side by side.
//!
//! Rows lie in scratch as LANES real parts and LANES imaginary parts. A stage of radix R takes rows that are far apart,
//! transforms them, multiplies by the roots of unity between factors and writes them in the order of the next stage
//! (Stockham's), so that no stage reorders anything by itself. All transforms go forward: the inverse is the forward transform of
//! conjugate numbers, conjugated.
#![allow(unsafe_code)]

use super::cpu_radix::{LARGEST, Pair, dft, dft_any, mul};
use super::cpu_tiles::{cut, tiled};
use super::roots::root;
use crate::backends::cpu::ALIGNMENT;
use crate::backends::cpu::real::{Real, RealTask, Vectors, prefetch};
use crate::backends::cpu::simd::{Float, Isa, Lanes};

/// The parts of complex numbers: f32 and f64.
pub(super) trait Number: Float + Real<Wide = Self> {}

impl Number for f32 {}
impl Number for f64 {}

/// One factor of a length with the roots of unity that follow it.
#[derive(Clone, Debug)]
pub(super) struct Stage<T> {
    radix: usize,
    /// What is left of the length after this factor and those before it.
    pub rest: usize,
    /// The product of the factors before.
    pub stride: usize,
    /// For each of `rest`, radix − 1 roots as real and imaginary part; a radix that is cut has the first one too, which is one.
    pub roots: Vec<T>,
    /// The roots between the two factors of a radix that is cut.
    pub inner: Vec<T>,
    /// Cosines and sines of an odd radix.
    odd: Vec<T>,
}

/// The stages of a length that is the product of these factors.
pub(super) fn stages<T: Float>(radices: &[u8]) -> Vec<Stage<T>> {
    let mut rest: usize = radices.iter().map(|&r| usize::from(r)).product();
    let mut stride = 1;
    let parts = |(re, im): (f64, f64)| [T::from_f64(re), T::from_f64(im)];
    let mut all = Vec::with_capacity(radices.len());
    for radix in radices.iter().map(|&r| usize::from(r)) {
        let n = rest;
        rest /= radix;
        let [a, b] = cut(radix).unwrap_or_default();
        let first = usize::from(a == 0);
        let powers = (0..rest).flat_map(|p| (first..radix).map(move |k| root(p * k, n)));
        let inner = (0..b).flat_map(|j| (0..a).map(move |k| root(j * k, radix)));
        let odd = if radix % 2 == 1 { radix } else { 0 };
        // Sines of the positive angle.
        let odd = (0..odd).map(|j| root(j, radix)).map(|(cos, sin)| (cos, -sin));
        all.push(Stage {
            radix,
            rest,
            stride,
            roots: powers.flat_map(parts).collect(),
            inner: inner.flat_map(parts).collect(),
            odd: odd.flat_map(parts).collect(),
        });
        stride *= radix;
    }
    all
}

/// Where a stage reads rows.
pub(super) trait Source<T: Float>: Copy {
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
    /// # Safety
    /// A row of this sink starts at `at`.
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, q: usize, k: usize, x: Pair<S::V>);
    /// # Safety
    /// The row exists.
    #[inline(always)]
    unsafe fn store<S: Lanes<T>>(self, s: S, row: usize, x: Pair<S::V>) {
        // SAFETY: the caller's promise.
        unsafe { self.write(s, Sink::row::<S>(self, row), 0, 0, x) }
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
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, _: usize, _: usize, x: Pair<S::V>) {
        // SAFETY: the caller's promise.
        unsafe {
            s.store(at, x.re);
            s.store(at.add(S::LANES), x.im);
        }
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
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, _: usize, _: usize, x: Pair<S::V>) {
        // SAFETY: the caller's promise.
        unsafe { Plain(self).write(s, at, 0, 0, self.scaled(s, x)) };
    }
}

/// Numbers that are written past the caches; every row starts at a multiple of a register.
#[derive(Clone, Copy)]
pub(super) struct Past<T>(pub Numbers<T>);

impl<T: Float> Sink<T> for Past<T> {
    rows!(|self, row| self.0.start(row), |rows| 2 * self.0.stride * rows as isize);

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, _: usize, _: usize, x: Pair<S::V>) {
        let x = self.0.scaled(s, x);
        let (a, b) = s.zip(x.re, x.im);
        // SAFETY: the caller's promise, and that of whoever takes this sink.
        unsafe {
            s.stream(at, a);
            s.stream(at.add(S::LANES), b);
        }
    }
}

/// Numbers that are neither scaled nor conjugated.
#[derive(Clone, Copy)]
pub(super) struct Plain<T>(pub Numbers<T>);

impl<T: Float> Source<T> for Plain<T> {
    rows!(|self, row| self.0.start(row), |rows| 2 * self.0.stride * rows as isize);

    #[inline(always)]
    unsafe fn read<S: Lanes<T>>(self, s: S, at: *mut T) -> Pair<S::V> {
        // SAFETY: the caller's promise.
        let (re, im) = unsafe { s.unzip(s.load(at), s.load(at.add(S::LANES))) };
        Pair { re, im }
    }
}

impl<T: Float> Sink<T> for Plain<T> {
    rows!(|self, row| self.0.start(row), |rows| 2 * self.0.stride * rows as isize);

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, _: usize, _: usize, x: Pair<S::V>) {
        let (a, b) = s.zip(x.re, x.im);
        // SAFETY: the caller's promise.
        unsafe {
            s.store(at, a);
            s.store(at.add(S::LANES), b);
        }
    }
}

/// Rows whose counterparts so many elements away are asked for as they are read: those of the line after this one, which have the time
/// of all other stages to arrive, or rows of columns that are read soon. They are pages apart, which no machine foresees.
#[derive(Clone, Copy)]
pub(super) struct Expecting<A>(pub A, pub isize);

impl<T: Float, A: Source<T>> Source<T> for Expecting<A> {
    rows!(|self, row| self.0.row::<S>(row), |rows| self.0.apart::<S>(rows));

    #[inline(always)]
    unsafe fn read<S: Lanes<T>>(self, s: S, at: *mut T) -> Pair<S::V> {
        let later = at.wrapping_offset(self.1).cast_const();
        for line in 0..const { (2 * S::LANES * size_of::<T>()).div_ceil(ALIGNMENT) } {
            prefetch(later.wrapping_byte_add(ALIGNMENT * line));
        }
        // SAFETY: the caller's promise.
        unsafe { self.0.read(s, at) }
    }
}

/// Rows of a block of an intermediate matrix: numbers are multiplied by the roots between its two passes, which are the
/// products of a root for q and one for k.
#[derive(Clone, Copy)]
pub(super) struct Turned<T> {
    pub first: *mut T,
    pub by_q: *const T,
    pub by_k: *const T,
    /// What will be read next, a row of it for each row that is written: from memory it takes longer than a few rows.
    pub next: Numbers<T>,
}

impl<T: Float> Sink<T> for Turned<T> {
    rows!(|self, row| self.first.wrapping_add(2 * S::LANES * row), |rows| (2 * S::LANES * rows) as isize);

    #[inline(always)]
    unsafe fn write<S: Lanes<T>>(self, s: S, at: *mut T, q: usize, k: usize, x: Pair<S::V>) {
        let row = (at.addr() - self.first.addr()) / (2 * S::LANES * size_of::<T>());
        prefetch(self.next.start(row).cast_const());
        // SAFETY: the caller's promise; there are as many roots as values of q and k.
        unsafe {
            let (a, b) = (Packed(self.by_q.cast_mut()).load(s, q), Packed(self.by_k.cast_mut()).load(s, k));
            Packed(at).write(s, at, q, k, mul(s, x, mul(s, a, b)));
        }
    }
}

/// A loop that is written out: the compiler keeps sixteen vectors in registers only where no loop is left.
macro_rules! each {
    ($i:ident in $n:ident $body:block) => { each!($i in $n $body 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    ($i:ident in $n:ident $body:block $($at:literal)*) => {$(
        if $at < $n {
            let $i: usize = $at;
            $body
        }
    )*};
}
pub(super) use each;

/// One stage from rows to rows; `LAST` stages have no roots.
struct Run<'a, T, A, B, const LAST: bool> {
    stage: &'a Stage<T>,
    from: A,
    to: B,
}

impl<T: Number, A: Source<T>, B: Sink<T>, const LAST: bool> RealTask<T> for Run<'_, T, A, B, LAST> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let Self { stage, from, to } = self;
        // SAFETY: `run` is the only one who makes this task, and its caller promised that all rows exist.
        unsafe {
            match stage.radix {
                2 => known::<T, S, 2, LAST>(s, stage, from, to),
                3 => known::<T, S, 3, LAST>(s, stage, from, to),
                4 => known::<T, S, 4, LAST>(s, stage, from, to),
                5 => known::<T, S, 5, LAST>(s, stage, from, to),
                8 => known::<T, S, 8, LAST>(s, stage, from, to),
                16 => known::<T, S, 16, LAST>(s, stage, from, to),
                32 => tiled::<T, S, 8, 4, LAST>(s, stage, from, to),
                _ => any::<T, S>(s, stage, from, to),
            }
        }
    }
}

/// Runs one stage with these instructions.
///
/// Every stage is a function of its own for each instruction set, so that small transforms are compiled once.
///
/// # Safety
/// Source and sink have all rows of the stage's length and are not the same memory.
#[inline]
pub(super) unsafe fn run<T: Number, const LAST: bool>(
    isa: Isa,
    stage: &Stage<T>,
    from: impl Source<T>,
    to: impl Sink<T>,
) {
    T::dispatch(isa, Run::<T, _, _, LAST> { stage, from, to });
}

/// # Safety
/// As for `run`.
#[inline(always)]
unsafe fn known<T: Float, S: Lanes<T>, const R: usize, const LAST: bool>(
    s: S,
    stage: &Stage<T>,
    from: impl Source<T>,
    to: impl Sink<T>,
) {
    let (rest, stride) = (if LAST { 1 } else { stage.rest }, stage.stride);
    let (roots, odd) = (stage.roots.as_ptr(), &stage.odd[..]);
    // Rows are found by adding, because there are more of them than registers to hold their places.
    let (near, far) = (from.apart::<S>(1), from.apart::<S>(stride * rest));
    let (next, step) = (to.apart::<S>(1), to.apart::<S>(stride));
    for p in 0..rest {
        let (mut source, mut target) = (from.row::<S>(stride * p), to.row::<S>(stride * R * p));
        for q in 0..stride {
            let zero = s.splat(T::ZERO);
            let mut x = [Pair { re: zero, im: zero }; R];
            each!(j in R {
                // SAFETY: q < stride, p < rest and j < R name rows below stride · rest · R.
                x[j] = unsafe { from.read(s, source.wrapping_offset(far * j as isize)) };
            });
            dft::<T, S, R>(s, &mut x, odd);
            // SAFETY: as above; the table has R − 1 roots for each p, and the first p has none.
            unsafe {
                to.write(s, target, q, 0, x[0]);
                if LAST || p == 0 {
                    each!(k in R {
                        if k > 0 {
                            to.write(s, target.wrapping_offset(step * k as isize), q, k, x[k]);
                        }
                    });
                } else {
                    let roots = roots.add(2 * (R - 1) * p);
                    each!(k in R {
                        if k > 0 {
                            let (re, im) = (*roots.add(2 * k - 2), *roots.add(2 * k - 1));
                            let x = mul(s, x[k], Pair { re: s.splat(re), im: s.splat(im) });
                            to.write(s, target.wrapping_offset(step * k as isize), q, k, x);
                        }
                    });
                }
            }
            (source, target) = (source.wrapping_offset(near), target.wrapping_offset(next));
        }
    }
}

/// A radix that is only known at run time.
///
/// # Safety
/// As for `run`.
#[inline(always)]
unsafe fn any<T: Float, S: Lanes<T>>(s: S, stage: &Stage<T>, from: impl Source<T>, to: impl Sink<T>) {
    let Stage { radix, rest, stride, roots, odd, .. } = stage;
    let (radix, rest, stride) = (*radix, *rest, *stride);
    let zero = s.splat(T::ZERO);
    let mut rows = [Pair { re: zero, im: zero }; LARGEST];
    let x = &mut rows[..radix];
    for p in 0..rest {
        for q in 0..stride {
            for (j, x) in x.iter_mut().enumerate() {
                // SAFETY: as in `known`.
                *x = unsafe { from.load(s, q + stride * (p + rest * j)) };
            }
            dft_any(s, x, odd);
            for (k, &x) in x.iter().enumerate() {
                let at = 2 * ((radix - 1) * p + k);
                let root = if k == 0 { [T::ONE, T::ZERO] } else { [roots[at - 2], roots[at - 1]] };
                let x = mul(s, x, Pair { re: s.splat(root[0]), im: s.splat(root[1]) });
                // SAFETY: as above.
                unsafe { to.write(s, to.row::<S>(q + stride * (radix * p + k)), q, k, x) };
            }
        }
    }
}

/// All stages but the last, from the source into scratch, going to and fro; gives the scratch that holds the rows first.
///
/// # Safety
/// The source has the rows of all stages; both scratches have room for them.
pub(super) unsafe fn all_but_last<T: Number>(
    isa: Isa,
    stages: &[Stage<T>],
    from: impl Source<T>,
    [mut here, mut there]: [*mut T; 2],
) -> [*mut T; 2] {
    let [first, middle @ .., _] = stages else {
        // A single stage is the last; it finds its rows in scratch like any other.
        let n = stages.first().map_or(1, |stage| stage.radix);
        T::dispatch(isa, Move { n, from, to: Packed(here) });
        return [here, there];
    };
    // SAFETY: the caller's promise.
    unsafe {
        run::<T, false>(isa, first, from, Packed(here));
        for stage in middle {
            run::<T, false>(isa, stage, Packed(here), Packed(there));
            (here, there) = (there, here);
        }
    }
    [here, there]
}

/// Rows as they are.
pub(super) struct Move<A, B> {
    pub n: usize,
    pub from: A,
    pub to: B,
}

impl<T: Number, A: Source<T>, B: Sink<T>> RealTask<T> for Move<A, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        for row in 0..self.n {
            // SAFETY: this task is made for rows that exist.
            unsafe { self.to.store(s, row, self.from.load(s, row)) };
        }
    }
}
