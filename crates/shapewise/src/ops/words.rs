//! A workload as a row of words: what decisions are looked up by.
//!
//! A call writes the words straight from its operands; a [`Workload`] is only made of them when the call is new.

use std::hash::{Hash, Hasher};

use arrayvec::ArrayVec;

use super::elementwise::Program;
use super::{MAX_OPERANDS, Operation, TensorDesc, Workload};
use crate::tensor::{DType, Form, MAX_RANK, SIZES, Shape, Strides, Word, header};

/// Words of an operand at most: type and rank, then size and stride of every axis.
const OPERAND_WORDS: usize = 1 + 2 * MAX_RANK;
/// Words of an operation at most: more than an element-wise program of sixteen steps and six constants has.
const OPERATION_WORDS: usize = 64;
const MAX_WORDS: usize = OPERATION_WORDS + MAX_OPERANDS * OPERAND_WORDS;

/// Equal for equal workloads and different for different ones.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    row: ArrayVec<u64, MAX_WORDS>,
    /// Where the operation's words end and the operands' begin.
    operands: u32,
    flags: Flags,
}

/// What is not said by operation and operands: the number of outputs, and in the lowest bit whether an input is the memory of
/// the output. One number, because bytes that were just written and are read together wait for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flags(u32);

impl Flags {
    const IN_PLACE: u32 = 1;
    const OUTPUT: u32 = 2;

    /// Together with the number of words.
    #[inline(always)]
    fn form(self, words: usize) -> u64 {
        (words as u64) << 32 | u64::from(self.0)
    }

    fn outputs(self) -> usize {
        (self.0 / Self::OUTPUT) as usize
    }

    fn in_place(self) -> bool {
        self.0 & Self::IN_PLACE != 0
    }
}

/// A key that is kept, with its hash.
#[derive(PartialEq, Eq)]
pub(crate) struct KeptWords {
    hash: u64,
    form: u64,
    /// The first words, in the place of which zeros stand where there are fewer.
    first: [u64; SHORT],
    rest: Box<[u64]>,
}

/// Words of a short key at most.
const SHORT: usize = 8;

/// The key of a usual call: so few words that they stay in registers, as many as its compiler knows. The last operand is an output and
/// no input's memory.
#[derive(Clone, Copy)]
pub(crate) struct ShortKey<const K: usize, const M: usize> {
    pub operation: [u64; K],
    pub operands: [Word; M],
}

impl<const K: usize, const M: usize> ShortKey<K, M> {
    const FLAGS: Flags = Flags(Flags::OUTPUT);

    /// The same key as one that any call has.
    #[inline]
    pub fn words(&self) -> Words {
        let row = self.operation.iter().copied().chain(self.operands.iter().map(|word| word.bits()));
        Words { row: row.collect(), operands: 0, flags: Self::FLAGS }
    }
}

impl Words {
    /// Nothing yet: the operation comes first.
    #[inline]
    pub fn new() -> Self {
        Self { row: ArrayVec::new(), operands: 0, flags: Flags::default() }
    }

    /// The operation. Words are filled where they lie, because they are too many to be moved in a small call.
    #[inline]
    pub fn operation(&mut self, operation: &Operation) {
        match operation {
            Operation::Elementwise(program) => return self.program(program),
            Operation::Matmul(attributes) => self.append(&[attributes.word()]),
            other => other.hash(self),
        }
        self.operands = self.row.len() as u32;
    }

    /// An element-wise operation, from its program alone: short calls make no operation of it.
    #[inline(always)]
    pub fn program(&mut self, program: &Program) {
        program.hash(self);
        self.operands = self.row.len() as u32;
    }

    /// The key of a workload.
    pub fn of(workload: &Workload) -> Self {
        let mut key = Self::new();
        key.operation(workload.operation());
        for desc in workload.operands() {
            key.operand(desc.dtype, desc.aligned, &desc.shape, &desc.strides);
        }
        workload.outputs().iter().for_each(|_| key.count_output());
        if workload.in_place() {
            key.set_in_place();
        }
        key
    }

    /// The next operand.
    #[inline]
    pub fn operand(&mut self, dtype: DType, aligned: bool, shape: &Shape, strides: &Strides) {
        let header = header(dtype, aligned);
        match Form::of(shape, strides) {
            Some(form) => self.append(&[header | form]),
            None => self.axes(header, shape, strides),
        }
    }

    /// An operand in as many words as it takes; apart, so that the usual ones melt into their calls.
    #[cold]
    #[inline(never)]
    fn axes(&mut self, header: u64, shape: &Shape, strides: &Strides) {
        self.append(&[header | (shape.len() as u64) << SIZES]);
        for (&size, &stride) in shape.iter().zip(strides.iter()) {
            self.append(&[size as u64, stride as u64]);
        }
    }

    /// The next operand, a line of neighbours.
    #[inline(always)]
    pub fn line(&mut self, dtype: DType, aligned: bool, len: usize) {
        let header = header(dtype, aligned);
        match Form::line(len) {
            Some(form) => self.append(&[header | form]),
            None => self.axes(header, &Shape::filled(len, 1), &Strides::filled(1, 1)),
        }
    }

    /// The same where one word holds it; nothing else joins in, so that the compiler knows how many words there are.
    #[inline(always)]
    pub fn short_line(&mut self, dtype: DType, aligned: bool, len: usize) -> Option<()> {
        self.append(&[header(dtype, aligned) | Form::line(len)?]);
        Some(())
    }

    /// The operand added last is an output.
    #[inline]
    pub fn count_output(&mut self) {
        self.flags.0 += Flags::OUTPUT;
    }

    /// An input is the very memory of the output.
    pub fn set_in_place(&mut self) {
        self.flags.0 |= Flags::IN_PLACE;
    }

    /// The operands, read back.
    pub fn operands(&self) -> ArrayVec<TensorDesc, MAX_OPERANDS> {
        let mut descs = ArrayVec::new();
        let mut words = self.row[self.operands as usize..].iter().copied();
        while let Some(header) = words.next() {
            let (shape, strides) = Form::read(header).unwrap_or_else(|| {
                let rank = (header >> SIZES) as usize;
                let (mut shape, mut strides) = (Shape::filled(0, rank), Strides::filled(0, rank));
                for (size, stride) in shape.iter_mut().zip(strides.iter_mut()) {
                    *size = words.next().unwrap_or_default() as usize;
                    *stride = words.next().unwrap_or_default() as isize;
                }
                (shape, strides)
            });
            let dtype = DType::ALL[(header & 0xff) as usize];
            descs.push(TensorDesc { dtype, aligned: header >> 8 & 1 == 1, shape, strides });
        }
        descs
    }

    /// The workload that this is the key of.
    pub fn workload(&self, operation: Operation) -> Workload {
        let operands = self.operands();
        let (inputs, outputs) = operands.split_at(operands.len() - self.flags.outputs());
        let mut workload = Workload::new(operation, inputs, outputs);
        if self.flags.in_place() {
            workload.set_in_place();
        }
        workload
    }

    /// The key and its hash, to be kept.
    pub fn keep(&self) -> KeptWords {
        let (first, rest) = self.row.split_at(self.row.len().min(SHORT));
        let mut kept = KeptWords {
            hash: self.finish(),
            form: self.flags.form(self.row.len()),
            first: [0; SHORT],
            rest: rest.into(),
        };
        kept.first[..first.len()].copy_from_slice(first);
        kept
    }

    #[inline(always)]
    fn append<const N: usize>(&mut self, words: &[u64; N]) {
        let room = self.row.try_extend_from_slice(words);
        assert!(room.is_ok(), "operations and operands have at most {MAX_WORDS} words");
    }
}

impl KeptWords {
    /// The hash.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether this is the key of the same workload, given its hash.
    #[inline(always)]
    pub fn is(&self, key: &Words, hash: u64) -> bool {
        if self.hash != hash || self.form != key.flags.form(key.row.len()) {
            return false;
        }
        // Few words are compared before a call to compare memory would have begun.
        let (mut i, short) = (0, key.row.len().min(SHORT));
        while i < short {
            if self.first[i] != key.row[i] {
                return false;
            }
            i += 1;
        }
        self.rest.is_empty() || self.rest[..] == key.row[SHORT..]
    }

    /// The same for a short key.
    #[inline(always)]
    pub fn is_short<const K: usize, const M: usize>(&self, key: &ShortKey<K, M>) -> bool {
        const { assert!(K + M <= SHORT) };
        let mut differences = self.form ^ ShortKey::<K, M>::FLAGS.form(K + M);
        let mut i = 0;
        while i < K {
            differences |= self.first[i] ^ key.operation[i];
            i += 1;
        }
        i = 0;
        while i < M {
            differences |= self.first[K + i] ^ key.operands[i].bits();
            i += 1;
        }
        differences == 0
    }
}

/// Odd numbers without pattern: the first digits in binary of the square roots of 2, 3, 5, 7, 11, 13, 17 and 19.
const ROOTS: [u64; 8] = [
    0x6a09_e667_f3bc_c909,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// Sums of eight products that wait for nothing but their words, folded into one another. The upper bits are the good ones.
#[inline(always)]
fn hash(row: &[u64], flags: Flags) -> u64 {
    let sum = |words: &[u64]| {
        let (mut sum, mut i) = (0u64, 0);
        while i < words.len() {
            sum = sum.wrapping_add(words[i].wrapping_mul(ROOTS[i]));
            i += 1;
        }
        sum
    };
    let mut state = flags.form(row.len()).wrapping_mul(ROOTS[0]);
    let (eights, rest) = row.as_chunks::<8>();
    for eight in eights {
        state = (state ^ state >> 32).wrapping_mul(ROOTS[1]).wrapping_add(sum(eight));
    }
    (state ^ state >> 32).wrapping_mul(ROOTS[1]).wrapping_add(sum(rest))
}

/// Attributes write what they would be hashed by: that is all that tells them apart.
impl Hasher for Words {
    #[inline(always)]
    fn finish(&self) -> u64 {
        hash(&self.row, self.flags)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.append(&[bytes.len() as u64]);
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            self.append(&[word]);
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.append(&[u64::from(value)]);
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.append(&[u64::from(value)]);
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.append(&[u64::from(value)]);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.append(&[value]);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.append(&[value as u64]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::elementwise::{Function, Program};
    use crate::ops::matmul::MatmulAttributes;
    use crate::ops::{Activation, Operation};

    fn matmul(bias: bool, activation: Activation) -> Operation {
        Operation::Matmul(MatmulAttributes { bias, activation })
    }

    fn desc(dtype: DType, shape: &[usize]) -> TensorDesc {
        TensorDesc::contiguous(dtype, Shape::new(shape).unwrap())
    }

    fn different() -> Vec<Workload> {
        let (f, d) = (desc(DType::F32, &[4, 4]), desc(DType::F64, &[4, 4]));
        let unaligned = TensorDesc { aligned: false, ..f };
        let turned = TensorDesc { strides: Strides::new(&[1, 4]).unwrap(), ..f };
        let deep = desc(DType::BF16, &[2, 1, 3, 0]);
        let plain = matmul(false, Activation::None);
        let mut list = vec![
            Workload::new(plain, &[f, f], &[f]),
            Workload::new(plain, &[f], &[f, f]),
            Workload::new(plain, &[f, f], &[unaligned]),
            Workload::new(plain, &[f, turned], &[f]),
            Workload::new(plain, &[d, d], &[d]),
            Workload::new(plain, &[deep, deep], &[deep]),
            Workload::new(plain, &[desc(DType::F32, &[])], &[]),
            Workload::new(matmul(true, Activation::None), &[f, f], &[f]),
            Workload::new(matmul(false, Activation::LeakyRelu { slope: 0.5 }), &[f, f], &[f]),
            Workload::new(matmul(false, Activation::LeakyRelu { slope: 0.25 }), &[f, f], &[f]),
            Workload::new(Operation::Elementwise(Program::single(Function::Add, &[])), &[f, f], &[f]),
            Workload::new(
                Operation::Elementwise(Program::single(Function::Clamp, &[0.0, 1.0])),
                &[f, f],
                &[f],
            ),
        ];
        let mut in_place = list[0].clone();
        in_place.set_in_place();
        list.push(in_place);
        list.extend(layouts().into_iter().map(|operand| Workload::new(plain, &[operand], &[])));
        list
    }

    /// Layouts that a word holds, and those that only look like them.
    fn layouts() -> Vec<TensorDesc> {
        let of = |shape: &[usize], strides: &[isize]| TensorDesc {
            dtype: DType::F32,
            aligned: true,
            shape: Shape::new(shape).unwrap(),
            strides: Strides::new(strides).unwrap(),
        };
        let lines = [(0, 1), (4, 1), (4, 2), (4, -1), (1 << 47, 1), (1 << 48, 1), ((1 << 48) + 4, 1)];
        let lines = lines.into_iter().map(|(len, stride)| of(&[len], &[stride]));
        let matrices = [
            ([4, 6], [6, 1]),
            ([4, 6], [1, 4]),
            ([4, 6], [1, 6]),
            ([4, 6], [4, 1]),
            ([4, 6], [0, 1]),
            ([6, 4], [4, 1]),
            ([1, 1], [1, 1]),
            ([0, 5], [1, 1]),
            ([0, 5], [5, 1]),
            ([(1 << 24) - 1, 2], [2, 1]),
            ([1 << 24, 2], [2, 1]),
            ([2, 1 << 24], [1 << 24, 1]),
        ];
        lines.chain(matrices.into_iter().map(|(shape, strides)| of(&shape, &strides))).collect()
    }

    #[test]
    fn a_key_is_its_workload_and_no_other() {
        let list = different();
        for (i, a) in list.iter().enumerate() {
            let key = Words::of(a);
            assert_eq!(key.workload(*a.operation()), *a);
            for (j, b) in list.iter().enumerate() {
                let other = Words::of(b);
                assert_eq!(key.keep().is(&other, other.finish()), i == j, "{a} and {b}");
                assert_eq!(key.finish() == other.finish(), i == j, "{a} and {b}");
            }
        }
    }

    #[test]
    fn the_longest_key_has_room() {
        let long = Program::build(8, |x| (0..10).fold(x[0], |e, i| e + f64::from(i % 6)).exp()).unwrap();
        let operands = [desc(DType::C64, &[1; MAX_RANK]); MAX_OPERANDS];
        let workload = Workload::new(Operation::Elementwise(long), &operands[..9], &operands[9..]);
        assert_eq!(Words::of(&workload).workload(*workload.operation()), workload);
    }

    #[test]
    fn types_are_listed_in_the_order_of_their_numbers() {
        assert!(DType::ALL.iter().enumerate().all(|(i, &dtype)| dtype as usize == i));
    }
}
