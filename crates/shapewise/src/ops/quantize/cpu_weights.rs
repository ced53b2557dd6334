//! Products with quantised weights, bound by how fast the weights come from memory: they are widened in registers.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use half::bf16;
use half::slice::HalfFloatSliceExt;

use super::attributes::{QuantizedMatmulAttributes, WeightZero};
use super::cpu_weights_dot::{self as dot, Rows};
use super::weights::{LANES, PANEL, group};
use crate::backends::cpu::simd::Isa;
use crate::backends::cpu::{Operand, Value};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::matmul::cpu_problem::Shared;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Operation, OperationKind, ParameterSpace,
    Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// The most rows: beyond them weights are widened too often, and panels are better.
const MOST_ROWS: usize = 16;
/// Outputs that a thread takes at a time: some hundred kilobytes of weights, so that the next ones are on their way.
const OUTPUTS: usize = 64;

/// Streams the weights past a few rows, on one instruction set.
pub(super) struct Stream {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

const FEW_ROWS: Constraint =
    Constraint::Shape("at most 16 rows, and blocks that fall into whole vectors of words", |w| {
        let attributes = attributes(w);
        let (block, group) = (attributes.block, group(attributes.bits));
        let whole =
            block == 0 || block.is_multiple_of(group) || (group.is_multiple_of(block) && block >= 2 * LANES);
        w.inputs()[0].shape[0] <= MOST_ROWS && whole
    });

/// 256-bit vectors keep up with memory, so wider ones have no kernel of their own.
pub(super) static AVX2: Stream = Stream {
    name: "cpu::quantized_matmul::avx2_stream",
    isa: Isa::Avx2,
    constraints: &[Constraint::Isa(Isa::Avx2), FEW_ROWS],
};
pub(super) static PORTABLE: Stream =
    Stream { name: "cpu::quantized_matmul::portable_stream", isa: Isa::Portable, constraints: &[FEW_ROWS] };

pub(super) fn attributes(workload: &Workload) -> QuantizedMatmulAttributes {
    match workload.operation() {
        Operation::QuantizedMatmul(attributes) => *attributes,
        other => unreachable!("the registry gives products with quantised weights only, not {other}"),
    }
}

/// Sizes of a product, and where its operands lie.
#[derive(Clone, Copy)]
pub(super) struct Problem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub bits: u32,
    pub block: usize,
    /// Groups of words, and scales, of an output.
    pub groups: usize,
    pub blocks: usize,
    pub x: *const u8,
    pub dtype: DType,
    pub words: *const u32,
    pub scale: *const f32,
    /// Null where `middle` stands for zero everywhere.
    pub zero: *const f32,
    pub middle: f32,
    pub y: *mut u8,
}

// SAFETY: inputs are only read, and every task writes outputs of its own.
unsafe impl Sync for Problem {}

impl Problem {
    /// Without memory.
    pub fn describe(workload: &Workload) -> Self {
        let attributes = attributes(workload);
        let (x, words, scale) = (&workload.inputs()[0], &workload.inputs()[1], &workload.inputs()[2]);
        let middle =
            if attributes.zero == WeightZero::Middle { (1 << (attributes.bits - 1)) as f32 } else { 0.0 };
        Self {
            m: x.shape[0],
            n: workload.outputs()[0].shape[1],
            k: x.shape[1],
            bits: attributes.bits,
            block: attributes.block,
            groups: words.shape[1],
            blocks: scale.shape[1],
            x: std::ptr::null(),
            dtype: x.dtype,
            words: std::ptr::null(),
            scale: std::ptr::null(),
            zero: std::ptr::null(),
            middle,
            y: std::ptr::null_mut(),
        }
    }

    pub fn of(call: &Call<'_>) -> Self {
        Self {
            x: call.inputs[0].ptr_bytes(),
            words: call.inputs[1].ptr(),
            scale: call.inputs[2].ptr(),
            zero: call.inputs.get(3).map_or(std::ptr::null(), Operand::ptr),
            y: call.outputs[0].ptr_bytes(),
            ..Self::describe(call.workload)
        }
    }

    /// Weights of a row, padding included.
    pub fn padded(&self) -> usize {
        self.groups * group(self.bits)
    }

    /// Neighbouring weights that are scaled together.
    pub fn part(&self) -> usize {
        if self.block == 0 { group(self.bits) } else { self.block.min(group(self.bits)) }
    }

    /// Where an output's words of a group begin.
    #[inline]
    pub fn word(&self, output: usize, group: usize) -> *const u32 {
        self.words.wrapping_add(((output / PANEL * self.groups + group) * PANEL + output % PANEL) * LANES)
    }

    /// Scale and zero point of an output's block.
    ///
    /// # Safety
    /// There is such an output and such a block.
    #[inline(always)]
    #[allow(clippy::inline_always)] // part of innermost loops
    pub unsafe fn scale_and_zero(&self, output: usize, block: usize) -> (f32, f32) {
        let at = (output / PANEL * self.blocks + block) * PANEL + output % PANEL;
        // SAFETY: the caller's promise.
        unsafe { (*self.scale.add(at), if self.zero.is_null() { self.middle } else { *self.zero.add(at) }) }
    }

    /// Row `i` of the activations in f32.
    ///
    /// # Safety
    /// There is such a row, and room for it.
    pub unsafe fn widen_row(&self, i: usize, to: &mut [f32]) {
        // SAFETY: the caller's promise; operands are aligned for their elements.
        unsafe {
            if self.dtype == DType::F32 {
                to.copy_from_slice(std::slice::from_raw_parts(self.x.cast::<f32>().add(i * self.k), self.k));
            } else {
                let row = std::slice::from_raw_parts(self.x.cast::<bf16>().add(i * self.k), self.k);
                row.convert_to_f32_slice(to);
            }
        }
    }

    /// Writes result `(i, j)`.
    ///
    /// # Safety
    /// There is such a result, and nobody else writes it.
    pub unsafe fn put(&self, i: usize, j: usize, value: f32) {
        let at = i * self.n + j;
        // SAFETY: the caller's promise.
        unsafe {
            if self.dtype == DType::F32 {
                self.y.cast::<f32>().add(at).write(value);
            } else {
                self.y.cast::<bf16>().add(at).write(bf16::from_f32(value));
            }
        }
    }

    /// Result `(i, j)` by the definition.
    ///
    /// # Safety
    /// There is such a result.
    pub unsafe fn dot(&self, i: usize, j: usize) -> f64 {
        let (group, mask) = (group(self.bits), (1u64 << self.bits) as u32 - 1);
        let mut sum = 0.0;
        for s in 0..self.k {
            let place = s % group / LANES;
            // SAFETY: the operands have these elements.
            unsafe {
                let x = Value::read(self.x, (i * self.k + s) as isize, self.dtype).real();
                let word = *self.word(j, s / group).add(s % LANES);
                let weight = f64::from(word >> (place as u32 * self.bits) & mask);
                let (scale, zero) = self.scale_and_zero(j, s.checked_div(self.block).unwrap_or(0));
                sum += x * ((weight - f64::from(zero)) * f64::from(scale));
            }
        }
        sum
    }

    /// Writes result `(i, j)`. One that is not finite is computed anew: taking the zero points off after the products
    /// turns infinities into NaN.
    ///
    /// # Safety
    /// As for [`Self::put`].
    pub unsafe fn put_finite(&self, i: usize, j: usize, value: f32) {
        // SAFETY: the caller's promise.
        unsafe {
            let value = if value.is_finite() { value } else { self.dot(i, j) as f32 };
            self.put(i, j, value);
        }
    }

    /// What is moved for one product: activations, weights, scales and results.
    pub fn bytes(&self) -> f64 {
        let scales = self.n * self.blocks * if self.zero.is_null() { 1 } else { 2 };
        let weights = 4 * (self.n * self.groups * LANES + scales);
        (weights + self.m * (self.k + self.n) * self.dtype.size()) as f64
    }
}

impl Kernel for Stream {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::QuantizedMatmul
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_weights.rs", "cpu_weights_dot.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let p = Problem::describe(workload);
        let lanes = (self.isa.register_bytes() / 4) as f64;
        let (rows, weights) = (p.m as f64, (p.n * p.padded()) as f64);
        let passes = p.m.div_ceil(dot::ROWS).max(1) as f64;
        // A mask and a conversion for the weights of a vector, a multiplication for each row, scales now and then.
        let scaling = 2.0 * rows * LANES as f64 / p.part() as f64;
        let vectors = weights / lanes * (2.0 * passes + rows + scaling);
        let unit = ComputeUnit { dtype: DType::F32, isa: Some(self.isa) };
        let bytes = p.bytes();
        let traffic = Traffic::pass(bytes * passes, bytes, &device.caches);
        let threads = parameters.threads();
        let scratch = 4 * p.m * Activations::floats(&p);
        Cost { scratch, ..Cost::new(vectors * 2.0 * lanes, unit, traffic) }
            .split(threads, p.n.div_ceil(OUTPUTS))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let problem = Problem::of(call);
        if problem.m == 0 || problem.n == 0 {
            return Ok(());
        }
        let floats = Activations::floats(&problem);
        let memory = call.cpu().scratch((4 * problem.m * floats).max(1))?;
        #[allow(clippy::cast_ptr_alignment)] // memory of the pool starts a line
        let memory = Shared(memory.as_ptr().cast_mut().cast::<f32>());
        for i in 0..problem.m {
            // SAFETY: every row has its part of the scratch memory.
            let to = unsafe { std::slice::from_raw_parts_mut(memory.at(i * floats), floats) };
            Activations::fill(&problem, i, to);
        }
        let threads = call.parameters.threads();
        let next = AtomicUsize::new(0);
        call.cpu().threads().run(threads, threads, &|_| {
            loop {
                let first = next.fetch_add(OUTPUTS, Ordering::Relaxed);
                if first >= problem.n {
                    break;
                }
                let outputs = first..(first + OUTPUTS).min(problem.n);
                let mut row = 0;
                while row < problem.m {
                    let rows = dot::rows_at_once(problem.m - row);
                    let x = memory.at(row * floats).cast_const();
                    let task = Rows { x, pitch: floats, sums: problem.padded(), first: row, count: rows };
                    // SAFETY: the rows are prepared, the constraints let only a CPU with the instructions through, and
                    // nobody else takes these outputs.
                    unsafe { dot::outputs(self.isa, &problem, &task, outputs.clone()) };
                    row += rows;
                }
            }
        });
        Ok(())
    }
}

/// A row of activations as the weights need it.
///
/// Weights stay where they are in their words, so each is 2^(bits · place) times too large, and the activation is made
/// that much smaller, which is exact; only the highest place is shifted down. The sums of each part follow, lane by lane: times the zero
/// point they are taken off.
struct Activations;

impl Activations {
    fn floats(problem: &Problem) -> usize {
        let padded = problem.padded();
        padded + padded / problem.part() * LANES
    }

    fn fill(problem: &Problem, i: usize, to: &mut [f32]) {
        let (row, sums) = to.split_at_mut(problem.padded());
        let (values, padding) = row.split_at_mut(problem.k);
        // SAFETY: the launch goes over the rows there are.
        unsafe { problem.widen_row(i, values) };
        padding.fill(0.0);
        for (part, sums) in row.chunks_exact(problem.part()).zip(sums.chunks_exact_mut(LANES)) {
            sums.fill(0.0);
            for lanes in part.chunks_exact(LANES) {
                for (sum, x) in sums.iter_mut().zip(lanes) {
                    *sum += x;
                }
            }
        }
        let places = 32 / problem.bits as usize;
        for (place, lanes) in row.chunks_exact_mut(LANES).enumerate() {
            let place = place % places;
            if place + 1 < places {
                let factor = 0.5f32.powi((place * problem.bits as usize) as i32);
                for x in lanes {
                    *x *= factor;
                }
            }
        }
    }
}
