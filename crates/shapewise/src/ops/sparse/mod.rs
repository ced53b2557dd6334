//! Sparse matrices: five formats with checked construction, algebra, products with dense operands, solvers.
//!
//! A [`SparseMatrix`] is checked when it is made and never changes, so kernels may follow its indices blindly. Products
//! with dense operands are operations: how fast a kernel is depends on the matrix, so a workload knows the format, the
//! longest row and how far apart the columns of a row lie. Conversions, sums and products of two sparse matrices are
//! plain functions: their time goes into the structure of the result, and there is one good way to make it.

mod algebra;
mod api;
mod build;
mod compressed;
mod convert;
mod cost;
mod cpu_blocks;
mod cpu_ell;
mod cpu_kernels;
mod cpu_problem;
mod cpu_reference;
mod cpu_scatter;
mod cpu_turned;
mod cpu_vector;
mod cpu_wide;
mod gmres;
mod krylov;
pub(crate) mod made_up;
mod matrix;
mod product;
mod solvers;
mod stationary;
#[cfg(test)]
mod tests;
#[cfg(feature = "webgpu")]
pub mod webgpu;

use std::fmt;

use super::Kernel;
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::Float;

pub use matrix::SparseMatrix;
pub use solvers::{Solution, SolverOptions, Stopped};

/// How the entries of a sparse matrix lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SparseFormat {
    /// Row, column and value of each entry, sorted by row, then by column.
    Coo,
    /// Entries row by row: where each row starts, columns and values.
    Csr,
    /// Entries column by column: where each column starts, rows and values.
    Csc,
    /// Dense blocks row by row.
    Bsr {
        /// Rows of a block.
        rows: u32,
        /// Columns of a block.
        columns: u32,
    },
    /// As many places in each row as the longest row needs.
    Ell,
}

impl SparseFormat {
    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coo => "coo",
            Self::Csr => "csr",
            Self::Csc => "csc",
            Self::Bsr { .. } => "bsr",
            Self::Ell => "ell",
        }
    }

    const fn ordinal(self) -> u8 {
        match self {
            Self::Coo => 0,
            Self::Csr => 1,
            Self::Csc => 2,
            Self::Bsr { .. } => 3,
            Self::Ell => 4,
        }
    }
}

impl fmt::Display for SparseFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bsr { rows, columns } => write!(f, "bsr {rows}x{columns}"),
            other => f.pad(other.name()),
        }
    }
}

/// The sparse operand of a product, as far as the choice of a kernel may depend on it.
///
/// Only this module makes them: kernels rely on the operands being those of a checked [`SparseMatrix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SparseAttributes {
    pub(crate) format: SparseFormat,
    pub(crate) bias: bool,
    /// Entries of the longest row (CSC: column; BSR: blocks), up to the next power of two.
    pub(crate) longest: u32,
    /// Mean distance from the first to the last column of a row, up to the next power of two.
    pub(crate) span: u32,
}

impl SparseAttributes {
    /// How the sparse operand lies in memory.
    pub fn format(&self) -> SparseFormat {
        self.format
    }

    /// Whether something is added to the product.
    pub fn bias(&self) -> bool {
        self.bias
    }

    /// The number that models see.
    pub(crate) fn feature(&self) -> f32 {
        let [format, bias] = [self.format.ordinal(), u8::from(self.bias)];
        64.0 * f32::from(2 * format + bias) + self.longest.max(1).ilog2() as f32
    }

    /// What the key of a workload says.
    pub(crate) fn write_key(&self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, " {} {} {} {}", self.format, u8::from(self.bias), self.longest, self.span)
    }
}

impl fmt::Display for SparseAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bias = if self.bias { "+bias" } else { "" };
        write!(f, "sparse {}{bias} (rows up to {}, span {})", self.format, self.longest, self.span)
    }
}

/// Elements of sparse matrices.
pub(crate) trait Number: Real<Wide = Self> + Float + bytemuck::Pod {}
impl Number for f32 {}
impl Number for f64 {}

/// Runs an expression with `$t` standing for the element type; matrices have no other than these two.
macro_rules! by_type {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $crate::tensor::DType::F64 => {
                type $t = f64;
                $body
            }
            _ => {
                type $t = f32;
                $body
            }
        }
    };
}
use by_type;

/// Every kernel, reference last.
pub static KERNELS: &[&dyn Kernel] = &[
    &cpu_kernels::AVX512_WIDE,
    &cpu_kernels::AVX2_WIDE,
    &cpu_kernels::NEON_WIDE,
    &cpu_kernels::PORTABLE_WIDE,
    &cpu_kernels::AVX2_NONZEROS,
    &cpu_kernels::NEON_NONZEROS,
    &cpu_kernels::PORTABLE_NONZEROS,
    &cpu_kernels::AVX2_MERGE,
    &cpu_kernels::NEON_MERGE,
    &cpu_kernels::PORTABLE_MERGE,
    &cpu_kernels::AVX2_ROWS,
    &cpu_kernels::NEON_ROWS,
    &cpu_kernels::PORTABLE_ROWS,
    &cpu_kernels::AVX512_TURNED,
    &cpu_kernels::AVX2_TURNED,
    &cpu_kernels::NEON_TURNED,
    &cpu_kernels::PORTABLE_TURNED,
    &cpu_kernels::AVX2_ELL,
    &cpu_kernels::NEON_ELL,
    &cpu_kernels::PORTABLE_ELL,
    &cpu_kernels::AVX512_BLOCKS,
    &cpu_kernels::AVX2_BLOCKS,
    &cpu_kernels::NEON_BLOCKS,
    &cpu_kernels::PORTABLE_BLOCKS,
    &cpu_kernels::AVX512_SCATTER,
    &cpu_kernels::AVX2_SCATTER,
    &cpu_kernels::NEON_SCATTER,
    &cpu_kernels::PORTABLE_SCATTER,
    &cpu_reference::REFERENCE,
];
