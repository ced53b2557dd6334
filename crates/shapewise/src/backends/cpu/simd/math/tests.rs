//! The functions on every available instruction set against `std`, in units of the last place.
use super::super::{Isa, Lanes, Simd, SimdTask};
use super::*;

/// A function under test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Exp,
    ExpNonpositive,
    ExpNonpositiveEach,
    Log,
    Sin,
    Cos,
    Tanh,
    Sigmoid,
    SigmoidDivisor,
    Erf,
    Rsqrt,
    Silu,
    Gelu,
}
use Function::*;

/// The function over a slice whose length is a multiple of all lanes.
struct Map<'a, T>(Function, &'a [T], &'a mut [T]);

impl SimdTask for Map<'_, f32> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map::<f32, S>(s, self);
    }
}
impl SimdTask for Map<'_, f64> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map::<f64, S>(s, self);
    }
}

#[inline(always)]
fn map<T: Scalar, S: Lanes<T>>(s: S, task: Map<'_, T>) {
    let Map(function, x, y) = task;
    for (x, y) in x.chunks_exact(S::LANES).zip(y.chunks_exact_mut(S::LANES)) {
        // SAFETY: both chunks have LANES elements.
        unsafe {
            let v = s.load(x.as_ptr());
            let v = match function {
                Exp => exp(s, v),
                ExpNonpositive => exp_nonpositive(s, v),
                ExpNonpositiveEach => exp_nonpositive_each(s, [s.splat(T::ZERO), v])[1],
                Log => log(s, v),
                Sin => sin(s, v),
                Cos => cos(s, v),
                Tanh => tanh(s, v),
                Sigmoid => sigmoid(s, v),
                SigmoidDivisor => s.div(s.splat(T::ONE), sigmoid_divisor(s, v)),
                Erf => erf(s, v),
                Rsqrt => rsqrt(s, v),
                Silu => silu(s, v),
                Gelu => gelu(s, v),
            };
            s.store(y.as_mut_ptr(), v);
        }
    }
}

/// xʸ over slices.
struct Powers<'a, T>(&'a [T], &'a [T], &'a mut [T]);
impl SimdTask for Powers<'_, f32> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        powers::<f32, S>(s, self);
    }
}
impl SimdTask for Powers<'_, f64> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        powers::<f64, S>(s, self);
    }
}
#[inline(always)]
fn powers<T: Scalar, S: Lanes<T>>(s: S, task: Powers<'_, T>) {
    let Powers(x, y, z) = task;
    for ((x, y), z) in
        x.chunks_exact(S::LANES).zip(y.chunks_exact(S::LANES)).zip(z.chunks_exact_mut(S::LANES))
    {
        // SAFETY: all chunks have LANES elements.
        unsafe { s.store(z.as_mut_ptr(), pow(s, s.load(x.as_ptr()), s.load(y.as_ptr()))) };
    }
}

/// The right answer in f64, good to about a unit in the last place of it.
fn reference(function: Function, x: f64) -> f64 {
    match function {
        Exp | ExpNonpositive | ExpNonpositiveEach => x.exp(),
        Log => x.ln(),
        Sin => x.sin(),
        Cos => x.cos(),
        Tanh => x.tanh(),
        Sigmoid | SigmoidDivisor => {
            if x < 0.0 {
                x.exp() / (1.0 + x.exp())
            } else {
                1.0 / (1.0 + (-x).exp())
            }
        }
        Erf => erf_of_c(x),
        Rsqrt => 1.0 / x.sqrt(),
        Silu | Gelu if x < -1e4 => -0.0,
        Silu => x * reference(Sigmoid, x),
        Gelu => 0.5 * x + 0.5 * x * erf_of_c(x * std::f64::consts::FRAC_1_SQRT_2),
    }
}

/// erf of the C library, which `std` does not offer yet.
fn erf_of_c(x: f64) -> f64 {
    unsafe extern "C" {
        safe fn erf(x: f64) -> f64;
    }
    erf(x)
}

/// The distance in units of the last place of `right`, denormals included, or of `coarse` if that is larger.
fn distance<T: Float>(x: f64, got: T, right: f64, coarse: f64) -> f64 {
    let got = got.to_f64();
    let rounded = T::from_f64(right).to_f64();
    if got.is_nan() && right.is_nan() {
        return 0.0;
    }
    if got == rounded {
        let signs = got.is_sign_negative() == right.is_sign_negative();
        assert!(got != 0.0 || signs, "sign of zero at {x}");
    }
    if got == rounded && (got.is_infinite() || right == 0.0) {
        return 0.0;
    }
    let lowest = 1 - T::BIAS as i32;
    let exponent = right.abs().log2().floor().max(f64::from(lowest)) as i32;
    let unit = 2_f64.powi(exponent.min(T::BIAS as i32)) * 2_f64.powi(-(T::MANTISSA_BITS as i32));
    (got - right).abs() / unit.max(coarse)
}

/// Points over the whole range of the type (every so many bit patterns), more where the function moves, and the
/// special values.
fn samples<T: Float>(function: Function) -> Vec<T> {
    let count = if cfg!(miri) { 64_u64 } else { 1 << 18 };
    let sign = (-T::ZERO).to_bits64();
    let step = (sign / count).max(1);
    let mut x: Vec<T> = (0..count).map(|i| T::from_bits64(i * step + i % step)).collect();
    let near: Vec<T> = (0..count).map(|i| T::from_f64(i as f64 * 20.0 / count as f64)).collect();
    let wide: Vec<T> = (0..count).map(|i| T::from_f64(i as f64 * 800.0 / count as f64)).collect();
    x.extend(near.into_iter().chain(wide));
    x.extend([T::ZERO, T::ONE, T::INFINITY, T::NAN, T::MIN_POSITIVE, T::MAX, T::from_bits64(1)]);
    let negative: Vec<T> = x.iter().map(|x| -*x).collect();
    if matches!(function, ExpNonpositive | ExpNonpositiveEach) {
        x.clear();
    }
    x.extend(negative);
    x.resize(x.len().next_multiple_of(16), -T::ONE);
    x
}

/// The largest error of the function on one instruction set.
fn largest<T: Float>(function: Function, x: &[T], y: &[T]) -> (f64, T) {
    let mut worst = (0.0, T::ZERO);
    let tiny = T::from_bits64(1).to_f64();
    let smallest = T::MIN_POSITIVE.to_f64() * std::f64::consts::E.powi(2);
    for (x, y) in x.iter().zip(y) {
        let right = reference(function, x.to_f64());
        let flushes = matches!(function, ExpNonpositive | ExpNonpositiveEach);
        let flushed = flushes && right < T::MIN_POSITIVE.to_f64() * 1.001 && *y == T::ZERO;
        let error = match function {
            _ if flushed => 0.0,
            // From here on it may be anything that small.
            SigmoidDivisor if right < smallest => {
                if y.to_f64() >= 0.0 && y.to_f64() < 1.001 * smallest {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
            // Relative to x, as the documentation says.
            Gelu if right.is_finite() => {
                (y.to_f64() - right).abs() / (x.to_f64().abs() * epsilon::<T>()).max(tiny)
            }
            // Where the sigmoid is a denormal, x multiplies its coarse steps.
            Silu if *x < T::ZERO => distance(x.to_f64(), *y, right, -x.to_f64().max(-1e4) * tiny),
            _ => distance(x.to_f64(), *y, right, 0.0),
        };
        assert!(!error.is_nan(), "{function:?}({x}) = {y}, not {right}");
        if error > worst.0 {
            worst = (error, *x);
        }
    }
    worst
}

fn epsilon<T: Float>() -> f64 {
    2_f64.powi(-(T::MANTISSA_BITS as i32))
}

/// function, bound for f32, for f64, and the same on the portable path.
const BOUNDS: [(Function, [f64; 4]); 13] = [
    (Exp, [1.0, 2.0, 1.5, 2.0]),
    (ExpNonpositive, [1.0, 2.0, 1.5, 2.0]),
    (ExpNonpositiveEach, [1.0, 2.0, 1.5, 2.0]),
    (Log, [1.0, 2.0, 1.0, 2.0]),
    (Sin, [2.0, 3.0, 2.0, 3.0]),
    (Cos, [2.0, 3.0, 2.0, 3.0]),
    (Tanh, [2.5, 4.0, 2.5, 4.0]),
    (Sigmoid, [2.5, 3.0, 2.5, 3.0]),
    (SigmoidDivisor, [2.5, 3.0, 2.5, 3.0]),
    (Erf, [2.5, 3.0, 2.5, 4.0]),
    (Rsqrt, [1.5, 1.5, 1.5, 1.5]),
    (Silu, [3.5, 4.0, 3.5, 4.0]),
    (Gelu, [1.0, 2.0, 1.5, 2.0]),
];

macro_rules! within_bounds {
    ($name:ident, $t:ident, $column:literal) => {
        #[test]
        fn $name() {
            for (function, bounds) in BOUNDS {
                let x = samples::<$t>(function);
                let mut y = vec![0.0; x.len()];
                for isa in Isa::available() {
                    isa.run(Map(function, &x, &mut y));
                    let bound = bounds[$column + if *isa == Isa::Portable { 2 } else { 0 }];
                    let (error, at) = largest(function, &x, &y);
                    assert!(error <= bound, "{function:?} on {isa}: {error} at {at:e}");
                }
            }
        }
    };
}
within_bounds!(f32_functions_stay_within_their_error, f32, 0);
within_bounds!(f64_functions_stay_within_their_error, f64, 1);

/// Bases and exponents whose powers spread over the whole range.
fn pow_samples<T: Float>() -> (Vec<T>, Vec<T>) {
    let count = if cfg!(miri) { 64 } else { 1 << 18 };
    let mut state = 1_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let range = f64::from(T::BIAS);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for i in 0..count {
        let base = T::from_f64(((random() * 2.0 - 1.0) * if i % 2 == 0 { 1.0 } else { range }).exp2());
        let exponent = (random() * 2.2 - 1.1) * range / base.to_f64().log2().abs().max(1e-3);
        let integral = i % 3 == 0;
        x.push(if integral && i % 2 == 1 { -base } else { base });
        y.push(T::from_f64(if integral { exponent.round() } else { exponent }));
    }
    let special = [0.0, 0.5, 1.0, 2.0, 3.0, 1e30, f64::INFINITY, f64::NAN, 1e-40, 4e-310];
    let special: Vec<f64> = special.iter().flat_map(|x| [*x, -*x]).collect();
    for a in &special {
        for b in &special {
            x.push(T::from_f64(*a));
            y.push(T::from_f64(*b));
        }
    }
    let padded = x.len().next_multiple_of(16);
    x.resize(padded, T::ONE);
    y.resize(padded, T::ONE);
    (x, y)
}

macro_rules! pow_within {
    ($name:ident, $t:ident, $bound:literal) => {
        #[test]
        fn $name() {
            let (x, y) = pow_samples::<$t>();
            let mut z = vec![0.0; x.len()];
            for isa in Isa::available() {
                isa.run(Powers(&x, &y, &mut z));
                for i in 0..x.len() {
                    let right = f64::from(x[i]).powf(f64::from(y[i]));
                    let error = distance(f64::from(x[i]), z[i], right, 0.0);
                    assert!(
                        error <= $bound,
                        "{isa}: {:e} ^ {:e} = {:e}, not {right:e}: {error}",
                        x[i],
                        y[i],
                        z[i]
                    );
                }
            }
        }
    };
}
pow_within!(f32_powers_stay_within_their_error, f32, 1.5);
pow_within!(f64_powers_stay_within_their_error, f64, 2.0);
