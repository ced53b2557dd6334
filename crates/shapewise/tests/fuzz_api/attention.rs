//! Attention on views of every kind.

use shapewise::Tensor;
use shapewise::ops::attention::{AttentionOptions, Causality};

use crate::data::Random;
use crate::{no_kernel_panics, wild};

/// Sizes that often fit one another.
fn shape(r: &mut Random) -> Vec<usize> {
    (0..3 + r.below(2)).map(|_| [1, 2, 4, 5][r.below(4)]).collect()
}

#[test]
fn attention() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r), wild::storage(r), wild::storage(r)];
        let (dtype, sizes) = (wild::dtype(r), [shape(r), shape(r)]);
        let fitting = [0, 1].map(|i| Tensor::zeros(&sizes[i], dtype).unwrap());
        let mut view = |i: usize| {
            if r.below(4) == 0 { wild::view(r, &storage[i]) } else { fitting[r.below(3) / 2].view() }
        };
        let (q, k, v, mask) = (view(0), view(1), view(2), view(3));
        let causality = [Causality::None, Causality::FromStart, Causality::FromEnd][r.below(3)];
        let mut options = AttentionOptions::new().causality(causality);
        if r.below(3) == 0 {
            options = options.scale(wild::number(r));
        }
        if r.below(3) == 0 {
            options = options.mask(mask);
        }
        let _ = rt.attention(q, k, v, &options);
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.attention_into(q, k, v, &options, view);
        }
    });
}
