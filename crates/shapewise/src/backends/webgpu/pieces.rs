//! Calls with operands larger than a binding: cut along an axis whose parts have nothing to do with one another.

use super::host::span;
use crate::ops::norm::NormKind;
use crate::ops::quantize::{Along, IntegerMatmulAttributes};
use crate::ops::rnn::{Cell, RnnAttributes};
use crate::ops::{Operation, TensorDesc, Workload};

/// Part of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    pub workload: Workload,
    /// Where each operand's part begins, in bytes from its first element.
    pub offsets: Vec<usize>,
}

/// Along which axis an operand is cut, and how many of its elements there belong to each unit of the cut.
#[derive(Clone, Copy, Debug)]
struct Axis {
    axis: usize,
    each: usize,
}

/// How each operand is cut; `None` where it is needed whole.
type Cut = Vec<Option<Axis>>;

/// An axis of which every element is a unit.
fn along(axis: usize) -> Axis {
    Axis { axis, each: 1 }
}

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
        let offset = |(operand, axis): (&TensorDesc, &Option<Axis>)| {
            axis.map_or(0, |Axis { axis, each }| {
                first * each * operand.strides[axis].unsigned_abs() * operand.dtype.size()
            })
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
    let everywhere = |axis: usize| vec![Some(along(axis)); inputs + 1];
    // The first input and the output have these axes, the other inputs belong to all parts.
    let leading = |count: usize| (0..count).map(|axis| outer(inputs, axis)).collect::<Vec<_>>();
    match workload.operation() {
        Operation::Rnn(attributes) => vec![rows_of_a_layer(*attributes)],
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
            columns[2..inputs].fill(Some(along(0)));
            cuts.push(columns);
            cuts
        }
        // Images, lines of a transform, rows of a product.
        Operation::Conv(_) | Operation::QuantizedMatmul(_) => leading(1),
        Operation::Fft(attributes) => leading(rank.saturating_sub(attributes.axes.into())),
        Operation::IntegerMatmul(attributes) => rows_of_integers(workload, *attributes),
        Operation::Quantize(_) => conversions(workload),
        // Columns of the dense operand, of what is added, and of the result.
        Operation::Sparse(_) => {
            let mut cut = vec![None, Some(along(1)), None, None];
            cut.resize(inputs + 1, Some(along(1)));
            vec![cut]
        }
        _ => Vec::new(),
    }
}

/// The first input and the output along this axis, the other inputs whole.
fn outer(inputs: usize, axis: usize) -> Cut {
    let mut cut = vec![None; inputs + 1];
    cut[0] = Some(along(axis));
    cut[inputs] = Some(along(axis));
    cut
}

/// Rows of the batch: of inputs and outputs at every step, of first and last states, of lengths.
fn rows_of_a_layer(attributes: RnnAttributes) -> Cut {
    let states = if attributes.cell == Cell::Lstm { 2 } else { 1 };
    let weights = if attributes.bias { 4 } else { 2 };
    let mut cut = vec![Some(along(1))];
    cut.extend(vec![Some(along(0)); states]);
    cut.extend(vec![None; weights]);
    cut.extend(attributes.lengths.then_some(Some(along(0))));
    cut.extend(attributes.kept.map(|_| None));
    cut.push(Some(along(1)));
    cut.extend(vec![Some(along(0)); states]);
    cut
}

/// Rows of the left operand, where nothing else has a number for each row, and matrices of both.
fn rows_of_integers(workload: &Workload, attributes: IntegerMatmulAttributes) -> Vec<Cut> {
    let (inputs, rank) = (workload.inputs(), workload.outputs()[0].shape.len());
    let mut cuts: Vec<Cut> = (0..rank - 2)
        .map(|axis| {
            let mut cut = outer(inputs.len(), axis);
            cut[1] = Some(along(axis));
            cut
        })
        .collect();
    let first_scale = 2
        + attributes.zero_points.iter().filter(|&&there| there).count()
        + usize::from(attributes.bias.is_some());
    let one = |operand: usize| inputs[operand].len() == 1;
    let by_row = (attributes.zero_points[0] && !one(2))
        || attributes.bias == Some(Along::Rows)
        || (attributes.requantized && !one(first_scale));
    if !by_row {
        cuts.push(outer(inputs.len(), rank - 2));
    }
    cuts
}

/// Conversions see their operand as outer × channels × inner with a scale for each channel, or as rows with a line of scales for each.
fn conversions(workload: &Workload) -> Vec<Cut> {
    let inputs = workload.inputs();
    let (x, y) = (&inputs[0], &workload.outputs()[0]);
    let (rows, scales) = (x.shape[0], inputs[1..].iter().map(TensorDesc::len).max().unwrap_or(1));
    let Operation::Quantize(attributes) = workload.operation() else { return Vec::new() };
    // Two integers of four bits share a byte.
    let cut = |axis: usize, each: Option<usize>| -> Option<Cut> {
        let units = x.shape[axis].min(y.shape[axis]).max(1);
        let own = |operand: &TensorDesc| Some(Axis { axis, each: operand.shape[axis] / units });
        let of_scale = |scale: &TensorDesc| {
            if scale.len() == 1 { None } else { each.map(|each| Axis { axis: 0, each }) }
        };
        let whole = x.shape[axis].is_multiple_of(units) && y.shape[axis].is_multiple_of(units);
        let middle = inputs[1..].iter().map(of_scale);
        whole.then(|| std::iter::once(own(x)).chain(middle).chain([own(y)]).collect())
    };
    let cut = if attributes.block > 0 {
        cut(0, Some(scales / rows.max(1)))
    } else if rows > 1 {
        cut(0, None)
    } else if scales > 1 {
        cut(1, Some(1))
    } else {
        cut(2, None)
    };
    cut.into_iter().collect()
}

/// The length of the axis, if all operands that are cut agree on it.
fn length(workload: &Workload, cut: &Cut) -> Option<usize> {
    let mut lengths = workload
        .operands()
        .iter()
        .zip(cut)
        .filter_map(|(operand, axis)| axis.map(|axis| units(operand, axis)));
    let first = lengths.next()??;
    lengths.all(|other| other == Some(first)).then_some(first).filter(|&length| length > 0)
}

/// Units of an operand, if they are whole.
fn units(operand: &TensorDesc, Axis { axis, each }: Axis) -> Option<usize> {
    let length = *operand.shape.get(axis)?;
    (each > 0 && length.is_multiple_of(each)).then(|| length / each)
}

fn cut_to(operand: &TensorDesc, axis: Option<Axis>, length: usize) -> TensorDesc {
    let mut part = *operand;
    if let Some(Axis { axis, each }) = axis {
        part.shape[axis] = length * each;
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
    use crate::ops::quantize::{IntegerOptions, QuantType, Quantization};
    use crate::ops::rnn::{Nonlinearity, RnnOptions, RnnWeights};
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

    /// Elements of an operand in each piece.
    fn lengths(parts: &[Piece], operand: usize) -> Vec<usize> {
        parts.iter().map(|piece| piece.workload.operands()[operand].len()).collect()
    }

    #[test]
    fn conversions_are_cut_with_their_scales() {
        let x = Tensor::zeros(&[6, 4, 8], DType::F32).unwrap();
        let of = |how: &Quantization| workload(|rt| rt.quantize(&x, how));
        // 768 bytes of numbers, at most 256 of them at a time.
        let parts = pieces(&of(&Quantization::per_tensor(QuantType::U4, 0.1, 0).unwrap()), 256).unwrap();
        assert_eq!((lengths(&parts, 0), lengths(&parts, 2)), (vec![64; 3], vec![32; 3]), "two in a byte");
        assert_eq!(parts[1].offsets, [256, 0, 32]);
        let channels = Quantization::per_channel(QuantType::I8, 0, &[0.1; 6], &[1; 6]).unwrap();
        let parts = pieces(&of(&channels), 256).unwrap();
        assert_eq!((lengths(&parts, 1), lengths(&parts, 2)), (vec![2; 3], vec![2; 3]));
        assert_eq!(parts[2].offsets, [512, 16, 16, 128]);
        let inner = Quantization::per_channel(QuantType::I8, 1, &[0.1; 4], &[]).unwrap();
        assert_eq!(lengths(&pieces(&of(&inner), 256).unwrap(), 1), [4; 3], "every part has all channels");
        let scales = Tensor::full(0.1f32, &[6, 4, 2]).unwrap();
        let blocks = Quantization::per_block(QuantType::I8, 5, &scales, None).unwrap();
        let parts = pieces(&of(&blocks), 256).unwrap();
        assert_eq!(lengths(&parts, 1), [16; 3], "two scales for each of eight rows");
        assert_eq!(parts[1].offsets, [256, 64, 64]);
    }

    #[test]
    fn layers_and_integer_products_are_cut_by_rows() {
        let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype).unwrap();
        let (x, w, u) =
            (zeros(&[9, 5, 4], DType::F32), zeros(&[3, 4], DType::F32), zeros(&[3, 3], DType::F32));
        let layer = workload(|rt| {
            let options = RnnOptions::new().batch_first();
            rt.rnn(&x, &[RnnWeights::new(&w, &u)], Nonlinearity::Tanh, &options)
        });
        let parts = pieces(&layer, 320).unwrap();
        assert_eq!(lengths(&parts, 0), [80, 80, 20], "four sequences of five steps of four numbers");
        assert_eq!(lengths(&parts, 2), [12; 3], "weights are whole");
        let (a, b) = (zeros(&[10, 8], DType::I8), zeros(&[8, 3], DType::I8));
        let plain = IntegerOptions::new();
        let product = workload(|rt| rt.matmul_integer(&a, &b, &plain));
        assert_eq!(lengths(&pieces(&product, 48).unwrap(), 0), [32, 32, 16]);
        let each = Tensor::full(1i8, &[10]).unwrap();
        let by_row = plain.a_zero_point(&each);
        let product = workload(|rt| rt.matmul_integer(&a, &b, &by_row));
        assert!(pieces(&product, 48).is_none(), "rows have zero points of their own");
    }
}
