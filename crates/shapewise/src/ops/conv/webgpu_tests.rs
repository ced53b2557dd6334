//! Every kernel against the reference.

use proptest::prelude::*;

use super::*;
use crate::backends::webgpu::testing::{agree, agree_on, limits};
use crate::ops::{Activation, Knob};
use crate::tensor::{Layout, Shape};

const PLAIN: ConvAttributes = ConvAttributes {
    stride: [1; 3],
    dilation: [1; 3],
    before: [0; 3],
    transposed: false,
    bias: false,
    activation: Activation::None,
    kept: None,
};

fn contiguous(shape: &[usize]) -> TensorDesc {
    TensorDesc::contiguous(DType::F32, Shape::new(shape).unwrap())
}

/// The pixels last in memory, or the channels.
fn image(shape: [usize; 5], channels_last: bool) -> TensorDesc {
    let [_, c, d, h, w] = shape.map(|n| n as isize);
    let strides = if channels_last {
        [d * h * w * c, 1, h * w * c, w * c, c]
    } else {
        [c * d * h * w, d * h * w, h * w, w, 1]
    };
    let layout = Layout::new(&shape, &strides, 0, 1 << 30).unwrap();
    TensorDesc { dtype: DType::F32, aligned: true, shape: layout.shape, strides: layout.strides }
}

/// A convolution of images `n × groups·c × h × w` with padding on both sides.
#[derive(Clone, Copy, Debug)]
struct Case {
    n: usize,
    groups: usize,
    o: usize,
    c: usize,
    size: [usize; 2],
    kernel: [usize; 2],
    attributes: ConvAttributes,
    channels_last: bool,
}

const CASE: Case = Case {
    n: 2,
    groups: 1,
    o: 5,
    c: 3,
    size: [9, 11],
    kernel: [3, 3],
    attributes: PLAIN,
    channels_last: false,
};

impl Case {
    fn workload(&self) -> Workload {
        let a = &self.attributes;
        let out = |axis: usize| {
            let (stride, reach) =
                (a.stride[1 + axis] as usize, (self.kernel[axis] - 1) * a.dilation[1 + axis] as usize + 1);
            let both = 2 * a.before[1 + axis] as usize;
            if a.transposed {
                (self.size[axis] - 1) * stride + reach - both
            } else {
                (self.size[axis] + both - reach) / stride + 1
            }
        };
        let (c, o) = (self.groups * self.c, self.groups * self.o);
        let x = image([self.n, c, 1, self.size[0], self.size[1]], self.channels_last);
        let w = contiguous(&[self.groups, self.o, self.c, 1, self.kernel[0], self.kernel[1]]);
        let y = image([self.n, o, 1, out(0), out(1)], self.channels_last);
        let inputs = [x, w, contiguous(&[o])];
        Workload::new(Operation::Conv(*a), if a.bias { &inputs } else { &inputs[..2] }, &[y])
    }
}

fn check(case: Case) -> usize {
    let ran = agree(WEBGPU_KERNELS, &case.workload());
    assert!(ran > 0, "{case:?}");
    ran
}

#[test]
fn plain_padded_strided_and_dilated() {
    for channels_last in [false, true] {
        check(Case { channels_last, ..CASE });
        check(Case { channels_last, attributes: ConvAttributes { before: [0, 1, 1], ..PLAIN }, ..CASE });
        check(Case {
            channels_last,
            attributes: ConvAttributes { stride: [1, 2, 3], before: [0, 2, 1], ..PLAIN },
            ..CASE
        });
        check(Case { channels_last, attributes: ConvAttributes { dilation: [1, 2, 2], ..PLAIN }, ..CASE });
    }
    check(Case { c: 20, o: 40, attributes: ConvAttributes { before: [0, 1, 1], ..PLAIN }, ..CASE });
    check(Case { kernel: [1, 5], ..CASE });
    check(Case { kernel: [9, 11], ..CASE });
}

/// Products inside convolutions are tuned by the product's own tunables.
#[test]
fn products_inside_have_their_own_points() {
    let padded = ConvAttributes { before: [0, 1, 1], ..PLAIN };
    let [one, three] = [
        Case { c: 16, o: 32, size: [12, 12], kernel: [1, 1], ..CASE },
        Case { c: 16, o: 32, size: [12, 12], attributes: padded, ..CASE },
    ]
    .map(|case| case.workload());
    let kernels: [(&dyn WebGpuKernel, &Workload); 3] =
        [(&pointwise::Pointwise, &one), (&winograd::F2, &three), (&winograd::F4, &three)];
    for (kernel, workload) in kernels {
        let space = kernel.space(workload, limits());
        let plans: Vec<_> =
            space.points().iter().map(|point| kernel.plan(workload, point, limits())).collect();
        for (i, plan) in plans.iter().enumerate() {
            assert!(!plans[..i].contains(plan), "{}: {}", kernel.name(), space.points()[i]);
        }
        for knob in [Knob::Plan, Knob::TileM, Knob::WorkgroupX] {
            let mut values: Vec<_> = space.points().iter().filter_map(|point| point.get(knob)).collect();
            values.sort_unstable();
            values.dedup();
            assert!(values.len() > 1, "{} has one value of {knob:?}", kernel.name());
        }
    }
}

#[test]
fn bias_and_activation() {
    let attributes = ConvAttributes { bias: true, activation: Activation::Relu, before: [0, 1, 1], ..PLAIN };
    for kernel in [[3, 3], [1, 1], [2, 4]] {
        check(Case {
            attributes: ConvAttributes {
                before: if kernel == [1, 1] { [0; 3] } else { [0, 1, 1] },
                ..attributes
            },
            kernel,
            ..CASE
        });
    }
    check(Case {
        groups: 4,
        c: 1,
        o: 1,
        attributes: ConvAttributes { activation: Activation::Silu, ..attributes },
        ..CASE
    });
}

#[test]
fn groups_and_depthwise() {
    check(Case { groups: 2, ..CASE });
    for (stride, dilation) in
        [([1, 1, 1], [1, 1, 1]), ([1, 2, 2], [1, 1, 1]), ([1, 1, 1], [1, 2, 3]), ([1, 1, 4], [1, 1, 2])]
    {
        let attributes = ConvAttributes { stride, dilation, before: [0, 1, 1], ..PLAIN };
        check(Case { groups: 3, c: 1, o: 1, attributes, ..CASE });
        check(Case { groups: 3, c: 1, o: 2, attributes, channels_last: true, ..CASE });
    }
}

#[test]
fn pointwise_is_a_product() {
    for channels_last in [false, true] {
        let case = Case { kernel: [1, 1], c: 19, o: 9, channels_last, ..CASE };
        let w = case.workload();
        let limits = crate::backends::webgpu::testing::limits();
        assert!(pointwise::Pointwise.supports(&w, limits).is_ok());
        check(case);
        check(Case { size: [1, 1], ..case });
    }
}

#[test]
fn winograd_takes_odd_sizes() {
    for size in [[3, 3], [4, 6], [7, 13], [8, 8]] {
        let attributes = ConvAttributes { before: [0, 1, 1], bias: true, ..PLAIN };
        let case = Case { size, c: 9, o: 6, attributes, ..CASE };
        let limits = crate::backends::webgpu::testing::limits();
        assert!(winograd::F4.supports(&case.workload(), limits).is_ok());
        check(case);
    }
}

#[test]
fn transposed_three_axes_and_nothing() {
    for stride in [[1, 1, 1], [1, 2, 3]] {
        check(Case {
            attributes: ConvAttributes { transposed: true, stride, before: [0, 1, 1], ..PLAIN },
            ..CASE
        });
    }
    let [x, w, y] =
        [contiguous(&[1, 2, 4, 5, 6]), contiguous(&[1, 3, 2, 2, 3, 2]), contiguous(&[1, 3, 3, 3, 5])];
    assert!(agree(WEBGPU_KERNELS, &Workload::new(Operation::Conv(PLAIN), &[x, w], &[y])) > 0);
    agree(WEBGPU_KERNELS, &Case { n: 0, ..CASE }.workload());
}

#[test]
fn not_a_number_stays_where_it_is_seen() {
    let attributes = ConvAttributes { before: [0, 1, 1], ..PLAIN };
    let w = Case { attributes, c: 8, ..CASE }.workload();
    let spoil = |operand: usize, x: &mut [f32]| {
        if operand == 0 {
            x[40] = f32::NAN;
        }
    };
    // Winograd's tiles spread it over their neighbours, as in every library.
    let others: Vec<_> = WEBGPU_KERNELS.iter().copied().filter(|k| !k.name().contains("winograd")).collect();
    assert!(agree_on(&others, &w, &spoil) > 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn any_shape(c in 1usize..12, o in 1usize..12, h in 3usize..12, w in 3usize..12, kh in 1usize..4, kw in 1usize..4, pad in 0i32..2, channels_last: bool) {
        let attributes = ConvAttributes { before: [0, pad, pad], ..PLAIN };
        check(Case { n: 1, c, o, size: [h, w], kernel: [kh, kw], attributes, channels_last, ..CASE });
    }
}
