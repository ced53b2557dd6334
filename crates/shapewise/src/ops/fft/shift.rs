//! Moving the zero frequency to the middle and back.

use crate::Runtime;
use crate::error::Result;
use crate::ops::elementwise::{Function, Program};
use crate::ops::reduce::Over;
use crate::tensor::{Layout, Tensor, TensorView};

impl Runtime {
    /// Moves the zero frequency from the front of each axis to its middle; any element type.
    ///
    /// ```
    /// # use shapewise::{Runtime, Tensor};
    /// # let rt = Runtime::builder().without_calibration().build()?;
    /// let x = Tensor::from_vec(vec![0, 1, 2, -2, -1], &[5])?;
    /// assert_eq!(rt.fftshift(&x, ..)?.to_vec::<i32>()?, [-2, -1, 0, 1, 2]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn fftshift<'a>(&self, x: impl Into<TensorView<'a>>, axes: impl Into<Over>) -> Result<Tensor> {
        self.rolled("fftshift", &x.into(), &axes.into(), |n| n / 2)
    }

    /// The inverse of [`fftshift`](Runtime::fftshift).
    pub fn ifftshift<'a>(&self, x: impl Into<TensorView<'a>>, axes: impl Into<Over>) -> Result<Tensor> {
        self.rolled("ifftshift", &x.into(), &axes.into(), |n| n - n / 2)
    }

    /// Element i of every axis moves to i + `by(n)`, round the end.
    fn rolled(
        &self,
        name: &'static str,
        x: &TensorView<'_>,
        axes: &Over,
        by: fn(usize) -> usize,
    ) -> Result<Tensor> {
        let mask = axes.mask(name, x.rank())?;
        let mut out = self.allocate(&x.layout().shape, x.dtype())?;
        // Each axis falls into two pieces, so the whole falls into blocks that stay as they are.
        let mut blocks: Vec<(Layout, Layout)> = vec![(*x.layout(), *out.layout())];
        for axis in (0..x.rank()).filter(|&axis| mask[axis]) {
            let n = x.shape()[axis];
            let by = by(n);
            let pieces = [(0..n - by, by..n), (n - by..n, 0..by)];
            let mut next = Vec::with_capacity(2 * blocks.len());
            for (from, to) in &blocks {
                for (source, target) in pieces.iter().filter(|(source, _)| !source.is_empty()) {
                    next.push((
                        from.slice(axis, source.start, source.end, 1)?,
                        to.slice(axis, target.start, target.end, 1)?,
                    ));
                }
            }
            blocks = next;
        }
        let copy = Program::single(Function::Cast(x.dtype()), &[]);
        for (from, to) in blocks {
            self.elementwise_into(&copy, &[x.with_layout(from)?], out.view_mut()?.with_layout(to)?)?;
        }
        Ok(out)
    }
}
