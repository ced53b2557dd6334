//! Where the elements of an indexed operation lie: outer axes, the list of indices, the run that each index stands for.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;

use crate::ops::TensorDesc;
use crate::tensor::{DType, MAX_RANK};

/// One axis; strides in bytes, the index's in its elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis3 {
    pub size: usize,
    pub far: isize,
    pub index: isize,
    pub near: isize,
}

const ONE: Axis3 = Axis3 { size: 1, far: 0, index: 0, near: 0 };

/// The loops of an indexed operation: outer positions, then indices, then the run of each.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub outer: ArrayVec<Axis3, { 2 * MAX_RANK }>,
    /// How many of them are kept axes; the others belong to the index.
    pub kept: usize,
    /// The innermost axis of the index.
    pub list: Axis3,
    /// Neighbours that move with one index, in bytes; at least one element.
    pub run: usize,
    /// Size of the indexed axis, and bytes from one index to the next.
    pub n: usize,
    pub step: isize,
    /// Bytes of an element.
    pub size: usize,
    pub index: DType,
}

impl Plan {
    /// From the canonical operands; `runs` asks for neighbours that move together.
    pub fn new(far: &TensorDesc, index: &TensorDesc, near: &TensorDesc, along: bool, runs: bool) -> Self {
        let size = far.dtype.size();
        let bytes = |stride: isize| stride * size as isize;
        let mut kept = far.shape.len() - 1;
        let n = far.shape[kept];
        let step = bytes(far.strides[kept]);
        let all = kept;
        let axis = |i: usize| Axis3 {
            size: near.shape[i],
            far: if i < all { bytes(far.strides[i]) } else { 0 },
            index: match i.checked_sub(all) {
                _ if along => index.strides[i],
                Some(own) => index.strides[own],
                None => 0,
            },
            near: bytes(near.strides[i]),
        };
        let mut outer: ArrayVec<Axis3, { 2 * MAX_RANK }> = (0..near.shape.len()).map(axis).collect();
        let list = if outer.len() > kept { outer.pop().unwrap_or(ONE) } else { ONE };
        let mut run = size;
        let last = kept.checked_sub(1).filter(|_| runs && !along).and_then(|at| outer.get(at).copied());
        if let Some(row) = last.filter(|a| a.far == size as isize && a.near == size as isize) {
            kept -= 1;
            outer.remove(kept);
            run = row.size * size;
        }
        Self { outer, kept, list, run, n, step, size, index: index.dtype }
    }

    /// Outer positions.
    pub fn positions(&self) -> usize {
        self.outer.iter().map(|a| a.size).product()
    }

    /// Bytes that move.
    pub fn bytes(&self) -> usize {
        self.positions() * self.list.size * self.run
    }

    /// Offsets of an outer position: far and near in bytes, index in elements.
    pub fn offsets(&self, mut position: usize) -> (isize, isize, isize) {
        let (mut far, mut index, mut near) = (0, 0, 0);
        for axis in self.outer.iter().rev() {
            let i = (position % axis.size) as isize;
            position /= axis.size;
            far += i * axis.far;
            index += i * axis.index;
            near += i * axis.near;
        }
        (far, index, near)
    }

    /// Tasks for so many threads: outer positions, each cut in pieces of the list.
    pub fn pieces(&self, threads: usize) -> usize {
        if threads == 1 {
            return 1;
        }
        // Far more work than handing a task over costs.
        let worth = (self.list.size * self.run / (32 << 10)).clamp(1, self.list.size.max(1));
        (4 * threads).div_ceil(self.positions().max(1)).min(worth)
    }
}

/// Indices in memory.
#[derive(Clone, Copy)]
pub(crate) struct Indices {
    pub at: *const u8,
    pub dtype: DType,
    pub n: usize,
}

impl Indices {
    /// The index so many elements on, counted from the front.
    ///
    /// # Safety
    /// The element is valid for reading.
    #[inline(always)]
    pub unsafe fn get(&self, offset: isize) -> usize {
        // SAFETY: the caller's promise.
        let raw = unsafe {
            match self.dtype {
                DType::I64 => self.at.cast::<i64>().offset(offset).read_unaligned(),
                DType::I32 => self.at.cast::<i32>().offset(offset).read_unaligned().into(),
                _ => self.at.cast::<u32>().offset(offset).read_unaligned().into(),
            }
        };
        from_front(raw, self.n)
    }
}

/// An index counted from the front. No branch: where some are counted from the back, a core guesses wrong for half of them, which took three times
/// as long.
#[inline(always)]
pub(crate) fn from_front(index: i64, n: usize) -> usize {
    (index + ((index >> (i64::BITS - 1)) & n as i64)) as usize
}
