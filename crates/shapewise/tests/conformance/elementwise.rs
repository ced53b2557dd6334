//! Element-wise functions and fused chains.

use proptest::prelude::*;
use shapewise::ops::OperationKind;
use shapewise::ops::elementwise::{Expr, Program};
use shapewise::{DType, TensorView};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::Grade;
use crate::common::operand::{Arrangement, Operand, arrangement};
#[cfg(feature = "webgpu")]
use crate::runner::each_again;
use crate::runner::{Suite, each};
#[cfg(feature = "webgpu")]
use crate::webgpu;

/// What is computed, of one to three inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Chain {
    Unary(usize),
    Binary(usize),
    Where,
    Clamp,
    LeakyRelu,
    Cast(DType),
    MulAddRelu,
    AddRelu,
    Affine,
    Gate,
    GatedSilu,
    Mixed,
}

type Unary = (&'static str, for<'b> fn(Expr<'b>) -> Expr<'b>);
type Binary = (&'static str, for<'b> fn(Expr<'b>, Expr<'b>) -> Expr<'b>);

/// The first three are also for integers.
const UNARY: [Unary; 13] = [
    ("neg", |x| -x),
    ("abs", |x| x.abs()),
    ("relu", |x| x.relu()),
    ("sqrt", |x| x.sqrt()),
    ("exp", |x| x.exp()),
    ("log", |x| x.log()),
    ("rsqrt", |x| x.rsqrt()),
    ("sin", |x| x.sin()),
    ("cos", |x| x.cos()),
    ("tanh", |x| x.tanh()),
    ("sigmoid", |x| x.sigmoid()),
    ("gelu", |x| x.gelu()),
    ("silu", |x| x.silu()),
];

const BINARY: [Binary; 13] = [
    ("add", |a, b| a + b),
    ("sub", |a, b| a - b),
    ("mul", |a, b| a * b),
    ("div", |a, b| a / b),
    ("min", |a, b| a.min(b)),
    ("max", |a, b| a.max(b)),
    ("equal", |a, b| a.equal(b)),
    ("not_equal", |a, b| a.not_equal(b)),
    ("less", |a, b| a.less(b)),
    ("less_equal", |a, b| a.less_equal(b)),
    ("greater", |a, b| a.greater(b)),
    ("greater_equal", |a, b| a.greater_equal(b)),
    ("pow", |a, b| a.pow(b)),
];

impl Chain {
    fn inputs(self) -> usize {
        match self {
            Self::Unary(_) | Self::Clamp | Self::LeakyRelu | Self::Cast(_) | Self::Affine => 1,
            Self::Binary(_) | Self::AddRelu | Self::GatedSilu => 2,
            Self::Where | Self::MulAddRelu | Self::Gate | Self::Mixed => 3,
        }
    }

    fn program(self) -> Program {
        Program::build(self.inputs(), |x| match self {
            Self::Unary(i) => UNARY[i].1(x[0]),
            Self::Binary(i) => BINARY[i].1(x[0], x[1]),
            Self::Where => x[0].choose(x[1], x[2]),
            Self::Clamp => x[0].clamp(1.0, 3.0),
            Self::LeakyRelu => x[0].leaky_relu(0.1),
            Self::Cast(to) => x[0].cast(to),
            Self::MulAddRelu => (x[0] * x[1] + x[2]).relu(),
            Self::AddRelu => (x[0] + x[1]).relu(),
            Self::Affine => x[0] * 3.0 - 2.0,
            Self::Gate => x[0].tanh() * x[1].sigmoid() + x[2],
            Self::GatedSilu => x[0].silu() * x[1],
            Self::Mixed => x[0].less(x[1]).choose(x[0].max(x[2]), x[1] * x[2]).cast(DType::F64),
        })
        .unwrap()
    }

    /// How far a kernel may be from the reference.
    ///
    /// What IEEE 754 defines is exact. Vector functions state errors of up to four units in the last place, the
    /// reference's own library of up to one; 16-bit types are computed in f32 by all. A chain may keep a product
    /// unrounded before it is added to, which shows where the sum cancels.
    fn tolerance(self, dtype: DType, largest: f64) -> Tolerance {
        let short = dtype.size() == 2;
        let (epsilon, tiny) = precision(dtype);
        match self {
            Self::Unary(..=3) | Self::Where | Self::Clamp | Self::Cast(_) | Self::AddRelu => {
                Tolerance::default()
            }
            Self::Binary(i) if BINARY[i].0 != "pow" => Tolerance::default(),
            // Its error is relative to its argument.
            Self::Unary(11) => {
                let epsilon = precision(if short { DType::F32 } else { dtype }).0;
                Tolerance { ulps: 2.0, absolute: 4.0 * epsilon * largest }
            }
            Self::Unary(_) | Self::Binary(_) if short => Tolerance { ulps: 1.0, absolute: tiny },
            Self::Unary(i) if matches!(UNARY[i].0, "silu" | "sigmoid") => {
                Tolerance { ulps: 6.0, absolute: 4.0 * f64::from(f32::MIN_POSITIVE) }
            }
            Self::Unary(_) | Self::Binary(_) => Tolerance { ulps: 5.0, absolute: 0.0 },
            Self::LeakyRelu => Tolerance { ulps: 1.0, absolute: 0.0 },
            _ => Tolerance { ulps: 4.0, absolute: 8.0 * epsilon * (largest * largest).max(1.0) },
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    chain: Chain,
    dtype: DType,
    shape: Vec<usize>,
    /// Which axes of each input are one, and how many leading ones are missing.
    narrow: [[bool; 5]; 3],
    missing: [usize; 3],
    broadcast: bool,
    grade: Grade,
    inputs: [Arrangement; 3],
    output: Arrangement,
    seed: u64,
    in_place: bool,
}

fn chains() -> impl Strategy<Value = (Chain, DType)> {
    let any = || prop::sample::select(&DType::ALL[..]);
    let float = || {
        // The types that most calls use come most often.
        prop_oneof![4 => Just(DType::F32), 2 => Just(DType::F64), 1 => Just(DType::F16), 1 => Just(DType::BF16)]
    };
    let number = || prop::sample::select(&DType::ALL[..9]);
    let fused = prop_oneof![
        Just(Chain::MulAddRelu),
        Just(Chain::AddRelu),
        Just(Chain::Affine),
        Just(Chain::Gate),
        Just(Chain::Mixed),
        Just(Chain::LeakyRelu),
    ];
    prop_oneof![
        4 => ((0..UNARY.len()).prop_map(Chain::Unary), float()),
        3 => ((0..BINARY.len()).prop_map(Chain::Binary), float()),
        1 => ((0usize..3).prop_map(Chain::Unary), number()),
        2 => ((0usize..12).prop_map(Chain::Binary), number()),
        1 => ((0usize..4).prop_map(Chain::Binary), prop_oneof![Just(DType::C32), Just(DType::C64)]),
        1 => (Just(Chain::Where), any()),
        1 => (Just(Chain::Clamp), number()),
        3 => (any().prop_map(Chain::Cast), any()),
        4 => (fused, float()),
        1 => (prop_oneof![Just(Chain::MulAddRelu), Just(Chain::AddRelu), Just(Chain::Affine)], number()),
    ]
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1 => Just(0usize), 4 => Just(1), 30 => 2usize..9, 6 => 9usize..40];
    prop_oneof![
        5 => prop::collection::vec(size, 0..=5)
            .prop_filter("small enough", |s| s.iter().product::<usize>() <= 10_000),
        3 => (1usize..600).prop_map(|n| vec![n]),
        2 => (1usize..20, 1usize..300).prop_map(|(a, b)| vec![a, b]),
        1 => (30_000usize..50_000).prop_map(|n| vec![n]),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    (
        (chains(), shapes(), prop::sample::select(&Grade::ALL[..])),
        (any::<[[bool; 5]; 3]>(), any::<[u8; 3]>(), any::<bool>()),
        ([arrangement(), arrangement(), arrangement()], arrangement()),
        (any::<u64>(), prop::bool::weighted(0.2)),
    )
        .prop_map(|(what, narrowing, layouts, (seed, in_place))| {
            let ((chain, dtype), shape, grade) = what;
            let (narrow, missing, broadcast) = narrowing;
            let missing = missing.map(|m| usize::from(m / 64).min(shape.len()));
            let (inputs, output) = (layouts.0, layouts.1.writable());
            Case { chain, dtype, shape, narrow, missing, broadcast, grade, inputs, output, seed, in_place }
        })
}

impl Case {
    fn input_shape(&self, i: usize) -> Vec<usize> {
        // In place, the first input is the output.
        if !self.broadcast || (self.in_place && i == 0) {
            return self.shape.clone();
        }
        let cut = self.missing[i];
        let size = |(axis, &n): (usize, &usize)| if self.narrow[i][axis] { 1 } else { n };
        self.shape.iter().enumerate().skip(cut).map(size).collect()
    }

    fn input_type(&self, i: usize) -> DType {
        if self.chain == Chain::Where && i == 0 { DType::Bool } else { self.dtype }
    }

    fn input(&self, i: usize) -> Operand {
        let seed = self.seed.wrapping_add(i as u64);
        Operand::new(self.input_type(i), &self.input_shape(i), &self.inputs[i], self.grade, seed)
    }

    /// Whether the function takes the type and all kernels promise the same answer.
    fn is_sound(&self, program: &Program) -> bool {
        let types: Vec<_> = (0..self.chain.inputs()).map(|i| self.input_type(i)).collect();
        let huge = self.grade == Grade::Huge;
        let out_of_range = match self.chain {
            // Reducing huge angles takes hundreds of bits of π; kernels state their range.
            Chain::Unary(i) => huge && matches!(UNARY[i].0, "sin" | "cos"),
            // Chains may round a huge product once or twice, so that one overflows and the other does not.
            Chain::MulAddRelu | Chain::Affine | Chain::Gate | Chain::Mixed => {
                huge && !self.dtype.is_integer()
            }
            // Complex products and quotients of huge or infinite numbers have no agreed answer.
            Chain::Binary(2 | 3) => {
                self.dtype.is_complex()
                    && matches!(self.grade, Grade::Huge | Grade::Special | Grade::Denormal)
            }
            _ => false,
        };
        !out_of_range && program.output_type(&types).is_ok()
    }
}

#[test]
fn elementwise() {
    let mut suite = Suite::new(OperationKind::Elementwise);
    each(600, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

/// What stands between the products of BERT-base and of a Llama-style block: tokens and width.
const LAYERS: &[(&str, Chain, [usize; 2])] = &[
    ("BERT gelu", Chain::Unary(11), [128, 3072]),
    ("BERT residual", Chain::Binary(0), [128, 768]),
    ("Llama gated silu prompt", Chain::GatedSilu, [48, 11_008]),
    ("Llama gated silu token", Chain::GatedSilu, [1, 11_008]),
];

#[test]
fn layers_of_networks() {
    let mut suite = Suite::new(OperationKind::Elementwise);
    for &(name, chain, shape) in LAYERS {
        let case = Case {
            chain,
            dtype: DType::F32,
            shape: shape.to_vec(),
            narrow: [[false; 5]; 3],
            missing: [0; 3],
            broadcast: false,
            grade: Grade::Ordinary,
            inputs: [Arrangement::PLAIN; 3],
            output: Arrangement::PLAIN,
            seed: 7,
            in_place: false,
        };
        if let Err(why) = check(&mut suite, &case) {
            panic!("{name}: {why}");
        }
    }
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_elementwise() {
    let Some(mut suite) = webgpu::suite(OperationKind::Elementwise, 5, webgpu::FUNCTIONS) else { return };
    each_again(60, cases(), |case| {
        let dtype = webgpu::shorter(case.dtype);
        let chain = match case.chain {
            Chain::Cast(to) => Chain::Cast(webgpu::shorter(to)),
            other => other,
        };
        let grade = match chain {
            Chain::Cast(DType::F16) if dtype != DType::F16 => Grade::Ordinary,
            _ => webgpu::within(dtype, case.grade),
        };
        check(&mut suite, &Case { chain, dtype, grade, ..case })
    });
    suite.finish();
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let program = case.chain.program();
    if !case.is_sound(&program) {
        return Ok(());
    }
    let inputs: Vec<Operand> = (0..case.chain.inputs()).map(|i| case.input(i)).collect();
    let types: Vec<_> = inputs.iter().map(|o| o.view().dtype()).collect();
    let dtype = program.output_type(&types).expect("sound");
    let views: Vec<TensorView<'_>> = inputs.iter().map(Operand::view).collect();
    let largest = if case.grade == Grade::Whole { 4.0 } else { 2.0 };
    let mut tolerance = case.chain.tolerance(dtype, largest);
    if dtype.is_complex() {
        tolerance = Tolerance { ulps: 4.0, absolute: 32.0 * precision(dtype).0 };
    }
    if case.in_place && dtype == case.dtype && case.input_type(0) == dtype {
        return suite.check(
            || vec![Operand::new(dtype, &case.shape, &case.output, case.grade, case.seed)],
            |rt, out| rt.elementwise_in_place(&program, out[0].view_mut(), &views[1..]),
            |_, _| tolerance,
        );
    }
    suite.check(
        || vec![Operand::new(dtype, &case.shape, &case.output, Grade::Whole, 1)],
        |rt, out| rt.elementwise_into(&program, &views, out[0].view_mut()),
        |_, _| tolerance,
    )
}
