//! From sums of packed products to results: what packing moved is made up for, bias, new scale.
#![allow(unsafe_code)]

use super::attributes::Along;
use super::cpu_integer_pack::{Source, Steps};
use crate::backends::cpu::Operand;
use crate::tensor::DType;

/// 1.5 · 2²³: added and taken away again it rounds numbers below 2²² to whole ones, halves to even.
const ROUND: f32 = 12_582_912.0;

/// How sums become results.
#[derive(Clone, Copy)]
pub(super) struct Finish<'a> {
    pub out: Output,
    pub bias: Option<(&'a Operand<'a>, Along)>,
    pub scales: Option<Rescale<'a>>,
}

/// Where results go. Strides are in elements.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub at: *mut u8,
    pub dtype: DType,
    pub row: isize,
    pub column: isize,
}

/// Scales of both operands (one, or one for every row or column) and of the result, and the result's zero point.
#[derive(Clone, Copy)]
pub(super) struct Rescale<'a> {
    pub a: &'a Operand<'a>,
    pub b: &'a Operand<'a>,
    pub y: &'a Operand<'a>,
    pub zero: &'a Operand<'a>,
}

// SAFETY: inputs are only read, and every task writes results of its own.
unsafe impl Sync for Finish<'_> {}

/// Sums of packed numbers of the lines of both operands; null where pairs need none.
#[derive(Clone, Copy)]
pub(super) struct LineSums {
    pub rows: *const i32,
    pub columns: *const i32,
}

/// One number of a vector operand, or the only one.
fn number(operand: &Operand<'_>, index: usize) -> isize {
    if operand.desc().len() == 1 { 0 } else { index as isize * operand.strides()[0] }
}

/// Σ(a − za)(b − zb) from Σab of packed numbers, which are the operands' moved by their offsets.
///
/// # Safety
/// The sums and zero points of row `i` and of the columns from `first` on can be read.
pub(super) unsafe fn correct(
    row: &mut [i32],
    (i, first): (usize, usize),
    [a, b]: [&Source; 2],
    sums: LineSums,
    steps: Steps,
) {
    if steps == Steps::Pairs {
        return;
    }
    let (moved, k) = (b.offset(steps, false), a.k as i32);
    // SAFETY: the caller's promise.
    unsafe {
        let (za, left) = (a.zero(i).wrapping_add(a.offset(steps, true)), *sums.rows.add(i));
        let columns = std::slice::from_raw_parts(sums.columns.add(first), row.len());
        if b.zero.is_null() || b.zero_step == 0 {
            let zb = b.zero(0).wrapping_add(moved);
            let all = zb.wrapping_mul(za.wrapping_mul(k).wrapping_sub(left));
            if za == 0 && all == 0 {
                return;
            }
            for (sum, &column) in row.iter_mut().zip(columns) {
                *sum = sum.wrapping_sub(za.wrapping_mul(column)).wrapping_add(all);
            }
            return;
        }
        for (j, (sum, &column)) in row.iter_mut().zip(columns).enumerate() {
            let zb = b.zero(first + j).wrapping_add(moved);
            let all = zb.wrapping_mul(za.wrapping_mul(k).wrapping_sub(left));
            *sum = sum.wrapping_sub(za.wrapping_mul(column)).wrapping_add(all);
        }
    }
}

impl Finish<'_> {
    /// Writes the results of row `i` from column `first` on.
    ///
    /// # Safety
    /// The output has them, and nobody else writes them.
    pub unsafe fn row(&self, sums: &mut [i32], i: usize, first: usize) {
        self.add_bias(sums, i, first);
        match &self.scales {
            // SAFETY: the caller's promise.
            Some(scales) => unsafe { self.rescale(scales, sums, i, first) },
            None => {
                // SAFETY: the caller's promise; sums leave as i32.
                unsafe {
                    let to = self.to::<i32>(i, first);
                    if self.out.column == 1 {
                        std::ptr::copy_nonoverlapping(sums.as_ptr(), to, sums.len());
                    } else {
                        for (j, &sum) in sums.iter().enumerate() {
                            to.offset(j as isize * self.out.column).write(sum);
                        }
                    }
                }
            }
        }
    }

    fn to<T>(&self, i: usize, j: usize) -> *mut T {
        self.out.at.cast::<T>().wrapping_offset(i as isize * self.out.row + j as isize * self.out.column)
    }

    fn add_bias(&self, sums: &mut [i32], i: usize, first: usize) {
        let Some((bias, along)) = &self.bias else { return };
        // SAFETY: the bias has an element for every row or for every column.
        let at = |index: usize| unsafe { *bias.ptr::<i32>().offset(number(bias, index)) };
        match along {
            Along::Rows => {
                let bias = at(i);
                for sum in sums {
                    *sum = sum.wrapping_add(bias);
                }
            }
            Along::Columns => {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.wrapping_add(at(first + j));
                }
            }
        }
    }

    /// # Safety
    /// As for [`Self::row`].
    unsafe fn rescale(&self, scales: &Rescale<'_>, sums: &mut [i32], i: usize, first: usize) {
        // SAFETY: there is one scale for all, or one for every row or column.
        let real = |operand: &Operand<'_>, index: usize| unsafe {
            *operand.ptr::<f32>().offset(number(operand, index))
        };
        // SAFETY: there is one zero point.
        let zero = unsafe { *scales.zero.ptr::<i32>() };
        let (low, high) = if self.out.dtype == DType::I8 { (-128, 127) } else { (0, 255) };
        let borders = (border(low, zero), border(high, zero));
        let (a, y) = (real(scales.a, i), real(scales.y, 0));
        let quantised = |sum: i32, factor: f32| {
            let x = (sum as f32 * factor).max(borders.0).min(borders.1);
            // SAFETY: the borders are finite and inside the type, and NaN has become the lower one.
            unsafe { (x + ROUND - ROUND).to_int_unchecked::<i32>() }.wrapping_add(zero)
        };
        if scales.b.desc().len() == 1 {
            let factor = a * real(scales.b, 0) / y;
            for sum in sums.iter_mut() {
                *sum = quantised(*sum, factor);
            }
        } else {
            // SAFETY: there is a scale for every column, without gaps.
            let b = unsafe { std::slice::from_raw_parts(scales.b.ptr::<f32>().add(first), sums.len()) };
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = quantised(*sum, a * b / y);
            }
        }
        let to = self.to::<u8>(i, first);
        if self.out.column == 1 {
            // SAFETY: the caller's promise; both types have eight bits.
            let line = unsafe { std::slice::from_raw_parts_mut(to, sums.len()) };
            for (out, &value) in line.iter_mut().zip(sums.iter()) {
                *out = value as u8;
            }
            return;
        }
        for (j, &value) in sums.iter().enumerate() {
            // SAFETY: as above.
            unsafe { to.offset(j as isize * self.out.column).write(value as u8) };
        }
    }
}

fn border(of: i32, zero: i32) -> f32 {
    of.wrapping_sub(zero) as f32
}
