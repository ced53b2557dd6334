//! A few queries against many keys, as in decoding: keys and values are read once, where they lie, and that is all the time
//! it takes. Long keys are split over the threads, and the parts put together at the end.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_block::{Scores, Sums, weigh};
use super::cpu_mask::Mask;
use super::cpu_tiled::Divide;
use super::problem::{Problem, at};
use crate::backends::cpu::real::{Real, RealTask, Vectors, prefetch};
use crate::backends::cpu::simd::{Float, Isa};
use crate::ops::matmul::cpu_problem::{Real as Computed, Shared, Split};
use crate::ops::{Call, KernelError};

/// Queries that share keys, at most: with more of them it is arithmetic that takes the time.
pub(super) const ROWS: usize = 16;
/// Keys whose scores are taken before their values: both stay in the first cache.
const CHUNK: usize = 64;
/// Keys that are worth a task of their own: some microseconds.
const SHARE: usize = 512;
/// Keys or vectors that are summed side by side: two multipliers with a latency of four cycles.
const SIDE_BY_SIDE: usize = 8;

/// How the keys are cut, and elements of each part's buffers.
pub(super) struct Cut {
    /// Queries that share keys.
    rows: usize,
    /// Parts of the keys of a head.
    pub parts: usize,
    /// Padded to whole vectors of any instruction set.
    dim: usize,
    columns: usize,
}

impl Cut {
    pub fn new(p: &Problem, threads: usize) -> Self {
        let heads = p.batch * p.kv_heads;
        let wanted = if heads.is_multiple_of(threads) { 1 } else { (4 * threads).div_ceil(heads.max(1)) };
        let parts = wanted.min(p.keys.div_ceil(SHARE)).max(1);
        let (dim, columns) = (p.dim.next_multiple_of(16), p.value_dim.next_multiple_of(16));
        Self { rows: p.group() * p.queries, parts, dim, columns }
    }

    /// Queries, sums, scores, mask, and two numbers per row.
    pub fn elements(&self) -> usize {
        (self.rows * (self.dim + self.columns + 2 * CHUNK + 2)).next_multiple_of(64)
    }
}

/// What all threads of a call share.
struct Run<T: Real> {
    p: Problem,
    cut: Cut,
    isa: Isa,
    q: *const T,
    k: *const T,
    v: *const T,
    out: *mut T,
    mask: Option<Mask<T>>,
    scratch: Shared<T::Wide>,
}

// SAFETY: inputs are only read, and every task writes results and scratch of its own.
unsafe impl<T: Real> Sync for Run<T> {}

/// Computes the attention of a call; rows of keys and values are contiguous, and no operand is empty.
pub(super) fn launch<T: Real>(isa: Isa, call: &Call<'_>) -> Result<(), KernelError>
where
    T::Wide: Computed,
{
    let p = Problem::of(call.workload);
    let (device, threads) = (call.cpu(), call.parameters.threads());
    let cut = Cut::new(&p, threads);
    let (heads, parts) = (p.batch * p.kv_heads, cut.parts);
    let mut scratch = device.scratch(heads * parts * cut.elements() * size_of::<T::Wide>())?;
    let run = Run::<T> {
        p,
        cut,
        isa,
        q: call.inputs[0].ptr(),
        k: call.inputs[1].ptr(),
        v: call.inputs[2].ptr(),
        out: call.outputs[0].ptr_mut(),
        mask: p.mask.map(|(dtype, strides)| Mask::new(&call.inputs[3], dtype, strides)),
        scratch: Shared(scratch.as_mut_ptr().cast()),
    };
    device.threads().run(threads, heads * parts, &|task| {
        run.part(task / parts, task % parts);
        if parts == 1 {
            run.finish(task);
        }
    });
    if parts > 1 {
        device.threads().run(threads, heads, &|head| run.finish(head));
    }
    Ok(())
}

/// The buffers of one part.
#[derive(Clone, Copy)]
struct Buffers<W> {
    q: *mut W,
    sums: *mut W,
    scores: *mut W,
    mask: *mut W,
    maxima: *mut W,
    totals: *mut W,
}

impl<T: Real> Run<T>
where
    T::Wide: Computed,
{
    fn buffers(&self, head: usize, part: usize) -> Buffers<T::Wide> {
        let cut = &self.cut;
        let q = self.scratch.at((head * cut.parts + part) * cut.elements());
        let sums = q.wrapping_add(cut.rows * cut.dim);
        let scores = sums.wrapping_add(cut.rows * cut.columns);
        let mask = scores.wrapping_add(cut.rows * CHUNK);
        let maxima = mask.wrapping_add(cut.rows * CHUNK);
        Buffers { q, sums, scores, mask, maxima, totals: maxima.wrapping_add(cut.rows) }
    }

    /// Computes some of the keys of one head.
    fn part(&self, head: usize, part: usize) {
        let (p, cut) = (&self.p, &self.cut);
        let (batch, of) = (head / p.kv_heads, head % p.kv_heads);
        let buffers = self.buffers(head, part);
        self.copy_queries(batch, of, buffers.q);
        let fill = |from: usize, keys: usize| {
            let Some(mask) = self.mask else { return };
            for row in 0..cut.rows {
                let (member, query) = (row / p.queries, row % p.queries);
                let rows = mask.rows(batch, of * p.group() + member, query, 1);
                // SAFETY: the mask has these keys, and the room is for a chunk of them in every row.
                unsafe { rows.widen(from, keys, buffers.mask.wrapping_add(row * CHUNK), CHUNK) };
            }
        };
        let (from, keys) = Split::into(p.visible(p.queries - 1), cut.parts).piece(part);
        let scores = Scores {
            at: buffers.scores,
            pitch: CHUNK,
            first: 0,
            rows: cut.rows,
            maxima: buffers.maxima,
            totals: buffers.totals,
            mask: if self.mask.is_some() { buffers.mask } else { std::ptr::null_mut() },
            mask_pitch: CHUNK,
        };
        T::dispatch_narrow(
            self.isa,
            Part {
                p,
                q: buffers.q,
                pitch: cut.dim,
                k: self.k.wrapping_offset(at(&p.k, batch, of, 0)),
                v: self.v.wrapping_offset(at(&p.v, batch, of, 0)),
                scores,
                sums: Sums { at: buffers.sums, columns: cut.columns },
                keys: (from, from + keys),
                fill: &fill,
            },
        );
    }

    /// The queries that share a head of keys, scaled, padded with zeros.
    fn copy_queries(&self, batch: usize, of: usize, to: *mut T::Wide) {
        let (p, cut) = (&self.p, &self.cut);
        let factor = T::Wide::from_f64(p.scale);
        for row in 0..cut.rows {
            let (member, query) = (row / p.queries, row % p.queries);
            let from = self.q.wrapping_offset(at(&p.q, batch, of * p.group() + member, query));
            for d in 0..cut.dim {
                // SAFETY: the query has this element, and the buffer a place for it.
                unsafe {
                    let x = if d < p.dim {
                        (*from.wrapping_offset(d as isize * p.q[3])).widen() * factor
                    } else {
                        T::Wide::ZERO
                    };
                    to.add(row * cut.dim + d).write(x);
                }
            }
        }
    }

    /// Puts the parts of a head together in the first one and writes the results.
    fn finish(&self, head: usize) {
        let (p, cut) = (&self.p, &self.cut);
        let first = self.buffers(head, 0);
        for row in 0..cut.rows {
            for part in 1..cut.parts {
                // SAFETY: all parts are computed, and nobody else uses them any more.
                unsafe { merge(&first, &self.buffers(head, part), row, cut.columns, p.value_dim) };
            }
        }
        let (batch, of) = (head / p.kv_heads, head % p.kv_heads);
        for member in 0..p.group() {
            let row = member * p.queries;
            let sums = Sums { at: first.sums.wrapping_add(row * cut.columns), columns: cut.columns };
            let (totals, rows, columns) = (first.totals.wrapping_add(row), p.queries, p.value_dim);
            let out = self.out.wrapping_offset(at(&p.out, batch, of * p.group() + member, 0));
            T::dispatch_narrow(self.isa, Divide { sums, totals, rows, columns, out, strides: &p.out });
        }
    }
}

/// Adds the sums of one row of another part, both scaled to the larger maximum.
///
/// # Safety
/// Both parts have the row.
unsafe fn merge<W: Float>(to: &Buffers<W>, from: &Buffers<W>, row: usize, pitch: usize, columns: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let (max, total) = (to.maxima.add(row), to.totals.add(row));
        let (a, b) = (*max, *from.maxima.add(row));
        let largest = if b > a { b } else { a };
        if largest == -W::INFINITY {
            return;
        }
        let shrink = |x: W| W::from_f64((x - largest).to_f64().exp());
        let (a, b) = (shrink(a), shrink(b));
        *max = largest;
        *total = *total * a + *from.totals.add(row) * b;
        for d in 0..columns {
            let sum = to.sums.add(row * pitch + d);
            *sum = *sum * a + *from.sums.add(row * pitch + d) * b;
        }
    }
}

/// Some keys of one head, as one thread computes them.
struct Part<'a, T: Real> {
    p: &'a Problem,
    q: *const T::Wide,
    /// From query to query.
    pitch: usize,
    k: *const T,
    v: *const T,
    scores: Scores<T::Wide>,
    sums: Sums<T::Wide>,
    keys: (usize, usize),
    fill: &'a dyn Fn(usize, usize),
}

impl<T: Real> RealTask<T> for Part<'_, T>
where
    T::Wide: Computed,
{
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let (rows, sums) = (self.scores.rows, &self.sums);
        // SAFETY: the buffers have the sizes of the cut.
        unsafe {
            for row in 0..rows {
                self.scores.maxima.add(row).write(-T::Wide::INFINITY);
                self.scores.totals.add(row).write(T::Wide::ZERO);
            }
            for i in 0..rows * sums.columns {
                sums.at.add(i).write(T::Wide::ZERO);
            }
        }
        for from in (self.keys.0..self.keys.1).step_by(CHUNK) {
            let keys = CHUNK.min(self.keys.1 - from);
            (self.fill)(from, keys);
            // SAFETY: the operands have these keys, and the buffers room for a chunk of them.
            unsafe {
                for row in 0..rows {
                    self.products(s, row, from, keys);
                }
                weigh(s, self.p, &self.scores, from, keys, Some(self.sums));
                for row in 0..rows {
                    self.add_values(s, row, from, keys);
                }
            }
        }
    }
}

impl<T: Real> Part<'_, T>
where
    T::Wide: Computed,
{
    /// The products of one query with some keys.
    #[inline(always)]
    unsafe fn products<S: Vectors<T>>(&self, s: S, row: usize, from: usize, keys: usize) {
        let q = self.q.wrapping_add(row * self.pitch);
        let to = self.scores.at.wrapping_add(row * self.scores.pitch);
        let whole = keys - keys % SIDE_BY_SIDE;
        for j in (0..whole).step_by(SIDE_BY_SIDE) {
            // SAFETY: these keys exist, and have places.
            unsafe { self.dots::<S, SIDE_BY_SIDE>(s, q, from + j, to.add(j)) };
        }
        for j in whole..keys {
            // SAFETY: as above.
            unsafe { self.dots::<S, 1>(s, q, from + j, to.add(j)) };
        }
    }

    /// The products of one query with `N` keys side by side.
    #[inline(always)]
    unsafe fn dots<S: Vectors<T>, const N: usize>(
        &self,
        s: S,
        q: *const T::Wide,
        key: usize,
        to: *mut T::Wide,
    ) {
        let (dim, rs) = (self.p.dim, self.p.k[2]);
        let mut k = [self.k; N];
        for (i, k) in k.iter_mut().enumerate() {
            *k = self.k.wrapping_offset((key + i) as isize * rs);
        }
        let ahead = rs.wrapping_mul(N as isize);
        let mut sums = [s.splat(T::Wide::ZERO); N];
        let whole = dim - dim % S::LANES;
        for d in (0..whole).step_by(S::LANES) {
            // SAFETY: whole vectors of the query and of every key.
            unsafe {
                let x = s.load(q.add(d));
                for (sum, k) in sums.iter_mut().zip(k) {
                    prefetch(k.wrapping_add(d).wrapping_offset(ahead));
                    *sum = s.mul_add(x, s.read(k.add(d)), *sum);
                }
            }
        }
        if whole < dim {
            // SAFETY: the query is padded, and the keys have so many elements left.
            unsafe {
                let x = s.load(q.add(whole));
                for (sum, k) in sums.iter_mut().zip(k) {
                    *sum = s.mul_add(x, s.read_first(k.add(whole), dim - whole), *sum);
                }
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            // SAFETY: the scores have a place for each key.
            unsafe { to.add(i).write(s.reduce_add(sum)) };
        }
    }

    /// Adds the values of some keys to the sums of one query.
    #[inline(always)]
    unsafe fn add_values<S: Vectors<T>>(&self, s: S, row: usize, from: usize, keys: usize) {
        let weights = self.scores.at.wrapping_add(row * self.scores.pitch).cast_const();
        let (sums, columns) = (self.sums.at.wrapping_add(row * self.sums.columns), self.p.value_dim);
        let v = self.v.wrapping_offset(from as isize * self.p.v[2]);
        let wide = SIDE_BY_SIDE * S::LANES;
        let mut d = 0;
        // SAFETY: the columns add up to those of the values; sums are padded to whole vectors.
        unsafe {
            while d + wide <= columns {
                self.columns::<S, SIDE_BY_SIDE>(s, weights, keys, v.wrapping_add(d), sums.add(d), S::LANES);
                d += wide;
            }
            while d < columns {
                let lanes = S::LANES.min(columns - d);
                self.columns::<S, 1>(s, weights, keys, v.wrapping_add(d), sums.add(d), lanes);
                d += lanes;
            }
        }
    }

    /// Adds `N` vectors of columns, the last of so many lanes.
    #[inline(always)]
    unsafe fn columns<S: Vectors<T>, const N: usize>(
        &self,
        s: S,
        weights: *const T::Wide,
        keys: usize,
        v: *const T,
        sums: *mut T::Wide,
        lanes: usize,
    ) {
        let mut all = [s.splat(T::Wide::ZERO); N];
        for (i, sum) in all.iter_mut().enumerate() {
            // SAFETY: sums are whole vectors.
            *sum = unsafe { s.load(sums.add(i * S::LANES)) };
        }
        for key in 0..keys {
            // SAFETY: there is a weight for each key.
            let weight = unsafe { *weights.add(key) };
            // A key that is left out does not count, even if its value is not finite.
            if weight == T::Wide::ZERO {
                continue;
            }
            let v = v.wrapping_offset(key as isize * self.p.v[2]);
            let weight = s.splat(weight);
            for (i, sum) in all.iter_mut().enumerate() {
                // SAFETY: the value has these columns.
                let x = unsafe {
                    if lanes == S::LANES { s.read(v.add(i * S::LANES)) } else { s.read_first(v, lanes) }
                };
                *sum = s.mul_add(weight, x, *sum);
            }
        }
        for (i, sum) in all.into_iter().enumerate() {
            // SAFETY: sums are whole vectors.
            unsafe { s.store(sums.add(i * S::LANES), sum) };
        }
    }
}
