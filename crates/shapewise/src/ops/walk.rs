//! Walking over operands: axes with their strides, sorted and merged, and offsets along them.

use arrayvec::ArrayVec;

use crate::tensor::{Layout, MAX_RANK, Shape, Strides};

/// A few axes, outermost first.
pub(crate) type AxisList = ArrayVec<Axis, MAX_RANK>;

/// One axis of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub size: usize,
    /// Distance of neighbours in the input, in elements.
    pub input: isize,
    /// Distance of neighbours in the output; zero along axes that it lacks.
    pub output: isize,
}

/// Shape and strides from sizes and strides.
pub(crate) fn layout(axes: impl Iterator<Item = (usize, isize)>, offset: usize) -> Layout {
    let (mut shape, mut strides) = (Shape::filled(0, 0), Strides::filled(0, 0));
    for (size, stride) in axes {
        shape.append(size);
        strides.append(stride);
    }
    Layout { shape, strides, offset }
}

/// Without axes of size one, far strides first, neighbours merged where one stride serves both.
pub(crate) fn tidy(axes: &[Axis], ordered: bool) -> AxisList {
    let mut sorted: AxisList = axes.iter().copied().filter(|a| a.size != 1).collect();
    if !ordered {
        // Repeated elements (stride zero) go outermost: the innermost axis should be a run in memory.
        let far = |a: &Axis| if a.input == 0 { usize::MAX } else { a.input.unsigned_abs() };
        sorted.sort_by_key(|a| std::cmp::Reverse(far(a)));
    }
    let mut out: AxisList = ArrayVec::new();
    for axis in sorted {
        let size = axis.size as isize;
        match out.last_mut() {
            Some(last)
                if last.input == axis.input.saturating_mul(size)
                    && last.output == axis.output.saturating_mul(size) =>
            {
                *last = Axis { size: last.size * axis.size, ..axis };
            }
            _ => out.push(axis),
        }
    }
    out
}

/// Offset of the `index`-th point of the axes in row-major order, by input or output strides.
#[inline]
pub(crate) fn offset(axes: &[Axis], mut index: usize, stride: impl Fn(&Axis) -> isize) -> isize {
    let Some((first, inner)) = axes.split_first() else { return 0 };
    let mut at = 0;
    for axis in inner.iter().rev() {
        at += (index % axis.size) as isize * stride(axis);
        index /= axis.size;
    }
    at + index as isize * stride(first)
}
