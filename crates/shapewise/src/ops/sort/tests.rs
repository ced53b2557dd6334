//! Every kernel against the reference, identities, and what users rely on at the edges.

use super::*;
use crate::ops::testing::{agree, runtime};
use half::{bf16, f16};
use proptest::prelude::*;

const SORTABLE: [DType; 10] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I8,
    DType::U8,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::Bool,
];

#[test]
fn every_type_short_and_long_in_both_directions() {
    let rt = runtime();
    let mut ran = 0;
    for dtype in SORTABLE {
        for order in [Order::Ascending, Order::Descending] {
            let long = if cfg!(miri) { 3000 } else { 70_000 };
            for (shape, axis) in
                [(&[5, 7][..], 1), (&[3, 200], 1), (&[40, 6], 0), (&[2, 3000, 2], 1), (&[long], 0), (&[1], 0)]
            {
                let x = Tensor::zeros(shape, dtype).unwrap();
                let asked = rt.workloads(|rt| {
                    rt.sort(&x, axis, order)?;
                    rt.argsort(&x, axis, order)?;
                    rt.sort_with_indices(&x, axis, order)?;
                    rt.topk(&x, shape[axis as usize].div_ceil(10), axis, order)
                });
                ran += asked.unwrap().iter().map(|workload| agree(&rt, workload)).sum::<usize>();
            }
        }
    }
    assert!(ran > 500, "only {ran} combinations ran");
}

/// Each kernel that takes the call.
fn each_kernel(mut call: impl FnMut(&Runtime, &str)) {
    for kernel in KERNELS {
        call(&runtime().with_kernel(kernel.name()).unwrap(), kernel.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 40 }))]

    #[test]
    fn sorted_values_are_ordered_and_the_same(
        values in prop::collection::vec(any::<f32>(), 0..3000),
        narrow in any::<bool>(),
    ) {
        // Few different values make many equal ones.
        let values: Vec<f32> = if narrow { values.iter().map(|v| (v % 8.0).round()).collect() } else { values };
        let n = values.len();
        let x = Tensor::from_slice(&values, &[n]).unwrap();
        let mut wanted: Vec<usize> = (0..n).collect();
        let compare = |a: f32, b: f32| a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
        wanted.sort_by(|&a, &b| compare(values[a], values[b]));
        each_kernel(|rt, name| {
            let Ok((sorted, indices)) = rt.sort_with_indices(&x, 0, Order::Ascending) else { return };
            let indices = indices.to_vec::<i64>().unwrap();
            assert!(indices.iter().zip(&wanted).all(|(&a, &b)| a == b as i64), "{name}");
            // The elements at those places are the sorted ones, to the bit (NaN: without its sign).
            let bits = |v: f32| if v.is_nan() { u32::MAX } else { v.to_bits() };
            for (value, &at) in sorted.to_vec::<f32>().unwrap().iter().zip(&wanted) {
                assert_eq!(bits(*value), bits(values[at]), "{name}");
            }
            let alone = rt.sort(&x, 0, Order::Ascending).unwrap().to_vec::<f32>().unwrap();
            assert!(alone.iter().zip(&wanted).all(|(&v, &at)| v == values[at] || v.is_nan() && values[at].is_nan()));
            let picked = runtime().gather(&x, 0, &rt.argsort(&x, 0, Order::Ascending).unwrap()).unwrap();
            let picked = picked.to_vec::<f32>().unwrap();
            assert!(picked.iter().zip(&alone).all(|(a, b)| a == b || a.is_nan() && b.is_nan()), "{name}");
        });
    }

    #[test]
    fn the_first_k_are_those_of_the_whole(
        seed in any::<u64>(),
        n in 1024usize..40_000,
        share in 0usize..9,
        different in prop::sample::select(vec![2u64, 1000, u64::MAX]),
    ) {
        let mut state = seed | 1;
        let values: Vec<i64> = (0..n)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state % different) as i64
            })
            .collect();
        let x = Tensor::from_vec(values, &[n]).unwrap();
        let k = n * share / 64;
        for order in [Order::Ascending, Order::Descending] {
            let (values, indices) = runtime().sort_with_indices(&x, 0, order).unwrap();
            let (values, indices) = (values.to_vec::<i64>().unwrap(), indices.to_vec::<i64>().unwrap());
            each_kernel(|rt, name| {
                let Ok((first, at)) = rt.topk(&x, k, 0, order) else { return };
                assert_eq!(first.to_vec::<i64>().unwrap(), values[..k], "{name}");
                assert_eq!(at.to_vec::<i64>().unwrap(), indices[..k], "{name}");
            });
        }
    }
}

#[test]
fn nan_is_largest_and_zeros_are_equal() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let x = Tensor::from_vec(vec![0.0, nan, -inf, -nan, -0.0, inf, -1.5, 0.0], &[8]).unwrap();
    each_kernel(|rt, name| {
        let Ok(up) = rt.argsort(&x, 0, Order::Ascending) else { return };
        assert_eq!(up.to_vec::<i64>().unwrap(), [2, 6, 0, 4, 7, 5, 1, 3], "{name}");
        let down = rt.argsort(&x, 0, Order::Descending).unwrap();
        assert_eq!(down.to_vec::<i64>().unwrap(), [1, 3, 5, 0, 4, 7, 6, 2], "{name}");
        let (values, _) = rt.topk(&x, 6, 0, Order::Ascending).unwrap();
        let values = values.to_vec::<f64>().unwrap();
        assert_eq!(
            values.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            [-inf, -1.5, 0.0, -0.0, 0.0, inf].map(f64::to_bits),
            "{name}"
        );
        let values = rt.sort(&x, 0, Order::Ascending).unwrap().to_vec::<f64>().unwrap();
        assert!(values[6].is_nan() && values[7].is_nan() && values[5] == inf, "{name}: {values:?}");
    });
}

#[test]
fn small_types_sort_by_their_numbers() {
    let rt = runtime();
    let sort = |x: Tensor| rt.sort(&x, 0, Order::Descending).unwrap();
    let x = Tensor::from_vec([1.0, -2.0, 0.5].map(f16::from_f32).to_vec(), &[3]).unwrap();
    assert_eq!(sort(x).to_vec::<f16>().unwrap(), [1.0, 0.5, -2.0].map(f16::from_f32));
    let x =
        Tensor::from_vec([1.0, bf16::INFINITY.to_f32(), -3.0].map(bf16::from_f32).to_vec(), &[3]).unwrap();
    assert_eq!(sort(x).to_vec::<bf16>().unwrap()[2], bf16::from_f32(-3.0));
    let x = Tensor::from_vec(vec![-128i8, 127, 0, -1], &[4]).unwrap();
    assert_eq!(sort(x).to_vec::<i8>().unwrap(), [127, 0, -1, -128]);
    let x = Tensor::from_vec(vec![false, true, false], &[3]).unwrap();
    assert_eq!(sort(x).to_vec::<bool>().unwrap(), [true, false, false]);
    let x = Tensor::from_vec(vec![u32::MAX, 0, 1 << 31], &[3]).unwrap();
    assert_eq!(sort(x).to_vec::<u32>().unwrap(), [u32::MAX, 1 << 31, 0]);
}

#[test]
fn axes_views_and_nothing() {
    let rt = runtime();
    let x = Tensor::from_vec(vec![3i32, 1, 2, 9, 7, 8], &[2, 3]).unwrap();
    let by_column = rt.sort(x.transpose().view(), 0, Order::Descending).unwrap();
    assert_eq!(by_column.to_vec::<i32>().unwrap(), [3, 9, 2, 8, 1, 7]);
    let mut out = Tensor::zeros(&[2, 6], DType::I64).unwrap();
    let odd = out.layout().slice(1, 0, 6, -2).unwrap();
    rt.argsort_into(&x, -1, Order::Ascending, out.view_mut().unwrap().with_layout(odd).unwrap()).unwrap();
    assert_eq!(out.to_vec::<i64>().unwrap(), [0, 0, 0, 2, 0, 1, 0, 0, 0, 2, 0, 1]);
    let wide = x.slice(1, 0, 1, 1).unwrap().broadcast_to(&[2, 4]).unwrap();
    assert_eq!(
        rt.argsort(&wide, 1, Order::Descending).unwrap().to_vec::<i64>().unwrap(),
        [0, 1, 2, 3].repeat(2)
    );
    let none = Tensor::zeros(&[3, 0], DType::F32).unwrap();
    assert_eq!(rt.sort(&none, 1, Order::Ascending).unwrap().shape(), [3, 0]);
    assert_eq!(rt.topk(&x, 0, 1, Order::Ascending).unwrap().0.shape(), [2, 0]);
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let rt = runtime();
    let x = Tensor::zeros(&[2, 3], DType::C32).unwrap();
    assert!(rt.sort(&x, 0, Order::Ascending).unwrap_err().to_string().contains("no order"));
    let x = Tensor::zeros(&[2, 3], DType::F32).unwrap();
    assert!(
        rt.topk(&x, 4, 1, Order::Descending).unwrap_err().to_string().contains("4 elements are asked for")
    );
    assert!(rt.argsort(&x, 2, Order::Ascending).unwrap_err().to_string().contains("axis 2 does not exist"));
    let mut out = Tensor::zeros(&[2, 3], DType::I32).unwrap();
    assert!(rt.argsort_into(&x, 1, Order::Ascending, &mut out).is_err());
    assert!(rt.sort(&Tensor::scalar(1.0f32), 0, Order::Ascending).is_err());
}
