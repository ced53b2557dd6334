//! An integer product as kernels see it: sizes, operands by lines, and what happens to the sums.
#![allow(unsafe_code)]

use super::QuantType;
use super::attributes::IntegerMatmulAttributes;
use super::cpu_integer_finish::{Finish, Output, Rescale};
use super::cpu_integer_pack::Source;
use crate::backends::cpu::Operand;
use crate::ops::{Call, Operation, TensorDesc, Workload};
use crate::tensor::DType;

/// One product of a batch.
pub(super) struct Problem {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Source,
    pub b: Source,
}

pub(super) fn attributes(workload: &Workload) -> IntegerMatmulAttributes {
    match workload.operation() {
        Operation::IntegerMatmul(attributes) => *attributes,
        other => unreachable!("the registry gives integer products only, not {other}"),
    }
}

/// Products of a workload: operands have the same axes before the last two.
pub(super) fn batches(workload: &Workload) -> usize {
    let shape = &workload.outputs()[0].shape;
    shape[..shape.len() - 2].iter().product()
}

/// Elements from the first to the operand's `index`-th matrix.
fn matrix(desc: &TensorDesc, mut index: usize) -> isize {
    let leading = desc.shape.len() - 2;
    let mut offset = 0;
    for axis in (0..leading).rev() {
        offset += (index % desc.shape[axis]) as isize * desc.strides[axis];
        index /= desc.shape[axis];
    }
    offset
}

fn last_two(values: &[isize]) -> (isize, isize) {
    (values[values.len() - 2], values[values.len() - 1])
}

impl Problem {
    pub fn sizes(workload: &Workload) -> [usize; 3] {
        let (a, c) = (&workload.inputs()[0].shape, &workload.outputs()[0].shape);
        [c[c.len() - 2], c[c.len() - 1], a[a.len() - 1]]
    }

    /// The `index`-th product and what becomes of its sums.
    pub fn of<'a>(call: &'a Call<'_>, index: usize) -> (Self, Finish<'a>) {
        let attributes = attributes(call.workload);
        let [m, n, k] = Self::sizes(call.workload);
        let (a, b, out) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        let mut rest = call.inputs[2..].iter();
        let mut next = |there: bool| if there { rest.next() } else { None };
        let [za, zb] = attributes.zero_points;
        let (za, zb) = (next(za), next(zb));
        let bias = attributes.bias.and_then(|along| next(true).map(|bias| (bias, along)));
        let scales = [next(attributes.requantized), next(attributes.requantized)];
        let result = [next(attributes.requantized), next(attributes.requantized)];
        let scales = match (scales, result) {
            ([Some(a), Some(b)], [Some(y), Some(zero)]) => Some(Rescale { a, b, y, zero }),
            _ => None,
        };
        let byte = |operand: &Operand<'_>| {
            if operand.desc().dtype == DType::I8 { QuantType::I8 } else { QuantType::U8 }
        };
        let (a_row, a_column) = last_two(a.strides());
        let (b_row, b_column) = last_two(b.strides());
        let left = source(a, byte(a), (a_row, a_column), k, za, index);
        let kind = attributes.packed.unwrap_or_else(|| byte(b));
        let right = source(b, kind, (b_column, b_row), k, zb, index);
        let (row, column) = last_two(out.strides());
        let dtype = out.desc().dtype;
        let at = out.ptr_bytes().wrapping_offset(matrix(out.desc(), index) * dtype.size() as isize);
        let finish = Finish { out: Output { at, dtype, row, column }, bias, scales };
        (Self { m, n, k, a: left, b: right }, finish)
    }
}

fn source(
    operand: &Operand<'_>,
    kind: QuantType,
    (line, along): (isize, isize),
    k: usize,
    zero: Option<&Operand<'_>>,
    index: usize,
) -> Source {
    let at = operand.ptr_bytes().cast_const().wrapping_offset(matrix(operand.desc(), index));
    let zero_step = usize::from(zero.is_some_and(|zero| zero.desc().len() > 1));
    let zero = zero.map_or(std::ptr::null(), Operand::ptr);
    Source { at, kind, line, along, k, zero, zero_step }
}
