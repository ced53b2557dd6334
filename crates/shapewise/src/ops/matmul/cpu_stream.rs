//! Few rows times a large matrix, bound by how fast the matrix comes from memory.
//!
//! The matrix `w` is read once and never packed. Where its rows are contiguous, [`outer`](super::cpu_stream_outer)
//! walks a few of them side by side and adds to sums that wait in the cache; where its columns are,
//! [`dot`](super::cpu_stream_dot) keeps the sums of a few columns in registers. Both leave plain sums in
//! [`Sums`], which [`finish`] turns into results.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_problem::{Epilogue, Gemm, Split};
use super::cpu_stored::{Reads, Stored, StoredTask};
use super::{cpu_stream_dot as dot, cpu_stream_outer as outer};
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::simd::math::{self, Coefficients};
use crate::backends::cpu::simd::{Isa, Lanes};
use crate::ops::Activation;

/// The most rows: beyond them the products cost more than the memory.
pub(super) const MAX_ROWS: usize = 16;
/// Bytes of sums that one pass over the matrix keeps; they share the second-level cache with the matrix.
const SUMS_BYTES: usize = 256 << 10;
/// Columns below which a part is not worth a thread, in bytes of a row.
const LEAST_PART: usize = 256;
/// Steps below which a part is not worth a thread.
const LEAST_STEPS: usize = 4 * outer::STREAMS;
/// Bytes of sums that every thread may have for itself: more leave the first-level cache.
const OWN_SUMS_BYTES: usize = 32 << 10;

/// The walk over the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// Rows of `w` are contiguous (or nothing is, and they are gathered).
    Outer,
    /// Columns of `w` are contiguous.
    Dot,
}

/// Sums of some columns: tiles of `width` columns, in each the rows one after the other.
#[derive(Clone, Copy)]
pub(super) struct Sums<T> {
    pub at: *mut T,
    pub rows: usize,
    pub width: usize,
}

impl<T> Sums<T> {
    /// The tile of column `column` (a multiple of the width), row `row`.
    #[inline(always)]
    pub fn row(&self, column: usize, row: usize) -> *mut T {
        self.at.wrapping_add(column * self.rows + row * self.width)
    }
}

/// The matrix as one thread sees it: its first column, and how many.
#[derive(Clone, Copy)]
pub(super) struct Matrix<W> {
    pub at: *const W,
    pub rs: isize,
    pub cs: isize,
    pub k: usize,
    pub columns: usize,
}

/// How a product is computed: walk, tile, threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub walk: Walk,
    /// Columns of a tile.
    pub width: usize,
    /// Lanes of a vector.
    pub lanes: usize,
    /// Parts of the columns that threads take, or of the steps.
    pub parts: Split,
    /// Threads take steps, each with sums of its own: whole rows of the matrix come sooner than halves (3 to 17 % on Emerald
    /// Rapids, 1024² to 8192²).
    pub by_steps: bool,
    /// Columns of a pass.
    pub pass: usize,
    pub threads: usize,
    /// Elements of scratch for the packed rows.
    pub packed: usize,
    /// Elements of scratch for the sums of a part.
    pub sums: usize,
    /// Whether the matrix is asked for farther ahead.
    pub far: bool,
}

/// The product with the few rows on the left.
pub(super) fn few_rows_left<T: Copy>(g: Gemm<T>) -> Gemm<T> {
    if g.n < g.m { g.transposed() } else { g }
}

/// The walk that reads the larger matrix (`b`) along its contiguous side.
pub(super) fn walk<T>(g: &Gemm<T>) -> Walk {
    let along_columns = g.b_rs == 1 && (g.b_cs != 1 || g.n == 1);
    if along_columns && g.k > 1 { Walk::Dot } else { Walk::Outer }
}

/// Plans the product of a [`few_rows_left`] problem on so many threads.
pub(super) fn plan<W: Stored>(g: &Gemm<W>, isa: Isa, threads: usize) -> Plan {
    plan_sized(g, isa, threads, size_of::<W>(), size_of::<W::Wide>())
}

/// The same by the bytes of an element as it is stored and as it is computed with.
pub(super) fn plan_sized<T>(g: &Gemm<T>, isa: Isa, threads: usize, stored: usize, wide: usize) -> Plan {
    let walk = walk(g);
    let lanes = isa.register_bytes() / wide;
    let width = lanes * outer::vectors(g.m, isa.register_bytes());
    let least = (LEAST_PART / stored).max(width);
    let tasks = match walk {
        Walk::Outer => threads,
        Walk::Dot => threads * 4,
    };
    let tasks = if threads == 1 { 1 } else { tasks.min(g.n.div_ceil(least)) };
    let by_steps = walk == Walk::Outer
        && g.m == 1
        && g.b_cs == 1
        && threads > 1
        && g.k >= threads * LEAST_STEPS
        && g.n <= OWN_SUMS_BYTES / wide;
    let tasks = if by_steps { threads } else { tasks };
    let parts = Split::into(if by_steps { g.k } else { g.n.div_ceil(width) }, tasks);
    let pass = (SUMS_BYTES / wide / g.m.max(1)).next_multiple_of(width).max(width);
    let longest = if by_steps { g.n.next_multiple_of(width) } else { (parts.longest() * width).min(pass) };
    // Rows are read where they lie if the walk can.
    let in_place = stored == wide && g.a_cs == 1 && (walk == Walk::Dot || g.m == 1);
    let packed = if in_place { 0 } else { g.m * g.k };
    let sums = longest * g.m + dot::partial_sums(g.m, g.k, isa.register_bytes(), wide);
    Plan {
        walk,
        width,
        lanes,
        parts,
        by_steps,
        pass,
        threads: threads.min(tasks).max(1),
        packed,
        sums: sums.next_multiple_of(16),
        far: false,
    }
}

impl Plan {
    /// Elements of scratch memory.
    pub fn scratch(&self) -> usize {
        self.packed.next_multiple_of(16) + self.parts.blocks * self.sums
    }
}

/// Computes a [`few_rows_left`] product as planned.
///
/// # Safety
/// The operands are valid; `scratch` has [`Plan::scratch`] elements and is aligned like a vector.
pub(super) unsafe fn stream<W: Stored>(
    g: &Gemm<W>,
    isa: Isa,
    plan: &Plan,
    pool: &ThreadPool,
    scratch: *mut W::Wide,
) {
    if plan.parts.blocks == 1 {
        // SAFETY: the caller's promise.
        return unsafe { alone(g, isa, plan, scratch) };
    }
    // SAFETY: the scratch memory begins with room for the packed rows.
    let rows = unsafe { rows(g, plan, scratch) };
    let shared = Shared { rows, sums: scratch.wrapping_add(plan.packed.next_multiple_of(16)) };
    if plan.by_steps {
        return stream_steps(g, isa, plan, pool, &shared);
    }
    pool.run(plan.threads, plan.parts.blocks, &|i| {
        let (tile, tiles) = plan.parts.piece(i);
        let (first, end) = (tile * plan.width, ((tile + tiles) * plan.width).min(g.n));
        let part = g.part(0, g.m, first.min(g.n), end.saturating_sub(first));
        let shared = &shared;
        let sums = shared.sums.wrapping_add(i * plan.sums);
        Part { isa, g: part, plan, rows: shared.rows, sums }.compute();
    });
}

/// The same for a product that is planned as one part.
///
/// # Safety
/// As for [`stream`].
pub(super) unsafe fn alone<W: Stored>(g: &Gemm<W>, isa: Isa, plan: &Plan, scratch: *mut W::Wide) {
    // SAFETY: the scratch memory begins with room for the packed rows.
    let rows = unsafe { rows(g, plan, scratch) };
    let sums = scratch.wrapping_add(plan.packed.next_multiple_of(16));
    Part { isa, g: *g, plan, rows, sums }.compute();
}

/// A single row whose steps are shared.
fn stream_steps<W: Stored>(g: &Gemm<W>, isa: Isa, plan: &Plan, pool: &ThreadPool, shared: &Shared<W::Wide>) {
    let sums =
        |part: usize| Sums { at: shared.sums.wrapping_add(part * plan.sums), rows: 1, width: plan.width };
    pool.run(plan.threads, plan.parts.blocks, &|i| {
        let (step, k) = plan.parts.piece(i);
        let at = g.b.wrapping_offset(step as isize * g.b_rs);
        let w = Matrix { at, rs: g.b_rs, cs: g.b_cs, k, columns: g.n };
        let rows = shared.rows.at.wrapping_add(step);
        W::run(isa, outer::Outer { w, rows, sums: sums(i), far: plan.far });
    });
    let columns = g.n.next_multiple_of(plan.width);
    for part in 1..plan.parts.blocks {
        W::run(isa, Merge::<W> { to: sums(0).at, from: sums(part).at, columns });
    }
    W::run(isa, Finish { sums: sums(0), out: Out::of(g), columns: g.n });
}

/// Adds the sums of a part to those of another, whole tiles.
struct Merge<W: Stored> {
    to: *mut W::Wide,
    from: *const W::Wide,
    columns: usize,
}

impl<W: Stored> StoredTask<W> for Merge<W> {
    #[inline(always)]
    fn run<S: Reads<W> + Reads<W::Wide>>(self, s: S) {
        for column in (0..self.columns).step_by(S::LANES) {
            // SAFETY: both have sums for whole tiles.
            unsafe {
                let to = self.to.add(column);
                s.store(to, s.add(s.load(to), s.load(self.from.add(column))));
            }
        }
    }
}

struct Shared<T> {
    rows: Rows<T>,
    sums: *mut T,
}
// SAFETY: the rows are only read, and each part has its own sums.
unsafe impl<T: Sync> Sync for Shared<T> {}

/// Some columns of the result. Each walk, each number of rows and the end are functions of their own: compilers take minutes for
/// one that holds them all.
struct Part<'a, W: Stored> {
    isa: Isa,
    g: Gemm<W>,
    plan: &'a Plan,
    rows: Rows<W::Wide>,
    sums: *mut W::Wide,
}

impl<W: Stored> Part<'_, W> {
    fn compute(&self) {
        let (isa, g, plan, rows) = (self.isa, &self.g, self.plan, self.rows);
        let mut column = 0;
        while column < g.n {
            let pass = g.part(0, g.m, column, plan.pass.min(g.n - column));
            let w = Matrix { at: pass.b, rs: g.b_rs, cs: g.b_cs, k: g.k, columns: pass.n };
            let width = match plan.walk {
                Walk::Outer => plan.width,
                Walk::Dot => pass.n.next_multiple_of(plan.width),
            };
            let sums = Sums { at: self.sums, rows: g.m, width };
            let out = Out::of(&pass);
            let result = out.epilogue.is_nothing().then_some((out.c, out.rs, out.cs));
            match plan.walk {
                Walk::Outer => W::run(isa, outer::Outer { w, rows: rows.at, sums, far: plan.far }),
                Walk::Dot => {
                    let waiting = dot::partial_sums(g.m, g.k, isa.register_bytes(), size_of::<W::Wide>());
                    let partial = self.sums.wrapping_add(plan.sums - waiting);
                    dot::Job { w, rows, place: dot::Place { sums, result }, partial }.run(isa);
                }
            }
            if plan.walk == Walk::Outer || result.is_none() {
                W::run(isa, Finish { sums, out, columns: pass.n });
            }
            column += pass.n;
        }
    }
}

/// The end of some columns.
struct Finish<W: Stored> {
    sums: Sums<W::Wide>,
    out: Out<W>,
    columns: usize,
}

impl<W: Stored> StoredTask<W> for Finish<W> {
    #[inline(always)]
    fn run<S: Reads<W> + Reads<W::Wide>>(self, s: S) {
        // SAFETY: whoever made the task has the sums of these columns, and room for their results.
        unsafe { finish::<W, S>(s, &self.sums, &self.out, self.columns) };
    }
}

/// The few rows where they lie.
#[derive(Clone, Copy)]
pub(super) struct Rows<X> {
    pub at: *const X,
    pub rs: isize,
    pub cs: isize,
    pub m: usize,
    pub k: usize,
}

/// The few rows as the walk reads them: where they lie if it can, else copied.
unsafe fn rows<W: Stored>(g: &Gemm<W>, plan: &Plan, to: *mut W::Wide) -> Rows<W::Wide> {
    let rows = Rows { at: g.a, rs: g.a_rs, cs: g.a_cs, m: g.m, k: g.k };
    if let (0, Some(at)) = (plan.packed, W::as_wide(g.a)) {
        return Rows { at, rs: rows.rs, cs: rows.cs, m: rows.m, k: rows.k };
    }
    // SAFETY: the scratch memory has room for them.
    unsafe {
        match plan.walk {
            Walk::Outer => outer::pack(&rows, outer::group_rows(plan.lanes * size_of::<W::Wide>()), to),
            Walk::Dot => dot::pack(&rows, to),
        }
    }
    Rows { at: to, rs: g.k as isize, cs: 1, m: g.m, k: g.k }
}

/// Where results go.
#[derive(Clone, Copy)]
pub(super) struct Out<C> {
    pub c: *mut C,
    pub rs: isize,
    pub cs: isize,
    pub epilogue: Epilogue<C>,
}

impl<C: Copy> Out<C> {
    pub fn of(g: &Gemm<C>) -> Self {
        Self { c: g.c, rs: g.c_rs, cs: g.c_cs, epilogue: g.epilogue }
    }

    /// The same from a later row and column on.
    #[inline(always)]
    pub fn from(&self, row: usize, column: usize) -> Self {
        let at = |rs: isize, cs: isize| row as isize * rs + column as isize * cs;
        let mut out = *self;
        out.c = out.c.wrapping_offset(at(out.rs, out.cs));
        let e = &mut out.epilogue;
        e.bias = if e.bias.is_null() { e.bias } else { e.bias.wrapping_offset(at(e.bias_rs, e.bias_cs)) };
        out
    }
}

/// Adds the bias, applies the activation and writes the results of `columns` columns.
///
/// # Safety
/// There are sums for them, and the output and the bias have them.
#[inline(always)]
pub(super) unsafe fn finish<C: Stored, S: Reads<C>>(
    s: S,
    sums: &Sums<C::Wide>,
    out: &Out<C>,
    columns: usize,
) {
    let e = &out.epilogue;
    for row in 0..sums.rows {
        let (mut tile, mut column) = (0, 0);
        while column < columns {
            if column - tile == sums.width {
                tile = column;
            }
            let n = S::LANES.min(columns - column);
            let at = |rs: isize, cs: isize| row as isize * rs + column as isize * cs;
            // SAFETY: a tile holds whole vectors; `n` columns are left in the output and the bias.
            unsafe {
                let mut x = s.load(sums.row(tile, row).wrapping_add(column - tile));
                if !e.bias.is_null() {
                    let bias = e.bias.offset(at(e.bias_rs, e.bias_cs));
                    x = s.add(x, read_strided(s, bias, e.bias_cs, n));
                }
                x = activate(s, x, e.activation);
                write_strided(s, out.c.offset(at(out.rs, out.cs)), out.cs, x, n);
            }
            column += S::LANES;
        }
    }
}

/// Up to a vector of elements at any stride.
///
/// # Safety
/// `n` elements can be read.
#[inline(always)]
pub(super) unsafe fn read_strided<C: Stored, S: Reads<C>>(
    s: S,
    at: *const C,
    stride: isize,
    n: usize,
) -> S::V {
    // SAFETY: the caller has `n` elements at this stride, and there are at most 16 lanes.
    unsafe {
        match stride {
            0 => s.splat((*at).widen()),
            1 => s.read_first(at, n),
            _ => {
                let mut some = [C::NIL; 16];
                for (i, x) in some.iter_mut().enumerate().take(n) {
                    *x = *at.offset(i as isize * stride);
                }
                s.read_first(some.as_ptr(), n)
            }
        }
    }
}

#[inline(always)]
unsafe fn write_strided<C: Stored, S: Reads<C>>(s: S, at: *mut C, stride: isize, x: S::V, n: usize) {
    // SAFETY: the caller has `n` elements at this stride, and there are at most 16 lanes.
    unsafe {
        if stride == 1 {
            s.write_first(at, x, n);
        } else {
            let mut some = [C::NIL; 16];
            s.write_first(some.as_mut_ptr(), x, n);
            for (i, x) in some.iter().enumerate().take(n) {
                at.offset(i as isize * stride).write(*x);
            }
        }
    }
}

/// The activation of each lane.
#[inline(always)]
pub(super) fn activate<T: Coefficients, S: Lanes<T>>(s: S, x: S::V, activation: Activation) -> S::V {
    let zero = s.splat(T::ZERO);
    match activation {
        Activation::None => x,
        // The maximum gives its second operand where one is NaN.
        Activation::Relu => s.max(zero, x),
        Activation::LeakyRelu { slope } => {
            s.select(s.lt(x, zero), s.mul(x, s.splat(T::from_f64(f64::from(slope)))), x)
        }
        Activation::Gelu => math::gelu(s, x),
        Activation::Silu => math::silu(s, x),
        Activation::Tanh => math::tanh(s, x),
        Activation::Sigmoid => math::sigmoid(s, x),
    }
}

#[cfg(test)]
mod tests;
