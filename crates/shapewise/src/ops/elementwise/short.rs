//! The usual calls: lines of one length. They melt into their callers, and views are not made for them, because calls of a few dozen
//! nanoseconds feel every word that goes through memory.

use super::Program;
use crate::Runtime;
use crate::error::Thin;
use crate::tensor::{Peeked, TensorView, Word};

impl Runtime {
    /// A call of a function of one operand, if it is in the table, where only those are that were found to be right.
    #[inline(always)]
    pub(super) fn short_unary(&self, program: &Program, a: Peeked, out: Option<Peeked>) -> Option<Thin> {
        let ([counts, step], out) = (program.short_words(), out?);
        self.execute_short(Program::kind(step, false), [counts, step], [a, out], Word::are_lines)
    }

    /// The same with two operands.
    #[inline(always)]
    pub(super) fn short_binary(
        &self,
        program: &Program,
        a: Peeked,
        b: Peeked,
        out: Option<Peeked>,
    ) -> Option<Thin> {
        let ([counts, step], out) = (program.short_words(), out?);
        self.execute_short(Program::kind(step, false), [counts, step], [a, b, out], Word::are_lines)
    }

    /// The same for two functions of two operands, as a sum and what activates it.
    #[inline(always)]
    pub(super) fn short_chain(
        &self,
        program: &Program,
        inputs: &[TensorView<'_>],
        out: Option<Peeked>,
    ) -> Option<Thin> {
        let [a, b] = inputs else { return None };
        let (words, out) = (program.chain_words()?, out?);
        self.execute_short(Program::kind(words[2], true), words, [a.peek(), b.peek(), out], Word::are_lines)
    }
}
