//! The matrix: three tensors that were checked, and what kernels want to know about them.

use super::compressed::Lines;
use super::{Number, SparseAttributes, SparseFormat};
use crate::error::Result;
use crate::tensor::{DType, Tensor, TensorView};

/// A sparse matrix of f32 or f64 in one of five formats. Cheap to clone; clones share the memory.
///
/// It never changes: entries are sorted, no place has two, and every index exists. Entries that are zero are kept.
#[derive(Clone, Debug)]
pub struct SparseMatrix {
    pub(super) shape: [usize; 2],
    pub(super) format: SparseFormat,
    /// One for each entry; BSR: blocks × rows × columns of a block; ELL: places × rows.
    pub(super) values: Tensor,
    /// Columns (CSC: rows; BSR: columns of blocks), laid out as the values.
    pub(super) indices: Tensor,
    /// Where each line starts, and the end; COO: the row of each entry; ELL: the entries of each row.
    pub(super) offsets: Tensor,
    pub(super) nonzeros: usize,
    pub(super) profile: Profile,
}

/// What the speed of products depends on, rounded up to powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    /// Entries of the longest line.
    longest: u32,
    /// Mean distance from the first to the last index of a line.
    span: u32,
}

impl Profile {
    pub fn of(offsets: &[u32], indices: &[u32]) -> Self {
        let (mut longest, mut spans, mut lines) = (0, 0u64, 0u64);
        for pair in offsets.windows(2) {
            let line = &indices[pair[0] as usize..pair[1] as usize];
            if let (Some(first), Some(last)) = (line.first(), line.last()) {
                longest = longest.max(line.len() as u32);
                spans += u64::from(last - first) + 1;
                lines += 1;
            }
        }
        let span = (spans / lines.max(1)) as u32;
        Self { longest: power(longest), span: power(span) }
    }
}

/// The next power of two, and zero.
fn power(n: u32) -> u32 {
    if n == 0 { 0 } else { n.checked_next_power_of_two().unwrap_or(u32::MAX) }
}

impl SparseMatrix {
    /// Puts checked parts together.
    pub(super) fn new(
        shape: [usize; 2],
        format: SparseFormat,
        [values, indices, offsets]: [Tensor; 3],
        nonzeros: usize,
        profile: Profile,
    ) -> Self {
        Self { shape, format, values, indices, offsets, nonzeros, profile }
    }

    /// From tidy lines of a format that consists of lines: CSR, CSC or BSR.
    pub(super) fn of_lines<T: Number>(
        lines: &Lines<T>,
        shape: [usize; 2],
        format: SparseFormat,
    ) -> Result<Self> {
        let n = lines.indices.len();
        let profile = Profile::of(&lines.offsets, &lines.indices);
        let values = match format {
            SparseFormat::Bsr { rows, columns } => {
                Tensor::from_slice(&lines.values, &[n, rows as usize, columns as usize])?
            }
            _ => Tensor::from_slice(&lines.values, &[n])?,
        };
        let indices = Tensor::from_slice(&lines.indices, &[n])?;
        let offsets = Tensor::from_slice(&lines.offsets, &[lines.offsets.len()])?;
        Ok(Self::new(shape, format, [values, indices, offsets], lines.values.len(), profile))
    }

    /// Rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.values.dtype()
    }

    /// How entries lie in memory.
    pub fn format(&self) -> SparseFormat {
        self.format
    }

    /// Entries that are kept, zeros among them; all elements of the blocks of BSR.
    pub fn nonzeros(&self) -> usize {
        self.nonzeros
    }

    /// The values: one for each entry; BSR: blocks × rows × columns of a block; ELL: places × rows.
    pub fn values(&self) -> TensorView<'_> {
        self.values.view()
    }

    /// Columns (CSC: rows; BSR: columns of blocks; ELL: places × rows), as u32.
    pub fn indices(&self) -> TensorView<'_> {
        self.indices.view()
    }

    /// Where each row (CSC: column; BSR: row of blocks) starts, and the end; COO: the row of each entry; ELL: the entries of
    /// each row. As u32.
    pub fn offsets(&self) -> TensorView<'_> {
        self.offsets.view()
    }

    /// What a workload knows about it.
    pub(super) fn attributes(&self, bias: bool) -> SparseAttributes {
        let Profile { longest, span } = self.profile;
        SparseAttributes { format: self.format, bias, longest, span }
    }
}
