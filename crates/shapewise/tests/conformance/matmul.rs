//! The matrix product, with batches, bias and activation.

use proptest::prelude::*;
use shapewise::DType;
use shapewise::ops::matmul::Fused;
use shapewise::ops::{Activation, OperationKind};
use shapewise::tensor::Shape;

use crate::common::compare::{Tolerance, precision};
use crate::common::data::Grade;
use crate::common::layers::LINEARS;
use crate::common::numbers::{Numbers, numbers};
use crate::common::operand::{Arrangement, Operand, arrangement};
#[cfg(feature = "webgpu")]
use crate::runner::each_again;
use crate::runner::{Suite, each};
#[cfg(feature = "webgpu")]
use crate::webgpu;

#[derive(Clone, Debug)]
struct Case {
    dtype: DType,
    m: usize,
    k: usize,
    n: usize,
    /// Batch axes of the left and the right operand, which broadcast.
    batches: [Vec<usize>; 2],
    /// Whether the operands are vectors, where their size allows.
    vectors: [bool; 2],
    bias: bool,
    activation: Activation,
    grades: [Grade; 2],
    inputs: [Arrangement; 3],
    output: Arrangement,
    seed: u64,
}

/// Sizes m, k, n: tiny, odd, deep, wide, tall, and beyond the blocks of the packed kernels.
fn sizes() -> impl Strategy<Value = (usize, usize, usize)> {
    prop_oneof![
        3 => (0usize..10, 0usize..10, 0usize..10),
        4 => (1usize..40, 1usize..40, 1usize..40),
        1 => (30usize..90, 1usize..90, 30usize..90),
        2 => (1usize..9, 90usize..700, 1usize..9),
        1 => (1usize..30, 200usize..600, 20usize..40),
        2 => (1usize..5, 1usize..60, 90usize..500),
        2 => (90usize..500, 1usize..60, 1usize..5),
    ]
}

fn batches() -> impl Strategy<Value = [Vec<usize>; 2]> {
    let none = [vec![], vec![]];
    prop_oneof![
        6 => Just(none),
        1 => (1usize..4).prop_map(|n| [vec![n], vec![n]]),
        1 => (1usize..4).prop_map(|n| [vec![n], vec![]]),
        1 => (1usize..4).prop_map(|n| [vec![], vec![n]]),
        1 => (1usize..3, 1usize..4).prop_map(|(a, b)| [vec![a, 1], vec![b]]),
        1 => (1usize..3, 0usize..3).prop_map(|(a, b)| [vec![1, b], vec![a, b]]),
    ]
}

fn activations() -> impl Strategy<Value = Activation> {
    prop_oneof![
        6 => Just(Activation::None),
        1 => Just(Activation::Relu),
        1 => Just(Activation::LeakyRelu { slope: 0.1 }),
        1 => Just(Activation::Gelu),
        1 => Just(Activation::Silu),
        1 => Just(Activation::Tanh),
        1 => Just(Activation::Sigmoid),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let dtype = prop_oneof![
        4 => Just(DType::F32),
        2 => Just(DType::F64),
        1 => Just(DType::F16),
        1 => Just(DType::BF16)
    ];
    let ordinary = || prop_oneof![3 => Just(Grade::Ordinary), 1 => prop::sample::select(&Grade::ALL[..])];
    (
        (dtype, sizes(), batches(), [prop::bool::weighted(0.1), prop::bool::weighted(0.1)]),
        (prop::bool::weighted(0.3), activations(), [ordinary(), ordinary()]),
        ([arrangement(), arrangement(), arrangement()], arrangement(), any::<u64>()),
    )
        .prop_map(|((dtype, (m, k, n), batches, vectors), (bias, activation, grades), layouts)| {
            // Sums of huge numbers overflow in one order and not in another; a single product does not.
            // Activations may come before or after the rounding that overflows.
            let huge = grades.contains(&Grade::Huge);
            let (k, activation) = if huge { (k.min(1), Activation::None) } else { (k, activation) };
            let vectors = [
                vectors[0] && m == 1 && batches[0].is_empty(),
                vectors[1] && n == 1 && batches[1].is_empty(),
            ];
            let (inputs, output, seed) = (layouts.0, layouts.1.writable(), layouts.2);
            Case { dtype, m, k, n, batches, vectors, bias, activation, grades, inputs, output, seed }
        })
}

impl Case {
    fn batch(&self) -> Vec<usize> {
        let [a, b] = &self.batches;
        Shape::new(a).unwrap().broadcast(&Shape::new(b).unwrap(), "test").unwrap().to_vec()
    }

    fn shape(&self, side: usize) -> Vec<usize> {
        let matrix = [[self.m, self.k], [self.k, self.n]][side];
        if self.vectors[side] { vec![self.k] } else { [&self.batches[side][..], &matrix].concat() }
    }

    fn output_shape(&self) -> Vec<usize> {
        let mut shape = self.batch();
        shape.extend((!self.vectors[0]).then_some(self.m));
        shape.extend((!self.vectors[1]).then_some(self.n));
        shape
    }

    fn input(&self, side: usize) -> Operand {
        let seed = self.seed.wrapping_add(side as u64);
        Operand::new(self.dtype, &self.shape(side), &self.inputs[side], self.grades[side], seed)
    }

    /// For every result, the sum of the sizes of what is added up.
    fn scales(&self, a: &Operand, b: &Operand) -> Vec<f64> {
        let batch = self.batch();
        let all = |o: &Operand, vector: bool, matrix: [usize; 2]| -> Vec<f64> {
            let target: Vec<usize> = if vector { matrix.to_vec() } else { [&batch[..], &matrix].concat() };
            let shape: Vec<usize> = if vector { vec![self.k] } else { target };
            match numbers(&o.view().broadcast_to(&shape).unwrap()) {
                Numbers::Real(v) => {
                    v.into_iter().map(|x| if x.is_finite() { x.abs() } else { 0.0 }).collect()
                }
                _ => unreachable!("products are of real numbers"),
            }
        };
        let (a, b) = (all(a, self.vectors[0], [self.m, self.k]), all(b, self.vectors[1], [self.k, self.n]));
        let mut out = Vec::new();
        for batch in 0..batch.iter().product::<usize>() {
            let left = if self.vectors[0] { &a[..] } else { &a[batch * self.m * self.k..] };
            let right = if self.vectors[1] { &b[..] } else { &b[batch * self.k * self.n..] };
            for i in 0..self.m {
                let row = &left[i * self.k..(i + 1) * self.k];
                out.extend(
                    (0..self.n)
                        .map(|j| row.iter().enumerate().map(|(p, x)| x * right[p * self.n + j]).sum::<f64>()),
                );
            }
        }
        out
    }
}

#[test]
fn products() {
    let mut suite = Suite::new(OperationKind::Matmul);
    each(250, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

/// The products of language models.
#[test]
fn layers_of_networks() {
    let mut suite = Suite::new(OperationKind::Matmul);
    for layer in LINEARS {
        let case = Case {
            dtype: DType::F32,
            m: layer.tokens,
            k: layer.inputs,
            n: layer.outputs,
            batches: [vec![], vec![]],
            vectors: [false; 2],
            bias: layer.bias,
            activation: if layer.gelu { Activation::Gelu } else { Activation::None },
            grades: [Grade::Ordinary; 2],
            inputs: [Arrangement::PLAIN; 3],
            output: Arrangement::PLAIN,
            seed: 7,
        };
        if let Err(why) = check(&mut suite, &case) {
            panic!("{}: {why}", layer.name);
        }
    }
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_products() {
    let Some(mut suite) = webgpu::suite(OperationKind::Matmul, 1, webgpu::FUNCTIONS) else { return };
    each_again(40, cases(), |case| {
        let dtype = webgpu::shorter(case.dtype);
        let grades = case.grades.map(|grade| webgpu::within(dtype, grade));
        check(&mut suite, &Case { dtype, grades, ..case })
    });
    // The others are choosy; the unit tests bring what they take.
    suite.finish_where(|name| name.ends_with("::naive"));
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let (a, b) = (case.input(0), case.input(1));
    let bias = Operand::new(case.dtype, &[case.n], &case.inputs[2], Grade::Ordinary, case.seed ^ 1);
    let scales = case.scales(&a, &b);
    let mut fused = Fused::new().activation(case.activation);
    if case.bias {
        fused = fused.bias(bias.view());
    }
    suite.check(
        || vec![Operand::new(case.dtype, &case.output_shape(), &case.output, Grade::Whole, 1)],
        |rt, out| rt.matmul_fused_into(a.view(), b.view(), fused, out[0].view_mut()),
        |_, at| tolerance(case, scales[at]),
    )
}

/// How far a result may be from the reference's, given the sum of the sizes of its terms.
///
/// k terms added in any order err by about √k roundings of that sum. 16-bit types are multiplied and added in f32 and
/// rounded once at the end. The activations' slopes are at most 1.13, their own error a few units in the last place.
fn tolerance(case: &Case, scale: f64) -> Tolerance {
    let accumulator = if case.dtype.size() == 2 { DType::F32 } else { case.dtype };
    let (epsilon, tiny) = precision(accumulator);
    let roundings = 4.0 + 2.0 * (case.k as f64).sqrt();
    let bias = if case.bias { 2.0 } else { 0.0 };
    let ulps = match (case.activation, case.dtype.size()) {
        (_, 2) => 1.0,
        (Activation::None | Activation::Relu, _) => 0.0,
        _ => 8.0,
    };
    Tolerance { ulps, absolute: 1.2 * epsilon * roundings * (scale + bias) + tiny * (case.k as f64 + 4.0) }
}
