//! Products of small integers as shaders see them.

use crate::backends::webgpu::axes::{self, Axis};
use crate::backends::webgpu::wgsl::{Numbers, stride};
use crate::ops::quantize::attributes::Along;
use crate::ops::quantize::{IntegerMatmulAttributes, QuantType};
use crate::ops::{Operation, TensorDesc, Workload};
use crate::tensor::DType;

/// Where the byte of a number lies; those of four bits lie two in a byte along the lines.
const BYTES: &str = "start + row * s.line_step + p * s.along";
const HALVES: &str = "start + p * s.along + row / 2u";

/// One operand: its lines (rows on the left, columns on the right) by quads of four.
pub struct Side {
    pub kind: QuantType,
    pub lines: usize,
    pub line: usize,
    pub along: usize,
    /// Axes of matrices; none where all products share one.
    pub matrices: Vec<Axis>,
    pub zero: Option<usize>,
}

impl Side {
    pub fn quads(&self) -> usize {
        self.lines.div_ceil(4)
    }

    pub fn matrices(&self) -> usize {
        axes::count(&self.matrices)
    }

    /// What packed numbers are less than the operand's.
    pub fn offset(&self) -> i32 {
        if self.kind == QuantType::U8 { 128 } else { 0 }
    }

    /// Whether z′ may be another number than zero.
    pub fn moved(&self) -> bool {
        self.zero.is_some() || self.offset() != 0
    }

    pub fn numbers(&self, k: usize) -> Numbers {
        let numbers = Numbers::default()
            .with("total", self.matrices() * k.div_ceil(4) * self.quads())
            .with("words", k.div_ceil(4))
            .with("quads", self.quads())
            .with("lines", self.lines)
            .with("k", k)
            .with("line_step", self.line)
            .with("along", self.along);
        axes::numbers(numbers, "matrix", &self.matrices)
    }

    /// The function `number` of the eight bits of one number.
    pub fn number(&self) -> String {
        let (at, value) = match self.kind {
            QuantType::I4 => {
                (HALVES, "u32(extractBits(i32(x[at / 4u]), at % 4u * 8u + row % 2u * 4u, 4u)) & 255u")
            }
            QuantType::U4 => (HALVES, "extractBits(x[at / 4u], at % 4u * 8u + row % 2u * 4u, 4u)"),
            QuantType::U8 => (BYTES, "extractBits(x[at / 4u], at % 4u * 8u, 8u) ^ 128u"),
            _ => (BYTES, "extractBits(x[at / 4u], at % 4u * 8u, 8u)"),
        };
        format!("fn number(start: u32, row: u32, p: u32) -> u32 {{\nlet at = {at};\nreturn {value};\n}}\n")
    }
}

/// A workload as shaders see it.
pub struct Product {
    pub attributes: IntegerMatmulAttributes,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub sides: [Side; 2],
    pub results: Vec<Axis>,
    /// Operands of bias, scales of both operands and the result, zero point of the result.
    pub bias: Option<usize>,
    pub scales: usize,
}

impl Product {
    pub fn of(workload: &Workload) -> Self {
        let attributes = match workload.operation() {
            Operation::IntegerMatmul(attributes) => *attributes,
            other => unreachable!("the registry gives integer products only, not {other}"),
        };
        let (a, b, y) = (&workload.inputs()[0], &workload.inputs()[1], &workload.outputs()[0]);
        let row = y.shape.len() - 2;
        let (m, n, k) = (y.shape[row], y.shape[row + 1], a.shape[row + 1]);
        let mut operand = 1;
        let mut next = |there: bool| {
            operand += usize::from(there);
            there.then_some(operand)
        };
        let zeros = attributes.zero_points.map(&mut next);
        let bias = next(attributes.bias.is_some());
        let of = |desc: &TensorDesc| {
            (0..row).map(|i| Axis { size: y.shape[i], input: stride(desc, i), output: 0 }).collect()
        };
        let matrices = |desc: &TensorDesc| {
            let axes: Vec<Axis> = of(desc);
            if axes.iter().all(|axis| axis.input == 0 || axis.size == 1) { Vec::new() } else { axes }
        };
        let byte = |desc: &TensorDesc| if desc.dtype == DType::I8 { QuantType::I8 } else { QuantType::U8 };
        let left = Side {
            kind: byte(a),
            lines: m,
            line: stride(a, row),
            along: stride(a, row + 1),
            matrices: matrices(a),
            zero: zeros[0],
        };
        let right = Side {
            kind: attributes.packed.unwrap_or_else(|| byte(b)),
            lines: n,
            line: stride(b, row + 1),
            along: stride(b, row),
            matrices: matrices(b),
            zero: zeros[1],
        };
        Self { attributes, m, n, k, sides: [left, right], results: of(y), bias, scales: operand + 1 }
    }

    pub fn words(&self) -> usize {
        self.k.div_ceil(4)
    }

    pub fn elements(&self) -> usize {
        self.m * self.n * axes::count(&self.results)
    }

    /// Bytes of scratch memory.
    pub fn scratch(&self) -> Vec<u64> {
        let of = |quads: usize| 16 * quads.max(1) as u64;
        let [a, b] = &self.sides;
        let mut bytes: Vec<u64> =
            [a, b].iter().map(|side| of(side.matrices() * self.words() * side.quads())).collect();
        bytes.extend([a, b].iter().map(|side| of(side.matrices() * side.quads())));
        bytes.push(if self.attributes.requantized { 4 * self.elements().max(1) as u64 } else { 4 });
        bytes
    }

    pub fn numbers(&self, y: &TensorDesc, [gx, gy]: [usize; 2]) -> Numbers {
        let row = y.shape.len() - 2;
        let step = |side: &Side, each: usize| if side.matrices.is_empty() { 0 } else { each };
        let [a, b] = &self.sides;
        let strides =
            if self.attributes.requantized { [self.n, 1] } else { [stride(y, row), stride(y, row + 1)] };
        let numbers = Numbers::default()
            .with("m", self.m)
            .with("n", self.n)
            .with("k", self.k)
            .with("words", self.words())
            .with("a_quads", a.quads())
            .with("b_quads", b.quads())
            .with("a_matrix", step(a, 1))
            .with("b_matrix", step(b, 1))
            .with("y_row", strides[0])
            .with("y_column", strides[1])
            .with("matrices", axes::count(&self.results))
            .with("gx", gx)
            .with("gy", gy);
        axes::numbers(numbers, "result", &self.results)
    }

    /// An element of a vector that is there for every row or column, or of one that is there for all.
    pub fn entry(workload: &Workload, operand: usize, name: &str, index: &str) -> String {
        let index = if workload.inputs()[operand].len() == 1 { "0u" } else { index };
        format!("{name}[{index}]")
    }

    /// z′ of a line.
    pub fn zero(&self, workload: &Workload, side: usize, index: &str) -> String {
        let this = &self.sides[side];
        let name = ["a_zero", "b_zero"][side];
        let zero = this.zero.map_or("0".into(), |operand| Self::entry(workload, operand, name, index));
        format!("({zero} - {})", this.offset())
    }

    pub fn bias(&self, workload: &Workload) -> String {
        match (self.bias, self.attributes.bias) {
            (Some(operand), Some(Along::Rows)) => {
                format!(" + {}", Self::entry(workload, operand, "bias", "i"))
            }
            (Some(operand), _) => format!(" + {}", Self::entry(workload, operand, "bias", "j")),
            (None, _) => String::new(),
        }
    }
}
