//! Every kernel against the reference, the laws of the transform, and what users rely on at the edges.

use num_complex::Complex;
use proptest::prelude::*;

use super::*;
use crate::backends::cpu::Probe;
use crate::device::Device;
use crate::error::Error;
use crate::ops::{Knob, Operation, OperationKind, Parameters, TensorDesc, Workload};
use crate::tensor::Shape;
use crate::{Runtime, Tensor, TensorView};

type C = Complex<f64>;

fn runtime() -> Runtime {
    Runtime::builder().threads(2).without_calibration().build().unwrap()
}

fn options() -> FftOptions {
    FftOptions::new()
}

/// The runtime forced on each kernel in turn.
fn each_kernel(test: impl Fn(&Runtime, &str)) {
    let rt = runtime();
    for kernel in OperationKind::Fft.kernels() {
        test(&rt.with_kernel(kernel.name()).unwrap(), kernel.name());
    }
}

fn numbers(n: usize, seed: u64) -> Vec<C> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..n).map(|_| C::new(next(), next())).collect()
}

fn tensor(x: &[C], shape: &[usize]) -> Tensor {
    Tensor::from_vec(x.to_vec(), shape).unwrap()
}

fn energy(x: &[C]) -> f64 {
    x.iter().map(C::norm_sqr).sum()
}

/// Root mean square of the difference, relative to that of the numbers.
fn distance(a: &[C], b: &[C]) -> f64 {
    let difference: Vec<C> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    (energy(&difference) / energy(b).max(f64::MIN_POSITIVE)).sqrt()
}

/// What is allowed: a few roundings for each doubling of the length.
fn allowed(n: usize) -> f64 {
    4.0 * f64::EPSILON * ((n as f64).log2() + 2.0)
}

fn fft(rt: &Runtime, x: &[C]) -> Option<Vec<C>> {
    rt.fft(TensorView::from_slice(x, &[x.len()]).unwrap(), &options()).ok().map(|y| y.to_vec().unwrap())
}

const LENGTHS: &[usize] =
    &[1, 2, 3, 4, 5, 7, 8, 12, 16, 30, 64, 97, 100, 128, 243, 512, 1000, 1009, 1024, 2048];

#[test]
fn transforms_keep_energy_and_come_back() {
    each_kernel(|rt, name| {
        for &n in LENGTHS {
            let x = numbers(n, n as u64);
            let Some(y) = fft(rt, &x) else { continue };
            let ratio = energy(&y) / energy(&x) / n as f64;
            assert!((ratio - 1.0).abs() < allowed(n), "{name} {n}: {ratio}");
            let back = rt.ifft(&tensor(&y, &[n]), &options()).unwrap().to_vec::<C>().unwrap();
            assert!(distance(&back, &x) < 2.0 * allowed(n), "{name} {n}");
        }
    });
}

#[test]
fn a_wave_is_one_frequency() {
    each_kernel(|rt, name| {
        for &n in LENGTHS {
            let k = n / 3;
            let x: Vec<C> =
                (0..n).map(|j| C::cis(std::f64::consts::TAU * (j * k % n) as f64 / n as f64)).collect();
            let Some(y) = fft(rt, &x) else { continue };
            let mut wanted = vec![C::default(); n];
            wanted[k] = C::new(n as f64, 0.0);
            assert!(distance(&y, &wanted) < allowed(n), "{name} {n}");
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 60 }))]
    #[test]
    fn sums_and_shifts_go_through(n in 1usize..400, shift in 0usize..400, seed in any::<u64>()) {
        let (x, z) = (numbers(n, seed), numbers(n, seed ^ 0x63));
        let sum: Vec<C> = x.iter().zip(&z).map(|(x, z)| x * 2.0 + z).collect();
        let shifted: Vec<C> = (0..n).map(|i| x[(i + shift) % n]).collect();
        let rt = runtime();
        for kernel in OperationKind::Fft.kernels() {
            let rt = rt.with_kernel(kernel.name()).unwrap();
            let (Some(a), Some(b), Some(c)) = (fft(&rt, &x), fft(&rt, &z), fft(&rt, &sum)) else { continue };
            let wanted: Vec<C> = a.iter().zip(&b).map(|(a, b)| a * 2.0 + b).collect();
            prop_assert!(distance(&c, &wanted) < 3.0 * allowed(n), "{}: sum of {n}", kernel.name());
            let turned: Vec<C> = a.iter().enumerate().map(|(k, a)| {
                a * C::cis(std::f64::consts::TAU * (k * shift % n) as f64 / n as f64)
            }).collect();
            let found = fft(&rt, &shifted).unwrap();
            prop_assert!(distance(&found, &turned) < 3.0 * allowed(n), "{}: shift of {n}", kernel.name());
        }
    }
}

#[test]
fn real_transforms_are_the_first_half_and_come_back() {
    each_kernel(|rt, name| {
        for &n in LENGTHS {
            let x: Vec<f64> = numbers(n, 5).iter().map(|z| z.re).collect();
            let whole: Vec<C> = x.iter().map(|&x| C::new(x, 0.0)).collect();
            let line = Tensor::from_vec(x.clone(), &[n]).unwrap();
            let Ok(half) = rt.rfft(&line, &options()) else { continue };
            let wanted = fft(&runtime().with_kernel("cpu::fft::reference").unwrap(), &whole).unwrap();
            let found = half.to_vec::<C>().unwrap();
            assert_eq!(found.len(), n / 2 + 1);
            assert!(distance(&found, &wanted[..=n / 2]) < allowed(n), "{name} {n}");
            let back = rt.irfft(&half, &options().len(n)).unwrap().to_vec::<f64>().unwrap();
            let back: Vec<C> = back.iter().map(|&x| C::new(x, 0.0)).collect();
            assert!(distance(&back, &whole) < 2.0 * allowed(n), "{name} {n}");
        }
    });
}

#[test]
fn several_axes_are_one_after_the_other() {
    let x = tensor(&numbers(4 * 6 * 10, 3), &[4, 6, 10]);
    each_kernel(|rt, name| {
        let Ok(all) = rt.fftn(&x, &options()) else { return };
        let mut one_by_one = x.clone();
        for axis in 0..3 {
            one_by_one = rt.fft(&one_by_one, &options().axis(axis)).unwrap();
        }
        let (found, wanted) = (all.to_vec::<C>().unwrap(), one_by_one.to_vec::<C>().unwrap());
        assert!(distance(&found, &wanted) < allowed(240), "{name}");
        let back = rt.ifftn(&all, &options()).unwrap().to_vec::<C>().unwrap();
        assert!(distance(&back, &x.to_vec::<C>().unwrap()) < allowed(240), "{name}");
        let mut same = x.deep_clone().unwrap();
        rt.fftn_in_place(&mut same, &options()).unwrap();
        assert!(distance(&same.to_vec::<C>().unwrap(), &wanted) < allowed(240), "{name} in place");
        rt.ifftn_in_place(&mut same, &options()).unwrap();
        assert!(distance(&same.to_vec::<C>().unwrap(), &x.to_vec::<C>().unwrap()) < allowed(240));
    });
}

#[test]
fn norms_divide_one_direction_or_both() {
    let rt = runtime();
    let x = tensor(&numbers(12, 8), &[12]);
    let plain = rt.fft(&x, &options()).unwrap().to_vec::<C>().unwrap();
    for (norm, scale) in [(FftNorm::Ortho, 1.0 / 12f64.sqrt()), (FftNorm::Forward, 1.0 / 12.0)] {
        let y = rt.fft(&x, &options().norm(norm)).unwrap();
        let wanted: Vec<C> = plain.iter().map(|z| z * scale).collect();
        assert!(distance(&y.to_vec::<C>().unwrap(), &wanted) < allowed(12));
        let back = rt.ifft(&y, &options().norm(norm)).unwrap().to_vec::<C>().unwrap();
        assert!(distance(&back, &x.to_vec::<C>().unwrap()) < allowed(12));
    }
}

#[test]
fn not_a_number_spreads() {
    each_kernel(|rt, name| {
        for bad in [f64::NAN, f64::INFINITY] {
            for n in [8, 15, 64, 97] {
                let mut x = numbers(n, 4);
                x[n / 2] = C::new(bad, 0.0);
                let Some(y) = fft(rt, &x) else { continue };
                assert!(y.iter().all(|z| !z.re.is_finite() || !z.im.is_finite()), "{name} {n} {bad}");
            }
        }
    });
}

#[test]
fn lengths_cut_and_fill_up() {
    let rt = runtime();
    let x = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]).unwrap();
    let longer = rt.rfft(&x, &options().len(5)).unwrap();
    let filled =
        Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 0.0, 0.0, 4.0, 5.0, 6.0, 0.0, 0.0], &[2, 5]).unwrap();
    let wanted = rt.rfft(&filled, &options()).unwrap();
    assert_eq!(longer.to_vec::<Complex<f32>>().unwrap(), wanted.to_vec::<Complex<f32>>().unwrap());
    let shorter = rt.fft2(&x, &options().lens(&[1, 2])).unwrap();
    assert_eq!(shorter.to_vec::<Complex<f32>>().unwrap(), [Complex::new(3.0, 0.0), Complex::new(-1.0, 0.0)]);
    assert_eq!(rt.irfft(&longer, &options()).unwrap().shape(), [2, 4]);
    assert_eq!(rt.irfft(&longer, &options().len(9)).unwrap().shape(), [2, 9]);
}

#[test]
fn batches_of_nothing_are_nothing() {
    let rt = runtime();
    let none = Tensor::zeros(&[0, 8], crate::DType::C32).unwrap();
    each_kernel(|rt, _| assert!(rt.fft(&none, &options()).map_or(true, |y| y.is_empty())));
    assert!(rt.fft(&none, &options().axis(0)).unwrap_err().to_string().contains("0 points"));
    assert_eq!(rt.fft(&none, &options().axis(0).len(3)).unwrap().shape(), [3, 8]);
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let rt = runtime();
    let (x, z) = (Tensor::zeros(&[4, 6], crate::DType::F32).unwrap(), tensor(&numbers(24, 1), &[4, 6]));
    let text = |result: crate::Result<Tensor>| result.unwrap_err().to_string();
    assert!(text(rt.rfft(&z, &options())).contains("call `fft`"));
    let whole = Tensor::zeros(&[4], crate::DType::I32).unwrap();
    assert!(text(rt.fft(&whole, &options())).contains("cast to f32"));
    assert!(text(rt.fft(&x, &options().axis(2))).contains("axis 2 does not exist"));
    assert!(text(rt.fft2(&x, &options().axes(&[1, -1]))).contains("twice"));
    assert!(text(rt.fft(&x, &options().axes(&[0, 1]))).contains("2 axes were named, 1 needed"));
    assert!(text(rt.fftn(&x, &options().axes(&[]))).contains("0 axes"));
    assert!(text(rt.fft(&x, &options().len(0))).contains("0 points"));
    assert!(text(rt.fft2(&x, &options().lens(&[3]))).contains("1 lengths for 2 axes"));
    assert!(matches!(rt.fftn(&x, &options().axes(&[0; 9])), Err(Error::RankTooLarge { rank: 9 })));
    assert!(rt.fft(&Tensor::scalar(1.0f32), &options()).is_err());
    assert!(rt.fft(&x, &options().len(usize::MAX / 2)).is_err());
    let mut out = Tensor::zeros(&[4, 5], crate::DType::C32).unwrap();
    assert!(rt.rfft_into(&x, &options(), &mut out).unwrap_err().to_string().contains("the output"));
    let mut real = Tensor::zeros(&[4], crate::DType::F32).unwrap();
    assert!(rt.fft_in_place(&mut real, &options()).is_err());
}

#[test]
fn shifts_undo_each_other() {
    let rt = runtime();
    let x = Tensor::from_vec((0..15i64).collect(), &[3, 5]).unwrap();
    let y = rt.fftshift(&x, ..).unwrap();
    assert_eq!(y.to_vec::<i64>().unwrap(), [13, 14, 10, 11, 12, 3, 4, 0, 1, 2, 8, 9, 5, 6, 7]);
    assert_eq!(rt.ifftshift(&y, ..).unwrap().to_vec::<i64>().unwrap(), x.to_vec::<i64>().unwrap());
    assert_eq!(rt.fftshift(&x, 0).unwrap().to_vec::<i64>().unwrap()[..5], [10, 11, 12, 13, 14]);
    assert!(rt.fftshift(&x, 2).is_err());
}

#[test]
fn frames_and_back() {
    let rt = runtime();
    let x: Vec<f64> = numbers(2 * 500, 7).iter().map(|z| z.re).collect();
    let signal = Tensor::from_vec(x.clone(), &[2, 500]).unwrap();
    for (options, samples) in [
        (StftOptions::new(64), 496),
        (StftOptions::new(50).hop(20), 500),
        (StftOptions::new(64).length(500), 500),
        (StftOptions::new(63).hop(9).norm(FftNorm::Ortho), 496),
    ] {
        let spectra = rt.stft(&signal, &options).unwrap();
        let back = rt.istft(&spectra, &options).unwrap();
        assert_eq!(back.shape(), [2, samples], "{options:?}");
        let back = back.to_vec::<f64>().unwrap();
        for (i, (a, b)) in back.iter().zip(x[..samples].iter().chain(&x[500..500 + samples])).enumerate() {
            // Behind the last frame there is nothing to come back from.
            assert!((a - b).abs() < 1e-12 || i % samples >= 496, "{options:?} {i}: {a} {b}");
        }
    }
    assert!(rt.stft(&signal, &StftOptions::new(2000)).is_err());
    assert!(rt.stft(&signal, &StftOptions::new(0)).is_err());
    assert!(rt.stft(&signal, &StftOptions::new(8).hop(0)).is_err());
    let window = Tensor::from_vec(vec![1.0f64; 5], &[5]).unwrap();
    assert!(rt.stft(&signal, &StftOptions::new(8).window(&window)).is_err());
    let zeros = Tensor::from_vec(vec![0.0f64; 8], &[8]).unwrap();
    let spectra = rt.stft(&signal, &StftOptions::new(8).window(&zeros)).unwrap();
    assert!(
        rt.istft(&spectra, &StftOptions::new(8).window(&zeros))
            .unwrap_err()
            .to_string()
            .contains("no window")
    );
}

/// Edges of Whisper's 80 bands between 0 and 8 kHz in bins of 40 Hz, evenly apart in mel: triangles over 201 bins.
fn mel_bands() -> Vec<f32> {
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let edge = |i: usize| 700.0 * (10f64.powf(mel(8000.0) * i as f64 / 81.0 / 2595.0) - 1.0) / 40.0;
    let weight = |band: usize, bin: f64| {
        let [low, middle, high] = [edge(band), edge(band + 1), edge(band + 2)];
        ((bin - low) / (middle - low)).min((high - bin) / (high - middle)).max(0.0)
    };
    (0..80).flat_map(|band| (0..201).map(move |bin| weight(band, f64::from(bin)) as f32)).collect()
}

/// The front end of Whisper on a second of sound: frames of 400 samples every 160, powers, 80 mel bands.
#[test]
fn whispers_mel_front_end() {
    let (rt, n) = (runtime(), 16_000usize);
    let x: Vec<f32> = numbers(n, 3).iter().map(|z| z.re as f32).collect();
    let signal = Tensor::from_vec(x.clone(), &[n]).unwrap();
    let spectra = rt.stft(&signal, &StftOptions::new(400).hop(160)).unwrap();
    assert_eq!(spectra.shape(), [201, 101]);
    let powers = spectra.to_vec::<Complex<f32>>().unwrap().iter().map(Complex::norm_sqr).collect::<Vec<_>>();
    let bands = mel_bands();
    let matrix = Tensor::from_vec(bands.clone(), &[80, 201]).unwrap();
    let mels = rt.matmul(&matrix, &Tensor::from_vec(powers, &[201, 101]).unwrap()).unwrap();
    let mels = mels.to_vec::<f32>().unwrap();
    let turn = std::f64::consts::TAU / 400.0;
    for frame in [0, 1, 57, 100] {
        // The signal is mirrored at its ends.
        let sample = |j: usize| match (160 * frame + j).abs_diff(200) {
            i if 160 * frame + j >= 200 && i >= n => f64::from(x[2 * (n - 1) - i]),
            i => f64::from(x[i]),
        };
        let windowed: Vec<f64> =
            (0..400).map(|j| sample(j) * (0.5 - 0.5 * (turn * j as f64).cos())).collect();
        let power = |k: usize| {
            let terms =
                windowed.iter().enumerate().map(|(j, x)| C::from_polar(*x, -turn * (j * k % 400) as f64));
            terms.sum::<C>().norm_sqr()
        };
        let powers: Vec<f64> = (0..201).map(power).collect();
        for band in 0..80 {
            let row = &bands[201 * band..201 * (band + 1)];
            let right: f64 = row.iter().zip(&powers).map(|(w, p)| f64::from(*w) * p).sum();
            let found = f64::from(mels[101 * band + frame]);
            let log = |x: f64| x.max(1e-10).log10();
            assert!((log(found) - log(right)).abs() < 1e-4, "{frame} {band}: {found} {right}");
        }
    }
}

/// Every kernel at every plan against the reference.
#[test]
fn every_plan_agrees() {
    let rt = runtime();
    let device = rt.device();
    let (reference, others) = KERNELS.split_last().unwrap();
    let (mut ran, mut streamed) = (0, 0);
    for (lines, n, kind) in [
        (3, 64, FftKind::Forward),
        (3, 128, FftKind::Inverse),
        (3, 360, FftKind::Forward),
        (3, 1009, FftKind::Inverse),
        (1, 4096, FftKind::Forward),
        (300, 512, FftKind::Forward),
        (130, 1024, FftKind::Inverse),
        (1, 8192, FftKind::RealForward),
        (3, 240, FftKind::RealForward),
        (3, 130, FftKind::RealInverse),
        // Matrices whose rows and columns are no multiples of a vector.
        (1, 1000, FftKind::RealForward),
        (3, 8190, FftKind::RealInverse),
        (3, 1755, FftKind::Forward),
        (1, 4095, FftKind::Inverse),
        // A matrix whose columns have larger factors.
        (1, 1 << 17, FftKind::Forward),
    ] {
        for double in [false, true] {
            let (real, complex) = if double { (DType::F64, DType::C64) } else { (DType::F32, DType::C32) };
            let of = |dtype, n: usize| TensorDesc::contiguous(dtype, Shape::new(&[lines, n]).unwrap());
            let (x, y) = match kind {
                FftKind::RealForward => (of(real, n), of(complex, n / 2 + 1)),
                FftKind::RealInverse => (of(complex, n / 2 + 1), of(real, n)),
                _ => (of(complex, n), of(complex, n)),
            };
            let attributes = FftAttributes { kind, axes: 1, norm: FftNorm::Ortho, rigor: Rigor::Exhaustive };
            let workload = Workload::new(Operation::Fft(attributes), &[x], &[y]);
            let mut expected = Probe::new(&workload, device).unwrap();
            reference.launch(&mut expected.call(&workload, &Parameters::new(), device)).unwrap();
            for kernel in others.iter().filter(|k| k.supports(&workload, device.info()).is_ok()) {
                for parameters in kernel.space(&workload, device.info()).points() {
                    let mut found = Probe::new(&workload, device).unwrap();
                    kernel.launch(&mut found.call(&workload, parameters, device)).unwrap();
                    if let Err(difference) = found.same_outputs(&expected, &workload) {
                        panic!("{} {parameters} on {workload}: {difference}", kernel.name());
                    }
                    ran += 1;
                    streamed += parameters.get(Knob::Stream).unwrap_or(0);
                }
            }
        }
    }
    assert!(ran > 50, "only {ran} plans ran");
    assert!(streamed > 0 || device.info().caches.l2.is_none(), "nothing went past the caches");
}

/// Columns are cut into larger factors than lines of the same length.
#[test]
fn columns_are_transformed_like_lines() {
    let count = 11;
    each_kernel(|rt, name| {
        for n in [128, 256, 512, 1024, 1536, 2048, 4096, 8192] {
            let x = numbers(count * n, n as u64);
            let whole =
                rt.fft(&tensor(&x, &[n, count]), &options().axis(0)).map(|y| y.to_vec::<C>().unwrap());
            let Ok(whole) = whole else { continue };
            for column in [0, 5, count - 1] {
                let of = |all: &[C]| all.iter().skip(column).step_by(count).copied().collect::<Vec<C>>();
                let line = fft(rt, &of(&x)).unwrap();
                assert!(distance(&of(&whole), &line) < allowed(n), "{name}: column {column} of {n}");
            }
        }
    });
}

/// Every rigor gives the same transform, and more of it more to choose from.
/// Lines shorter than a square of lanes go several at a time, each in a lane of its own, or through narrower registers.
#[test]
fn short_lines_of_a_batch_are_each_transformed() {
    let of = |re: f64, im: f64| Complex::new(re as f32, im as f32);
    each_kernel(|rt, name| {
        for n in [1, 2, 3, 5, 6, 8, 12, 15, 20, 31, 48, 60] {
            for lines in [1, 3, 4, 7, 8, 9, 16, 19, 33] {
                // Lines lie two numbers further apart than they are long.
                let x = numbers(lines * (n + 2), (n * lines) as u64);
                let double = tensor(&x, &[lines, n + 2]).slice(1, 0, n, 1).unwrap();
                let narrow: Vec<Complex<f32>> = x.iter().map(|x| of(x.re, x.im)).collect();
                let single = Tensor::from_vec(narrow, &[lines, n + 2]).unwrap().slice(1, 0, n, 1).unwrap();
                for inverse in [false, true] {
                    let run =
                        |x: &Tensor| if inverse { rt.ifft(x, &options()) } else { rt.fft(x, &options()) };
                    let (Ok(y), Ok(z)) = (run(&double), run(&single)) else { continue };
                    let (y, z) = (y.to_vec::<C>().unwrap(), z.to_vec::<Complex<f32>>().unwrap());
                    for line in 0..lines {
                        let turn = if inverse { 1.0 } else { -1.0 } * std::f64::consts::TAU / n as f64;
                        let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
                        let x = &x[line * (n + 2)..][..n];
                        let bin = |k: usize| {
                            (0..n).map(|j| x[j] * C::cis(turn * (j * k % n) as f64)).sum::<C>() * scale
                        };
                        let truth: Vec<C> = (0..n).map(bin).collect();
                        let at = line * n..(line + 1) * n;
                        let z: Vec<C> =
                            z[at.clone()].iter().map(|z| C::new(z.re.into(), z.im.into())).collect();
                        assert!(distance(&y[at], &truth) < 1e-14, "{name} {n} × {lines}");
                        assert!(distance(&z, &truth) < 1e-6, "{name} {n} × {lines}");
                    }
                }
            }
        }
    });
}

/// Real lines of a batch go several at a time where half their length fills no vector, with gaps between them and with lanes left over.
#[test]
fn real_lines_of_a_batch_are_each_transformed() {
    let wanted = runtime().with_kernel("cpu::fft::reference").unwrap();
    each_kernel(|rt, name| {
        for n in [2, 4, 6, 10, 18, 30, 50, 100, 126, 200, 250] {
            for lines in [1, 3, 8, 9, 16, 19, 33] {
                // Lines lie three numbers further apart than they are long.
                let x: Vec<f64> = numbers(lines * (n + 3), (n * lines) as u64).iter().map(|z| z.re).collect();
                let double = Tensor::from_vec(x.clone(), &[lines, n + 3]).unwrap().slice(1, 0, n, 1).unwrap();
                let narrow: Vec<f32> = x.iter().map(|&x| x as f32).collect();
                let single = Tensor::from_vec(narrow, &[lines, n + 3]).unwrap().slice(1, 0, n, 1).unwrap();
                let (Ok(y), Ok(z)) = (rt.rfft(&double, &options()), rt.rfft(&single, &options())) else {
                    continue;
                };
                let truth = wanted.rfft(&double, &options()).unwrap().to_vec::<C>().unwrap();
                let wide = |z: &Complex<f32>| C::new(z.re.into(), z.im.into());
                let narrow: Vec<C> = z.to_vec::<Complex<f32>>().unwrap().iter().map(wide).collect();
                let points = n / 2 + 1;
                for (line, truth) in truth.chunks(points).enumerate() {
                    let at = line * points..(line + 1) * points;
                    let y = &y.to_vec::<C>().unwrap()[at.clone()];
                    assert!(distance(y, truth) < 1e-14, "{name} {n} × {lines}, line {line}");
                    assert!(distance(&narrow[at], truth) < 1e-6, "{name} {n} × {lines}, line {line}");
                }
                let length = options().len(n);
                let back = rt.irfft(&y, &length).unwrap().to_vec::<f64>().unwrap();
                let narrow = rt.irfft(&z, &length).unwrap().to_vec::<f32>().unwrap();
                let kept = double.to_vec::<f64>().unwrap();
                for (i, x) in kept.iter().enumerate() {
                    assert!((back[i] - x).abs() < 1e-14, "{name} {n} × {lines}, back at {i}");
                    assert!((f64::from(narrow[i]) - x).abs() < 1e-5, "{name} {n} × {lines}, back at {i}");
                }
            }
        }
    });
}

#[test]
fn rigor_adds_candidates_to_a_call() {
    let rt = runtime();
    let x = tensor(&numbers(4096, 3), &[4096]);
    let wanted = rt.fft(&x, &options()).unwrap().to_vec::<C>().unwrap();
    let mut counts = Vec::new();
    for rigor in [Rigor::Estimate, Rigor::Measure, Rigor::Exhaustive] {
        let with = options().rigor(rigor);
        // The caller's own calls are the trials: every plan that takes part has its turn.
        for _ in 0..40 {
            let found = rt.fft(&x, &with).unwrap().to_vec::<C>().unwrap();
            assert!(distance(&found, &wanted) <= allowed(4096), "{rigor:?}");
        }
        let back = rt.ifft(&rt.fft(&x, &with).unwrap(), &with).unwrap().to_vec::<C>().unwrap();
        assert!(distance(&back, &numbers(4096, 3)) <= 2.0 * allowed(4096), "{rigor:?}");
        let asked = rt.workloads(|rt| rt.fft(&x, &with)).unwrap();
        let Operation::Fft(attributes) = asked[0].operation() else { panic!("{}", asked[0]) };
        assert_eq!(attributes.rigor, rigor);
        let ours =
            OperationKind::Fft.kernels().iter().find(|k| k.name().ends_with("portable_stockham")).unwrap();
        counts.push(ours.space(&asked[0], rt.device().info()).points().len());
    }
    assert!(counts[0] < counts[1] && counts[1] < counts[2], "{counts:?}");
}

#[test]
fn prepared_transforms_are_those_of_the_plain_calls() {
    let rt = runtime();
    // Copied, so that both lie at addresses that are aligned alike.
    let plane = |seed: u64| Tensor::from_slice(&numbers(6 * 40, seed), &[6, 40]).unwrap();
    let x = plane(1);
    let mut out = Tensor::zeros(&[6, 40], DType::C64).unwrap();
    for (kind, axes) in [(FftKind::Forward, &[-1][..]), (FftKind::Forward, &[0]), (FftKind::Inverse, &[1, 0])]
    {
        let with = options().axes(axes).norm(FftNorm::Ortho);
        let call = rt.prepare_fft(kind, &x, &with, &mut out).unwrap();
        let other = plane(2);
        call.run(&[&other], &mut out).unwrap();
        let plain = if kind == FftKind::Forward { rt.fftn(&other, &with) } else { rt.ifftn(&other, &with) };
        let wanted = plain.unwrap().to_vec::<C>().unwrap();
        assert!(distance(&out.to_vec::<C>().unwrap(), &wanted) <= allowed(240));
        assert!(call.run(&[&other, &other], &mut out).is_err());
        assert!(call.run(&[&tensor(&numbers(40, 2), &[40])], &mut out).is_err());
    }
    let real = Tensor::from_vec(vec![1.0f64; 30], &[30]).unwrap();
    let mut half = Tensor::zeros(&[16], DType::C64).unwrap();
    let call = rt.prepare_fft(FftKind::RealForward, &real, &options(), &mut half).unwrap();
    call.run(&[&real], &mut half).unwrap();
    assert!((half.to_vec::<C>().unwrap()[0] - C::new(30.0, 0.0)).norm() < 1e-12);
    // What a plain call would convert, cut or fill up.
    let refused = |r: crate::error::Result<crate::Prepared>| matches!(r, Err(Error::InvalidArgument { .. }));
    assert!(refused(rt.prepare_fft(FftKind::Forward, &real, &options(), &mut half)));
    assert!(refused(rt.prepare_fft(FftKind::RealForward, &real, &options().len(20), &mut half)));
    let mut wrong = Tensor::zeros(&[15], DType::C64).unwrap();
    assert!(rt.prepare_fft(FftKind::RealForward, &real, &options(), &mut wrong).is_err());
}

/// Whole and halved lines of one length have different tables.
#[test]
fn lines_across_and_along_memory_do_not_share_tables() {
    let rt = runtime();
    let x: Vec<f64> = numbers(88 * 2, 6).iter().map(|z| z.re).collect();
    let across = TensorView::from_slice(&x, &[88, 2]).unwrap();
    assert_eq!(rt.rfft(across, &options().axis(0)).unwrap().shape(), [45, 2]);
    let along = TensorView::from_slice(&x, &[176]).unwrap();
    let back = rt.irfft(&rt.rfft(along, &options()).unwrap(), &options()).unwrap().to_vec::<f64>().unwrap();
    assert!(back.iter().zip(&x).all(|(a, b)| (a - b).abs() < 1e-12));
}
