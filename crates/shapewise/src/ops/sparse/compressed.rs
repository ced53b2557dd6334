//! The form that everything is computed in: entries row by row, columns rising, no duplicates.

use std::borrow::Cow;

use super::Number;
use crate::error::{Error, Result};

/// Rows of entries; borrowed where a matrix already has them.
#[derive(Clone, Debug)]
pub(super) struct Rows<'a, T: Clone> {
    /// Where each row starts, and at the end their number.
    pub offsets: Cow<'a, [u32]>,
    pub columns: Cow<'a, [u32]>,
    pub values: Cow<'a, [T]>,
}

impl<T: Number> Rows<'static, T> {
    pub fn new(offsets: Vec<u32>, columns: Vec<u32>, values: Vec<T>) -> Self {
        Self { offsets: offsets.into(), columns: columns.into(), values: values.into() }
    }
}

impl<T: Number> Rows<'_, T> {
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Columns and values of a row.
    pub fn row(&self, i: usize) -> (&[u32], &[T]) {
        let range = self.offsets[i] as usize..self.offsets[i + 1] as usize;
        (&self.columns[range.clone()], &self.values[range])
    }

    /// Rows and columns exchanged; there are `columns` columns.
    pub fn turned(&self, columns: usize) -> Rows<'static, T> {
        let mut offsets = counted(&self.columns, columns);
        let mut next = offsets.clone();
        let mut rows = vec![0; self.columns.len()];
        let mut values = vec![T::ZERO; self.columns.len()];
        for i in 0..self.len() {
            let (own, numbers) = self.row(i);
            for (&column, &value) in own.iter().zip(numbers) {
                let at = &mut next[column as usize];
                (rows[*at as usize], values[*at as usize]) = (i as u32, value);
                *at += 1;
            }
        }
        offsets.shrink_to_fit();
        Rows::new(offsets, rows, values)
    }
}

/// Where each of `n` groups starts when this many members are sorted by group, and at the end their number.
pub(super) fn counted(groups: &[u32], n: usize) -> Vec<u32> {
    let mut offsets = vec![0; n + 1];
    for &group in groups {
        offsets[group as usize + 1] += 1;
    }
    for i in 0..n {
        offsets[i + 1] += offsets[i];
    }
    offsets
}

/// Lines of entries, each with a payload of `size` numbers (1, or those of a block), in any order.
pub(super) struct Lines<T> {
    pub offsets: Vec<u32>,
    pub indices: Vec<u32>,
    pub values: Vec<T>,
    pub size: usize,
}

impl<T: Number> Lines<T> {
    /// Sorts each line by index and sums duplicates, in the order in which they were given.
    #[must_use]
    pub fn tidy(self) -> Self {
        let line = |i: usize| self.offsets[i] as usize..self.offsets[i + 1] as usize;
        let lines = self.offsets.len() - 1;
        if (0..lines).all(|i| self.indices[line(i)].is_sorted_by(|a, b| a < b)) {
            return self;
        }
        let (mut offsets, mut indices) = (vec![0], Vec::with_capacity(self.indices.len()));
        let mut values: Vec<T> = Vec::with_capacity(self.values.len());
        let mut order: Vec<usize> = Vec::new();
        for i in 0..lines {
            order.clear();
            order.extend(line(i));
            order.sort_by_key(|&at| self.indices[at]);
            let first = indices.len();
            for &at in &order {
                let payload = &self.values[at * self.size..(at + 1) * self.size];
                if indices.len() > first && indices.last() == Some(&self.indices[at]) {
                    let last = values.len() - self.size;
                    values[last..].iter_mut().zip(payload).for_each(|(sum, &x)| *sum += x);
                } else {
                    indices.push(self.indices[at]);
                    values.extend_from_slice(payload);
                }
            }
            offsets.push(indices.len() as u32);
        }
        Self { offsets, indices, values, size: self.size }
    }
}

/// Checks a size against what 32-bit indices can say.
pub(super) fn check_shape(operation: &'static str, [rows, columns]: [usize; 2]) -> Result<()> {
    if rows.max(columns) > i32::MAX as usize {
        let reason =
            format!("{rows}×{columns} is too large; rows and columns are counted up to {}", i32::MAX);
        return Err(Error::InvalidArgument { operation, reason });
    }
    Ok(())
}

/// Checks a number of entries against what 32-bit offsets can say.
pub(super) fn check_entries(operation: &'static str, entries: usize) -> Result<()> {
    if entries > u32::MAX as usize {
        let reason = format!("{entries} entries are too many; a matrix has at most {}", u32::MAX);
        return Err(Error::InvalidArgument { operation, reason });
    }
    Ok(())
}
