//! Any program on any types and strides, block by block through scratch that stays in the first-level cache.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;

use super::cpu_block_functions::{Block, apply};
use super::cpu_block_memory::{fill, load, store};
use super::grid::Grid;
use super::plan::{BLOCK, Place, Plan};
use super::program::MAX_INPUTS;
use super::{cost, program_of};
use crate::backends::cpu::schedule::{self, Schedule};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace,
    Parameters, TensorDesc, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// `cpu::elementwise::*_blocks`
pub struct Blocks {
    name: &'static str,
    isa: Isa,
    constraints: [Constraint; 1],
}

impl Blocks {
    const fn new(name: &'static str, isa: Isa) -> Self {
        Self { name, isa, constraints: [Constraint::Isa(isa)] }
    }
}

/// 512-bit vectors.
pub static AVX512: Blocks = Blocks::new("cpu::elementwise::avx512_blocks", Isa::Avx512);
/// 256-bit vectors.
pub static AVX2: Blocks = Blocks::new("cpu::elementwise::avx2_blocks", Isa::Avx2);
/// ARM's vectors.
pub static NEON: Blocks = Blocks::new("cpu::elementwise::neon_blocks", Isa::Neon);
/// What the compiler makes of arrays.
pub static PORTABLE: Blocks = Blocks::new("cpu::elementwise::portable_blocks", Isa::Portable);

/// Instructions to start one step on a block.
const STEP_OVERHEAD: f64 = 100.0;

impl Kernel for Blocks {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Elementwise
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_blocks.rs",
            "cpu_block_functions.rs",
            "cpu_block_memory.rs",
            "cpu_lines.rs",
            "formula.rs",
            "grid.rs",
            "plan.rs",
            "../../backends/cpu/schedule.rs"
        )
    }

    fn variant(&self) -> Variant {
        Variant::Fused
    }

    fn in_place(&self) -> bool {
        true
    }

    fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        cost::threads(workload, device)
    }

    fn tuning_space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        self.space(workload, device).scheduled()
    }

    fn schedules(&self) -> bool {
        true
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let output = &workload.outputs()[0];
        let dtype = if output.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let unit = ComputeUnit { dtype, isa: Some(self.isa) };
        let mut cost = cost::pass(workload, parameters, device, unit);
        let elements = output.len() as f64;
        let steps = program_of(workload).steps().len() as f64;
        let moved: usize = workload.inputs().iter().map(|input| gathered(input, output)).sum();
        cost.operations += elements * moved as f64 + elements / BLOCK as f64 * steps * STEP_OVERHEAD;
        cost.traffic = cost.traffic + Traffic { l1: elements * steps * 12.0, ..Traffic::default() };
        cost
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        launch(self.isa, call)
    }
}

/// Scalar operations that it takes to bring one element of an input into a block.
fn gathered(input: &TensorDesc, output: &TensorDesc) -> usize {
    let inner = input.strides.last().copied().unwrap_or(1);
    if inner == 1 && input.dtype == output.dtype { 0 } else { 16 }
}

/// What all parts of a call share.
struct Work<'a> {
    isa: Isa,
    plan: &'a Plan,
    inputs: ArrayVec<(*const u8, DType), MAX_INPUTS>,
    output: (*mut u8, DType),
    scratch: *mut u8,
    /// Whether blocks lie within rows.
    long: bool,
}

// SAFETY: the addresses stand for operands and scratch; parts that run at once write to disjoint places.
unsafe impl Sync for Work<'_> {}

fn launch(isa: Isa, call: &Call<'_>) -> Result<(), KernelError> {
    let workload = call.workload;
    let whole = Grid::new(workload);
    let steps = *whole.steps();
    // Short rows are gathered into whole blocks, so nothing can be used where it lies.
    let long = whole.length() >= BLOCK / 4 || whole.rows() == 1;
    let direct = |address: usize, dtype: DType, step: isize| {
        let half = matches!(dtype, DType::F16 | DType::BF16);
        long && !half && step == 1 && address.is_multiple_of(align(dtype))
    };
    let inputs: ArrayVec<(*const u8, DType), MAX_INPUTS> =
        call.inputs.iter().map(|o| (o.ptr_bytes().cast_const(), o.desc().dtype)).collect();
    let types: ArrayVec<DType, MAX_INPUTS> = inputs.iter().map(|i| i.1).collect();
    let in_memory: ArrayVec<bool, MAX_INPUTS> =
        inputs.iter().zip(&steps).map(|(&(first, dtype), &step)| direct(first.addr(), dtype, step)).collect();
    let output = (call.outputs[0].ptr_bytes(), workload.outputs()[0].dtype);
    let writes = !workload.in_place() && direct(output.0.addr(), output.1, steps[MAX_INPUTS]);
    let plan = Plan::new(program_of(workload), &types, &in_memory, writes)?;

    let threads = call.parameters.threads();
    let parts = Grid::parts(workload.outputs()[0].len(), threads);
    let mut scratch = call.cpu().scratch((plan.scratch() * parts).max(1))?;
    let work = Work { isa, plan: &plan, inputs, output, scratch: scratch.as_mut_ptr(), long };
    let run = |i: usize| {
        let part = if parts == 1 { whole.clone() } else { whole.part(i, parts) };
        // SAFETY: operands are valid for all of the workload, and part i has the i-th piece of scratch.
        unsafe { work.part(&part, i) };
    };
    let schedule = Schedule::from_number(call.parameters.get(Knob::Schedule));
    schedule::run(call.cpu().threads(), threads, parts, schedule, &run);
    Ok(())
}

/// The alignment of a type's values.
const fn align(dtype: DType) -> usize {
    match dtype {
        DType::C32 => 4,
        DType::C64 => 8,
        other => other.size(),
    }
}

impl Work<'_> {
    /// # Safety
    /// The operands are valid on the part, nothing else writes there, and the index-th piece of scratch is free.
    unsafe fn part(&self, part: &Grid, index: usize) {
        // SAFETY: there are pieces of scratch for all parts.
        let slots = unsafe { self.scratch.add(index * self.plan.scratch()) };
        for filled in &self.plan.filled {
            // SAFETY: a slot holds a block of any type of the plan.
            unsafe {
                fill(slots.add(filled.slot as usize * self.plan.slot_bytes), filled.value, filled.dtype);
            };
        }
        let (length, rows) = (part.length(), part.rows());
        let group = if self.long { 1 } else { (BLOCK / length.max(1)).clamp(1, rows.max(1)) };
        let row_steps = part.row_steps();
        part.for_each_plane(|at| {
            for row in (0..rows).step_by(group) {
                let mut here = *at;
                here.iter_mut().zip(&row_steps).for_each(|(a, s)| *a += s * row as isize);
                for from in (0..length).step_by(BLOCK) {
                    let mut start = here;
                    start.iter_mut().zip(part.steps()).for_each(|(a, s)| *a += s * from as isize);
                    let (count, n) = (group.min(rows - row), BLOCK.min(length - from));
                    // SAFETY: rows and elements lie inside the part.
                    unsafe { self.block(part, slots, &start, (count, n)) };
                }
            }
        });
    }

    /// # Safety
    /// As for `part`; `start` is the first element of `rows` rows of `n` elements, together at most a block.
    unsafe fn block(
        &self,
        part: &Grid,
        slots: *mut u8,
        start: &[isize; MAX_INPUTS + 1],
        (rows, n): (usize, usize),
    ) {
        let (steps, row_steps) = (part.steps(), part.row_steps());
        let slot = |i: u8| slots.wrapping_add(i as usize * self.plan.slot_bytes);
        let input = |i: usize| {
            let (first, dtype) = self.inputs[i];
            first.wrapping_offset(start[i] * dtype.size() as isize)
        };
        let (first, dtype) = self.output;
        let output = first.wrapping_offset(start[MAX_INPUTS] * dtype.size() as isize);
        let at = |place: Place| match place {
            Place::Input(i) => input(i as usize).cast_mut(),
            Place::Slot(i) => slot(i),
            Place::Output => output,
        };
        // SAFETY: slots hold a block of any type of the plan; operands are valid from `start` on.
        unsafe {
            for (i, to) in self.plan.loads.iter().enumerate() {
                if let Some(to) = to {
                    let lines = (row_steps[i], steps[i], rows, n);
                    load(self.isa, input(i), self.inputs[i].1, lines, slot(*to));
                }
            }
            for step in &self.plan.steps {
                let block = Block {
                    arguments: step.arguments.map(|place| at(place).cast_const()),
                    result: at(step.result),
                    n: rows * n,
                };
                apply(self.isa, step.function, step.dtype, block);
            }
            if self.plan.result != Place::Output {
                let lines = (row_steps[MAX_INPUTS], steps[MAX_INPUTS], rows, n);
                store(self.isa, at(self.plan.result), output, dtype, lines);
            }
        }
    }
}
