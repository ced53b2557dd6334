//! Poolings that choices are judged on: the layers of image models in both layouts, and odd sizes.

use anyhow::Result;
use shapewise::ops::pool::PoolOptions;
use shapewise::{DType, Tensor};

use super::Suite;

impl Suite<'_> {
    /// Windows of 2 and 3 with stride 2, of 3 and 5 with stride 1, of 7: channels first and last.
    pub(super) fn pool(&mut self) -> Result<()> {
        let windows: [(usize, usize, usize); 6] =
            [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 1, 2), (7, 7, 0), (3, 3, 0)];
        for i in 0..24 {
            let (size, stride, padding) = windows[i % windows.len()];
            let (channels, side) = (self.draw.size(2, 256), self.draw.size(size, 112));
            let dtype = if i % 5 == 3 { DType::F64 } else { DType::F32 };
            let last = i / windows.len() % 2 == 1;
            let shape = if last { [1, side, side, channels] } else { [1, channels, side, side] };
            let x = Tensor::zeros(&shape, dtype)?;
            let options = PoolOptions::new(&[size; 2]).stride(&[stride; 2]).padding(&[padding; 2]);
            let options = if last { options.channels_last() } else { options };
            if i % 3 == 2 {
                self.ask(|rt| rt.avg_pool(&x, &options))?;
            } else {
                self.ask(|rt| rt.max_pool(&x, &options))?;
            }
        }
        Ok(())
    }
}
