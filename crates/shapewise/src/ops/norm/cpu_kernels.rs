//! The kernels: rows, planes and channels-last on each instruction set.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::cpu_planes::{Affine, ChannelMoments, ChannelsLast, Group, PerChannelNumbers, Planes};
use super::cpu_rows::{Part, Rows};
use super::{NormAttributes, NormKind};
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::{Float, Isa};
use crate::backends::cpu::{PooledBytes, Value};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::walk::{Axis, AxisList};
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, Operation, OperationKind, ParameterSpace,
    Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// Layer and RMS norm.
    Rows,
    /// Batch and group norm, places side by side.
    Planes,
    /// Batch norm, channels side by side.
    Channels,
}

/// One way to walk on one instruction set.
pub(super) struct Norm {
    name: &'static str,
    walk: Walk,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($static:ident, $walk:ident, $isa:ident, $name:literal, $fits:ident;)*) => {$(
        pub(super) static $static: Norm = Norm {
            name: concat!("cpu::norm::", $name),
            walk: Walk::$walk,
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), Constraint::DTypes(DType::FLOATS), $fits],
        };
    )*};
}
kernels! {
    AVX512_ROWS, Rows, Avx512, "avx512_rows", ROWS;
    AVX2_ROWS, Rows, Avx2, "avx2_rows", ROWS;
    AVX2_PLANES, Planes, Avx2, "avx2_planes", PLANES;
    AVX2_CHANNELS, Channels, Avx2, "avx2_channels", CHANNELS;
    NEON_ROWS, Rows, Neon, "neon_rows", ROWS;
    NEON_PLANES, Planes, Neon, "neon_planes", PLANES;
    NEON_CHANNELS, Channels, Neon, "neon_channels", CHANNELS;
    PORTABLE_ROWS, Rows, Portable, "portable_rows", ROWS;
    PORTABLE_PLANES, Planes, Portable, "portable_planes", PLANES;
    PORTABLE_CHANNELS, Channels, Portable, "portable_channels", CHANNELS;
}

const ROWS: Constraint = Constraint::Shape("layer or RMS norm over one run of memory", |w| {
    let (axes, at) = axes(w);
    matches!(attributes(w).kind, NormKind::Layer | NormKind::Rms)
        && axes.len() == at + 1
        && (axes[at].input == 1 && axes[at].output == 1 || axes[at].size == 1)
});
const PLANES: Constraint =
    Constraint::Shape("batch or group norm with the places of a channel side by side", |w| {
        let (axes, at) = axes(w);
        let places = axes.get(at + 1);
        !matches!(attributes(w).kind, NormKind::Layer | NormKind::Rms)
            && at <= 1
            && axes.len() <= at + 2
            && places.is_none_or(|a| a.input == 1 && a.output == 1)
    });
const CHANNELS: Constraint =
    Constraint::Shape("batch norm in inference with the channels side by side", |w| {
        let (axes, at) = axes(w);
        attributes(w).kind == NormKind::BatchInference
            && at <= 1
            && axes.len() == at + 1
            && axes[at].input == 1
            && axes[at].output == 1
    });

pub(super) fn attributes(workload: &Workload) -> NormAttributes {
    match workload.operation() {
        Operation::Norm(attributes) => *attributes,
        other => unreachable!("the registry gives norms only, not {other}"),
    }
}

/// All axes, and which is the channels' or the first normalised one.
pub(super) fn axes(workload: &Workload) -> (AxisList, usize) {
    let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
    let axes = (0..x.shape.len())
        .map(|i| Axis { size: x.shape[i], input: x.strides[i], output: y.strides[i] })
        .collect();
    (axes, usize::from(attributes(workload).axis))
}

/// Elements in each weight.
fn weights(workload: &Workload) -> usize {
    let (axes, at) = axes(workload);
    match attributes(workload).kind {
        NormKind::Layer | NormKind::Rms => axes[at..].iter().map(|a| a.size).product(),
        _ => axes[at].size,
    }
}

impl Kernel for Norm {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Norm
    }

    fn source(&self) -> u64 {
        match self.walk {
            Walk::Rows => source_hash!("cpu_kernels.rs", "cpu_rows.rs", "cpu_normalise.rs"),
            Walk::Planes | Walk::Channels => {
                source_hash!("cpu_kernels.rs", "cpu_planes.rs", "cpu_normalise.rs")
            }
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
        if workload.inputs()[0].dtype.size() >= 4 { space.streamed(workload, device) } else { space }
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let (axes, at) = axes(workload);
        let (x, caches) = (&workload.inputs()[0], &device.caches);
        let bytes = (x.len() * x.dtype.size()) as f64;
        // Scale and bias decide where rows fill the last cache to its last byte.
        let set = workload.bytes() as f64;
        // Difference, scaling and bias; mean, differences, squares and sums for the statistics.
        let (operations, passes) = match attributes(workload).kind {
            NormKind::BatchInference => (3.0, 1.0),
            NormKind::BatchTraining => (8.0, 2.0),
            NormKind::Group { .. } | NormKind::Layer => (8.0, 1.0),
            NormKind::Rms => (6.0, 1.0),
        };
        let write = if parameters.get(Knob::Stream) == Some(1) {
            // Past the caches it goes to memory once, whatever would have fitted.
            Traffic { l1: bytes, l2: bytes, l3: bytes, memory: bytes }
        } else {
            // A store brings its line in first.
            Traffic::pass(2.0 * bytes, set, caches)
        };
        let traffic = Traffic::pass(passes * bytes, set, caches) + write;
        let dtype = if x.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let run = match self.walk {
            Walk::Rows | Walk::Channels => axes[at].size,
            Walk::Planes => axes.get(at + 1).map_or(1, |a| a.size),
        };
        let lanes = (self.isa.register_bytes() / dtype.size()) as f64;
        let padding = (run as f64 / lanes).ceil() * lanes / run.max(1) as f64;
        let unit = ComputeUnit { dtype, isa: Some(self.isa) };
        let tasks = (x.len() / run.max(1)).max(1);
        let cost = Cost::new(operations * padding * x.len() as f64, unit, traffic).converting(workload);
        Cost { scratch: 5 * weights(workload) * dtype.size(), ..cost.split(parameters.threads(), tasks) }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if call.workload.inputs()[0].is_empty() {
            return Ok(());
        }
        match call.workload.inputs()[0].dtype {
            DType::F32 => Launch::<f32>::new(self.isa, call)?.run(self.walk),
            DType::F64 => Launch::<f64>::new(self.isa, call)?.run(self.walk),
            DType::F16 => Launch::<f16>::new(self.isa, call)?.run(self.walk),
            DType::BF16 => Launch::<bf16>::new(self.isa, call)?.run(self.walk),
            other => return Err(KernelError(format!("norms are not defined for {other}").into())),
        }
        Ok(())
    }
}

/// One call with its weights at hand in the type that is computed in.
struct Launch<'a, 'c, T: Real> {
    isa: Isa,
    call: &'a Call<'c>,
    attributes: NormAttributes,
    axes: AxisList,
    at: usize,
    scale: *const T::Wide,
    bias: *const T::Wide,
    mean: *mut T::Wide,
    factor: *mut T::Wide,
    /// Given variances, or none.
    variance: *const T::Wide,
    _scratch: PooledBytes,
}

impl<'a, 'c, T: Real> Launch<'a, 'c, T> {
    fn new(isa: Isa, call: &'a Call<'c>) -> Result<Self, KernelError> {
        let attributes = attributes(call.workload);
        let (axes, at) = axes(call.workload);
        let n = weights(call.workload);
        let stretch = n.next_multiple_of(16);
        let mut scratch = call.cpu().scratch(5 * stretch * size_of::<T::Wide>())?;
        let first = scratch.as_mut_ptr().cast::<T::Wide>();
        let part = |k: usize| first.wrapping_add(k * stretch);
        let mut next = 1;
        let mut input = |given: bool| {
            next += usize::from(given);
            given.then_some(next - 1)
        };
        let given = attributes.kind == NormKind::BatchInference;
        let places = [input(attributes.scale), input(attributes.bias), input(given), input(given)];
        let ready = |k: usize, default: f64| ready::<T::Wide>(call, places[k], part(k), n, default);
        let (scale, bias) = (ready(0, 1.0), ready(1, 0.0));
        let (mean, variance) = (ready(2, 0.0), ready(3, 1.0));
        let factor = part(4);
        Ok(Self {
            isa,
            call,
            attributes,
            axes,
            at,
            scale,
            bias,
            mean: mean.cast_mut(),
            factor,
            variance,
            _scratch: scratch,
        })
    }

    fn run(&self, walk: Walk) {
        match (walk, self.attributes.kind) {
            (Walk::Rows, _) => self.rows(),
            (Walk::Planes, NormKind::Group { groups }) => self.groups(groups as usize),
            (Walk::Planes, kind) => {
                let planes = self.planes();
                if kind == NormKind::BatchTraining {
                    self.take_statistics(&planes);
                } else {
                    self.use_statistics();
                }
                self.spread(self.samples() * planes.channels, |range| {
                    T::dispatch_narrow(self.isa, Affine { planes: &planes, numbers: self.numbers(), range });
                });
            }
            (Walk::Channels, _) => {
                let planes = self.planes();
                self.use_statistics();
                self.spread(self.samples(), |range| {
                    T::dispatch_narrow(
                        self.isa,
                        ChannelsLast { planes: &planes, numbers: self.numbers(), range },
                    );
                });
            }
        }
    }

    /// Runs ranges of `items` on the threads, a few per thread to even out what else runs on the cores.
    fn spread(&self, items: usize, task: impl Fn(std::ops::Range<usize>)) {
        let threads = self.call.parameters.threads();
        let tasks = if threads == 1 { 1 } else { (4 * threads).min(items) };
        let task = Shared(task);
        self.call
            .cpu()
            .threads()
            .run(threads, tasks, &|i| task.get()(items * i / tasks..items * (i + 1) / tasks));
    }

    fn stream(&self) -> bool {
        self.call.parameters.get(Knob::Stream) == Some(1)
    }

    fn samples(&self) -> usize {
        self.axes[..self.at].iter().map(|a| a.size).product()
    }

    fn numbers(&self) -> PerChannelNumbers<T::Wide> {
        PerChannelNumbers { mean: self.mean, factor: self.factor, bias: self.bias }
    }

    fn planes(&self) -> Planes<T> {
        let channel = self.axes[self.at];
        let sample = self.axes[..self.at].last().copied().unwrap_or(Axis { size: 1, input: 0, output: 0 });
        Planes {
            channels: channel.size,
            places: self.axes.get(self.at + 1).map_or(1, |a| a.size),
            x: self.call.inputs[0].ptr(),
            y: self.call.outputs[0].ptr_mut(),
            input: [sample.input, channel.input],
            output: [sample.output, channel.output],
            stream: self.stream(),
        }
    }

    fn rows(&self) {
        let rows = Rows {
            kept: &self.axes[..self.at],
            size: self.axes[self.at].size,
            x: self.call.inputs[0].ptr::<T>(),
            y: self.call.outputs[0].ptr_mut::<T>(),
            scale: self.scale,
            bias: self.bias,
            eps: self.attributes.eps(),
            rms: self.attributes.kind == NormKind::Rms,
            stream: self.stream(),
        };
        self.spread(self.samples(), |range| T::dispatch(self.isa, Part { rows, range }));
    }

    fn groups(&self, groups: usize) {
        let planes = self.planes();
        let each = planes.channels / groups;
        self.spread(self.samples() * groups, |range| {
            for group in range {
                let first = group % groups * each;
                T::dispatch_narrow(
                    self.isa,
                    Group {
                        planes: &planes,
                        sample: group / groups,
                        channels: first..first + each,
                        scale: self.scale,
                        bias: self.bias,
                        eps: self.attributes.eps(),
                    },
                );
            }
        });
    }

    fn factor(&self, channel: usize, variance: f64) -> T::Wide {
        // SAFETY: there is a scale for each channel.
        let scale = unsafe { *self.scale.add(channel) }.to_f64();
        T::Wide::from_f64(scale / (variance + self.attributes.eps()).sqrt())
    }

    /// Factors from the given variances.
    fn use_statistics(&self) {
        for channel in 0..self.axes[self.at].size {
            // SAFETY: there are numbers for each channel.
            let variance = unsafe { *self.variance.add(channel) }.to_f64();
            // SAFETY: there is room for the factor of each channel.
            unsafe { self.factor.add(channel).write(self.factor(channel, variance)) };
        }
    }

    /// Means, variances and factors from the batch.
    fn take_statistics(&self, planes: &Planes<T>) {
        let (mean, variance) = (&self.call.outputs[1], &self.call.outputs[2]);
        self.spread(planes.channels, |range| {
            for channel in range {
                let m =
                    T::dispatch_narrow(self.isa, ChannelMoments { planes, samples: self.samples(), channel });
                let spread = m.squares / m.n;
                let at = channel as isize;
                // SAFETY: outputs and scratch have room for each channel, and each channel is one task's alone.
                unsafe {
                    Value::Real(m.mean).write(mean.address(), at * mean.strides()[0], mean.desc().dtype);
                    Value::Real(spread).write(
                        variance.address(),
                        at * variance.strides()[0],
                        variance.desc().dtype,
                    );
                    self.mean.add(channel).write(T::Wide::from_f64(m.mean));
                    self.factor.add(channel).write(self.factor(channel, spread));
                }
            }
        });
    }
}

/// A task that is run from several threads: its captures are only read, or written at places of each thread's own.
struct Shared<F>(F);

impl<F> Shared<F> {
    fn get(&self) -> &F {
        &self.0
    }
}

// SAFETY: every task of this file touches disjoint parts of the operands and of the scratch.
unsafe impl<F> Sync for Shared<F> {}

/// An input in the type that is computed in: where it lies, or converted; the default where it is not given.
fn ready<W: Float>(call: &Call<'_>, input: Option<usize>, room: *mut W, n: usize, default: f64) -> *const W {
    let Some(operand) = input.map(|i| &call.inputs[i]) else {
        // SAFETY: there is room for n numbers.
        (0..n).for_each(|i| unsafe { room.add(i).write(W::from_f64(default)) });
        return room;
    };
    let dtype = operand.desc().dtype;
    if dtype.is_float() && dtype.size() == size_of::<W>() {
        return operand.address().cast();
    }
    for i in 0..n {
        // SAFETY: weights are contiguous with n elements, and there is room for as many.
        unsafe { room.add(i).write(W::from_f64(Value::read(operand.address(), i as isize, dtype).real())) };
    }
    room
}
