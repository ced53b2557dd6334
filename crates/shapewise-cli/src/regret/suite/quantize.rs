//! Quantisation that choices are judged on: conversions, layers of language models in int8 and int4, odd sizes.

use anyhow::Result;
use shapewise::ops::quantize::{IntegerOptions, QuantType, Quantization};
use shapewise::{DType, Tensor};

use super::Suite;

/// Outputs and inputs of the linear layers of BERT-base and of a Llama-style block of 7 billion parameters.
const LAYERS: [(usize, usize); 6] =
    [(768, 768), (3072, 768), (768, 3072), (4096, 4096), (11_008, 4096), (4096, 11_008)];

/// Products of one call of a layer at most.
const LARGEST: usize = 1 << 29;

impl Suite<'_> {
    pub(super) fn quantize(&mut self) -> Result<()> {
        let kinds = [QuantType::I8, QuantType::U8, QuantType::I16, QuantType::I4, QuantType::U4];
        for i in 0..20 {
            let (rows, columns) = (self.draw.size(1, 2000), 2 * self.draw.size(1, 2000));
            let kind = kinds[i % kinds.len()];
            let zero = i32::from(i % 2 == 0);
            let how = match i % 4 {
                0 | 1 => Quantization::per_tensor(kind, 0.1, zero)?,
                2 => Quantization::per_channel(kind, 0, &vec![0.1; rows], &vec![zero; rows])?,
                _ => Quantization::per_channel(kind, 1, &vec![0.1; columns], &[])?,
            };
            let x = Tensor::zeros(&[rows, columns], if i % 7 == 6 { DType::BF16 } else { DType::F32 })?;
            let q = self.runtime.quantize(&x, &how)?;
            if i % 3 == 1 {
                self.ask(|rt| rt.dequantize(&q, &how))?;
            } else {
                self.ask(|rt| rt.quantize(&x, &how))?;
            }
        }
        Ok(())
    }

    pub(super) fn integer_matmul(&mut self) -> Result<()> {
        for i in 0..24 {
            let layer = (i % 4 == 3).then_some(i / 4);
            let (n, k) = match layer {
                Some(layer) => LAYERS[layer],
                None => (self.draw.size(2, 1200), self.draw.size(2, 1200)),
            };
            // The large layers are those of decoding.
            let few = i % 3 == 2 || layer.is_some_and(|layer| layer >= 3);
            let m = if few { self.draw.size(1, 8) } else { self.draw.size(2, 700) };
            let a = Tensor::zeros(&[m, k], DType::U8)?;
            let b = Tensor::zeros(&[n, k], DType::I8)?.transpose();
            let b = if i % 2 == 0 { b.to_contiguous()? } else { b };
            if i % 5 == 4 {
                let of = |kind| Quantization::per_tensor(kind, 0.1, 3);
                let (qa, qb) = (of(QuantType::U8)?, of(QuantType::I8)?);
                self.ask(|rt| rt.qmatmul(&a, &qa, &b, &qb, &qa))?;
            } else {
                self.ask(|rt| rt.matmul_integer(&a, &b, &IntegerOptions::new()))?;
            }
        }
        Ok(())
    }

    pub(super) fn quantized_matmul(&mut self) -> Result<()> {
        // Every layer in int4 and in int8, and as many odd sizes.
        for i in 0..4 * LAYERS.len() {
            let (turn, is_layer) = (i / 2, i % 2 == 1);
            let (n, k) = if is_layer {
                LAYERS[turn % LAYERS.len()]
            } else {
                (self.draw.size(8, 3000), 64 * self.draw.size(1, 40))
            };
            let m = if i % 3 == 2 { self.draw.size(8, 300) } else { self.draw.size(1, 8) };
            // Fewer rows of the largest layers: the reference would take minutes for a call.
            let m = m.min(LARGEST / (n * k)).max(1);
            let four = if is_layer { turn < LAYERS.len() } else { turn % 2 == 0 };
            let kind = if four { QuantType::I4 } else { QuantType::I8 };
            let q = Tensor::zeros(&[n, if kind == QuantType::I4 { k / 2 } else { k }], kind.dtype())?;
            let how = if i % 3 == 0 {
                Quantization::per_channel(kind, 0, &vec![0.1; n], &[])?
            } else {
                Quantization::per_block(kind, 32, &Tensor::full(0.1f32, &[n, k.div_ceil(32)])?, None)?
            };
            let weights = self.runtime.pack_quantized(&q, &how)?;
            let x = Tensor::zeros(&[m, k], if i % 5 == 4 { DType::BF16 } else { DType::F32 })?;
            self.ask(|rt| rt.matmul_quantized(&x, &weights))?;
        }
        Ok(())
    }
}
