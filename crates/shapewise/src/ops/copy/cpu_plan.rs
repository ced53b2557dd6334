//! What a copy moves: axes with their strides in bytes, the output's memory order.
#![allow(unsafe_code)]

use crate::device::DeviceInfo;
use crate::ops::walk::{Axis, AxisList};
use crate::ops::{Call, Traffic, Workload};

/// A copy of a workload: its axes outermost first, strides in bytes.
pub(super) struct Plan {
    pub axes: AxisList,
    /// Bytes of an element.
    pub size: usize,
}

impl Plan {
    pub fn of(workload: &Workload) -> Self {
        let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
        let size = x.dtype.size();
        let step = |stride: isize| stride * size as isize;
        let axes = (0..y.shape.len())
            .map(|i| Axis { size: y.shape[i], input: step(x.strides[i]), output: step(y.strides[i]) })
            .collect();
        Self { axes, size }
    }

    /// Elements along all axes.
    pub fn elements(&self) -> usize {
        self.axes.iter().map(|a| a.size).product()
    }

    /// The axis other than the last whose neighbours are neighbours in the input, if the last one's are in the output.
    pub fn turned(&self) -> Option<usize> {
        let (last, outer) = self.axes.split_last()?;
        let near = self.size as isize;
        let usable = last.output == near && last.input.unsigned_abs() > self.size;
        outer.iter().position(|a| a.input == near).filter(|_| usable)
    }

    /// Bytes across the borders of the caches: `spread` for each byte read, and a line is read before it is written
    /// unless stores go past the caches.
    pub fn traffic(&self, spread: f64, stream: bool, device: &DeviceInfo) -> Traffic {
        let bytes = (self.elements() * self.size) as f64;
        let set = 2.0 * bytes;
        let read = Traffic::pass(bytes * spread, set, &device.caches);
        let write = if stream {
            Traffic { l1: bytes, l2: bytes, l3: bytes, memory: bytes }
        } else {
            Traffic::pass(2.0 * bytes, set, &device.caches)
        };
        read + write
    }
}

/// Addresses that tasks share: each task writes elements of its own.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    pub from: *const u8,
    pub to: *mut u8,
}

// SAFETY: the memory outlives the call, inputs are only read, and tasks write disjoint parts of the output.
unsafe impl Sync for Shared {}

impl Shared {
    /// The operands of a copy.
    pub fn of(call: &Call<'_>) -> Self {
        Self { from: call.inputs[0].address(), to: call.outputs[0].address() }
    }

    /// The addresses so many bytes on.
    pub fn at(self, from: isize, to: isize) -> Self {
        Self { from: self.from.wrapping_offset(from), to: self.to.wrapping_offset(to) }
    }
}
