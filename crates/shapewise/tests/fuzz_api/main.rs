//! Wrong input never panics: random shapes, strides, types, axes and attributes at every public method.

#[path = "../common/data.rs"]
mod data;
mod operations;
mod tensors;
mod wild;

use std::panic::{AssertUnwindSafe, catch_unwind};

use data::Random;

/// Runs `attempt` on many seeds; a panic fails the test and names the seed.
fn never_panics(seeds: u64, attempt: impl Fn(&mut Random)) {
    for seed in 0..seeds {
        let outcome = catch_unwind(AssertUnwindSafe(|| attempt(&mut Random::new(seed))));
        assert!(outcome.is_ok(), "panicked at seed {seed}");
    }
}
