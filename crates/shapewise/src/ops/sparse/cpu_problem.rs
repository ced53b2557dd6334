//! A product as kernels see it: pointers, sizes and strides, and parts of about equal work.
#![allow(unsafe_code)]

use std::ops::Range;

use super::{Number, SparseAttributes, SparseFormat};
use crate::ops::{Call, Operation, Workload};

/// `y = A x + bias` with `n` columns.
///
/// Indices lie below `columns` (CSC: `rows`; BSR: columns of blocks) and offsets rise to the number of entries: operations of
/// this kind are only made from checked matrices, or by `made_up`.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a, T> {
    pub format: SparseFormat,
    pub rows: usize,
    pub columns: usize,
    pub n: usize,
    pub values: &'a [T],
    pub indices: &'a [u32],
    pub offsets: &'a [u32],
    pub x: *const T,
    /// Distance of rows and of columns.
    pub x_step: [isize; 2],
    pub y: *mut T,
    pub y_step: [isize; 2],
    /// What is added; nothing if null.
    pub bias: *const T,
    pub bias_step: [isize; 2],
}

// SAFETY: the memory outlives the call, inputs are only read, and tasks write disjoint parts of the output.
unsafe impl<T: Sync> Sync for Problem<'_, T> {}

/// The attributes of a sparse product.
pub(super) fn attributes(workload: &Workload) -> &SparseAttributes {
    match workload.operation() {
        Operation::Sparse(attributes) => attributes,
        other => unreachable!("the registry gives sparse products only, not {other}"),
    }
}

impl<'a, T: Number> Problem<'a, T> {
    pub fn new(call: &Call<'a>) -> Result<Self, crate::ops::KernelError> {
        let attributes = attributes(call.workload);
        let (x, y) = (&call.inputs[1], &call.outputs[0]);
        let bias = call.inputs.get(4);
        let step = |strides: &[isize]| [strides[0], strides[1]];
        Ok(Self {
            format: attributes.format,
            rows: y.shape()[0],
            columns: x.shape()[0],
            n: y.shape()[1],
            values: call.input(0)?,
            indices: call.input(2)?,
            offsets: call.input(3)?,
            x: x.ptr(),
            x_step: step(x.strides()),
            y: y.ptr_mut(),
            y_step: step(y.strides()),
            bias: bias.map_or(std::ptr::null(), crate::backends::cpu::Operand::ptr),
            bias_step: bias.map_or([0, 0], |b| step(b.strides())),
        })
    }

    /// The same without what is added.
    pub fn without_bias(&self) -> Self {
        Self { bias: std::ptr::null(), ..*self }
    }

    /// Row and column sizes of a block.
    pub fn block(&self) -> [usize; 2] {
        match self.format {
            SparseFormat::Bsr { rows, columns } => [rows as usize, columns as usize],
            _ => [1, 1],
        }
    }

    /// What is added at a place.
    ///
    /// # Safety
    /// The place lies inside the output.
    #[inline(always)]
    pub unsafe fn bias_at(&self, row: usize, column: usize) -> T {
        if self.bias.is_null() {
            return T::ZERO;
        }
        // SAFETY: the bias has the shape of the output.
        unsafe { *self.bias.offset(row as isize * self.bias_step[0] + column as isize * self.bias_step[1]) }
    }

    /// Whether something is added, and whether that lies along memory as rows of the output do.
    #[inline(always)]
    pub fn bias_kind(&self) -> Bias {
        match (self.bias.is_null(), self.bias_step[1]) {
            (true, _) => Bias::None,
            (false, 0) => Bias::PerRow,
            (false, _) => Bias::Each,
        }
    }

    /// The row of what is added, from a column on.
    #[inline(always)]
    pub fn bias_row(&self, row: usize, column: usize) -> *const T {
        self.bias.wrapping_offset(row as isize * self.bias_step[0] + column as isize * self.bias_step[1])
    }

    /// The row of the dense operand, from a column on.
    #[inline(always)]
    pub fn x_row(&self, row: usize, column: usize) -> *const T {
        self.x.wrapping_offset(row as isize * self.x_step[0] + column as isize * self.x_step[1])
    }

    /// The row of the output, from a column on.
    #[inline(always)]
    pub fn y_row(&self, row: usize, column: usize) -> *mut T {
        self.y.wrapping_offset(row as isize * self.y_step[0] + column as isize * self.y_step[1])
    }
}

/// What is added to a row of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bias {
    None,
    /// One number for the whole row.
    PerRow,
    /// Neighbours for neighbours.
    Each,
}

/// Lines of part `part` of `parts`: as many in each.
pub(super) fn even(lines: usize, part: usize, parts: usize) -> Range<usize> {
    lines * part / parts..lines * (part + 1) / parts
}

/// Lines of part `part` of `parts`: about as many entries, and the line itself counted as one, in each.
pub(super) fn by_entries(offsets: &[u32], part: usize, parts: usize) -> Range<usize> {
    let lines = offsets.len() - 1;
    let total = offsets[lines] as usize + lines;
    let cut = |part: usize| {
        let (mut low, mut high, target) = (0, lines, total * part / parts);
        while low < high {
            let middle = low.midpoint(high);
            if offsets[middle] as usize + middle < target {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    };
    (if part == 0 { 0 } else { cut(part) })..(if part + 1 == parts { lines } else { cut(part + 1) })
}

/// Parts for a number of threads: a few for each even out what else runs on the cores.
pub(super) fn parts(threads: usize, lines: usize) -> usize {
    if threads == 1 { 1 } else { (4 * threads).min(lines).max(1) }
}
