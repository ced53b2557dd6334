//! Every operation on every available instruction set against scalar code.
#![allow(clippy::cast_lossless)] // the same tests for both widths

use super::lanes::MAX_LANES;
use super::{Float, HalfLanes, Isa, Lanes, Simd, SimdTask};
use half::{bf16, f16};

/// A register's worth of lanes where it may be streamed to.
#[repr(align(64))]
struct Aligned<T>([T; MAX_LANES]);

/// What a lane-wise operation must give, and the operation.
type Unary<T, S> = (&'static str, fn(T) -> T, fn(S, <S as Lanes<T>>::V) -> <S as Lanes<T>>::V);
type Binary<T, S> =
    (&'static str, fn(T, T) -> T, fn(S, <S as Lanes<T>>::V, <S as Lanes<T>>::V) -> <S as Lanes<T>>::V);
type Compare<T, S> =
    (&'static str, fn(T, T) -> bool, fn(S, <S as Lanes<T>>::V, <S as Lanes<T>>::V) -> <S as Lanes<T>>::M);

/// Runs the test on every available instruction set.
struct On<F>(F);
trait Test {
    fn test<S: Simd>(&self, s: S);
}
impl<F: Test> SimdTask for On<&F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        self.0.test(s);
    }
}
fn on_all(test: &impl Test) {
    for isa in Isa::available() {
        isa.run(On(test));
    }
}

/// Numbers that go wrong when anything does.
fn edge_cases<T: Float>() -> Vec<T> {
    let big = T::from_f64((1_u64 << T::MANTISSA_BITS) as f64);
    let tiny = T::from_bits64(1);
    let mut all =
        vec![T::ZERO, T::ONE, T::INFINITY, T::NAN, T::MIN_POSITIVE, T::MAX, tiny, big, big + T::ONE];
    for x in [0.5, 1.5, 2.5, 0.49, 0.51, 2.0, 3.75, 100.0, 1e-3, 123_456.789, 1e30, 8_388_607.5, 4_194_303.5]
    {
        all.push(T::from_f64(x));
    }
    let negative: Vec<T> = all.iter().map(|x| -*x).collect();
    all.extend(negative);
    all
}

fn same<T: Float>(a: T, b: T) -> bool {
    a.to_bits64() == b.to_bits64() || (a.to_f64().is_nan() && b.to_f64().is_nan())
}

fn to_vec<T: Float, S: Lanes<T>>(s: S, v: S::V) -> [T; MAX_LANES] {
    let mut all = [T::ZERO; MAX_LANES];
    // SAFETY: no register has more than MAX_LANES lanes.
    unsafe { s.store(all.as_mut_ptr(), v) };
    all
}

/// Every lane takes another pair of edge cases in turn.
fn for_pairs<T: Float, S: Lanes<T>>(s: S, check: impl Fn(&[T], S::V, &[T], S::V)) {
    let cases = edge_cases::<T>();
    // Miri is thousands of times slower.
    for shift in (0..cases.len()).step_by(if cfg!(miri) { 11 } else { 1 }) {
        for at in 0..cases.len() {
            let pick = |i: usize| cases[i % cases.len()];
            let a: Vec<T> = (0..S::LANES).map(|i| pick(at + i)).collect();
            let b: Vec<T> = (0..S::LANES).map(|i| pick(at + i * 3 + shift)).collect();
            // SAFETY: both vectors have LANES elements.
            let (va, vb) = unsafe { (s.load(a.as_ptr()), s.load(b.as_ptr())) };
            check(&a, va, &b, vb);
        }
    }
}

macro_rules! tests_for {
    ($module:ident, $t:ident) => {
        mod $module {
            use super::*;

            struct Unaries;
            impl Test for Unaries {
                fn test<S: Simd>(&self, s: S) {
                    unaries::<S>(s);
                }
            }
            fn unaries<S: Lanes<$t>>(s: S) {
                let all: [Unary<$t, S>; 6] = [
                    ("sqrt", |x| x.sqrt(), S::sqrt),
                    ("round", |x| x.round_ties_even(), S::round),
                    ("floor", |x| x.floor(), S::floor),
                    ("neg", |x| -x, S::neg),
                    ("abs", |x| x.abs(), S::abs),
                    ("shr", |x| $t::from_bits(x.to_bits() >> $t::MANTISSA_BITS), S::shr_mantissa),
                ];
                for (name, scalar, vector) in all {
                    for_pairs(s, |a, va, _, _| {
                        for (x, y) in a.iter().zip(to_vec::<$t, S>(s, vector(s, va))) {
                            assert!(same(scalar(*x), y), "{name} {x} gives {y}");
                        }
                    });
                }
            }

            struct Binaries;
            impl Test for Binaries {
                fn test<S: Simd>(&self, s: S) {
                    binaries::<S>(s);
                }
            }
            fn binaries<S: Lanes<$t>>(s: S) {
                let all: [Binary<$t, S>; 13] = [
                    ("add", |a, b| a + b, S::add),
                    ("sub", |a, b| a - b, S::sub),
                    ("mul", |a, b| a * b, S::mul),
                    ("div", |a, b| a / b, S::div),
                    ("min", |a, b| if a < b { a } else { b }, S::min),
                    ("max", |a, b| if a > b { a } else { b }, S::max),
                    ("min_nan", |a, b| if a.is_nan() || a < b { a } else { b }, S::min_nan),
                    ("max_nan", |a, b| if a.is_nan() || a > b { a } else { b }, S::max_nan),
                    ("copysign", |a, b| a.copysign(b), S::copysign),
                    ("and", |a, b| $t::from_bits(a.to_bits() & b.to_bits()), S::and),
                    ("or", |a, b| $t::from_bits(a.to_bits() | b.to_bits()), S::or),
                    ("xor", |a, b| $t::from_bits(a.to_bits() ^ b.to_bits()), S::xor),
                    ("add_bits", |a, b| $t::from_bits(a.to_bits().wrapping_add(b.to_bits())), S::add_bits),
                ];
                for (name, scalar, vector) in all {
                    for_pairs(s, |a, va, b, vb| {
                        for (i, z) in
                            to_vec::<$t, S>(s, vector(s, va, vb)).into_iter().take(S::LANES).enumerate()
                        {
                            let right = scalar(a[i], b[i]);
                            // Which of two equal zeros a NaN-propagating minimum gives is the hardware's choice.
                            let zeros = name.ends_with("_nan") && right == 0.0 && z == 0.0;
                            assert!(same(right, z) || zeros, "{name} {} {} gives {z}", a[i], b[i]);
                        }
                    });
                }
            }

            struct Fused;
            impl Test for Fused {
                fn test<S: Simd>(&self, s: S) {
                    fused::<S>(s);
                }
            }
            fn fused<S: Lanes<$t>>(s: S) {
                for_pairs(s, |a, va, b, vb| {
                    let plus = to_vec::<$t, S>(s, s.mul_add(va, vb, vb));
                    let minus = to_vec::<$t, S>(s, s.neg_mul_add(va, vb, va));
                    for i in 0..S::LANES {
                        let (x, y) = (a[i], b[i]);
                        assert!(
                            same(plus[i], x.mul_add(y, y)) || same(plus[i], x * y + y),
                            "{x} * {y} + {y}"
                        );
                        assert!(
                            same(minus[i], (-x).mul_add(y, x)) || same(minus[i], x - x * y),
                            "{x} - {x} * {y}"
                        );
                    }
                });
            }

            struct Masks;
            impl Test for Masks {
                fn test<S: Simd>(&self, s: S) {
                    masks::<S>(s);
                }
            }
            fn masks<S: Lanes<$t>>(s: S) {
                let all: [Compare<$t, S>; 7] = [
                    ("lt", |a, b| a < b, S::lt),
                    ("le", |a, b| a <= b, S::le),
                    ("eq", |a, b| a == b, S::eq),
                    ("ne", |a, b| a != b, S::ne),
                    ("not", |a, b| a != b, |s, a, b| s.mask_not(s.eq(a, b))),
                    ("and", |a, b| a == b, |s, a, b| s.mask_and(s.le(a, b), s.le(b, a))),
                    ("or", |a, b| a <= b, |s, a, b| s.mask_or(s.lt(a, b), s.eq(a, b))),
                ];
                for (name, scalar, vector) in all {
                    for_pairs(s, |a, va, b, vb| {
                        let m = vector(s, va, vb);
                        let bits: u32 = (0..S::LANES).map(|i| u32::from(scalar(a[i], b[i])) << i).sum();
                        assert_eq!(s.mask_bits(m), bits, "{name} {a:?} {b:?}");
                        assert_eq!(s.any(m), bits != 0);
                        assert_eq!(s.all(m), bits == (1 << S::LANES) - 1);
                        let picked = to_vec::<$t, S>(s, s.select(m, va, vb));
                        for i in 0..S::LANES {
                            let right = if scalar(a[i], b[i]) { a[i] } else { b[i] };
                            assert!(same(picked[i], right), "select by {name}");
                        }
                    });
                }
            }

            struct Memory;
            impl Test for Memory {
                fn test<S: Simd>(&self, s: S) {
                    memory::<S>(s);
                }
            }
            fn memory<S: Lanes<$t>>(s: S) {
                let source: Vec<$t> = (1..=MAX_LANES + 1).map(|i| i as $t).collect();
                for n in 0..=S::LANES {
                    // Exactly n elements, so that Miri sees a read or write too far.
                    let exact = source[1..=n].to_vec();
                    // SAFETY: `exact` has n elements.
                    let v = unsafe { s.load_first(exact.as_ptr(), n) };
                    let all = to_vec::<$t, S>(s, v);
                    assert_eq!(all[..n], source[1..=n]);
                    assert!(all[n..S::LANES].iter().all(|x| *x == 0.0));
                    let mut target = vec![-1.0; n + 1];
                    // SAFETY: both have at least LANES or n elements.
                    unsafe { s.store_first(target.as_mut_ptr(), s.load(source.as_ptr()), n) };
                    assert_eq!(target[..n], source[..n]);
                    assert_eq!(target[n], -1.0);
                }
                let mut aligned = Aligned([0.0; MAX_LANES]);
                // SAFETY: the target is aligned to the largest register and as large.
                unsafe { s.stream(aligned.0.as_mut_ptr(), s.load(source.as_ptr())) };
                s.fence();
                assert_eq!(aligned.0[..S::LANES], source[..S::LANES]);
                assert!(to_vec::<$t, S>(s, s.splat(7.0))[..S::LANES].iter().all(|x| *x == 7.0));
                let places: Vec<u32> = (0..S::LANES as u32).map(|i| i * 5 % 17).collect();
                // SAFETY: there are LANES places, all of them below the 17 elements of the source.
                let picked = to_vec::<$t, S>(s, unsafe { s.pick(source.as_ptr(), places.as_ptr()) });
                assert!(picked[..S::LANES].iter().zip(&places).all(|(x, &i)| *x == source[i as usize]));
                // SAFETY: as above.
                let half = to_vec::<$t, S>(s, unsafe { s.pick_half(source.as_ptr(), places.as_ptr()) });
                assert_eq!(half[..S::LANES / 2], picked[..S::LANES / 2]);
                assert!(half[S::LANES / 2..S::LANES].iter().all(|x| *x == 0.0));
            }

            struct Turned;
            impl Test for Turned {
                fn test<S: Simd>(&self, s: S) {
                    turned::<S>(s);
                }
            }
            fn turned<S: Lanes<$t>>(s: S) {
                let step = S::LANES + 3;
                // Exactly to the end of the last row.
                let rows: Vec<$t> = (0..step * S::LANES - 3).map(|i| i as $t).collect();
                let mut columns = vec![s.splat(-1.0); S::LANES];
                // SAFETY: there are LANES rows of LANES elements.
                unsafe { s.load_turned(rows.as_ptr(), step, &mut columns) };
                for (j, &column) in columns.iter().enumerate() {
                    let found = to_vec::<$t, S>(s, column);
                    for (lane, x) in found[..S::LANES].iter().enumerate() {
                        assert_eq!(*x, rows[step * usize::from(S::ORDER[lane]) + j], "{j} {lane}");
                    }
                }
            }

            struct Pairs;
            impl Test for Pairs {
                fn test<S: Simd>(&self, s: S) {
                    pairs::<S>(s);
                }
            }
            fn pairs<S: Lanes<$t>>(s: S) {
                let all: Vec<$t> = (0..2 * S::LANES).map(|i| i as $t).collect();
                // SAFETY: there are twice LANES elements.
                let (a, b) = unsafe { (s.load(all.as_ptr()), s.load(all.as_ptr().add(S::LANES))) };
                let (even, odd) = s.unzip(a, b);
                let (evens, odds) = (to_vec::<$t, S>(s, even), to_vec::<$t, S>(s, odd));
                for (lane, &pair) in S::ORDER[..S::LANES].iter().enumerate() {
                    assert_eq!(
                        [evens[lane], odds[lane]],
                        [2 * pair, 2 * pair + 1].map(|i| i as $t),
                        "{lane}"
                    );
                    assert_eq!(
                        usize::from(S::ORDER[S::LANES - 1 - lane] + pair),
                        S::LANES - 1,
                        "mirror of {lane}"
                    );
                }
                let (c, d) = s.zip(even, odd);
                assert_eq!(to_vec::<$t, S>(s, c)[..S::LANES], all[..S::LANES]);
                assert_eq!(to_vec::<$t, S>(s, d)[..S::LANES], all[S::LANES..]);
                let square: Vec<$t> = (0..S::LANES * S::LANES).map(|i| i as $t).collect();
                // SAFETY: the square has LANES rows.
                let rows = (0..S::LANES).map(|i| unsafe { s.load(square.as_ptr().add(i * S::LANES)) });
                let mut rows: Vec<_> = rows.collect();
                s.transpose(&mut rows);
                for (j, &column) in rows.iter().enumerate() {
                    let found = to_vec::<$t, S>(s, column);
                    assert!((0..S::LANES).all(|i| found[i] == square[i * S::LANES + j]), "column {j}");
                }
            }

            struct Folds;
            impl Test for Folds {
                fn test<S: Simd>(&self, s: S) {
                    folds::<S>(s);
                }
            }
            fn folds<S: Lanes<$t>>(s: S) {
                let mut x: Vec<$t> = (0..S::LANES).map(|i| ((i * 7 + 3) % 16) as $t - 8.5).collect();
                // SAFETY: `x` has LANES elements.
                let v = unsafe { s.load(x.as_ptr()) };
                assert_eq!(s.first(v), x[0]);
                assert_eq!(s.reduce_add(v), x.iter().sum::<$t>());
                let times = |n: $t| s.mul(v, s.splat(n));
                let four = s.reduce_add_four([times(1.0), times(2.0), times(4.0), times(8.0)]);
                assert_eq!(four, [1.0, 2.0, 4.0, 8.0].map(|n: $t| n * s.reduce_add(v)));
                let product: $t = x.iter().product();
                assert!((s.reduce_mul(v) / product - 1.0).abs() < 1e-5);
                assert_eq!(s.reduce_min(v), x.iter().copied().fold($t::INFINITY, $t::min));
                assert_eq!(s.reduce_max(v), x.iter().copied().fold($t::NEG_INFINITY, $t::max));
                let mut distance = 1;
                while distance < S::LANES {
                    let swapped = to_vec::<$t, S>(s, s.butterfly(v, distance));
                    assert!((0..S::LANES).all(|i| swapped[i] == x[i ^ distance]), "butterfly {distance}");
                    distance *= 2;
                }
                for i in 0..S::LANES {
                    let kept = std::mem::replace(&mut x[i], $t::NAN);
                    // SAFETY: `x` has LANES elements.
                    let v = unsafe { s.load(x.as_ptr()) };
                    assert!(s.reduce_min(v).is_nan() && s.reduce_max(v).is_nan(), "NaN in lane {i}");
                    x[i] = kept;
                }
            }

            struct Powers;
            impl Test for Powers {
                fn test<S: Simd>(&self, s: S) {
                    powers::<S>(s);
                }
            }
            fn powers<S: Lanes<$t>>(s: S) {
                let bias = $t::BIAS as i32;
                for n in (1 - bias..=bias).step_by(if cfg!(miri) { 31 } else { 1 }) {
                    assert_eq!(s.first(s.pow2i(s.splat(n as $t))), (2.0 as $t).powi(n), "2^{n}");
                    let (m, e) = s.split(s.splat((2.0 as $t).powi(n) * 1.75));
                    assert_eq!((s.first(m), s.first(e)), (1.75, n as $t));
                }
                for n in (-2 * bias..=bias * 2).step_by(if cfg!(miri) { 31 } else { 1 }) {
                    let right = (1.75 * (2.0 as $t).powi(n / 2)) * (2.0 as $t).powi(n - n / 2);
                    assert_eq!(s.first(s.scale(s.splat(1.75), s.splat(n as $t))), right, "1.75 * 2^{n}");
                }
            }

            #[test]
            fn all_instruction_sets() {
                on_all(&Unaries);
                on_all(&Binaries);
                on_all(&Fused);
                on_all(&Masks);
                on_all(&Memory);
                on_all(&Turned);
                on_all(&Pairs);
                on_all(&Folds);
                on_all(&Powers);
            }
        }
    };
}
tests_for!(f32_lanes, f32);
tests_for!(f64_lanes, f64);

struct Halves;
impl Test for Halves {
    fn test<S: Simd>(&self, s: S) {
        halves::<S>(s);
    }
}

fn halves<S: HalfLanes>(s: S) {
    let step = if cfg!(miri) { 977 } else { 1 };
    for bits in (0..=u16::MAX).step_by(step) {
        let (h, b) = ([f16::from_bits(bits); MAX_LANES], [bf16::from_bits(bits); MAX_LANES]);
        // SAFETY: both arrays have MAX_LANES elements.
        let (wide_h, wide_b) = unsafe { (s.load_f16(h.as_ptr()), s.load_bf16(b.as_ptr())) };
        assert!(same(s.first(wide_h), h[0].to_f32()) && same(s.first(wide_b), b[0].to_f32()), "{bits:#x}");
        // Half way to the next one and a little to both sides of that.
        for nudge in [0, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001] {
            check_rounding(s, f32::from_bits((s.first(wide_h).to_bits()).wrapping_add(nudge)));
            check_rounding(s, f32::from_bits((s.first(wide_b).to_bits()).wrapping_add(nudge)));
        }
    }
    for n in 0..=S::LANES {
        let source: Vec<f16> = (0..n).map(|i| f16::from_f32(i as f32 + 1.0)).collect();
        let mut target = vec![f16::ZERO; n];
        // SAFETY: both have n elements.
        unsafe { s.store_f16_first(target.as_mut_ptr(), s.load_f16_first(source.as_ptr(), n), n) };
        assert_eq!(source, target);
        let source: Vec<bf16> = (0..n).map(|i| bf16::from_f32(i as f32 + 1.0)).collect();
        let mut target = vec![bf16::ZERO; n];
        // SAFETY: both have n elements.
        unsafe { s.store_bf16_first(target.as_mut_ptr(), s.load_bf16_first(source.as_ptr(), n), n) };
        assert_eq!(source, target);
    }
}

fn check_rounding<S: HalfLanes>(s: S, x: f32) {
    let (mut h, mut b) = ([f16::ZERO; MAX_LANES], [bf16::ZERO; MAX_LANES]);
    // SAFETY: both arrays have MAX_LANES elements.
    unsafe {
        s.store_f16(h.as_mut_ptr(), s.splat(x));
        s.store_bf16(b.as_mut_ptr(), s.splat(x));
    }
    assert!(same(h[0].to_f32(), f16::from_f32(x).to_f32()), "f16 of {x}: {}", h[0]);
    assert!(same(b[0].to_f32(), bf16::from_f32(x).to_f32()), "bf16 of {x}: {}", b[0]);
}

#[test]
fn half_precision_converts_like_scalar_code() {
    on_all(&Halves);
}

struct LookUp;
impl Test for LookUp {
    fn test<S: Simd>(&self, s: S) {
        let table: [f32; MAX_LANES] = std::array::from_fn(|i| 100.0 + i as f32);
        for step in [0, 1, 3, 7, 0x1000_000F] {
            let at: [u32; MAX_LANES] = std::array::from_fn(|i| 5 + step * i as u32);
            assert_eq!(s.look_up(&table, &at), at.map(|i| 100.0 + (i % 16) as f32));
        }
    }
}

#[test]
fn tables_of_sixteen_are_looked_up_by_the_lowest_bits() {
    on_all(&LookUp);
}
