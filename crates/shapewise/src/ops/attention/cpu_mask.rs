//! The mask as numbers that are added to the scores: −∞ leaves a key out.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::problem::{Strides4, at};
use crate::backends::cpu::Operand;
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::Float;
use crate::tensor::DType;

/// The mask of a call, booleans or floats of type `T`.
#[derive(Clone, Copy)]
pub(super) struct Mask<T> {
    first: *const u8,
    boolean: bool,
    strides: Strides4,
    of: PhantomData<T>,
}

/// The mask of some queries of one head.
#[derive(Clone, Copy)]
pub(super) struct MaskRows<T> {
    first: *const u8,
    boolean: bool,
    rows: usize,
    rs: isize,
    cs: isize,
    of: PhantomData<T>,
}

impl<T: Real> Mask<T> {
    pub fn new(operand: &Operand<'_>, dtype: DType, strides: Strides4) -> Self {
        Self { first: operand.address(), boolean: dtype == DType::Bool, strides, of: PhantomData }
    }

    /// The mask of some queries.
    pub fn rows(&self, batch: usize, head: usize, first: usize, rows: usize) -> MaskRows<T> {
        let size = if self.boolean { 1 } else { size_of::<T>() };
        let offset = at(&self.strides, batch, head, first) * size as isize;
        let [.., rs, cs] = self.strides;
        let first = self.first.wrapping_offset(offset);
        // One row serves all where they are the same.
        let rows = if rs == 0 { 1 } else { rows };
        MaskRows { first, boolean: self.boolean, rows, rs, cs, of: PhantomData }
    }
}

impl<T: Real> MaskRows<T> {
    /// From row to row of the widened mask.
    pub fn pitch(&self, pitch: usize) -> usize {
        if self.rs == 0 { 0 } else { pitch }
    }

    /// Writes the part for keys `from..from + keys` as numbers.
    ///
    /// # Safety
    /// The mask has these keys, and `to` has room for its rows, `pitch` apart.
    pub unsafe fn widen(&self, from: usize, keys: usize, to: *mut T::Wide, pitch: usize) {
        for row in 0..self.rows {
            let at = row as isize * self.rs + from as isize * self.cs;
            let to = to.wrapping_add(row * pitch);
            // SAFETY: the caller's promise.
            unsafe {
                if self.boolean {
                    let from = self.first.cast::<bool>().wrapping_offset(at);
                    each(from, self.cs, keys, to, |x| if x { T::Wide::ZERO } else { -T::Wide::INFINITY });
                } else {
                    each(self.first.cast::<T>().wrapping_offset(at), self.cs, keys, to, T::widen);
                }
            }
        }
    }
}

/// # Safety
/// `from` has `n` elements, `stride` apart, and `to` room for them.
unsafe fn each<A: Copy, B>(from: *const A, stride: isize, n: usize, to: *mut B, f: impl Fn(A) -> B) {
    if stride == 1 {
        for i in 0..n {
            // SAFETY: the caller's promise.
            unsafe { to.add(i).write(f(*from.add(i))) };
        }
        return;
    }
    for i in 0..n {
        // SAFETY: the caller's promise.
        unsafe { to.add(i).write(f(*from.wrapping_offset(i as isize * stride))) };
    }
}
