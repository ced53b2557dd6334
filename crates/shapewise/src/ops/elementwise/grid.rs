//! The axes that a kernel walks, split into parts for threads.

use arrayvec::ArrayVec;

use super::program::MAX_INPUTS;
use crate::ops::Workload;
use crate::tensor::MAX_RANK;

/// Offsets in elements of each input and, at the end, the output.
pub(super) type Offsets = [isize; MAX_INPUTS + 1];

/// Pieces of the inner axis start at multiples of this many elements, so that threads share no cache line.
const GRAIN: usize = 64;
/// From this many elements on there are several parts per thread: one that is held up holds up less.
const MANY: usize = 1 << 20;

/// A block of the output's axes, the innermost last, and every operand's strides along them.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    sizes: ArrayVec<usize, MAX_RANK>,
    strides: ArrayVec<Offsets, MAX_RANK>,
    start: Offsets,
}

impl Grid {
    /// All of a workload in canonical form.
    pub(super) fn new(workload: &Workload) -> Self {
        let (inputs, output) = (workload.inputs(), &workload.outputs()[0]);
        let strides = (0..output.shape.len())
            .map(|axis| {
                let mut strides = [0; MAX_INPUTS + 1];
                for (to, input) in strides.iter_mut().zip(inputs) {
                    *to = input.strides[axis];
                }
                strides[MAX_INPUTS] = output.strides[axis];
                strides
            })
            .collect();
        let sizes = output.shape.iter().copied().collect();
        Self { sizes, strides, start: [0; MAX_INPUTS + 1] }
    }

    /// Parts that this many threads should take in turn.
    pub(super) fn parts(elements: usize, threads: usize) -> usize {
        match threads {
            1 => 1,
            _ if elements < MANY => threads,
            _ => threads * 4,
        }
    }

    /// Part `i` of `parts`, cut along the longest axis; it may be empty.
    pub(super) fn part(&self, i: usize, parts: usize) -> Self {
        let mut part = self.clone();
        let inner = self.sizes.len() - 1;
        let longest = (0..=inner).max_by_key(|&axis| self.sizes[axis]).unwrap_or(inner);
        let grain = if longest == inner { GRAIN } else { 1 };
        let size = self.sizes[longest];
        let each = size.div_ceil(parts).next_multiple_of(grain);
        let from = (i * each).min(size);
        part.sizes[longest] = (from + each).min(size) - from;
        part.shift(longest, from);
        part
    }

    fn shift(&mut self, axis: usize, by: usize) {
        for (start, stride) in self.start.iter_mut().zip(&self.strides[axis]) {
            *start += stride * by as isize;
        }
    }

    /// Elements of the innermost axis.
    pub(super) fn length(&self) -> usize {
        self.sizes[self.sizes.len() - 1]
    }

    /// Elements of the axis around it.
    pub(super) fn rows(&self) -> usize {
        if self.sizes.len() > 1 { self.sizes[self.sizes.len() - 2] } else { 1 }
    }

    /// Strides of the innermost axis.
    pub(super) fn steps(&self) -> &Offsets {
        &self.strides[self.strides.len() - 1]
    }

    /// Strides of the axis around it.
    pub(super) fn row_steps(&self) -> Offsets {
        if self.strides.len() > 1 { self.strides[self.strides.len() - 2] } else { [0; MAX_INPUTS + 1] }
    }

    /// Calls `plane` with the offsets of the first element of each pair of inner axes.
    pub(super) fn for_each_plane(&self, mut plane: impl FnMut(&Offsets)) {
        if self.sizes.contains(&0) {
            return;
        }
        let outer = self.sizes.len().saturating_sub(2);
        let mut index = [0; MAX_RANK];
        let mut at = self.start;
        loop {
            plane(&at);
            let mut axis = outer;
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                let strides = &self.strides[axis];
                if index[axis] < self.sizes[axis] {
                    at.iter_mut().zip(strides).for_each(|(a, s)| *a += s);
                    break;
                }
                let back = self.sizes[axis] as isize - 1;
                at.iter_mut().zip(strides).for_each(|(a, s)| *a -= s * back);
                index[axis] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::elementwise::{Function, Program};
    use crate::ops::{Operation, TensorDesc};
    use crate::tensor::{DType, Shape};

    fn grid(shape: &[usize]) -> Grid {
        let desc = TensorDesc::contiguous(DType::F32, Shape::new(shape).unwrap());
        let operation = Operation::Elementwise(Program::single(Function::Neg, &[]));
        Grid::new(&Workload::new(operation, &[desc], &[desc]))
    }

    /// Every element of a grid, by its offset in the output.
    fn visited(grid: &Grid) -> Vec<isize> {
        let mut all = Vec::new();
        grid.for_each_plane(|at| {
            assert_eq!(at[0], at[MAX_INPUTS]);
            for row in 0..grid.rows() as isize {
                for i in 0..grid.length() as isize {
                    all.push(at[0] + row * grid.row_steps()[0] + i * grid.steps()[0]);
                }
            }
        });
        all
    }

    #[test]
    fn parts_cover_everything_once() {
        for shape in [&[1][..], &[1000], &[7, 3], &[3, 7, 5], &[2, 300, 3, 4], &[5, 0, 2]] {
            let whole = grid(shape);
            let count: usize = shape.iter().product();
            assert_eq!(visited(&whole), (0..count as isize).collect::<Vec<_>>());
            for parts in [1, 2, 3, 8] {
                let mut all: Vec<_> = (0..parts).flat_map(|i| visited(&whole.part(i, parts))).collect();
                all.sort_unstable();
                assert_eq!(all, (0..count as isize).collect::<Vec<_>>(), "{shape:?} in {parts}");
            }
        }
    }
}
