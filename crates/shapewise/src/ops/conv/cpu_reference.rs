//! The plain loops in double precision, for every type, stride and attribute: the judge of all other kernels.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::geometry::{Geometry, attributes};
use crate::backends::cpu::Operand;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant,
    Workload, matmul,
};
use crate::tensor::{DType, Element};

/// Any float type under any layout, one output after the other.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::conv::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs", "geometry.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn constraints(&self) -> &[Constraint] {
        &[Constraint::DTypes(DType::FLOATS)]
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let steps = Geometry::of(workload).products();
        let size = workload.outputs()[0].dtype.size() as f64;
        // Each product reads an input and a weight, one element at a time.
        let traffic = Traffic::pass(2.0 * steps * size, workload.bytes() as f64, &device.caches);
        Cost::new(2.0 * steps, ComputeUnit { dtype: DType::F64, isa: None }, traffic)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => convolve::<f32>(call, f64::from, |x| x as f32),
            DType::F64 => convolve::<f64>(call, |x| x, |x| x),
            DType::F16 => convolve::<f16>(call, f16::to_f64, f16::from_f64),
            DType::BF16 => convolve::<bf16>(call, bf16::to_f64, bf16::from_f64),
            other => return Err(KernelError(format!("{other} has no convolution").into())),
        }
        Ok(())
    }
}

fn convolve<T: Element>(call: &Call<'_>, wide: impl Fn(T) -> f64, narrow: impl Fn(f64) -> T) {
    let g = Geometry::of(call.workload);
    let attributes = attributes(call.workload);
    let (x, w, y) = (call.inputs[0].ptr::<T>(), call.inputs[1].ptr::<T>(), call.outputs[0].ptr_mut::<T>());
    let bias = if attributes.bias { call.inputs.get(2).map(Operand::ptr::<T>) } else { None };
    let channels = g.groups * g.o;
    for index in 0..g.n * channels * g.pixels() {
        let (mut rest, mut at) = (index, [0; 3]);
        for axis in (0..3).rev() {
            at[axis] = rest % g.output[axis];
            rest /= g.output[axis];
        }
        let (n, channel) = (rest / channels, rest % channels);
        let (group, o) = (channel / g.o, channel % g.o);
        let mut sum = 0.0;
        for tap in 0..g.taps() {
            let Some((input, weight)) = pair(&g, attributes.transposed, at, tap) else { continue };
            let with = weight + group as isize * g.w[0] + o as isize * g.w[1];
            for c in 0..g.c as isize {
                let from = n as isize * g.x[0] + ((group * g.c) as isize + c) * g.x[1];
                // SAFETY: image, channels, taps and positions lie inside the operands' shapes.
                let (x, w) = unsafe { (input.map(|at| *x.offset(from + at)), *w.offset(with + c * g.w[2])) };
                sum += x.map_or(0.0, &wide) * wide(w);
            }
        }
        if let Some(bias) = bias {
            // SAFETY: the bias has an element for every output channel.
            sum += wide(unsafe { *bias.offset(channel as isize * g.bias) });
        }
        let to: isize = (0..3).map(|axis| at[axis] as isize * g.y[2 + axis]).sum();
        let to = to + n as isize * g.y[0] + channel as isize * g.y[1];
        // SAFETY: image, channel and position lie inside the output's shape.
        unsafe { y.offset(to).write(narrow(matmul::apply(attributes.activation, sum))) };
    }
}

/// Where an output's tap is in the planes of input (None in the padding, which counts as zeros) and weights; None
/// where a transposed convolution has no input for it.
fn pair(g: &Geometry, transposed: bool, at: [usize; 3], mut tap: usize) -> Option<(Option<isize>, isize)> {
    let (mut input, mut weight) = (Some(0), 0);
    for axis in (0..3).rev() {
        let k = (tap % g.kernel[axis]) as isize;
        tap /= g.kernel[axis];
        let (stride, reach) = (g.stride[axis] as isize, k * g.dilation[axis] as isize);
        let place = if transposed {
            let spread = at[axis] as isize + g.before[axis] - reach;
            (spread % stride == 0).then_some(spread / stride)?
        } else {
            at[axis] as isize * stride + reach - g.before[axis]
        };
        let inside = place >= 0 && place < g.input[axis] as isize;
        input = input.filter(|_| inside).map(|at| at + place * g.x[2 + axis]);
        weight += k * g.w[3 + axis];
    }
    Some((input, weight))
}
