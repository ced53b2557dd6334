//! Convolutions, against torch and the definition of ONNX.

use shapewise::DType;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::{Activation, OperationKind};

use crate::compare::{Tolerance, precision};
use crate::read::sizes;

#[test]
fn conv() {
    crate::run(
        OperationKind::Conv,
        |rt, case| {
            let number = |name: &str| case.integer(name) as usize;
            let pads = sizes(&case.attributes["padding"]);
            let pairs: Vec<_> = pads.chunks(2).map(|p| (p[0], p[1])).collect();
            let mut options = ConvOptions::new()
                .stride(number("stride"))
                .dilation(number("dilation"))
                .output_padding(number("output_padding"))
                .groups(number("groups"))
                .paddings(&pairs)
                .activation(match case.text("activation") {
                    "relu" => Activation::Relu,
                    "gelu" => Activation::Gelu,
                    _ => Activation::None,
                });
            options = match case.text("auto") {
                "same" => options.same(),
                "valid" => options.valid(),
                _ => options,
            };
            if case.flag("last") {
                options = options.channels_last();
            }
            if case.flag("bias") {
                options = options.bias(&case.inputs[2]);
            }
            let (x, w) = (&case.inputs[0], &case.inputs[1]);
            let y = match (number("axes"), case.flag("transposed")) {
                (1, false) => rt.conv1d(x, w, &options),
                (2, false) => rt.conv2d(x, w, &options),
                (_, false) => rt.conv3d(x, w, &options),
                (1, true) => rt.conv_transpose1d(x, w, &options),
                (2, true) => rt.conv_transpose2d(x, w, &options),
                (_, true) => rt.conv_transpose3d(x, w, &options),
            };
            Ok(vec![y?])
        },
        |_, dtype, largest| tolerance(dtype, largest),
    );
}

/// A few dozen products, and the transforms of Winograd's forms where they are chosen.
fn tolerance(dtype: DType, largest: f64) -> Tolerance {
    let short = dtype.size() == 2;
    let epsilon = precision(if short { DType::F32 } else { dtype }).0;
    Tolerance { ulps: if short { 1.0 } else { 8.0 }, absolute: 64.0 * epsilon * largest.max(1.0) }
}
