//! One form for equal work: few axes, the output walked forwards in the order of its memory.

use arrayvec::ArrayVec;

use super::program::MAX_INPUTS;
use crate::error::Result;
use crate::tensor::{Layout, Shape, Strides};

/// Layouts of the inputs (already broadcast to the output's shape), then of the output.
pub(crate) type Operands = ArrayVec<Layout, { MAX_INPUTS + 1 }>;

/// Broadcasts the inputs and brings all operands into the common form of at least one axis.
pub(crate) fn canonical(operands: &mut Operands) -> Result<()> {
    let output = *operands.last().unwrap_or(&Layout::contiguous(Shape::filled(0, 0)));
    if operands.iter().all(|o| o.shape == output.shape && o.is_contiguous()) {
        for operand in operands.iter_mut() {
            *operand = Layout { offset: operand.offset, ..Layout::line(output.len()) };
        }
        return Ok(());
    }
    for operand in operands.iter_mut() {
        *operand = operand.broadcast_to(&output.shape)?;
    }
    *operands = merged(operands, &output);
    Ok(())
}

/// Sorts the axes by the output's strides, turns backward ones round, merges what is contiguous in every operand.
fn merged(operands: &Operands, output: &Layout) -> Operands {
    if output.is_empty() {
        let nothing = Layout::contiguous(Shape::filled(0, 1));
        return operands.iter().map(|_| nothing).collect();
    }
    let mut axes: ArrayVec<usize, { crate::tensor::MAX_RANK }> =
        (0..output.shape.len()).filter(|&axis| output.shape[axis] > 1).collect();
    axes.sort_by_key(|&axis| std::cmp::Reverse(output.strides[axis].unsigned_abs()));
    let mut out: Operands = operands
        .iter()
        .map(|o| Layout { shape: Shape::filled(0, 0), strides: Strides::filled(0, 0), offset: o.offset })
        .collect();
    for axis in axes {
        let size = output.shape[axis];
        let turn = output.strides[axis] < 0;
        let strides: ArrayVec<isize, { MAX_INPUTS + 1 }> = operands.iter().map(|o| o.strides[axis]).collect();
        if turn {
            for (to, &stride) in out.iter_mut().zip(&strides) {
                to.offset = to.offset.wrapping_add_signed(stride * (size as isize - 1));
            }
        }
        let forward = |stride: isize| if turn { -stride } else { stride };
        let joins = out.iter().zip(&strides).all(|(to, &stride)| {
            to.strides.last().is_some_and(|&last| last == forward(stride) * size as isize)
        });
        for (to, &stride) in out.iter_mut().zip(&strides) {
            if let (true, Some(last_size), Some(last_stride)) =
                (joins, to.shape.last_mut(), to.strides.last_mut())
            {
                *last_size *= size;
                *last_stride = forward(stride);
            } else {
                to.shape.append(size);
                to.strides.append(forward(stride));
            }
        }
    }
    for operand in &mut out {
        if operand.shape.is_empty() {
            operand.shape.append(1);
            operand.strides.append(1);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contiguous(shape: &[usize]) -> Layout {
        Layout::contiguous(Shape::new(shape).unwrap())
    }

    fn run(operands: &[Layout]) -> Vec<(Vec<usize>, Vec<isize>, usize)> {
        let mut out: Operands = operands.iter().copied().collect();
        canonical(&mut out).unwrap();
        out.iter().map(|l| (l.shape.to_vec(), l.strides.to_vec(), l.offset)).collect()
    }

    #[test]
    fn equal_work_gets_an_equal_form() {
        let line = vec![(vec![24], vec![1], 0); 2];
        assert_eq!(run(&[contiguous(&[24]); 2]), line);
        assert_eq!(run(&[contiguous(&[2, 3, 4]); 2]), line);
        assert_eq!(run(&[contiguous(&[4, 6]).transpose(); 2]), line);
        assert_eq!(run(&[contiguous(&[]); 2]), vec![(vec![1], vec![1], 0); 2]);
    }

    #[test]
    fn broadcast_rows_and_scalars_keep_their_zero_strides() {
        let row = run(&[contiguous(&[4]), contiguous(&[2, 3, 4])]);
        assert_eq!(row[0], (vec![6, 4], vec![0, 1], 0));
        let scalar = run(&[contiguous(&[]), contiguous(&[2, 3])]);
        assert_eq!(scalar[0], (vec![6], vec![0], 0));
    }

    #[test]
    fn backward_outputs_are_turned_round() {
        let back = contiguous(&[5]).slice(0, 0, 5, -1).unwrap();
        let both = run(&[contiguous(&[5]), back]);
        assert_eq!(both, [(vec![5], vec![-1], 4), (vec![5], vec![1], 0)]);
    }

    #[test]
    fn empty_and_mismatched() {
        assert_eq!(run(&[contiguous(&[1]), contiguous(&[0, 3])])[0].0, [0]);
        assert!(canonical(&mut [contiguous(&[3]), contiguous(&[2])].into_iter().collect()).is_err());
    }
}
