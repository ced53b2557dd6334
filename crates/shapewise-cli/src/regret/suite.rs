//! The workloads that choices are judged on: every operation, tiny to tens of milliseconds, odd sizes too.

mod attention;
mod pool;
mod quantize;
mod rnn;
mod sparse;

use anyhow::Result;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::elementwise::Program;
use shapewise::ops::fft::FftOptions;
use shapewise::ops::matmul::Fused;
use shapewise::ops::norm::NormOptions;
use shapewise::ops::pad::Border;
use shapewise::ops::reduce::{Over, ReduceKind};
use shapewise::ops::scatter::Combine;
use shapewise::ops::sort::Order;
use shapewise::ops::{Activation, Workload};
use shapewise::{DType, Runtime, Tensor};

/// Times that every kind of shape is drawn unless told otherwise: enough that leaving out a fifth leaves relatives of each.
pub const ROUNDS: usize = 4;

/// Draws the shapes of some operations once.
type Part<'a> = fn(&mut Suite<'a>) -> Result<()>;

/// Different workloads of every operation, the same on every machine; more rounds only add to those of fewer.
pub fn workloads(runtime: &Runtime, rounds: usize) -> Result<Vec<Workload>> {
    let mut suite = Suite { runtime, draw: Draw(0), found: Vec::new() };
    for (name, part) in Suite::PARTS {
        suite.draw = Draw::named(name);
        for _ in 0..rounds {
            part(&mut suite)?;
        }
    }
    Ok(suite.found)
}

struct Suite<'a> {
    runtime: &'a Runtime,
    draw: Draw,
    found: Vec<Workload>,
}

/// Numbers from a fixed generator.
pub struct Draw(pub u64);

impl Draw {
    fn named(name: &str) -> Self {
        // FNV-1a.
        Self(name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        }))
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A size between `low` and `high`, uniform in its logarithm; half of them rounded to a multiple of 8.
    pub fn size(&mut self, low: usize, high: usize) -> usize {
        let share = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        let size = (low as f64 * (high as f64 / low as f64).powf(share)).round() as usize;
        if size >= 16 && self.next() & 1 == 0 { size.next_multiple_of(8) } else { size }
    }

    /// Any of some values.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[(self.next() % from.len() as u64) as usize]
    }
}

impl<'a> Suite<'a> {
    /// Every part with the name that seeds its draws: a new one leaves the shapes of the others, and their recorded times, as they were.
    const PARTS: [(&'static str, Part<'a>); 18] = [
        ("attention", Self::attention),
        ("conv", Self::conv),
        ("matmul", Self::matmul),
        ("packed_matmul", Self::packed_matmul),
        ("elementwise", Self::elementwise),
        ("fft", Self::fft),
        ("reduce", Self::reduce),
        ("softmax", Self::softmax),
        ("norm", Self::norm),
        ("moving", Self::moving),
        ("pool", Self::pool),
        ("rnn", Self::rnn),
        ("quantize", Self::quantize),
        ("integer_matmul", Self::integer_matmul),
        ("quantized_matmul", Self::quantized_matmul),
        ("indexed", Self::indexed),
        ("sort", Self::sort),
        ("sparse", Self::sparse),
    ];

    fn ask<T>(&mut self, call: impl FnOnce(&Runtime) -> shapewise::Result<T>) -> Result<()> {
        for workload in self.runtime.workloads(call)? {
            if !self.found.contains(&workload) {
                self.found.push(workload);
            }
        }
        Ok(())
    }

    fn matmul(&mut self) -> Result<()> {
        // Square-like, skinny in each direction, deep, vectors.
        let kinds: [(usize, [(usize, usize); 3]); 6] = [
            (44, [(2, 900), (2, 900), (2, 900)]),
            (14, [(1, 8), (16, 3000), (16, 3000)]),
            (12, [(16, 3000), (16, 3000), (1, 8)]),
            (10, [(2, 64), (500, 20_000), (2, 64)]),
            (10, [(1, 1), (8, 3000), (8, 3000)]),
            (8, [(200, 2000), (1, 16), (200, 2000)]),
        ];
        for (count, [m, k, n]) in kinds {
            for i in 0..count {
                let mut size = |range: (usize, usize)| self.draw.size(range.0, range.1);
                let (m, k, n) = (size(m), size(k), size(n));
                let half = i % 9 == 4 && m * k * n < 20_000_000;
                let dtype = if half {
                    DType::F16
                } else if i % 4 == 1 {
                    DType::F64
                } else {
                    DType::F32
                };
                let (turn_a, turn_b) =
                    (self.draw.pick(&[false, false, true]), self.draw.pick(&[false, true]));
                let (a, b) = (matrix(m, k, dtype, turn_a)?, matrix(k, n, dtype, turn_b)?);
                let fused = Fused::new().activation(Activation::Relu);
                if i % 6 == 5 {
                    self.ask(|rt| rt.matmul_fused(&a, &b, fused))?;
                } else {
                    self.ask(|rt| rt.matmul(&a, &b))?;
                }
            }
        }
        for i in 0..14 {
            let (batch, m, k, n) = (
                self.draw.size(2, 64),
                self.draw.size(2, 160),
                self.draw.size(2, 160),
                self.draw.size(2, 160),
            );
            let dtype = if i % 5 == 1 { DType::F64 } else { DType::F32 };
            let (a, b) = (Tensor::zeros(&[batch, m, k], dtype)?, Tensor::zeros(&[batch, k, n], dtype)?);
            self.ask(|rt| rt.matmul(&a, &b))?;
        }
        Ok(())
    }

    fn conv(&mut self) -> Result<()> {
        // Kernel, stride, channels at most, size at most, depthwise.
        let kinds = [
            (12, 3, 1, 160, 60, false),
            (8, 1, 1, 300, 50, false),
            (5, 3, 2, 128, 60, false),
            (3, 1, 2, 200, 50, false),
            (3, 5, 1, 48, 40, false),
            (3, 7, 2, 8, 160, false),
            (6, 3, 1, 128, 80, true),
            (3, 3, 2, 128, 80, true),
        ];
        for (count, kernel, stride, channels, size, depthwise) in kinds {
            for i in 0..count {
                let (batch, c) = (self.draw.pick(&[1, 1, 2, 4]), self.draw.size(3, channels));
                let o = if depthwise { c } else { self.draw.size(8, 160) };
                let (h, w) = (self.draw.size(7, size), self.draw.size(7, size));
                let last = i % 4 == 3;
                let shape = if last { [batch, h, w, c] } else { [batch, c, h, w] };
                let x = Tensor::zeros(&shape, DType::F32)?;
                let weights = [o, if depthwise { 1 } else { c }, kernel, kernel];
                let weights = Tensor::zeros(&weights, DType::F32)?;
                let mut options = ConvOptions::new().stride(stride).padding(kernel / 2);
                options = options.groups(if depthwise { c } else { 1 });
                if last {
                    options = options.channels_last();
                }
                self.ask(|rt| rt.conv2d(&x, &weights, &options))?;
            }
        }
        Ok(())
    }

    fn packed_matmul(&mut self) -> Result<()> {
        for i in 0..34 {
            let (m, k, n) = (self.draw.size(1, 500), self.draw.size(8, 1000), self.draw.size(8, 1000));
            let dtype = if i % 4 == 1 { DType::F64 } else { DType::F32 };
            let packed = self.runtime.pack_rhs(&Tensor::zeros(&[k, n], dtype)?)?;
            let a = Tensor::zeros(&[m, k], dtype)?;
            self.ask(|rt| rt.matmul_packed(&a, &packed))?;
        }
        Ok(())
    }

    fn elementwise(&mut self) -> Result<()> {
        type Unary = fn(&Runtime, &Tensor) -> shapewise::Result<Tensor>;
        type Binary = fn(&Runtime, &Tensor, &Tensor) -> shapewise::Result<Tensor>;
        let unary: [Unary; 6] = [
            |rt, x| rt.relu(x),
            |rt, x| rt.exp(x),
            |rt, x| rt.gelu(x),
            |rt, x| rt.sqrt(x),
            |rt, x| rt.tanh(x),
            |rt, x| rt.neg(x),
        ];
        let binary: [Binary; 4] = [
            |rt, x, y| rt.add(x, y),
            |rt, x, y| rt.mul(x, y),
            |rt, x, y| rt.div(x, y),
            |rt, x, y| rt.maximum(x, y),
        ];
        let types = [DType::F32, DType::F32, DType::F32, DType::F64, DType::F16];
        for i in 0..42 {
            let x = Tensor::zeros(&[self.draw.size(4, 8_000_000)], self.draw.pick(&types))?;
            let function = unary[i % unary.len()];
            self.ask(|rt| function(rt, &x))?;
        }
        for i in 0..34 {
            let (n, dtype) = (self.draw.size(4, 6_000_000), self.draw.pick(&types));
            let (x, y) = (Tensor::zeros(&[n], dtype)?, Tensor::zeros(&[n], dtype)?);
            let function = binary[i % binary.len()];
            self.ask(|rt| function(rt, &x, &y))?;
        }
        for i in 0..24 {
            let (rows, columns) = (self.draw.size(2, 2000), self.draw.size(2, 2000));
            let x = Tensor::zeros(&[rows, columns], DType::F32)?;
            let shape = if i % 2 == 0 { [1, columns] } else { [rows, 1] };
            let y = if i % 3 == 2 {
                matrix(rows, columns, DType::F32, true)?
            } else {
                Tensor::zeros(&shape, DType::F32)?
            };
            let function = binary[i % binary.len()];
            self.ask(|rt| function(rt, &x, &y))?;
        }
        let fused = Program::build(3, |x| (x[0] * x[1] + x[2]).relu())?;
        for _ in 0..12 {
            let x = Tensor::zeros(&[self.draw.size(8, 3_000_000)], DType::F32)?;
            self.ask(|rt| rt.elementwise(&fused, &[x.view(), x.view(), x.view()]))?;
        }
        Ok(())
    }

    fn reduce(&mut self) -> Result<()> {
        let kinds = [ReduceKind::Sum, ReduceKind::Max, ReduceKind::Mean, ReduceKind::ArgMax];
        let types = [DType::F32, DType::F32, DType::F64];
        for i in 0..26 {
            let x = Tensor::zeros(&[self.draw.size(4, 10_000_000)], self.draw.pick(&types))?;
            self.ask(|rt| rt.reduce(kinds[i % 4], &x, ..))?;
        }
        for i in 0..50 {
            let (rows, columns) = (self.draw.size(2, 3000), self.draw.size(2, 3000));
            let x = Tensor::zeros(&[rows, columns], self.draw.pick(&types))?;
            let axis = Over::from(isize::from(i % 2 != 0));
            self.ask(|rt| rt.reduce(kinds[i / 2 % 4], &x, axis))?;
        }
        Ok(())
    }

    fn fft(&mut self) -> Result<()> {
        // Lengths as users have them: powers of two, products of small primes, anything.
        const LENGTHS: [usize; 12] = [16, 64, 100, 128, 256, 500, 512, 1000, 1024, 2048, 3600, 4096];
        let options = FftOptions::new();
        for i in 0..44 {
            let dtype = if i % 5 == 3 { DType::C64 } else { DType::C32 };
            let long = 1usize << self.draw.pick(&[10, 12, 14, 15, 16, 18, 20]);
            let n = self.draw.pick(&LENGTHS);
            let shape = match i % 4 {
                0 => vec![long],
                1 => vec![self.draw.size(2, 1000), n],
                2 => vec![self.draw.pick(&LENGTHS[..9]), self.draw.pick(&LENGTHS[..9])],
                _ => vec![self.draw.size(3, 20_000)],
            };
            let x = Tensor::zeros(&shape, dtype)?;
            match i % 8 {
                2 => self.ask(|rt| rt.fft2(&x, &options))?,
                6 => self.ask(|rt| rt.fft(&x, &options.axis(0)))?,
                5 => self.ask(|rt| rt.irfft(&x, &options))?,
                7 => self.ask(|rt| rt.ifft(&x, &options))?,
                _ => self.ask(|rt| rt.fft(&x, &options))?,
            }
            let real = if dtype == DType::C64 { DType::F64 } else { DType::F32 };
            if i % 3 == 0 {
                let x = Tensor::zeros(&shape, real)?;
                self.ask(|rt| rt.rfft(&x, &options))?;
            }
        }
        Ok(())
    }

    fn softmax(&mut self) -> Result<()> {
        for i in 0..52 {
            let (rows, columns) = (self.draw.size(1, 2000), self.draw.size(2, 2000));
            let dtype = if i % 5 == 3 { DType::F64 } else { DType::F32 };
            let x = Tensor::zeros(&[rows, columns], dtype)?;
            let axis = if i % 3 == 2 { 0 } else { -1 };
            if i % 4 == 3 {
                self.ask(|rt| rt.log_softmax(&x, axis))?;
            } else {
                self.ask(|rt| rt.softmax(&x, axis))?;
            }
        }
        Ok(())
    }

    fn norm(&mut self) -> Result<()> {
        for i in 0..52 {
            let (rows, columns) = (self.draw.size(1, 2000), self.draw.size(4, 2000));
            let dtype = if i % 5 == 3 { DType::F64 } else { DType::F32 };
            let x = Tensor::zeros(&[rows, columns], dtype)?;
            let scale = Tensor::zeros(&[columns], dtype)?;
            match i % 4 {
                0 => self.ask(|rt| rt.layer_norm(&x, 1, &NormOptions::new()))?,
                1 => self.ask(|rt| rt.layer_norm(&x, 1, &NormOptions::new().scale(&scale).bias(&scale)))?,
                2 => self.ask(|rt| rt.rms_norm(&x, 1, &NormOptions::new().scale(&scale)))?,
                _ => {
                    let image = Tensor::zeros(&[rows.div_ceil(50), 8, columns], dtype)?;
                    self.ask(|rt| rt.group_norm(&image, 4, &NormOptions::new()))?;
                }
            }
        }
        Ok(())
    }
}

impl Suite<'_> {
    /// Copies: rows, transpositions, permutations of images and heads, parts of a concatenation; borders; scans.
    fn moving(&mut self) -> Result<()> {
        let types = [DType::F32, DType::F32, DType::F64, DType::F16, DType::U8];
        for i in 0..32 {
            let dtype = self.draw.pick(&types);
            let (rows, columns) = (self.draw.size(2, 2500), self.draw.size(2, 2500));
            match i % 4 {
                0 | 1 => {
                    let x = Tensor::zeros(&[rows, columns], dtype)?;
                    self.ask(|rt| rt.transpose(&x))?;
                }
                2 => {
                    let (heads, width) = (self.draw.size(2, 32), self.draw.size(8, 128));
                    let x = Tensor::zeros(&[self.draw.size(2, 600), heads, width], dtype)?;
                    self.ask(|rt| rt.permute(&x, if i % 8 == 2 { &[1, 0, 2] } else { &[2, 0, 1] }))?;
                }
                _ => {
                    let (a, b) = (Tensor::zeros(&[rows, columns], dtype)?, Tensor::zeros(&[rows, 7], dtype)?);
                    self.ask(|rt| rt.concat(&[a.view(), b.view()], 1))?;
                }
            }
        }
        for i in 0..20 {
            let (rows, columns) = (self.draw.size(2, 2000), self.draw.size(2, 2000));
            let x = Tensor::zeros(&[rows, columns], self.draw.pick(&types))?;
            match i % 4 {
                0 => self.ask(|rt| rt.pad(&x, &[(1, 1), (1, 1)], Border::Constant(0.0)))?,
                1 => self.ask(|rt| rt.pad(&x, &[(0, 0), (1, 1)], Border::Reflect))?,
                2 => self.ask(|rt| rt.cumsum(&x, 1))?,
                _ => self.ask(|rt| rt.cummax(&x, 0))?,
            }
        }
        Ok(())
    }

    /// Tables looked up and added to, elements picked along an axis.
    fn indexed(&mut self) -> Result<()> {
        for i in 0..32 {
            let dtype = if i % 5 == 3 { DType::F64 } else { DType::F32 };
            let (rows, columns) = (self.draw.size(4, 100_000), self.draw.size(1, 256));
            let rows = rows.min(4_000_000 / columns);
            let count = self.draw.size(1, 50_000).min(4_000_000 / columns);
            let (x, index) = (Tensor::zeros(&[rows, columns], dtype)?, Tensor::zeros(&[count], DType::I64)?);
            match i % 4 {
                0 | 1 => self.ask(|rt| rt.embedding(&x, &index))?,
                2 => {
                    let each = Tensor::zeros(&[rows, columns.div_ceil(2)], DType::I32)?;
                    self.ask(|rt| rt.gather(&x, 1, &each))?;
                }
                _ => {
                    let (mut x, source) = (x, Tensor::zeros(&[count, columns], dtype)?);
                    self.ask(|rt| rt.index_scatter_in_place(&mut x, 0, &index, &source, Combine::Add))?;
                }
            }
        }
        Ok(())
    }

    fn sort(&mut self) -> Result<()> {
        let types = [DType::F32, DType::F32, DType::F64, DType::I32, DType::U8];
        for i in 0..32 {
            let n = self.draw.size(4, 1_000_000);
            let rows = self.draw.size(1, 500).min(1_000_000 / n).max(1);
            let x = Tensor::zeros(&[rows, n], self.draw.pick(&types))?;
            match i % 4 {
                0 => self.ask(|rt| rt.sort(&x, 1, Order::Ascending))?,
                1 => self.ask(|rt| rt.argsort(&x, 1, Order::Descending))?,
                2 => {
                    let k = self.draw.size(1, 1000).min(n);
                    self.ask(|rt| rt.topk(&x, k, 1, Order::Descending))?;
                }
                _ => self.ask(|rt| rt.sort(x.transpose().view(), 0, Order::Ascending))?,
            }
        }
        Ok(())
    }
}

/// A matrix, if asked for with its memory along the other axis.
fn matrix(rows: usize, columns: usize, dtype: DType, turned: bool) -> shapewise::Result<Tensor> {
    if turned {
        Ok(Tensor::zeros(&[columns, rows], dtype)?.transpose())
    } else {
        Tensor::zeros(&[rows, columns], dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_suite_is_large_varied_and_always_the_same() {
        let runtime = Runtime::builder().threads(2).without_calibration().build().unwrap();
        let suite = workloads(&runtime, 1).unwrap();
        assert!(suite.len() >= 300, "{}", suite.len());
        let kinds: HashSet<_> = suite.iter().map(Workload::kind).collect();
        assert!(kinds.len() >= 5);
        let more = workloads(&runtime, 2).unwrap();
        assert!(more.len() > suite.len() && suite.iter().all(|w| more.contains(w)));
    }
}
