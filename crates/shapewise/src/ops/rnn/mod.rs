//! Recurrent networks: vanilla (tanh or relu), GRU and LSTM, in torch's layout of weights and with torch's results.
//!
//! The operation is one layer in one direction; layers, directions and the dropout between them are put together by the
//! calls. `w_ih` is `[gates · hidden, input]`, `w_hh` is `[gates · hidden, hidden]`; gates are i, f, g, o for an LSTM and
//! r, z, n for a GRU, whose hidden bias of n is inside `r · (…)`. f32 and f64; f16 and bf16 are computed in f32 and rounded
//! once at the end.
//!
//! With lengths, steps from a sequence's length on leave its state alone and give zeros; backwards, each sequence starts at
//! its own last step. Lengths may be in any order, and zero: then the final state is the initial one.

mod api;
mod asked;
mod cells;
mod cost;
mod cpu_gates;
mod cpu_kernels;
mod cpu_pack;
mod cpu_part;
mod cpu_phases;
mod cpu_products;
mod cpu_reference;
mod cpu_run;
mod dropout;
mod options;
mod packed;
mod plan;
mod problem;
mod stack;
#[cfg(test)]
mod tests;
#[cfg(feature = "webgpu")]
pub mod webgpu;

use std::fmt;

use super::{Kernel, TensorDesc};
use crate::backends::cpu::simd::Isa;

pub use options::{Nonlinearity, RnnOptions, RnnWeights};
pub use packed::PackedRnn;

/// What is computed at each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cell {
    /// `h = tanh(w_ih x + b_ih + w_hh h + b_hh)`
    Tanh,
    /// `h = relu(w_ih x + b_ih + w_hh h + b_hh)`
    Relu,
    /// Gated recurrent unit.
    Gru,
    /// Long short-term memory.
    Lstm,
}

impl Cell {
    /// Every cell.
    pub const ALL: [Self; 4] = [Self::Tanh, Self::Relu, Self::Gru, Self::Lstm];

    /// Its name in workloads.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tanh => "rnn_tanh",
            Self::Relu => "rnn_relu",
            Self::Gru => "gru",
            Self::Lstm => "lstm",
        }
    }

    /// Rows of weights for each hidden unit.
    #[inline]
    pub const fn gates(self) -> usize {
        match self {
            Self::Tanh | Self::Relu => 1,
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// Sums that the gates of a unit need: a GRU keeps both parts of n apart.
    #[inline]
    const fn sums(self) -> usize {
        match self {
            Self::Tanh | Self::Relu => 1,
            Self::Gru | Self::Lstm => 4,
        }
    }
}

/// One layer in one direction. Inputs are x `[steps, batch, input]`, h `[batch, hidden]`, for an LSTM c `[batch, hidden]`,
/// `w_ih`, `w_hh`, then `b_ih` and `b_hh` if there is a bias, then u32 `lengths` `[batch]` if there are lengths, then kept weights if
/// there are some; outputs are y
/// `[steps, batch, hidden]`, the last h and, for an LSTM, the last c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnnAttributes {
    /// What is computed at each step.
    pub cell: Cell,
    /// From the last step to the first.
    pub reverse: bool,
    /// Whether there are biases.
    pub bias: bool,
    /// Whether each sequence has a length of its own.
    pub lengths: bool,
    /// A form of the weights that is the last input, beside the plain ones.
    pub kept: Option<Kept>,
}

/// Weights in panels, as a kernel reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    /// The instruction set whose kernels read them.
    pub isa: Isa,
    /// Steps of a panel's piece at most.
    pub depth: u32,
}

impl Kept {
    fn write(self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "+{}_panels{}", self.isa, self.depth)
    }
}

impl RnnAttributes {
    /// What the workload's key is made from.
    pub(super) fn write_key(self, out: &mut impl fmt::Write) -> fmt::Result {
        let [reverse, bias, lengths] = [self.reverse, self.bias, self.lengths].map(u8::from);
        write!(out, " {} {reverse}{bias}{lengths}", self.cell.name())?;
        self.kept.map_or(Ok(()), |kept| kept.write(out))
    }

    /// The ordinal that models see.
    pub(crate) fn feature(self) -> f32 {
        let [reverse, lengths, kept] = [self.reverse, self.lengths, self.kept.is_some()].map(u8::from);
        f32::from(16 * kept + 4 * self.cell as u8 + 2 * lengths + reverse)
    }

    /// For the operand that holds lengths: one more than the longest.
    pub(super) fn lengths_below(self, operand: usize, operands: &[TensorDesc]) -> Option<usize> {
        let steps = operands.first().map(|x| x.shape[0]);
        steps.filter(|_| Some(operand) == self.places().lengths).map(|steps| steps + 1)
    }

    /// Weights as a network starts with: larger ones would let a rounding grow from step to step.
    pub(super) fn magnitude(self, operand: usize, operands: &[TensorDesc]) -> f64 {
        let places = self.places();
        let weights = places.w_ih..places.w_ih + 2 + 2 * usize::from(self.bias);
        let hidden = operands.get(places.w_hh).map_or(1, |w| w.shape[1]);
        if weights.contains(&operand) { 1.0 / (hidden.max(1) as f64).sqrt() } else { 1.0 }
    }

    /// Where the inputs stand.
    fn places(self) -> Places {
        let w_ih = if self.cell == Cell::Lstm { 3 } else { 2 };
        let after = w_ih + 2 + 2 * usize::from(self.bias);
        Places { w_ih, w_hh: w_ih + 1, bias: w_ih + 2, lengths: self.lengths.then_some(after) }
    }
}

/// Numbers of inputs; x and h are the first two, an LSTM's c the third.
#[derive(Clone, Copy, Debug)]
struct Places {
    w_ih: usize,
    w_hh: usize,
    /// `b_ih`; `b_hh` follows.
    bias: usize,
    lengths: Option<usize>,
}

impl fmt::Display for RnnAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.cell.name())?;
        for (is, text) in [(self.reverse, "+reverse"), (self.bias, "+bias"), (self.lengths, "+lengths")] {
            f.write_str(if is { text } else { "" })?;
        }
        self.kept.map_or(Ok(()), |kept| kept.write(f))
    }
}

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_kernels::AVX512_FUSED,
    &cpu_kernels::AVX512_PROJECTED,
    &cpu_kernels::AVX512_BATCH,
    &cpu_kernels::AVX2_FUSED,
    &cpu_kernels::AVX2_PROJECTED,
    &cpu_kernels::AVX2_BATCH,
    &cpu_kernels::AVX2_ROWS,
    &cpu_kernels::AVX2_PROJECTED_ROWS,
    &cpu_kernels::NEON_FUSED,
    &cpu_kernels::NEON_PROJECTED,
    &cpu_kernels::NEON_BATCH,
    &cpu_kernels::NEON_ROWS,
    &cpu_kernels::NEON_PROJECTED_ROWS,
    &cpu_kernels::PORTABLE_FUSED,
    &cpu_kernels::PORTABLE_PROJECTED,
    &cpu_kernels::PORTABLE_BATCH,
    &cpu_kernels::PORTABLE_ROWS,
    &cpu_kernels::PORTABLE_PROJECTED_ROWS,
    &cpu_reference::REFERENCE,
];
