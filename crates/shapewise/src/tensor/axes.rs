//! One number per axis, kept inline.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};

use crate::error::Error;

/// The most axes a tensor may have.
pub const MAX_RANK: usize = 8;

/// Up to [`MAX_RANK`] numbers, one per axis, without allocation.
#[derive(Clone, Copy)]
pub struct Axes<T> {
    values: [T; MAX_RANK],
    rank: u8,
}

/// Elements along each axis.
pub type Shape = Axes<usize>;
/// Distance in elements between neighbours along each axis; zero repeats, negative walks backwards.
pub type Strides = Axes<isize>;

impl<T: Copy + Default> Axes<T> {
    /// The numbers, if there are at most [`MAX_RANK`].
    #[inline]
    pub fn new(values: &[T]) -> Result<Self, Error> {
        if values.len() > MAX_RANK {
            return Err(Error::RankTooLarge { rank: values.len() });
        }
        let mut axes = Self { values: [T::default(); MAX_RANK], rank: values.len() as u8 };
        axes.values[..values.len()].copy_from_slice(values);
        Ok(axes)
    }

    /// `rank` times the same number.
    ///
    /// # Panics
    /// If `rank` exceeds [`MAX_RANK`].
    pub fn filled(value: T, rank: usize) -> Self {
        assert!(rank <= MAX_RANK, "rank {rank} exceeds {MAX_RANK}");
        let mut axes = Self { values: [T::default(); MAX_RANK], rank: rank as u8 };
        axes.values[..rank].fill(value);
        axes
    }

    /// The number of the only axis, if there is just one.
    #[inline]
    pub(crate) fn sole(&self) -> Option<T> {
        // Not by a slice, whose end would be checked.
        (self.rank == 1).then_some(self.values[0])
    }

    /// One more axis at the end.
    ///
    /// # Panics
    /// If there are [`MAX_RANK`] already.
    pub fn append(&mut self, value: T) {
        let rank = self.rank as usize;
        assert!(rank < MAX_RANK, "no room for another axis");
        self.values[rank] = value;
        self.rank += 1;
    }
}

impl<T> Deref for Axes<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.values[..self.rank as usize]
    }
}

impl<T> DerefMut for Axes<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values[..self.rank as usize]
    }
}

impl<T: PartialEq> PartialEq for Axes<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // A few axes are compared before a call to compare memory would have begun.
        self.rank == other.rank && self.iter().zip(other.iter()).all(|(a, b)| a == b)
    }
}

impl<T: Eq> Eq for Axes<T> {}

impl<T: Hash> Hash for Axes<T> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The rank is part of the slice's hash.
        (**self).hash(state);
    }
}

impl<T: fmt::Debug> fmt::Debug for Axes<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.pad("scalar");
        }
        let parts: Vec<_> = self.iter().map(ToString::to_string).collect();
        f.pad(&parts.join("×"))
    }
}

impl Shape {
    /// Number of elements; an error when it does not fit the address space.
    ///
    /// The sizes beside a zero must fit as well, so that no part of a shape that was checked overflows.
    pub fn elements(&self) -> Result<usize, Error> {
        let elements = self
            .iter()
            .try_fold(1usize, |n, &d| n.checked_mul(d.max(1)))
            .filter(|&n| isize::try_from(n).is_ok())
            .ok_or_else(|| Error::SizeOverflow { shape: self.to_vec() })?;
        Ok(if self.contains(&0) { 0 } else { elements })
    }

    /// Strides of the row-major layout without gaps.
    pub fn contiguous_strides(&self) -> Strides {
        // Beside a zero the other sizes may be so large that no stride could express them; none is needed.
        if self.contains(&0) {
            return Strides::filled(1, self.len());
        }
        let mut strides = Strides::filled(0, self.len());
        let mut next = 1isize;
        for (stride, &size) in strides.iter_mut().zip(self.iter()).rev() {
            *stride = next;
            next = next.saturating_mul(size as isize);
        }
        strides
    }

    /// The common shape of two operands under `NumPy`'s broadcasting rules.
    pub fn broadcast(&self, other: &Shape, operation: &'static str) -> Result<Shape, Error> {
        let rank = self.len().max(other.len());
        let mut out = Shape::filled(1, rank);
        for (i, size) in out.iter_mut().enumerate() {
            let of = |s: &Shape| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
            *size = match (of(self), of(other)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                (a, b) => {
                    return Err(Error::ShapeMismatch {
                        operation,
                        reason: format!(
                            "{self} and {other} do not broadcast: axis {i} of the result would be {a} and {b} at once"
                        ),
                    });
                }
            };
        }
        out.elements()?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_and_rank_are_errors() {
        assert!(matches!(Shape::new(&[usize::MAX, 2]).unwrap().elements(), Err(Error::SizeOverflow { .. })));
        assert_eq!(Shape::new(&[1 << 40, 0, 7]).unwrap().elements().unwrap(), 0);
        assert!(matches!(Shape::new(&[usize::MAX, 0]).unwrap().elements(), Err(Error::SizeOverflow { .. })));
        assert!(matches!(Shape::new(&[1; 9]), Err(Error::RankTooLarge { rank: 9 })));
    }

    #[test]
    fn broadcasting_follows_numpy() {
        let s = |v: &[usize]| Shape::new(v).unwrap();
        assert_eq!(*s(&[3, 1]).broadcast(&s(&[4]), "add").unwrap(), [3, 4]);
        assert_eq!(*s(&[]).broadcast(&s(&[2, 0]), "add").unwrap(), [2, 0]);
        assert!(s(&[3]).broadcast(&s(&[4]), "add").is_err());
    }
}
