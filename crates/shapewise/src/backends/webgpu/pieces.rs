//! Calls with operands larger than a binding: cut along an axis whose parts have nothing to do with one another.

use super::host::span;
use crate::ops::norm::NormKind;
use crate::ops::{Operation, TensorDesc, Workload};

/// Part of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    pub workload: Workload,
    /// Where each operand's part begins, in bytes from its first element.
    pub offsets: Vec<usize>,
}

/// The axis along which each operand is cut; `None` where it is needed whole.
type Cut = Vec<Option<usize>>;

/// Whether a binding takes every operand.
pub fn fits(workload: &Workload, most: u64) -> bool {
    workload.operands().iter().all(|operand| span(operand) as u64 <= most)
}

/// The fewest pieces of which a binding takes every operand; none where the operation cannot be cut that small.
pub fn pieces(workload: &Workload, most: u64) -> Option<Vec<Piece>> {
    let cuts = cuts(workload).into_iter().filter_map(|cut| {
        let length = length(workload, &cut)?;
        let part = longest(workload, &cut, length, most)?;
        Some((length.div_ceil(part), cut, length, part))
    });
    let (_, cut, length, part) = cuts.min_by_key(|&(count, ..)| count)?;
    let piece = |first: usize| {
        let operands: Vec<TensorDesc> = workload
            .operands()
            .iter()
            .zip(&cut)
            .map(|(operand, axis)| cut_to(operand, *axis, part.min(length - first)))
            .collect();
        let offset = |(operand, axis): (&TensorDesc, &Option<usize>)| {
            axis.map_or(0, |axis| first * operand.strides[axis].unsigned_abs() * operand.dtype.size())
        };
        let offsets = workload.operands().iter().zip(&cut).map(offset).collect();
        let (inputs, outputs) = operands.split_at(workload.inputs().len());
        Piece { workload: Workload::new(*workload.operation(), inputs, outputs), offsets }
    };
    Some((0..length).step_by(part).map(piece).collect())
}

/// Every way in which the operation can be cut.
fn cuts(workload: &Workload) -> Vec<Cut> {
    let (inputs, y) = (workload.inputs().len(), &workload.outputs()[0]);
    let rank = y.shape.len();
    let everywhere = |axis: usize| vec![Some(axis); inputs + 1];
    // The first input and the output have these axes, the other inputs belong to all parts.
    let leading = |count: usize| {
        (0..count)
            .map(|axis| {
                let mut cut = vec![None; inputs + 1];
                cut[0] = Some(axis);
                cut[inputs] = Some(axis);
                cut
            })
            .collect::<Vec<_>>()
    };
    match workload.operation() {
        _ if workload.outputs().len() > 1 => Vec::new(),
        Operation::Elementwise(_) => (0..rank).map(everywhere).collect(),
        Operation::Softmax(_) => leading(rank.saturating_sub(1)),
        Operation::Reduce(attributes) => {
            leading(workload.inputs()[0].shape.len().saturating_sub(attributes.axes.into()))
        }
        Operation::Norm(attributes) => match attributes.kind {
            NormKind::Layer | NormKind::Rms => leading(attributes.axis.into()),
            NormKind::Group { .. } | NormKind::BatchInference => leading(usize::from(attributes.axis).min(1)),
            NormKind::BatchTraining => Vec::new(),
        },
        Operation::Matmul(_) => {
            let mut cuts = leading(rank - 1).split_off(rank - 2);
            cuts.extend((0..rank - 2).map(|axis| {
                let mut cut = everywhere(axis);
                cut[2..inputs].fill(None);
                cut
            }));
            let mut columns = everywhere(rank - 1);
            columns[0] = None;
            columns[2..inputs].fill(Some(0));
            cuts.push(columns);
            cuts
        }
        _ => Vec::new(),
    }
}

/// The length of the axis, if all operands that are cut agree on it.
fn length(workload: &Workload, cut: &Cut) -> Option<usize> {
    let mut lengths = workload
        .operands()
        .iter()
        .zip(cut)
        .filter_map(|(operand, axis)| axis.map(|axis| operand.shape.get(axis).copied()));
    let first = lengths.next()??;
    lengths.all(|other| other == Some(first)).then_some(first).filter(|&length| length > 0)
}

fn cut_to(operand: &TensorDesc, axis: Option<usize>, length: usize) -> TensorDesc {
    let mut part = *operand;
    if let Some(axis) = axis {
        part.shape[axis] = length;
    }
    part
}

/// The longest part of which a binding takes every operand.
fn longest(workload: &Workload, cut: &Cut, length: usize, most: u64) -> Option<usize> {
    let taken = |part: usize| {
        let operands = workload.operands().iter().zip(cut);
        operands.map(|(operand, axis)| span(&cut_to(operand, *axis, part))).all(|bytes| bytes as u64 <= most)
    };
    let (mut low, mut high) = (0, length + 1);
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if taken(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low > 0).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::tensor::{DType, Tensor};

    fn workload<T>(call: impl FnOnce(&Runtime) -> crate::Result<T>) -> Workload {
        crate::ops::testing::runtime().workloads(call).unwrap().remove(0)
    }

    #[test]
    fn parts_cover_the_whole_and_keep_to_the_limit() {
        let (x, row) =
            (Tensor::zeros(&[10, 7], DType::F32).unwrap(), Tensor::zeros(&[7], DType::F32).unwrap());
        let whole = workload(|rt| rt.add(&x, &row));
        assert!(fits(&whole, 280) && !fits(&whole, 279));
        let parts = pieces(&whole, 100).unwrap();
        let rows: Vec<_> = parts.iter().map(|piece| piece.workload.outputs()[0].shape[0]).collect();
        assert_eq!(rows, [3, 3, 3, 1]);
        assert_eq!(parts[2].offsets, [6 * 28, 0, 6 * 28], "a row that is repeated stays where it is");
        assert!(parts.iter().all(|piece| fits(&piece.workload, 100)));
        assert!(pieces(&whole, 3).is_none(), "not even an element fits");
    }

    #[test]
    fn operations_are_cut_where_parts_are_independent() {
        let x = Tensor::zeros(&[10, 7], DType::F32).unwrap();
        assert_eq!(pieces(&workload(|rt| rt.softmax(&x, -1)), 100).unwrap().len(), 4);
        assert!(pieces(&workload(|rt| rt.softmax(&x, -1)), 27).is_none(), "a row must fit");
        assert_eq!(pieces(&workload(|rt| rt.sum(&x, &[1][..])), 100).unwrap().len(), 4);
        assert!(pieces(&workload(|rt| rt.sum(&x, &[0, 1][..])), 100).is_none());
        let product = workload(|rt| rt.matmul(&x, &x.transpose()));
        let parts = pieces(&product, 300).unwrap();
        assert_eq!(parts.len(), 2, "ten columns of ten results are more than 300 bytes");
        assert!(pieces(&product, 200).is_none(), "the other operand is needed whole");
    }
}
