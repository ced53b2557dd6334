//! Fourier transforms, shifts and the short-time transform.

use shapewise::ops::OperationKind;
use shapewise::ops::fft::{FftNorm, FftOptions, StftOptions};
use shapewise::{Runtime, Tensor};

use crate::compare::{Tolerance, precision};
use crate::read::{Case, sizes};

#[test]
fn fft() {
    crate::run(
        OperationKind::Fft,
        |rt, case| {
            let x = &case.inputs[0];
            let kind = case.text("kind");
            match kind {
                "stft" | "istft" => return Ok(vec![frames(rt, case)?]),
                "fftshift" => return Ok(vec![rt.fftshift(x, &axes(case)[..])?]),
                "ifftshift" => return Ok(vec![rt.ifftshift(x, &axes(case)[..])?]),
                _ => {}
            }
            let options = options(case);
            Ok(vec![match kind {
                "fft" => rt.fftn(x, &options)?,
                "ifft" => rt.ifftn(x, &options)?,
                "rfft" => rt.rfftn(x, &options)?,
                "irfft" => rt.irfftn(x, &options)?,
                other => panic!("unknown kind `{other}`"),
            }])
        },
        // A few roundings of the largest number.
        |_, dtype, largest| Tolerance { ulps: 1.0, absolute: 4.0 * precision(dtype).0 * largest },
    );
}

/// The short-time transform, under a window if there is one, or back.
fn frames(rt: &Runtime, case: &Case) -> shapewise::Result<Tensor> {
    let number = |name: &str| case.integer(name) as usize;
    let mut options = StftOptions::new(number("frame")).hop(number("hop")).centred(case.flag("centred"));
    if let Some(window) = case.inputs.get(1) {
        options = options.window(window);
    }
    match case.text("kind") {
        "stft" => rt.stft(&case.inputs[0], &options),
        _ => rt.istft(&case.inputs[0], &options.length(number("length"))),
    }
}

fn axes(case: &Case) -> Vec<isize> {
    case.attributes["axes"].as_array().unwrap().iter().map(|a| a.as_i64().unwrap() as isize).collect()
}

fn options(case: &Case) -> FftOptions {
    let axes = axes(case);
    let norm = match case.text("norm") {
        "ortho" => FftNorm::Ortho,
        "forward" => FftNorm::Forward,
        _ => FftNorm::Backward,
    };
    let options = FftOptions::new().axes(&axes).norm(norm);
    match &sizes(&case.attributes["lens"])[..] {
        [] => options,
        lens => options.lens(lens),
    }
}
