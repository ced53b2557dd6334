//! What products execute: entries streamed once, elements of the dense operand picked from wherever the matrix says.

use super::cpu_problem::attributes;
use crate::device::DeviceInfo;
use crate::ops::{Traffic, Workload};

/// Products of a value and an element.
pub(super) fn products(workload: &Workload) -> f64 {
    workload.inputs()[0].len() as f64 * workload.outputs()[0].shape[1] as f64
}

/// Bytes across the borders of the caches.
pub(super) fn traffic(workload: &Workload, device: &DeviceInfo) -> Traffic {
    let (x, y) = (&workload.inputs()[1], &workload.outputs()[0]);
    let size = x.dtype.size() as f64;
    let row = y.shape[1] as f64 * size;
    let matrix: usize = [0, 2, 3].map(|i| workload.inputs()[i].bytes()).iter().sum();
    let output = y.bytes() as f64;
    // An entry picks a row of the dense operand, whole lines of it unless they are still there from the rows before.
    let picks = workload.inputs()[2].len() as f64;
    let lines = (row / 64.0).ceil() * 64.0;
    // A few entries touch a few rows, however large the operand is.
    let touched = (picks * lines).min(x.bytes() as f64);
    let bytes = matrix as f64 + output + touched;
    let stream = Traffic::pass(matrix as f64 + 2.0 * output, bytes, &device.caches);
    let window = (f64::from(attributes(workload).span) * row).min(touched);
    let far = Traffic::pass(picks * lines, window, &device.caches);
    let near = Traffic { l1: picks * row, ..Traffic::pass(touched, bytes, &device.caches) };
    Traffic {
        l1: stream.l1 + near.l1,
        l2: stream.l2 + far.l2.max(near.l2),
        l3: stream.l3 + far.l3.max(near.l3),
        memory: stream.memory + far.memory.max(near.memory),
    }
}

/// The busiest thread's share of the work times the threads, when rows are dealt out evenly and a few are as long as the longest.
pub(super) fn imbalance_of_rows(workload: &Workload, threads: usize) -> f64 {
    let entries = workload.inputs()[2].len().max(1) as f64;
    let longest = f64::from(attributes(workload).longest).min(entries);
    let mean = entries / workload.outputs()[0].shape[0].max(1) as f64;
    // Half of the entries in rows as long as the longest, all with one thread, at worst.
    let skewed = longest > 4.0 * mean;
    if skewed { (1.0 + (threads as f64 - 1.0) / 2.0).min(threads as f64) } else { 1.0 }
}
