//! One loop from memory to memory for each common function and chain, on real floats.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;

use super::cpu_lines::{Ahead, FAR, LineElement, Lines, Loop};
use super::cpu_short::{ShortElement, ShortLoop};
use super::formula::{Recipe, Recognised};
use super::grid::Grid;
use super::program::MAX_INPUTS;
use super::{Source, cost, program_of};
use crate::backends::cpu::Operand;
use crate::backends::cpu::schedule::{self, Schedule};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Bound, Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, MAX_OPERANDS, OperationKind,
    ParameterSpace, Parameters, Refusal, Refusals, Variant, Workload,
};
use crate::tensor::{DType, Element};

/// `cpu::elementwise::*_direct`
pub struct Direct {
    name: &'static str,
    isa: Isa,
    constraints: [Constraint; 2],
}

impl Direct {
    const fn new(name: &'static str, isa: Isa) -> Self {
        Self { name, isa, constraints: [Constraint::Isa(isa), Constraint::DTypes(&[DType::F32, DType::F64])] }
    }

    /// These points with results or all operands asked for ahead, and none; the kernel of wider registers asks with the same instructions.
    fn asks(&self, workload: &Workload, device: &DeviceInfo, points: ParameterSpace) -> ParameterSpace {
        let wider = self.isa == Isa::Avx2 && Constraint::Isa(Isa::Avx512).check(workload, device).is_none();
        points.axis(Knob::Ahead, if wider { &[0] } else { &[1, 2, 0] })
    }
}

/// 512-bit vectors.
pub static AVX512: Direct = Direct::new("cpu::elementwise::avx512_direct", Isa::Avx512);
/// 256-bit vectors.
pub static AVX2: Direct = Direct::new("cpu::elementwise::avx2_direct", Isa::Avx2);
/// ARM's vectors.
pub static NEON: Direct = Direct::new("cpu::elementwise::neon_direct", Isa::Neon);
/// What the compiler makes of arrays.
pub static PORTABLE: Direct = Direct::new("cpu::elementwise::portable_direct", Isa::Portable);

impl Kernel for Direct {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Elementwise
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_direct.rs",
            "cpu_lines.rs",
            "cpu_short.rs",
            "formula.rs",
            "grid.rs",
            "../../backends/cpu/schedule.rs"
        )
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn in_place(&self) -> bool {
        true
    }

    fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    fn supports(&self, workload: &Workload, device: &DeviceInfo) -> Result<(), Refusals> {
        let known = self.constraints.iter().filter_map(|c| c.check(workload, device));
        Refusals::collect(known.chain(unfit(workload)))
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let threads = cost::threads(workload, device);
        let light = Recognised::program(program_of(workload)).is_some_and(|r| r.recipe.is_light());
        if !light || workload.outputs()[0].bytes() <= FAR / 2 {
            return threads;
        }
        // Nothing is asked for ahead along shorter lines.
        let long = line(workload) * workload.outputs()[0].dtype.size() > FAR / 2;
        let points = threads.clone();
        let asked = if long { self.asks(workload, device, points) } else { points.axis(Knob::Ahead, &[0]) };
        if workload.in_place() || workload.bytes() <= device.caches.far() {
            return asked;
        }
        let streamed = threads.axis(Knob::Stream, &[1]);
        if cost::exceeds_caches(workload, device) { streamed.and(asked) } else { asked.and(streamed) }
    }

    fn tuning_space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        self.space(workload, device).scheduled()
    }

    fn schedules(&self) -> bool {
        true
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let dtype = workload.outputs()[0].dtype;
        let cost = cost::pass(workload, parameters, device, ComputeUnit { dtype, isa: Some(self.isa) });
        // The end of each line takes a whole register.
        let (length, lanes) = (line(workload).max(1), (self.isa.register_bytes() / dtype.size()).max(1));
        let padding = length.next_multiple_of(lanes) as f64 / length as f64;
        Cost { operations: padding * cost.operations, ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => launch::<f32>(self.isa, call),
            DType::F64 => launch::<f64>(self.isa, call),
            other => Err(KernelError(format!("{other} has no direct loop").into())),
        }
    }

    fn bind(&self, workload: &Workload, parameters: &Parameters) -> Option<Bound> {
        match workload.outputs()[0].dtype {
            DType::F32 => bind::<f32>(self.isa, workload, parameters),
            DType::F64 => bind::<f64>(self.isa, workload, parameters),
            _ => None,
        }
    }
}

/// Elements of a line: the innermost axis.
fn line(workload: &Workload) -> usize {
    workload.outputs()[0].shape.last().copied().unwrap_or(1)
}

/// Why there is no loop for the program or its layouts.
fn unfit(workload: &Workload) -> Option<Refusal> {
    let Some(found) = recognise(workload) else {
        return Some(Refusal::Shape("a function or chain with a loop of its own".into()));
    };
    let inner = |strides: &[isize]| strides[strides.len() - 1];
    let inputs = workload.inputs();
    let length = line(workload);
    let unit = |stride: isize| stride == 1 || length == 1;
    let steps = found.arguments.map(|source| match source {
        Source::Input(i) => inner(&inputs[i as usize].strides),
        _ => 0,
    });
    let arguments = &steps[..found.recipe.arity()];
    if !unit(inner(&workload.outputs()[0].strides)) || !arguments.iter().all(|&s| s == 0 || unit(s)) {
        return Some(Refusal::Shape("elements side by side, or repeated, along the inner axis".into()));
    }
    let fits = found.recipe.has_loop(repeated(arguments));
    (!fits).then(|| Refusal::Shape("another pattern of repeated arguments".into()))
}

/// The loop for a workload, with a repeated argument in second place if the two may change places.
///
/// Always inlined: as a value of its own it is put together from bytes and read as words, which stalls for longer than all of the rest takes.
#[inline(always)]
fn recognise(workload: &Workload) -> Option<Recognised> {
    let mut found = Recognised::program(program_of(workload))?;
    let repeats = |source: Source| match source {
        Source::Input(i) => workload.inputs()[i as usize].strides.last() == Some(&0),
        _ => true,
    };
    let [a, b, c] = found.arguments;
    if found.recipe.commutes() && repeats(a) {
        found.arguments = [b, a, c];
    }
    Some(found)
}

/// Bit k: the k-th argument has the stride 0.
fn repeated(steps: &[isize]) -> u8 {
    steps.iter().enumerate().map(|(k, &step)| u8::from(step == 0) << k).sum()
}

/// An argument: where it starts, and the input it is, unless it is a constant.
#[derive(Clone, Copy)]
struct Argument<T> {
    first: *const T,
    input: Option<usize>,
}

fn launch<T: LineElement + Element>(isa: Isa, call: &Call<'_>) -> Result<(), KernelError> {
    if let Some(line) = OneLine::<T>::new(isa, call.workload, call.parameters) {
        let operands = call.inputs.iter().chain(&call.outputs);
        line.run(&operands.map(Operand::address).collect::<ArrayVec<_, MAX_OPERANDS>>());
        return Ok(());
    }
    let program = program_of(call.workload);
    let Some(found) = recognise(call.workload) else {
        return Err(KernelError("the program has no direct loop".into()));
    };
    let constant = |k: usize| match found.arguments[k] {
        Source::Constant(i) => T::from_f64(program.constant(i)),
        _ => T::ZERO,
    };
    let constants = [constant(0), constant(1), constant(2)];
    let argument = |k: usize| match found.arguments[k] {
        Source::Input(i) if k < found.recipe.arity() => {
            Argument { first: call.inputs[i as usize].ptr(), input: Some(i as usize) }
        }
        _ => Argument { first: &raw const constants[k], input: None },
    };
    let arguments: [Argument<T>; 3] = [argument(0), argument(1), argument(2)];
    let output = call.outputs[0].ptr_mut::<T>();
    let stream = call.parameters.get(Knob::Stream) == Some(1) && output.is_aligned();
    let ahead = Ahead::of(call.parameters);
    let threads = call.parameters.threads();
    let run = |part: &Grid| {
        let (steps, row_steps) = (part.steps(), part.row_steps());
        let of = |offsets: &[isize; MAX_INPUTS + 1], k: usize| arguments[k].input.map_or(0, |i| offsets[i]);
        let inner: [isize; 3] = std::array::from_fn(|k| of(steps, k));
        let repeated = repeated(&inner[..found.recipe.arity()]);
        let work = T::pick(found.recipe, repeated);
        part.for_each_plane(|at| {
            let lines = Lines {
                inputs: std::array::from_fn(|k| arguments[k].first.wrapping_offset(of(at, k))),
                input_steps: std::array::from_fn(|k| of(&row_steps, k)),
                repeated,
                output: output.wrapping_offset(at[MAX_INPUTS]),
                output_step: row_steps[MAX_INPUTS],
                rows: part.rows(),
                length: part.length(),
                stream,
                ahead,
            };
            // SAFETY: operands are valid for every index of the workload, of which this is a part; `supports`
            // made sure of the inner strides; an output overlaps inputs only exactly, and parts are disjoint.
            unsafe { work(isa, &lines) }
        });
    };
    let whole = Grid::new(call.workload);
    if threads <= 1 {
        run(&whole);
        return Ok(());
    }
    let parts = Grid::parts(call.workload.outputs()[0].len(), threads);
    let shared = Shared(run);
    let schedule = Schedule::from_number(call.parameters.get(Knob::Schedule));
    schedule::run(call.cpu().threads(), threads, parts, schedule, &|i| shared.call(&whole.part(i, parts)));
    Ok(())
}

/// One line on one thread, the usual small call: nothing to walk.
struct OneLine<T> {
    isa: Isa,
    recipe: Recipe,
    work: Loop<T>,
    /// The operand that each argument is, unless it is a constant.
    places: [Option<u8>; 3],
    constants: [T; 3],
    repeated: u8,
    output: u8,
    length: usize,
    stream: bool,
    ahead: Ahead,
}

fn bind<T: LineElement + ShortElement>(
    isa: Isa,
    workload: &Workload,
    parameters: &Parameters,
) -> Option<Bound> {
    let line = OneLine::<T>::new(isa, workload, parameters)?;
    if let Some(work) = T::pick_short(line.recipe, isa, line.length).filter(|_| line.repeated == 0) {
        return Some(line.short(work));
    }
    Some(Bound::new(move |pointers| line.run(pointers)))
}

impl<T: LineElement> OneLine<T> {
    /// The line of a workload; `None` where there are several, or several threads.
    fn new(isa: Isa, workload: &Workload, parameters: &Parameters) -> Option<Self> {
        let ([length], true) = (&workload.outputs()[0].shape[..], parameters.threads() <= 1) else {
            return None;
        };
        let (program, found) = (program_of(workload), recognise(workload)?);
        let (mut places, mut constants, mut repeated) = ([None; 3], [T::ZERO; 3], 0);
        for (k, &source) in found.arguments.iter().enumerate().take(found.recipe.arity()) {
            let step = match source {
                Source::Input(i) => {
                    places[k] = Some(i);
                    workload.inputs()[i as usize].strides[0]
                }
                Source::Constant(i) => {
                    constants[k] = T::from_f64(program.constant(i));
                    0
                }
                Source::Step(_) => 0,
            };
            repeated |= u8::from(step == 0) << k;
        }
        let stream = parameters.get(Knob::Stream) == Some(1);
        let ahead = Ahead::of(parameters);
        let output = workload.inputs().len() as u8;
        let work = T::pick(found.recipe, repeated);
        Some(Self {
            isa,
            recipe: found.recipe,
            work,
            places,
            constants,
            repeated,
            output,
            length: *length,
            stream,
            ahead,
        })
    }

    /// The line by a loop that needs to know nothing more, picked for a CPU that has its instructions; no argument repeats.
    fn short(&self, work: ShortLoop<T>) -> Bound {
        let (length, output) = (self.length, usize::from(self.output));
        // A program may have inputs that it does not use.
        match self.places.map(|place| place.map(usize::from)) {
            [Some(0), None, None] if output == 1 => {
                // SAFETY: as in `run`.
                Bound::short(move |x, _, out| unsafe { work(x.cast(), x.cast(), out.cast(), length) })
            }
            [Some(0), Some(1), None] if output == 2 => {
                // SAFETY: as in `run`.
                Bound::short(move |x, y, out| unsafe { work(x.cast(), y.cast(), out.cast(), length) })
            }
            places => Bound::new(move |pointers| {
                let [x, y, _] = places.map(|place| pointers[place.unwrap_or_default()]);
                // SAFETY: as in `run`.
                unsafe { work(x.cast(), y.cast(), pointers[output].cast(), length) }
            }),
        }
    }

    #[inline(always)]
    fn run(&self, pointers: &[*mut u8]) {
        let argument = |k: usize| match self.places[k] {
            Some(i) => pointers[i as usize].cast::<T>().cast_const(),
            None => &raw const self.constants[k],
        };
        let output = pointers[self.output as usize].cast::<T>();
        let lines = Lines {
            inputs: [argument(0), argument(1), argument(2)],
            input_steps: [0; 3],
            repeated: self.repeated,
            output,
            output_step: 0,
            rows: 1,
            length: self.length,
            stream: self.stream && output.is_aligned(),
            ahead: self.ahead,
        };
        // SAFETY: operands are valid for every index of the workload; `supports` made sure of the strides; an
        // output overlaps inputs only exactly.
        unsafe { (self.work)(self.isa, &lines) };
    }
}

/// A closure over the operands' addresses.
struct Shared<F>(F);

// SAFETY: the addresses stand for operands, which may go to any thread; parts that run at once are disjoint.
unsafe impl<F> Sync for Shared<F> {}

impl<F: Fn(&Grid)> Shared<F> {
    fn call(&self, part: &Grid) {
        (self.0)(part);
    }
}
