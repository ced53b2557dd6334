//! All steps in one dispatch: a workgroup for every few rows of the batch, whose states stay in its memory.

use std::fmt::Write;

use super::layer::{Carried, Layer};
use crate::backends::webgpu::wgsl::{
    Checks, GROUP, MOST_TURNS, Numbers, Wgsl, dispatch, element, fits, line_of_groups, stride,
};
use crate::backends::webgpu::{Place, Plan, Shader, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::{Knob, OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};
use crate::tensor::DType;

/// `webgpu::rnn::resident`
pub(super) struct Resident;

/// Scratch memory between the shaders.
const CARRIED: Carried = Carried { state: 0, memory: 1 };

/// A point of the parameter space.
#[derive(Clone, Copy)]
struct Shape {
    /// Invocations of a workgroup.
    x: u32,
    /// Rows of the batch that share a workgroup, and so every load of a weight.
    rows: u32,
    /// Elements of a load.
    vector: u32,
}

impl Shape {
    fn of(parameters: &Parameters) -> Self {
        Self {
            x: parameters.get(Knob::WorkgroupX).unwrap_or(64),
            rows: parameters.get(Knob::TileM).unwrap_or(1),
            vector: parameters.get(Knob::Vector).unwrap_or(1),
        }
    }
}

/// States of a row that the workgroup's memory has room for: layers of about the same size share a shader.
fn room(layer: &Layer<'_>) -> u32 {
    layer.hidden.next_multiple_of(32) as u32
}

/// Bytes of the workgroup's memory: the states before and after a step, and an LSTM's memory.
fn memory(layer: &Layer<'_>, rows: u32) -> u32 {
    4 * rows * room(layer) * (2 + u32::from(layer.is_lstm()))
}

/// Whether everything that is multiplied can be read four neighbours at a time.
fn by_four(layer: &Layer<'_>) -> bool {
    let weights = [layer.desc(layer.weights), layer.desc(layer.weights + 1)];
    let (x, whole) = (layer.desc(0), |n: usize| n.is_multiple_of(4));
    weights.iter().all(|w| stride(w, 1) == 1 && whole(stride(w, 0)))
        && stride(x, 2) == 1
        && whole(stride(x, 0))
        && whole(stride(x, 1))
        && whole(layer.input)
        && whole(layer.hidden)
}

/// The rounds of all loops of an invocation, without vectors.
fn turns(layer: &Layer<'_>, x: usize) -> usize {
    let units = layer.hidden.div_ceil(x);
    layer.steps.saturating_mul(units * (layer.input + layer.hidden + 1) + 1) + 2 * units
}

fn numbers(layer: &Layer<'_>) -> Numbers {
    let (x, w) = (layer.desc(0), layer.desc(layer.weights));
    let numbers = layer
        .numbers(0)
        .with("steps", layer.steps)
        .with("input", layer.input)
        .with("v_row", stride(w, 0))
        .with("v_column", stride(w, 1));
    let numbers = (0..3).fold(numbers, |n, i| n.with(format!("x{i}"), stride(x, i)));
    if layer.attributes.bias {
        numbers.with("a_step", stride(layer.desc(layer.weights + 2), 0))
    } else {
        numbers
    }
}

/// The sums `name` of every gate and row: `weights` from place `start` on times `value`, for `count` elements.
fn products(
    layer: &Layer<'_>,
    shape: Shape,
    name: &str,
    weights: &str,
    count: &str,
    value: &dyn Fn(u32) -> String,
) -> String {
    let Shape { rows, vector, .. } = shape;
    let mut text = format!("for (var i = 0u; i < {count}; i += {vector}u) {{\n");
    for r in 0..rows {
        let _ = writeln!(text, "let f_{r} = {};", value(r));
    }
    for g in 0..layer.attributes.cell.gates() {
        let at = format!("({g}u * s.hidden + unit) * s.{weights}_row");
        let _ = if vector == 4 {
            writeln!(text, "let t{g} = vec4<f32>({weights}[({at} + i) / 4u]);")
        } else {
            writeln!(text, "let t{g} = f32({weights}[{at} + i * s.{weights}_column]);")
        };
        for r in 0..rows {
            let _ = if vector == 4 {
                writeln!(text, "{name}{g}_{r} += dot(t{g}, f_{r});")
            } else {
                writeln!(text, "{name}{g}_{r} += t{g} * f_{r};")
            };
        }
    }
    text + "}\n"
}

/// One unit of every row at one step.
fn unit(layer: &Layer<'_>, shape: Shape) -> String {
    let (rows, vector, room) = (shape.rows, shape.vector, room(layer));
    let real = element(layer.dtype());
    let mut text = String::new();
    for g in 0..layer.attributes.cell.gates() {
        let bias = |name: &str| {
            let at = format!("({g}u * s.hidden + unit) * s.{name}_step");
            if layer.attributes.bias { format!("f32({name}[{at}])") } else { "0.0".into() }
        };
        let _ = writeln!(text, "let first_given{g} = {}; let first_own{g} = {};", bias("a"), bias("b"));
        for r in 0..rows {
            let _ = writeln!(text, "var given{g}_{r} = first_given{g}; var own{g}_{r} = first_own{g};");
        }
    }
    let from_x = |r: u32| {
        let start = format!("step * s.x0 + row_{r} * s.x1");
        if vector == 4 {
            format!("vec4<f32>(x[({start} + i) / 4u])")
        } else {
            format!("f32(x[{start} + i * s.x2])")
        }
    };
    text.push_str(&products(layer, shape, "given", "v", "s.input", &from_x));
    let held = |r: u32| {
        let one = |c: u32| format!("held[now + {}u + i]", r * room + c);
        if vector == 4 {
            format!("vec4<f32>({})", (0..4).map(one).collect::<Vec<_>>().join(", "))
        } else {
            one(0)
        }
    };
    text.push_str(&products(layer, shape, "own", "w", "s.hidden", &held));
    for r in 0..rows {
        let at = r * room;
        let _ = writeln!(text, "let old_{r} = held[now + {at}u + unit];");
        if layer.is_lstm() {
            let _ = writeln!(text, "let kept_{r} = memory_held[{at}u + unit];");
        }
        text.push_str(&layer.cell(&format!("_{r}")));
        let counts = if layer.attributes.lengths {
            format!("step < lengths[row_{r} * s.length_step]")
        } else {
            "true".into()
        };
        let _ = writeln!(
            text,
            "let counts_{r} = {counts};\nheld[next + {at}u + unit] = select(old_{r}, h_{r}, counts_{r});\n\
             y[step * s.y0 + row_{r} * s.y1 + unit * s.y2] = {real}(select(0.0, h_{r}, counts_{r}));"
        );
        if layer.is_lstm() {
            let _ = writeln!(text, "memory_held[{at}u + unit] = select(kept_{r}, c_{r}, counts_{r});");
        }
    }
    text
}

/// Every row's state between the workgroup's memory and scratch memory.
fn carry(layer: &Layer<'_>, shape: Shape, text: &mut String, line: impl Fn(&str, &str) -> String) {
    let _ = writeln!(text, "for (var unit = lane; unit < s.hidden; unit += {}u) {{", shape.x);
    for r in 0..shape.rows {
        let (own, shared) = (format!("row_{r} * s.hidden + unit"), format!("{}u + unit", r * room(layer)));
        text.push_str(&line(&own, &shared));
    }
    text.push_str("}\n");
}

impl Resident {
    fn body(layer: &Layer<'_>, shape: Shape) -> String {
        let Shape { x, rows, .. } = shape;
        let half = rows * room(layer);
        let lstm = layer.is_lstm();
        let mut text = format!("{GROUP}let first = line * {rows}u;\nif (first >= s.batch) {{ return; }}\n");
        for r in 0..rows {
            // Rows beyond the last one are the last one again, computed and written alike.
            let _ = writeln!(text, "let row_{r} = min(first + {r}u, s.batch - 1u);");
        }
        carry(layer, shape, &mut text, |own, shared| {
            let more = if lstm { format!("memory_held[{shared}] = memory[{own}];\n") } else { String::new() };
            format!("held[{shared}] = state[{own}];\n{more}")
        });
        let step = if layer.attributes.reverse { "s.steps - 1u - turn" } else { "turn" };
        let _ = writeln!(
            text,
            "var now = 0u;\nworkgroupBarrier();\nfor (var turn = 0u; turn < s.steps; turn++) {{\nlet step = {step};\n\
             let next = {half}u - now;\nfor (var unit = lane; unit < s.hidden; unit += {x}u) {{\n{}}}\n\
             now = next;\nworkgroupBarrier();\n}}",
            unit(layer, shape)
        );
        carry(layer, shape, &mut text, |own, shared| {
            let more = if lstm { format!("memory[{own}] = memory_held[{shared}];\n") } else { String::new() };
            format!("state[{own}] = held[now + {shared}];\n{more}")
        });
        text
    }

    fn shader(&self, layer: &Layer<'_>, shape: Shape) -> (Shader, Vec<Place>) {
        let real = element(layer.dtype());
        let many = if shape.vector == 4 { format!("vec4<{real}>") } else { real.into() };
        let mut wgsl = Wgsl::new(self.name(), [shape.x, 1, 1])
            .numbers(&numbers(layer))
            .read("x", &many)
            .read("v", &many)
            .read("w", &many);
        let mut places = vec![0, layer.weights, layer.weights + 1];
        if layer.attributes.bias {
            wgsl = wgsl.read("a", real).read("b", real);
            places.extend([layer.weights + 2, layer.weights + 3]);
        }
        if let Some(lengths) = layer.lengths() {
            wgsl = wgsl.read("lengths", "u32");
            places.push(lengths);
        }
        wgsl = wgsl.write("y", real).write("state", "f32").shared(
            "held",
            "f32",
            4,
            2 * shape.rows * room(layer),
        );
        places.push(layer.output(0));
        let mut places: Vec<_> = places.into_iter().map(Place::Operand).collect();
        places.push(Place::Scratch(CARRIED.state));
        if layer.is_lstm() {
            wgsl = wgsl.write("memory", "f32").shared("memory_held", "f32", 4, shape.rows * room(layer));
            places.push(Place::Scratch(CARRIED.memory));
        }
        (wgsl.with(Layer::functions()).main(Self::body(layer, shape)), places)
    }
}

impl WebGpuKernel for Resident {
    fn name(&self) -> &'static str {
        "webgpu::rnn::resident"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Rnn
    }

    fn variant(&self) -> Variant {
        Variant::Fused
    }

    fn source(&self) -> u64 {
        source_hash!("webgpu_resident.rs", "webgpu_layer.rs")
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let layer = Layer::of(workload);
        let real = layer.dtype();
        let alike = workload
            .operands()
            .iter()
            .enumerate()
            .all(|(i, o)| o.dtype == real || Some(i) == layer.lengths());
        let a = layer.attributes;
        let lstm = usize::from(layer.is_lstm());
        let there = real == DType::F32 || (real == DType::F16 && limits.f16);
        Checks::layouts(workload, limits)
            .bindings(5 + 2 * usize::from(a.bias) + usize::from(a.lengths) + lstm)
            .needs(there && alike, "f32, or f16 where the device has it")
            .needs(
                fits(limits, [64, 1, 1], memory(&layer, 1)),
                "states of a row that the workgroup's memory holds",
            )
            .turns(turns(&layer, 64))
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let layer = Layer::of(workload);
        let vectors: &[u32] = if by_four(&layer) { &[4, 1] } else { &[1] };
        let rows: &[u32] = if layer.batch >= 4 { &[4, 1] } else { &[1] };
        let sizes: &[u32] = if layer.hidden <= 16 { &[8, 64] } else { &[64, 8, 256] };
        ParameterSpace::single()
            .axis(Knob::TileM, rows)
            .axis(Knob::WorkgroupX, sizes)
            .axis(Knob::Vector, vectors)
            .constrained(|p| {
                let shape = Shape::of(p);
                fits(limits, [shape.x, 1, 1], memory(&layer, shape.rows))
                    && (shape.x == 64 || turns(&layer, shape.x as usize) <= MOST_TURNS)
            })
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost {
        let layer = Layer::of(workload);
        let lines = (layer.steps * layer.lines()) as f64;
        let depth = (layer.input + layer.hidden) as f64;
        // Every workgroup reads all weights at every step.
        let groups = layer.batch.div_ceil(Shape::of(parameters).rows as usize) as f64;
        let again = lines * depth * groups * layer.dtype().size() as f64;
        WebGpuCost {
            operations: 2.0 * lines * layer.batch as f64 * depth,
            bytes: workload.bytes() as f64 + again,
        }
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, _: &WebGpuLimits) -> Plan {
        let layer = Layer::of(workload);
        let states = layer.batch * layer.hidden;
        if states == 0 {
            return Plan::default();
        }
        let shape = Shape::of(parameters);
        let (begin, begin_places) = layer.begin(self.name(), &CARRIED);
        let (steps, steps_places) = self.shader(&layer, shape);
        let (end, end_places) = layer.end(self.name(), &CARRIED);
        let over = line_of_groups(states.div_ceil(64));
        let rows = line_of_groups(layer.batch.div_ceil(shape.rows as usize));
        Plan {
            shaders: vec![begin, steps, end],
            scratch: vec![4 * states as u64; 1 + usize::from(layer.is_lstm())],
            dispatches: vec![
                dispatch(0, &begin_places, &layer.numbers(0), over),
                dispatch(1, &steps_places, &numbers(&layer), rows),
                dispatch(2, &end_places, &layer.numbers(0), over),
            ],
        }
    }
}
