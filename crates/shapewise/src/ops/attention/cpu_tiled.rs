//! Attention in tiles: keys and values are packed once for all queries that look at them, then threads take blocks of
//! queries from a common counter, those with the most keys first.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_block::{Block, Scores, Sums};
use super::cpu_mask::Mask;
use super::cpu_pack::{Matrix, pack_keys, pack_queries, pack_values, widened};
use super::plan::Plan;
use super::problem::{Problem, Strides4, at};
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::real::{Real, RealTask, Vectors};
use crate::backends::cpu::simd::{Float, Isa};
use crate::device::Device;
use crate::ops::matmul::cpu_micro::wide_shape;
use crate::ops::matmul::cpu_problem::{Real as Computed, Shared, Split};
use crate::ops::{Call, KernelError};

/// What all threads of a call share.
struct Run<'a, T: Real> {
    p: Problem,
    plan: Plan,
    pool: &'a ThreadPool,
    q: *const T,
    k: *const T,
    v: *const T,
    out: *mut T,
    mask: Option<Mask<T>>,
    /// Packed keys and values of a round, then every thread's own buffers.
    scratch: Shared<T::Wide>,
}

// SAFETY: inputs are only read, and every task writes rows of the output and scratch of its own.
unsafe impl<T: Real> Sync for Run<'_, T> {}

/// Computes the attention of a call.
pub(super) fn launch<T: Real>(isa: Isa, call: &Call<'_>) -> Result<(), KernelError>
where
    T::Wide: Computed,
{
    let p = Problem::of(call.workload);
    if p.is_empty() {
        return Ok(());
    }
    let device = call.cpu();
    let plan = Plan::new(&p, isa, call.parameters, device.info());
    let elements = plan.heads * (plan.packed_keys + plan.packed_values) + plan.threads * plan.own(&p).total();
    let mut scratch = device.scratch(elements * size_of::<T::Wide>())?;
    let run = Run::<T> {
        p,
        plan,
        pool: device.threads(),
        q: call.inputs[0].ptr(),
        k: call.inputs[1].ptr(),
        v: call.inputs[2].ptr(),
        out: call.outputs[0].ptr_mut(),
        mask: p.mask.map(|(dtype, strides)| Mask::new(&call.inputs[3], dtype, strides)),
        scratch: Shared(scratch.as_mut_ptr().cast()),
    };
    let all = p.batch * p.kv_heads;
    for first in (0..all).step_by(plan.heads) {
        let heads = plan.heads.min(all - first);
        run.pack(first, heads);
        run.compute(first, heads);
    }
    Ok(())
}

impl<T: Real> Run<'_, T>
where
    T::Wide: Computed,
{
    /// Packed keys and values of a head of this round.
    fn packed(&self, head: usize) -> (*mut T::Wide, *mut T::Wide) {
        let keys = self.scratch.at(head * (self.plan.packed_keys + self.plan.packed_values));
        (keys, keys.wrapping_add(self.plan.packed_keys))
    }

    /// A thread's own buffers.
    fn own(&self, worker: usize) -> *mut T::Wide {
        let shared = self.plan.heads * (self.plan.packed_keys + self.plan.packed_values);
        self.scratch.at(shared + worker * self.plan.own(&self.p).total())
    }

    /// Calls `task` for `0..tasks` on all threads, with the number of the thread.
    fn share(&self, tasks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        self.pool.run_numbered(self.plan.threads, tasks, task);
    }

    /// Packs keys and values of some heads, chunks of keys at a time.
    fn pack(&self, first: usize, heads: usize) {
        let (p, plan) = (&self.p, &self.plan);
        let chunks = p.keys.div_ceil(plan.chunk);
        self.share(heads * chunks, &|worker, task| {
            let (head, from) = (task / chunks, task % chunks * plan.chunk);
            let rows = plan.chunk.min(p.keys - from);
            let (batch, of) = ((first + head) / p.kv_heads, (first + head) % p.kv_heads);
            let matrix = |base: *const T, strides: &Strides4, columns: usize| Matrix {
                at: base.wrapping_offset(at(strides, batch, of, from)),
                rs: strides[2],
                cs: strides[3],
                rows,
                columns,
            };
            let room = self.own(worker);
            let (keys, values) = self.packed(head);
            // SAFETY: the matrices are parts of the operands; a thread's own buffers have room for a widened chunk.
            unsafe {
                let k = widened(plan.isa, matrix(self.k, &p.k, p.dim), room);
                pack_keys(plan.isa, k, plan.width, keys.wrapping_add(from * p.dim));
                let v = widened(plan.isa, matrix(self.v, &p.v, p.value_dim), room);
                let (to, apart) = (values.wrapping_add(from * plan.width), p.keys * plan.width);
                pack_values(plan.isa, v, plan.width, to, apart);
            }
        });
    }

    /// Computes all queries that look at some heads of keys.
    fn compute(&self, first: usize, heads: usize) {
        let (p, plan) = (&self.p, &self.plan);
        let (blocks, group) = (plan.blocks(p), p.group());
        let side_by_side = heads * group;
        self.share(blocks * side_by_side, &|worker, task| {
            // The last queries have the most keys in causal attention.
            let block = blocks - 1 - task / side_by_side;
            let (head, member) = (task % side_by_side / group, task % group);
            let (batch, of) = ((first + head) / p.kv_heads, (first + head) % p.kv_heads);
            self.block(worker, block, head, batch, of * group + member);
        });
    }

    /// Computes a block of queries of one head: `packed` counts the heads of keys in this round.
    fn block(&self, worker: usize, block: usize, packed: usize, batch: usize, head: usize) {
        let (p, plan) = (&self.p, &self.plan);
        let (first, rows) = plan.block(p, block);
        let sizes = plan.own(p);
        let q = self.own(worker);
        let scores = q.wrapping_add(sizes.queries);
        let sums = scores.wrapping_add(sizes.scores);
        let maxima = sums.wrapping_add(sizes.sums);
        let totals = maxima.wrapping_add(sizes.rows);
        let mask_room = totals.wrapping_add(sizes.rows);
        let room = mask_room.wrapping_add(sizes.mask);
        let matrix = Matrix {
            at: self.q.wrapping_offset(at(&p.q, batch, head, first)),
            rs: p.q[2],
            cs: p.q[3],
            rows,
            columns: p.dim,
        };
        // SAFETY: the matrix is a part of the queries, and the thread has room for a widened block.
        let queries = unsafe { widened(plan.isa, matrix, room) };
        let tiles = Split::at_most(rows, wide_shape(plan.isa.register_bytes()).0);
        pack_queries(plan.isa, queries, tiles, q);
        let mask = self.mask.map(|mask| mask.rows(batch, head, first, rows));
        let fill = |from: usize, keys: usize| {
            if let Some(mask) = mask {
                // SAFETY: the mask has these queries and keys, and the room is for a block of them.
                unsafe { mask.widen(from, keys, mask_room, plan.pitch) };
            }
        };
        let scores = Scores {
            at: scores,
            pitch: plan.pitch,
            first,
            rows,
            maxima,
            totals,
            mask: if mask.is_some() { mask_room.cast_const() } else { std::ptr::null() },
            mask_pitch: mask.map_or(0, |m| m.pitch(plan.pitch)),
        };
        let sums = Sums { at: sums, columns: plan.columns };
        let (k, v) = self.packed(packed);
        T::Wide::run(
            plan.isa,
            Block {
                problem: p,
                scores,
                sums,
                q,
                k: k.cast_const(),
                v: v.cast_const(),
                width: plan.width,
                keys: plan.keys,
                fill_mask: mask.is_some().then_some(&fill),
            },
        );
        let out = self.out.wrapping_offset(at(&p.out, batch, head, first));
        T::dispatch_narrow(
            plan.isa,
            Divide { sums, totals, rows, columns: p.value_dim, out, strides: &p.out },
        );
    }
}

/// Divides sums by the totals of their weights, into the output.
pub(super) struct Divide<'a, T: Real> {
    pub sums: Sums<T::Wide>,
    pub totals: *const T::Wide,
    pub rows: usize,
    pub columns: usize,
    pub out: *mut T,
    pub strides: &'a Strides4,
}

impl<T: Real> RealTask<T> for Divide<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Vectors<T>>(self, s: S) {
        let (zero, [.., rs, cs]) = (T::Wide::ZERO, *self.strides);
        for row in 0..self.rows {
            let from = self.sums.at.wrapping_add(row * self.sums.columns);
            let to = self.out.wrapping_offset(row as isize * rs);
            // SAFETY: there is a total for every row.
            let total = unsafe { *self.totals.add(row) };
            // No key at all: zeros, whatever the sums hold.
            let (blank, factor) = (total == zero, T::Wide::ONE / total);
            let whole = if cs == 1 { self.columns - self.columns % S::LANES } else { 0 };
            for i in (0..whole).step_by(S::LANES) {
                // SAFETY: sums and output have these columns.
                unsafe {
                    let x = s.mul(s.load(from.add(i)), s.splat(factor));
                    s.write(to.add(i), if blank { s.splat(zero) } else { x });
                }
            }
            for i in whole..self.columns {
                // SAFETY: sums and output have this column.
                unsafe {
                    let x = if blank { zero } else { *from.add(i) * factor };
                    to.wrapping_offset(i as isize * cs).write(T::narrow(x));
                }
            }
        }
    }
}
