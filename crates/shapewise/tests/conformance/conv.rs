//! Convolutions, plain and transposed.

use proptest::prelude::*;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::{Activation, OperationKind};
use shapewise::{DType, Runtime, TensorViewMut};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::Grade;
use crate::common::layers::{MOBILENET_V2, RESNET50};
use crate::common::numbers::Numbers;
use crate::common::operand::{Arrangement, Operand, arrangement};
#[cfg(feature = "webgpu")]
use crate::runner::each_again;
use crate::runner::{Suite, each};
#[cfg(feature = "webgpu")]
use crate::webgpu;

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    transposed: bool,
    last: bool,
    batch: usize,
    groups: usize,
    /// Input and output channels of a group.
    channels: (usize, usize),
    input: Vec<usize>,
    kernel: Vec<usize>,
    stride: Vec<usize>,
    dilation: Vec<usize>,
    padding: Vec<(usize, usize)>,
    bias: bool,
    activation: Activation,
    grade: Grade,
    layouts: [Arrangement; 3],
    seed: u64,
}

/// Along one axis: input, kernel, stride, dilation, padding.
type Line = (usize, usize, usize, usize, (usize, usize));

fn line() -> impl Strategy<Value = Line> {
    let usual = (1usize..24, prop::sample::select(vec![1usize, 3]), 1usize..3, Just(1usize));
    let any = (1usize..12, 1usize..6, 1usize..5, 1usize..4);
    let both = prop_oneof![3 => usual, 1 => any];
    (both, 0usize..3, 0usize..3).prop_map(|((input, kernel, stride, dilation), before, after)| {
        // Enough padding that the kernel fits.
        let reach = (kernel - 1) * dilation + 1;
        let short = reach.saturating_sub(input + before + after);
        (input, kernel, stride, dilation, (before, after + short))
    })
}

/// Layers of the kinds that special kernels are made for.
fn lines() -> impl Strategy<Value = Vec<Line>> {
    let three = (1usize..30, 1usize..30, 0usize..2)
        .prop_map(|(h, w, p)| [h, w].map(|n| (n + 2, 3, 1, 1, (p, p))).to_vec());
    let one = (1usize..20, 1usize..20).prop_map(|(h, w)| [h, w].map(|n| (n, 1, 1, 1, (0, 0))).to_vec());
    // Kernels so large that transforms pay.
    let large = (16usize..30, 16usize..30, 9usize..14)
        .prop_map(|(h, w, k)| [h, w].map(|n| (n, k, 1, 1, (k / 2, k / 2))).to_vec());
    prop_oneof![4 => prop::collection::vec(line(), 1..4), 3 => three, 3 => one, 1 => large]
}

fn cases() -> impl Strategy<Value = Case> {
    let activation = prop::sample::select(vec![
        Activation::None,
        Activation::None,
        Activation::Relu,
        Activation::LeakyRelu { slope: 0.25 },
        Activation::Tanh,
    ]);
    let grades =
        [Grade::Ordinary, Grade::Ordinary, Grade::Whole, Grade::Special, Grade::Denormal, Grade::Huge];
    let groups = prop_oneof![4 => (Just(1usize), 1usize..20, 1usize..20), 2 => (1usize..20, Just(1), Just(1)),
        1 => (1usize..4, 1usize..5, 1usize..5)];
    (
        (prop::sample::select(DType::FLOATS), 0usize..6, any::<bool>(), 0usize..4, groups),
        (lines(), any::<bool>(), activation),
        (prop::sample::select(grades.to_vec()), arrangement(), arrangement(), arrangement(), any::<u64>()),
    )
        .prop_map(|((dtype, kind, last, batch, (groups, c, o)), (lines, bias, activation), rest)| {
            let (grade, x, w, y, seed) = rest;
            let axis = |of: fn(&Line) -> usize| lines.iter().map(of).collect();
            Case {
                dtype,
                transposed: kind == 0,
                last,
                batch,
                groups,
                channels: (c, o),
                input: axis(|l| l.0),
                kernel: axis(|l| l.1),
                stride: axis(|l| l.2),
                dilation: axis(|l| l.3),
                padding: if kind == 0 { vec![(0, 0)] } else { lines.iter().map(|l| l.4).collect() },
                bias,
                activation,
                grade,
                layouts: [x, w, y.writable()],
                seed,
            }
        })
        .prop_filter("small enough", |case| case.products() <= 3_000_000)
}

impl Case {
    fn output(&self) -> Vec<usize> {
        (0..self.input.len())
            .map(|i| {
                let reach = (self.kernel[i] - 1) * self.dilation[i] + 1;
                if self.transposed {
                    return (self.input[i] - 1) * self.stride[i] + reach;
                }
                (self.input[i] + self.padding[i].0 + self.padding[i].1 - reach) / self.stride[i] + 1
            })
            .collect()
    }

    fn products(&self) -> usize {
        let outputs: usize = self.output().iter().product();
        let taps: usize = self.kernel.iter().product();
        self.batch.max(1) * self.groups * self.channels.0 * self.channels.1 * outputs * taps
    }

    fn image(&self, channels: usize, sizes: &[usize]) -> Vec<usize> {
        let mut shape = vec![self.batch];
        if !self.last {
            shape.push(channels);
        }
        shape.extend(sizes);
        if self.last {
            shape.push(channels);
        }
        shape
    }

    fn weights(&self) -> Vec<usize> {
        let (c, o) = self.channels;
        let mut shape = if self.transposed { vec![self.groups * c, o] } else { vec![self.groups * o, c] };
        shape.extend(&self.kernel);
        shape
    }

    fn options<'a>(&self, operands: &'a [Operand]) -> ConvOptions<'a> {
        let mut options = ConvOptions::new()
            .strides(&self.stride)
            .dilations(&self.dilation)
            .paddings(&self.padding)
            .groups(self.groups)
            .activation(self.activation);
        if self.last {
            options = options.channels_last();
        }
        if self.bias {
            options = options.bias(operands[2].view());
        }
        options
    }

    fn run(&self, rt: &Runtime, operands: &[Operand], out: TensorViewMut<'_>) -> shapewise::Result<()> {
        let (x, w, options) = (operands[0].view(), operands[1].view(), self.options(operands));
        // The output lives as long as the operands: what is borrowed here is only used in the call.
        match (self.input.len(), self.transposed) {
            (1, false) => rt.conv1d_into(x, w, &options, out),
            (2, false) => rt.conv2d_into(x, w, &options, out),
            (_, false) => rt.conv3d_into(x, w, &options, out),
            (1, true) => rt.conv_transpose1d_into(x, w, &options, out),
            (2, true) => rt.conv_transpose2d_into(x, w, &options, out),
            (_, true) => rt.conv_transpose3d_into(x, w, &options, out),
        }
    }

    /// The same with weights that are packed first, in the form of the kernel that the runtime is forced on.
    fn run_packed(
        &self,
        rt: &Runtime,
        operands: &[Operand],
        out: TensorViewMut<'_>,
    ) -> shapewise::Result<()> {
        let (x, w, options) = (operands[0].view(), operands[1].view(), self.options(operands));
        let packed = rt.pack_conv(w, x, &options)?;
        rt.conv_packed_into(x, &packed, &options, out)
    }
}

#[test]
fn conv() {
    let mut suite = Suite::new(OperationKind::Conv);
    each(300, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

#[test]
fn packed_conv() {
    let mut suite = Suite::new(OperationKind::Conv);
    each(120, cases(), |case| {
        // Weights of transposed convolutions are not kept.
        if case.transposed { Ok(()) } else { check_by(&mut suite, &case, Case::run_packed) }
    });
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_conv() {
    let Some(mut suite) = webgpu::suite(OperationKind::Conv, 1, webgpu::FUNCTIONS) else { return };
    each_again(40, cases(), |case| {
        // Huge inputs come with weights that may be taken for zero; Winograd's forms spread what is not finite over a tile.
        let spread = case.kernel == [3, 3] && case.grade == Grade::Special;
        let grade =
            if case.grade == Grade::Huge || spread { Grade::Ordinary } else { webgpu::normal(case.grade) };
        let dtype = webgpu::shorter(case.dtype);
        check(&mut suite, &Case { dtype, grade, ..case })
    });
    // The others are choosy; the unit tests bring what they take.
    suite.finish_where(|name| name.ends_with("::direct"));
}

type Call = fn(&Case, &Runtime, &[Operand], TensorViewMut<'_>) -> shapewise::Result<()>;

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    check_by(suite, case, Case::run)
}

fn check_by(suite: &mut Suite, case: &Case, call: Call) -> Result<(), TestCaseError> {
    let channels = (case.groups * case.channels.0, case.groups * case.channels.1);
    // Weights of ordinary size under special or huge inputs: products that overflow differ by the order of sums.
    let weights = if case.grade == Grade::Huge { Grade::Denormal } else { case.grade };
    let operands = [
        Operand::new(
            case.dtype,
            &case.image(channels.0, &case.input),
            &case.layouts[0],
            case.grade,
            case.seed,
        ),
        Operand::new(case.dtype, &case.weights(), &case.layouts[1], weights, case.seed ^ 1),
        Operand::new(case.dtype, &[channels.1], &Arrangement::PLAIN, Grade::Ordinary, case.seed ^ 2),
    ];
    let allowed = Allowed::new(case, &operands);
    suite.check_each(
        || {
            vec![Operand::new(
                case.dtype,
                &case.image(channels.1, &case.output()),
                &case.layouts[2],
                Grade::Whole,
                1,
            )]
        },
        |rt, out| call(case, rt, &operands, out[0].view_mut()),
        |kernel, _, _| allowed.by(kernel),
    )
}

/// How far kernels may be from the reference, which sums in f64.
struct Allowed {
    short: bool,
    /// Of a rounding, relative to the largest possible sum of an output.
    rounding: f64,
    /// Products of a sum.
    steps: f64,
    /// Points of a transform, and those of them that a kernel has.
    points: f64,
    taps: f64,
    lost: f64,
}

impl Allowed {
    fn new(case: &Case, operands: &[Operand]) -> Self {
        let short = case.dtype.size() == 2;
        let (epsilon, tiny) = precision(if short { DType::F32 } else { case.dtype });
        let largest = |operand: &Operand| match operand.numbers() {
            Numbers::Real(values) => {
                values.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()))
            }
            _ => 0.0,
        };
        let taps = case.kernel.iter().product::<usize>() as f64;
        let steps = case.channels.0 as f64 * taps;
        let sum = steps * largest(&operands[0]) * largest(&operands[1]) + largest(&operands[2]);
        // The reference of f64 rounds as often as a kernel does.
        let both = if case.dtype == DType::F64 { 2.0 } else { 1.0 };
        // Transformed weights may fall below the smallest normal number, and lose up to one smallest number each.
        let lost = tiny * 1e3 * steps * largest(&operands[0]).max(1.0);
        let points = case.output().iter().zip(&case.kernel).map(|(o, k)| (o + k) as f64).product();
        Self { short, rounding: both * epsilon * sum, steps, points, taps, lost }
    }

    /// The stated error of a kernel (docs/operations.md), and two roundings more for bias and result.
    fn by(&self, kernel: &str) -> Tolerance {
        let roundings = if kernel.ends_with("winograd_f4") {
            // Up to 100 on the way in (rows of `Bᵀ` add up to 10, twice) and 361 on the way out (rows of `Aᵀ` up to 19), of
            // which inputs and outputs of ordinary sizes see about a thirtieth.
            100.0
        } else if kernel.ends_with("winograd_f2") {
            2.0 * self.steps.sqrt()
        } else if kernel.ends_with("_fft") {
            self.points.max(2.0).log2() * (self.points / self.taps).sqrt()
        } else {
            self.steps.sqrt()
        };
        Tolerance {
            ulps: if self.short { 1.0 } else { 4.0 },
            absolute: (2.0 + roundings) * self.rounding + self.lost,
        }
    }
}

/// The layers of real networks, on images of a quarter of the pixels: the plain loops have to keep up.
#[test]
fn layers_of_networks() {
    let mut suite = Suite::new(OperationKind::Conv);
    for layer in RESNET50.iter().chain(MOBILENET_V2) {
        let depth = layer.inputs / layer.groups;
        let case = Case {
            dtype: DType::F32,
            transposed: false,
            last: false,
            batch: 1,
            groups: layer.groups,
            channels: (depth, layer.outputs / layer.groups),
            input: vec![layer.size.div_ceil(2); 2],
            kernel: vec![layer.kernel; 2],
            stride: vec![layer.stride; 2],
            dilation: vec![1; 2],
            padding: vec![(layer.kernel / 2, layer.kernel / 2); 2],
            bias: true,
            activation: Activation::Relu,
            grade: Grade::Ordinary,
            layouts: [Arrangement::PLAIN; 3],
            seed: 7,
        };
        if let Err(why) = check(&mut suite, &case) {
            panic!("{}: {why}", layer.name);
        }
    }
}
