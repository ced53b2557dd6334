//! Lengths with large prime factors as cyclic convolutions of a length that has none.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::cpu_along::Along;
use super::cpu_four_step::FourStep;
use super::cpu_lines::{Line, Width};
use super::cpu_radix::mul;
use super::cpu_rows::{Number, Numbers, Sink, Source};
use super::plan::Plan;
use super::roots::root;
use crate::backends::cpu::real::{RealTask, Vectors};
use crate::backends::cpu::simd::{Float, Lanes};

type C = Complex<f64>;

/// A transform of `n` points by two transforms of `points`.
pub(super) struct Convolution<T> {
    width: Width,
    n: usize,
    points: usize,
    inner: Inner<T>,
    /// The transform of what is convolved with, divided by the number of points.
    spectrum: Vec<T>,
    trick: Trick<T>,
}

/// The plan of the convolution's transforms.
enum Inner<T> {
    Along(Along<T>),
    FourStep(FourStep<T>),
}

enum Trick<T> {
    /// jk = (j² + k² − (k − j)²)/2: numbers are multiplied by these before and after.
    Bluestein(Vec<T>),
    /// Powers of a generator number all points but the first: input and output are taken in their order.
    Rader { input: Vec<u32>, output: Vec<u32> },
}

impl<T: Number> Convolution<T> {
    /// For plans by Bluestein and Rader.
    pub fn new(n: usize, plan: &Plan, width: Width) -> Self {
        let (points, inner) = match plan {
            Plan::Bluestein(points, inner) => (*points, inner),
            Plan::Rader(inner) => (n - 1, inner),
            other => unreachable!("{other} is no convolution"),
        };
        let (trick, factor) = if matches!(plan, Plan::Rader(_)) { rader(n) } else { bluestein(n, points) };
        let roots: Vec<C> = (0..points).map(|k| root(k, points)).map(|(re, im)| C::new(re, im)).collect();
        let spectrum = super::cpu_reference::dft(&factor, &roots, 1);
        let inner = match Line::new(points, inner, width) {
            Line::Along(line) => Inner::Along(line),
            Line::FourStep(line) => Inner::FourStep(line),
            Line::Across(_) | Line::Convolution(_) => {
                unreachable!("the planner gives convolutions of multiples of the square of the lanes")
            }
        };
        let scale = 1.0 / points as f64;
        Self { width, n, points, inner, spectrum: interleaved(spectrum.iter().map(|z| z * scale)), trick }
    }

    /// Numbers of `T` that a transform needs as scratch.
    pub fn scratch(&self) -> usize {
        4 * self.points
            + match &self.inner {
                Inner::Along(line) => line.scratch(),
                Inner::FourStep(line) => line.middle() + line.scratch(),
            }
    }

    /// Transforms one line of any strides; `x` may be `y`.
    ///
    /// # Safety
    /// Both lines are valid, and the scratch has room for `self.scratch()` numbers.
    pub unsafe fn transform(&self, x: Numbers<T>, y: Numbers<T>, scratch: *mut T) {
        // SAFETY: the caller's promise.
        unsafe {
            let (a, b, rest) = (scratch, scratch.add(2 * self.points), scratch.add(4 * self.points));
            let first = self.take(x, a);
            self.inner(a, b, rest);
            let total = Complex::new(first.re + *b, first.im + *b.add(1));
            // The inverse transform is the transform of conjugates.
            let by = self.spectrum.as_ptr().cast_mut();
            self.product(self.points, [plain(b), plain(by)], Numbers { sign: -T::ZERO, ..plain(b) });
            self.inner(b, a, rest);
            self.give(y, a, first, total);
        }
    }

    /// Products of neighbours; as many as `n` has whole vectors, which are returned.
    ///
    /// # Safety
    /// All have `n` numbers.
    unsafe fn product(&self, n: usize, from: [Numbers<T>; 2], to: Numbers<T>) -> usize {
        T::dispatch(self.width.isa, Product { rows: n / self.width.lanes, from, to });
        n / self.width.lanes * self.width.lanes
    }

    /// # Safety
    /// As for `transform`.
    unsafe fn inner(&self, from: *mut T, to: *mut T, scratch: *mut T) {
        let (from, to) = (plain(from), plain(to));
        // SAFETY: the caller's promise.
        unsafe {
            match &self.inner {
                Inner::Along(line) => line.transform(&from, &to, std::ptr::null(), scratch),
                Inner::FourStep(line) => line.transform(from, to, scratch),
            }
        }
    }

    /// Fills `a` from the input; gives the number that stays outside the convolution.
    ///
    /// # Safety
    /// As for `transform`.
    unsafe fn take(&self, x: Numbers<T>, a: *mut T) -> Complex<T> {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.trick {
                Trick::Bluestein(chirp) => {
                    let chirped = plain(chirp.as_ptr().cast_mut());
                    let done = if x.stride == 1 { self.product(self.n, [x, chirped], plain(a)) } else { 0 };
                    for j in done..self.n {
                        write(a, j, times(read(x, j), chirp, j));
                    }
                    a.add(2 * self.n).write_bytes(0, 2 * (self.points - self.n));
                    Complex::new(T::ZERO, T::ZERO)
                }
                Trick::Rader { input, .. } => {
                    for (j, &from) in input.iter().enumerate() {
                        write(a, j, read(x, from as usize));
                    }
                    read(x, 0)
                }
            }
        }
    }

    /// Writes the output from `a`, which holds conjugates.
    ///
    /// # Safety
    /// As for `transform`.
    unsafe fn give(&self, y: Numbers<T>, a: *mut T, first: Complex<T>, total: Complex<T>) {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.trick {
                Trick::Bluestein(chirp) => {
                    let conjugates = Numbers { sign: -T::ZERO, ..plain(a) };
                    let chirped = plain(chirp.as_ptr().cast_mut());
                    let done = if y.stride == 1 { self.product(self.n, [conjugates, chirped], y) } else { 0 };
                    for k in done..self.n {
                        give_one(y, k, times(read(conjugates, k), chirp, k));
                    }
                }
                Trick::Rader { output, .. } => {
                    give_one(y, 0, total);
                    for (k, &to) in output.iter().enumerate() {
                        let z = Complex::new(first.re + *a.add(2 * k), first.im - *a.add(2 * k + 1));
                        give_one(y, to as usize, z);
                    }
                }
            }
        }
    }
}

/// Rows of LANES neighbours, multiplied.
struct Product<T> {
    rows: usize,
    from: [Numbers<T>; 2],
    to: Numbers<T>,
}

impl<T: Number> RealTask<T> for Product<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let stride = <S as Lanes<T>>::LANES as isize;
        let [a, b] = self.from.map(|x| Numbers { stride, ..x });
        let to = Numbers { stride, ..self.to };
        for row in 0..self.rows {
            // SAFETY: `product` makes this task for rows that exist.
            unsafe { to.store(s, row, mul(s, a.load(s, row), b.load(s, row))) };
        }
    }
}

/// Neighbouring numbers as they are.
fn plain<T: Float>(first: *mut T) -> Numbers<T> {
    Numbers { first, stride: 1, scale: T::ONE, sign: T::ZERO, past: false }
}

/// `z` times number `j` of a table.
#[inline(always)]
fn times<T: Float>(z: Complex<T>, table: &[T], j: usize) -> Complex<T> {
    let (re, im) = (table[2 * j], table[2 * j + 1]);
    Complex::new(z.re * re - z.im * im, z.re * im + z.im * re)
}

/// # Safety
/// Number `j` may be read.
#[inline(always)]
unsafe fn read<T: Float>(x: Numbers<T>, j: usize) -> Complex<T> {
    // SAFETY: the caller's promise.
    let (re, im) = unsafe {
        let at = x.first.offset(2 * x.stride * j as isize);
        (*at, *at.add(1))
    };
    Complex::new(re, flipped(im, x.sign))
}

/// # Safety
/// Number `k` may be written.
#[inline(always)]
unsafe fn give_one<T: Float>(y: Numbers<T>, k: usize, z: Complex<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        let at = y.first.offset(2 * y.stride * k as isize);
        *at = z.re * y.scale;
        *at.add(1) = flipped(z.im * y.scale, y.sign);
    }
}

/// # Safety
/// Number `j` may be written.
#[inline(always)]
unsafe fn write<T: Float>(a: *mut T, j: usize, z: Complex<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        *a.add(2 * j) = z.re;
        *a.add(2 * j + 1) = z.im;
    }
}

/// `x`, negated if `sign` is −0.
#[inline(always)]
pub(super) fn flipped<T: Float>(x: T, sign: T) -> T {
    T::from_bits64(x.to_bits64() ^ sign.to_bits64())
}

fn interleaved<T: Float>(numbers: impl Iterator<Item = C>) -> Vec<T> {
    numbers.flat_map(|z| [T::from_f64(z.re), T::from_f64(z.im)]).collect()
}

/// e^(−πi j²/n), and the conjugates round the end of the convolution.
fn bluestein<T: Float>(n: usize, points: usize) -> (Trick<T>, Vec<C>) {
    let square = |j: usize| (j as u128 * j as u128 % (2 * n as u128)) as usize;
    let chirp: Vec<C> = (0..n).map(|j| root(square(j), 2 * n)).map(|(re, im)| C::new(re, im)).collect();
    let mut factor = vec![C::default(); points];
    for (j, z) in chirp.iter().enumerate() {
        factor[j] = z.conj();
        factor[(points - j) % points] = z.conj();
    }
    (Trick::Bluestein(interleaved(chirp.into_iter())), factor)
}

/// Input and output in the order of a generator's powers, and the roots in the order of its inverse's.
fn rader<T: Float>(n: usize) -> (Trick<T>, Vec<C>) {
    let times = |a: usize, b: usize| (a as u128 * b as u128 % n as u128) as usize;
    let powers = |g: usize| std::iter::successors(Some(1), move |&p| Some(times(p, g))).take(n - 1);
    // A generator's powers come back to one only at the end.
    let generates = |&g: &usize| powers(g).skip(1).all(|p| p != 1);
    let g = (2..n).find(generates).unwrap_or(1);
    let input: Vec<u32> = powers(g).map(|p| p as u32).collect();
    let mut output = input.clone();
    output[1..].reverse();
    let factor = output.iter().map(|&p| root(p as usize, n)).map(|(re, im)| C::new(re, im)).collect();
    (Trick::Rader { input, output }, factor)
}
