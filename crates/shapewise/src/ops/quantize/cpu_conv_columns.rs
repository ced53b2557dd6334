//! The pixels that each output of a convolution sees, one column for each output.
#![allow(unsafe_code)]

use crate::backends::cpu::ThreadPool;
use crate::ops::conv::ConvAttributes;
use crate::ops::matmul::cpu_problem::Shared;

/// Which pixels of which channels.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    /// The first pixel of the first channel.
    pub first: usize,
    pub channels: usize,
    pub input: [usize; 2],
    pub kernel: [usize; 2],
    pub output: [usize; 2],
    pub attributes: ConvAttributes,
    /// What is outside the image.
    pub padding: u8,
}

/// Fills a matrix of channels · kernel rows and as many columns as outputs.
pub(super) fn fill(image: &[u8], to: &mut [u8], g: &Columns, pool: &ThreadPool) {
    let outputs = g.output[0] * g.output[1];
    let taps = g.kernel[0] * g.kernel[1];
    let rows = g.channels * taps;
    assert!(to.len() == rows * outputs && image.len() >= g.first + g.channels * g.input[0] * g.input[1]);
    let to = Shared(to.as_mut_ptr());
    pool.run(pool.threads(), rows, &|row| {
        // SAFETY: every task has a row of the matrix to itself.
        let to = unsafe { std::slice::from_raw_parts_mut(to.at(row * outputs), outputs) };
        let plane = &image[g.first + row / taps * g.input[0] * g.input[1]..][..g.input[0] * g.input[1]];
        one(plane, to, g, [row % taps / g.kernel[1], row % g.kernel[1]]);
    });
}

/// What outputs see at one place of the kernel.
fn one(plane: &[u8], to: &mut [u8], g: &Columns, tap: [usize; 2]) {
    let [stride_y, stride_x] = [g.attributes.stride[1] as isize, g.attributes.stride[2] as isize];
    // From output 0 to its pixel.
    let from = |axis: usize| {
        (tap[axis] * g.attributes.dilation[axis + 1] as usize) as isize
            - g.attributes.before[axis + 1] as isize
    };
    let (from_y, from_x) = (from(0), from(1));
    let width = g.input[1] as isize;
    for (y, line) in to.chunks_exact_mut(g.output[1].max(1)).enumerate() {
        let y = y as isize * stride_y + from_y;
        if y < 0 || y >= g.input[0] as isize {
            line.fill(g.padding);
            continue;
        }
        let row = &plane[(y * width) as usize..][..width as usize];
        for (x, out) in line.iter_mut().enumerate() {
            let x = x as isize * stride_x + from_x;
            *out = if x >= 0 && x < width { row[x as usize] } else { g.padding };
        }
    }
}
