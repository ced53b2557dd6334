//! Maxima and means of moving windows.

use shapewise::ops::OperationKind;
use shapewise::ops::pool::PoolOptions;

use crate::compare::{Tolerance, precision};
use crate::read::sizes;

#[test]
fn pool() {
    crate::run(
        OperationKind::Pool,
        |rt, case| {
            let list = |name: &str| sizes(&case.attributes[name]);
            let (x, window) = (&case.inputs[0], list("window"));
            match case.text("kind") {
                "global max" => return Ok(vec![rt.global_max_pool(x, window.len())?]),
                "global average" => return Ok(vec![rt.global_avg_pool(x, window.len())?]),
                _ => {}
            }
            let mut options = PoolOptions::new(&window).stride(&list("stride")).padding(&list("padding"));
            options = options.dilation(&list("dilation")).count_include_pad(case.flag("count"));
            if case.flag("ceil") {
                options = options.ceil();
            }
            if case.flag("last") {
                options = options.channels_last();
            }
            match case.text("kind") {
                "max" if !case.flag("places") => Ok(vec![rt.max_pool(x, &options)?]),
                "max" => {
                    let (y, at) = rt.max_pool_with_indices(x, &options)?;
                    Ok(vec![y, at])
                }
                "average" => Ok(vec![rt.avg_pool(x, &options)?]),
                _ => Ok(vec![rt.adaptive_avg_pool(x, &window)?]),
            }
        },
        |_, dtype, largest| Tolerance { ulps: 1.0, absolute: 4.0 * precision(dtype).0.min(1e-6) * largest },
    );
}
