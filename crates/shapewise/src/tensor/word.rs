//! Element type, alignment and layout of a usual operand in one word: what a short call knows it by.

use super::{DType, Layout, Shape, Strides};
use crate::backends::cpu::ALIGNMENT;

/// Where the sizes of an operand begin in its first word; its rank, if the sizes have words of their own.
pub(crate) const SIZES: u32 = 16;
/// Bits of a size of a matrix.
const SIDE: u32 = 24;

/// What an operand's first word begins with.
#[inline]
pub(crate) fn header(dtype: DType, aligned: bool) -> u64 {
    dtype as u64 | if aligned { Word::ALIGNED } else { 0 }
}

/// Whether an operand starts at a multiple of [`ALIGNMENT`].
#[inline]
pub(crate) fn is_aligned(first: *const u8) -> bool {
    first.addr().is_multiple_of(ALIGNMENT)
}

/// Type, alignment and layout, or [`Word::NONE`] where they take more than one word. Tensors and views know theirs, so that a short call
/// need not look at shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    /// That of no operand.
    pub const NONE: Self = Self(0);
    const DTYPE: u64 = 0xff;
    const ALIGNED: u64 = 1 << 8;

    /// The word of an operand whose first element lies there.
    #[inline]
    pub fn of(dtype: DType, first: *const u8, layout: &Layout) -> Self {
        let form = Form::of(&layout.shape, &layout.strides);
        form.map_or(Self::NONE, |form| Self(header(dtype, is_aligned(first)) | form))
    }

    /// As it stands in a key, where no operand's word is zero.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// That of the same memory as elements of another type of the same size.
    #[inline]
    pub fn with_dtype(self, dtype: DType) -> Self {
        if self == Self::NONE { self } else { Self(self.0 & !Self::DTYPE | dtype as u64) }
    }

    /// The same of an operand that may be aligned or not.
    #[inline]
    pub fn unaligned(self) -> Self {
        Self(self.0 & !Self::ALIGNED)
    }

    /// Whether all are lines of neighbours.
    #[inline(always)]
    pub fn are_lines<const N: usize>(words: [Self; N]) -> bool {
        words.iter().all(|word| word.0 & Form::ALL == Form::LINE)
    }

    /// Whether all are matrices without gaps.
    #[inline(always)]
    pub fn are_matrices<const N: usize>(words: [Self; N]) -> bool {
        words.iter().all(|word| word.0 & Form::ROWS != 0)
    }
}

/// Layouts that one word holds together with type and alignment, which are those of most short calls.
pub(crate) struct Form;

impl Form {
    /// Neighbours along one axis.
    const LINE: u64 = 1 << 9;
    /// Rows of neighbours without gaps.
    const ROWS: u64 = 2 << 9;
    /// Columns of neighbours without gaps.
    const COLUMNS: u64 = 3 << 9;
    const ALL: u64 = 3 << 9;

    /// The form and the sizes, if one word holds them.
    #[inline]
    pub fn of(shape: &Shape, strides: &Strides) -> Option<u64> {
        match (&shape[..], &strides[..]) {
            (&[len], &[1]) => Self::line(len),
            (&[m, n], &[x, y]) if (m | n) >> SIDE == 0 => {
                let form = match (x as usize, y as usize) {
                    (x, 1) if x == n => Self::ROWS,
                    (1, y) if y == m => Self::COLUMNS,
                    _ => return None,
                };
                Some(form | (m as u64) << SIZES | (n as u64) << (SIZES + SIDE))
            }
            _ => None,
        }
    }

    /// The same of a line.
    #[inline]
    pub fn line(len: usize) -> Option<u64> {
        (len >> (2 * SIDE) == 0).then_some(Self::LINE | (len as u64) << SIZES)
    }

    /// Sizes and strides, if the word holds them.
    pub fn read(word: u64) -> Option<(Shape, Strides)> {
        let (m, n) = ((word >> SIZES) as usize & ((1 << SIDE) - 1), (word >> (SIZES + SIDE)) as usize);
        let (shape, strides): (&[usize], &[isize]) = match word & Self::ALL {
            Self::LINE => (&[(word >> SIZES) as usize], &[1]),
            Self::ROWS => (&[m, n], &[n as isize, 1]),
            Self::COLUMNS => (&[m, n], &[1, m as isize]),
            _ => return None,
        };
        Shape::new(shape).ok().zip(Strides::new(strides).ok())
    }
}
