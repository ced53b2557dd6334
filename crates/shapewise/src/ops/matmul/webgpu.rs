//! The matrix product on WebGPU: its kernels, and what they all read from a workload.

#[path = "webgpu_naive.rs"]
mod naive;
#[path = "webgpu_registers.rs"]
mod registers;
#[path = "webgpu_shared.rs"]
mod shared;
#[path = "webgpu_split_k.rs"]
mod split_k;
#[path = "webgpu_subgroup.rs"]
mod subgroup;
#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;

use std::fmt::Write;

use super::MatmulAttributes;
use crate::backends::webgpu::wgsl::{Checks, Numbers, Wgsl, activation, element, span, stride};
use crate::backends::webgpu::{Place, Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::ops::{Activation, Knob, Operation, ParameterSpace, Parameters, Workload};
use crate::tensor::DType;

/// Every WebGPU kernel; the plain one, which takes everything that the others take, last.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] = &[
    &subgroup::Subgroup,
    &registers::Registers,
    &split_k::SplitK,
    &shared::Shared,
    &naive::TILED,
    &naive::NAIVE,
];

/// The points of a product inside another operation: the first `kernels` that take it, by their places in the list (`Knob::Plan`), each at its
/// favourite and at points spread over its own space, at most `points` of each.
pub(crate) fn points_of(
    product: &Workload,
    limits: &WebGpuLimits,
    kernels: usize,
    points: usize,
) -> ParameterSpace {
    let takes = (0u32..).zip(WEBGPU_KERNELS).filter(|(_, kernel)| kernel.supports(product, limits).is_ok());
    takes.take(kernels).fold(ParameterSpace::default(), |space, (i, kernel)| {
        let own = kernel.space(product, limits);
        let step = own.points().len().div_ceil(points).max(1);
        own.points().iter().step_by(step).fold(space, |space, point| {
            space.and(ParameterSpace::single().axis(Knob::Plan, &[i]).with(point))
        })
    })
}

/// The plan of a product at one of [`points_of`]; at its kernel's favourite where the point has nothing to say.
pub(crate) fn plan_of(product: &Workload, parameters: &Parameters, limits: &WebGpuLimits) -> Option<Plan> {
    let kernel = WEBGPU_KERNELS[parameters.get(Knob::Plan).unwrap_or(0) as usize % WEBGPU_KERNELS.len()];
    let space = kernel.space(product, limits);
    let named = |point: &&Parameters| point.iter().all(|(knob, value)| parameters.get(knob) == Some(value));
    let point = space.points().iter().find(named).or(space.points().first())?;
    Some(kernel.plan(product, point, limits))
}

/// The element types that shaders can read.
const TYPES: &[DType] = &[DType::F32, DType::F16];

/// One axis of products that are alike.
#[derive(Clone, Copy, Debug)]
struct Batch {
    size: usize,
    a: usize,
    b: usize,
    c: usize,
}

/// Sizes and strides of the products of a workload.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Product {
    m: usize,
    n: usize,
    k: usize,
    a: [usize; 2],
    b: [usize; 2],
    c: [usize; 2],
    bias: Option<usize>,
    batch: Vec<Batch>,
    activation: Activation,
    dtype: DType,
    /// Elements of the buffers, whole vectors of which can be read if they are multiples.
    spans: [usize; 3],
}

impl Product {
    fn of(workload: &Workload) -> Self {
        let MatmulAttributes { bias, activation } = match workload.operation() {
            Operation::Matmul(attributes) => *attributes,
            other => unreachable!("the registry gives products only, not {other}"),
        };
        let (inputs, c) = (workload.inputs(), &workload.outputs()[0]);
        let (a, b) = (&inputs[0], &inputs[1]);
        let row = c.shape.len() - 2;
        let mut product = Self {
            m: c.shape[row],
            n: c.shape[row + 1],
            k: a.shape[row + 1],
            a: [stride(a, row), stride(a, row + 1)],
            b: [stride(b, row), stride(b, row + 1)],
            c: [stride(c, row), stride(c, row + 1)],
            bias: bias.then(|| stride(&inputs[2], 0)),
            batch: Vec::new(),
            activation,
            dtype: c.dtype,
            spans: [span(a), span(b), span(c)],
        };
        for i in (0..row).rev() {
            product.add(Batch { size: c.shape[i], a: stride(a, i), b: stride(b, i), c: stride(c, i) });
        }
        product
    }

    /// One more batch axis around the others; those that only lengthen the left operand become rows.
    fn add(&mut self, axis: Batch) {
        if axis.size == 1 {
            return;
        }
        let rows = axis.b == 0 && axis.a == self.a[0] * self.m && axis.c == self.c[0] * self.m;
        if self.batch.is_empty() && rows {
            self.m *= axis.size;
        } else {
            self.batch.push(axis);
        }
    }

    /// Number of products.
    fn count(&self) -> usize {
        self.batch.iter().map(|axis| axis.size).product()
    }

    /// Whether there is nothing to write.
    fn is_empty(&self) -> bool {
        self.m * self.n * self.count() == 0
    }

    /// Whether operands can be read and written four neighbours at a time, along the rows.
    fn by_four(&self) -> bool {
        let whole = |n: usize| n.is_multiple_of(4);
        self.columns_by_four()
            && self.a[1] == 1
            && [self.k, self.a[0], self.spans[0]].into_iter().all(whole)
            && self.batch.iter().all(|axis| whole(axis.a))
    }

    /// Whether columns of the right operand can be read, and of the result written, four neighbours at a time.
    fn columns_by_four(&self) -> bool {
        let whole = |n: usize| n.is_multiple_of(4);
        let [_, b, c] = self.spans;
        self.b[1] == 1
            && self.c[1] == 1
            && [self.n, self.b[0], self.c[0], b, c].into_iter().all(whole)
            && self.batch.iter().all(|axis| whole(axis.b) && whole(axis.c))
    }

    /// Whether the same goes for eight neighbours of the right operand in one load: four 64-bit integers, two numbers in each.
    fn by_eight(&self) -> bool {
        let whole = |n: usize| n.is_multiple_of(8);
        self.by_four()
            && self.dtype == DType::F32
            && [self.n, self.b[0], self.spans[1]].into_iter().all(whole)
            && self.batch.iter().all(|axis| whole(axis.b))
    }

    /// Sizes and strides for the uniform block.
    fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default()
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("a_rs", self.a[0])
            .with("a_cs", self.a[1])
            .with("b_rs", self.b[0])
            .with("b_cs", self.b[1])
            .with("c_rs", self.c[0])
            .with("c_cs", self.c[1])
            .with("bias_cs", self.bias.unwrap_or(0));
        for (i, axis) in self.batch.iter().enumerate() {
            numbers = numbers
                .with(format!("size{i}"), axis.size)
                .with(format!("a{i}"), axis.a)
                .with(format!("b{i}"), axis.b)
                .with(format!("c{i}"), axis.c);
        }
        numbers
    }

    /// Where product `rest` starts in each operand: `a_at`, `b_at`, `c_at`.
    fn starts(&self) -> String {
        let mut text = String::from("var a_at = 0u; var b_at = 0u; var c_at = 0u;\n");
        for i in 0..self.batch.len() {
            let _ = writeln!(
                text,
                "{{ let i = rest % s.size{i}; rest /= s.size{i}; a_at += i * s.a{i}; b_at += i * s.b{i}; c_at += i * s.c{i}; }}"
            );
        }
        text
    }

    /// A shader that binds left operand, right one and result as arrays of vectors of these widths, with the function `finish` of one sum.
    fn shader(&self, label: &str, workgroup: [u32; 3], widths: [u32; 3]) -> Wgsl {
        let [left, right, result] = widths.map(|width| vector(element(self.dtype), width));
        let wgsl = Wgsl::new(label, workgroup).read("a", &left).read("b", &right);
        let wgsl = if self.bias.is_some() { wgsl.read("bias", element(self.dtype)) } else { wgsl };
        wgsl.write("c", &result).numbers(&self.numbers()).with(self.finish())
    }

    /// Bias and activation of a sum in a column.
    fn finish(&self) -> String {
        let bias = if self.bias.is_some() { " + f32(bias[column * s.bias_cs])" } else { "" };
        let function = format!("fn finish(sum: f32, column: u32) -> f32 {{ return activate(sum{bias}); }}\n");
        activation(self.activation) + &function
    }

    /// The buffers that [`Product::shader`] binds.
    fn places(&self) -> Vec<Place> {
        (0..3 + usize::from(self.bias.is_some())).map(Place::Operand).collect()
    }

    /// A plan of one shader over a line of groups.
    fn plan(&self, shader: crate::backends::webgpu::Shader, numbers: &Numbers, groups: usize) -> Plan {
        use crate::backends::webgpu::wgsl::{dispatch, line_of_groups};
        let run = dispatch(0, &self.places(), numbers, line_of_groups(groups));
        Plan { shaders: vec![shader], scratch: vec![], dispatches: vec![run] }
    }

    /// Products and sums, and bytes if tiles of `rows` by `columns` read their operands once each.
    fn cost(&self, rows: usize, columns: usize) -> WebGpuCost {
        let (m, n, k) = (self.m as f64, self.n as f64, self.k as f64);
        let count = self.count() as f64;
        let (down, across) = (m / rows.max(1) as f64, n / columns.max(1) as f64);
        let elements = m * k * across.max(1.0) + k * n * down.max(1.0) + m * n;
        WebGpuCost { operations: 2.0 * count * m * n * k, bytes: count * elements * self.dtype.size() as f64 }
    }
}

/// What all kernels need of a workload.
fn checks<'a>(workload: &'a Workload, limits: &'a WebGpuLimits) -> Checks<'a> {
    Checks::layouts(workload, limits).types(TYPES)
}

/// The name of a vector type; eight numbers are four 64-bit integers, as WGSL has no longer vectors.
fn vector(element: &str, width: u32) -> String {
    match width {
        1 => element.into(),
        8 => "vec4<u64>".into(),
        _ => format!("vec{width}<{element}>"),
    }
}
