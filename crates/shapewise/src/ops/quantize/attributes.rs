//! What kernels are told beyond the operands, and how elements find their scales.

use std::fmt::{self, Write};

use super::QuantType;
use crate::ops::{TensorDesc, Workload};

/// Quantise, dequantise or requantise: from reals (`None`) or integers to the other.
///
/// The operand is seen as outer × channels × inner and has a scale for each channel; with `block` it is rows × 1 × n, with
/// a scale for every block of so many elements of a row. Operands: the elements, then scale and zero point (if there is
/// one) of `from` and of `to`, then the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuantizeAttributes {
    /// The input's integers; `None` for floats.
    pub from: Option<QuantType>,
    /// The output's integers; `None` for floats.
    pub to: Option<QuantType>,
    /// Whether `from` and `to` have zero points.
    pub zero_points: [bool; 2],
    /// Elements of a block where the last one of a row is shorter; 0 otherwise.
    pub block: usize,
}

impl QuantizeAttributes {
    /// What the user called.
    pub fn name(&self) -> &'static str {
        match (self.from, self.to) {
            (None, _) => "quantize",
            (Some(_), None) => "dequantize",
            (Some(_), Some(_)) => "requantize",
        }
    }

    pub(in crate::ops) fn write_key(&self, out: &mut impl Write) -> fmt::Result {
        let name = |kind: Option<QuantType>| kind.map_or("real", QuantType::name);
        let [a, b] = self.zero_points.map(u8::from);
        write!(out, " {} {} {a}{b} {}", name(self.from), name(self.to), self.block)
    }

    pub(crate) fn feature(&self) -> f32 {
        let ordinal = |kind: Option<QuantType>| kind.map_or(0, |kind| kind as u8 + 1);
        f32::from(ordinal(self.from) * 7 + ordinal(self.to))
    }
}

impl fmt::Display for QuantizeAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match (self.from, self.to) {
            (Some(from), Some(to)) => write!(f, " {from} → {to}"),
            (Some(kind), None) | (None, Some(kind)) => write!(f, " {kind}"),
            (None, None) => Ok(()),
        }
    }
}

/// How elements in a row find their scales: see [`QuantizeAttributes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Walk {
    pub outer: usize,
    pub channels: usize,
    pub inner: usize,
    pub block: usize,
}

/// Elements that share a scale, or have one each: `index` of the first scale, how far to the next one's, where they end.
pub(super) struct Stretch {
    pub index: usize,
    pub step: usize,
    pub end: usize,
}

impl Walk {
    /// Of a workload; a packed operand has half the elements along its last axis that is not 1.
    pub fn of(workload: &Workload, attributes: &QuantizeAttributes) -> Self {
        let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
        let packed = |kind: Option<QuantType>| kind.is_some_and(QuantType::is_packed);
        let elements = match (packed(attributes.from), packed(attributes.to)) {
            (false, _) => x.len(),
            (true, false) => y.len(),
            (true, true) => 2 * x.len(),
        };
        let outer = x.shape[0];
        let scales = workload.inputs()[1..].iter().map(TensorDesc::len).max().unwrap_or(1);
        let channels = if attributes.block > 0 { 1 } else { scales };
        let inner = elements / (outer * channels).max(1);
        Self { outer, channels, inner, block: attributes.block }
    }

    /// The operand's shape, for integers that share bytes if `packed`.
    pub fn shape(&self, packed: bool) -> [usize; 3] {
        match (packed, self.inner) {
            (false, _) => [self.outer, self.channels, self.inner],
            (true, 1) => [self.outer, self.channels / 2, 1],
            (true, _) => [self.outer, self.channels, self.inner / 2],
        }
    }

    pub fn elements(&self) -> usize {
        self.outer * self.channels * self.inner
    }

    /// Elements of a stretch, and how many stretches there are.
    pub fn stretches(&self) -> (usize, usize) {
        let length = if self.block > 0 {
            self.block.min(self.inner)
        } else if self.inner == 1 && self.channels > 1 {
            self.channels
        } else {
            self.inner
        };
        (length, self.elements().div_ceil(length.max(1)))
    }

    /// The stretch that element `at` begins or is in.
    pub fn stretch(&self, at: usize) -> Stretch {
        if self.block > 0 {
            let (row, column) = (at / self.inner, at % self.inner);
            let blocks = self.inner.div_ceil(self.block);
            let end = ((column / self.block + 1) * self.block).min(self.inner);
            return Stretch { index: row * blocks + column / self.block, step: 0, end: at - column + end };
        }
        if self.inner == 1 && self.channels > 1 {
            let index = at % self.channels;
            return Stretch { index, step: 1, end: at - index + self.channels };
        }
        let part = at / self.inner;
        Stretch { index: part % self.channels, step: 0, end: (part + 1) * self.inner }
    }
}

/// Whether the right operand of an integer product is four bits wide, and how its sums leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IntegerMatmulAttributes {
    /// Whether the zero points of the left and of the right operand are inputs.
    pub zero_points: [bool; 2],
    /// The right operand's four-bit type, two in a byte along its last axis.
    pub packed: Option<QuantType>,
    /// Whether a bias of i32 is an input: a number for every row, or for every column.
    pub bias: Option<Along>,
    /// Whether sums are requantised: the scales of the operands and the result and the zero point of the result are inputs.
    pub requantized: bool,
}

/// What a vector has an element for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Along {
    /// Every row.
    Rows,
    /// Every column.
    Columns,
}

impl IntegerMatmulAttributes {
    pub(in crate::ops) fn write_key(self, out: &mut impl Write) -> fmt::Result {
        let [a, b] = self.zero_points.map(u8::from);
        let bias = match self.bias {
            None => "none",
            Some(Along::Rows) => "rows",
            Some(Along::Columns) => "columns",
        };
        let packed = self.packed.map_or("bytes", QuantType::name);
        write!(out, " {a}{b} {packed} {bias} {}", u8::from(self.requantized))
    }

    pub(crate) fn feature(self) -> f32 {
        let [a, b] = self.zero_points.map(u8::from);
        let others = u8::from(self.packed.is_some()) * 2 + u8::from(self.requantized);
        f32::from(others * 8 + u8::from(self.bias.is_some()) * 4 + a * 2 + b)
    }
}

impl fmt::Display for IntegerMatmulAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.requantized { "qmatmul" } else { "matmul_integer" })?;
        match self.packed {
            Some(kind) => write!(f, " {kind}"),
            None => Ok(()),
        }
    }
}

/// The weights of a product with quantised weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuantizedMatmulAttributes {
    /// Bits of a weight: 4 or 8.
    pub bits: u32,
    /// Neighbours along the depth that share a scale; 0 where a whole row does.
    pub block: usize,
    /// What stands for zero.
    pub zero: WeightZero,
}

/// The zero points of packed weights, which are kept without sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightZero {
    /// Zero itself.
    Lowest,
    /// The middle of the range: signed weights without zero points.
    Middle,
    /// An input has one for every scale.
    Each,
}

impl QuantizedMatmulAttributes {
    pub(in crate::ops) fn write_key(&self, out: &mut impl Write) -> fmt::Result {
        let zero = match self.zero {
            WeightZero::Lowest => "lowest",
            WeightZero::Middle => "middle",
            WeightZero::Each => "each",
        };
        write!(out, " {} {} {zero}", self.bits, self.block)
    }

    pub(crate) fn feature(&self) -> f32 {
        (self.bits * 3 + self.zero as u32) as f32
    }
}

impl fmt::Display for QuantizedMatmulAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "matmul_quantized int{}", self.bits)?;
        if self.block > 0 { write!(f, " in blocks of {}", self.block) } else { Ok(()) }
    }
}
