//! Every kernel against the reference, and what users rely on at the edges.

use super::*;
use crate::ops::testing::{agree, runtime};
use crate::tensor::DType;
use proptest::prelude::*;

const ALL: [Border; 4] = [Border::Constant(-1.0), Border::Edge, Border::Reflect, Border::Wrap];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]

    #[test]
    fn every_type_and_border(
        sizes in prop::collection::vec((1usize..9, 0usize..12, 0usize..12), 1..4),
        dtype in 0usize..12,
        turned in any::<bool>(),
    ) {
        let rt = runtime();
        let shape: Vec<usize> = sizes.iter().map(|s| s.0).collect();
        let x = Tensor::zeros(&shape, DType::ALL[dtype]).unwrap();
        let x = if turned { x.transpose() } else { x };
        let widths: Vec<_> = sizes.iter().map(|s| (s.1, s.2)).collect();
        for border in ALL {
            let w = rt.workloads(|rt| rt.pad(&x, &widths, border)).unwrap();
            prop_assert!(agree(&rt, &w[0]) >= 2);
        }
    }
}

#[test]
fn borders_go_round_as_often_as_needed() {
    let rt = runtime();
    let x = Tensor::from_vec(vec![1u8, 2, 3], &[3]).unwrap();
    let pad = |border| rt.pad(&x, &[(5, 4)], border).unwrap().to_vec::<u8>().unwrap();
    assert_eq!(pad(Border::Edge), [1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3]);
    assert_eq!(pad(Border::Reflect), [2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3]);
    assert_eq!(pad(Border::Wrap), [2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1]);
    let one = Tensor::from_vec(vec![4.0f32], &[1]).unwrap();
    assert_eq!(rt.pad(&one, &[(1, 2)], Border::Reflect).unwrap().to_vec::<f32>().unwrap(), [4.0; 4]);
    assert_eq!(rt.pad(&Tensor::scalar(3i64), &[], Border::Wrap).unwrap().item::<i64>().unwrap(), 3);
}

#[test]
fn equal_work_has_an_equal_key() {
    let rt = runtime();
    let image = Tensor::zeros(&[2, 3, 4, 5], DType::F32).unwrap();
    let planes = Tensor::zeros(&[6, 4, 5], DType::F32).unwrap();
    let asked =
        |x: &Tensor, widths: &[(usize, usize)]| rt.workloads(|rt| rt.pad(x, widths, Border::Edge)).unwrap();
    assert_eq!(asked(&image, &[(0, 0), (0, 0), (1, 1), (2, 0)]), asked(&planes, &[(0, 0), (1, 1), (2, 0)]));
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let rt = runtime();
    let x = Tensor::zeros(&[0, 3], DType::F32).unwrap();
    let text = |e: Result<Tensor>| e.unwrap_err().to_string();
    assert!(text(rt.pad(&x, &[(1, 1)], Border::Edge)).contains("1 widths for 2 axes"));
    assert!(text(rt.pad(&x, &[(1, 1), (0, 0)], Border::Wrap)).contains("no elements to make a border of"));
    assert_eq!(
        rt.pad(&x, &[(1, 1), (0, 0)], Border::Constant(2.0)).unwrap().to_vec::<f32>().unwrap(),
        [2.0; 6]
    );
    assert!(rt.pad(&x, &[(usize::MAX, 1), (0, 0)], Border::Constant(0.0)).is_err());
    assert!(rt.pad(&x, &[(usize::MAX, 1), (0, 0)], Border::Edge).is_err());
}
