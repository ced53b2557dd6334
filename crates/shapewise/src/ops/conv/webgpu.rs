//! Convolution on WebGPU: direct, as an implicit product, one by one, depthwise, and by Winograd's algorithm.

#[path = "webgpu_depthwise.rs"]
mod depthwise;
#[path = "webgpu_direct.rs"]
mod direct;
#[path = "webgpu_implicit.rs"]
mod implicit;
#[path = "webgpu_pointwise.rs"]
mod pointwise;
#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;
#[path = "webgpu_winograd.rs"]
mod winograd;

use super::ConvAttributes;
use crate::backends::webgpu::wgsl::{Checks, Numbers, Wgsl, activation, element, stride};
use crate::backends::webgpu::{Place, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::ops::{Operation, TensorDesc, Workload};
use crate::tensor::DType;

/// Every WebGPU kernel; the one that takes every convolution last.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] = &[
    &pointwise::Pointwise,
    &depthwise::Depthwise,
    &winograd::F4,
    &winograd::F2,
    &implicit::SUBGROUP,
    &implicit::REGISTERS,
    &direct::Direct,
];

/// Sizes and strides of a convolution of three spatial axes.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    attributes: ConvAttributes,
    n: usize,
    groups: usize,
    /// Output and input channels of a group.
    o: usize,
    c: usize,
    input: [usize; 3],
    kernel: [usize; 3],
    output: [usize; 3],
    /// Image, channel, depth, height, width.
    x: [usize; 5],
    /// Group, output channel, input channel, depth, height, width.
    w: [usize; 6],
    y: [usize; 5],
    bias: usize,
    dtype: DType,
}

impl Geometry {
    fn of(workload: &Workload) -> Self {
        let attributes = match workload.operation() {
            Operation::Conv(attributes) => *attributes,
            other => unreachable!("the registry gives convolutions only, not {other}"),
        };
        let (inputs, y) = (workload.inputs(), &workload.outputs()[0]);
        let (x, w) = (&inputs[0], &inputs[1]);
        let spatial = |desc: &TensorDesc, at: usize| [0, 1, 2].map(|axis| desc.shape[at + axis]);
        Self {
            attributes,
            n: x.shape[0],
            groups: w.shape[0],
            o: w.shape[1],
            c: w.shape[2],
            input: spatial(x, 2),
            kernel: spatial(w, 3),
            output: spatial(y, 2),
            x: std::array::from_fn(|i| stride(x, i)),
            w: std::array::from_fn(|i| stride(w, i)),
            y: std::array::from_fn(|i| stride(y, i)),
            bias: if attributes.bias { stride(&inputs[2], 0) } else { 0 },
            dtype: y.dtype,
        }
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Outputs of a channel in all images.
    fn pixels(&self) -> usize {
        self.n * self.output.iter().product::<usize>()
    }

    fn is_empty(&self) -> bool {
        self.pixels() * self.groups * self.o == 0
    }

    /// Whether neighbouring outputs meet neighbouring inputs under neighbouring weights.
    fn is_dense(&self) -> bool {
        let ConvAttributes { stride, dilation, transposed, .. } = self.attributes;
        stride == [1; 3] && dilation == [1; 3] && !transposed
    }

    fn numbers(&self) -> Numbers {
        let a = &self.attributes;
        let mut numbers = Numbers::default()
            .with("images", self.n)
            .with("o", self.o)
            .with("c", self.c)
            .with("groups", self.groups)
            .with("bias_step", self.bias);
        for (axis, name) in ["d", "h", "w"].into_iter().enumerate() {
            numbers = numbers
                .with(format!("in_{name}"), self.input[axis])
                .with(format!("kernel_{name}"), self.kernel[axis])
                .with(format!("out_{name}"), self.output[axis])
                .with(format!("stride_{name}"), a.stride[axis] as usize)
                .with(format!("dilation_{name}"), a.dilation[axis] as usize)
                // Negative where elements are skipped: the bits are those of an i32.
                .with(format!("before_{name}"), a.before[axis] as u32 as usize);
        }
        for (i, &step) in self.x.iter().enumerate() {
            numbers = numbers.with(format!("x{i}"), step).with(format!("y{i}"), self.y[i]);
        }
        for (i, &step) in self.w.iter().enumerate() {
            numbers = numbers.with(format!("w{i}"), step);
        }
        numbers
    }

    /// A shader that binds input, weights, bias and output, with the function `finish` of a sum in a channel.
    fn shader(&self, label: &str, workgroup: [u32; 3]) -> Wgsl {
        let name = element(self.dtype);
        let wgsl = Wgsl::new(label, workgroup).read("x", name).read("w", name);
        let wgsl = if self.attributes.bias { wgsl.read("bias", name) } else { wgsl };
        wgsl.write("y", name).numbers(&self.numbers()).with(self.finish())
    }

    /// Bias and activation of a sum.
    fn finish(&self) -> String {
        let bias = if self.attributes.bias { " + f32(bias[channel * s.bias_step])" } else { "" };
        let name = element(self.dtype);
        activation(self.attributes.activation)
            + &format!(
                "fn finish(sum: f32, channel: u32) -> {name} {{ return {name}(activate(sum{bias})); }}\n"
            )
    }

    /// The buffers that [`Geometry::shader`] binds.
    fn places(&self, workload: &Workload) -> Vec<Place> {
        let mut places: Vec<_> = (0..2 + usize::from(self.attributes.bias)).map(Place::Operand).collect();
        places.push(Place::Operand(workload.inputs().len()));
        places
    }

    /// Products and sums, and bytes if input and weights are read `again` times less than once for each product.
    fn cost(&self, workload: &Workload, again: f64) -> WebGpuCost {
        let sizes = [self.pixels(), self.groups, self.o, self.c, self.taps()];
        let products: f64 = sizes.iter().map(|&n| n as f64).product();
        let loads = 2.0 * products / again * self.dtype.size() as f64;
        WebGpuCost { operations: 2.0 * products, bytes: loads.max(workload.bytes() as f64) }
    }
}

/// What all kernels need of a workload.
fn checks<'a>(workload: &'a Workload, limits: &'a WebGpuLimits) -> Checks<'a> {
    Checks::layouts(workload, limits).types(&[DType::F32, DType::F16])
}
