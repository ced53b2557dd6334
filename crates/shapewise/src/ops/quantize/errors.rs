//! What is refused, and how it is said.

use super::*;
use crate::ops::conv::ConvOptions;
use crate::ops::testing::runtime;
use crate::tensor::{DType, Tensor};

fn text<T>(result: crate::Result<T>) -> String {
    match result {
        Ok(_) => "nothing was refused".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn conversions() {
    let rt = runtime();
    let x = Tensor::full(1.0f32, &[2, 6]).unwrap();
    let how = Quantization::per_tensor(QuantType::I8, 1.0, 0).unwrap();
    let double = Tensor::full(1.0f64, &[2]).unwrap();
    assert!(text(rt.quantize(&double, &how)).contains("f32, f16 or bf16"));
    assert!(text(rt.dequantize(&x, &how)).contains("says i8, held by i8"));
    let sums = Quantization::per_tensor(QuantType::I32, 1.0, 0).unwrap();
    assert!(text(rt.quantize(&x, &sums)).contains("16 bits or fewer"));
    let mut out = Tensor::zeros(&[2, 5], DType::I8).unwrap();
    assert!(text(rt.quantize_into(&x, &how, &mut out)).contains("the output"));
    let channels = Quantization::per_channel(QuantType::I8, 1, &[1.0; 4], &[]).unwrap();
    assert!(text(rt.quantize(&x, &channels)).contains("4 scales for 6 channels"));
    let rows = Quantization::per_channel(QuantType::I8, 0, &[1.0; 2], &[]).unwrap();
    let columns = Quantization::per_channel(QuantType::I8, 1, &[1.0; 6], &[]).unwrap();
    let q = rt.quantize(&x, &rows).unwrap();
    assert!(text(rt.requantize(&q, &rows, &columns)).contains("along one axis"));
    let four = Quantization::per_tensor(QuantType::I4, 1.0, 0).unwrap();
    assert!(text(rt.dequantize(&Tensor::scalar(1u8), &four)).contains("packed along"));
    assert!(text(rt.quantize(&Tensor::scalar(1.0f32), &four)).contains("must be even"));
}

#[test]
fn integer_products() {
    let rt = runtime();
    let (a, b) = (Tensor::zeros(&[2, 3], DType::U8).unwrap(), Tensor::zeros(&[3, 4], DType::I8).unwrap());
    let none = IntegerOptions::new();
    assert!(text(rt.matmul_integer(&a, &a, &none)).contains("has 3 columns, the right one 2×3 has 2 rows"));
    let real = Tensor::zeros(&[3, 4], DType::F32).unwrap();
    assert!(text(rt.matmul_integer(&a, &real, &none)).contains("i8 or u8"));
    assert!(text(rt.matmul_integer(&a, &Tensor::scalar(1i8), &none)).contains("no rows or columns"));
    let zero = |n: usize| Tensor::zeros(&[n], DType::U8).unwrap();
    assert!(text(rt.matmul_integer(&a, &b, &none.a_zero_point(&zero(3)))).contains("3 zero points for 2"));
    let wide = Tensor::scalar(300i32);
    assert!(text(rt.matmul_integer(&a, &b, &none.a_zero_point(&wide))).contains("i8 or u8"));
    let negative = Tensor::scalar(-1i8);
    assert!(text(rt.matmul_integer(&a, &b, &none.a_zero_point(&negative))).contains("outside 0 … 255 of u8"));
    assert!(text(rt.matmul_integer(&a, &b, &none.b_packed(QuantType::I8))).contains("i4 or u4"));
    let turned = Tensor::zeros(&[4, 3], DType::U8).unwrap().transpose();
    assert!(
        text(rt.matmul_integer(&a, &turned, &none.b_packed(QuantType::I4))).contains("contiguous matrix")
    );
    let mut out = Tensor::zeros(&[2, 4], DType::I64).unwrap();
    assert!(rt.matmul_integer_into(&a, &b, &none, &mut out).is_err());
}

#[test]
fn quantised_products() {
    let rt = runtime();
    let (a, b) = (Tensor::zeros(&[2, 3], DType::U8).unwrap(), Tensor::zeros(&[3, 4], DType::I8).unwrap());
    let of = |kind| Quantization::per_tensor(kind, 1.0, 0).unwrap();
    let (qa, qb) = (of(QuantType::U8), of(QuantType::I8));
    assert!(text(rt.qmatmul(&a, &qb, &b, &qb, &qa)).contains("says i8"));
    assert!(text(rt.qmatmul(&a, &qa, &b, &qb, &of(QuantType::I16))).contains("i8 or u8, per tensor"));
    let rows = Quantization::per_channel(QuantType::I8, 0, &[1.0; 3], &[]).unwrap();
    assert!(text(rt.qmatmul(&a, &qa, &b, &rows, &qa)).contains("per tensor or per column"));
    let few = Quantization::per_channel(QuantType::I8, 1, &[1.0; 3], &[]).unwrap();
    assert!(text(rt.qmatmul(&a, &qa, &b, &few, &qa)).contains("3 scales for 4"));
}

#[test]
fn weights_and_their_products() {
    let rt = runtime();
    let q = Tensor::zeros(&[4, 8], DType::I8).unwrap();
    let how = Quantization::per_tensor(QuantType::I8, 1.0, 0).unwrap();
    let inputs = Quantization::per_channel(QuantType::I8, 1, &[1.0; 8], &[]).unwrap();
    assert!(text(rt.pack_quantized(&q, &inputs)).contains("quantise axis 0"));
    let wide = Quantization::per_tensor(QuantType::I16, 1.0, 0).unwrap();
    assert!(text(rt.pack_quantized(&q, &wide)).contains("4 or 8 bits"));
    let other = Quantization::per_tensor(QuantType::U8, 1.0, 0).unwrap();
    assert!(text(rt.pack_quantized(&q, &other)).contains("says u8"));
    let line = Tensor::zeros(&[8], DType::I8).unwrap();
    assert!(text(rt.pack_quantized(&line, &how)).contains("outputs × inputs"));
    let scales = Tensor::full(1.0f32, &[4, 3]).unwrap();
    let blocks = Quantization::per_block(QuantType::I8, 4, &scales, None).unwrap();
    assert!(text(rt.pack_quantized(&q, &blocks)).contains("need scales of 4×2"));
    let weights = rt.pack_quantized(&q, &how).unwrap();
    let x = Tensor::full(1.0f32, &[2, 7]).unwrap();
    assert!(text(rt.matmul_quantized(&x, &weights)).contains("7 columns, the weights 4×8"));
    let double = Tensor::full(1.0f64, &[2, 8]).unwrap();
    assert!(text(rt.matmul_quantized(&double, &weights)).contains("f32 or bf16"));
    assert!(text(rt.matmul_quantized(&Tensor::scalar(1.0f32), &weights)).contains("no columns"));
    let none = Tensor::zeros(&[0, 8], DType::F32).unwrap();
    assert_eq!(rt.matmul_quantized(&none, &weights).unwrap().shape(), [0, 4]);
}

#[test]
fn convolutions() {
    let rt = runtime();
    let (x, w) =
        (Tensor::zeros(&[1, 2, 4, 4], DType::U8).unwrap(), Tensor::zeros(&[3, 2, 3, 3], DType::I8).unwrap());
    let (zeros, plain) = (IntegerOptions::new(), ConvOptions::new());
    let bias = Tensor::zeros(&[3], DType::F32).unwrap();
    let error = |options: &ConvOptions<'_>| text(rt.conv_integer2d(&x, &w, &zeros, options));
    assert!(error(&plain.clone().bias(&bias)).contains("the bias is i32"));
    assert!(error(&plain.clone().stride(0)).contains("stride of 0"));
    assert!(error(&plain.clone().groups(2)).contains("groups"));
    assert!(error(&plain.clone().dilation(4)).contains("larger than the padded input"));
    assert!(error(&plain.clone().activation(crate::ops::Activation::Relu)).contains("activation"));
    let two = Tensor::zeros(&[2], DType::U8).unwrap();
    assert!(text(rt.conv_integer2d(&x, &w, &zeros.a_zero_point(&two), &plain)).contains("one zero point"));
    let of = |kind| Quantization::per_tensor(kind, 1.0, 0).unwrap();
    let channels = Quantization::per_channel(QuantType::U8, 1, &[1.0; 2], &[]).unwrap();
    let (qx, qw) = (of(QuantType::U8), of(QuantType::I8));
    assert!(text(rt.qconv2d(&x, &channels, &w, &qw, &qx, &plain)).contains("per tensor"));
    assert!(text(rt.qconv2d(&x, &qw, &w, &qw, &qx, &plain)).contains("says i8"));
    assert!(text(rt.qconv2d(&x, &qx, &w, &qw, &of(QuantType::I4), &plain)).contains("i8 or u8"));
    let wrong = Quantization::per_channel(QuantType::I8, 0, &[1.0; 2], &[]).unwrap();
    assert!(text(rt.qconv2d(&x, &qx, &w, &wrong, &qx, &plain)).contains("2 scales for 3 channels"));
}
