//! Where the elements of a reduction lie: which axes are kept and which reduced, in the order to walk them.

use crate::ops::walk::{Axis, AxisList, layout, tidy};
use crate::tensor::Layout;

/// The axes of a reduction, outermost first, as few as possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub kept: AxisList,
    pub reduced: AxisList,
}

impl Plan {
    /// Sorts and merges axes; `ordered` keeps the order of the reduced ones (places are counted along them).
    pub fn new(kept: &[Axis], reduced: &[Axis], ordered: bool) -> Self {
        Self { kept: tidy(kept, false), reduced: tidy(reduced, ordered) }
    }

    /// The plan of an input whose last axes are reduced.
    pub fn of(shape: &[usize], strides: &[isize], output: &[isize], ordered: bool) -> Self {
        let axis = |i: usize| Axis {
            size: shape[i],
            input: strides[i],
            output: output.get(i).copied().unwrap_or(0),
        };
        let kept: AxisList = (0..output.len()).map(axis).collect();
        let reduced: AxisList = (output.len()..shape.len()).map(axis).collect();
        Self::new(&kept, &reduced, ordered)
    }

    /// Number of results.
    pub fn outputs(&self) -> usize {
        self.kept.iter().map(|a| a.size).product()
    }

    /// Number of elements in each result.
    pub fn depth(&self) -> usize {
        self.reduced.iter().map(|a| a.size).product()
    }

    /// The layout of the input at `offset`: kept axes, then reduced ones.
    pub fn input_layout(&self, offset: usize) -> Layout {
        let axes = || self.kept.iter().chain(&self.reduced);
        layout(axes().map(|a| (a.size, a.input)), offset)
    }

    /// The layout of the output at `offset`.
    pub fn output_layout(&self, offset: usize) -> Layout {
        layout(self.kept.iter().map(|a| (a.size, a.output)), offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::walk::offset;

    fn axis(size: usize, input: isize, output: isize) -> Axis {
        Axis { size, input, output }
    }

    #[test]
    fn equal_work_gives_equal_plans() {
        // Rows of a matrix, and the same through a transposed three-dimensional view.
        let plain = Plan::new(&[axis(6, 4, 1)], &[axis(4, 1, 0)], false);
        let other = Plan::new(&[axis(3, 4, 1), axis(2, 12, 3)], &[axis(2, 1, 0), axis(2, 2, 0)], false);
        assert_eq!(plain, other);
        assert_eq!((other.outputs(), other.depth()), (6, 4));
    }

    #[test]
    fn order_of_places_is_kept() {
        let reduced = [axis(2, 1, 0), axis(3, 2, 0)];
        assert_eq!(Plan::new(&[], &reduced, true).reduced.len(), 2);
        assert_eq!(Plan::new(&[], &reduced, false).reduced.as_slice(), [axis(6, 1, 0)]);
    }

    #[test]
    fn kept_axes_merge_only_where_the_output_does() {
        let gap = Plan::new(&[axis(2, 6, 10), axis(3, 2, 1)], &[], false);
        assert_eq!(gap.kept.len(), 2);
    }

    #[test]
    fn offsets_walk_in_row_major_order() {
        let axes = [axis(2, 100, 1), axis(3, -1, 0)];
        let all: Vec<_> = (0..6).map(|i| offset(&axes, i, |a| a.input)).collect();
        assert_eq!(all, [0, -1, -2, 100, 99, 98]);
        assert_eq!(offset(&[], 0, |a| a.input), 0);
    }
}
