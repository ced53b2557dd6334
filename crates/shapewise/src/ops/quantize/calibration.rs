//! Scales and zero points from examples of the numbers.

use half::{bf16, f16};

use super::attributes::Walk;
use super::{Granularity, QuantType, Quantization};
use crate::error::{Error, Result};
use crate::tensor::{DType, Tensor, TensorView};

/// How the range that integers cover is chosen; what is outside is cut off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Calibration {
    /// From the smallest to the largest number.
    MinMax,
    /// The middle so many per cent of the numbers, interpolated as numpy does; of the magnitudes, if symmetric.
    Percentile(f64),
    /// Where the distribution of the magnitudes loses the least information: Kullback and Leibler's divergence over
    /// 2048 bins, as `TensorRT` and onnxruntime do. For tensors and channels.
    Entropy,
    /// Where the mean square error is smallest, of a hundred parts of the whole range.
    Mse,
}

const OPERATION: &str = "calibrate";
/// Bins of the histogram of magnitudes.
const BINS: usize = 2048;
/// Ranges that are tried for the smallest error.
const RANGES: usize = 100;

fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidArgument { operation: OPERATION, reason: reason.into() }
}

impl Quantization {
    /// Scales and zero points for numbers like these.
    ///
    /// Symmetric quantisations of signed types have no zero point and cover ±scale · largest; those of unsigned types have
    /// the middle as zero point. Others cover the range together with 0, so that 0 is exact.
    ///
    /// ```
    /// use shapewise::Tensor;
    /// use shapewise::ops::quantize::{Calibration, Granularity, QuantType, Quantization};
    /// let x = Tensor::from_vec(vec![-1.0f32, 0.5, 2.55, 4.1], &[4])?;
    /// let how = Quantization::calibrate(&x, QuantType::U8, Granularity::Tensor, Calibration::MinMax, false)?;
    /// assert_eq!((how.scale().item::<f32>()?, how.zero_point().unwrap().item::<i32>()?), (0.02, 50));
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn calibrate<'a>(
        x: impl Into<TensorView<'a>>,
        kind: QuantType,
        granularity: Granularity,
        calibration: Calibration,
        symmetric: bool,
    ) -> Result<Self> {
        let x = x.into();
        let values = numbers(&x)?;
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            return Err(invalid(format!("number {at} is {}; calibrate with finite numbers", values[at])));
        }
        if values.is_empty() {
            return Err(invalid("there are no numbers to calibrate with"));
        }
        match calibration {
            Calibration::Percentile(p) if !(p > 0.0 && p <= 100.0) => {
                return Err(invalid(format!("{p} per cent is not above 0 and at most 100")));
            }
            Calibration::Entropy if matches!(granularity, Granularity::Block(_)) => {
                return Err(invalid("a block has too few numbers for a histogram; use another calibration"));
            }
            _ => {}
        }
        if kind == QuantType::I32 {
            return Err(invalid("i32 is for sums of products; calibrate for 16 bits or fewer"));
        }
        let (walk, shape) = granularity.walk(OPERATION, x.shape())?;
        let (mut scales, mut zeros) = (Vec::new(), Vec::new());
        each_group(&values, &walk, |group| {
            let range = range(group, kind, calibration, symmetric);
            let (scale, zero) = parameters(range, kind, symmetric);
            scales.push(scale);
            zeros.push(zero);
        });
        let (scale, zero) = (Tensor::from_slice(&scales, &shape)?, Tensor::from_slice(&zeros, &shape)?);
        Self::new(kind, granularity, scale.view(), Some(zero.view()))
    }
}

fn numbers(x: &TensorView<'_>) -> Result<Vec<f32>> {
    match x.dtype() {
        DType::F32 => x.to_vec::<f32>(),
        DType::F16 => Ok(x.to_vec::<f16>()?.into_iter().map(f16::to_f32).collect()),
        DType::BF16 => Ok(x.to_vec::<bf16>()?.into_iter().map(bf16::to_f32).collect()),
        dtype => {
            let hint = "real numbers are f32, f16 or bf16 here; cast first".into();
            Err(Error::UnsupportedDType { operation: OPERATION, dtype, hint })
        }
    }
}

/// Calls with the numbers of each scale, in the order of the scales.
fn each_group(values: &[f32], walk: &Walk, mut visit: impl FnMut(&[f32])) {
    if walk.block > 0 {
        values.chunks(walk.inner).for_each(|row| row.chunks(walk.block).for_each(&mut visit));
        return;
    }
    if walk.outer == 1 {
        values.chunks(walk.inner).for_each(visit);
        return;
    }
    let mut group = Vec::with_capacity(walk.outer * walk.inner);
    for channel in 0..walk.channels {
        group.clear();
        for outer in 0..walk.outer {
            group.extend_from_slice(&values[(outer * walk.channels + channel) * walk.inner..][..walk.inner]);
        }
        visit(&group);
    }
}

/// What the integers cover.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn of(values: &[f32]) -> Self {
        let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
        for &v in values {
            low = low.min(v);
            high = high.max(v);
        }
        Self { low: low.into(), high: high.into() }
    }

    fn magnitude(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// The part of it between ±limit.
    fn within(self, limit: f64) -> Self {
        Self { low: self.low.max(-limit), high: self.high.min(limit) }
    }
}

fn range(values: &[f32], kind: QuantType, calibration: Calibration, symmetric: bool) -> Range {
    let whole = Range::of(values);
    match calibration {
        Calibration::MinMax => whole,
        Calibration::Percentile(p) if symmetric => {
            let mut sorted: Vec<f32> = values.iter().map(|v| v.abs()).collect();
            sorted.sort_unstable_by(f32::total_cmp);
            whole.within(quantile(&sorted, p / 100.0))
        }
        Calibration::Percentile(p) => {
            let mut sorted = values.to_vec();
            sorted.sort_unstable_by(f32::total_cmp);
            let tail = (1.0 - p / 100.0) / 2.0;
            Range { low: quantile(&sorted, tail), high: quantile(&sorted, 1.0 - tail) }
        }
        Calibration::Entropy => whole.within(entropy_limit(values, whole.magnitude(), kind)),
        Calibration::Mse => {
            let error = |part: usize| {
                let range = part_of(whole, part);
                square_error(values, parameters(range, kind, symmetric), kind)
            };
            let best = (1..=RANGES).rev().map(|part| (error(part), part)).min_by(|a, b| a.0.total_cmp(&b.0));
            part_of(whole, best.map_or(RANGES, |best| best.1))
        }
    }
}

fn part_of(whole: Range, part: usize) -> Range {
    let share = part as f64 / RANGES as f64;
    Range { low: whole.low * share, high: whole.high * share }
}

/// Between the two nearest of sorted numbers, as numpy's `percentile` by default.
fn quantile(sorted: &[f32], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, rest) = (place.floor() as usize, place.fract());
    let (a, b) = (f64::from(sorted[below]), f64::from(sorted[(below + 1).min(sorted.len() - 1)]));
    a + (b - a) * rest
}

/// Scale and zero point that cover a range.
fn parameters(range: Range, kind: QuantType, symmetric: bool) -> (f32, i32) {
    let (lowest, highest) = kind.range();
    let or_one = |scale: f64| {
        let scale = scale as f32;
        // Nothing but zeros, or numbers so small that the scale is no number.
        if scale > 0.0 && scale.is_finite() { scale } else { 1.0 }
    };
    if symmetric {
        let middle = if lowest == 0 { (highest + 1) / 2 } else { 0 };
        return (or_one(range.magnitude() / f64::from(highest - middle)), middle);
    }
    let (low, high) = (range.low.min(0.0), range.high.max(0.0));
    let scale = or_one((high - low) / (f64::from(highest) - f64::from(lowest)));
    let zero = (f64::from(lowest) - low / f64::from(scale)).round_ties_even();
    (scale, zero.clamp(lowest.into(), highest.into()) as i32)
}

fn square_error(values: &[f32], (scale, zero): (f32, i32), kind: QuantType) -> f64 {
    let (low, high) = kind.range();
    let (low, high) = ((low - zero) as f32, (high - zero) as f32);
    let mut sum = 0.0;
    for &v in values {
        let back = (v / scale).round_ties_even().clamp(low, high) * scale;
        sum += f64::from(v - back) * f64::from(v - back);
    }
    sum
}

/// The magnitude to cut at so that the histogram above it, put on the integers, diverges least from the real one.
fn entropy_limit(values: &[f32], largest: f64, kind: QuantType) -> f64 {
    let levels = 1usize << (kind.bits() - 1);
    if largest == 0.0 || levels >= BINS {
        return largest;
    }
    let mut histogram = vec![0.0f64; BINS];
    for &v in values {
        let bin = (f64::from(v.abs()) / largest * BINS as f64) as usize;
        histogram[bin.min(BINS - 1)] += 1.0;
    }
    let mut best = (f64::INFINITY, BINS);
    for bins in levels..=BINS {
        let divergence = divergence(&histogram, bins, levels);
        if divergence < best.0 {
            best = (divergence, bins);
        }
    }
    // The middle of the last bin that is kept, as `TensorRT` has it.
    if best.1 == BINS { largest } else { (best.1 as f64 + 0.5) * largest / BINS as f64 }
}

/// Σ p · log(p / q): p is the first bins with the rest added to the last, q the same bins averaged over the levels.
fn divergence(histogram: &[f64], bins: usize, levels: usize) -> f64 {
    let kept = &histogram[..bins];
    let outside: f64 = histogram[bins..].iter().sum();
    let total: f64 = kept.iter().sum::<f64>() + outside;
    let inside: f64 = kept.iter().sum();
    if inside == 0.0 {
        return f64::INFINITY;
    }
    let mut divergence = 0.0;
    for level in 0..levels {
        let (from, to) = (bins * level / levels, bins * (level + 1) / levels);
        let part = &kept[from..to];
        let filled = part.iter().filter(|&&count| count > 0.0).count();
        let mean = part.iter().sum::<f64>() / filled.max(1) as f64;
        for (i, &count) in part.iter().enumerate() {
            let count_p = if from + i + 1 == bins { count + outside } else { count };
            if count_p > 0.0 {
                // A bin that only what was cut off fills has no share of the levels; a count below one stands for it.
                let q = if count > 0.0 { mean } else { f64::MIN_POSITIVE.sqrt() };
                divergence += count_p / total * ((count_p / total) / (q / inside)).ln();
            }
        }
    }
    divergence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(n: usize) -> Vec<f32> {
        // Sums of uniform numbers from a fixed generator, with a few far outside.
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let mut values: Vec<f32> = (0..n).map(|_| (0..12).map(|_| next()).sum()).collect();
        values[0] = 40.0;
        values
    }

    fn scale(values: &[f32], kind: QuantType, calibration: Calibration) -> f32 {
        let x = TensorView::from_slice(values, &[values.len()]).unwrap();
        let how = Quantization::calibrate(x, kind, Granularity::Tensor, calibration, true).unwrap();
        assert!(how.is_symmetric());
        how.scale().item::<f32>().unwrap()
    }

    #[test]
    fn outliers_are_kept_by_min_max_and_cut_by_the_others() {
        let values = normal(20_000);
        let whole = scale(&values, QuantType::I8, Calibration::MinMax);
        assert!((whole - 40.0 / 127.0).abs() < 1e-6);
        for calibration in [Calibration::Percentile(99.9), Calibration::Entropy] {
            let cut = scale(&values, QuantType::I8, calibration);
            assert!(cut < 0.5 * whole && cut > 1.0 / 127.0, "{calibration:?}: {cut} of {whole}");
        }
        // Cutting one number far outside costs its square.
        assert!(scale(&values, QuantType::I8, Calibration::Mse) < whole);
        // Four bits cut further in, because the error of the many outweighs that of the few.
        assert!(7.0 * scale(&values, QuantType::I4, Calibration::Mse) < 0.2 * 40.0);
    }

    #[test]
    fn the_mean_square_error_is_never_above_that_of_the_whole_range() {
        let values = normal(3000);
        for kind in [QuantType::I8, QuantType::U8, QuantType::I4, QuantType::U4, QuantType::I16] {
            for symmetric in [false, true] {
                let of = |calibration| {
                    let range = range(&values, kind, calibration, symmetric);
                    square_error(&values, parameters(range, kind, symmetric), kind)
                };
                assert!(of(Calibration::Mse) <= of(Calibration::MinMax), "{kind} {symmetric}");
            }
        }
    }

    #[test]
    fn channels_and_blocks_have_their_own_ranges() {
        let x = Tensor::from_vec(vec![1.0f32, -1.0, 10.0, 5.0, 2.0, 0.0, -20.0, 0.0], &[2, 2, 2]).unwrap();
        let of = |granularity| {
            let how =
                Quantization::calibrate(&x, QuantType::I8, granularity, Calibration::MinMax, true).unwrap();
            how.scale().as_slice::<f32>().unwrap().iter().map(|s| s * 127.0).collect::<Vec<_>>()
        };
        assert_eq!(of(Granularity::Channel(1)), [2.0, 20.0]);
        assert_eq!(of(Granularity::Channel(-1)), [20.0, 5.0]);
        assert_eq!(of(Granularity::Block(2)), [1.0, 10.0, 2.0, 20.0]);
        assert_eq!(of(Granularity::Block(1)), [1.0, 1.0, 10.0, 5.0, 2.0, 127.0, 20.0, 127.0]);
    }

    #[test]
    fn bad_examples_are_refused() {
        let error = |values: &[f32], kind, granularity, calibration| {
            let x = TensorView::from_slice(values, &[values.len()]).unwrap();
            Quantization::calibrate(x, kind, granularity, calibration, false).unwrap_err().to_string()
        };
        let (tensor, whole) = (Granularity::Tensor, Calibration::MinMax);
        assert!(error(&[1.0, f32::NAN], QuantType::I8, tensor, whole).contains("number 1 is NaN"));
        assert!(error(&[], QuantType::I8, tensor, whole).contains("no numbers"));
        assert!(error(&[1.0], QuantType::I32, tensor, whole).contains("sums of products"));
        assert!(error(&[1.0], QuantType::I8, tensor, Calibration::Percentile(0.0)).contains("per cent"));
        assert!(
            error(&[1.0], QuantType::I8, Granularity::Block(4), Calibration::Entropy).contains("too few")
        );
        assert!(error(&[1.0], QuantType::I8, Granularity::Block(0), whole).contains("at least one element"));
        let doubles = Tensor::full(1.0f64, &[2]).unwrap();
        assert!(Quantization::calibrate(&doubles, QuantType::I8, tensor, whole, true).is_err());
    }
}
