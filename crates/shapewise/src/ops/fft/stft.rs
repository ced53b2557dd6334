//! Spectra of a signal's overlapping frames, and the signal from them.

use super::{FftNorm, FftOptions};
use crate::Runtime;
use crate::error::{Error, Result};
use crate::ops::elementwise::{Function, Program};
use crate::tensor::{DType, Layout, Shape, Tensor, TensorView};

/// How a signal is cut into frames.
///
/// ```
/// # use shapewise::{DType, Runtime, Tensor, ops::fft::StftOptions};
/// # let rt = Runtime::builder().without_calibration().build()?;
/// let sound = Tensor::zeros(&[2, 16_000], DType::F32)?;
/// let spectra = rt.stft(&sound, &StftOptions::new(400).hop(160))?;
/// assert_eq!(spectra.shape(), [2, 201, 101]);
/// assert_eq!(rt.istft(&spectra, &StftOptions::new(400).hop(160))?.shape(), [2, 16_000]);
/// # Ok::<(), shapewise::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StftOptions<'a> {
    frame: usize,
    hop: Option<usize>,
    window: Option<TensorView<'a>>,
    centred: bool,
    length: Option<usize>,
    norm: FftNorm,
}

impl<'a> StftOptions<'a> {
    /// Frames of so many samples, a quarter of that apart, under a periodic Hann window, the first centred at the first sample.
    pub fn new(frame: usize) -> Self {
        Self { frame, hop: None, window: None, centred: true, length: None, norm: FftNorm::Backward }
    }

    /// Samples from one frame to the next.
    #[must_use]
    pub fn hop(mut self, hop: usize) -> Self {
        self.hop = Some(hop);
        self
    }

    /// What each frame is multiplied by: as many numbers as a frame has, of the signal's type.
    #[must_use]
    pub fn window(mut self, window: impl Into<TensorView<'a>>) -> Self {
        self.window = Some(window.into());
        self
    }

    /// Whether the first frame is centred at the first sample (the signal is mirrored at its ends) or starts there.
    #[must_use]
    pub fn centred(mut self, centred: bool) -> Self {
        self.centred = centred;
        self
    }

    /// Samples of the signal that the inverse gives; all that the frames cover by default.
    #[must_use]
    pub fn length(mut self, samples: usize) -> Self {
        self.length = Some(samples);
        self
    }

    /// How the frames' transforms are scaled.
    #[must_use]
    pub fn norm(mut self, norm: FftNorm) -> Self {
        self.norm = norm;
        self
    }

    fn fft(&self) -> FftOptions {
        FftOptions::new().len(self.frame).norm(self.norm)
    }

    fn checked_hop(&self, name: &'static str) -> Result<usize> {
        let hop = self.hop.unwrap_or((self.frame / 4).max(1));
        if self.frame == 0 || hop == 0 {
            return Err(wrong(name, "frames of 0 samples or 0 samples apart; use 1 or more".into()));
        }
        Ok(hop)
    }

    /// The window that was given, or a periodic Hann window.
    fn window_of(&self, name: &'static str, dtype: DType) -> Result<Tensor> {
        let n = self.frame;
        if let Some(window) = &self.window {
            if window.dtype() != dtype {
                return Err(Error::DTypeMismatch { operation: name, left: dtype, right: window.dtype() });
            }
            if *window.shape() != [n] {
                let reason = format!("the window is {}, a frame {n}", window.layout().shape);
                return Err(Error::ShapeMismatch { operation: name, reason });
            }
            return match dtype {
                DType::F64 => Tensor::from_vec(window.to_vec::<f64>()?, &[n]),
                _ => Tensor::from_vec(window.to_vec::<f32>()?, &[n]),
            };
        }
        let hann = (0..n).map(|i| (std::f64::consts::PI * i as f64 / n as f64).sin().powi(2));
        match dtype {
            DType::F64 => Tensor::from_vec(hann.collect::<Vec<f64>>(), &[n]),
            _ => Tensor::from_vec(hann.map(|x| x as f32).collect(), &[n]),
        }
    }
}

fn wrong(operation: &'static str, reason: String) -> Error {
    Error::InvalidArgument { operation, reason }
}

impl Runtime {
    /// The spectra of a real signal's frames along its last axis: `[…, frame/2 + 1 frequencies, frames]`.
    pub fn stft<'a>(&self, x: impl Into<TensorView<'a>>, options: &StftOptions<'_>) -> Result<Tensor> {
        let x = x.into();
        if !matches!(x.dtype(), DType::F32 | DType::F64) {
            let hint = "cast to f32 or f64 first".into();
            return Err(Error::UnsupportedDType { operation: "stft", dtype: x.dtype(), hint });
        }
        let hop = options.checked_hop("stft")?;
        let Some(&samples) = x.shape().last() else {
            return Err(Error::AxisOutOfRange { axis: -1, rank: 0 });
        };
        let frame = options.frame;
        let margin = if options.centred { frame / 2 } else { 0 };
        if samples <= margin || samples + 2 * margin < frame {
            let reason = format!("{samples} samples are too few for frames of {frame}; fill up with zeros");
            return Err(wrong("stft", reason));
        }
        let held;
        let mut signal = x;
        if margin > 0 {
            held = self.mirrored(&x, margin)?;
            signal = held.view();
        }
        let count = (samples + 2 * margin - frame) / hop + 1;
        let frames = framed(&signal, frame, hop, count)?;
        let frames = self.mul(frames, &options.window_of("stft", x.dtype())?)?;
        let rank = frames.rank();
        let mut shape = frames.layout().shape;
        (shape[rank - 2], shape[rank - 1]) = (frame / 2 + 1, count);
        let dtype = if x.dtype() == DType::F64 { DType::C64 } else { DType::C32 };
        let mut out = self.allocate(&shape, dtype)?;
        let turned = out.layout().transpose();
        self.rfft_into(&frames, &options.fft(), out.view_mut()?.with_layout(turned)?)?;
        Ok(out)
    }

    /// The signal whose frames have these spectra, by least squares: the inverse of [`stft`](Runtime::stft) with the same options.
    pub fn istft<'a>(&self, x: impl Into<TensorView<'a>>, options: &StftOptions<'_>) -> Result<Tensor> {
        let x = x.into();
        if !x.dtype().is_complex() {
            let hint = "give the complex spectra that `stft` returns".into();
            return Err(Error::UnsupportedDType { operation: "istft", dtype: x.dtype(), hint });
        }
        let (frame, hop) = (options.frame, options.checked_hop("istft")?);
        let [.., bins, count] = *x.shape() else {
            return Err(Error::AxisOutOfRange { axis: -2, rank: x.rank() });
        };
        if bins != frame / 2 + 1 || count == 0 {
            let needed = frame / 2 + 1;
            let reason = format!("{bins}×{count} spectra; frames of {frame} have {needed} frequencies");
            return Err(Error::ShapeMismatch { operation: "istft", reason });
        }
        // Frames that touch also keep the sums below no longer than the frames that were allocated.
        if count > 1 && hop > frame {
            let reason = format!(
                "frames of {frame} samples {hop} apart leave samples without a frame; use a smaller hop"
            );
            return Err(wrong("istft", reason));
        }
        let frames = self.irfft(x.transpose(), &options.fft())?;
        let window = options.window_of("istft", frames.dtype())?;
        let margin = if options.centred { frame / 2 } else { 0 };
        let covered = (frame + hop * (count - 1)).saturating_sub(margin);
        let samples = options.length.unwrap_or(covered.saturating_sub(margin));
        let mut shape = Shape::new(&x.shape()[..x.rank() - 2])?;
        shape.append(samples);
        let mut out = self.allocate(&shape, frames.dtype())?;
        let place = Place { frame, hop, count, margin, samples };
        match frames.dtype() {
            DType::F64 => place.add_up::<f64>(&frames, &window, &mut out)?,
            _ => place.add_up::<f32>(&frames, &window, &mut out)?,
        }
        Ok(out)
    }

    /// The signal with `margin` samples mirrored at both ends; the end samples are not repeated.
    fn mirrored(&self, x: &TensorView<'_>, margin: usize) -> Result<Tensor> {
        let axis = x.rank() - 1;
        let n = x.shape()[axis];
        let mut shape = x.layout().shape;
        shape[axis] = n + 2 * margin;
        let mut out = self.allocate(&shape, x.dtype())?;
        let copy = Program::single(Function::Cast(x.dtype()), &[]);
        let pieces = [
            (x.slice(axis, 1, margin + 1, -1)?, 0..margin),
            (*x, margin..margin + n),
            (x.slice(axis, n - margin - 1, n - 1, -1)?, margin + n..2 * margin + n),
        ];
        for (from, to) in pieces {
            let to = out.layout().slice(axis, to.start, to.end, 1)?;
            self.elementwise_into(&copy, &[from], out.view_mut()?.with_layout(to)?)?;
        }
        Ok(out)
    }
}

/// Overlapping frames as a view: nothing is copied.
fn framed<'a>(signal: &TensorView<'a>, frame: usize, hop: usize, count: usize) -> Result<TensorView<'a>> {
    let Layout { mut shape, mut strides, offset } = *signal.layout();
    if shape.len() == crate::tensor::MAX_RANK {
        return Err(Error::RankTooLarge { rank: shape.len() + 1 });
    }
    let last = shape.len() - 1;
    let step = strides[last];
    shape[last] = count;
    shape.append(frame);
    strides[last] = step.saturating_mul(hop as isize);
    strides.append(step);
    signal.with_layout(Layout { shape, strides, offset })
}

/// Where frames lie in a signal.
struct Place {
    frame: usize,
    hop: usize,
    count: usize,
    margin: usize,
    samples: usize,
}

impl Place {
    /// Adds up frames times window, divided by the sum of the squared windows over each sample.
    fn add_up<T>(&self, frames: &Tensor, window: &Tensor, out: &mut Tensor) -> Result<()>
    where
        T: crate::Element + bytemuck::AnyBitPattern + crate::backends::cpu::simd::Float,
    {
        let (frames, window) = (frames.as_slice::<T>()?, window.as_slice::<T>()?);
        let starts = (0..self.count).map(|f| f * self.hop);
        let mut weight = vec![0.0f64; self.frame + self.hop * (self.count - 1)];
        for start in starts.clone() {
            weight[start..].iter_mut().zip(window).for_each(|(sum, w)| *sum += w.to_f64() * w.to_f64());
        }
        let covered = weight.len().saturating_sub(self.margin).min(self.samples);
        // Below this (torch's border too) division would blow up rounding errors.
        if weight[self.margin.min(weight.len())..][..covered].iter().any(|&w| w < 1e-11) {
            let reason = "some samples lie under no window; use a smaller hop or another window".into();
            return Err(wrong("istft", reason));
        }
        let size = self.frame * self.count;
        let out = out.as_mut_slice::<T>()?;
        let mut sum = vec![T::ZERO; weight.len()];
        for (signal, frames) in out.chunks_exact_mut(self.samples.max(1)).zip(frames.chunks_exact(size)) {
            sum.fill(T::ZERO);
            for (start, frame) in starts.clone().zip(frames.chunks_exact(self.frame)) {
                for ((s, &x), &w) in sum[start..].iter_mut().zip(frame).zip(window) {
                    *s += x * w;
                }
            }
            signal.fill(T::ZERO);
            let inner = sum.iter().zip(&weight).skip(self.margin);
            signal.iter_mut().zip(inner).for_each(|(y, (&s, &w))| *y = T::from_f64(s.to_f64() / w));
        }
        Ok(())
    }
}
