//! The public calls on the reference and whatever else is chosen.

use super::*;
use half::f16;
use num_complex::Complex;

fn runtime() -> Runtime {
    Runtime::builder().threads(2).without_calibration().build().unwrap()
}

fn tensor(values: &[f32], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape).unwrap()
}

#[test]
fn broadcasting_and_transposed_operands() {
    let rt = runtime();
    let a = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    let row = tensor(&[10.0, 20.0, 30.0], &[3]);
    assert_eq!(rt.add(&a, &row).unwrap().to_vec::<f32>().unwrap(), [11.0, 22.0, 33.0, 14.0, 25.0, 36.0]);
    let t = rt.sub(&a.transpose(), &tensor(&[1.0, 4.0], &[2])).unwrap();
    assert_eq!((t.shape(), t.to_vec::<f32>().unwrap()), (&[3, 2][..], vec![0.0, 0.0, 1.0, 1.0, 2.0, 2.0]));
    assert!(rt.add(&a, &tensor(&[1.0, 2.0], &[2])).is_err());
}

#[test]
fn in_place_and_into() {
    let rt = runtime();
    let mut a = tensor(&[-1.0, 2.0], &[2]);
    rt.relu_in_place(&mut a).unwrap();
    rt.add_in_place(&mut a, &tensor(&[1.0], &[1])).unwrap();
    assert_eq!(a.to_vec::<f32>().unwrap(), [1.0, 3.0]);
    let mut out = Tensor::zeros(&[2, 2], DType::F32).unwrap();
    rt.mul_into(&a, &a, &mut out).unwrap();
    assert_eq!(out.to_vec::<f32>().unwrap(), [1.0, 9.0, 1.0, 9.0]);
    let mut narrow = Tensor::zeros(&[1], DType::F32).unwrap();
    assert!(rt.mul_into(&a, &a, &mut narrow).is_err());
    let mut wrong = Tensor::zeros(&[2], DType::F64).unwrap();
    assert!(rt.mul_into(&a, &a, &mut wrong).unwrap_err().to_string().contains("result is f32"));
    assert!(rt.add_in_place(&mut a, &tensor(&[1.0; 4], &[2, 2])).is_err());
}

#[test]
fn types_are_never_promoted_in_silence() {
    let rt = runtime();
    let (a, b) = (Tensor::scalar(1.0f32), Tensor::scalar(1.0f64));
    assert!(matches!(rt.add(&a, &b), Err(Error::DTypeMismatch { .. })));
    let both = rt.add(&rt.cast(&a, DType::F64).unwrap(), &b).unwrap();
    assert_eq!(both.item::<f64>().unwrap(), 2.0);
    assert!(rt.exp(&Tensor::scalar(1i32)).is_err());
    assert!(rt.clamp(&a, 1.0, 0.0).is_err());
}

#[test]
fn every_type_computes() {
    let rt = runtime();
    let z = Tensor::scalar(Complex::new(3.0f32, 4.0));
    assert_eq!(rt.abs(&z).unwrap().item::<f32>().unwrap(), 5.0);
    let h = Tensor::from_slice(&[f16::from_f32(1.5)], &[1]).unwrap();
    assert_eq!(rt.mul(&h, &h).unwrap().to_vec::<f16>().unwrap(), [f16::from_f32(2.25)]);
    let i = Tensor::from_slice(&[7u8, 255], &[2]).unwrap();
    assert_eq!(rt.add(&i, &Tensor::scalar(1u8)).unwrap().to_vec::<u8>().unwrap(), [8, 0]);
    let less = rt.less(&i, &Tensor::scalar(9u8)).unwrap();
    assert_eq!(less.to_vec::<bool>().unwrap(), [true, false]);
    let chosen = rt.where_(&less, &i, &Tensor::scalar(0u8)).unwrap();
    assert_eq!(chosen.to_vec::<u8>().unwrap(), [7, 0]);
    assert_eq!(rt.maximum(&less, &Tensor::scalar(true)).unwrap().to_vec::<bool>().unwrap(), [true, true]);
}

#[test]
fn prepared_calls_check_what_they_get() {
    let rt = runtime();
    let fused = Program::build(2, |x| (x[0] + x[1]).relu()).unwrap();
    let a = tensor(&[-3.0, 1.0, 2.0, 3.0], &[4]);
    let mut out = Tensor::zeros(&[4], DType::F32).unwrap();
    let call = rt.prepare_elementwise(&fused, &[&a, &a], &mut out).unwrap();
    call.run(&[&a, &a], &mut out).unwrap();
    assert_eq!(out.to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0, 6.0]);
    assert!(call.run(&[&a], &mut out).is_err());
    assert!(
        call.run(&[&a, &tensor(&[1.0; 3], &[3])], &mut out).unwrap_err().to_string().contains("operand 1")
    );
}

#[test]
fn empty_tensors_give_empty_results() {
    let rt = runtime();
    let none = Tensor::zeros(&[0, 3], DType::F32).unwrap();
    assert_eq!(rt.add(&none, &Tensor::scalar(1.0f32)).unwrap().shape(), [0, 3]);
}

#[test]
fn calls_that_are_known_do_not_let_wrong_ones_through() {
    let rt = runtime();
    let (x, y) = (tensor(&[1.0; 6], &[6]), tensor(&[2.0; 6], &[2, 3]));
    let fused = Program::build(2, |x| x[0] + x[1]).unwrap();
    for _ in 0..3 {
        rt.add_into(&x, &x, Tensor::zeros(&[6], DType::F32).unwrap().view_mut().unwrap()).unwrap();
        assert!(rt.add_into(&x, &x, &mut Tensor::zeros(&[6], DType::F64).unwrap()).is_err());
        assert!(rt.add_into(&x, &y, &mut Tensor::zeros(&[6], DType::F32).unwrap()).is_err());
        let mut out = Tensor::zeros(&[6], DType::F32).unwrap();
        assert!(rt.elementwise_into(&fused, &[x.view()], &mut out).is_err());
        assert!(rt.elementwise_into(&fused, &[x.view(), x.view(), x.view()], &mut out).is_err());
        rt.elementwise_into(&fused, &[x.view(), x.view()], &mut out).unwrap();
        assert_eq!(out.to_vec::<f32>().unwrap(), [2.0; 6]);
    }
}

#[test]
fn rows_of_equal_calls_do_not_let_wrong_ones_through() {
    let rt = runtime();
    let (x, y, short) = (tensor(&[1.0; 6], &[6]), tensor(&[-2.0; 6], &[6]), tensor(&[3.0; 5], &[5]));
    let double = Tensor::from_slice(&[1.0f64; 6], &[6]).unwrap();
    let far = tensor(&[1.0; 12], &[12]).slice(0, 0, 12, 2).unwrap();
    let later = tensor(&[4.0; 7], &[7]).slice(0, 1, 7, 1).unwrap();
    let fused = Program::build(2, |x| (x[0] + x[1]).relu()).unwrap();
    let turned = Program::build(2, |x| (x[1] - x[0]).relu()).unwrap();
    let mut out = Tensor::zeros(&[6], DType::F32).unwrap();
    let mut expect = |rt: &Runtime, call: &dyn Fn(&Runtime, &mut Tensor) -> Result<()>, result: f32| {
        call(rt, &mut out).unwrap();
        assert_eq!(out.to_vec::<f32>().unwrap(), [result; 6]);
    };
    for round in 0..100 {
        expect(&rt, &|rt, out| rt.add_into(&x, &y, out), -1.0);
        expect(&rt, &|rt, out| rt.mul_into(&x, &y, out), -2.0);
        expect(&rt, &|rt, out| rt.relu_into(&y, out), 0.0);
        expect(&rt, &|rt, out| rt.elementwise_into(&fused, &[x.view(), y.view()], out), 0.0);
        if round % 40 < 30 {
            continue;
        }
        expect(&rt, &|rt, out| rt.add_into(&later, &y, out), 2.0);
        expect(&rt, &|rt, out| rt.add_into(&far, &y, out), -1.0);
        expect(&rt, &|rt, out| rt.add_into(&x, &x, out.view_mut()?), 2.0);
        expect(&rt, &|rt, out| rt.elementwise_into(&turned, &[y.view(), x.view()], out), 3.0);
        for wrong in [&short, &double] {
            assert!(rt.add_into(&x, wrong, &mut Tensor::zeros(&[6], DType::F32).unwrap()).is_err());
            assert!(rt.add_into(&x, &y, &mut wrong.deep_clone().unwrap()).is_err());
            assert!(rt.relu_into(&y, &mut wrong.deep_clone().unwrap()).is_err());
        }
        let mut shared = Tensor::zeros(&[6], DType::F32).unwrap();
        let other = shared.clone();
        assert!(rt.add_into(&x, &y, &mut shared).is_err());
        drop(other);
        assert_eq!(rt.workloads(|rt| rt.add_into(&x, &y, &mut shared)).unwrap().len(), 1);
        assert_eq!(shared.to_vec::<f32>().unwrap(), [0.0; 6], "only asked for");
    }
}
