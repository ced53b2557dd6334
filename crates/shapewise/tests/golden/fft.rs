//! Fourier transforms and the short-time transform.

use shapewise::ops::OperationKind;
use shapewise::ops::fft::{FftNorm, FftOptions, StftOptions};

use crate::compare::{Tolerance, precision};
use crate::read::{Case, sizes};

#[test]
fn fft() {
    crate::run(
        OperationKind::Fft,
        |rt, case| {
            let x = &case.inputs[0];
            let kind = case.text("kind");
            if kind == "stft" {
                let (frame, hop) = (case.integer("frame") as usize, case.integer("hop") as usize);
                return Ok(vec![rt.stft(x, &StftOptions::new(frame).hop(hop).centred(false))?]);
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

fn options(case: &Case) -> FftOptions {
    let axes: Vec<isize> =
        case.attributes["axes"].as_array().unwrap().iter().map(|a| a.as_i64().unwrap() as isize).collect();
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
