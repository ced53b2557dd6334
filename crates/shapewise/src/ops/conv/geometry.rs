//! Sizes and strides of a convolution as kernels see them.

use super::ConvAttributes;
use crate::ops::{Operation, Workload};
use crate::tensor::Layout;

/// One spatial axis as the user described it.
pub(super) struct Line {
    pub input: usize,
    pub kernel: usize,
    pub stride: usize,
    pub dilation: usize,
    /// Before and after; None for as many as keep the size.
    pub padding: Option<(usize, usize)>,
    pub output_padding: usize,
    pub transposed: bool,
}

impl Line {
    /// Padding before the axis and the output's size, or what is wrong.
    pub fn resolve(&self) -> Result<(usize, usize), String> {
        let &Self { input, kernel, stride, dilation, .. } = self;
        if kernel == 0 {
            return Err("a kernel of size 0 has no weights".into());
        }
        let reach = (kernel - 1).checked_mul(dilation).and_then(|r| r.checked_add(1));
        let reach = reach.ok_or("kernel times dilation overflows")?;
        if self.transposed {
            return self.resolve_transposed(reach);
        }
        if self.output_padding != 0 {
            return Err("output padding belongs to transposed convolutions; use padding".into());
        }
        let (before, after) = self.padding.unwrap_or_else(|| {
            let outputs = input.div_ceil(stride);
            let needed = (outputs.saturating_sub(1)).saturating_mul(stride).saturating_add(reach);
            let both = needed.saturating_sub(input);
            (both / 2, both - both / 2)
        });
        let padded = input.checked_add(before).and_then(|n| n.checked_add(after));
        let padded = padded.ok_or("input and padding overflow")?;
        if reach > padded {
            return Err(format!(
                "a kernel that reaches over {reach} elements is larger than the padded input of {padded}"
            ));
        }
        Ok((before, (padded - reach) / stride + 1))
    }

    fn resolve_transposed(&self, reach: usize) -> Result<(usize, usize), String> {
        let &Self { input, stride, dilation, output_padding, .. } = self;
        let Some((before, after)) = self.padding else {
            return Err("same padding is not defined for transposed convolutions; give it explicitly".into());
        };
        if output_padding >= stride.max(dilation) {
            return Err(format!(
                "an output padding of {output_padding} must be less than the stride {stride} or the dilation {dilation}"
            ));
        }
        if input == 0 {
            return Err("an empty input cannot be spread".into());
        }
        let spread = (input - 1).checked_mul(stride).and_then(|n| n.checked_add(reach));
        let spread =
            spread.and_then(|n| n.checked_add(output_padding)).ok_or("the output's size overflows")?;
        let cut = before.checked_add(after).ok_or("the padding overflows")?;
        if spread <= cut {
            return Err(format!("a padding of {before} and {after} leaves nothing of an output of {spread}"));
        }
        Ok((before, spread - cut))
    }
}

/// A convolution of three spatial axes (depth, height, width), without memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub n: usize,
    pub groups: usize,
    /// Output and input channels of a group.
    pub o: usize,
    pub c: usize,
    pub input: [usize; 3],
    pub kernel: [usize; 3],
    pub output: [usize; 3],
    pub stride: [usize; 3],
    pub dilation: [usize; 3],
    /// Zeros before the first element; negative where elements are skipped.
    pub before: [isize; 3],
    /// Strides of the input: image, channel, depth, height, width.
    pub x: [isize; 5],
    /// Strides of the weights: group, output channel, input channel, depth, height, width.
    pub w: [isize; 6],
    /// Strides of the output, as of the input.
    pub y: [isize; 5],
    /// Distance of neighbours in the bias.
    pub bias: isize,
}

/// The attributes of a convolution.
pub(super) fn attributes(workload: &Workload) -> ConvAttributes {
    match workload.operation() {
        Operation::Conv(attributes) => *attributes,
        other => unreachable!("the registry gives convolutions only, not {other}"),
    }
}

/// The axes of images: image, channel, depth, height, width.
fn image<T: Copy>(axes: &[T]) -> [T; 5] {
    *axes.first_chunk().expect("the operation gives images five axes")
}

/// The axes of weights: group, output channel, input channel, depth, height, width.
fn weights<T: Copy>(axes: &[T]) -> [T; 6] {
    *axes.first_chunk().expect("the operation gives weights six axes")
}

impl Geometry {
    /// Of a workload.
    pub fn of(workload: &Workload) -> Self {
        let attributes = attributes(workload);
        let (inputs, y) = (workload.inputs(), &workload.outputs()[0]);
        let (x, w) = (&inputs[0], &inputs[1]);
        let [n, _, input @ ..] = image(&x.shape);
        let [_, _, output @ ..] = image(&y.shape);
        let [groups, o, c, kernel @ ..] = weights(&w.shape);
        Self {
            n,
            groups,
            o,
            c,
            input,
            kernel,
            output,
            stride: attributes.stride.map(|s| s as usize),
            dilation: attributes.dilation.map(|d| d as usize),
            before: attributes.before.map(|b| b as isize),
            x: image(&x.strides),
            w: weights(&w.strides),
            y: image(&y.strides),
            bias: if attributes.bias { inputs[2].strides[0] } else { 0 },
        }
    }

    /// Of weights alone, as if for a single output.
    pub fn of_weights(layout: &Layout) -> Self {
        let [groups, o, c, kernel @ ..] = weights(&layout.shape);
        Self {
            n: 1,
            groups,
            o,
            c,
            input: kernel,
            kernel,
            output: [1; 3],
            stride: [1; 3],
            dilation: [1; 3],
            before: [0; 3],
            x: [0; 5],
            w: weights(&layout.strides),
            y: [0; 5],
            bias: 0,
        }
    }

    /// Weights of an output: the depth of the product.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Outputs of a channel.
    pub fn pixels(&self) -> usize {
        self.output.iter().product()
    }

    /// Products that a plain loop computes, padding included.
    pub fn products(&self) -> f64 {
        let sizes = [self.n, self.groups, self.o, self.c, self.taps(), self.pixels()];
        sizes.iter().map(|&n| n as f64).product()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.n == 0 || self.groups * self.o == 0 || self.pixels() == 0
    }
}

/// An ordinary convolution that computes every few outputs of a transposed one.
pub(super) struct Fraction {
    pub g: Geometry,
    /// From the first weight of the transposed convolution to the first of this one.
    pub weights: isize,
    /// The same for outputs.
    pub outputs: isize,
}

/// One axis of a [`Fraction`].
#[derive(Clone, Copy)]
struct Share {
    kernel: usize,
    output: usize,
    dilation: usize,
    before: isize,
    /// Weights from one to the next, backwards.
    step: usize,
    /// The first weight.
    weight: usize,
}

impl Geometry {
    /// A transposed convolution as ordinary ones: outputs whose places leave the same rest after division by the
    /// stride meet the same weights, every few of them, backwards.
    pub fn parts(&self) -> impl Iterator<Item = Fraction> + '_ {
        let [sd, sh, sw] = self.stride;
        (0..sd * sh * sw).map(move |index| self.part([index / (sh * sw), index / sw % sh, index % sw]))
    }

    fn part(&self, first: [usize; 3]) -> Fraction {
        let mut part = Fraction { g: Geometry { stride: [1; 3], ..*self }, weights: 0, outputs: 0 };
        for (axis, first) in first.into_iter().enumerate() {
            let share = self.share(axis, first);
            let g = &mut part.g;
            (g.kernel[axis], g.output[axis]) = (share.kernel, share.output);
            (g.dilation[axis], g.before[axis]) = (share.dilation, share.before);
            part.weights += share.weight as isize * self.w[3 + axis];
            g.w[3 + axis] = -(share.step as isize) * self.w[3 + axis];
            part.outputs += first as isize * self.y[2 + axis];
            g.y[2 + axis] = self.stride[axis] as isize * self.y[2 + axis];
        }
        part
    }

    fn share(&self, axis: usize, first: usize) -> Share {
        let (stride, dilation) = (self.stride[axis], self.dilation[axis]);
        let common = gcd(stride, dilation);
        let (step, dilation) = (stride / common, dilation / common);
        let output = self.output[axis].saturating_sub(first).div_ceil(stride);
        // Output `first + q · stride` meets weight k and input i where first + before = i · stride + k · dilation.
        let start = first as isize + self.before[axis];
        let reach = |k: usize| start - (k * self.dilation[axis]) as isize;
        let Some(lowest) = (0..step.min(self.kernel[axis])).find(|&k| reach(k) % stride as isize == 0) else {
            return Share { kernel: 0, output, dilation: 1, before: 0, step: 1, weight: 0 };
        };
        let kernel = (self.kernel[axis] - lowest).div_ceil(step);
        let before = ((kernel - 1) * dilation) as isize - reach(lowest) / stride as isize;
        Share { kernel, output, dilation, before, step, weight: lowest + (kernel - 1) * step }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
