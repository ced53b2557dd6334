//! All steps' inputs in one matrix product, then a dispatch for each step.

use std::fmt::Write;

use super::layer::{Carried, Layer};
use crate::backends::webgpu::wgsl::{Checks, GROUP, Wgsl, dispatch, fits, line_of_groups, stride};
use crate::backends::webgpu::{Dispatch, Place, Plan, Shader, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::matmul::MatmulAttributes;
use crate::ops::matmul::webgpu::{WEBGPU_KERNELS as PRODUCTS, plan_of};
use crate::ops::{
    Activation, Knob, Operation, OperationKind, ParameterSpace, Parameters, Refusals, TensorDesc, Variant,
    Workload,
};
use crate::tensor::{DType, Shape, Strides};

/// `webgpu::rnn::projected`
pub(super) struct Projected;

/// Scratch memory: the inputs' sums of all steps, both states that take turns, an LSTM's memory.
const SUMS: usize = 0;
const STATES: [usize; 2] = [1, 2];
const MEMORY: usize = 3;
/// The first that the product needs for itself.
const PRODUCT: usize = 4;

impl Projected {
    /// The product of all inputs and the first weights, with their bias.
    fn product(layer: &Layer<'_>) -> Option<Workload> {
        let (x, w) = (layer.desc(0), layer.desc(layer.weights));
        let desc = |shape: [usize; 3], strides: [usize; 3]| {
            let strides = Strides::new(&strides.map(|s| s as isize)).ok()?;
            Some(TensorDesc { dtype: DType::F32, aligned: true, shape: Shape::new(&shape).ok()?, strides })
        };
        let (steps, batch, input, lines) = (layer.steps, layer.batch, layer.input, layer.lines());
        let a = desc([steps, batch, input], [0, 1, 2].map(|i| stride(x, i)))?;
        let b = desc([steps, input, lines], [0, stride(w, 1), stride(w, 0)])?;
        let c = desc([steps, batch, lines], [batch * lines, lines, 1])?;
        let attributes = MatmulAttributes { bias: layer.attributes.bias, activation: Activation::None };
        let mut inputs = vec![a, b];
        inputs.extend(layer.attributes.bias.then(|| *layer.desc(layer.weights + 2)));
        Some(Workload::new(Operation::Matmul(attributes), &inputs, &[c]))
    }

    /// The product's dispatches with this plan's places instead of its own.
    fn projection(layer: &Layer<'_>, parameters: &Parameters, limits: &WebGpuLimits) -> Plan {
        let Some(product) = Self::product(layer) else { return Plan::default() };
        let Some(mut plan) = plan_of(&product, parameters, limits) else { return Plan::default() };
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

    /// Whether weights and states can be read four neighbours at a time.
    fn by_four(layer: &Layer<'_>) -> bool {
        let w = layer.desc(layer.weights + 1);
        stride(w, 1) == 1 && stride(w, 0).is_multiple_of(4) && layer.hidden.is_multiple_of(4)
    }

    /// One step, `vector` elements a load; the places of its states are put in for each.
    fn step(&self, layer: &Layer<'_>, x: u32, vector: u32) -> Shader {
        let element = if vector == 4 { "vec4<f32>" } else { "f32" };
        let mut wgsl = Wgsl::new(format!("{}: step", self.name()), [x, 1, 1])
            .numbers(&layer.numbers(0))
            .read("sums", "f32")
            .read("w", element);
        if layer.attributes.bias {
            wgsl = wgsl.read("b", "f32");
        }
        if layer.attributes.lengths {
            wgsl = wgsl.read("lengths", "u32");
        }
        wgsl = wgsl.read("before", element).write("after", "f32").write("y", "f32");
        if layer.is_lstm() {
            wgsl = wgsl.write("memory", "f32");
        }
        wgsl.with(Layer::functions()).main(Self::body(layer, x, vector))
    }

    fn body(layer: &Layer<'_>, x: u32, vector: u32) -> String {
        let gates = layer.attributes.cell.gates();
        let old = if vector == 4 { "before[index / 4u][index % 4u]" } else { "before[index]" };
        let mut text = format!(
            "{GROUP}let index = line * {x}u + lane;\nif (index >= s.batch * s.hidden) {{ return; }}\n\
             let row = index / s.hidden; let unit = index % s.hidden;\nlet old = {old};\n"
        );
        for g in 0..gates {
            let bias = if layer.attributes.bias {
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
        if vector == 4 {
            text.push_str(
                "for (var i = 0u; i < s.hidden; i += 4u) {\nlet h = before[(row * s.hidden + i) / 4u];\n",
            );
        } else {
            text.push_str("for (var i = 0u; i < s.hidden; i++) {\nlet h = before[row * s.hidden + i];\n");
        }
        for g in 0..gates {
            let _ = if vector == 4 {
                writeln!(text, "own{g} += dot(w[(w{g} + i) / 4u], h);")
            } else {
                writeln!(text, "own{g} += w[w{g} + i * s.w_column] * h;")
            };
        }
        text.push_str("}\n");
        if layer.is_lstm() {
            text.push_str("let kept = memory[index];\n");
        }
        text.push_str(&layer.cell(""));
        let counts = if layer.attributes.lengths { "s.step < lengths[row * s.length_step]" } else { "true" };
        let _ = writeln!(
            text,
            "let counts = {counts};\nafter[index] = select(old, h, counts);\n\
             y[s.step * s.y0 + row * s.y1 + unit * s.y2] = select(0.0, h, counts);"
        );
        if layer.is_lstm() {
            text.push_str("memory[index] = select(kept, c, counts);\n");
        }
        text
    }

    /// The dispatch of the `i`-th step that is computed.
    fn at(layer: &Layer<'_>, i: usize, shader: usize, groups: [u32; 3]) -> Dispatch {
        let step = if layer.attributes.reverse { layer.steps - 1 - i } else { i };
        let mut places = vec![Place::Scratch(SUMS), Place::Operand(layer.weights + 1)];
        places.extend(layer.attributes.bias.then_some(Place::Operand(layer.weights + 3)));
        places.extend(layer.lengths().map(Place::Operand));
        places.extend([
            Place::Scratch(STATES[i % 2]),
            Place::Scratch(STATES[(i + 1) % 2]),
            Place::Operand(layer.output(0)),
        ]);
        places.extend(layer.is_lstm().then_some(Place::Scratch(MEMORY)));
        dispatch(shader, &places, &layer.numbers(step), groups)
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
        PRODUCTS.iter().fold(source_hash!("webgpu_projected.rs", "webgpu_layer.rs"), |hash, kernel| {
            hash.rotate_left(7) ^ kernel.source()
        })
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let layer = Layer::of(workload);
        let sums = 4 * (layer.steps * layer.batch * layer.lines()) as u64;
        let taken =
            Self::product(&layer).is_some_and(|p| PRODUCTS.iter().any(|k| k.supports(&p, limits).is_ok()));
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
        let layer = Layer::of(workload);
        let Some(product) = Self::product(&layer) else { return ParameterSpace::single() };
        let takes: Vec<u32> = (0..PRODUCTS.len() as u32)
            .filter(|&i| PRODUCTS[i as usize].supports(&product, limits).is_ok())
            .take(3)
            .collect();
        ParameterSpace::single()
            .axis(Knob::Plan, if takes.is_empty() { &[0] } else { &takes })
            .axis(Knob::WorkgroupX, &[64, 8])
            .axis(Knob::Vector, if Self::by_four(&layer) { &[4, 1] } else { &[1] })
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
        let vector = parameters.get(Knob::Vector).unwrap_or(1);
        let carried = |step: usize| Carried { state: STATES[step % 2], memory: MEMORY };
        let (begin, begin_places) = layer.begin(self.name(), &carried(0));
        let (end, end_places) = layer.end(self.name(), &carried(layer.steps));
        plan.shaders.extend([begin, self.step(&layer, x, vector), end]);
        let over = |width: u32| line_of_groups(states.div_ceil(width as usize));
        plan.dispatches.push(dispatch(first, &begin_places, &layer.numbers(0), over(64)));
        plan.dispatches.extend((0..layer.steps).map(|i| Self::at(&layer, i, first + 1, over(x))));
        plan.dispatches.push(dispatch(first + 2, &end_places, &layer.numbers(0), over(64)));
        plan
    }
}
