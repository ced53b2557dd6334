//! Every kernel against the reference, identities, and what users rely on at the edges.

use super::*;
use crate::ops::testing::{agree, runtime};
use crate::ops::{Operation, TensorDesc, Workload};
use crate::tensor::{DType, Shape, Tensor, TensorView};
use proptest::prelude::*;

/// Sizes: batch, heads, heads of keys, queries, keys, dim, value dim.
fn workload(
    dtype: DType,
    sizes: [usize; 7],
    causality: Causality,
    mask: Option<(DType, [usize; 4])>,
) -> Workload {
    let [batch, heads, shared, queries, keys, dim, value_dim] = sizes;
    let of = |shape: [usize; 4]| TensorDesc::contiguous(dtype, Shape::new(&shape).unwrap());
    let mut inputs = vec![
        of([batch, heads, queries, dim]),
        of([batch, shared, keys, dim]),
        of([batch, shared, keys, value_dim]),
    ];
    if let Some((dtype, shape)) = mask {
        let stored = TensorDesc::contiguous(dtype, Shape::new(&shape).unwrap());
        let full = Shape::new(&[batch, heads, queries, keys]).unwrap();
        let layout = crate::tensor::Layout { shape: stored.shape, strides: stored.strides, offset: 0 };
        let layout = layout.broadcast_to(&full).unwrap();
        inputs.push(TensorDesc { shape: layout.shape, strides: layout.strides, ..stored });
    }
    let operation = Operation::Attention(AttentionAttributes::new(causality, mask.is_some(), 0.3));
    Workload::new(operation, &inputs, &[of([batch, heads, queries, value_dim])])
}

#[test]
fn every_type_and_causality() {
    let rt = runtime();
    let mut ran = 0;
    for &dtype in DType::FLOATS {
        for causality in [Causality::None, Causality::FromStart, Causality::FromEnd] {
            for sizes in [
                [1, 1, 1, 1, 1, 1, 1],
                [2, 4, 2, 7, 9, 5, 3],
                [1, 2, 1, 100, 70, 16, 24],
                [1, 1, 1, 13, 300, 8, 33],
                [1, 2, 2, 0, 3, 4, 4],
                [1, 2, 2, 3, 0, 4, 4],
                [1, 2, 2, 3, 4, 0, 4],
                [0, 2, 2, 3, 4, 4, 4],
                [1, 2, 2, 3, 4, 4, 0],
            ] {
                ran += agree(&rt, &workload(dtype, sizes, causality, None));
            }
        }
    }
    assert!(ran > 200, "only {ran} combinations ran");
}

#[test]
fn masks_of_both_kinds_repeat() {
    let rt = runtime();
    for dtype in [DType::F32, DType::BF16] {
        for kind in [DType::Bool, dtype] {
            for shape in [[2, 4, 60, 70], [2, 1, 1, 70], [1, 1, 60, 70], [1, 4, 60, 1], [1, 1, 1, 1]] {
                let sizes = [2, 4, 2, 60, 70, 8, 12];
                assert!(agree(&rt, &workload(dtype, sizes, Causality::FromEnd, Some((kind, shape)))) > 0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]
    #[test]
    fn random_sizes(
        (batch, shared, group) in (1usize..3, 1usize..4, 1usize..4),
        (queries, keys, dim, value_dim) in (1usize..130, 1usize..130, 1usize..40, 1usize..40),
        (causality, dtype) in (0usize..3, 0usize..4),
    ) {
        let causality = [Causality::None, Causality::FromStart, Causality::FromEnd][causality];
        let sizes = [batch, shared * group, shared, queries, keys, dim, value_dim];
        agree(&runtime(), &workload(DType::FLOATS[dtype], sizes, causality, None));
    }

    #[test]
    fn the_mean_of_equal_values_is_that_value(
        queries in 1usize..20,
        keys in 1usize..60,
        numbers in prop::collection::vec(-3.0f32..3.0, 80 * 8),
    ) {
        let rt = runtime();
        let q = TensorView::from_slice(&numbers[..queries * 8], &[1, queries, 8]).unwrap();
        let k = TensorView::from_slice(&numbers[queries * 8..(queries + keys) * 8], &[1, keys, 8]).unwrap();
        let v = Tensor::full(1.5f32, &[1, keys, 3]).unwrap();
        for y in rt.attention(q, k, &v, &AttentionOptions::new()).unwrap().to_vec::<f32>().unwrap() {
            prop_assert!((y - 1.5).abs() < 1e-5, "{}", y);
        }
    }
}

/// Numbers without pattern.
fn numbers(n: usize, seed: u32) -> Vec<f32> {
    (0..n as u32)
        .map(|i| ((i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0) - 1.0)
        .collect()
}

fn close(a: &Tensor, b: &Tensor) {
    assert_eq!(a.shape(), b.shape());
    for (a, b) in a.to_vec::<f32>().unwrap().into_iter().zip(b.to_vec::<f32>().unwrap()) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

#[test]
fn causal_is_a_mask_and_shared_heads_are_repeated_ones() {
    let rt = runtime();
    let (m, n, d) = (9, 13, 8);
    let q = Tensor::from_vec(numbers(2 * 4 * m * d, 1), &[2, 4, m, d]).unwrap();
    let k = Tensor::from_vec(numbers(2 * 2 * n * d, 2), &[2, 2, n, d]).unwrap();
    let v = Tensor::from_vec(numbers(2 * 2 * n * d, 3), &[2, 2, n, d]).unwrap();
    for from_end in [false, true] {
        let options = AttentionOptions::new();
        let causal = if from_end { options.causal_from_end() } else { options.causal() };
        let last = if from_end { n - m } else { 0 };
        let visible: Vec<bool> = (0..m * n).map(|i| i % n <= i / n + last).collect();
        let mask = Tensor::from_vec(visible, &[m, n]).unwrap();
        let found = rt.attention(&q, &k, &v, &causal).unwrap();
        close(&found, &rt.attention(&q, &k, &v, &options.mask(&mask)).unwrap());
        let twice = |t: &Tensor| {
            let spread = t.reshape(&[2, 2, 1, n, d]).unwrap().broadcast_to(&[2, 2, 2, n, d]).unwrap();
            spread.to_contiguous().unwrap().reshape(&[2, 4, n, d]).unwrap()
        };
        close(&found, &rt.attention(&q, &twice(&k), &twice(&v), &causal).unwrap());
    }
}

#[test]
fn three_axes_are_heads_without_a_batch() {
    let rt = runtime();
    let x = Tensor::from_vec(numbers(2 * 5 * 4, 4), &[2, 5, 4]).unwrap();
    let four = x.reshape(&[1, 2, 5, 4]).unwrap();
    let options = AttentionOptions::new().scale(0.7);
    let found = rt.attention(&x, &x, &x, &options).unwrap();
    close(&found.reshape(&[1, 2, 5, 4]).unwrap(), &rt.attention(&four, &four, &four, &options).unwrap());
}

#[test]
fn keys_that_are_left_out_do_not_count_whatever_they_hold() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let q = Tensor::full(1.0f32, &[1, 3, 2]).unwrap();
    let k = Tensor::from_vec(vec![0.0, 0.0, 0.0, 0.0, nan, inf], &[1, 3, 2]).unwrap();
    let v = Tensor::from_vec(vec![1.0f32, 3.0, nan], &[1, 3, 1]).unwrap();
    let keep = Tensor::from_vec(vec![true, true, false], &[1, 3]).unwrap();
    let add = Tensor::from_vec(vec![0.0, 0.0, -inf], &[1, 3]).unwrap();
    let none = Tensor::from_vec(vec![false, true, true], &[3, 1]).unwrap();
    for kernel in KERNELS {
        let rt = runtime().with_kernel(kernel.name()).unwrap();
        let ask = |options: AttentionOptions<'_>| {
            rt.attention(&q, &k, &v, &options).map(|y| y.to_vec::<f32>().unwrap())
        };
        let Ok(found) = ask(AttentionOptions::new().mask(&keep)) else { continue };
        assert_eq!(found, [2.0; 3], "{}", kernel.name());
        assert_eq!(ask(AttentionOptions::new().mask(&add)).unwrap(), [2.0; 3], "{}", kernel.name());
        let causal = ask(AttentionOptions::new().causal()).unwrap();
        assert_eq!(causal[..2], [1.0, 2.0], "{}", kernel.name());
        assert!(causal[2].is_nan(), "{}: a score that is not a number", kernel.name());
        let some = ask(AttentionOptions::new().mask(&none).causal()).unwrap();
        assert_eq!(some[..2], [0.0, 2.0], "{}: no key gives zeros", kernel.name());
        let all = ask(AttentionOptions::new()).unwrap();
        assert!(all.iter().all(|y| y.is_nan()), "{}", kernel.name());
    }
}

#[test]
fn rising_scores_over_many_blocks_stay_exact() {
    // Each block of keys raises the maximum, by more than the exponential's range in all.
    let n = if cfg!(miri) { 300 } else { 3000 };
    let q = Tensor::full(1.0f32, &[1, 1, 1]).unwrap();
    let k = Tensor::from_vec((0..n).map(|i| i as f32 * 0.1).collect(), &[1, n, 1]).unwrap();
    let v = Tensor::from_vec((0..n).map(|i| (n - 1 - i) as f32).collect(), &[1, n, 1]).unwrap();
    // The mean of a geometric distribution.
    let wanted = 1.0 / (0.1f64.exp() - 1.0);
    for kernel in KERNELS {
        let rt = runtime().with_kernel(kernel.name()).unwrap();
        let Ok(y) = rt.attention(&q, &k, &v, &AttentionOptions::new()) else { continue };
        let y = f64::from(y.to_vec::<f32>().unwrap()[0]);
        assert!((y - wanted).abs() < 1e-3, "{}: {y} {wanted}", kernel.name());
    }
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let rt = runtime();
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype).unwrap();
    let x = |shape: &[usize]| zeros(shape, DType::F32);
    let none = AttentionOptions::new();
    let fails = |q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions<'_>, why: &str| {
        let error = rt.attention(q, k, v, options).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    let q = x(&[1, 4, 5, 8]);
    let k = x(&[1, 4, 6, 8]);
    fails(&q, &x(&[1, 3, 6, 8]), &x(&[1, 3, 6, 8]), &none, "cannot share 3 heads");
    fails(&q, &x(&[1, 0, 6, 8]), &x(&[1, 0, 6, 8]), &none, "cannot share 0 heads");
    fails(&q, &k, &x(&[1, 4, 7, 8]), &none, "6 keys but 7 values");
    fails(&q, &k, &x(&[1, 2, 6, 8]), &none, "keys have 4 heads, values 2");
    fails(&q, &x(&[1, 4, 6, 7]), &x(&[1, 4, 6, 7]), &none, "dim 8, keys 7");
    fails(&q, &x(&[2, 4, 6, 8]), &x(&[2, 4, 6, 8]), &none, "batches of [1, 2, 2]");
    fails(&q, &x(&[4, 6, 8]), &x(&[4, 6, 8]), &none, "[batch, heads, length, dim]");
    fails(&x(&[5, 8]), &x(&[6, 8]), &x(&[6, 8]), &none, "[batch, heads, length, dim]");
    fails(&q, &zeros(&[1, 4, 6, 8], DType::F64), &k, &none, "cast one of them");
    let whole = zeros(&[1, 4, 6, 8], DType::I32);
    fails(&whole, &whole, &whole, &none, "cast to a float");
    fails(&q, &k, &k, &none.scale(f64::NAN), "the scale is NaN");
    fails(&q, &k, &k, &none.mask(&x(&[5, 5])), "does not repeat");
    fails(&q, &k, &k, &none.mask(&zeros(&[5, 6], DType::F64)), "bool or, as the queries, f32");
    let endless = Tensor::scalar(1.0f32).broadcast_to(&[1, 4, 1 << 60, 1]).unwrap();
    fails(&x(&[1, 4, 1, 1]), &endless, &endless, &none, "address space");
    let mut out = x(&[1, 4, 5, 7]);
    assert!(rt.attention_into(&q, &k, &k, &none, &mut out).unwrap_err().to_string().contains("the output"));
}

#[test]
fn everything_that_tells_attentions_apart_is_in_their_key() {
    let of = [Causality::None, Causality::FromStart, Causality::FromEnd];
    let mut keys = std::collections::HashSet::new();
    for causality in of {
        for scale in [0.3, 0.5] {
            let sizes = [1, 2, 2, 3, 4, 4, 4];
            let mut plain = workload(DType::F32, sizes, causality, None);
            let mask = workload(DType::F32, sizes, causality, Some((DType::Bool, [1, 1, 3, 4])));
            let attributes = AttentionAttributes::new(causality, false, scale);
            plain = Workload::new(Operation::Attention(attributes), plain.inputs(), plain.outputs());
            assert!(keys.insert(plain.key()), "{plain}");
            keys.insert(mask.key());
        }
    }
    assert_eq!(keys.len(), 9);
}
