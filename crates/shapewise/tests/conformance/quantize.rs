//! Conversions, products of integers, products with quantised weights.

use proptest::prelude::*;
use shapewise::ops::OperationKind;
use shapewise::ops::quantize::{Granularity, IntegerOptions, QuantType, Quantization};
use shapewise::{DType, Runtime, Tensor, TensorView};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::{Grade, Random};
use crate::common::operand::{Arrangement, Operand, arrangement};
#[cfg(feature = "webgpu")]
use crate::runner::each_again;
use crate::runner::{Suite, each};
#[cfg(feature = "webgpu")]
use crate::webgpu;

const STORED: [QuantType; 5] = [QuantType::I8, QuantType::U8, QuantType::I16, QuantType::I4, QuantType::U4];

/// A description for numbers of a shape, with or without zero points.
fn description(
    kind: QuantType,
    shape: &[usize],
    granularity: Granularity,
    zeros: bool,
    seed: u64,
) -> Quantization {
    let mut random = Random::new(seed);
    let wanted = match granularity {
        Granularity::Tensor => vec![],
        Granularity::Channel(axis) => vec![shape[axis as usize]],
        Granularity::Block(size) => {
            let (last, rows) = shape.split_last().unwrap();
            [rows, &[last.div_ceil(size)]].concat()
        }
    };
    let count: usize = wanted.iter().product();
    let scales: Vec<f32> = (0..count).map(|_| 0.01 + random.unit() as f32).collect();
    let (low, high) = kind.range();
    let any = |r: &mut Random| low.max(-99) + r.below((high.min(99) - low.max(-99) + 1) as usize) as i32;
    let zeros: Vec<i32> = (0..count).map(|_| if zeros { any(&mut random) } else { 0 }).collect();
    match granularity {
        Granularity::Tensor => Quantization::per_tensor(kind, scales[0], zeros[0]),
        Granularity::Channel(axis) => Quantization::per_channel(kind, axis, &scales, &zeros),
        Granularity::Block(size) => {
            let scales = TensorView::from_slice(&scales, &wanted).unwrap();
            Quantization::per_block(
                kind,
                size,
                scales,
                Some(TensorView::from_slice(&zeros, &wanted).unwrap()),
            )
        }
    }
    .unwrap()
}

#[derive(Clone, Debug)]
struct Conversion {
    from: Option<QuantType>,
    to: Option<QuantType>,
    real: DType,
    shape: Vec<usize>,
    granularity: usize,
    block: usize,
    zeros: bool,
    grade: Grade,
    input: Arrangement,
    output: Arrangement,
    seed: u64,
}

fn conversions() -> impl Strategy<Value = Conversion> {
    let size = prop_oneof![1 => Just(0usize), 4 => Just(1), 20 => 2usize..9];
    let shapes = prop_oneof![
        3 => prop::collection::vec(size, 0..=3),
        4 => (1usize..5, 1usize..200).prop_map(|(a, b)| vec![a, b]),
        1 => (2000usize..9000).prop_map(|n| vec![n]),
    ];
    // The last axis is even, so that all types take it.
    let shapes = (shapes, 1usize..40).prop_map(|(mut shape, last)| {
        shape.push(2 * last);
        shape
    });
    let kind = prop::sample::select(&STORED[..]);
    let both = prop_oneof![
        2 => kind.clone().prop_map(|to| (None, Some(to))),
        2 => kind.clone().prop_map(|from| (Some(from), None)),
        1 => (kind.clone(), kind).prop_map(|(from, to)| (Some(from), Some(to))),
    ];
    (
        both,
        prop::sample::select(&[DType::F32, DType::F32, DType::F16, DType::BF16][..]),
        shapes,
        (0usize..5, 1usize..20, any::<bool>()),
        prop::sample::select(&Grade::ALL[..]),
        [arrangement(), arrangement()],
        any::<u64>(),
    )
        .prop_map(
            |((from, to), real, shape, (granularity, block, zeros), grade, [input, output], seed)| {
                let output = output.writable();
                Conversion { from, to, real, shape, granularity, block, zeros, grade, input, output, seed }
            },
        )
}

#[test]
fn quantize() {
    let mut suite = Suite::new(OperationKind::Quantize);
    each(300, conversions(), |case| convert(&mut suite, &case));
    suite.finish();
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_quantize() {
    let Some(mut suite) = webgpu::suite(OperationKind::Quantize, 5, webgpu::FLUSHED) else { return };
    each_again(60, conversions(), |case| convert(&mut suite, &case));
    suite.finish();
}

fn convert(suite: &mut Suite, case: &Conversion) -> Result<(), TestCaseError> {
    let granularity = match case.granularity {
        0 => Granularity::Tensor,
        1 => Granularity::Block(2 * case.block),
        other => Granularity::Channel((other % case.shape.len()) as isize),
    };
    let held = |kind: Option<QuantType>| {
        let mut shape = case.shape.clone();
        if kind.is_some_and(QuantType::is_packed) {
            *shape.last_mut().unwrap() /= 2;
        }
        (kind.map_or(case.real, QuantType::dtype), shape)
    };
    let of = |kind: Option<QuantType>, granularity, seed| {
        kind.map(|kind| description(kind, &case.shape, granularity, case.zeros, seed))
    };
    let from = of(case.from, granularity, case.seed);
    // A requantisation takes one of the two per tensor every other time.
    let other = if from.is_some() && case.seed.is_multiple_of(2) { Granularity::Tensor } else { granularity };
    let to = of(case.to, other, case.seed ^ 1);
    let (dtype, shape) = held(case.from);
    let input = Operand::new(dtype, &shape, &case.input, case.grade, case.seed);
    let (dtype, shape) = held(case.to);
    suite.check(
        || vec![Operand::new(dtype, &shape, &case.output, Grade::Whole, 1)],
        |rt, out| match (&from, &to) {
            (None, Some(to)) => rt.quantize_into(input.view(), to, out[0].view_mut()),
            (Some(from), None) => rt.dequantize_into(input.view(), from, out[0].view_mut()),
            (Some(from), Some(to)) => rt.requantize_into(input.view(), from, to, out[0].view_mut()),
            (None, None) => Ok(()),
        },
        // Every kernel rounds at the same places.
        |_, _| Tolerance::default(),
    )
}

#[derive(Clone, Debug)]
struct Product {
    types: [DType; 2],
    packed: Option<QuantType>,
    batch: Option<usize>,
    sizes: (usize, usize, usize),
    /// None, one, one for each line.
    zeros: [usize; 2],
    requantised: bool,
    grade: Grade,
    inputs: [Arrangement; 2],
    output: Arrangement,
    seed: u64,
}

fn products() -> impl Strategy<Value = Product> {
    let byte = prop::sample::select(&[DType::I8, DType::U8][..]);
    let sizes = prop_oneof![
        2 => (0usize..6, 0usize..6, 0usize..6),
        4 => (1usize..40, 1usize..60, 1usize..60),
        1 => (1usize..8, 1usize..200, 200usize..1500),
        1 => (100usize..220, 1usize..70, 1usize..90),
    ];
    let packed = prop_oneof![4 => Just(None), 1 => Just(Some(QuantType::I4)), 1 => Just(Some(QuantType::U4))];
    (
        [byte.clone(), byte],
        packed,
        prop_oneof![3 => Just(None), 1 => (1usize..4).prop_map(Some)],
        sizes,
        ([0usize..3, 0usize..3], any::<bool>()),
        prop::sample::select(&[Grade::Ordinary, Grade::Huge, Grade::Huge][..]),
        [arrangement(), arrangement(), arrangement()],
        any::<u64>(),
    )
        .prop_map(|(types, packed, batch, sizes, (zeros, requantised), grade, [a, b, output], seed)| {
            let (inputs, output) = ([a, b], output.writable());
            Product { types, packed, batch, sizes, zeros, requantised, grade, inputs, output, seed }
        })
}

#[test]
fn integer_products() {
    let mut suite = Suite::new(OperationKind::IntegerMatmul);
    each(300, products(), |case| multiply(&mut suite, &case));
    suite.finish();
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_integer_products() {
    let Some(mut suite) = webgpu::suite(OperationKind::IntegerMatmul, 5, webgpu::FLUSHED) else { return };
    each_again(30, products(), |case| multiply(&mut suite, &case));
    suite.finish();
}

fn multiply(suite: &mut Suite, case: &Product) -> Result<(), TestCaseError> {
    let (m, mut n, k) = case.sizes;
    let types = if case.packed.is_some() { [case.types[0], DType::U8] } else { case.types };
    let leading: Vec<usize> = case.batch.into_iter().collect();
    let a_shape = [&leading[..], &[m, k]].concat();
    let (b_shape, b_place) = if case.packed.is_some() {
        n += n % 2;
        (vec![k, n / 2], Arrangement::PLAIN)
    } else {
        (vec![k, n], case.inputs[1])
    };
    let a = Operand::new(types[0], &a_shape, &case.inputs[0], case.grade, case.seed);
    let b = Operand::new(types[1], &b_shape, &b_place, case.grade, case.seed ^ 1);
    let whole = |dtype: DType| if dtype == DType::I8 { QuantType::I8 } else { QuantType::U8 };
    let kinds = [whole(types[0]), case.packed.unwrap_or(whole(types[1]))];
    let last = a_shape.len() - 1;
    // Scales of rows and columns, and the zero points that belong to them.
    let how = [(kinds[0], &a_shape, last - 1, m), (kinds[1], &vec![k, n], 1, n)];
    let how: Vec<Quantization> = how
        .iter()
        .zip(case.zeros)
        .map(|((kind, shape, axis, lines), zeros)| {
            let each = zeros == 2 && *lines > 0;
            let granularity = if each { Granularity::Channel(*axis as isize) } else { Granularity::Tensor };
            description(*kind, shape, granularity, zeros > 0, case.seed)
        })
        .collect();
    let y = Quantization::per_tensor(whole(case.types[1]), 3.0, 7).unwrap();
    let zeros: Vec<Option<Tensor>> = how.iter().map(zero_bytes).collect();
    let out_type = if case.requantised { y.kind().dtype() } else { DType::I32 };
    let out_shape = [&leading[..], &[m, n]].concat();
    suite.check(
        || vec![Operand::new(out_type, &out_shape, &case.output, Grade::Whole, 1)],
        |rt, out| {
            let out = out[0].view_mut();
            if case.requantised {
                return rt.qmatmul_into(a.view(), &how[0], b.view(), &how[1], &y, out);
            }
            let mut options = IntegerOptions::new();
            if let Some(zero) = &zeros[0] {
                options = options.a_zero_point(zero);
            }
            if let Some(zero) = &zeros[1] {
                options = options.b_zero_point(zero);
            }
            if let Some(kind) = case.packed {
                options = options.b_packed(kind);
            }
            rt.matmul_integer_into(a.view(), b.view(), &options, out)
        },
        |_, _| Tolerance::default(),
    )
}

/// Zero points as bytes, as a user of `matmul_integer` has them.
fn zero_bytes(how: &Quantization) -> Option<Tensor> {
    let zeros = how.zero_point()?;
    let values = zeros.to_vec::<i32>().unwrap();
    let shape = zeros.shape();
    Some(if how.kind().range().0 < 0 {
        Tensor::from_vec(values.into_iter().map(|z| z as i8).collect(), shape).unwrap()
    } else {
        Tensor::from_vec(values.into_iter().map(|z| z as u8).collect(), shape).unwrap()
    })
}

#[derive(Clone, Debug)]
struct Weighted {
    kind: QuantType,
    dtype: DType,
    leading: Vec<usize>,
    n: usize,
    k: usize,
    block: usize,
    zeros: bool,
    grade: Grade,
    input: Arrangement,
    output: Arrangement,
    seed: u64,
}

fn weighted() -> impl Strategy<Value = Weighted> {
    let leading = prop_oneof![
        1 => Just(vec![]),
        4 => (0usize..8).prop_map(|m| vec![m]),
        2 => (8usize..40).prop_map(|m| vec![m]),
        1 => (1usize..3, 1usize..4).prop_map(|(a, b)| vec![a, b]),
    ];
    (
        prop::sample::select(&[QuantType::I8, QuantType::U8, QuantType::I4, QuantType::U4][..]),
        prop::sample::select(&[DType::F32, DType::BF16][..]),
        leading,
        (0usize..70, 0usize..150),
        prop::sample::select(&[0usize, 0, 2, 6, 16, 32, 32, 64, 128][..]),
        any::<bool>(),
        prop::sample::select(&[Grade::Ordinary, Grade::Ordinary, Grade::Whole, Grade::Special][..]),
        [arrangement(), arrangement()],
        any::<u64>(),
    )
        .prop_map(|(kind, dtype, leading, (n, half), block, zeros, grade, [input, output], seed)| {
            let output = output.writable();
            Weighted { kind, dtype, leading, n, k: 2 * half, block, zeros, grade, input, output, seed }
        })
}

#[test]
fn products_with_quantised_weights() {
    let mut suite = Suite::new(OperationKind::QuantizedMatmul);
    let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
    each(200, weighted(), |case| weigh(&rt, &mut suite, &case));
    suite.finish();
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_products_with_quantised_weights() {
    let Some(mut suite) = webgpu::suite(OperationKind::QuantizedMatmul, 5, webgpu::FLUSHED) else { return };
    let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
    each_again(30, weighted(), |case| weigh(&rt, &mut suite, &case));
    suite.finish();
}

fn weigh(rt: &Runtime, suite: &mut Suite, case: &Weighted) -> Result<(), TestCaseError> {
    let bytes = if case.kind.is_packed() { case.k / 2 } else { case.k };
    let q =
        Operand::new(case.kind.dtype(), &[case.n, bytes], &Arrangement::PLAIN, Grade::Huge, case.seed ^ 3);
    let granularity = match case.block {
        0 if case.n > 0 && case.zeros => Granularity::Channel(0),
        0 => Granularity::Tensor,
        size => Granularity::Block(size),
    };
    let how = description(case.kind, &[case.n, case.k], granularity, case.zeros, case.seed);
    let weights = rt.pack_quantized(q.view(), &how).map_err(|e| TestCaseError::fail(e.to_string()))?;
    let shape = |last: usize| [&case.leading[..], &[last]].concat();
    let x = Operand::new(case.dtype, &shape(case.k), &case.input, case.grade, case.seed);
    // k terms of at most 4 · 400 · 1.01, in about √k roundings of their sum; bf16 is rounded once.
    let k = case.k as f64;
    let largest = 4.0 * f64::from(2 << case.kind.bits()) * k;
    let absolute = precision(DType::F32).0 * (4.0 + 2.0 * k.sqrt()) * largest;
    let tolerance = Tolerance { ulps: if case.dtype == DType::BF16 { 1.0 } else { 0.0 }, absolute };
    suite.check(
        || vec![Operand::new(case.dtype, &shape(case.n), &case.output, Grade::Whole, 1)],
        |rt, out| rt.matmul_quantized_into(x.view(), &weights, out[0].view_mut()),
        |_, _| tolerance,
    )
}

/// Linear layers of models in int8 and int4: rows of the input (sequences are cut to these few, so that the reference ends soon),
/// outputs, inputs. Llama's are those of a block of the model of 7 billion parameters.
const LAYERS: &[(&str, usize, usize, usize)] = &[
    ("BERT-base, query, key, value and attention output", 6, 768, 768),
    ("BERT-base, intermediate", 5, 3072, 768),
    ("BERT-base, output", 5, 768, 3072),
    ("BERT-base, pooler, one sequence", 1, 768, 768),
    ("Llama 7B, query, key, value and output", 2, 4096, 4096),
    ("Llama 7B, gate and up, decoding", 1, 11_008, 4096),
    ("Llama 7B, down, decoding", 1, 4096, 11_008),
];

#[test]
fn layers_of_language_models_in_integers() {
    let mut suite = Suite::new(OperationKind::IntegerMatmul);
    for (i, &(name, m, n, k)) in LAYERS.iter().enumerate() {
        // int8 and int4 weights, sums as they are and requantised by turns.
        for packed in [None, Some(QuantType::I4)] {
            let case = Product {
                types: [DType::U8, DType::I8],
                packed,
                batch: None,
                sizes: (m, n, k),
                zeros: [1, 2 * (i % 2)],
                requantised: i % 2 == 1,
                grade: Grade::Huge,
                inputs: [Arrangement::PLAIN; 2],
                output: Arrangement::PLAIN,
                seed: i as u64,
            };
            multiply(&mut suite, &case).unwrap_or_else(|e| panic!("{name}, {packed:?}: {e}"));
        }
    }
}

#[test]
fn layers_of_language_models_with_quantised_weights() {
    let mut suite = Suite::new(OperationKind::QuantizedMatmul);
    let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
    for (i, &(name, m, n, k)) in LAYERS.iter().enumerate() {
        // Blocks of 32 and 128 as they are shipped, and a scale for each output.
        for (kind, block) in [(QuantType::I4, 32), (QuantType::U4, 128), (QuantType::I8, 0)] {
            let case = Weighted {
                kind,
                dtype: if i % 3 == 2 { DType::BF16 } else { DType::F32 },
                leading: vec![m],
                n,
                k,
                block,
                zeros: kind != QuantType::I4,
                grade: Grade::Ordinary,
                input: Arrangement::PLAIN,
                output: Arrangement::PLAIN,
                seed: i as u64,
            };
            weigh(&rt, &mut suite, &case).unwrap_or_else(|e| panic!("{name}, {kind:?}: {e}"));
        }
    }
}
