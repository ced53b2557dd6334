//! The crates `rustfft` and `realfft`, compiled in `shapewise-rustfft`, as a member of the portfolio.
#![allow(unsafe_code)]

use num_complex::Complex;
use shapewise_rustfft::{Fft, Kind, Number, Plan};

use super::FftKind;
use super::geometry::{Along, Geometry};
use super::plan::is_prime;
use crate::backends::cpu::simd::{Float, Isa};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::walk::{Axis, AxisList, offset};
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters,
    Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// One line after the other, complex neighbours from where they lie to where they belong, others copied to neighbouring memory
/// and back; lines are shared between threads.
pub(super) struct RustFft;

pub(super) static RUSTFFT: RustFft = RustFft;

/// Real transforms of one axis, and complex ones of any number.
const KINDS: Constraint = Constraint::Shape("complex numbers, or real ones along one axis", |w| {
    let attributes = super::geometry::attributes(w);
    attributes.axes == 1 || matches!(attributes.kind, FftKind::Forward | FftKind::Inverse)
});

impl Kernel for RustFft {
    fn name(&self) -> &'static str {
        "cpu::fft::rustfft"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Fft
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_rustfft.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        &[Constraint::DTypes(super::DTYPES), KINDS]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let geometry = Geometry::new(workload);
        let lines =
            geometry.repeats() * geometry.points() / geometry.axes.iter().map(|a| a.n).max().unwrap_or(1);
        if lines > 1 { ParameterSpace::threads(device.threads) } else { ParameterSpace::threads(1) }
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let geometry = Geometry::new(workload);
        let isa = device.isas.iter().copied().filter(|&isa| isa <= Isa::Avx2).max();
        let unit = ComputeUnit { dtype: if geometry.double { DType::F64 } else { DType::F32 }, isa };
        let works = geometry.axes.iter().map(|axis| work(axis.n));
        let add = |sum: (f64, f64, usize), work: (f64, f64, usize)| {
            (sum.0 + work.0, sum.1 + work.1, sum.2.max(work.2))
        };
        let (per_point, passes, points) = works.fold((0.0, 0.0, 0), add);
        // Over those of a length that has small factors only.
        let more = per_point / (5.0 * (geometry.points() as f64).max(2.0).log2());
        let bytes = workload.bytes() as f64;
        // A convolution has a line, its scratch and the other spectrum beside the operands.
        let set = bytes + (3 * points * if geometry.double { 16 } else { 8 }) as f64;
        let traffic = Traffic::pass(passes * bytes, set, &device.caches);
        let longest = geometry.axes.iter().map(|a| a.n).max().unwrap_or(1);
        let lines = geometry.repeats() * geometry.points() / longest;
        let threads = parameters.threads();
        let scratch = threads * longest * if geometry.double { 48 } else { 24 };
        let operations = more.max(1.0) * geometry.nominal_operations();
        Cost { scratch, ..Cost::new(operations, unit, traffic).split(threads, lines) }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let geometry = Geometry::new(call.workload);
        if geometry.double { run::<f64>(call, &geometry) } else { run::<f32>(call, &geometry) }
    }
}

/// Operations for each point of a line, how often it is read and written, and the points of a convolution, if any. What is left of a
/// length without its small factors is a cyclic convolution unless it is a prime that has a kernel of its own: one transform there and
/// one back, of a point less than the prime (Rader) or of more than twice as many points (Bluestein).
fn work(n: usize) -> (f64, f64, usize) {
    let rest = without_small_factors(n);
    if has_kernel(rest) {
        return (straight(n), passes(n), 0);
    }
    let is_rader = is_prime(rest) && has_kernel(without_small_factors(rest - 1));
    let points = if is_rader { rest - 1 } else { convolution_points(rest) };
    let times = points as f64 / rest as f64;
    // Products with the roots before and after and with the other spectrum take six operations each and a pass.
    let around = if is_rader { SHUFFLED } else { 12.0 };
    let operations = times * (2.0 * straight(points) + 6.0) + around;
    let passes = times * (2.0 * passes(points) + 1.0) + 2.0 + passes(n / rest);
    (operations + straight(n / rest), passes, points)
}

/// Operations that could have run while a point of Rader's algorithm is moved to its place and back, one by one: transforms of 12 048 and
/// 18 760 points take 1.7 to 2.2 ns for each longer on one Zen 5 core than others of such lengths.
const SHUFFLED: f64 = 60.0;

/// Operations for each point of a line that is no convolution. Kernels of primes have no vectors: 232 points, which are eight times 29, take four
/// times as long as 216 on one Zen 5 core.
fn straight(n: usize) -> f64 {
    let one_by_one = 4 * (without_small_factors(n) - 1);
    5.0 * (n.max(2) as f64).log2() + one_by_one as f64
}

/// How often a line of small factors is read and written: once through scratch, and twice more (columns, and a transposition) for each
/// level of its recursion, which cuts lines into eighths until one fits its longest kernel of 512 points.
fn passes(n: usize) -> f64 {
    2.0 + 2.0 * (n as f64 / 512.0).log(8.0).ceil().max(0.0)
}

/// What is left of a length without the factors that the crate takes off one by one.
fn without_small_factors(n: usize) -> usize {
    let mut rest = n.max(1);
    for factor in [2, 3, 5, 7, 11] {
        while rest.is_multiple_of(factor) {
            rest /= factor;
        }
    }
    rest
}

/// Whether the crate has a kernel for such a rest.
fn has_kernel(rest: usize) -> bool {
    matches!(rest, 1 | 13 | 17 | 19 | 23 | 29 | 31)
}

/// The least product of twos (two or more) and threes that holds a convolution of n points.
fn convolution_points(n: usize) -> usize {
    let (least, mut best) = (2 * n - 1, usize::MAX);
    let mut threes = 1;
    while threes < best {
        best = best.min(threes * least.div_ceil(threes).next_power_of_two().max(4));
        threes *= 3;
    }
    best
}

fn kind(kind: FftKind) -> Kind {
    match kind {
        FftKind::Forward => Kind::Forward,
        FftKind::Inverse => Kind::Inverse,
        FftKind::RealForward => Kind::RealForward,
        FftKind::RealInverse => Kind::RealInverse,
    }
}

/// Complex numbers of scratch: what the crate needs, and for lines that are copied one of them (two for real transforms).
fn scratch_of<T: Number>(plan: &Plan<T>, n: usize, straight: bool) -> usize {
    if let (Plan::Complex(plan), true) = (plan, straight) {
        return plan.get_immutable_scratch_len();
    }
    let lines = if matches!(plan, Plan::Complex(_)) { n } else { n + 1 + n / 2 + 1 };
    lines + plan.scratch()
}

/// The memory of a call; each task touches the lines of its own.
#[derive(Clone, Copy)]
struct Memory {
    x: *const u8,
    y: *mut u8,
    scratch: *mut u8,
}

// SAFETY: tasks write lines and scratch of their own, and nobody writes the input of another line.
unsafe impl Sync for Memory {}

fn run<T: Number + Float>(call: &Call<'_>, geometry: &Geometry) -> Result<(), KernelError> {
    if call.workload.outputs()[0].is_empty() {
        return Ok(());
    }
    let y = call.outputs[0].address();
    let mut x = call.inputs[0].address().cast_const();
    for (i, along) in geometry.axes.iter().enumerate().rev() {
        let plan = T::plan(kind(geometry.kind), along.n);
        let others = others(geometry, i);
        let first = i + 1 == geometry.axes.len();
        // The last pass scales; after the first everything is in the output.
        let scale = if i == 0 { geometry.scale } else { 1.0 };
        let lines: usize = others.iter().map(|a| a.size).product();
        let threads = call.parameters.threads().min(lines).max(1);
        let straight = x != y.cast_const() && along.input == 1 && along.output == 1;
        let each = scratch_of(&plan, along.n, straight).next_multiple_of(8);
        let mut scratch = call.cpu().scratch(each * threads * size_of::<Complex<T>>())?;
        let memory = Memory { x, y, scratch: scratch.as_mut_ptr() };
        let failed = std::sync::atomic::AtomicBool::new(false);
        call.cpu().threads().run(threads, threads, &|task| {
            let memory = &memory;
            let range = lines * task / threads..lines * (task + 1) / threads;
            // SAFETY: the pool's memory is aligned and was written before, and every task has `each` numbers of its own.
            let scratch = unsafe {
                let start = memory.scratch.cast::<Complex<T>>().add(each * task);
                std::slice::from_raw_parts_mut(start, each)
            };
            for line in range {
                let from = offset(&others, line, |a| if first { a.input } else { a.output });
                let to = offset(&others, line, |a| a.output);
                let along = if first { *along } else { Along { input: along.output, ..*along } };
                // SAFETY: the line lies inside the operands.
                let right = unsafe {
                    match &plan {
                        Plan::Complex(plan) if straight => {
                            let x = memory.x.cast::<Complex<T>>().offset(from);
                            let y = memory.y.cast::<Complex<T>>().offset(to);
                            move_line(&**plan, along.n, [x.cast_mut(), y], scale, scratch);
                            true
                        }
                        plan => transform(plan, along, memory, [from, to], scale, scratch),
                    }
                };
                if !right {
                    failed.store(true, std::sync::atomic::Ordering::Relaxed);
                }
            }
        });
        if failed.into_inner() {
            return Err(KernelError("the crate refused the lengths of its slices".into()));
        }
        x = y;
    }
    Ok(())
}

/// Every axis but one.
fn others(geometry: &Geometry, except: usize) -> AxisList {
    let rest = geometry.axes.iter().enumerate().filter(|(i, _)| *i != except);
    let rest = rest.map(|(_, a)| Axis { size: a.to, input: a.input, output: a.output });
    geometry.batch.iter().copied().chain(rest).collect()
}

/// One line of neighbours, straight from the first place to the second.
///
/// # Safety
/// Both places have `n` elements and do not overlap.
unsafe fn move_line<T: Number + Float>(
    plan: &dyn Fft<T>,
    n: usize,
    [x, y]: [*mut Complex<T>; 2],
    scale: f64,
    scratch: &mut [Complex<T>],
) {
    // SAFETY: the caller's promise.
    let (x, y) = unsafe { (std::slice::from_raw_parts(x, n), std::slice::from_raw_parts_mut(y, n)) };
    plan.process_immutable_with_scratch(x, y, scratch);
    if scale != 1.0 {
        let factor = <T as Float>::from_f64(scale);
        for z in y {
            *z = Complex::new(z.re * factor, z.im * factor);
        }
    }
}

/// One line through scratch; false if the crate refuses.
///
/// # Safety
/// The line's elements from the offsets on are valid.
unsafe fn transform<T: Number + Float>(
    plan: &Plan<T>,
    along: Along,
    memory: &Memory,
    [from, to]: [isize; 2],
    scale: f64,
    scratch: &mut [Complex<T>],
) -> bool {
    let n = along.n;
    let factor = <T as Float>::from_f64(scale);
    let scaled = |z: Complex<T>| if scale == 1.0 { z } else { Complex::new(z.re * factor, z.im * factor) };
    let half = n / 2 + 1;
    // SAFETY: the caller's promise.
    unsafe {
        match plan {
            Plan::Complex(plan) => {
                let (line, rest) = scratch.split_at_mut(n);
                gather(memory.x.cast::<Complex<T>>().offset(from), along.input, line);
                plan.process_with_scratch(line, rest);
                scatter(
                    line.iter().map(|&z| scaled(z)),
                    memory.y.cast::<Complex<T>>().offset(to),
                    along.output,
                );
                true
            }
            Plan::Forward(plan) => {
                let (line, rest) = scratch.split_at_mut(n / 2 + 1);
                let (spectrum, rest) = rest.split_at_mut(half);
                let line = std::slice::from_raw_parts_mut(line.as_mut_ptr().cast::<T>(), n);
                gather(memory.x.cast::<T>().offset(from), along.input, line);
                let done = plan.process_with_scratch(line, spectrum, rest);
                let spectrum = spectrum.iter().map(|&z| scaled(z));
                scatter(spectrum, memory.y.cast::<Complex<T>>().offset(to), along.output);
                done.is_ok()
            }
            Plan::Inverse(plan) => {
                let (spectrum, rest) = scratch.split_at_mut(half);
                let (line, rest) = rest.split_at_mut(n / 2 + 1);
                let line = std::slice::from_raw_parts_mut(line.as_mut_ptr().cast::<T>(), n);
                gather(memory.x.cast::<Complex<T>>().offset(from), along.input, spectrum);
                spectrum[0].im = T::ZERO;
                if n.is_multiple_of(2) {
                    spectrum[half - 1].im = T::ZERO;
                }
                let done = plan.process_with_scratch(spectrum, line, rest);
                let line = line.iter().map(|&x| scaled(Complex::new(x, T::ZERO)).re);
                scatter(line, memory.y.cast::<T>().offset(to), along.output);
                done.is_ok()
            }
        }
    }
}

/// # Safety
/// Every `stride`-th element from `from` on may be read, as many as `line` has.
unsafe fn gather<E: Copy>(from: *const E, stride: isize, line: &mut [E]) {
    if stride == 1 {
        // SAFETY: the caller's promise.
        return unsafe { std::ptr::copy_nonoverlapping(from, line.as_mut_ptr(), line.len()) };
    }
    for (i, element) in line.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *element = unsafe { from.offset(i as isize * stride).read() };
    }
}

/// # Safety
/// Every `stride`-th element from `to` on may be written, as many as there are values.
unsafe fn scatter<E: Copy>(values: impl Iterator<Item = E>, to: *mut E, stride: isize) {
    for (i, value) in values.enumerate() {
        // SAFETY: the caller's promise.
        unsafe { to.offset(i as isize * stride).write(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FftAttributes, FftNorm, Rigor};
    use super::*;
    use crate::Runtime;
    use crate::device::{ArithmeticPeak, BandwidthPeak, Level, Peaks};
    use crate::modelling::predict;
    use crate::ops::{Operation, TensorDesc};
    use crate::tensor::Shape;

    #[test]
    fn lengths_without_a_kernel_are_convolutions() {
        // 10006 = 2 · 5003, and 65536 has small factors only.
        assert_eq!(convolution_points(10_007), 20_736);
        assert!(work(10_007).0 > 4.0 * work(10_000).0);
        assert!(work(65_537).0 > 2.0 * work(65_536).0 && work(65_537).0 < 3.0 * work(65_536).0);
        let one_by_one = 5.0 * (13.0 * 1024.0_f64).log2() + 48.0;
        assert_eq!(work(13 * 1024), (one_by_one, passes(13 * 1024), 0));
        // A prime of 5264 is a convolution of 46 points, which are two times 23.
        assert!(work(5264).0 > 3.0 * work(5250).0);
    }

    #[test]
    fn large_primes_take_several_times_as_long() {
        let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
        // As an Emerald Rapids core was measured.
        let arithmetic = [(Isa::Avx512, 177e9), (Isa::Avx2, 99e9), (Isa::Portable, 28e9)];
        let arithmetic = arithmetic.map(|(isa, operations_per_second)| ArithmeticPeak {
            unit: ComputeUnit { dtype: DType::F32, isa: Some(isa) },
            threads: 1,
            operations_per_second,
        });
        let levels = [(Level::L1, 290e9), (Level::L2, 149e9), (Level::L3, 17e9), (Level::Memory, 17e9)];
        let bandwidth = levels.map(|(level, rate)| BandwidthPeak {
            level,
            threads: 1,
            read: rate,
            copy: rate,
            stream: rate,
        });
        let peaks = &Peaks {
            arithmetic: arithmetic.to_vec(),
            bandwidth: bandwidth.to_vec(),
            hand_off: Some(1e-6),
            ..Peaks::default()
        };
        let attributes = FftAttributes {
            kind: FftKind::Forward,
            axes: 1,
            norm: FftNorm::Backward,
            rigor: Rigor::Estimate,
        };
        let time = |n: usize| {
            let line = TensorDesc::contiguous(DType::C32, Shape::new(&[n]).unwrap());
            let workload = Workload::new(Operation::Fft(attributes), &[line], &[line]);
            predict(&RUSTFFT.cost(&workload, &Parameters::new(), rt.device_info()), peaks)
        };
        let [smooth, prime] = [10_000, 10_007].map(time);
        // An instruction set that was not measured has no time.
        assert!(smooth.is_none() || prime > smooth.map(|smooth| 3.0 * smooth), "{smooth:?} and {prime:?}");
    }
}
