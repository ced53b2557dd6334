//! Every kernel against the reference, identities, and what users rely on at the edges.

use super::*;
use crate::ops::testing::{agree, runtime};
use crate::tensor::DType;
use proptest::prelude::*;

#[test]
fn every_size_of_element_in_both_forms() {
    let rt = runtime();
    let mut ran = 0;
    for dtype in [DType::U8, DType::F16, DType::F32, DType::F64, DType::C64] {
        for ids in [DType::I32, DType::U32, DType::I64] {
            for (shape, axis, count) in
                [(&[50, 64][..], 0, 300), (&[7, 9], 1, 30), (&[3, 8, 5], 1, 11), (&[1000], 0, 20_000)]
            {
                let x = Tensor::zeros(shape, dtype).unwrap();
                let index = Tensor::zeros(&[count], ids).unwrap();
                for workload in rt.workloads(|rt| rt.index_select(&x, axis, &index)).unwrap() {
                    ran += agree(&rt, &workload);
                }
                let mut sizes = shape.to_vec();
                sizes[axis as usize] = 13;
                let index = Tensor::zeros(&sizes, ids).unwrap();
                for workload in rt.workloads(|rt| rt.gather(&x, axis, &index)).unwrap() {
                    ran += agree(&rt, &workload);
                }
            }
        }
    }
    assert!(ran > 200, "only {ran} combinations ran");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]

    #[test]
    fn rows_are_those_of_slices(
        n in 1usize..20,
        width in 0usize..40,
        ids in prop::collection::vec(any::<i32>(), 0..30),
    ) {
        let rt = runtime();
        let x = Tensor::from_vec((0..(n * width) as i32).collect(), &[n, width]).unwrap();
        let ids: Vec<i32> = ids.iter().map(|i| i.rem_euclid(2 * n as i32) - n as i32).collect();
        let index = Tensor::from_vec(ids.clone(), &[ids.len()]).unwrap();
        let wanted: Vec<i32> = ids
            .iter()
            .flat_map(|&i| { let row = i.rem_euclid(n as i32) * width as i32; row..row + width as i32 })
            .collect();
        prop_assert_eq!(&rt.index_select(&x, 0, &index).unwrap().to_vec::<i32>().unwrap(), &wanted);
        prop_assert_eq!(&rt.embedding(&x, &index).unwrap().to_vec::<i32>().unwrap(), &wanted);
        // The same through the other axis, and as an index for each element.
        let turned = rt.index_select(&x.transpose(), 1, &index).unwrap();
        prop_assert_eq!(&turned.transpose().to_vec::<i32>().unwrap(), &wanted);
        let each = index.reshape(&[ids.len(), 1]).unwrap().broadcast_to(&[ids.len(), width]).unwrap();
        prop_assert_eq!(&rt.gather(&x, 0, &each).unwrap().to_vec::<i32>().unwrap(), &wanted);
    }
}

#[test]
fn an_index_of_many_axes_takes_their_place() {
    let rt = runtime();
    let x = Tensor::from_vec((0..6i64).collect(), &[2, 3]).unwrap();
    let index = Tensor::from_vec(vec![0u32, 2, 1, 1], &[2, 2]).unwrap();
    let y = rt.index_select(&x, 1, index.transpose().view()).unwrap();
    assert_eq!(y.shape(), [2, 2, 2]);
    assert_eq!(y.to_vec::<i64>().unwrap(), [0, 1, 2, 1, 3, 4, 5, 4]);
    let one = Tensor::scalar(-1i64);
    assert_eq!(rt.index_select(&x, 0, &one).unwrap().to_vec::<i64>().unwrap(), [3, 4, 5]);
    let deep = Tensor::zeros(&[1, 2, 1, 2, 1, 2, 1, 2], DType::I64).unwrap();
    let permuted = deep.permute(&[7, 6, 5, 4, 3, 2, 1, 0]).unwrap();
    let line = Tensor::from_vec(vec![4.0f64], &[1]).unwrap();
    assert_eq!(rt.index_select(&line, 0, &permuted).unwrap().to_vec::<f64>().unwrap(), [4.0; 16]);
}

#[test]
fn bad_input_is_refused_before_anything_is_written() {
    let rt = runtime();
    let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], &[3]).unwrap();
    let text = |e: Result<Tensor>| e.unwrap_err().to_string();
    for wrong in [3i64, -4, i64::MAX, i64::MIN] {
        let index = Tensor::from_vec(vec![0, wrong, 1], &[3]).unwrap();
        assert!(
            text(rt.gather(&x, 0, &index))
                .contains(&format!("index {wrong} does not exist in an axis of size 3"))
        );
        let mut out = Tensor::full(9.0f32, &[3]).unwrap();
        assert!(rt.index_select_into(&x, 0, &index, &mut out).is_err());
        assert_eq!(out.to_vec::<f32>().unwrap(), [9.0; 3]);
    }
    let index = Tensor::zeros(&[2], DType::F32).unwrap();
    assert!(text(rt.index_select(&x, 0, &index)).contains("i32, u32 or i64"));
    let index = Tensor::zeros(&[2, 2], DType::I64).unwrap();
    assert!(text(rt.gather(&x, 0, &index)).contains("as many axes"));
    assert!(text(rt.index_select(&x, 1, &index)).contains("axis 1 does not exist"));
    let none = Tensor::zeros(&[0, 4], DType::F32).unwrap();
    let one = Tensor::zeros(&[1], DType::I32).unwrap();
    assert!(text(rt.embedding(&none, &one)).contains("no elements"));
    let nothing = Tensor::zeros(&[0], DType::I32).unwrap();
    assert_eq!(rt.embedding(&none, &nothing).unwrap().shape(), [0, 4]);
}
