//! Where the elements of a view lie: shape, strides and the first element.

use super::axes::{MAX_RANK, Shape, Strides};
use crate::error::Error;

/// The longest stride: that many elements of any type fit the address space.
const FARTHEST: usize = isize::MAX as usize / 16;

/// Shape, strides and the index of the first element in a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Elements along each axis.
    pub shape: Shape,
    /// Distance between neighbours along each axis, in elements.
    pub strides: Strides,
    /// Index of element `[0, 0, …]` in the storage.
    pub offset: usize,
}

impl Layout {
    /// Row-major without gaps.
    pub fn contiguous(shape: Shape) -> Self {
        Self { shape, strides: shape.contiguous_strides(), offset: 0 }
    }

    /// One axis of neighbours.
    #[inline]
    pub fn line(len: usize) -> Self {
        Self { shape: Shape::filled(len, 1), strides: Strides::filled(1, 1), offset: 0 }
    }

    /// A layout given freely, checked to lie inside `available` elements.
    pub fn new(shape: &[usize], strides: &[isize], offset: usize, available: usize) -> Result<Self, Error> {
        if shape.len() != strides.len() {
            return Err(Error::InvalidArgument {
                operation: "layout",
                reason: format!(
                    "{} sizes but {} strides; give one stride per axis",
                    shape.len(),
                    strides.len()
                ),
            });
        }
        let layout = Self { shape: Shape::new(shape)?, strides: Strides::new(strides)?, offset };
        layout.check(available)?;
        Ok(layout)
    }

    /// Checks that every element lies inside `available` elements.
    pub fn check(&self, available: usize) -> Result<(), Error> {
        let outside = || Error::OutOfBounds {
            shape: self.shape.to_vec(),
            strides: self.strides.to_vec(),
            offset: self.offset,
            available,
        };
        // Kernels multiply strides by sizes of elements, even where there is only one element or none.
        if self.strides.iter().any(|s| s.unsigned_abs() > FARTHEST) {
            return Err(outside());
        }
        let elements = self.shape.elements()?;
        // The usual view ends where its elements do.
        if elements == 0 || self.offset == 0 && elements <= available && self.is_contiguous() {
            return Ok(());
        }
        let (mut low, mut high) = (self.offset as i128, self.offset as i128);
        for (&size, &stride) in self.shape.iter().zip(self.strides.iter()) {
            let reach = (size as i128 - 1) * stride as i128;
            if reach < 0 {
                low += reach;
            } else {
                high += reach;
            }
        }
        if low < 0 || high >= available as i128 {
            return Err(outside());
        }
        Ok(())
    }

    /// Number of elements. Layouts are checked when they are made, so this cannot overflow.
    #[inline]
    pub fn len(&self) -> usize {
        count(&self.shape)
    }

    /// Whether there are no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Whether elements lie in row-major order without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        in_order(&self.shape, &self.strides)
    }

    /// The length of one axis of neighbours, if it is that.
    #[inline]
    pub(crate) fn as_line(&self) -> Option<usize> {
        self.shape.sole().filter(|_| self.strides.sole() == Some(1))
    }

    /// Whether two indices may name the same element, as after a broadcast: nothing may be written through it.
    pub fn overlaps_itself(&self) -> bool {
        if self.is_empty() || self.is_contiguous() {
            return false;
        }
        let mut axes = [(0usize, 0usize); MAX_RANK];
        let mut rank = 0;
        for (&size, &stride) in self.shape.iter().zip(self.strides.iter()) {
            if size > 1 {
                axes[rank] = (stride.unsigned_abs(), size);
                rank += 1;
            }
        }
        axes[..rank].sort_unstable();
        let mut reach = 0usize;
        for &(stride, size) in &axes[..rank] {
            if stride <= reach {
                return true;
            }
            reach = reach.saturating_add(stride.saturating_mul(size - 1));
        }
        false
    }

    /// The axes in another order.
    pub fn permute(&self, order: &[usize]) -> Result<Self, Error> {
        let rank = self.shape.len();
        let mut seen = [false; MAX_RANK];
        let valid = order.len() == rank
            && order.iter().all(|&axis| axis < rank && !std::mem::replace(&mut seen[axis], true));
        if !valid {
            return Err(Error::InvalidArgument {
                operation: "permute",
                reason: format!("{order:?} is not an order of the axes 0..{rank}; name each axis once"),
            });
        }
        let mut out = *self;
        for (to, &from) in order.iter().enumerate() {
            out.shape[to] = self.shape[from];
            out.strides[to] = self.strides[from];
        }
        Ok(out)
    }

    /// The last two axes exchanged; tensors of lower rank stay as they are.
    #[must_use]
    pub fn transpose(&self) -> Self {
        let mut out = *self;
        let rank = self.shape.len();
        if rank >= 2 {
            out.shape.swap(rank - 2, rank - 1);
            out.strides.swap(rank - 2, rank - 1);
        }
        out
    }

    /// Elements `start..end` of one axis in steps of `step`; a negative step walks from `end - 1` down to `start`.
    pub fn slice(&self, axis: usize, start: usize, end: usize, step: isize) -> Result<Self, Error> {
        let rank = self.shape.len();
        if axis >= rank {
            return Err(Error::AxisOutOfRange { axis: axis as isize, rank });
        }
        let size = self.shape[axis];
        if start > end || end > size || step == 0 {
            return Err(Error::InvalidArgument {
                operation: "slice",
                reason: format!(
                    "{start}..{end} in steps of {step} does not fit axis {axis} of size {size}; \
                     start ≤ end ≤ size and a step other than 0 are needed"
                ),
            });
        }
        let mut out = *self;
        let count = (end - start).div_ceil(step.unsigned_abs());
        if count > 0 {
            let first = if step > 0 { start } else { end - 1 };
            out.offset = self.offset.wrapping_add_signed(self.strides[axis].wrapping_mul(first as isize));
        }
        out.shape[axis] = count;
        if count > 1 {
            out.strides[axis] = self.strides[axis].saturating_mul(step);
        }
        Ok(out)
    }

    /// Repeats axes of size one (and missing leading axes) up to `shape`, without copying.
    pub fn broadcast_to(&self, shape: &Shape) -> Result<Self, Error> {
        let rank = shape.len();
        let mismatch = || Error::ShapeMismatch {
            operation: "broadcast",
            reason: format!("{} does not broadcast to {shape}", self.shape),
        };
        let missing = rank.checked_sub(self.shape.len()).ok_or_else(mismatch)?;
        let mut strides = Strides::filled(0, rank);
        for (i, (&size, &stride)) in self.shape.iter().zip(self.strides.iter()).enumerate() {
            let wanted = shape[missing + i];
            strides[missing + i] = match size {
                _ if size == wanted => stride,
                1 => 0,
                _ => return Err(mismatch()),
            };
        }
        shape.elements()?;
        Ok(Self { shape: *shape, strides, offset: self.offset })
    }

    /// The same elements under another shape, without copying; `None` where only a copy could do it.
    pub fn reshape(&self, shape: &[usize]) -> Result<Option<Self>, Error> {
        let wanted = Shape::new(shape)?;
        if wanted.elements()? != self.len() {
            return Err(Error::ShapeMismatch {
                operation: "reshape",
                reason: format!("{} has {} elements, {wanted} another number", self.shape, self.len()),
            });
        }
        if self.is_contiguous() {
            return Ok(Some(Self { offset: self.offset, ..Self::contiguous(wanted) }));
        }
        let merged = self.merged();
        // Each merged run of the old layout must be cut exactly into axes of the new one.
        let mut strides = Strides::filled(0, wanted.len());
        let mut axis = wanted.len();
        for (&size, &stride) in merged.shape.iter().zip(merged.strides.iter()).rev() {
            let (mut left, mut next) = (size, stride);
            while axis > 0 && (left > 1 || wanted[axis - 1] == 1) {
                let part = wanted[axis - 1];
                if left % part != 0 {
                    return Ok(None);
                }
                axis -= 1;
                strides[axis] = next;
                next = next.saturating_mul(part as isize);
                left /= part;
            }
            if left != 1 {
                return Ok(None);
            }
        }
        Ok(wanted[..axis].iter().all(|&d| d == 1).then_some(Self {
            shape: wanted,
            strides,
            offset: self.offset,
        }))
    }

    /// The same elements in the same order with as few axes as possible.
    #[must_use]
    pub fn merged(&self) -> Self {
        if self.is_empty() {
            return Self { offset: self.offset, ..Self::contiguous(Shape::filled(0, 1)) };
        }
        let mut out =
            Self { shape: Shape::filled(0, 0), strides: Strides::filled(0, 0), offset: self.offset };
        for (&size, &stride) in self.shape.iter().zip(self.strides.iter()) {
            if size == 1 {
                continue;
            }
            match (out.shape.last_mut(), out.strides.last_mut()) {
                (Some(last_size), Some(last_stride))
                    if *last_stride == stride.saturating_mul(size as isize) =>
                {
                    *last_size *= size;
                    *last_stride = stride;
                }
                _ => {
                    out.shape.append(size);
                    out.strides.append(stride);
                }
            }
        }
        out
    }
}

/// Number of elements of a checked shape.
#[inline]
pub(crate) fn count(shape: &[usize]) -> usize {
    // Beside a zero, the other sizes may be such that their product overflows; it is zero even so.
    shape.iter().fold(1, |n, &size| n.wrapping_mul(size))
}

/// Whether elements lie in row-major order without gaps.
#[inline]
pub(crate) fn in_order(shape: &[usize], strides: &[isize]) -> bool {
    // The usual ranks, without a loop.
    match (shape, strides) {
        (&[_], &[1]) => true,
        (&[_, columns], &[down, 1]) if down == columns as isize => true,
        _ => each_in_order(shape, strides),
    }
}

/// The same axis by axis; apart, so that the usual ranks melt into their calls.
#[inline(never)]
fn each_in_order(shape: &[usize], strides: &[isize]) -> bool {
    let mut next = 1isize;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if size != 1 && stride != next {
            // Without elements none is out of order.
            return shape.contains(&0);
        }
        next = next.saturating_mul(size as isize);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize]) -> Layout {
        Layout::contiguous(Shape::new(shape).unwrap())
    }

    #[test]
    fn broadcast_views_repeat_themselves() {
        let s = |v: &[usize]| Shape::new(v).unwrap();
        assert!(layout(&[3]).broadcast_to(&s(&[2, 3])).unwrap().overlaps_itself());
        assert!(layout(&[2, 3]).broadcast_to(&s(&[3])).is_err());
        assert!(!layout(&[2, 3]).transpose().overlaps_itself());
    }

    #[test]
    fn slices_stay_inside() {
        let l = layout(&[4, 6]);
        let back = l.slice(1, 1, 6, -2).unwrap();
        assert_eq!(back.shape.to_vec(), [4, 3]);
        assert_eq!((back.offset, back.strides[1]), (5, -2));
        back.check(24).unwrap();
        assert!(l.slice(1, 3, 7, 1).is_err());
        assert!(l.slice(2, 0, 1, 1).is_err());
        assert!(l.slice(0, 0, 1, 0).is_err());
        assert_eq!(l.slice(0, 2, 2, 1).unwrap().len(), 0);
    }

    #[test]
    fn sizes_beside_a_zero_do_not_overflow() {
        for shape in [[0, usize::MAX, usize::MAX], [usize::MAX, usize::MAX, 0]] {
            let l = layout(&shape);
            assert_eq!((l.len(), l.is_contiguous(), l.merged().len()), (0, true, 0));
        }
    }

    #[test]
    fn free_layouts_are_checked() {
        assert!(Layout::new(&[2, 3], &[3, 1], 0, 6).is_ok());
        assert!(Layout::new(&[2, 3], &[3, 1], 1, 6).is_err());
        assert!(Layout::new(&[2], &[-1], 0, 6).is_err());
        assert!(Layout::new(&[2], &[isize::MAX], 5, 6).is_err());
        assert!(Layout::new(&[0], &[isize::MIN], 99, 6).is_err());
        assert!(Layout::new(&[0], &[-1], 99, 6).is_ok());
        assert!(Layout::new(&[2], &[1, 1], 0, 6).is_err());
    }

    #[test]
    fn merging_and_reshaping_keep_the_order() {
        assert_eq!(layout(&[2, 1, 3]).merged().shape.to_vec(), [6]);
        let t = layout(&[2, 3]).transpose();
        assert_eq!(t.merged().shape.to_vec(), [3, 2]);
        assert!(t.reshape(&[6]).unwrap().is_none());
        let rows = layout(&[4, 6]).slice(1, 0, 4, 1).unwrap();
        let cut = rows.reshape(&[2, 2, 2, 2]).unwrap().unwrap();
        assert_eq!(cut.strides.to_vec(), [12, 6, 2, 1]);
        assert!(rows.reshape(&[16]).unwrap().is_none());
        assert!(rows.reshape(&[5]).is_err());
        assert!(layout(&[0, 4]).transpose().reshape(&[7, 0]).unwrap().is_some());
    }

    #[test]
    fn permutation_is_checked() {
        let l = layout(&[2, 3, 4]);
        assert_eq!(l.permute(&[2, 0, 1]).unwrap().shape.to_vec(), [4, 2, 3]);
        assert!(l.permute(&[0, 0, 1]).is_err());
        assert!(l.permute(&[0, 1]).is_err());
    }
}
