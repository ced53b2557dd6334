//! Reductions.

use shapewise::DType;
use shapewise::ops::OperationKind;
use shapewise::ops::reduce::{NormOrder, Over, ReduceKind, Scan, ScanKind};

use crate::compare::{Tolerance, precision};
use crate::read::Case;

#[test]
fn reductions() {
    crate::run(
        OperationKind::Reduce,
        |rt, case| {
            let x = &case.inputs[0];
            let axes: Vec<isize> = case.attributes["axes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|a| a.as_i64().unwrap() as isize)
                .collect();
            if let Some(kind) = case.text("kind").strip_prefix("cum") {
                let kind = match kind {
                    "sum" => ScanKind::Sum,
                    "prod" => ScanKind::Prod,
                    "max" => ScanKind::Max,
                    "min" => ScanKind::Min,
                    other => panic!("unknown scan `{other}`"),
                };
                let exclusive = case.attributes["exclusive"].as_bool().unwrap_or(false);
                return Ok(vec![rt.scan(Scan { kind, exclusive }, x, axes[0])?]);
            }
            let over = Over::from(&axes[..]);
            let over = if case.flag("keepdims") { over.keepdims() } else { over };
            Ok(vec![rt.reduce(kind(case)?, x, over)?])
        },
        |case, dtype, largest| tolerance(case.text("kind"), dtype, largest),
    );
}

fn kind(case: &Case) -> shapewise::Result<ReduceKind> {
    Ok(match case.text("kind") {
        "sum" => ReduceKind::Sum,
        "mean" => ReduceKind::Mean,
        "prod" => ReduceKind::Prod,
        "max" => ReduceKind::Max,
        "min" => ReduceKind::Min,
        "argmax" => ReduceKind::ArgMax,
        "argmin" => ReduceKind::ArgMin,
        "any" => ReduceKind::Any,
        "all" => ReduceKind::All,
        "variance" => ReduceKind::Variance { correction: case.integer("correction") as u32 },
        "norm" => ReduceKind::Norm(NormOrder::p(case.text("order").parse().unwrap())?),
        other => panic!("unknown reduction `{other}`"),
    })
}

/// Sums err by some roundings of their largest part, fewer the more lanes there are; extremes are exact.
fn tolerance(kind: &str, dtype: DType, largest: f64) -> Tolerance {
    let epsilon = precision(dtype).0;
    match kind {
        "max" | "min" | "cummax" | "cummin" => Tolerance::default(),
        // 16-bit types are summed in f32 and rounded once.
        "sum" | "cumsum" | "mean" => Tolerance { ulps: 1.0, absolute: 64.0 * epsilon * largest },
        "variance" => Tolerance { ulps: 4.0, absolute: 4.0 * epsilon * largest.max(1.0) },
        _ => Tolerance { ulps: 8.0, absolute: 0.0 },
    }
}
