//! Real transforms by complex ones of half the length, and the steps between half a spectrum and a whole one.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::cpu_radix::{Pair, add, mul, sub};
use super::cpu_rows::{Number, Numbers, Packed, Sink, Source};
use super::roots::root;
use crate::backends::cpu::real::{RealTask, Vectors};
use crate::backends::cpu::simd::{Float, Isa, Lanes};

/// What a real transform of n = 2·half points needs beside the complex one: e^(−2πi k/n) for k below half.
pub(super) fn roots<T: Float>(half: usize) -> Vec<T> {
    let number = |(re, im): (f64, f64)| [T::from_f64(re), T::from_f64(im)];
    (0..half).map(|k| root(k, 2 * half)).flat_map(number).collect()
}

/// Pairs of frequencies k and half − k from one spectrum to the other.
#[derive(Clone, Copy)]
struct Pairs<'a, T> {
    half: usize,
    roots: &'a [T],
    from: *mut T,
    to: *mut T,
    /// From a real spectrum to that of half the points, or back.
    inverse: bool,
}

/// Turns the spectrum of neighbouring pairs taken as complex numbers (`half` of them) into that of the real numbers (one more).
///
/// # Safety
/// `at` has room for `half + 1` complex numbers.
pub(super) unsafe fn unpack<T: Number>(isa: Isa, half: usize, roots: &[T], at: *mut T) {
    // SAFETY: the caller's promise.
    unsafe {
        let (re, im) = (*at, *at.add(1));
        put(at, 0, Complex::new(re + im, T::ZERO));
        put(at, half, Complex::new(re - im, T::ZERO));
    }
    T::dispatch(isa, Pairs { half, roots, from: at, to: at, inverse: false });
}

/// The opposite, twice as large; imaginary parts that real numbers cannot have are left out.
///
/// # Safety
/// `from` has `half + 1` complex numbers, `to` room for `half`.
pub(super) unsafe fn pack<T: Number>(isa: Isa, half: usize, roots: &[T], from: *mut T, to: *mut T) {
    // SAFETY: the caller's promise.
    unsafe {
        let (first, last) = (*from, *from.add(2 * half));
        put(to, 0, Complex::new(first + last, first - last));
    }
    T::dispatch(isa, Pairs { half, roots, from, to, inverse: true });
}

/// Turns the spectra of neighbouring pairs, one in each lane, into those of the real numbers.
///
/// # Safety
/// `rows` has `half` rows and room for one more.
pub(super) unsafe fn unpack_rows<T: Number>(isa: Isa, half: usize, roots: &[T], rows: *mut T) {
    T::dispatch(isa, Rows { half, roots, first: rows, inverse: false });
}

/// The opposite, twice as large and conjugated; imaginary parts that real numbers cannot have are left out.
///
/// # Safety
/// `rows` has `half + 1` rows.
pub(super) unsafe fn pack_rows<T: Number>(isa: Isa, half: usize, roots: &[T], rows: *mut T) {
    T::dispatch(isa, Rows { half, roots, first: rows, inverse: true });
}

/// Pairs of frequencies of as many lines as there are lanes, in their place.
#[derive(Clone, Copy)]
struct Rows<'a, T> {
    half: usize,
    roots: &'a [T],
    first: *mut T,
    inverse: bool,
}

impl<T: Number> RealTask<T> for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let (rows, sign) = (Packed(self.first), Lanes::<T>::splat(s, -T::ZERO));
        let conjugate = |x: Pair<_>| Pair { re: x.re, im: Lanes::<T>::xor(s, x.im, sign) };
        let zero = Lanes::<T>::splat(s, T::ZERO);
        // SAFETY: whoever makes this task promises half + 1 rows, and k and its mirror image are among them.
        unsafe {
            let first: Pair<_> = Source::<T>::load(rows, s, 0);
            if self.inverse {
                let last: Pair<_> = Source::<T>::load(rows, s, self.half);
                let both = Pair {
                    re: Lanes::<T>::add(s, first.re, last.re),
                    im: Lanes::<T>::sub(s, first.re, last.re),
                };
                rows.store(s, 0, conjugate(both));
            } else {
                let re = [Lanes::<T>::add(s, first.re, first.im), Lanes::<T>::sub(s, first.re, first.im)];
                rows.store(s, 0, Pair { re: re[0], im: zero });
                rows.store(s, self.half, Pair { re: re[1], im: zero });
            }
            for k in 1..=self.half / 2 {
                let w = [self.roots[2 * k], self.roots[2 * k + 1]].map(|part| Lanes::<T>::splat(s, part));
                let (a, b) = (Source::<T>::load(rows, s, k), Source::<T>::load(rows, s, self.half - k));
                let [one, other] = pair(s, a, b, Pair { re: w[0], im: w[1] }, self.inverse);
                let conjugated = if self.inverse { [conjugate(one), conjugate(other)] } else { [one, other] };
                rows.store(s, k, conjugated[0]);
                rows.store(s, self.half - k, conjugated[1]);
            }
        }
    }
}

/// Frequencies k and half − k of the other spectrum, from those of one and the root for k.
#[inline(always)]
fn pair<T: Float, S: Lanes<T>>(
    s: S,
    a: Pair<S::V>,
    b: Pair<S::V>,
    w: Pair<S::V>,
    inverse: bool,
) -> [Pair<S::V>; 2] {
    let b = Pair { re: b.re, im: s.neg(b.im) };
    let (even, odd) = (add(s, a, b), sub(s, a, b));
    let (even, odd) = if inverse {
        // i · conj(w) = im(w) + i re(w)
        (even, mul(s, odd, Pair { re: w.im, im: w.re }))
    } else {
        // −i/2 · w · odd
        let half = s.splat(T::from_f64(0.5));
        let w = Pair { re: s.mul(half, w.im), im: s.neg(s.mul(half, w.re)) };
        (Pair { re: s.mul(half, even.re), im: s.mul(half, even.im) }, mul(s, odd, w))
    };
    let other = sub(s, even, odd);
    [add(s, even, odd), Pair { re: other.re, im: s.neg(other.im) }]
}

impl<T: Number> RealTask<T> for Pairs<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let lanes = <S as Lanes<T>>::LANES;
        let mut k = 1;
        // Both vectors stay on their side of the middle.
        while 2 * (k + lanes) <= self.half + 1 {
            self.vector(s, k);
            k += lanes;
        }
        while 2 * k <= self.half {
            self.single(k);
            k += 1;
        }
    }
}

impl<T: Number> Pairs<'_, T> {
    /// LANES frequencies from k on, and their mirror images.
    #[inline(always)]
    fn vector<S: Lanes<T>>(&self, s: S, k: usize) {
        let at = |first: *mut T, k: usize| Numbers {
            first: first.wrapping_add(2 * k),
            stride: 0,
            scale: T::ONE,
            sign: T::ZERO,
            past: false,
        };
        let mirror = self.half + 1 - k - S::LANES;
        // SAFETY: 0 < k and k + LANES − 1 < mirror < half, and all have that many numbers.
        unsafe {
            let a = at(self.from, k).load(s, 0);
            let b = reversed(s, at(self.from, mirror).load(s, 0));
            let w = at(self.roots.as_ptr().cast_mut(), k).load(s, 0);
            let [one, other] = pair(s, a, b, w, self.inverse);
            at(self.to, k).store(s, 0, one);
            let other = reversed(s, other);
            at(self.to, mirror).store(s, 0, other);
        }
    }

    fn single(&self, k: usize) {
        let get = |from: *const T, k: usize| {
            // SAFETY: k and half − k are frequencies of both spectra and of the roots.
            unsafe { Complex::new(*from.add(2 * k), *from.add(2 * k + 1)) }
        };
        let (a, b, w) = (get(self.from, k), get(self.from, self.half - k), get(self.roots.as_ptr(), k));
        let (even, odd) = (Complex::new(a.re + b.re, a.im - b.im), Complex::new(a.re - b.re, a.im + b.im));
        let times =
            |a: Complex<T>, b: Complex<T>| Complex::new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
        let (even, odd) = if self.inverse {
            (even, times(odd, Complex::new(w.im, w.re)))
        } else {
            let half = T::from_f64(0.5);
            let w = Complex::new(half * w.im, -(half * w.re));
            (Complex::new(half * even.re, half * even.im), times(odd, w))
        };
        // SAFETY: as above.
        unsafe {
            put(self.to, k, Complex::new(even.re + odd.re, even.im + odd.im));
            put(self.to, self.half - k, Complex::new(even.re - odd.re, odd.im - even.im));
        }
    }
}

/// Numbers in the opposite order.
#[inline(always)]
fn reversed<T: Float, S: Lanes<T>>(s: S, mut x: Pair<S::V>) -> Pair<S::V> {
    let mut distance = S::LANES / 2;
    while distance > 0 {
        x = Pair { re: s.butterfly(x.re, distance), im: s.butterfly(x.im, distance) };
        distance /= 2;
    }
    x
}

/// # Safety
/// Number `k` may be written.
#[inline(always)]
unsafe fn put<T>(at: *mut T, k: usize, z: Complex<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        at.add(2 * k).write(z.re);
        at.add(2 * k + 1).write(z.im);
    }
}
