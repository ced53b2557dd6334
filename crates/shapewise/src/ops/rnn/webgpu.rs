//! One recurrent layer on WebGPU: all steps' inputs in one matrix product, then a dispatch for each step.

#[cfg(test)]
#[path = "webgpu_tests.rs"]
mod tests;

use std::fmt::Write;

use super::{Cell, RnnAttributes};
use crate::backends::webgpu::wgsl::{
    Checks, FUNCTIONS, GROUP, Numbers, Wgsl, dispatch, fits, line_of_groups, stride,
};
use crate::backends::webgpu::{Dispatch, Place, Plan, Shader, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::matmul::MatmulAttributes;
use crate::ops::matmul::webgpu::WEBGPU_KERNELS as PRODUCTS;
use crate::ops::{
    Activation, Knob, Operation, OperationKind, ParameterSpace, Parameters, Refusals, TensorDesc, Variant,
    Workload,
};
use crate::tensor::{DType, Shape, Strides};

/// Every WebGPU kernel.
pub static WEBGPU_KERNELS: &[&dyn WebGpuKernel] = &[&Projected];

/// `webgpu::rnn::projected`
struct Projected;

/// Scratch memory: the inputs' sums of all steps, both states that take turns, an LSTM's memory.
const SUMS: usize = 0;
const STATES: [usize; 2] = [1, 2];
const MEMORY: usize = 3;
/// The first that the product needs for itself.
const PRODUCT: usize = 4;

/// Copies the first states in.
const BEGIN: &str = "
let index = line * 64u + lane;
if (index >= s.batch * s.hidden) { return; }
let row = index / s.hidden;
let unit = index % s.hidden;
";

/// A layer as shaders see it.
struct Layer<'a> {
    workload: &'a Workload,
    attributes: RnnAttributes,
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    /// Where the weights of the inputs stand; those of the states, and the biases, follow.
    weights: usize,
}

impl<'a> Layer<'a> {
    fn of(workload: &'a Workload) -> Self {
        let attributes = match workload.operation() {
            Operation::Rnn(attributes) => *attributes,
            other => unreachable!("the registry gives recurrent layers only, not {other}"),
        };
        let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
        let weights = if attributes.cell == Cell::Lstm { 3 } else { 2 };
        Self {
            workload,
            attributes,
            steps: x.shape[0],
            batch: x.shape[1],
            input: x.shape[2],
            hidden: y.shape[2],
            weights,
        }
    }

    fn desc(&self, operand: usize) -> &TensorDesc {
        &self.workload.operands()[operand]
    }

    fn is_lstm(&self) -> bool {
        self.attributes.cell == Cell::Lstm
    }

    /// Rows of weights.
    fn lines(&self) -> usize {
        self.attributes.cell.gates() * self.hidden
    }

    fn lengths(&self) -> Option<usize> {
        self.attributes.lengths.then_some(self.weights + 2 + 2 * usize::from(self.attributes.bias))
    }

    /// Number `i` of the outputs as an operand.
    fn output(&self, i: usize) -> usize {
        self.workload.inputs().len() + i
    }

    /// The product of all inputs and the first weights, with their bias.
    fn product(&self) -> Option<Workload> {
        let (x, w) = (self.desc(0), self.desc(self.weights));
        let desc = |shape: [usize; 3], strides: [usize; 3]| {
            let strides = Strides::new(&strides.map(|s| s as isize)).ok()?;
            Some(TensorDesc { dtype: DType::F32, aligned: true, shape: Shape::new(&shape).ok()?, strides })
        };
        let (steps, batch, input, lines) = (self.steps, self.batch, self.input, self.lines());
        let a = desc([steps, batch, input], [0, 1, 2].map(|i| stride(x, i)))?;
        let b = desc([steps, input, lines], [0, stride(w, 1), stride(w, 0)])?;
        let c = desc([steps, batch, lines], [batch * lines, lines, 1])?;
        let attributes = MatmulAttributes { bias: self.attributes.bias, activation: Activation::None };
        let mut inputs = vec![a, b];
        inputs.extend(self.attributes.bias.then(|| *self.desc(self.weights + 2)));
        Some(Workload::new(Operation::Matmul(attributes), &inputs, &[c]))
    }

    fn numbers(&self, step: usize) -> Numbers {
        let w = self.desc(self.weights + 1);
        let mut numbers = Numbers::default()
            .with("step", step)
            .with("batch", self.batch)
            .with("hidden", self.hidden)
            .with("w_row", stride(w, 0))
            .with("w_column", stride(w, 1));
        if self.attributes.bias {
            numbers = numbers.with("b_step", stride(self.desc(self.weights + 3), 0));
        }
        if let Some(at) = self.lengths() {
            numbers = numbers.with("length_step", stride(self.desc(at), 0));
        }
        for (name, operand) in [("h", 1), ("last", self.output(1))] {
            let desc = self.desc(operand);
            numbers = numbers
                .with(format!("{name}_row"), stride(desc, 0))
                .with(format!("{name}_unit"), stride(desc, 1));
        }
        if self.is_lstm() {
            for (name, operand) in [("c", 2), ("memory", self.output(2))] {
                let desc = self.desc(operand);
                numbers = numbers
                    .with(format!("{name}_row"), stride(desc, 0))
                    .with(format!("{name}_unit"), stride(desc, 1));
            }
        }
        let y = self.desc(self.output(0));
        (0..3).fold(numbers, |n, i| n.with(format!("y{i}"), stride(y, i)))
    }

    fn shader(&self, what: &str, x: u32) -> Wgsl {
        Wgsl::new(format!("webgpu::rnn::projected: {what}"), [x, 1, 1]).numbers(&self.numbers(0))
    }

    /// The first states into scratch memory.
    fn begin(&self) -> (Shader, Vec<Place>) {
        let mut body = format!("{GROUP}{BEGIN}state[index] = h[row * s.h_row + unit * s.h_unit];\n");
        let (mut wgsl, mut places) = (self.shader("begin", 64).read("h", "f32"), vec![Place::Operand(1)]);
        if self.is_lstm() {
            wgsl = wgsl.read("c", "f32");
            places.push(Place::Operand(2));
            body.push_str("memory[index] = c[row * s.c_row + unit * s.c_unit];\n");
        }
        places.push(Place::Scratch(STATES[0]));
        wgsl = wgsl.write("state", "f32");
        if self.is_lstm() {
            wgsl = wgsl.write("memory", "f32");
            places.push(Place::Scratch(MEMORY));
        }
        (wgsl.main(body), places)
    }

    /// The last states out of scratch memory.
    fn end(&self) -> (Shader, Vec<Place>) {
        let mut body = format!("{GROUP}{BEGIN}h[row * s.last_row + unit * s.last_unit] = state[index];\n");
        let mut wgsl = self.shader("end", 64).read("state", "f32");
        let mut places = vec![Place::Scratch(STATES[self.steps % 2])];
        if self.is_lstm() {
            wgsl = wgsl.read("memory", "f32");
            places.push(Place::Scratch(MEMORY));
            body.push_str("c[row * s.memory_row + unit * s.memory_unit] = memory[index];\n");
        }
        wgsl = wgsl.write("h", "f32");
        places.push(Place::Operand(self.output(1)));
        if self.is_lstm() {
            wgsl = wgsl.write("c", "f32");
            places.push(Place::Operand(self.output(2)));
        }
        (wgsl.main(body), places)
    }

    /// One step; the places of its states are put in for each.
    fn step(&self, x: u32) -> Shader {
        let mut wgsl = self.shader("step", x).read("sums", "f32").read("w", "f32");
        if self.attributes.bias {
            wgsl = wgsl.read("b", "f32");
        }
        if self.attributes.lengths {
            wgsl = wgsl.read("lengths", "u32");
        }
        wgsl = wgsl.read("before", "f32").write("after", "f32").write("y", "f32");
        if self.is_lstm() {
            wgsl = wgsl.write("memory", "f32");
        }
        wgsl.with(FUNCTIONS)
            .with("fn sigmoid(x: f32) -> f32 { return 1.0 / (1.0 + exp(-x)); }")
            .main(self.body(x))
    }

    fn body(&self, x: u32) -> String {
        let gates = self.attributes.cell.gates();
        let mut text = format!(
            "{GROUP}let index = line * {x}u + lane;\nif (index >= s.batch * s.hidden) {{ return; }}\n\
             let row = index / s.hidden; let unit = index % s.hidden;\nlet old = before[index];\n"
        );
        for g in 0..gates {
            let bias = if self.attributes.bias {
                format!("b[({g}u * s.hidden + unit) * s.b_step]")
            } else {
                "0.0".into()
            };
            let _ = writeln!(
                text,
                "var own{g} = {bias};\nlet w{g} = ({g}u * s.hidden + unit) * s.w_row;\n\
                 let given{g} = sums[(s.step * s.batch + row) * {gates}u * s.hidden + {g}u * s.hidden + unit];"
            );
        }
        text.push_str("for (var i = 0u; i < s.hidden; i++) {\nlet h = before[row * s.hidden + i];\n");
        for g in 0..gates {
            let _ = writeln!(text, "own{g} += w[w{g} + i * s.w_column] * h;");
        }
        text.push_str("}\n");
        text.push_str(match self.attributes.cell {
            Cell::Tanh => "let h = hyperbolic_tangent(given0 + own0);\n",
            Cell::Relu => "let h = select(given0 + own0, 0.0, given0 + own0 < 0.0);\n",
            Cell::Gru => {
                "let r = sigmoid(given0 + own0); let z = sigmoid(given1 + own1);\n\
                 let n = hyperbolic_tangent(given2 + r * own2);\nlet h = n + z * (old - n);\n"
            }
            Cell::Lstm => {
                "let kept = memory[index];\nlet c = sigmoid(given1 + own1) * kept + sigmoid(given0 + own0) * hyperbolic_tangent(given2 + own2);\n\
                 let h = sigmoid(given3 + own3) * hyperbolic_tangent(c);\n"
            }
        });
        let counts = if self.attributes.lengths { "s.step < lengths[row * s.length_step]" } else { "true" };
        let _ = writeln!(
            text,
            "let counts = {counts};\nafter[index] = select(old, h, counts);\n\
             y[s.step * s.y0 + row * s.y1 + unit * s.y2] = select(0.0, h, counts);"
        );
        if self.is_lstm() {
            text.push_str("memory[index] = select(kept, c, counts);\n");
        }
        text
    }

    /// The dispatch of the `i`-th step that is computed.
    fn at(&self, i: usize, shader: usize, groups: [u32; 3]) -> Dispatch {
        let step = if self.attributes.reverse { self.steps - 1 - i } else { i };
        let mut places = vec![Place::Scratch(SUMS), Place::Operand(self.weights + 1)];
        places.extend(self.attributes.bias.then_some(Place::Operand(self.weights + 3)));
        places.extend(self.lengths().map(Place::Operand));
        places.extend([
            Place::Scratch(STATES[i % 2]),
            Place::Scratch(STATES[(i + 1) % 2]),
            Place::Operand(self.output(0)),
        ]);
        places.extend(self.is_lstm().then_some(Place::Scratch(MEMORY)));
        dispatch(shader, &places, &self.numbers(step), groups)
    }
}

impl Projected {
    /// The product's dispatches with this plan's places instead of its own.
    fn projection(layer: &Layer<'_>, parameters: &Parameters, limits: &WebGpuLimits) -> Plan {
        let Some(product) = layer.product() else { return Plan::default() };
        let kernel = PRODUCTS[parameters.get(Knob::Plan).unwrap_or(0) as usize % PRODUCTS.len()];
        let space = kernel.space(&product, limits);
        let Some(point) = space.points().first() else { return Plan::default() };
        let mut plan = kernel.plan(&product, point, limits);
        let output = product.inputs().len();
        for place in plan.dispatches.iter_mut().flat_map(|d| &mut d.places) {
            *place = match *place {
                Place::Operand(0) => Place::Operand(0),
                Place::Operand(i) if i == output => Place::Scratch(SUMS),
                Place::Operand(1) => Place::Operand(layer.weights),
                Place::Operand(_) => Place::Operand(layer.weights + 2),
                Place::Scratch(i) => Place::Scratch(PRODUCT + i),
            };
        }
        plan
    }
}

impl WebGpuKernel for Projected {
    fn name(&self) -> &'static str {
        "webgpu::rnn::projected"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Rnn
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn source(&self) -> u64 {
        PRODUCTS.iter().fold(source_hash!("webgpu.rs"), |hash, kernel| hash.rotate_left(7) ^ kernel.source())
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let layer = Layer::of(workload);
        let sums = 4 * (layer.steps * layer.batch * layer.lines()) as u64;
        let taken = layer.product().is_some_and(|p| PRODUCTS.iter().any(|k| k.supports(&p, limits).is_ok()));
        let reals = workload
            .operands()
            .iter()
            .enumerate()
            .all(|(i, o)| o.dtype == DType::F32 || Some(i) == layer.lengths());
        let a = layer.attributes;
        Checks::layouts(workload, limits)
            .bindings(5 + usize::from(a.bias) + usize::from(a.lengths) + usize::from(layer.is_lstm()))
            .needs(reals, "f32")
            .needs(
                taken || layer.input == 0 || layer.steps * layer.batch == 0,
                "a product that the device can run",
            )
            .needs(sums <= limits.storage_binding.min(limits.buffer), "the sums of all steps in one buffer")
            .needs(fits(limits, [64, 1, 1], 0), "workgroups of 64")
            .turns(layer.hidden)
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let Some(product) = Layer::of(workload).product() else { return ParameterSpace::single() };
        let takes: Vec<u32> = (0..PRODUCTS.len() as u32)
            .filter(|&i| PRODUCTS[i as usize].supports(&product, limits).is_ok())
            .take(3)
            .collect();
        ParameterSpace::single()
            .axis(Knob::Plan, if takes.is_empty() { &[0] } else { &takes })
            .axis(Knob::WorkgroupX, &[64, 8])
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        let layer = Layer::of(workload);
        let rows = (layer.steps * layer.batch * layer.lines()) as f64;
        let (input, hidden) = (layer.input as f64, layer.hidden as f64);
        // The weights of the states come from memory at every step, the others once.
        let again = (layer.steps * layer.lines()) as f64 * hidden * 4.0;
        WebGpuCost {
            operations: 2.0 * rows * (input + hidden),
            bytes: workload.bytes() as f64 + again + 8.0 * rows,
        }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, limits: &WebGpuLimits) -> Plan {
        let layer = Layer::of(workload);
        if layer.batch * layer.hidden == 0 {
            return Plan::default();
        }
        let x = parameters.get(Knob::WorkgroupX).unwrap_or(64);
        let states = layer.batch * layer.hidden;
        let mut plan = Self::projection(&layer, parameters, limits);
        let bytes = |n: usize| 4 * n.max(1) as u64;
        let own =
            [bytes(layer.steps * layer.batch * layer.lines()), bytes(states), bytes(states), bytes(states)];
        plan.scratch = own.into_iter().chain(plan.scratch).collect();
        let first = plan.shaders.len();
        let (begin, begin_places) = layer.begin();
        let (end, end_places) = layer.end();
        plan.shaders.extend([begin, layer.step(x), end]);
        let over = |width: u32| line_of_groups(states.div_ceil(width as usize));
        plan.dispatches.push(dispatch(first, &begin_places, &layer.numbers(0), over(64)));
        plan.dispatches.extend((0..layer.steps).map(|i| layer.at(i, first + 1, over(x))));
        plan.dispatches.push(dispatch(first + 2, &end_places, &layer.numbers(0), over(64)));
        plan
    }
}
