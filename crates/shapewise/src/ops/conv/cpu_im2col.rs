//! The product written out: every output's inputs become a column of a matrix, which one of matmul's kernels multiplies.
#![allow(unsafe_code)]

use std::cell::RefCell;

use arrayvec::ArrayVec;

use super::cpu_pointwise::{Product, Seen, apart, product_named, seen};
use super::geometry::{Geometry, attributes};
use crate::backends::cpu::Operand;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::matmul::MatmulAttributes;
use crate::ops::matmul::cpu_problem::Shared;
use crate::ops::{
    ALIGNMENT, Call, Constraint, Cost, Kernel, KernelError, Operation, OperationKind, ParameterSpace,
    Parameters, Refusal, Refusals, TensorDesc, Traffic, Variant, Workload,
};
use crate::tensor::{DType, Element, Shape, Strides};

/// One of matmul's kernels on written columns.
pub(super) struct Im2col {
    name: &'static str,
    product: Product,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($kernel:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $kernel: Im2col = Im2col {
            name: concat!("cpu::conv::im2col_", $name),
            product: Product::new(|| product_named(concat!("cpu::matmul::", $name))),
            constraints: &[Constraint::Isa(Isa::$isa)],
        };
    )*};
}
kernels! {
    AVX512_PACKED Avx512 "avx512_packed";
    AVX2_PACKED Avx2 "avx2_packed";
    NEON_PACKED Neon "neon_packed";
    PORTABLE_PACKED Portable "portable_packed";
}

thread_local! {
    /// The latest product: a decision asks the same for every candidate.
    static SEEN: Seen = const { RefCell::new(None) };
}

const NEEDS: &str =
    "a kernel of several elements, not transposed, and weights and outputs of a channel evenly apart";

impl Kernel for Im2col {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_im2col.rs", "geometry.rs") ^ self.product.source()
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn supports(&self, workload: &Workload, device: &DeviceInfo) -> Result<(), Refusals> {
        seen(&SEEN, workload, product_of, |product| match product {
            Some(product) => self.product.supports(product, device),
            None => Err(Refusals::one(Refusal::Shape(NEEDS.into()))),
        })
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = |product: &Workload| self.product.space(product, device);
        seen(&SEEN, workload, product_of, |product| product.map_or_else(ParameterSpace::single, space))
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let product = |product: &Workload| {
            (self.product.cost(product, parameters, device), product.inputs()[0].bytes())
        };
        // Asked for what it supports; anything else would cost what the plain loops do.
        let Some((one, columns)) = seen(&SEEN, workload, product_of, |seen| seen.map(product)) else {
            return super::cpu_reference::REFERENCE.cost(workload, parameters, device);
        };
        let g = Geometry::of(workload);
        let products = g.n * g.groups;
        let times = products as f64;
        // Every element of the columns is read from the image and written.
        let written = Traffic::pass(2.0 * columns as f64, columns as f64, &device.caches);
        let sum = one.traffic + written;
        let traffic = Traffic {
            l1: times * sum.l1,
            l2: times * sum.l2,
            l3: times * sum.l3,
            memory: times * sum.memory,
        };
        let forks = (one.forks + u32::from(one.threads > 1)).saturating_mul(products as u32);
        // Apart from runs of neighbours, elements are copied one at a time: a load and a store in the time of two vectors.
        let size = workload.outputs()[0].dtype.size();
        let lanes = one.unit.isa.map_or(1, |isa| isa.register_bytes() / size) as f64;
        let elements = (g.c * g.taps() * g.pixels()) as f64;
        let copied = if g.stride[2] as isize * g.x[4] == 1 { 0.0 } else { elements * 2.0 * lanes };
        Cost {
            operations: times * (one.operations + copied),
            traffic,
            forks,
            scratch: one.scratch + columns + ALIGNMENT * g.c * g.taps(),
            ..one
        }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => self.convolve::<f32>(call),
            DType::F64 => self.convolve::<f64>(call),
            other => Err(KernelError(format!("{other} is not computed by this kernel").into())),
        }
    }
}

impl Im2col {
    fn convolve<T: Element + Default>(&self, call: &Call<'_>) -> Result<(), KernelError> {
        let product =
            product_of(call.workload).ok_or_else(|| KernelError(format!("needs {NEEDS}").into()))?;
        let g = Geometry::of(call.workload);
        if g.is_empty() {
            return Ok(());
        }
        let (k, pitch, device) = (g.c * g.taps(), pitch::<T>(&g), call.cpu());
        let threads = call.parameters.threads().min(device.threads().threads());
        let mut scratch = device.scratch(k * pitch * size_of::<T>())?;
        let columns = Shared(scratch.as_mut_ptr().cast::<T>());
        let x = call.inputs[0].ptr::<T>();
        let bias = attributes(call.workload).bias;
        for index in 0..g.n * g.groups {
            let (n, group) = ((index / g.groups) as isize, index % g.groups);
            let channels = (group * g.o) as isize;
            let image = n * g.x[0] + (group * g.c) as isize * g.x[1];
            let x = Shared(x.wrapping_offset(image).cast_mut());
            let (rows, tasks) = (Rows { g: &g, x, to: columns, pitch }, k.min(4 * threads));
            device.threads().run(threads, tasks, &|task| {
                (k * task / tasks..k * (task + 1) / tasks).for_each(|step| rows.write(step));
            });
            let weights = call.inputs[1].ptr::<T>().wrapping_offset(group as isize * g.w[0]);
            let to = call.outputs[0].ptr_mut::<T>().wrapping_offset(n * g.y[0] + channels * g.y[1]);
            let mut pointers: ArrayVec<*mut u8, 4> = ArrayVec::new();
            pointers.push(columns.at(0).cast());
            pointers.push(weights.cast_mut().cast());
            if let Some(bias) = call.inputs.get(2).filter(|_| bias).map(Operand::ptr::<T>) {
                pointers.push(bias.wrapping_offset(channels * g.bias).cast_mut().cast());
            }
            pointers.push(to.cast());
            self.product.launch(&mut Call::new(&product, call.parameters, &pointers, device))?;
        }
        Ok(())
    }
}

/// Elements from one row of the columns to the next: rows start a line.
fn pitch<T>(g: &Geometry) -> usize {
    g.pixels().next_multiple_of(ALIGNMENT / size_of::<T>())
}

/// The product of one image's columns with one group's weights.
fn product_of(workload: &Workload) -> Option<Workload> {
    let (g, attributes) = (Geometry::of(workload), attributes(workload));
    let single = g.taps() == 1 && g.stride == [1; 3];
    if single || attributes.transposed {
        return None;
    }
    let (inputs, output) = (workload.inputs(), &workload.outputs()[0]);
    let [_, _, c, kd, kh, kw] = g.w;
    let step = apart(&[g.c, g.kernel[0], g.kernel[1], g.kernel[2]], &[c, kd, kh, kw])?;
    let pixel = apart(&g.output, &g.y[2..])?;
    let desc = |of: &TensorDesc, shape: &[usize], strides: &[isize], aligned: bool| {
        let (shape, strides) = (Shape::new(shape).ok()?, Strides::new(strides).ok()?);
        Some(TensorDesc { dtype: of.dtype, shape, strides, aligned })
    };
    let (k, pixels, size) = (g.c * g.taps(), g.pixels(), output.dtype.size());
    let pitch = pixels.next_multiple_of(ALIGNMENT / size) as isize;
    // Of several images or groups, all must start a line.
    let even = |steps: &[(usize, isize)]| {
        steps.iter().all(|&(n, step)| n == 1 || (step.unsigned_abs() * size).is_multiple_of(ALIGNMENT))
    };
    let group = g.o as isize;
    let mut operands: ArrayVec<TensorDesc, 3> = ArrayVec::new();
    operands.push(desc(&inputs[0], &[1, pixels, k], &[0, 1, pitch], true)?);
    let weights = inputs[1].aligned && even(&[(g.groups, g.w[0])]);
    operands.push(desc(&inputs[1], &[1, k, g.o], &[0, step, g.w[1]], weights)?);
    if attributes.bias {
        let aligned = inputs[2].aligned && even(&[(g.groups, group * g.bias)]);
        operands.push(desc(&inputs[2], &[g.o], &[g.bias], aligned)?);
    }
    let aligned = output.aligned && even(&[(g.n, g.y[0]), (g.groups, group * g.y[1])]);
    let to = desc(output, &[1, pixels, g.o], &[0, pixel, g.y[1]], aligned)?;
    let fused = MatmulAttributes { bias: attributes.bias, activation: attributes.activation };
    Some(Workload::new(Operation::Matmul(fused), &operands, &[to]))
}

/// Rows of the columns: what one weight meets in all outputs.
struct Rows<'a, T> {
    g: &'a Geometry,
    /// The image's first element in the group.
    x: Shared<T>,
    to: Shared<T>,
    pitch: usize,
}

impl<T: Element + Default> Rows<'_, T> {
    fn write(&self, step: usize) {
        let g = self.g;
        let [_, kh, kw] = g.kernel;
        let (c, tap) = (step / g.taps(), step % g.taps());
        let shift = |axis: usize, k: usize| (k * g.dilation[axis]) as isize - g.before[axis];
        let [z, y, x] = [shift(0, tap / (kh * kw)), shift(1, tap / kw % kh), shift(2, tap % kw)];
        let first = ceiling(-x, g.stride[2]).clamp(0, g.output[2] as isize) as usize;
        let end = ceiling(g.input[2] as isize - x, g.stride[2]).clamp(first as isize, g.output[2] as isize);
        let inside = |axis: usize, at: usize, shift: isize| {
            let place = (at * g.stride[axis]) as isize + shift;
            (place >= 0 && place < g.input[axis] as isize).then_some(place * g.x[2 + axis])
        };
        let mut to = self.to.at(step * self.pitch);
        for row in 0..g.output[0] * g.output[1] {
            let places = (inside(0, row / g.output[1], z), inside(1, row % g.output[1], y));
            // SAFETY: the row of the columns has a place for every output.
            let line = unsafe { std::slice::from_raw_parts_mut(to, g.output[2]) };
            if let (Some(z), Some(y)) = places {
                let from = self.x.at(0).wrapping_offset(c as isize * g.x[1] + z + y).cast_const();
                line[..first].fill(T::default());
                line[end as usize..].fill(T::default());
                // SAFETY: the columns between are inside the input.
                unsafe { self.copy(from, x, first, &mut line[first..end as usize]) };
            } else {
                line.fill(T::default());
            }
            to = to.wrapping_add(g.output[2]);
        }
    }

    /// # Safety
    /// The outputs from `first` on meet elements of the row at `from`.
    unsafe fn copy(&self, from: *const T, shift: isize, first: usize, to: &mut [T]) {
        let g = self.g;
        let step = g.stride[2] as isize * g.x[4];
        let from = from.wrapping_offset((first as isize * g.stride[2] as isize + shift) * g.x[4]);
        if step == 1 {
            // SAFETY: the caller's promise; the columns are memory of their own.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
            return;
        }
        for (i, to) in to.iter_mut().enumerate() {
            // SAFETY: the caller's promise.
            *to = unsafe { *from.offset(i as isize * step) };
        }
    }
}

fn ceiling(a: isize, b: usize) -> isize {
    a.div_euclid(b as isize) + isize::from(a.rem_euclid(b as isize) != 0)
}
