//! A recurrent layer as shaders see it, and what its kernels share: the first states in, a step's formulas, the last states out.

use std::fmt::Write;

use crate::backends::webgpu::wgsl::{FUNCTIONS, GROUP, Numbers, Wgsl, element, stride};
use crate::backends::webgpu::{Place, Shader};
use crate::ops::rnn::{Cell, RnnAttributes};
use crate::ops::{Operation, TensorDesc, Workload};
use crate::tensor::DType;

/// Scratch memory of states and of an LSTM's memory between shaders, by number.
pub(super) struct Carried {
    pub state: usize,
    pub memory: usize,
}

/// One unit of one row from each invocation.
const INDEX: &str = "
let index = line * 64u + lane;
if (index >= s.batch * s.hidden) { return; }
let row = index / s.hidden;
let unit = index % s.hidden;
";

/// A layer as shaders see it.
pub(super) struct Layer<'a> {
    pub workload: &'a Workload,
    pub attributes: RnnAttributes,
    pub steps: usize,
    pub batch: usize,
    pub input: usize,
    pub hidden: usize,
    /// Where the weights of the inputs stand; those of the states, and the biases, follow.
    pub weights: usize,
}

impl<'a> Layer<'a> {
    pub fn of(workload: &'a Workload) -> Self {
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

    pub fn desc(&self, operand: usize) -> &TensorDesc {
        &self.workload.operands()[operand]
    }

    pub fn is_lstm(&self) -> bool {
        self.attributes.cell == Cell::Lstm
    }

    /// Rows of weights.
    pub fn lines(&self) -> usize {
        self.attributes.cell.gates() * self.hidden
    }

    pub fn lengths(&self) -> Option<usize> {
        self.attributes.lengths.then_some(self.weights + 2 + 2 * usize::from(self.attributes.bias))
    }

    /// Number `i` of the outputs as an operand.
    pub fn output(&self, i: usize) -> usize {
        self.workload.inputs().len() + i
    }

    pub fn numbers(&self, step: usize) -> Numbers {
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

    /// The element type of everything but lengths.
    pub fn dtype(&self) -> DType {
        self.desc(0).dtype
    }

    fn shader(&self, label: &str, what: &str) -> Wgsl {
        Wgsl::new(format!("{label}: {what}"), [64, 1, 1]).numbers(&self.numbers(0))
    }

    /// The first states into scratch memory.
    pub fn begin(&self, label: &str, carried: &Carried) -> (Shader, Vec<Place>) {
        let real = element(self.dtype());
        let mut body = format!("{GROUP}{INDEX}state[index] = f32(h[row * s.h_row + unit * s.h_unit]);\n");
        let (mut wgsl, mut places) = (self.shader(label, "begin").read("h", real), vec![Place::Operand(1)]);
        if self.is_lstm() {
            wgsl = wgsl.read("c", real);
            places.push(Place::Operand(2));
            body.push_str("memory[index] = f32(c[row * s.c_row + unit * s.c_unit]);\n");
        }
        places.push(Place::Scratch(carried.state));
        wgsl = wgsl.write("state", "f32");
        if self.is_lstm() {
            wgsl = wgsl.write("memory", "f32");
            places.push(Place::Scratch(carried.memory));
        }
        (wgsl.main(body), places)
    }

    /// The last states out of scratch memory.
    pub fn end(&self, label: &str, carried: &Carried) -> (Shader, Vec<Place>) {
        let real = element(self.dtype());
        let mut body =
            format!("{GROUP}{INDEX}h[row * s.last_row + unit * s.last_unit] = {real}(state[index]);\n");
        let mut wgsl = self.shader(label, "end").read("state", "f32");
        let mut places = vec![Place::Scratch(carried.state)];
        if self.is_lstm() {
            wgsl = wgsl.read("memory", "f32");
            places.push(Place::Scratch(carried.memory));
            let _ = writeln!(body, "c[row * s.memory_row + unit * s.memory_unit] = {real}(memory[index]);");
        }
        wgsl = wgsl.write("h", real);
        places.push(Place::Operand(self.output(1)));
        if self.is_lstm() {
            wgsl = wgsl.write("c", real);
            places.push(Place::Operand(self.output(2)));
        }
        (wgsl.main(body), places)
    }

    /// The functions that [`Layer::cell`] calls.
    pub fn functions() -> String {
        format!("{FUNCTIONS}fn sigmoid(x: f32) -> f32 {{ return 1.0 / (1.0 + exp(-x)); }}\n")
    }

    /// The new state `h` (and memory `c`) from the sums `given` and `own` of each gate, the state `old` and the memory `kept`; names end in `row`.
    pub fn cell(&self, row: &str) -> String {
        let text = match self.attributes.cell {
            Cell::Tanh => "let h# = hyperbolic_tangent(given0# + own0#);\n",
            Cell::Relu => "let h# = select(given0# + own0#, 0.0, given0# + own0# < 0.0);\n",
            Cell::Gru => {
                "let r# = sigmoid(given0# + own0#); let z# = sigmoid(given1# + own1#);\n\
                 let n# = hyperbolic_tangent(given2# + r# * own2#);\nlet h# = n# + z# * (old# - n#);\n"
            }
            Cell::Lstm => {
                "let c# = sigmoid(given1# + own1#) * kept# + sigmoid(given0# + own0#) * hyperbolic_tangent(given2# + own2#);\n\
                 let h# = sigmoid(given3# + own3#) * hyperbolic_tangent(c#);\n"
            }
        };
        text.replace('#', row)
    }
}
