//! Wrong input never panics: random shapes, strides, types, axes and attributes at every public method.

mod attention;
#[path = "../common/data.rs"]
mod data;
mod operations;
mod pool;
mod quantize;
mod rnn;
mod sparse;
mod tensors;
mod wild;

use std::panic::{AssertUnwindSafe, catch_unwind};

use data::Random;
use shapewise::Runtime;
use shapewise::ops::OperationKind;
use shapewise::selection::Limits;

/// Runs `attempt` on many seeds; a panic fails the test and names the seed.
fn never_panics(seeds: u64, attempt: impl Fn(&mut Random)) {
    for seed in 0..seeds {
        let outcome = catch_unwind(AssertUnwindSafe(|| attempt(&mut Random::new(seed))));
        assert!(outcome.is_ok(), "panicked at seed {seed}");
    }
}

/// The same with a runtime, made anew now and then because it remembers every workload; no kernel may be quarantined.
fn no_kernel_panics(seeds: u64, attempt: impl Fn(&Runtime, &mut Random)) {
    let limits = Limits { memory: Some(64 << 20), scratch: Some(16 << 20), ..Limits::default() };
    let runtime = || Runtime::builder().threads(2).limits(limits).without_calibration().build().unwrap();
    let mut rt = runtime();
    for seed in 0..seeds {
        if rt.decisions() > 300 {
            rt = runtime();
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| attempt(&rt, &mut Random::new(seed))));
        assert!(outcome.is_ok(), "panicked at seed {seed}");
        for kernel in OperationKind::ALL.iter().flat_map(|o| o.kernels()) {
            let why = rt.kernels().quarantined(kernel.name());
            assert_eq!(why, None, "{} failed at seed {seed}", kernel.name());
        }
    }
}
