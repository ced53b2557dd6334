//! The walk along contiguous columns: the sums of a few rows and columns in registers, added up at the end.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_problem::Split;
use super::cpu_stored::{Reads, Stored, StoredTask};
use super::cpu_stream::{Matrix, Rows, Sums};
use crate::backends::cpu::real::settled;
use crate::backends::cpu::simd::{Float, Isa, Lanes};

/// Bytes of a column that several groups of rows are multiplied with before the next ones come: the block of a few columns and that of
/// the rows stay in the first-level cache.
pub(super) const BLOCK: usize = 4 << 10;

/// Rows and columns whose sums are in registers at once: twelve sums keep the multipliers busy, twice as many, where there are registers
/// for them, read less (eight rows by 4096² in a loop of C on one Zen 5 core 2.5 instead of 3.3 ms). A single row has two sums for each column.
pub(super) fn tile(rows: usize, register_bytes: usize) -> (usize, usize) {
    let times = if many_registers(register_bytes) { 2 } else { 1 };
    match rows {
        0 | 1 => (1, 4),
        2 => (2, 6),
        _ if rows.is_multiple_of(3) || rows == 5 => (3, 4 * times),
        _ => (4, 3 * times),
    }
}

const fn many_registers(register_bytes: usize) -> bool {
    register_bytes == 64 || cfg!(target_arch = "aarch64")
}

/// Steps of a block: all of them if one group of rows has them for itself.
pub(super) fn steps(rows: usize, k: usize, register_bytes: usize, size: usize) -> usize {
    if rows <= tile(rows, register_bytes).0 { k } else { k.min(BLOCK / size) }
}

/// Elements of scratch for the sums of a few columns between blocks.
pub(super) fn partial_sums(rows: usize, k: usize, register_bytes: usize, size: usize) -> usize {
    if k <= steps(rows, k, register_bytes, size) {
        0
    } else {
        rows * tile(rows, register_bytes).1 * register_bytes / size
    }
}

/// Copies rows one after the other.
///
/// # Safety
/// The rows can be read, and `to` has room for all of them.
pub(super) unsafe fn pack<W: Stored>(rows: &Rows<W>, to: *mut W::Wide) {
    for i in 0..rows.m {
        let row = rows.at.wrapping_offset(i as isize * rows.rs);
        for p in 0..rows.k {
            // SAFETY: the element exists and has room.
            unsafe { to.add(i * rows.k + p).write((*row.wrapping_offset(p as isize * rows.cs)).widen()) };
        }
    }
}

/// Where finished sums go: to the result if nothing is done to them, else to their place in scratch, where all columns are one tile.
#[derive(Clone, Copy)]
pub(super) struct Place<W: Stored> {
    pub sums: Sums<W::Wide>,
    /// The result and its strides.
    pub result: Option<(*mut W, isize, isize)>,
}

impl<W: Stored> Place<W> {
    #[inline(always)]
    unsafe fn write(&self, row: usize, column: usize, sum: W::Wide) {
        // SAFETY: the result and the sums have room for this row and column.
        unsafe {
            if let Some((c, rs, cs)) = self.result {
                c.offset(row as isize * rs + column as isize * cs).write(W::narrow(sum));
            } else {
                self.sums.row(0, row).add(column).write(sum);
            }
        }
    }
}

/// Sums of all columns of a matrix that can be read, as the rows can, both contiguous along the steps: the sums have room, and
/// `partial` has [`partial_sums`] elements.
#[derive(Clone, Copy)]
pub(super) struct Job<W: Stored> {
    pub w: Matrix<W>,
    pub rows: Rows<W::Wide>,
    pub place: Place<W>,
    pub partial: *mut W::Wide,
}

/// The same with at most `R` rows at once.
struct Tiled<W: Stored, const R: usize>(Job<W>);

impl<W: Stored, const R: usize> StoredTask<W> for Tiled<W, R> {
    #[inline(always)]
    fn run<S: Reads<W> + Reads<W::Wide>>(self, s: S) {
        let job = &self.0;
        let many = const { many_registers(<S as Lanes<W::Wide>>::LANES * size_of::<W::Wide>()) };
        let mut column = 0;
        while column < job.w.columns {
            let left = job.w.columns - column;
            // SAFETY: as many columns are left as each arm reads.
            column += unsafe {
                match left {
                    8.. if const { R == 3 } && many => job.all_rows::<S, R, 8>(s, column),
                    6.. if const { R == 2 } || (const { R == 4 } && many) => {
                        job.all_rows::<S, R, 6>(s, column)
                    }
                    4.. if const { R <= 3 } => job.all_rows::<S, R, 4>(s, column),
                    3.. if const { R >= 3 } => job.all_rows::<S, R, 3>(s, column),
                    2.. => job.all_rows::<S, R, 2>(s, column),
                    _ => job.all_rows::<S, R, 1>(s, column),
                }
            };
        }
    }
}

/// The same with a single row.
struct Line<W: Stored>(Job<W>);

impl<W: Stored> StoredTask<W> for Line<W> {
    #[inline(always)]
    fn run<S: Reads<W> + Reads<W::Wide>>(self, s: S) {
        let job = &self.0;
        let mut column = 0;
        while column < job.w.columns {
            // SAFETY: as many columns are left as each arm reads.
            column += unsafe {
                if job.w.columns - column >= 4 {
                    job.line::<S, 4>(s, column)
                } else {
                    job.line::<S, 1>(s, column)
                }
            };
        }
    }
}

impl<W: Stored> Job<W> {
    pub fn run(self, isa: Isa) {
        match tile(self.rows.m, isa.register_bytes()).0 {
            1 => W::run(isa, Line(self)),
            2 => W::run(isa, Tiled::<W, 2>(self)),
            3 => W::run(isa, Tiled::<W, 3>(self)),
            _ => W::run(isa, Tiled::<W, 4>(self)),
        }
    }

    /// The only row times `C` columns, with two sums for each: two lines of every column come side by side.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // iterators that own arrays have destructors, which may not be inlined
    unsafe fn line<S: Reads<W>, const C: usize>(&self, s: S, column: usize) -> usize {
        let zero = s.splat(W::Wide::ZERO);
        let (mut x, mut y) = ([zero; C], [zero; C]);
        let mut at = [self.w.at; C];
        for j in 0..C {
            at[j] = settled(self.w.at.wrapping_offset((column + j) as isize * self.w.cs));
        }
        let mut p = 0;
        while p + 2 * S::LANES <= self.w.k {
            for j in 0..C {
                // SAFETY: two whole vectors of steps are left.
                unsafe {
                    let (row, line) = (self.rows.at.add(p), at[j].add(p));
                    x[j] = s.mul_add(s.load(row), s.read(line), x[j]);
                    y[j] = s.mul_add(s.load(row.add(S::LANES)), s.read(line.add(S::LANES)), y[j]);
                }
            }
            p += 2 * S::LANES;
        }
        while p < self.w.k {
            let rest = S::LANES.min(self.w.k - p);
            for j in 0..C {
                // SAFETY: `rest` steps are left.
                unsafe {
                    let row = s.load_first(self.rows.at.add(p), rest);
                    x[j] = s.mul_add(row, s.read_first(at[j].add(p), rest), x[j]);
                }
            }
            p += rest;
        }
        for j in 0..C {
            x[j] = s.add(x[j], y[j]);
        }
        // SAFETY: the columns have places.
        unsafe { self.write::<S, 1, C>(s, &[x], 0, column) };
        C
    }

    /// Adds up the lanes of finished sums.
    #[inline(always)]
    unsafe fn write<S: Reads<W>, const R: usize, const C: usize>(
        &self,
        s: S,
        x: &[[S::V; C]; R],
        row: usize,
        column: usize,
    ) {
        let x = x.as_flattened();
        let mut done = 0;
        while done < R * C {
            let at = |i: usize| x[(done + i).min(R * C - 1)];
            let sums = s.reduce_add_four([at(0), at(1), at(2), at(3)]);
            for (i, &sum) in sums.iter().enumerate().take(R * C - done) {
                // SAFETY: the caller's promise.
                unsafe { self.place.write(row + (done + i) / C, column + (done + i) % C, sum) };
            }
            done += 4;
        }
    }

    /// All rows, up to `R` at a time, times `C` columns, block by block.
    #[inline(always)]
    unsafe fn all_rows<S: Reads<W>, const R: usize, const C: usize>(&self, s: S, column: usize) -> usize {
        let groups = Split::at_most(self.rows.m, R);
        let size = size_of::<W::Wide>();
        let block = steps(self.rows.m, self.w.k, S::LANES * size, size);
        let mut p = 0;
        while p < self.w.k {
            let steps = block.min(self.w.k - p);
            for (row, count) in (0..groups.blocks).map(|g| groups.piece(g)) {
                // Tiles are chosen so that groups are never shorter by more than one row.
                // SAFETY: the caller's promise, for these rows.
                unsafe {
                    match count {
                        4 if const { R == 4 } => self.pass::<S, 4, C>(s, p, steps, row, column),
                        3 if const { R >= 3 } => self.pass::<S, 3, C>(s, p, steps, row, column),
                        2 if const { R == 2 || R == 3 } => self.pass::<S, 2, C>(s, p, steps, row, column),
                        _ => unreachable!("{count} rows in groups of {R}"),
                    }
                }
            }
            p += steps;
        }
        C
    }

    /// A block of a group of rows; between blocks the sums wait in `partial`.
    #[inline(always)]
    unsafe fn pass<S: Reads<W>, const R: usize, const C: usize>(
        &self,
        s: S,
        p: usize,
        steps: usize,
        row: usize,
        column: usize,
    ) {
        let waiting = self.partial.wrapping_add(row * C * S::LANES);
        let mut x = [[s.splat(W::Wide::ZERO); C]; R];
        // SAFETY: the caller's promise; `partial` has room for the sums of all rows.
        unsafe {
            if p > 0 {
                for (i, x) in x.as_flattened_mut().iter_mut().enumerate() {
                    *x = s.load(waiting.add(i * S::LANES));
                }
            }
            x = self.block::<S, R, C>(s, p, steps, row, column, x);
            if p + steps < self.w.k {
                for (i, x) in x.as_flattened().iter().enumerate() {
                    s.store(waiting.add(i * S::LANES), *x);
                }
            } else {
                self.write::<S, R, C>(s, &x, row, column);
            }
        }
    }

    /// Adds the products of `steps` steps from step `p` on.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // iterators that own arrays have destructors, which may not be inlined
    unsafe fn block<S: Reads<W>, const R: usize, const C: usize>(
        &self,
        s: S,
        p: usize,
        steps: usize,
        row: usize,
        column: usize,
        mut x: [[S::V; C]; R],
    ) -> [[S::V; C]; R] {
        let mut a = [self.rows.at; R];
        for i in 0..R {
            a[i] = settled(self.rows.at.wrapping_offset((row + i) as isize * self.rows.rs).wrapping_add(p));
        }
        let mut b = [self.w.at; C];
        for j in 0..C {
            b[j] = settled(self.w.at.wrapping_offset((column + j) as isize * self.w.cs).wrapping_add(p));
        }
        macro_rules! step {
            ($row:expr, $column:expr) => {{
                // Of two sides the shorter one waits in registers.
                if R <= C {
                    let mut y = [s.splat(W::Wide::ZERO); R];
                    for i in 0..R {
                        y[i] = $row(a[i]);
                    }
                    for j in 0..C {
                        let z = $column(b[j]);
                        for i in 0..R {
                            x[i][j] = s.mul_add(y[i], z, x[i][j]);
                        }
                    }
                } else {
                    let mut z = [s.splat(W::Wide::ZERO); C];
                    for j in 0..C {
                        z[j] = $column(b[j]);
                    }
                    for i in 0..R {
                        let y = $row(a[i]);
                        for j in 0..C {
                            x[i][j] = s.mul_add(y, z[j], x[i][j]);
                        }
                    }
                }
            }};
        }
        let whole = steps / S::LANES * S::LANES;
        let mut q = 0;
        while q < whole {
            // SAFETY: a whole vector of steps is left.
            step!(|at: *const W::Wide| unsafe { s.load(at.wrapping_add(q)) }, |at: *const W| unsafe {
                s.read(at.wrapping_add(q))
            });
            q += S::LANES;
        }
        let rest = steps - whole;
        if rest > 0 {
            // SAFETY: `rest` steps are left.
            step!(
                |at: *const W::Wide| unsafe { s.load_first(at.wrapping_add(q), rest) },
                |at: *const W| unsafe { s.read_first(at.wrapping_add(q), rest) }
            );
        }
        x
    }
}
