//! One call: weights packed once, then step after step.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::Cell;
use super::cpu_pack::{self, Section};
use super::cpu_part::{Layer, Part, Step};
use super::cpu_phases;
use super::cpu_products::{Projection, slot};
use super::plan::{Plan, Way};
use super::problem::Problem;
use crate::backends::cpu::real::Real as Element;
use crate::backends::cpu::simd::Isa;
use crate::backends::cpu::{CpuDevice, Operand};
use crate::device::Device;
use crate::ops::matmul::cpu_problem::{Real as Computed, Shared, Split};
use crate::ops::{Call, KernelError};

/// A layer and what its steps need besides.
struct Run<'a, T> {
    layer: Layer<T>,
    device: &'a CpuDevice,
    /// Where weights of the inputs and of the state are packed to, if they are not yet.
    panels: [*mut T; 2],
    /// Both states, one after the other.
    states: [*mut T; 2],
    projected: *mut T,
    /// Buffers of all threads, and how far they are apart.
    sums: Shared<T>,
    sums_apart: usize,
    /// Whether the first step starts from zeros.
    zeros: bool,
    /// Whether all weights of the state are known to be finite: then they make nothing else of zeros.
    finite: AtomicBool,
}

/// Computes the layer of a call; no operand is empty, and hidden units of a result are neighbours.
pub(super) fn launch<T: Element<Wide = T> + Computed>(
    isa: Isa,
    way: Way,
    call: &Call<'_>,
) -> Result<(), KernelError> {
    let (p, device) = (Problem::of(call.workload), call.cpu());
    let plan = Plan::new(&p, isa, way, call.parameters, device.info());
    let sizes = plan.buffers(&p);
    let mut scratch = device.scratch(sizes.total(plan.threads) * size_of::<T>())?;
    let of_input = scratch.as_mut_ptr().cast::<T>();
    let of_state = of_input.wrapping_add(sizes.packed[0]);
    let bias = of_state.wrapping_add(sizes.packed[1]);
    let state = bias.wrapping_add(sizes.bias);
    let memory = state.wrapping_add(2 * sizes.state);
    let projected = memory.wrapping_add(sizes.memory);
    let kept = call.inputs.last().filter(|_| plan.kept).map(Operand::ptr::<T>);
    let input = |at: usize| call.inputs[at].ptr::<T>();
    let layer = Layer {
        p,
        plan,
        x: input(0),
        y: call.outputs[0].ptr_mut(),
        w_ih: input(p.places.w_ih),
        w_hh: input(p.places.w_hh),
        packed: kept.map_or([of_input.cast_const(), of_state.cast_const()], |at| cpu_pack::kept(&p, isa, at)),
        bias,
        memory,
        lengths: p.places.lengths.map(|at| (call.inputs[at].ptr::<u32>(), call.inputs[at].strides()[0])),
    };
    let mut run = Run {
        layer,
        device,
        panels: [of_input, of_state],
        states: [state, state.wrapping_add(sizes.state)],
        projected,
        sums: Shared(projected.wrapping_add(sizes.projected)),
        sums_apart: sizes.sums,
        zeros: false,
        // SAFETY: kept weights are as long as packing made them.
        finite: AtomicBool::new(
            way.packs() && kept.is_none_or(|at| unsafe { cpu_pack::kept_finite(&p, isa, at) }),
        ),
    };
    // SAFETY: the buffers have the sizes of the plan, and the states the shape of the operands.
    unsafe {
        run.join_biases(call);
        run.read_state(&call.inputs[1], state);
        if p.cell == Cell::Lstm {
            run.read_state(&call.inputs[2], memory);
        }
        run.zeros = way.packs() && run.starts_from_zeros();
        if way == Way::Batch {
            run.by_batch();
        } else {
            run.by_steps();
        }
        run.write_state(run.states[p.steps % 2], &call.outputs[1]);
        if p.cell == Cell::Lstm {
            run.write_state(memory, &call.outputs[2]);
        }
    }
    Ok(())
}

impl<T: Element<Wide = T> + Computed> Run<'_, T> {
    /// Adds up the biases that go to the same sum.
    unsafe fn join_biases(&mut self, call: &Call<'_>) {
        let (p, plan) = (&self.layer.p, &self.layer.plan);
        // SAFETY: the buffer has this size, and the biases an element for each row of weights.
        unsafe {
            let all = std::slice::from_raw_parts_mut(self.layer.bias, p.cell.sums() * plan.padded);
            all.fill(T::ZERO);
            for (of_state, at) in [false, true].into_iter().zip(p.places.bias..).filter(|_| p.bias) {
                let (from, apart) = (call.inputs[at].ptr::<T>(), call.inputs[at].strides()[0]);
                for line in 0..p.columns() {
                    let sum = slot(p.cell, of_state, line / p.hidden) * plan.padded + line % p.hidden;
                    all[sum] += *from.offset(line as isize * apart);
                }
            }
        }
    }

    /// Copies an initial state to rows of the plan's pitch.
    unsafe fn read_state(&self, from: &Operand<'_>, to: *mut T) {
        let (p, strides) = (&self.layer.p, from.strides());
        for row in 0..p.batch {
            for unit in 0..p.hidden {
                let at = row as isize * strides[0] + unit as isize * strides[1];
                // SAFETY: the operand is `batch × hidden`, and so is the buffer at least.
                unsafe { *to.add(row * self.layer.plan.pitch + unit) = *from.ptr::<T>().offset(at) };
            }
        }
    }

    unsafe fn write_state(&self, from: *const T, to: &Operand<'_>) {
        let (p, strides) = (&self.layer.p, to.strides());
        for row in 0..p.batch {
            for unit in 0..p.hidden {
                let at = row as isize * strides[0] + unit as isize * strides[1];
                // SAFETY: as for reading.
                unsafe { *to.ptr_mut::<T>().offset(at) = *from.add(row * self.layer.plan.pitch + unit) };
            }
        }
    }

    /// Whether the initial state is all zeros.
    fn starts_from_zeros(&self) -> bool {
        let Layer { p, plan, .. } = &self.layer;
        (0..p.batch).all(|row| {
            // SAFETY: the state was read into rows of the plan's pitch.
            let row = unsafe { std::slice::from_raw_parts(self.states[0].add(row * plan.pitch), p.hidden) };
            row.iter().all(|&x| x == T::ZERO)
        })
    }

    /// Packs the weights of one block, as far as the way packs them.
    fn pack(&self, block: usize) {
        let Layer { p, plan, w_ih, w_hh, .. } = &self.layer;
        for (at, packs) in plan.way.packed().into_iter().enumerate() {
            let (weights, strides) = if at == 0 { (*w_ih, p.w_ih) } else { (*w_hh, p.w_hh) };
            let section = Section { weights, strides, panels: self.panels[at] };
            let finite = (at == 1 && self.zeros).then_some(&self.finite);
            if packs {
                // SAFETY: the weights are the layer's, and the buffers have the plan's sizes.
                unsafe { cpu_pack::block(p, plan, at == 1, section, block, finite) };
            }
        }
    }

    /// The `i`-th step; `before` says which of the two states is the old one.
    fn step(&self, i: usize, projected: *const T) -> Step<T> {
        let (before, after) = (self.states[i % 2].cast_const(), self.states[(i + 1) % 2]);
        let still = i == 0 && self.zeros && self.finite.load(Ordering::Relaxed);
        Step { time: self.layer.p.step(i), before, after, projected, still }
    }

    /// Step after step, threads share the blocks of hidden units.
    fn by_steps(&self) {
        let Layer { p, plan, .. } = &self.layer;
        let packing = usize::from(plan.way.packed()[0] && !plan.kept);
        let projects = usize::from(plan.way.projects());
        let phases = packing + p.steps + projects * p.steps.div_ceil(plan.chunk);
        cpu_phases::run(
            self.device.threads(),
            plan.threads,
            [phases, plan.blocks],
            &|thread, phase, block| {
                let Some(phase) = phase.checked_sub(packing) else { return self.pack(block) };
                // The products of a chunk's inputs come before its steps.
                let (chunk, at) = (phase / (plan.chunk + projects), phase % (plan.chunk + projects));
                let from = chunk * plan.chunk;
                let steps = plan.chunk.min(p.steps - from);
                // The earliest step of the chunk: the last one that is computed if the direction is reversed.
                let first = p.step(from).min(p.step(from + steps - 1));
                let Some(at) = at.checked_sub(projects) else {
                    let to = self.projected;
                    return T::run(
                        plan.isa,
                        Projection { layer: &self.layer, block, steps: (first, steps), to },
                    );
                };
                let row = (p.step(from + at) - first) * p.batch;
                let projected = self.projected.wrapping_add(row * plan.width).cast_const();
                let projected = if projects == 1 { projected } else { std::ptr::null() };
                self.part(thread, self.step(from + at, projected), (0, p.batch), (block, 1));
            },
        );
    }

    /// Each thread its own sequences through all steps.
    fn by_batch(&self) {
        let Layer { p, plan, .. } = &self.layer;
        let pool = self.device.threads();
        if !plan.kept {
            pool.run(plan.threads, plan.blocks, &|block| self.pack(block));
        }
        let rows = Split::into(p.batch, plan.threads.min(p.batch));
        pool.run(plan.threads, rows.blocks, &|task| {
            for i in 0..p.steps {
                self.part(task, self.step(i, std::ptr::null()), rows.piece(task), (0, plan.blocks));
            }
        });
    }

    fn part(&self, worker: usize, step: Step<T>, rows: (usize, usize), blocks: (usize, usize)) {
        let sums = self.sums.at(worker * self.sums_apart);
        T::run(self.layer.plan.isa, Part { layer: &self.layer, step, rows, blocks, sums });
    }
}

// SAFETY: threads read the pointers and write parts of their own.
unsafe impl<T: Sync> Sync for Run<'_, T> {}
