//! Activations that are too long for the innermost loop, and epilogues of products that a library has written.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

#[cfg(feature = "gemm")]
use super::cpu_problem::Gemm;
use super::cpu_problem::{LanesTask, Real};
use crate::backends::cpu::simd::{Isa, Lanes, math};
use crate::ops::Activation;

/// Applies the activations that tiles leave out, in a pass over results that are still in the cache; does nothing
/// for the others.
///
/// # Safety
/// `rows` rows of `columns` contiguous elements, `rs` apart, can be read and written at `c`.
#[inline]
pub(in crate::ops) unsafe fn activate_rows<T: Real>(
    isa: Isa,
    c: *mut T,
    rs: isize,
    rows: usize,
    columns: usize,
    activation: Activation,
) {
    if !matches!(activation, Activation::None | Activation::Relu | Activation::LeakyRelu { .. }) {
        T::run(isa, Lines { c, rs, rows, columns, activation });
    }
}

/// Rows of contiguous elements that an activation is applied to.
struct Lines<T> {
    c: *mut T,
    rs: isize,
    rows: usize,
    columns: usize,
    activation: Activation,
}

impl<T: Real> LanesTask<T> for Lines<T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        for i in 0..self.rows {
            let row = self.c.wrapping_offset(self.rs.wrapping_mul(i as isize));
            let mut done = 0;
            while done < self.columns {
                let lanes = S::LANES.min(self.columns - done);
                let at = row.wrapping_add(done);
                // SAFETY: so many elements of the row are left.
                unsafe { s.store_first(at, apply(s, s.load_first(at, lanes), self.activation), lanes) };
                done += lanes;
            }
        }
    }
}

/// The activation of every lane.
#[inline(always)]
pub(in crate::ops) fn apply<T: Real, S: Lanes<T>>(s: S, x: S::V, activation: Activation) -> S::V {
    let zero = s.splat(T::ZERO);
    match activation {
        Activation::None => x,
        // The maximum gives its second operand where one is NaN.
        Activation::Relu => s.max(zero, x),
        Activation::LeakyRelu { slope } => {
            let scaled = s.mul(x, s.splat(T::from_f64(f64::from(slope))));
            s.select(s.lt(x, zero), scaled, x)
        }
        Activation::Gelu => math::gelu(s, x),
        Activation::Silu => math::silu(s, x),
        Activation::Tanh => math::tanh(s, x),
        Activation::Sigmoid => math::sigmoid(s, x),
    }
}

/// Bias and activation of a product that a library has written.
#[cfg(feature = "gemm")]
pub(in crate::ops) struct Finish<T>(pub Gemm<T>);

#[cfg(feature = "gemm")]
impl<T: Real> LanesTask<T> for Finish<T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let g = &self.0;
        let e = &g.epilogue;
        if e.bias.is_null() && e.activation == Activation::None {
            return;
        }
        let most = if g.c_cs == 1 && matches!(e.bias_cs, 0 | 1) { S::LANES } else { 1 };
        for i in 0..g.m {
            let mut j = 0;
            while j < g.n {
                let lanes = most.min(g.n - j);
                // SAFETY: so many elements of the row are left, and the bias has one for each column or each row.
                unsafe {
                    let c = g.c_at(i, j);
                    let mut x = s.load_first(c, lanes);
                    if !e.bias.is_null() {
                        let bias = g.bias_at(i, j);
                        x = s.add(x, if e.bias_cs == 1 { s.load_first(bias, lanes) } else { s.splat(*bias) });
                    }
                    s.store_first(c, apply(s, x, e.activation), lanes);
                }
                j += lanes;
            }
        }
    }
}
