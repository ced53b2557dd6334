//! Pooling on views of every kind.

use shapewise::ops::pool::PoolOptions;

use crate::data::Random;
use crate::{no_kernel_panics, wild};

fn sizes(r: &mut Random) -> Vec<usize> {
    (0..r.below(4)).map(|_| [0, 1, 2, 3, 5, usize::MAX][r.below(24).min(5)]).collect()
}

#[test]
fn pool() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = wild::storage(r);
        let x = wild::view(r, &storage);
        let mut options = PoolOptions::new(&sizes(r));
        if r.below(3) == 0 {
            options = options.stride(&sizes(r));
        }
        if r.below(3) == 0 {
            options = options.padding(&sizes(r));
        }
        if r.below(4) == 0 {
            options = options.dilation(&sizes(r));
        }
        if r.below(2) == 0 {
            options = options.ceil().count_include_pad(false);
        }
        if r.below(2) == 0 {
            options = options.channels_last();
        }
        let _ = (rt.max_pool(x, &options), rt.avg_pool(x, &options));
        let _ = (rt.max_pool_with_indices(x, &options), rt.adaptive_avg_pool(x, &sizes(r)));
        let _ = (rt.global_avg_pool(x, r.below(5)), rt.global_max_pool(x, r.below(5)));
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.max_pool_into(x, &options, view);
        }
        let _ = rt.avg_pool_into(x, &options, &mut out);
    });
}
