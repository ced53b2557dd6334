//! Scaled dot-product attention.

use shapewise::ops::OperationKind;
use shapewise::ops::attention::{AttentionOptions, Causality};

use crate::compare::{Tolerance, precision};

#[test]
fn attention() {
    crate::run(
        OperationKind::Attention,
        |rt, case| {
            let causality = match case.text("causality") {
                "causal" => Causality::FromStart,
                "from_end" => Causality::FromEnd,
                _ => Causality::None,
            };
            let mut options = AttentionOptions::new().causality(causality);
            let scale = case.attributes["scale"].as_f64().expect("a scale");
            if scale != 0.0 {
                options = options.scale(scale);
            }
            if let Some(mask) = case.inputs.get(3) {
                options = options.mask(mask);
            }
            Ok(vec![rt.attention(&case.inputs[0], &case.inputs[1], &case.inputs[2], &options)?])
        },
        // Scores of up to 100 carry their rounding into the weights.
        |_, dtype, largest| {
            let short = dtype.size() == 2;
            let epsilon = precision(if short { shapewise::DType::F32 } else { dtype }).0;
            Tolerance { ulps: if short { 1.0 } else { 8.0 }, absolute: 200.0 * epsilon * largest }
        },
    );
}
