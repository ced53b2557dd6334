//! The usual calls: lines of one length. They melt into their callers, and views are not made for them, because calls of a few dozen
//! nanoseconds feel every word that goes through memory.

use super::Program;
use crate::Runtime;
use crate::error::Thin;
use crate::ops::ShortWords;
use crate::tensor::{Peeked, TensorView};

impl Runtime {
    /// A call of a function of one operand, if it is in the table, where only those are that were found to be right.
    #[inline(always)]
    pub(super) fn short_unary(
        &self,
        program: &Program,
        a: Peeked<'_>,
        out: Option<Peeked<'_>>,
    ) -> Option<Thin> {
        let ([counts, step], out) = (program.short_words(), out?);
        let [a_word, word] = Peeked::lines([&a, &out])?;
        let key = ShortWords::new([counts, step, a_word, word]);
        self.execute_short(program.kind(), key, [a.first, out.first])
    }

    /// The same with two operands.
    #[inline(always)]
    pub(super) fn short_binary(
        &self,
        program: &Program,
        a: Peeked<'_>,
        b: Peeked<'_>,
        out: Option<Peeked<'_>>,
    ) -> Option<Thin> {
        let ([counts, step], out) = (program.short_words(), out?);
        let [a_word, b_word, word] = Peeked::lines([&a, &b, &out])?;
        let key = ShortWords::new([counts, step, a_word, b_word, word]);
        self.execute_short(program.kind(), key, [a.first, b.first, out.first])
    }

    /// The same for two functions of two operands, as a sum and what activates it.
    #[inline(always)]
    pub(super) fn short_chain(
        &self,
        program: &Program,
        inputs: &[TensorView<'_>],
        out: Option<Peeked<'_>>,
    ) -> Option<Thin> {
        let [a, b] = inputs else { return None };
        let ([counts, first, second], out) = (program.chain_words()?, out?);
        let (a, b) = (a.peek(), b.peek());
        let [a_word, b_word, word] = Peeked::lines([&a, &b, &out])?;
        let key = ShortWords::new([counts, first, second, a_word, b_word, word]);
        self.execute_short(program.kind(), key, [a.first, b.first, out.first])
    }
}
