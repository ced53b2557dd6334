//! One call: weights packed once, then step after step.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Cell;
use super::cpu_part::{Finite, Layer, Part, Step};
use super::cpu_products::slot;
use super::plan::{Plan, Way};
use super::problem::Problem;
use crate::backends::cpu::real::Real as Element;
use crate::backends::cpu::simd::Isa;
use crate::backends::cpu::{CpuDevice, Operand};
use crate::device::{Device, DeviceInfo};
use crate::ops::matmul::cpu_pack::{PackPanels, Part as Panel};
use crate::ops::matmul::cpu_packed;
use crate::ops::matmul::cpu_problem::{Epilogue, Gemm, Real as Computed, Shared, Split};
use crate::ops::matmul::plan::{Algorithm, Blocks, Plan as Products, Sizes};
use crate::ops::{Activation, Call, KernelError};

/// Pieces of a step for each thread: a step ends when its last one does, so a thread that something else holds up is given fewer.
/// Of 1, 4, 8 and 16 the most won by a twentieth on a busy machine; at its best a quiet one was a fiftieth faster with 4.
const PIECES: usize = 16;

/// A layer and what its steps need besides.
struct Run<'a, T> {
    layer: Layer<T>,
    device: &'a CpuDevice,
    /// Both states, one after the other.
    states: [*mut T; 2],
    projected: *mut T,
    /// Buffers of all threads, and how far they are apart.
    sums: Shared<T>,
    sums_apart: usize,
    /// Panels of the input projection.
    panels: *mut T,
    /// Whether the first step starts from zeros, and no weight makes anything else of them.
    still: bool,
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
    let panels = panels::<T>(&p, &plan, device.info());
    let mut scratch = device.scratch((sizes.total(plan.threads) + panels) * size_of::<T>())?;
    let packed = scratch.as_mut_ptr().cast::<T>();
    let bias = packed.wrapping_add(sizes.packed);
    let state = bias.wrapping_add(sizes.bias);
    let memory = state.wrapping_add(2 * sizes.state);
    let projected = memory.wrapping_add(sizes.memory);
    let sums = projected.wrapping_add(sizes.projected);
    let input = |at: usize| call.inputs[at].ptr::<T>();
    let layer = Layer {
        p,
        plan,
        x: input(0),
        y: call.outputs[0].ptr_mut(),
        w_ih: input(p.places.w_ih),
        w_hh: input(p.places.w_hh),
        packed,
        bias,
        memory,
        lengths: p.places.lengths.map(|at| (call.inputs[at].ptr::<u32>(), call.inputs[at].strides()[0])),
    };
    let mut run = Run {
        layer,
        device,
        states: [state, state.wrapping_add(sizes.state)],
        projected,
        sums: Shared(sums),
        sums_apart: sizes.sums,
        panels: sums.wrapping_add(plan.threads * sizes.sums),
        still: false,
    };
    // SAFETY: the buffers have the sizes of the plan, and the states the shape of the operands.
    unsafe {
        run.join_biases(call);
        run.read_state(&call.inputs[1], state);
        if p.cell == Cell::Lstm {
            run.read_state(&call.inputs[2], memory);
        }
        if way.packs() {
            let zeros = run.starts_from_zeros();
            run.still = run.pack(zeros) && zeros;
        }
        let last = if way == Way::Batch { run.by_batch() } else { run.by_steps() };
        run.write_state(last, &call.outputs[1]);
        if p.cell == Cell::Lstm {
            run.write_state(memory, &call.outputs[2]);
        }
    }
    Ok(())
}

/// Elements of the panels of an input projection.
pub(super) fn panels<T: Computed>(p: &Problem, plan: &Plan, device: &DeviceInfo) -> usize {
    if !plan.way.projects() {
        return 0;
    }
    let (g, _) = projection::<T>(p, plan.chunk, std::ptr::null(), std::ptr::null(), std::ptr::null_mut());
    cpu_packed::scratch(&g, plan.isa, &blocking(&g, plan, device))
}

fn blocking<T: Copy>(g: &Gemm<T>, plan: &Plan, device: &DeviceInfo) -> cpu_packed::Blocking {
    let sizes = Sizes::of(device);
    Products::new(
        g,
        Algorithm::Packed,
        plan.isa,
        size_of::<T>(),
        plan.threads,
        false,
        &sizes,
        Blocks::default(),
    )
    .packed()
}

/// The product of the inputs of some steps from `x` on, and how often it is to be repeated: once where one stride leads
/// through all sequences of all steps, else for each sequence.
fn projection<T>(p: &Problem, steps: usize, x: *const T, w_ih: *const T, c: *mut T) -> (Gemm<T>, usize) {
    let (merged, columns) = (p.rows_stride(), p.columns() as isize);
    let g = Gemm {
        m: if merged.is_some() { steps * p.batch } else { steps },
        n: p.columns(),
        k: p.input,
        a: x,
        a_rs: merged.unwrap_or(p.x[0]),
        a_cs: p.x[2],
        b: w_ih,
        b_rs: p.w_ih[1],
        b_cs: p.w_ih[0],
        c,
        c_rs: if merged.is_some() { columns } else { columns * p.batch as isize },
        c_cs: 1,
        epilogue: Epilogue { bias: std::ptr::null(), bias_rs: 0, bias_cs: 0, activation: Activation::None },
    };
    (g, if merged.is_some() { 1 } else { p.batch })
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

    /// Packs the weights of every block in the order of use; if asked, says whether all those of the state are finite.
    fn pack(&self, check: bool) -> bool {
        let Layer { p, plan, .. } = &self.layer;
        let layer = &self.layer;
        let finite = AtomicBool::new(true);
        self.device.threads().run(plan.threads, plan.blocks, &|block| {
            let unit = block * plan.width;
            let mut panels = layer.packed.wrapping_add(block * plan.block);
            for (of_state, pieces) in [false, true].into_iter().zip(plan.pieces(p)) {
                let (weights, [rs, cs]) = if of_state { (layer.w_hh, p.w_hh) } else { (layer.w_ih, p.w_ih) };
                let some = of_state || !plan.way.projects();
                for (from, depth) in (0..pieces.blocks).map(|i| pieces.piece(i)).filter(|_| some) {
                    for gate in 0..p.cell.gates() {
                        let first = (gate * p.hidden + unit) as isize * rs + from as isize * cs;
                        let part = Panel {
                            at: weights.wrapping_offset(first),
                            across: rs,
                            along: cs,
                            width: plan.width.min(p.hidden - unit),
                            depth,
                        };
                        let width = plan.width;
                        T::run(plan.isa, PackPanels { part, width, pitch: width, panels, apart: 0 });
                        if of_state && check {
                            T::run(plan.isa, Finite { at: panels, len: depth * width, flag: &finite });
                        }
                        panels = panels.wrapping_add(depth * width);
                    }
                }
            }
        });
        finite.into_inner()
    }

    /// The `i`-th step; `before` says which of the two states is the old one.
    fn step(&self, i: usize, projected: *const T) -> Step<T> {
        let (before, after) = (self.states[i % 2].cast_const(), self.states[(i + 1) % 2]);
        Step { time: self.layer.p.step(i), before, after, projected, still: self.still && i == 0 }
    }

    /// Step after step, threads share the blocks of hidden units; gives the last state.
    fn by_steps(&self) -> *const T {
        let Layer { p, plan, .. } = &self.layer;
        let most = if plan.threads == 1 { 1 } else { PIECES * plan.threads };
        let pieces = Split::into(plan.blocks, most.min(plan.blocks));
        for from in (0..p.steps).step_by(plan.chunk) {
            let steps = plan.chunk.min(p.steps - from);
            // The earliest step of the chunk: the last one that is computed if the direction is reversed.
            let first = p.step(from).min(p.step(from + steps - 1));
            if plan.way.projects() {
                self.project(first, steps);
            }
            for i in from..from + steps {
                let apart = (p.step(i) - first) * p.batch * p.columns();
                let projected = if plan.way.projects() {
                    self.projected.wrapping_add(apart)
                } else {
                    std::ptr::null_mut()
                };
                let projected = Shared(projected);
                let next = AtomicUsize::new(0);
                self.device.threads().run(plan.threads, plan.threads.min(pieces.blocks), &|worker| {
                    let step = self.step(i, projected.at(0));
                    loop {
                        let piece = next.fetch_add(1, Ordering::Relaxed);
                        if piece >= pieces.blocks {
                            break;
                        }
                        self.part(worker, step, (0, p.batch), pieces.piece(piece));
                    }
                });
            }
        }
        self.states[p.steps % 2]
    }

    /// Each thread its own sequences through all steps; gives the last state.
    fn by_batch(&self) -> *const T {
        let Layer { p, plan, .. } = &self.layer;
        let rows = Split::into(p.batch, plan.threads.min(p.batch));
        self.device.threads().run(plan.threads, rows.blocks, &|task| {
            for i in 0..p.steps {
                self.part(task, self.step(i, std::ptr::null()), rows.piece(task), (0, plan.blocks));
            }
        });
        self.states[p.steps % 2]
    }

    fn part(&self, worker: usize, step: Step<T>, rows: (usize, usize), blocks: (usize, usize)) {
        let sums = self.sums.at(worker * self.sums_apart);
        T::run(self.layer.plan.isa, Part { layer: &self.layer, step, rows, blocks, sums });
    }

    /// The products of the inputs of some steps.
    fn project(&self, first: usize, steps: usize) {
        let layer = &self.layer;
        let x = layer.x.wrapping_offset(first as isize * layer.p.x[0]);
        let (g, repeats) = projection(&layer.p, steps, x, layer.w_ih, self.projected);
        let blocking = blocking(&g, &layer.plan, self.device.info());
        for row in 0..repeats {
            let g = Gemm {
                a: g.a.wrapping_offset(row as isize * layer.p.x[1]),
                c: g.c.wrapping_add(row * layer.p.columns()),
                ..g
            };
            // SAFETY: inputs, weights and the buffer are valid, and panels have room for a whole chunk.
            unsafe { cpu_packed::run(&g, layer.plan.isa, &blocking, self.device.threads(), self.panels) };
        }
    }
}

// SAFETY: threads read the pointers and write parts of their own.
unsafe impl<T: Sync> Sync for Run<'_, T> {}
