//! Every kernel against the reference, identities, and what users rely on at the edges.

use super::*;
use crate::ops::testing::{agree, runtime};
use crate::ops::{TensorDesc, Workload};
use crate::tensor::{DType, Layout};
use num_complex::Complex;
use proptest::prelude::*;

fn workload(dtype: DType, shape: &[usize], order: &[usize]) -> Workload {
    let from = Layout::contiguous(Shape::new(shape).unwrap()).permute(order).unwrap();
    let input = TensorDesc { dtype, aligned: true, shape: from.shape, strides: from.strides };
    Workload::new(Operation::Copy, &[input], &[TensorDesc::contiguous(dtype, from.shape)])
}

#[test]
fn every_size_of_element_turned_and_straight() {
    let rt = runtime();
    let mut ran = 0;
    for dtype in [DType::U8, DType::F16, DType::F32, DType::F64, DType::C64] {
        for (shape, order) in [
            (&[5, 7][..], &[1, 0][..]),
            (&[16, 16], &[1, 0]),
            (&[33, 50], &[1, 0]),
            (&[64, 160], &[1, 0]),
            (&[3, 20, 37], &[0, 2, 1]),
            (&[20, 3, 40], &[2, 1, 0]),
            (&[17, 4, 3, 19], &[3, 1, 0, 2]),
            (&[2, 300, 5], &[0, 1, 2]),
            (&[1], &[0]),
        ] {
            ran += agree(&rt, &workload(dtype, shape, order));
        }
    }
    // What the kernels for every CPU make by themselves.
    assert!(ran >= 160, "only {ran} combinations ran");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]

    #[test]
    fn turned_twice_is_the_same(rows in 0usize..70, columns in 0usize..70, batch in 1usize..3) {
        let rt = runtime();
        let x: Vec<u16> = (0..batch * rows * columns).map(|i| i as u16).collect();
        let x: Vec<half::f16> = x.into_iter().map(half::f16::from_bits).collect();
        let x = Tensor::from_vec(x, &[batch, rows, columns]).unwrap();
        let turned = rt.transpose(&x).unwrap();
        prop_assert_eq!(turned.shape(), [batch, columns, rows]);
        let bits = |t: &Tensor| -> Vec<u16> {
            t.to_vec::<half::f16>().unwrap().iter().map(|v| v.to_bits()).collect()
        };
        prop_assert_eq!(bits(&rt.transpose(&turned).unwrap()), bits(&x));
        prop_assert_eq!(bits(&turned), bits(&x.transpose()));
    }

    #[test]
    fn split_and_concat_are_inverse(sizes in prop::collection::vec(0usize..9, 1..6), axis in 0usize..3) {
        let rt = runtime();
        let mut shape = [3, 4, 5];
        shape[axis] = sizes.iter().sum();
        let x = Tensor::from_vec((0..shape.iter().product::<usize>() as i64).collect(), &shape).unwrap();
        let parts = rt.split(&x, &sizes, axis as isize).unwrap();
        let views: Vec<_> = parts.iter().map(Tensor::view).collect();
        let whole = rt.concat(&views, axis as isize - 3).unwrap();
        prop_assert_eq!(whole.to_vec::<i64>().unwrap(), x.to_vec::<i64>().unwrap());
    }
}

#[test]
fn equal_work_has_an_equal_key() {
    let rt = runtime();
    let asked = |x: &Tensor, order: &[usize]| rt.workloads(|rt| rt.permute(x, order)).unwrap();
    let f = Tensor::zeros(&[8, 6], DType::F32).unwrap();
    let i = Tensor::zeros(&[2, 4, 2, 3], DType::I32).unwrap();
    assert_eq!(asked(&f, &[1, 0]), asked(&i, &[2, 3, 0, 1]));
    assert_ne!(asked(&f, &[1, 0]), asked(&f, &[0, 1]));
}

#[test]
fn strange_layouts_keep_their_bits() {
    let rt = runtime();
    let nan = f32::from_bits(0xffc0_1234);
    let x = Tensor::from_vec(vec![Complex::new(nan, -0.0), Complex::new(1.0, f32::INFINITY)], &[2]).unwrap();
    let wide = x.broadcast_to(&[3, 2]).unwrap().slice(1, 0, 2, -1).unwrap();
    let copied = rt.copy(&wide).unwrap();
    let bits: Vec<_> = copied.as_slice::<Complex<f32>>().unwrap().iter().map(|z| z.re.to_bits()).collect();
    assert_eq!(bits, [1.0f32.to_bits(), nan.to_bits()].repeat(3));
    let mut out = Tensor::zeros(&[4, 6], DType::Bool).unwrap();
    let ones = Tensor::full(true, &[4, 3]).unwrap();
    let odd = out.layout().slice(1, 0, 6, -2).unwrap();
    rt.copy_into(&ones, out.view_mut().unwrap().with_layout(odd).unwrap()).unwrap();
    assert_eq!(out.to_vec::<bool>().unwrap(), [false, true].repeat(12));
    let none = Tensor::zeros(&[0, 7], DType::F64).unwrap();
    assert_eq!(rt.transpose(&none).unwrap().shape(), [7, 0]);
    assert_eq!(rt.copy(&Tensor::scalar(5u8)).unwrap().item::<u8>().unwrap(), 5);
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let rt = runtime();
    let x = Tensor::zeros(&[2, 3], DType::F32).unwrap();
    let y = Tensor::zeros(&[2, 4], DType::F64).unwrap();
    let text = |e: Result<Tensor>| e.unwrap_err().to_string();
    assert!(text(rt.permute(&x, &[0, 0])).contains("name each axis once"));
    assert!(text(rt.concat(&[], 0)).contains("no tensors"));
    assert!(text(rt.concat(&[x.view(), y.view()], 0)).contains("f32 and f64"));
    let z = Tensor::zeros(&[2, 4], DType::F32).unwrap();
    assert!(text(rt.concat(&[x.view(), z.view()], 0)).contains("differ in more than axis 0"));
    assert!(text(rt.concat(&[x.view()], 2)).contains("axis 2 does not exist"));
    assert!(rt.split(&x, &[1, 1], 1).unwrap_err().to_string().contains("do not add up to 3"));
    assert!(rt.split(&x, &[usize::MAX, 4], 1).is_err());
    let mut out = Tensor::zeros(&[3, 2], DType::F32).unwrap();
    assert!(rt.copy_into(&x, &mut out).unwrap_err().to_string().contains("the output"));
    rt.transpose_into(&x, &mut out).unwrap();
}
