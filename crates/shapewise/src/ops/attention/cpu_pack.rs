//! Queries, keys and values on their way into panels: widened if they are short, then packed as for a product.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use crate::backends::cpu::real::{Real, RealTask, Vectors};
use crate::backends::cpu::simd::Isa;
use crate::ops::matmul::cpu_pack::{PackPanels, Part};
use crate::ops::matmul::cpu_problem::{Real as Computed, Split};

/// Rows of one head.
#[derive(Clone, Copy)]
pub(super) struct Matrix<T> {
    pub at: *const T,
    /// From row to row.
    pub rs: isize,
    /// From column to column.
    pub cs: isize,
    pub rows: usize,
    pub columns: usize,
}

impl<T: Copy> Matrix<T> {
    /// Some of the rows.
    pub fn part(self, first: usize, rows: usize) -> Self {
        Self { at: self.at.wrapping_offset(first as isize * self.rs), rows, ..self }
    }
}

/// The matrix in the type that is computed in: itself, or a copy in `room`, which has a place for each element.
///
/// # Safety
/// The matrix can be read, and `room` written if the type is a short one.
pub(super) unsafe fn widened<T: Real>(isa: Isa, from: Matrix<T>, room: *mut T::Wide) -> Matrix<T::Wide> {
    if size_of::<T>() == size_of::<T::Wide>() {
        let Matrix { at, rs, cs, rows, columns } = from;
        return Matrix { at: at.cast(), rs, cs, rows, columns };
    }
    T::dispatch(isa, Widen { from, to: room });
    Matrix { at: room, rs: from.columns as isize, cs: 1, rows: from.rows, columns: from.columns }
}

struct Widen<T: Real> {
    from: Matrix<T>,
    to: *mut T::Wide,
}

impl<T: Real> RealTask<T> for Widen<T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let m = &self.from;
        for row in 0..m.rows {
            let from = m.at.wrapping_offset(row as isize * m.rs);
            let to = self.to.wrapping_add(row * m.columns);
            let whole = if m.cs == 1 { m.columns - m.columns % S::LANES } else { 0 };
            for i in (0..whole).step_by(S::LANES) {
                // SAFETY: i + LANES elements are in the row, and have places.
                unsafe { s.store(to.add(i), s.read(from.add(i))) };
            }
            for i in whole..m.columns {
                // SAFETY: the row has this element, and it has a place.
                unsafe { to.add(i).write((*from.wrapping_offset(i as isize * m.cs)).widen()) };
            }
        }
    }
}

/// Packs rows into panels of tiles: each tile's rows side by side, one step after the other.
pub(super) fn pack_queries<W: Computed>(isa: Isa, m: Matrix<W>, tiles: Split, to: *mut W) {
    let mut row = 0;
    for (rows, count) in tiles.groups() {
        let part = m.part(row, rows * count);
        let part = Part { at: part.at, across: m.rs, along: m.cs, width: part.rows, depth: m.columns };
        let panels = to.wrapping_add(row * m.columns);
        W::run(isa, PackPanels { part, width: rows, pitch: rows, panels, apart: rows * m.columns });
        row += rows * count;
    }
}

/// Packs keys into panels of `width` keys, one step of dim after the other.
pub(super) fn pack_keys<W: Computed>(isa: Isa, m: Matrix<W>, width: usize, to: *mut W) {
    let part = Part { at: m.at, across: m.rs, along: m.cs, width: m.rows, depth: m.columns };
    W::run(isa, PackPanels { part, width, pitch: width, panels: to, apart: width * m.columns });
}

/// Packs values into panels of `width` columns that are `apart`, one key after the other.
pub(super) fn pack_values<W: Computed>(isa: Isa, m: Matrix<W>, width: usize, to: *mut W, apart: usize) {
    let part = Part { at: m.at, across: m.cs, along: m.rs, width: m.columns, depth: m.rows };
    W::run(isa, PackPanels { part, width, pitch: width, panels: to, apart });
}
