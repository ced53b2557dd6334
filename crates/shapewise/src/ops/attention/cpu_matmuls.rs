//! Attention as it is written: one product for all scores of a head, their softmax, another product with the values.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use super::cpu_block::{Scores, scale, weigh};
use super::cpu_mask::{Mask, MaskRows};
use super::problem::{Problem, at};
use crate::backends::cpu::CpuDevice;
use crate::backends::cpu::real::Real as Element;
use crate::backends::cpu::simd::{Isa, Lanes};
use crate::device::{Device, DeviceInfo};
use crate::ops::matmul::cpu_packed;
use crate::ops::matmul::cpu_problem::{Epilogue, Gemm, LanesTask, Real as Computed, Shared, Split};
use crate::ops::matmul::plan::{Algorithm, Blocks, Plan, Sizes};
use crate::ops::{Activation, Call, KernelError};

/// Queries whose softmax one task takes.
const ROWS: usize = 16;

/// Both products of one head; `scores` stand between them.
fn products<T: Copy>(
    p: &Problem,
    q: *const T,
    k: *const T,
    v: *const T,
    scores: *mut T,
    out: *mut T,
) -> [Gemm<T>; 2] {
    let epilogue = Epilogue { bias: std::ptr::null(), bias_rs: 0, bias_cs: 0, activation: Activation::None };
    let pitch = pitch(p) as isize;
    [
        Gemm {
            m: p.queries,
            n: p.keys,
            k: p.dim,
            a: q,
            a_rs: p.q[2],
            a_cs: p.q[3],
            b: k,
            b_rs: p.k[3],
            b_cs: p.k[2],
            c: scores,
            c_rs: pitch,
            c_cs: 1,
            epilogue,
        },
        Gemm {
            m: p.queries,
            n: p.value_dim,
            k: p.keys,
            a: scores,
            a_rs: pitch,
            a_cs: 1,
            b: v,
            b_rs: p.v[2],
            b_cs: p.v[3],
            c: out,
            c_rs: p.out[2],
            c_cs: 1,
            epilogue,
        },
    ]
}

/// From row to row of the scores: whole vectors of any instruction set.
fn pitch(p: &Problem) -> usize {
    p.keys.next_multiple_of(16)
}

fn blocking<T: Copy>(g: &Gemm<T>, isa: Isa, threads: usize, device: &DeviceInfo) -> cpu_packed::Blocking {
    let (sizes, blocks) = (Sizes::of(device), Blocks::default());
    Plan::new(g, Algorithm::Packed, isa, size_of::<T>(), threads, false, &sizes, blocks).packed()
}

/// Elements of scratch: panels, scores, a number per row twice, the mask.
fn scratch<T: Computed>(p: &Problem, isa: Isa, threads: usize, device: &DeviceInfo) -> [usize; 4] {
    let null = std::ptr::null();
    let both = products::<T>(p, null, null, null, std::ptr::null_mut(), std::ptr::null_mut());
    let panels = both.map(|g| cpu_packed::scratch(&g, isa, &blocking(&g, isa, threads, device)));
    let scores = p.queries * pitch(p);
    let rows = p.queries.next_multiple_of(64);
    [panels[0].max(panels[1]).next_multiple_of(64), scores, rows, if p.mask.is_some() { scores } else { 0 }]
}

/// Bytes of scratch.
pub(super) fn scratch_bytes(p: &Problem, isa: Isa, threads: usize, device: &DeviceInfo) -> usize {
    if p.dtype.size() == 8 {
        let [panels, scores, rows, mask] = scratch::<f64>(p, isa, threads, device);
        8 * (panels + scores + 2 * rows + mask)
    } else {
        let [panels, scores, rows, mask] = scratch::<f32>(p, isa, threads, device);
        4 * (panels + scores + 2 * rows + mask)
    }
}

/// What the heads of a call share.
struct Run<'a, T> {
    p: Problem,
    isa: Isa,
    threads: usize,
    device: &'a CpuDevice,
    panels: Shared<T>,
    scores: Shared<T>,
    maxima: Shared<T>,
    totals: Shared<T>,
    mask: Shared<T>,
}

/// Computes the attention of a call; no operand is empty, and rows of the output are contiguous.
pub(super) fn launch<T: Element<Wide = T> + Computed>(isa: Isa, call: &Call<'_>) -> Result<(), KernelError> {
    let p = Problem::of(call.workload);
    let (device, threads) = (call.cpu(), call.parameters.threads());
    let [panels, scores, rows, _] = scratch::<T>(&p, isa, threads, device.info());
    let mut memory = device.scratch(scratch_bytes(&p, isa, threads, device.info()))?;
    let panels_at = Shared(memory.as_mut_ptr().cast::<T>());
    let scores_at = Shared(panels_at.at(panels));
    let maxima = Shared(scores_at.at(scores));
    let totals = Shared(maxima.at(rows));
    let mask = Shared(totals.at(rows));
    let run = Run { p, isa, threads, device, panels: panels_at, scores: scores_at, maxima, totals, mask };
    let [q, k, v] = [0, 1, 2].map(|i| call.inputs[i].ptr::<T>());
    let masks = p.mask.map(|(dtype, strides)| Mask::<T>::new(&call.inputs[3], dtype, strides));
    for (batch, head) in (0..p.batch).flat_map(|b| (0..p.heads).map(move |h| (b, h))) {
        let shared = head / p.group();
        let both = products(
            &p,
            q.wrapping_offset(at(&p.q, batch, head, 0)),
            k.wrapping_offset(at(&p.k, batch, shared, 0)),
            v.wrapping_offset(at(&p.v, batch, shared, 0)),
            run.scores.at(0),
            call.outputs[0].ptr_mut::<T>().wrapping_offset(at(&p.out, batch, head, 0)),
        );
        let mask = masks.map(|mask| mask.rows(batch, head, 0, p.queries));
        // SAFETY: the operands are valid and not empty, and the scratch memory is for these products.
        unsafe { run.head(both, mask) };
    }
    Ok(())
}

impl<T: Element<Wide = T> + Computed> Run<'_, T> {
    /// # Safety
    /// The products are those of one head, whose operands are valid.
    unsafe fn head(&self, [first, second]: [Gemm<T>; 2], mask: Option<MaskRows<T>>) {
        let (p, pool, pitch) = (&self.p, self.device.threads(), pitch(&self.p));
        let (masked, mask_pitch) = (mask.is_some(), mask.map_or(0, |m| m.pitch(pitch)));
        if let Some(mask) = mask {
            // SAFETY: the mask has all keys, and the room is for all scores.
            unsafe { mask.widen(0, p.keys, self.mask.at(0), pitch) };
        }
        // SAFETY: the caller's promise; the panels are large enough for both products.
        unsafe { self.product(&first) };
        let tasks = Split::at_most(p.queries, ROWS);
        pool.run(self.threads, tasks.blocks, &|task| {
            let (first, rows) = tasks.piece(task);
            let scores = Scores {
                at: self.scores.at(first * pitch),
                pitch,
                first,
                rows,
                maxima: self.maxima.at(first),
                totals: self.totals.at(first),
                mask: if masked { self.mask.at(first * mask_pitch) } else { std::ptr::null_mut() },
                mask_pitch,
            };
            T::run(self.isa, Softmax { p, scores });
        });
        // SAFETY: as above; the weights are there.
        unsafe {
            if is_finite(&second) {
                self.product(&second);
            } else {
                add_each(&second);
            }
        }
    }

    /// # Safety
    /// As [`cpu_packed::run`].
    unsafe fn product(&self, g: &Gemm<T>) {
        let blocking = blocking(g, self.isa, self.threads, self.device.info());
        // SAFETY: the caller's promise.
        unsafe { cpu_packed::run(g, self.isa, &blocking, self.device.threads(), self.panels.at(0)) };
    }
}

/// Weights of some queries, from scores without their scale.
struct Softmax<'a, T> {
    p: &'a Problem,
    scores: Scores<T>,
}

impl<T: Computed> LanesTask<T> for Softmax<'_, T> {
    #[inline(always)]
    fn run<S: Lanes<T>>(self, s: S) {
        let Scores { at, pitch, rows, maxima, totals, .. } = self.scores;
        // SAFETY: the buffers have a number for each row, rows of scores whole vectors.
        unsafe {
            for row in 0..rows {
                maxima.add(row).write(-T::INFINITY);
                totals.add(row).write(T::ZERO);
            }
            scale(s, at, rows * pitch, T::from_f64(self.p.scale));
            weigh(s, self.p, &self.scores, 0, self.p.keys, None);
            for row in 0..rows {
                let total = *totals.add(row);
                // Without any key the weights are zeros already.
                let factor = if total == T::ZERO { T::ONE } else { T::ONE / total };
                scale(s, at.add(row * pitch), pitch, factor);
            }
        }
    }
}

/// Whether the right operand of a product is finite.
///
/// # Safety
/// The operand is valid.
unsafe fn is_finite<T: Computed>(g: &Gemm<T>) -> bool {
    // Zero times anything finite is zero; the sum of the rest is not a number.
    let mut sum = T::ZERO;
    for i in 0..g.k {
        for j in 0..g.n {
            // SAFETY: the operand has this element.
            sum += T::ZERO * unsafe { *g.b.offset(i as isize * g.b_rs + j as isize * g.b_cs) };
        }
    }
    sum == T::ZERO
}

/// The product one by one: a zero on the left leaves its row on the right out even if that is not finite.
///
/// # Safety
/// The operands are valid.
unsafe fn add_each<T: Computed>(g: &Gemm<T>) {
    for i in 0..g.m {
        for j in 0..g.n {
            let mut sum = T::ZERO;
            for p in 0..g.k {
                // SAFETY: the operands have these elements.
                let x = unsafe { *g.a.offset(i as isize * g.a_rs + p as isize * g.a_cs) };
                // Not a number is not zero either.
                if x != T::ZERO {
                    // SAFETY: as above.
                    sum += x * unsafe { *g.b.offset(p as isize * g.b_rs + j as isize * g.b_cs) };
                }
            }
            // SAFETY: the result has this element.
            unsafe { g.c_at(i, j).write(sum) };
        }
    }
}
