//! Attentions that choices are judged on: the blocks of models, decoding, and odd sizes.

use anyhow::Result;
use shapewise::ops::attention::AttentionOptions;
use shapewise::{DType, Tensor};

use super::Suite;

/// Heads, heads of keys, queries, keys, dim: BERT-base and -large, Llama-style with shared heads in prefill and decoding,
/// Whisper's encoder (shortened) and decoder.
const MODELS: &[[usize; 5]] = &[
    [12, 12, 128, 128, 64],
    [12, 12, 512, 512, 64],
    [16, 16, 384, 384, 64],
    [32, 8, 256, 256, 128],
    [32, 8, 1, 1024, 128],
    [32, 32, 1, 2048, 128],
    [32, 8, 4, 512, 64],
    [8, 8, 750, 750, 64],
    [8, 8, 1, 448, 64],
    [8, 8, 5, 1500, 64],
];

impl Suite<'_> {
    /// The models' attentions once, others drawn anew each time.
    pub(super) fn attention(&mut self) -> Result<()> {
        for (i, &sizes) in MODELS.iter().enumerate() {
            self.one_attention(1, sizes, DType::F32, i % 2 == 0)?;
        }
        for i in 0..14 {
            let group = self.draw.pick(&[1, 1, 2, 4]);
            let shared = self.draw.size(1, 8);
            let (queries, keys) = (self.draw.size(1, 400), self.draw.size(1, 600));
            let dim = self.draw.pick(&[32, 64, 64, 80, 128]);
            let dtype = if i % 5 == 3 { DType::F64 } else { DType::F32 };
            self.one_attention(1 + i % 2, [shared * group, shared, queries, keys, dim], dtype, i % 3 == 0)?;
        }
        Ok(())
    }

    fn one_attention(&mut self, batch: usize, sizes: [usize; 5], dtype: DType, causal: bool) -> Result<()> {
        let [heads, shared, queries, keys, dim] = sizes;
        let q = Tensor::zeros(&[batch, heads, queries, dim], dtype)?;
        let k = Tensor::zeros(&[batch, shared, keys, dim], dtype)?;
        let options = AttentionOptions::new();
        let options = if causal { options.causal_from_end() } else { options };
        self.ask(|rt| rt.attention(&q, &k, &k, &options))
    }
}
