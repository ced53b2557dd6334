//! Quantise, dequantise and requantise in one pass: stretches that share a scale, split between threads.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::attributes::{QuantizeAttributes, Walk};
#[cfg(target_arch = "x86_64")]
use super::cpu_linear_avx2 as avx2;
use super::{QuantType, cpu_linear_portable as portable};
use crate::backends::cpu::Operand;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, Operation, OperationKind, ParameterSpace,
    Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Elements that pass through a buffer of f32 at once: both fit the first cache beside input and output.
const BLOCK: usize = 1024;
/// Elements of a step of vectors.
pub(super) const STEP: usize = 32;
/// Operations on an element: division, two borders, rounding, zero point, narrowing.
const OPERATIONS: f64 = 6.0;

/// On one instruction set.
pub(super) struct Linear {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

/// 256-bit vectors keep up with memory, so wider ones have no kernel of their own.
pub(super) static AVX2: Linear =
    Linear { name: "cpu::quantize::avx2", isa: Isa::Avx2, constraints: &[Constraint::Isa(Isa::Avx2)] };
pub(super) static PORTABLE: Linear =
    Linear { name: "cpu::quantize::portable", isa: Isa::Portable, constraints: &[] };

pub(super) fn attributes(workload: &Workload) -> QuantizeAttributes {
    match workload.operation() {
        Operation::Quantize(attributes) => *attributes,
        other => unreachable!("the registry gives quantisations only, not {other}"),
    }
}

/// Elements that vectors could have converted while a stretch is begun: it takes 14 to 23 ns on one Zen 5 core.
const BEGUN: usize = 256;

pub(super) fn cost(
    workload: &Workload,
    unit: ComputeUnit,
    parameters: &Parameters,
    device: &DeviceInfo,
) -> Cost {
    let attributes = attributes(workload);
    let walk = Walk::of(workload, &attributes);
    let (read, written) = (workload.inputs()[0].bytes() as f64, workload.outputs()[0].bytes() as f64);
    let set = read + written;
    let caches = &device.caches;
    // What is left of a stretch goes one by one, each with a vector's work, and beginning a stretch takes longer than a few steps.
    let (length, stretches) = walk.stretches();
    let (lanes, step, begun) = match unit.isa {
        Some(Isa::Avx2) => (8, STEP, BEGUN),
        _ => (1, 1, BEGUN / 4),
    };
    let each = length / step * step + length % step * lanes + begun;
    let elements = stretches as f64 * each as f64;
    let write = if parameters.get(Knob::Stream) == Some(1) {
        Traffic::past_caches(written, parameters.threads(), device)
    } else {
        // That a line is read before it is written is in the rate of a copy.
        Traffic::pass(written, set, caches)
    };
    let passes = if attributes.from.is_some() && attributes.to.is_some() { 2.0 } else { 1.0 };
    Cost::new(passes * OPERATIONS * elements, unit, Traffic::pass(read, set, caches) + write)
}

impl Kernel for Linear {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Quantize
    }

    fn source(&self) -> u64 {
        match self.isa {
            Isa::Avx2 => source_hash!("cpu_linear.rs", "cpu_linear_avx2.rs"),
            _ => source_hash!("cpu_linear.rs", "cpu_linear_portable.rs"),
        }
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = ParameterSpace::threads(device.threads);
        if self.isa != Isa::Avx2 {
            return space;
        }
        // Numbers are several times as long as what they are made from: most of the time goes to bringing in their lines.
        let ahead: &[u32] = if attributes(workload).to.is_none() { &[1, 0] } else { &[0] };
        let streamed = space.streamed(workload, device);
        streamed
            .axis(Knob::Ahead, ahead)
            .constrained(|p| p.get(Knob::Stream) == Some(0) || p.get(Knob::Ahead) == Some(0))
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let unit = ComputeUnit { dtype: DType::F32, isa: Some(self.isa) };
        let tasks = Walk::of(workload, &attributes(workload)).elements().div_ceil(ALIGNED);
        cost(workload, unit, parameters, device).split(parameters.threads(), tasks)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let job = Job::of(call, self.isa);
        let elements = job.walk.elements();
        let threads = call.parameters.threads();
        // A few tasks for each thread even out what else runs on the cores; tasks begin at whole lines.
        let tasks = if threads == 1 { 1 } else { (4 * threads).min(elements.div_ceil(ALIGNED)) };
        let units = elements.div_ceil(ALIGNED);
        call.cpu().threads().run(threads, tasks, &|task| {
            let from = units * task / tasks * ALIGNED;
            let to = (units * (task + 1) / tasks * ALIGNED).min(elements);
            job.range(from, to);
        });
        Ok(())
    }
}

/// Elements that every task begins at a multiple of: two lines of the narrowest type.
const ALIGNED: usize = 256;

/// The scales of a stretch: `step` is 0 where one serves all. Without zero points `zero` is null.
#[derive(Clone, Copy)]
pub(super) struct Scales {
    pub scale: *const f32,
    pub zero: *const i32,
    pub step: usize,
}

impl Scales {
    fn at(&self, index: usize, step: usize) -> Self {
        let (step, index) = if self.step == 0 { (0, 0) } else { (step, index) };
        let zero = if self.zero.is_null() { self.zero } else { self.zero.wrapping_add(index) };
        Self { scale: self.scale.wrapping_add(index), zero, step }
    }

    fn after(&self, elements: usize) -> Self {
        self.at(elements * self.step, self.step)
    }

    /// Scale and zero point of an element.
    ///
    /// # Safety
    /// The stretch has the element.
    #[inline(always)]
    #[allow(clippy::inline_always)] // part of innermost loops
    pub unsafe fn of(&self, element: usize) -> (f32, i32) {
        let index = element * self.step;
        // SAFETY: the caller's promise.
        unsafe { (*self.scale.add(index), if self.zero.is_null() { 0 } else { *self.zero.add(index) }) }
    }
}

/// What the tasks share.
struct Job {
    isa: Isa,
    walk: Walk,
    from: Option<QuantType>,
    to: Option<QuantType>,
    /// Types of real operands.
    real: DType,
    x: *const u8,
    y: *mut u8,
    /// A step of 1 here says that there is one for every index.
    scales: [Scales; 2],
    way: Way,
}

/// To a buffer in the first cache.
const NEAR: Way = Way { stream: false, ahead: false };

/// How results go to memory.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// Past the caches.
    pub stream: bool,
    /// Numbers are asked for before they are written.
    pub ahead: bool,
}

// SAFETY: inputs are only read, and every task writes elements of its own, in bytes of its own.
unsafe impl Sync for Job {}

impl Job {
    fn of(call: &Call<'_>, isa: Isa) -> Self {
        let attributes = attributes(call.workload);
        let mut rest = call.inputs[1..].iter();
        let mut next = |there: bool, zero: bool| {
            let scale = if there { rest.next() } else { None };
            let zero = if zero { rest.next() } else { None };
            Scales {
                scale: scale.map_or(std::ptr::null(), Operand::ptr),
                zero: zero.map_or(std::ptr::null(), Operand::ptr),
                step: usize::from(scale.is_some_and(|s| s.desc().len() > 1)),
            }
        };
        let [a, b] = attributes.zero_points;
        let scales = [next(attributes.from.is_some(), a), next(attributes.to.is_some(), b)];
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        Self {
            isa,
            walk: Walk::of(call.workload, &attributes),
            from: attributes.from,
            to: attributes.to,
            real: if attributes.from.is_none() { x.desc().dtype } else { y.desc().dtype },
            x: x.ptr_bytes(),
            y: y.ptr_bytes(),
            scales,
            way: Way {
                stream: call.parameters.get(Knob::Stream) == Some(1),
                ahead: call.parameters.get(Knob::Ahead) == Some(1),
            },
        }
    }

    fn range(&self, from: usize, to: usize) {
        // One for all stretches that need it: filling it with zeros takes longer than a short stretch.
        let mut buffer = ArrayVec::new();
        let mut at = from;
        while at < to {
            let stretch = self.walk.stretch(at);
            let n = stretch.end.min(to) - at;
            let [a, b] = self.scales.map(|scales| scales.at(stretch.index, stretch.step));
            // SAFETY: the stretch lies inside the operands, and a byte with two elements is in one stretch.
            unsafe { self.stretch(at, n, a, b, &mut buffer) };
            at += n;
        }
        #[cfg(target_arch = "x86_64")]
        if self.way.stream && self.isa == Isa::Avx2 {
            avx2::fence();
        }
    }

    /// # Safety
    /// The operands have `n` elements from `at` on, and the scales of all of them.
    unsafe fn stretch(&self, at: usize, n: usize, a: Scales, b: Scales, buffer: &mut ArrayVec<f32, BLOCK>) {
        let x = |kind: QuantType, i: usize| self.x.wrapping_add(kind.bytes(at + i));
        let y = |kind: QuantType, i: usize| self.y.wrapping_add(kind.bytes(at + i));
        // SAFETY: the caller's promise; pieces are inside the stretch.
        unsafe {
            match (self.from, self.to) {
                (None, Some(kind)) if self.real == DType::F32 => {
                    let from = self.x.cast::<f32>().wrapping_add(at);
                    quantise(self.isa, kind, from, n, b, y(kind, 0), self.way);
                }
                (Some(kind), None) if self.real == DType::F32 => {
                    let to = self.y.cast::<f32>().wrapping_add(at);
                    dequantise(self.isa, kind, x(kind, 0), n, a, to, self.way);
                }
                (from, to) => {
                    if buffer.is_empty() {
                        buffer.extend([0.0; BLOCK]);
                    }
                    for i in (0..n).step_by(BLOCK) {
                        let len = BLOCK.min(n - i);
                        let buffer = &mut buffer[..len];
                        match from {
                            Some(kind) => {
                                let to = buffer.as_mut_ptr();
                                dequantise(self.isa, kind, x(kind, i), len, a.after(i), to, NEAR);
                            }
                            None => widen(self.real, self.x, at + i, buffer),
                        }
                        match to {
                            Some(kind) => {
                                let from = buffer.as_ptr();
                                quantise(self.isa, kind, from, len, b.after(i), y(kind, i), self.way);
                            }
                            None => narrow(self.real, buffer, self.y, at + i),
                        }
                    }
                }
            }
        }
    }
}

/// # Safety
/// `x` has `n` numbers, `y` room for `n` integers (an even number of four bits, or the last ones), `scales` one for each.
unsafe fn quantise(isa: Isa, kind: QuantType, x: *const f32, n: usize, scales: Scales, y: *mut u8, way: Way) {
    // SAFETY: the caller's promise; the constraints let only a CPU with the instructions through.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx2 {
            return avx2::quantise(kind, x, n, scales, y, way.stream);
        }
        let _ = (isa, way);
        portable::quantise(kind, x, n, scales, y);
    }
}

/// # Safety
/// As for [`quantise`], in the other direction.
unsafe fn dequantise(
    isa: Isa,
    kind: QuantType,
    q: *const u8,
    n: usize,
    scales: Scales,
    y: *mut f32,
    way: Way,
) {
    // SAFETY: the caller's promise; the constraints let only a CPU with the instructions through.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx2 {
            return avx2::dequantise(kind, q, n, scales, y, way);
        }
        let _ = (isa, way);
        portable::dequantise(kind, q, n, scales, y);
    }
}

/// # Safety
/// `x` has the elements `from ..` of f16 or bf16 that fill the buffer.
unsafe fn widen(dtype: DType, x: *const u8, from: usize, to: &mut [f32]) {
    // SAFETY: the caller's promise; operands are aligned for their elements.
    unsafe {
        if dtype == DType::F16 {
            std::slice::from_raw_parts(x.cast::<f16>().add(from), to.len()).convert_to_f32_slice(to);
        } else {
            std::slice::from_raw_parts(x.cast::<bf16>().add(from), to.len()).convert_to_f32_slice(to);
        }
    }
}

/// # Safety
/// `y` has room for the elements from `to` on.
unsafe fn narrow(dtype: DType, from: &[f32], y: *mut u8, to: usize) {
    // SAFETY: the caller's promise; operands are aligned for their elements.
    unsafe {
        if dtype == DType::F16 {
            std::slice::from_raw_parts_mut(y.cast::<f16>().add(to), from.len()).convert_from_f32_slice(from);
        } else {
            std::slice::from_raw_parts_mut(y.cast::<bf16>().add(to), from.len()).convert_from_f32_slice(from);
        }
    }
}
