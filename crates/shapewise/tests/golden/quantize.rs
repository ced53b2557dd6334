//! Quantisation: conversions, calibration, products of integers, convolutions, products with quantised weights.

use serde_json::Value;
use shapewise::ops::OperationKind;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::quantize::{Calibration, Granularity, IntegerOptions, QuantType, Quantization};
use shapewise::{DType, Runtime, Tensor};

use crate::compare::{Tolerance, precision};
use crate::read::Case;

fn kind(case: &Case) -> QuantType {
    case.text("kind").parse().unwrap()
}

/// The description that scales and zero points, the inputs from `first` on, make.
fn how(case: &Case, first: usize, kind: QuantType) -> shapewise::Result<Quantization> {
    let (scale, zero) = (&case.inputs[first], &case.inputs[first + 1]);
    match case.text("granularity") {
        "tensor" => Quantization::per_tensor(kind, scale.item()?, zero.item()?),
        "channel" => {
            let axis = case.attributes["axis"].as_i64().unwrap_or(0) as isize;
            Quantization::per_channel(kind, axis, &scale.to_vec::<f32>()?, &zero.to_vec::<i32>()?)
        }
        _ => Quantization::per_block(kind, case.integer("block") as usize, scale, Some(zero.view())),
    }
}

#[test]
fn quantize() {
    let compute = |rt: &Runtime, case: &Case| {
        let x = &case.inputs[0];
        Ok(vec![match case.text("call") {
            "quantize" => rt.quantize(x, &how(case, 1, kind(case))?)?,
            "dequantize" => rt.dequantize(x, &how(case, 1, kind(case))?)?,
            "requantize" => {
                let to = &case.attributes["to"];
                let (scale, zero) = (to[1].as_f64().unwrap() as f32, to[2].as_i64().unwrap() as i32);
                let to = Quantization::per_tensor(to[0].as_str().unwrap().parse().unwrap(), scale, zero)?;
                rt.requantize(x, &how(case, 1, kind(case))?, &to)?
            }
            _ => {
                let method = match case.text("method") {
                    "percentile" => Calibration::Percentile(90.0),
                    "entropy" => Calibration::Entropy,
                    "mse" => Calibration::Mse,
                    _ => Calibration::MinMax,
                };
                let (rows, symmetric) = (Granularity::Channel(0), case.flag("symmetric"));
                let how = Quantization::calibrate(x, kind(case), rows, method, symmetric)?;
                let none = Tensor::zeros(how.scale().shape(), DType::I32)?;
                return Ok(vec![how.scale().clone(), how.zero_point().cloned().unwrap_or(none)]);
            }
        }])
    };
    // Scales of a calibration are rounded once more than numpy's.
    crate::run(OperationKind::Quantize, compute, |case, _, _| {
        let ulps = if case.text("call") == "calibrate" { 1.0 } else { 0.0 };
        Tolerance { ulps, absolute: 0.0 }
    });
}

/// A scale and a zero point for a whole tensor.
fn whole(pair: &Value, dtype: DType) -> shapewise::Result<Quantization> {
    let kind = if dtype == DType::I8 { QuantType::I8 } else { QuantType::U8 };
    let (scale, zero) = (pair[0].as_f64().unwrap() as f32, pair[1].as_i64().unwrap() as i32);
    Quantization::per_tensor(kind, scale, zero)
}

#[test]
fn integer_matmul() {
    let compute = |rt: &Runtime, case: &Case| {
        let (a, b) = (&case.inputs[0], &case.inputs[1]);
        let result = match case.text("call") {
            "matmul_integer" => {
                let mut rest = case.inputs[2..].iter();
                let mut options = IntegerOptions::new();
                if case.flag("a_zero") {
                    options = options.a_zero_point(rest.next().unwrap());
                }
                if case.flag("b_zero") {
                    options = options.b_zero_point(rest.next().unwrap());
                }
                if let Ok(packed) = case.text("packed").parse() {
                    options = options.b_packed(packed);
                }
                rt.matmul_integer(a, b, &options)?
            }
            "qmatmul" => {
                let kind = if b.dtype() == DType::I8 { QuantType::I8 } else { QuantType::U8 };
                let (scales, zeros) = (case.inputs[2].to_vec::<f32>()?, case.inputs[3].to_vec::<i32>()?);
                let b_how = Quantization::per_channel(kind, 1, &scales, &zeros)?;
                let of = |name: &str| whole(&case.attributes[name], a.dtype());
                rt.qmatmul(a, &of("a")?, b, &b_how, &of("y")?)?
            }
            call => convolution(rt, case, call == "qconv")?,
        };
        Ok(vec![result])
    };
    crate::run(OperationKind::IntegerMatmul, compute, |_, _, _| Tolerance::default());
}

fn convolution(rt: &Runtime, case: &Case, quantised: bool) -> shapewise::Result<Tensor> {
    let (x, w) = (&case.inputs[0], &case.inputs[1]);
    let size = |name: &str| case.integer(name) as usize;
    let options = ConvOptions::new()
        .stride(size("stride"))
        .padding(size("pad"))
        .dilation(size("dilation"))
        .groups(size("groups"));
    if !quantised {
        let zero = Tensor::scalar(case.attributes["x"][1].as_u64().unwrap() as u8);
        return rt.conv_integer2d(x, w, &IntegerOptions::new().a_zero_point(&zero), &options);
    }
    let of = |name: &str| whole(&case.attributes[name], x.dtype());
    let kind = if w.dtype() == DType::I8 { QuantType::I8 } else { QuantType::U8 };
    let zeros = match case.inputs.get(4) {
        Some(zeros) => zeros.to_vec::<i32>()?,
        None => vec![],
    };
    let w_how = Quantization::per_channel(kind, 0, &case.inputs[2].to_vec::<f32>()?, &zeros)?;
    rt.qconv2d(x, &of("x")?, w, &w_how, &of("y")?, &options.bias(&case.inputs[3]))
}

#[test]
fn quantized_matmul() {
    let compute = |rt: &Runtime, case: &Case| {
        let how = how(case, 2, kind(case))?;
        let weights = rt.pack_quantized(&case.inputs[1], &how)?;
        Ok(vec![rt.matmul_quantized(&case.inputs[0], &weights)?])
    };
    // Sums of f32, rounded once more for bf16.
    crate::run(OperationKind::QuantizedMatmul, compute, |_, dtype, largest| {
        let epsilon = precision(DType::F32).0;
        Tolerance { ulps: if dtype == DType::BF16 { 1.0 } else { 4.0 }, absolute: 200.0 * epsilon * largest }
    });
}
