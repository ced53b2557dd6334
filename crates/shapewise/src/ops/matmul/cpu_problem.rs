//! One product `c = activation(a · b + bias)` as kernels see it: sizes, pointers and strides.
#![allow(unsafe_code)]

use crate::backends::cpu::simd::math::Coefficients;
use crate::backends::cpu::simd::{Float, Isa, Lanes, Simd, SimdTask};
use crate::ops::Activation;

/// A product of an `m × k` by a `k × n` matrix. Strides are in elements and may be zero or negative for inputs.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Gemm<T> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: *const T,
    pub a_rs: isize,
    pub a_cs: isize,
    pub b: *const T,
    pub b_rs: isize,
    pub b_cs: isize,
    pub c: *mut T,
    pub c_rs: isize,
    pub c_cs: isize,
    pub epilogue: Epilogue<T>,
}

/// What is done to a finished sum before it is written.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Epilogue<T> {
    /// Null where there is none; element `(i, j)` is at `i · bias_rs + j · bias_cs`.
    pub bias: *const T,
    pub bias_rs: isize,
    pub bias_cs: isize,
    pub activation: Activation,
}

impl<T> Epilogue<T> {
    /// Whether sums are written as they are.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        self.bias.is_null() && matches!(self.activation, Activation::None)
    }
}

// SAFETY: the pointers stand for operands that outlive the launch; kernels give each thread its own part of `c`.
unsafe impl<T: Send + Sync> Send for Gemm<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Gemm<T> {}

impl<T: Copy> Gemm<T> {
    /// The same product seen as `cᵀ = bᵀ · aᵀ`.
    pub fn transposed(self) -> Self {
        let e = self.epilogue;
        Self {
            m: self.n,
            n: self.m,
            k: self.k,
            a: self.b,
            a_rs: self.b_cs,
            a_cs: self.b_rs,
            b: self.a,
            b_rs: self.a_cs,
            b_cs: self.a_rs,
            c: self.c,
            c_rs: self.c_cs,
            c_cs: self.c_rs,
            epilogue: Epilogue { bias_rs: e.bias_cs, bias_cs: e.bias_rs, ..e },
        }
    }

    /// Whether the rows of the result and of the bias have no gaps: the pool's memory is not needed.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.c_cs == 1 && matches!(self.epilogue.bias_cs, 0 | 1)
    }

    /// Transposed where that makes the rows of the result contiguous.
    pub fn with_contiguous_rows(self) -> Self {
        if self.c_cs != 1 && self.c_rs == 1 { self.transposed() } else { self }
    }

    /// Element `(i, j)` of the result.
    #[inline(always)]
    #[allow(clippy::inline_always)] // part of the innermost loops
    pub unsafe fn c_at(&self, i: usize, j: usize) -> *mut T {
        // SAFETY: the caller names an element of the result.
        unsafe { self.c.offset(i as isize * self.c_rs + j as isize * self.c_cs) }
    }

    /// The address of the bias of element `(i, j)`, null where there is none.
    #[inline(always)]
    #[allow(clippy::inline_always)] // part of the innermost loops
    pub fn bias_at(&self, i: usize, j: usize) -> *const T {
        let e = &self.epilogue;
        if e.bias.is_null() {
            e.bias
        } else {
            e.bias.wrapping_offset(i as isize * e.bias_rs + j as isize * e.bias_cs)
        }
    }

    /// The part of the product that makes these rows and columns of the result.
    pub fn part(self, row: usize, rows: usize, column: usize, columns: usize) -> Self {
        let at = |rs: isize, cs: isize| row as isize * rs + column as isize * cs;
        Self {
            m: rows,
            n: columns,
            a: self.a.wrapping_offset(at(self.a_rs, 0)),
            b: self.b.wrapping_offset(at(0, self.b_cs)),
            c: self.c.wrapping_offset(at(self.c_rs, self.c_cs)),
            epilogue: Epilogue { bias: self.bias_at(row, column), ..self.epilogue },
            ..self
        }
    }
}

/// `length` cut into `blocks` pieces whose lengths differ by at most one, the longer ones first.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Split {
    base: usize,
    longer: usize,
    pub blocks: usize,
}

impl Split {
    /// A single piece: nothing is divided, which small products would feel.
    #[inline]
    pub fn whole(length: usize) -> Self {
        Self { base: length, longer: 0, blocks: 1 }
    }

    /// Into at least one piece, none longer than `most`.
    #[inline]
    pub fn at_most(length: usize, most: usize) -> Self {
        Self::into(length, length.div_ceil(most))
    }

    /// Into this many pieces, but at least one.
    #[inline]
    pub fn into(length: usize, blocks: usize) -> Self {
        let blocks = blocks.max(1);
        Self { base: length / blocks, longer: length % blocks, blocks }
    }

    /// Start and length of piece `i`.
    #[inline]
    pub fn piece(&self, i: usize) -> (usize, usize) {
        (i * self.base + i.min(self.longer), self.length(i))
    }

    /// Length of piece `i`.
    #[inline]
    pub fn length(&self, i: usize) -> usize {
        self.base + usize::from(i < self.longer)
    }

    /// Lengths and how many pieces have them, in order.
    #[inline]
    pub fn groups(&self) -> [(usize, usize); 2] {
        [(self.base + 1, self.longer), (self.base, self.blocks - self.longer)]
    }

    /// Length of the longest piece.
    pub fn longest(&self) -> usize {
        self.length(0)
    }
}

/// Columns of a packed right panel.
pub(in crate::ops) const fn panel_width<T>(isa: Isa) -> usize {
    super::cpu_micro::tile_shape(isa.register_bytes()).1 * isa.register_bytes() / size_of::<T>()
}

/// The same for the panels of a band.
pub(in crate::ops) const fn wide_width<T>(isa: Isa) -> usize {
    super::cpu_micro::wide_shape(isa.register_bytes()).1 * isa.register_bytes() / size_of::<T>()
}

/// Scratch memory that threads write parts of, each its own.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Shared<T>(pub *mut T);

// SAFETY: threads write disjoint parts.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Element `n`.
    pub fn at(&self, n: usize) -> *mut T {
        self.0.wrapping_add(n)
    }
}

/// An algorithm over the vectors of one element type.
pub(in crate::ops) trait LanesTask<T: Float> {
    /// The algorithm; `#[inline(always)]` like all it calls.
    fn run<S: Lanes<T>>(self, s: S);
}

/// An element type that products are computed in.
pub(in crate::ops) trait Real: Coefficients {
    /// Runs the algorithm with these instructions.
    fn run<K: LanesTask<Self>>(isa: Isa, task: K);
}

/// Beside a [`LanesTask`] it makes a pair that [`Isa::run`] takes; a pair's code stays with the module of its first part.
struct Over<T>(std::marker::PhantomData<T>);

macro_rules! real {
    ($t:ident) => {
        impl Real for $t {
            #[inline]
            fn run<K: LanesTask<Self>>(isa: Isa, task: K) {
                isa.run((task, Over::<$t>(std::marker::PhantomData)));
            }
        }

        impl<K: LanesTask<$t>> SimdTask for (K, Over<$t>) {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                self.0.run(s);
            }
        }
    };
}

real!(f32);
real!(f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_length_evenly() {
        for (length, most) in [(0, 6), (1, 6), (6, 6), (7, 6), (127, 6), (128, 6), (1023, 32)] {
            let split = Split::at_most(length, most);
            let mut end = 0;
            for i in 0..split.blocks {
                let (start, size) = split.piece(i);
                assert_eq!(start, end);
                assert!(size <= most && size + 1 >= split.longest());
                end = start + size;
            }
            assert_eq!(end, length);
        }
    }
}
