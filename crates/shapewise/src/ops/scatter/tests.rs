//! Every kernel against the reference, identities, and what users rely on at the edges.

use super::*;
use crate::ops::testing::{agree, runtime};
use proptest::prelude::*;

const ALL: [Combine; 5] = [Combine::Set, Combine::Add, Combine::Prod, Combine::Max, Combine::Min];

#[test]
fn every_type_and_rule_in_both_forms() {
    let rt = runtime();
    let mut ran = 0;
    for dtype in DType::ALL {
        for combine in ALL {
            for (shape, axis, count) in [(&[50, 64][..], 0, 90), (&[7, 9], 1, 30), (&[1000], 0, 9000)] {
                let x = Tensor::zeros(shape, dtype).unwrap();
                let mut sizes = shape.to_vec();
                sizes[axis as usize] = count;
                let source = Tensor::zeros(&sizes, dtype).unwrap();
                let (list, each) = (Tensor::zeros(&[count], DType::I32), Tensor::zeros(&sizes, DType::I64));
                let asked = rt.workloads(|rt| {
                    rt.index_scatter(&x, axis, &list.unwrap(), &source, combine)?;
                    rt.scatter(&x, axis, &each.unwrap(), &source, combine)
                });
                for workload in asked.unwrap_or_default().iter().filter(|w| w.in_place()) {
                    ran += agree(&rt, workload);
                }
            }
        }
    }
    assert!(ran > 200, "only {ran} combinations ran");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]

    #[test]
    fn scattered_and_gathered_again_is_the_same(n in 1usize..200, rotation in 0usize..200, width in 1usize..9) {
        let rt = runtime();
        // A permutation: every place is written once.
        let ids: Vec<i64> = (0..n).map(|i| ((i + rotation) % n) as i64).collect();
        let index = Tensor::from_vec(ids, &[n]).unwrap();
        let source = Tensor::from_vec((0..(n * width) as u32).collect(), &[n, width]).unwrap();
        let x = Tensor::zeros(&[n, width], DType::U32).unwrap();
        let put = rt.index_scatter(&x, 0, &index, &source, Combine::Set).unwrap();
        let back = rt.index_select(&put, 0, &index).unwrap();
        prop_assert_eq!(back.to_vec::<u32>().unwrap(), source.to_vec::<u32>().unwrap());
        let added = rt.index_scatter(&put, 0, &index, &source, Combine::Add).unwrap();
        let doubled: Vec<u32> = put.to_vec::<u32>().unwrap().iter().map(|x| 2 * x).collect();
        prop_assert_eq!(added.to_vec::<u32>().unwrap(), doubled);
    }

    #[test]
    fn sums_of_repeated_indices_are_those_of_a_loop(ids in prop::collection::vec(0i32..50, 0..3000)) {
        let rt = runtime();
        let values: Vec<f32> = ids.iter().enumerate().map(|(i, _)| 1.0 / (1.0 + i as f32)).collect();
        let (mut sums, mut last) = ([0.0f32; 50], [0.0f32; 50]);
        for (&i, &v) in ids.iter().zip(&values) {
            sums[i as usize] += v;
            last[i as usize] = v;
        }
        let (index, source) = (Tensor::from_slice(&ids, &[ids.len()]).unwrap(), Tensor::from_slice(&values, &[ids.len()]).unwrap());
        let x = Tensor::zeros(&[50], DType::F32).unwrap();
        for kernel in KERNELS {
            let rt = rt.with_kernel(kernel.name()).unwrap();
            let put = |combine| rt.scatter(&x, 0, &index, &source, combine).unwrap().to_vec::<f32>().unwrap();
            prop_assert_eq!(put(Combine::Add), sums);
            prop_assert_eq!(put(Combine::Set), last);
        }
    }
}

#[test]
fn order_follows_the_index_and_not_the_memory() {
    let rt = runtime();
    let source = Tensor::from_vec(vec![1i32, 2, 3, 4], &[2, 2]).unwrap().transpose();
    let index = Tensor::zeros(&[2, 2], DType::I64).unwrap();
    let x = Tensor::zeros(&[1], DType::I32).unwrap();
    let y = rt.index_scatter(&x, 0, &index, &source, Combine::Set).unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [4]);
    let backwards = source.slice(1, 0, 2, -1).unwrap();
    let y = rt.index_scatter(&x, 0, &index, &backwards, Combine::Set).unwrap();
    assert_eq!(y.to_vec::<i32>().unwrap(), [2]);
}

#[test]
fn nan_wins_and_signs_stay() {
    let rt = runtime();
    let x = Tensor::from_vec(vec![1.0f32, f32::NAN, 3.0], &[3]).unwrap();
    let index = Tensor::from_vec(vec![0i32, 1, 2], &[3]).unwrap();
    let source = Tensor::from_vec(vec![f32::NAN, 2.0, 5.0], &[3]).unwrap();
    for kernel in KERNELS {
        let rt = rt.with_kernel(kernel.name()).unwrap();
        let mut y = x.deep_clone().unwrap();
        rt.scatter_in_place(&mut y, 0, &index, &source, Combine::Max).unwrap();
        let y = y.to_vec::<f32>().unwrap();
        assert!(y[0].is_nan() && y[1].is_nan() && y[2] == 5.0, "{}: {y:?}", kernel.name());
    }
}

#[test]
fn bad_input_is_refused_before_anything_is_written() {
    let rt = runtime();
    let mut x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3]).unwrap();
    let source = Tensor::zeros(&[2], DType::F32).unwrap();
    let index = Tensor::from_vec(vec![0i64, 3], &[2]).unwrap();
    let failed = rt.scatter_in_place(&mut x, 0, &index, &source, Combine::Set).unwrap_err();
    assert!(failed.to_string().contains("index 3 does not exist"));
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    let index = Tensor::from_vec(vec![0i64, 1, 2], &[3]).unwrap();
    let text = |e: Result<Tensor>| e.unwrap_err().to_string();
    assert!(text(rt.scatter(&x, 0, &index, &source, Combine::Add)).contains("a source of 3, not 2"));
    let double = Tensor::zeros(&[3], DType::F64).unwrap();
    assert!(text(rt.index_scatter(&x, 0, &index, &double, Combine::Add)).contains("f32 and f64"));
    let z = Tensor::zeros(&[3], DType::C32).unwrap();
    assert!(text(rt.scatter(&z, 0, &index, &z, Combine::Max)).contains("no order"));
}
