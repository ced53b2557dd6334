//! The product of two sparse matrices: rows of the right one, scaled and summed in a dense row.

use std::sync::{Mutex, PoisonError};

use super::compressed::{Lines, Rows, check_entries};
use super::convert::stored;
use super::{Number, SparseFormat, SparseMatrix, by_type};
use crate::error::{Error, Result};
use crate::runtime::Runtime;

const OPERATION: &str = "sparse product";

/// Products below which one thread is enough: at some nanoseconds each they take about as long as waking a worker (50 µs).
const WORTH_THREADS: u64 = 1 << 14;

impl Runtime {
    /// The product of two sparse matrices, in CSR.
    ///
    /// Entries are kept wherever both factors meet, even where they cancel.
    pub fn sparse_product(&self, a: &SparseMatrix, b: &SparseMatrix) -> Result<SparseMatrix> {
        if a.dtype() != b.dtype() {
            return Err(Error::DTypeMismatch { operation: OPERATION, left: a.dtype(), right: b.dtype() });
        }
        if a.shape[1] != b.shape[0] {
            let ([m, k], [l, n]) = (a.shape, b.shape);
            let reason = format!("the left matrix is {m}×{k}, the right one {l}×{n}: {k} is not {l}");
            return Err(Error::ShapeMismatch { operation: OPERATION, reason });
        }
        let shape = [a.shape[0], b.shape[1]];
        by_type!(a.dtype(), T => {
            let product = self.multiply_rows(&a.rows::<T>()?, &b.rows::<T>()?, shape[1])?;
            stored(product, shape, SparseFormat::Csr)
        })
    }

    /// Rows in parts of about equal work, computed on all threads and put one after the other.
    fn multiply_rows<T: Number>(
        &self,
        a: &Rows<'_, T>,
        b: &Rows<'_, T>,
        columns: usize,
    ) -> Result<Rows<'static, T>> {
        let mut work = Vec::with_capacity(a.len() + 1);
        work.push(0u64);
        for i in 0..a.len() {
            let own: u64 = a.row(i).0.iter().map(|&k| b.row(k as usize).0.len() as u64).sum();
            work.push(work[i] + own);
        }
        let total = work[a.len()];
        let threads = if total < WORTH_THREADS { 1 } else { self.device().threads().threads() };
        // A few parts per thread even out what else runs on the cores.
        let parts = if threads == 1 { 1 } else { 4 * threads };
        let cut = |part: usize| {
            if part == parts {
                a.len()
            } else {
                work.partition_point(|&w| w < total * part as u64 / parts as u64)
            }
        };
        let done: Vec<Mutex<Option<Lines<T>>>> = (0..parts).map(|_| Mutex::new(None)).collect();
        self.device().threads().run(threads, parts, &|part| {
            let from = if part == 0 { 0 } else { cut(part) };
            let lines = multiply_part(a, b, columns, from..cut(part + 1).max(from));
            *done[part].lock().unwrap_or_else(PoisonError::into_inner) = Some(lines);
        });
        let done =
            done.into_iter().filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
        let mut whole: Lines<T> =
            Lines { offsets: vec![0], indices: Vec::new(), values: Vec::new(), size: 1 };
        for part in done {
            let before = whole.indices.len();
            check_entries(OPERATION, before + part.indices.len())?;
            whole.offsets.extend(part.offsets[1..].iter().map(|&end| before as u32 + end));
            whole.indices.extend_from_slice(&part.indices);
            whole.values.extend_from_slice(&part.values);
        }
        Ok(whole.rows())
    }
}

/// Some rows of the product.
fn multiply_part<T: Number>(
    a: &Rows<'_, T>,
    b: &Rows<'_, T>,
    columns: usize,
    range: std::ops::Range<usize>,
) -> Lines<T> {
    let mut out: Lines<T> = Lines { offsets: vec![0], indices: Vec::new(), values: Vec::new(), size: 1 };
    // The row that last touched each column; rows count from one.
    let mut touched = vec![0u32; columns];
    let mut sums = vec![T::ZERO; columns];
    for i in range {
        let first = out.indices.len();
        let (own, factors) = a.row(i);
        for (&k, &factor) in own.iter().zip(factors) {
            let (theirs, values) = b.row(k as usize);
            for (&column, &value) in theirs.iter().zip(values) {
                let at = column as usize;
                if touched[at] == i as u32 + 1 {
                    sums[at] += factor * value;
                } else {
                    touched[at] = i as u32 + 1;
                    sums[at] = factor * value;
                    out.indices.push(column);
                }
            }
        }
        out.indices[first..].sort_unstable();
        out.values.extend(out.indices[first..].iter().map(|&column| sums[column as usize]));
        // Wraps for more entries than a matrix may have, which is an error once all parts are counted.
        out.offsets.push(out.indices.len() as u32);
    }
    out
}
