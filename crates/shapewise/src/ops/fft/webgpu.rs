//! Fourier transforms on WebGPU: Stockham passes of radix 2 to 13 over scratch memory, Bluestein's algorithm for the rest.

#[path = "webgpu_butterfly.rs"]
mod butterfly;
#[path = "webgpu_steps.rs"]
mod steps;
#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;

use super::{FftAttributes, FftKind};
use crate::backends::webgpu::axes::{self, Axis, count};
use crate::backends::webgpu::wgsl::{Checks, Numbers, fits};
use crate::backends::webgpu::{Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, Operation, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};
use crate::tensor::DType;
use steps::Steps;

/// Every WebGPU kernel.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] = &[&STOCKHAM, &BLUESTEIN];

static STOCKHAM: Fft = Fft { name: "webgpu::fft::stockham", chirp: false };
static BLUESTEIN: Fft = Fft { name: "webgpu::fft::bluestein", chirp: true };

/// Passes over scratch memory; `chirp` takes every length through a convolution of a power of two.
struct Fft {
    name: &'static str,
    chirp: bool,
}

/// The radices that passes are written out for, besides powers of two.
const ODD: [usize; 5] = [3, 5, 7, 11, 13];

/// The longest transform by Bluestein's algorithm: squares of indices must fit 32 bits.
const LONGEST_CHIRP: usize = 1 << 16;

/// A transform: repeats, and the points along each axis in the input and in the output.
struct Geometry {
    attributes: FftAttributes,
    batch: Vec<Axis>,
    /// Strides along the transformed axes.
    along: Vec<Axis>,
    /// Points of the transforms, elements of the input and of the output, along each axis.
    n: Vec<usize>,
    from: Vec<usize>,
    to: Vec<usize>,
    scale: f64,
}

impl Geometry {
    fn of(workload: &Workload) -> Self {
        let attributes = match workload.operation() {
            Operation::Fft(attributes) => *attributes,
            other => unreachable!("the registry gives transforms only, not {other}"),
        };
        let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
        let first = x.shape.len() - usize::from(attributes.axes);
        let axis = |i: usize| Axis::of(x, y, i);
        let (from, to) = (x.shape[first..].to_vec(), y.shape[first..].to_vec());
        let n: Vec<usize> = from.iter().zip(&to).map(|(a, b)| *a.max(b)).collect();
        let scale = attributes.norm.scale(attributes.kind.is_inverse(), n.iter().product());
        let along = (first..x.shape.len()).map(axis).collect();
        Self { attributes, batch: (0..first).map(axis).collect(), along, n, from, to, scale }
    }

    fn repeats(&self) -> usize {
        count(&self.batch)
    }

    fn points(&self) -> usize {
        self.n.iter().product()
    }

    fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default()
            .with("repeats", self.repeats())
            .with("points", self.points())
            .with_real("scale", self.scale as f32);
        for (i, n) in self.n.iter().enumerate() {
            numbers = numbers
                .with(format!("n{i}"), *n)
                .with(format!("from{i}"), self.from[i])
                .with(format!("to{i}"), self.to[i])
                .with(format!("in{i}"), self.along[i].input)
                .with(format!("out{i}"), self.along[i].output);
        }
        axes::numbers(numbers, "batch", &self.batch)
    }
}

/// The radices of a length, large ones first; none if another prime divides it.
fn radices(mut n: usize, largest: usize) -> Option<Vec<usize>> {
    let mut out = Vec::new();
    for radix in [8, 4, 2].into_iter().filter(|&r| r <= largest).chain(ODD) {
        while n.is_multiple_of(radix) && n > 1 {
            out.push(radix);
            n /= radix;
        }
    }
    (n == 1).then_some(out)
}

/// Invocations of a workgroup.
fn width(parameters: &Parameters) -> u32 {
    parameters.get(Knob::WorkgroupX).unwrap_or(64)
}

impl Fft {
    /// Whether a length goes through a convolution.
    fn is_chirp(&self, n: usize) -> bool {
        n > 1 && (self.chirp || radices(n, 8).is_none())
    }

    /// Points of the convolution that a length goes through.
    fn padded(n: usize) -> usize {
        (2 * n - 1).next_power_of_two()
    }
}

impl WebGpuKernel for Fft {
    fn name(&self) -> &'static str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Fft
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu.rs", "webgpu_steps.rs", "webgpu_butterfly.rs", "webgpu_roots.wgsl")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let g = Geometry::of(workload);
        let smooth = g.n.iter().all(|&n| n <= 1 || radices(n, 8).is_some());
        let short = self.chirp || smooth;
        let within = g.n.iter().all(|&n| !self.is_chirp(n) || n < LONGEST_CHIRP);
        let widest =
            g.n.iter().map(|&n| if self.is_chirp(n) { g.points() / n * Self::padded(n) } else { g.points() });
        let bytes = 8 * widest.max().unwrap_or(0) as u64 * g.repeats() as u64;
        Checks::layouts(workload, limits)
            .types(&[DType::F32, DType::C32])
            .needs(short, "lengths of factors up to 13")
            .needs(within, "lengths below 65536 where another prime divides them")
            // Octants of an angle are counted in 32 bits.
            .needs(g.n.iter().all(|&n| n < 1 << 27), "fewer than 2²⁷ points along an axis")
            .needs(bytes <= limits.storage_binding.min(limits.buffer), "a whole batch in one buffer")
            .needs(fits(limits, [64, 1, 1], 0), "workgroups of 64")
            .done()
    }

    fn space(&self, _: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
            .axis(Knob::Radix, &[8, 4, 2])
            .axis(Knob::WorkgroupX, &[64, 256])
            .constrained(|p| fits(limits, [width(p), 1, 1], 0))
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let g = Geometry::of(workload);
        let largest = parameters.get(Knob::Radix).unwrap_or(8) as usize;
        let all = (g.repeats() * g.points()) as f64;
        let (mut operations, mut passes) = (0.0, 2.0);
        for &n in &g.n {
            let (length, times) = if self.is_chirp(n) { (Self::padded(n), 3.0) } else { (n, 1.0) };
            let grown = length as f64 / n.max(1) as f64;
            operations += times * 5.0 * all * grown * (length.max(2) as f64).log2();
            passes += times * grown * radices(length, largest).map_or(0, |r| r.len()) as f64;
        }
        WebGpuCost { operations, bytes: workload.bytes() as f64 + 16.0 * all * passes }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let g = Geometry::of(workload);
        if g.repeats() * g.points() == 0 {
            return Plan::default();
        }
        let largest = parameters.get(Knob::Radix).unwrap_or(8) as usize;
        let mut steps = Steps::new(self.name, width(parameters), g.attributes.kind.is_inverse());
        steps.load(&g, workload);
        for axis in 0..g.n.len() {
            let n = g.n[axis];
            let inner: usize = g.n[axis + 1..].iter().product();
            let lines = g.repeats() * g.points() / n;
            if self.is_chirp(n) {
                steps.chirp(n, inner, lines, Self::padded(n), largest);
            } else if let Some(radices) = radices(n, largest) {
                steps.passes(&radices, n, inner, lines, steps.inverse());
            }
        }
        steps.store(&g, workload);
        steps.plan()
    }
}
